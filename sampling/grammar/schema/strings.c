/* Strings of JSON Schema: see parts.h.
 *
 * A text is written by a code: each character has one spelling, and no spelling is the beginning of another's. So what
 * patterns, formats and lengths say of characters, their spellings say of bytes: expressions are made in the spelling
 * (rn_regex takes a function for that), and intersections and differences of them mean the same as of the texts. */
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "sampling/grammar/code_points.h"
#include "sampling/grammar/expr_match.h"
#include "sampling/grammar/front.h"
#include "sampling/grammar/schema/parts.h"

#define BLOCK 256u /* characters that are counted one by one where many are; each takes some fifteen states */

struct rn_text_cache {
    struct rn_text_cache *next;
    const struct rn_str *text;
    int kind;
    bool raw;
    uint32_t rule; /* UINT32_MAX: it is not enforced */
};

/* ---- Characters ---- */

/* It may begin a mark. */
static bool is_escaped(const struct rn_schema_maker *m, uint32_t c)
{
    return (c == '<' && m->options.escape_angle) || (c == '[' && m->options.escape_bracket);
}

/* The spelling of one character; returns its bytes, at most 6. */
static uint32_t spell(const struct rn_schema_maker *m, uint32_t c, char *out)
{
    static const char shorts[] = "\b\f\n\r\t\"\\", letters[] = "bfnrt\"\\";
    const char *at = c < 0x80 && c != 0 ? strchr(shorts, (int)c) : NULL;

    if (at != NULL) {
        out[0] = '\\';
        out[1] = letters[at - shorts];
        return 2;
    }
    if (c < 0x20 || is_escaped(m, c)) {
        static const char hex[] = "0123456789abcdef";

        memcpy(out, "\\u00", 4);
        out[4] = hex[c >> 4];
        out[5] = hex[c & 15];
        return 6;
    }
    return rn_utf8_encode(c, out);
}

static bool is_plain(const struct rn_schema_maker *m, uint32_t c)
{
    return c >= 0x20 && c != '"' && c != '\\' && !is_escaped(m, c);
}

/* Ranges of characters that need no escape. */
struct plain {
    struct rn_code_points ranges[4];
};

static struct plain plain_ranges(const struct rn_schema_maker *m)
{
    if (m->raw)
        return (struct plain){{{0, '!'}, {'"', '['}, {'\\', ']'}, {'^', RN_CODE_POINT_MOST}}};
    return (struct plain){{{0x20, '!'},
                           {'#', is_escaped(m, '<') ? '<' - 1 : '<'},
                           {'=', is_escaped(m, '[') ? '[' - 1 : '['},
                           {']', RN_CODE_POINT_MOST}}};
}

/* Adds the sets of ranges[n] that need no escape: expressions with at most 64 ranges each. */
static rn_expr plain_sets(const struct rn_schema_maker *m, struct rn_grammar *g, const struct rn_code_points *ranges,
                          size_t n)
{
    struct plain plain = plain_ranges(m);
    struct rn_code_points kept[64];
    rn_expr sets = rn_grammar_alternatives(g, NULL, 0);
    uint32_t n_kept = 0;

    for (size_t k = 0; k < 4 * n; k++) {
        const struct rn_code_points *r = &ranges[k / 4], *p = &plain.ranges[k % 4];
        uint32_t first = r->first > p->first ? r->first : p->first, last = r->last < p->last ? r->last : p->last;

        if (first <= last)
            kept[n_kept++] = (struct rn_code_points){first, last};
        if (n_kept == 64 || (k + 1 == 4 * n && n_kept > 0)) {
            rn_expr set = rn_grammar_set(g, kept, n_kept, false);

            sets = k < 66 ? set : rn_grammar_alternatives(g, (rn_expr[]){sets, set}, 2);
            n_kept = 0;
        }
    }
    return sets;
}

