/* An engine with real threads and a model on the CUDA device, emulated: each stream's text alone, in company and on the
 * CPU; and a device that is lost while streams run: they fail, the engine and its other models live. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <math.h>
#include <string.h>

#include <cmocka.h>

#include "tests/actors/embed/embed_judge.h"
#include "tests/actors/fixture.h"
#include "tests/gpu/rigs/real_device.h"
#include "tests/support/shared.h"

enum { STREAMS = 3, TOKENS = 6 };

static const char *const prompts[STREAMS] = {"Once upon a time", "The", "A dog and a cat went"};

static runnel_engine *open_engine(const char *library)
{
    runnel_engine_options options;

    runnel_engine_options_default(&options);
    options.device_library = library;
    return start_engine(&options);
}

static runnel_model *open_model_on(runnel_engine *engine, const char *device)
{
    runnel_model_options options;

    runnel_model_options_default(&options);
    options.device = device;
    options.context_tokens = 128;
    return load_model(engine, BUNDLED_MODEL, &options);
}

static void run_alone(runnel_engine *engine, runnel_model *model, const char *prompt, struct capture *capture)
{
    runnel_request request = make_request(prompt, TOKENS, capture);

    assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
}

static void test_streams(void **state)
{
    const char *real = real_device_library();
    runnel_engine *engine = open_engine(real != NULL ? real : EMULATED_MODULE);
    runnel_model *cuda = open_model_on(engine, "cuda"), *cpu = open_model_on(engine, "cpu");
    struct capture want[STREAMS] = {{0}}, got[STREAMS] = {{0}};
    runnel_request requests[STREAMS];
    runnel_stream stream;

    (void)state;
    for (int i = 0; i < STREAMS; i++) {
        run_alone(engine, cpu, prompts[i], &want[i]);
        requests[i] = make_request(prompts[i], TOKENS, &got[i]);
        assert_int_equal(runnel_generate(cuda, &requests[i], &stream, NULL), RUNNEL_OK);
    }
    for (int i = 0; i < STREAMS; i++) {
        run_until_end(engine, &got[i]);
        assert_int_equal(got[i].last.type, RUNNEL_EVENT_DONE);
        assert_int_equal(got[i].text_bytes, want[i].text_bytes);
        assert_memory_equal(got[i].text, want[i].text, want[i].text_bytes);
        capture_clear(&got[i]);
        run_alone(engine, cuda, prompts[i], &got[i]);
        assert_memory_equal(got[i].text, want[i].text, want[i].text_bytes);
        capture_clear(&got[i]);
        capture_clear(&want[i]);
    }
    runnel_engine_free(engine);
}

/* The model's embeddings are those of the reference on the CPU but for rounding, and the same bits beside a stream. */
static void test_embeddings(void **state)
{
    runnel_engine *engine = open_engine(EMULATED_MODULE);
    runnel_model *cuda = open_model_on(engine, "cuda"), *reference = open_model_on(engine, "reference");
    static struct vector want, alone, beside;
    struct capture capture = {0};
    runnel_request request = make_request(prompts[0], TOKENS, &capture);
    runnel_embed_request embedding;
    double error = 0, squares = 0;
    runnel_stream stream;

    (void)state;
    embed(engine, reference, prompts[2], RUNNEL_POOLING_MEAN, false, &want);
    embed(engine, cuda, prompts[2], RUNNEL_POOLING_MEAN, false, &alone);
    assert_true(want.n > 0 && alone.n == want.n);
    for (uint32_t i = 0; i < want.n; i++) {
        error += ((double)alone.values[i] - want.values[i]) * ((double)alone.values[i] - want.values[i]);
        squares += (double)want.values[i] * want.values[i];
    }
    assert_true(error <= 1e-5 * squares); /* a cache in f16 */
    assert_int_equal(runnel_generate(cuda, &request, &stream, NULL), RUNNEL_OK);
    embedding = embed_request(prompts[2], RUNNEL_POOLING_MEAN, false, &beside);
    embed_submit(cuda, &embedding, &stream);
    embed_await(engine, &beside);
    run_until_end(engine, &capture);
    assert_int_equal(beside.n, alone.n);
    assert_memory_equal(beside.values, alone.values, alone.n * sizeof(float));
    capture_clear(&capture);
    runnel_engine_free(engine);
}

/* Keys and values that are rotated: the greedy text is the reference's. */
static void test_rotated(void **state)
{
    static const runnel_kv_type types[] = {RUNNEL_KV_Q4, RUNNEL_KV_Q3};
    char path[300];

    (void)state;
    if (!shared_find("models/runnel-tiny-draft-Q8_0.gguf", path, sizeof path))
        skip();
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        struct capture captures[2] = {{0}};

        for (int i = 0; i < 2; i++) {
            runnel_engine *engine = open_engine(EMULATED_MODULE);
            runnel_request request = make_request("Once upon a time there was a", 2 * TOKENS, &captures[i]);
            runnel_model_options options;

            runnel_model_options_default(&options);
            options.device = i == 0 ? "reference" : "cuda";
            options.kv_type = types[t];
            options.context_tokens = 128;
            assert_int_equal(run_request(engine, load_model(engine, path, &options), &request), RUNNEL_EVENT_DONE);
            runnel_engine_free(engine);
        }
        assert_true(captures[0].n_tokens == 2 * TOKENS);
        assert_string_equal(captures[1].text, captures[0].text);
        capture_clear(&captures[0]);
        capture_clear(&captures[1]);
    }
}

