/* Grammars as they are built: sets of code points and their UTF-8 against a loop over all code points, errors with
 * their places, limits, and that refused memory leaves nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/utf8.h"
#include "sampling/grammar/code_points.h"
#include "sampling/grammar/grammar.h"
#include "tests/base/refusing.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static bool is_scalar(uint32_t c)
{
    return c < 0xd800 || (c > 0xdfff && c <= RN_CODE_POINT_MOST);
}

/* How many runs of one range's parts match the bytes of a code point. */
static uint32_t matches(struct rn_code_points range, const char *bytes, uint32_t n)
{
    uint32_t count = 0, i;
    struct rn_utf8_run run;

    while (range.first <= range.last) {
        rn_utf8_run_take(&range, &run);
        for (i = 0; run.n == n && i < n; i++)
            if ((uint8_t)bytes[i] < run.low[i] || (uint8_t)bytes[i] > run.high[i])
                break;
        count += run.n == n && i == n;
    }
    return count;
}

/* Ends of lengths, of surrogates, of continuation bytes, and anything. */
static uint32_t some_code_point(uint64_t *rng)
{
    static const uint32_t ends[] = {0,      0x7f,   0x80,   0x7ff,   0x800,   0xfff,   0x1000,  0xd7ff,   0xd800,
                                    0xdfff, 0xe000, 0xffff, 0x10000, 0x3ffff, 0x40000, 0xfffff, 0x10ffff, 0x22};
    uint64_t draw = rn_splitmix64(rng);

    if (draw % 3 == 0)
        return ends[(draw >> 8) % COUNT(ends)];
    return (uint32_t)((draw >> 8) % (draw % 3 == 1 ? 0x110000 : 0x900));
}

/* One set of random ranges; all code points that are near an end of any, and some others. */
static void check_set(uint64_t *rng)
{
    struct rn_code_points given[8], normal[9], others[11];
    size_t n = rn_splitmix64(rng) % 8, n_normal, n_others, i, k;

    for (i = 0; i < n; i++) {
        uint32_t a = some_code_point(rng), b = some_code_point(rng);

        given[i] = (struct rn_code_points){a < b ? a : b, a < b ? b : a};
    }
    memcpy(normal, given, sizeof given);
    n_normal = rn_code_points_normalise(normal, n);
    n_others = rn_code_points_negate(normal, n_normal, others);
    assert_true(n_normal <= n + 1 && n_others <= n_normal + 2);
    for (i = 0; i < 300; i++) {
        uint32_t c = some_code_point(rng), found = 0, not_found = 0, length;
        char bytes[4];
        bool expected = false;

        c += i % 3 == 0 ? 1 : 0;
        if (!is_scalar(c))
            continue;
        for (k = 0; k < n; k++)
            expected = expected || (given[k].first <= c && c <= given[k].last);
        length = rn_utf8_encode(c, bytes);
        for (k = 0; k < n_normal; k++)
            found += matches(normal[k], bytes, length);
        for (k = 0; k < n_others; k++)
            not_found += matches(others[k], bytes, length);
        assert_int_equal(found, expected);
        assert_int_equal(not_found, !expected);
        assert_int_equal(rn_code_points_have(normal, n_normal, c), expected);
    }
}

static void test_sets(void **state)
{
    uint64_t rng = 7;

    (void)state;
    for (int i = 0; i < 3000; i++)
        check_set(&rng);
}

/* Every code point, in all of them together: the runs are exactly well-formed UTF-8. */
static void test_all(void **state)
{
    struct rn_code_points all[3] = {{0, RN_CODE_POINT_MOST}};
    size_t n = rn_code_points_normalise(all, 1), i;
    uint32_t c;

    (void)state;
    assert_int_equal(n, 2);
    for (c = 0; c <= RN_CODE_POINT_MOST; c += c < 0x3000 ? 1 : 37) {
        uint32_t found = 0, length;
        char bytes[4];

        if (!is_scalar(c))
            continue;
        length = rn_utf8_encode(c, bytes);
        for (i = 0; i < n; i++)
            found += matches(all[i], bytes, length);
        assert_int_equal(found, 1);
    }
    assert_int_equal(matches(all[0], "\xed\xa0\x80", 3) + matches(all[1], "\xed\xa0\x80", 3), 0);
    assert_int_equal(matches(all[0], "\xc0\x80", 2), 0);
}

