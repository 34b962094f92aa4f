/* Models that are split between the CPU and the CUDA device, emulated, through the engine: the greedy text is that of
 * the whole model, alone and in company; what does not fit is split without being asked; what cannot be asked for is
 * refused with a sentence; a device that is lost fails the streams, and the engine lives. Texts of more kinds of
 * requests are compared by the tests gpu_actors_split_*. */
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/actors/fixture.h"

enum { STREAMS = 3, TOKENS = 4, CONTEXT = 128 };

/* What the log has said, by any thread. */
static char logged[4096];
static pthread_mutex_t logging = PTHREAD_MUTEX_INITIALIZER;

static void on_log(void *user, runnel_log_level level, const char *message)
{
    size_t n;

    (void)user;
    (void)level;
    pthread_mutex_lock(&logging);
    n = strlen(logged);
    snprintf(logged + n, sizeof logged - n, "%s\n", message);
    pthread_mutex_unlock(&logging);
}

static runnel_engine *open_engine(const char *library)
{
    runnel_engine_options options;

    logged[0] = '\0';
    runnel_engine_options_default(&options);
    options.device_library = library;
    options.on_log = on_log;
    options.log_level = RUNNEL_LOG_INFO;
    return start_engine(&options);
}

static runnel_model_options options_on(const char *device, uint32_t layers)
{
    runnel_model_options options;

    runnel_model_options_default(&options);
    options.device = device;
    options.device_layers = layers;
    options.context_tokens = CONTEXT;
    return options;
}

static runnel_model_info info_of(runnel_model *model)
{
    runnel_model_info info = {.struct_size = sizeof info};

    assert_int_equal(runnel_model_get_info(model, &info), RUNNEL_OK);
    return info;
}

/* The last stream wants tokens again that have come: "It u u r r", where the step before draws the first "r". */
static runnel_request request_of(int stream, struct capture *capture)
{
    static const char *const prompts[STREAMS] = {"The", "Once upon a time", "It"};
    runnel_request request = make_request(prompts[stream], TOKENS, capture);

    if (stream == STREAMS - 1)
        request.sampling.repetition_penalty = 0.5f;
    return request;
}

static void run_alone(runnel_engine *engine, runnel_model *model, int stream, struct capture *capture)
{
    runnel_request request = request_of(stream, capture);

    assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
}

static void expect_same(const struct capture *got, const struct capture *want)
{
    assert_int_equal(got->last.type, RUNNEL_EVENT_DONE);
    assert_int_equal(got->text_bytes, want->text_bytes);
    assert_memory_equal(got->text, want->text, want->text_bytes);
}

/* Each prompt alone and all at once. */
static void expect_texts(runnel_engine *engine, runnel_model *model, const struct capture want[STREAMS])
{
    struct capture alone[STREAMS] = {{0}}, got[STREAMS] = {{0}};
    runnel_request requests[STREAMS];
    runnel_stream stream;

    for (int i = 0; i < STREAMS; i++) {
        run_alone(engine, model, i, &alone[i]);
        expect_same(&alone[i], &want[i]);
        capture_clear(&alone[i]);
    }
    for (int i = 0; i < STREAMS; i++) {
        requests[i] = request_of(i, &got[i]);
        assert_int_equal(runnel_generate(model, &requests[i], &stream, NULL), RUNNEL_OK);
    }
    for (int i = 0; i < STREAMS; i++) {
        run_until_end(engine, &got[i]);
        expect_same(&got[i], &want[i]);
        capture_clear(&got[i]);
    }
}

static void texts_of(runnel_engine *engine, const char *device, struct capture texts[STREAMS])
{
    const runnel_model_options options = options_on(device, 0);
    runnel_model *model = load_model(engine, BUNDLED_MODEL, &options);

    for (int i = 0; i < STREAMS; i++)
        run_alone(engine, model, i, &texts[i]);
    runnel_model_free(model);
}

static void clear_texts(struct capture texts[STREAMS])
{
    for (int i = 0; i < STREAMS; i++)
        capture_clear(&texts[i]);
}

/* ---- Tests ---- */

static void test_layers(void **state)
{
    static const uint32_t layers[] = {1, 3};
    runnel_engine *engine = open_engine(EMULATED_MODULE);
    struct capture want[STREAMS] = {{0}};

    (void)state;
    texts_of(engine, "cpu", want);
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++) {
        const runnel_model_options options = options_on("cuda", layers[i]);
        runnel_model *model = load_model(engine, BUNDLED_MODEL, &options);
        runnel_model_info info = info_of(model);

        assert_int_equal(info.device_layers, layers[i]);
        assert_true(info.layers > layers[i]);
        expect_texts(engine, model, want);
        runnel_model_free(model);
        await_models(engine, 0);
    }
    assert_non_null(strstr(logged, "are computed on the CPU, the others on cuda"));
    clear_texts(want);
    runnel_engine_free(engine);
}

/* Memory for keys and values that the device alone does not have: some layers stay with the CPU. All of them on the
 * device are refused by name. */