/* A model and its drafter share a small device, of which nobody has said how much is whose; the text is the model's. */
static void test_drafter(void **state)
{
    struct capture captures[2] = {{0}};
    char path[300];

    (void)state;
    if (!shared_find("models/runnel-tiny-draft-Q8_0.gguf", path, sizeof path))
        skip();
    for (int i = 0; i < 2; i++) {
        runnel_engine *engine = open_engine(EMULATED_MODULE);
        runnel_request request = make_request(prompts[0], TOKENS, &captures[i]);
        runnel_model_options options;

        runnel_model_options_default(&options);
        options.device = "cuda";
        options.context_tokens = 128;
        options.draft_path = i == 0 ? NULL : path;
        request.draft = i == 0 ? RUNNEL_DRAFT_NONE : RUNNEL_DRAFT_MODEL;
        assert_int_equal(run_request(engine, load_model(engine, BUNDLED_MODEL, &options), &request), RUNNEL_EVENT_DONE);
        runnel_engine_free(engine);
    }
    assert_string_equal(captures[1].text, captures[0].text);
    capture_clear(&captures[0]);
    capture_clear(&captures[1]);
}

/* ---- Drawing ---- */

enum { WAYS = 5 };

static void use_way(runnel_request *request, int way)
{
    static const runnel_logit_bias biases[] = {{260, 1.5f}, {262, -INFINITY}, {260, -0.25f}, {300, 2}};
    runnel_sampling *p = &request->sampling;

    p->seed = 77 + (uint64_t)way;
    p->temperature = way == 0 ? 0 : 0.9f;
    p->top_k = way == 1 || way == 4 ? 12 : 0;
    p->top_p = way == 2 || way == 4 ? 0.8f : 1;
    p->min_p = way == 3 ? 0.05f : 0;
    p->biases = biases;
    p->n_biases = way == 1 || way == 4 ? 4 : 0;
    p->repetition_penalty = way >= 3 ? 1.3f : 1;
    p->frequency_penalty = way >= 3 ? 0.2f : 0;
    p->presence_penalty = way == 4 ? 0.5f : 0;
    p->penalty_tokens = way == 4 ? 5 : 0;
    request->ignore_eos = way >= 3;
}

static void expect_same(const struct capture *got, const struct capture *want)
{
    assert_int_equal(got->last.type, RUNNEL_EVENT_DONE);
    assert_int_equal(got->text_bytes, want->text_bytes);
    assert_memory_equal(got->text, want->text, want->text_bytes);
}

/* A sampler that takes next to nothing off behind 64 repeated tokens changes no logit, but such requests are drawn by
 * the host, from the same device's logits: their texts are those that the device draws, all at once and the last one
 * also alone. */
static void test_draws(void **state)
{
    runnel_samplers nothing;
    runnel_engine *engine = open_engine(EMULATED_MODULE);
    runnel_model *cuda = open_model_on(engine, "cuda");
    struct capture want[WAYS] = {{0}}, got[WAYS] = {{0}};
    runnel_request requests[WAYS];
    runnel_stream stream;

    (void)state;
    runnel_samplers_default(&nothing);
    nothing.dry_multiplier = 1e-30f;
    nothing.dry_base = 1;
    nothing.dry_allowed_length = 64;
    for (int i = 0; i < WAYS; i++) {
        struct capture alone = {0};

        requests[i] = make_request(prompts[0], TOKENS, &want[i]);
        use_way(&requests[i], i);
        requests[i].sampling.samplers = &nothing;
        assert_int_equal(run_request(engine, cuda, &requests[i]), RUNNEL_EVENT_DONE);
        if (i < WAYS - 1)
            continue;
        requests[i] = make_request(prompts[0], TOKENS, &alone);
        use_way(&requests[i], i);
        assert_int_equal(run_request(engine, cuda, &requests[i]), RUNNEL_EVENT_DONE);
        expect_same(&alone, &want[i]);
        capture_clear(&alone);
    }
    for (int i = 0; i < WAYS; i++) {
        requests[i] = make_request(prompts[0], TOKENS, &got[i]);
        use_way(&requests[i], i);
        assert_int_equal(runnel_generate(cuda, &requests[i], &stream, NULL), RUNNEL_OK);
    }
    for (int i = 0; i < WAYS; i++) {
        run_until_end(engine, &got[i]);
        expect_same(&got[i], &want[i]);
        capture_clear(&got[i]);
        capture_clear(&want[i]);
    }
    runnel_engine_free(engine);
}

