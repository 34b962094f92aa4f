/* Each sampling parameter on, just inside and just outside the ends of its range; the error names it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "reference.h"
#include "sampling/sampler.h"

#define VOCAB 100

static void accepts(const runnel_sampling *p)
{
    runnel_error error = {0};

    assert_int_equal(rn_sampling_check(p, VOCAB, &error), RUNNEL_OK);
    assert_int_equal(error.status, RUNNEL_OK);
    assert_int_equal(rn_sampling_check(p, VOCAB, NULL), RUNNEL_OK);
}

static void refuses(const runnel_sampling *p, const char *name)
{
    runnel_error error = {0};

    assert_int_equal(rn_sampling_check(p, VOCAB, &error), RUNNEL_INVALID);
    assert_int_equal(error.status, RUNNEL_INVALID);
    assert_non_null(strstr(error.message, name));
    assert_int_equal(rn_sampling_check(p, VOCAB, NULL), RUNNEL_INVALID);
}

/* Sets one float field by its offset to each value and expects it accepted or refused by name. */
static void field(size_t offset, const char *name, const float *good, size_t n_good, const float *bad, size_t n_bad)
{
    for (size_t i = 0; i < n_good + n_bad; i++) {
        runnel_sampling p = reference_plain();

        memcpy((char *)&p + offset, i < n_good ? &good[i] : &bad[i - n_good], sizeof(float));
        if (i < n_good)
            accepts(&p);
        else
            refuses(&p, name);
    }
}

#define LIST(...) (const float[]){__VA_ARGS__}, sizeof((const float[]){__VA_ARGS__}) / sizeof(float)
#define FIELD(name, good, bad) field(offsetof(runnel_sampling, name), "sampling." #name, good, bad)

static void floats(void **state)
{
    (void)state;
    FIELD(temperature, LIST(0.0f, -0.0f, FLT_TRUE_MIN, 1.0f, FLT_MAX),
          LIST(-FLT_TRUE_MIN, -1.0f, INFINITY, -INFINITY, NAN));
    FIELD(top_p, LIST(FLT_TRUE_MIN, 0.5f, 1.0f), LIST(0.0f, -0.5f, 1.0000001f, INFINITY, NAN));
    FIELD(min_p, LIST(0.0f, FLT_TRUE_MIN, 0.5f, 1.0f), LIST(-FLT_TRUE_MIN, 1.0000001f, INFINITY, NAN));
    FIELD(repetition_penalty, LIST(FLT_TRUE_MIN, 1.0f, 2.0f, FLT_MAX), LIST(0.0f, -1.0f, INFINITY, NAN));
    FIELD(frequency_penalty, LIST(-FLT_MAX, 0.0f, 2.0f, FLT_MAX), LIST(INFINITY, -INFINITY, NAN));
    FIELD(presence_penalty, LIST(-FLT_MAX, 0.0f, 2.0f, FLT_MAX), LIST(INFINITY, -INFINITY, NAN));
}

static void biases(void **state)
{
    const runnel_logit_bias good[] = {{0, -INFINITY}, {99, FLT_MAX}, {99, -FLT_MAX}};
    const runnel_logit_bias bad[][2] = {
        {{0, 0}, {-1, 0}}, {{0, 0}, {VOCAB, 0}}, {{0, 0}, {INT32_MIN, 0}}, {{0, 0}, {1, NAN}}, {{0, 0}, {1, INFINITY}}};
    const runnel_logit_bias many[VOCAB + 1] = {{0, 0}};
    runnel_sampling p = reference_plain();

    (void)state;
    p.biases = good;
    p.n_biases = 3;
    accepts(&p);
    for (size_t i = 0; i < 5; i++) {
        p.biases = bad[i];
        p.n_biases = 1;
        accepts(&p);
        p.n_biases = 2;
        refuses(&p, i < 3 ? "sampling.biases[1].token" : "sampling.biases[1].bias");
    }
    p.biases = many;
    p.n_biases = VOCAB;
    accepts(&p);
    p.n_biases = VOCAB + 1;
    refuses(&p, "sampling.n_biases");
    p.n_biases = 1;
    p.biases = NULL;
    refuses(&p, "sampling.biases");
    p.n_biases = 0;
    accepts(&p);
}

static void integers_have_no_bad_value(void **state)
{
    runnel_sampling p = reference_plain();

    (void)state;
    p.top_k = UINT32_MAX;
    p.penalty_tokens = UINT32_MAX;
    p.seed = UINT64_MAX;
    accepts(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(floats),
        cmocka_unit_test(biases),
        cmocka_unit_test(integers_have_no_bad_value),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
