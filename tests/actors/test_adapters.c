/* Adapters from the host's side: each request gets what its adapter alone would give, whoever runs beside it; nothing
 * of one is used for another, be it in the prefix cache, in a session, in a file or behind a restart; and what is wrong
 * with an adapter is said. What adapters compute, tests/oracle/test_adapters.c judges. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache/store/fingerprint.h"
#include "fixture.h"
#include "runnel_files.h"
#include "tests/base/whole_file.h"
#include "tests/model/adapter_file.h"
#include "tests/oracle/made_model.h"

enum { PROMPT = 48, ANSWER = 24, KINDS = 3, RANKS = 4 };

static const char *const names[KINDS] = {NULL, "first", "second"};
static const char *const texts[] = {"Once upon a time there was a small owl", "The old man went to the market"};

static struct {
    char folder[32], paths[KINDS][64], session[64], cache[64], twins[2][64], model[64], lone[64];
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

/* ---- Files that differ little ---- */

/* Every byte of a file counts, and its scale. */
static void fingerprints_tell_all_bytes(void **state)
{
    enum { STEP = 61, RANK = 16 };
    static const char *const names_of[] = {"blk.0.attn_q.weight"};
    struct rn_fingerprint print, other;
    struct rn_heap heap;
    struct rn_gguf *gguf;
    char *bytes;
    size_t n;

    (void)state;
    rn_heap_init(&heap, NULL);
    adapter_file_write_of(f.twins[0], quick_model(), names_of, 1, 3, RANK);
    bytes = read_whole_new(f.twins[0], &n);
    assert_int_equal(rn_gguf_parse(&heap, bytes, n, "adapter", &gguf, NULL), RUNNEL_OK);
    assert_true(rn_gguf_tensor(gguf, 0)->bytes > 4096);
    print = rn_fingerprint_adapter(gguf, 1);
    for (uint64_t t = 0; t < rn_gguf_n_tensors(gguf); t++) {
        const struct rn_tensor *tensor = rn_gguf_tensor(gguf, t);

        for (uint64_t i = 0; i < tensor->bytes; i += STEP) {
            char *byte = bytes + ((const char *)tensor->data - bytes) + i;

            *byte ^= 1;
            other = rn_fingerprint_adapter(gguf, 1);
            assert_false(rn_fingerprint_equal(&print, &other));
            *byte ^= 1;
        }
    }
    other = rn_fingerprint_adapter(gguf, 1);
    assert_true(rn_fingerprint_equal(&print, &other));
    other = rn_fingerprint_adapter(gguf, 0.5f);
    assert_false(rn_fingerprint_equal(&print, &other));
    rn_gguf_free(gguf);
    free(bytes);
}

/* Two files of which one has another byte, in the midst of a tensor that is too long for looks at a few places to find
 * it: the highest of a number of B, which becomes large. */
static void write_twins(void)
{
    enum { RANK = 48 };
    const struct rn_tensor *tensor;
    struct rn_heap heap;
    struct rn_gguf *gguf;
    char *bytes;
    size_t n, at;

    rn_heap_init(&heap, NULL);
    adapter_file_write(f.twins[0], quick_model(), 9, RANK);
    bytes = read_whole_new(f.twins[0], &n);
    assert_int_equal(rn_gguf_parse(&heap, bytes, n, "adapter", &gguf, NULL), RUNNEL_OK);
    tensor = rn_gguf_find_tensor(gguf, "blk.0.ffn_down.weight.lora_b");
    assert_true(tensor != NULL && tensor->bytes > 8192);
    at = (size_t)((const char *)tensor->data - bytes) + (size_t)(tensor->bytes - 64) / 15 / 2 / 4 * 4 + 3;
    assert_true(bytes[at] != 0x42);
    bytes[at] = 0x42; /* 32 to 128 */
    write_whole(f.twins[1], bytes, n);
    rn_gguf_free(gguf);
    free(bytes);
}

