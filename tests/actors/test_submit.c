/* Law 4, first half: a submit that returns an error never calls back, names what is wrong, and leaves
 * nothing behind. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fixture.h"

static runnel_engine *engine;
static runnel_model *model, *words; /* words: of the same file, without weights, while it is needed */

static int setup(void **state)
{
    (void)state;
    engine = start_engine(NULL);
    model = load_model(engine, BUNDLED_MODEL, NULL);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    assert_quiet(engine, 0);
    runnel_engine_free(engine);
    return 0;
}

/* The request is refused with that status and a sentence that has `word` in it; nothing is called back. */
static void refused(const runnel_request *request, runnel_status status, const char *word)
{
    runnel_stream stream = {0};
    runnel_error error = {0};
    runnel_engine_stats before = {.struct_size = sizeof before}, after = {.struct_size = sizeof after};

    runnel_engine_get_stats(engine, &before);
    assert_int_equal(runnel_generate(model, request, &stream, &error), status);
    assert_int_equal(error.status, status);
    if (strstr(error.message, word) == NULL)
        fail_msg("\"%s\" does not name \"%s\"", error.message, word);
    runnel_engine_wait(engine, 2);
    assert_int_equal(runnel_engine_dispatch(engine, 0), 0);
    runnel_engine_get_stats(engine, &after);
    assert_int_equal(before.heap_bytes, after.heap_bytes);
    assert_int_equal(after.streams, 0);
}

static void on_event_never(void *user, const runnel_event *event)
{
    (void)user;
    (void)event;
    fail_msg("a refused request called back");
}

static runnel_request base_request(void)
{
    runnel_request request = make_request("Once upon a time", 4, NULL);

    request.on_event = on_event_never;
    return request;
}

static void prompts(void **state)
{
    static const int32_t bad_low[] = {1, -1}, bad_high[] = {1, 1 << 30}, good[] = {1, 2};
    runnel_request request = base_request();
    char *longer = malloc(1 << 20);

    (void)state;
    memset(longer, 'a', 1 << 20);
    request.prompt = "\xff\xfe";
    request.prompt_bytes = 2;
    refused(&request, RUNNEL_INVALID, "UTF-8");
    request.prompt = "\xc0\x80";
    refused(&request, RUNNEL_INVALID, "UTF-8");
    request.prompt = "\xed\xa0\x80";
    request.prompt_bytes = 3;
    refused(&request, RUNNEL_INVALID, "UTF-8");
    request.prompt = NULL;
    refused(&request, RUNNEL_INVALID, "prompt_bytes");
    request.prompt = longer;
    request.prompt_bytes = 64 << 10;
    refused(&request, RUNNEL_CONTEXT, "tokens");
    request = base_request();
    request.tokens = good;
    request.n_tokens = 2;
    refused(&request, RUNNEL_INVALID, "more than one");
    request.prompt = NULL;
    request.prompt_bytes = 0;
    request.n_tokens = 0;
    refused(&request, RUNNEL_INVALID, "empty");
    request.tokens = bad_low;
    request.n_tokens = 2;
    refused(&request, RUNNEL_INVALID, "tokens[1]");
    request.tokens = bad_high;
    refused(&request, RUNNEL_INVALID, "tokens[1]");
    request.tokens = NULL;
    refused(&request, RUNNEL_INVALID, "n_tokens");
    free(longer);
}

/* The host's thread does not tokenize a long text to say that it is too long. */
static void long_text(void **state)
{
    enum { BYTES = (64 << 10) + 1 };
    struct capture capture = {0};
    runnel_request request = make_request(NULL, 4, &capture);
    char *text = malloc(BYTES);

    (void)state;
    memset(text, 'a', BYTES);
    request.prompt = text;
    request.prompt_bytes = BYTES;
    assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_FAILED);
    assert_int_equal(capture.last.status, RUNNEL_CONTEXT);
    assert_non_null(strstr(capture.error, "tokens"));
    capture_clear(&capture);
    free(text);
}

/* A context of exactly n tokens takes a prompt of n - 1 and refuses n, by tokens and by text. */
static void context_boundary(void **state)
{
    runnel_model_options options;
    runnel_model *small;
    runnel_stream stream;
    runnel_error error;
    struct capture capture = {0};
    runnel_request request;
    int32_t tokens[64];

    (void)state;
    runnel_model_options_default(&options);
    options.context_tokens = 40;
    small = load_model(engine, BUNDLED_MODEL, &options);
    for (int i = 0; i < 64; i++)
        tokens[i] = 300 + i;
    request = make_request(NULL, -1, &capture);
    request.tokens = tokens;
    request.n_tokens = 40;
    assert_int_equal(runnel_generate(small, &request, &stream, &error), RUNNEL_CONTEXT);
    request.n_tokens = 39;
    request.ignore_eos = 1;
    assert_int_equal(run_request(engine, small, &request), RUNNEL_EVENT_DONE);
    assert_int_equal(capture.last.finish, RUNNEL_FINISH_LENGTH);
    assert_int_equal(capture.n_tokens, 1);
    capture_clear(&capture);
    request.n_tokens = 40;
    request.max_tokens = 0;
    assert_int_equal(run_request(engine, small, &request), RUNNEL_EVENT_DONE);
    assert_int_equal(capture.n_tokens, 0);
    assert_int_equal(capture.last.usage.prompt_tokens, 40);
    capture_clear(&capture);
    runnel_model_free(small);
    await_models(engine, 1);
}

