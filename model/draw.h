/* Drawing in the step: what goes down with a wanted row, and what comes up in place of its logits.
 *
 *   step k     row r: token 17, wanted as out 0 ──▶ logits ──▶ draws[0]: token 4, logprob ...
 *                                                                   │
 *   step k+1   row 0: drawn[0] = 0, its token is the one drawn ◀────┘     submitted before step k is done
 *
 * So a step needs nothing that its submitter has to look at first, and several can be in flight. A device that draws by
 * itself (RN_CAN_DRAW_ITSELF) reads the parameters and what names its noise, and its logits never leave it. Penalties
 * count the tokens before. The host sends the counts that it knows (rn_draw_changes), and of a row that waits for its
 * token the device counts that one: so it keeps nothing from one step to the next, and a step that is stopped, thrown
 * away or made again leaves nothing behind. Rows with further samplers, or with what the device cannot
 * (rn_backend_ops.can_draw), are asked for their logits. A grammar's mask may come while the step runs (draw_mask.h).
 * Any other device calls the step's drawer at the end of the step, on its own threads: one call for each wanted row, in
 * any order, several at once, each with a scratch area of its own. What is drawn must not depend on any of that (law
 * 5). */
#ifndef RN_MODEL_DRAW_H
#define RN_MODEL_DRAW_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct rn_draw_mask;
struct rn_step;

/* How often a token counts. */
struct rn_draw_count {
    int32_t token;
    uint32_t count;
};

/* What changes single logits of a row before anything is drawn from them: the biases of its parameters, one by one,
 * then its penalties, then what may not come yet. To the bit as sampling/adjust.c does it. */
struct rn_draw_changes {
    const struct rn_draw_count *counts; /* [n_counts], no token twice: what the penalties count */
    const int32_t *barred;              /* [n_barred]: not drawn, but for a mask that allows no other (may_end) */
    uint32_t n_counts, n_barred;
    bool counts_own; /* the row's own token counts once more */
};

/* Of one wanted row. */
struct rn_draw {
    /* Down. */
    bool wanted; /* a token; false: nothing is drawn, and of the rest only keep_logits counts */
    bool want_logprob;
    uint32_t want_top;               /* the best so many, with their logprobs: at most RUNNEL_MAX_TOP_LOGPROBS */
    uint64_t seed, position;         /* name the noise (sampling/noise.h) */
    const runnel_sampling *sampling; /* of a device that draws by itself, but for the seed; borrowed while in flight, as
                                        the changes are. Else neither is looked at */
    struct rn_draw_changes changes;
    float *keep_logits;              /* [n_vocab]: where a copy of the logits goes; NULL: nowhere */
    const struct rn_draw_mask *mask; /* of a device that draws by itself: which tokens may be drawn, in the place that
                                        rn_backend_ops.mask_of has given for this row; NULL: all. Logprobs are those of
                                        all */
    float *late_logits; /* [n_vocab], with a mask: where the logits go if it is not there when the row is drawn */

    /* Up. */
    runnel_status status; /* OK; NUMERIC: there is no token in these logits; or what the row depended on has come to */
    int32_t token;        /* in [0, n_vocab) */
    bool is_late;         /* with a mask that was not there: nothing is drawn, and late_logits are the row's */
    float logprob;
    uint32_t n_top;
    runnel_logprob top[RUNNEL_MAX_TOP_LOGPROBS]; /* best first */
};

/* How a device draws that does not do it by itself. Borrowed while the step is in flight. */
struct rn_drawer {
    /* Fills what goes up of draws[out] from logits [n_vocab], which stay as they are, and touches nothing else but its
     * scratch. On a thread of the backend; must not block. */
    void (*draw)(void *user, uint32_t out, const float *logits, void *scratch);
    void *user;
    void *const *scratch; /* [n_scratch]: one for each call at the same time; n_scratch at least 1, and more than
                             rn_device_caps.draw_threads are not used */
    uint32_t n_scratch;
};

/* What a step has drawn for a wanted row, as the next one needs it. The backend's: the step itself is its submitter's
 * again by then. */
struct rn_drawn {
    runnel_status status; /* STATE: nothing was drawn */
    int32_t token;
};

/* For backends. chain: before a step is computed, with what the one before it has drawn [n_before]: puts the tokens
 * into the rows that wait for them, and sets the status of each draw: OK, or what has become of the first row that its
 * row depends on (then it has no logits, and what it stores is worth nothing). one: draws for a wanted row with its
 * logits, if its status is still OK. stop: the step was stopped, and nothing of it is drawn. keep: when all is drawn,
 * or stopped; returns how many of `drawn` [n_outs] were filled. */
void rn_draw_chain(struct rn_step *step, const struct rn_drawn *before, uint32_t n_before);
void rn_draw_one(const struct rn_step *step, uint32_t out, const float *logits, uint32_t n_vocab, uint32_t worker);
void rn_draw_stop(struct rn_step *step);
uint32_t rn_draw_keep(const struct rn_step *step, struct rn_drawn *drawn);

#endif
