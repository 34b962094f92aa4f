/* Several threads that dispatch: one at a time delivers, the others are not woken meanwhile, and nothing is lost. By
 * hand wakes are counted: a look at the descriptor that finds it readable is one. */
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/actors/fixture.h"
#include "tests/sim/manual.h"

#define LOOKS 50
#define STREAMS 6
#define TOKENS 40

static bool is_readable(runnel_engine *engine)
{
    struct pollfd poller = {.fd = runnel_engine_fd(engine), .events = POLLIN};

    return poll(&poller, 1, 0) > 0;
}

static void *dispatch_all(void *engine)
{
    return (void *)runnel_engine_dispatch(engine, 0);
}

/* A loop of another thread, so many turns of it: how often it was woken. What it delivers is added up. */
static int turn_elsewhere(runnel_engine *engine, size_t *n_delivered)
{
    int n_wakes = 0;

    for (int i = 0; i < LOOKS; i++) {
        pthread_t thread;
        void *n;

        if (!is_readable(engine))
            continue;
        n_wakes++;
        assert_int_equal(pthread_create(&thread, NULL, dispatch_all, engine), 0);
        pthread_join(thread, &n);
        *n_delivered += (size_t)n;
    }
    return n_wakes;
}

/* ---- By hand ----------------------------------------------------------------------------- */

static int setup(void **state)
{
    const struct manual_plan plan = {
        .limits =
            {.max_rows = 16, .max_seqs = 10, .max_outs = 8, .n_blocks = 32, .block_tokens = 8, .context_tokens = 64},
        .submitted = manual_complete_at_once,
    };

    (void)state;
    manual_begin(&plan);
    return 0;
}

/* What happens inside the first callback. */
struct scene {
    struct capture other;
    int n_wakes;
    size_t n_delivered;
    bool played;
};

/* Another stream has news while this thread is in a callback, and a loop of another thread has been woken meanwhile. */
static void play(struct capture *capture, const runnel_event *event)
{
    struct scene *scene = capture->hook_user;
    runnel_request request = make_request("abd", 3, &scene->other);

    (void)event;
    if (scene->played)
        return;
    scene->played = true;
    assert_int_equal(runnel_generate(manual.model, &request, &(runnel_stream){0}, NULL), RUNNEL_OK);
    manual_run(manual.engine);
    rn_notifier_raise_now(&manual.engine->host.notifier);
    scene->n_wakes = turn_elsewhere(manual.engine, &scene->n_delivered);
}

static void begin(struct scene *scene, struct capture *capture)
{
    runnel_request request = make_request("abc", 5, capture);

    memset(scene, 0, sizeof *scene);
    *capture = (struct capture){.hook = play, .hook_user = scene};
    assert_int_equal(runnel_generate(manual.model, &request, &(runnel_stream){0}, NULL), RUNNEL_OK);
    manual_run(manual.engine);
}

static void assert_done(struct capture *capture, size_t n_tokens)
{
    assert_int_equal(capture->n_terminal, 1);
    assert_int_equal(capture->last.type, RUNNEL_EVENT_DONE);
    assert_int_equal(capture->n_tokens, n_tokens);
    capture_clear(capture);
}

static void a_loop_beside_a_callback_is_woken_once(void **state)
{
    struct capture capture;
    struct scene scene;

    (void)state;
    begin(&scene, &capture);
    assert_int_equal(runnel_engine_dispatch(manual.engine, 0), 6); /* what waited: five tokens and an end */
    assert_int_equal(scene.n_wakes, 1);
    assert_int_equal(scene.n_delivered, 0);
    /* Its wake is given back, once, and the other stream's three tokens and end are there. */
    assert_int_equal(turn_elsewhere(manual.engine, &scene.n_delivered), 1);
    assert_int_equal(scene.n_delivered, 4);
    assert_done(&capture, 5);
    assert_done(&scene.other, 3);
}

/* What the dispatch leaves behind comes to whoever is woken. */
static void what_is_left_wakes_the_loop(void **state)
{
    struct capture capture;
    struct scene scene;

    (void)state;
    begin(&scene, &capture);
    assert_int_equal(runnel_engine_dispatch(manual.engine, 2), 2);
    assert_int_equal(scene.n_wakes, 1);
    assert_int_equal(turn_elsewhere(manual.engine, &scene.n_delivered), 1);
    assert_int_equal(scene.n_delivered, 8);
    assert_done(&capture, 5);
    assert_done(&scene.other, 3);
}

static void play_within(struct capture *capture, const runnel_event *event)
{
    (void)event;
    if (capture->n_events == 1)
        assert_int_equal(runnel_engine_dispatch(manual.engine, 0), 0);
}