struct to_cancel {
    runnel_engine *engine;
    runnel_stream stream;
};

static void cancel_at_third(struct capture *capture, const runnel_event *event)
{
    struct to_cancel *which = capture->hook_user;

    if (event->type == RUNNEL_EVENT_TOKEN && capture->n_tokens >= 3)
        runnel_stream_cancel(which->engine, which->stream);
}

/* Rows that were computed ahead of an end: by a string, by a cancel, beside a stream that goes on. */
static void test_ends(void **state)
{
    runnel_engine *engine = open_engine(EMULATED_MODULE);
    runnel_model *cuda = open_model_on(engine, "cuda");
    struct capture want = {0}, goes_on = {0}, cut = {0}, cancelled = {0};
    runnel_request request = make_request(prompts[0], 2 * TOKENS, &want), other;
    char stop[3] = {0};
    const char *stops[] = {stop};
    struct to_cancel third = {.engine = engine};
    runnel_stream stream;
    size_t at;

    (void)state;
    assert_int_equal(run_request(engine, cuda, &request), RUNNEL_EVENT_DONE);
    assert_true(want.text_bytes > 12);
    memcpy(stop, want.text + want.text_bytes / 2, 2);
    for (at = 0; memcmp(want.text + at, stop, 2) != 0; at++)
        ;
    request.user = &goes_on;
    assert_int_equal(runnel_generate(cuda, &request, &stream, NULL), RUNNEL_OK);
    other = make_request(prompts[0], 2 * TOKENS, &cut);
    other.stops = stops;
    other.n_stops = 1;
    assert_int_equal(runnel_generate(cuda, &other, &stream, NULL), RUNNEL_OK);
    other = make_request(prompts[2], 4 * TOKENS, &cancelled);
    cancelled.hook = cancel_at_third;
    cancelled.hook_user = &third;
    assert_int_equal(runnel_generate(cuda, &other, &third.stream, NULL), RUNNEL_OK);
    run_until_end(engine, &goes_on);
    run_until_end(engine, &cut);
    run_until_end(engine, &cancelled);
    expect_same(&goes_on, &want);
    assert_int_equal(cut.last.type, RUNNEL_EVENT_DONE);
    assert_int_equal(cut.last.stop, 0);
    assert_int_equal(cut.text_bytes, at);
    assert_memory_equal(cut.text, want.text, at);
    assert_int_equal(cancelled.n_terminal, 1); /* the end of the answer may have been on its way */
    assert_int_not_equal(cancelled.last.type, RUNNEL_EVENT_FAILED);
    capture_clear(&want);
    capture_clear(&goes_on);
    capture_clear(&cut);
    capture_clear(&cancelled);
    runnel_engine_free(engine);
}

static void expect_lost(runnel_engine *engine, runnel_model *model)
{
    struct capture capture = {0};
    runnel_request request = make_request(prompts[0], TOKENS, &capture);

    assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_FAILED);
    assert_int_equal(capture.n_terminal, 1);
    assert_int_equal(capture.last.status, RUNNEL_DEVICE);
    capture_clear(&capture);
}

static void test_lost_device(void **state)
{
    void *library = dlopen(FAILING_MODULE, RTLD_NOW | RTLD_LOCAL);
    int64_t *left = library == NULL ? NULL : dlsym(library, "failing_launches_left");
    runnel_engine *engine = open_engine(FAILING_MODULE);
    runnel_model *cuda = open_model_on(engine, "auto"), *cpu = open_model_on(engine, "cpu");
    struct capture capture = {0}, want = {0};

    (void)state;
    assert_non_null(left);
    run_alone(engine, cuda, prompts[1], &capture);
    capture_clear(&capture);
    __atomic_store_n(left, 40, __ATOMIC_RELAXED);
    expect_lost(engine, cuda);
    expect_lost(engine, cuda);
    run_alone(engine, cpu, prompts[1], &capture);
    capture_clear(&capture);
    runnel_model_free(cuda);
    await_models(engine, 1);
    run_alone(engine, cpu, prompts[2], &want);
    runnel_model_free(open_model_on(engine, "auto")); /* opened anew it fails anew: on the CPU */
    await_models(engine, 1);
    __atomic_store_n(left, INT64_MAX, __ATOMIC_RELAXED);
    cuda = open_model_on(engine, "cuda");
    run_alone(engine, cuda, prompts[2], &capture);
    assert_int_equal(capture.text_bytes, want.text_bytes);
    assert_memory_equal(capture.text, want.text, want.text_bytes);
    capture_clear(&capture);
    capture_clear(&want);
    runnel_engine_free(engine);
    dlclose(library);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_streams), cmocka_unit_test(test_embeddings),  cmocka_unit_test(test_draws),
        cmocka_unit_test(test_ends),    cmocka_unit_test(test_lost_device), cmocka_unit_test(test_rotated),
        cmocka_unit_test(test_drafter),
    };

    if (real_device_library() != NULL) /* which is not lost at will */
        return _cmocka_run_group_tests("on a GPU", tests, 1, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
