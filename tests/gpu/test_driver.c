/* The drivers: what the emulated one does in a stream, in a graph and after a fault; where a faulty one fails; how the
 * real one is looked for, with libraries of the test in place of libcuda.so.1. */
#include <math.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/gpu/rigs/add_kernel.h"
#include "tests/gpu/rigs/faulty_driver.h"
#include "tests/gpu/rigs/stubs.h"

enum { N = 1000, MEMORY = 1 << 20 };

static struct rn_heap heap;
static struct stubs stubs;

struct fixture {
    struct rn_gpu_driver *driver;
    struct rn_gpu_stream *stream;
    struct rn_gpu_function *add;
    uint64_t values; /* [N] floats on the device */
};

static void open_fixture(struct fixture *f)
{
    struct rn_gpu_image *module;

    rn_heap_init(&heap, NULL);
    f->driver = stubs.kernels->driver(&heap, &add_emulation, MEMORY);
    assert_non_null(f->driver);
    assert_int_equal(f->driver->stream_new(f->driver, &f->stream, RN_GPU_STREAM_APART), RN_GPU_OK);
    assert_int_equal(f->driver->module_load(f->driver, &module, "image"), RN_GPU_OK);
    assert_int_equal(f->driver->module_function(f->driver, &f->add, module, "sub"), RN_GPU_NOT_FOUND);
    assert_int_equal(f->driver->module_function(f->driver, &f->add, module, "add"), RN_GPU_OK);
    assert_int_equal(f->driver->memory_new(f->driver, &f->values, N * sizeof(float)), RN_GPU_OK);
}

