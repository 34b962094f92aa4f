/* The coin's arithmetic against libm in long double, and its noise against the distribution of Gumbel. A draw whose
 * noise is not needed by its bound must not be the winner: every word is held against the bound of its own noise. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

#include "reference.h"
#include "base/exact.h"
#include "sampling/levels/loops.h"
#include "sampling/noise.h"

static void log_and_exp(void **state)
{
    uint64_t rng = 1;

    (void)state;
    for (uint32_t i = 0; i < 1000000; i++) {
        double u = (double)(rn_splitmix64(&rng) >> 11) * 0x1p-53 + 0x1p-60;
        double x = ldexp(u, (int)(i % 2000) - 1000), z = (i % 2 ? 1416 : 1e-3) * (u - 0.5);
        long double right = logl((long double)x);

        assert_true(fabsl((long double)rn_exact_log(x) - right) <= 0x1p-51L * fabsl(right));
        right = expl((long double)z);
        assert_true(fabsl((long double)rn_exact_exp(z) - right) <= 0x1p-51L * right);
    }
    for (uint32_t i = 0; i < 1000; i++) { /* near 1, where a logarithm is small */
        double x = 1 + ((double)i - 500) * 0x1p-50;

        assert_true(fabsl((long double)rn_exact_log(x) - logl((long double)x)) <=
                    0x1p-51L * fabsl(logl((long double)x)));
    }
    assert_true(rn_exact_log(1) == 0 && rn_exact_exp(0) == 1);
}

/* From the definitions, for a few words to the bit: who changes the coin changes every stored text. */
static void words_and_noise(void **state)
{
    static const struct {
        uint64_t seed, position;
        uint32_t token, word;
        double noise;
    } known[] = {
        {0x0u, 0x0u, 0, 0x2dce73e5u, 0x1.9fb1293c5f992p+0},
        {0x0u, 0x0u, 5, 0x8f19a45au, 0x1.99bc63d4ce2fap-3},
        {0x1u, 0x0u, 0, 0x127bee41u, 0x1.4ba6d5864ec60p+1},
        {0x0u, 0x1u, 0, 0xe9535be3u, -0x1.c55280ad92942p-1},
        {0x2au, 0x3e8u, 151935, 0x512d4a4u, 0x1.f4a056c32faefp+1},
        {0xfedcba9876543210u, 0x200000000u, 2, 0xa35e10d7u, -0x1.0cb9158c5c9b9p-6},
        {0x7u, 0x7u, 262143, 0x38ae26c6u, 0x1.629e29383f6f2p+0},
    };

    (void)state;
    for (uint32_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        uint32_t word = rn_noise_word(known[i].seed, known[i].position, known[i].token);

        assert_int_equal(word, known[i].word);
        assert_true(rn_noise_of(word) == known[i].noise);
        assert_true(fabsl((long double)rn_noise_of(word) -
                          reference_noise(known[i].seed, known[i].position, (int32_t)known[i].token)) < 1e-14L);
    }
    assert_true(rn_noise_most(0) >= rn_noise_of(0) && rn_noise_most(1) >= rn_noise_of(1));
    assert_true(rn_noise_of(0) < RN_NOISE_MOST && rn_noise_of(UINT32_MAX) > -3.14);
}

static void blocks_are_words(void **state)
{
    static const char *const names[] = {"c", "avx2", "avx512"};
    const uint64_t position = (uint64_t)1 << 40;
    struct rn_noise_keys keys, other;

    (void)state;
    rn_noise_keys(3, position, &keys);
    rn_noise_keys(~(uint64_t)0, 7, &other);
    for (uint32_t level = 0; level < 3; level++) {
        const struct rn_loops *loops = rn_loops_named(names[level]);
        uint32_t words[RN_BLOCK], least = UINT32_MAX;
        uint64_t hits[RN_BLOCK / 64];

        if (loops == NULL)
            continue;
        assert_true(loops->noise(&keys, 0, UINT32_MAX, words, hits));
        assert_true(hits[0] == UINT64_MAX && hits[1] == UINT64_MAX);
        for (uint32_t i = 0; i < RN_BLOCK; i++) {
            assert_int_equal(words[i], rn_noise_word(3, position, i));
            least = words[i] < least ? words[i] : least;
        }
        assert_false(loops->noise(&keys, 0, least - 1, words, hits));
        for (uint32_t bound = 1u << 31; bound >= least; bound /= 2) {
            assert_true(loops->noise(&keys, 0, bound, words, hits));
            for (uint32_t i = 0; i < RN_BLOCK; i++)
                assert_int_equal(hits[i / 64] >> i % 64 & 1, rn_noise_word(3, position, i) <= bound);
        }
        assert_true(loops->noise(&other, 1280, UINT32_MAX, words, hits));
        for (uint32_t i = 0; i < RN_BLOCK; i++)
            assert_int_equal(words[i], rn_noise_word(~(uint64_t)0, 7, 1280 + i));
    }
}

/* A word above the bound of x has no noise of x or more. */
static void bounds_hold(void **state)
{
    uint64_t rng = 5;

    (void)state;
    for (uint32_t i = 0; i < 200000; i++) {
        double x = 25 * ((double)(rn_splitmix64(&rng) >> 11) * 0x1p-53) - 4;
        uint32_t bound = x < RN_NOISE_MOST ? rn_noise_bound(exp(-x)) : 0, word = (uint32_t)rn_splitmix64(&rng);

        if (bound < UINT32_MAX)
            assert_true(rn_noise_of(bound + 1) < x);
        word >>= i % 32;
        assert_true(word <= rn_noise_bound(exp(-rn_noise_of(word))));
        assert_true(rn_noise_most(word) >= rn_noise_of(word));
    }
}

/* Kolmogorov and Smirnov's statistic of 2^20 values, one seed and many tokens, below the quantile of 1e-6. */
static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static void noise_is_gumbels(void **state)
{
    enum { N = 1 << 20 };
    static double values[N];
    double most = 0;

    (void)state;
    for (uint32_t i = 0; i < N; i++)
        values[i] = rn_noise_of(rn_noise_word(7, i / 4096, i % 4096));
    qsort(values, N, sizeof values[0], ascending);
    for (uint32_t i = 0; i < N; i++) {
        double p = exp(-exp(-values[i]));

        most = fmax(most, fmax(fabs(p - (double)i / N), fabs(p - (double)(i + 1) / N)));
    }
    assert_true(most * sqrt(N) < 2.7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(log_and_exp), cmocka_unit_test(words_and_noise),  cmocka_unit_test(blocks_are_words),
        cmocka_unit_test(bounds_hold), cmocka_unit_test(noise_is_gumbels),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
