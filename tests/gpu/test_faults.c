/* What can go wrong with a device, through the engine: a stub of libcuda.so.1, behind which is the emulated driver,
 * fails at the n-th call of each function, while a model is loaded, generates, has its session written and read, has
 * blocks evicted and fetched, and is freed. Whatever fails says so in a sentence, every request ends once, the model on
 * the CPU beside it goes on, and nothing is left: neither of the engine's memory nor of the driver's objects.
 *
 *   engine ─▶ real driver ─dlopen─▶ stub libcuda.so.1 ─▶ faulty driver ─▶ emulated driver */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "gpu/module.h"
#include "runnel_files.h"
#include "tests/actors/fixture.h"
#include "tests/base/refusing.h"
#include "tests/gpu/rigs/faulty_driver.h"
#include "tests/gpu/rigs/stubs.h"
#include "tests/oracle/arch_models.h"
#include "tests/oracle/made_model.h"

enum {
    MEMORY = 24 << 20,
    PROMPT = 40,
    ANSWER = 2,
    PROMPTS = 3,
    BLOCK_BYTES = 8 << 10,
    BLOCKS = 4,
    LATE = UNLESS_SANITIZED(4, 2),
    MANY = 12
};

static struct stubs stubs;
static char model_path[64], wide_path[64], wider_path[64], products_path[64], session_path[64];
static int32_t want[PROMPTS][ANSWER]; /* what the CPU says */

/* ---- One life ---- */

struct life {
    struct rn_gpu_fault fault;
    struct rn_gpu_driver *driver;
    struct rn_heap driver_heap;
    struct refusing memory;
    runnel_engine *engine;
    runnel_model *cpu, *model;
    unsigned refused;  /* lines of the log: the model is loaded on the CPU */
    unsigned compiles; /* likewise: the driver compiles the kernels */
    bool told;         /* likewise: host memory is refused */
    runnel_error error;
    uint64_t loaded[RN_GPU_CALLS];              /* calls when the model was loaded */
    unsigned failed;                            /* requests */
    void (*make)(struct rn_gpu_driver *driver); /* into that of another machine; NULL: it is as it is */
    const char *path;                           /* of the model on the device; NULL: the usual one */
    const char *draft_path;                     /* of one that drafts for it; NULL: none does */
    uint64_t kv_bytes;                          /* of another model than the usual one; 0: as many as suit */
    size_t memory_bytes;                        /* of the device; 0: MEMORY */
    runnel_kv_type kv_type;
    uint32_t device_layers; /* of the model that was loaded */
    bool learns;            /* what is said is what is wanted */
};

static void on_log(void *user, runnel_log_level level, const char *line)
{
    struct life *life = user;

    if (level == RUNNEL_LOG_WARNING && strstr(line, "device \"auto\": the model is loaded on the CPU: ") != NULL)
        life->refused++;
    life->compiles += strstr(line, "compute capability 12.") != NULL && strstr(line, "compiles the kernels") != NULL;
    life->told = life->told || strstr(line, "bytes of the host's memory for copies") != NULL;
}

static void open_life(struct life *life)
{
    runnel_engine_options options;

    rn_heap_init(&life->driver_heap, NULL);
    life->driver = rn_gpu_driver_faulty(&life->driver_heap,
                                        stubs.kernels->driver(&life->driver_heap, stubs.kernels->emulation,
                                                              life->memory_bytes == 0 ? MEMORY : life->memory_bytes),
                                        &life->fault);
    assert_non_null(life->driver);
    if (life->make != NULL)
        life->make(life->driver);
    *stubs.driver = life->driver;
    runnel_engine_options_default(&options);
    options.allocator = refusing_hook(&life->memory);
    options.device_library = STUB_KERNELS;
    options.on_log = on_log;
    options.log_user = life;
    options.log_level = RUNNEL_LOG_INFO;
    options.compute_threads = options.scheduler_threads = 1;
    life->engine = start_engine(&options);
}

/* Nothing is left in the engine or in the driver. */
static void close_life(struct life *life)
{
    runnel_engine_free(life->engine);
    assert_int_equal(life->memory.live, 0);
    assert_int_equal(life->fault.owed, 0);
    life->driver->close(life->driver);
    assert_int_equal(rn_heap_blocks(&life->driver_heap), 0);
}

