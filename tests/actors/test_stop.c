/* Steps for which nobody waits any more are stopped (model/stop.h): what they have stored is taken for nothing, and
 * others, the next turn and who has the same prefix get the same text as ever; each stream ends once. And steps of
 * prompts are bounded in time where several requests wait for them. One thread, the oracle model, a clock of the
 * test's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fixture.h"
#include "model/stop.h"
#include "tests/sim/manual.h"

#define BLOCK 8
#define ROWS 64

static uint64_t now_us;

static uint64_t test_now(void *user)
{
    (void)user;
    return now_us;
}

static void open_engine(uint32_t max_rows)
{
    const struct rn_clock clock = {.now_us = test_now};
    const struct manual_plan plan = {
        .limits = {.max_rows = max_rows,
                   .max_seqs = 24,
                   .max_outs = 24,
                   .n_blocks = 512,
                   .block_tokens = BLOCK,
                   .context_tokens = 512},
        .n_letters = 4,
        .clock = &clock,
    };

    now_us = 1;
    manual_begin(&plan);
}

static int setup(void **state)
{
    (void)state;
    open_engine(16);
    return 0;
}

static int setup_wide(void **state)
{
    (void)state;
    open_engine(ROWS);
    return 0;
}

static void step(void)
{
    assert_non_null(manual.oracle->first);
    oracle_complete(manual.oracle, ORACLE_FAULT_NONE);
    manual_settle_whole();
}

static bool is_stopped(void)
{
    assert_non_null(manual.oracle->first);
    return rn_stop_is_set(manual.oracle->first->stop);
}

/* A prompt of n tokens, told apart by `first`. */
static const int32_t *prompt_of(int32_t first, uint32_t n)
{
    static int32_t tokens[8][512];
    static uint32_t turn;
    int32_t *prompt = tokens[turn++ % 8];

    for (uint32_t i = 0; i < n; i++)
        prompt[i] = (first + (int32_t)i * 7) % 250;
    return prompt;
}

static runnel_stream ask(struct capture *capture, int32_t first, uint32_t n, int64_t max_tokens,
                         const runnel_request *like)
{
    runnel_request request = make_request(NULL, max_tokens, capture);
    runnel_stream stream;

    memset(capture, 0, sizeof *capture);
    if (like != NULL) {
        request.session = like->session;
        request.deadline_ms = like->deadline_ms;
        request.priority = like->priority;
        request.stops = like->stops;
        request.n_stops = like->n_stops;
    }
    request.prompt = NULL;
    request.prompt_bytes = 0;
    request.tokens = prompt_of(first, n);
    request.n_tokens = n;
    request.ignore_eos = 1;
    assert_int_equal(runnel_generate(manual.model, &request, &stream, NULL), RUNNEL_OK);
    manual_settle_whole();
    return stream;
}

/* Its tokens follow those that were pushed. */
static void assert_follows(const struct capture *capture, struct oracle_chain *chain)
{
    for (size_t i = 0; i < capture->n_tokens; i++) {
        assert_int_equal(capture->tokens[i], oracle_chain_next(chain, &manual.oracle->alphabet));
        oracle_chain_push(chain, capture->tokens[i]);
    }
}

static void push(struct oracle_chain *chain, int32_t first, uint32_t n)
{
    const int32_t *prompt = prompt_of(first, n);

    for (uint32_t i = 0; i < n; i++)
        oracle_chain_push(chain, prompt[i]);
}

static void assert_ended(struct capture *capture, runnel_event_type type)
{
    assert_int_equal(capture->n_terminal, 1);
    assert_int_equal(capture->n_after_terminal, 0);
    assert_int_equal(capture->last.type, type);
}

/* Done, and right. */
static void assert_done(struct capture *capture, int32_t first, uint32_t n, uint64_t n_cached)
{
    struct oracle_chain chain;

    assert_ended(capture, RUNNEL_EVENT_DONE);
    assert_int_equal(capture->last.usage.cached_tokens, n_cached);
    oracle_chain_init(&chain, manual.oracle->salt);
    push(&chain, first, n);
    assert_follows(capture, &chain);
    capture_clear(capture);
}

/* ---- Stopped steps ---- */

/* A prompt is cancelled in the middle of its second step: it ends with the step, and of what that would have stored
 * nothing is found by who has the same prompt. A device that does not look computes it to the end. */
