/* Layers with windows in blocks of their own: answers long past the windows, prompts in small pieces, many streams at
 * once, turns of sessions, and memory for one stream. Judge: the same request with all positions kept, to the bit; for
 * the memory the shape of the model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/actors/answer.h"
#include "base/rng.h"
#include "tests/actors/fixture.h"
#include "model/plan.h"
#include "tests/oracle/run_plan.h"

enum { CONTEXT = 640, BATCH = 40, PROMPT = 500, STEM = 330, PROMPTS = 5, TURN = 150, BLOCK = 32 };

static const char *const models[] = {"gemma3-dense",  "gpt-oss-moe",  "llama4-moe",
                                     "cohere2-dense", "gemma2-dense", "gemma3n-dense"};

/* On an emulated device one model, and few prompts at once. Sanitizers see the same blocks and threads with each model;
 * its ops are those of tests/oracle. */
static size_t n_models(void)
{
    return test_device() != NULL ? 1 : UNLESS_SANITIZED(sizeof models / sizeof models[0], 2);
}

static uint32_t n_at_once(void)
{
    return test_device() != NULL ? 2 : 2 * PROMPTS;
}

struct pair {
    const char *name;
    runnel_engine *engine;
    runnel_model *bounded, *plain;
    int32_t prompts[PROMPTS][PROMPT];
};

static const char *file_of(const char *name)
{
    char file[96];

    snprintf(file, sizeof file, "oracles/arch/%s.gguf", name);
    return shared_path(file);
}

static runnel_model_options options_of(bool bound, const char *device)
{
    runnel_model_options options;

    runnel_model_options_default(&options);
    options.context_tokens = CONTEXT;
    options.batch_tokens = BATCH;
    options.no_prefix_cache = !bound;
    options.bound_windows = bound;
    options.device = device;
    return options;
}

static runnel_model_info info_of(runnel_model *model)
{
    runnel_model_info info = {.struct_size = sizeof info};

    assert_int_equal(runnel_model_get_info(model, &info), RUNNEL_OK);
    return info;
}

static void open_pair(struct pair *p, const char *name, uint64_t kv_bytes, const char *device)
{
    runnel_model_options bounded = options_of(true, device), plain = options_of(false, device);
    uint64_t seed = 7;

    bounded.kv_bytes = kv_bytes;
    p->name = name;
    p->engine = start_engine(NULL);
    p->bounded = load_model(p->engine, file_of(name), &bounded);
    p->plain = load_model(p->engine, file_of(name), &plain);
    for (uint32_t i = 0; i < PROMPTS * PROMPT; i++)
        p->prompts[i / PROMPT][i % PROMPT] = (int32_t)(rn_splitmix64(&seed) % info_of(p->plain).vocab_tokens);
}

static void close_pair(struct pair *p)
{
    assert_quiet(p->engine, 0);
    runnel_engine_free(p->engine);
}

static runnel_request request_of(struct answer *answer, const int32_t *tokens, uint32_t n)
{
    runnel_request request = answer_request(answer, "", test_device() != NULL ? 16 : ANSWER_MOST);

    request.prompt = NULL;
    request.prompt_bytes = 0;
    request.tokens = tokens;
    request.n_tokens = n;
    return request;
}

/* The i-th of those that are asked at once: of all lengths. */
static uint32_t length_of(uint32_t i)
{
    return PROMPT - i % PROMPTS * 117;
}

/* Prompts of all lengths at once (some twice), each the same as by itself with all positions. */
static void run_at_once(struct pair *p, uint32_t n)
{
    static struct answer answers[2 * PROMPTS], alone[PROMPTS];

    assert_true(n <= 2 * PROMPTS);
    for (uint32_t i = 0; i < n; i++) {
        runnel_request request = request_of(&answers[i], p->prompts[i % PROMPTS], length_of(i));

        assert_int_equal(runnel_generate(p->bounded, &request, &(runnel_stream){0}, NULL), RUNNEL_OK);
    }
    for (uint32_t i = 0; i < n; i++) {
        struct answer *same = &alone[i % PROMPTS];

        run_until_end(p->engine, &answers[i].capture);
        if (i < PROMPTS) {
            runnel_request request = request_of(same, p->prompts[i], length_of(i));

            assert_int_equal(run_request(p->engine, p->plain, &request), RUNNEL_EVENT_DONE);
        }
        assert_same_answer(&answers[i], same);
        capture_clear(&answers[i].capture);
    }
    for (uint32_t i = 0; i < n && i < PROMPTS; i++)
        capture_clear(&alone[i].capture);
}

