/* Adapters from the host's side: each request gets what its adapter alone would give, whoever runs beside it; nothing
 * of one is used for another, be it in the prefix cache, in a session, in a file or behind a restart; and what is wrong
 * with an adapter is said. What adapters compute, tests/oracle/test_adapters.c judges. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fixture.h"
#include "runnel_files.h"
#include "tests/model/adapter_file.h"

enum { PROMPT = 48, ANSWER = 24, KINDS = 3, RANKS = 4 };

static const char *const names[KINDS] = {NULL, "first", "second"};
static const char *const texts[] = {"Once upon a time there was a small owl", "The old man went to the market"};

static struct {
    char folder[32], paths[KINDS][64], session[64], cache[64];
    runnel_adapter adapters[KINDS - 1];
    int32_t prompt[PROMPT];
    struct capture alone[KINDS]; /* answers to the prompt */
} f;

static runnel_model_options options_of(bool adapted)
{
    runnel_model_options options;

    runnel_model_options_default(&options);
    options.context_tokens = 256;
    if (adapted) {
        options.adapters = f.adapters;
        options.n_adapters = KINDS - 1;
    }
    return options;
}

static runnel_request request_of(int kind, uint32_t n_tokens, struct capture *capture)
{
    runnel_request request = make_request(NULL, ANSWER, capture);

    request.tokens = f.prompt;
    request.n_tokens = n_tokens;
    request.adapter = names[kind];
    request.ignore_eos = 1;
    return request;
}

static void assert_same(const struct capture *capture, int kind)
{
    assert_int_equal(capture->last.type, RUNNEL_EVENT_DONE);
    assert_int_equal(capture->n_tokens, f.alone[kind].n_tokens);
    assert_memory_equal(capture->tokens, f.alone[kind].tokens, capture->n_tokens * sizeof *capture->tokens);
}

static uint64_t ask(runnel_engine *engine, runnel_model *model, int kind)
{
    struct capture capture = {0};
    runnel_request request = request_of(kind, PROMPT, &capture);
    uint64_t cached;

    run_request(engine, model, &request);
    assert_same(&capture, kind);
    cached = capture.last.usage.cached_tokens;
    capture_clear(&capture);
    return cached;
}

/* Each answer by an engine that has seen nothing else. */
static void answer_alone(void)
{
    for (int kind = 0; kind < KINDS; kind++) {
        runnel_model_options options = options_of(kind > 0); /* without, where none is wanted */
        runnel_engine *engine = start_engine(NULL);
        runnel_model *model = load_model(engine, quick_model(), &options);
        runnel_request request = request_of(kind, PROMPT, &f.alone[kind]);

        assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
        assert_int_equal(f.alone[kind].n_tokens, ANSWER);
        runnel_engine_free(engine);
    }
    for (int kind = 0; kind < KINDS; kind++)
        assert_memory_not_equal(f.alone[kind].tokens, f.alone[(kind + 1) % KINDS].tokens, ANSWER * sizeof(int32_t));
}

static void together_as_alone(void **state)
{
    enum { EACH = 3 };
    runnel_model_options options = options_of(true);
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model;
    struct capture captures[KINDS * EACH] = {{0}};
    runnel_stream stream;

    (void)state;
    options.no_prefix_cache = 1;
    model = load_model(engine, quick_model(), &options);
    for (int i = 0; i < KINDS * EACH; i++) {
        runnel_request request = request_of(i % KINDS, PROMPT, &captures[i]);

        assert_int_equal(runnel_generate(model, &request, &stream, NULL), RUNNEL_OK);
    }
    for (int i = 0; i < KINDS * EACH; i++) {
        run_until_end(engine, &captures[i]);
        assert_same(&captures[i], i % KINDS);
        capture_clear(&captures[i]);
    }
    assert_quiet(engine, 0);
    runnel_engine_free(engine);
}

static void blocks_are_not_shared(void **state)
{
    runnel_model_options options = options_of(true);
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model = load_model(engine, quick_model(), &options);

    (void)state;
    for (int again = 0; again < 2; again++)
        for (int kind = 0; kind < KINDS; kind++)
            assert_true((ask(engine, model, kind) > 0) == (again > 0));
    runnel_engine_free(engine);
}

