/* Models with a recurrent state in the engine: many streams at once, prompts in small pieces, sessions of two turns,
 * copied and in files, streams that leave. Judge: llama.cpp's logits of tiny models (../shared/oracles/arch, and one of
 * tests/oracle/made): the next token is their largest. And prefixes that prompts share, by checkpoints of states, with
 * many slots for states and with one. Judge: the same request without a prefix cache, to the bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "answer.h"
#include "base/rng.h"
#include "fixture.h"
#include "runnel_files.h"
#include "tests/oracle/arch_models.h"
#include "tests/oracle/made_model.h"
#include "tests/oracle/run_plan.h"

/* ThreadSanitizer sees the same threads with each model. */
enum { MOST_TOKENS = 64, MODEL_STEP = UNLESS_SLOW(1, 3) };

/* Of a text of the tree: its states have keys that an indexer compares, too. */
#define MADE "glm5-next-made-keys"

static const char *const models[] = {"mamba-dense",      "mamba2-dense",    "jamba-dense", "falcon-h1-dense",
                                     "nemotron_h-dense", "rwkv6-dense",     "lfm2moe-moe", "qwen3next-moe",
                                     "qwen35-dense",     "kimi-linear-moe", MADE};

struct judged {
    struct rn_heap heap;
    struct oracle oracle;
    runnel_engine *engine;
    runnel_model *model;
};

static char made_file[] = "/tmp/rn_states_XXXXXX";

static int write_made(void **state)
{
    struct writer w = {0};
    int fd = mkstemp(made_file);

    (void)state;
    made_model_write(MADE_TEXT(MADE), &w);
    assert_true(fd >= 0 && write(fd, w.bytes, w.n) == (ssize_t)w.n && close(fd) == 0);
    w_free(&w);
    return 0;
}

static int remove_made(void **state)
{
    (void)state;
    return unlink(made_file);
}

static const char *file_of(const char *name, const char *ending)
{
    char file[96];

    if (strcmp(name, MADE) == 0)
        return strcmp(ending, "gguf") == 0 ? made_file : MADE_LOGITS(MADE);
    snprintf(file, sizeof file, "oracles/arch/%s.%s", name, ending);
    return shared_path(file);
}

/* The token of the largest logit at position t; -1 where two are too near to tell. */
static int32_t next_of(const struct oracle *oracle, uint32_t t)
{
    const float *logits = oracle->logits + (size_t)t * oracle->n_vocab;
    int32_t best = 0, i;

    for (i = 1; i < (int32_t)oracle->n_vocab; i++)
        best = logits[i] > logits[best] ? i : best;
    for (i = 0; i < (int32_t)oracle->n_vocab; i++)
        if (i != best && logits[best] - logits[i] < 1e-3f)
            return -1;
    return best;
}

static void open_model(struct judged *j, const char *name)
{
    runnel_model_options options;

    rn_heap_init(&j->heap, NULL);
    oracle_open(&j->heap, file_of(name, "logits"), &j->oracle);
    assert_true(j->oracle.n_tokens <= MOST_TOKENS);
    runnel_model_options_default(&options);
    options.context_tokens = 256;
    options.batch_tokens = 8;
    j->engine = start_engine(NULL);
    j->model = load_model(j->engine, file_of(name, "gguf"), &options);
}

static void close_model(struct judged *j)
{
    assert_quiet(j->engine, 0);
    runnel_engine_free(j->engine);
    oracle_close(&j->heap, &j->oracle);
    assert_int_equal(rn_heap_blocks(&j->heap), 0);
}

/* Tokens [first, first + n) of the oracle's, and `more` tokens of an answer. */
static runnel_request ask(const struct judged *j, uint32_t first, uint32_t n, int64_t more, struct capture *capture)
{
    runnel_request request = make_request("", more, capture);

    request.prompt = NULL;
    request.prompt_bytes = 0;
    request.tokens = j->oracle.tokens + first;
    request.n_tokens = n;
    request.ignore_eos = 1;
    return request;
}

