/* The hand-written splitters against PCRE2 and the expressions they are, over random Unicode text;
 * our table of categories against PCRE2's. Both are of Unicode 14; code points that a newer PCRE2
 * knows and our table does not are left out. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "text/splitter.h"
#include "text/unicode.h"
#include "text/vocab.h"

#define MAX_TEXT 600

/* White_Space written out: PCRE2's own \s has U+180E. */
#define WHITE \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define S "[" WHITE "]"
#define NOT_S "[^" WHITE "]"
#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" WHITE "\\p{L}\\p{N}]+|" S "+(?!" NOT_S ")"
#define SHORT "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
#define LINES S "*[\\r\\n]+|" S "+(?!" NOT_S ")|" S "+"
#define WORDS(letters, digits, others) \
    SHORT "|[^\\r\\n\\p{L}\\p{N}]?" letters "+|\\p{N}" digits "| ?[^" WHITE others "]+[\\r\\n]*|" LINES
#define DEEPSEEK_LETTERS                                                                                               \
    "\\x{41}-\\x{5a}\\x{61}-\\x{7a}\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}"             \
    "\\x{1c4}-\\x{293}\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}-\\x{377}\\x{37b}-\\x{37d}\\x{37f}\\x{386}"            \
    "\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}"   \
    "\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}"                  \
    "\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}"                  \
    "\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}"          \
    "\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}"         \
    "\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}"                   \
    "\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}\\x{2126}\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}" \
    "\\x{2139}\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}\\x{214e}\\x{2183}-\\x{2184}\\x{2c00}-\\x{2c7b}"                   \
    "\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}\\x{2cf2}-\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}"                  \
    "\\x{a722}-\\x{a76f}\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}"                  \
    "\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}\\x{104b0}-\\x{104d3}"              \
    "\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}"

