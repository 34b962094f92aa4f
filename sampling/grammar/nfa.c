/* Expressions become states with edges: see compile.h. Each expression is made between two states; a loop has a state
 * of its own, so that nothing leads back into what stands before it. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "sampling/grammar/code_points.h"
#include "sampling/grammar/compile.h"

#define STEPS_PER_LOOK 65536 /* some two milliseconds */

bool rn_compile_fail(struct rn_compile *c, runnel_status status, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    rn_error_vset(&c->error, status, format, args); /* keeps the first */
    va_end(args);
    return false;
}

bool rn_compile_look(struct rn_compile *c)
{
    if (rn_interrupted(c->grammar->stop))
        return rn_compile_fail(c, RUNNEL_CANCELLED, "compiling was ended");
    c->look_at = c->steps > STEPS_PER_LOOK ? c->steps - STEPS_PER_LOOK : 0;
    return true;
}

bool rn_compile_fail_memory(struct rn_compile *c)
{
    return rn_compile_fail(c, RUNNEL_NO_MEMORY, "no memory for an automaton");
}

bool rn_compile_grow(struct rn_compile *c, void **items, uint32_t used, uint32_t *room, size_t size)
{
    uint32_t next = *room < 64 ? 64 : *room * 2;
    void *grown;

    if (rn_compile_failed(c))
        return false;
    if (used < *room)
        return true;
    if ((size_t)next * size > c->grammar->limits.bytes)
        return rn_compile_fail(c, RUNNEL_INVALID, "the grammar's automaton needs more than %zu bytes",
                               c->grammar->limits.bytes);
    grown = rn_realloc(c->heap, *items, next, size);
    if (grown == NULL)
        return rn_compile_fail_memory(c);
    *items = grown;
    *room = next;
    return true;
}

void rn_numbers_fini(struct rn_numbers *numbers, struct rn_heap *heap)
{
    rn_free(heap, numbers->items);
    *numbers = (struct rn_numbers){0};
}

/* ---- States and edges ---- */

uint32_t rn_nfa_state(struct rn_compile *c)
{
    if (c->n_states >= c->grammar->limits.states) {
        rn_compile_fail(c, RUNNEL_INVALID,
                        "the grammar has more than %u states; repetitions of large parts need the most",
                        c->grammar->limits.states);
        return 0;
    }
    if (!rn_compile_step(c, 1) ||
        !rn_compile_grow(c, (void **)&c->first, c->n_states, &c->room_states, sizeof *c->first) ||
        !rn_compile_grow(c, (void **)&c->n_empty, c->n_states, &c->room_empty, sizeof *c->n_empty))
        return 0;
    c->first[c->n_states] = c->n_empty[c->n_states] = 0;
    return c->n_states++;
}

bool rn_nfa_edge(struct rn_compile *c, uint32_t from, struct rn_nfa_edge edge)
{
    if (c->n_edges == 0)
        c->n_edges = 1; /* 0 is none */
    if (!rn_compile_step(c, 1) || !rn_compile_grow(c, (void **)&c->edges, c->n_edges, &c->room_edges, sizeof *c->edges))
        return false;
    edge.next = c->first[from];
    c->edges[c->n_edges] = edge;
    c->first[from] = c->n_edges++;
    c->n_empty[from] += edge.kind == RN_NFA_EMPTY;
    return true;
}

bool rn_nfa_empty(struct rn_compile *c, uint32_t from, uint32_t to)
{
    return rn_nfa_edge(c, from, (struct rn_nfa_edge){.kind = RN_NFA_EMPTY, .target = to});
}

static bool add_bytes(struct rn_compile *c, uint32_t from, uint8_t low, uint8_t high, uint32_t to)
{
    return rn_nfa_edge(c, from, (struct rn_nfa_edge){.kind = RN_NFA_BYTES, .low = low, .high = high, .target = to});
}

/* ---- Expressions ---- */

/* Where an expression is made: in which rule, and does nothing stand behind it there? */
struct place {
    uint32_t rule, start;
    bool tail;    /* a call of the rule itself is a way back to its start */
    bool regular; /* an operand of both or without */
};

static bool make(struct rn_compile *c, rn_expr e, uint32_t from, uint32_t to, struct place place);