/* Every beginning of the oracle's text at once, among answers that go on and are left. */
static void all_at_once(struct judged *j, const char *name)
{
    static struct capture captures[MOST_TOKENS], left[4];
    runnel_stream streams[4], stream;
    uint32_t t, told = 0;

    memset(captures, 0, sizeof captures);
    memset(left, 0, sizeof left);
    for (t = 0; t < 4; t++) {
        runnel_request request = ask(j, t, 9, 200, &left[t]);

        assert_int_equal(runnel_generate(j->model, &request, &streams[t], NULL), RUNNEL_OK);
    }
    for (t = 0; t < j->oracle.n_tokens; t++) {
        runnel_request request = ask(j, 0, t + 1, 1, &captures[t]);

        assert_int_equal(runnel_generate(j->model, &request, &stream, NULL), RUNNEL_OK);
        if (t % 10 == 5)
            runnel_stream_cancel(j->engine, streams[t / 10]);
    }
    for (t = 0; t < j->oracle.n_tokens; t++) {
        int32_t want = next_of(&j->oracle, t);

        run_until_end(j->engine, &captures[t]);
        if (captures[t].last.type != RUNNEL_EVENT_DONE || captures[t].n_tokens != 1)
            fail_msg("%s: the answer behind %u tokens ended with %s", name, t + 1, captures[t].error);
        if (want >= 0 && captures[t].tokens[0] != want)
            fail_msg("%s: behind %u tokens comes %d, not %d", name, t + 1, captures[t].tokens[0], want);
        told += want >= 0;
        capture_clear(&captures[t]);
    }
    assert_true(told > j->oracle.n_tokens / 2);
    for (t = 0; t < 4; t++) {
        runnel_stream_cancel(j->engine, streams[t]);
        run_until_end(j->engine, &left[t]);
        capture_clear(&left[t]);
    }
}

/* The session goes to a file and comes back as another one. */
static runnel_session through_a_file(struct judged *j, runnel_session session)
{
    char path[] = "/tmp/rn_states_XXXXXX";
    int fd = mkstemp(path);
    struct capture capture = {0};
    runnel_session_file file;
    runnel_session other;
    runnel_stream stream;

    assert_true(fd >= 0 && close(fd) == 0);
    runnel_session_file_default(&file);
    file.path = path;
    file.on_event = capture_event;
    file.user = &capture;
    assert_int_equal(runnel_session_export(j->model, session, &file, &stream, NULL), RUNNEL_OK);
    run_until_end(j->engine, &capture);
    assert_int_equal(capture.last.type, RUNNEL_EVENT_DONE);
    assert_int_equal(capture.last.usage.cached_tokens, 0); /* tokens alone: a state has no blocks */
    capture_clear(&capture);
    assert_int_equal(runnel_session_import(j->model, &file, &other, &stream, NULL), RUNNEL_OK);
    run_until_end(j->engine, &capture);
    assert_int_equal(capture.last.type, RUNNEL_EVENT_DONE);
    capture_clear(&capture);
    assert_int_equal(unlink(path), 0);
    return other;
}

/* A second turn of tokens [first, n) goes on behind the first. */
static void second_turn(struct judged *j, runnel_session session, uint32_t first, uint32_t n, const char *what)
{
    struct capture capture = {0};
    runnel_request request = ask(j, first, n - first, 1, &capture);

    request.session = session;
    assert_int_equal(run_request(j->engine, j->model, &request), RUNNEL_EVENT_DONE);
    if (capture.n_tokens != 1 || capture.tokens[0] != next_of(&j->oracle, n - 1))
        fail_msg("%s: the second turn goes on differently", what);
    capture_clear(&capture);
    assert_int_equal(runnel_session_free(j->model, session), RUNNEL_OK);
}

/* Of a session, of a copy of it, and of what came back from a file. */
static void in_sessions(struct judged *j, const char *name)
{
    struct capture capture = {0};
    uint32_t n = j->oracle.n_tokens, half = n / 2;
    runnel_request request = ask(j, 0, half, 0, &capture);
    runnel_session copy, read;

    while (next_of(&j->oracle, n - 1) < 0)
        n--;
    assert_true(n > half);
    assert_int_equal(runnel_session_new(j->model, &request.session), RUNNEL_OK);
    assert_int_equal(run_request(j->engine, j->model, &request), RUNNEL_EVENT_DONE);
    capture_clear(&capture);
    assert_int_equal(runnel_session_fork(j->model, request.session, &copy), RUNNEL_OK);
    read = through_a_file(j, request.session);
    second_turn(j, request.session, half, n, name);
    second_turn(j, copy, half, n, name);
    second_turn(j, read, half, n, name);
}

static void states_go_on(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i += MODEL_STEP) {
        struct judged j;

        open_model(&j, models[i]);
        all_at_once(&j, models[i]);
        in_sessions(&j, models[i]);
        close_model(&j);
    }
}

/* ---- Shared prefixes ---- */

