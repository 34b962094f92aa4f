/* The oracle model (tests/sim/oracle_backend.h) with lower tiers of the prefix cache, driven by hand under a clock of
 * its own: a step takes a millisecond, so that fetching is worth it; what a block takes to come up or to be copied down
 * the test says. One at a time, in `tiered`. */
#ifndef RN_TESTS_ACTORS_TIER_TIERED_H
#define RN_TESTS_ACTORS_TIER_TIERED_H

#include "actors/engine.h"
#include "tests/actors/fixture.h"
#include "tests/sim/oracle_backend.h"

enum { TIERED_BLOCK = 8, TIERED_BLOCKS = 32, TIERED_LONG = 120 }; /* positions; blocks; a prompt of fifteen blocks */

struct tiered_plan {
    uint64_t warm_bytes;
    bool cold; /* in tiered.folder */
    const struct rn_cold_io *io;
    const char *shared, *codec;
};

extern struct tiered {
    runnel_engine *engine;
    runnel_model *model;
    struct oracle *oracle;
    char folder[64];
    int n_warnings; /* lines of the log */
    uint64_t time_us;
    uint64_t block_us; /* that a block takes to come up */
    uint64_t copy_us;  /* that a block takes to be copied down */
    bool mover_hangs;  /* as if its disk did */
} tiered;

void tiered_begin(const struct tiered_plan *plan);
void tiered_end(void);

/* All that can be done without another step; blocks that nobody has are poisoned, tree and pool are checked. step: one
 * ends, and what follows. run_out: until there is no step any more. */
void tiered_settle(void);
void tiered_step(enum oracle_fault fault);
void tiered_run_out(void);

/* n tokens, of its own for each number; those of one family have the first n_same in common. */
void tiered_prompt(int32_t *tokens, uint32_t n, uint32_t family, uint32_t n_same, uint32_t number);
runnel_request tiered_request(struct capture *capture, const int32_t *tokens, uint32_t n, int64_t max_tokens);

/* Every token of the answer is the closed form's. */
void tiered_assert_right(const struct capture *capture, const int32_t *tokens, uint32_t n);

/* Asks for four tokens, to the end; nothing is held or lent then. */
runnel_usage tiered_ask(const int32_t *tokens, uint32_t n, uint64_t salt);

/* n other prompts of TIERED_LONG tokens, from this number on. */
void tiered_crowd_out(uint32_t first, uint32_t n);

runnel_metrics tiered_metrics(void);

/* tiered.folder, for cmocka's setup and teardown. */
int tiered_make_folder(void **state);
int tiered_drop_folder(void **state);
void tiered_remove_folder(void);

#endif
