/* The four ways to receive give the same events of the same request; control inside callbacks; ends. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <uv.h>

#include <cmocka.h>

#include "fixture.h"
#include "runnel_uv.h"
#include "tests/base/refusing.h"

#define PROMPT "Once upon a time"
#define TOKENS 40

static struct capture expected;

static int setup(void **state)
{
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model = load_model(engine, quick_model(), NULL);
    runnel_request request = make_request(PROMPT, TOKENS, &expected);

    (void)state;
    assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
    assert_true(expected.n_tokens > 5);
    runnel_engine_free(engine);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    capture_clear(&expected);
    return 0;
}

static void check(const struct capture *capture)
{
    assert_int_equal(capture->n_terminal, 1);
    assert_int_equal(capture->n_after_terminal, 0);
    assert_int_equal(capture->last.type, RUNNEL_EVENT_DONE);
    assert_int_equal(capture->n_tokens, expected.n_tokens);
    assert_memory_equal(capture->tokens, expected.tokens, expected.n_tokens * sizeof expected.tokens[0]);
    assert_string_equal(capture->text, expected.text);
    assert_int_equal(capture->last.usage.prompt_tokens, expected.last.usage.prompt_tokens);
    assert_int_equal(capture->last.usage.completion_tokens, expected.last.usage.completion_tokens);
    assert_true(capture->last.timings.end_us >= capture->last.timings.first_token_us);
    assert_true(capture->last.timings.first_token_us >= capture->last.timings.admitted_us);
}

static void pulled(void **state)
{
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model = load_model(engine, quick_model(), NULL);
    runnel_request request = make_request(PROMPT, TOKENS, NULL);
    struct capture capture = {0};
    runnel_stream stream;
    runnel_event event;

    (void)state;
    assert_int_equal(runnel_generate(model, &request, &stream, NULL), RUNNEL_OK);
    do {
        assert_int_equal(runnel_stream_next(engine, stream, -1, &event), RUNNEL_OK);
        capture_event(&capture, &event);
    } while (event.type < RUNNEL_EVENT_DONE);
    check(&capture);
    assert_int_equal(runnel_stream_next(engine, stream, 0, &event), RUNNEL_NOT_FOUND);
    capture_clear(&capture);
    assert_quiet(engine, 0);
    runnel_engine_free(engine);
}

/* On the engine's thread; the main thread only looks at a counter the callback publishes. */
struct threaded {
    struct capture capture;
    pthread_t thread;
    _Atomic(int) ended;
};

static void on_thread_event(struct capture *capture, const runnel_event *event)
{
    struct threaded *t = capture->hook_user;

    t->thread = pthread_self();
    if (event->type >= RUNNEL_EVENT_DONE)
        t->ended = 1;
}

static void threaded(void **state)
{
    runnel_engine_options options;
    runnel_engine *engine;
    runnel_model *model;
    struct threaded t = {0};
    runnel_request request = make_request(PROMPT, TOKENS, &t.capture);

    (void)state;
    runnel_engine_options_default(&options);
    options.delivery = RUNNEL_DELIVER_THREAD;
    engine = start_engine(&options);
    model = load_model(engine, quick_model(), NULL);
    t.capture.hook = on_thread_event;
    t.capture.hook_user = &t;
    assert_int_equal(runnel_generate(model, &request, &(runnel_stream){0}, NULL), RUNNEL_OK);
    while (!t.ended)
        sched_yield();
    assert_false(pthread_equal(t.thread, pthread_self()));
    check(&t.capture);
    assert_int_equal(runnel_engine_dispatch(engine, 0), 0);
    capture_clear(&t.capture);
    runnel_engine_free(engine);
}

/* The loop runs exactly as long as streams do, and no handle is left. */
static void on_uv_loaded(void *user, const runnel_load_event *event)
{
    if (event->state == RUNNEL_LOAD_READY)
        assert_int_equal(runnel_generate(event->model, user, &(runnel_stream){0}, NULL), RUNNEL_OK);
    else
        assert_int_equal(event->state, RUNNEL_LOAD_PROGRESS);
}

