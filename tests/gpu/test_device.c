/* The CUDA device and its backend on the emulated driver: a small plan against double precision; the same bits alone,
 * in company and as a graph; blocks there and back; and what becomes of each failure, at each call of the driver. */
#include <dlfcn.h>
#include <math.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "gpu/backend.h"
#include "gpu/emulated/emulation.h"
#include "gpu/gpu.h"
#include "gpu/steps.h"
#include "tests/base/refusing.h"
#include "tests/gpu/rigs/faulty_driver.h"
#include "tests/gpu/rigs/small_plan.h"
#include "tests/slow.h"

enum { MAX_ROWS = 16, N_BLOCKS = 6, BLOCK = 32, MEMORY = 64 << 20, BLOCK_BYTES = BLOCK * 2 * SMALL_KV * 4 };

static struct rn_heap heap;
static struct small_plan small;
static const struct rn_gpu_kernels *kernels;
static struct rn_gpu_driver whole; /* the functions of the fixture's driver, before a test replaces some */

static const struct rn_backend_limits limits = {.max_rows = MAX_ROWS,
                                                .max_seqs = 4,
                                                .max_outs = MAX_ROWS,
                                                .n_blocks = N_BLOCKS,
                                                .block_tokens = BLOCK,
                                                .context_tokens = 256,
                                                .kv_type = RUNNEL_KV_F32};

/* ---- A device and a backend on it ---- */

struct fixture {
    struct rn_gpu_module module; /* its driver is the test's */
    struct rn_device *device;
    struct rn_backend *backend;
    sem_t done;
    int ends; /* of the step in flight */
};

/* On a driver that the fixture owns from now on. NULL device: it was refused, and why. */
static void open_device(struct fixture *f, struct rn_gpu_driver *driver, runnel_error *error)
{
    assert_non_null(driver);
    whole = *driver;
    memset(f, 0, sizeof *f);
    sem_init(&f->done, 0, 0);
    f->module = (struct rn_gpu_module){NULL, kernels, driver};
    f->device = rn_gpu_device_open(&heap, &f->module, 0, error);
    if (f->device != NULL)
        f->backend = f->device->kind->new_backend(f->device, &heap);
}

