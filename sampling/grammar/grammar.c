/* Building grammars: see grammar.h. */
#include "sampling/grammar/grammar.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/utf8.h"
#include "sampling/grammar/code_points.h"

const struct rn_grammar_limits rn_grammar_limits_default = {.source_bytes = 2 << 20,
                                                            .rules = 50000,
                                                            .nodes = 1 << 20,
                                                            .depth = 256,
                                                            .states = 1 << 18,
                                                            .bytes = 64 << 20,
                                                            .steps = 10000000};

struct rn_grammar *rn_grammar_new(struct rn_heap *heap, const struct rn_grammar_limits *limits,
                                  const struct rn_vocab *vocab)
{
    struct rn_grammar *g = rn_calloc(heap, 1, sizeof *g);

    if (g == NULL)
        return NULL;
    g->heap = heap;
    g->limits = limits != NULL ? *limits : rn_grammar_limits_default;
    g->vocab = vocab;
    g->n_nodes = 1; /* RN_GRAMMAR_NONE */
    return g;
}

void rn_grammar_free(struct rn_grammar *g)
{
    if (g == NULL)
        return;
    rn_free(g->heap, g->nodes);
    rn_free(g->heap, g->rules);
    rn_free(g->heap, g->operands);
    rn_free(g->heap, g->ranges);
    rn_free(g->heap, g->ids);
    rn_free(g->heap, g->bytes);
    rn_free(g->heap, g->reasons);
    rn_free(g->heap, g->names);
    rn_free(g->heap, g);
}

/* ---- Errors and places ---- */

bool rn_grammar_failed(const struct rn_grammar *g)
{
    return g->error.status != RUNNEL_OK;
}

struct rn_quote rn_grammar_quote(const char *text, size_t n)
{
    struct rn_quote quote;
    size_t end = n <= 40 ? n : 40;

    while (end > 0 && end < n && ((unsigned char)text[end] & 0xc0) == 0x80)
        end--;
    snprintf(quote.text, sizeof quote.text, "%.*s%s", (int)end, text, end < n ? "..." : "");
    return quote;
}

void rn_grammar_fail(struct rn_grammar *g, runnel_status status, const char *format, ...)
{
    char sentence[RUNNEL_ERROR_BYTES];
    uint32_t line = 1, column = 1, i;
    va_list args;

    if (rn_grammar_failed(g))
        return;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    if (g->source == NULL) {
        rn_error_set(&g->error, status, "%s", sentence);
        return;
    }
    for (i = 0; i < g->at && i < g->source_bytes; i++) {
        if (g->source[i] == '\n') {
            line++;
            column = 1;
        } else if (((unsigned char)g->source[i] & 0xc0) != 0x80) {
            column++;
        }
    }
    rn_error_set(&g->error, status, "line %u, column %u: %s", line, column, sentence);
}

static void fail_memory(struct rn_grammar *g)
{
    if (!rn_grammar_failed(g))
        rn_error_set(&g->error, RUNNEL_NO_MEMORY, "no memory for a grammar");
}

void rn_grammar_source(struct rn_grammar *g, const char *text, size_t n)
{
    if (n > g->limits.source_bytes) {
        rn_grammar_fail(g, RUNNEL_INVALID, "the grammar has %zu bytes, where %zu are the most", n,
                        g->limits.source_bytes);
        return;
    }
    if (!rn_utf8_valid(text, n)) {
        rn_grammar_fail(g, RUNNEL_FORMAT, "the grammar is not UTF-8");
        return;
    }
    g->source = text;
    g->source_bytes = n;
    g->at = 0;
}

void rn_grammar_at(struct rn_grammar *g, size_t at)
{
    g->at = (uint32_t)at;
}

/* ---- Arrays that grow ---- */