enum { STEM = 200, PROMPT = 250, PROMPTS = 4, BLOCK = 32 };

struct shared {
    runnel_engine *engine;
    runnel_model *cached, *plain;
    int32_t prompts[PROMPTS][PROMPT]; /* their first STEM tokens are the same */
};

static runnel_model *load_for(struct shared *s, const char *name, bool cache, uint64_t kv_bytes)
{
    runnel_model_options options;

    runnel_model_options_default(&options);
    options.context_tokens = 512;
    options.batch_tokens = 50; /* steps that end inside blocks */
    options.no_prefix_cache = !cache;
    options.kv_bytes = kv_bytes;
    return load_model(s->engine, file_of(name, "gguf"), &options);
}

static void open_shared(struct shared *s, const char *name, uint64_t kv_bytes)
{
    runnel_model_info info = {.struct_size = sizeof info};
    uint64_t seed = 5;

    s->engine = start_engine(NULL);
    s->cached = load_for(s, name, true, kv_bytes);
    s->plain = load_for(s, name, false, 0);
    assert_int_equal(runnel_model_get_info(s->plain, &info), RUNNEL_OK);
    assert_int_equal(info.block_tokens, BLOCK);
    for (uint32_t i = 0; i < PROMPTS; i++)
        for (uint32_t t = 0; t < PROMPT; t++)
            s->prompts[i][t] =
                i > 0 && t < STEM ? s->prompts[0][t] : (int32_t)(rn_splitmix64(&seed) % info.vocab_tokens);
}

static runnel_request request_of(struct answer *answer, const int32_t *tokens, uint32_t n)
{
    runnel_request request = answer_request(answer, "", 8);

    request.prompt = NULL;
    request.prompt_bytes = 0;
    request.tokens = tokens;
    request.n_tokens = n;
    return request;
}

/* Of a prompt's first n tokens. */
static void expect_cached(struct shared *s, uint32_t which, uint32_t n, uint64_t n_cached, const char *name)
{
    struct answer a, b;
    runnel_request request = request_of(&a, s->prompts[which], n), plain = request_of(&b, s->prompts[which], n);

    assert_int_equal(run_request(s->engine, s->cached, &request), RUNNEL_EVENT_DONE);
    assert_int_equal(run_request(s->engine, s->plain, &plain), RUNNEL_EVENT_DONE);
    assert_same_answer(&a, &b);
    assert_int_equal(b.capture.last.usage.cached_tokens, 0);
    if (a.capture.last.usage.cached_tokens != n_cached)
        fail_msg("%s, prompt %u, %u tokens: %llu were cached, not %llu", name, which, n,
                 (unsigned long long)a.capture.last.usage.cached_tokens, (unsigned long long)n_cached);
    capture_clear(&a.capture);
    capture_clear(&b.capture);
}

/* A checkpoint stays at the end of a prompt, and where a second one has gone on differently. */
static void prefixes_are_shared(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i += MODEL_STEP) {
        uint64_t stem = STEM / BLOCK * BLOCK, whole = (PROMPT - 1) / BLOCK * BLOCK;
        struct shared s;

        open_shared(&s, models[i], 0);
        expect_cached(&s, 0, PROMPT, 0, models[i]);
        expect_cached(&s, 0, PROMPT, whole, models[i]);
        expect_cached(&s, 0, PROMPT - 20, whole, models[i]);
        expect_cached(&s, 1, PROMPT, 0, models[i]);
        expect_cached(&s, 2, PROMPT, stem, models[i]);
        expect_cached(&s, 3, STEM, stem, models[i]);
        expect_cached(&s, 1, PROMPT, stem, models[i]); /* too little behind the other one for one more */
        assert_quiet(s.engine, 0);
        runnel_engine_free(s.engine);
    }
}

/* The second turn of a session begins at a checkpoint of the first one's. */
static void turns_share(void **state)
{
    struct shared s;
    struct answer a, b;
    runnel_request request, plain;

    (void)state;
    open_shared(&s, models[2], 0);
    request = request_of(&a, s.prompts[0], STEM);
    request.max_tokens = 0;
    assert_int_equal(runnel_session_new(s.cached, &request.session), RUNNEL_OK);
    assert_int_equal(run_request(s.engine, s.cached, &request), RUNNEL_EVENT_DONE);
    capture_clear(&a.capture);
    plain = request_of(&a, s.prompts[0] + STEM, PROMPT - STEM);
    plain.session = request.session;
    assert_int_equal(run_request(s.engine, s.cached, &plain), RUNNEL_EVENT_DONE);
    plain = request_of(&b, s.prompts[0], PROMPT);
    assert_int_equal(run_request(s.engine, s.plain, &plain), RUNNEL_EVENT_DONE);
    assert_same_answer(&a, &b);
    assert_int_equal(a.capture.last.usage.cached_tokens, STEM / BLOCK * BLOCK);
    capture_clear(&a.capture);
    capture_clear(&b.capture);
    assert_int_equal(runnel_session_free(s.cached, request.session), RUNNEL_OK);
    runnel_engine_free(s.engine);
}