static void prompt_alone(void **state)
{
    (void)state;
    for (uint32_t deaf = 0; deaf <= 100; deaf += 100) {
        int32_t first = 1 + (int32_t)deaf;
        uint64_t n_before = manual.oracle->n_stopped;
        struct capture capture;
        runnel_stream stream;

        manual.oracle->deaf_percent = deaf;
        stream = ask(&capture, first, 60, 5, NULL);
        step();
        assert_false(is_stopped());
        assert_int_equal(runnel_stream_cancel(manual.engine, stream), RUNNEL_OK);
        manual_settle_whole();
        assert_int_equal(capture.n_terminal, 0); /* the step reads its blocks */
        assert_true(is_stopped());
        step();
        assert_ended(&capture, RUNNEL_EVENT_CANCELLED);
        assert_int_equal(manual.oracle->n_stopped - n_before, deaf == 0);
        capture_clear(&capture);
        assert_null(manual.oracle->first);
        ask(&capture, first, 60, 5, NULL);
        assert_false(is_stopped());
        manual_run_out();
        assert_done(&capture, first, 60, deaf == 0 ? 16 : 32);
    }
    assert_quiet(manual.engine, 0);
}

/* The session goes on behind a turn that was stopped: in its prompt, and in its answer. */
static void turns(void **state)
{
    runnel_request like = {0};
    struct oracle_chain chain;
    struct capture capture;
    runnel_stream stream;

    (void)state;
    assert_int_equal(runnel_session_new(manual.model, &like.session), RUNNEL_OK);
    oracle_chain_init(&chain, manual.oracle->salt);
    ask(&capture, 3, 21, 4, &like);
    manual_run_out();
    push(&chain, 3, 21);
    assert_follows(&capture, &chain);
    capture_clear(&capture);
    for (uint32_t n_steps = 1; n_steps < 7; n_steps++) { /* a prompt of 37 in three steps, then its answer */
        uint64_t n_before = manual.oracle->n_stopped;

        stream = ask(&capture, 5 + (int32_t)n_steps, 37, 20, &like);
        for (uint32_t i = 0; i < n_steps; i++)
            step();
        assert_int_equal(runnel_stream_cancel(manual.engine, stream), RUNNEL_OK);
        manual_settle_whole();
        manual_run_out();
        assert_ended(&capture, RUNNEL_EVENT_CANCELLED);
        assert_int_equal(manual.oracle->n_stopped - n_before, 1);
        push(&chain, 5 + (int32_t)n_steps, 37);
        assert_follows(&capture, &chain);
        capture_clear(&capture);
        ask(&capture, 9, 3, 4, &like);
        manual_run_out();
        assert_ended(&capture, RUNNEL_EVENT_DONE);
        push(&chain, 9, 3);
        assert_follows(&capture, &chain);
        capture_clear(&capture);
    }
}

/* While one request waits for the step it goes on; the last one to go stops it, whatever ends it. */
static void neighbours(void **state)
{
    const runnel_request late = {.deadline_ms = 5};
    struct capture a, b, c;
    runnel_stream streams[2];

    (void)state;
    streams[0] = ask(&a, 1, 6, 30, NULL);
    streams[1] = ask(&b, 2, 6, 30, NULL);
    ask(&c, 3, 6, 30, &late);
    for (int i = 0; i < 6; i++)
        step();
    assert_true(a.n_tokens > 0 && b.n_tokens > 0 && c.n_tokens > 0);
    assert_int_equal(runnel_stream_cancel(manual.engine, streams[0]), RUNNEL_OK);
    manual_settle_whole();
    assert_false(is_stopped());
    now_us += 6000;
    rn_runtime_look_at_clock(&manual.engine->runtime);
    manual_settle_whole();
    assert_false(is_stopped());
    step();
    assert_ended(&a, RUNNEL_EVENT_CANCELLED);
    assert_ended(&c, RUNNEL_EVENT_FAILED);
    assert_int_equal(c.last.status, RUNNEL_TIMEOUT);
    assert_int_equal(manual.oracle->n_stopped, 0);
    manual_run_out();
    assert_int_equal(manual.oracle->n_stopped, 0);
    assert_done(&b, 2, 6, 0);
    capture_clear(&a);
    capture_clear(&c);
    streams[0] = ask(&a, 4, 40, 30, NULL);
    ask(&c, 5, 40, 30, &late);
    step();
    assert_int_equal(runnel_stream_cancel(manual.engine, streams[0]), RUNNEL_OK);
    now_us += 6000;
    rn_runtime_look_at_clock(&manual.engine->runtime);
    manual_settle_whole();
    assert_true(is_stopped());
    manual_run_out();
    assert_int_equal(manual.oracle->n_stopped, 1);
    assert_ended(&a, RUNNEL_EVENT_CANCELLED);
    assert_ended(&c, RUNNEL_EVENT_FAILED);
    assert_int_equal(c.last.status, RUNNEL_TIMEOUT);
    capture_clear(&a);
    capture_clear(&c);
    assert_quiet(manual.engine, 0);
}

