/* Regular expressions against PCRE2: random expressions, random texts, and texts that the grammar itself makes; whole
 * matches and searches. Products of two of them against both. And what is refused, with its sentence. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <pcre2.h>

#include "base/rng.h"
#include "tests/grammar/reading.h"
#include "tests/grammar/words.h"
#include "tests/slow.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* Random expressions; under sanitizers the first of them, which take the same ways through the code. */
enum { SEEDS = UNLESS_SANITIZED(1500, 300) };

static uint32_t upto(uint64_t *rng, uint32_t n)
{
    return (uint32_t)(rn_splitmix64(rng) % n);
}

/* ---- Random expressions ---- */

struct text {
    char bytes[4000];
    size_t n;
};

static void put(struct text *t, const char *bytes)
{
    size_t n = strlen(bytes);

    if (t->n + n < sizeof t->bytes) {
        memcpy(t->bytes + t->n, bytes, n);
        t->n += n;
        t->bytes[t->n] = '\0';
    }
}

static const char *const atoms[] = {
    "a",     "b",         "ab",    "1",      "\xc3\xa9", "\\d",    "\\w",          "\\s",
    "\\D",   ".",         "[ab]",  "[^a]",   "[a-c1-3]", "[^\\d]", "[\\w-]",       "[\xc3\xa9-\xe2\x82\xac]",
    "\\x61", "\\.",       "[.*+]", "\\p{L}", "\\p{Nd}",  "\\P{L}", "[\\p{Lu}\\d]", "[^\\s\\w]",
    "\\n",   "[\\]\\\\]", "\\S",   "\\W",    "[a\\-b]"};
static const char *const quantifiers[] = {"*", "+", "?", "{2}", "{0,2}", "{1,}", "*?", "{1,3}?", "+?"};

static void random_regex(struct text *t, uint64_t *rng, uint32_t depth)
{
    uint32_t n = 1 + upto(rng, 3), i;

    for (i = 0; i < n; i++) {
        if (depth > 0 && upto(rng, 3) == 0) {
            put(t, upto(rng, 2) == 0 ? "(" : upto(rng, 2) == 0 ? "(?:" : "(?<name>");
            if (t->n > 5 && memcmp(t->bytes + t->n - 5, "name>", 5) == 0) /* names are told apart */
                t->bytes[t->n - 2] = (char)('a' + t->n % 26), t->bytes[t->n - 3] = (char)('a' + t->n / 26 % 26);
            random_regex(t, rng, depth - 1);
            put(t, ")");
        } else {
            put(t, atoms[upto(rng, COUNT(atoms))]);
        }
        if (upto(rng, 3) == 0)
            put(t, quantifiers[upto(rng, COUNT(quantifiers))]);
    }
    if (upto(rng, 3) == 0) {
        put(t, "|");
        if (upto(rng, 6) != 0)
            random_regex(t, rng, depth > 0 ? depth - 1 : 0);
    }
}

static void random_text(struct text *t, uint64_t *rng)
{
    static const char *const pieces[] = {"a", "b", "ab", "1", "2", "\xc3\xa9", "\xe2\x82\xac", ".", "-", " ", "A",
                                         "_", "c", "\n", "*", "]", "\\"};
    uint32_t n = upto(rng, 7), i;

    t->n = 0;
    t->bytes[0] = '\0';
    for (i = 0; i < n; i++)
        put(t, pieces[upto(rng, COUNT(pieces))]);
}

/* A text that the grammar allows: bytes from its masks, up to where it may end. False: it went on for too long, or into
 * what the two understand differently (ends of lines other than \n, white space beyond ASCII). */
