/* The hand-written splitters against PCRE2 and the expressions they are, over random text and over every
 * code point; our table of categories and the sets against PCRE2's. Code points that are assigned in one
 * version of Unicode alone (ours is 16, that of PCRE2 10.42 is 14) are left out. */
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
#include "text/split/passes.h"
#include "text/unicode.h"
#include "text/vocab.h"

#define MAX_TEXT 1600

/* White_Space written out: PCRE2's own \s has U+180E. */
#define WHITE \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define S "[" WHITE "]"
#define NOT_S "[^" WHITE "]"
#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" WHITE "\\p{L}\\p{N}]+|" S "+(?!" NOT_S ")"
#define FORMS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES S "+(?!" NOT_S ")|" S "+"
#define LINES S "*[\\r\\n]+|" SPACES
#define FRONT "[^\\r\\n\\p{L}\\p{N}]?"
#define SIGNS(tail) " ?[^" WHITE "\\p{L}\\p{N}]+" tail "|"
#define WORDS_SO_FAR(digits) FRONT "\\p{L}+|\\p{N}" digits "|"
#define WORDS(digits) FORMS "|" WORDS_SO_FAR(digits) SIGNS("[\\r\\n]*") LINES
#define WORDS_OF(letters, others) FORMS "|" FRONT letters "+|\\p{N}| ?[^" WHITE others "]+[\\r\\n]*|" LINES
#define CASCADE(n) S "{" #n "}(?!" NOT_S ")|"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(upper, lower, forms, digits, tail) \
    FRONT upper "*" lower "+" forms "|" FRONT upper "+" lower "*" forms "|\\p{N}" digits "|" SIGNS(tail) LINES
#define DEEPSEEK3(tail, lines)                                                                           \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|" \
    " ?[\\p{P}\\p{S}]+" tail "|" lines
#define LINE "[^\\n]+|[\\n]+"
#define BLOOM " ?[^(" WHITE "|.,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}\\x{964}\\x{6d4}\\x{60c})]+"
#define CJK_KANA "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+"
#define AFMOE                                                                                          \
    "[\\x{4e00}-\\x{9fff}\\x{3400}-\\x{4dbf}\\x{8c48}-\\x{faff}\\x{3040}-\\x{30ff}\\x{ff65}-\\x{ff9f}" \
    "\\x{2f00}-\\x{2fdf}\\x{e40}-\\x{e7f}\\x{e80}-\\x{eff}\\x{1780}-\\x{17ff}\\x{1000}-\\x{109f}"      \
    "\\x{aa60}-\\x{aa7f}\\x{a9e0}-\\x{a9ff}\\x{ac00}-\\x{d7af}\\x{1100}-\\x{11ff}]+"
#define YOUTU_SIGNS                                                                                                  \
    "[\\x{ff01}\\x{2026}\\x{201c}\\x{201d}\\x{2018}\\x{2019}\\x{2014}\\x{ff1a}\\x{ff1b}\\x{ff0c}\\x{3001}-\\x{303f}" \
    "\\x{fe30}-\\x{fe4f}]"
