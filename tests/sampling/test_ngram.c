/* The n-gram proposer against its definition, and the length of drafts against closed forms. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "sampling/ngram.h"
#include "sampling/speculate.h"
#include "tests/sampling/race.h"

#define MOST 12
#define SEEDS 20

/* What a proposal must be: what followed an earlier occurrence of the last n tokens, repeating itself beyond the
 * end. */
static bool follows(const int32_t *tokens, uint32_t n_tokens, uint32_t n, const int32_t *drafts)
{
    for (uint32_t at = n_tokens - 1; n_tokens > n && at >= n; at--) {
        uint32_t i = 0;

        if (memcmp(tokens + at - n, tokens + n_tokens - n, n * sizeof *tokens) != 0)
            continue;
        while (i < MOST && drafts[i] == (at + i < n_tokens ? tokens[at + i] : drafts[at + i - n_tokens]))
            i++;
        if (i == MOST)
            return true;
    }
    return false;
}

/* Random texts of few letters, grown token by token: all that is proposed has been there before. */
static void proposes_what_followed(void **state)
{
    struct rn_heap heap;
    uint64_t random = 5;
    uint32_t n_proposed = 0;

    (void)state;
    rn_heap_init(&heap, NULL);
    for (uint32_t round = 0; round < 40; round++) {
        struct rn_proposer *proposer = rn_ngram_new(&heap, round % 2 == 0 ? 1 : 1000);
        int32_t tokens[400], drafts[MOST];

        for (uint32_t n = 0; n < 400; n++) {
            if (proposer->ops->propose(proposer, tokens, n, MOST, drafts) > 0) {
                assert_true(follows(tokens, n, 2, drafts));
                n_proposed++;
            }
            tokens[n] = (int32_t)(rn_splitmix64(&random) % (2 + round));
        }
        proposer->ops->free(proposer);
    }
    assert_true(n_proposed > 5000);
    assert_int_equal(rn_heap_bytes(&heap), 0);
}

/* A text of period p is foretold exactly from its second period on, the longest match first. */
static void foretells_repetition(void **state)
{
    struct rn_heap heap;

    (void)state;
    rn_heap_init(&heap, NULL);
    for (uint32_t period = 1; period < 60; period++) {
        struct rn_proposer *proposer = rn_ngram_new(&heap, 4000);
        int32_t tokens[200 + MOST], drafts[MOST];
        uint32_t n_right = 0, n_asked = 0;

        for (uint32_t i = 0; i < 200 + MOST; i++)
            tokens[i] = (int32_t)(i % period * 977);
        for (uint32_t n = 2 * period + 4; n < 200; n++, n_asked++)
            if (proposer->ops->propose(proposer, tokens, n, MOST, drafts) == MOST)
                n_right += memcmp(drafts, tokens + n, sizeof drafts) == 0;
        assert_int_equal(n_right, n_asked);
        proposer->ops->free(proposer);
    }
}

static void short_and_new_texts_give_nothing(void **state)
{
    struct rn_heap heap;
    struct rn_proposer *proposer;
    int32_t tokens[300], drafts[MOST];

    (void)state;
    rn_heap_init(&heap, NULL);
    proposer = rn_ngram_new(&heap, 300);
    for (int32_t i = 0; i < 300; i++)
        tokens[i] = i;
    for (uint32_t n = 0; n < 300; n++)
        assert_int_equal(proposer->ops->propose(proposer, tokens, n, MOST, drafts), 0);
    proposer->ops->free(proposer);
}