/* ---- Errors ---- */

static const struct rn_code_points digits[] = {{'0', '9'}};

/* A grammar with every kind of expression in it. */
static runnel_status build_all(struct rn_heap *heap, runnel_error *error)
{
    struct rn_grammar *g = rn_grammar_new(heap, NULL, NULL);
    uint32_t root, list;
    runnel_status status;
    rn_expr items[8];

    if (g == NULL)
        return RUNNEL_NO_MEMORY;
    root = rn_grammar_rule(g, "root", 4);
    list = rn_grammar_rule(g, NULL, 0);
    items[0] = rn_grammar_repeat(g, rn_grammar_set(g, digits, 1, false), 1, RN_GRAMMAR_FOREVER);
    items[1] = rn_grammar_bytes(g, ",\xff", 2);
    items[2] = rn_grammar_call(g, list);
    items[3] = rn_grammar_tokens(g, (const int32_t[]){7, 3, 7}, 3, true);
    items[4] = rn_grammar_both(g, items[0], items[1]);
    items[5] = rn_grammar_without(g, items[0], items[1]);
    items[6] = rn_grammar_empty(g);
    items[7] = rn_grammar_alternatives(g, items, 7);
    rn_grammar_define(g, root, rn_grammar_sequence(g, items, 8));
    rn_grammar_define(g, list, items[7]);
    for (int i = 0; i < 300; i++)
        rn_grammar_define(g, rn_grammar_rule(g, (char[]){'r', (char)('a' + i % 26), (char)('a' + i / 26)}, 3),
                          items[0]);
    status = rn_grammar_finish(g, root, error);
    if (status == RUNNEL_OK) {
        assert_int_equal(g->n_rules, 302);
        assert_int_equal(g->n_ids, 2); /* in order, each once */
        assert_int_equal(g->ids[0], 3);
    }
    rn_grammar_free(g);
    return status;
}

static void test_memory(void **state)
{
    struct refusing refusing = {0};
    struct rn_heap heap = refusing_heap(&refusing);
    uint64_t n, calls;

    (void)state;
    assert_int_equal(build_all(&heap, NULL), RUNNEL_OK);
    calls = refusing.calls;
    assert_true(calls > 8);
    for (n = 1; n <= calls; n++) {
        runnel_error error = {0};

        refusing.calls = 0;
        refusing.refuse_at = n;
        assert_int_equal(build_all(&heap, &error), RUNNEL_NO_MEMORY);
        assert_int_equal(refusing.live, 0);
    }
}

static void expect(struct rn_grammar *g, uint32_t root, runnel_status status, const char *sentence)
{
    runnel_error error = {0};

    assert_int_equal(rn_grammar_finish(g, root, &error), status);
    if (strcmp(error.message, sentence) != 0)
        fail_msg("\"%s\", not \"%s\"", error.message, sentence);
    rn_grammar_free(g);
}

static void test_errors(void **state)
{
    struct rn_heap heap;
    struct rn_grammar *g;
    rn_expr e;

    (void)state;
    rn_heap_init(&heap, NULL);

    g = rn_grammar_new(&heap, NULL, NULL);
    expect(g, 0, RUNNEL_FORMAT, "the grammar has no rules");

    g = rn_grammar_new(&heap, NULL, NULL);
    rn_grammar_source(g, "a\n\xc3\xa4 b", 6);
    rn_grammar_at(g, 5);
    rn_grammar_rule(g, "other", 5);
    rn_grammar_at(g, 0);
    expect(g, 0, RUNNEL_FORMAT, "line 2, column 3: the rule \"other\" is not defined");

    g = rn_grammar_new(&heap, NULL, NULL);
    rn_grammar_define(g, rn_grammar_rule(g, "a", 1), rn_grammar_empty(g));
    rn_grammar_define(g, rn_grammar_rule(g, "a", 1), rn_grammar_empty(g));
    assert_true(rn_grammar_failed(g));
    rn_grammar_fail(g, RUNNEL_INVALID, "too late");
    expect(g, 0, RUNNEL_FORMAT, "the rule \"a\" is defined twice");

    g = rn_grammar_new(&heap, NULL, NULL);
    e = rn_grammar_set(g, (const struct rn_code_points[]){{5, 4}}, 1, false);
    assert_int_equal(rn_grammar_repeat(g, rn_grammar_sequence(g, &e, 1), 0, 1), RN_GRAMMAR_NONE);
    expect(g, 0, RUNNEL_FORMAT, "a range of characters ends before it begins, or beyond U+10FFFF");

    g = rn_grammar_new(&heap, NULL, NULL);
    rn_grammar_source(g, "a\xc0\x80", 3);
    expect(g, 0, RUNNEL_FORMAT, "the grammar is not UTF-8");

    g = rn_grammar_new(&heap, NULL, NULL);
    rn_grammar_token_named(g, "<think>", 7, false);
    expect(g, 0, RUNNEL_FORMAT, "the vocabulary has no token \"<think>\"");

    g = rn_grammar_new(&heap, NULL, NULL);
    rn_grammar_repeat(g, rn_grammar_empty(g), 3, 2);
    expect(g, 0, RUNNEL_FORMAT, "a repetition of at least 3 times and at most 2");

    assert_int_equal(rn_heap_blocks(&heap), 0);
}

