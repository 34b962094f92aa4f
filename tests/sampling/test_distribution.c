/* Do the draws have the probabilities that the parameters say? Pearson's chi-square of many draws with
 * fixed seeds against the exact probabilities of the judge; and the same statistic against wrong
 * probabilities, which must be rejected, so that the test is known to see.
 *
 * Threshold: Wilson-Hilferty's approximation of the chi-square quantile at 1e-6 (z = 4.753); with
 * fixed seeds the outcome is the same in every run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "reference.h"
#include "sampling/sampler.h"

#define VOCAB 50
#define DRAWS 40000

static struct reference judge;
static float logits[VOCAB];
static uint32_t seen[VOCAB];

/* How far beyond the threshold the counts are: above 1 is a rejection, as is a draw of what a filter
 * has taken out. Cells with fewer than 5 expected draws are merged. */
static double rejection(const long double *p, const int32_t *token, uint32_t n)
{
    double sum = 0, rest_expected = 0, rest_seen = 0, k, cut;
    uint32_t cells = 0, inside = 0;

    for (uint32_t i = 0; i < n; i++) {
        double expected = (double)p[i] * DRAWS, got = seen[token[i]];

        inside += seen[token[i]];
        if (expected < 5) {
            rest_expected += expected;
            rest_seen += got;
            continue;
        }
        sum += (got - expected) * (got - expected) / expected;
        cells++;
    }
    if (rest_expected >= 5) {
        sum += (rest_seen - rest_expected) * (rest_seen - rest_expected) / rest_expected;
        cells++;
    }
    if (inside < DRAWS)
        return INFINITY;
    assert_true(cells > 1);
    k = cells - 1;
    cut = k * pow(1 - 2 / (9 * k) + 4.753 * sqrt(2 / (9 * k)), 3);
    return sum / cut;
}

/* by_position: one seed and many positions, as in one answer; else many seeds at one position. */
static void draw_many(const runnel_sampling *params, bool by_position)
{
    struct rn_heap heap;
    struct rn_sampler_scratch *scratch;
    runnel_sampling p = *params;

    rn_heap_init(&heap, NULL);
    scratch = rn_sampler_scratch_new(&heap, VOCAB);
    assert_non_null(scratch);
    memset(seen, 0, sizeof seen);
    for (uint64_t i = 0; i < DRAWS; i++) {
        struct rn_sampler *s;
        struct rn_pick pick;

        p.seed = by_position ? 17 : i;
        s = rn_sampler_new(&heap, &p, VOCAB, 1);
        assert_int_equal(rn_sampler_pick(s, scratch, logits, by_position ? i : 17, false, 0, &pick), RUNNEL_OK);
        seen[pick.token]++;
        rn_sampler_free(s);
    }
    rn_sampler_scratch_free(scratch);
}

static void draws_fit(const runnel_sampling *p)
{
    reference_run(&judge, p, logits, VOCAB, NULL, 0);
    for (int by_position = 0; by_position < 2; by_position++) {
        draw_many(p, by_position);
        assert_true(rejection(judge.p, judge.token, judge.n) < 1);
    }
}

static void draws_have_their_probabilities(void **state)
{
    runnel_sampling p = reference_plain();
    uint64_t rng = 3;

    (void)state;
    for (uint32_t i = 0; i < VOCAB; i++)
        logits[i] = (float)((double)(rn_splitmix64(&rng) >> 11) * 0x1p-53 * 5);
    draws_fit(&p);
    p.temperature = 0.6f;
    draws_fit(&p);
    p.temperature = 2.5f;
    draws_fit(&p);
    p.top_k = 12;
    draws_fit(&p);
    p.top_p = 0.8f;
    draws_fit(&p);
    p.top_k = 0;
    draws_fit(&p);
    p.top_p = 1;
    p.min_p = 0.2f;
    draws_fit(&p);
    p.top_k = 30;
    p.top_p = 0.9f;
    draws_fit(&p);
}

static void wrong_probabilities_are_rejected(void **state)
{
    runnel_sampling p = reference_plain(), warmer = p, narrower = p;

    (void)state;
    for (uint32_t i = 0; i < VOCAB; i++)
        logits[i] = (float)i * 0.1f;
    warmer.temperature = 1.1f;
    narrower.top_p = 0.97f;
    draw_many(&p, true);
    reference_run(&judge, &p, logits, VOCAB, NULL, 0);
    assert_true(rejection(judge.p, judge.token, judge.n) < 1);
    reference_run(&judge, &warmer, logits, VOCAB, NULL, 0);
    assert_true(rejection(judge.p, judge.token, judge.n) > 1);
    reference_run(&judge, &narrower, logits, VOCAB, NULL, 0);
    assert_true(rejection(judge.p, judge.token, judge.n) > 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_have_their_probabilities),
        cmocka_unit_test(wrong_probabilities_are_rejected),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