/* Told of fewer tokens than before, and not that they are others': what was beyond their end is not looked for. */
static void shorter_texts_are_survived(void **state)
{
    struct rn_heap heap;
    uint64_t random = 17;
    uint32_t n_proposed = 0;

    (void)state;
    rn_heap_init(&heap, NULL);
    for (uint32_t round = 0; round < 40; round++) {
        struct rn_proposer *proposer = rn_ngram_new(&heap, 1000);
        int32_t tokens[400], drafts[MOST];

        for (uint32_t i = 0; i < 400; i++)
            tokens[i] = (int32_t)(i % (round + 4));
        proposer->ops->propose(proposer, tokens, 400, MOST, drafts);
        for (uint32_t n = 400; n > 0; n -= n < 30 ? 1 : (uint32_t)(rn_splitmix64(&random) % 30)) {
            uint32_t got = proposer->ops->propose(proposer, tokens, n, MOST, drafts);

            assert_true(got == 0 || (got == MOST && follows(tokens, n, 2, drafts)));
            n_proposed += got > 0;
        }
        for (uint32_t n = 1; n < 400; n++) { /* and they grow again */
            uint32_t got = proposer->ops->propose(proposer, tokens, n, MOST, drafts);

            assert_true(got == 0 || (got == MOST && follows(tokens, n, 2, drafts)));
            n_proposed += got > 0;
        }
        proposer->ops->free(proposer);
    }
    assert_true(n_proposed > 1000);
    assert_int_equal(rn_heap_bytes(&heap), 0);
}

/* ---- Stores ---- */

/* Where the run of n tokens before tokens[n_tokens] stands in the text, the last place that something follows: what
 * followed. Or -1. */
static int64_t last_met(const int32_t *text, uint32_t n_text, const int32_t *end, uint32_t n)
{
    for (int64_t at = (int64_t)n_text - 1; at >= (int64_t)n; at--)
        if (memcmp(text + at - n, end - n, n * sizeof *text) == 0)
            return at;
    return -1;
}

/* Of one text added, by a search from its end: what followed the longest run, or a shorter one where another run of the
 * same hash has taken the longest's place. */
static void store_says_what_followed(void **state)
{
    enum { TEXT = 900 };
    struct rn_heap heap;
    uint64_t random = 3;
    uint32_t n_found = 0, n_longest = 0;

    (void)state;
    rn_heap_init(&heap, NULL);
    for (uint32_t round = 0; round < 30; round++) {
        struct rn_ngram_store *store = rn_ngram_store_new(&heap);
        int32_t text[TEXT], asked[40], drafts[MOST];

        for (uint32_t i = 0; i < TEXT; i++)
            text[i] = (int32_t)(rn_splitmix64(&random) % (3 + round));
        rn_ngram_store_add(store, text, TEXT);
        for (uint32_t i = 0; i < 40; i++)
            asked[i] = (int32_t)(rn_splitmix64(&random) % (3 + round));
        for (uint32_t n = 6; n <= 40; n++) {
            uint32_t got = rn_ngram_store_propose(store, asked, n, 0, MOST, drafts), longest = 0, k;

            for (k = RN_NGRAM_MOST; k >= RN_NGRAM_LEAST; k--) {
                int64_t at = last_met(text, TEXT, asked + n, k);

                longest = longest == 0 && at >= 0 ? k : longest;
                if (at >= 0 && got > 0 && memcmp(drafts, text + at, got * sizeof *drafts) == 0)
                    break;
            }
            assert_true(got == 0 || k >= RN_NGRAM_LEAST);
            n_found += got > 0;
            n_longest += got > 0 && k == longest;
        }
        rn_ngram_store_free(store);
    }
    assert_true(n_found > 500 && n_longest * 10 > n_found * 9);
    assert_int_equal(rn_heap_bytes(&heap), 0);
}