static void twins_share_no_blocks(void **state)
{
    runnel_model_options options = options_of(false);
    runnel_adapter both[2];
    struct capture alone[2] = {{0}}, behind = {0};
    runnel_engine *engine;
    runnel_model *model;

    (void)state;
    write_twins();
    for (int i = 0; i < 2; i++)
        both[i] = (runnel_adapter){.name = names[i + 1], .path = f.twins[i]};
    options.adapters = both;
    options.n_adapters = 2;
    for (int i = 0; i < 2; i++) {
        runnel_request request = request_of(i + 1, PROMPT, &alone[i]);

        engine = start_engine(NULL);
        model = load_model(engine, quick_model(), &options);
        assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
        if (i == 1) {
            runnel_request again = request_of(1, PROMPT, &behind); /* the first one, behind the other */

            assert_int_equal(run_request(engine, model, &again), RUNNEL_EVENT_DONE);
        }
        runnel_engine_free(engine);
    }
    assert_memory_not_equal(alone[0].tokens, alone[1].tokens, ANSWER * sizeof(int32_t));
    assert_int_equal(behind.last.usage.cached_tokens, 0);
    assert_int_equal(behind.n_tokens, ANSWER);
    assert_memory_equal(behind.tokens, alone[0].tokens, ANSWER * sizeof(int32_t));
    capture_clear(&behind);
    for (int i = 0; i < 2; i++)
        capture_clear(&alone[i]);
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

/* ---- What is passed over, and loads that are cancelled ---- */

/* Holds the load in the line that is passed over, until it is let go. */
struct listener {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool holds, is_there;
    unsigned n_passed, n_loaded, n_large; /* lines, and allocations behind the first one that has n_passed */
};

/* Rank of the adapter that is passed over in part; no allocation beside its stacks is as large as one. */
enum { WIDE = 4096, LARGE = 2 * WIDE * 32 * 4 };

static void *heard_alloc(void *user, size_t bytes, size_t alignment)
{
    struct listener *l = user;

    pthread_mutex_lock(&l->mutex);
    l->n_large += l->is_there && bytes >= LARGE;
    pthread_mutex_unlock(&l->mutex);
    return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void heard_free(void *user, void *ptr, size_t bytes)
{
    (void)user;
    (void)bytes;
    free(ptr);
}

static void on_line(void *user, runnel_log_level level, const char *line)
{
    struct listener *l = user;

    (void)level;
    pthread_mutex_lock(&l->mutex);
    if (strstr(line, "tensor blk.21.attn_k.weight is passed over") != NULL) {
        assert_ptr_equal(strstr(line, f.lone), line);
        l->n_passed++;
        l->is_there = true;
        pthread_cond_broadcast(&l->changed);
        while (l->holds)
            pthread_cond_wait(&l->changed, &l->mutex);
    }
    l->n_loaded += strstr(line, "1 adapters, in") != NULL;
    pthread_mutex_unlock(&l->mutex);
}

static runnel_engine *start_heard(struct listener *listener)
{
    runnel_engine_options options;

    runnel_engine_options_default(&options);
    options.on_log = on_line;
    options.log_user = listener;
    options.log_level = RUNNEL_LOG_INFO;
    options.allocator = (runnel_allocator){heard_alloc, heard_free, listener};
    return start_engine(&options);
}

/* Keys of blocks that take another's keys, beside queries. */
static void write_unread(runnel_adapter *adapter, bool unread)
{
    static const char *const names_of[] = {"blk.0.attn_q.weight", "blk.21.attn_k.weight"};
    struct writer w = {0};

    made_model_write("tests/oracle/made/gemma3n-made-shared.txt", &w);
    write_whole(f.model, w.bytes, w.n);
    w_free(&w);
    adapter_file_write_of(f.lone, f.model, names_of, unread ? 2 : 1, 4, WIDE);
    *adapter = (runnel_adapter){.name = names[1], .path = f.lone};
}

static void what_is_passed_over_is_logged(void **state)
{
    struct listener listener = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    runnel_model_options options = options_of(false);
    struct capture captures[3] = {{0}};
    static const int32_t prompt[] = {1, 5, 9, 30, 41, 2, 17, 8};
    runnel_adapter adapter;

    (void)state;
    options.context_tokens = 64;
    options.adapters = &adapter;
    options.n_adapters = 1;
    for (int i = 0; i < 3; i++) { /* without the pair, with it, without the adapter */
        runnel_engine *engine = start_heard(&listener);
        runnel_request request = request_of(i < 2 ? 1 : 0, 0, &captures[i]);
        runnel_model *model;

        write_unread(&adapter, i > 0);
        model = load_model(engine, f.model, &options);
        assert_int_equal(listener.n_passed, i);
        assert_true(i != 1 || listener.n_large > 0);
        request.tokens = prompt;
        request.n_tokens = sizeof prompt / sizeof prompt[0];
        assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
        runnel_engine_free(engine);
    }
    assert_int_equal(captures[0].n_tokens, ANSWER);
    assert_memory_equal(captures[1].tokens, captures[0].tokens, ANSWER * sizeof(int32_t));
    assert_memory_not_equal(captures[2].tokens, captures[0].tokens, ANSWER * sizeof(int32_t));
    for (int i = 0; i < 3; i++)
        capture_clear(&captures[i]);
}

/* Cancelled when its file has been opened and nothing is copied yet: nothing is. */
static void a_load_is_cancelled(void **state)
{
    struct listener listener = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .holds = true};
    runnel_model_options options = options_of(false);
    runnel_engine *engine = start_heard(&listener);
    runnel_adapter adapter;
    runnel_model *model;

    (void)state;
    write_unread(&adapter, true);
    options.context_tokens = 64;
    options.adapters = &adapter;
    options.n_adapters = 1;
    assert_int_equal(runnel_model_load(engine, f.model, &options, &model, NULL), RUNNEL_OK);
    pthread_mutex_lock(&listener.mutex);
    while (!listener.is_there)
        pthread_cond_wait(&listener.changed, &listener.mutex);
    runnel_model_cancel_load(model);
    listener.holds = false;
    pthread_cond_broadcast(&listener.changed);
    pthread_mutex_unlock(&listener.mutex);
    assert_int_equal(runnel_model_wait(model, -1, NULL), RUNNEL_CANCELLED);
    assert_true(listener.n_loaded == 0 && listener.n_large == 0);
    runnel_model_free(model);
    await_models(engine, 0);
    runnel_engine_free(engine);
}

/* ---- What is said ---- */

static void an_adapter_is_no_model(void **state)
{
    runnel_engine *engine = start_engine(NULL);
    runnel_model_options options = options_of(false);
    runnel_model *model;
    runnel_error error = {0};

    (void)state;
    for (int vocab_only = 0; vocab_only < 2; vocab_only++) {
        options.vocab_only = (uint8_t)vocab_only;
        assert_int_equal(runnel_model_load(engine, f.paths[1], &options, &model, NULL), RUNNEL_OK);
        assert_int_equal(runnel_model_wait(model, -1, &error), RUNNEL_FORMAT);
        if (strstr(error.message, "it is not a model, but an adapter") == NULL ||
            strstr(error.message, "--lora") == NULL || strncmp(error.message, f.paths[1], strlen(f.paths[1])) != 0)
            fail_msg("%s", error.message);
        runnel_model_free(model);
    }
    await_models(engine, 0);
    runnel_engine_free(engine);
}

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
    snprintf(f.model, sizeof f.model, "%s/model.gguf", f.folder);
    snprintf(f.lone, sizeof f.lone, "%s/lone.gguf", f.folder);
    for (int i = 0; i < 2; i++)
        snprintf(f.twins[i], sizeof f.twins[i], "%s/twin-%d.gguf", f.folder, i);
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(together_as_alone),
                                       cmocka_unit_test(blocks_are_not_shared),
                                       cmocka_unit_test(blocks_outlive_a_restart),
                                       cmocka_unit_test(turns_of_two_adapters),
                                       cmocka_unit_test(sessions_in_files),
                                       cmocka_unit_test(drafters_change_nothing),
                                       cmocka_unit_test(embeddings_have_adapters),
                                       cmocka_unit_test(they_are_listed),
                                       cmocka_unit_test(names_that_are_not_there),
                                       cmocka_unit_test(options_that_are_wrong),
                                       cmocka_unit_test(fingerprints_tell_all_bytes),
                                       cmocka_unit_test(twins_share_no_blocks),
                                       cmocka_unit_test(what_is_passed_over_is_logged),
                                       cmocka_unit_test(a_load_is_cancelled),
                                       cmocka_unit_test(an_adapter_is_no_model)};

    return run_cases(tests, setup, teardown);
}