/* runnel_sampling_check says the same, of a model without weights, too. */
static void refused_sampling(runnel_request *request, const char *word)
{
    runnel_error submitted = {0}, checked = {0};
    runnel_stream stream;

    refused(request, RUNNEL_INVALID, word);
    assert_int_equal(runnel_generate(model, request, &stream, &submitted), RUNNEL_INVALID);
    assert_int_equal(runnel_sampling_check(words, request, &checked), RUNNEL_INVALID);
    assert_string_equal(checked.message, submitted.message);
}

static void bad_floats(float *field, const float *values, size_t n, runnel_request *request, const char *name)
{
    float keep = *field;

    for (size_t i = 0; i < n; i++) {
        *field = values[i];
        refused_sampling(request, name);
    }
    *field = keep;
}

static void sampling(void **state)
{
    runnel_request r = base_request();
    const float below[] = {NAN, INFINITY, -INFINITY, -1.0f};
    const float shares[] = {NAN, -0.5f, 1.5f, INFINITY};
    const float zero[] = {0.0f, -1.0f, NAN, INFINITY};
    const float any[] = {NAN, INFINITY, -INFINITY};
    runnel_logit_bias bias = {1, NAN};
    runnel_model_options vocabulary;
    runnel_samplers samplers;
    runnel_error error = {0};

    (void)state;
    runnel_model_options_default(&vocabulary);
    vocabulary.vocab_only = 1;
    words = load_model(engine, BUNDLED_MODEL, &vocabulary);
    assert_int_equal(runnel_sampling_check(words, &r, &error), RUNNEL_OK);
    bad_floats(&r.sampling.temperature, below, 4, &r, "temperature");
    bad_floats(&r.sampling.top_p, shares, 4, &r, "top_p");
    bad_floats(&r.sampling.min_p, shares, 4, &r, "min_p");
    bad_floats(&r.sampling.repetition_penalty, zero, 4, &r, "repetition_penalty");
    bad_floats(&r.sampling.frequency_penalty, any, 3, &r, "frequency_penalty");
    bad_floats(&r.sampling.presence_penalty, any, 3, &r, "presence_penalty");
    r.sampling.biases = &bias;
    r.sampling.n_biases = 1;
    refused_sampling(&r, "bias");
    bias = (runnel_logit_bias){-1, 0.0f};
    refused_sampling(&r, "bias");
    bias = (runnel_logit_bias){1 << 30, 0.0f};
    refused_sampling(&r, "bias");
    r.sampling.n_biases = 0;
    runnel_samplers_default(&samplers);
    r.sampling.samplers = &samplers;
    samplers.order = "top_k,best";
    refused_sampling(&r, "best");
    samplers.order = "top_k,top_k";
    refused_sampling(&r, "top_k");
    samplers.order = "min_p;top_k";
    assert_int_equal(runnel_sampling_check(words, &r, &error), RUNNEL_OK);
    samplers.mirostat = 3;
    refused_sampling(&r, "mirostat");
    r.struct_size = 4;
    assert_int_equal(runnel_sampling_check(words, &r, &error), RUNNEL_INVALID);
    runnel_model_free(words);
    await_models(engine, 1);
}

static void limits(void **state)
{
    static const char *const empty[] = {""}, *const null[] = {NULL}, *const broken[] = {"\xff"};
    static const int32_t stop[] = {1 << 30};
    static const char *many[RUNNEL_MAX_STOPS + 1];
    char longer[RUNNEL_MAX_STOP_BYTES + 2];
    const char *const too_long[] = {longer};
    runnel_request r = base_request();
    runnel_samplers samplers;

    (void)state;
    r.max_tokens = -2;
    refused(&r, RUNNEL_INVALID, "max_tokens");
    r = base_request();
    r.want_logprobs = 1;
    r.n_top = RUNNEL_MAX_TOP_LOGPROBS + 1;
    refused(&r, RUNNEL_INVALID, "n_top");
    r.n_top = 1;
    r.want_logprobs = 0;
    refused(&r, RUNNEL_INVALID, "n_top");
    r = base_request();
    r.stops = empty;
    r.n_stops = 1;
    refused(&r, RUNNEL_INVALID, "stops[0]");
    r.stops = null;
    refused(&r, RUNNEL_INVALID, "stops[0]");
    r.stops = broken;
    refused(&r, RUNNEL_INVALID, "stops[0]");
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    r.stops = too_long;
    refused(&r, RUNNEL_INVALID, "stops[0]");
    r.stops = many;
    r.n_stops = RUNNEL_MAX_STOPS + 1;
    refused(&r, RUNNEL_INVALID, "stops: at most 256");
    r = base_request();
    r.n_stops = 3;
    refused(&r, RUNNEL_INVALID, "stops is NULL but n_stops is 3");
    r = base_request();
    r.n_stop_tokens = 3;
    refused(&r, RUNNEL_INVALID, "stop_tokens is NULL but n_stop_tokens is 3");
    r = base_request();
    r.stop_tokens = stop;
    r.n_stop_tokens = 1;
    refused(&r, RUNNEL_INVALID, "stop_tokens[0]");
    r = base_request();
    r.session.id = 12345;
    refused(&r, RUNNEL_NOT_FOUND, "session");
    r = base_request();
    r.struct_size = 4;
    refused(&r, RUNNEL_INVALID, "struct_size");
    r.struct_size = sizeof r - 4; /* half a pointer */
    refused(&r, RUNNEL_INVALID, "struct_size");
    r = base_request();
    runnel_samplers_default(&samplers);
    samplers.dry_breakers = broken;
    samplers.n_dry_breakers = 1;
    r.sampling.samplers = &samplers;
    refused(&r, RUNNEL_INVALID, "dry_breakers[0]: not UTF-8");
    r.struct_size = sizeof r + 8;
    refused(&r, RUNNEL_INVALID, "struct_size");
}

