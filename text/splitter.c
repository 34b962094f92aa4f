/* Pre-tokenizers by hand: see splitter.h. Above each function stands the expression it is. */
#include "text/splitter.h"

#include <string.h>

#include "text/unicode.h"
#include "text/utf8.h"

#define NOT_IN_WORDS (RN_CHAR_SPACE | RN_CHAR_LETTER | RN_CHAR_NUMBER)
#define MANY UINT32_MAX

/* Class of the character at text + at and its bytes; 0 and 0 at the end. */
static inline uint16_t peek(const char *text, size_t at, size_t end, uint32_t *n)
{
    *n = 0;
    return at < end ? rn_char_class(rn_utf8_decode(text + at, n)) : 0;
}

/* End of the run of at most `most` characters whose class is in `mask`. */
static size_t run(const char *text, size_t at, size_t end, uint16_t mask, uint32_t most)
{
    uint32_t n;

    while (most > 0 && (peek(text, at, end, &n) & mask) != 0) {
        at += n;
        most--;
    }
    return at;
}

static bool is_newline(char c)
{
    return c == '\r' || c == '\n';
}

/* \s+(?!\S)|\s+, and before it \s*[\r\n]+ when `newlines`: text[at] is white space. */
static size_t next_spaces(const char *text, size_t at, size_t end, bool newlines)
{
    size_t stop = at, last = at, after_newline = at;
    uint32_t n;

    while (peek(text, stop, end, &n) & RN_CHAR_SPACE) {
        last = stop;
        stop += n;
        if (is_newline(text[last]))
            after_newline = stop;
    }
    if (newlines && after_newline > at)
        return after_newline;
    return stop < end && last > at ? last : stop;
}