static void libuv(void **state)
{
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model;
    runnel_model_options options;
    struct capture capture = {0};
    runnel_request request = make_request(PROMPT, TOKENS, &capture);
    uv_loop_t loop;

    (void)state;
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(runnel_uv_attach(engine, &loop), RUNNEL_OK);
    assert_int_equal(runnel_uv_attach(engine, &loop), RUNNEL_STATE);
    runnel_model_options_default(&options);
    options.on_load = on_uv_loaded;
    options.load_user = &request;
    assert_int_equal(runnel_model_load(engine, quick_model(), &options, &model, NULL), RUNNEL_OK);
    assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
    check(&capture);
    assert_int_equal(runnel_uv_detach(engine), RUNNEL_OK);
    assert_int_equal(runnel_uv_detach(engine), RUNNEL_STATE);
    runnel_engine_free(engine);
    assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(uv_loop_close(&loop), 0);
    capture_clear(&capture);
}

/* The loop ends with the last stream or load also where it has not delivered that end itself. */

static void loads_without_news(runnel_engine *engine)
{
    runnel_model *model;

    assert_int_equal(runnel_model_load(engine, quick_model(), NULL, &model, NULL), RUNNEL_OK);
}

static void load_is_freed(runnel_engine *engine)
{
    runnel_model *model;

    assert_int_equal(runnel_model_load(engine, quick_model(), NULL, &model, NULL), RUNNEL_OK);
    runnel_model_free(model);
}

static runnel_stream ends_soon(runnel_engine *engine, struct capture *capture)
{
    runnel_request request = make_request(PROMPT, 3, capture);
    runnel_stream stream;

    if (capture == NULL)
        request.on_event = NULL;
    assert_int_equal(runnel_generate(load_model(engine, quick_model(), NULL), &request, &stream, NULL), RUNNEL_OK);
    return stream;
}

static void is_pulled(runnel_engine *engine)
{
    runnel_stream stream = ends_soon(engine, NULL);
    runnel_event event;

    do
        assert_int_equal(runnel_stream_next(engine, stream, -1, &event), RUNNEL_OK);
    while (event.type < RUNNEL_EVENT_DONE);
}

static void *pull_all(void *engine)
{
    is_pulled(engine);
    return NULL;
}

static void is_pulled_elsewhere(runnel_engine *engine)
{
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, pull_all, engine), 0);
    pthread_join(thread, NULL);
}

static void is_drained(runnel_engine *engine)
{
    struct capture capture = {0};

    ends_soon(engine, &capture);
    assert_int_equal(runnel_engine_drain(engine, -1), RUNNEL_OK);
    assert_int_equal(capture.n_terminal, 1);
    capture_clear(&capture);
}

static void is_dispatched(runnel_engine *engine)
{
    struct capture capture = {0};

    ends_soon(engine, &capture);
    run_until_end(engine, &capture);
    capture_clear(&capture);
}

static void is_taken(runnel_engine *engine)
{
    struct capture capture = {0};
    const runnel_event *event;
    bool ended = false;

    ends_soon(engine, &capture);
    while (!ended) {
        runnel_engine_wait(engine, -1);
        if (runnel_engine_take(engine, &event, 1) == 1)
            ended = event->type >= RUNNEL_EVENT_DONE;
    }
    assert_int_equal(runnel_engine_take(engine, &event, 1), 0); /* gives the last one back */
    assert_int_equal(capture.n_events, 0);
}

static void libuv_ends(void **state)
{
    static void (*const ways[])(runnel_engine *) = {loads_without_news, load_is_freed, is_pulled, is_pulled_elsewhere,
                                                    is_drained,         is_dispatched, is_taken};

    (void)state;
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        runnel_engine *engine = start_engine(NULL);
        uv_loop_t loop;

        assert_int_equal(uv_loop_init(&loop), 0);
        assert_int_equal(runnel_uv_attach(engine, &loop), RUNNEL_OK);
        ways[i](engine);
        assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
        runnel_engine_free(engine);
        assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
        assert_int_equal(uv_loop_close(&loop), 0);
    }
}

/* A stream that another thread begins keeps a loop alive that runs. */
struct begun_elsewhere {
    runnel_engine *engine;
    runnel_model *model;
    struct capture capture;
    uv_async_t submitted;
};

static void on_submitted(uv_async_t *async)
{
    uv_close((uv_handle_t *)async, NULL); /* from here on the stream alone keeps the loop alive */
}

static void *submit_elsewhere(void *arg)
{
    struct begun_elsewhere *b = arg;
    runnel_request request = make_request(PROMPT, TOKENS, &b->capture);

    assert_int_equal(runnel_generate(b->model, &request, &(runnel_stream){0}, NULL), RUNNEL_OK);
    uv_async_send(&b->submitted);
    return NULL;
}