/* Biases that leave no token are named. */
static void forbidden(void **state)
{
    struct capture capture = {0};
    runnel_request request = make_request("Hello", 2, &capture);
    runnel_model_info info = {.struct_size = sizeof info};
    runnel_logit_bias *biases;

    (void)state;
    assert_int_equal(runnel_model_get_info(model, &info), RUNNEL_OK);
    biases = calloc(info.vocab_tokens, sizeof *biases);
    assert_non_null(biases);
    for (uint32_t i = 0; i < info.vocab_tokens; i++)
        biases[i] = (runnel_logit_bias){(int32_t)i, -INFINITY};
    request.sampling.biases = biases;
    request.sampling.n_biases = info.vocab_tokens;
    assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_FAILED);
    assert_int_equal(capture.last.status, RUNNEL_NUMERIC);
    assert_non_null(strstr(capture.error, "biases"));
    capture_clear(&capture);
    free(biases);
}

/* All slots taken: BUSY at once, and a slot that is free again can be used. */
static void busy(void **state)
{
    runnel_engine_options options;
    runnel_engine *small;
    runnel_model *m;
    struct capture captures[3] = {{0}};
    runnel_stream streams[3], extra;
    runnel_error error;
    runnel_request request;

    (void)state;
    runnel_engine_options_default(&options);
    options.max_streams = 3;
    small = start_engine(&options);
    m = load_model(small, BUNDLED_MODEL, NULL);
    for (int i = 0; i < 3; i++) {
        request = make_request("The owl", 2000, &captures[i]);
        request.ignore_eos = 1;
        assert_int_equal(runnel_generate(m, &request, &streams[i], &error), RUNNEL_OK);
    }
    assert_int_equal(runnel_generate(m, &request, &extra, &error), RUNNEL_BUSY);
    for (int i = 0; i < 3; i++)
        assert_int_equal(runnel_stream_cancel(small, streams[i]), RUNNEL_OK);
    for (int i = 0; i < 3; i++)
        run_until_end(small, &captures[i]);
    capture_clear(&captures[0]);
    request = make_request("The owl", 3, &captures[0]);
    assert_int_equal(run_request(small, m, &request), RUNNEL_EVENT_DONE);
    for (int i = 0; i < 3; i++)
        capture_clear(&captures[i]);
    assert_quiet(small, 0);
    runnel_engine_free(small);
}

static void stale_handles(void **state)
{
    struct capture capture = {0};
    runnel_request request = make_request("Hello", 2, &capture);
    runnel_stream stream;
    runnel_event event;

    (void)state;
    assert_int_equal(runnel_generate(model, &request, &stream, NULL), RUNNEL_OK);
    run_until_end(engine, &capture);
    assert_int_equal(runnel_stream_cancel(engine, stream), RUNNEL_NOT_FOUND);
    assert_int_equal(runnel_stream_pause(engine, stream), RUNNEL_NOT_FOUND);
    assert_int_equal(runnel_stream_resume(engine, stream), RUNNEL_NOT_FOUND);
    assert_int_equal(runnel_stream_next(engine, stream, 0, &event), RUNNEL_NOT_FOUND);
    assert_int_equal(runnel_stream_cancel(engine, (runnel_stream){0}), RUNNEL_NOT_FOUND);
    assert_int_equal(runnel_stream_cancel(engine, (runnel_stream){UINT64_MAX}), RUNNEL_NOT_FOUND);
    assert_int_equal(runnel_session_free(model, (runnel_session){0}), RUNNEL_NOT_FOUND);
    capture_clear(&capture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(prompts),          cmocka_unit_test(long_text),
                                       cmocka_unit_test(context_boundary), cmocka_unit_test(sampling),
                                       cmocka_unit_test(limits),           cmocka_unit_test(busy),
                                       cmocka_unit_test(stale_handles),    cmocka_unit_test(forbidden)};

    return cmocka_run_group_tests(tests, setup, teardown);
}
