/* runnel_engine_free and runnel_engine_drain beside what other threads, callbacks and loops are in the middle of: what
 * a call uses stays until it has left, and nobody waits for what does not come. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <uv.h>

#include <cmocka.h>

#include "actors/engine.h"
#include "actors/host/host.h"
#include "runnel_files.h"
#include "runnel_uv.h"
#include "tests/actors/fixture.h"
#include "tests/actors/scratch.h"
#include "tests/base/refusing.h"

#define PROMPT "Once upon a time"
#define PATIENCE 150 /* looks, 2 ms apart, at what must not happen: fewer only see less */

static runnel_engine *engine;
static runnel_model *model;
static struct refusing memory;

static void start(runnel_delivery delivery)
{
    runnel_engine_options options;

    memset(&memory, 0, sizeof memory);
    runnel_engine_options_default(&options);
    options.delivery = delivery;
    options.allocator = refusing_hook(&memory);
    engine = start_engine(&options);
    model = load_model(engine, BUNDLED_MODEL, NULL);
}

static runnel_request endless(struct capture *capture)
{
    runnel_request request = make_request(PROMPT, -1, capture);

    request.ignore_eos = 1;
    request.context_keep = 4;
    return request;
}

/* ---- A call that stays inside ------------------------------------------------------------ */

static _Thread_local bool watched; /* this thread's next allocation is the one in which it stays */
static atomic_int n_inside;
static bool (*has_happened)(void); /* what ends the stay before its time */
static bool happened;

static void stay(uint64_t call, void *user)
{
    (void)call;
    (void)user;
    if (!watched)
        return;
    watched = false;
    atomic_store(&n_inside, 1);
    happened = false;
    for (int i = 0; i < PATIENCE && !happened; i++) {
        usleep(2000);
        happened = has_happened();
    }
}

static bool is_closed(void)
{
    return rn_word_get(&engine->host.closed) != 0; /* the models have gone */
}

static runnel_status tokenize(void)
{
    size_t n;

    return runnel_tokenize(model, PROMPT, strlen(PROMPT), 0, NULL, 0, &n);
}

static struct capture late; /* of a stream that begins meanwhile */

static runnel_status generate(void)
{
    runnel_request request = make_request(PROMPT, 5, &late);

    return runnel_generate(model, &request, &(runnel_stream){0}, NULL);
}

static runnel_status check_grammar(void)
{
    runnel_request request = make_request(PROMPT, 5, NULL);
    runnel_grammar grammar;

    runnel_grammar_default(&grammar);
    grammar.kind = RUNNEL_GRAMMAR_GBNF;
    grammar.text = "root ::= [a-z]+";
    grammar.text_bytes = strlen(grammar.text);
    request.grammar = &grammar;
    return runnel_grammar_check(model, &request, NULL);
}

static runnel_status render(void)
{
    const runnel_message message = {.role = "user", .content = PROMPT};
    runnel_chat chat;
    size_t n;

    runnel_chat_default(&chat);
    chat.messages = &message;
    chat.n_messages = 1;
    chat.template_text = "{% for m in messages %}{{ m.content }}{% endfor %}";
    return runnel_apply_template(model, &chat, NULL, 0, &n, NULL);
}

static runnel_status load(void)
{
    runnel_model *other;

    return runnel_model_load(engine, BUNDLED_MODEL, NULL, &other, NULL);
}

static runnel_training *training; /* of the call below; its handle is left */
static struct scratch scratch;

static runnel_status train(void)
{
    static const char corpus[] =
        "Once upon a time there was a little owl that lived in an old tree, far from the town, "
        "and that slept all day until the moon came.";
    char head[128];

    snprintf(head, sizeof head, "%s/head.gguf", scratch.directory);
    return runnel_eagle_train(engine, BUNDLED_MODEL, corpus, sizeof corpus - 1, head, NULL, &training, NULL);
}

/* Inside a callback, while another thread frees the engine. */
struct use {
    runnel_status (*call)(void);
    runnel_status status;
};