/* All at once; of the same prompts one waits for the other's checkpoint. */
static void run_at_once(struct shared *s)
{
    static struct answer answers[2 * PROMPTS], b;
    uint32_t i;

    for (i = 0; i < 2 * PROMPTS; i++) {
        runnel_request request = request_of(&answers[i], s->prompts[i % PROMPTS], PROMPT);

        assert_int_equal(runnel_generate(s->cached, &request, &(runnel_stream){0}, NULL), RUNNEL_OK);
    }
    for (i = 0; i < 2 * PROMPTS; i++) {
        runnel_request plain = request_of(&b, s->prompts[i % PROMPTS], PROMPT);

        run_until_end(s->engine, &answers[i].capture);
        assert_int_equal(run_request(s->engine, s->plain, &plain), RUNNEL_EVENT_DONE);
        assert_same_answer(&answers[i], &b);
        capture_clear(&answers[i].capture);
        capture_clear(&b.capture);
    }
}

/* What the error says of a memory that holds not even one. */
static uint64_t least_bytes(const char *name)
{
    runnel_engine *engine = start_engine(NULL);
    unsigned long long state_bytes = 0, block_bytes = 0;
    runnel_model_options options;
    runnel_model *model;
    runnel_error error;
    const char *words;

    runnel_model_options_default(&options);
    options.kv_bytes = 1;
    assert_int_equal(runnel_model_load(engine, file_of(name, "gguf"), &options, &model, &error), RUNNEL_OK);
    assert_int_equal(runnel_model_wait(model, -1, &error), RUNNEL_INVALID);
    words = strstr(error.message, "recurrent state of ");
    if (words == NULL ||
        sscanf(words, "recurrent state of %llu bytes and block of %llu bytes", &state_bytes, &block_bytes) != 2)
        fail_msg("%s: %s", name, error.message);
    assert_true(state_bytes > 0);
    runnel_model_free(model);
    runnel_engine_free(engine);
    return state_bytes + 20 * block_bytes;
}

/* With room for a single state streams run one after the other, and each takes over the checkpoint of the last. */
static void few_slots(void **state)
{
    const char *const names[] = {"mamba-dense", "jamba-dense"};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        uint64_t least = least_bytes(names[i]);

        for (uint32_t n = 1; n <= 3; n++) {
            struct shared s;

            open_shared(&s, names[i], n * least);
            run_at_once(&s);
            assert_quiet(s.engine, 0);
            runnel_engine_free(s.engine);
        }
    }
}

static void at_once(void **state)
{
    struct shared s;

    (void)state;
    open_shared(&s, models[2], 0);
    run_at_once(&s);
    runnel_engine_free(s.engine);
}

/* Who has a recurrent state guesses for no other. */
static void no_drafter(void **state)
{
    runnel_engine *engine = start_engine(NULL);
    runnel_model_options options;
    runnel_model *model;
    runnel_error error;
    char draft[512];

    (void)state;
    runnel_model_options_default(&options);
    options.context_tokens = 128;
    snprintf(draft, sizeof draft, "%s", file_of("mamba-dense", "gguf"));
    options.draft_path = draft;
    assert_int_equal(runnel_model_load(engine, file_of("llama-dense", "gguf"), &options, &model, &error), RUNNEL_OK);
    assert_int_equal(runnel_model_wait(model, -1, &error), RUNNEL_UNSUPPORTED);
    assert_non_null(strstr(error.message, "recurrent state"));
    runnel_model_free(model);
    runnel_engine_free(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(states_go_on), cmocka_unit_test(prefixes_are_shared),
                                       cmocka_unit_test(turns_share),  cmocka_unit_test(at_once),
                                       cmocka_unit_test(few_slots),    cmocka_unit_test(no_drafter)};

    shared_or_skip();
    return cmocka_run_group_tests(tests, write_made, remove_made);
}
