/* The sliding token counts against a scan of the history, after every token. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "sampling/counts.h"

#define TOKENS 600

/* Ids that share their low bits, so that their homes in the table collide or touch. */
static int32_t clustered(uint64_t *rng, uint32_t n_vocab)
{
    uint64_t r = rn_splitmix64(rng);

    return (int32_t)((r & 1 ? r >> 8 & 15 : (r >> 8 & 15) << 7 | (r >> 20 & 3)) % n_vocab);
}

#define PATH 16

/* What a path would change, against the history with the path behind it. */
static void behind_a_path(const struct rn_counts *counts, const int32_t *history, uint32_t n, uint32_t window,
                          uint32_t n_vocab, uint64_t *rng)
{
    struct rn_count changes[2 * PATH];
    uint32_t n_path = (uint32_t)(rn_splitmix64(rng) % (PATH + 1)), n_changes, first;
    int32_t whole[TOKENS + PATH];

    memcpy(whole, history, n * sizeof whole[0]);
    for (uint32_t i = 0; i < n_path; i++)
        whole[n + i] = clustered(rng, n_vocab);
    n_changes = rn_counts_behind(counts, whole + n, n_path, changes);
    assert_true(n_changes <= 2 * n_path);
    first = window > 0 && n + n_path > window ? n + n_path - window : 0;
    for (int32_t t = 0; t < (int32_t)n_vocab; t++) {
        uint32_t expected = 0, found = 0, now = rn_counts_of(counts, t);

        for (uint32_t i = first; i < n + n_path; i++)
            expected += whole[i] == t;
        for (uint32_t i = 0; i < n_changes; i++)
            if (changes[i].token == t) {
                now = changes[i].count;
                found++;
            }
        assert_int_equal(now, expected);
        assert_true(found <= 1);
    }
}

static void against_history(uint32_t n_vocab, uint32_t window, uint64_t seed)
{
    struct rn_heap heap;
    struct rn_counts counts;
    int32_t history[TOKENS];
    size_t bytes;

    rn_heap_init(&heap, NULL);
    assert_true(rn_counts_init(&counts, &heap, n_vocab, TOKENS, window));
    bytes = rn_heap_bytes(&heap);
    for (uint32_t k = 0; k < 2 * TOKENS; k++) { /* cleared, it begins anew */
        uint32_t n = k % TOKENS, first = window > 0 && n + 1 > window ? n + 1 - window : 0, distinct = 0;

        if (k == TOKENS)
            rn_counts_clear(&counts);
        history[n] = clustered(&seed, n_vocab);
        rn_counts_add(&counts, history[n]);
        assert_true(rn_counts_check(&counts));
        for (int32_t t = 0; t < (int32_t)n_vocab; t += 1 + (n_vocab > 64 && n % 8 != 0) * 5) {
            uint32_t expected = 0;

            for (uint32_t i = first; i <= n; i++)
                expected += history[i] == t;
            assert_int_equal(rn_counts_of(&counts, t), expected);
        }
        for (uint32_t i = 0; i < counts.n_entries; i++)
            distinct += rn_counts_of(&counts, counts.entries[i].token) == counts.entries[i].count;
        assert_int_equal(distinct, counts.n_entries);
        if (n + PATH < TOKENS && (n < 24 || n % 16 == 0)) {
            behind_a_path(&counts, history, n + 1, window, n_vocab, &seed);
            assert_true(rn_counts_check(&counts));
        }
    }
    assert_int_equal(rn_heap_bytes(&heap), bytes);
    rn_counts_fini(&counts, &heap);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

static void all_windows(void **state)
{
    const uint32_t windows[] = {0, 1, 2, 3, 7, 64, TOKENS - 1, TOKENS, TOKENS + 5, UINT32_MAX};

    (void)state;
    for (uint32_t i = 0; i < sizeof windows / sizeof windows[0]; i++) {
        against_history(1, windows[i], i);
        against_history(5, windows[i], i + 100);
        against_history(2048, windows[i], i + 200);
    }
}

static void table_is_bounded(void **state)
{
    struct rn_heap heap;
    struct rn_counts counts;

    (void)state;
    rn_heap_init(&heap, NULL);
    assert_true(rn_counts_init(&counts, &heap, 1000000, 1000000, 64));
    assert_true(rn_heap_bytes(&heap) <= 64 * (8 + 4 + 8));
    rn_counts_fini(&counts, &heap);
    assert_true(rn_counts_init(&counts, &heap, 100, UINT32_MAX, 0));
    assert_true(rn_heap_bytes(&heap) <= 100 * 8 + 256 * 4);
    rn_counts_fini(&counts, &heap);
}

static void check_sees_planted_breaches(void **state)
{
    struct rn_heap heap;
    struct rn_counts counts;
    uint32_t slot = 0;

    (void)state;
    rn_heap_init(&heap, NULL);
    assert_true(rn_counts_init(&counts, &heap, 100, 100, 0));
    for (int32_t t = 0; t < 10; t++)
        rn_counts_add(&counts, t / 2);
    assert_true(rn_counts_check(&counts));
    counts.entries[0].count++;
    assert_false(rn_counts_check(&counts));
    counts.entries[0].count--;
    while (counts.slots[slot] == 0)
        slot++;
    counts.slots[slot]++; /* points at a neighbour */
    assert_false(rn_counts_check(&counts));
    counts.slots[slot]--;
    while (counts.slots[slot] != 0)
        slot++;
    counts.slots[slot] = 1; /* a second slot for one entry */
    assert_false(rn_counts_check(&counts));
    rn_counts_fini(&counts, &heap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_windows),
        cmocka_unit_test(table_is_bounded),
        cmocka_unit_test(check_sees_planted_breaches),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