static void use_once(struct capture *capture, const runnel_event *event)
{
    struct use *use = capture->hook_user;

    (void)event;
    if (capture->n_events > 1)
        return;
    watched = true;
    use->status = use->call();
    watched = false;
}

static void *dispatch(void *unused)
{
    (void)unused;
    while (runnel_engine_wait(engine, -1) == RUNNEL_OK)
        runnel_engine_dispatch(engine, 0);
    return NULL;
}

static void free_beside(runnel_status (*call)(void))
{
    struct use use = {.call = call, .status = RUNNEL_INVALID};
    struct capture capture = {.hook = use_once, .hook_user = &use};
    runnel_request request = make_request(PROMPT, 500, &capture);
    pthread_t thread;

    start(RUNNEL_DELIVER_HOST);
    memset(&late, 0, sizeof late);
    memory.before = stay;
    has_happened = is_closed;
    atomic_store(&n_inside, 0);
    request.ignore_eos = 1;
    assert_int_equal(runnel_generate(model, &request, &(runnel_stream){0}, NULL), RUNNEL_OK);
    assert_int_equal(pthread_create(&thread, NULL, dispatch, NULL), 0);
    while (atomic_load(&n_inside) == 0)
        usleep(1000);
    runnel_engine_free(engine);
    pthread_join(thread, NULL);
    assert_false(happened);
    assert_int_equal(use.status, RUNNEL_OK);
    assert_int_equal(capture.n_terminal, 1);
    assert_int_equal(late.n_terminal, call == generate);
    runnel_training_free(training);
    training = NULL;
    assert_int_equal(atomic_load(&memory.live), 0);
    capture_clear(&capture);
    capture_clear(&late);
}

static void what_a_call_uses_stays(void **state)
{
    runnel_status (*const calls[])(void) = {tokenize, generate, check_grammar, render, load, train};

    (void)state;
    scratch_open(&scratch);
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
        free_beside(calls[i]);
    scratch_close(&scratch);
}

/* libc's, in which a thread stays that wakes the host's loop. */
ssize_t write(int fd, const void *bytes, size_t n)
{
    stay(0, NULL);
    return syscall(SYS_write, fd, bytes, n);
}

static atomic_int gone;

static bool is_gone(void)
{
    return atomic_load(&gone) != 0;
}

static void *resume(void *stream)
{
    watched = true;
    assert_int_equal(runnel_stream_resume(engine, *(runnel_stream *)stream), RUNNEL_OK);
    assert_false(watched);
    return NULL;
}

/* Another thread is about to write to the engine's descriptor: it is not closed before. */
static void a_stream_is_resumed_meanwhile(void **state)
{
    struct capture capture = {0};
    runnel_request request = make_request(PROMPT, 3, &capture);
    runnel_stream stream;
    pthread_t thread;

    (void)state;
    start(RUNNEL_DELIVER_HOST);
    has_happened = is_gone;
    atomic_store(&n_inside, 0);
    atomic_store(&gone, 0);
    assert_int_equal(runnel_generate(model, &request, &stream, NULL), RUNNEL_OK);
    assert_int_equal(runnel_stream_pause(engine, stream), RUNNEL_OK);
    while (rn_word_get(&engine->host.outlets[(uint32_t)stream.id].ended) == 0)
        usleep(1000);
    usleep(20000);
    runnel_engine_dispatch(engine, 0); /* nothing wakes the loop any more */
    assert_int_equal(pthread_create(&thread, NULL, resume, &stream), 0);
    while (atomic_load(&n_inside) == 0)
        usleep(1000);
    runnel_engine_free(engine);
    atomic_store(&gone, 1);
    pthread_join(thread, NULL);
    assert_false(happened);
    assert_int_equal(capture.n_terminal, 1);
    capture_clear(&capture);
}

static atomic_int drained;

static bool is_drained(void)
{
    return atomic_load(&drained) != 0;
}

static void *generate_late(void *status)
{
    watched = true;
    *(runnel_status *)status = generate();
    return NULL;
}

