/* See rig.h. */
#include "tests/tiers/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/rng.h"
#include "tests/sim/manual.h"
#include "tests/support/patience.h"

enum { STREAMS = 64 };

/* The answer of one request as far as it has come. */
static struct stream {
    struct rig_ask ask;
    int32_t tokens[RIG_ANSWER];
    uint32_t n_tokens;
    bool ended;
    runnel_event end;
} streams[STREAMS];

static const struct oracle_alphabet alphabet = {8, {'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'}};

/* ---- The engine ---- */

static uint64_t now_us(void *user)
{
    return ++((struct rig *)user)->now_us;
}

static void on_log(void *user, runnel_log_level level, const char *line)
{
    struct rig *rig = user;

    if (level > RUNNEL_LOG_WARNING)
        return;
    if (rig->n_warnings++ == 0)
        snprintf(rig->warning, sizeof rig->warning, "%s", line);
}

static void new_engine(struct rig *rig)
{
    struct rn_clock clock = {.now_us = now_us, .user = rig};
    runnel_engine_options options;
    runnel_error error;

    runnel_engine_options_default(&options);
    options.max_streams = rig->plan.max_streams == 0 ? 4 : rig->plan.max_streams;
    options.max_sessions = 4;
    options.compute_threads = 1;
    options.on_log = on_log;
    options.log_user = rig;
    options.log_level = RUNNEL_LOG_WARNING;
    if (rn_engine_new(&options, rig->plan.threads ? NULL : &clock, !rig->plan.threads, &rig->engine, &error) !=
        RUNNEL_OK)
        fail_msg("engine: %s", error.message);
}

void rig_open(struct rig *rig, const struct rig_plan *plan)
{
    struct rn_backend_limits limits = {
        .max_rows = 24, .max_seqs = 12, .max_outs = 8, .block_tokens = RIG_BLOCK, .context_tokens = RIG_CONTEXT};
    struct rn_model_parts parts = {.n_vocab = ORACLE_VOCAB};
    runnel_model_options options;

    *rig = (struct rig){.plan = *plan};
    limits.n_blocks = plan->n_blocks == 0 ? 32 : plan->n_blocks;
    new_engine(rig);
    rig->oracle = oracle_new(&limits, &alphabet, plan->oracle_salt);
    assert_non_null(rig->oracle);
    rig->oracle->submitted = manual_complete_at_once;
    parts.limits = limits;
    parts.backend = &rig->oracle->backend;
    parts.cold_io = plan->io;
    parts.cache_places = plan->places == 0 ? 512 : plan->places;
    runnel_model_options_default(&options);
    options.no_prefix_cache = plan->no_cache;
    options.cache_warm_bytes = plan->warm_bytes;
    options.cache_cold_bytes = plan->cold_bytes;
    options.cache_dir = plan->dir;
    options.cache_codec = plan->codec;
    options.cache_shared = plan->shared;
    rig->model = manual_model(rig->engine, &parts, &options);
}

void rig_close(struct rig *rig)
{
    runnel_engine_free(rig->engine);
    manual_oracle_free(rig->oracle);
}

runnel_engine_stats rig_stats(const struct rig *rig)
{
    runnel_engine_stats stats = {.struct_size = sizeof stats};

    runnel_engine_get_stats(rig->engine, &stats);
    return stats;
}

/* ---- Running ---- */

/* A little: what can be done now, or what comes within some milliseconds. */
static void run(struct rig *rig)
{
    if (rig->plan.threads) {
        runnel_engine_wait(rig->engine, 5);
        runnel_engine_dispatch(rig->engine, 0);
        return;
    }
    manual_run(rig->engine);
    rn_runtime_look_at_clock(&rig->engine->runtime);
    runnel_engine_dispatch(rig->engine, 0);
}

void rig_settle(struct rig *rig)
{
    const struct timespec millisecond = {0, 1000000};
    const time_t began = patience_now();

    for (unsigned calm = 0; calm < 2; calm = rig_stats(rig).messages == 0 ? calm + 1 : 0) {
        if (rig->plan.threads) {
            runnel_engine_dispatch(rig->engine, 0);
            nanosleep(&millisecond, NULL);
        } else {
            run(rig);
        }
        if (patience_now() - began > PATIENCE_S)
            fail_msg("it does not come to rest");
    }
    if (!rig->plan.threads)
        assert_true(rn_tier_check(&rig->model->tier) && rn_mover_check(&rig->model->mover));
}

