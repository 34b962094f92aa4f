/* The ring of steps: the batches that decode composes, submits and gets back in the order of submission.
 *
 *   n_submitted - n_flying                                n_submitted
 *   | back: taken apart | in flight, oldest ... newest | composed next |
 *
 * Where the device takes several steps at once (rn_device_caps.good_ring), a step is composed while those before it
 * run: a sequence whose last row is in the step submitted last brings a row that waits for what that draws
 * (rn_step.drawn). So the device finds the next step there when it has ended one. What the host decides afterwards (the
 * end of an answer, a cancel, a deadline) makes rows that were computed ahead worthless: they are thrown away when they
 * come back, and their positions count as not computed.
 *
 * A request needs the host between two of its steps if it drafts, if the host draws for it or the device's threads do
 * and it has penalties, if a grammar guides it, or if it makes an embedding or gives logits from its prompt. While
 * decode has one, one step at a time is in flight, as it always is where a step draws nothing, has features or means,
 * or changes a recurrent state: so nobody's steps come less often than with one step at a time. Decode's own. */
#ifndef RN_ACTORS_DECODE_STEP_RING_H
#define RN_ACTORS_DECODE_STEP_RING_H

#include "actors/batch.h"
#include "actors/lists.h"
#include "model/stop.h"

struct rn_context;
struct rn_request;

/* What a step in flight reads. */
struct rn_step_arrays {
    struct rn_step_row *rows;     /* [max_rows] */
    int32_t *drawn;               /* [max_rows] */
    struct rn_step_seq *seqs;     /* [max_seqs] */
    struct rn_step_copy *copies;  /* [max_seqs] */
    struct rn_draw_count *counts; /* [max_changes] */
    struct rn_stop stop;          /* set once each request with rows in flight has its outcome */
};

struct rn_step_ring {
    uint32_t size; /* steps in flight, at most: 1 to RN_STEPS */
    uint32_t n_flying;
    uint64_t n_submitted;
    uint64_t end_ns;                        /* of the last step that came back */
    struct rn_batch batches[RN_STEPS + 1];  /* one more is taken apart */
    struct rn_step_arrays arrays[RN_STEPS]; /* [size]: nobody reads those of a batch that is back */

    /* Of a step that is in flight alone. */
    struct rn_step_move *moves;              /* [max_seqs] */
    int32_t *parents;                        /* [max_rows] */
    uint32_t *states;                        /* [max_seqs]; NULL, as the next one: the plan has no recurrent state */
    struct rn_step_state_copy *state_copies; /* [max_seqs] */
    uint32_t *feature_rows;                  /* [max_rows] */
    float *features;                         /* [max_rows, row_features]: but where a drafter reads them */
    float *logits;                           /* [max_outs, n_vocab]; NULL: they stay on the device (limits.draws) */
    float *late_logits; /* [most_late, n_vocab]: of rows that the sampler draws for a device that draws by
                                   itself; NULL: it does not */
    uint32_t most_late;
};

/* NO_MEMORY: what it has taken, fini gives back. cost: decode's. */
runnel_status rn_step_ring_init(struct rn_step_ring *ring, const struct rn_context *context, struct rn_step_cost *cost);
void rn_step_ring_fini(struct rn_step_ring *ring, struct rn_heap *heap);

/* The batch that is composed next, empty, with arrays of its own. One more may be in flight. */
struct rn_batch *rn_step_ring_next(struct rn_step_ring *ring);

/* It is in flight from now on. */
void rn_step_ring_submit(struct rn_step_ring *ring);

/* The oldest one is back (RN_CHECK that it is this one). Its begin is now when the device began with it. */
void rn_step_ring_take(struct rn_step_ring *ring, struct rn_batch *batch);

/* Nobody waits for the steps in flight any more. */
void rn_step_ring_stop(struct rn_step_ring *ring);

/* For the step that is composed: does the one submitted last, which is in flight, draw the request's next token? Then
 * the wanted row that does. */
bool rn_step_ring_draws(const struct rn_step_ring *ring, const struct rn_request *request);
uint32_t rn_step_ring_drawn(const struct rn_step_ring *ring, const struct rn_request *request);

/* Counts are in their bounds, and batches that are not in flight hold nothing. Between two messages. */
bool rn_step_ring_check(const struct rn_step_ring *ring);

#endif
