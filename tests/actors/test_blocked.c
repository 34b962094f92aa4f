/* Calls that block, beside runnel_engine_free or runnel_model_free on another thread: each comes back with CLOSED, and
 * what it waited on lives until it has left. And a signal ends no wait. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "actors/engine.h"
#include "fixture.h"

#define PROMPT "Once upon a time"

/* One blocked call. */
struct call {
    runnel_engine *engine;
    runnel_model *model;
    runnel_stream stream;
    runnel_status (*function)(struct call *call);
    runnel_status status;
    pthread_t thread;
};

static runnel_status wait_engine(struct call *call)
{
    return runnel_engine_wait(call->engine, -1);
}

static runnel_status drain_engine(struct call *call)
{
    return runnel_engine_drain(call->engine, -1);
}

static runnel_status measure_engine(struct call *call)
{
    runnel_machine machine = {.struct_size = sizeof machine};

    return runnel_engine_measure(call->engine, &machine, NULL);
}

/* Up to its end or the engine's. */
static runnel_status read_stream(struct call *call)
{
    runnel_event event = {0};
    runnel_status status = RUNNEL_OK;

    while (status == RUNNEL_OK && event.type < RUNNEL_EVENT_DONE)
        status = runnel_stream_next(call->engine, call->stream, -1, &event);
    return status == RUNNEL_OK && event.type == RUNNEL_EVENT_CANCELLED ? RUNNEL_CLOSED : status;
}

static _Atomic int n_back; /* waits for a model that have come back */

static runnel_status wait_model(struct call *call)
{
    runnel_status status = runnel_model_wait(call->model, -1, NULL);

    atomic_store(&n_back, 1);
    return status;
}

static void *run_call(void *user)
{
    struct call *call = user;

    call->status = call->function(call);
    return NULL;
}

static uint32_t inside(runnel_engine *engine)
{
    return atomic_load(&engine->gate.inside);
}

static void begin_call(struct call *call)
{
    uint32_t before = inside(call->engine);

    assert_int_equal(pthread_create(&call->thread, NULL, run_call, call), 0);
    while (inside(call->engine) == before)
        sched_yield();
}

static void end_call(struct call *call, runnel_status status)
{
    pthread_join(call->thread, NULL);
    assert_int_equal(call->status, status);
}

/* A stream whose reader is paused: it never ends by itself. */
static runnel_stream begin_stream(runnel_engine *engine, runnel_model *model, struct capture *capture)
{
    runnel_request request = make_request(PROMPT, 2000, capture);
    runnel_stream stream;

    request.ignore_eos = 1;
    assert_int_equal(runnel_generate(model, &request, &stream, NULL), RUNNEL_OK);
    assert_int_equal(runnel_stream_pause(engine, stream), RUNNEL_OK);
    return stream;
}

static void free_beside(runnel_status (*function)(struct call *call), bool pulled)
{
    for (int round = 0; round < 8; round++) {
        runnel_engine *engine = start_engine(NULL);
        runnel_model *model = load_model(engine, quick_model(), NULL);
        struct capture capture = {0};
        struct call call = {.engine = engine, .function = function};

        call.stream = begin_stream(engine, model, pulled ? NULL : &capture);
        begin_call(&call);
        runnel_engine_free(engine);
        end_call(&call, RUNNEL_CLOSED);
        assert_int_equal(capture.n_terminal, !pulled);
        capture_clear(&capture);
    }
}

static void beside_wait(void **state)
{
    runnel_engine *engine = start_engine(NULL);
    struct call calls[2] = {{.engine = engine, .function = wait_engine}, {.engine = engine, .function = wait_engine}};

    (void)state;
    for (int i = 0; i < 2; i++)
        begin_call(&calls[i]);
    runnel_engine_free(engine);
    for (int i = 0; i < 2; i++)
        end_call(&calls[i], RUNNEL_CLOSED);
}

static void beside_drain(void **state)
{
    (void)state;
    free_beside(drain_engine, false);
}

static void beside_next(void **state)
{
    (void)state;
    free_beside(read_stream, true);
}

static void beside_measure(void **state)
{
    runnel_engine *engine = start_engine(NULL);
    struct call call = {.engine = engine, .function = measure_engine};

    (void)state;
    begin_call(&call);
    runnel_engine_free(engine);
    end_call(&call, RUNNEL_CLOSED);
}

/* The waiter may come too late for the load, and then hears how it ended: that it is READY, or, of a model that is
 * freed, that it was cancelled; never too late for the handle. */
static void beside_model_wait(void **state)
{
    (void)state;
    for (int round = 0; round < 16; round++) {
        runnel_engine *engine = start_engine(NULL);
        struct call call = {.engine = engine, .function = wait_model};

        assert_int_equal(runnel_model_load(engine, BUNDLED_MODEL, NULL, &call.model, NULL), RUNNEL_OK);
        atomic_store(&n_back, 0);
        assert_int_equal(pthread_create(&call.thread, NULL, run_call, &call), 0);
        while (atomic_load(&call.model->references.value) < 3 && atomic_load(&n_back) == 0)
            sched_yield();
        if (round % 2 == 0)
            runnel_model_free(call.model);
        runnel_engine_free(engine);
        pthread_join(call.thread, NULL);
        assert_true(call.status == RUNNEL_CLOSED || call.status == RUNNEL_OK ||
                    (round % 2 == 0 && call.status == RUNNEL_CANCELLED));
    }
}

static _Atomic int n_signals;

static void on_signal(int number)
{
    (void)number;
    atomic_fetch_add(&n_signals, 1);
}

static void signals(void **state)
{
    const struct sigaction action = {.sa_handler = on_signal};
    struct sigaction before;
    runnel_engine *engine = start_engine(NULL);
    struct call call = {.engine = engine, .function = wait_engine};

    (void)state;
    assert_int_equal(sigaction(SIGUSR1, &action, &before), 0);
    begin_call(&call);
    for (int i = 0; i < 50; i++) {
        do { /* again and again: ThreadSanitizer's runtime can lose the one that meets a thread's first blocking call */
            assert_int_equal(pthread_kill(call.thread, SIGUSR1), 0);
            sched_yield();
        } while (atomic_load(&n_signals) <= i);
    }
    assert_int_equal(inside(engine), 1);
    runnel_engine_free(engine);
    end_call(&call, RUNNEL_CLOSED);
    sigaction(SIGUSR1, &before, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(beside_wait),    cmocka_unit_test(beside_drain),      cmocka_unit_test(beside_next),
        cmocka_unit_test(beside_measure), cmocka_unit_test(beside_model_wait), cmocka_unit_test(signals),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