static bool make_bytes(struct rn_compile *c, const struct rn_grammar_node *node, uint32_t from, uint32_t to)
{
    const unsigned char *bytes = (const unsigned char *)c->grammar->bytes + node->a;
    uint32_t i;

    for (i = 0; i + 1 < node->b && !rn_compile_failed(c); i++) {
        uint32_t next = rn_nfa_state(c);

        if (!rn_compile_failed(c))
            add_bytes(c, from, bytes[i], bytes[i], next);
        from = next;
    }
    return !rn_compile_failed(c) && add_bytes(c, from, bytes[i], bytes[i], to);
}

/* A set while it is made: runs come in order, and share the states of the bytes with which they begin. */
struct set_maker {
    uint32_t from;
    uint32_t tails[4]; /* tails[i]: from there i bytes 80..BF lead to the end; RN_NO_STATE: not yet made */
    struct rn_utf8_run last;
    uint32_t path[4]; /* path[i]: behind i bytes of the last run */
    uint32_t n_path;
};

/* So many bytes at the end are any of 80..BF, made once for all runs. */
static uint32_t make_tail(struct rn_compile *c, struct set_maker *m, const struct rn_utf8_run *run)
{
    uint32_t full = 0, i;

    while (full + 1 < run->n && run->low[run->n - 1 - full] == 0x80 && run->high[run->n - 1 - full] == 0xbf)
        full++;
    for (i = 1; i <= full && !rn_compile_failed(c); i++) {
        if (m->tails[i] != RN_NO_STATE)
            continue;
        m->tails[i] = rn_nfa_state(c);
        if (!rn_compile_failed(c))
            add_bytes(c, m->tails[i], 0x80, 0xbf, m->tails[i - 1]);
    }
    return full;
}

static bool make_run(struct rn_compile *c, struct set_maker *m, const struct rn_utf8_run *run)
{
    uint32_t full = make_tail(c, m, run), own = run->n - full, i = 0;

    m->path[0] = m->from;
    while (i + 1 < own && i + 1 < m->n_path && m->last.low[i] == run->low[i] && m->last.high[i] == run->high[i])
        i++;
    for (; i < own && !rn_compile_failed(c); i++) {
        uint32_t next = i + 1 == own ? m->tails[full] : rn_nfa_state(c);

        if (rn_compile_failed(c) || !add_bytes(c, m->path[i], run->low[i], run->high[i], next))
            return false;
        if (i + 1 < own)
            m->path[i + 1] = next;
    }
    m->last = *run;
    m->n_path = own;
    return !rn_compile_failed(c);
}

static bool make_set(struct rn_compile *c, const struct rn_grammar_node *node, uint32_t from, uint32_t to)
{
    struct set_maker m = {.from = from, .tails = {to, RN_NO_STATE, RN_NO_STATE, RN_NO_STATE}};
    uint32_t i;

    for (i = 0; i < node->b; i++) {
        struct rn_code_points range = c->grammar->ranges[node->a + i];
        struct rn_utf8_run run;

        while (range.first <= range.last) {
            rn_utf8_run_take(&range, &run);
            if (!make_run(c, &m, &run))
                return false;
        }
    }
    return true;
}

/* The rule's body between two states. */
static bool make_body(struct rn_compile *c, uint32_t rule, uint32_t from, uint32_t to, bool regular)
{
    struct place place = {rule, from, true, regular};

    if (c->shapes[rule].calls_own_tail) {
        place.start = rn_nfa_state(c);
        if (rn_compile_failed(c) || !rn_nfa_empty(c, from, place.start))
            return false;
    }
    return make(c, c->grammar->rules[rule].body, place.start, to, place);
}

/* The deterministic form of a rule, which was made before. */
static bool make_copy(struct rn_compile *c, const struct rn_rule_copy *copy, uint32_t from, uint32_t to)
{
    uint32_t base = c->n_states, i;

    for (i = 0; i < copy->n_states && !rn_compile_failed(c); i++)
        rn_nfa_state(c);
    for (i = 0; i < copy->n_edges && !rn_compile_failed(c); i++) {
        struct rn_copy_edge edge = c->copy_edges[copy->edge + i];

        add_bytes(c, base + edge.from, edge.low, edge.high, base + edge.to);
    }
    for (i = 0; i < copy->n_final && !rn_compile_failed(c); i++)
        rn_nfa_empty(c, base + c->copy_final.items[copy->final + i], to);
    return !rn_compile_failed(c) && rn_nfa_empty(c, from, base);
}

