/* What the automaton relies on: see compile.h. After it
 *
 *   - no rule matches the empty text. A call of a rule that did has an empty edge beside it; the start of each rule has
 *     copies of the edges that lie behind its empty edges, and no empty edge of its own;
 *   - no rule can call itself before it has read a byte. Left recursion  a ::= a x | y  is  y x*: an edge from the end
 *     of the rule to where x begins. Where it goes through other rules, these are put in place first, one after the other
 *     (Paull's order; Aho, Sethi, Ullman, "Compilers", 1986, algorithm 4.1);
 *   - from each state the end can be reached, so that what has been matched can always be completed. */
#include <string.h>

#include "base/check.h"
#include "sampling/grammar/compile.h"

struct reduce {
    struct rn_compile *c;
    uint32_t *source;     /* [edges] state */
    uint32_t *call_first; /* [rules + 1] */
    uint32_t *calls;      /* edges that call a rule, by rule */
    uint32_t *owner;      /* [states] 1 + the rule whose end this is; 0: none */
    uint8_t *marked;      /* [states] */
    struct rn_numbers stack;
};

static void reduce_fini(struct reduce *r)
{
    struct rn_heap *heap = r->c->heap;

    rn_free(heap, r->source);
    rn_free(heap, r->call_first);
    rn_free(heap, r->calls);
    rn_free(heap, r->owner);
    rn_free(heap, r->marked);
    rn_numbers_fini(&r->stack, heap);
}

/* Lists the edges as they are now. False: refused. */
static bool reduce_init(struct reduce *r, struct rn_compile *c)
{
    uint32_t n_rules = c->grammar->n_rules, state, edge, i, sum = 0;

    *r = (struct reduce){.c = c};
    r->source = rn_calloc(c->heap, c->n_edges, sizeof *r->source);
    r->call_first = rn_calloc(c->heap, (size_t)n_rules + 2, sizeof *r->call_first);
    r->calls = rn_calloc(c->heap, c->n_edges, sizeof *r->calls);
    r->owner = rn_calloc(c->heap, c->n_states, sizeof *r->owner);
    r->marked = rn_calloc(c->heap, c->n_states, 1);
    if (r->source == NULL || r->call_first == NULL || r->calls == NULL || r->owner == NULL || r->marked == NULL)
        return rn_compile_fail_memory(c);
    for (state = 0; state < c->n_states; state++) {
        for (edge = c->first[state]; edge != 0; edge = c->edges[edge].next) {
            r->source[edge] = state;
            if (c->edges[edge].kind == RN_NFA_CALL)
                r->call_first[c->edges[edge].value + 1]++;
        }
    }
    for (i = 0; i <= n_rules; i++) {
        sum += r->call_first[i];
        r->call_first[i] = sum;
    }
    for (state = 0; state < c->n_states; state++)
        for (edge = c->first[state]; edge != 0; edge = c->edges[edge].next)
            if (c->edges[edge].kind == RN_NFA_CALL)
                r->calls[r->call_first[c->edges[edge].value]++] = edge;
    for (i = n_rules; i > 0; i--)
        r->call_first[i] = r->call_first[i - 1];
    r->call_first[0] = 0;
    for (i = 0; i < c->waiting.n; i++)
        r->owner[c->rules[c->waiting.items[i]].end] = c->waiting.items[i] + 1;
    return rn_compile_step(c, c->n_states + c->n_edges);
}

static void mark(struct reduce *r, uint32_t state)
{
    if (r->marked[state])
        return;
    r->marked[state] = 1;
    rn_numbers_add(r->c, &r->stack, state);
}

/* ---- Rules that match the empty text ---- */

