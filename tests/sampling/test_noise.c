/* The policy of drafts where measured times are noisy. The judge is the time that steps take on average, which a race
 * knows and the policy does not: it sees each step's time with an error of its own, of mean zero. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "tests/sampling/race.h"

/* Seeds of neighbours should have nothing in common. */
static double run(struct race *race, uint64_t seed)
{
    return race_run(race, seed * 7919 + 13);
}

struct verdict {
    double least, mean;
    uint32_t n, n_below; /* runs; those below 0.98 */
};

static struct verdict judge(struct race *race, uint32_t n_seeds)
{
    struct verdict verdict = {.least = 1e9, .n = n_seeds};

    for (uint32_t seed = 1; seed <= n_seeds; seed++) {
        double rate = run(race, seed);

        verdict.least = rate < verdict.least ? rate : verdict.least;
        verdict.mean += rate / n_seeds;
        verdict.n_below += rate < 0.98;
    }
    return verdict;
}

/* Never below 0.98 of plain: the mean of each case, and single runs but for one in four hundred, and those by little. A
 * run of one stream is 96 tokens, a draft in vain as much as a hundredth of it, and whether a draft is right is chance
 * as well as what is measured. */
static void noisy_times_do_not_lose(void **state)
{
    static const double bases[] = {0, 5000, 20000, 100000}, acceptances[] = {0, 0.1, 0.2, 0.3, 0.5, 0.8};
    static const uint32_t streams[] = {1, 3, 8, 16, 40, 64};
    uint32_t n = 0, n_below = 0;
    double least = 1, least_mean = 2;

    (void)state;
    for (uint32_t i = 0; i < 4 * 6 * 6; i++) {
        struct race race = {.base = bases[i % 4],
                            .slope = 1000,
                            .swing = 0.1,
                            .acceptance = acceptances[i / 4 % 6],
                            .n_streams = streams[i / 24],
                            .n_tokens = 96};
        struct verdict v = judge(&race, race.n_streams <= 3 ? 300 : 30);

        if (!(v.mean >= 0.985 && v.least >= 0.95 && v.n_below * 20 <= v.n))
            fail_msg("base %g, %u streams, acceptance %g: %.4f of plain, least %.4f, %u of %u runs below 0.98",
                     race.base, race.n_streams, race.acceptance, v.mean, v.least, v.n_below, v.n);
        n += v.n;
        n_below += v.n_below;
        least = v.least < least ? v.least : least;
        least_mean = v.mean < least_mean ? v.mean : least_mean;
    }
    print_message("%u of %u runs below 0.98, least %.4f; least mean of a case %.4f\n", n_below, n, least, least_mean);
    assert_true(n_below * 400 <= n);
}

/* What is gained where drafts are good stays: of the best length's gain, which who knows all would always take. */
static void noisy_times_gain(void **state)
{
    static const double bases[] = {5000, 20000, 100000}, acceptances[] = {0.8, 0.95};

    (void)state;
    for (uint32_t i = 0; i < 6; i++) {
        struct race race = {.base = bases[i % 3],
                            .slope = 1000,
                            .swing = 0.1,
                            .acceptance = acceptances[i / 3],
                            .n_streams = 1,
                            .n_tokens = 2000};
        struct verdict v = judge(&race, 10);
        double best = 0, tokens = 1, power = 1;

        for (uint32_t k = 1; k <= 8; k++) {
            power *= race.acceptance;
            tokens += power;
            best = fmax(best, tokens * race_time(&race, 1) / race_time(&race, 1 + k));
        }
        print_message("base %g, acceptance %g: %.3f, of at most %.3f\n", race.base, race.acceptance, v.mean, best);
        assert_true(v.mean > 0.95 * best);
    }
}

/* A first step that was held up makes drafts look as if they cost little, or nothing where a row costs a whole step. It
 * is found out before that has cost much. */
static void held_up_is_found_out(void **state)
{
    static const double bases[] = {0, 5000, 20000};

    (void)state;
    for (uint32_t i = 0; i < 3 * 5; i++) {
        struct race race = {.base = bases[i % 3],
                            .slope = 1000,
                            .swing = 0.02,
                            .acceptance = i / 3 * 0.2,
                            .n_streams = 1,
                            .n_tokens = 96,
                            .first = 2};
        struct verdict v = judge(&race, 40);

        if (!(v.mean >= (race.base > 0 ? 0.98 : 0.9)))
            fail_msg("base %g, acceptance %g: %.4f of plain, least %.4f", race.base, race.acceptance, v.mean, v.least);
    }
}

/* Of what a rise is said to be in doubt by: how often the true one is more than 1.645 of those above what was told must
 * be one time in twenty, as of a normal distribution. */
static void doubt_is_as_large_as_the_error(void **state)
{
    static const uint32_t seen[] = {1, 4, 16};
    uint64_t random = 17;

    (void)state;
    for (uint32_t c = 0; c < 3; c++) {
        uint32_t n_above = 0, n_below = 0, n = 4000;

        for (uint32_t round = 0; round < n; round++) {
            struct race race = {.base = 20000, .slope = 3000};
            struct rn_step_cost cost = {.us = {0}};
            float rise, doubt, true_rise = 3 * 3000;

            for (uint32_t i = 0; i < 400 + 2 * seen[c]; i++) { /* steps of other sizes tell how unrestful it is */
                uint32_t rows = i < 400 ? 30 : i % 2 == 0 ? 2 : 5;
                double error = 0.1 * (race_coin(&random) + race_coin(&random) + race_coin(&random) - 1.5);

                rn_step_cost_record(&cost, rows, (uint64_t)(race_time(&race, rows) * (1 + error)));
            }
            rise = rn_step_cost_rise(&cost, 2, 3, &doubt);
            n_above += true_rise > rise + 1.645f * doubt;
            n_below += true_rise < rise - 1.645f * doubt;
        }
        print_message("%u measurements: %.3f above, %.3f below\n", seen[c], (double)n_above / n, (double)n_below / n);
        assert_in_range(n_above, n / 40, n / 12);
        assert_in_range(n_below, n / 40, n / 12);
    }
}

