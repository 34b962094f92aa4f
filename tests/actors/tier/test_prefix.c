/* Prefixes that requests share: what is shared changes no answer, to the bit (the bundled model); who waits for whom,
 * what is counted, and what stays of a request that is cancelled or fails (the oracle model, one thread, steps at the
 * test's will). */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "tests/actors/answer.h"
#include "tests/sim/manual.h"

/* ---- The bundled model ---- */

#define STEM                                                                                                          \
    "This is a story from a long time ago, told by the fire on winter nights, when the snow lay deep and the wolves " \
    "came "                                                                                                           \
    "down from the hills. There was an old man in the village who knew all the stories, and each night the children " \
    "asked him for another one. "
#define ANSWER (test_device() != NULL ? 5u : 20u)

static void ask(runnel_engine *engine, runnel_model *model, const char *prompt, uint64_t salt, runnel_session session,
                struct answer *answer)
{
    runnel_request request = answer_request(answer, prompt, ANSWER);

    request.cache_salt = salt;
    request.session = session;
    assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
}

static runnel_model *load_with(runnel_engine *engine, bool cache, uint32_t n_blocks, uint32_t context)
{
    runnel_model_options options;

    runnel_model_options_default(&options);
    options.no_prefix_cache = !cache;
    options.context_tokens = context;
    options.batch_tokens = 24; /* chunks that end inside blocks */
    if (n_blocks > 0) {
        runnel_model_info info = {.struct_size = sizeof info};
        runnel_model *whole = load_model(engine, quick_model(), NULL);

        assert_int_equal(runnel_model_get_info(whole, &info), RUNNEL_OK);
        runnel_model_free(whole);
        options.kv_bytes = n_blocks * info.block_tokens * info.kv_bytes_per_token;
    }
    return load_model(engine, quick_model(), &options);
}

static runnel_engine_stats stats_of(runnel_engine *engine)
{
    runnel_engine_stats stats = {.struct_size = sizeof stats};

    runnel_engine_get_stats(engine, &stats);
    return stats;
}

static const char *const prompts[] = {STEM "The owl", STEM "The fox was", "Another story", STEM "The owl", STEM};

/* On a miss, on a hit, in a first turn of a session: with the cache the same as without. */
static void hits_change_nothing(void **state)
{
    runnel_engine *engine = start_engine(NULL);
    runnel_model *cached = load_with(engine, true, 0, 0), *plain = load_with(engine, false, 0, 0);
    uint64_t n_cached = 0, n_prompt = 0;
    struct answer a, b;

    (void)state;
    for (size_t i = 0; i < 5; i++) {
        runnel_session session = {0};

        if (i == 4)
            assert_int_equal(runnel_session_new(cached, &session), RUNNEL_OK);
        ask(engine, cached, prompts[i], 0, session, &a);
        ask(engine, plain, prompts[i], 0, (runnel_session){0}, &b);
        assert_same_answer(&a, &b);
        assert_int_equal(b.capture.last.usage.cached_tokens, 0);
        assert_true((a.capture.last.usage.cached_tokens > 32) == (i != 0 && i != 2));
        if (i == 3) /* all of it, but what is behind the last whole block is there only if the answer has filled that */
            assert_true(a.capture.last.usage.cached_tokens >= (a.capture.last.usage.prompt_tokens - 1) / 32 * 32);
        n_cached += a.capture.last.usage.cached_tokens;
        n_prompt += a.capture.last.usage.prompt_tokens + b.capture.last.usage.prompt_tokens;
        capture_clear(&a.capture);
        capture_clear(&b.capture);
    }
    assert_int_equal(stats_of(engine).prefix_hit_tokens, n_cached);
    assert_int_equal(stats_of(engine).prefix_missed_tokens, n_prompt - n_cached);
    assert_int_equal(stats_of(engine).prompt_tokens, n_prompt - n_cached);
    assert_true(stats_of(engine).prefix_ceiling > 0.3 && stats_of(engine).prefix_ceiling < 1);
    runnel_engine_free(engine);
}