static bool grammar_text(struct reading *r, struct text *t, uint64_t *rng)
{
    uint64_t mask[5];
    uint32_t i;

    t->n = 0;
    assert_int_equal(rn_matcher_reset(r->matcher, NULL), RUNNEL_OK);
    for (i = 0; i < 60; i++) {
        uint32_t byte = upto(rng, 256), tries;

        if (rn_matcher_can_end(r->matcher) && upto(rng, 4) == 0)
            return true;
        assert_int_equal(rn_matcher_mask(r->matcher, mask, NULL), RUNNEL_OK);
        if (upto(rng, 4) != 0)
            byte %= 128;
        for (tries = 0; tries < 256; tries++, byte = (byte + 1) % 256)
            if (mask[(WORD_BYTES + byte) / 64] >> (WORD_BYTES + byte) % 64 & 1)
                break;
        if (tries == 256)
            return rn_matcher_can_end(r->matcher);
        t->bytes[t->n++] = (char)byte;
        assert_int_equal(rn_matcher_accept(r->matcher, (int32_t)(WORD_BYTES + byte), NULL), RUNNEL_OK);
    }
    return rn_matcher_can_end(r->matcher);
}

/* ---- The judge ---- */

static pcre2_code *compile(const struct text *regex, bool search)
{
    int code;
    PCRE2_SIZE at;

    return pcre2_compile((PCRE2_SPTR)regex->bytes, regex->n,
                         PCRE2_UTF | PCRE2_DOLLAR_ENDONLY | (search ? 0 : PCRE2_ANCHORED | PCRE2_ENDANCHORED), &code,
                         &at, NULL);
}

/* 1: it matches, 0: it does not, -1: it took too long to say */
static int judge(const pcre2_code *code, const char *text, size_t n)
{
    pcre2_match_data *data = pcre2_match_data_create_from_pattern(code, NULL);
    int result = pcre2_match(code, (PCRE2_SPTR)text, n, 0, 0, data, NULL);

    pcre2_match_data_free(data);
    return result >= 0 ? 1 : result == PCRE2_ERROR_NOMATCH ? 0 : -1;
}

/* Characters that the two understand differently: ECMA's \s and . know more white space and ends of lines. */
static bool is_common(const char *text, size_t n)
{
    size_t i;

    for (i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];

        if (c == '\r' || c == 0x0b || c == 0x0c || c == 0xe1 || c == 0xe3 || c == 0xef ||
            (c == 0xc2 && (unsigned char)text[i + 1] == 0xa0) || (c == 0xe2 && (unsigned char)text[i + 1] <= 0x81))
            return false;
    }
    return true;
}

static uint32_t n_matches, n_judged, n_large;

/* False: its automaton is too large. */
static bool open_regex(struct reading *r, const struct text *regex, bool search)
{
    const struct rn_regex_options options = {.search = search};
    struct rn_grammar *g = rn_grammar_new(&r->heap, NULL, NULL);
    uint32_t root = rn_grammar_rule(g, NULL, 0);
    rn_expr e = rn_regex(g, regex->bytes, regex->n, 0, &options);
    runnel_status status;

    rn_grammar_define(g, root, e);
    if (rn_grammar_finish(g, root, &r->error) != RUNNEL_OK)
        fail_msg("%s: %s", regex->bytes, r->error.message);
    status = reading_open_grammar(r, g);
    n_large += status == RUNNEL_INVALID;
    if (status != RUNNEL_OK && status != RUNNEL_INVALID)
        fail_msg("%s: %s", regex->bytes, r->error.message);
    memset(&r->error, 0, sizeof r->error);
    return status == RUNNEL_OK;
}

static void compare(struct reading *r, const pcre2_code *code, const struct text *regex, const struct text *t)
{
    int expected = is_common(t->bytes, t->n) ? judge(code, t->bytes, t->n) : -1;

    if (expected < 0)
        return;
    n_judged++;
    n_matches += expected == 1;
    if (reading_whole(r, t->bytes, t->n) != (expected == 1))
        fail_msg("/%s/ and \"%.*s\": %d is expected", regex->bytes, (int)t->n, t->bytes, expected);
}

static void check_regex(struct reading *r, uint64_t seed)
{
    uint64_t rng = seed;
    struct text regex = {.n = 0}, t = {.n = 0};
    bool search = seed % 3 == 0;
    pcre2_code *code;
    uint32_t i;

    if (search && upto(&rng, 3) == 0)
        put(&regex, "^");
    random_regex(&regex, &rng, 2);
    if (search && upto(&rng, 3) == 0)
        put(&regex, "$");
    code = compile(&regex, search);
    if (code == NULL) /* a group's name twice, a range that PCRE2 does not know */
        return;
    if (!open_regex(r, &regex, search)) {
        pcre2_code_free(code);
        return;
    }
    for (i = 0; i < 25; i++) {
        random_text(&t, &rng);
        compare(r, code, &regex, &t);
    }
    for (i = 0; i < 10; i++)
        if (grammar_text(r, &t, &rng))
            compare(r, code, &regex, &t);
    reading_close(r);
    pcre2_code_free(code);
}