static void close_fixture(struct fixture *f)
{
    if (f->backend != NULL)
        f->backend->ops->free(f->backend);
    if (f->device != NULL)
        f->device->kind->close(f->device); /* and the driver */
    else
        f->module.driver->close(f->module.driver);
    sem_destroy(&f->done);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

static runnel_status prepare(struct fixture *f, runnel_error *error)
{
    return f->backend->ops->prepare(f->backend, &small.plan, &limits, NULL, NULL, error);
}

static void open_on(struct fixture *f, struct rn_gpu_driver *driver)
{
    runnel_error error = {0};

    open_device(f, driver, &error);
    if (f->device == NULL || prepare(f, &error) != RUNNEL_OK)
        fail_msg("%s", error.message);
}

static void open_ready(struct fixture *f)
{
    open_on(f, kernels->driver(&heap, kernels->emulation, MEMORY));
}

static void open_faulty(struct fixture *f, struct rn_gpu_fault *fault)
{
    open_on(f, rn_gpu_driver_faulty(&heap, kernels->driver(&heap, kernels->emulation, MEMORY), fault));
}

static void on_step_done(struct rn_step *step)
{
    struct fixture *f = step->user;

    f->ends++;
    sem_post(&f->done);
}

/* The logits of these tokens, each in a row of its own. */
static runnel_status run(struct fixture *f, const int32_t *tokens, uint32_t n, float *logits)
{
    uint32_t blocks[] = {0, 1};
    struct rn_step_seq seq = {.blocks = blocks, .n_blocks = 2};
    struct rn_step_row rows[MAX_ROWS];
    struct rn_step step = {.n_rows = n, .n_seqs = 1, .n_outs = n, .rows = rows, .seqs = &seq, .logits = logits};

    for (uint32_t i = 0; i < n; i++)
        rows[i] = (struct rn_step_row){tokens[i], i, 0, (int32_t)i};
    step.on_done = on_step_done;
    step.user = f;
    step.status = RUNNEL_STATUS_MAX_;
    assert_true(rn_step_check(&step, &small.plan, &limits));
    f->ends = 0;
    f->backend->ops->submit_async(f->backend, &step);
    sem_wait(&f->done);
    assert_int_equal(f->ends, 1);
    return step.status;
}

/* ---- Good steps ---- */

static void expect_logits(const float *got, int32_t token)
{
    double want[SMALL_VOCAB], error = 0, norm = 0;

    small_plan_logits(&small, token, want);
    for (int i = 0; i < SMALL_VOCAB; i++) {
        error += (got[i] - want[i]) * (got[i] - want[i]);
        norm += want[i] * want[i];
    }
    assert_true(error / norm < 1e-7);
}

static void test_logits(void **state)
{
    static float alone[MAX_ROWS][SMALL_VOCAB], together[MAX_ROWS][SMALL_VOCAB];
    int32_t tokens[MAX_ROWS];
    struct fixture f;

    (void)state;
    open_ready(&f);
    for (int i = 0; i < MAX_ROWS; i++) {
        tokens[i] = (i * 7 + 3) % SMALL_VOCAB;
        assert_int_equal(run(&f, &tokens[i], 1, alone[i]), RUNNEL_OK); /* from the second on as a graph */
        expect_logits(alone[i], tokens[i]);
    }
    for (uint32_t n = 2; n <= MAX_ROWS; n += 7)
        for (int times = 0; times < 3; times++) { /* launched, captured, played again */
            memset(together, 0xff, sizeof together);
            assert_int_equal(run(&f, tokens, n, together[0]), RUNNEL_OK);
            assert_memory_equal(together, alone, n * sizeof alone[0]);
        }
    close_fixture(&f);
}

/* ---- Blocks ---- */

struct copied {
    struct rn_host_copies copies; /* first */
    sem_t done;
};

static void on_copied(struct rn_host_copies *copies)
{
    sem_post(&((struct copied *)copies)->done);
}

static runnel_status copy(struct fixture *f, struct rn_host_copy *items, uint32_t n)
{
    struct copied copied = {.copies = {.n = n, .items = items, .on_done = on_copied}};

    sem_init(&copied.done, 0, 0);
    f->backend->ops->copy_async(f->backend, &copied.copies);
    sem_wait(&copied.done);
    sem_destroy(&copied.done);
    return copied.copies.status;
}

/* Block `from` is in `to`, too, by a step. */
static void copy_in_step(struct fixture *f, uint32_t from, uint32_t to)
{
    float logits[SMALL_VOCAB];
    struct rn_step_copy item = {from, to};
    struct rn_step_seq seq = {.blocks = &to, .n_blocks = 1};
    struct rn_step_row row = {1, 0, 0, 0};
    struct rn_step step = {.n_rows = 1,
                           .n_seqs = 1,
                           .n_outs = 1,
                           .n_copies = 1,
                           .copies = &item,
                           .rows = &row,
                           .seqs = &seq,
                           .logits = logits,
                           .on_done = on_step_done,
                           .user = f};

    f->backend->ops->submit_async(f->backend, &step);
    sem_wait(&f->done);
    assert_int_equal(step.status, RUNNEL_OK);
}

static int finishes; /* calls that wait for a stream */

static int count_finish(struct rn_gpu_driver *driver, struct rn_gpu_stream *stream)
{
    finishes++;
    return whole.stream_finish(driver, stream);
}

static void test_blocks(void **state)
{
    enum { ROW = SMALL_KV * 4, KEPT = 5 };
    struct fixture f;
    unsigned char *memory;

    (void)state;
    open_ready(&f);
    assert_int_equal(f.backend->ops->block_bytes(f.backend), BLOCK_BYTES);
    assert_int_equal(f.backend->ops->state_bytes(f.backend), 0);
    assert_string_equal(f.backend->ops->layout(f.backend), "cuda 2 9.0 emulated");
    memory = f.backend->ops->host_alloc(f.backend, 3 * BLOCK_BYTES);
    assert_non_null(memory);
    for (int i = 0; i < BLOCK_BYTES; i++)
        memory[i] = (unsigned char)(i * 31 + i / 251);
    memset(memory + BLOCK_BYTES, 0xee, 2 * BLOCK_BYTES);
    assert_int_equal(copy(&f, (struct rn_host_copy[]){{.block = 3, .host = memory}}, 1), RUNNEL_OK);
    copy_in_step(&f, 3, 5);
    finishes = 0;
    f.module.driver->stream_finish = count_finish;
    assert_int_equal(copy(&f,
                          (struct rn_host_copy[]){
                              {.block = 5, .n_positions = BLOCK, .to_host = true, .host = memory + BLOCK_BYTES},
                              {.block = 2, .host = memory},
                              {.block = 3, .n_positions = KEPT, .to_host = true, .host = memory + 2 * BLOCK_BYTES}},
                          3),
                     RUNNEL_OK);
    assert_int_equal(finishes, 0); /* the caller waits for none of it, though it goes both ways */
    assert_memory_equal(memory + BLOCK_BYTES, memory, BLOCK_BYTES);
    for (int part = 0; part < 2; part++) { /* keys, values: what stands behind the kept positions is cleared */
        unsigned char *got = memory + 2 * BLOCK_BYTES + part * BLOCK_BYTES / 2;

        assert_memory_equal(got, memory + part * BLOCK_BYTES / 2, KEPT * ROW);
        for (int i = KEPT * ROW; i < BLOCK_BYTES / 2; i++)
            assert_int_equal(got[i], 0);
    }
    f.backend->ops->host_free(f.backend, memory);
    close_fixture(&f);
}

/* ---- Graphs that fail ---- */

static int refuse_begin(struct rn_gpu_driver *driver, struct rn_gpu_stream *stream, int mode)
{
    (void)driver;
    (void)stream;
    (void)mode;
    return RN_GPU_OUT_OF_MEMORY;
}

/* The capture ends, and with an error: of a call that no capture allows. */
static int refuse_end(struct rn_gpu_driver *driver, struct rn_gpu_stream *stream, struct rn_gpu_graph **graph)
{
    if (whole.capture_end(driver, stream, graph) == RN_GPU_OK)
        whole.graph_free(driver, *graph);
    *graph = NULL;
    return RN_GPU_INVALID_VALUE;
}

/* The capture goes on. */
static int break_end(struct rn_gpu_driver *driver, struct rn_gpu_stream *stream, struct rn_gpu_graph **graph)
{
    (void)driver;
    (void)stream;
    *graph = NULL;
    return RN_GPU_INVALID_VALUE;
}

static int refuse_ready(struct rn_gpu_driver *driver, struct rn_gpu_exec **exec, struct rn_gpu_graph *graph,
                        unsigned long long flags)
{
    (void)driver;
    (void)exec;
    (void)graph;
    (void)flags;
    return RN_GPU_OUT_OF_MEMORY;
}

/* Lines of the log: of graphs that failed, and of steps. */
struct lines {
    int graphs, failures;
};

static void count_line(void *user, runnel_log_level level, const char *line)
{
    struct lines *lines = user;
    bool is_failure = strstr(line, "cuda: device 0: a step failed: ") != NULL ||
                      strstr(line, "cuda: device 0: a copy of blocks failed: ") != NULL;

    assert_int_equal(level, RUNNEL_LOG_WARNING);
    assert_true(is_failure || strstr(line, "cuda: device 0: a step cannot be made a graph") != NULL);
    __atomic_add_fetch(is_failure ? &lines->failures : &lines->graphs, 1, __ATOMIC_RELAXED);
}

/* Whatever a graph fails at, its step and all behind it are launched op by op, and the log says so once; only a stream
 * that cannot be got out of its capture fails steps. */
static void test_graphs_fail(void **state)
{
    enum { CASES = 4, STEPS = 5 };

    (void)state;
    for (int i = 0; i < CASES; i++) {
        struct lines lines = {0, 0};
        const struct rn_log log = {count_line, &lines, RUNNEL_LOG_WARNING};
        float logits[SMALL_VOCAB];
        const int32_t token = 5;
        struct fixture f;

        open_ready(&f);
        ((struct rn_gpu_device *)f.device)->log = &log;
        f.module.driver->capture_begin = i == 0 ? refuse_begin : f.module.driver->capture_begin;
        f.module.driver->capture_end = i == 1 ? refuse_end : i == 2 ? break_end : f.module.driver->capture_end;
        f.module.driver->graph_ready = i == 3 ? refuse_ready : f.module.driver->graph_ready;
        for (int step = 0; step < STEPS; step++) {
            runnel_status want = i == 2 && step > 0 ? RUNNEL_DEVICE : RUNNEL_OK;

            assert_int_equal(run(&f, &token, 1, logits), want);
            assert_int_equal(lines.graphs, step > 0);
            assert_int_equal(lines.failures, want != RUNNEL_OK);
            if (want == RUNNEL_OK)
                expect_logits(logits, token);
        }
        close_fixture(&f);
    }
}

/* A shape has a graph when memory for another one's is refused: what graphs have is given back, steps go on op by op,
 * and after some of them they are graphs again. After any other failure they never are. */
static void test_graphs_again(void **state)
{
    static const int results[] = {RN_GPU_OUT_OF_MEMORY, RN_GPU_INVALID_VALUE};
    const int32_t tokens[] = {5, 7};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct rn_gpu_fault fault = {.of = RN_GPU_CALL_graph_ready, .at = 2, .result = results[i]};
        struct lines lines = {0, 0};
        const struct rn_log log = {count_line, &lines, RUNNEL_LOG_WARNING};
        float logits[2 * SMALL_VOCAB];
        struct fixture f;
        uint32_t *rest;

        open_faulty(&f, &fault);
        ((struct rn_gpu_device *)f.device)->log = &log;
        for (int step = 0; step < 6; step++)
            assert_int_equal(run(&f, tokens, step < 3 ? 1 : 2, logits), RUNNEL_OK);
        assert_int_equal(fault.calls[RN_GPU_CALL_exec_free], i == 0);
        assert_int_equal(fault.calls[RN_GPU_CALL_graph_launch], 2);
        rest = &((struct rn_gpu_backend *)f.backend)->graphs_rest;
        assert_int_equal(*rest > 100, i == 0);
        *rest = *rest > 3 ? 3 : *rest; /* a thousand steps take emulation long */
        for (int step = 0; step < 10; step++)
            assert_int_equal(run(&f, tokens, 2, logits), RUNNEL_OK);
        assert_int_equal(fault.calls[RN_GPU_CALL_graph_launch] > 2, i == 0);
        expect_logits(logits, tokens[0]);
        assert_int_equal(lines.graphs, 1);
        close_fixture(&f);
        assert_int_equal(fault.owed, 0);
    }
}