/* Too little room for all: what was evicted is computed again. */
static void evicted(void **state)
{
    runnel_engine *engine = start_engine(NULL);
    runnel_model *tiny = load_with(engine, true, 5, 128), *plain = load_with(engine, false, 0, 0);
    struct answer a, b;

    (void)state;
    for (size_t round = 0; round < 2; round++)
        for (size_t i = 0; i < 3; i++) {
            ask(engine, tiny, prompts[i], i % 2, (runnel_session){0}, &a);
            ask(engine, plain, prompts[i], i % 2, (runnel_session){0}, &b);
            assert_same_answer(&a, &b);
            capture_clear(&a.capture);
            capture_clear(&b.capture);
        }
    assert_true(stats_of(engine).evicted_blocks > 0);
    assert_quiet(engine, 0);
    runnel_engine_free(engine);
}

#define AT_ONCE 6

/* Submitted at one moment: what they share is computed once. */
static void same_moment(void **state)
{
    runnel_engine *engine = start_engine(NULL);
    runnel_model *cached = load_with(engine, true, 0, 0), *plain = load_with(engine, false, 0, 0);
    struct answer answers[AT_ONCE], b;
    uint64_t n_computed = 0, before = stats_of(engine).prompt_tokens, n_first = 0;

    (void)state;
    for (size_t i = 0; i < AT_ONCE; i++) {
        runnel_request request = answer_request(&answers[i], prompts[i % 2], ANSWER);

        assert_int_equal(runnel_generate(cached, &request, &(runnel_stream){0}, NULL), RUNNEL_OK);
    }
    for (size_t i = 0; i < AT_ONCE; i++) {
        const runnel_usage *usage = &answers[i].capture.last.usage;

        run_until_end(engine, &answers[i].capture);
        n_computed += usage->prompt_tokens - usage->cached_tokens;
        n_first += usage->cached_tokens == 0;
        if (usage->cached_tokens != 0)
            assert_true(usage->prompt_tokens - usage->cached_tokens < 64);
    }
    assert_int_equal(n_first, 1);
    assert_int_equal(stats_of(engine).prompt_tokens - before, n_computed);
    for (size_t i = 0; i < AT_ONCE; i++) {
        ask(engine, plain, prompts[i % 2], 0, (runnel_session){0}, &b);
        assert_same_answer(&answers[i], &b);
        capture_clear(&answers[i].capture);
        capture_clear(&b.capture);
    }
    runnel_engine_free(engine);
}

/* Each salt has its own; a session that changes its salt begins again. */
static void salts(void **state)
{
    runnel_engine *engine = start_engine(NULL);
    runnel_model *cached = load_with(engine, true, 0, 0), *plain = load_with(engine, false, 0, 0);
    runnel_session sessions[2];
    struct answer a, b;

    (void)state;
    for (uint64_t salt = 0; salt < 3; salt++)
        for (int again = 0; again < 2; again++) {
            ask(engine, cached, prompts[0], salt, (runnel_session){0}, &a);
            assert_true((a.capture.last.usage.cached_tokens > 0) == again);
            capture_clear(&a.capture);
        }
    assert_int_equal(runnel_session_new(cached, &sessions[0]), RUNNEL_OK);
    assert_int_equal(runnel_session_new(plain, &sessions[1]), RUNNEL_OK);
    for (int turn = 0; turn < 3; turn++) {
        ask(engine, cached, prompts[turn], turn < 2 ? 10 : 11, sessions[0], &a);
        ask(engine, plain, prompts[turn], 0, sessions[1], &b);
        assert_same_answer(&a, &b);
        assert_true((a.capture.last.usage.cached_tokens > 0) == (turn == 1));
        capture_clear(&a.capture);
        capture_clear(&b.capture);
    }
    runnel_engine_free(engine);
}

/* ---- The oracle model ---- */

#define BLOCK 8
#define BLOCKS 32

static bool wrote_shared;
static uint32_t n_copied_written; /* copies of blocks into which the same step writes */

/* The prompt's tail, which others copy, stands before the place. */
static bool is_behind_tail(uint32_t block, uint32_t place)
{
    for (uint32_t i = 0; i < manual.model->tier.admission.n_inside; i++) {
        const struct rn_cached_stream *stream =
            &manual.model->tier.cache.streams[manual.model->tier.admission.inside[i]];

        if (stream->has_tail && stream->blocks[stream->n_blocks] == block)
            return place >= stream->n_tail;
    }
    return false;
}