static void test_random(void **state)
{
    struct reading r;

    (void)state;
    reading_init(&r);
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        check_regex(&r, seed);
    assert_true(n_matches > 4 * SEEDS && n_judged - n_matches > 4 * SEEDS && n_large < SEEDS / 50);
    reading_fini(&r);
}

/* Both, and one without the other. */
static void check_product(struct reading *r, uint64_t seed)
{
    uint64_t rng = seed;
    struct text regex[2] = {{.n = 0}, {.n = 0}}, t = {.n = 0};
    struct rn_grammar *g = rn_grammar_new(&r->heap, NULL, NULL);
    uint32_t root = rn_grammar_rule(g, NULL, 0), i;
    bool without = seed % 2 == 0;
    pcre2_code *code[2];
    runnel_status status;
    rn_expr e[2];

    for (i = 0; i < 2; i++) {
        random_regex(&regex[i], &rng, 1);
        code[i] = compile(&regex[i], false);
        e[i] = rn_regex(g, regex[i].bytes, regex[i].n, 0, NULL);
    }
    rn_grammar_define(g, root, without ? rn_grammar_without(g, e[0], e[1]) : rn_grammar_both(g, e[0], e[1]));
    assert_int_equal(rn_grammar_finish(g, root, NULL), RUNNEL_OK);
    status = reading_open_grammar(r, g);
    assert_true(status == RUNNEL_OK || status == RUNNEL_FORMAT ||
                status == RUNNEL_INVALID); /* FORMAT: no text is left */
    for (i = 0; i < 60 && status != RUNNEL_INVALID && code[0] != NULL && code[1] != NULL; i++) {
        int a, b;

        if (i < 40 || status != RUNNEL_OK)
            random_text(&t, &rng);
        else if (!grammar_text(r, &t, &rng))
            continue;
        a = is_common(t.bytes, t.n) ? judge(code[0], t.bytes, t.n) : -1;
        b = a < 0 ? -1 : judge(code[1], t.bytes, t.n);
        if (b < 0)
            continue;
        if ((status == RUNNEL_OK && reading_whole(r, t.bytes, t.n)) != (a == 1 && (b == 1) != without))
            fail_msg("/%s/ %s /%s/ and \"%.*s\"", regex[0].bytes, without ? "-" : "&", regex[1].bytes, (int)t.n,
                     t.bytes);
    }
    if (status == RUNNEL_OK)
        reading_close(r);
    pcre2_code_free(code[0]);
    pcre2_code_free(code[1]);
}

static void test_products(void **state)
{
    struct reading r;

    (void)state;
    reading_init(&r);
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        check_product(&r, seed);
    reading_fini(&r);
}

/* ---- By hand ---- */

static void test_cases(void **state)
{
    static const struct {
        const char *regex, *text;
        bool search, whole;
    } cases[] = {
        {"", "", false, true},
        {"", "x", false, false},
        {"", "x", true, true},
        {"^$", "", true, true},
        {"^$", "a", true, false},
        {"^a|b$", "axx", true, true},
        {"^a|b$", "xxb", true, true},
        {"^a|b$", "xax", true, false},
        {"(^a$|^b)", "bx", true, true},
        {"(^a$|^b)", "ax", true, false},
        {"[]a", "a", false, false},
        {"[^]", "\n", false, true},
        {".", "\xe2\x80\xa8", false, false}, /* U+2028 ends a line */
        {"\\s", "\xc2\xa0", false, true},
        {"\\u00e9\\u{1F600}\\uD83D\\uDE00", "\xc3\xa9\xf0\x9f\x98\x80\xf0\x9f\x98\x80", false, true},
        {"\\cJ\\0[\\b]", "\n\0\b", false, true},
        {"a{,2}b", "aab", false, true},
        {"a{x}", "a{x}", false, true},
        {"\\p{Letter}\\p{gc=Nd}",
         "\xc3\xa9"
         "1",
         false, true},
        {"[a-\\d]+", "a-5", false, true},
        {"\\$\\^\\/", "$^/", false, true},
    };
    struct reading r;
    size_t i;

    (void)state;
    reading_init(&r);
    for (i = 0; i < COUNT(cases); i++) {
        struct text regex = {.n = 0};
        size_t n = i == 15 ? 3 : strlen(cases[i].text);

        put(&regex, cases[i].regex);
        if (strcmp(cases[i].regex, "[]a") == 0)
            continue; /* no text: see test_refused */
        assert_true(open_regex(&r, &regex, cases[i].search));
        if (reading_whole(&r, cases[i].text, n) != cases[i].whole)
            fail_msg("/%s/ and \"%s\"", cases[i].regex, cases[i].text);
        reading_close(&r);
    }
    reading_fini(&r);
}

