/* The passes that cut whole texts into words: GPT-2's expression and those that came of it. Above each
 * function stands the expression it is. See splitter.h. */
#include "text/split/passes.h"

#include <string.h>

#define SPOKEN (RN_CHAR_SPACE | RN_CHAR_LETTER | RN_CHAR_NUMBER)
#define UPPER (RN_CHAR_LU | RN_CHAR_LT | RN_CHAR_LM | RN_CHAR_LO | RN_CHAR_MARK)
#define LOWER (RN_CHAR_LL | RN_CHAR_LM | RN_CHAR_LO | RN_CHAR_MARK)
#define SIGNS (RN_CHAR_PUNCT | RN_CHAR_SYMBOL)

static bool is_newline(char c)
{
    return c == '\r' || c == '\n';
}

/* \s+(?!\S)|\s+, and before it \s*[\r\n]+ when `newlines`: text[at] is white space. */
static size_t next_spaces(const char *text, size_t at, size_t end, bool newlines)
{
    size_t stop = at, last = at, after_newline = at;
    uint32_t n;

    while (rn_peek(text, stop, end, &n) & RN_CHAR_SPACE) {
        last = stop;
        stop += n;
        if (is_newline(text[last]))
            after_newline = stop;
    }
    if (newlines && after_newline > at)
        return after_newline;
    return stop < end && last > at ? last : stop;
}

/* \s{512}(?!\S)|\s{256}(?!\S)|...|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1} */
static size_t next_cascade(const char *text, size_t at, size_t end)
{
    size_t sizes = 0, stops[10], stop = at; /* stops[i]: the end of 2^i white spaces */
    uint32_t count = 0, n;
    size_t i;

    while (count < 513 && (rn_peek(text, stop, end, &n) & RN_CHAR_SPACE)) {
        stop += n;
        count++;
        if ((count & (count - 1)) == 0)
            stops[sizes++] = stop;
    }
    for (i = sizes; i-- > 0;) { /* the next character is white space too, or there is none */
        if (stops[i] < stop || stop == end)
            return stops[i];
    }
    return stops[0];
}

/* As next_spaces with newlines, or the cascade: \s*[\r\n]+ goes first there too. Where a part of a cascade
 * ended in the run before text + at, the run has no newline any more, and is not searched again. */
static size_t next_white(const struct rn_pass *pass, const char *text, size_t from, size_t at, size_t end)
{
    size_t before, stop;
    uint32_t n;

    if (!(pass->flags & RN_PASS_CASCADE))
        return next_spaces(text, at, end, true);
    before = at > from ? rn_before(text, at) : at;
    if (before < at && !is_newline(text[before]) && (rn_peek(text, before, at, &n) & RN_CHAR_SPACE))
        return next_cascade(text, at, end);
    stop = next_spaces(text, at, end, true);
    return is_newline(text[stop - 1]) ? stop : next_cascade(text, at, end);
}

