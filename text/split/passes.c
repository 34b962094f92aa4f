/* The passes that look for one thing and leave the rest as gaps. Above each function stands the
 * expression it is. See splitter.h. */
#include "text/split/passes.h"

#include <string.h>

/* Bytes of the character at text + at and its set; 0 bytes where it is in none. */
static uint32_t in_set(const struct rn_pass *pass, const char *text, size_t at, size_t end, uint8_t *set)
{
    uint32_t n = 0;

    *set = at < end ? pass->set(rn_utf8_decode(text + at, &n)) : 0;
    return *set > 0 ? n : 0;
}

/* Where the set's characters begin in a match at text + at, or `end` if there is no match. */
static size_t set_match(const struct rn_pass *pass, const char *text, size_t at, size_t end)
{
    uint8_t set;
    uint32_t n;

    if (pass->flags & (RN_PASS_SPACE | RN_PASS_BLANK)) {
        bool blank = pass->flags & RN_PASS_BLANK ? text[at] == ' ' : (rn_peek(text, at, end, &n) & RN_CHAR_SPACE) != 0;

        rn_utf8_decode(text + at, &n);
        if (blank && in_set(pass, text, at + n, end, &set) > 0)
            return at + n;
    }
    return in_set(pass, text, at, end, &set) > 0 ? at : end;
}

/* [set]{1,most}, with RN_PASS_SPACE \s?[set]{1,most}, with RN_PASS_BLANK " ?[set]{1,most}". Of several sets: [set
 * 1]{1,most}|[set 2]{1,most}|... */
size_t rn_next_set(const struct rn_pass *pass, const char *text, size_t from, size_t at, size_t end)
{
    size_t first = set_match(pass, text, at, end);
    uint32_t left = pass->most;
    uint8_t set, other;
    uint32_t n;

    (void)from;
    if (first < end) {
        n = in_set(pass, text, first, end, &set);
        do
            first += n;
        while (--left > 0 && (n = in_set(pass, text, first, end, &other)) > 0 && other == set);
        return first;
    }
    do {
        rn_utf8_decode(text + at, &n);
        at += n;
    } while (at < end && set_match(pass, text, at, end) == end);
    return at;
}

/* \s+$ */
size_t rn_next_trailing(const struct rn_pass *pass, const char *text, size_t from, size_t at, size_t end)
{
    size_t spaces_from = at, i = at;
    uint32_t n;

    (void)pass;
    (void)from;
    while (i < end) {
        uint16_t class = rn_peek(text, i, end, &n);

        i += n;
        if (!(class & RN_CHAR_SPACE))
            spaces_from = i;
    }
    return spaces_from > at ? spaces_from : end;
}

/* [^\n]+|[\n]+ */
size_t rn_next_line(const struct rn_pass *pass, const char *text, size_t from, size_t at, size_t end)
{
    const char *newline;

    (void)pass;
    (void)from;
    if (text[at] == '\n') {
        while (at < end && text[at] == '\n')
            at++;
        return at;
    }
    newline = memchr(text + at, '\n', end - at);
    return newline != NULL ? (size_t)(newline - text) : end;
}

/* ---- Digits ------------------------------------------------------------------------------- */

static bool three_digits(const char *text, size_t at, size_t end)
{
    return end - at >= 3 && (unsigned)(text[at] - '0') < 10 && (unsigned)(text[at + 1] - '0') < 10 &&
           (unsigned)(text[at + 2] - '0') < 10;
}

/* [0-9][0-9][0-9] */
size_t rn_next_three(const struct rn_pass *pass, const char *text, size_t from, size_t at, size_t end)
{
    (void)pass;
    (void)from;
    if (three_digits(text, at, end))
        return at + 3;
    do
        at++;
    while (at < end && !three_digits(text, at, end));
    return at;
}

/* How many characters of the class stand from text + at, as many as make 3, 6, 9, ... with what follows them:
 * 1..3, or 0 for none at all. Where a piece ended before `at` inside of such a run, a multiple of three is
 * left of it, and is not counted again. */
static uint32_t leading_digits(const char *text, size_t from, size_t at, size_t end, uint16_t mask, size_t *stop)
{
    uint32_t count = 0, n;

    *stop = at;
    if (!(rn_peek(text, at, end, &n) & mask))
        return 0;
    if (at > from && (rn_peek(text, rn_before(text, at), at, &n) & mask))
        return 3;
    while (rn_peek(text, *stop, end, &n) & mask) {
        *stop += n;
        count++;
    }
    return (count - 1) % 3 + 1;
}