/* \w as Oniguruma has it */
#define WORD                                                                                    \
    "[\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}\\x{24b6}-\\x{24e9}" \
    "\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}]"
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
    {"roberta-bpe", {GPT2}},
    {"default", {"[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}},
    {"llama-bpe", {WORDS("{1,3}")}},
    {"dbrx", {WORDS("{1,3}")}},
    {"glm4", {WORDS("{1,3}")}},
    {"jais-2",
     {FORMS "|" WORDS_SO_FAR("{1,3}") SIGNS("[\\r\\n]*") S "*[\\r\\n]+|" CASCADE(512) CASCADE(256) CASCADE(128)
          CASCADE(64) CASCADE(32) CASCADE(16) CASCADE(8) CASCADE(4) S "{1,2}(?!" NOT_S ")|" S "{1}"}},
    {"minicpm5", {"\\p{N}{1,3}", WORDS("+")}},
    {"qwen2", {WORDS("")}},
    {"bailingmoe",
     {"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^" WHITE "\\p{L}\\p{N}]++[\\r\\n]*|" S
      "*[\\r\\n]|" SPACES}},
    {"qwen35", {WORDS_OF("[\\p{L}\\p{M}]", "\\p{L}\\p{M}\\p{N}")}},
    {"k2-horizon", {FORMS "|" FRONT "(?:\\p{L}|\\p{M}|\\x{200c}|\\x{200d})+|\\p{N}{1,3}|" SIGNS("[\\r\\n]*") LINES}},
    {"seed-coder", {FORMS "|" FRONT "\\p{L}+|\\p{N}{1}| ?[^" WHITE "\\p{L}\\p{N}\\r\\n]+|" LINES}},
    {"ufakzeka", {WORDS_SO_FAR("") SIGNS("[\\r\\n]*") LINES}},
    {"laguna", {LINE, WORDS("")}},
    {"exaone-moe",
     {FORMS "|" FRONT "(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}|" SIGNS("[\\r\\n/]?") S "*[\\r\\n]|" SPACES}},
    {"starcoder", {"\\p{N}", GPT2}},
    {"falcon", {"[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2, "[0-9][0-9][0-9]"}},
    {"deepseek-llm",
     {"[\\r\\n]", S "?[" DEEPSEEK_LETTERS "]+",
      S "?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+", S "+$",
      "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+", "\\p{N}+"}},
    {"deepseek-coder",
     {"[\\r\\n]", S "?\\p{L}+", S "?\\p{P}+", "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+", "\\p{N}"}},
    {"deepseek-v3", {"\\p{N}{1,3}", CJK_KANA, DEEPSEEK3("[\\r\\n]*", LINES)}},
    {"spark2_5", {"\\p{N}{1,3}", CJK_KANA, DEEPSEEK3("", "[\\r\\n]|" SPACES), "\\p{N}"}},
    {"afmoe", {"\\p{N}{1,3}(?=(?:\\p{N}{3})*(?!\\p{N}))", AFMOE, DEEPSEEK3("[\\r\\n]*", LINES)}},
    {"youtu",
     {"[\\x{ac00}-\\x{d7a3}\\x{3131}-\\x{318e}]+|" YOUTU_SIGNS "+|[\\x{3105}-\\x{312f}]+|" CJK_KANA,
      CASED(UPPER, LOWER, FORMS "?", "", "[\\r\\n/]*")}},
    {"tekken", {CASED(UPPER, LOWER, "", "", "[\\r\\n/]*")}},
    {"gpt-4o", {CASED(UPPER, LOWER, FORMS "?", "{1,3}", "[\\r\\n/]*")}},
    {"granite-embed-multi-97m", {CASED(UPPER, LOWER, FORMS "?", "{1,3}", "[\\r\\n/]*")}},
    {"tiny_aya", {"\\d{1,3}(?=(?:\\d{3})*(?!" WORD "))", CASED(UPPER, LOWER, FORMS "?", "{1,3}", "[\\r\\n/]*")}},
    {"kimi-k2",
     {"\\p{sc:Han}+|" CASED("(?:(?!\\p{sc:Han})" UPPER ")", "(?:(?!\\p{sc:Han})" LOWER ")", FORMS "?", "{1,3}",
                            "[\\r\\n]*")}},
    {"superbpe", {"\\p{N}+", "(?=(\\d{3})+(?!\\d))"}},
    {"bloom", {BLOOM}},
    {"viking", {BLOOM, "\\p{N}"}},
    {"chameleon",
     {"<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", "([\\t\\n]|    |  )", "\\p{N}",
      "[\\p{P}!-/:-@\\[-`{-~]", GPT2}},
    {"gemma4", {LINE}},
    {"sarvam-moe", {LINE}},
    {"whitespace", {NOT_S "+"}},
};

#define N_CASES (sizeof cases / sizeof cases[0])

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

static size_t character_bytes(const char *text)
{
    unsigned char lead = (unsigned char)text[0];

    return lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

/* Marks in ends[] where the pieces of text[from..to) end: matches, and what lies between them. An empty match
 * ends a piece too. */
static void cut(pcre2_code *const *codes, size_t n_codes, const char *text, size_t from, size_t to, bool *ends)
{
    pcre2_match_data *match;
    size_t at = from, search = from;

    if (n_codes == 0) {
        ends[to] = true;
        return;
    }
    match = pcre2_match_data_create(8, NULL);
    while (search < to) {
        int rc =
            pcre2_match(codes[0], (PCRE2_SPTR)text + from, to - from, search - from, PCRE2_NO_UTF_CHECK, match, NULL);
        const PCRE2_SIZE *found = pcre2_get_ovector_pointer(match);

        assert_true(rc > 0 || rc == PCRE2_ERROR_NOMATCH);
        if (rc == PCRE2_ERROR_NOMATCH || from + found[0] == to)
            break;
        if (from + found[0] > at)
            cut(codes + 1, n_codes - 1, text, at, from + found[0], ends);
        at = from + found[1];
        search = at;
        if (found[1] > found[0])
            cut(codes + 1, n_codes - 1, text, from + found[0], at, ends);
        else
            search += character_bytes(text + at);
    }
    if (at < to)
        cut(codes + 1, n_codes - 1, text, at, to, ends);
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
        ' ',    ' ',    ' ',      '\n',   '\r',   '\t',    '\n',    0xb,    0x85,  0xa0,   0x2003,
        0x2028, 0x3000, 0x180e,   0x200b, 'a',    'Z',     's',     'T',    'r',   'E',    'v',
        'l',    'L',    '\'',     '\'',   '\'',   '0',     '7',     '9',    '.',   '!',    '$',
        '+',    '<',    '^',      '`',    '|',    '~',     '_',     0x301,  0x94d, 0x93e,  0xb2,
        0x663,  0x2167, 0x1f680,  0x20ac, 0x4e00, 0x9fa5,  0xac00,  0xd7ff, 0x41f, 0x17f,  0x2018,
        0xff01, 0xff21, 0x10ffff, 0xe000, 0,      0x10400, 0x1e900, 0x1f88, 0x2b0, 0x200c, 0x200d};
    uint64_t r = rn_splitmix64(seed);
    uint32_t c = (uint32_t)(r >> 16) % (0x110000 - 0x800);

    if (r % 8 != 0)
        return picked[(r >> 16) % (sizeof picked / sizeof picked[0])];
    if ((r >> 8) % 3 != 0)
        c %= 0x3000;
    return c < 0xd800 ? c : c + 0x800;
}

/* Is the code point assigned in both versions of Unicode, or in neither? U+1171E alone changed: Mn to Mc in 16. */
static bool same_to_both(uint32_t c)
{
    static pcre2_code *unassigned;
    static pcre2_match_data *match;
    char text[4];
    size_t n = put_character(c, text);

    if (c == 0x1171e)
        return false;
    if (unassigned == NULL) {
        unassigned = compile("\\p{Cn}");
        pcre2_jit_compile(unassigned, PCRE2_JIT_COMPLETE);
        match = pcre2_match_data_create(4, NULL);
    }
    return (rn_char_class(c) == RN_CHAR_UNASSIGNED) ==
           (pcre2_match(unassigned, (PCRE2_SPTR)text, n, 0, PCRE2_NO_UTF_CHECK, match, NULL) > 0);
}

/* Now and then something that only a few of the expressions look for. */
static size_t random_phrase(uint64_t *seed, char *text)
{
    static const char *const phrases[] = {"<sentinel:12>",
                                          "<sentinel:>",
                                          "IMGIMGABCZ",
                                          "IMGIMGABCDEZ",
                                          "IMGIMGZ",
                                          "    ",
                                          "1234567",
                                          "12345\xc2\xb2",
                                          "a b c",
                                          "aBC dEf",
                                          "\xe3\x81\x82"
                                          "BC",
                                          "It'LL",
                                          "we're/\n",
                                          "999999 "};
    const char *phrase = phrases[rn_splitmix64(seed) % (sizeof phrases / sizeof phrases[0])];
    size_t n = strlen(phrase);

    if (rn_splitmix64(seed) % 8 == 0) {
        n = 1 + rn_splitmix64(seed) % 1100;
        memset(text, rn_splitmix64(seed) % 4 ? ' ' : '7', n);
        return n;
    }
    memcpy(text, phrase, n);
    return n;
}

static size_t random_text(uint64_t *seed, char *text)
{
    size_t want = rn_splitmix64(seed) % (rn_splitmix64(seed) % 4 == 0 ? 400 : 24);
    size_t n = 0;

    if (rn_splitmix64(seed) % 8 == 0)
        n = random_phrase(seed, text);
    want += n;
    while (n < want) {
        uint32_t c = random_character(seed);
        uint64_t times = rn_splitmix64(seed) % 4 == 0 ? 1 + rn_splitmix64(seed) % 5 : 1;

        if (!same_to_both(c))
            continue;
        while (times-- > 0 && n < want)
            n += put_character(c, text + n);
    }
    if (rn_splitmix64(seed) % 32 == 0 && n < 400)
        n += random_phrase(seed, text + n);
    return n;
}

static size_t compile_case(size_t c, pcre2_code **codes)
{
    size_t n = 0;

    for (; n < RN_SPLIT_MAX_PASSES && cases[c].patterns[n] != NULL; n++) {
        codes[n] = compile(cases[c].patterns[n]);
        pcre2_jit_compile(codes[n], PCRE2_JIT_COMPLETE);
    }
    return n;
}

static void test_against_expressions(void **state)
{
    uint64_t seed = 11;
    size_t c;

    (void)state;
    for (c = 0; c < N_CASES; c++) {
        const struct rn_pre *pre = rn_pre_find(cases[c].name, strlen(cases[c].name));
        pcre2_code *codes[RN_SPLIT_MAX_PASSES];
        size_t n_codes = compile_case(c, codes);
        int i;

        assert_non_null(pre);
        for (i = 0; i < 4000; i++) {
            char text[MAX_TEXT];
            size_t n = random_text(&seed, text);

            check(pre, cases[c].name, codes, n_codes, text, n);
        }
        while (n_codes > 0)
            pcre2_code_free(codes[--n_codes]);
    }
}

/* Every code point of every plane between the neighbours that expressions look at, a quarter of them with each
 * expression; which sets a code point is in is held against PCRE2 for all of them below. */
static void test_every_code_point(void **state)
{
    static const char *const around[] = {" ", "a", "B", "1", "\n", "!"};
    size_t c;

    (void)state;
    for (c = 0; c < N_CASES; c++) {
        const struct rn_pre *pre = rn_pre_find(cases[c].name, strlen(cases[c].name));
        pcre2_code *codes[RN_SPLIT_MAX_PASSES];
        size_t n_codes = compile_case(c, codes);
        char text[MAX_TEXT];
        size_t n = 0;
        uint32_t point;

        for (point = 0; point < 0x110000; point++) {
            if ((point >= 0xd800 && point < 0xe000) || (point + c) % 4 != 0 || !same_to_both(point))
                continue;
            if (rn_char_class(point) == RN_CHAR_UNASSIGNED && point % 61 != 0)
                continue;
            n += put_character(point, text + n);
            text[n++] = around[point % 6][0];
            n += put_character(point, text + n);
            n += put_character(point, text + n);
            text[n++] = around[(point >> 3) % 6][0];
            if (n > 200) {
                check(pre, cases[c].name, codes, n_codes, text, n);
                n = 0;
            }
        }
        check(pre, cases[c].name, codes, n_codes, text, n);
        while (n_codes > 0)
            pcre2_code_free(codes[--n_codes]);
    }
}

/* Every name of the table has an expression here: its own or that of the entry's first tested name. */
static void test_all_are_tested(void **state)
{
    const struct rn_pre *pre;
    uint32_t i;

    (void)state;
    for (i = 0; (pre = rn_pre_at(i)) != NULL; i++) {
        size_t c;

        for (c = 0; c < N_CASES; c++) {
            if (rn_pre_find(cases[c].name, strlen(cases[c].name)) == pre)
                break;
        }
        if (c == N_CASES)
            fail_msg("\"%s\" is held against nothing", pre->names);
    }
    assert_true(i >= 30);
}

/* How many code points are in a class by PCRE2, and in how many the two differ. */
static void compare_class(const char *pattern, bool (*in)(uint32_t c, uint32_t mask), uint32_t mask, size_t *known,
                          size_t *differ)
{
    pcre2_match_data *match = pcre2_match_data_create(8, NULL);
    pcre2_code *code = compile(pattern);
    uint32_t c;

    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
    for (c = 0; c < 0x110000; c++) {
        char text[4];
        bool found;

        if ((c >= 0xd800 && c < 0xe000) || !same_to_both(c))
            continue;
        found = pcre2_match(code, (PCRE2_SPTR)text, put_character(c, text), 0, PCRE2_NO_UTF_CHECK, match, NULL) > 0;
        *known += found;
        if (found != in(c, mask)) {
            print_message("%s: U+%04X\n", pattern, c);
            ++*differ;
        }
    }
    pcre2_code_free(code);
    pcre2_match_data_free(match);
}

static bool in_class(uint32_t c, uint32_t mask)
{
    return rn_char_class(c) == mask;
}

static void test_categories(void **state)
{
    static const struct {
        const char *pattern;
        uint16_t mask;
    } classes[] = {{"\\p{Lu}", RN_CHAR_LU},
                   {"\\p{Ll}", RN_CHAR_LL},
                   {"\\p{Lt}", RN_CHAR_LT},
                   {"\\p{Lm}", RN_CHAR_LM},
                   {"\\p{Lo}", RN_CHAR_LO},
                   {"\\p{Mn}", RN_CHAR_MN},
                   {"[\\p{Mc}\\p{Me}]", RN_CHAR_MC},
                   {"\\p{Nd}", RN_CHAR_ND},
                   {"\\p{Nl}", RN_CHAR_NL},
                   {"\\p{No}", RN_CHAR_NO},
                   {"\\p{Pc}", RN_CHAR_PC},
                   {"(?!\\p{Pc})\\p{P}", RN_CHAR_PO},
                   {"\\p{S}", RN_CHAR_SYMBOL},
                   {S, RN_CHAR_SPACE},
                   {"(?!" S ")[\\p{Cc}\\p{Cf}\\p{Co}]", RN_CHAR_CONTROL},
                   {"\\p{Cn}", RN_CHAR_UNASSIGNED}};
    size_t i, differ = 0, known = 0;

    (void)state;
    for (i = 0; i < sizeof classes / sizeof classes[0]; i++)
        compare_class(classes[i].pattern, in_class, classes[i].mask, &known, &differ);
    assert_int_equal(differ, 0);
    assert_true(known > 1100000); /* all but surrogates and the characters of Unicode 15 and 16 */
    assert_int_equal(rn_char_class(0x110000), RN_CHAR_UNASSIGNED);
    assert_int_equal(rn_char_class(UINT32_MAX), RN_CHAR_UNASSIGNED);
}

static const struct {
    const char *pattern;
    rn_pass_set *set;
} sets[] = {{"[\\p{P}\\$\\+<=>\\^~\\|]", rn_set_default_punct},
            {"[\\p{P}\\$\\+<=>\\^~\\|`]", rn_set_falcon_punct},
            {"[\\p{P}!-/:-@\\[-`{-~]", rn_set_chameleon},
            {"[" DEEPSEEK_LETTERS "]", rn_set_deepseek_letter},
            {CJK_KANA, rn_set_cjk_kana},
            {"[\\x{ac00}-\\x{d7a3}\\x{3131}-\\x{318e}]|" YOUTU_SIGNS "|[\\x{3105}-\\x{312f}]|" CJK_KANA, rn_set_youtu},
            {AFMOE, rn_set_afmoe},
            {"(?! )" BLOOM, rn_set_bloom}};

static bool in_set(uint32_t c, uint32_t which)
{
    return sets[which].set(c) != 0;
}

static bool is_han(uint32_t c, uint32_t unused)
{
    (void)unused;
    return rn_char_is_han(c);
}

static bool is_word(uint32_t c, uint32_t unused)
{
    (void)unused;
    return rn_char_is_word(c);
}

static void test_sets(void **state)
{
    size_t differ = 0, known = 0;
    uint32_t i;

    (void)state;
    for (i = 0; i < sizeof sets / sizeof sets[0]; i++)
        compare_class(sets[i].pattern, in_set, i, &known, &differ);
    known = 0;
    compare_class("\\p{sc:Han}", is_han, 0, &known, &differ);
    assert_true(known > 90000);
    compare_class(WORD, is_word, 0, &known, &differ);
    assert_int_equal(differ, 0);
}

static void test_names(void **state)
{
    (void)state;
    assert_non_null(rn_pre_find("starcoder", 9));
    assert_ptr_equal(rn_pre_find("llama3", 6), rn_pre_find("llama-bpe", 9));
    assert_null(rn_pre_find("star", 4));
    assert_null(rn_pre_find("", 0));
    assert_null(rn_pre_find("gpt-2 phi-2", 11));
    assert_ptr_not_equal(rn_pre_find("llama-bpe", 9), rn_pre_find("llama4", 6));
    assert_null(rn_pre_at(1000));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_categories),          cmocka_unit_test(test_sets),
        cmocka_unit_test(test_against_expressions), cmocka_unit_test(test_every_code_point),
        cmocka_unit_test(test_all_are_tested),      cmocka_unit_test(test_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