/* Room for `more` items behind `used` of an array; false: refused, and the error is set. */
static bool grow(struct rn_grammar *g, void **items, uint32_t used, uint32_t *room, size_t more, size_t size)
{
    size_t wanted = (size_t)used + more, next = *room < 32 ? 32 : (size_t)*room * 2;
    void *grown;

    if (rn_grammar_failed(g))
        return false;
    if (wanted <= *room)
        return true;
    if (next < wanted)
        next = wanted;
    if (next * size > g->limits.bytes && wanted * size > g->limits.bytes) {
        rn_grammar_fail(g, RUNNEL_INVALID, "the grammar needs more than %zu bytes", g->limits.bytes);
        return false;
    }
    grown = rn_realloc(g->heap, *items, next, size);
    if (grown == NULL) {
        fail_memory(g);
        return false;
    }
    *items = grown;
    *room = (uint32_t)next;
    return true;
}

static bool count_nodes(struct rn_grammar *g, size_t more)
{
    if (more <= g->limits.nodes && (size_t)g->n_nodes + g->n_operands + more <= g->limits.nodes)
        return true;
    rn_grammar_fail(g, RUNNEL_INVALID, "the grammar has more than %u parts", g->limits.nodes);
    return false;
}

static rn_expr add_node(struct rn_grammar *g, enum rn_grammar_kind kind, uint32_t a, uint32_t b, uint32_t c,
                        uint32_t below)
{
    RN_ASSERT(!g->finished);
    if (rn_grammar_failed(g) || !count_nodes(g, 1))
        return RN_GRAMMAR_NONE;
    if (below >= g->limits.depth) {
        rn_grammar_fail(g, RUNNEL_INVALID, "nested deeper than %u", g->limits.depth);
        return RN_GRAMMAR_NONE;
    }
    if (!grow(g, (void **)&g->nodes, g->n_nodes, &g->room_nodes, 1, sizeof *g->nodes))
        return RN_GRAMMAR_NONE;
    g->nodes[g->n_nodes] = (struct rn_grammar_node){kind, a, b, c, below + 1};
    return g->n_nodes++;
}

/* ---- Terminals ---- */

rn_expr rn_grammar_empty(struct rn_grammar *g)
{
    return add_node(g, RN_GRAMMAR_EMPTY, 0, 0, 0, 0);
}

static bool add_bytes(struct rn_grammar *g, const char *bytes, size_t n)
{
    if (!grow(g, (void **)&g->bytes, g->n_bytes, &g->room_bytes, n, 1))
        return false;
    if (n > 0)
        memcpy(g->bytes + g->n_bytes, bytes, n);
    g->n_bytes += (uint32_t)n;
    return true;
}

rn_expr rn_grammar_bytes(struct rn_grammar *g, const char *bytes, size_t n)
{
    if (n == 0)
        return rn_grammar_empty(g);
    if (!add_bytes(g, bytes, n))
        return RN_GRAMMAR_NONE;
    return add_node(g, RN_GRAMMAR_BYTES, g->n_bytes - (uint32_t)n, (uint32_t)n, 0, 0);
}

rn_expr rn_grammar_set(struct rn_grammar *g, const struct rn_code_points *ranges, size_t n, bool negated)
{
    struct rn_code_points *out;
    uint32_t at = g->n_ranges;
    size_t i, count;

    for (i = 0; i < n; i++) {
        if (ranges[i].first > ranges[i].last || ranges[i].last > RN_CODE_POINT_MOST) {
            rn_grammar_fail(g, RUNNEL_FORMAT, "a range of characters ends before it begins, or beyond U+10FFFF");
            return RN_GRAMMAR_NONE;
        }
    }
    if (!grow(g, (void **)&g->ranges, at, &g->room_ranges, 2 * n + 4, sizeof *g->ranges))
        return RN_GRAMMAR_NONE;
    out = g->ranges + at;
    if (n > 0)
        memcpy(out, ranges, n * sizeof *out);
    count = rn_code_points_normalise(out, n);
    if (negated) {
        size_t others = rn_code_points_negate(out, count, out + count);

        memmove(out, out + count, others * sizeof *out);
        count = others;
    }
    if (count == 0)
        return rn_grammar_alternatives(g, NULL, 0);
    g->n_ranges += (uint32_t)count;
    return add_node(g, RN_GRAMMAR_SET, at, (uint32_t)count, 0, 0);
}