/* It grows by nothing, remembers the last texts, has forgotten the first, and proposes nothing across their ends. */
static void store_is_bounded(void **state)
{
    struct rn_heap heap;
    struct rn_ngram_store *store;
    int32_t text[100], drafts[MOST];
    size_t bytes;

    (void)state;
    rn_heap_init(&heap, NULL);
    store = rn_ngram_store_new(&heap);
    bytes = rn_heap_bytes(&heap);
    for (int32_t round = 0; round < 2000; round++) {
        for (int32_t i = 0; i < 100; i++)
            text[i] = round * 100 + i;
        rn_ngram_store_add(store, text, 100);
        assert_int_equal(rn_ngram_store_propose(store, text, 50, 0, MOST, drafts), MOST);
        assert_memory_equal(drafts, text + 50, MOST * sizeof *drafts);
        assert_int_equal(rn_ngram_store_propose(store, text, 95, 0, MOST, drafts), 5);
        assert_int_equal(rn_ngram_store_propose(store, text, 100, 0, MOST, drafts), 0);
    }
    for (int32_t i = 0; i < 100; i++)
        text[i] = i;
    assert_int_equal(rn_ngram_store_propose(store, text, 50, 0, MOST, drafts), 0);
    assert_true(rn_heap_bytes(&heap) == bytes && bytes < 220000);
    rn_ngram_store_clear(store);
    for (int32_t i = 0; i < 100; i++)
        text[i] = 1999 * 100 + i;
    assert_int_equal(rn_ngram_store_propose(store, text, 50, 0, MOST, drafts), 0);
    rn_ngram_store_free(store);
}

/* With a store the longer match wins; its own where they are equal. */
static void longer_match_wins(void **state)
{
    static const int32_t stored[] = {7, 1, 2, 3, 50, 51, 52}, own[] = {1, 2, 3, 60, 61, 9, 9, 1, 2, 3},
                         longer[] = {1, 2, 3, 60, 61, 9, 7, 1, 2, 3};
    struct rn_heap heap;
    struct rn_ngram_store *store;
    struct rn_proposer *proposer;
    int32_t drafts[MOST];

    (void)state;
    rn_heap_init(&heap, NULL);
    store = rn_ngram_store_new(&heap);
    rn_ngram_store_add(store, stored, 7);
    proposer = rn_ngram_new(&heap, 100);
    rn_ngram_share(proposer, store);
    assert_true(proposer->ops->propose(proposer, own, 10, 2, drafts) == 2 && drafts[0] == 60 && drafts[1] == 61);
    proposer->ops->free(proposer);
    proposer = rn_ngram_new(&heap, 100);
    rn_ngram_share(proposer, store);
    assert_true(proposer->ops->propose(proposer, longer, 10, 2, drafts) == 2 && drafts[0] == 50 && drafts[1] == 51);
    rn_ngram_share(proposer, NULL);
    assert_true(proposer->ops->propose(proposer, longer, 10, 2, drafts) == 2 && drafts[0] == 60);
    proposer->ops->free(proposer);
    rn_ngram_store_free(store);
}

/* ---- Lengths ---- */

/* Times of base + slope per row, for all sizes. */
static struct rn_step_cost line(uint32_t base, uint32_t slope)
{
    struct rn_step_cost cost = {.us = {0}};

    for (uint32_t i = 0; i < 16 * 1024; i++) /* 683: every size, again and again, in no order */
        rn_step_cost_record(&cost, 1 + i * 683 % 1024, base + slope * (1 + i * 683 % 1024));
    return cost;
}

static uint32_t length_at(float acceptance, const struct rn_step_cost *cost, uint32_t n_streams)
{
    struct rn_speculation s;

    rn_speculation_init(&s);
    s.acceptance = s.first = s.later = acceptance;
    s.budget = 8; /* enough for all */
    return rn_speculation_length(&s, cost, n_streams, n_streams, 8);
}

/* The k that a search in double finds, over the same line. */
static uint32_t length_by_search(double a, double base, double slope)
{
    double best = 1.03 / (base + slope), tokens = 1, power = 1;
    uint32_t length = 0;

    for (uint32_t k = 1; k <= 8; k++) {
        power *= a;
        tokens += power;
        if (tokens / (base + slope * (k + 1)) > best) {
            best = tokens / (base + slope * (k + 1));
            length = k;
        }
    }
    return length;
}

static void length_follows_cost(void **state)
{
    struct rn_step_cost free_rows = line(1000, 0), dear_rows = line(0, 1000), mixed = line(10000, 1000);

    (void)state;
    assert_int_equal(length_at(0.9f, &free_rows, 1), 8);
    assert_int_equal(length_at(0.99f, &dear_rows, 1), 0);
    assert_int_equal(length_at(0.01f, &mixed, 1), 0);
    for (uint32_t percent = 5; percent < 100; percent += 10)
        assert_int_equal(length_at((float)percent / 100, &mixed, 1),
                         length_by_search((double)((float)percent / 100), 10000, 1000));
    assert_true(length_at(0.8f, &mixed, 64) < length_at(0.8f, &mixed, 1));
}