/* Runs of \p{N}, cut into threes from their end. */
size_t rn_next_number(const struct rn_pass *pass, const char *text, size_t from, size_t at, size_t end)
{
    size_t stop;
    uint32_t lead = leading_digits(text, from, at, end, RN_CHAR_NUMBER, &stop);
    uint32_t n;

    (void)pass;
    if (lead > 0)
        return rn_run(text, at, end, RN_CHAR_NUMBER, lead);
    while (at < end && !(rn_peek(text, at, end, &n) & RN_CHAR_NUMBER))
        at += n;
    return at;
}

/* \d{1,3}(?=(?:\d{3})*\b) */
size_t rn_next_plain_number(const struct rn_pass *pass, const char *text, size_t from, size_t at, size_t end)
{
    size_t stop, gap = at;
    uint32_t n;

    (void)pass;
    for (;;) {
        uint32_t lead = leading_digits(text, from, gap, end, RN_CHAR_ND, &stop);

        if (lead > 0 && (stop == gap || stop == end || !rn_char_is_word(rn_utf8_decode(text + stop, &n))))
            return gap > at ? gap : rn_run(text, at, end, RN_CHAR_ND, lead);
        gap = stop; /* digits before a word are a part of the gap */
        while (gap < end && !(rn_peek(text, gap, end, &n) & RN_CHAR_ND))
            gap += n;
        if (gap == end)
            return end;
    }
}

/* (?=(\d{3})+(?!\d)): empty matches, each of which ends a piece. */
size_t rn_next_thousands(const struct rn_pass *pass, const char *text, size_t from, size_t at, size_t end)
{
    size_t stop;
    uint32_t lead = leading_digits(text, from, at, end, RN_CHAR_ND, &stop);
    uint32_t n;

    (void)pass;
    if (lead > 0) {
        stop = stop > at ? stop : rn_run(text, at, end, RN_CHAR_ND, 4);
        at = rn_run(text, at, end, RN_CHAR_ND, lead);
        if (at < stop)
            return at;
    }
    for (;;) { /* to the next run of three and more */
        while (at < end && !(rn_peek(text, at, end, &n) & RN_CHAR_ND))
            at += n;
        lead = leading_digits(text, at, at, end, RN_CHAR_ND, &stop);
        if (lead == 3 || lead == 0)
            return at;
        at = rn_run(text, at, end, RN_CHAR_ND, lead);
        if (at < stop)
            return at;
    }
}

/* ---- Chameleon ---------------------------------------------------------------------------- */

static size_t sentinel(const char *text, size_t at, size_t end)
{
    size_t digits = at + 10;
    size_t stop = digits;

    if (end - at < 12 || memcmp(text + at, "<sentinel:", 10) != 0)
        return 0;
    while (stop < end && (unsigned)(text[stop] - '0') < 10)
        stop++;
    return stop > digits && stop < end && text[stop] == '>' ? stop + 1 - at : 0;
}

static size_t image(const char *text, size_t at, size_t end)
{
    size_t stop = at + 6;

    if (end - at < 8 || memcmp(text + at, "IMGIMG", 6) != 0)
        return 0;
    while (stop < end && stop < at + 10 && (unsigned)(text[stop] - 'A') < 9)
        stop++;
    return stop > at + 6 && stop < end && text[stop] == 'Z' ? stop + 1 - at : 0;
}

static size_t indent(const char *text, size_t at, size_t end)
{
    if (text[at] == '\t' || text[at] == '\n')
        return 1;
    if (end - at >= 4 && memcmp(text + at, "    ", 4) == 0)
        return 4;
    return end - at >= 2 && memcmp(text + at, "  ", 2) == 0 ? 2 : 0;
}

/* The match at text + at, or the gap up to the next one; `match` gives a length or 0. */
static size_t next_match(size_t (*match)(const char *, size_t, size_t), const char *text, size_t at, size_t end)
{
    size_t n = match(text, at, end);

    if (n > 0)
        return at + n;
    do
        at++;
    while (at < end && match(text, at, end) == 0);
    return at;
}

/* <sentinel:[0-9]+> */
size_t rn_next_sentinel(const struct rn_pass *pass, const char *text, size_t from, size_t at, size_t end)
{
    (void)pass;
    (void)from;
    return next_match(sentinel, text, at, end);
}

/* (IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z */
size_t rn_next_image(const struct rn_pass *pass, const char *text, size_t from, size_t at, size_t end)
{
    (void)pass;
    (void)from;
    return next_match(image, text, at, end);
}

/* ([\t\n]|    |  ) */
size_t rn_next_indent(const struct rn_pass *pass, const char *text, size_t from, size_t at, size_t end)
{
    (void)pass;
    (void)from;
    return next_match(indent, text, at, end);
}