/* Nobody knows of a rise that was never measured more than the guess; of one measured often there is no doubt. */
static void doubt_has_bounds(void **state)
{
    struct rn_step_cost cost = {.us = {0}};
    float doubt, rise;

    (void)state;
    rn_step_cost_record(&cost, 16, 1000);
    rise = rn_step_cost_rise(&cost, 16, 4, &doubt);
    assert_true(fabsf(rise - 200) < 0.1f && doubt > 0 && doubt < 200);
    for (uint32_t i = 0; i < 2000; i++)
        rn_step_cost_record(&cost, i % 2 == 0 ? 16 : 8, i % 2 == 0 ? 1000 : 700);
    rise = rn_step_cost_rise(&cost, 8, 8, &doubt);
    assert_true(fabsf(rise - 300) < 1 && doubt < 5);
    rise = rn_step_cost_rise(&cost, 16, 1, &doubt);
    assert_true(rise > 0 && doubt < 50.1f);
}

/* Requests of 96 tokens one after another, of a proposer that is right in 0.84 of the places, and of each third request
 * the first drafts are wrong. With the reserve those get a second try, and gain; without they gain less. */
static void second_tries_gain(void **state)
{
    struct race race = {.base = 5000, .slope = 1000, .swing = 0.05, .acceptance = 0.84, .n_streams = 1, .n_tokens = 96};
    double rates[2] = {0, 0};

    (void)state;
    for (uint32_t way = 0; way < 2; way++) {
        struct rn_step_cost cost = {.us = {0}};
        float reserve = 0;

        race.cost = &cost;
        race.reserve = way == 1 ? &reserve : NULL;
        for (uint32_t i = 0; i < 600; i++) {
            double rate;

            race.wrong = i % 3 == 2 ? 4 : 0;
            rate = run(&race, i);
            rates[way] += i % 3 == 2 ? rate / 200 : 0;
            assert_true(reserve >= 0 && reserve <= 2);
        }
    }
    print_message("first drafts wrong: %.3f of plain, with a fund %.3f\n", rates[0], rates[1]);
    assert_true(rates[1] > rates[0] * 1.1);
}

/* A request alone, of a proposer that is right in 0.84 of the places, whose first drafts are wrong in four steps:
 * nobody has earned what it could borrow. What steps take is known, as a load measures it
 * (actors/draft/drafter_load.c). Its budget lasts for a try that is right in 97 of 100 runs. */
static void one_alone_tries_again(void **state)
{
    static const uint8_t measured[] = {1, 2, 4, 8, 16, 32, 64, 5, 3, 6, 7, 1, 2, 3, 4, 5, 6, 7, 8};
    uint32_t n_in_vain = 0;
    double mean = 0;

    (void)state;
    for (uint32_t seed = 1; seed <= 300; seed++) {
        struct race race = {
            .base = 20000, .slope = 1000, .swing = 0.1, .acceptance = 0.84, .n_streams = 1, .n_tokens = 96, .wrong = 4};
        struct rn_step_cost cost = {.us = {0}};
        uint64_t random = seed * 31 + 7;
        double rate;

        race.cost = &cost;
        for (uint32_t i = 0; i < sizeof measured; i++)
            rn_step_cost_record(
                &cost, measured[i],
                (uint64_t)(race_time(&race, measured[i]) * (1 + race.swing * (2 * race_coin(&random) - 1))));
        rate = run(&race, seed);
        mean += rate / 300;
        n_in_vain += rate < 1;
    }
    print_message("alone, first drafts wrong: %.3f of plain; %u of 300 in vain\n", mean, n_in_vain);
    assert_true(mean > 2.7 && n_in_vain < 10);
}

/* A proposer that was good and is good no more: who borrows what others earned loses no more than 0.02 of the time. */
static void loans_are_bounded(void **state)
{
    static const double bases[] = {0, 5000, 20000, 100000};
    double least = 1;

    (void)state;
    for (uint32_t b = 0; b < 4; b++) {
        struct race race = {
            .base = bases[b], .slope = 1000, .swing = 0, .acceptance = 1, .n_streams = 1, .n_tokens = 400};
        struct rn_step_cost cost = {.us = {0}};
        double rate = 0;
        float reserve = 0;

        race.cost = &cost;
        race.reserve = &reserve;
        run(&race, 1);
        reserve = 2;
        race.n_tokens = 96;
        race.acceptance = 0;
        for (uint32_t i = 0; i < 5; i++) {
            rate = run(&race, i);
            least = rate < least ? rate : least;
            if (rate < 0.98)
                fail_msg("base %g: %.4f of plain", bases[b], rate);
        }
        assert_true(reserve < 2); /* it was lent */
    }
    print_message("least %.4f\n", least);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(doubt_has_bounds),        cmocka_unit_test(doubt_is_as_large_as_the_error),
        cmocka_unit_test(held_up_is_found_out),    cmocka_unit_test(noisy_times_gain),
        cmocka_unit_test(noisy_times_do_not_lose), cmocka_unit_test(second_tries_gain),
        cmocka_unit_test(one_alone_tries_again),   cmocka_unit_test(loans_are_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
