/* Earley's recogniser: see oracle.h. An item is an expression, how far it has been read, and where that began:
 *
 *     bytes, sequence, repetition    `done` parts
 *     alternatives                   `done` is 1 + the one that was taken, or 0
 *     set                            `done` bytes of one character, which are `part`
 *
 * The root is an item without a parent: it is complete when the root's body is, from the beginning. */
#include "tests/grammar/oracle.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/utf8.h"

struct item {
    rn_expr e;
    uint32_t done, from;
    unsigned char part[4];
    bool complete;
};

struct items {
    struct item *items;
    uint32_t n, room;
};

struct oracle {
    const struct rn_grammar *g;
    bool *possible;     /* [nodes] it matches some text */
    struct items *sets; /* [n_sets] by places of the input */
    uint32_t n_sets, room_sets;
    uint32_t *tokens; /* [n_tokens] the place where each began */
    uint32_t n_tokens, room_tokens;
};

/* ---- What has any text ---- */

static bool look_possible(const struct oracle *o, rn_expr e)
{
    const struct rn_grammar_node *node = &o->g->nodes[e];
    uint32_t i;

    switch (node->kind) {
    case RN_GRAMMAR_CALL:
        return o->possible[o->g->rules[node->a].body];
    case RN_GRAMMAR_SEQUENCE:
        for (i = 0; i < node->b && o->possible[o->g->operands[node->a + i]]; i++)
            ;
        return i == node->b;
    case RN_GRAMMAR_ALTERNATIVES:
        for (i = 0; i < node->b && !o->possible[o->g->operands[node->a + i]]; i++)
            ;
        return i < node->b;
    case RN_GRAMMAR_REPEAT:
        return node->b == 0 || o->possible[node->a];
    default:
        return true;
    }
}

static void find_possible(struct oracle *o)
{
    bool changed = true;
    rn_expr e;

    while (changed) {
        changed = false;
        for (e = 1; e < o->g->n_nodes; e++) {
            if (o->possible[e] || !look_possible(o, e))
                continue;
            o->possible[e] = changed = true;
        }
    }
}

/* ---- Items ---- */

static bool same(const struct item *a, const struct item *b)
{
    return a->e == b->e && a->done == b->done && a->from == b->from && a->complete == b->complete &&
           memcmp(a->part, b->part, 4) == 0;
}

static bool put(struct items *set, struct item item)
{
    uint32_t i;

    for (i = 0; i < set->n; i++)
        if (same(&set->items[i], &item))
            return false;
    if (set->n == set->room) {
        set->room = set->room == 0 ? 16 : set->room * 2;
        set->items = realloc(set->items, set->room * sizeof *set->items);
    }
    set->items[set->n++] = item;
    return true;
}

/* Can a character of the set begin with these bytes (n of them), and are they a whole one? */
static bool begins_character(const struct rn_grammar *g, const struct rn_grammar_node *node, const unsigned char *bytes,
                             uint32_t n, bool *whole)
{
    uint32_t length = rn_utf8_length(bytes[0]), first, last, i;

    if (length == 0 || n > length || (n > 1 && !rn_utf8_second(bytes[0], bytes[1])))
        return false;
    first = length == 1 ? bytes[0] : bytes[0] & (0x7fu >> length);
    for (i = 1; i < n; i++) {
        if ((bytes[i] & 0xc0) != 0x80)
            return false;
        first = first << 6 | (bytes[i] & 0x3f);
    }
    last = first;
    for (; i < length; i++) {
        first <<= 6;
        last = last << 6 | 0x3f;
    }
    /* what this length may stand for: no overlong forms */
    if (length > 1 && first < (length == 2 ? 0x80u : length == 3 ? 0x800u : 0x10000u))
        first = length == 2 ? 0x80 : length == 3 ? 0x800 : 0x10000;
    *whole = n == length;
    for (i = 0; i < node->b; i++) /* ranges are normal: no surrogates in them */
        if (g->ranges[node->a + i].first <= last && g->ranges[node->a + i].last >= first)
            return true;
    return false;
}