/* From `state`, which the start reaches by the empty text. */
static void reach_empty(struct reduce *r, uint32_t state)
{
    struct rn_compile *c = r->c;
    uint32_t edge, rule, i;

    for (edge = c->first[state]; edge != 0; edge = c->edges[edge].next) {
        const struct rn_nfa_edge *e = &c->edges[edge];

        if (e->kind == RN_NFA_EMPTY || (e->kind == RN_NFA_CALL && c->rules[e->value].nullable))
            mark(r, e->target);
    }
    if (r->owner[state] == 0)
        return;
    rule = r->owner[state] - 1;
    c->rules[rule].nullable = true;
    for (i = r->call_first[rule]; i < r->call_first[rule + 1]; i++)
        if (r->marked[r->source[r->calls[i]]])
            mark(r, c->edges[r->calls[i]].target);
}

static bool find_nullable(struct rn_compile *c)
{
    struct reduce r;
    uint32_t i, k;

    if (reduce_init(&r, c)) {
        for (i = 0; i < c->waiting.n; i++)
            mark(&r, c->rules[c->waiting.items[i]].start);
        while (r.stack.n > 0 && rn_compile_step(c, 1))
            reach_empty(&r, r.stack.items[--r.stack.n]);
        for (i = 0; i < c->grammar->n_rules; i++)
            for (k = r.call_first[i]; c->rules[i].nullable && k < r.call_first[i + 1]; k++)
                rn_nfa_empty(c, r.source[r.calls[k]], c->edges[r.calls[k]].target);
    }
    reduce_fini(&r);
    return !rn_compile_failed(c);
}

/* Gives each start the edges behind its empty ones. */
static bool lift_starts(struct rn_compile *c)
{
    struct reduce r = {.c = c, .marked = rn_calloc(c->heap, c->n_states, 1)};
    struct rn_numbers seen = {0};
    uint32_t i, k;

    if (r.marked == NULL)
        return rn_compile_fail_memory(c);
    for (i = 0; i < c->waiting.n && !rn_compile_failed(c); i++) {
        uint32_t start = c->rules[c->waiting.items[i]].start, edge;

        mark(&r, start);
        for (seen.n = 0; r.stack.n > 0 && rn_compile_step(c, 1);) {
            uint32_t state = r.stack.items[--r.stack.n];

            rn_numbers_add(c, &seen, state);
            for (edge = c->first[state]; edge != 0; edge = c->edges[edge].next)
                if (c->edges[edge].kind == RN_NFA_EMPTY)
                    mark(&r, c->edges[edge].target);
        }
        c->first[start] = c->n_empty[start] = 0;
        for (k = 0; k < seen.n; k++) {
            r.marked[seen.items[k]] = 0;
            for (edge = c->first[seen.items[k]]; edge != 0 && seen.items[k] != start; edge = c->edges[edge].next)
                if (c->edges[edge].kind != RN_NFA_EMPTY && !rn_nfa_edge(c, start, c->edges[edge]))
                    break;
        }
    }
    rn_numbers_fini(&seen, c->heap);
    reduce_fini(&r);
    return !rn_compile_failed(c);
}

/* ---- Left recursion ---- */

/* Copies what lies behind the start of rule `from` into rule `into`: its edges come to that start, its end gets an
 * empty edge to each of targets. map[states]: copies, 0 where there is none. */
static bool put_in_place(struct rn_compile *c, uint32_t from, uint32_t into, const struct rn_numbers *targets,
                         uint32_t *map, uint32_t n_map)
{
    struct rn_numbers stack = {0}, copied = {0};
    uint32_t i, edge, end;

    rn_numbers_add(c, &stack, c->rules[from].start);
    map[c->rules[from].start] = c->rules[into].start;
    while (stack.n > 0 && !rn_compile_failed(c)) {
        uint32_t state = stack.items[--stack.n];

        rn_numbers_add(c, &copied, state);
        for (edge = c->first[state]; edge != 0; edge = c->edges[edge].next) {
            struct rn_nfa_edge copy = c->edges[edge];

            RN_CHECK(copy.target < n_map);
            if (map[copy.target] == 0) {
                map[copy.target] = rn_nfa_state(c);
                if (rn_compile_failed(c) || !rn_numbers_add(c, &stack, copy.target))
                    break;
            }
            copy.target = map[copy.target];
            if (!rn_nfa_edge(c, map[state], copy))
                break;
        }
    }
    end = map[c->rules[from].end];
    for (i = 0; i < targets->n && end != 0 && !rn_compile_failed(c); i++)
        rn_nfa_empty(c, end, targets->items[i]);
    for (i = 0; i < copied.n; i++)
        map[copied.items[i]] = 0;
    for (i = 0; i < stack.n; i++)
        map[stack.items[i]] = 0;
    rn_numbers_fini(&stack, c->heap);
    rn_numbers_fini(&copied, c->heap);
    return !rn_compile_failed(c);
}