/* One character of ranges[n], which are normal, as it is spelled. */
static rn_expr write_set(void *user, struct rn_grammar *g, const struct rn_code_points *ranges, size_t n)
{
    const struct rn_schema_maker *m = user;
    rn_expr parts[36];
    uint32_t n_parts = 0, c;

    for (c = 0; c <= '\\' && !m->raw; c++) {
        char spelled[6];

        if (!is_plain(m, c) && rn_code_points_have(ranges, n, c))
            parts[n_parts++] = rn_grammar_bytes(g, spelled, spell(m, c, spelled));
    }
    parts[n_parts++] = plain_sets(m, g, ranges, n);
    return rn_grammar_alternatives(g, parts, n_parts);
}

rn_expr rn_schema_quoted(struct rn_schema_maker *m, rn_expr content)
{
    rn_expr quote = m->mark != RN_GRAMMAR_NONE ? m->mark : rn_schema_literal_text(m, "\"");

    if (m->mark != RN_GRAMMAR_NONE)
        content = rn_schema_lacking(m->g, content, rn_schema_literal_text(m, m->form->mark));
    return rn_grammar_sequence(m->g, (rn_expr[]){quote, content, quote}, 3);
}

rn_expr rn_schema_spelled(struct rn_schema_maker *m, const char *text, size_t n, bool in_quotes)
{
    char *out;
    size_t at = 0, i;
    uint32_t bytes;

    rn_step(m->arena, n / 8);
    if (m->raw && !in_quotes)
        return rn_grammar_bytes(m->g, text, n);
    if (m->raw)
        return rn_schema_quoted(m, rn_grammar_bytes(m->g, text, n));
    out = rn_arena_take(m->arena, 6 * n + 2, 1);
    if (in_quotes)
        out[at++] = '"';
    for (i = 0; i < n; i += bytes)
        at += spell(m, rn_utf8_decode(text + i, &bytes), out + at);
    if (in_quotes)
        out[at++] = '"';
    return rn_grammar_bytes(m->g, out, at);
}

/* A rule for one character in its one spelling. */
static rn_expr one_plain(struct rn_schema_maker *m)
{
    static const struct rn_code_points all[] = {{0, 0xd7ff}, {0xe000, RN_CODE_POINT_MOST}};
    uint32_t *rule = &m->char_rules[m->raw];

    if (*rule == UINT32_MAX) {
        *rule = rn_schema_rule(m);
        rn_grammar_define(m->g, *rule, write_set(m, m->g, all, 2));
    }
    return rn_grammar_call(m->g, *rule);
}

rn_expr rn_schema_plain(struct rn_schema_maker *m, uint32_t least, uint32_t most)
{
    return rn_grammar_repeat(m->g, one_plain(m), least, most);
}

/* Four hexadecimal digits of which the first two lie in sets: no half of a pair of surrogates, or a first or second. */
static rn_expr unicode_escape(struct rn_schema_maker *m)
{
    static const struct rn_code_points hex[] = {{'0', '9'}, {'A', 'F'}, {'a', 'f'}};
    static const struct rn_code_points but_d[] = {{'0', '9'}, {'A', 'C'}, {'E', 'F'}, {'a', 'c'}, {'e', 'f'}};
    static const struct rn_code_points d[] = {{'D', 'D'}, {'d', 'd'}}, low[] = {{'0', '7'}};
    static const struct rn_code_points first[] = {{'8', '9'}, {'A', 'B'}, {'a', 'b'}};
    static const struct rn_code_points second[] = {{'C', 'F'}, {'c', 'f'}};
    struct rn_grammar *g = m->g;
    rn_expr any = rn_grammar_set(g, hex, 3, false), d_ = rn_grammar_set(g, d, 2, false);
    rn_expr two = rn_grammar_repeat(g, any, 2, 2), three = rn_grammar_repeat(g, any, 3, 3);
    rn_expr plain = rn_grammar_sequence(g, (rn_expr[]){rn_grammar_set(g, but_d, 5, false), three}, 2);
    rn_expr below = rn_grammar_sequence(g, (rn_expr[]){d_, rn_grammar_set(g, low, 1, false), two}, 3);
    rn_expr pair =
        rn_grammar_sequence(g,
                            (rn_expr[]){d_, rn_grammar_set(g, first, 3, false), two, rn_schema_literal_text(m, "\\u"),
                                        d_, rn_grammar_set(g, second, 2, false), two},
                            7);

    return rn_grammar_sequence(
        g, (rn_expr[]){rn_schema_literal_text(m, "u"), rn_grammar_alternatives(g, (rn_expr[]){plain, below, pair}, 3)},
        2);
}