/* Nothing is left on the heap, whatever the test left behind. */
static void close_fixture(struct fixture *f)
{
    f->driver->close(f->driver);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

static int add(struct fixture *f, uint64_t values, float number)
{
    struct add_arguments arguments = {values, N, number};
    void *pointers[] = {&arguments};

    return f->driver->launch(f->driver, f->add, (N + 31) / 32, 1, 1, 32, 1, 1, 0, f->stream, pointers, NULL);
}

/* All values on the device are this number. */
static void expect_values(struct fixture *f, float number)
{
    float out[N] = {0};

    assert_int_equal(f->driver->copy_out(f->driver, out, f->values, sizeof out, f->stream), RN_GPU_OK);
    assert_int_equal(f->driver->stream_finish(f->driver, f->stream), RN_GPU_OK);
    for (int i = 0; i < N; i++)
        assert_true(out[i] == number);
}

/* A callback's two numbers. */
struct called {
    int times, result;
};

static void on_call(struct rn_gpu_stream *stream, int result, void *user)
{
    struct called *called = user;

    (void)stream;
    called->times++;
    called->result = result;
}

static void test_stream(void **state)
{
    struct called called = {0, -1};
    struct fixture f;
    float out[N];
    uint64_t other;

    (void)state;
    open_fixture(&f);
    assert_int_equal(f.driver->copy_out(f.driver, out, f.values, sizeof out, f.stream), RN_GPU_OK);
    assert_int_equal(f.driver->stream_finish(f.driver, f.stream), RN_GPU_OK);
    for (int i = 0; i < N; i++)
        assert_true(isnan(out[i])); /* nobody has written it */
    assert_int_equal(f.driver->fill(f.driver, f.values, 0, N * sizeof(float), f.stream), RN_GPU_OK);
    assert_int_equal(add(&f, f.values, 2), RN_GPU_OK);
    assert_int_equal(add(&f, f.values, 3), RN_GPU_OK);
    assert_int_equal(f.driver->memory_new(f.driver, &other, N * sizeof(float)), RN_GPU_OK);
    assert_int_equal(f.driver->copy_within(f.driver, other, f.values, N * sizeof(float), f.stream), RN_GPU_OK);
    assert_int_equal(add(&f, f.values, 100), RN_GPU_OK);
    assert_int_equal(f.driver->copy_within(f.driver, f.values, other, N * sizeof(float), f.stream), RN_GPU_OK);
    assert_int_equal(f.driver->stream_callback(f.driver, f.stream, on_call, &called, 0), RN_GPU_OK);
    expect_values(&f, 5);
    assert_int_equal(called.times, 1);
    assert_int_equal(called.result, RN_GPU_OK);
    close_fixture(&f);
}

static void test_event(void **state)
{
    struct rn_gpu_event *event;
    struct fixture f;
    float out[N];

    (void)state;
    open_fixture(&f);
    assert_int_equal(f.driver->event_new(f.driver, &event, RN_GPU_EVENT_NO_TIME), RN_GPU_OK);
    assert_int_equal(f.driver->event_finish(f.driver, event), RN_GPU_OK); /* it was never recorded */
    assert_int_equal(f.driver->fill(f.driver, f.values, 0, N * sizeof(float), f.stream), RN_GPU_OK);
    assert_int_equal(add(&f, f.values, 7), RN_GPU_OK);
    assert_int_equal(f.driver->copy_out(f.driver, out, f.values, sizeof out, f.stream), RN_GPU_OK);
    assert_int_equal(f.driver->event_record(f.driver, event, f.stream), RN_GPU_OK);
    assert_int_equal(f.driver->event_finish(f.driver, event), RN_GPU_OK);
    assert_true(out[0] == 7 && out[N - 1] == 7);
    assert_int_equal(f.driver->event_free(f.driver, event), RN_GPU_OK);
    close_fixture(&f);
}

static void hold_up(struct rn_gpu_stream *stream, int result, void *user)
{
    (void)stream;
    (void)result;
    sem_wait(user);
}

/* A stream that waits for another's event runs nothing of what comes behind until it is recorded; the caller goes
 * on. */
static void test_wait(void **state)
{
    struct rn_gpu_stream *other;
    struct rn_gpu_event *event;
    struct fixture f;
    sem_t gate;
    float after[N];

    (void)state;
    open_fixture(&f);
    sem_init(&gate, 0, 0);
    assert_int_equal(f.driver->stream_new(f.driver, &other, RN_GPU_STREAM_APART), RN_GPU_OK);
    assert_int_equal(f.driver->event_new(f.driver, &event, RN_GPU_EVENT_NO_TIME), RN_GPU_OK);
    assert_int_equal(f.driver->stream_wait(f.driver, other, event, 0), RN_GPU_OK); /* never recorded: no wait */
    assert_int_equal(f.driver->stream_finish(f.driver, other), RN_GPU_OK);
    assert_int_equal(f.driver->stream_wait(f.driver, other, event, 1), RN_GPU_INVALID_VALUE);
    assert_int_equal(f.driver->fill(f.driver, f.values, 0, N * sizeof(float), f.stream), RN_GPU_OK);
    assert_int_equal(f.driver->stream_finish(f.driver, f.stream), RN_GPU_OK);
    assert_int_equal(f.driver->stream_callback(f.driver, f.stream, hold_up, &gate, 0), RN_GPU_OK); /* holds it up */
    assert_int_equal(add(&f, f.values, 7), RN_GPU_OK);
    assert_int_equal(f.driver->event_record(f.driver, event, f.stream), RN_GPU_OK);
    assert_int_equal(f.driver->stream_wait(f.driver, other, event, 0), RN_GPU_OK);
    assert_int_equal(f.driver->event_record(f.driver, event, f.stream),
                     RN_GPU_OK); /* again: the wait is for the first */
    assert_int_equal(f.driver->copy_out(f.driver, after, f.values, sizeof after, other), RN_GPU_OK);
    sem_post(&gate);
    assert_int_equal(f.driver->stream_finish(f.driver, other), RN_GPU_OK);
    assert_true(after[0] == 7 && after[N - 1] == 7);
    assert_int_equal(f.driver->event_free(f.driver, event), RN_GPU_OK);
    close_fixture(&f);
    sem_destroy(&gate);
}

static void test_graph(void **state)
{
    int status = -1;
    struct rn_gpu_graph *graph;
    struct rn_gpu_exec *exec;
    struct fixture f;

    (void)state;
    open_fixture(&f);
    assert_int_equal(f.driver->fill(f.driver, f.values, 0, N * sizeof(float), f.stream), RN_GPU_OK);
    assert_int_equal(f.driver->capture_begin(f.driver, f.stream, RN_GPU_CAPTURE_RELAXED), RN_GPU_OK);
    assert_int_equal(f.driver->capture_status(f.driver, f.stream, &status), RN_GPU_OK);
    assert_int_equal(status, RN_GPU_CAPTURE_ACTIVE);
    assert_int_equal(add(&f, f.values, 2), RN_GPU_OK);
    assert_int_equal(add(&f, f.values, 3), RN_GPU_OK);
    assert_int_equal(f.driver->capture_end(f.driver, f.stream, &graph), RN_GPU_OK);
    assert_int_equal(f.driver->capture_status(f.driver, f.stream, &status), RN_GPU_OK);
    assert_int_equal(status, RN_GPU_CAPTURE_NONE);
    expect_values(&f, 0); /* captured is not run */
    assert_int_equal(f.driver->graph_ready(f.driver, &exec, graph, 0), RN_GPU_OK);
    assert_int_equal(f.driver->graph_free(f.driver, graph), RN_GPU_OK);
    assert_int_equal(f.driver->graph_launch(f.driver, exec, f.stream), RN_GPU_OK);
    assert_int_equal(f.driver->graph_launch(f.driver, exec, f.stream), RN_GPU_OK);
    expect_values(&f, 10);
    assert_int_equal(f.driver->exec_free(f.driver, exec), RN_GPU_OK);
    close_fixture(&f);
}

static void test_memory(void **state)
{
    size_t free_bytes, total_bytes;
    struct fixture f;
    uint64_t more;

    (void)state;
    open_fixture(&f);
    assert_int_equal(f.driver->memory_info(f.driver, &free_bytes, &total_bytes), RN_GPU_OK);
    assert_int_equal(total_bytes, MEMORY);
    assert_int_equal(free_bytes, MEMORY - N * sizeof(float));
    assert_int_equal(f.driver->memory_new(f.driver, &more, free_bytes + 1), RN_GPU_OUT_OF_MEMORY);
    assert_int_equal(f.driver->memory_new(f.driver, &more, free_bytes), RN_GPU_OK);
    assert_int_equal(f.driver->memory_free(f.driver, more), RN_GPU_OK);
    assert_int_equal(f.driver->memory_free(f.driver, more), RN_GPU_INVALID_VALUE);
    assert_int_equal(f.driver->memory_free(f.driver, f.values + 4), RN_GPU_INVALID_VALUE);
    close_fixture(&f);
}

/* The context is lost: calls fail with this, and callbacks come with it. */
static void expect_lost(struct fixture *f, int result)
{
    struct called called = {0, -1};
    uint64_t more;
    float out[N];

    assert_int_equal(f->driver->stream_callback(f->driver, f->stream, on_call, &called, 0), RN_GPU_OK);
    assert_int_equal(f->driver->stream_finish(f->driver, f->stream), result);
    assert_int_equal(called.times, 1);
    assert_int_equal(called.result, result);
    assert_int_equal(add(f, f->values, 1), result);
    assert_int_equal(f->driver->copy_out(f->driver, out, f->values, sizeof out, f->stream), result);
    assert_int_equal(f->driver->memory_new(f->driver, &more, 1), result);
}

static void test_bad_address(void **state)
{
    struct fixture f;
    float in[2] = {0, 0};

    (void)state;
    open_fixture(&f);
    assert_int_equal(f.driver->copy_in(f.driver, f.values + (N - 1) * sizeof(float), in, sizeof in, f.stream),
                     RN_GPU_BAD_ADDRESS);
    expect_lost(&f, RN_GPU_BAD_ADDRESS);
    close_fixture(&f);
}

static void test_kernel_fault(void **state)
{
    struct fixture f;
    char text[RN_EMULATED_FAULT_BYTES];

    (void)state;
    open_fixture(&f);
    assert_int_equal(add(&f, f.values, NAN), RN_GPU_OK); /* it is found when it runs */
    assert_int_equal(f.driver->stream_finish(f.driver, f.stream), RN_GPU_LAUNCH_FAILED);
    expect_lost(&f, RN_GPU_LAUNCH_FAILED);
    rn_gpu_error_text(f.driver, RN_GPU_LAUNCH_FAILED, text, sizeof text);
    assert_string_equal(text, "add: beyond its memory");
    rn_gpu_error_text(f.driver, 12345, text, sizeof text);
    assert_string_equal(text, "error 12345");
    close_fixture(&f);
}

static void test_faults(void **state)
{
    struct rn_gpu_fault fault = {.at = 2, .result = RN_GPU_UNKNOWN};
    struct rn_gpu_driver *inner, *driver;
    int n;

    (void)state;
    rn_heap_init(&heap, NULL);
    inner = stubs.kernels->driver(&heap, &add_emulation, MEMORY);
    driver = rn_gpu_driver_faulty(&heap, inner, &fault);
    assert_non_null(driver);
    assert_int_equal(driver->init(driver, 0), RN_GPU_OK);
    assert_int_equal(driver->device_count(driver, &n), RN_GPU_UNKNOWN);
    assert_int_equal(driver->device_count(driver, &n), RN_GPU_OK);
    fault.at = 4;
    fault.for_good = true;
    assert_int_equal(driver->device_count(driver, &n), RN_GPU_UNKNOWN);
    assert_int_equal(driver->init(driver, 0), RN_GPU_UNKNOWN);
    assert_int_equal(fault.calls[RN_GPU_ANY_CALL], 5);
    assert_int_equal(fault.calls[RN_GPU_CALL_init], 2);
    driver->close(driver);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

/* ---- The real driver ---- */

static int old_version(struct rn_gpu_driver *driver, int *version)
{
    (void)driver;
    *version = 11040;
    return RN_GPU_OK;
}

static int no_devices(struct rn_gpu_driver *driver, int *n)
{
    (void)driver;
    *n = 0;
    return RN_GPU_OK;
}

static int out_of_order(struct rn_gpu_driver *driver, unsigned flags)
{
    (void)driver;
    (void)flags;
    return RN_GPU_LAUNCH_FAILED;
}

/* For kernels that this CUDA has compiled. */
static void expect_refused(const char *file, int cuda, const char *words)
{
    struct rn_gpu_driver *driver = NULL;
    runnel_error error = {0};

    assert_int_equal(rn_gpu_driver_real(&heap, file, cuda, &driver, &error), RUNNEL_UNSUPPORTED);
    if (strstr(error.message, words) == NULL)
        fail_msg("\"%s\" has no \"%s\"", error.message, words);
    assert_null(driver);
}

static void test_no_driver(void **state)
{
    (void)state;
    rn_heap_init(&heap, NULL);
    expect_refused("libnowhere.so.1", 0, "there is no driver libnowhere.so.1");
    expect_refused(STUB_OLD_DRIVER, 0, "too old: it has no cuDriverGetVersion");
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

static void test_real_driver(void **state)
{
    struct rn_gpu_driver whole;
    struct fixture f;

    (void)state;
    open_fixture(&f);
    *stubs.driver = f.driver;
    whole = *f.driver;
    f.driver->version = old_version;
    expect_refused(STUB_DRIVER, 0, "is for CUDA 11.4, which is older than 12.0");
    *f.driver = whole;
    expect_refused(STUB_DRIVER, 13020,
                   "the kernels were compiled by CUDA 13.2; the driver " STUB_DRIVER
                   " is for CUDA 12.0: they need one for CUDA 13.0 or later");
    f.driver->device_count = no_devices;
    expect_refused(STUB_DRIVER, 12000, "finds no device: error 100");
    *f.driver = whole;
    f.driver->init = out_of_order;
    expect_refused(STUB_DRIVER, 12000, "finds no device: unspecified launch failure");
    *f.driver = whole;

    /* A whole driver behind the symbols: what goes in comes through. */
    assert_int_equal(rn_gpu_driver_real(&heap, STUB_DRIVER, 12090, &f.driver, NULL), RUNNEL_OK);
    assert_int_equal(f.driver->fill(f.driver, f.values, 0, N * sizeof(float), f.stream), RN_GPU_OK);
    assert_int_equal(add(&f, f.values, 4), RN_GPU_OK);
    expect_values(&f, 4);
    f.driver->close(f.driver);
    f.driver = *stubs.driver;
    close_fixture(&f);
}

static int setup(void **state)
{
    (void)state;
    find_stubs(&stubs);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stream),       cmocka_unit_test(test_event),  cmocka_unit_test(test_wait),
        cmocka_unit_test(test_graph),        cmocka_unit_test(test_memory), cmocka_unit_test(test_bad_address),
        cmocka_unit_test(test_kernel_fault), cmocka_unit_test(test_faults), cmocka_unit_test(test_no_driver),
        cmocka_unit_test(test_real_driver),
    };

    return cmocka_run_group_tests(tests, setup, NULL);
}