static void test_too_large(void **state)
{
    enum { KV = 300 << 20 };
    runnel_engine *engine = open_engine(EMULATED_MODULE);
    runnel_model_options options = options_on("cuda", 0);
    struct capture want[STREAMS] = {{0}};
    runnel_error error = {0};
    runnel_model *model;
    runnel_model_info info;

    (void)state;
    texts_of(engine, "cpu", want);
    options.kv_bytes = KV;
    model = load_model(engine, BUNDLED_MODEL, &options);
    info = info_of(model);
    assert_true(info.device_layers > 0 && info.device_layers < info.layers);
    expect_texts(engine, model, want);
    runnel_model_free(model);
    options.device_layers = info.layers;
    assert_int_equal(runnel_model_load(engine, BUNDLED_MODEL, &options, &model, &error), RUNNEL_OK);
    assert_int_equal(runnel_model_wait(model, -1, &error), RUNNEL_NO_MEMORY);
    assert_non_null(strstr(error.message, "no memory"));
    runnel_model_free(model);
    clear_texts(want);
    runnel_engine_free(engine);
}

static void expect_refusal(runnel_engine *engine, const char *device, uint32_t layers, runnel_status status,
                           const char *part)
{
    const runnel_model_options options = options_on(device, layers);
    runnel_error error = {0};
    runnel_model *model;

    assert_int_equal(runnel_model_load(engine, BUNDLED_MODEL, &options, &model, &error), RUNNEL_OK);
    assert_int_equal(runnel_model_wait(model, -1, &error), status);
    if (strstr(error.message, part) == NULL)
        fail_msg("%s", error.message);
    runnel_model_free(model);
}

static void test_refused(void **state)
{
    runnel_engine *engine = open_engine(EMULATED_MODULE);
    runnel_model_options options = options_on("cuda", 1);
    runnel_error error = {0};
    runnel_model *model;

    (void)state;
    expect_refusal(engine, "cuda", 1000, RUNNEL_INVALID, "device_layers 1000 are more than the");
    expect_refusal(engine, "cuda", UINT32_MAX, RUNNEL_INVALID, "device_layers 4294967295 are more than the");
    expect_refusal(engine, "auto", 1000, RUNNEL_INVALID, "device_layers 1000 are more than the");
    expect_refusal(engine, "cpu", 1, RUNNEL_INVALID, "device \"cpu\" has no memory of its own");
    expect_refusal(engine, NULL, 1, RUNNEL_INVALID, "device \"cpu\" has no memory of its own");
    expect_refusal(engine, "reference", 1, RUNNEL_INVALID, "device \"reference\" has no memory of its own");
    options.kv_bytes = (uint64_t)1 << 60; /* more than either side has */
    assert_int_equal(runnel_model_load(engine, BUNDLED_MODEL, &options, &model, &error), RUNNEL_OK);
    assert_int_equal(runnel_model_wait(model, -1, &error), RUNNEL_NO_MEMORY);
    runnel_model_free(model);
    options.kv_bytes = 1;
    assert_int_equal(runnel_model_load(engine, BUNDLED_MODEL, &options, &model, &error), RUNNEL_OK);
    assert_int_equal(runnel_model_wait(model, -1, &error), RUNNEL_INVALID);
    runnel_model_free(model);
    runnel_engine_free(engine);
}

/* Without a device "auto" takes the CPU, however many layers were meant for the device. */
static void test_auto(void **state)
{
    const runnel_model_options options = options_on("auto", 1);
    runnel_engine *engine = open_engine("/nowhere/librunnel-cuda.so");
    runnel_model *model = load_model(engine, BUNDLED_MODEL, &options);
    struct capture capture = {0};

    (void)state;
    assert_int_equal(info_of(model).device_layers, 0);
    run_alone(engine, model, 0, &capture);
    capture_clear(&capture);
    runnel_engine_free(engine);
}

static void test_lost_device(void **state)
{
    void *library = dlopen(FAILING_MODULE, RTLD_NOW | RTLD_LOCAL);
    int64_t *left = library == NULL ? NULL : dlsym(library, "failing_launches_left");
    runnel_engine *engine = open_engine(FAILING_MODULE);
    const runnel_model_options options = options_on("cuda", 1), whole = options_on("cpu", 0);
    runnel_model *split = load_model(engine, BUNDLED_MODEL, &options);
    runnel_model *cpu = load_model(engine, BUNDLED_MODEL, &whole);
    struct capture capture = {0}, lost = {0};
    runnel_request request = request_of(0, &lost);

    (void)state;
    assert_non_null(left);
    run_alone(engine, split, 1, &capture);
    capture_clear(&capture);
    __atomic_store_n(left, 20, __ATOMIC_RELAXED);
    assert_int_equal(run_request(engine, split, &request), RUNNEL_EVENT_FAILED);
    assert_int_equal(lost.last.status, RUNNEL_DEVICE);
    capture_clear(&lost);
    runnel_model_free(split);
    await_models(engine, 1);
    run_alone(engine, cpu, 0, &capture);
    capture_clear(&capture);
    runnel_engine_free(engine);
    dlclose(library);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_layers), cmocka_unit_test(test_too_large),
                                       cmocka_unit_test(test_refused), cmocka_unit_test(test_auto),
                                       cmocka_unit_test(test_lost_device)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