/* A block is written by its only owner, but for those who copy what stands before. */
static void on_step(void *user, struct oracle *of)
{
    const struct rn_step *step = of->last;

    (void)user;
    for (uint32_t i = 0; i < step->n_rows; i++) {
        const struct rn_step_row *row = &step->rows[i];
        uint32_t block = step->seqs[row->seq].blocks[row->position / BLOCK];

        wrote_shared |= rn_block_pool_references(&manual.model->tier.cache.blocks.pool, block) != 1 &&
                        !is_behind_tail(block, row->position % BLOCK);
        for (uint32_t k = 0; k < step->n_copies; k++)
            n_copied_written += step->copies[k].from == block;
    }
}

static int setup(void **state)
{
    runnel_engine_options options;
    const struct manual_plan plan = {
        .limits = {.max_rows = 16,
                   .max_seqs = 10,
                   .max_outs = 8,
                   .n_blocks = BLOCKS,
                   .block_tokens = BLOCK,
                   .context_tokens = 128},
        .n_letters = 4,
        .options = &options,
        .submitted = on_step,
    };

    (void)state;
    wrote_shared = false;
    n_copied_written = 0;
    runnel_engine_options_default(&options);
    options.max_streams = 4;
    manual_begin(&plan);
    return 0;
}

/* All that can be done without another step. */
static void settle(void)
{
    manual_settle(manual.engine);
    assert_false(wrote_shared);
    manual_check(manual.model, manual.oracle);
}

static void step(enum oracle_fault fault)
{
    assert_non_null(manual.oracle->first);
    oracle_complete(manual.oracle, fault);
    settle();
}

static void run_out(void)
{
    settle();
    while (manual.oracle->first != NULL)
        step(ORACLE_FAULT_NONE);
}

static void make_prompt(int32_t *tokens, uint32_t n, uint32_t fork, int32_t tail)
{
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = i < fork ? (int32_t)(i * 7 % 101) : tail;
}

static runnel_stream submit_with(struct capture *capture, const int32_t *tokens, uint32_t n, int64_t max_tokens,
                                 uint64_t salt)
{
    runnel_request request = make_request(NULL, max_tokens, capture);
    runnel_stream stream;

    memset(capture, 0, sizeof *capture);
    request.tokens = tokens;
    request.n_tokens = n;
    request.cache_salt = salt;
    assert_int_equal(runnel_generate(manual.model, &request, &stream, NULL), RUNNEL_OK);
    settle();
    return stream;
}

static runnel_stream submit(struct capture *capture, const int32_t *tokens, uint32_t n, int64_t max_tokens)
{
    return submit_with(capture, tokens, n, max_tokens, 0);
}

/* It is done, with the right tokens and so many from the cache. */
static void assert_done(struct capture *capture, const int32_t *tokens, uint32_t n, uint64_t n_cached)
{
    struct oracle_chain chain;

    assert_int_equal(capture->last.type, RUNNEL_EVENT_DONE);
    assert_int_equal(capture->last.usage.cached_tokens, n_cached);
    oracle_chain_init(&chain, manual.oracle->salt);
    for (uint32_t i = 0; i < n; i++)
        oracle_chain_push(&chain, tokens[i]);
    for (size_t i = 0; i < capture->n_tokens; i++) {
        assert_int_equal(capture->tokens[i], oracle_chain_next(&chain, &manual.oracle->alphabet));
        oracle_chain_push(&chain, capture->tokens[i]);
    }
    capture_clear(capture);
}

static enum rn_prefix_path_state path_state(runnel_stream stream)
{
    return manual.model->tier.cache.streams[(uint32_t)stream.id].path.state;
}

static uint32_t ready(void)
{
    return rn_prefix_tree_stats(&manual.model->tier.cache.blocks.tree).ready;
}

/* The second waits for the first, a third that shares nothing does not; the second starts before the first has
 * ended. */
