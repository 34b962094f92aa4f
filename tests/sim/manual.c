/* See manual.h. */
#include "tests/sim/manual.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

struct manual manual;

struct oracle_alphabet manual_alphabet(uint32_t n)
{
    struct oracle_alphabet alphabet = {.n = n};

    for (uint32_t i = 0; i < n; i++)
        alphabet.bytes[i] = (uint8_t)('a' + i);
    return alphabet;
}

runnel_engine *manual_engine(const runnel_engine_options *options, const struct rn_clock *clock)
{
    runnel_engine *engine = NULL;
    runnel_error error;

    if (rn_engine_new(options, clock, true, &engine, &error) != RUNNEL_OK)
        fail_msg("engine: %s", error.message);
    return engine;
}

runnel_model *manual_model(runnel_engine *engine, struct rn_model_parts *parts, const runnel_model_options *options)
{
    runnel_model *model = NULL;
    runnel_error error;

    parts->vocab = rn_vocab_new_bytes(&engine->heap);
    if (rn_model_new_of_parts(engine, parts, options, &model, &error) != RUNNEL_OK)
        fail_msg("model: %s", error.message);
    return model;
}

void manual_open(const struct manual_plan *plan, runnel_engine **engine, runnel_model **model, struct oracle **oracle)
{
    struct rn_model_parts parts = {
        .limits = plan->limits, .n_vocab = ORACLE_VOCAB, .cold_io = plan->cold_io, .cache_places = plan->cache_places};
    struct oracle_alphabet alphabet = manual_alphabet(plan->n_letters == 0 ? 2 : plan->n_letters);

    *engine = manual_engine(plan->options, plan->clock);
    *oracle = oracle_new(&plan->limits, &alphabet, 1);
    assert_non_null(*oracle);
    (*oracle)->submitted = plan->submitted;
    parts.backend = &(*oracle)->backend;
    *model = manual_model(*engine, &parts, plan->model);
}

void manual_close(runnel_engine *engine, struct oracle *oracle)
{
    oracle->submitted = manual_complete_at_once;
    oracle->copying = NULL;
    while (oracle->first_copies != NULL)
        oracle_copy(oracle);
    while (oracle->first != NULL)
        oracle_complete(oracle, ORACLE_FAULT_NONE);
    runnel_engine_free(engine);
    manual_oracle_free(oracle);
}

void manual_begin(const struct manual_plan *plan)
{
    manual_open(plan, &manual.engine, &manual.model, &manual.oracle);
}

int manual_end(void **state)
{
    (void)state;
    manual_close(manual.engine, manual.oracle);
    return 0;
}

void manual_oracle_free(struct oracle *oracle)
{
    if (oracle->breach != NULL)
        fail_msg("%s", oracle->breach);
    oracle_free(oracle);
}

void manual_run(runnel_engine *engine)
{
    while (rn_runtime_runnable(&engine->runtime) > 0)
        rn_runtime_step(&engine->runtime, 0, RN_ACTOR_BATCH);
}

void manual_settle(runnel_engine *engine)
{
    do
        manual_run(engine);
    while (runnel_engine_dispatch(engine, 0) > 0);
}

void manual_check(runnel_model *model, struct oracle *oracle)
{
    const struct rn_block_pool *pool = &model->tier.cache.blocks.pool;

    assert_true(rn_tier_check(&model->tier) && rn_mover_check(&model->mover));
    assert_true(rn_hit_ceiling_check(&model->tier.cache.ceiling));
    for (uint32_t i = 0; i < pool->n_free; i++)
        oracle_poison_block(oracle, pool->free_stack[i]);
}

void manual_settle_whole(void)
{
    manual_settle(manual.engine);
    assert_true(rn_decode_check(&manual.model->decode) && rn_prefill_check(&manual.model->prefill));
    manual_check(manual.model, manual.oracle);
}

void manual_run_out(void)
{
    manual_settle_whole();
    while (manual.oracle->first != NULL) {
        oracle_complete(manual.oracle, ORACLE_FAULT_NONE);
        manual_settle_whole();
    }
}

void manual_complete_at_once(void *user, struct oracle *oracle)
{
    (void)user;
    oracle_complete(oracle, ORACLE_FAULT_NONE);
}