/* ---- Launches that begin early ---- */

static int code_of_kernels;
static unsigned n_early;

static int tell_code(struct rn_gpu_driver *driver, int *value, int attribute, struct rn_gpu_function *function)
{
    (void)driver;
    (void)function;
    *value = code_of_kernels;
    return attribute == RN_GPU_FUNCTION_PTX ? RN_GPU_OK : RN_GPU_INVALID_VALUE;
}

static int tell_version(struct rn_gpu_driver *driver, int *version)
{
    (void)driver;
    *version = 12030;
    return RN_GPU_OK;
}

static int count_early(struct rn_gpu_driver *driver, const struct rn_gpu_launch_config *config,
                       struct rn_gpu_function *function, void **arguments, void **extra)
{
    n_early += config->n_attributes;
    return whole.launch_config(driver, config, function, arguments, extra);
}

/* Only kernels that wait for the launch before them begin before it has ended: a device of 9.0 may have been given code
 * for an older one. */
static void test_early(void **state)
{
    static const int codes[] = {80, 89, 90, 100};

    (void)state;
    for (int i = 0; i < 4; i++) {
        struct rn_gpu_driver *driver = kernels->driver(&heap, kernels->emulation, MEMORY);
        float logits[SMALL_VOCAB];
        struct fixture f;

        driver->function_get = tell_code;
        driver->version = tell_version;
        code_of_kernels = codes[i];
        open_on(&f, driver);
        driver->launch_config = count_early;
        n_early = 0;
        assert_int_equal(run(&f, (const int32_t[]){5}, 1, logits), RUNNEL_OK);
        assert_int_equal(n_early > 0, codes[i] >= 90);
        close_fixture(&f);
    }
}