/* What comes first in an expression, at place `at`. */
static bool predict(struct oracle *o, struct items *set, rn_expr e, uint32_t at)
{
    struct item item = {.e = e, .from = at};

    return o->possible[e] && put(set, item);
}

static struct item advanced(struct item item, const struct rn_grammar_node *node)
{
    if (node->kind != RN_GRAMMAR_REPEAT || node->c != RN_GRAMMAR_FOREVER || item.done < node->b)
        item.done++;
    return item;
}

/* Does the item wait for expression e now? */
static bool waits_for(const struct oracle *o, const struct item *item, rn_expr e, uint32_t *choice)
{
    const struct rn_grammar_node *node = &o->g->nodes[item->e];
    uint32_t i;

    *choice = 0;
    if (item->complete)
        return false;
    switch (node->kind) {
    case RN_GRAMMAR_CALL:
        return o->g->rules[node->a].body == e;
    case RN_GRAMMAR_SEQUENCE:
        return item->done < node->b && o->g->operands[node->a + item->done] == e;
    case RN_GRAMMAR_ALTERNATIVES:
        for (i = 0; i < node->b; i++)
            if (o->g->operands[node->a + i] == e)
                return true;
        return false;
    case RN_GRAMMAR_REPEAT:
        return node->a == e && (node->c == RN_GRAMMAR_FOREVER || item->done < node->c);
    default:
        return false;
    }
}

/* One item: what it predicts, whether it is complete. */
static bool expand(struct oracle *o, struct items *set, struct item item, uint32_t at)
{
    const struct rn_grammar_node *node = &o->g->nodes[item.e];
    bool changed = false, complete = false;
    uint32_t i;

    switch (node->kind) {
    case RN_GRAMMAR_EMPTY:
        complete = true;
        break;
    case RN_GRAMMAR_BYTES:
        complete = item.done == node->b;
        break;
    case RN_GRAMMAR_CALL:
        changed = predict(o, set, o->g->rules[node->a].body, at);
        break;
    case RN_GRAMMAR_SEQUENCE:
        complete = item.done == node->b;
        if (!complete)
            changed = predict(o, set, o->g->operands[node->a + item.done], at);
        break;
    case RN_GRAMMAR_ALTERNATIVES:
        for (i = 0; i < node->b; i++)
            changed = predict(o, set, o->g->operands[node->a + i], at) || changed;
        break;
    case RN_GRAMMAR_REPEAT:
        complete = item.done >= node->b;
        if (node->c == RN_GRAMMAR_FOREVER || item.done < node->c)
            changed = predict(o, set, node->a, at);
        break;
    default:
        break;
    }
    if (complete) {
        item.complete = true;
        item.done = 0;
        changed = put(set, item) || changed;
    }
    return changed;
}

/* A complete item lets those go on that waited for it where it began. */
static bool complete(struct oracle *o, uint32_t at, struct item item)
{
    struct items *from = &o->sets[item.from], *set = &o->sets[at];
    bool changed = false;
    uint32_t i, choice;

    for (i = 0; i < from->n; i++) {
        struct item waiting = from->items[i], next;
        const struct rn_grammar_node *node = &o->g->nodes[waiting.e];

        if (!waits_for(o, &waiting, item.e, &choice))
            continue;
        if (node->kind == RN_GRAMMAR_CALL || node->kind == RN_GRAMMAR_ALTERNATIVES) {
            next = waiting;
            next.complete = true;
        } else {
            next = advanced(waiting, node);
        }
        changed = put(set, next) || changed;
    }
    return changed;
}

/* Everything that follows at a place, until nothing new does: empty texts need no care of their own then. */
static void settle(struct oracle *o, uint32_t at)
{
    bool changed = true;
    uint32_t i;

    while (changed) {
        changed = false;
        for (i = 0; i < o->sets[at].n; i++) {
            struct item item = o->sets[at].items[i];

            if (item.complete)
                changed = complete(o, at, item) || changed;
            else
                changed = expand(o, &o->sets[at], item, at) || changed;
        }
    }
}

/* ---- Reading ---- */

