/* A dispatch comes to its end however many events keep coming: it delivers what waits at its begin, each stream in its
 * turn, and looks between two events whether the engine is to be freed or a drain's time is up. By hand: each callback
 * lets the actors run, so that the next events are there before it returns. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "tests/actors/fixture.h"
#include "tests/sim/manual.h"

#define TOKENS 200 /* many windows */
#define STREAMS 2

static uint64_t now;
static size_t n_all, first[STREAMS]; /* events of all streams; how many there were before the first of each */

static uint64_t time_now(void *user)
{
    (void)user;
    return now;
}

static int setup_as(runnel_delivery delivery, uint32_t max_sessions)
{
    const struct rn_clock clock = {.now_us = time_now};
    runnel_engine_options options;
    const struct manual_plan plan = {
        .limits =
            {.max_rows = 16, .max_seqs = 4, .max_outs = 8, .n_blocks = 80, .block_tokens = 8, .context_tokens = 256},
        .options = &options,
        .clock = &clock,
        .submitted = manual_complete_at_once,
    };

    runnel_engine_options_default(&options);
    options.max_streams = 4;
    options.max_sessions = max_sessions;
    options.delivery = delivery;
    now = 1000000;
    n_all = 0;
    manual_begin(&plan);
    return 0;
}

static int setup(void **state)
{
    (void)state;
    return setup_as(RUNNEL_DELIVER_HOST, 0);
}

static int setup_taking(void **state)
{
    (void)state;
    return setup_as(RUNNEL_DELIVER_TAKE, 0);
}

/* Events keep coming, and a callback takes 3 ms. */
static void go_on(struct capture *capture, const runnel_event *event)
{
    size_t *before = capture->hook_user;

    (void)event;
    if (capture->n_events == 1)
        *before = n_all;
    n_all++;
    now += 3000;
    manual_run(manual.engine);
}

static runnel_stream submit(const char *prompt, struct capture *capture)
{
    runnel_request request = make_request(prompt, TOKENS, capture);
    runnel_stream stream;

    request.ignore_eos = 1;
    assert_int_equal(runnel_generate(manual.model, &request, &stream, NULL), RUNNEL_OK);
    manual_run(manual.engine);
    return stream;
}

static size_t waiting(runnel_stream stream)
{
    return rn_outlet_waiting(&manual.engine->host.outlets[(uint32_t)stream.id], (uint32_t)(stream.id >> 32));
}

static void each_stream_in_its_turn(void **state)
{
    struct capture captures[STREAMS];
    size_t n_waiting[STREAMS];

    (void)state;
    for (int i = 0; i < STREAMS; i++) {
        captures[i] = (struct capture){.hook = go_on, .hook_user = &first[i]};
        n_waiting[i] = waiting(submit(i == 0 ? "abc" : "abd", &captures[i]));
        assert_in_range(n_waiting[i], 2, TOKENS / 4);
    }
    assert_int_equal(runnel_engine_dispatch(manual.engine, 0), n_waiting[0] + n_waiting[1]);
    assert_int_equal(first[1], n_waiting[0]);
    while (captures[0].n_terminal == 0 || captures[1].n_terminal == 0) {
        assert_int_equal(runnel_engine_wait(manual.engine, 0), RUNNEL_OK); /* what is left keeps the loop awake */
        assert_true(runnel_engine_dispatch(manual.engine, 0) > 0);
    }
    for (int i = 0; i < STREAMS; i++) {
        assert_int_equal(captures[i].n_tokens, TOKENS);
        assert_int_equal(captures[i].n_after_terminal, 0);
        capture_clear(&captures[i]);
    }
    runnel_engine_dispatch(manual.engine, 0);
    assert_int_equal(runnel_engine_wait(manual.engine, 0), RUNNEL_TIMEOUT);
}

/* Time passes in the callbacks alone, 3 ms in each. */
static void a_drain_looks_at_its_time(void **state)
{
    struct capture capture = {.hook = go_on, .hook_user = &first[0]};

    (void)state;
    submit("abc", &capture);
    assert_int_equal(runnel_engine_drain(manual.engine, 10), RUNNEL_TIMEOUT);
    assert_int_equal(capture.n_events, 4);
    assert_int_equal(runnel_engine_drain(manual.engine, -1), RUNNEL_OK);
    assert_int_equal(capture.n_terminal, 1);
    assert_int_equal(capture.n_tokens, TOKENS);
    capture_clear(&capture);
}

static void free_at_fifth(struct capture *capture, const runnel_event *event)
{
    go_on(capture, event);
    if (capture->n_events == 5)
        runnel_engine_free(manual.engine);
}

/* The dispatch makes way, and the stream is cancelled: with what waited behind the fifth event it ends. */
static void a_free_inside_a_callback_ends_the_dispatch(void **state)
{
    struct capture capture = {.hook = free_at_fifth, .hook_user = &first[0]};

    (void)state;
    submit("abc", &capture);
    assert_int_equal(runnel_engine_dispatch(manual.engine, 0), 5);
    assert_int_equal(capture.n_terminal, 1);
    assert_int_equal(capture.last.type, RUNNEL_EVENT_CANCELLED);
    assert_true(capture.n_tokens < TOKENS);
    capture_clear(&capture);
    manual_oracle_free(manual.oracle);
}

