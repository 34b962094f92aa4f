/* Do many draws from one distribution have the probabilities that a chain says? Each sampler alone and typical
 * chains, with Pearson's chi-square against the judge in chain_reference.c. The same counts are held against slightly
 * other logits, and must reject them.
 *
 *   test_sampling_draws [SEEDS]      a thousand draws each: 1000 for a million */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "draws.h"
#include "sampling/sampler.h"

static uint64_t n_seeds;

static void count_draws(const runnel_sampling *params, const float *logits, const int32_t *past, uint32_t *seen)
{
    struct rn_heap heap;
    struct rn_sampler_scratch *scratch;
    runnel_sampling p = *params;

    rn_heap_init(&heap, NULL);
    scratch = rn_sampler_scratch_new(&heap, DRAWS_VOCAB);
    memset(seen, 0, DRAWS_VOCAB * sizeof *seen);
    for (p.seed = 0; p.seed < n_seeds; p.seed++) {
        struct rn_sampler *sampler = rn_sampler_new(&heap, &p, DRAWS_VOCAB, 16);

        for (uint32_t i = 0; i < 3; i++)
            rn_sampler_accept(sampler, past[i]);
        for (uint64_t position = 0; position < DRAWS_OF_SEED; position++) {
            struct rn_pick pick;

            assert_int_equal(rn_sampler_pick(sampler, scratch, logits, position, false, 0, &pick), RUNNEL_OK);
            seen[pick.token]++;
        }
        rn_sampler_free(sampler);
    }
    rn_sampler_scratch_free(scratch);
}

static double judge_draws(const char *order, const runnel_sampling *p, const float *logits, const int32_t *past,
                          const uint32_t *seen)
{
    long double expected[DRAWS_VOCAB];
    double k = 0, sum;

    draws_expect(order, p, logits, DRAWS_VOCAB, past, expected);
    sum = draws_distance(seen, expected, DRAWS_VOCAB, &k);
    return draws_over_threshold(sum, k);
}

static void draws_have_their_probabilities(void **state)
{
    static const int32_t past[] = {3, 5, 3};
    uint64_t rng = 4;
    float logits[DRAWS_VOCAB], other[DRAWS_VOCAB];
    uint32_t seen[DRAWS_VOCAB];

    (void)state;
    for (uint32_t i = 0; i < DRAWS_VOCAB; i++) {
        logits[i] = (float)(1.3 * draws_normal(&rng));
        other[i] = 1.05f * logits[i];
    }
    for (uint32_t i = 0; i < draws_n_chains; i++) {
        runnel_samplers s;
        runnel_sampling p;

        draws_take_chain(i, &p, &s);
        count_draws(&p, logits, past, seen);
        draws_check(draws_chains[i].order, judge_draws(draws_chains[i].order, &p, logits, past, seen),
                    judge_draws(draws_chains[i].order, &p, other, past, seen));
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_have_their_probabilities),
    };

    n_seeds = draws_seeds(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