/* ---- Refusals ---- */

static void expect_refused(runnel_status status, const char *words)
{
    runnel_error error = {0};
    struct fixture f;

    open_device(&f, kernels->driver(&heap, kernels->emulation, MEMORY), &error);
    assert_int_equal(prepare(&f, &error), status);
    if (strstr(error.message, words) == NULL)
        fail_msg("\"%s\" has no \"%s\"", error.message, words);
    close_fixture(&f);
}

static void test_unsupported(void **state)
{
    static const struct rn_type unknown = {.name = "LATER", .elements = 1, .bytes = 4};

    (void)state;
    small.ops[3].kind = RN_OP_ATTENTION; /* heads whose numbers are no multiple of 4 */
    small.ops[3].k_dim = 3;
    small.ops[3].v_dim = 4;
    expect_refused(RUNNEL_UNSUPPORTED,
                   "no kernel for op ATTENTION of small with heads of 3 numbers and KV of type f32");
    small.ops[3].kind = RN_OP_ADD;
    small.weights[2].type_id = 63;
    small.weights[2].type = &unknown;
    expect_refused(RUNNEL_UNSUPPORTED, "no kernel for op MATMUL with tensor product of type LATER");
    small_plan_init(&small, 1);
    expect_refused(RUNNEL_OK, "");
}