static void blocks_outlive_a_restart(void **state)
{
    (void)state;
    for (int life = 0; life < 2; life++) {
        runnel_model_options options = options_of(true);
        runnel_engine *engine = start_engine(NULL);
        runnel_model *model;
        struct capture capture = {0};

        options.cache_dir = f.cache;
        model = load_model(engine, quick_model(), &options);
        if (life == 0) {
            runnel_request request = request_of(1, PROMPT, &capture);

            request.pin_prefix = 1; /* to the files at once */
            run_request(engine, model, &request);
            assert_same(&capture, 1);
            capture_clear(&capture);
        } else {
            for (int kind = KINDS - 1; kind >= 0; kind--)
                assert_true((ask(engine, model, kind) > 0) == (kind == 1));
        }
        runnel_engine_free(engine); /* what is to be written is written */
    }
}

/* The first tokens of the prompt in a session, with an adapter. */
static runnel_session begin_session(runnel_engine *engine, runnel_model *model, int kind)
{
    struct capture capture = {0};
    runnel_request request = request_of(kind, PROMPT / 2, &capture);
    runnel_session session;

    assert_int_equal(runnel_session_new(model, &session), RUNNEL_OK);
    request.session = session;
    request.max_tokens = 0;
    assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
    capture_clear(&capture);
    return session;
}

/* The others; how many tokens were there. */
static uint64_t end_session(runnel_engine *engine, runnel_model *model, runnel_session session, int kind)
{
    struct capture capture = {0};
    runnel_request request = request_of(kind, PROMPT - PROMPT / 2, &capture);
    uint64_t cached;

    request.tokens = f.prompt + PROMPT / 2;
    request.session = session;
    run_request(engine, model, &request);
    assert_same(&capture, kind);
    cached = capture.last.usage.cached_tokens;
    capture_clear(&capture);
    assert_int_equal(runnel_session_free(model, session), RUNNEL_OK);
    return cached;
}

static void turns_of_two_adapters(void **state)
{
    runnel_model_options options = options_of(true);
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model;

    (void)state;
    options.no_prefix_cache = 1;
    model = load_model(engine, quick_model(), &options);
    for (int first = 0; first < KINDS; first++)
        for (int second = 0; second < KINDS; second++) {
            runnel_session session = begin_session(engine, model, first), copy;

            assert_int_equal(runnel_session_fork(model, session, &copy), RUNNEL_OK);
            assert_int_equal(end_session(engine, model, session, second), first == second ? PROMPT / 2 : 0);
            assert_int_equal(end_session(engine, model, copy, second), first == second ? PROMPT / 2 : 0);
        }
    runnel_engine_free(engine);
}

static void sessions_in_files(void **state)
{
    runnel_model_options options = options_of(true), plain = options_of(false);
    runnel_engine *engine = start_engine(NULL);
    runnel_model *models[2];
    struct capture capture = {0};
    runnel_session_file file;
    runnel_session session;
    runnel_stream stream;

    (void)state;
    options.no_prefix_cache = plain.no_prefix_cache = 1;
    options.kv_bytes = plain.kv_bytes = shared_kv_bytes();
    models[0] = load_model(engine, quick_model(), &options);
    models[1] = load_model(engine, quick_model(), &plain);
    runnel_session_file_default(&file);
    file.path = f.session;
    file.on_event = capture_event;
    file.user = &capture;
    for (int first = 0; first < KINDS; first++) {
        session = begin_session(engine, models[0], first);
        assert_int_equal(runnel_session_export(models[0], session, &file, &stream, NULL), RUNNEL_OK);
        run_until_end(engine, &capture);
        assert_int_equal(capture.last.type, RUNNEL_EVENT_DONE);
        capture_clear(&capture);
        assert_int_equal(runnel_session_free(models[0], session), RUNNEL_OK);
        for (int m = 0; m < 2; m++)
            for (int second = 0; second < (m == 0 ? KINDS : 1); second++) {
                assert_int_equal(runnel_session_import(models[m], &file, &session, &stream, NULL), RUNNEL_OK);
                run_until_end(engine, &capture);
                assert_int_equal(capture.last.type, RUNNEL_EVENT_DONE);
                capture_clear(&capture);
                assert_int_equal(end_session(engine, models[m], session, second), first == second ? PROMPT / 2 : 0);
            }
    }
    runnel_engine_free(engine);
}

