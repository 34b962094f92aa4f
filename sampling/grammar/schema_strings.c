/* Strings of JSON Schema: see schema_parts.h.
 *
 * A text is written by a code: each character has one spelling, and no spelling is the beginning of another's. So what
 * patterns, formats and lengths say of characters, their spellings say of bytes: expressions are made in the spelling
 * (rn_regex takes a function for that), and intersections and differences of them mean the same as of the texts. */
#include <stdio.h>
#include <string.h>

#include "sampling/grammar/code_points.h"
#include "sampling/grammar/expr_match.h"
#include "sampling/grammar/front.h"
#include "sampling/grammar/schema_parts.h"
#include "text/utf8.h"

struct rn_text_cache {
    struct rn_text_cache *next;
    const struct rn_str *text;
    int kind;
    uint32_t rule; /* UINT32_MAX: it is not enforced */
};

/* ---- Characters ---- */

/* The spelling of one character; returns its bytes, at most 6. */
static uint32_t spell(uint32_t c, char *out)
{
    static const char shorts[] = "\b\f\n\r\t\"\\", letters[] = "bfnrt\"\\";
    const char *at = c < 0x80 && c != 0 ? strchr(shorts, (int)c) : NULL;

    if (at != NULL) {
        out[0] = '\\';
        out[1] = letters[at - shorts];
        return 2;
    }
    if (c < 0x20) {
        static const char hex[] = "0123456789abcdef";

        memcpy(out, "\\u00", 4);
        out[4] = hex[c >> 4];
        out[5] = hex[c & 15];
        return 6;
    }
    return rn_utf8_encode(c, out);
}

static bool is_plain(uint32_t c)
{
    return c >= 0x20 && c != '"' && c != '\\';
}