static void waits(void **state)
{
    int32_t tokens[3][60];
    struct capture captures[3];
    runnel_stream streams[3];

    (void)state;
    make_prompt(tokens[0], 60, 60, 0);
    make_prompt(tokens[1], 60, 44, 1); /* five blocks and a half */
    make_prompt(tokens[2], 20, 0, 2);
    streams[0] = submit(&captures[0], tokens[0], 60, 30);
    streams[1] = submit(&captures[1], tokens[1], 60, 10);
    streams[2] = submit(&captures[2], tokens[2], 20, 2);
    assert_int_equal(path_state(streams[0]), RN_PATH_ENTERED);
    assert_int_equal(path_state(streams[1]), RN_PATH_WAITING);
    assert_int_equal(path_state(streams[2]), RN_PATH_ENTERED);
    while (path_state(streams[1]) == RN_PATH_WAITING)
        step(ORACLE_FAULT_NONE);
    assert_int_equal(captures[0].n_terminal, 0);
    run_out();
    assert_done(&captures[0], tokens[0], 60, 0);
    assert_done(&captures[1], tokens[1], 60, 44); /* the half by copy */
    assert_done(&captures[2], tokens[2], 20, 0);
    assert_int_equal(stats_of(manual.engine).prompt_tokens, 60 + 16 + 20);
    assert_int_equal(stats_of(manual.engine).blocks_used, 0);
    submit(&captures[0], tokens[0], 57, 3); /* seven blocks and the one that is left to compute */
    run_out();
    assert_done(&captures[0], tokens[0], 57, 56);
    submit(&captures[0], tokens[0], 56, 3); /* exactly seven: of a copy of the last one, one position is computed */
    run_out();
    assert_done(&captures[0], tokens[0], 56, 55);
}

/* What a prompt computes behind its last whole block is copied while it goes on to write there. The copy, cancelled
 * before it is made, is none; too little in common is computed; and nothing is left. */
static void tails(void **state)
{
    int32_t tokens[4][45];
    struct capture captures[4];
    runnel_stream streams[4];

    (void)state;
    make_prompt(tokens[0], 45, 45, 0);
    make_prompt(tokens[1], 45, 44, 1);
    make_prompt(tokens[2], 45, 42, 2);
    make_prompt(tokens[3], 45, 40, 3);
    for (int i = 0; i < 4; i++)
        streams[i] = submit(&captures[i], tokens[i], 45, i == 0 ? 30 : 5);
    while (path_state(streams[1]) == RN_PATH_WAITING)
        step(ORACLE_FAULT_NONE);
    assert_int_equal(n_copied_written, 0);
    assert_int_equal(captures[0].n_terminal, 0);
    run_out();
    assert_true(n_copied_written > 0); /* the first went on, into the block that was copied in the same step */
    assert_done(&captures[0], tokens[0], 45, 0);
    assert_done(&captures[1], tokens[1], 45, 44);
    assert_done(&captures[2], tokens[2], 45, 42);
    assert_done(&captures[3], tokens[3], 45, 40);
    assert_int_equal(stats_of(manual.engine).prompt_tokens, 45 + 1 + 3 + 5);
    assert_int_equal(stats_of(manual.engine).blocks_used, 0);
}

/* What a request that has ended computed behind its last whole block is copied, at the beginning of a sequence too; by
 * who has its salt alone. Of a request that failed nothing is left. It gives way to those that need the room. */