static void drafters_change_nothing(void **state)
{
    (void)state;
    for (int guided = 0; guided < 2; guided++) {
        runnel_model_options options = options_of(true);
        runnel_engine *engine = start_engine(NULL);
        runnel_model *model;
        struct capture captures[KINDS] = {{0}};
        runnel_stream stream;

        options.draft_path = guided ? "exit:1" : NULL;
        options.draft_measure_ms = 1;
        model = load_model(engine, quick_model(), &options);
        for (int kind = 0; kind < KINDS; kind++) {
            runnel_request request = request_of(kind, PROMPT, &captures[kind]);

            request.draft = guided ? RUNNEL_DRAFT_MODEL : RUNNEL_DRAFT_NGRAM;
            assert_int_equal(runnel_generate(model, &request, &stream, NULL), RUNNEL_OK);
        }
        for (int kind = 0; kind < KINDS; kind++) {
            run_until_end(engine, &captures[kind]);
            assert_same(&captures[kind], kind);
            capture_clear(&captures[kind]);
        }
        runnel_engine_free(engine);
    }
}

/* ---- Embeddings ---- */

struct vector {
    float values[1024];
    size_t n;
    bool ended;
};

static void on_vector(void *user, const runnel_event *event)
{
    struct vector *vector = user;

    if (event->type == RUNNEL_EVENT_EMBEDDING) {
        vector->n = event->n_embedding;
        assert_true(vector->n <= 1024);
        memcpy(vector->values, event->embedding, vector->n * sizeof(float));
    }
    vector->ended = vector->ended || event->type >= RUNNEL_EVENT_DONE;
}

static void embeddings_have_adapters(void **state)
{
    runnel_model_options options = options_of(true);
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model = load_model(engine, quick_model(), &options);
    struct vector vectors[KINDS] = {{.n = 0}};
    runnel_stream stream;

    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        runnel_embed_request request;

        runnel_embed_request_default(&request);
        request.tokens = f.prompt;
        request.n_tokens = PROMPT;
        request.adapter = names[kind];
        request.on_event = on_vector;
        request.user = &vectors[kind];
        assert_int_equal(runnel_embed(model, &request, &stream, NULL), RUNNEL_OK);
        while (!vectors[kind].ended) {
            runnel_engine_wait(engine, 100);
            runnel_engine_dispatch(engine, 0);
        }
        assert_true(vectors[kind].n > 0);
    }
    for (int kind = 0; kind < KINDS; kind++)
        assert_memory_not_equal(vectors[kind].values, vectors[(kind + 1) % KINDS].values, vectors[0].n * sizeof(float));
    runnel_engine_free(engine);
}

/* ---- What is said ---- */

static void they_are_listed(void **state)
{
    runnel_model_options options = options_of(true);
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model = load_model(engine, quick_model(), &options);
    runnel_adapter adapter;

    (void)state;
    assert_int_equal(runnel_model_adapter(model, 1, &adapter), RUNNEL_OK);
    assert_string_equal(adapter.name, "second");
    assert_string_equal(adapter.path, f.paths[2]);
    assert_true(adapter.scale == 0.75f);
    assert_int_equal(runnel_model_adapter(model, 0, &adapter), RUNNEL_OK);
    assert_true(adapter.scale == 1 && adapter.reserved == 0);
    assert_int_equal(runnel_model_adapter(model, 2, &adapter), RUNNEL_NOT_FOUND);
    assert_int_equal(runnel_model_adapter(model, 0, NULL), RUNNEL_INVALID);
    runnel_engine_free(engine);
}

static void names_that_are_not_there(void **state)
{
    runnel_model_options options = options_of(true);
    runnel_engine *engine = start_engine(NULL);
    runnel_model *model = load_model(engine, quick_model(), &options);
    struct capture capture = {0};
    runnel_request request = request_of(0, PROMPT, &capture);
    runnel_error error = {0};
    runnel_stream stream;

    (void)state;
    request.adapter = "third";
    assert_int_equal(runnel_generate(model, &request, &stream, &error), RUNNEL_NOT_FOUND);
    assert_non_null(strstr(error.message, "adapter"));
    request.adapter = "";
    assert_int_equal(runnel_generate(model, &request, &stream, &error), RUNNEL_NOT_FOUND);
    assert_int_equal(capture.n_events, 0);
    assert_int_equal(ask(engine, model, 1), 0); /* nothing is lost */
    runnel_model_free(model);
    await_models(engine, 0);
    runnel_engine_free(engine);
}