/* Takes the edges that call `callee` off the rule's start; their targets into `targets`. */
static void take_calls(struct rn_compile *c, uint32_t rule, uint32_t callee, struct rn_numbers *targets)
{
    uint32_t *link = &c->first[c->rules[rule].start];

    targets->n = 0;
    while (*link != 0) {
        const struct rn_nfa_edge *edge = &c->edges[*link];

        if (edge->kind == RN_NFA_CALL && edge->value == callee) {
            rn_numbers_add(c, targets, edge->target);
            *link = edge->next;
        } else {
            link = &c->edges[*link].next;
        }
    }
}

/* A rule of the same component, before this one, that its start calls; UINT32_MAX: none. */
static uint32_t earlier_call(const struct rn_compile *c, uint32_t rule, const uint32_t *component,
                             const uint32_t *position)
{
    uint32_t edge;

    for (edge = c->first[c->rules[rule].start]; edge != 0; edge = c->edges[edge].next) {
        const struct rn_nfa_edge *e = &c->edges[edge];

        if (e->kind == RN_NFA_CALL && component[position[e->value]] == component[position[rule]] &&
            position[e->value] < position[rule])
            return e->value;
    }
    return UINT32_MAX;
}

static bool unwind(struct rn_compile *c, uint32_t rule, const uint32_t *component, const uint32_t *position)
{
    struct rn_numbers targets = {0};
    uint32_t callee, i;

    while (!rn_compile_failed(c) && (callee = earlier_call(c, rule, component, position)) != UINT32_MAX) {
        /* states of the copied rule are those that are there now */
        uint32_t n_map = c->n_states, *map = rn_calloc(c->heap, n_map, sizeof *map);

        if (map == NULL || !rn_compile_step(c, n_map)) {
            rn_free(c->heap, map);
            rn_compile_fail_memory(c);
            break;
        }
        take_calls(c, rule, callee, &targets);
        put_in_place(c, callee, rule, &targets, map, n_map);
        rn_free(c->heap, map);
    }
    take_calls(c, rule, rule, &targets);
    for (i = 0; i < targets.n && !rn_compile_failed(c); i++)
        rn_nfa_empty(c, c->rules[rule].end, targets.items[i]);
    rn_numbers_fini(&targets, c->heap);
    return !rn_compile_failed(c);
}

/* The graph of what rules call first, by positions in c->waiting; targets in `calls`. */
static bool first_calls(struct rn_compile *c, const uint32_t *position, uint32_t *first, struct rn_numbers *calls)
{
    uint32_t i, edge;

    for (i = 0; i < c->waiting.n; i++) {
        first[i] = calls->n;
        for (edge = c->first[c->rules[c->waiting.items[i]].start]; edge != 0; edge = c->edges[edge].next)
            if (c->edges[edge].kind == RN_NFA_CALL && !rn_numbers_add(c, calls, position[c->edges[edge].value]))
                return false;
    }
    first[c->waiting.n] = calls->n;
    return true;
}

static bool remove_left_recursion(struct rn_compile *c)
{
    uint32_t n = c->waiting.n, i;
    uint32_t *room = rn_calloc(c->heap, (size_t)2 * n + 1 + c->grammar->n_rules, sizeof *room);
    uint32_t *first = room, *component, *position;
    struct rn_numbers calls = {0};

    if (room == NULL)
        return rn_compile_fail_memory(c);
    component = first + n + 1;
    position = component + n;
    for (i = 0; i < n; i++)
        position[c->waiting.items[i]] = i;
    if (first_calls(c, position, first, &calls) && rn_compile_components(c, n, first, calls.items, component))
        for (i = 0; i < n && unwind(c, c->waiting.items[i], component, position); i++)
            ;
    rn_numbers_fini(&calls, c->heap);
    rn_free(c->heap, room);
    return !rn_compile_failed(c);
}

