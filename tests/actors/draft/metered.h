/* Models whose time is the test's: a step takes a millisecond and a pass of the drafter a twentieth of it, by a clock
 * that only they advance, so that the policy of drafts decides alike on a machine of any speed under any load. */
#ifndef RN_TESTS_ACTORS_DRAFT_METERED_H
#define RN_TESTS_ACTORS_DRAFT_METERED_H

#include "model/backend.h"
#include "runnel.h"

/* Told of each step of the model (of the drafter: of none), on decode's thread, before it is computed. NULL: nobody. */
extern void (*metered_watch)(const struct rn_step *step);

/* One engine at a time. */
runnel_engine *metered_engine(void);

/* draft: as draft_path. Of a drafter with several layers only the first one's passes take time. */
runnel_model *metered_model(runnel_engine *engine, const char *path, const char *draft);

/* The model whose streams never rest, since a drafter that begins anew behind a rest knows less than a judge; NULL:
 * none. keep_awake: to be called by who watches, on decode's thread. */
extern runnel_model *metered_restless;
void metered_keep_awake(void);

/* A guess that a step verifies: the token of `position`, the place-th behind the last known one, from 1. */
struct metered_guess {
    uint32_t position, place;
    int32_t token;
    bool leaf; /* a runner-up */
};

enum { METERED_CONTEXT = 512, METERED_MOST_GUESSES = 4096 };

/* What the steps of one sequence tell. */
struct metered_seen {
    int32_t text[METERED_CONTEXT]; /* tokens by position */
    uint32_t n;
    struct metered_guess guesses[METERED_MOST_GUESSES];
    uint32_t n_guesses;
    bool prompt_seen;
};

/* For metered_watch: fills metered_seen, which the caller has cleared, and keeps streams awake. A sequence has rows of
 * its prompt until the first with one row whose logits are wanted; then the last token and guesses. */
extern struct metered_seen metered_seen;
void metered_see(const struct rn_step *step);

/* The model with this drafter is refused at once or by the end of its load, with this status and words like these. It
 * is the engine's only one. */
void metered_refuse(runnel_engine *engine, const char *path, const char *draft, runnel_status status, const char *says);

#endif
