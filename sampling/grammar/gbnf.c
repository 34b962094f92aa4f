/* GBNF, the notation of llama.cpp's grammars: see front.h.
 *
 *     rule          name ::= alternatives, up to the end of the line; in brackets and behind | lines go on
 *     literals      "text", [a-z], [^"\\], . (any character)
 *     escapes       \n \r \t \\ \" \[ \] \- \xHH \uHHHH \UHHHHHHHH, each one character
 *     repetition    * + ? {m} {m,} {m,n}
 *     tokens        <[17]>, <think>; !<think>: any text token but that
 *     comments      # up to the end of the line
 *
 * Besides what llama.cpp takes: names with _, a line that begins with |, {,n}, left recursion. */
#include <string.h>

#include "sampling/grammar/front.h"
#include "sampling/grammar/reader.h"

#define CLASS_RANGES 64u /* of one class before they become a set of their own */

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

static void skip_space(struct rn_reader *r, bool lines)
{
    rn_reader_skip_space(r, lines, false);
}

/* One character of a literal or a class, with its escape. */
static uint32_t read_character(struct rn_reader *r)
{
    return rn_reader_escaped(r, "xuUtrn\\\"[]-^/");
}

static rn_expr read_literal(struct rn_reader *r)
{
    uint32_t from = r->n_parts;

    while (!rn_reader_done(r) && rn_reader_peek(r, 0) != '"')
        rn_reader_push(r, rn_reader_code_point(r, read_character(r)));
    if (!rn_reader_take(r, "\""))
        rn_reader_fail(r, RUNNEL_FORMAT, "a literal has no quote behind it");
    return rn_reader_sequence(r, from);
}

/* Behind the [. Ranges are gathered in sets of CLASS_RANGES; of a negated class in one, on the heap of the grammar. */
static rn_expr read_class(struct rn_reader *r)
{
    struct rn_code_points *ranges = NULL;
    bool negated = rn_reader_take(r, "^");
    uint32_t n = 0, room = 0;
    rn_expr set;

    rn_grammar_at(r->g, r->source_at + r->at);
    while (!rn_reader_done(r) && rn_reader_peek(r, 0) != ']') {
        uint32_t first = read_character(r), last = first;

        if (rn_reader_peek(r, 0) == '-' && rn_reader_peek(r, 1) != ']' && r->at + 1 < r->n) {
            r->at++;
            last = read_character(r);
        }
        if (n == room) {
            struct rn_code_points *more = rn_realloc(r->g->heap, ranges, room + CLASS_RANGES, sizeof *ranges);

            if (more == NULL) {
                rn_grammar_fail(r->g, RUNNEL_NO_MEMORY, "no memory for a grammar");
                break;
            }
            ranges = more;
            room += CLASS_RANGES;
        }
        ranges[n++] = (struct rn_code_points){first, last};
    }
    if (!rn_reader_take(r, "]"))
        rn_reader_fail(r, RUNNEL_FORMAT, "a class of characters has no \"]\" behind it");
    set = rn_grammar_failed(r->g) ? RN_GRAMMAR_NONE : rn_grammar_set(r->g, ranges, n, negated);
    rn_free(r->g->heap, ranges);
    return set;
}

static rn_expr read_alternatives(struct rn_reader *r, bool nested);

static rn_expr read_group(struct rn_reader *r)
{
    rn_expr e = RN_GRAMMAR_NONE;

    if (!rn_reader_enter(r))
        return e;
    skip_space(r, true);
    e = read_alternatives(r, true);
    if (!rn_reader_take(r, ")"))
        rn_reader_fail(r, RUNNEL_FORMAT, "\")\" is expected");
    rn_reader_leave(r);
    return e;
}

static rn_expr read_call(struct rn_reader *r)
{
    size_t begin = r->at;

    while (is_name(rn_reader_peek(r, 0)))
        r->at++;
    rn_grammar_at(r->g, r->source_at + begin);
    return rn_grammar_call(r->g, rn_grammar_rule(r->g, r->text + begin, r->at - begin));
}

static rn_expr read_part(struct rn_reader *r)
{
    static const struct rn_code_points any[] = {{0, 0x10ffff}};

    if (rn_reader_take(r, "\""))
        return read_literal(r);
    if (rn_reader_take(r, "["))
        return read_class(r);
    if (rn_reader_take(r, "."))
        return rn_grammar_set(r->g, any, 1, false);
    if (rn_reader_take(r, "("))
        return read_group(r);
    if (rn_reader_peek(r, 0) == '<')
        return rn_reader_token(r, false);
    if (rn_reader_peek(r, 0) == '!' && rn_reader_peek(r, 1) == '<') {
        r->at++;
        return rn_reader_token(r, true);
    }
    return read_call(r);
}