rn_expr rn_schema_any_string(struct rn_schema_maker *m)
{
    static const struct rn_code_points shorts[] = {{'"', '"'}, {'/', '/'}, {'\\', '\\'}, {'b', 'b'},
                                                   {'f', 'f'}, {'n', 'n'}, {'r', 'r'},   {'t', 't'}};
    struct plain plain = plain_ranges(m);
    rn_expr e;

    if (m->string_rule == UINT32_MAX && m->raw) {
        m->string_rule = rn_schema_rule(m);
        rn_grammar_define(m->g, m->string_rule, rn_schema_quoted(m, rn_schema_plain(m, 0, RN_GRAMMAR_FOREVER)));
    } else if (m->string_rule == UINT32_MAX) {
        m->string_rule = rn_schema_rule(m);
        e = rn_grammar_alternatives(m->g, (rn_expr[]){rn_grammar_set(m->g, shorts, 8, false), unicode_escape(m)}, 2);
        e = rn_grammar_sequence(m->g, (rn_expr[]){rn_schema_literal_text(m, "\\"), e}, 2);
        e = rn_grammar_alternatives(m->g, (rn_expr[]){rn_grammar_set(m->g, plain.ranges, 4, false), e}, 2);
        rn_grammar_define(m->g, m->string_rule, rn_schema_quoted(m, rn_grammar_repeat(m->g, e, 0, RN_GRAMMAR_FOREVER)));
    }
    return rn_grammar_call(m->g, m->string_rule);
}

/* ---- Patterns and formats ---- */

/* Tries the expression in a grammar of its own, so that what it cannot be is known before. */
static runnel_status try_regex(struct rn_schema_maker *m, const char *text, size_t n,
                               const struct rn_regex_options *options, runnel_error *error)
{
    struct rn_grammar *g = rn_grammar_new(m->arena->heap, &m->g->limits, NULL);

    if (g == NULL)
        return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for a grammar");
    rn_regex(g, text, n, 0, options);
    if (rn_grammar_failed(g))
        *error = g->error;
    rn_grammar_free(g);
    return error->status;
}

/* A rule for the pattern or format; UINT32_MAX where it is not enforced. */
static uint32_t make_text_rule(struct rn_schema_maker *m, const struct rn_text_rule *rule)
{
    bool pattern = rule->kind == RN_TEXT_PATTERN, ignored;
    struct rn_regex_options options = {.search = pattern, .write = write_set, .user = m};
    const char *text = pattern ? rule->text->bytes : rn_schema_format(rule->text, &ignored);
    size_t n = pattern ? rule->text->n : strlen(text);
    runnel_error error = {0};
    uint32_t made;
    rn_expr e;

    rn_step(m->arena, 20 * n);
    if (try_regex(m, text, n, &options, &error) != RUNNEL_OK) {
        if (error.status == RUNNEL_NO_MEMORY)
            rn_raise(m->arena, error.status, "%s", error.message);
        rn_schema_refuse(m, rule->schema, pattern ? "pattern" : "format", error.message);
        return UINT32_MAX;
    }
    made = rn_schema_rule(m);
    e = rn_regex(m->g, text, n, 0, &options);
    rn_schema_look(m);
    rn_grammar_define(m->g, made, e);
    return made;
}

rn_expr rn_schema_text_rule(struct rn_schema_maker *m, const struct rn_text_rule *rule)
{
    struct rn_text_cache *at = m->texts;

    if (rule->kind == RN_TEXT_IS)
        return rn_schema_spelled(m, rule->text->bytes, rule->text->n, false);
    for (; at != NULL && (at->kind != (int)rule->kind || at->raw != m->raw || !rn_str_same(at->text, rule->text));
         at = at->next)
        rn_step(m->arena, 1);
    if (at == NULL) {
        at = rn_arena_take(m->arena, 1, sizeof *at);
        *at = (struct rn_text_cache){m->texts, rule->text, (int)rule->kind, m->raw, make_text_rule(m, rule)};
        m->texts = at;
    }
    return at->rule == UINT32_MAX ? RN_GRAMMAR_NONE : rn_grammar_call(m->g, at->rule);
}