static const float second_shares[6] = {0.35f, 0.02f, 0, 0.5f, 0.2f, 0.08f};

/* Tokens of a step with the chain of k and the runners-up in the mask, a draft being right with `a`. */
static double worth(double a, uint32_t k, uint32_t mask)
{
    double tokens = 1, reach = 1;

    for (uint32_t i = 0; i < k; i++) {
        double right = (double)second_shares[i];

        if ((mask >> i & 1) != 0)
            tokens += reach * (right < 1 - a ? right : 1 - a);
        reach *= a;
        tokens += reach;
    }
    return tokens;
}

/* The tree that is chosen is as good as the best of all: every chain with every set of runners-up. */
static void shape_is_the_best_of_all(void **state)
{
    static const uint32_t slopes[] = {0, 100, 400, 1000, 3000};
    uint32_t n_branches = 0;

    (void)state;
    for (uint32_t c = 0; c < 5; c++)
        for (uint32_t percent = 5; percent < 100; percent += 10) {
            struct rn_step_cost cost = line(10000, slopes[c]);
            double a = (double)((float)percent / 100), best = 1.03 / (10000 + slopes[c]), got;
            struct rn_speculation s;
            struct rn_shape shape;

            rn_speculation_init(&s);
            s.acceptance = s.first = s.later = (float)percent / 100;
            s.budget = 100;
            s.seen = 64;
            shape = rn_speculation_shape(&s, &cost, 1, 1, 6, 8, second_shares);
            for (uint32_t k = 0; k <= 6; k++)
                for (uint32_t mask = 0; mask < 1u << k; mask++) {
                    uint32_t rows = k + (uint32_t)__builtin_popcount(mask);
                    double rate = worth(a, k, mask) / (10000 + slopes[c] * (1.0 + rows));

                    best = rows <= 8 && rate > best ? rate : best;
                }
            assert_true(shape.n_chain <= 6 && shape.branches >> shape.n_chain == 0 &&
                        shape.n_branches == (uint32_t)__builtin_popcount(shape.branches) &&
                        shape.n_chain + shape.n_branches <= 8 && (shape.branches & 4) == 0);
            got = worth(a, shape.n_chain, shape.branches) /
                  (10000 + slopes[c] * (1.0 + shape.n_chain + shape.n_branches));
            if (!(shape.n_chain == 0 ? best < 1.032 / (10000 + slopes[c]) : got > best * 0.999))
                fail_msg("slope %u, right %u: chain %u, runners-up %x: %g of the best", slopes[c], percent,
                         shape.n_chain, shape.branches, got / best);
            n_branches += shape.n_branches;
        }
    assert_true(n_branches > 20);
}

/* A proposer may tell any share: what its runners-up are worth comes of how often they were right. */
static void shares_are_measured(void **state)
{
    static const float told[] = {0.02f, 0.3f, 1}, truths[] = {0, 0.15f, 0.6f};
    uint64_t random = 4;

    (void)state;
    for (uint32_t t = 0; t < 3; t++)
        for (uint32_t w = 0; w < 3; w++) {
            struct rn_speculation s;
            double sum = 0;

            rn_speculation_init(&s);
            for (uint32_t i = 0; i < 20000; i++) {
                rn_speculation_note_runner_up(&s, told[t],
                                              (double)(rn_splitmix64(&random) >> 11) * 0x1p-53 < (double)truths[w]);
                sum += i >= 10000 ? (double)(s.seconds / s.shares * told[t]) : 0;
            }
            if (!(sum / 10000 > (double)truths[w] - 0.03 && sum / 10000 < (double)truths[w] + 0.03))
                fail_msg("told %g, true %g: %g", (double)told[t], (double)truths[w], sum / 10000);
        }
}