static bool is_usual(const char *path)
{
    return path == NULL || path == model_path;
}

static runnel_model *begin_load(struct life *life, const char *path, const char *device)
{
    runnel_model_options options;
    runnel_model *model = NULL;
    runnel_error error = {0};

    runnel_model_options_default(&options);
    options.device = device;
    options.context_tokens = 64;
    options.batch_tokens = 64;
    options.kv_bytes = is_usual(path) ? BLOCKS * BLOCK_BYTES : life->kv_bytes;
    options.kv_type = life->kv_type;
    options.draft_path = strcmp(device, "cpu") == 0 ? NULL : life->draft_path;
    options.cache_warm_bytes = 1 << 20;
    if (runnel_model_load(life->engine, path, &options, &model, &error) != RUNNEL_OK)
        fail_msg("%s", error.message);
    return model;
}

/* False: it ends with FAILED and DEVICE. */
static bool ends_well(struct life *life, struct capture *capture)
{
    run_until_end(life->engine, capture);
    assert_int_equal(capture->n_terminal, 1);
    if (capture->last.type == RUNNEL_EVENT_DONE)
        return true;
    life->failed++;
    assert_int_equal(capture->last.type, RUNNEL_EVENT_FAILED);
    assert_int_equal(capture->last.status, RUNNEL_DEVICE);
    assert_true(capture->error[0] != '\0');
    return false;
}

/* The answer to a prompt is what the CPU says, or there is none. */
static void ask(struct life *life, runnel_model *model, int prompt, runnel_session session)
{
    struct capture capture = {0};
    runnel_request request = make_request("", ANSWER, &capture);
    int32_t tokens[PROMPT];
    runnel_stream stream;

    for (int i = 0; i < PROMPT; i++)
        tokens[i] = (i * (7 + 2 * prompt) + prompt) % 60 + 2;
    request.prompt = NULL;
    request.tokens = tokens;
    request.n_tokens = PROMPT;
    request.session = session;
    assert_int_equal(runnel_generate(model, &request, &stream, NULL), RUNNEL_OK);
    if (ends_well(life, &capture)) {
        assert_int_equal(capture.n_tokens, ANSWER);
        if (life->learns)
            memcpy(want[prompt], capture.tokens, sizeof want[prompt]);
        else if (is_usual(life->path))
            assert_memory_equal(capture.tokens, want[prompt], sizeof want[prompt]);
    }
    capture_clear(&capture);
}

static void end_file(struct life *life, struct capture *capture)
{
    run_until_end(life->engine, capture);
    assert_int_equal(capture->n_terminal, 1);
    if (capture->last.type != RUNNEL_EVENT_DONE && capture->last.status != RUNNEL_DEVICE &&
        !(capture->last.status == RUNNEL_NO_MEMORY && life->told))
        fail_msg("a session's file: %s", capture->error);
    life->failed += capture->last.type != RUNNEL_EVENT_DONE;
    capture_clear(capture);
}

/* A session is written to a file, and one is read from it. */
static void use_session(struct life *life)
{
    runnel_session session, copy;
    runnel_session_file file;
    struct capture capture = {0};
    runnel_stream stream;

    unlink(session_path);
    assert_int_equal(runnel_session_new(life->model, &session), RUNNEL_OK);
    ask(life, life->model, 0, session);
    runnel_session_file_default(&file);
    file.path = session_path;
    file.on_event = capture_event;
    file.user = &capture;
    assert_int_equal(runnel_session_export(life->model, session, &file, &stream, NULL), RUNNEL_OK);
    end_file(life, &capture);
    runnel_session_free(life->model, session);
    if (access(session_path, R_OK) != 0)
        return;
    assert_int_equal(runnel_session_import(life->model, &file, &copy, &stream, NULL), RUNNEL_OK);
    end_file(life, &capture);
    runnel_session_free(life->model, copy);
}