/* An answer that a stop string has ended is done, and the step that was in flight for its next token is stopped. */
static void stop_string(void **state)
{
    struct capture plain, cut;
    char text[3] = {0};
    const char *const stops[] = {text};
    const runnel_request like = {.stops = stops, .n_stops = 1};
    size_t at = 4;

    (void)state;
    ask(&plain, 1, 6, 30, NULL);
    manual_run_out();
    memcpy(text, plain.text + at, 2);
    at = (size_t)(strstr(plain.text, text) - plain.text);
    ask(&cut, 1, 6, 30, &like);
    manual_run_out();
    assert_ended(&cut, RUNNEL_EVENT_DONE);
    assert_int_equal(cut.last.finish, RUNNEL_FINISH_STOP);
    assert_int_equal(cut.text_bytes, at);
    assert_memory_equal(cut.text, plain.text, at);
    assert_int_equal(manual.oracle->n_stopped, 1);
    capture_clear(&plain);
    capture_clear(&cut);
}

/* A model that is freed does not compute its prompts to the end. */
static void model_freed(void **state)
{
    struct capture captures[3];

    (void)state;
    for (int i = 0; i < 3; i++)
        ask(&captures[i], 1 + i, 60, 5, NULL);
    step();
    runnel_model_free(manual.model);
    manual_settle(manual.engine);
    assert_true(is_stopped());
    oracle_complete(manual.oracle, ORACLE_FAULT_NONE);
    manual_settle(manual.engine);
    assert_true(manual.oracle->freed);
    for (int i = 0; i < 3; i++) {
        assert_ended(&captures[i], RUNNEL_EVENT_CANCELLED);
        capture_clear(&captures[i]);
    }
}

/* A step that fails, though it was stopped, has failed: nothing that the request has computed stays. */
static void failed_besides(void **state)
{
    struct capture capture;
    runnel_stream stream;

    (void)state;
    stream = ask(&capture, 1, 60, 5, NULL);
    step();
    assert_int_equal(runnel_stream_cancel(manual.engine, stream), RUNNEL_OK);
    manual_settle_whole();
    oracle_complete(manual.oracle, ORACLE_FAULT_DEVICE);
    manual_settle_whole();
    assert_ended(&capture, RUNNEL_EVENT_CANCELLED);
    capture_clear(&capture);
    ask(&capture, 1, 60, 5, NULL);
    manual_run_out();
    assert_done(&capture, 1, 60, 0);
}

/* ---- The time of a step ---- */

/* Ends the step in flight when each of its rows has taken 10 ms. Returns how many there were. */
static uint32_t slow_step(void)
{
    uint32_t n_rows = manual.oracle->first->n_rows;

    now_us += 10000 * (uint64_t)n_rows;
    step();
    return n_rows;
}

/* A prompt alone takes all rows, once it is known what they take; two take a tenth of a second's, unless they are of
 * the background; and prompts of few rows are through in one step. */
static void bounded(void **state)
{
    const runnel_request background = {.priority = -1};
    struct capture captures[10];

    (void)state;
    ask(&captures[0], 1, 300, 1, NULL);
    assert_int_equal(slow_step(), RN_PROMPT_BUDGET_FIRST);
    assert_int_equal(slow_step(), ROWS);
    ask(&captures[1], 2, 300, 1, NULL);
    assert_int_equal(slow_step(), ROWS); /* it was in flight */
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(slow_step(), RN_PROMPT_BUDGET_CHUNK);
    for (uint32_t i = 2; i < 6; i++)
        ask(&captures[i], 3 + (int32_t)i, 15, 1, NULL);
    assert_int_equal(slow_step(), RN_PROMPT_BUDGET_CHUNK);
    assert_true(slow_step() >= 60); /* all four, or nearly */
    manual_run_out();
    for (uint32_t i = 0; i < 2; i++)
        assert_done(&captures[i], 1 + (int32_t)i, 300, 0);
    for (uint32_t i = 2; i < 6; i++)
        assert_done(&captures[i], 3 + (int32_t)i, 15, 0);
    for (uint32_t i = 0; i < 2; i++)
        ask(&captures[i], 20 + (int32_t)i, 200, 1, &background);
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(slow_step(), ROWS);
    manual_run_out();
    for (uint32_t i = 0; i < 2; i++)
        assert_done(&captures[i], 20 + (int32_t)i, 200, 0);
    assert_quiet(manual.engine, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(prompt_alone, setup, manual_end),
        cmocka_unit_test_setup_teardown(turns, setup, manual_end),
        cmocka_unit_test_setup_teardown(neighbours, setup, manual_end),
        cmocka_unit_test_setup_teardown(stop_string, setup, manual_end),
        cmocka_unit_test_setup_teardown(model_freed, setup, manual_end),
        cmocka_unit_test_setup_teardown(failed_besides, setup, manual_end),
        cmocka_unit_test_setup_teardown(bounded, setup_wide, manual_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