static void options_that_are_wrong(void **state)
{
    const runnel_adapter good = f.adapters[0];
    const struct {
        runnel_adapter adapters[2];
        size_t n;
        runnel_status status;
        const char *says;
    } cases[] = {
        {{good, good}, 2, RUNNEL_INVALID, "two adapters are called first"},
        {{{.path = good.path}}, 1, RUNNEL_INVALID, "name"},
        {{{.name = "", .path = good.path}}, 1, RUNNEL_INVALID, "name"},
        {{{.name = "a\nb", .path = good.path}}, 1, RUNNEL_INVALID, "name"},
        {{{.name = "x"}}, 1, RUNNEL_INVALID, "adapter x has no path"},
        {{{.name = "x", .path = good.path, .scale = NAN}}, 1, RUNNEL_INVALID, "scale of adapter x"},
        {{{.name = "x", .path = good.path, .reserved = 1}}, 1, RUNNEL_INVALID, "reserved"},
        {{{.name = "x", .path = "/nowhere/x.gguf"}}, 1, RUNNEL_IO, "/nowhere/x.gguf"},
        {{good}, RUNNEL_MAX_ADAPTERS + 1, RUNNEL_INVALID, "65 adapters"},
    };
    runnel_engine *engine = start_engine(NULL);
    runnel_model_options options = options_of(false);
    runnel_model *model;
    runnel_error error;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        error = (runnel_error){0};
        options.adapters = cases[i].adapters;
        options.n_adapters = cases[i].n;
        assert_int_equal(runnel_model_load(engine, quick_model(), &options, &model, &error), cases[i].status);
        if (strstr(error.message, cases[i].says) == NULL)
            fail_msg("case %zu: %s", i, error.message);
    }
    options.adapters = NULL;
    options.n_adapters = 1;
    assert_int_equal(runnel_model_load(engine, quick_model(), &options, &model, &error), RUNNEL_INVALID);
    options.adapters = &(runnel_adapter){.name = "x", .path = quick_model()}; /* no adapter, but a model */
    assert_int_equal(runnel_model_load(engine, quick_model(), &options, &model, NULL), RUNNEL_OK);
    assert_int_equal(runnel_model_wait(model, -1, &error), RUNNEL_FORMAT);
    assert_non_null(strstr(error.message, "general.type"));
    runnel_model_free(model);
    await_models(engine, 0);
    runnel_engine_free(engine);
}

static int setup(void **state)
{
    runnel_engine *engine;
    runnel_model *model;
    size_t n = 0, some;

    (void)state;
    strcpy(f.folder, "/tmp/rn_adapters_XXXXXX");
    if (mkdtemp(f.folder) == NULL)
        return 1;
    snprintf(f.session, sizeof f.session, "%s/session", f.folder);
    snprintf(f.cache, sizeof f.cache, "%s/cache", f.folder);
    for (int kind = 1; kind < KINDS; kind++) {
        snprintf(f.paths[kind], sizeof f.paths[kind], "%s/%s.gguf", f.folder, names[kind]);
        adapter_file_write(f.paths[kind], quick_model(), (uint64_t)kind, RANKS + (uint32_t)kind);
        f.adapters[kind - 1] = (runnel_adapter){.name = names[kind], .path = f.paths[kind]};
    }
    f.adapters[1].scale = 0.75f;
    engine = start_engine(NULL);
    model = load_model(engine, quick_model(), NULL);
    for (size_t i = 0; n < PROMPT; i = 1 - i, n += some) {
        if (runnel_tokenize(model, texts[i], strlen(texts[i]), 0, f.prompt + n, PROMPT - n, &some) != RUNNEL_OK)
            return 1;
        if (some > PROMPT - n)
            some = PROMPT - n;
    }
    runnel_engine_free(engine);
    answer_alone();
    return 0;
}

static int teardown(void **state)
{
    char command[64];

    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        capture_clear(&f.alone[kind]);
    snprintf(command, sizeof command, "rm -r %s", f.folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(together_as_alone),        cmocka_unit_test(blocks_are_not_shared),
        cmocka_unit_test(blocks_outlive_a_restart), cmocka_unit_test(turns_of_two_adapters),
        cmocka_unit_test(sessions_in_files),        cmocka_unit_test(drafters_change_nothing),
        cmocka_unit_test(embeddings_have_adapters), cmocka_unit_test(they_are_listed),
        cmocka_unit_test(names_that_are_not_there), cmocka_unit_test(options_that_are_wrong)};

    return run_cases(tests, setup, teardown);
}
