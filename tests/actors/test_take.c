/* runnel_engine_take: the same events as by callbacks, in arrays, valid until the next call. */
#include <stdlib.h>
#include <string.h>

#include "runnel_uv.h"
#include "tests/actors/fixture.h"
#include "tests/sim/manual.h"

/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
/* clang-format on */

#define STREAMS 6
#define TOKENS 40

static const char *const prompts[STREAMS] = {"Once upon a time", "Tom saw a cat.", "The sun",
                                             "One day a girl",   "A red ball",     "Mom said"};

static runnel_engine *taking_engine(void)
{
    runnel_engine_options options;

    runnel_engine_options_default(&options);
    options.delivery = RUNNEL_DELIVER_TAKE;
    return start_engine(&options);
}

static runnel_request request_of(int i, struct capture *capture)
{
    runnel_request request = make_request(prompts[i], TOKENS, capture);

    request.ignore_eos = 1;
    request.want_progress = 1;
    return request;
}

/* A sum of all that an event points to. */
static uint64_t sum_of(const runnel_event *event)
{
    uint64_t sum = event->type + 31 * event->text_bytes + 7 * event->stream.id;

    for (size_t i = 0; i < event->text_bytes; i++)
        sum = 131 * sum + (unsigned char)event->text[i];
    for (const char *c = event->error; *c != '\0'; c++)
        sum = 131 * sum + (unsigned char)*c;
    return sum;
}

/* Takes until all captures have their end. In between it looks that what it holds stays as it is. */
static void take_all(runnel_engine *engine, size_t n_at_once, unsigned n_streams)
{
    const runnel_event *events[RUNNEL_MAX_TAKE];
    unsigned n_ended = 0;

    while (n_ended < n_streams) {
        uint64_t sums[RUNNEL_MAX_TAKE];
        size_t n;

        assert_int_equal(runnel_engine_wait(engine, -1), RUNNEL_OK);
        n = runnel_engine_take(engine, events, n_at_once);
        assert_in_range(n, 0, n_at_once);
        for (size_t i = 0; i < n; i++) {
            sums[i] = sum_of(events[i]);
            for (size_t k = 0; k < i; k++)
                assert_true(events[k]->stream.id != events[i]->stream.id);
        }
        runnel_engine_wait(engine, 2); /* the streams go on meanwhile */
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(sum_of(events[i]), sums[i]);
            capture_event(events[i]->user, events[i]);
            n_ended += events[i]->type >= RUNNEL_EVENT_DONE;
        }
    }
}

static void same_as_callbacks(size_t n_at_once, bool host)
{
    runnel_engine *engines[2] = {start_engine(NULL), host ? start_engine(NULL) : taking_engine()};
    struct capture heard[STREAMS] = {0}, taken[STREAMS] = {0};
    runnel_model *models[2];

    for (int e = 0; e < 2; e++)
        models[e] = load_model(engines[e], quick_model(), NULL);
    for (int i = 0; i < STREAMS; i++) {
        runnel_request request = request_of(i, &heard[i]);
        runnel_stream stream;

        run_request(engines[0], models[0], &request);
        request.user = &taken[i];
        if (!host)
            request.on_event = NULL;
        assert_int_equal(runnel_generate(models[1], &request, &stream, NULL), RUNNEL_OK);
        assert_int_equal(runnel_stream_next(engines[1], stream, 0, &(runnel_event){0}), RUNNEL_STATE);
    }
    take_all(engines[1], n_at_once, STREAMS);
    for (int i = 0; i < STREAMS; i++) {
        assert_int_equal(taken[i].n_terminal, 1);
        assert_int_equal(taken[i].n_after_terminal, 0);
        assert_int_equal(taken[i].last.type, RUNNEL_EVENT_DONE);
        assert_int_equal(taken[i].n_tokens, heard[i].n_tokens);
        assert_memory_equal(taken[i].tokens, heard[i].tokens, heard[i].n_tokens * sizeof heard[i].tokens[0]);
        assert_int_equal(taken[i].text_bytes, heard[i].text_bytes);
        assert_memory_equal(taken[i].text, heard[i].text, heard[i].text_bytes);
        assert_true(taken[i].n_progress > 0);
        capture_clear(&heard[i]);
        capture_clear(&taken[i]);
    }
    assert_int_equal(runnel_engine_take(engines[1], (const runnel_event *[1]){0}, 1), 0);
    assert_quiet(engines[1], 0);
    runnel_engine_free(engines[0]);
    runnel_engine_free(engines[1]);
}

static void many_at_once(void **state)
{
    (void)state;
    same_as_callbacks(RUNNEL_MAX_TAKE, false);
}

static void one_at_once(void **state)
{
    (void)state;
    same_as_callbacks(1, false);
}

/* Of an engine that would call back: callbacks do not run. */
static void instead_of_dispatch(void **state)
{
    (void)state;
    same_as_callbacks(3, true);
}

static void on_load(void *user, const runnel_load_event *event)
{
    *(runnel_load_state *)user = event->state;
}