static void left_behind(void **state)
{
    int32_t tokens[3][90];
    struct capture captures[3];
    const struct rn_tier_blocks *blocks = &manual.model->tier.cache.blocks;

    (void)state;
    make_prompt(tokens[0], 90, 90, 0);
    make_prompt(tokens[1], 90, 3, 1);
    make_prompt(tokens[2], 90, 5, 2);
    submit(&captures[0], tokens[0], 6, 1); /* shorter than a block */
    run_out();
    assert_done(&captures[0], tokens[0], 6, 0);
    assert_int_equal(blocks->pool.n_free, BLOCKS - 1);
    assert_int_equal(stats_of(manual.engine).blocks_used, 0);
    for (int again = 0; again < 3; again++) { /* only the position whose logits are wanted */
        submit(&captures[0], tokens[0], 6, 1);
        run_out();
        assert_done(&captures[0], tokens[0], 6, 5);
        assert_int_equal(blocks->pool.n_free, BLOCKS - 1);
    }
    submit(&captures[0], tokens[1], 12, 1); /* three in common */
    submit(&captures[1], tokens[2], 4, 1);  /* at the same time: four, of which the last is wanted */
    run_out();
    assert_done(&captures[0], tokens[1], 12, 3);
    assert_done(&captures[1], tokens[2], 4, 3);
    submit(&captures[0], tokens[1], 14, 1); /* behind a whole block, what the one of 12 has left there */
    run_out();
    assert_done(&captures[0], tokens[1], 14, 12);
    submit_with(&captures[0], tokens[0], 6, 1, 7);
    run_out();
    assert_done(&captures[0], tokens[0], 6, 0);
    assert_int_equal(stats_of(manual.engine).blocks_used, 0);

    submit(&captures[0], tokens[2], 7, 4);
    step(ORACLE_FAULT_DEVICE);
    run_out();
    assert_int_equal(captures[0].last.type, RUNNEL_EVENT_FAILED);
    capture_clear(&captures[0]);
    submit(&captures[0], tokens[2], 7, 1);
    run_out();
    assert_done(&captures[0], tokens[2], 7, 3); /* as far as the block of tokens[1] has it */

    for (int i = 0; i < 3; i++) /* three that need more blocks than there are */
        submit(&captures[i], tokens[i], 90, 30);
    run_out();
    assert_true(stats_of(manual.engine).evicted_blocks > 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(captures[i].last.type, RUNNEL_EVENT_DONE);
        capture_clear(&captures[i]);
    }
    assert_quiet(manual.engine, 0);
}

/* Whose tail others have copied fails: nothing that they have computed stays in the tree. */
static void tail_of_a_failed_one(void **state)
{
    int32_t tokens[2][29];
    struct capture captures[2];
    runnel_stream streams[2];

    (void)state;
    make_prompt(tokens[0], 29, 29, 0);
    make_prompt(tokens[1], 29, 28, 1);
    streams[0] = submit(&captures[0], tokens[0], 29, 60);
    streams[1] = submit(&captures[1], tokens[1], 29, 9);
    while (path_state(streams[1]) == RN_PATH_WAITING)
        step(ORACLE_FAULT_NONE);
    step(ORACLE_FAULT_NONE);
    assert_int_equal(captures[1].n_terminal, 0);
    step(ORACLE_FAULT_DEVICE); /* of both */
    run_out();
    assert_int_equal(captures[0].last.type, RUNNEL_EVENT_FAILED);
    assert_int_equal(captures[1].last.type, RUNNEL_EVENT_FAILED);
    assert_int_equal(ready(), 0);
    assert_int_equal(stats_of(manual.engine).blocks_used, 0);
    capture_clear(&captures[0]);
    capture_clear(&captures[1]);
}

/* The one that computes is cancelled: what it has computed stays, the rest is computed by the one that waited; who
 * itself can be cancelled while it waits. The step that is under way is done, too, or stopped: then its rows do not
 * count. */
static void cancelled_with(uint32_t deaf_percent, uint32_t n_cached)
{
    int32_t tokens[60];
    struct capture captures[3];
    runnel_stream streams[3];

    manual.oracle->deaf_percent = deaf_percent;
    make_prompt(tokens, 60, 60, 0);
    for (int i = 0; i < 3; i++)
        streams[i] = submit(&captures[i], tokens, 60, 4);
    step(ORACLE_FAULT_NONE); /* 16 rows: two blocks */
    assert_int_equal(runnel_stream_cancel(manual.engine, streams[2]), RUNNEL_OK);
    settle();
    assert_int_equal(captures[2].last.type, RUNNEL_EVENT_CANCELLED);
    assert_int_equal(path_state(streams[1]), RN_PATH_WAITING);
    assert_int_equal(runnel_stream_cancel(manual.engine, streams[0]), RUNNEL_OK);
    run_out();
    assert_int_equal(captures[0].last.type, RUNNEL_EVENT_CANCELLED);
    assert_done(&captures[1], tokens, 60, n_cached);
    capture_clear(&captures[0]);
    capture_clear(&captures[2]);
    assert_quiet(manual.engine, 0);
}

static void cancelled(void **state)
{
    (void)state;
    cancelled_with(100, 32);
}

static void cancelled_and_stopped(void **state)
{
    (void)state;
    cancelled_with(0, 16);
}

