/* Do the tokens of texts have the probabilities that a chain says where a drafter speculates? The logits and what
 * penalties and dry do depend on the last three tokens, so each such past has a distribution of its own, and a token
 * counts in that of the past it came behind, whether it was a draft or not. The judge is that of test_draws.c; slightly
 * other logits must be rejected, and drafts must be both accepted and refuted.
 *
 *   test_sampling_texts [SEEDS]      a thousand tokens each: 1000 for a million */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "draws.h"
#include "sampling/sampler.h"

static uint64_t n_seeds;

#define FEW 6u /* a vocabulary small enough for statistics of each past */
#define PASTS (FEW * FEW * FEW)
#define DRAFTS 2u

/* What a model of one token's memory computes, and a drafter that has learnt from it. */
struct pair {
    float logits[FEW][FEW], drafter[FEW][FEW];
};

static uint32_t seen_behind[PASTS][FEW];
static uint32_t n_accepted, n_refuted;

static uint32_t place_of(const int32_t *past)
{
    return (uint32_t)((past[0] * (int32_t)FEW + past[1]) * (int32_t)FEW + past[2]);
}

/* One step: drafts with the same coin, then a pick behind each of them, the last one first. Returns how many tokens
 * came to the text. */
static uint32_t step(const struct pair *pair, struct rn_sampler *sampler, struct rn_sampler_scratch *scratch,
                     int32_t *text, uint32_t n)
{
    runnel_sampling plain = rn_sampler_plain(sampler);
    int32_t drafts[DRAFTS];
    struct rn_pick picks[DRAFTS + 1];

    for (uint32_t i = 0; i < DRAFTS; i++) {
        int32_t last = i > 0 ? drafts[i - 1] : text[n - 1];

        assert_int_equal(rn_sampler_pick_plain(&plain, FEW, scratch, pair->drafter[last], n + i, &picks[0], NULL),
                         RUNNEL_OK);
        drafts[i] = picks[0].token;
    }
    for (uint32_t i = DRAFTS + 1; i-- > 0;) {
        const float *logits = pair->logits[i > 0 ? drafts[i - 1] : text[n - 1]];

        assert_int_equal(
            rn_sampler_pick_behind(sampler, (struct rn_path){drafts, i}, scratch, logits, n + i, false, 0, &picks[i]),
            RUNNEL_OK);
    }
    for (uint32_t i = 0;; i++) {
        text[n + i] = picks[i].token;
        seen_behind[place_of(&text[n + i - 3])][picks[i].token]++;
        rn_sampler_accept(sampler, picks[i].token);
        if (i == DRAFTS || picks[i].token != drafts[i]) {
            n_refuted += i < DRAFTS;
            return i + 1;
        }
        n_accepted++;
    }
}

static void write_texts(const struct pair *pair, const runnel_sampling *params)
{
    struct rn_heap heap;
    struct rn_sampler_scratch *scratch;
    runnel_sampling p = *params;

    rn_heap_init(&heap, NULL);
    scratch = rn_sampler_scratch_new(&heap, FEW);
    memset(seen_behind, 0, sizeof seen_behind);
    n_accepted = n_refuted = 0;
    for (p.seed = 0; p.seed < n_seeds; p.seed++) {
        struct rn_sampler *sampler = rn_sampler_new(&heap, &p, FEW, DRAWS_OF_SEED + 16);
        int32_t text[DRAWS_OF_SEED + DRAFTS + 8];
        uint32_t n = 3;

        for (uint32_t i = 0; i < 3; i++)
            rn_sampler_accept(sampler, text[i] = (int32_t)((p.seed + i) % FEW));
        while (n < DRAWS_OF_SEED + 3)
            n += step(pair, sampler, scratch, text, n);
        rn_sampler_free(sampler);
    }
    rn_sampler_scratch_free(scratch);
    assert_true(n_accepted > n_seeds * DRAWS_OF_SEED / 4 && n_refuted > n_seeds * DRAWS_OF_SEED / 100);
}

/* All pasts together; bias: of the first token of each. */
static double judge_texts(const struct pair *pair, const char *order, const runnel_sampling *p, float bias)
{
    double sum = 0, k = 0;

    for (int32_t c = 0; c < (int32_t)PASTS; c++) {
        int32_t past[] = {c / (int32_t)(FEW * FEW), c / (int32_t)FEW % (int32_t)FEW, c % (int32_t)FEW};
        long double expected[FEW];
        float logits[FEW];

        memcpy(logits, pair->logits[past[2]], sizeof logits);
        logits[0] += bias;
        draws_expect(order, p, logits, FEW, past, expected);
        sum += draws_distance(seen_behind[c], expected, FEW, &k);
    }
    return draws_over_threshold(sum, k);
}

static void texts_with_drafts_have_their_probabilities(void **state)
{
    uint64_t rng = 5;
    struct pair pair;

    (void)state;
    for (uint32_t i = 0; i < FEW * FEW; i++) {
        pair.logits[i / FEW][i % FEW] = (float)draws_normal(&rng);
        pair.drafter[i / FEW][i % FEW] = pair.logits[i / FEW][i % FEW] + (float)(0.2 * draws_normal(&rng));
    }
    for (uint32_t i = 0; i < draws_n_chains; i++) {
        runnel_samplers s;
        runnel_sampling p;

        draws_take_chain(i, &p, &s);
        if (s.mirostat > 0 || s.adaptive_target >= 0)
            continue; /* they draft nothing */
        if (i > 0 && strcmp(draws_chains[i].order, draws_chains[i - 1].order) == 0)
            continue; /* other values: test_draws.c */
        write_texts(&pair, &p);
        draws_check(draws_chains[i].order, judge_texts(&pair, draws_chains[i].order, &p, 0),
                    judge_texts(&pair, draws_chains[i].order, &p, 0.2f));
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_with_drafts_have_their_probabilities),
    };

    n_seeds = draws_seeds(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