static const struct {
    const char *name;
    const char *patterns[RN_SPLIT_MAX_PASSES];
} cases[] = {
    {"gpt-2", {GPT2}},
    {"default", {"[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}},
    {"llama-bpe", {WORDS("\\p{L}", "{1,3}", "\\p{L}\\p{N}")}},
    {"glm4", {WORDS("\\p{L}", "{1,3}", "\\p{L}\\p{N}")}},
    {"qwen2", {WORDS("\\p{L}", "", "\\p{L}\\p{N}")}},
    {"qwen35", {WORDS("[\\p{L}\\p{M}]", "", "\\p{L}\\p{M}\\p{N}")}},
    {"starcoder", {"\\p{N}", GPT2}},
    {"refact", {"\\p{N}", GPT2}},
    {"smollm", {"\\p{N}", GPT2}},
    {"falcon", {"[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2, "[0-9][0-9][0-9]"}},
    {"deepseek-llm",
     {"[\\r\\n]", S "?[" DEEPSEEK_LETTERS "]+",
      S "?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+", S "+$",
      "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+", "\\p{N}+"}},
    {"deepseek-coder",
     {"[\\r\\n]", S "?\\p{L}+", S "?\\p{P}+", "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+", "\\p{N}"}},
};

static pcre2_code *compile(const char *pattern)
{
    int error;
    PCRE2_SIZE at;
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                                     PCRE2_UTF | PCRE2_UCP | PCRE2_DOLLAR_ENDONLY, &error, &at, NULL);

    if (code == NULL)
        fail_msg("\"%s\": error %d at %zu", pattern, error, at);
    return code;
}

/* Marks in ends[] where the pieces of text[from..to) end: matches, and what lies between them. */
static void cut(pcre2_code *const *codes, size_t n_codes, const char *text, size_t from, size_t to, bool *ends)
{
    pcre2_match_data *match;
    size_t at = from;

    if (n_codes == 0) {
        ends[to] = true;
        return;
    }
    match = pcre2_match_data_create(4, NULL);
    while (at < to) {
        int rc = pcre2_match(codes[0], (PCRE2_SPTR)text + from, to - from, at - from, PCRE2_NO_UTF_CHECK, match, NULL);
        const PCRE2_SIZE *found = pcre2_get_ovector_pointer(match);

        assert_true(rc > 0 || rc == PCRE2_ERROR_NOMATCH);
        if (rc == PCRE2_ERROR_NOMATCH) {
            cut(codes + 1, n_codes - 1, text, at, to, ends);
            break;
        }
        if (from + found[0] > at)
            cut(codes + 1, n_codes - 1, text, at, from + found[0], ends);
        assert_true(found[1] > found[0]);
        at = from + found[1];
        cut(codes + 1, n_codes - 1, text, from + found[0], at, ends);
    }
    pcre2_match_data_free(match);
}

static void check(const struct rn_pre *pre, const char *name, pcre2_code *const *codes, size_t n_codes,
                  const char *text, size_t n)
{
    bool want[MAX_TEXT + 1] = {false}, got[MAX_TEXT + 1] = {false};
    struct rn_split split;
    size_t begin, end, last = 0, i;

    if (n > 0)
        cut(codes, n_codes, text, 0, n, want);
    rn_split_init(&split, pre, text, n);
    while (rn_split_next(&split, &begin, &end)) {
        assert_int_equal(begin, last);
        assert_true(end > begin && end <= n);
        got[end] = true;
        last = end;
    }
    assert_int_equal(last, n);
    for (i = 0; i <= n; i++) {
        if (want[i] != got[i])
            fail_msg("%s: \"%.*s\" byte %zu: %d by the expression, %d by the splitter", name, (int)n, text, i, want[i],
                     got[i]);
    }
}

static size_t put_character(uint32_t c, char *out)
{
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    size_t i;

    if (n == 1) {
        out[0] = (char)c;
        return 1;
    }
    for (i = n - 1; i > 0; i--, c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)((0xf00 >> n & 0xff) | c);
    return n;
}

/* Of what the expressions tell apart: letters, marks, numbers, white space, each kind of sign. */
static uint32_t random_character(uint64_t *seed)
{
    static const uint32_t picked[] = {
        ' ',    ' ',    ' ',    '\n',   '\r',   '\t',     '\n',   0xb,     0x85,    0xa0,    0x2003, 0x2028, 0x3000,
        0x180e, 0x200b, 'a',    'Z',    's',    'T',      'r',    'E',     'v',     'l',     'L',    '\'',   '\'',
        '\'',   '0',    '7',    '9',    '.',    '!',      '$',    '+',     '<',     '^',     '`',    '|',    '~',
        '_',    0x301,  0x94d,  0x93e,  0xb2,   0x663,    0x2167, 0x1f680, 0x20ac,  0x4e00,  0x9fa5, 0xac00, 0xd7ff,
        0x41f,  0x17f,  0x2018, 0xff01, 0xff21, 0x10ffff, 0xe000, 0,       0x10400, 0x1e900, 0x1f88, 0x2b0};
    uint64_t r = rn_splitmix64(seed);
    uint32_t c = (uint32_t)(r >> 16) % (0x110000 - 0x800);

    if (r % 8 != 0)
        return picked[(r >> 16) % (sizeof picked / sizeof picked[0])];
    if ((r >> 8) % 3 != 0)
        c %= 0x3000;
    return c < 0xd800 ? c : c + 0x800;
}

static bool known_to_us(uint32_t c, pcre2_code *unassigned, pcre2_match_data *match)
{
    char text[4];
    size_t n = put_character(c, text);

    if (rn_char_class(c) != RN_CHAR_OTHER)
        return true;
    return pcre2_match(unassigned, (PCRE2_SPTR)text, n, 0, 0, match, NULL) > 0;
}

static size_t random_text(uint64_t *seed, char *text, pcre2_code *unassigned, pcre2_match_data *match)
{
    size_t want = rn_splitmix64(seed) % (rn_splitmix64(seed) % 4 == 0 ? MAX_TEXT - 4 : 24);
    size_t n = 0;

    while (n < want) {
        uint32_t c = random_character(seed);
        uint64_t times = rn_splitmix64(seed) % 4 == 0 ? 1 + rn_splitmix64(seed) % 5 : 1;

        if (!known_to_us(c, unassigned, match))
            continue;
        while (times-- > 0 && n < want)
            n += put_character(c, text + n);
    }
    return n;
}

static void test_against_expressions(void **state)
{
    pcre2_code *other = compile("\\p{C}");
    pcre2_match_data *match = pcre2_match_data_create(4, NULL);
    uint64_t seed = 11;
    size_t c;

    (void)state;
    for (c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        const struct rn_pre *pre = rn_pre_find(cases[c].name, strlen(cases[c].name));
        pcre2_code *codes[RN_SPLIT_MAX_PASSES];
        size_t n_codes = 0;
        int i;

        assert_non_null(pre);
        for (; n_codes < RN_SPLIT_MAX_PASSES && cases[c].patterns[n_codes] != NULL; n_codes++) {
            codes[n_codes] = compile(cases[c].patterns[n_codes]);
            pcre2_jit_compile(codes[n_codes], PCRE2_JIT_COMPLETE);
        }
        for (i = 0; i < 6000; i++) {
            char text[MAX_TEXT];
            size_t n = random_text(&seed, text, other, match);

            check(pre, cases[c].name, codes, n_codes, text, n);
        }
        while (n_codes > 0)
            pcre2_code_free(codes[--n_codes]);
    }
    pcre2_match_data_free(match);
    pcre2_code_free(other);
}

/* Every code point; where PCRE2 is of a later Unicode, those that it alone knows are passed over. */
static void test_categories(void **state)
{
    static const struct {
        const char *pattern;
        uint16_t mask;
    } classes[] = {{"\\p{Lu}", RN_CHAR_LU},    {"\\p{Ll}", RN_CHAR_LL},   {"\\p{Lt}", RN_CHAR_LT},
                   {"\\p{Lm}", RN_CHAR_LM},    {"\\p{Lo}", RN_CHAR_LO},   {"\\p{M}", RN_CHAR_MARK},
                   {"\\p{N}", RN_CHAR_NUMBER}, {"\\p{P}", RN_CHAR_PUNCT}, {"\\p{S}", RN_CHAR_SYMBOL},
                   {S, RN_CHAR_SPACE}};
    pcre2_match_data *match = pcre2_match_data_create(4, NULL);
    size_t i, differ = 0, known = 0;

    (void)state;
    for (i = 0; i < sizeof classes / sizeof classes[0]; i++) {
        pcre2_code *code = compile(classes[i].pattern);
        uint32_t c;

        for (c = 0; c < 0x110000; c++) {
            char text[4];
            bool in;

            if (c >= 0xd800 && c < 0xe000)
                continue;
            in = pcre2_match(code, (PCRE2_SPTR)text, put_character(c, text), 0, PCRE2_NO_UTF_CHECK, match, NULL) > 0;
            if (rn_char_class(c) == RN_CHAR_OTHER && in)
                continue; /* counted below: a table without anything would pass here */
            known += in;
            differ += in != (rn_char_class(c) == classes[i].mask);
        }
        pcre2_code_free(code);
    }
    pcre2_match_data_free(match);
    assert_int_equal(differ, 0);
    assert_true(known > 144000); /* Unicode 14 has 144,697 characters, 170 of them format characters */
    assert_int_equal(rn_char_class(0x110000), RN_CHAR_OTHER);
    assert_int_equal(rn_char_class(UINT32_MAX), RN_CHAR_OTHER);
}

static void test_names(void **state)
{
    (void)state;
    assert_non_null(rn_pre_find("starcoder", 9));
    assert_ptr_equal(rn_pre_find("llama3", 6), rn_pre_find("llama-bpe", 9));
    assert_null(rn_pre_find("star", 4));
    assert_null(rn_pre_find("", 0));
    assert_null(rn_pre_find("gpt-2 phi-2", 11));
    assert_null(rn_pre_at(1000));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_categories),
        cmocka_unit_test(test_against_expressions),
        cmocka_unit_test(test_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