/* A request that is being submitted is one that a drain waits for. */
static void a_drain_beside_a_submit(void **state)
{
    runnel_status status = RUNNEL_INVALID;
    pthread_t thread;

    (void)state;
    start(RUNNEL_DELIVER_HOST);
    memset(&late, 0, sizeof late);
    memory.before = stay;
    has_happened = is_drained;
    atomic_store(&n_inside, 0);
    atomic_store(&drained, 0);
    assert_int_equal(pthread_create(&thread, NULL, generate_late, &status), 0);
    while (atomic_load(&n_inside) == 0)
        usleep(1000);
    assert_int_equal(runnel_engine_drain(engine, 0), RUNNEL_TIMEOUT);
    atomic_store(&drained, 1);
    assert_int_equal(runnel_engine_drain(engine, -1), RUNNEL_OK);
    assert_int_equal(late.n_terminal, 1);
    pthread_join(thread, NULL);
    assert_int_equal(status, RUNNEL_OK);
    assert_int_equal(generate(), RUNNEL_CLOSED);
    runnel_engine_free(engine);
    capture_clear(&late);
}

static uint64_t spent_us(void)
{
    struct timespec time;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (uint64_t)time.tv_sec * 1000000 + (uint64_t)time.tv_nsec / 1000;
}

/* All that wait are woken, as at the begin of runnel_engine_free, which may go on to wait for a call: the thread that
 * delivers sleeps meanwhile. The process takes less than half of a processor. */
static void who_delivers_sleeps_meanwhile(void **state)
{
    uint64_t wall_us, cpu_us;

    (void)state;
    start(RUNNEL_DELIVER_THREAD);
    wall_us = rn_now_us(&engine->clock);
    cpu_us = spent_us();
    rn_host_wake_all(engine);
    usleep(100000);
    wall_us = rn_now_us(&engine->clock) - wall_us;
    cpu_us = spent_us() - cpu_us;
    runnel_engine_free(engine);
    assert_true(cpu_us < wall_us / 10);
}

/* ---- Events that keep coming ------------------------------------------------------------- */

static atomic_int n_events;

/* Until more wait, or the stream is cancelled. */
static void read_slowly(struct capture *capture, const runnel_event *event)
{
    struct rn_outlet *outlet = &engine->host.outlets[(uint32_t)event->stream.id];
    uint32_t generation = (uint32_t)(event->stream.id >> 32);

    (void)capture;
    atomic_fetch_add(&n_events, 1);
    for (int i = 0; i < PATIENCE && rn_outlet_waiting(outlet, generation) < 3; i++)
        if (rn_word_get(&outlet->cancelled) != generation)
            usleep(2000);
}

/* The thread that delivers has always more to deliver, until the stream is cancelled. */
static void freed_beside_the_engines_thread(void **state)
{
    struct capture capture = {.hook = read_slowly};
    runnel_request request = endless(&capture);

    (void)state;
    start(RUNNEL_DELIVER_THREAD);
    atomic_store(&n_events, 0);
    assert_int_equal(runnel_generate(model, &request, &(runnel_stream){0}, NULL), RUNNEL_OK);
    while (atomic_load(&n_events) < 5)
        usleep(1000);
    runnel_engine_free(engine);
    assert_int_equal(capture.n_terminal, 1);
    assert_int_equal(capture.last.type, RUNNEL_EVENT_CANCELLED);
    capture_clear(&capture);
}

/* ---- Inside runnel_stream_next ----------------------------------------------------------- */

static runnel_status drain_status;

static int64_t drain_and_free(void *user, runnel_candidates *candidates)
{
    (void)user;
    (void)candidates;
    drain_status = runnel_engine_drain(engine, -1);
    runnel_engine_free(engine);
    return RUNNEL_CHOOSE_LATER;
}

/* The host's sampler of a stream that is read: a drain does not wait for the stream that waits for it, and the engine
 * is freed when the reader leaves. */