/* What is spent in vain is bounded by the budget: 0.6 tokens and 0.3 percent of the steps. Rows that cost nothing may
 * always be tried; where nothing is known nothing is. */
static void budget_bounds_what_is_lost(void **state)
{
    struct rn_step_cost dear = line(1000, 1000), free_rows = line(1000, 0), none = {.us = {0}};
    struct rn_speculation s;
    uint32_t n_steps = 5000, n_drafts = 0;

    (void)state;
    rn_speculation_init(&s);
    for (uint32_t i = 0; i < n_steps; i++) {
        uint32_t n = rn_speculation_length(&s, &dear, 1, 1, 8);

        n_drafts += n;
        rn_speculation_note(&s, n, 0);
    }
    assert_in_range(n_drafts, 5, (uint32_t)((0.6 + 0.003 * n_steps) / 0.5) + 1); /* a row costs half of a step of one */
    rn_speculation_init(&s);
    assert_int_equal(rn_speculation_length(&s, &none, 1, 1, 8), 0);
    assert_true(rn_speculation_length(&s, &free_rows, 1, 1, 8) > 0);
}

/* Whatever drafts are worth and rows cost, also where times are noisy: never below 0.98 of plain. */
static void never_much_below_plain(void **state)
{
    static const double bases[] = {0, 5000, 20000, 100000}, swings[] = {0, 0.1};
    static const uint32_t streams[] = {1, 3, 8, 16, 40, 64};
    double least = 1, most = 0;

    (void)state;
    for (uint32_t b = 0; b < 4; b++)
        for (uint32_t n = 0; n < 6; n++)
            for (uint32_t tenths = 0; tenths <= 10; tenths++)
                for (uint32_t w = 0; w < 2; w++) {
                    struct race race = {.base = bases[b],
                                        .slope = 1000,
                                        .swing = swings[w],
                                        .acceptance = tenths * 0.1,
                                        .n_streams = streams[n],
                                        .n_tokens = 96};
                    double rate = race_run(&race, 1 + tenths);

                    if (!(rate >= 0.98))
                        fail_msg("base %g, %u streams, acceptance %g, swing %g: %g of plain", bases[b], streams[n],
                                 race.acceptance, swings[w], rate);
                    least = rate < least ? rate : least;
                    most = rate > most ? rate : most;
                }
    print_message("%.3f to %.2f times plain\n", least, most);
    assert_true(most > 5);
}

/* Likewise with runners-up, whatever is told of them; where they are good and rows cheap they gain on the chain. Where
 * times are noisy single runs differ, with runners-up as without: of those the mean counts. */
static void branches_never_much_below_plain(void **state)
{
    static const double bases[] = {0, 5000, 20000, 100000}, seconds[] = {0, 0.4, 0.9};
    static const float told[] = {0.05f, 0.3f, 1};
    static const uint32_t streams[] = {1, 3, 16, 64};
    double most = 0;

    (void)state;
    for (uint32_t i = 0; i < 4 * 4 * 3 * 3 * 6; i++) {
        struct race race = {.base = bases[i % 4],
                            .slope = 1000,
                            .swing = 0,
                            .acceptance = i / 144 * 0.2,
                            .n_streams = streams[i / 4 % 4],
                            .n_tokens = 96,
                            .told = told[i / 16 % 3],
                            .second = seconds[i / 48 % 3]};
        struct race chain = race;
        double rate = race_run(&race, 1 + i), against, noisy = 0;

        chain.told = 0;
        against = rate / race_run(&chain, 1 + i);
        most = against > most ? against : most;
        race.swing = 0.1;
        for (uint32_t k = 0; k < SEEDS; k++)
            noisy += race_run(&race, 1 + i + 1000 * k) / SEEDS;
        if (!(rate >= 0.98 && noisy >= 0.975))
            fail_msg("base %g, %u streams, acceptance %g, second %g, told %g: %g of plain, with noise %g", race.base,
                     race.n_streams, race.acceptance, race.second, (double)race.told, rate, noisy);
    }
    print_message("up to %.2f times the chain\n", most);
    assert_true(most > 1.15);
}

