/* Texts of expressions: for an expression and a place in the text all places where it may end, kept for the next time
 * it is asked for. See expr_match.h. */
#include "sampling/grammar/expr_match.h"

#include <string.h>

#include "base/utf8.h"
#include "sampling/grammar/code_points.h"

struct ends { /* ascending */
    uint32_t *at;
    uint32_t n, room;
};

struct kept {
    const struct kept *next;
    rn_expr e;
    uint32_t at;
    struct ends ends;
};

struct match {
    struct rn_arena *arena;
    const struct rn_grammar *g;
    const char *text;
    uint32_t n;
    const struct kept **table;
    uint32_t n_table;
};

static struct ends ends_of(struct match *m, rn_expr e, uint32_t at);

static void add_end(struct match *m, struct ends *ends, uint32_t at)
{
    uint32_t low = ends->n;

    rn_step(m->arena, 1);
    while (low > 0 && ends->at[low - 1] > at)
        low--;
    if (low > 0 && ends->at[low - 1] == at)
        return;
    if (ends->n == ends->room) {
        ends->at = rn_arena_grow(m->arena, ends->at, ends->n, 2 * ends->room + 4, sizeof *ends->at);
        ends->room = 2 * ends->room + 4;
    }
    memmove(ends->at + low + 1, ends->at + low, (ends->n - low) * sizeof *ends->at);
    ends->at[low] = at;
    ends->n++;
}

static bool has_end(const struct ends *ends, uint32_t at)
{
    for (uint32_t i = 0; i < ends->n; i++)
        if (ends->at[i] == at)
            return true;
    return false;
}

/* The ends of e from each of some places. */
static struct ends step_all(struct match *m, rn_expr e, struct ends from)
{
    struct ends to = {0};

    for (uint32_t i = 0; i < from.n; i++) {
        struct ends one = ends_of(m, e, from.at[i]);

        for (uint32_t k = 0; k < one.n; k++)
            add_end(m, &to, one.at[k]);
    }
    return to;
}

static struct ends of_repeat(struct match *m, const struct rn_grammar_node *node, uint32_t at)
{
    struct ends reached = {0}, all = {0};
    uint32_t times, i;

    add_end(m, &reached, at);
    for (times = 0; times < node->b && reached.n > 0; times++)
        reached = step_all(m, node->a, reached);
    for (i = 0; i < reached.n; i++)
        add_end(m, &all, reached.at[i]);
    for (; times < node->c && reached.n > 0; times++) {
        struct ends next = step_all(m, node->a, reached);

        reached = (struct ends){0};
        for (i = 0; i < next.n; i++) {
            if (has_end(&all, next.at[i]))
                continue; /* fewer times led there, and lead on at least as far */
            add_end(m, &all, next.at[i]);
            add_end(m, &reached, next.at[i]);
        }
    }
    return all;
}

static struct ends of_pair(struct match *m, const struct rn_grammar_node *node, uint32_t at)
{
    struct ends a = ends_of(m, node->a, at), b = ends_of(m, node->b, at), all = {0};

    for (uint32_t i = 0; i < a.n; i++)
        if (has_end(&b, a.at[i]) == (node->kind == RN_GRAMMAR_BOTH))
            add_end(m, &all, a.at[i]);
    return all;
}

static struct ends of_set(struct match *m, const struct rn_grammar_node *node, uint32_t at)
{
    struct ends all = {0};
    uint32_t bytes = rn_utf8_check_one(m->text + at, m->n - at), length;

    if (bytes > 0 && rn_code_points_have(m->g->ranges + node->a, node->b, rn_utf8_decode(m->text + at, &length)))
        add_end(m, &all, at + bytes);
    return all;
}

static struct ends compute(struct match *m, rn_expr e, uint32_t at)
{
    const struct rn_grammar_node *node = &m->g->nodes[e];
    struct ends all = {0};
    uint32_t i, k;

    switch (node->kind) {
    case RN_GRAMMAR_EMPTY:
        add_end(m, &all, at);
        break;
    case RN_GRAMMAR_BYTES:
        if (node->b <= m->n - at && memcmp(m->g->bytes + node->a, m->text + at, node->b) == 0)
            add_end(m, &all, at + node->b);
        break;
    case RN_GRAMMAR_SET:
        return at < m->n ? of_set(m, node, at) : all;
    case RN_GRAMMAR_CALL:
        return ends_of(m, m->g->rules[node->a].body, at);
    case RN_GRAMMAR_SEQUENCE:
        add_end(m, &all, at);
        for (i = 0; i < node->b && all.n > 0; i++)
            all = step_all(m, m->g->operands[node->a + i], all);
        break;
    case RN_GRAMMAR_ALTERNATIVES:
        for (i = 0; i < node->b; i++) {
            struct ends one = ends_of(m, m->g->operands[node->a + i], at);

            for (k = 0; k < one.n; k++)
                add_end(m, &all, one.at[k]);
        }
        break;
    case RN_GRAMMAR_REPEAT:
        return of_repeat(m, node, at);
    case RN_GRAMMAR_BOTH:
    case RN_GRAMMAR_WITHOUT:
        return of_pair(m, node, at);
    default:
        break;
    }
    return all;
}

static struct ends ends_of(struct match *m, rn_expr e, uint32_t at)
{
    uint64_t hash = ((uint64_t)e << 32 | at) * 0x9e3779b97f4a7c15u;
    const struct kept **place = &m->table[(hash >> 32) & (m->n_table - 1)], *old;
    struct kept *new;

    for (old = *place; old != NULL; old = old->next) {
        rn_step(m->arena, 1);
        if (old->e == e && old->at == at)
            return old->ends;
    }
    rn_enter(m->arena);
    new = rn_arena_take(m->arena, 1, sizeof *new);
    *new = (struct kept){NULL, e, at, compute(m, e, at)};
    rn_leave(m->arena);
    new->next = *place;
    *place = new;
    return new->ends;
}

bool rn_expr_matches(struct rn_arena *arena, const struct rn_grammar *grammar, rn_expr e, const char *text, size_t n)
{
    struct match m = {arena, grammar, text, (uint32_t)n, NULL, 64};
    struct ends ends;

    while (m.n_table < 16384 && m.n_table < 16 * n)
        m.n_table *= 2;
    m.table = rn_arena_take(arena, m.n_table, sizeof *m.table);
    memset(m.table, 0, m.n_table * sizeof *m.table);
    ends = ends_of(&m, e, 0);
    return has_end(&ends, (uint32_t)n);
}