/* With more and more of it: first the weights do not fit, then what comes beside them, and then all does. */
static void test_little_memory(void **state)
{
    static const char *const sentences[] = {"MiB are free: the model does not fit",
                                            "no memory for the weights, the activations and 6 KV blocks"};
    uint32_t n_said[2] = {0};
    runnel_status status = RUNNEL_NO_MEMORY;

    (void)state;
    for (size_t bytes = 1024; status != RUNNEL_OK; bytes += bytes / 8) {
        runnel_error error = {0};
        struct fixture f;

        open_device(&f, kernels->driver(&heap, kernels->emulation, bytes), &error);
        status = prepare(&f, &error);
        if (status != RUNNEL_OK) {
            int which = strstr(error.message, sentences[0]) != NULL ? 0 : 1;

            assert_int_equal(status, RUNNEL_NO_MEMORY);
            assert_non_null(strstr(error.message, sentences[which]));
            assert_true(which == 1 || n_said[1] == 0);
            n_said[which]++;
        }
        close_fixture(&f);
    }
    assert_true(n_said[0] > 0 && n_said[1] > 0);
}

static bool stop_at(void *user, float fraction)
{
    int *calls = user;

    assert_true(fraction >= 0 && fraction <= 1);
    return --*calls > 0;
}

static void test_cancelled_load(void **state)
{
    (void)state;
    for (int calls = 1; calls <= 4; calls++) {
        runnel_error error = {0};
        struct fixture f;
        int left = calls;

        open_device(&f, kernels->driver(&heap, kernels->emulation, MEMORY), &error);
        assert_int_equal(f.backend->ops->prepare(f.backend, &small.plan, &limits, stop_at, &left, &error),
                         RUNNEL_CANCELLED);
        assert_int_equal(left, 0);
        close_fixture(&f);
    }
}