/* A dispatch inside a callback delivers nothing, and takes no wake away. */
static void within_a_callback(void **state)
{
    struct capture capture = {.hook = play_within};
    runnel_request request = make_request("abc", 5, &capture);
    size_t n_delivered = 0;

    (void)state;
    assert_int_equal(runnel_generate(manual.model, &request, &(runnel_stream){0}, NULL), RUNNEL_OK);
    manual_run(manual.engine);
    assert_int_equal(runnel_engine_dispatch(manual.engine, 0), 6);
    assert_int_equal(turn_elsewhere(manual.engine, &n_delivered), 1);
    assert_int_equal(n_delivered, 0);
    assert_done(&capture, 5);
}

/* ---- On threads -------------------------------------------------------------------------- */

static atomic_int n_ended, n_loops;

static void count_end(struct capture *capture, const runnel_event *event)
{
    (void)capture;
    if (event->type >= RUNNEL_EVENT_DONE)
        atomic_fetch_add(&n_ended, 1);
}

/* Nothing but the descriptor wakes it: where a wake is lost the test never ends. */
static void *loop(void *engine)
{
    while (runnel_engine_wait(engine, -1) == RUNNEL_OK && atomic_load(&n_ended) < STREAMS)
        runnel_engine_dispatch(engine, 1 + (size_t)(atomic_load(&n_ended) % 3));
    atomic_fetch_sub(&n_loops, 1);
    return NULL;
}

static void loops_of_many_threads_lose_nothing(void **state)
{
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model = load_model(engine, quick_model(), NULL);

    (void)state;
    for (int round = 0; round < UNLESS_SLOW(10, 3); round++) {
        struct capture captures[STREAMS] = {{0}};
        pthread_t threads[3];

        atomic_store(&n_ended, 0);
        atomic_store(&n_loops, 3);
        for (int i = 0; i < STREAMS; i++) {
            runnel_request request = make_request("Once upon a time", TOKENS, &captures[i]);

            captures[i].hook = count_end;
            request.ignore_eos = 1;
            assert_int_equal(runnel_generate(model, &request, &(runnel_stream){0}, NULL), RUNNEL_OK);
        }
        for (int i = 0; i < 3; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, loop, engine), 0);
        while (atomic_load(&n_ended) < STREAMS)
            usleep(1000);
        while (atomic_load(&n_loops) > 0) { /* they look whether all have ended; one at its end may clear it again */
            rn_notifier_raise_now(&engine->host.notifier);
            usleep(1000);
        }
        for (int i = 0; i < 3; i++)
            pthread_join(threads[i], NULL);
        for (int i = 0; i < STREAMS; i++)
            assert_done(&captures[i], TOKENS);
    }
    runnel_engine_free(engine);
}

static atomic_int inside;

/* Until the engine is being freed, and who frees it has found this dispatch under way. */
static void wait_inside(struct capture *capture, const runnel_event *event)
{
    runnel_engine *engine = capture->hook_user;

    (void)event;
    if (atomic_exchange(&inside, 1) != 0)
        return;
    while (rn_word_get(&engine->host.closed) == 0)
        usleep(1000);
    usleep(50000); /* too short a time only makes the test see less */
}

static void *dispatch_one(void *engine)
{
    runnel_engine_wait(engine, -1);
    runnel_engine_dispatch(engine, 1);
    return NULL;
}

/* The dispatch has had its one event when the engine is freed: the rest, the ends among it, comes all the same. */
static void freed_beside_a_dispatch(void **state)
{
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model = load_model(engine, quick_model(), NULL);
    struct capture captures[STREAMS] = {{0}};
    pthread_t thread;

    (void)state;
    atomic_store(&inside, 0);
    for (int i = 0; i < STREAMS; i++) {
        runnel_request request = make_request("Once upon a time", 500, &captures[i]);

        captures[i].hook = wait_inside;
        captures[i].hook_user = engine;
        request.ignore_eos = 1;
        assert_int_equal(runnel_generate(model, &request, &(runnel_stream){0}, NULL), RUNNEL_OK);
    }
    assert_int_equal(pthread_create(&thread, NULL, dispatch_one, engine), 0);
    while (atomic_load(&inside) == 0)
        usleep(1000);
    runnel_engine_free(engine);
    pthread_join(thread, NULL);
    for (int i = 0; i < STREAMS; i++) {
        assert_int_equal(captures[i].n_terminal, 1);
        assert_int_equal(captures[i].n_after_terminal, 0);
        capture_clear(&captures[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_loop_beside_a_callback_is_woken_once, setup, manual_end),
        cmocka_unit_test_setup_teardown(what_is_left_wakes_the_loop, setup, manual_end),
        cmocka_unit_test_setup_teardown(within_a_callback, setup, manual_end),
        cmocka_unit_test(loops_of_many_threads_lose_nothing),
        cmocka_unit_test(freed_beside_a_dispatch),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