static void libuv_begun_elsewhere(void **state)
{
    struct begun_elsewhere b = {.engine = start_engine(NULL)};
    pthread_t thread;
    uv_loop_t loop;

    (void)state;
    b.model = load_model(b.engine, quick_model(), NULL);
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(uv_async_init(&loop, &b.submitted, on_submitted), 0);
    assert_int_equal(runnel_uv_attach(b.engine, &loop), RUNNEL_OK);
    assert_int_equal(pthread_create(&thread, NULL, submit_elsewhere, &b), 0);
    assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
    pthread_join(thread, NULL);
    check(&b.capture);
    runnel_engine_free(b.engine);
    assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(uv_loop_close(&loop), 0);
    capture_clear(&b.capture);
}

/* One event at a time is all right. */
/* The engine is freed on another thread than its loop's: streams end there and then; the loop closes its handle at its
 * next turn, which frees the rest. */
struct freed_elsewhere {
    runnel_engine *engine;
    uv_async_t freed;
};

static void *free_elsewhere(void *arg)
{
    struct freed_elsewhere *f = arg;

    runnel_engine_free(f->engine);
    uv_async_send(&f->freed);
    return NULL;
}

/* busy: the engine's handle keeps the loop alive, for a stream; else one of the host's does. */
static void free_beside_loop(bool busy, bool running)
{
    struct refusing memory = {0};
    struct capture capture = {0};
    struct freed_elsewhere f;
    runnel_engine_options options;
    runnel_request request = make_request(PROMPT, 500, &capture);
    runnel_model *model;
    pthread_t thread;
    uv_loop_t loop;

    runnel_engine_options_default(&options);
    options.allocator = refusing_hook(&memory);
    f.engine = start_engine(&options);
    model = load_model(f.engine, quick_model(), NULL);
    request.ignore_eos = 1;
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(uv_async_init(&loop, &f.freed, on_submitted), 0);
    if (busy)
        uv_unref((uv_handle_t *)&f.freed);
    assert_int_equal(runnel_uv_attach(f.engine, &loop), RUNNEL_OK);
    if (busy)
        assert_int_equal(runnel_generate(model, &request, &(runnel_stream){0}, NULL), RUNNEL_OK);
    assert_int_equal(pthread_create(&thread, NULL, free_elsewhere, &f), 0);
    if (!running) {
        pthread_join(thread, NULL);
        assert_int_equal(capture.n_terminal, busy);
    }
    assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
    if (running)
        pthread_join(thread, NULL);
    assert_int_equal(capture.n_terminal, busy);
    assert_int_equal(atomic_load(&memory.live), 0);
    if (!uv_is_closing((uv_handle_t *)&f.freed))
        uv_close((uv_handle_t *)&f.freed, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    capture_clear(&capture);
}

static void libuv_freed_elsewhere(void **state)
{
    (void)state;
    for (int round = 0; round < UNLESS_SLOW(20, 4); round++)
        free_beside_loop(round % 2 == 0, round / 2 % 2 == 0);
}

static void one_by_one(void **state)
{
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model = load_model(engine, quick_model(), NULL);
    struct capture capture = {0};
    runnel_request request = make_request(PROMPT, TOKENS, &capture);

    (void)state;
    assert_int_equal(runnel_generate(model, &request, &(runnel_stream){0}, NULL), RUNNEL_OK);
    while (capture.n_terminal == 0) {
        assert_int_equal(runnel_engine_wait(engine, -1), RUNNEL_OK);
        assert_true(runnel_engine_dispatch(engine, 1) <= 1);
    }
    check(&capture);
    capture_clear(&capture);
    runnel_engine_free(engine);
}

/* Everything is legal inside a callback: submit, cancel, pause, resume, dispatch, free. */
struct nest {
    runnel_engine *engine;
    runnel_model *model;
    runnel_stream outer, inner;
    struct capture inner_capture;
    bool free_engine;
};

static void on_nested(struct capture *capture, const runnel_event *event)
{
    struct nest *nest = capture->hook_user;
    runnel_request request = make_request("The fox", 5, &nest->inner_capture);

    if (event->type == RUNNEL_EVENT_TOKEN && capture->n_tokens == 2) {
        assert_int_equal(runnel_engine_dispatch(nest->engine, 0), 0);
        assert_int_equal(runnel_generate(nest->model, &request, &nest->inner, NULL), RUNNEL_OK);
        assert_int_equal(runnel_stream_pause(nest->engine, nest->outer), RUNNEL_OK);
        assert_int_equal(runnel_stream_resume(nest->engine, nest->outer), RUNNEL_OK);
    }
    if (event->type == RUNNEL_EVENT_TOKEN && capture->n_tokens == 4) {
        assert_int_equal(runnel_stream_cancel(nest->engine, nest->outer), RUNNEL_OK);
        assert_int_equal(runnel_stream_cancel(nest->engine, nest->outer), RUNNEL_OK);
    }
    if (event->type >= RUNNEL_EVENT_DONE && nest->free_engine)
        runnel_engine_free(nest->engine);
}

static void inside_callbacks(void **state)
{
    struct nest nest = {.engine = start_engine(NULL)};
    struct capture capture = {.hook = on_nested, .hook_user = &nest};
    runnel_request request = make_request(PROMPT, 500, &capture);

    (void)state;
    nest.model = load_model(nest.engine, quick_model(), NULL);
    request.ignore_eos = 1;
    assert_int_equal(runnel_generate(nest.model, &request, &nest.outer, NULL), RUNNEL_OK);
    run_until_end(nest.engine, &capture);
    assert_int_equal(capture.last.type, RUNNEL_EVENT_CANCELLED);
    assert_int_equal(capture.last.finish, RUNNEL_FINISH_NONE);
    run_until_end(nest.engine, &nest.inner_capture);
    assert_int_equal(nest.inner_capture.last.type, RUNNEL_EVENT_DONE);
    capture_clear(&capture);
    capture_clear(&nest.inner_capture);
    assert_quiet(nest.engine, 0);
    runnel_engine_free(nest.engine);
}

static void free_inside_callback(void **state)
{
    struct nest nest = {.free_engine = true};
    struct capture capture = {.hook = on_nested, .hook_user = &nest};
    runnel_request request = make_request(PROMPT, 3, &capture);

    (void)state;
    nest.engine = start_engine(NULL);
    nest.model = load_model(nest.engine, quick_model(), NULL);
    assert_int_equal(runnel_generate(nest.model, &request, &nest.outer, NULL), RUNNEL_OK);
    while (capture.n_terminal == 0) {
        runnel_engine_wait(nest.engine, 100);
        runnel_engine_dispatch(nest.engine, 0);
    }
    assert_int_equal(nest.inner_capture.n_terminal, 1); /* it ended before the engine did */
    capture_clear(&capture);
    capture_clear(&nest.inner_capture);
}

/* Freeing an engine or a model under load: each accepted stream still ends exactly once. */
static void free_under_load(void **state)
{
    (void)state;
    for (int way = 0; way < 2; way++) {
        runnel_engine *engine = start_engine(NULL);
        runnel_model *model = load_model(engine, quick_model(), NULL);
        struct capture captures[20] = {{0}};

        for (int i = 0; i < 20; i++) {
            runnel_request request = make_request(PROMPT, 500, &captures[i]);

            request.ignore_eos = 1;
            assert_int_equal(runnel_generate(model, &request, &(runnel_stream){0}, NULL), RUNNEL_OK);
        }
        runnel_engine_wait(engine, 20);
        runnel_engine_dispatch(engine, 3);
        if (way == 0) {
            runnel_model_free(model);
            for (int i = 0; i < 20; i++)
                run_until_end(engine, &captures[i]);
            assert_quiet(engine, 0);
        }
        runnel_engine_free(engine);
        for (int i = 0; i < 20; i++) {
            assert_int_equal(captures[i].n_terminal, 1);
            assert_int_equal(captures[i].last.type, RUNNEL_EVENT_CANCELLED);
            capture_clear(&captures[i]);
        }
    }
}

/* A paused stream gets nothing, stops after a bounded number of tokens, and then ends as it would have. */
static void pause_resume(void **state)
{
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model = load_model(engine, quick_model(), NULL);
    struct capture slow = {0}, other = {0};
    runnel_request request = make_request(PROMPT, 300, &slow);
    runnel_engine_stats stats = {.struct_size = sizeof stats};
    runnel_stream stream;
    uint64_t before;

    (void)state;
    request.ignore_eos = 1;
    assert_int_equal(runnel_generate(model, &request, &stream, NULL), RUNNEL_OK);
    assert_int_equal(runnel_stream_pause(engine, stream), RUNNEL_OK);
    slow.paused = true;
    request = make_request(PROMPT, TOKENS, &other);
    assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
    check(&other);
    for (int i = 0; i < 20; i++) {
        runnel_engine_wait(engine, 10);
        runnel_engine_dispatch(engine, 0);
    }
    assert_int_equal(slow.n_events, 0);
    runnel_engine_get_stats(engine, &stats);
    before = stats.tokens;
    runnel_engine_wait(engine, 100);
    runnel_engine_get_stats(engine, &stats);
    assert_int_equal(stats.tokens, before); /* the paused one stands still */
    assert_true(before - other.n_tokens <= 64);
    slow.paused = false;
    assert_int_equal(runnel_stream_resume(engine, stream), RUNNEL_OK);
    run_until_end(engine, &slow);
    assert_int_equal(slow.n_tokens, 300);
    assert_memory_equal(slow.tokens, expected.tokens,
                        (expected.n_tokens < 300 ? expected.n_tokens : 300) * sizeof(int32_t));
    capture_clear(&slow);
    capture_clear(&other);
    assert_quiet(engine, 0);
    runnel_engine_free(engine);
}

/* ---- Tokens that are joined ---- */

#define MANY 200

static struct capture whole; /* a longer answer, each token by itself */

static void run_whole(runnel_engine *engine, runnel_model *model)
{
    runnel_request request = make_request(PROMPT, MANY, &whole);

    if (whole.n_events > 0)
        return;
    request.ignore_eos = 1;
    assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
    assert_int_equal(whole.n_tokens, MANY);
}

struct reader {
    size_t n_tokens, largest;
    uint32_t coalesce_bytes, sleep_us;
    _Atomic(int) ended;
};

static void on_joined(struct capture *capture, const runnel_event *event)
{
    struct reader *reader = capture->hook_user;

    reader->n_tokens += event->n_tokens;
    if (event->n_tokens > 1 && event->text_bytes > reader->largest)
        reader->largest = event->text_bytes;
    if (reader->sleep_us > 0)
        usleep(reader->sleep_us);
    if (event->type >= RUNNEL_EVENT_DONE)
        reader->ended = 1;
}

static void check_joined(const struct capture *capture, const struct reader *reader)
{
    assert_int_equal(capture->n_terminal, 1);
    assert_int_equal(capture->last.type, RUNNEL_EVENT_DONE);
    assert_int_equal(capture->last.usage.completion_tokens, MANY);
    assert_int_equal(reader->n_tokens, MANY);
    assert_string_equal(capture->text, whole.text);
    assert_true(reader->largest <= reader->coalesce_bytes);
}

static uint64_t tokens_of(runnel_engine *engine)
{
    runnel_engine_stats stats = {.struct_size = sizeof stats};

    runnel_engine_get_stats(engine, &stats);
    return stats.tokens;
}

/* Waits for `least` more tokens, and then until nothing moves any more; how many have come. */
static uint64_t wait_still(runnel_engine *engine, uint64_t from, uint64_t least)
{
    uint64_t now = tokens_of(engine), before = UINT64_MAX;

    for (int still = 0; still < 10 || now - from < least; now = tokens_of(engine)) {
        still = now == before ? still + 1 : 0;
        before = now;
        usleep(UNLESS_SLOW(10000, 50000));
        runnel_engine_dispatch(engine, 0);
    }
    return now - from;
}

/* With room for all of the answer a paused stream comes to its end; with little it stops, and others go on. */
static void paused_joins(void **state)
{
    static const uint32_t sizes[] = {1u << 16, 64};
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model = load_model(engine, quick_model(), NULL);

    (void)state;
    run_whole(engine, model);
    for (int i = 0; i < 2; i++) {
        struct reader reader = {.coalesce_bytes = sizes[i]};
        struct capture slow = {.hook = on_joined, .hook_user = &reader}, other = {0};
        runnel_request request = make_request(PROMPT, MANY, &slow);
        uint64_t from = tokens_of(engine), made;
        runnel_stream stream;

        request.ignore_eos = 1;
        request.coalesce_bytes = sizes[i];
        assert_int_equal(runnel_generate(model, &request, &stream, NULL), RUNNEL_OK);
        assert_int_equal(runnel_stream_pause(engine, stream), RUNNEL_OK);
        slow.paused = true;
        made = wait_still(engine, from, i == 0 ? MANY : 15);
        assert_int_equal(slow.n_events, 0);
        if (i == 0)
            assert_int_equal(made, MANY);
        else
            assert_in_range(made, 15, 100); /* the window, and 64 bytes besides */
        request = make_request(PROMPT, TOKENS, &other);
        assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
        check(&other);
        slow.paused = false;
        assert_int_equal(runnel_stream_resume(engine, stream), RUNNEL_OK);
        run_until_end(engine, &slow);
        check_joined(&slow, &reader);
        if (i == 0)
            assert_in_range(slow.n_events, 3, 8); /* four tokens, the rest, the end */
        capture_clear(&slow);
        capture_clear(&other);
    }
    assert_quiet(engine, 0);
    runnel_engine_free(engine);
}

/* A reader of its own thread that comes and goes: now ahead, now behind. */
static void slow_reader_joins(void **state)
{
    static const uint32_t sizes[] = {1, 9, 200, 1u << 20}, pauses[] = {0, 300, 2000};
    runnel_engine_options options;
    runnel_engine *engine;
    runnel_model *model;

    (void)state;
    runnel_engine_options_default(&options);
    options.delivery = RUNNEL_DELIVER_THREAD;
    engine = start_engine(&options);
    model = load_model(engine, quick_model(), NULL);
    for (int i = 0; i < 12; i++) {
        struct reader reader = {.coalesce_bytes = sizes[i % 4], .sleep_us = pauses[i % 3]};
        struct capture capture = {.hook = on_joined, .hook_user = &reader};
        runnel_request request = make_request(PROMPT, MANY, &capture);

        request.ignore_eos = 1;
        request.coalesce_bytes = sizes[i % 4];
        assert_int_equal(runnel_generate(model, &request, &(runnel_stream){0}, NULL), RUNNEL_OK);
        while (!reader.ended)
            sched_yield();
        check_joined(&capture, &reader);
        capture_clear(&capture);
    }
    runnel_engine_free(engine);
    capture_clear(&whole);
}

static void bad_joins(void **state)
{
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model = load_model(engine, quick_model(), NULL);
    runnel_request request = make_request(PROMPT, 5, NULL);
    runnel_stream stream = {0};
    runnel_error error;

    (void)state;
    request.coalesce_bytes = RUNNEL_MAX_COALESCE_BYTES + 1;
    assert_int_equal(runnel_generate(model, &request, &stream, &error), RUNNEL_INVALID);
    assert_non_null(strstr(error.message, "coalesce_bytes"));
    request.coalesce_bytes = 100;
    request.want_logprobs = 1;
    assert_int_equal(runnel_generate(model, &request, &stream, &error), RUNNEL_INVALID);
    assert_non_null(strstr(error.message, "want_logprobs"));
    assert_int_equal(stream.id, 0);
    assert_quiet(engine, 0);
    runnel_engine_free(engine);
}

static void cancel_paused(void **state)
{
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model = load_model(engine, quick_model(), NULL);
    struct capture capture = {0};
    runnel_request request = make_request(PROMPT, 300, &capture);
    runnel_stream stream;

    (void)state;
    assert_int_equal(runnel_generate(model, &request, &stream, NULL), RUNNEL_OK);
    assert_int_equal(runnel_stream_pause(engine, stream), RUNNEL_OK);
    capture.paused = true;
    runnel_engine_wait(engine, 50);
    assert_int_equal(runnel_stream_cancel(engine, stream), RUNNEL_OK);
    run_until_end(engine, &capture);
    assert_int_equal(capture.n_while_paused, 0);
    assert_int_equal(capture.n_events, 1);
    capture_clear(&capture);
    assert_quiet(engine, 0);
    runnel_engine_free(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pulled),
        cmocka_unit_test(threaded),
        cmocka_unit_test(libuv),
        cmocka_unit_test(libuv_ends),
        cmocka_unit_test(libuv_begun_elsewhere),
        cmocka_unit_test(libuv_freed_elsewhere),
        cmocka_unit_test(one_by_one),
        cmocka_unit_test(inside_callbacks),
        cmocka_unit_test(free_inside_callback),
        cmocka_unit_test(free_under_load),
        cmocka_unit_test(pause_resume),
        cmocka_unit_test(cancel_paused),
        cmocka_unit_test(paused_joins),
        cmocka_unit_test(slow_reader_joins),
        cmocka_unit_test(bad_joins),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