/* Loads on the device and uses the model, if it is there; then the CPU's model answers as ever. */
static void live(struct life *life, const char *device)
{
    runnel_model_info info = {.struct_size = sizeof info};
    unsigned failed;

    open_life(life);
    life->cpu = begin_load(life, model_path, "cpu");
    life->model = begin_load(life, life->path == NULL ? model_path : life->path, device);
    assert_int_equal(runnel_model_wait(life->cpu, -1, NULL), RUNNEL_OK);
    runnel_model_wait(life->model, -1, &life->error);
    memcpy(life->loaded, life->fault.calls, sizeof life->loaded);
    if (life->error.status == RUNNEL_OK) {
        assert_int_equal(runnel_model_get_info(life->model, &info), RUNNEL_OK);
        life->device_layers = info.device_layers;
        use_session(life);
        for (int i = 0; i < PROMPTS + 1; i++) /* the first one's blocks have been evicted by then */
            ask(life, life->model, i % PROMPTS, (runnel_session){0});
        if (life->fault.is_lost && life->refused == 0) { /* for good: the next one fails, too */
            failed = life->failed;
            ask(life, life->model, 2, (runnel_session){0});
            assert_int_equal(life->failed, failed + 1);
        }
    }
    runnel_model_free(life->model);
    await_models(life->engine, 1);
    life->path = NULL;
    ask(life, life->cpu, 1, (runnel_session){0});
    close_life(life);
}

/* ---- The sweep ---- */

static const char *const names[RN_GPU_CALLS] = {
    "any",
#define RN_GPU_CALL(name, symbol, parameters, arguments) #name,
#include "gpu/driver.def"
};

static void expect_sentence(const struct life *life, int result)
{
    const runnel_error *error = &life->error;

    if (error->status == RUNNEL_NO_MEMORY &&
        life->told) /* pinned memory for the tiers: the log has the driver's words */
        return;
    if (strstr(error->message, "cuda: ") == NULL ||
        (error->status != RUNNEL_UNSUPPORTED &&
         error->status != (result == RN_GPU_OUT_OF_MEMORY ? RUNNEL_NO_MEMORY : RUNNEL_DEVICE)))
        fail_msg("%s, call %llu: status %d: %s", names[life->fault.of], (unsigned long long)life->fault.at,
                 (int)error->status, error->message);
}

static void fail_at(enum rn_gpu_called of, uint64_t at, int result, bool for_good, const char *device)
{
    struct life life = {.fault = {.of = of, .at = at, .result = result, .for_good = for_good}};

    live(&life, device);
    if (strcmp(device, "auto") == 0)
        assert_int_equal(life.error.status, RUNNEL_OK);
    else if (life.error.status != RUNNEL_OK)
        expect_sentence(&life, result);
}

/* A life without a fault: steps are graphs, and a session's blocks go to the host's memory. */
static void measure(struct life *life)
{
    live(life, "cuda");
    assert_int_equal(life->error.status, RUNNEL_OK);
    assert_int_equal(life->failed, 0);
    assert_true(life->fault.calls[RN_GPU_CALL_graph_launch] > 0);
    assert_true(life->fault.calls[RN_GPU_CALL_host_new] > life->loaded[RN_GPU_CALL_host_new]);
    print_message("%llu calls, %llu of the load\n", (unsigned long long)life->fault.calls[RN_GPU_ANY_CALL],
                  (unsigned long long)life->loaded[RN_GPU_ANY_CALL]);
}

/* Every call of the load, alone and for good (of functions with many calls in turn); of what comes behind it some calls
 * of each function, the first and the last among them. */
static void test_each_call(void **state)
{
    static const int results[] = {RN_GPU_OUT_OF_MEMORY, RN_GPU_NOT_FOUND};
    struct life good = {.failed = 0};
    unsigned n = 0;

    (void)state;
    measure(&good);
    for (enum rn_gpu_called of = RN_GPU_ANY_CALL + 1; of < RN_GPU_CALLS; of++) {
        uint64_t loaded = good.loaded[of], late = good.fault.calls[of] - loaded;

        for (uint64_t at = 1; at <= loaded; at += UNLESS_SANITIZED(1, 8), n++) {
            if (loaded < MANY || at % 2 == 0)
                fail_at(of, at, results[at / 2 % 2], false, at % 5 == 0 ? "auto" : "cuda");
            if (loaded < MANY || at % 2 == 1)
                fail_at(of, at, RN_GPU_BAD_ADDRESS, true, at % 5 == 1 ? "auto" : "cuda");
        }
        for (uint64_t i = 0; i < LATE && i < late; i++, n++) {
            uint64_t at = loaded + 1 + (late <= LATE ? i : i * (late - 1) / (LATE - 1));

            fail_at(of, at, i % 2 == 0 ? RN_GPU_BAD_ADDRESS : results[i / 2 % 2], i % 2 == 0, "cuda");
        }
    }
    print_message("%u calls failed\n", n);
}