static void inside_choose_of_a_pulled_stream(void **state)
{
    runnel_request request = endless(NULL);
    runnel_samplers samplers;
    runnel_stream stream;
    runnel_event event;

    (void)state;
    start(RUNNEL_DELIVER_HOST);
    runnel_samplers_default(&samplers);
    samplers.choose = drain_and_free;
    request.sampling.samplers = &samplers;
    request.sampling.temperature = 1;
    drain_status = RUNNEL_INVALID;
    assert_int_equal(runnel_generate(model, &request, &stream, NULL), RUNNEL_OK);
    assert_int_equal(runnel_stream_next(engine, stream, -1, &event), RUNNEL_CLOSED);
    assert_int_equal(drain_status, RUNNEL_TIMEOUT);
    assert_int_equal(atomic_load(&memory.live), 0);
}

static int n_asked;

static int64_t free_at_once(void *user, runnel_candidates *candidates)
{
    (void)user;
    (void)candidates;
    n_asked++;
    runnel_engine_free(engine);
    return RUNNEL_CHOOSE_LATER;
}

/* Two questions wait when the host takes events; it frees the engine in the first, and is not asked again. */
static void inside_choose_of_a_take(void **state)
{
    runnel_request request = endless(NULL);
    const runnel_event *events[4];
    runnel_samplers samplers;
    runnel_stream streams[2];

    (void)state;
    start(RUNNEL_DELIVER_TAKE);
    runnel_samplers_default(&samplers);
    samplers.choose = free_at_once;
    request.sampling.samplers = &samplers;
    request.sampling.temperature = 1;
    n_asked = 0;
    for (int i = 0; i < 2; i++)
        assert_int_equal(runnel_generate(model, &request, &streams[i], NULL), RUNNEL_OK);
    for (int i = 0; i < 2; i++)
        while (rn_outlet_waiting(&engine->host.outlets[(uint32_t)streams[i].id], (uint32_t)(streams[i].id >> 32)) == 0)
            usleep(1000);
    usleep(20000);
    assert_int_equal(runnel_engine_take(engine, events, 4), 0);
    assert_int_equal(n_asked, 1);
    assert_int_equal(atomic_load(&memory.live), 0);
}