enum rn_holds rn_schema_text_holds(struct rn_schema_maker *m, const struct rn_text_rule *rule,
                                   const struct rn_str *text)
{
    uint32_t depth = m->arena->depth_limit, bytes;
    char *spelled;
    size_t n = 0, i;
    rn_expr e;
    bool holds;

    if (rule->kind == RN_TEXT_IS)
        return rn_str_same(rule->text, text) != rule->negated ? RN_HOLDS : RN_HOLDS_NOT;
    e = rn_schema_text_rule(m, rule);
    if (e == RN_GRAMMAR_NONE)
        return RN_HOLDS_UNKNOWN;
    spelled = rn_arena_take(m->arena, 6 * text->n, 1);
    for (i = 0; i < text->n && !m->raw; i += bytes)
        n += spell(m, rn_utf8_decode(text->bytes + i, &bytes), spelled + n);
    if (m->raw && text->n > 0)
        memcpy(spelled, text->bytes, n = text->n);
    m->arena->depth_limit = depth + 2 * m->g->limits.depth;
    holds = rn_expr_matches(m->arena, m->g, e, spelled, n) != rule->negated;
    m->arena->depth_limit = depth;
    return holds ? RN_HOLDS : RN_HOLDS_NOT;
}

/* ---- Strings ---- */

/* most: of max_length. */
static void check_length(struct rn_schema_maker *m, struct rn_case *the, uint32_t most)
{
    bool least = the->min_length > RN_SCHEMA_COUNT_MOST;

    if (!least && (the->max_length <= most || the->max_length == RN_GRAMMAR_FOREVER))
        return;
    if (!m->options.allow_unenforced)
        rn_raise(m->arena, RUNNEL_UNSUPPORTED, "\"%s\" at \"%s\" cannot be enforced: it is %u; at most %u",
                 least ? "minLength" : "maxLength", rn_schema_where(m, the, least ? "minLength" : "maxLength"),
                 least ? the->min_length : the->max_length, least ? RN_SCHEMA_COUNT_MOST : most);
    if (least)
        the->min_length = 0;
    if (the->max_length > most)
        the->max_length = RN_GRAMMAR_FOREVER;
}

/* The texts that match all rules, without quotes. */
static rn_expr content(struct rn_schema_maker *m, const struct rn_case *the)
{
    rn_expr e = RN_GRAMMAR_NONE;
    const struct rn_text_rule *rule;

    if (the->min_length > 0 || the->max_length != RN_GRAMMAR_FOREVER)
        e = rn_schema_plain(m, the->min_length, the->max_length);
    for (rule = the->texts; rule != NULL; rule = rule->next) {
        rn_expr own = rule->negated ? RN_GRAMMAR_NONE : rn_schema_text_rule(m, rule);

        if (own != RN_GRAMMAR_NONE)
            e = e == RN_GRAMMAR_NONE ? own : rn_grammar_both(m->g, e, own);
    }
    if (e == RN_GRAMMAR_NONE)
        e = rn_schema_plain(m, 0, RN_GRAMMAR_FOREVER);
    for (rule = the->texts; rule != NULL; rule = rule->next) {
        rn_expr own = rule->negated ? rn_schema_text_rule(m, rule) : RN_GRAMMAR_NONE;

        if (own != RN_GRAMMAR_NONE)
            e = rn_grammar_without(m->g, e, own);
    }
    return e;
}

rn_expr rn_schema_content(struct rn_schema_maker *m, const struct rn_case *the, struct rn_literals literals)
{
    struct rn_case own = *the;
    rn_expr *parts;
    uint32_t n = 0;

    if (!the->has_values) {
        check_length(m, &own, RN_SCHEMA_COUNT_MOST);
        return content(m, &own);
    }
    parts = rn_arena_take(m->arena, the->values->n, sizeof *parts);
    for (size_t i = 0; i < the->values->n; i++)
        if (the->values->items[i].kind == RN_VALUE_STRING && rn_schema_all_hold(m, literals, the->values->items[i]))
            parts[n++] =
                rn_schema_spelled(m, the->values->items[i].string->bytes, the->values->items[i].string->n, false);
    return rn_grammar_alternatives(m->g, parts, n);
}