static void test_limits(void **state)
{
    struct rn_grammar_limits limits = rn_grammar_limits_default;
    struct rn_heap heap;
    struct rn_grammar *g;
    rn_expr e;
    int i;

    (void)state;
    rn_heap_init(&heap, NULL);
    limits.depth = 10;
    limits.nodes = 40;
    limits.rules = 3;
    limits.source_bytes = 4;
    limits.bytes = 4096;
    g = rn_grammar_new(&heap, &limits, NULL);
    for (e = rn_grammar_empty(g), i = 0; i < 12; i++)
        e = rn_grammar_repeat(g, e, 0, 2);
    expect(g, 0, RUNNEL_INVALID, "nested deeper than 10");

    g = rn_grammar_new(&heap, &limits, NULL);
    for (i = 0; i < 50; i++)
        rn_grammar_empty(g);
    expect(g, 0, RUNNEL_INVALID, "the grammar has more than 40 parts");

    g = rn_grammar_new(&heap, &limits, NULL);
    for (i = 0; i < 4; i++)
        rn_grammar_rule(g, NULL, 0);
    expect(g, 0, RUNNEL_INVALID, "the grammar has more than 3 rules");

    g = rn_grammar_new(&heap, &limits, NULL);
    rn_grammar_source(g, "12345", 5);
    expect(g, 0, RUNNEL_INVALID, "the grammar has 5 bytes, where 4 are the most");

    g = rn_grammar_new(&heap, &limits, NULL);
    rn_grammar_bytes(g, (const char[5000]){0}, 5000);
    expect(g, 0, RUNNEL_INVALID, "the grammar needs more than 4096 bytes");
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

/* Names whose hashes would agree in many bits without a seed stand apart. */
static void test_names(void **state)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz";
    uint32_t n = 0, run = 0, longest = 0;
    struct rn_heap heap;
    struct rn_grammar *g;

    (void)state;
    rn_heap_init(&heap, NULL);
    g = rn_grammar_new(&heap, NULL, NULL);
    for (uint64_t i = 0; n < 4000; i++) {
        uint64_t hash = 6, rest = i;
        char name[6];

        for (size_t k = 0; k < sizeof name; k++, rest /= 26) {
            name[k] = letters[rest % 26];
            hash = (hash ^ (unsigned char)name[k]) * 0x9e3779b97f4a7c15u;
        }
        if ((hash >> 32 & 0x3fff) < 64) {
            rn_grammar_rule(g, name, sizeof name);
            n++;
        }
    }
    assert_int_equal(g->n_rules, n);
    for (uint32_t at = 0; at < g->room_names; at++) { /* places that a search walks through */
        run = g->names[at] != 0 ? run + 1 : 0;
        longest = run > longest ? run : longest;
    }
    assert_true(longest < 1000);
    rn_grammar_free(g);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

static void test_quotes(void **state)
{
    (void)state;
    assert_string_equal(rn_grammar_quote("abc", 2).text, "ab");
    assert_string_equal(rn_grammar_quote("123456789012345678901234567890123456789\xc3\xa4-", 42).text,
                        "123456789012345678901234567890123456789...");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sets),   cmocka_unit_test(test_all),    cmocka_unit_test(test_memory),
        cmocka_unit_test(test_errors), cmocka_unit_test(test_limits), cmocka_unit_test(test_quotes),
        cmocka_unit_test(test_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
