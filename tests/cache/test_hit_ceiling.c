/* The ceiling of the hit rate against an exact count: every block that was ever asked for is kept, spelled out from
 * its first token, and looked up in a sorted array. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "cache/hit_ceiling.h"

#define B 4
#define BLOCKS 5
#define SEEDS 12

/* A block with all that is before it; tokens behind its end are 0, and its length tells. */
struct prefix {
    uint32_t salt, n_blocks;
    int32_t tokens[BLOCKS * B];
};

static int compare(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct prefix));
}

static uint32_t count_different(struct prefix *prefixes, uint32_t n)
{
    uint32_t different = n > 0;

    qsort(prefixes, n, sizeof *prefixes, compare);
    for (uint32_t i = 1; i < n; i++)
        different += compare(&prefixes[i], &prefixes[i - 1]) != 0;
    return different;
}

/* A prompt of up to BLOCKS blocks and some tokens; `variety` different values where prompts part. */
static struct prefix make_prompt(uint64_t *rng, uint32_t variety)
{
    struct prefix p = {.salt = (uint32_t)(rn_splitmix64(rng) % 3)};

    p.n_blocks = (uint32_t)(rn_splitmix64(rng) % (BLOCKS + 1));
    for (uint32_t i = 0; i < BLOCKS * B; i += B / 2)
        p.tokens[i] = (int32_t)(rn_splitmix64(rng) % variety);
    return p;
}

/* Error of r, in percent of 1, and of U, in percent of U. */
struct errors {
    double rate, unique;
};

static struct errors judge(uint64_t seed, uint32_t n_prompts, uint32_t variety)
{
    static struct rn_hit_ceiling ceiling;
    struct prefix *all = calloc((size_t)n_prompts * BLOCKS, sizeof *all);
    uint32_t n = 0, different;
    double exact;

    assert_non_null(all);
    rn_hit_ceiling_init(&ceiling);
    for (uint32_t i = 0; i < n_prompts; i++) {
        struct prefix p = make_prompt(&seed, variety);

        rn_hit_ceiling_add(&ceiling, (struct rn_prefix_salt){{0, p.salt}}, p.tokens, p.n_blocks * B + B - 1, B);
        for (uint32_t k = 1; k <= p.n_blocks; k++) {
            all[n] = (struct prefix){.salt = p.salt, .n_blocks = k};
            memcpy(all[n++].tokens, p.tokens, k * B * sizeof *p.tokens);
        }
    }
    different = count_different(all, n);
    free(all);
    assert_int_equal(ceiling.n_seen, n);
    exact = (double)(n - different) / n;
    return (struct errors){100 * (rn_hit_ceiling_rate(&ceiling) - exact), 100 * (ceiling.n_unique / different - 1)};
}

/* Few repetitions, many, and nearly none; each with several streams of prompts. 0.53 % is the standard error of U. */
static void close_to_the_exact_count(void **state)
{
    static const struct {
        uint32_t n_prompts, variety;
    } cases[] = {{40, 2}, {1000, 3}, {20000, 5}, {60000, 3}, {60000, 1000}};

    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        double squares = 0;

        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            struct errors e = judge(seed * 1000, cases[c].n_prompts, cases[c].variety);

            squares += e.unique * e.unique;
            assert_true(fabs(e.unique) < 3 * 0.53);
            assert_true(fabs(e.rate) <= fabs(e.unique));
        }
        assert_true(sqrt(squares / SEEDS) < 1.5 * 0.53);
    }
}

/* Ten million different blocks, given by hash. */
static void many_blocks(void **state)
{
    static struct rn_hit_ceiling ceiling;
    uint64_t rng = 5;

    (void)state;
    rn_hit_ceiling_init(&ceiling);
    for (uint32_t i = 0; i < 10000000; i++)
        rn_hit_ceiling_add_hash(&ceiling, rn_splitmix64(&rng));
    assert_true(fabs(ceiling.n_unique / 1e7 - 1) < 3 * 0.0053);
    assert_true(rn_hit_ceiling_rate(&ceiling) < 0.016);
    rng = 5;
    for (uint32_t i = 0; i < 10000000; i++)
        rn_hit_ceiling_add_hash(&ceiling, rn_splitmix64(&rng));
    assert_true(fabs(rn_hit_ceiling_rate(&ceiling) - 0.5) < 0.01);
}

/* What is kept of the chance that the next block is new must be what the registers say; also at their end. */
static void registers_and_chance_agree(void **state)
{
    static struct rn_hit_ceiling ceiling;
    const uint64_t high_ranks = UINT64_C(0xffffffff00000003);
    uint64_t rng = 9, chance = 0;

    (void)state;
    rn_hit_ceiling_init(&ceiling);
    for (uint32_t i = 0; i < 300000; i++) /* every fourth has a rank seldom met otherwise */
        rn_hit_ceiling_add_hash(&ceiling, rn_splitmix64(&rng) & (i % 4 == 0 ? high_ranks : UINT64_MAX));
    for (uint32_t i = 0; i < RN_CEILING_REGISTERS; i++) {
        uint32_t rank = ceiling.words[i / 6] >> i % 6 * 5 & 31;

        chance += rank < 31 ? UINT64_C(1) << (31 - rank) : 0;
    }
    assert_true(chance == ceiling.chance);
    for (uint32_t i = 0; i < RN_CEILING_REGISTERS; i++) /* the middle of each register's share of hashes */
        rn_hit_ceiling_add_hash(&ceiling, (((uint64_t)i << 32) + (UINT64_C(1) << 31)) / RN_CEILING_REGISTERS << 32);
    for (uint32_t i = 0; i < RN_CEILING_WORDS; i++)
        assert_int_equal(ceiling.words[i], (1u << 30) - 1);
    assert_true(ceiling.chance == 0);
    assert_true(isfinite(ceiling.n_unique));
    rn_hit_ceiling_add_hash(&ceiling, 12345);
    assert_true(isfinite(ceiling.n_unique));
}

static void edges(void **state)
{
    static struct rn_hit_ceiling ceiling;
    const int32_t tokens[B] = {1, 2, 3, 4};

    (void)state;
    assert_true(sizeof ceiling <= 16384);
    rn_hit_ceiling_init(&ceiling);
    assert_true(rn_hit_ceiling_rate(&ceiling) == 0);
    rn_hit_ceiling_add(&ceiling, (struct rn_prefix_salt){{1, 1}}, tokens, B - 1, B);
    assert_true(rn_hit_ceiling_rate(&ceiling) == 0);
    rn_hit_ceiling_add(&ceiling, (struct rn_prefix_salt){{1, 1}}, tokens, B, B);
    rn_hit_ceiling_add(&ceiling, (struct rn_prefix_salt){{1, 1}}, tokens, B, B);
    assert_true(fabs(rn_hit_ceiling_rate(&ceiling) - 0.5) < 1e-4);
    rn_hit_ceiling_add(&ceiling, (struct rn_prefix_salt){{1, 2}}, tokens, B, B); /* another salt shares nothing */
    assert_true(fabs(rn_hit_ceiling_rate(&ceiling) - 1.0 / 3) < 1e-4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(close_to_the_exact_count),
        cmocka_unit_test(many_blocks),
        cmocka_unit_test(registers_and_chance_agree),
        cmocka_unit_test(edges),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