/* 's|'t|'re|'ve|'m|'ll|'d, of either case when `fold` (U+017F is an s then): its length, or 0. */
static size_t short_form(const char *text, size_t at, size_t end, bool fold)
{
    char bit = fold ? 0x20 : 0;
    char a, b;

    if (at == end || text[at] != '\'' || end - at < 2)
        return 0;
    a = (char)(text[at + 1] | bit);
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return 2;
    if (end - at < 3)
        return 0;
    if (fold && text[at + 1] == '\xc5' && text[at + 2] == '\xbf')
        return 3;
    b = (char)(text[at + 2] | bit);
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
size_t rn_next_gpt2(const struct rn_pass *pass, const char *text, size_t from, size_t at, size_t end)
{
    size_t form = short_form(text, at, end, false);
    size_t word = at + (text[at] == ' ');
    uint32_t n;
    uint16_t class;

    (void)pass;
    (void)from;
    if (form > 0)
        return at + form;
    class = rn_peek(text, word, end, &n);
    if (class & RN_CHAR_LETTER)
        return rn_run(text, word + n, end, RN_CHAR_LETTER, RN_MANY);
    if (class & RN_CHAR_NUMBER)
        return rn_run(text, word + n, end, RN_CHAR_NUMBER, RN_MANY);
    if (class != 0 && !(class & RN_CHAR_SPACE))
        return rn_run(text, word + n, end, (uint16_t)~SPOKEN, RN_MANY);
    return next_spaces(text, at, end, false);
}

/* U+200C or U+200D: three bytes. */
static bool is_joiner(const struct rn_pass *pass, const char *text, size_t at, size_t end)
{
    return (pass->flags & RN_PASS_JOINERS) && end - at >= 3 && memcmp(text + at, "\xe2\x80", 2) == 0 &&
           (text[at + 2] & 0xfe) == 0x8c;
}

static size_t run_word(const struct rn_pass *pass, const char *text, size_t at, size_t end, uint16_t letters)
{
    at = rn_run(text, at, end, letters, RN_MANY);
    while (is_joiner(pass, text, at, end))
        at = rn_run(text, at + 3, end, letters, RN_MANY);
    return at;
}

/* (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,most}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+
 * |\s+(?!\S)|\s+
 * RN_PASS_MARKS: [\p{L}\p{M}]+ for \p{L}+ and [^\s\p{L}\p{M}\p{N}] for [^\s\p{L}\p{N}]. RN_PASS_JOINERS:
 * [\p{L}\p{M}\u200C\u200D]+ for \p{L}+ alone. RN_PASS_NO_SHORT: without
 * the first alternative. RN_PASS_NO_TAIL: [\r\n]* is not there. RN_PASS_CASCADE: next_cascade's for the last two. */
size_t rn_next_words(const struct rn_pass *pass, const char *text, size_t from, size_t at, size_t end)
{
    uint16_t letters = RN_CHAR_LETTER | (pass->flags & (RN_PASS_MARKS | RN_PASS_JOINERS) ? RN_CHAR_MARK : 0);
    uint16_t others = (uint16_t) ~(SPOKEN | (pass->flags & RN_PASS_MARKS ? RN_CHAR_MARK : 0));
    size_t form = pass->flags & RN_PASS_NO_SHORT ? 0 : short_form(text, at, end, true);
    uint32_t n, n_next;
    uint16_t class;

    if (form > 0)
        return at + form;
    class = rn_peek(text, at, end, &n);
    if ((class & letters) || is_joiner(pass, text, at, end))
        return run_word(pass, text, at + n, end, letters);
    if (class & RN_CHAR_NUMBER)
        return rn_run(text, at, end, RN_CHAR_NUMBER, pass->most);
    if (!is_newline(text[at]) &&
        ((rn_peek(text, at + n, end, &n_next) & letters) || is_joiner(pass, text, at + n, end)))
        return run_word(pass, text, at + n, end, letters);
    if (text[at] == ' ')
        class = rn_peek(text, at + n, end, &n_next);
    if (class & others) {
        at = rn_run(text, at + (text[at] == ' '), end, others, RN_MANY);
        while (!(pass->flags & RN_PASS_NO_TAIL) && at < end && is_newline(text[at]))
            at++;
        return at;
    }
    return next_white(pass, text, from, at, end);
}

/* Class of a character as a part of a cased word: with RN_PASS_HAN_APART, Han is no letter there. */
static uint16_t peek_cased(const struct rn_pass *pass, const char *text, size_t at, size_t end, uint32_t *n)
{
    uint32_t c;

    *n = 0;
    if (at >= end)
        return 0;
    c = rn_utf8_decode(text + at, n);
    if ((pass->flags & RN_PASS_HAN_APART) && c >= 0x2e80 && rn_char_is_han(c))
        return 0;
    return rn_char_class(c);
}

/* [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+ from text + at: its end, or `at`. *upper gets the end of
 * the first part's greediest match. Where nothing of the second set alone follows that, the expression gives
 * back as far as the last character that is in both. */
static size_t cased_word(const struct rn_pass *pass, const char *text, size_t at, size_t end, size_t *upper)
{
    size_t stop = at, after_both = at;
    uint16_t class;
    uint32_t n;

    while ((class = peek_cased(pass, text, stop, end, &n)) & UPPER) {
        stop += n;
        if (class & LOWER)
            after_both = stop;
    }
    *upper = stop;
    if (!(class & LOWER))
        return after_both;
    while (peek_cased(pass, text, stop, end, &n) & LOWER)
        stop += n;
    return stop;
}

/* [^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?
 * |[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?
 * from text + at: its end, or `at`. A character that may stand in front and is not in the sets after it (all
 * but marks) makes no second try. */
static size_t cased(const struct rn_pass *pass, const char *text, size_t at, size_t end)
{
    uint32_t n;
    uint16_t class = rn_peek(text, at, end, &n);
    bool front = !is_newline(text[at]) && !(class & (RN_CHAR_LETTER | RN_CHAR_NUMBER));
    size_t upper = at, upper_front = at, stop = at;

    if (front) {
        stop = cased_word(pass, text, at + n, end, &upper_front);
        stop = stop > at + n ? stop : at;
    }
    if (stop == at)
        stop = cased_word(pass, text, at, end, &upper);
    if (stop == at && front && upper_front > at + n)
        stop = upper_front;
    if (stop == at)
        stop = upper;
    if (stop > at && !(pass->flags & RN_PASS_NO_SHORT))
        stop += short_form(text, stop, end, true);
    return stop;
}

/* The expression above `cased`, then |\p{N}{1,most}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
 * RN_PASS_SLASHES: [\r\n/]* for [\r\n]*. RN_PASS_NO_SHORT: without the short forms. RN_PASS_HAN_APART: \p{Han}+| before
 * all, and the sets of the words less \p{Han}. */
size_t rn_next_cased(const struct rn_pass *pass, const char *text, size_t from, size_t at, size_t end)
{
    size_t stop = at;
    uint32_t n, n_next;
    uint16_t class;

    (void)from;
    if (pass->flags & RN_PASS_HAN_APART) {
        while (stop < end && rn_char_is_han(rn_utf8_decode(text + stop, &n)))
            stop += n;
    }
    if (stop == at)
        stop = cased(pass, text, at, end);
    if (stop > at)
        return stop;
    class = rn_peek(text, at, end, &n);
    if (class & RN_CHAR_NUMBER)
        return rn_run(text, at, end, RN_CHAR_NUMBER, pass->most);
    if (text[at] == ' ')
        class = rn_peek(text, at + n, end, &n_next);
    if (class != 0 && !(class & SPOKEN)) {
        at = rn_run(text, at + (text[at] == ' '), end, (uint16_t)~SPOKEN, RN_MANY);
        while (at < end && (is_newline(text[at]) || ((pass->flags & RN_PASS_SLASHES) && text[at] == '/')))
            at++;
        return at;
    }
    return next_spaces(text, at, end, true);
}

static bool ascii_letter(const char *text, size_t at, size_t end)
{
    return at < end && (unsigned)((text[at] | 0x20) - 'a') < 26;
}

/* A gap: to where a match begins. Nothing matches a character of the classes `not`, alone or with the next. */
static size_t deepseek_gap(const char *text, size_t at, size_t end)
{
    const uint16_t not = RN_CHAR_NUMBER | RN_CHAR_OTHER;
    uint32_t n, n_next;

    for (;;) {
        rn_peek(text, at, end, &n);
        at += n;
        if (at == end || !(rn_peek(text, at, end, &n) & not ) ||
            (rn_peek(text, at + n, end, &n_next) & (RN_CHAR_LETTER | RN_CHAR_MARK)))
            return at;
    }
}

/* [!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*
 * |\s*[\r\n]+|\s+(?!\S)|\s+      RN_PASS_NO_TAIL: [\r\n]* is not there, and [\r\n] stands for \s*[\r\n]+. */
size_t rn_next_deepseek(const struct rn_pass *pass, const char *text, size_t from, size_t at, size_t end)
{
    const uint16_t letters = RN_CHAR_LETTER | RN_CHAR_MARK;
    uint32_t n, n_next;
    uint16_t class = rn_peek(text, at, end, &n);
    uint16_t next = rn_peek(text, at + n, end, &n_next);
    bool newline = is_newline(text[at]);

    (void)from;
    if ((class & SIGNS) && n == 1 && ascii_letter(text, at + 1, end)) {
        do
            at++;
        while (ascii_letter(text, at + 1, end));
        return at + 1;
    }
    if ((class & letters) || (!newline && !(class & SIGNS) && (next & letters)))
        return rn_run(text, at + n, end, letters, RN_MANY);
    if ((class & SIGNS) || (text[at] == ' ' && (next & SIGNS))) {
        at = rn_run(text, at + n, end, SIGNS, RN_MANY);
        while (!(pass->flags & RN_PASS_NO_TAIL) && at < end && is_newline(text[at]))
            at++;
        return at;
    }
    if (!(class & RN_CHAR_SPACE))
        return deepseek_gap(text, at, end);
    if (pass->flags & RN_PASS_NO_TAIL)
        return newline ? at + 1 : next_spaces(text, at, end, false);
    return next_spaces(text, at, end, true);
}

/* (?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+ from text + at, a letter. */
static size_t spaced_letters(const char *text, size_t at, size_t end)
{
    uint32_t n;

    for (;;) {
        if (rn_peek(text, at, end, &n) & RN_CHAR_LETTER)
            at = rn_run(text, at + n, end, RN_CHAR_MARK, RN_MANY);
        else if (at < end && text[at] == ' ' && (rn_peek(text, at + 1, end, &n) & RN_CHAR_LETTER))
            at++;
        else
            return at;
    }
}

/* (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?
 * |\s*[\r\n]|\s+(?!\S)|\s+ */
size_t rn_next_spaced(const struct rn_pass *pass, const char *text, size_t from, size_t at, size_t end)
{
    size_t form = short_form(text, at, end, true);
    uint32_t n, n_next;
    uint16_t class, next;

    (void)pass;
    (void)from;
    if (form > 0)
        return at + form;
    class = rn_peek(text, at, end, &n);
    next = rn_peek(text, at + n, end, &n_next);
    if (class & RN_CHAR_LETTER)
        return spaced_letters(text, at, end);
    if (class & RN_CHAR_NUMBER)
        return at + n;
    if (!is_newline(text[at]) && (next & RN_CHAR_LETTER))
        return spaced_letters(text, at + n, end);
    if (text[at] == ' ')
        class = next;
    if (class != 0 && !(class & SPOKEN)) {
        at = rn_run(text, at + (text[at] == ' '), end, (uint16_t)~SPOKEN, RN_MANY);
        return at + (at < end && (is_newline(text[at]) || text[at] == '/'));
    }
    return next_spaces(text, at, end, true);
}