/* Puts ids[n] in order, each once; an insertion sort, for they are few. */
static uint32_t order_ids(int32_t *ids, uint32_t n)
{
    uint32_t kept = 0, i, k;

    for (i = 0; i < n; i++) {
        int32_t id = ids[i];

        for (k = kept; k > 0 && ids[k - 1] > id; k--)
            ;
        if (k > 0 && ids[k - 1] == id)
            continue;
        memmove(ids + k + 1, ids + k, (kept - k) * sizeof *ids);
        ids[k] = id;
        kept++;
    }
    return kept;
}

rn_expr rn_grammar_tokens(struct rn_grammar *g, const int32_t *ids, size_t n, bool but)
{
    uint32_t at = g->n_ids;
    size_t i;

    for (i = 0; i < n; i++) {
        if (ids[i] < 0 || (g->vocab != NULL && (uint32_t)ids[i] >= rn_vocab_count(g->vocab))) {
            rn_grammar_fail(g, RUNNEL_FORMAT, "the vocabulary has no token %d", (int)ids[i]);
            return RN_GRAMMAR_NONE;
        }
    }
    if (n == 0 && !but)
        return rn_grammar_alternatives(g, NULL, 0);
    if (n > 1024) {
        rn_grammar_fail(g, RUNNEL_INVALID, "more than 1024 tokens in one place");
        return RN_GRAMMAR_NONE;
    }
    if (!grow(g, (void **)&g->ids, at, &g->room_ids, n, sizeof *g->ids))
        return RN_GRAMMAR_NONE;
    if (n > 0) {
        memcpy(g->ids + at, ids, n * sizeof *ids);
        n = order_ids(g->ids + at, (uint32_t)n);
    }
    g->n_ids += (uint32_t)n;
    return add_node(g, but ? RN_GRAMMAR_TOKENS_BUT : RN_GRAMMAR_TOKENS, at, (uint32_t)n, 0, 0);
}

rn_expr rn_grammar_token_named(struct rn_grammar *g, const char *text, size_t n, bool but)
{
    int32_t id = g->vocab != NULL ? rn_vocab_find(g->vocab, text, n) : -1;

    if (id >= 0)
        return rn_grammar_tokens(g, &id, 1, but);
    rn_grammar_fail(g, RUNNEL_FORMAT, "the vocabulary has no token \"%s\"", rn_grammar_quote(text, n).text);
    return RN_GRAMMAR_NONE;
}

/* ---- What is made of expressions ---- */

static rn_expr add_list(struct rn_grammar *g, enum rn_grammar_kind kind, const rn_expr *items, size_t n)
{
    uint32_t at = g->n_operands, below = 0;
    size_t i;

    if (rn_grammar_failed(g) || !count_nodes(g, n))
        return RN_GRAMMAR_NONE;
    if (n == 1)
        return items[0];
    for (i = 0; i < n; i++) {
        RN_ASSERT(items[i] != RN_GRAMMAR_NONE && items[i] < g->n_nodes);
        below = g->nodes[items[i]].depth > below ? g->nodes[items[i]].depth : below;
    }
    if (!grow(g, (void **)&g->operands, at, &g->room_operands, n, sizeof *g->operands))
        return RN_GRAMMAR_NONE;
    if (n > 0)
        memcpy(g->operands + at, items, n * sizeof *items);
    g->n_operands += (uint32_t)n;
    return add_node(g, kind, at, (uint32_t)n, 0, below);
}

rn_expr rn_grammar_sequence(struct rn_grammar *g, const rn_expr *items, size_t n)
{
    return n == 0 ? rn_grammar_empty(g) : add_list(g, RN_GRAMMAR_SEQUENCE, items, n);
}