static void on_event(void *user, const runnel_event *event)
{
    struct stream *stream = user;

    if (event->type == RUNNEL_EVENT_TOKEN && event->token >= 0) {
        assert_true(stream->n_tokens < RIG_ANSWER);
        stream->tokens[stream->n_tokens++] = event->token;
    }
    if (event->type >= RUNNEL_EVENT_DONE) {
        assert_false(stream->ended);
        stream->ended = true;
        stream->end = *event;
    }
}

void rig_prompt(uint32_t chain, int32_t *tokens, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        uint64_t state = (i < RIG_STEM ? chain / 8 : (uint64_t)chain << 20) * 1000 + i;

        tokens[i] = (int32_t)(rn_splitmix64(&state) >> 56);
    }
}

void rig_begin(struct rig *rig, struct rig_ask ask, unsigned id)
{
    struct stream *stream = &streams[id];
    int32_t tokens[RIG_CONTEXT];
    runnel_request request;
    runnel_stream handle;
    runnel_error error;

    assert_true(id < STREAMS && ask.n_prompt + RIG_ANSWER < RIG_CONTEXT);
    *stream = (struct stream){.ask = ask};
    rig_prompt(ask.chain, tokens, ask.n_prompt);
    runnel_request_default(&request);
    request.tokens = tokens;
    request.n_tokens = ask.n_prompt;
    request.max_tokens = RIG_ANSWER;
    request.cache_salt = ask.salt;
    request.pin_prefix = ask.pin;
    request.cache_wait = ask.wait;
    request.cache_wait_ms = ask.wait_ms;
    request.on_event = on_event;
    request.user = stream;
    if (runnel_generate(rig->model, &request, &handle, &error) != RUNNEL_OK)
        fail_msg("generate: %s", error.message);
}

static void judge(const struct rig *rig, const struct stream *stream)
{
    int32_t tokens[RIG_CONTEXT];
    struct oracle_chain chain;

    rig_prompt(stream->ask.chain, tokens, stream->ask.n_prompt);
    oracle_chain_init(&chain, rig->plan.oracle_salt);
    for (uint32_t i = 0; i < stream->ask.n_prompt; i++)
        oracle_chain_push(&chain, tokens[i]);
    if (stream->end.type != RUNNEL_EVENT_DONE)
        fail_msg("chain %u ended with event %d, %s", stream->ask.chain, (int)stream->end.type,
                 runnel_status_name(stream->end.status));
    assert_int_equal(stream->n_tokens, RIG_ANSWER);
    for (uint32_t i = 0; i < RIG_ANSWER; i++) {
        int32_t right = oracle_chain_next(&chain, &alphabet);

        if (stream->tokens[i] != right)
            fail_msg(
                "chain %u: token %u is %d, not %d; of %u, %llu cached, %llu warm, %llu cold", stream->ask.chain, i,
                stream->tokens[i], right, stream->ask.n_prompt, (unsigned long long)stream->end.usage.cached_tokens,
                (unsigned long long)stream->end.usage.warm_tokens, (unsigned long long)stream->end.usage.cold_tokens);
        oracle_chain_push(&chain, right);
    }
}

runnel_usage rig_end(struct rig *rig, unsigned id)
{
    struct stream *stream = &streams[id];
    const time_t began = patience_now();
    const runnel_usage *usage = &stream->end.usage;

    while (!stream->ended) {
        run(rig);
        if (patience_now() - began > PATIENCE_S)
            fail_msg("chain %u does not end", stream->ask.chain);
    }
    judge(rig, stream);
    assert_int_equal(usage->prompt_tokens, stream->ask.n_prompt);
    assert_true(usage->warm_tokens + usage->cold_tokens + usage->shared_tokens <= usage->cached_tokens &&
                usage->cached_tokens < usage->prompt_tokens);
    return *usage;
}

runnel_usage rig_ask(struct rig *rig, struct rig_ask ask)
{
    runnel_usage usage;

    rig_begin(rig, ask, 0);
    usage = rig_end(rig, 0);
    rig_settle(rig);
    return usage;
}