static void other_ways(void **state)
{
    runnel_engine *engine = taking_engine();
    runnel_load_state loaded = RUNNEL_LOAD_PROGRESS;
    const runnel_event *events[1];
    runnel_model_options options;
    runnel_model *model;

    (void)state;
    runnel_model_options_default(&options);
    options.on_load = on_load;
    options.load_user = &loaded;
    assert_int_equal(runnel_model_load(engine, quick_model(), &options, &model, NULL), RUNNEL_OK);
    while (loaded == RUNNEL_LOAD_PROGRESS) {
        runnel_engine_wait(engine, 1000);
        assert_int_equal(runnel_engine_dispatch(engine, 0), 0);
        assert_int_equal(runnel_engine_take(engine, events, 1), 0);
    }
    assert_int_equal(loaded, RUNNEL_LOAD_READY);
    assert_int_equal(runnel_uv_attach(engine, (struct uv_loop_s *)events), RUNNEL_STATE);
    assert_int_equal(runnel_engine_take(engine, events, 0), 0);
    assert_int_equal(runnel_engine_drain(engine, -1), RUNNEL_OK);
    runnel_engine_free(engine);
}

/* ---- By hand ----------------------------------------------------------------------------- */

static int setup(void **state)
{
    runnel_engine_options options;
    const struct manual_plan plan = {
        .limits =
            {.max_rows = 16, .max_seqs = 10, .max_outs = 8, .n_blocks = 32, .block_tokens = 8, .context_tokens = 64},
        .options = &options,
        .submitted = manual_complete_at_once,
    };

    (void)state;
    runnel_engine_options_default(&options);
    options.max_streams = 4;
    options.delivery = RUNNEL_DELIVER_TAKE;
    manual_begin(&plan);
    return 0;
}

static runnel_stream submit(const char *prompt, int64_t max_tokens)
{
    runnel_request request = make_request(prompt, max_tokens, NULL);
    runnel_stream stream;

    assert_int_equal(runnel_generate(manual.model, &request, &stream, NULL), RUNNEL_OK);
    return stream;
}

static size_t take(const runnel_event **events, size_t n)
{
    manual_run(manual.engine);
    return runnel_engine_take(manual.engine, events, n);
}

/* The descriptor says that there is more, as long as there is. */
static void readable_while_more_waits(void **state)
{
    const runnel_event *events[4];
    size_t n_tokens = 0;

    (void)state;
    submit("abc", 5);
    submit("abd", 5);
    manual_run(manual.engine);
    for (int n_ended = 0; n_ended < 2;) {
        assert_int_equal(runnel_engine_wait(manual.engine, 0), RUNNEL_OK);
        assert_int_equal(take(events, 1), 1);
        n_tokens += events[0]->type == RUNNEL_EVENT_TOKEN && events[0]->token >= 0;
        n_ended += events[0]->type == RUNNEL_EVENT_DONE;
    }
    assert_int_equal(n_tokens, 10);
    assert_int_equal(take(events, 4), 0);
    assert_int_equal(runnel_engine_wait(manual.engine, 0), RUNNEL_TIMEOUT);
}

/* A paused stream gives nothing but the end of a cancelled one; a stream whose end is held is there until it is given
 * back. */
static void paused_and_cancelled(void **state)
{
    runnel_stream stream = submit("abc", 20);
    const runnel_event *events[4];

    (void)state;
    assert_int_equal(take(events, 4), 1);
    assert_int_equal(events[0]->token >= 0, 1);
    assert_int_equal(runnel_stream_pause(manual.engine, stream), RUNNEL_OK);
    assert_int_equal(take(events, 4), 0);
    assert_int_equal(runnel_stream_resume(manual.engine, stream), RUNNEL_OK);
    assert_int_equal(take(events, 4), 1);
    assert_int_equal(runnel_stream_pause(manual.engine, stream), RUNNEL_OK);
    assert_int_equal(runnel_stream_cancel(manual.engine, stream), RUNNEL_OK);
    for (int i = 0; i < 50 && (take(events, 4) == 0 || events[0]->type < RUNNEL_EVENT_DONE); i++)
        continue;
    assert_int_equal(events[0]->stream.id, stream.id);
    assert_true(events[0]->type >= RUNNEL_EVENT_DONE);
    assert_int_equal(runnel_stream_cancel(manual.engine, stream), RUNNEL_OK);
    assert_int_equal(take(events, 4), 0);
    assert_int_equal(runnel_stream_cancel(manual.engine, stream), RUNNEL_NOT_FOUND);
}

/* A reader that takes one event now and then: the stream waits, and goes on with its credits. */
static void window(void **state)
{
    const runnel_event *events[2];
    uint64_t n_tokens = 0;

    (void)state;
    submit("abc", 50); /* more than the window of 30 */
    for (;;) {
        assert_int_equal(take(events, 2), 1);
        if (events[0]->type == RUNNEL_EVENT_DONE)
            break;
        n_tokens += events[0]->n_tokens;
    }
    assert_int_equal(n_tokens, 50);
    assert_int_equal(events[0]->usage.completion_tokens, 50);
}

/* What is held, and what was never taken, is freed with the engine. */
static void freed_with_events_held(void **state)
{
    const runnel_event *events[4];

    (void)state;
    submit("abc", 50);
    submit("abd", 1);
    submit("abe", 50);
    assert_int_equal(take(events, 2), 2);
    assert_int_equal(runnel_engine_drain(manual.engine, -1), RUNNEL_TIMEOUT); /* it would never end here */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_at_once),
        cmocka_unit_test(one_at_once),
        cmocka_unit_test(instead_of_dispatch),
        cmocka_unit_test(other_ways),
        cmocka_unit_test_setup_teardown(readable_while_more_waits, setup, manual_end),
        cmocka_unit_test_setup_teardown(paused_and_cancelled, setup, manual_end),
        cmocka_unit_test_setup_teardown(window, setup, manual_end),
        cmocka_unit_test_setup_teardown(freed_with_events_held, setup, manual_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