/* 's|'t|'re|'ve|'m|'ll|'d, of either case when `fold`: its length, or 0. */
static size_t contraction(const char *text, size_t at, size_t end, bool fold)
{
    char bit = fold ? 0x20 : 0;
    char a, b;

    if (text[at] != '\'' || end - at < 2)
        return 0;
    a = (char)(text[at + 1] | bit);
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return 2;
    if (end - at < 3)
        return 0;
    b = (char)(text[at + 2] | bit);
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
static size_t next_gpt2(const struct rn_pass *pass, const char *text, size_t at, size_t end)
{
    size_t short_form = contraction(text, at, end, false);
    size_t from = at + (text[at] == ' ');
    uint32_t n;
    uint16_t class;

    (void)pass;
    if (short_form > 0)
        return at + short_form;
    class = peek(text, from, end, &n);
    if (class & RN_CHAR_LETTER)
        return run(text, from + n, end, RN_CHAR_LETTER, MANY);
    if (class & RN_CHAR_NUMBER)
        return run(text, from + n, end, RN_CHAR_NUMBER, MANY);
    if (class != 0 && !(class & RN_CHAR_SPACE))
        return run(text, from + n, end, (uint16_t)~NOT_IN_WORDS, MANY);
    return next_spaces(text, at, end, false);
}

/* (?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,most}
 * | ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
 * With the flag, [\p{L}\p{M}]+ for \p{L}+ and [^\s\p{L}\p{M}\p{N}] for [^\s\p{L}\p{N}]. */
static size_t next_words(const struct rn_pass *pass, const char *text, size_t at, size_t end)
{
    uint16_t letters = RN_CHAR_LETTER | (pass->flag ? RN_CHAR_MARK : 0);
    uint16_t others = (uint16_t)~(NOT_IN_WORDS | letters);
    size_t short_form = contraction(text, at, end, true);
    uint32_t n, n_next;
    uint16_t class;

    if (short_form > 0)
        return at + short_form;
    class = peek(text, at, end, &n);
    if (class & letters)
        return run(text, at + n, end, letters, MANY);
    if (class & RN_CHAR_NUMBER)
        return run(text, at, end, RN_CHAR_NUMBER, pass->most);
    if (!is_newline(text[at]) && (peek(text, at + n, end, &n_next) & letters))
        return run(text, at + n, end, letters, MANY);
    if (text[at] == ' ')
        class = peek(text, at + n, end, &n_next);
    if (class & others) {
        at = run(text, at + (text[at] == ' '), end, others, MANY);
        while (at < end && is_newline(text[at]))
            at++;
        return at;
    }
    return next_spaces(text, at, end, true);
}

/* Bytes of the character at text + at if it is in the pass's set, else 0. */
static uint32_t in_set(const struct rn_pass *pass, const char *text, size_t at, size_t end)
{
    uint32_t n = 0;

    return at < end && pass->in(rn_utf8_decode(text + at, &n)) ? n : 0;
}

/* Where the set's characters begin in a match at text + at, or `end` if there is no match. */
static size_t set_match(const struct rn_pass *pass, const char *text, size_t at, size_t end)
{
    uint32_t n;

    if (pass->flag && (peek(text, at, end, &n) & RN_CHAR_SPACE) && in_set(pass, text, at + n, end) > 0)
        return at + n;
    return in_set(pass, text, at, end) > 0 ? at : end;
}

/* [set]{1,most}, or \s?[set]{1,most} with the flag. */
static size_t next_set(const struct rn_pass *pass, const char *text, size_t at, size_t end)
{
    size_t from = set_match(pass, text, at, end);
    uint32_t left = pass->most;
    uint32_t n;

    if (from < end) {
        while (left-- > 0 && (n = in_set(pass, text, from, end)) > 0)
            from += n;
        return from;
    }
    do {
        rn_utf8_decode(text + at, &n);
        at += n;
    } while (at < end && set_match(pass, text, at, end) == end);
    return at;
}

/* \s+$ */
static size_t next_trailing(const struct rn_pass *pass, const char *text, size_t at, size_t end)
{
    size_t spaces_from = at, i = at;
    uint32_t n;

    (void)pass;
    while (i < end) {
        uint16_t class = peek(text, i, end, &n);

        i += n;
        if (!(class & RN_CHAR_SPACE))
            spaces_from = i;
    }
    return spaces_from > at ? spaces_from : end;
}

static bool three_digits(const char *text, size_t at, size_t end)
{
    return end - at >= 3 && (unsigned)(text[at] - '0') < 10 && (unsigned)(text[at + 1] - '0') < 10 &&
           (unsigned)(text[at + 2] - '0') < 10;
}

/* [0-9][0-9][0-9] */
static size_t next_three(const struct rn_pass *pass, const char *text, size_t at, size_t end)
{
    (void)pass;
    if (three_digits(text, at, end))
        return at + 3;
    do
        at++;
    while (at < end && !three_digits(text, at, end));
    return at;
}

/* The sets. */

static bool is_number(uint32_t c)
{
    return (rn_char_class(c) & RN_CHAR_NUMBER) != 0;
}

static bool is_letter(uint32_t c)
{
    return (rn_char_class(c) & RN_CHAR_LETTER) != 0;
}

static bool is_punct(uint32_t c)
{
    return (rn_char_class(c) & RN_CHAR_PUNCT) != 0;
}

static bool is_line_end(uint32_t c) /* [\r\n] */
{
    return c == '\r' || c == '\n';
}

static bool is_default_punct(uint32_t c) /* [\p{P}\$\+<=>\^~\|] */
{
    return is_punct(c) || c == '$' || c == '+' || (c >= '<' && c <= '>') || c == '^' || c == '~' || c == '|';
}

static bool is_falcon_punct(uint32_t c) /* [\p{P}\$\+<=>\^~\|`] */
{
    return is_default_punct(c) || c == '`';
}

static bool is_deepseek_punct(uint32_t c) /* [!-/:-~！-／：-～‘-‟　-。] */
{
    return (c >= 0x21 && c <= 0x2f) || (c >= 0x3a && c <= 0x7e) || (c >= 0xff01 && c <= 0xff0f) ||
           (c >= 0xff1a && c <= 0xff5e) || (c >= 0x2018 && c <= 0x201f) || (c >= 0x3000 && c <= 0x3002);
}

static bool is_deepseek_cjk(uint32_t c) /* [一-龥ࠀ-一가-퟿] */
{
    return (c >= 0x800 && c <= 0x9fa5) || (c >= 0xac00 && c <= 0xd7ff);
}

static const struct {
    uint32_t first, last;
} deepseek_letters[] = { /* the letters with case that DeepSeek LLM's tokenizer.json lists */
    {0x41, 0x5a}, {0x61, 0x7a}, {0xb5, 0xb5}, {0xc0, 0xd6}, {0xd8, 0xf6}, {0xf8, 0x1ba}, {0x1bc, 0x1bf},
    {0x1c4, 0x293}, {0x295, 0x2af}, {0x370, 0x373}, {0x376, 0x377}, {0x37b, 0x37d}, {0x37f, 0x37f}, {0x386, 0x386},
    {0x388, 0x38a}, {0x38c, 0x38c}, {0x38e, 0x3a1}, {0x3a3, 0x3f5}, {0x3f7, 0x481}, {0x48a, 0x52f}, {0x531, 0x556},
    {0x10a0, 0x10c5}, {0x13a0, 0x13f5}, {0x13f8, 0x13fd}, {0x1c90, 0x1cba}, {0x1cbd, 0x1cbf}, {0x1d00, 0x1d2b},
    {0x1d6b, 0x1d77}, {0x1d79, 0x1d9a}, {0x1e00, 0x1f15}, {0x1f18, 0x1f1d}, {0x1f20, 0x1f45}, {0x1f48, 0x1f4d},
    {0x1f50, 0x1f57}, {0x1f59, 0x1f59}, {0x1f5b, 0x1f5b}, {0x1f5d, 0x1f5d}, {0x1f5f, 0x1f7d}, {0x1f80, 0x1fb4},
    {0x1fb6, 0x1fbc}, {0x1fbe, 0x1fbe}, {0x1fc2, 0x1fc4}, {0x1fc6, 0x1fcc}, {0x1fd0, 0x1fd3}, {0x1fd6, 0x1fdb},
    {0x1fe0, 0x1fec}, {0x1ff2, 0x1ff4}, {0x1ff6, 0x1ffc}, {0x2102, 0x2102}, {0x2107, 0x2107}, {0x210a, 0x2113},
    {0x2115, 0x2115}, {0x2119, 0x211d}, {0x2124, 0x2124}, {0x2126, 0x2126}, {0x2128, 0x2128}, {0x212a, 0x212d},
    {0x212f, 0x2134}, {0x2139, 0x2139}, {0x213c, 0x213f}, {0x2145, 0x2149}, {0x214e, 0x214e}, {0x2183, 0x2184},
    {0x2c00, 0x2c7b}, {0x2c7e, 0x2ce4}, {0x2ceb, 0x2cee}, {0x2cf2, 0x2cf3}, {0xa640, 0xa66d}, {0xa680, 0xa69b},
    {0xa722, 0xa76f}, {0xa771, 0xa787}, {0xa78b, 0xa78e}, {0xab70, 0xabbf}, {0xfb00, 0xfb06}, {0xfb13, 0xfb17},
    {0xff21, 0xff3a}, {0xff41, 0xff5a}, {0x10400, 0x1044f}, {0x104b0, 0x104d3}, {0x104d8, 0x104fb},
    {0x10c80, 0x10cb2}, {0x10cc0, 0x10cf2}, {0x118a0, 0x118df}, {0x1e900, 0x1e943},
};

static bool is_deepseek_letter(uint32_t c)
{
    uint32_t low = 0, high = sizeof deepseek_letters / sizeof deepseek_letters[0];

    while (low < high) {
        uint32_t middle = (low + high) / 2;

        if (c > deepseek_letters[middle].last)
            low = middle + 1;
        else if (c < deepseek_letters[middle].first)
            high = middle;
        else
            return true;
    }
    return false;
}

#define GPT2 {next_gpt2, NULL, 0, false}
#define DIGIT {next_set, is_number, 1, false}
#define NUMBER {next_set, is_number, MANY, false}
#define LINE_END {next_set, is_line_end, 1, false}
#define THREE {next_three, NULL, 0, false}
#define DEFAULT_PUNCT {next_set, is_default_punct, MANY, false}
#define FALCON_PUNCT {next_set, is_falcon_punct, MANY, false}
#define CJK {next_set, is_deepseek_cjk, MANY, false}

static const struct rn_pre table[] = {
    {"default", {DEFAULT_PUNCT, GPT2, NUMBER, THREE}, 4, false, false},
    {"gpt-2 phi-2 mpt olmo jais exaone4 gigachat a.x-4.0 mellum trillion granite-docling", {GPT2}, 1, false, false},
    {"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2",
     {{next_words, NULL, 3, false}}, 1, true, true},
    {"dbrx smaug-bpe glm4 chatglm-bpe", {{next_words, NULL, 3, false}}, 1, false, false},
    {"qwen2 stablelm2 deepseek-r1-qwen kormo megrez hunyuan solar-open grok-2",
     {{next_words, NULL, 1, false}}, 1, false, false},
    {"qwen35", {{next_words, NULL, 1, true}}, 1, false, false},
    {"starcoder refact smollm command-r codeshell exaone minerva-7b mellum2", {DIGIT, GPT2}, 2, false, false},
    {"falcon", {FALCON_PUNCT, GPT2, THREE}, 3, false, false},
    {"deepseek-llm",
     {LINE_END, {next_set, is_deepseek_letter, MANY, true}, {next_set, is_deepseek_punct, MANY, true},
      {next_trailing, NULL, 0, false}, CJK, NUMBER}, 6, false, false},
    {"deepseek-coder",
     {LINE_END, {next_set, is_letter, MANY, true}, {next_set, is_punct, MANY, true}, CJK, DIGIT}, 5, false, false},
};

const struct rn_pre *rn_pre_at(uint32_t index)
{
    return index < sizeof table / sizeof table[0] ? &table[index] : NULL;
}

static bool names_contain(const char *names, const char *name, size_t n)
{
    while (*names != '\0') {
        size_t length = strcspn(names, " ");

        if (length == n && memcmp(names, name, n) == 0)
            return true;
        names += length;
        names += *names == ' ';
    }
    return false;
}

const struct rn_pre *rn_pre_find(const char *name, size_t n)
{
    const struct rn_pre *pre;
    uint32_t i;

    for (i = 0; (pre = rn_pre_at(i)) != NULL; i++) {
        if (names_contain(pre->names, name, n))
            return pre;
    }
    return NULL;
}

void rn_split_init(struct rn_split *split, const struct rn_pre *pre, const char *text, size_t n)
{
    memset(split, 0, sizeof *split);
    split->pre = pre;
    split->text = text;
    split->end[0] = n;
}

bool rn_split_next(struct rn_split *split, size_t *begin, size_t *end)
{
    uint32_t last = split->pre->n_passes - 1;
    uint32_t k = last;

    while (split->at[k] == split->end[k]) {
        if (k == 0)
            return false;
        k--;
    }
    for (;;) {
        const struct rn_pass *pass = &split->pre->passes[k];

        *begin = split->at[k];
        *end = pass->next(pass, split->text, *begin, split->end[k]);
        split->at[k] = *end;
        if (k == last)
            return true;
        k++;
        split->at[k] = *begin;
        split->end[k] = *end;
    }
}