rn_expr rn_grammar_alternatives(struct rn_grammar *g, const rn_expr *items, size_t n)
{
    return add_list(g, RN_GRAMMAR_ALTERNATIVES, items, n);
}

rn_expr rn_grammar_repeat(struct rn_grammar *g, rn_expr item, uint32_t least, uint32_t most)
{
    if (rn_grammar_failed(g))
        return RN_GRAMMAR_NONE;
    RN_ASSERT(item != RN_GRAMMAR_NONE && item < g->n_nodes);
    if (least > most || least == RN_GRAMMAR_FOREVER) {
        rn_grammar_fail(g, RUNNEL_FORMAT, "a repetition of at least %u times and at most %u", least, most);
        return RN_GRAMMAR_NONE;
    }
    if (most == 0)
        return rn_grammar_empty(g);
    if (least == 1 && most == 1)
        return item;
    return add_node(g, RN_GRAMMAR_REPEAT, item, least, most, g->nodes[item].depth);
}

static rn_expr add_pair(struct rn_grammar *g, enum rn_grammar_kind kind, rn_expr a, rn_expr b)
{
    uint32_t below;

    if (rn_grammar_failed(g))
        return RN_GRAMMAR_NONE;
    RN_ASSERT(a != RN_GRAMMAR_NONE && a < g->n_nodes && b != RN_GRAMMAR_NONE && b < g->n_nodes);
    below = g->nodes[a].depth > g->nodes[b].depth ? g->nodes[a].depth : g->nodes[b].depth;
    return add_node(g, kind, a, b, 0, below);
}

rn_expr rn_grammar_both(struct rn_grammar *g, rn_expr a, rn_expr b)
{
    return add_pair(g, RN_GRAMMAR_BOTH, a, b);
}

rn_expr rn_grammar_without(struct rn_grammar *g, rn_expr a, rn_expr b)
{
    return add_pair(g, RN_GRAMMAR_WITHOUT, a, b);
}

rn_expr rn_grammar_call(struct rn_grammar *g, uint32_t rule)
{
    if (rn_grammar_failed(g))
        return RN_GRAMMAR_NONE;
    RN_ASSERT(rule < g->n_rules);
    return add_node(g, RN_GRAMMAR_CALL, rule, 0, 0, 0);
}

/* ---- Rules ---- */

/* Its seed is where the grammar and its heap lie: a stranger shall not choose names that collide. */
static uint32_t hash_name(const struct rn_grammar *g, const char *name, size_t n)
{
    uint64_t hash = (uint64_t)(uintptr_t)g, step = (uint64_t)(uintptr_t)g->heap ^ 0x9e3779b97f4a7c15u;

    for (size_t i = 0; i < n; i++) {
        unsigned __int128 product = (unsigned __int128)(hash ^ (unsigned char)name[i]) * (step | 1);

        hash = (uint64_t)product ^ (uint64_t)(product >> 64);
    }
    return (uint32_t)(hash >> 32);
}

/* Where the name is in the table, or the free place where it would be. */
static uint32_t find_name(const struct rn_grammar *g, const char *name, size_t n)
{
    uint32_t mask = g->room_names - 1, at = hash_name(g, name, n) & mask;

    for (; g->names[at] != 0; at = (at + 1) & mask) {
        const struct rn_grammar_rule *rule = &g->rules[g->names[at] - 1];

        if (rule->name_bytes == n && memcmp(g->bytes + rule->name, name, n) == 0)
            break;
    }
    return at;
}