/* Nothing stays of what a failed request has computed, but what it had from others; who waited computes it himself. */
static void failed(void **state)
{
    static const enum oracle_fault faults[] = {ORACLE_FAULT_NAN, ORACLE_FAULT_DEVICE};
    static const runnel_status statuses[] = {RUNNEL_NUMERIC, RUNNEL_DEVICE};

    (void)state;
    for (int way = 0; way < 2; way++) {
        int32_t base[20], tokens[60];
        struct capture captures[3];
        uint32_t before;

        make_prompt(base, 20, 20, 0);
        make_prompt(tokens, 60, 60, 0);
        submit(&captures[0], base, 20, 0);
        run_out();
        assert_done(&captures[0], base, 20, way == 0 ? 0 : 19);
        before = ready();
        submit(&captures[0], tokens, 60, 4);
        submit(&captures[1], tokens, 60, 4);
        step(ORACLE_FAULT_NONE);
        step(ORACLE_FAULT_NONE); /* 16 and 32 more */
        assert_true(ready() > before);
        step(faults[way]); /* with its logits */
        assert_int_equal(captures[0].last.type, RUNNEL_EVENT_FAILED);
        assert_int_equal(captures[0].last.status, statuses[way]);
        assert_int_equal(ready(), before);
        run_out();
        /* Had it been admitted already, its blocks would be the failed one's. Here it waited to the end. */
        assert_done(&captures[1], tokens, 60, 20); /* and with what `base` left behind its blocks */
        capture_clear(&captures[0]);
        assert_true(ready() > before);
        rn_prefix_tree_evict(&manual.model->tier.cache.blocks.tree, UINT32_MAX);
        submit(&captures[0], base, 20, 0);
        run_out();
        assert_done(&captures[0], base, 20, 0);
    }
}

/* Cancelled, and then the step that was under way gives no numbers: it is not trusted either. */
static void cancelled_and_failed(void **state)
{
    int32_t tokens[30];
    struct capture capture;
    runnel_stream stream;

    (void)state;
    make_prompt(tokens, 30, 30, 0);
    stream = submit(&capture, tokens, 30, 4);
    step(ORACLE_FAULT_NONE);
    assert_int_equal(ready(), 2);
    assert_int_equal(runnel_stream_cancel(manual.engine, stream), RUNNEL_OK);
    settle();
    step(ORACLE_FAULT_NAN);
    assert_int_equal(capture.last.type, RUNNEL_EVENT_CANCELLED);
    assert_int_equal(ready(), 0);
    assert_quiet(manual.engine, 0);
    capture_clear(&capture);
}

/* Two that compute the same side by side have one copy of it in the end. */
static void twins_become_one(void **state)
{
    struct capture captures[2] = {{0}};
    runnel_session sessions[2];
    int32_t tokens[60];

    (void)state;
    make_prompt(tokens, 60, 60, 0);
    for (int i = 0; i < 2; i++) {
        runnel_request request = make_request(NULL, 2, &captures[i]);

        assert_int_equal(runnel_session_new(manual.model, &sessions[i]), RUNNEL_OK);
        request.tokens = tokens;
        request.n_tokens = 60;
        request.want_progress = 1;
        request.session = sessions[i];
        assert_int_equal(runnel_generate(manual.model, &request, &(runnel_stream){0}, NULL), RUNNEL_OK);
    }
    run_out();
    assert_int_equal(rn_prefix_tree_stats(&manual.model->tier.cache.blocks.tree).duplicate_blocks, 7);
    assert_int_equal(stats_of(manual.engine).blocks_used, 7 + 2); /* the last ones are not full */
    for (int i = 0; i < 2; i++) {
        assert_done(&captures[i], tokens, 60, 0);
        assert_int_equal(runnel_session_free(manual.model, sessions[i]), RUNNEL_OK);
    }
    settle();
    assert_quiet(manual.engine, 0);
}

