/* Where top-p ends, against a full sort with the same whole weights: the same token in every case, by all levels. The
 * shapes try to lead the guess astray: outliers that no sample sees, thousands of them, ties, and what cannot be
 * drawn. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "base/rng.h"
#include "base/exact.h"
#include "sampling/top_p.h"

#define MOST 140000u

static float logits[MOST], maxima[MOST / RN_BLOCK + 1];
static uint64_t keys[MOST], weights[MOST];
static int32_t tokens[MOST], sorted[MOST];

static double uniform(uint64_t *rng)
{
    return (double)(rn_splitmix64(rng) >> 11) * 0x1p-53;
}

static double normal(uint64_t *rng)
{
    return sqrt(-2 * log(1 - uniform(rng))) * cos(6.283185307179586 * uniform(rng));
}

static int better_first(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

    if (logits[x] != logits[y])
        return logits[x] > logits[y] ? -1 : 1;
    return x < y ? -1 : 1;
}

static uint64_t weight(const struct rn_top_p *p, int32_t token)
{
    return rn_quick_weight((logits[token] - p->best) * (float)fmin(1 / p->temperature, FLT_MAX));
}

/* The last token that is kept; its place in `sorted` is *n - 1. */
static int32_t by_sorting(const struct rn_top_p *p, uint32_t *n)
{
    uint64_t total = 0, sum = 0;
    double enough;

    for (uint32_t i = 0; i < p->n_vocab; i++) {
        sorted[i] = (int32_t)i;
        total += weight(p, (int32_t)i);
    }
    qsort(sorted, p->n_vocab, sizeof sorted[0], better_first);
    enough = ceil((double)total * (double)p->share);
    for (*n = 0; *n == 0 || (double)sum < enough;)
        sum += weight(p, sorted[(*n)++]);
    return sorted[*n - 1];
}

static void check(uint32_t n_vocab, double temperature, float share)
{
    static const char *const names[] = {"c", "avx2", "avx512"};
    struct rn_top_p p = {.logits = logits,
                         .maxima = maxima,
                         .n_vocab = n_vocab,
                         .best = -INFINITY,
                         .temperature = temperature,
                         .share = share,
                         .keys = keys,
                         .weights = weights,
                         .tokens = tokens};
    uint32_t n_kept;
    int32_t last;

    for (uint32_t i = 0; i < n_vocab; i++) {
        float *most = &maxima[i / RN_BLOCK];

        *most = i % RN_BLOCK == 0 || logits[i] > *most ? logits[i] : *most;
        p.best = logits[i] > p.best ? logits[i] : p.best;
    }
    last = by_sorting(&p, &n_kept);
    for (uint32_t level = 0; level < 3; level++) {
        struct rn_top_p_end end;

        p.loops = rn_loops_named(names[level]);
        if (p.loops == NULL)
            continue;
        end = rn_top_p_find(&p);
        assert_int_equal(end.token, last);
        assert_true(end.logit == logits[last]);
        assert_true(end.n_tokens <= n_vocab && end.n_tokens >= n_kept);
        for (uint32_t i = 0, at = 0; end.n_tokens < n_vocab && i < n_kept && at < end.n_tokens; at++) {
            assert_true(at == 0 || tokens[at] > tokens[at - 1]);
            i += logits[tokens[at]] > logits[last] || (logits[tokens[at]] == logits[last] && tokens[at] <= last);
            assert_true(at + 1 < end.n_tokens || i == n_kept);
        }
    }
}

static void check_all(uint32_t n_vocab)
{
    static const float shares[] = {1e-6f, 0.1f, 0.5f, 0.9f, 0.95f, 0.999f, 0.9999999f};

    for (uint32_t i = 0; i < sizeof shares / sizeof shares[0]; i++)
        check(n_vocab, 0.8, shares[i]);
}

static void smooth_shapes(void **state)
{
    static const double deviations[] = {0, 1e-3, 0.3, 1, 3, 12};
    uint64_t rng = 11;

    (void)state;
    for (uint32_t d = 0; d < sizeof deviations / sizeof deviations[0]; d++) {
        uint32_t n = d % 2 == 0 ? MOST : 31999;

        for (uint32_t i = 0; i < n; i++)
            logits[i] = (float)(deviations[d] * normal(&rng));
        check_all(n);
        for (uint32_t i = 0; i < 40; i++)
            logits[rn_splitmix64(&rng) % n] = (float)(5 * deviations[d] + 8 * uniform(&rng));
        check_all(n);
    }
}

static void ties_and_nothing(void **state)
{
    uint64_t rng = 12;

    (void)state;
    for (uint32_t kind = 0; kind < 4; kind++) {
        for (uint32_t i = 0; i < 50001; i++) {
            double x = floor(3 * normal(&rng));

            logits[i] = kind == 0 ? (x < 0 ? -0.0f : 0.0f) : (float)x;
            if (kind == 2 && i % 1000 != 0)
                logits[i] = -INFINITY;
            if (kind == 3)
                logits[i] = x > 2 ? FLT_MAX : -FLT_MAX;
        }
        check_all(50001);
    }
}

/* Groups of 16 in 544 are looked at. Others hold all that weighs, or half of it. */
static void the_sample_sees_nothing(void **state)
{
    static const uint32_t parts[] = {544, 50, 3, 1};
    uint64_t rng = 13;

    (void)state;
    for (uint32_t kind = 0; kind < 8; kind++) {
        for (uint32_t i = 0; i < MOST; i++) {
            bool hidden = i % 544 >= 17 && (i % 544 - 17) < parts[kind / 2];

            logits[i] = (float)normal(&rng) + (hidden ? (kind % 2 == 0 ? 15 : 5) : 0);
        }
        check_all(MOST);
    }
    for (uint32_t i = 0; i < MOST; i++)
        logits[i] = i % 544 < 16 ? 10 : (float)normal(&rng);
    check_all(MOST);
}

static void small_and_extreme(void **state)
{
    static const uint32_t sizes[] = {1, 2, 15, 16, 17, 127, 128, 129, 300, 4097};
    static const double temperatures[] = {1e-30, 1e-3, 0.1, 1, 100, 1e30};
    uint64_t rng = 14;

    (void)state;
    for (uint32_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (uint32_t t = 0; t < sizeof temperatures / sizeof temperatures[0]; t++)
            for (uint32_t round = 0; round < 8; round++) {
                for (uint32_t i = 0; i < sizes[s]; i++)
                    logits[i] = (float)(4 * normal(&rng));
                check(sizes[s], temperatures[t], (float)uniform(&rng));
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(smooth_shapes),
        cmocka_unit_test(ties_and_nothing),
        cmocka_unit_test(the_sample_sees_nothing),
        cmocka_unit_test(small_and_extreme),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
