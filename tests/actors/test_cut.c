/* Answers that are cut off: what a cancelled stream, or one whose deadline passed, has told is how its answer begins,
 * at every point; and a stream of which events were dropped ends as cancelled, although its answer was complete. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fixture.h"
#include "tests/sim/manual.h"

#define PROMPT "seven"
#define TOKENS 60

static uint64_t now_us;
static uint64_t test_now(void *user)
{
    (void)user;
    return now_us;
}

static int setup(void **state)
{
    const struct rn_clock clock = {.now_us = test_now};
    const struct manual_plan plan = {
        .limits =
            {.max_rows = 16, .max_seqs = 4, .max_outs = 8, .n_blocks = 32, .block_tokens = 16, .context_tokens = 128},
        .clock = &clock,
    };

    (void)state;
    manual_begin(&plan);
    return 0;
}

/* All that can be done, with at most n steps of the model. */
static void run_steps(uint32_t n)
{
    manual_settle(manual.engine);
    for (; n > 0 && manual.oracle->first != NULL; n--) {
        oracle_complete(manual.oracle, ORACLE_FAULT_NONE);
        manual_settle(manual.engine);
    }
}

/* Stops of which the text has many beginnings, and one of them whole, late: what may be a stop string is held back. */
struct stops {
    char texts[4][16];
    const char *list[4];
    size_t n;
};

static void choose_stops(struct stops *stops, const char *text)
{
    stops->n = 0;
    for (size_t at = 8; at < 40; at += 12) {
        memcpy(stops->texts[stops->n], text + at, 7);
        memcpy(stops->texts[stops->n] + 7, "#", 2); /* never whole */
        stops->list[stops->n] = stops->texts[stops->n];
        stops->n++;
    }
    memcpy(stops->texts[stops->n], text + 44, 9);
    stops->texts[stops->n][9] = '\0';
    stops->list[stops->n] = stops->texts[stops->n];
    stops->n++;
}

static runnel_stream submit(const struct stops *stops, uint32_t deadline_ms, struct capture *capture)
{
    runnel_request request = make_request(PROMPT, TOKENS, capture);
    runnel_stream stream;

    if (stops != NULL) {
        request.stops = stops->list;
        request.n_stops = stops->n;
    }
    request.deadline_ms = deadline_ms;
    assert_int_equal(runnel_generate(manual.model, &request, &stream, NULL), RUNNEL_OK);
    return stream;
}

static void told_is_a_prefix(void **state)
{
    struct capture plain = {0}, whole = {0};
    struct stops stops;
    uint32_t n_held = 0;

    (void)state;
    submit(NULL, 0, &plain);
    run_steps(TOKENS + 2);
    assert_int_equal(plain.n_terminal, 1);
    choose_stops(&stops, plain.text);
    submit(&stops, 0, &whole);
    run_steps(TOKENS + 2);
    assert_int_equal(whole.last.type, RUNNEL_EVENT_DONE);
    assert_int_equal(whole.last.finish, RUNNEL_FINISH_STOP);
    for (uint32_t n = 0; n < whole.last.usage.completion_tokens; n++)
        for (int way = 0; way < 2; way++) {
            struct capture cut = {0};
            runnel_stream stream = submit(&stops, way == 1 ? 5 : 0, &cut);

            run_steps(n);
            n_held += cut.n_tokens > cut.text_bytes; /* a token is a byte here */
            now_us += 10000;
            if (way == 0)
                assert_int_equal(runnel_stream_cancel(manual.engine, stream), RUNNEL_OK);
            else
                rn_runtime_look_at_clock(&manual.engine->runtime);
            run_steps(1);
            assert_int_equal(cut.n_terminal, 1);
            assert_int_equal(cut.last.type, way == 0 ? RUNNEL_EVENT_CANCELLED : RUNNEL_EVENT_FAILED);
            assert_true(cut.text_bytes <= whole.text_bytes);
            if (cut.text_bytes > 0)
                assert_memory_equal(cut.text, whole.text, cut.text_bytes);
            capture_clear(&cut);
        }
    assert_true(n_held > 8);
    capture_clear(&plain);
    capture_clear(&whole);
}

/* Paused from the start, run to its end, then cancelled: by the host, or with its engine's end. */
static void dropped_is_cancelled(void **state)
{
    struct capture capture = {0};
    runnel_stream stream = submit(NULL, 0, &capture);

    (void)state;
    assert_int_equal(runnel_stream_pause(manual.engine, stream), RUNNEL_OK);
    run_steps(TOKENS);
    assert_int_equal(capture.n_events, 0);
    assert_int_equal(runnel_stream_cancel(manual.engine, stream), RUNNEL_OK);
    run_steps(1);
    assert_int_equal(capture.n_events, 1);
    assert_int_equal(capture.last.type, RUNNEL_EVENT_CANCELLED);
    assert_int_equal(capture.last.finish, RUNNEL_FINISH_NONE);
    capture_clear(&capture);
}

/* All that it had was delivered before the pause: nothing is dropped, and the answer is what it was. */
static void delivered_is_done(void **state)
{
    struct capture capture = {0};
    runnel_request request = make_request(PROMPT, 4, &capture);
    runnel_stream stream;

    (void)state;
    assert_int_equal(runnel_generate(manual.model, &request, &stream, NULL), RUNNEL_OK);
    manual_settle(manual.engine);
    for (int i = 0; i < 3; i++) {
        oracle_complete(manual.oracle, ORACLE_FAULT_NONE);
        manual_settle(manual.engine);
    }
    oracle_complete(manual.oracle, ORACLE_FAULT_NONE);
    manual_run(manual.engine);
    assert_int_equal(runnel_engine_dispatch(manual.engine, 1), 1);
    assert_int_equal(capture.n_tokens, 4);
    assert_int_equal(capture.n_terminal, 0);
    assert_int_equal(runnel_stream_pause(manual.engine, stream), RUNNEL_OK);
    manual_settle(manual.engine);
    assert_int_equal(capture.n_terminal, 0);
    assert_int_equal(runnel_stream_cancel(manual.engine, stream), RUNNEL_OK);
    manual_settle(manual.engine);
    assert_int_equal(capture.last.type, RUNNEL_EVENT_DONE);
    assert_int_equal(capture.last.finish, RUNNEL_FINISH_LENGTH);
    capture_clear(&capture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(told_is_a_prefix),
        cmocka_unit_test(dropped_is_cancelled),
        cmocka_unit_test(delivered_is_done),
    };

    return cmocka_run_group_tests(tests, setup, manual_end);
}