/* ---- Lengths ----
 *
 * Strings of which nothing but the length is said have a rule for each pair of bounds, from quote to quote, so that
 * what was found out of its states serves all of them. Many characters are counted by blocks:
 *
 *     quote c{least} ( block{0, n-1} c{0, BLOCK-1} quote  |  block{n} c{0, left} quote ) */

struct rn_length_cache {
    struct rn_length_cache *next;
    uint32_t least, most;
    bool quoted; /* false: a whole block, or one that is begun, with the quote behind it */
    bool raw;
    rn_expr mark;
    uint32_t rule;
};

static rn_expr call_length(struct rn_schema_maker *m, uint32_t least, uint32_t most, bool quoted);

static rn_expr with_quote(struct rn_schema_maker *m, rn_expr content)
{
    return rn_grammar_sequence(m->g, (rn_expr[]){content, rn_schema_literal_text(m, "\"")}, 2);
}

static rn_expr by_blocks(struct rn_schema_maker *m, uint32_t least, uint32_t most)
{
    uint32_t n = (most - least) / BLOCK, left = (most - least) % BLOCK;
    rn_expr block = call_length(m, BLOCK, BLOCK, false), begun = call_length(m, 0, BLOCK - 1, false), cases[2];

    cases[0] = rn_grammar_sequence(m->g, (rn_expr[]){rn_grammar_repeat(m->g, block, 0, n - 1), begun}, 2);
    cases[1] = with_quote(
        m,
        rn_grammar_sequence(m->g, (rn_expr[]){rn_grammar_repeat(m->g, block, n, n), rn_schema_plain(m, 0, left)}, 2));
    return rn_grammar_sequence(m->g,
                               (rn_expr[]){rn_schema_literal_text(m, "\""), rn_schema_plain(m, least, least),
                                           rn_grammar_alternatives(m->g, cases, 2)},
                               3);
}

static rn_expr length_body(struct rn_schema_maker *m, uint32_t least, uint32_t most, bool quoted)
{
    if (!quoted)
        return least == most ? rn_schema_plain(m, least, most) : with_quote(m, rn_schema_plain(m, least, most));
    if (m->mark == RN_GRAMMAR_NONE && most != RN_GRAMMAR_FOREVER && most - least >= 2 * BLOCK)
        return by_blocks(m, least, most);
    return rn_schema_quoted(m, rn_schema_plain(m, least, most));
}

static rn_expr call_length(struct rn_schema_maker *m, uint32_t least, uint32_t most, bool quoted)
{
    struct rn_length_cache *at = m->lengths;

    for (; at != NULL &&
           (at->least != least || at->most != most || at->quoted != quoted || at->raw != m->raw || at->mark != m->mark);
         at = at->next)
        rn_step(m->arena, 1);
    if (at == NULL) {
        at = rn_arena_take(m->arena, 1, sizeof *at);
        *at = (struct rn_length_cache){m->lengths, least, most, quoted, m->raw, m->mark, rn_schema_rule(m)};
        m->lengths = at;
        rn_grammar_define(m->g, at->rule, length_body(m, least, most, quoted));
    }
    return rn_grammar_call(m->g, at->rule);
}

rn_expr rn_schema_string(struct rn_schema_maker *m, const struct rn_case *the)
{
    struct rn_case own = *the;

    check_length(m, &own,
                 own.texts == NULL && m->mark == RN_GRAMMAR_NONE ? RN_SCHEMA_LENGTH_MOST : RN_SCHEMA_COUNT_MOST);
    if (own.texts != NULL)
        return rn_schema_quoted(m, content(m, &own));
    if (own.min_length == 0 && own.max_length == RN_GRAMMAR_FOREVER)
        return rn_schema_any_string(m);
    return call_length(m, own.min_length, own.max_length, true);
}