/* ---- Machines ---- */

static int old_version(struct rn_gpu_driver *driver, int *version)
{
    (void)driver;
    *version = 11080;
    return RN_GPU_OK;
}

static int no_devices(struct rn_gpu_driver *driver, int *n)
{
    (void)driver;
    *n = 0;
    return RN_GPU_OK;
}

/* A device of this major compute capability, whose blocks have 99 KiB of shared memory. */
static int attribute_of(int *value, int attribute, int capability)
{
    *value = attribute == RN_GPU_DEVICE_MAJOR ? capability : attribute == RN_GPU_DEVICE_SHARED_MOST ? 99 << 10 : 4;
    return RN_GPU_OK;
}

static int old_attribute(struct rn_gpu_driver *driver, int *value, int attribute, int device)
{
    (void)driver;
    (void)device;
    return attribute_of(value, attribute, 7);
}

static int small_attribute(struct rn_gpu_driver *driver, int *value, int attribute, int device)
{
    (void)driver;
    (void)device;
    return attribute_of(value, attribute, 8);
}

static int new_attribute(struct rn_gpu_driver *driver, int *value, int attribute, int device)
{
    (void)driver;
    (void)device;
    return attribute_of(value, attribute, 12);
}

static void make_new_device(struct rn_gpu_driver *driver)
{
    driver->device_attribute = new_attribute;
}

static void make_old(struct rn_gpu_driver *driver)
{
    driver->version = old_version;
}

static void make_empty(struct rn_gpu_driver *driver)
{
    driver->device_count = no_devices;
}

static void make_old_device(struct rn_gpu_driver *driver)
{
    driver->device_attribute = old_attribute;
}

static void make_small_device(struct rn_gpu_driver *driver)
{
    driver->device_attribute = small_attribute;
}

/* What a machine has not is said, by "cuda" in the error and by "auto" in the log. */
static void test_machines(void **state)
{
    static const struct {
        void (*make)(struct rn_gpu_driver *driver);
        const char *device, *path, *says;
        runnel_kv_type kv_type;
    } cases[] = {
        {make_old, "cuda", model_path, "the driver libcuda.so.1 is for CUDA 11.8, which is older than 12.0",
         RUNNEL_KV_F16},
        {make_empty, "cuda", model_path, "the driver libcuda.so.1 finds no device", RUNNEL_KV_F16},
        {NULL, "cuda:3", model_path, "there is no device 3: the machine has 1 of them", RUNNEL_KV_F16},
        {make_old_device, "cuda", model_path, "has compute capability 7.4, which is below 8.0", RUNNEL_KV_F16},
        {make_small_device, "cuda", wide_path, "a kernel wants 107328 bytes of shared memory", RUNNEL_KV_F16},
        {make_small_device, "cuda", model_path, NULL, RUNNEL_KV_F16},
        {make_new_device, "cuda", model_path, NULL, RUNNEL_KV_F16},
        {NULL, "cuda", wide_path, NULL, RUNNEL_KV_F16},
        {NULL, "cuda", wide_path, NULL, RUNNEL_KV_Q8},
        {NULL, "cuda", wider_path, NULL, RUNNEL_KV_F16},
        {NULL, "cuda", wider_path, "ATTENTION of llama with heads of 640 numbers and KV of type q8; with kv_type f16",
         RUNNEL_KV_Q8},
        {NULL, "cuda", wider_path, "with heads of 640 numbers and KV of type f32", RUNNEL_KV_F32},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int is_auto = 0; is_auto < (strcmp(cases[i].device, "cuda") == 0 ? 2 : 1); is_auto++) {
            struct life life = {.make = cases[i].make, .path = cases[i].path, .kv_type = cases[i].kv_type};

            live(&life, is_auto ? "auto" : cases[i].device);
            assert_int_equal(life.compiles, cases[i].make == make_new_device);
            assert_int_equal(life.refused, cases[i].says != NULL && is_auto);
            if (cases[i].says != NULL && !is_auto) {
                assert_int_equal(life.error.status, RUNNEL_UNSUPPORTED);
                if (strstr(life.error.message, cases[i].says) == NULL)
                    fail_msg("\"%s\" has no \"%s\"", life.error.message, cases[i].says);
            } else {
                assert_int_equal(life.error.status, RUNNEL_OK);
            }
        }
}

