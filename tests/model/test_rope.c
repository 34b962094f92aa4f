/* The table of angles against closed forms and published numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>

#include "model/rope.h"

enum { MAX_PAIRS = 128 };

static double table[MAX_PAIRS];

static struct rn_rope_hparams of(enum rn_rope_scaling scaling, uint32_t dims, double base, double factor,
                                 double original)
{
    return (struct rn_rope_hparams){.scaling = scaling,
                                    .dims = dims,
                                    .base = base,
                                    .factor = factor,
                                    .original_tokens = original,
                                    .attention_factor = 1,
                                    .ext_factor = 1,
                                    .beta_fast = 32,
                                    .beta_slow = 1,
                                    .low_factor = 1,
                                    .high_factor = 4};
}

static double fill(const struct rn_rope_hparams *h, const float *divisors)
{
    struct rn_rope rope = {.dims = h->dims, .inv_freq = table};

    rn_rope_fill(h, divisors, &rope);
    return rope.magnitude;
}

static void near(double a, double b)
{
    if (!(fabs(a - b) <= 1e-12 * fabs(b)))
        fail_msg("%.17g is not %.17g", a, b);
}

static double plain_frequency(const struct rn_rope_hparams *h, uint32_t i)
{
    return exp(-2.0 * i / h->dims * log(h->base));
}

static void plain_and_linear(void **state)
{
    struct rn_rope_hparams h = of(RN_ROPE_PLAIN, 8, 10000, 1, 4096);
    uint32_t i;

    (void)state;
    near(fill(&h, NULL), 1);
    near(table[0], 1); /* 10000^0, ^-1/4, ^-1/2, ^-3/4 */
    near(table[1], 0.1);
    near(table[2], 0.01);
    near(table[3], 0.001);
    h = of(RN_ROPE_LINEAR, 8, 10000, 4, 4096);
    h.attention_factor = 1.25;
    near(fill(&h, NULL), 1.25);
    for (i = 0; i < 4; i++)
        near(table[i], pow(10, -(double)i) / 4);
}

static void divisors_divide(void **state)
{
    const struct rn_rope_hparams h = of(RN_ROPE_LINEAR, 8, 10000, 2, 4096);
    const float divisors[] = {1, 2, 4, 8};
    uint32_t i;

    (void)state;
    fill(&h, divisors);
    for (i = 0; i < 4; i++)
        near(table[i], pow(10, -(double)i) / divisors[i] / 2);
}

/* The ramp's bounds: pairs 20 and 45 or 46 for Llama 2 (the YaRN paper's setting), 14 and 22 for a head of
 * 64 dimensions with base 1e7 and 262144 tokens. */
static void yarn(const struct rn_rope_hparams *h, uint32_t low, uint32_t high)
{
    double f, keep;
    uint32_t i;

    near(fill(h, NULL), 1 + 0.1 * log(h->factor));
    for (i = 0; i < h->dims / 2; i++) {
        f = plain_frequency(h, i);
        keep = i <= low ? 1 : i >= high ? 0 : 1 - (double)(i - low) / (high - low);
        near(table[i], f * (keep + (1 - keep) / h->factor));
    }
}

static void yarn_has_the_papers_ramp(void **state)
{
    struct rn_rope_hparams h = of(RN_ROPE_YARN, 128, 10000, 16, 4096);

    (void)state;
    yarn(&h, 20, 46); /* 128 ln(4096 / (32 * 2 pi)) / (2 ln 10000) = 20.94..., with 1 turn 45.03... */
    h = of(RN_ROPE_YARN, 64, 1e7, 1.1875, 262144);
    yarn(&h, 14, 22);
    assert_true(fabs(fill(&h, NULL) - 1.01719) < 5e-6);
}