/* Adds the sets of ranges[n] that need no escape: expressions with at most 64 ranges each. */
static rn_expr plain_sets(struct rn_grammar *g, const struct rn_code_points *ranges, size_t n)
{
    static const struct rn_code_points plain[] = {{0x20, '!'}, {'#', '['}, {']', RN_CODE_POINT_MOST}};
    struct rn_code_points kept[64];
    rn_expr sets = rn_grammar_alternatives(g, NULL, 0);
    uint32_t n_kept = 0;

    for (size_t k = 0; k < 3 * n; k++) {
        const struct rn_code_points *r = &ranges[k / 3], *p = &plain[k % 3];
        uint32_t first = r->first > p->first ? r->first : p->first, last = r->last < p->last ? r->last : p->last;

        if (first <= last)
            kept[n_kept++] = (struct rn_code_points){first, last};
        if (n_kept == 64 || (k + 1 == 3 * n && n_kept > 0)) {
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
    rn_expr parts[36];
    uint32_t n_parts = 0, c;

    (void)user;
    for (c = 0; c <= '\\'; c++) {
        char spelled[6];

        if (!is_plain(c) && rn_code_points_have(ranges, n, c))
            parts[n_parts++] = rn_grammar_bytes(g, spelled, spell(c, spelled));
    }
    parts[n_parts++] = plain_sets(g, ranges, n);
    return rn_grammar_alternatives(g, parts, n_parts);
}

static rn_expr quoted(struct rn_schema_maker *m, rn_expr content)
{
    rn_expr quote = rn_schema_literal_text(m, "\"");

    return rn_grammar_sequence(m->g, (rn_expr[]){quote, content, quote}, 3);
}

rn_expr rn_schema_spelled(struct rn_schema_maker *m, const char *text, size_t n, bool in_quotes)
{
    char *out = rn_arena_take(m->arena, 6 * n + 2, 1);
    size_t at = 0, i;
    uint32_t bytes;

    rn_step(m->arena, n / 8);
    if (in_quotes)
        out[at++] = '"';
    for (i = 0; i < n; i += bytes)
        at += spell(rn_utf8_decode(text + i, &bytes), out + at);
    if (in_quotes)
        out[at++] = '"';
    return rn_grammar_bytes(m->g, out, at);
}

/* A rule for one character in its one spelling. */
rn_expr rn_schema_plain(struct rn_schema_maker *m, uint32_t least, uint32_t most)
{
    static const struct rn_code_points all[] = {{0, 0xd7ff}, {0xe000, RN_CODE_POINT_MOST}};

    if (m->char_rule == UINT32_MAX) {
        m->char_rule = rn_schema_rule(m);
        rn_grammar_define(m->g, m->char_rule, write_set(NULL, m->g, all, 2));
    }
    return rn_grammar_repeat(m->g, rn_grammar_call(m->g, m->char_rule), least, most);
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
    static const struct rn_code_points plain[] = {{0x20, '!'}, {'#', '['}, {']', RN_CODE_POINT_MOST}};
    static const struct rn_code_points shorts[] = {{'"', '"'}, {'/', '/'}, {'\\', '\\'}, {'b', 'b'},
                                                   {'f', 'f'}, {'n', 'n'}, {'r', 'r'},   {'t', 't'}};
    rn_expr e;

    if (m->string_rule == UINT32_MAX) {
        m->string_rule = rn_schema_rule(m);
        e = rn_grammar_alternatives(m->g, (rn_expr[]){rn_grammar_set(m->g, shorts, 8, false), unicode_escape(m)}, 2);
        e = rn_grammar_sequence(m->g, (rn_expr[]){rn_schema_literal_text(m, "\\"), e}, 2);
        e = rn_grammar_alternatives(m->g, (rn_expr[]){rn_grammar_set(m->g, plain, 3, false), e}, 2);
        rn_grammar_define(m->g, m->string_rule, quoted(m, rn_grammar_repeat(m->g, e, 0, RN_GRAMMAR_FOREVER)));
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
    struct rn_regex_options options = {.search = pattern, .write = write_set};
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
    for (; at != NULL && (at->kind != (int)rule->kind || !rn_str_same(at->text, rule->text)); at = at->next)
        rn_step(m->arena, 1);
    if (at == NULL) {
        at = rn_arena_take(m->arena, 1, sizeof *at);
        *at = (struct rn_text_cache){m->texts, rule->text, (int)rule->kind, make_text_rule(m, rule)};
        m->texts = at;
    }
    return at->rule == UINT32_MAX ? RN_GRAMMAR_NONE : rn_grammar_call(m->g, at->rule);
}

bool rn_schema_text_holds(struct rn_schema_maker *m, const struct rn_text_rule *rule, const struct rn_str *text)
{
    uint32_t depth = m->arena->depth_limit, bytes;
    char *spelled;
    size_t n = 0, i;
    rn_expr e;
    bool holds;

    if (rule->kind == RN_TEXT_IS)
        return rn_str_same(rule->text, text) != rule->negated;
    e = rn_schema_text_rule(m, rule);
    if (e == RN_GRAMMAR_NONE)
        return true;
    spelled = rn_arena_take(m->arena, 6 * text->n, 1);
    for (i = 0; i < text->n; i += bytes)
        n += spell(rn_utf8_decode(text->bytes + i, &bytes), spelled + n);
    m->arena->depth_limit = depth + 2 * m->g->limits.depth;
    holds = rn_expr_matches(m->arena, m->g, e, spelled, n) != rule->negated;
    m->arena->depth_limit = depth;
    return holds;
}

/* ---- Strings ---- */

static void check_length(struct rn_schema_maker *m, struct rn_case *the)
{
    if (the->min_length <= RN_SCHEMA_COUNT_MOST &&
        (the->max_length <= RN_SCHEMA_COUNT_MOST || the->max_length == RN_GRAMMAR_FOREVER))
        return;
    if (!m->options.allow_unenforced)
        rn_raise(m->arena, RUNNEL_UNSUPPORTED, "a \"minLength\" or \"maxLength\" of %u cannot be enforced: at most %u",
                 the->min_length > RN_SCHEMA_COUNT_MOST ? the->min_length : the->max_length, RN_SCHEMA_COUNT_MOST);
    if (the->min_length > RN_SCHEMA_COUNT_MOST)
        the->min_length = 0;
    if (the->max_length > RN_SCHEMA_COUNT_MOST)
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
        check_length(m, &own);
        return content(m, &own);
    }
    parts = rn_arena_take(m->arena, the->values->n, sizeof *parts);
    for (size_t i = 0; i < the->values->n; i++)
        if (the->values->items[i].kind == RN_VALUE_STRING && rn_schema_all_hold(m, literals, the->values->items[i]))
            parts[n++] =
                rn_schema_spelled(m, the->values->items[i].string->bytes, the->values->items[i].string->n, false);
    return rn_grammar_alternatives(m->g, parts, n);
}

rn_expr rn_schema_string(struct rn_schema_maker *m, const struct rn_case *the)
{
    struct rn_case own = *the;

    check_length(m, &own);
    if (own.min_length == 0 && own.max_length == RN_GRAMMAR_FOREVER && own.texts == NULL)
        return rn_schema_any_string(m);
    return quoted(m, content(m, &own));
}