static uint32_t add_place(struct oracle *o)
{
    if (o->n_sets == o->room_sets) {
        o->room_sets = o->room_sets == 0 ? 16 : o->room_sets * 2;
        o->sets = realloc(o->sets, o->room_sets * sizeof *o->sets);
    }
    o->sets[o->n_sets] = (struct items){0};
    return o->n_sets++;
}

static void drop_places(struct oracle *o, uint32_t n)
{
    while (o->n_sets > n)
        free(o->sets[--o->n_sets].items);
}

static void scan(struct oracle *o, uint32_t at, unsigned char byte)
{
    uint32_t i;

    for (i = 0; i < o->sets[at - 1].n; i++) {
        struct item item = o->sets[at - 1].items[i];
        const struct rn_grammar_node *node = &o->g->nodes[item.e];
        bool whole;

        if (item.complete)
            continue;
        if (node->kind == RN_GRAMMAR_BYTES && item.done < node->b &&
            (unsigned char)o->g->bytes[node->a + item.done] == byte) {
            item.done++;
            put(&o->sets[at], item);
        } else if (node->kind == RN_GRAMMAR_SET && item.done < 4) {
            item.part[item.done++] = byte;
            if (!begins_character(o->g, node, item.part, item.done, &whole))
                continue;
            if (whole)
                item = (struct item){.e = item.e, .from = item.from, .complete = true};
            put(&o->sets[at], item);
        }
    }
}

static bool names(const struct rn_grammar *g, const struct rn_grammar_node *node, int32_t token, bool text)
{
    uint32_t i;

    if (node->kind != RN_GRAMMAR_TOKENS && node->kind != RN_GRAMMAR_TOKENS_BUT)
        return false;
    for (i = 0; i < node->b && g->ids[node->a + i] != token; i++)
        ;
    return node->kind == RN_GRAMMAR_TOKENS ? i < node->b : i == node->b && text;
}

bool oracle_read(struct oracle *o, int32_t token, const char *bytes, size_t n, bool text)
{
    uint32_t begin = o->n_sets - 1, at = begin, i;
    size_t k;

    for (k = 0; text && k < n; k++) {
        at = add_place(o);
        scan(o, at, (unsigned char)bytes[k]);
        if (k + 1 < n)
            settle(o, at);
    }
    if (at == begin)
        at = add_place(o);
    for (i = 0; i < o->sets[begin].n; i++) {
        struct item item = o->sets[begin].items[i];

        if (item.complete || !names(o->g, &o->g->nodes[item.e], token, text))
            continue;
        item.complete = true;
        put(&o->sets[at], item);
    }
    settle(o, at);
    if (o->sets[at].n == 0) {
        drop_places(o, begin + 1);
        return false;
    }
    if (o->n_tokens == o->room_tokens) {
        o->room_tokens = o->room_tokens == 0 ? 16 : o->room_tokens * 2;
        o->tokens = realloc(o->tokens, o->room_tokens * sizeof *o->tokens);
    }
    o->tokens[o->n_tokens++] = begin;
    return true;
}

void oracle_unread(struct oracle *o)
{
    RN_CHECK(o->n_tokens > 0);
    drop_places(o, o->tokens[--o->n_tokens] + 1);
}

bool oracle_complete(const struct oracle *o)
{
    const struct items *set = &o->sets[o->n_sets - 1];
    rn_expr root = o->g->rules[o->g->root].body;
    uint32_t i;

    for (i = 0; i < set->n; i++)
        if (set->items[i].complete && set->items[i].e == root && set->items[i].from == 0)
            return true;
    return false;
}

bool oracle_possible(const struct oracle *o)
{
    return o->possible[o->g->rules[o->g->root].body];
}

struct oracle *oracle_new(const struct rn_grammar *grammar)
{
    struct oracle *o = calloc(1, sizeof *o);

    o->g = grammar;
    o->possible = calloc(grammar->n_nodes, sizeof *o->possible);
    find_possible(o);
    add_place(o);
    predict(o, &o->sets[0], grammar->rules[grammar->root].body, 0);
    settle(o, 0);
    return o;
}

void oracle_free(struct oracle *o)
{
    drop_places(o, 0);
    free(o->sets);
    free(o->possible);
    free(o->tokens);
    free(o);
}
