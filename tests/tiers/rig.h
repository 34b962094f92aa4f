/* An engine with the oracle model (tests/sim/oracle_backend.h) and lower tiers of the prefix cache, for tests: what is
 * asked is numbered, and each answer is judged by the closed form, token for token.
 *
 *   prompt of chain c: a stem of RIG_STEM tokens, the same for all chains of one family (c / 8); then the chain's own
 *
 * Without threads the engine runs inside rig_ask and rig_settle, on the caller's thread and in a fixed order, and the
 * clock goes on by a microsecond each time it is looked at. */
#ifndef TESTS_TIERS_RIG_H
#define TESTS_TIERS_RIG_H

#include "actors/engine.h"
#include "tests/sim/oracle_backend.h"

enum { RIG_BLOCK = 8, RIG_STEM = 4 * RIG_BLOCK, RIG_CONTEXT = 128, RIG_ANSWER = 5, RIG_LINE = 300 };

struct rig_plan {
    uint32_t n_blocks; /* of kv; 0: 32 */
    uint64_t warm_bytes, cold_bytes;
    const char *dir; /* NULL: no cold tier */
    const struct rn_cold_io *io;
    uint32_t places; /* of a lower tier; 0: 512 */
    const char *codec, *shared;
    uint64_t oracle_salt; /* another: another model */
    bool threads, no_cache;
    uint32_t max_streams; /* 0: 4 */
};

struct rig {
    struct rig_plan plan;
    runnel_engine *engine;
    runnel_model *model;
    struct oracle *oracle;
    uint64_t now_us;
    uint32_t n_warnings;    /* lines of the log, from WARNING up */
    char warning[RIG_LINE]; /* the first */
};

struct rig_ask {
    uint32_t chain, n_prompt;
    uint64_t salt;
    uint8_t pin;
    runnel_cache_wait wait;
    uint32_t wait_ms;
};

/* Fails the test where it cannot be. open: the rest of *rig is set by it. */
void rig_open(struct rig *rig, const struct rig_plan *plan);
void rig_close(struct rig *rig);

/* The prompt's tokens [n]. */
void rig_prompt(uint32_t chain, int32_t *tokens, uint32_t n);

/* Asks, waits for the end, fails the test if the answer is not the right one; and settles. */
runnel_usage rig_ask(struct rig *rig, struct rig_ask ask);

/* As rig_ask in two steps: what is asked at one moment. `id` is the caller's, below 64. */
void rig_begin(struct rig *rig, struct rig_ask ask, unsigned id);
runnel_usage rig_end(struct rig *rig, unsigned id);

/* Until nothing is under way: no request, no message, no block on its way to a lower tier. */
void rig_settle(struct rig *rig);

runnel_engine_stats rig_stats(const struct rig *rig);

#endif