/* Of long answers, where a row costs a twentieth: runners-up that are never right cost next to nothing, and those that
 * are right in half of the cases gain. */
static void branches_pay_where_they_are_right(void **state)
{
    (void)state;
    for (uint32_t way = 0; way < 2; way++) {
        struct race tree = {.base = 20000,
                            .slope = 1000,
                            .swing = 0.1,
                            .acceptance = 0.6,
                            .n_streams = 1,
                            .n_tokens = 20000,
                            .told = 0.3f,
                            .second = way == 0 ? 0 : 0.6};
        struct race chain = tree;
        double rate = race_run(&tree, 3);

        chain.told = 0;
        rate /= race_run(&chain, 3);
        print_message("%g of the chain, %g runners-up a token\n", rate, tree.branched / tree.n_tokens);
        assert_true(way == 0 ? rate > 0.98 && tree.branched < 200 : rate > 1.02 && tree.branched > 1000);
    }
}

/* The rolling acceptance comes near the true one. */
static void acceptance_is_learnt(void **state)
{
    uint64_t random = 9;

    (void)state;
    for (uint32_t percent = 0; percent <= 100; percent += 25) {
        struct rn_speculation s;
        double sum = 0;

        rn_speculation_init(&s);
        for (uint32_t i = 0; i < 5000; i++) {
            uint32_t n = 0;

            while (n < 5 && rn_splitmix64(&random) % 100 < percent)
                n++;
            rn_speculation_note(&s, 5, n);
            sum += i >= 1000 ? (double)s.acceptance : 0;
        }
        assert_true(sum / 4000 > percent * 0.01 - 0.05 && sum / 4000 < percent * 0.01 + 0.05);
    }
}

static bool near(float got, double want)
{
    return got > want * 0.999 && got < want * 1.001;
}

static void cost_between_and_beyond(void **state)
{
    struct rn_step_cost cost = {.us = {0}};

    (void)state;
    assert_true(rn_step_cost_of(&cost, 3) == 0);
    rn_step_cost_record(&cost, 2, 120);
    assert_true(near(rn_step_cost_of(&cost, 1), 100) && near(rn_step_cost_of(&cost, 6), 200));
    rn_step_cost_record(&cost, 6, 220);
    assert_true(near(rn_step_cost_of(&cost, 4), 170) && near(rn_step_cost_of(&cost, 16), 440));
    for (int i = 0; i < 400; i++) /* what was held up once does not count for long, nor fully */
        rn_step_cost_record(&cost, 2, i == 60 ? 100000 : 120);
    assert_true(near(rn_step_cost_of(&cost, 2), 120));
    for (uint32_t rows = 17; rows <= 512; rows++)
        rn_step_cost_record(&cost, rows, 1000 + 10 * rows);
    for (uint32_t rows = 20; rows <= 480; rows += 7)
        assert_true(rn_step_cost_of(&cost, rows) > (1000 + 10 * rows) * 0.9 &&
                    rn_step_cost_of(&cost, rows) < (1000 + 10 * rows) * 1.1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(proposes_what_followed),
        cmocka_unit_test(foretells_repetition),
        cmocka_unit_test(short_and_new_texts_give_nothing),
        cmocka_unit_test(shorter_texts_are_survived),
        cmocka_unit_test(store_says_what_followed),
        cmocka_unit_test(store_is_bounded),
        cmocka_unit_test(longer_match_wins),
        cmocka_unit_test(length_follows_cost),
        cmocka_unit_test(budget_bounds_what_is_lost),
        cmocka_unit_test(never_much_below_plain),
        cmocka_unit_test(shape_is_the_best_of_all),
        cmocka_unit_test(shares_are_measured),
        cmocka_unit_test(branches_never_much_below_plain),
        cmocka_unit_test(branches_pay_where_they_are_right),
        cmocka_unit_test(acceptance_is_learnt),
        cmocka_unit_test(cost_between_and_beyond),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