static void second_turn(struct pair *p)
{
    struct answer first, second, whole;
    runnel_request request = request_of(&first, p->prompts[0], PROMPT - TURN), other;

    request.max_tokens = 0;
    assert_int_equal(runnel_session_new(p->bounded, &request.session), RUNNEL_OK);
    assert_int_equal(run_request(p->engine, p->bounded, &request), RUNNEL_EVENT_DONE);
    other = request_of(&second, p->prompts[0] + PROMPT - TURN, TURN);
    other.session = request.session;
    assert_int_equal(run_request(p->engine, p->bounded, &other), RUNNEL_EVENT_DONE);
    other = request_of(&whole, p->prompts[0], PROMPT);
    assert_int_equal(run_request(p->engine, p->plain, &other), RUNNEL_EVENT_DONE);
    assert_same_answer(&second, &whole);
    assert_int_equal(runnel_session_free(p->bounded, request.session), RUNNEL_OK);
    capture_clear(&first.capture);
    capture_clear(&second.capture);
    capture_clear(&whole.capture);
}

static void same_answers(void **state)
{
    (void)state;
    for (size_t i = 0; i < n_models(); i++) {
        struct pair p;

        open_pair(&p, models[i], 0, NULL);
        run_at_once(&p, n_at_once());
        second_turn(&p);
        close_pair(&p);
    }
}

static void on_the_reference(void **state)
{
    struct pair p;

    (void)state;
    open_pair(&p, models[0], 0, "reference");
    run_at_once(&p, 3);
    close_pair(&p);
}

/* A stream's bytes from the file's shape, worked out a second time. */
static uint64_t bytes_of(const char *name, uint32_t *window)
{
    struct rn_heap heap;
    struct rn_gguf *gguf;
    struct rn_plan *plan;
    runnel_error error;
    uint64_t bytes = 0;

    rn_heap_init(&heap, NULL);
    *window = 0;
    assert_int_equal(rn_gguf_open(&heap, file_of(name), &gguf, &error), RUNNEL_OK);
    assert_int_equal(rn_plan_new(&heap, gguf, CONTEXT, &plan, &error), RUNNEL_OK);
    for (uint32_t i = 0; i < plan->n_ops; i++)
        if (plan->ops[i].kind == RN_OP_ATTENTION && plan->ops[i].window > *window)
            *window = plan->ops[i].window;
    for (uint32_t i = 0; i < plan->n_ops; i++) {
        const struct rn_op *op = &plan->ops[i];
        uint32_t ring = ((*window + BLOCK + BATCH + BLOCK - 1) / BLOCK + 1) * BLOCK;

        if (op->kind == RN_OP_ATTENTION)
            bytes += (uint64_t)op->kv_heads * (op->k_dim + op->v_dim) * 2 *
                     (op->window > 0 && ring < CONTEXT ? ring : CONTEXT);
    }
    rn_plan_free(plan);
    rn_gguf_free(gguf);
    return bytes;
}

static void bounded_bytes(void **state)
{
    const char *const names[] = {"gemma3-dense", "gpt-oss-moe", "cohere2-dense"}; /* no layer reads another's cache */

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        runnel_model_info bounded, plain;
        uint32_t window;
        uint64_t bytes = bytes_of(names[i], &window);
        struct pair p;

        open_pair(&p, names[i], 0, NULL);
        bounded = info_of(p.bounded);
        plain = info_of(p.plain);
        assert_true(window > 0);
        assert_int_equal(bounded.kv_bytes_longest, bytes);
        assert_int_equal(plain.kv_bytes_longest, plain.kv_bytes_per_token * CONTEXT);
        assert_true(bounded.kv_bytes_longest < plain.kv_bytes_longest);
        assert_true(bounded.kv_bytes <= plain.kv_bytes && bounded.kv_bytes > plain.kv_bytes / 2);
        close_pair(&p);
    }
}

/* Streams wait for the blocks of others' windows, and come to their ends. */
static void one_window(void **state)
{
    runnel_model_options options = options_of(true, NULL);
    runnel_engine *engine = start_engine(NULL);
    unsigned long long least = 0;
    runnel_model *model;
    runnel_error error;
    const char *words;
    struct pair p;

    (void)state;
    options.kv_bytes = 1;
    assert_int_equal(runnel_model_load(engine, file_of(models[0]), &options, &model, &error), RUNNEL_OK);
    assert_int_equal(runnel_model_wait(model, -1, &error), RUNNEL_INVALID);
    words = strstr(error.message, "do not hold the window of a stream of");
    assert_non_null(words);
    assert_int_equal(sscanf(strstr(words, "it takes "), "it takes %llu", &least), 1);
    runnel_model_free(model);
    runnel_engine_free(engine);
    open_pair(&p, models[0], 0, NULL);
    least = info_of(p.bounded).kv_bytes_longest;
    close_pair(&p);
    open_pair(&p, models[0], least, NULL);
    run_at_once(&p, 2 * PROMPTS);
    close_pair(&p);
}

