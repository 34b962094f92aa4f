/* Reading texts: see reader.h. */
#include "sampling/grammar/reader.h"

#include <string.h>

#include "base/hex.h"
#include "base/utf8.h"
#include "sampling/grammar/code_points.h"

void rn_reader_fini(struct rn_reader *r)
{
    rn_free(r->g->heap, r->parts);
}

bool rn_reader_take(struct rn_reader *r, const char *bytes)
{
    size_t n = strlen(bytes);

    if (rn_grammar_failed(r->g) || r->n - r->at < n || memcmp(r->text + r->at, bytes, n) != 0)
        return false;
    r->at += n;
    return true;
}

uint32_t rn_reader_character(struct rn_reader *r)
{
    uint32_t c, n;

    if (rn_reader_done(r)) {
        rn_reader_fail(r, RUNNEL_FORMAT, "the text ends too soon");
        return 0;
    }
    c = rn_utf8_decode(r->text + r->at, &n);
    r->at += n;
    return c;
}

uint32_t rn_reader_hex(struct rn_reader *r, uint32_t n)
{
    uint32_t value = 0, i;

    for (i = 0; i < n; i++) {
        int digit = rn_hex_value(rn_reader_peek(r, 0));

        if (digit < 0) {
            rn_reader_fail(r, RUNNEL_FORMAT, "%u hexadecimal digits are expected", n);
            return 0;
        }
        value = value << 4 | (uint32_t)digit;
        r->at++;
    }
    return value;
}

uint32_t rn_reader_escaped(struct rn_reader *r, const char *escapes)
{
    uint32_t c = rn_reader_character(r);

    if (c != '\\')
        return c;
    c = rn_reader_character(r);
    if (c == 0 || c > 127 || strchr(escapes, (int)c) == NULL) {
        r->at -= r->at > 0;
        rn_reader_fail(r, RUNNEL_FORMAT, "an escape that is not known");
        return 0;
    }
    switch (c) {
    case 'n':
        return '\n';
    case 't':
        return '\t';
    case 'r':
        return '\r';
    case 'f':
        return '\f';
    case 'v':
        return '\v';
    case 'x':
        return rn_reader_hex(r, 2);
    case 'u':
        return rn_reader_hex(r, 4);
    case 'U':
        return rn_reader_hex(r, 8);
    default:
        return c;
    }
}

void rn_reader_skip_space(struct rn_reader *r, bool lines, bool slashes)
{
    while (!rn_reader_done(r)) {
        char c = r->text[r->at];

        if (c == '#' || (slashes && c == '/' && rn_reader_peek(r, 1) == '/'))
            while (r->at < r->n && r->text[r->at] != '\n')
                r->at++;
        else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r')))
            r->at++;
        else
            return;
    }
}

bool rn_reader_goes_on(struct rn_reader *r, bool slashes)
{
    size_t at = r->at;

    rn_reader_skip_space(r, true, slashes);
    if (rn_reader_peek(r, 0) == '|')
        return true;
    r->at = at;
    return false;
}

void rn_reader_end_line(struct rn_reader *r, bool slashes)
{
    rn_reader_skip_space(r, false, slashes);
    if (!rn_reader_done(r) && rn_reader_peek(r, 0) != '\n' && rn_reader_peek(r, 0) != '\r')
        rn_reader_fail(r, RUNNEL_FORMAT, "the end of the line is expected");
}

bool rn_reader_number(struct rn_reader *r, uint32_t *number)
{
    size_t begin = r->at;

    for (*number = 0; rn_reader_peek(r, 0) >= '0' && rn_reader_peek(r, 0) <= '9'; r->at++) {
        *number = *number * 10 + (uint32_t)(rn_reader_peek(r, 0) - '0');
        if (*number > 100000000u) {
            rn_reader_fail(r, RUNNEL_INVALID, "the number is too large");
            return false;
        }
    }
    return r->at > begin;
}

void rn_reader_push(struct rn_reader *r, rn_expr e)
{
    if (rn_grammar_failed(r->g))
        return;
    if (r->n_parts == r->room_parts) {
        uint32_t room = r->room_parts == 0 ? 64 : r->room_parts * 2;
        rn_expr *parts = rn_realloc(r->g->heap, r->parts, room, sizeof *parts);

        if (parts == NULL) {
            rn_grammar_fail(r->g, RUNNEL_NO_MEMORY, "no memory for a grammar");
            return;
        }
        r->parts = parts;
        r->room_parts = room;
    }
    r->parts[r->n_parts++] = e;
}

rn_expr rn_reader_sequence(struct rn_reader *r, uint32_t from)
{
    rn_expr e = RN_GRAMMAR_NONE;

    if (!rn_grammar_failed(r->g))
        e = r->n_parts == from ? rn_grammar_empty(r->g) : rn_grammar_sequence(r->g, r->parts + from, r->n_parts - from);
    r->n_parts = from;
    return e;
}

rn_expr rn_reader_alternatives(struct rn_reader *r, uint32_t from)
{
    rn_expr e =
        rn_grammar_failed(r->g) ? RN_GRAMMAR_NONE : rn_grammar_alternatives(r->g, r->parts + from, r->n_parts - from);

    r->n_parts = from;
    return e;
}

bool rn_reader_enter(struct rn_reader *r)
{
    if (rn_grammar_failed(r->g))
        return false;
    if (r->depth >= r->g->limits.depth) {
        rn_reader_fail(r, RUNNEL_INVALID, "nested deeper than %u", r->g->limits.depth);
        return false;
    }
    r->depth++;
    return true;
}

void rn_reader_leave(struct rn_reader *r)
{
    r->depth--;
}

rn_expr rn_reader_token(struct rn_reader *r, bool but)
{
    size_t begin = r->at;
    uint32_t id;
    int32_t token;

    rn_grammar_at(r->g, r->source_at + r->at);
    if (rn_reader_take(r, "<[")) {
        if (!rn_reader_number(r, &id) || !rn_reader_take(r, "]>")) {
            rn_reader_fail(r, RUNNEL_FORMAT, "the number of a token is written <[17]>");
            return RN_GRAMMAR_NONE;
        }
        token = (int32_t)id;
        return rn_grammar_tokens(r->g, &token, 1, but);
    }
    while (!rn_reader_done(r) && r->text[r->at] != '>' && r->text[r->at] != '\n')
        r->at++;
    if (!rn_reader_take(r, ">")) {
        r->at = begin;
        rn_reader_fail(r, RUNNEL_FORMAT, "the name of a token has no \">\" behind it");
        return RN_GRAMMAR_NONE;
    }
    return rn_grammar_token_named(r->g, r->text + begin, r->at - begin, but);
}

rn_expr rn_reader_code_point(struct rn_reader *r, uint32_t c)
{
    char bytes[4];

    if (c > RN_CODE_POINT_MOST || (c >= 0xd800 && c <= 0xdfff)) {
        rn_reader_fail(r, RUNNEL_FORMAT, "U+%04X is not a character", c);
        return RN_GRAMMAR_NONE;
    }
    return rn_grammar_bytes(r->g, bytes, rn_utf8_encode(c, bytes));
}
