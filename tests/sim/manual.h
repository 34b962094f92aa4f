/* An engine without threads, for tests that drive it by hand: actors run when the test says so, and a step of the model
 * ends when the test lets it (oracle_complete). With the oracle model (manual_open), or with a model of the test's own
 * parts (manual_engine, manual_model). What cannot be opened fails the test. */
#ifndef RN_TESTS_SIM_MANUAL_H
#define RN_TESTS_SIM_MANUAL_H

#include "actors/engine.h"
#include "tests/sim/oracle_backend.h"

struct manual_plan {
    struct rn_backend_limits limits;
    uint32_t n_letters;                                   /* the model writes the first so many of a, b, c ...; 0: 2 */
    const runnel_engine_options *options;                 /* NULL: as they are by default */
    const struct rn_clock *clock;                         /* NULL: the machine's */
    const runnel_model_options *model;                    /* NULL: as they are by default */
    const struct rn_cold_io *cold_io;                     /* NULL: the machine's */
    uint32_t cache_places;                                /* of the parts (actors/engine.h) */
    void (*submitted)(void *user, struct oracle *oracle); /* with each step; NULL: it waits */
};

/* NULL: options as they are by default, the machine's clock. */
runnel_engine *manual_engine(const runnel_engine_options *options, const struct rn_clock *clock);

/* A model of these parts, with a token for each byte; of an engine with threads, too. options NULL: by default. */
runnel_model *manual_model(runnel_engine *engine, struct rn_model_parts *parts, const runnel_model_options *options);

/* An engine with one model, the oracle of salt 1. */
void manual_open(const struct manual_plan *plan, runnel_engine **engine, runnel_model **model, struct oracle **oracle);

/* The same, for tests that have one engine at a time; manual_end is its manual_close, as a teardown of cmocka's. */
extern struct manual {
    runnel_engine *engine;
    runnel_model *model;
    struct oracle *oracle;
} manual;
void manual_begin(const struct manual_plan *plan);
int manual_end(void **state);

/* Ends what a failed test may have left, frees both, and fails the test where the engine broke the backend's
 * contract. */
void manual_close(runnel_engine *engine, struct oracle *oracle);

/* Frees it, and fails the test where its contract was broken. */
void manual_oracle_free(struct oracle *oracle);

/* Runs actors until none can run; the host hears nothing. */
void manual_run(runnel_engine *engine);

/* All that can be done without another step, the host's callbacks included. */
void manual_settle(runnel_engine *engine);

/* The tier and its mover are whole; what is free of the pool holds rubbish from now on. */
void manual_check(runnel_model *model, struct oracle *oracle);

/* Of `manual`: as manual_settle; decode and prefill are whole, and manual_check. Steps end until there is none. */
void manual_settle_whole(void);
void manual_run_out(void);

/* For `submitted`: the step is done before its submit returns. */
void manual_complete_at_once(void *user, struct oracle *oracle);

/* The alphabet of the first n letters. */
struct oracle_alphabet manual_alphabet(uint32_t n);

#endif
