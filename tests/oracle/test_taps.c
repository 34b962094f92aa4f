/* Features: the residual stream behind the last block, taken through the final norm and the output matrix in
 * double precision here, must give llama.cpp's logits; those behind the other blocks, the reference's. The logits
 * themselves are the same to the bit with taps and without. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "tests/oracle/run_plan.h"
#include "tests/support/nmse.h"

static const char *const model = "models/runnel-tiny-F16.gguf", *const logits_file = "oracles/runnel-tiny-F16.logits";
static const uint32_t taps[] = {0, 2, 5};

static void decode(const struct run *run, const char *name, float *out)
{
    const struct rn_tensor *tensor = rn_gguf_find_tensor(run->gguf, name);

    assert_non_null(tensor);
    rn_type(tensor->type)->decode(tensor->data, out, tensor->elements);
}

/* logits[r] = output · norm(features of the last tap) */
static void finish(struct run *run, uint32_t rows, float *logits)
{
    uint32_t width = run->plan->embedding, vocab = run->plan->n_vocab;
    const char *output =
        rn_gguf_find_tensor(run->gguf, "output.weight") != NULL ? "output.weight" : "token_embd.weight";
    float *matrix = rn_alloc(&run->heap, (size_t)vocab * width, sizeof *matrix);
    float *norm = rn_alloc(&run->heap, width, sizeof *norm);

    assert_true(matrix != NULL && norm != NULL);
    decode(run, output, matrix);
    decode(run, "output_norm.weight", norm);
    for (uint32_t r = 0; r < rows; r++) {
        const float *x = run->features + (size_t)r * run->plan->features_width + 2 * width;
        double square = 0;

        for (uint32_t i = 0; i < width; i++)
            square += (double)x[i] * x[i] / width;
        for (uint32_t v = 0; v < vocab; v++) {
            double sum = 0;

            for (uint32_t i = 0; i < width; i++)
                sum += (double)matrix[(size_t)v * width + i] * norm[i] * x[i] / sqrt(square + 1e-5);
            logits[(size_t)r * vocab + v] = (float)sum;
        }
    }
    rn_free(&run->heap, matrix);
    rn_free(&run->heap, norm);
}

static void check_last_tap(const char *backend)
{
    const struct run_options options = {.backend = backend, .kv_type = RUNNEL_KV_F32, .taps = taps, .n_taps = 3};
    struct oracle oracle;
    struct run run;
    float *logits;
    size_t n;

    run_open(&run, shared_path(model), &options);
    assert_int_equal(run.plan->features_width, 3 * run.plan->embedding);
    oracle_open(&run.heap, shared_path(logits_file), &oracle);
    n = (size_t)oracle.n_tokens * oracle.n_vocab;
    logits = rn_alloc(&run.heap, n, sizeof *logits);
    run_step(&run, &(struct run_piece){0, 0, oracle.n_tokens, oracle.tokens, true, NULL, 0},
             1); /* one row of logits is wanted */
    finish(&run, oracle.n_tokens, logits);
    assert_true(nmse(logits, oracle.logits, n) <= 1e-6);
    rn_free(&run.heap, logits);
    oracle_close(&run.heap, &oracle);
    run_close(&run);
}

static void test_last_tap(void **state)
{
    (void)state;
    check_last_tap("reference");
    check_last_tap("fast");
}

/* The fast backend's features in chunks against the reference's in one step; its logits with taps against those
 * without. */
static void test_other_taps(void **state)
{
    struct run_options options = {.backend = "reference", .kv_type = RUNNEL_KV_F32, .taps = taps, .n_taps = 3};
    struct oracle oracle;
    struct run slow, fast, plain;
    uint32_t chunk = 7, width;

    (void)state;
    run_open(&slow, shared_path(model), &options);
    options.backend = "fast";
    run_open(&fast, shared_path(model), &options);
    options.n_taps = 0;
    run_open(&plain, shared_path(model), &options);
    oracle_open(&slow.heap, shared_path(logits_file), &oracle);
    run_step(&slow, &(struct run_piece){0, 0, oracle.n_tokens, oracle.tokens, true, NULL, 0}, 1);
    width = slow.plan->features_width;
    for (uint32_t at = 0; at < oracle.n_tokens; at += chunk) {
        const struct run_piece piece = {
            0, at, oracle.n_tokens - at < chunk ? oracle.n_tokens - at : chunk, oracle.tokens + at, false, NULL, 0};

        run_step(&fast, &piece, 1);
        run_step(&plain, &piece, 1);
        assert_true(nmse(fast.features, slow.features + (size_t)at * width, (size_t)piece.n * width) <= 1e-9);
        assert_memory_equal(fast.logits, plain.logits, (size_t)piece.n * fast.plan->n_vocab * sizeof(float));
    }
    oracle_close(&slow.heap, &oracle);
    run_close(&slow);
    run_close(&fast);
    run_close(&plain);
}

static void test_refused(void **state)
{
    static const uint32_t wrong[][2] = {{0, 6}, {3, 3}, {4, 1}};
    struct rn_plan *plan = NULL;
    struct rn_gguf *gguf = NULL;
    struct rn_heap heap;

    (void)state;
    rn_heap_init(&heap, NULL);
    assert_int_equal(rn_gguf_open(&heap, shared_path(model), &gguf, NULL), RUNNEL_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(rn_plan_new_tapped(&heap, gguf, 0, wrong[i], 2, &plan, NULL), RUNNEL_INVALID);
    rn_gguf_free(gguf);
    assert_true(rn_heap_blocks(&heap) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_last_tap), cmocka_unit_test(test_other_taps),
                                       cmocka_unit_test(test_refused)};

    shared_or_skip();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