static void yarn_parameters(void **state)
{
    struct rn_rope_hparams h = of(RN_ROPE_YARN, 128, 10000, 16, 4096);
    double growth = 1 + 0.1 * log(16);

    (void)state;
    h.attention_factor = 0.5;
    near(fill(&h, NULL), 0.5 * growth);
    h.attention_factor = 1;
    h.log_multiplier = 1; /* the softmax is scaled elsewhere: nothing is left for the rotation */
    near(fill(&h, NULL), 1);
    h.log_multiplier = 0.5;
    near(fill(&h, NULL), growth / (1 + 0.05 * log(16)));
    h.yarn_attention = 1.2079441541679836; /* in place of both */
    near(fill(&h, NULL), 1.2079441541679836);
    h.yarn_attention = 0;
    h.log_multiplier = 0;
    h.ext_factor = 0; /* no extrapolation: linear, without growth */
    near(fill(&h, NULL), 1);
    near(table[0], 1.0 / 16);
    near(table[63], plain_frequency(&h, 63) / 16);
    h.ext_factor = 0.25;
    fill(&h, NULL);
    near(table[0], 0.25 + 0.75 / 16);
    near(table[63], plain_frequency(&h, 63) / 16);
    h = of(RN_ROPE_YARN, 128, 10000, 1, 4096);
    near(fill(&h, NULL), 1); /* factor 1 is no scaling at all */
    near(table[40], plain_frequency(&h, 40));
    h.factor = 8; /* bounds that meet: a step, not a division by zero */
    h.beta_fast = h.beta_slow = 4;
    fill(&h, NULL);
    near(table[0], 1);
    near(table[63], plain_frequency(&h, 63) / 8);
}

/* Llama 3.1: waves of up to 2048 tokens stay, waves of more than 8192 are stretched by 8. */
static void llama3_has_three_pieces(void **state)
{
    const struct rn_rope_hparams h = of(RN_ROPE_LLAMA3, 128, 500000, 8, 8192);
    double f, wave, smooth;
    uint32_t i, pieces[3] = {0};

    (void)state;
    near(fill(&h, NULL), 1);
    for (i = 0; i < 64; i++) {
        f = plain_frequency(&h, i);
        wave = 2 * acos(-1) / f;
        smooth = (8192 / wave - 1) / 3;
        pieces[wave < 2048 ? 0 : wave > 8192 ? 2 : 1]++;
        near(table[i], wave < 2048 ? f : wave > 8192 ? f / 8 : (1 - smooth) * f / 8 + smooth * f);
    }
    assert_int_equal(pieces[0], 29); /* 64 ln(2048 / 2 pi) / ln 500000 = 28.2 */
    assert_int_equal(pieces[1], 6);  /* ... 8192 ... = 34.98 */
    assert_int_equal(pieces[2], 29);
}

static void llama3_is_not_applied_twice(void **state)
{
    const struct rn_rope_hparams h = of(RN_ROPE_LLAMA3, 8, 10000, 8, 8192);
    const float divisors[] = {1, 1, 4, 8};

    (void)state;
    fill(&h, divisors);
    near(table[2], 0.01 / 4);
    near(table[3], 0.001 / 8);
}

static void longrope_chooses_by_context(void **state)
{
    struct rn_rope_hparams h = of(RN_ROPE_LONGROPE, 8, 10000, 1, 4096);
    const float divisors[] = {1, 1.5f, 3, 6};
    uint32_t i;

    (void)state;
    assert_false(rn_rope_is_long(&h, 4096));
    assert_true(rn_rope_is_long(&h, 4097));
    h.attention_factor = 1.19;
    near(fill(&h, divisors), 1.19);
    for (i = 0; i < 4; i++)
        near(table[i], pow(10, -(double)i) / divisors[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_and_linear),
        cmocka_unit_test(divisors_divide),
        cmocka_unit_test(yarn_has_the_papers_ramp),
        cmocka_unit_test(yarn_parameters),
        cmocka_unit_test(llama3_has_three_pieces),
        cmocka_unit_test(llama3_is_not_applied_twice),
        cmocka_unit_test(longrope_chooses_by_context),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