/* ---- Other ways to receive --------------------------------------------------------------- */

/* A host that takes has no callbacks, not even inside runnel_engine_free. */
static void who_takes_is_not_called_back(void **state)
{
    struct capture capture = {0};

    (void)state;
    submit("abc", &capture);
    manual_end(state);
    assert_int_equal(capture.n_events, 0);
}

/* Another thread is inside runnel_stream_next with the handle of the stream that had the slot before: it finds it gone,
 * and is in nobody's way meanwhile. */
static void a_reader_of_an_older_stream(void **state)
{
    runnel_request request = make_request("abc", 1, NULL);
    runnel_stream old, stream;
    runnel_event event;

    (void)state;
    assert_int_equal(runnel_generate(manual.model, &request, &old, NULL), RUNNEL_OK);
    manual_run(manual.engine);
    do
        assert_int_equal(runnel_stream_next(manual.engine, old, 0, &event), RUNNEL_OK);
    while (event.type < RUNNEL_EVENT_DONE);
    assert_int_equal(runnel_generate(manual.model, &request, &stream, NULL), RUNNEL_OK);
    manual_run(manual.engine);
    assert_int_equal((uint32_t)stream.id, (uint32_t)old.id);
    rn_word_set(&manual.engine->host.outlets[(uint32_t)old.id].pulling, (uint32_t)(old.id >> 32));
    assert_int_equal(runnel_stream_next(manual.engine, stream, 0, &event), RUNNEL_OK);
    assert_int_equal(runnel_stream_next(manual.engine, old, 0, &event), RUNNEL_NOT_FOUND);
    assert_int_equal(runnel_stream_next(manual.engine, stream, 0, &event), RUNNEL_OK);
    assert_true(event.type >= RUNNEL_EVENT_DONE || runnel_stream_next(manual.engine, stream, 0, &event) == RUNNEL_OK);
}

/* ---- Chains of copies -------------------------------------------------------------------- */

#define COPIES 20000
#define STACK_BYTES (512 << 10)

static void *run(void *engine)
{
    manual_run(engine);
    return NULL;
}

static int setup_sessions(void **state)
{
    (void)state;
    return setup_as(RUNNEL_DELIVER_HOST, COPIES + 1);
}

/* A copy of a copy of a copy, all of which wait for a turn and are freed already: how deep the actor's stack gets does
 * not depend on how many there are. */
static void a_chain_of_copies_that_are_freed(void **state)
{
    struct capture capture = {0};
    runnel_request request = make_request("abc", TOKENS, &capture);
    runnel_session session, copies[COPIES];
    pthread_attr_t attributes;
    pthread_t thread;
    runnel_stream stream;

    (void)state;
    assert_int_equal(runnel_session_new(manual.model, &session), RUNNEL_OK);
    request.session = session;
    request.ignore_eos = 1;
    assert_int_equal(runnel_generate(manual.model, &request, &stream, NULL), RUNNEL_OK);
    manual_run(manual.engine); /* as far as the window reaches */
    for (int i = 0; i < COPIES; i++)
        assert_int_equal(runnel_session_fork(manual.model, i > 0 ? copies[i - 1] : session, &copies[i]), RUNNEL_OK);
    for (int i = 0; i < COPIES; i++)
        assert_int_equal(runnel_session_free(manual.model, copies[i]), RUNNEL_OK);
    manual_run(manual.engine);
    assert_true(rn_tier_check(&manual.model->tier));
    assert_int_equal(runnel_stream_cancel(manual.engine, stream), RUNNEL_OK);
    assert_int_equal(pthread_attr_init(&attributes), 0);
    assert_int_equal(pthread_attr_setstacksize(&attributes, STACK_BYTES), 0);
    assert_int_equal(pthread_create(&thread, &attributes, run, manual.engine), 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attributes);
    assert_true(rn_tier_check(&manual.model->tier));
    assert_int_equal(rn_pool_taken(&manual.engine->session_slots), 1); /* the first */
    manual_settle(manual.engine);
    assert_int_equal(capture.n_terminal, 1);
    capture_clear(&capture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_stream_in_its_turn, setup, manual_end),
        cmocka_unit_test_setup_teardown(a_drain_looks_at_its_time, setup, manual_end),
        cmocka_unit_test_setup(a_free_inside_a_callback_ends_the_dispatch, setup),
        cmocka_unit_test_setup(who_takes_is_not_called_back, setup_taking),
        cmocka_unit_test_setup_teardown(a_reader_of_an_older_stream, setup, manual_end),
        cmocka_unit_test_setup_teardown(a_chain_of_copies_that_are_freed, setup_sessions, manual_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
