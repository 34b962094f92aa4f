/* The head's passes against the same formulas in double precision: the loss itself, and every single gradient
 * against differences of that loss. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "cpu/cpu.h"
#include "double_head.h"
#include "train/parts.h"

enum { TOKENS = 7, MOST_PARAMETERS = 4096 };

static struct rn_heap heap;
static uint64_t coins = 11;

static float coin(void)
{
    return (float)((double)(rn_splitmix64(&coins) >> 11) * 0x1p-52 - 1.0);
}

struct scene {
    struct rn_eagle_shape shape;
    struct rn_eagle_text text;
    float embeddings[TOKENS * 32], features[TOKENS * 96], wanted[TOKENS * 32], output[32 * 32];
    float weights[MOST_PARAMETERS], gradients[MOST_PARAMETERS];
    double exact[MOST_PARAMETERS];
    size_t n;
    struct rn_eagle_span spans[RN_EAGLE_TENSORS];
};

static struct scene scene;

static void fill(float *out, size_t n, float size)
{
    for (size_t i = 0; i < n; i++)
        out[i] = size * coin();
}

/* Norms are not 1 and the residual is not tiny, so that no gradient is near 0 by accident. */
static void set_scene(uint32_t taps, uint32_t kv_heads)
{
    struct rn_eagle_shape shape = {8, 11, taps, 4, kv_heads, 4, 10, 1e-5f, 100.0f};

    scene.shape = shape;
    scene.n = rn_eagle_layout(&shape, scene.spans);
    assert_true(scene.n > 0 && scene.n <= MOST_PARAMETERS);
    rn_eagle_start(&shape, 3, scene.weights);
    for (size_t i = 0; i < scene.n; i++) {
        scene.weights[i] += 0.3f * coin();
        scene.exact[i] = scene.weights[i];
    }
    fill(scene.embeddings, TOKENS * shape.width, 1.0f);
    fill(scene.features, (size_t)TOKENS * taps * shape.width, 20.0f);
    fill(scene.output, (size_t)shape.vocab * shape.width, 1.0f);
    for (int t = 0; t < TOKENS; t++) {
        float sum = 0;

        for (uint32_t i = 0; i < shape.vocab; i++)
            sum += scene.wanted[t * shape.vocab + i] = expf(3.0f * coin());
        for (uint32_t i = 0; i < shape.vocab; i++)
            scene.wanted[t * shape.vocab + i] /= sum;
    }
    scene.text = (struct rn_eagle_text){TOKENS, scene.embeddings, scene.features, scene.wanted};
}

static void pass(uint32_t unroll, float decay, struct rn_eagle_score *score)
{
    struct rn_eagle *eagle = NULL;

    *score = (struct rn_eagle_score){0};
    memset(scene.gradients, 0, sizeof scene.gradients);
    assert_int_equal(rn_eagle_new(&heap, &scene.shape, TOKENS + 2, unroll, rn_cpu_gemm(), scene.output, &eagle),
                     RUNNEL_OK);
    rn_eagle_pass(eagle, scene.weights, &scene.text, decay, 1.0f, scene.gradients, score);
    rn_eagle_free(eagle);
}

static void check_gradients(uint32_t unroll, float decay)
{
    double loss[RN_EAGLE_MAX_UNROLL], largest = 0, step = 1e-5;
    struct rn_eagle_score score;
    uint32_t steps = unroll < TOKENS - 1 ? unroll : TOKENS - 1;

    pass(unroll, decay, &score);
    double_head(&scene.shape, scene.exact, &scene.text, scene.output, unroll, decay, loss);
    for (uint32_t j = 0; j < steps; j++) {
        assert_true(score.rows[j] == TOKENS - 1 - j);
        assert_true(fabs(score.loss[j] / score.rows[j] - loss[j]) < 2e-5 * (1 + fabs(loss[j])));
    }
    for (int t = 0; t < RN_EAGLE_TENSORS; t++) {
        const struct rn_eagle_span *span = &scene.spans[t];

        largest = 0;
        for (size_t i = span->offset; i < span->offset + (size_t)span->rows * span->cols; i++) {
            double kept = scene.exact[i], high, low, exact;

            scene.exact[i] = kept + step;
            high = double_head(&scene.shape, scene.exact, &scene.text, scene.output, unroll, decay, loss);
            scene.exact[i] = kept - step;
            low = double_head(&scene.shape, scene.exact, &scene.text, scene.output, unroll, decay, loss);
            scene.exact[i] = kept;
            exact = (high - low) / (2 * step);
            largest = fmax(largest, fabs(exact));
            if (fabs(exact - scene.gradients[i]) > 1e-4 * (0.01 + fabs(exact)))
                fail_msg("%s[%zu]: %.8g, and by differences %.8g", span->name, i - span->offset, scene.gradients[i],
                         exact);
        }
        assert_true(span->rows == 0 || largest > 1e-4);
    }
}

static void test_one_step(void **state)
{
    (void)state;
    set_scene(1, 4);
    check_gradients(1, 1.0f);
}

static void test_unrolled(void **state)
{
    (void)state;
    set_scene(1, 2);
    check_gradients(4, 0.8f);
}

static void test_three_taps(void **state)
{
    (void)state;
    set_scene(3, 1);
    check_gradients(3, 0.9f);
}

/* More steps than the text has rows. */
static void test_short_text(void **state)
{
    (void)state;
    set_scene(2, 2);
    check_gradients(RN_EAGLE_MAX_UNROLL, 0.9f);
}

/* What is not a shape, and what a refused allocation leaves. */
static void test_refusals(void **state)
{
    struct rn_eagle_span spans[RN_EAGLE_TENSORS];
    struct rn_eagle_shape good = {8, 11, 1, 4, 2, 4, 10, 1e-5f, 100.0f}, bad;
    struct rn_eagle *eagle = NULL;

    (void)state;
    assert_true(rn_eagle_layout(&good, spans) > 0);
    bad = good, bad.kv_heads = 3;
    assert_true(rn_eagle_layout(&bad, spans) == 0);
    bad = good, bad.head_dim = 5;
    assert_true(rn_eagle_layout(&bad, spans) == 0);
    bad = good, bad.taps = RN_EAGLE_MAX_TAPS + 1;
    assert_true(rn_eagle_layout(&bad, spans) == 0);
    bad = good, bad.eps = NAN;
    assert_true(rn_eagle_layout(&bad, spans) == 0);
    bad = good, bad.width = 0;
    assert_int_equal(rn_eagle_new(&heap, &bad, 9, 1, rn_cpu_gemm(), scene.output, &eagle), RUNNEL_INVALID);
    assert_int_equal(rn_eagle_new(&heap, &good, 1, 1, rn_cpu_gemm(), scene.output, &eagle), RUNNEL_INVALID);
    assert_int_equal(rn_eagle_new(&heap, &good, 9, RN_EAGLE_MAX_UNROLL + 1, rn_cpu_gemm(), scene.output, &eagle),
                     RUNNEL_INVALID);
    assert_true(rn_heap_blocks(&heap) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_step), cmocka_unit_test(test_unrolled),
                                       cmocka_unit_test(test_three_taps), cmocka_unit_test(test_short_text),
                                       cmocka_unit_test(test_refusals)};

    rn_heap_init(&heap, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