/* The best tokens beside the one that ended the answer, though the stream has gone. */
static void the_end_of_a_pulled_stream_has_its_logprobs(void **state)
{
    runnel_request request = make_request(PROMPT, 4, NULL);
    runnel_logprob best[3];
    runnel_stream stream;
    runnel_event event;
    int32_t stop;

    (void)state;
    start(RUNNEL_DELIVER_HOST);
    request.want_logprobs = 1;
    request.n_top = 3;
    assert_int_equal(runnel_generate(model, &request, &stream, NULL), RUNNEL_OK);
    assert_int_equal(runnel_stream_next(engine, stream, -1, &event), RUNNEL_OK);
    assert_int_equal(event.n_top, 3);
    memcpy(best, event.top, sizeof best);
    stop = event.token;
    while (event.type < RUNNEL_EVENT_DONE)
        assert_int_equal(runnel_stream_next(engine, stream, -1, &event), RUNNEL_OK);
    request.stop_tokens = &stop;
    request.n_stop_tokens = 1;
    assert_int_equal(runnel_generate(model, &request, &stream, NULL), RUNNEL_OK);
    do
        assert_int_equal(runnel_stream_next(engine, stream, -1, &event), RUNNEL_OK);
    while (event.type < RUNNEL_EVENT_DONE);
    assert_int_equal(event.type, RUNNEL_EVENT_DONE);
    assert_int_equal(event.token, stop);
    assert_int_equal(event.n_top, 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(event.top[i].token, best[i].token);
    runnel_engine_free(engine);
}

/* ---- libuv ------------------------------------------------------------------------------- */

static atomic_bool is_detached, is_freed;
static bool freed_meanwhile;

static void *free_once_detached(void *unused)
{
    while (!atomic_load(&is_detached))
        usleep(1000);
    runnel_engine_free(engine);
    atomic_store(&is_freed, true);
    return unused;
}

static void detach_once(struct capture *capture, const runnel_event *event)
{
    (void)event;
    if (capture->n_events > 1)
        return;
    assert_int_equal(runnel_uv_detach(engine), RUNNEL_OK);
    atomic_store(&is_detached, true);
    for (int i = 0; i < PATIENCE && !atomic_load(&is_freed); i++)
        usleep(2000);
    freed_meanwhile = atomic_load(&is_freed);
}

/* A callback detaches its loop, and another thread frees the engine: it does so behind the callback. */
static void detached_inside_a_callback(void **state)
{
    struct capture capture = {.hook = detach_once};
    runnel_request request = make_request(PROMPT, 500, &capture);
    pthread_t thread;
    uv_loop_t loop;

    (void)state;
    start(RUNNEL_DELIVER_HOST);
    atomic_store(&is_detached, false);
    atomic_store(&is_freed, false);
    request.ignore_eos = 1;
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(runnel_uv_attach(engine, &loop), RUNNEL_OK);
    assert_int_equal(runnel_generate(model, &request, &(runnel_stream){0}, NULL), RUNNEL_OK);
    assert_int_equal(pthread_create(&thread, NULL, free_once_detached, NULL), 0);
    assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
    pthread_join(thread, NULL);
    assert_false(freed_meanwhile);
    assert_int_equal(capture.n_terminal, 1);
    assert_int_equal(uv_loop_close(&loop), 0);
    assert_int_equal(atomic_load(&memory.live), 0);
    capture_clear(&capture);
}

static atomic_bool has_ref;

static void look_for_ref(uv_handle_t *handle, void *unused)
{
    (void)unused;
    if (handle->type == UV_POLL && uv_has_ref(handle))
        atomic_store(&has_ref, true);
}

/* The host's own handle goes as soon as the engine's keeps the loop alive. */
static void look(uv_timer_t *timer)
{
    uv_walk(timer->loop, look_for_ref, NULL);
    if (has_ref || ++*(int *)timer->data == PATIENCE)
        uv_close((uv_handle_t *)timer, NULL);
}

static void *tokenize_inside(void *unused)
{
    watched = true;
    tokenize();
    return unused;
}

static void *free_engine(void *unused)
{
    runnel_engine_free(engine);
    return unused;
}

static bool is_kept_alive(void)
{
    return has_ref;
}

/* Freed by another thread, which waits for a call: an idle loop is woken at once, and lives until the engine is freed
 * on it. */
static void an_idle_loop_is_kept_alive(void **state)
{
    pthread_t thread, caller;
    uv_timer_t timer;
    uv_loop_t loop;
    int n_looks = 0;

    (void)state;
    start(RUNNEL_DELIVER_HOST);
    memory.before = stay;
    has_happened = is_kept_alive;
    has_ref = false;
    atomic_store(&n_inside, 0);
    timer.data = &n_looks;
    assert_int_equal(uv_loop_init(&loop), 0);
    while (rn_counter_get(&engine->totals.loads) > 0) /* it is told just behind the state for which the test waited */
        usleep(1000);
    assert_int_equal(runnel_uv_attach(engine, &loop), RUNNEL_OK);
    uv_walk(&loop, look_for_ref, NULL);
    assert_false(has_ref);
    assert_int_equal(uv_timer_init(&loop, &timer), 0);
    assert_int_equal(pthread_create(&caller, NULL, tokenize_inside, NULL), 0);
    while (atomic_load(&n_inside) == 0)
        usleep(1000);
    assert_int_equal(pthread_create(&thread, NULL, free_engine, NULL), 0);
    assert_int_equal(uv_timer_start(&timer, look, 1, 1), 0);
    assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
    pthread_join(caller, NULL);
    pthread_join(thread, NULL);
    assert_true(has_ref);
    assert_int_equal(atomic_load(&memory.live), 0);
    assert_int_equal(uv_loop_close(&loop), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_call_uses_stays),
        cmocka_unit_test(a_stream_is_resumed_meanwhile),
        cmocka_unit_test(a_drain_beside_a_submit),
        cmocka_unit_test(who_delivers_sleeps_meanwhile),
        cmocka_unit_test(freed_beside_the_engines_thread),
        cmocka_unit_test(inside_choose_of_a_pulled_stream),
        cmocka_unit_test(inside_choose_of_a_take),
        cmocka_unit_test(the_end_of_a_pulled_stream_has_its_logprobs),
        cmocka_unit_test(detached_inside_a_callback),
        cmocka_unit_test(an_idle_loop_is_kept_alive),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