/* A table of names with twice the room, or the first one. */
static bool grow_names(struct rn_grammar *g)
{
    uint32_t room = g->room_names == 0 ? 64 : g->room_names * 2, i;
    uint32_t *names = rn_calloc(g->heap, room, sizeof *names);

    if (names == NULL) {
        fail_memory(g);
        return false;
    }
    rn_free(g->heap, g->names);
    g->names = names;
    g->room_names = room;
    for (i = 0; i < g->n_rules; i++) {
        const struct rn_grammar_rule *rule = &g->rules[i];

        if (rule->name_bytes > 0)
            names[find_name(g, g->bytes + rule->name, rule->name_bytes)] = i + 1;
    }
    return true;
}

void rn_grammar_reason(struct rn_grammar *g, rn_expr e, const char *format, ...)
{
    char text[RUNNEL_ERROR_BYTES];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (!grow(g, (void **)&g->reasons, g->n_reasons, &g->room_reasons, 1, sizeof *g->reasons) ||
        !add_bytes(g, text, strlen(text) + 1))
        return;
    g->reasons[g->n_reasons++] = (struct rn_grammar_reason){e, g->n_bytes - (uint32_t)strlen(text) - 1};
}

uint32_t rn_grammar_rule(struct rn_grammar *g, const char *name, size_t n)
{
    uint32_t at = 0;

    RN_ASSERT(!g->finished);
    if (rn_grammar_failed(g))
        return 0;
    if (n > 0) {
        if (g->n_names * 2 >= g->room_names && !grow_names(g))
            return 0;
        at = find_name(g, name, n);
        if (g->names[at] != 0)
            return g->names[at] - 1;
    }
    if (g->n_rules >= g->limits.rules) {
        rn_grammar_fail(g, RUNNEL_INVALID, "the grammar has more than %u rules", g->limits.rules);
        return 0;
    }
    if (!grow(g, (void **)&g->rules, g->n_rules, &g->room_rules, 1, sizeof *g->rules) || !add_bytes(g, name, n))
        return 0;
    g->rules[g->n_rules] = (struct rn_grammar_rule){g->n_bytes - (uint32_t)n, (uint32_t)n, RN_GRAMMAR_NONE, g->at};
    if (n > 0) {
        g->names[at] = g->n_rules + 1;
        g->n_names++;
    }
    return g->n_rules++;
}

bool rn_grammar_is_defined(const struct rn_grammar *g, uint32_t rule)
{
    return rule < g->n_rules && g->rules[rule].body != RN_GRAMMAR_NONE;
}

struct rn_quote rn_grammar_rule_name(const struct rn_grammar *g, uint32_t rule)
{
    const struct rn_grammar_rule *r = &g->rules[rule];

    return rn_grammar_quote(r->name_bytes == 0 ? "" : g->bytes + r->name, r->name_bytes);
}

void rn_grammar_define(struct rn_grammar *g, uint32_t rule, rn_expr body)
{
    if (rn_grammar_failed(g))
        return;
    RN_ASSERT(rule < g->n_rules && body != RN_GRAMMAR_NONE && body < g->n_nodes);
    if (g->rules[rule].body != RN_GRAMMAR_NONE)
        rn_grammar_fail(g, RUNNEL_FORMAT, "the rule \"%s\" is defined twice", rn_grammar_rule_name(g, rule).text);
    else
        g->rules[rule].body = body;
}

runnel_status rn_grammar_finish(struct rn_grammar *g, uint32_t root, runnel_error *error)
{
    uint32_t i;

    for (i = 0; i < g->n_rules && !rn_grammar_failed(g); i++) {
        if (g->rules[i].body != RN_GRAMMAR_NONE)
            continue;
        g->at = g->rules[i].at;
        rn_grammar_fail(g, RUNNEL_FORMAT, "the rule \"%s\" is not defined", rn_grammar_rule_name(g, i).text);
    }
    if (root >= g->n_rules)
        rn_grammar_fail(g, RUNNEL_FORMAT, "the grammar has no rules");
    g->root = root;
    g->finished = true;
    g->source = NULL;
    g->vocab = NULL;
    if (error != NULL && rn_grammar_failed(g))
        *error = g->error;
    return g->error.status;
}
