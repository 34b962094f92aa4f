/* See tiered.h. */
#include "tests/actors/tier/tiered.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/rng.h"
#include "tests/sim/manual.h"

#define N_LETTERS 4

struct tiered tiered;
static const struct rn_backend_ops *fast_ops;
static struct rn_backend_ops slow_ops;

static void on_log(void *user, runnel_log_level level, const char *line)
{
    (void)user;
    (void)line;
    tiered.n_warnings += level <= RUNNEL_LOG_WARNING;
}

static uint64_t now_us(void *user)
{
    (void)user;
    return ++tiered.time_us;
}

static void slow_copies(struct rn_backend *backend, struct rn_host_copies *copies)
{
    for (uint32_t i = 0; i < copies->n; i++)
        tiered.time_us += copies->items[i].to_host ? tiered.copy_us : tiered.block_us;
    fast_ops->copy_async(backend, copies);
}

void tiered_begin(const struct tiered_plan *plan)
{
    static const struct rn_clock clock = {.now_us = now_us};
    struct manual_plan by_hand = {.limits = {.max_rows = 16,
                                             .max_seqs = 10,
                                             .max_outs = 8,
                                             .n_blocks = TIERED_BLOCKS,
                                             .block_tokens = TIERED_BLOCK,
                                             .context_tokens = 128},
                                  .n_letters = N_LETTERS,
                                  .clock = &clock,
                                  .cold_io = plan->io,
                                  .cache_places = 256};
    runnel_engine_options options;
    runnel_model_options model_options;

    runnel_engine_options_default(&options);
    options.max_streams = 8;
    options.on_log = on_log;
    runnel_model_options_default(&model_options);
    model_options.cache_warm_bytes = plan->warm_bytes;
    model_options.cache_dir = plan->cold ? tiered.folder : NULL;
    model_options.cache_shared = plan->shared;
    model_options.cache_codec = plan->codec;
    by_hand.options = &options;
    by_hand.model = &model_options;
    manual_open(&by_hand, &tiered.engine, &tiered.model, &tiered.oracle);
    fast_ops = tiered.oracle->backend.ops;
    slow_ops = *fast_ops;
    slow_ops.copy_async = slow_copies;
    tiered.oracle->backend.ops = &slow_ops;
}

void tiered_end(void)
{
    manual_close(tiered.engine, tiered.oracle);
}

/* Runs one actor; false: none can run. */
static bool run_one(void)
{
    for (uint32_t i = 0; i < rn_runtime_runnable(&tiered.engine->runtime); i++)
        if (!tiered.mover_hangs || tiered.engine->runtime.runnable[i] != &tiered.model->mover.actor) {
            rn_runtime_step(&tiered.engine->runtime, i, RN_ACTOR_BATCH);
            return true;
        }
    return false;
}

void tiered_settle(void)
{
    do {
        while (run_one())
            continue;
    } while (runnel_engine_dispatch(tiered.engine, 0) > 0);
    manual_check(tiered.model, tiered.oracle);
}

void tiered_run_out(void)
{
    tiered_settle();
    while (tiered.oracle->first != NULL) {
        tiered.time_us += 1000;
        oracle_complete(tiered.oracle, ORACLE_FAULT_NONE);
        tiered_settle();
    }
}

void tiered_step(enum oracle_fault fault)
{
    assert_non_null(tiered.oracle->first);
    tiered.time_us += 1000;
    oracle_complete(tiered.oracle, fault);
    tiered_settle();
}

void tiered_prompt(int32_t *tokens, uint32_t n, uint32_t family, uint32_t n_same, uint32_t number)
{
    uint64_t same = family, own = 1000 + number;

    for (uint32_t i = 0; i < n; i++)
        tokens[i] = (int32_t)(rn_splitmix64(i < n_same ? &same : &own) % 251);
}

runnel_request tiered_request(struct capture *capture, const int32_t *tokens, uint32_t n, int64_t max_tokens)
{
    runnel_request request = make_request(NULL, max_tokens, capture);

    memset(capture, 0, sizeof *capture);
    request.tokens = tokens;
    request.n_tokens = n;
    return request;
}

void tiered_assert_right(const struct capture *capture, const int32_t *tokens, uint32_t n)
{
    struct oracle_alphabet alphabet = manual_alphabet(N_LETTERS);
    struct oracle_chain chain;

    assert_int_equal(capture->last.type, RUNNEL_EVENT_DONE);
    oracle_chain_init(&chain, tiered.oracle->salt);
    for (uint32_t i = 0; i < n; i++)
        oracle_chain_push(&chain, tokens[i]);
    for (size_t i = 0; i < capture->n_tokens; i++) {
        assert_int_equal(capture->tokens[i], oracle_chain_next(&chain, &alphabet));
        oracle_chain_push(&chain, capture->tokens[i]);
    }
}

runnel_usage tiered_ask(const int32_t *tokens, uint32_t n, uint64_t salt)
{
    struct capture capture;
    runnel_request request = tiered_request(&capture, tokens, n, 4);
    runnel_usage usage;

    request.cache_salt = salt;
    assert_int_equal(runnel_generate(tiered.model, &request, &(runnel_stream){0}, NULL), RUNNEL_OK);
    tiered_run_out();
    tiered_assert_right(&capture, tokens, n);
    usage = capture.last.usage;
    capture_clear(&capture);
    assert_int_equal(tiered.model->tier.cache.blocks.n_used, 0);
    assert_int_equal(tiered.model->tier.cache.blocks.n_lent, 0);
    return usage;
}

void tiered_crowd_out(uint32_t first, uint32_t n)
{
    int32_t other[TIERED_LONG];

    for (uint32_t i = first; i < first + n; i++) {
        tiered_prompt(other, TIERED_LONG, 0, 0, i);
        assert_true(tiered_ask(other, TIERED_LONG, 0).cached_tokens < TIERED_BLOCK);
    }
}

runnel_metrics tiered_metrics(void)
{
    static runnel_metrics now;

    now.struct_size = sizeof now;
    assert_int_equal(runnel_engine_metrics(tiered.engine, &now), RUNNEL_OK);
    return now;
}

void tiered_remove_folder(void)
{
    char command[128];

    snprintf(command, sizeof command, "rm -rf %s", tiered.folder);
    assert_int_equal(system(command), 0);
}

int tiered_make_folder(void **state)
{
    (void)state;
    tiered.n_warnings = 0;
    strcpy(tiered.folder, "/tmp/runnel-tiers-XXXXXX");
    return mkdtemp(tiered.folder) != NULL ? 0 : -1;
}

int tiered_drop_folder(void **state)
{
    (void)state;
    tiered_remove_folder();
    return 0;
}