/* ---- Failures ---- */

/* A life with a fault at call `at`, but for what it costs the emulated driver itself: whatever fails says so, each step
 * and each list ends once, and nothing is left. Returns the calls. */
static uint64_t live_with(uint64_t at, int result, bool for_good)
{
    struct rn_gpu_fault fault = {.at = at, .result = result, .for_good = for_good};
    float logits[SMALL_VOCAB], before[SMALL_VOCAB] = {0};
    static unsigned char block[BLOCK_BYTES];
    const int32_t token = 5;
    runnel_error error = {0};
    struct fixture f;
    runnel_status status = RUNNEL_DEVICE, step = RUNNEL_OK;

    open_device(&f, rn_gpu_driver_faulty(&heap, kernels->driver(&heap, kernels->emulation, MEMORY), &fault), &error);
    if (f.device != NULL)
        status = prepare(&f, &error);
    if (status != RUNNEL_OK) {
        assert_true(strncmp(error.message, "cuda: device 0", 14) == 0 && error.status != RUNNEL_OK);
        assert_int_equal(error.status == RUNNEL_NO_MEMORY, result == RN_GPU_OUT_OF_MEMORY);
    }
    for (int i = 0; i < 4 && status == RUNNEL_OK; i++) {
        step = run(&f, &token, 1, logits);
        if (step != RUNNEL_OK) {
            assert_int_equal(step, RUNNEL_DEVICE);
            continue;
        }
        assert_true(!for_good || fault.calls[RN_GPU_ANY_CALL] < at); /* what is lost stays lost */
        expect_logits(logits, token);
        assert_true(i == 0 || before[0] == 0 || memcmp(before, logits, sizeof before) == 0);
        memcpy(before, logits, sizeof before);
    }
    if (status == RUNNEL_OK) {
        step = copy(&f, (struct rn_host_copy[]){{.block = 3, .n_positions = 4, .to_host = true, .host = block}}, 1);
        assert_true(step == RUNNEL_OK || step == RUNNEL_DEVICE);
    }
    close_fixture(&f);
    assert_int_equal(fault.owed, 0);
    return fault.calls[RN_GPU_ANY_CALL];
}

static void test_each_call_fails(void **state)
{
    static const int results[] = {RN_GPU_OUT_OF_MEMORY, RN_GPU_LAUNCH_FAILED};
    uint64_t calls = live_with(0, RN_GPU_OK, false);

    (void)state;
    assert_true(calls > 60);
    for (uint64_t at = 1; at <= calls; at += UNLESS_SLOW(1, 4))
        for (int i = 0; i < 2; i++) {
            live_with(at, results[i], false);
            live_with(at, results[i], true);
        }
}

/* An emulation whose launches fail from some launch on: the device is lost while a step runs. */
static int launches_left;

static bool failing_launch(void *emulator, const void *kernel, const unsigned grid[3], const unsigned block[3],
                           unsigned shared_bytes, const void *arguments, const struct rn_emulated_range *ranges,
                           size_t n_ranges, char fault[RN_EMULATED_FAULT_BYTES])
{
    return --launches_left >= 0 &&
           kernels->emulation->launch(emulator, kernel, grid, block, shared_bytes, arguments, ranges, n_ranges, fault);
}