static bool keep_copy(struct rn_compile *c, struct rn_rule_copy *copy, uint32_t base)
{
    uint32_t i, k;

    *copy = (struct rn_rule_copy){.edge = c->n_copy_edges, .final = c->copy_final.n, .n_states = c->n_dfa - base};
    for (i = base; i < c->n_dfa; i++) {
        if (c->dfa[i].final && !rn_numbers_add(c, &c->copy_final, i - base))
            return false;
        for (k = 0; k < c->dfa[i].n_edges; k++) {
            struct rn_dfa_edge edge = c->dfa_edges[c->dfa[i].edge + k];

            if (!rn_compile_grow(c, (void **)&c->copy_edges, c->n_copy_edges, &c->room_copy_edges,
                                 sizeof *c->copy_edges))
                return false;
            c->copy_edges[c->n_copy_edges++] = (struct rn_copy_edge){i - base, edge.target - base, edge.low, edge.high};
        }
    }
    copy->n_edges = c->n_copy_edges - copy->edge;
    copy->n_final = c->copy_final.n - copy->final;
    return true;
}

bool rn_compile_copy(struct rn_compile *c, uint32_t rule)
{
    uint32_t n_states = c->n_states, n_edges = c->n_edges, start = rn_nfa_state(c), end = rn_nfa_state(c), base;
    bool made = !rn_compile_failed(c) && make_body(c, rule, start, end, false) &&
                rn_compile_dfa(c, start, end, &base) && keep_copy(c, &c->shapes[rule].copy, base);

    c->n_states = n_states;
    c->n_edges = n_edges;
    c->n_dfa = c->n_dfa_edges = c->n_calls = c->n_tokens = 0;
    return made;
}

/* A rule's body between two states, or on the list of those that are to be made, and an edge that calls it. */
static bool make_call(struct rn_compile *c, uint32_t rule, uint32_t from, uint32_t to, struct place place)
{
    const struct rn_rule_shape *shape = &c->shapes[rule];

    if (rule == place.rule && place.tail)
        return rn_nfa_empty(c, from, place.start);
    if (place.regular && (shape->recursive || shape->height > 600))
        return rn_compile_fail(c, RUNNEL_UNSUPPORTED,
                               "the rule \"%s\" stands where texts are compared, and reaches itself or too many others",
                               rn_grammar_rule_name(c->grammar, rule).text);
    if (shape->copy.n_states > 0 && (shape->in_place || place.regular))
        return make_copy(c, &shape->copy, from, to);
    if (shape->in_place || place.regular)
        return make_body(c, rule, from, to, place.regular);
    if (c->rules[rule].start == RN_NO_STATE) {
        c->rules[rule].start = rn_nfa_state(c);
        c->rules[rule].end = rn_nfa_state(c);
        if (!rn_numbers_add(c, &c->waiting, rule))
            return false;
    }
    return rn_nfa_edge(c, from, (struct rn_nfa_edge){.kind = RN_NFA_CALL, .value = rule, .target = to});
}

static bool make_sequence(struct rn_compile *c, const struct rn_grammar_node *node, uint32_t from, uint32_t to,
                          struct place place)
{
    uint32_t i;

    for (i = 0; i < node->b; i++) {
        bool last = i + 1 == node->b;
        uint32_t next = last ? to : rn_nfa_state(c);
        struct place inner = place;

        inner.tail = place.tail && last;
        if (rn_compile_failed(c) || !make(c, c->grammar->operands[node->a + i], from, next, inner))
            return false;
        from = next;
    }
    return true;
}

/* item+ from `from` to `to` */
static bool make_loop(struct rn_compile *c, rn_expr item, uint32_t from, uint32_t to, struct place place)
{
    uint32_t begin = rn_nfa_state(c), end = rn_nfa_state(c);

    return !rn_compile_failed(c) && rn_nfa_empty(c, from, begin) && make(c, item, begin, end, place) &&
           rn_nfa_empty(c, end, begin) && rn_nfa_empty(c, end, to);
}

/*     from ─item─▶ · ─item─▶ · ─item─▶ to        {1,3}
 *                  └─────────┴─────────▶ to                      */
