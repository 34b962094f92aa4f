/* Philox against the known answers that its authors publish (Random123, tests/kat_vectors,
 * philox4x32 with 10 rounds); the coin's range, grid and spread; splitmix64 against its reference. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/rng.h"

struct known {
    uint32_t counter[4], key[2], out[4];
};

static const struct known known_answers[] = {
    {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
     {0xffffffff, 0xffffffff},
     {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
     {0xa4093822, 0x299f31d0},
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

static void test_known_answers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof known_answers / sizeof *known_answers; i++) {
        uint32_t out[4];

        rn_philox4x32(known_answers[i].counter, known_answers[i].key, out);
        for (int word = 0; word < 4; word++)
            assert_int_equal(out[word], known_answers[i].out[word]);
    }
}

static void test_coin_is_philox(void **state)
{
    /* counter 0, key 0 → words 6627e8d5 e169c58d; the upper 53 bits of 0xe169c58d6627e8d5 */
    const double expected = (double)(0xe169c58d6627e8d5u >> 11) / 9007199254740992.0;

    (void)state;
    assert_true(rn_coin(0, 0) == expected);
    assert_true(rn_coin(0, 0) == rn_coin(0, 0));
    assert_true(rn_coin(0, 1) != expected && rn_coin(1, 0) != expected);
    assert_true(rn_coin(0, (uint64_t)1 << 32) != expected && rn_coin((uint64_t)1 << 32, 0) != expected);
}

/* 100,000 draws: all in [0, 1), all on the grid of 2^-53; 64 equal bins by chi-square. With 63
 * degrees of freedom a fair coin exceeds 120 once in 10^5 keys; the draws are fixed, so it holds
 * or not for good. */
static void test_coin_range(void **state)
{
    enum { BINS = 64, DRAWS = 100000 };
    uint32_t bin[BINS] = {0};
    double chi2 = 0;

    (void)state;
    for (uint64_t i = 0; i < DRAWS; i++) {
        double coin = rn_coin(0x1234567890abcdefu + i % 3, i);
        double steps = coin * 9007199254740992.0;

        assert_true(coin >= 0.0 && coin < 1.0);
        assert_true(steps == (double)(uint64_t)steps);
        bin[(int)(coin * BINS)]++;
    }
    for (int i = 0; i < BINS; i++) {
        double excess = bin[i] - (double)DRAWS / BINS;
        chi2 += excess * excess / ((double)DRAWS / BINS);
    }
    assert_true(chi2 < 120.0);
}

/* First outputs of the reference implementation by Vigna for the state 1234567. */
static void test_splitmix64(void **state)
{
    static const uint64_t expected[] = {6457827717110365317u, 3203168211198807973u, 9817491932198370423u,
                                        4593380528125082431u, 16408922859458223821u};
    uint64_t rng = 1234567;

    (void)state;
    for (int i = 0; i < 5; i++)
        assert_int_equal(rn_splitmix64(&rng), expected[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_answers),
        cmocka_unit_test(test_coin_is_philox),
        cmocka_unit_test(test_coin_range),
        cmocka_unit_test(test_splitmix64),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