/* ---- Activations ---- */

/* What steps take is left to them: by the default size of KV, by that of a drafter beside the model, and by the choice
 * of layers, where a size that is asked for leaves less. */
static void test_activations(void **state)
{
    static const struct {
        const char *path, *draft_path;
        size_t memory_bytes;
        uint64_t kv_bytes;
        uint32_t device_layers; /* 0: refused */
    } cases[] = {
        {products_path, NULL, MEMORY, 0, 2},
        {products_path, NULL, MEMORY, 15 << 20, 1},
        {wide_path, products_path, 64 << 20, 0, 1},
        {wide_path, products_path, MEMORY, 0, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct life life = {.path = cases[i].path,
                            .draft_path = cases[i].draft_path,
                            .memory_bytes = cases[i].memory_bytes,
                            .kv_bytes = cases[i].kv_bytes};

        live(&life, "cuda");
        if ((life.error.status != RUNNEL_OK) != (cases[i].device_layers == 0))
            fail_msg("%s", life.error.message);
        if (life.error.status != RUNNEL_OK)
            assert_non_null(
                strstr(life.error.message, "its steps leave no memory of device \"cuda\" to its KV blocks"));
        assert_int_equal(life.device_layers, cases[i].device_layers);
        assert_int_equal(life.failed, 0);
    }
}

/* ---- Files ---- */

/* No text comes of its tokens: the tokenizer's name becomes "none". */
static void write_model(const char *text, char *path)
{
    static const char key[] = "tokenizer.ggml.model";
    struct writer made = {0};
    size_t at = 0;
    FILE *file;
    int fd;

    made_model_write(text, &made);
    while (at + sizeof key < made.n && memcmp(made.bytes + at, key, sizeof key - 1) != 0)
        at++;
    for (size_t i = at; i < at + 64 && i + 4 < made.n; i++)
        if (memcmp(made.bytes + i, "test", 4) == 0)
            memcpy(made.bytes + i, "none", 4);
    strcpy(path, "/tmp/runnel-faults-XXXXXX");
    fd = mkstemp(path);
    assert_true(fd >= 0);
    file = fdopen(fd, "wb");
    assert_int_equal(fwrite(made.bytes, 1, made.n, file), made.n);
    assert_int_equal(fclose(file), 0);
    w_free(&made);
}

/* What the model on the CPU says to each prompt. */
static void learn(void)
{
    struct life life = {.learns = true};

    open_life(&life);
    life.cpu = begin_load(&life, model_path, "cpu");
    assert_int_equal(runnel_model_wait(life.cpu, -1, NULL), RUNNEL_OK);
    for (int i = 0; i < PROMPTS; i++)
        ask(&life, life.cpu, i, (runnel_session){0});
    close_life(&life);
}

static int setup(void **state)
{
    (void)state;
    find_stubs(&stubs);
    write_model(MADE_TEXT("llama-made-linear"), model_path);
    write_model("tests/gpu/wide_heads.txt", wide_path);
    write_model("tests/gpu/wider_heads.txt", wider_path);
    write_model("tests/gpu/wide_products.txt", products_path);
    strcpy(session_path, "/tmp/runnel-session-XXXXXX");
    assert_true(close(mkstemp(session_path)) == 0);
    learn();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unlink(model_path);
    unlink(wide_path);
    unlink(wider_path);
    unlink(products_path);
    unlink(session_path);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_machines),
        cmocka_unit_test(test_activations),
        cmocka_unit_test(test_each_call),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