static void test_refused(void **state)
{
    static const struct {
        const char *regex, *sentence;
    } cases[] = {
        {"a(?=b)", "line 1, column 4: lookahead is not supported"},
        {"a(?!b)", "line 1, column 4: lookahead is not supported"},
        {"(?<=x)*", "line 1, column 3: lookbehind is not supported"},
        {"(?<!x)", "line 1, column 3: lookbehind is not supported"},
        {"(a)\\1", "line 1, column 5: back references are not supported"},
        {"(?<n>a)\\k<n>", "line 1, column 9: back references are not supported"},
        {"\\bx", "line 1, column 2: the word boundary \\b is not supported"},
        {"a++", "line 1, column 4: possessive quantifiers are not supported"},
        {"(?i)a", "line 1, column 3: groups of the kind (?i are not supported"},
        {"(?>a)", "line 1, column 3: groups of the kind (?> are not supported"},
        {"a^b", "line 1, column 2: an anchor (^ or $) in the middle is not supported"},
        {"(a$)b", "line 1, column 3: an anchor (^ or $) in the middle is not supported"},
        {"^+[a-z]$", "line 1, column 2: there is nothing to repeat"},
        {"^{2}times$", "line 1, column 5: there is nothing to repeat"},
        {"a{2}{3}", "line 1, column 8: there is nothing to repeat"},
        {"*a", "line 1, column 1: there is nothing to repeat"},
        {"a**", "line 1, column 3: there is nothing to repeat"},
        {"(a", "line 1, column 3: a group has no \")\" behind it"},
        {"a)", "line 1, column 2: \")\" has no \"(\" before it"},
        {"[a", "line 1, column 3: a class of characters has no \"]\" behind it"},
        {"[b-a]", "line 1, column 3: a range of characters ends before it begins"},
        {"a\\", "line 1, column 3: an escape that is not known"},
        {"\\p{", "line 1, column 4: the property \"\" is not known"},
        {"\\p{Klingon}", "line 1, column 11: the property \"Klingon\" is not known"},
        {"\\ud800", "line 1, column 7: U+D800 is not a character"},
        {"\\x4", "line 1, column 4: 2 hexadecimal digits are expected"},
        {"a{3,2}", "line 1, column 2: a repetition of at least 3 times and at most 2"},
        {"a{1,99999999999}", "line 1, column 13: the number is too large"},
        {"a\xff", "the grammar is not UTF-8"},
        {"[]a", "the grammar matches no text: none of its texts comes to an end"},
        {"(((a{1,1000}){1,1000}){1,1000}){1,1000}",
         "the grammar has more than 262144 states; repetitions of large parts need the most"},
        {"(a|b)*a(a|b){20}", "the grammar has more than 262144 states when they are made deterministic"},
    };
    struct reading r;
    size_t i;

    (void)state;
    reading_init(&r);
    for (i = 0; i < COUNT(cases); i++) {
        runnel_status status = reading_open(&r, RN_FRONT_REGEX, cases[i].regex, strlen(cases[i].regex));

        assert_int_not_equal(status, RUNNEL_OK);
        if (strcmp(r.error.message, cases[i].sentence) != 0)
            fail_msg("/%s/: \"%s\", not \"%s\"", cases[i].regex, r.error.message, cases[i].sentence);
    }
    reading_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_products),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