static void excluded(void **state)
{
    runnel_engine *engine = start_engine(NULL);
    runnel_model_options options = options_of(true, NULL);
    runnel_model *model;
    runnel_error error;

    (void)state;
    options.chunk_mean = 64;
    assert_int_equal(runnel_model_load(engine, file_of(models[0]), &options, &model, &error), RUNNEL_INVALID);
    assert_non_null(strstr(error.message, "bound_windows"));
    options = options_of(true, NULL);
    options.draft_path = "draft.gguf";
    assert_int_equal(runnel_model_load(engine, file_of(models[0]), &options, &model, &error), RUNNEL_INVALID);
    options = options_of(true, NULL);
    options.bound_windows = 2;
    assert_int_equal(runnel_model_load(engine, file_of(models[0]), &options, &model, &error), RUNNEL_INVALID);
    runnel_engine_free(engine);
}

/* Of the prompt's first n tokens, twice as long an answer as a window may be: n_cached of them are shared. */
static void expect_cached(struct pair *p, uint32_t which, uint32_t n, uint64_t n_cached)
{
    static struct answer shared, alone;
    runnel_request request = request_of(&shared, p->prompts[which], n),
                   other = request_of(&alone, p->prompts[which], n);

    assert_int_equal(run_request(p->engine, p->bounded, &request), RUNNEL_EVENT_DONE);
    assert_int_equal(run_request(p->engine, p->plain, &other), RUNNEL_EVENT_DONE);
    assert_same_answer(&shared, &alone);
    if (shared.capture.last.usage.cached_tokens != n_cached)
        fail_msg("%s, prompt %u, %u tokens: %llu were cached, not %llu", p->name, which, n,
                 (unsigned long long)shared.capture.last.usage.cached_tokens, (unsigned long long)n_cached);
    capture_clear(&shared.capture);
    capture_clear(&alone.capture);
}

/* A checkpoint stays at the end of a prompt, and where a second one has gone on differently. Then all at once. */
static void prefixes_are_shared(void **state)
{
    uint64_t stem = STEM / BLOCK * BLOCK, whole = (PROMPT - 1) / BLOCK * BLOCK;

    (void)state;
    for (size_t i = 0; i < n_models(); i++) {
        struct pair p;

        open_pair(&p, models[i], 0, NULL);
        for (uint32_t k = 1; k < PROMPTS; k++)
            memcpy(p.prompts[k], p.prompts[0], STEM * sizeof p.prompts[0][0]);
        expect_cached(&p, 0, PROMPT, 0);
        expect_cached(&p, 0, PROMPT, whole);
        expect_cached(&p, 0, PROMPT - 10, whole);
        expect_cached(&p, 1, PROMPT, 0);
        expect_cached(&p, 2, PROMPT, stem);
        expect_cached(&p, 3, STEM, stem - (STEM % BLOCK == 0) * BLOCK);
        run_at_once(&p, n_at_once());
        close_pair(&p);
    }
}

/* A model without windows shares prefixes as ever. */
static void without_windows(void **state)
{
    runnel_engine *engine = start_engine(NULL);
    runnel_model_options options = options_of(true, NULL);
    runnel_model *model = load_model(engine, file_of("llama-dense"), &options);
    int32_t tokens[100] = {1, 2, 3};
    struct answer answer;
    runnel_request request;

    (void)state;
    for (int turn = 0; turn < 2; turn++) {
        request = request_of(&answer, tokens, 100);
        assert_int_equal(run_request(engine, model, &request), RUNNEL_EVENT_DONE);
        assert_int_equal(answer.capture.last.usage.cached_tokens > 0, turn);
        capture_clear(&answer.capture);
    }
    runnel_engine_free(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_answers),       cmocka_unit_test(on_the_reference),
                                       cmocka_unit_test(bounded_bytes),      cmocka_unit_test(one_window),
                                       cmocka_unit_test(excluded),           cmocka_unit_test(without_windows),
                                       cmocka_unit_test(prefixes_are_shared)};

    shared_or_skip();
    return run_cases(tests, NULL, NULL);
}