static bool make_repeat(struct rn_compile *c, const struct rn_grammar_node *node, uint32_t from, uint32_t to,
                        struct place place)
{
    bool forever = node->c == RN_GRAMMAR_FOREVER;
    uint32_t copies = forever ? (node->b > 0 ? node->b - 1 : 0) : node->c, i;

    place.tail = place.tail && node->c == 1;
    for (i = 0; i < copies; i++) {
        uint32_t next = !forever && i + 1 == copies ? to : rn_nfa_state(c);

        if (rn_compile_failed(c) || (i >= node->b && !rn_nfa_empty(c, from, to)) ||
            !make(c, node->a, from, next, place))
            return false;
        from = next;
    }
    if (!forever)
        return true;
    return (node->b > 0 || rn_nfa_empty(c, from, to)) && make_loop(c, node->a, from, to, place);
}

static bool make_product(struct rn_compile *c, const struct rn_grammar_node *node, uint32_t from, uint32_t to,
                         struct place place)
{
    struct place inner = {place.rule, place.start, false, true};
    uint32_t start[2], end[2], dfa[2], i;

    for (i = 0; i < 2; i++) {
        start[i] = rn_nfa_state(c);
        end[i] = rn_nfa_state(c);
        if (rn_compile_failed(c) || !make(c, i == 0 ? node->a : node->b, start[i], end[i], inner))
            return false;
    }
    for (i = 0; i < 2; i++) /* behind the products in the operands, which make the same arrays empty */
        if (!rn_compile_dfa(c, start[i], end[i], &dfa[i]))
            return false;
    return rn_compile_product(c, dfa[0], dfa[1], node->kind == RN_GRAMMAR_WITHOUT, from, to);
}

static bool make(struct rn_compile *c, rn_expr e, uint32_t from, uint32_t to, struct place place)
{
    const struct rn_grammar_node *node = &c->grammar->nodes[e];
    uint32_t i;

    switch (node->kind) {
    case RN_GRAMMAR_EMPTY:
        return rn_nfa_empty(c, from, to);
    case RN_GRAMMAR_BYTES:
        return make_bytes(c, node, from, to);
    case RN_GRAMMAR_SET:
        return make_set(c, node, from, to);
    case RN_GRAMMAR_TOKENS:
    case RN_GRAMMAR_TOKENS_BUT:
        if (place.regular)
            return rn_compile_fail(c, RUNNEL_UNSUPPORTED, "a token stands where texts are compared");
        return rn_nfa_edge(c, from, (struct rn_nfa_edge){.kind = RN_NFA_TOKENS, .value = e, .target = to});
    case RN_GRAMMAR_CALL:
        return make_call(c, node->a, from, to, place);
    case RN_GRAMMAR_SEQUENCE:
        return make_sequence(c, node, from, to, place);
    case RN_GRAMMAR_ALTERNATIVES:
        for (i = 0; i < node->b; i++)
            if (!make(c, c->grammar->operands[node->a + i], from, to, place))
                return false;
        return rn_compile_step(c, 1);
    case RN_GRAMMAR_REPEAT:
        return make_repeat(c, node, from, to, place);
    case RN_GRAMMAR_BOTH:
    case RN_GRAMMAR_WITHOUT:
        return make_product(c, node, from, to, place);
    }
    return false;
}

bool rn_compile_nfa(struct rn_compile *c)
{
    const struct rn_grammar *g = c->grammar;
    uint32_t i;

    c->rules = rn_alloc(c->heap, g->n_rules, sizeof *c->rules);
    if (c->rules == NULL)
        return rn_compile_fail_memory(c);
    for (i = 0; i < g->n_rules; i++)
        c->rules[i] = (struct rn_nfa_rule){.start = RN_NO_STATE, .end = RN_NO_STATE};
    c->rules[g->root].start = rn_nfa_state(c);
    c->rules[g->root].end = rn_nfa_state(c);
    rn_numbers_add(c, &c->waiting, g->root);
    for (i = 0; !rn_compile_failed(c) && i < c->waiting.n; i++) {
        uint32_t rule = c->waiting.items[i], body = rn_nfa_state(c);
        struct place place = {rule, body, true, false};

        /* the start is a state that nothing leads back to */
        if (!rn_compile_failed(c) && rn_nfa_empty(c, c->rules[rule].start, body))
            make(c, g->rules[rule].body, body, c->rules[rule].end, place);
    }
    return !rn_compile_failed(c);
}