/* Nobody waits for a prompt that its reader can stop; and logits are asked of each position. */
static void nobody_waits_for_a_reader(void **state)
{
    int32_t tokens[60];
    struct capture captures[2];

    (void)state;
    make_prompt(tokens, 60, 60, 0);
    for (int way = 0; way < 2; way++) {
        runnel_request request = make_request(NULL, 2, &captures[0]);
        runnel_stream stream;

        memset(captures, 0, sizeof captures);
        request.tokens = tokens;
        request.n_tokens = 60;
        request.cache_salt = 5;
        request.want_progress = way == 0;
        request.want_logits = way == 1;
        assert_int_equal(runnel_generate(manual.model, &request, &stream, NULL), RUNNEL_OK);
        request.want_progress = request.want_logits = 0;
        request.cache_salt = (uint64_t)(way == 0 ? 5 : 6);
        request.user = &captures[1];
        assert_int_equal(runnel_generate(manual.model, &request, &stream, NULL), RUNNEL_OK);
        settle();
        assert_int_equal(path_state(stream), RN_PATH_ENTERED);
        run_out();
        assert_int_equal(captures[0].n_logits, way == 1 ? 60 : 0);
        assert_done(&captures[0], tokens, 60, 0);
        assert_done(&captures[1], tokens, 60, 0);
    }
}

/* Whole conversations in sessions that are cut back anywhere, also into blocks that others have; beside them requests
 * that begin alike. Right tokens, and on_step sees to it that nobody writes where another reads. */
static void conversations_cut_anywhere(void **state)
{
    uint64_t rng = 3, n_cached = 0;
    runnel_session sessions[3] = {{0}};

    (void)state;
    for (int i = 1; i < 3; i++)
        assert_int_equal(runnel_session_new(manual.model, &sessions[i]), RUNNEL_OK);
    for (int round = 0; round < 1500; round++) {
        uint32_t n = 1 + (uint32_t)(rn_splitmix64(&rng) % 90), fork = (uint32_t)(rn_splitmix64(&rng) % 100);
        int64_t max_tokens = (int64_t)(rn_splitmix64(&rng) % 12);
        char text[128] = {0};
        int32_t tokens[128];
        runnel_message message = {"user", text, NULL};
        struct capture capture = {0};
        runnel_request request = make_request(NULL, max_tokens, &capture);
        runnel_chat chat;

        for (uint32_t i = 0; i < n; i++)
            tokens[i] = text[i] = i < fork ? (char)('A' + i % 23) : "xyz"[rn_splitmix64(&rng) % 3];
        runnel_chat_default(&chat);
        chat.messages = &message;
        chat.n_messages = 1;
        chat.template_text = "{{ messages[0].content }}";
        request.chat = &chat;
        request.prompt = NULL;
        request.raw_answer = 1;
        request.session = sessions[rn_splitmix64(&rng) % 3];
        assert_int_equal(runnel_generate(manual.model, &request, &(runnel_stream){0}, NULL), RUNNEL_OK);
        run_out();
        assert_int_equal(capture.last.usage.prompt_tokens, n);
        n_cached += capture.last.usage.cached_tokens;
        assert_done(&capture, tokens, n, capture.last.usage.cached_tokens);
    }
    assert_true(n_cached > 1500 * 8 && stats_of(manual.engine).evicted_blocks > 0);
    for (int i = 1; i < 3; i++)
        assert_int_equal(runnel_session_free(manual.model, sessions[i]), RUNNEL_OK);
    settle();
    assert_quiet(manual.engine, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hits_change_nothing),
        cmocka_unit_test(evicted),
        cmocka_unit_test(same_moment),
        cmocka_unit_test(salts),
        cmocka_unit_test_setup_teardown(waits, setup, manual_end),
        cmocka_unit_test_setup_teardown(tails, setup, manual_end),
        cmocka_unit_test_setup_teardown(left_behind, setup, manual_end),
        cmocka_unit_test_setup_teardown(tail_of_a_failed_one, setup, manual_end),
        cmocka_unit_test_setup_teardown(cancelled, setup, manual_end),
        cmocka_unit_test_setup_teardown(cancelled_and_stopped, setup, manual_end),
        cmocka_unit_test_setup_teardown(failed, setup, manual_end),
        cmocka_unit_test_setup_teardown(cancelled_and_failed, setup, manual_end),
        cmocka_unit_test_setup_teardown(twins_become_one, setup, manual_end),
        cmocka_unit_test_setup_teardown(nobody_waits_for_a_reader, setup, manual_end),
        cmocka_unit_test_setup_teardown(conversations_cut_anywhere, setup, manual_end),
    };

    return run_cases(tests, NULL, NULL);
}