static void test_lost_in_a_step(void **state)
{
    struct rn_gpu_emulation emulation = *kernels->emulation;
    unsigned char block[BLOCK_BYTES];
    float logits[SMALL_VOCAB];
    const int32_t token = 5;
    runnel_error error = {0};
    struct fixture f;

    (void)state;
    emulation.launch = failing_launch;
    for (int good = 0; good < 12; good += 3) {
        struct lines lines = {0, 0};
        const struct rn_log log = {count_line, &lines, RUNNEL_LOG_WARNING};

        launches_left = 1000;
        open_device(&f, kernels->driver(&heap, &emulation, MEMORY), &error);
        ((struct rn_gpu_device *)f.device)->log = &log;
        assert_int_equal(prepare(&f, &error), RUNNEL_OK);
        launches_left = good;
        while (run(&f, &token, 1, logits) == RUNNEL_OK)
            expect_logits(logits, token);
        assert_int_equal(run(&f, &token, 1, logits), RUNNEL_DEVICE);
        assert_int_equal(lines.failures, 1); /* in the driver's words, and once */
        assert_int_equal(
            copy(&f, (struct rn_host_copy[]){{.block = 1, .n_positions = 1, .to_host = true, .host = block}}, 1),
            RUNNEL_DEVICE);
        close_fixture(&f);
        assert_int_equal(lines.failures, 1);
    }
}

/* The only step fails on the device, and nobody submits another one: its end tells. */
static void test_last_step_lost(void **state)
{
    struct rn_gpu_emulation emulation = *kernels->emulation;
    struct lines lines = {0, 0};
    const struct rn_log log = {count_line, &lines, RUNNEL_LOG_WARNING};
    float logits[SMALL_VOCAB];
    const int32_t token = 5;
    runnel_error error = {0};
    struct fixture f;

    (void)state;
    emulation.launch = failing_launch;
    launches_left = 1000;
    open_device(&f, kernels->driver(&heap, &emulation, MEMORY), &error);
    ((struct rn_gpu_device *)f.device)->log = &log;
    assert_int_equal(prepare(&f, &error), RUNNEL_OK);
    launches_left = 0;
    assert_int_equal(run(&f, &token, 1, logits), RUNNEL_DEVICE);
    close_fixture(&f);
    assert_int_equal(lines.failures, 1);
}

static int lost_callback(struct rn_gpu_driver *driver, struct rn_gpu_stream *stream, rn_gpu_callback callback,
                         void *user, unsigned flags)
{
    (void)driver;
    (void)flags;
    callback(stream, RN_GPU_LAUNCH_FAILED, user);
    return RN_GPU_OK;
}

/* Likewise of a copy. */
static void test_copy_lost(void **state)
{
    struct lines lines = {0, 0};
    const struct rn_log log = {count_line, &lines, RUNNEL_LOG_WARNING};
    unsigned char block[BLOCK_BYTES];
    struct fixture f;

    (void)state;
    open_ready(&f);
    ((struct rn_gpu_device *)f.device)->log = &log;
    f.module.driver->stream_callback = lost_callback;
    assert_int_equal(
        copy(&f, (struct rn_host_copy[]){{.block = 1, .n_positions = BLOCK, .to_host = true, .host = block}}, 1),
        RUNNEL_DEVICE);
    close_fixture(&f);
    assert_int_equal(lines.failures, 1);
}

/* ---- The thread's context ---- */

/* What a thread of the host has, as the driver's functions know it; another than the device's. */
static struct rn_gpu_context *current, *const hosts = (struct rn_gpu_context *)(uintptr_t)8;

static int get_context(struct rn_gpu_driver *driver, struct rn_gpu_context **context)
{
    (void)driver;
    *context = current;
    return RN_GPU_OK;
}

static int set_context(struct rn_gpu_driver *driver, struct rn_gpu_context *context)
{
    current = context;
    return context == hosts ? RN_GPU_OK : whole.context_set(driver, context);
}

/* Whoever asks for memory, frees a backend or closes its device has the context afterwards that it had. */
static void test_context(void **state)
{
    struct rn_device_memory memory;
    struct fixture f;
    void *host;

    (void)state;
    open_ready(&f);
    f.module.driver->context_get = get_context;
    f.module.driver->context_set = set_context;
    current = hosts;
    f.device->kind->memory(f.device, &memory);
    assert_ptr_equal(current, hosts);
    host = f.backend->ops->host_alloc(f.backend, 64);
    assert_ptr_equal(current, hosts);
    f.backend->ops->host_free(f.backend, host);
    assert_ptr_equal(current, hosts);
    f.backend->ops->free(f.backend);
    assert_ptr_equal(current, hosts);
    f.backend = NULL;
    close_fixture(&f);
    assert_ptr_equal(current, hosts);
}