/* {m}, {m,}, {m,n}, {,n}, behind the {. */
static rn_expr read_counts(struct rn_reader *r, rn_expr e)
{
    uint32_t least = 0, most;
    bool has_least;

    skip_space(r, false);
    has_least = rn_reader_number(r, &least);
    most = least;
    skip_space(r, false);
    if (rn_reader_take(r, ",")) {
        skip_space(r, false);
        if (!rn_reader_number(r, &most)) {
            most = RN_GRAMMAR_FOREVER;
            if (!has_least)
                rn_reader_fail(r, RUNNEL_FORMAT, "a number is expected");
        }
        skip_space(r, false);
    } else if (!has_least) {
        rn_reader_fail(r, RUNNEL_FORMAT, "a number is expected");
    }
    if (!rn_reader_take(r, "}"))
        rn_reader_fail(r, RUNNEL_FORMAT, "\"}\" is expected");
    return rn_grammar_repeat(r->g, e, least, most);
}

/* Operators behind a part; several of them nest. */
static rn_expr read_repeats(struct rn_reader *r, rn_expr e, bool lines)
{
    for (;;) {
        skip_space(r, lines);
        rn_grammar_at(r->g, r->source_at + r->at);
        if (rn_reader_take(r, "*"))
            e = rn_grammar_repeat(r->g, e, 0, RN_GRAMMAR_FOREVER);
        else if (rn_reader_take(r, "+"))
            e = rn_grammar_repeat(r->g, e, 1, RN_GRAMMAR_FOREVER);
        else if (rn_reader_take(r, "?"))
            e = rn_grammar_repeat(r->g, e, 0, 1);
        else if (rn_reader_take(r, "{"))
            e = read_counts(r, e);
        else
            return e;
    }
}

static bool begins_part(const struct rn_reader *r)
{
    char c = rn_reader_peek(r, 0);

    return c == '"' || c == '[' || c == '(' || c == '.' || c == '<' || (c == '!' && rn_reader_peek(r, 1) == '<') ||
           is_name(c);
}

static rn_expr read_alternatives(struct rn_reader *r, bool nested)
{
    uint32_t from = r->n_parts;

    do {
        uint32_t sequence = r->n_parts;

        skip_space(r, true);
        /* in a rule's body a name at the beginning of a line may be the next rule's */
        while (!rn_reader_done(r) && begins_part(r))
            rn_reader_push(r, read_repeats(r, read_part(r), nested));
        rn_reader_push(r, rn_reader_sequence(r, sequence));
    } while (!rn_grammar_failed(r->g) && (nested || rn_reader_goes_on(r, false)) && rn_reader_take(r, "|"));
    return rn_reader_alternatives(r, from);
}

static void read_rule(struct rn_reader *r)
{
    size_t begin = r->at, end;
    uint32_t rule;

    while (is_name(rn_reader_peek(r, 0)))
        r->at++;
    end = r->at;
    if (end == begin) {
        rn_reader_fail(r, RUNNEL_FORMAT, "the name of a rule is expected");
        return;
    }
    rn_grammar_at(r->g, begin);
    rule = rn_grammar_rule(r->g, r->text + begin, end - begin);
    skip_space(r, false);
    if (!rn_reader_take(r, "::=")) {
        rn_reader_fail(r, RUNNEL_FORMAT, "\"::=\" is expected");
        return;
    }
    rn_grammar_define(r->g, rule, read_alternatives(r, false));
    rn_reader_end_line(r, false);
}

uint32_t rn_gbnf(struct rn_grammar *g, const char *text, size_t n)
{
    struct rn_reader r = {.g = g, .text = text, .n = n};
    uint32_t root;

    rn_grammar_source(g, text, n);
    for (skip_space(&r, true); !rn_reader_done(&r); skip_space(&r, true))
        read_rule(&r);
    rn_reader_fini(&r);
    if (g->n_rules == 0)
        rn_grammar_fail(g, RUNNEL_FORMAT, "the grammar has no rules");
    rn_grammar_at(g, 0);
    root = rn_grammar_rule(g, "root", 4);
    return root;
}