/* ---- What has no end ---- */

/* `back` lists edges by their targets: back[first[state]..first[state + 1]). */
static void reach_back(struct reduce *r, const uint32_t *first, const uint32_t *back, uint32_t state,
                       const uint32_t *start_of)
{
    struct rn_compile *c = r->c;
    uint32_t i;

    for (i = first[state]; i < first[state + 1]; i++) {
        const struct rn_nfa_edge *e = &c->edges[back[i]];

        if (e->kind != RN_NFA_CALL || r->marked[c->rules[e->value].start])
            mark(r, r->source[back[i]]);
    }
    if (start_of[state] == 0)
        return;
    for (i = r->call_first[start_of[state] - 1]; i < r->call_first[start_of[state]]; i++)
        if (r->marked[c->edges[r->calls[i]].target])
            mark(r, r->source[r->calls[i]]);
}

/* Drops edges into states that are not marked, and calls of rules whose start is not. */
static void drop_edges(struct reduce *r)
{
    struct rn_compile *c = r->c;
    uint32_t state;

    for (state = 0; state < c->n_states; state++) {
        uint32_t *link = &c->first[state];

        while (*link != 0) {
            const struct rn_nfa_edge *e = &c->edges[*link];

            if (r->marked[e->target] && (e->kind != RN_NFA_CALL || r->marked[c->rules[e->value].start]))
                link = &c->edges[*link].next;
            else
                *link = e->next;
        }
    }
}

static bool drop_endless(struct rn_compile *c)
{
    uint32_t *first = rn_calloc(c->heap, (size_t)c->n_states + 2, sizeof *first);
    uint32_t *back = rn_calloc(c->heap, (size_t)c->n_edges + 1, sizeof *back);
    uint32_t *start_of = rn_calloc(c->heap, (size_t)c->n_states + 1, sizeof *start_of);
    struct reduce r;
    uint32_t state, edge, i, sum = 0;

    if (first == NULL || back == NULL || start_of == NULL)
        rn_compile_fail_memory(c);
    if (reduce_init(&r, c) && !rn_compile_failed(c)) {
        for (state = 0; state < c->n_states; state++)
            for (edge = c->first[state]; edge != 0; edge = c->edges[edge].next)
                first[c->edges[edge].target + 1]++;
        for (state = 0; state <= c->n_states; state++) {
            sum += first[state];
            first[state] = sum;
        }
        for (state = 0; state < c->n_states; state++)
            for (edge = c->first[state]; edge != 0; edge = c->edges[edge].next)
                back[first[c->edges[edge].target]++] = edge;
        for (state = c->n_states; state > 0; state--)
            first[state] = first[state - 1];
        first[0] = 0;
        for (i = 0; i < c->waiting.n; i++) {
            start_of[c->rules[c->waiting.items[i]].start] = c->waiting.items[i] + 1;
            mark(&r, c->rules[c->waiting.items[i]].end);
        }
        while (r.stack.n > 0 && rn_compile_step(c, 1))
            reach_back(&r, first, back, r.stack.items[--r.stack.n], start_of);
        if (!rn_compile_failed(c)) {
            drop_edges(&r);
            if (!r.marked[c->rules[c->grammar->root].start] && !c->rules[c->grammar->root].nullable)
                rn_compile_fail(c, RUNNEL_FORMAT, "the grammar matches no text: none of its texts comes to an end");
        }
    }
    reduce_fini(&r);
    rn_free(c->heap, first);
    rn_free(c->heap, back);
    rn_free(c->heap, start_of);
    return !rn_compile_failed(c);
}

bool rn_compile_reduce(struct rn_compile *c)
{
    return find_nullable(c) && lift_starts(c) && remove_left_recursion(c) && drop_endless(c);
}