/* ---- What steps take ---- */

/* A device with so much memory as weights, blocks and the steps' take together, or less: only the first one is
 * enough. */
static void test_step_bytes(void **state)
{
    (void)state;
    for (int less = 0; less < 2; less++) {
        runnel_error error = {0};
        struct fixture f;
        uint64_t bytes;

        open_device(&f, kernels->driver(&heap, kernels->emulation, MEMORY), &error);
        bytes = rn_device_weight_bytes(f.device, &small.plan, 0) + N_BLOCKS * BLOCK_BYTES +
                rn_device_step_bytes(f.device, &small.plan, &limits);
        close_fixture(&f);
        open_device(&f, kernels->driver(&heap, kernels->emulation, less ? bytes / 4 * 3 : bytes), &error);
        assert_int_equal(prepare(&f, &error), less ? RUNNEL_NO_MEMORY : RUNNEL_OK);
        close_fixture(&f);
    }
}

/* Pinned memory for logits is taken by plans that have some. */
static void test_without_logits(void **state)
{
    uint64_t taken[2];

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct rn_gpu_fault fault = {.at = 0};
        struct fixture f;

        small.plan.logits_slot = i == 0 ? small.plan.logits_slot : -1;
        open_faulty(&f, &fault);
        taken[i] = fault.calls[RN_GPU_CALL_host_new];
        close_fixture(&f);
        assert_int_equal(fault.owed, 0);
    }
    small_plan_init(&small, 1);
    assert_int_equal(taken[1] + 1, taken[0]);
}

/* ---- Refused memory ---- */

/* Every allocation of the host refused in turn. */
static void test_refused_memory(void **state)
{
    struct refusing refusing = {0};
    uint64_t refused = 1;

    (void)state;
    for (uint64_t n = 1; refused > 0; n += UNLESS_SLOW(1, 4)) {
        struct rn_gpu_driver *driver;
        runnel_error error = {0};
        struct fixture f;

        heap = refusing_heap(&refusing);
        refusing.refuse_at = 0;
        driver = kernels->driver(&heap, kernels->emulation, MEMORY);
        refusing.calls = refusing.refused = 0;
        refusing.refuse_at = n;
        open_device(&f, driver, &error);
        if (f.backend != NULL && prepare(&f, &error) != RUNNEL_OK)
            assert_true(error.status == RUNNEL_NO_MEMORY || error.status == RUNNEL_DEVICE);
        refused = refusing.refused;
        refusing.refuse_at = 0;
        close_fixture(&f);
    }
    rn_heap_init(&heap, NULL);
}

static int setup(void **state)
{
    void *library = dlopen(EMULATED_MODULE, RTLD_NOW | RTLD_LOCAL), *address;
    rn_gpu_kernels_fn function;

    (void)state;
    assert_non_null(library);
    address = dlsym(library, RN_GPU_KERNELS_SYMBOL);
    memcpy(&function, &address, sizeof function);
    kernels = function();
    rn_heap_init(&heap, NULL);
    small_plan_init(&small, 1);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits),          cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_graphs_fail),     cmocka_unit_test(test_unsupported),
        cmocka_unit_test(test_little_memory),   cmocka_unit_test(test_cancelled_load),
        cmocka_unit_test(test_each_call_fails), cmocka_unit_test(test_lost_in_a_step),
        cmocka_unit_test(test_context),         cmocka_unit_test(test_last_step_lost),
        cmocka_unit_test(test_copy_lost),       cmocka_unit_test(test_step_bytes),
        cmocka_unit_test(test_refused_memory),  cmocka_unit_test(test_graphs_again),
        cmocka_unit_test(test_early),           cmocka_unit_test(test_without_logits),
    };

    return cmocka_run_group_tests(tests, setup, NULL);
}
