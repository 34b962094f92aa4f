/* Making automata: see automaton.h. The passes before this are in compile.h; here states that do the same become one,
 * and the arrays are laid out. */
#include "sampling/grammar/automaton.h"

#include <string.h>

#include "base/check.h"
#include "sampling/grammar/compile.h"

/* ---- States that do the same ---- */

/* One state for each: by what they read and where that leads, callees of an edge before its source. States in loops
 * stay as they are: to join them would take time that grows with the square of their number. */
struct joiner {
    struct rn_compile *c;
    uint32_t *same;  /* [dfa] the state that stands for it; RN_NO_STATE: not yet known */
    uint32_t *child; /* [dfa] 1 + the next target while it is open */
    uint32_t *slots; /* 1 + state */
    uint32_t n_slots;
    struct rn_numbers path;
};

static uint32_t target_of(const struct rn_compile *c, const struct rn_dfa_state *state, uint32_t i)
{
    if (i < state->n_edges)
        return c->dfa_edges[state->edge + i].target;
    i -= state->n_edges;
    if (i < state->n_calls)
        return c->calls[state->call + i].target;
    i -= state->n_calls;
    return i < state->n_tokens ? c->tokens[state->token + i].target : RN_NO_STATE;
}

static uint32_t joined(const struct joiner *j, uint32_t state)
{
    return j->same[state] != RN_NO_STATE ? j->same[state] : state;
}

/* A loop to the state itself is the same in all. */
static uint32_t joined_from(const struct joiner *j, uint32_t from, uint32_t to)
{
    return from == to ? RN_NO_STATE : joined(j, to);
}

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

static uint32_t hash_state(const struct joiner *j, uint32_t id)
{
    const struct rn_compile *c = j->c;
    const struct rn_dfa_state *state = &c->dfa[id];
    uint64_t hash = state->final;
    uint32_t i;

    for (i = 0; i < state->n_edges; i++) {
        const struct rn_dfa_edge *edge = &c->dfa_edges[state->edge + i];

        hash = mix(hash, (uint64_t)edge->low << 40 | (uint64_t)edge->high << 32 | joined_from(j, id, edge->target));
    }
    for (i = 0; i < state->n_calls; i++)
        hash = mix(hash, (uint64_t)c->calls[state->call + i].value << 32 |
                             joined_from(j, id, c->calls[state->call + i].target));
    for (i = 0; i < state->n_tokens; i++)
        hash = mix(hash, (uint64_t)c->tokens[state->token + i].value << 32 |
                             joined_from(j, id, c->tokens[state->token + i].target));
    return (uint32_t)(hash >> 32);
}

static bool equal_states(const struct joiner *j, uint32_t a, uint32_t b)
{
    const struct rn_compile *c = j->c;
    const struct rn_dfa_state *x = &c->dfa[a], *y = &c->dfa[b];
    uint32_t i;

    if (x->final != y->final || x->n_edges != y->n_edges || x->n_calls != y->n_calls || x->n_tokens != y->n_tokens)
        return false;
    for (i = 0; i < x->n_edges; i++)
        if (c->dfa_edges[x->edge + i].low != c->dfa_edges[y->edge + i].low ||
            c->dfa_edges[x->edge + i].high != c->dfa_edges[y->edge + i].high)
            return false;
    for (i = 0; i < x->n_calls; i++)
        if (c->calls[x->call + i].value != c->calls[y->call + i].value)
            return false;
    for (i = 0; i < x->n_tokens; i++)
        if (c->tokens[x->token + i].value != c->tokens[y->token + i].value)
            return false;
    for (i = 0; i < x->n_edges + x->n_calls + x->n_tokens; i++)
        if (joined_from(j, a, target_of(c, x, i)) != joined_from(j, b, target_of(c, y, i)))
            return false;
    return true;
}

/* All behind it is known, but for what leads back into the path. */
static void join_state(struct joiner *j, uint32_t id)
{
    uint32_t at = hash_state(j, id) & (j->n_slots - 1);

    for (; j->slots[at] != 0; at = (at + 1) & (j->n_slots - 1)) {
        if (!equal_states(j, j->slots[at] - 1, id))
            continue;
        j->same[id] = j->slots[at] - 1;
        return;
    }
    j->slots[at] = id + 1;
    j->same[id] = id;
}

static bool join_from(struct joiner *j, uint32_t start)
{
    struct rn_compile *c = j->c;

    if (j->same[start] != RN_NO_STATE)
        return true;
    j->child[start] = 1;
    rn_numbers_add(c, &j->path, start);
    while (j->path.n > 0 && rn_compile_step(c, 1)) {
        uint32_t id = j->path.items[j->path.n - 1];
        uint32_t target = target_of(c, &c->dfa[id], j->child[id]++ - 1);

        if (target == RN_NO_STATE) {
            j->path.n--;
            join_state(j, id);
        } else if (j->same[target] == RN_NO_STATE && j->child[target] == 0) {
            j->child[target] = 1;
            rn_numbers_add(c, &j->path, target);
        }
    }
    return !rn_compile_failed(c);
}

/* A state that was open when another looked at it may since have been joined to a third; following `same` once more
 * ends at a state that stands for itself. */
static uint32_t representative(const struct joiner *j, uint32_t id)
{
    while (j->same[id] != id)
        id = j->same[id];
    return id;
}

/* ---- Layout ---- */

struct layout {
    struct joiner joiner;
    struct rn_automaton *a;
    const uint32_t *starts;  /* [rules] states of the dfa */
    uint32_t *number;        /* [dfa] 1 + state of the automaton; 0: none yet */
    struct rn_numbers order; /* states of the dfa, by their numbers */
    uint32_t *set_of;        /* [nodes] 1 + set */
};

static uint32_t number_of(struct layout *l, uint32_t id)
{
    id = representative(&l->joiner, id);
    if (l->number[id] == 0 && rn_numbers_add(l->joiner.c, &l->order, id))
        l->number[id] = l->order.n;
    return l->number[id] - 1;
}

static bool number_states(struct layout *l)
{
    struct rn_compile *c = l->joiner.c;
    uint32_t i, k, target;

    number_of(l, l->starts[c->grammar->root]);
    for (i = 0; i < l->order.n && rn_compile_step(c, 1); i++) {
        const struct rn_dfa_state *state = &c->dfa[l->order.items[i]];

        for (k = 0; k < state->n_calls; k++)
            number_of(l, l->starts[c->calls[state->call + k].value]);
        for (k = 0; (target = target_of(c, state, k)) != RN_NO_STATE; k++)
            number_of(l, target);
        l->a->n_edges += state->n_edges;
        l->a->n_calls += state->n_calls;
        l->a->n_tokens += state->n_tokens;
    }
    l->a->n_states = l->order.n;
    return !rn_compile_failed(c);
}

static bool take_room(struct layout *l)
{
    struct rn_automaton *a = l->a;
    struct rn_compile *c = l->joiner.c;
    const struct rn_grammar *g = c->grammar;

    a->states = rn_alloc(a->heap, (size_t)a->n_states + 1, sizeof *a->states);
    a->edges = rn_alloc(a->heap, a->n_edges, sizeof *a->edges);
    a->calls = rn_alloc(a->heap, a->n_calls, sizeof *a->calls);
    a->tokens = rn_alloc(a->heap, a->n_tokens, sizeof *a->tokens);
    a->sets = rn_alloc(a->heap, a->n_tokens, sizeof *a->sets);
    a->ids = rn_alloc(a->heap, g->n_ids, sizeof *a->ids);
    a->bytes = sizeof *a + ((size_t)a->n_states + 1) * sizeof *a->states + a->n_edges * sizeof *a->edges +
               a->n_calls * sizeof *a->calls + a->n_tokens * (sizeof *a->tokens + sizeof *a->sets) +
               g->n_ids * sizeof *a->ids;
    if (a->states == NULL || a->edges == NULL || a->calls == NULL || a->tokens == NULL || a->sets == NULL ||
        a->ids == NULL)
        return rn_compile_fail_memory(c);
    if (a->bytes > g->limits.bytes)
        return rn_compile_fail(c, RUNNEL_INVALID, "the grammar's automaton needs more than %zu bytes", g->limits.bytes);
    if (g->n_ids > 0)
        memcpy(a->ids, g->ids, g->n_ids * sizeof *a->ids);
    a->n_ids = g->n_ids;
    return true;
}

static uint32_t number_set(struct layout *l, uint32_t node)
{
    const struct rn_grammar_node *from = &l->joiner.c->grammar->nodes[node];

    if (l->set_of[node] == 0) {
        l->a->sets[l->a->n_sets] = (struct rn_automaton_set){from->a, from->b, from->kind == RN_GRAMMAR_TOKENS_BUT};
        l->set_of[node] = ++l->a->n_sets;
    }
    return l->set_of[node] - 1;
}

static void lay_out_state(struct layout *l, const struct rn_dfa_state *state)
{
    struct rn_compile *c = l->joiner.c;
    struct rn_automaton *a = l->a;
    uint32_t k;

    for (k = 0; k < state->n_edges; k++) {
        const struct rn_dfa_edge *edge = &c->dfa_edges[state->edge + k];

        a->edges[a->n_edges++] = (struct rn_automaton_edge){number_of(l, edge->target), edge->low, edge->high};
    }
    for (k = 0; k < state->n_calls; k++) {
        const struct rn_dfa_step *call = &c->calls[state->call + k];
        const struct rn_dfa_state *target = &c->dfa[representative(&l->joiner, call->target)];

        a->calls[a->n_calls++] = (struct rn_automaton_call){.start = number_of(l, l->starts[call->value]),
                                                            .target = number_of(l, call->target),
                                                            .last = target->final && target->n_edges == 0 &&
                                                                    target->n_calls == 0 && target->n_tokens == 0};
    }
    for (k = 0; k < state->n_tokens; k++) {
        const struct rn_dfa_step *token = &c->tokens[state->token + k];

        a->tokens[a->n_tokens++] =
            (struct rn_automaton_token){number_set(l, token->value), number_of(l, token->target)};
    }
}

static bool lay_out(struct layout *l)
{
    struct rn_automaton *a = l->a;
    uint32_t i;

    if (!number_states(l) || !take_room(l))
        return false;
    a->n_edges = a->n_calls = a->n_tokens = 0;
    for (i = 0; i < a->n_states; i++) {
        const struct rn_dfa_state *state = &l->joiner.c->dfa[l->order.items[i]];

        a->states[i] = (struct rn_automaton_state){a->n_edges, a->n_calls, a->n_tokens, state->final};
        lay_out_state(l, state);
    }
    a->states[i] = (struct rn_automaton_state){a->n_edges, a->n_calls, a->n_tokens, false};
    a->start = 0;
    return true;
}

/* Where a class of bytes begins whatever the grammar: controls, what JSON escapes, and the bytes that UTF-8 tells
 * apart. So plain text (token_trie.h) is made of whole classes. */
static const uint8_t class_starts[] = {0x00, 0x20, 0x22, 0x23, 0x5c, 0x5d, 0x7f, 0x80, 0x90, 0xa0,
                                       0xc0, 0xc2, 0xe0, 0xe1, 0xed, 0xee, 0xf0, 0xf1, 0xf4, 0xf5};

static void make_classes(struct rn_automaton *a)
{
    bool begins[257] = {false};
    uint32_t i;

    for (i = 0; i < sizeof class_starts; i++)
        begins[class_starts[i]] = true;
    for (i = 0; i < a->n_edges; i++)
        begins[a->edges[i].low] = begins[a->edges[i].high + 1] = true;
    for (i = 0; i < 256; i++) {
        if (begins[i])
            a->byte_of[a->n_classes++] = (uint8_t)i;
        a->class_of[i] = (uint8_t)(a->n_classes - 1);
    }
}

/* ---- All of it ---- */

/* The deterministic states of each rule that is called; starts[rules] gets their first ones. */
static bool determinise(struct rn_compile *c, uint32_t *starts)
{
    uint32_t i, rule;

    c->n_dfa = c->n_dfa_edges = c->n_calls = c->n_tokens = 0;
    for (i = 0; i < c->waiting.n; i++) {
        rule = c->waiting.items[i];
        if (!rn_compile_dfa(c, c->rules[rule].start, c->rules[rule].end, &starts[rule]))
            return false;
    }
    return true;
}

static bool finish(struct rn_compile *c, struct rn_automaton *a, uint32_t *starts)
{
    struct layout l = {.joiner = {.c = c}, .a = a, .starts = starts};
    struct joiner *j = &l.joiner;
    uint32_t i;

    for (j->n_slots = 64; j->n_slots < c->n_dfa * 2; j->n_slots *= 2)
        ;
    j->same = rn_alloc(c->heap, c->n_dfa, sizeof *j->same);
    j->child = rn_calloc(c->heap, c->n_dfa, sizeof *j->child);
    j->slots = rn_calloc(c->heap, j->n_slots, sizeof *j->slots);
    l.number = rn_calloc(c->heap, c->n_dfa, sizeof *l.number);
    l.set_of = rn_calloc(c->heap, c->grammar->n_nodes, sizeof *l.set_of);
    if (j->same == NULL || j->child == NULL || j->slots == NULL || l.number == NULL || l.set_of == NULL) {
        rn_compile_fail_memory(c);
    } else {
        memset(j->same, 0xff, c->n_dfa * sizeof *j->same);
        for (i = 0; i < c->waiting.n && join_from(j, starts[c->waiting.items[i]]); i++)
            ;
        if (!rn_compile_failed(c) && lay_out(&l))
            make_classes(a);
    }
    rn_free(c->heap, j->same);
    rn_free(c->heap, j->child);
    rn_free(c->heap, j->slots);
    rn_free(c->heap, l.number);
    rn_free(c->heap, l.set_of);
    rn_numbers_fini(&j->path, c->heap);
    rn_numbers_fini(&l.order, c->heap);
    return !rn_compile_failed(c);
}

static void compile_fini(struct rn_compile *c)
{
    rn_free(c->heap, c->shapes);
    rn_free(c->heap, c->rules);
    rn_numbers_fini(&c->waiting, c->heap);
    rn_free(c->heap, c->copy_edges);
    rn_numbers_fini(&c->copy_final, c->heap);
    rn_free(c->heap, c->first);
    rn_free(c->heap, c->n_empty);
    rn_free(c->heap, c->edges);
    rn_free(c->heap, c->dfa);
    rn_free(c->heap, c->dfa_edges);
    rn_free(c->heap, c->calls);
    rn_free(c->heap, c->tokens);
    rn_subset_free(c->subset, c->heap);
}

/* The grammar matches no text. Which of its expressions with a reason does not, either? Compiles each alone, with the
 * steps that are left, and tells the first. */
static void find_reason(struct rn_compile *c)
{
    const struct rn_grammar *g = c->grammar;
    struct rn_grammar part = *g;
    bool searching = g->n_reasons > 0;
    uint32_t i;

    part.rules = searching ? rn_alloc(c->heap, (size_t)g->n_rules + 1, sizeof *part.rules) : NULL;
    if (part.rules == NULL)
        return;
    memcpy(part.rules, g->rules, g->n_rules * sizeof *g->rules);
    part.root = part.n_rules++;
    for (i = 0; i < g->n_reasons && searching; i++) {
        struct rn_compile one = {.heap = c->heap, .grammar = &part, .steps = c->steps, .look_at = c->look_at};

        part.rules[part.root] = (struct rn_grammar_rule){.body = g->reasons[i].e};
        searching = rn_compile_shapes(&one) && rn_compile_nfa(&one) && rn_compile_reduce(&one);
        c->steps = one.steps;
        c->look_at = one.look_at;
        if (one.error.status == RUNNEL_FORMAT) {
            c->error.status = RUNNEL_OK;
            rn_compile_fail(c, RUNNEL_FORMAT, "the grammar matches no text: %s", g->bytes + g->reasons[i].text);
        }
        compile_fini(&one);
    }
    rn_free(c->heap, part.rules);
}

runnel_status rn_automaton_new(struct rn_heap *heap, const struct rn_grammar *grammar, struct rn_automaton **out,
                               runnel_error *error)
{
    struct rn_compile c = {.heap = heap,
                           .grammar = grammar,
                           .steps = grammar->limits.steps,
                           .look_at = grammar->stop != NULL ? grammar->limits.steps : 0};
    struct rn_automaton *a = rn_calloc(heap, 1, sizeof *a);
    uint32_t *starts = rn_calloc(heap, grammar->n_rules, sizeof *starts);

    *out = NULL;
    RN_CHECK(grammar->finished && !rn_grammar_failed(grammar));
    if (a != NULL)
        a->heap = heap;
    if (a == NULL || starts == NULL)
        rn_compile_fail_memory(&c);
    if (!rn_compile_failed(&c) && rn_compile_shapes(&c) && rn_compile_nfa(&c) && rn_compile_reduce(&c) &&
        determinise(&c, starts) && finish(&c, a, starts)) {
        a->empty = c.rules[grammar->root].nullable;
        *out = a;
    } else {
        rn_automaton_free(a);
        if (c.error.status == RUNNEL_FORMAT)
            find_reason(&c);
        if (error != NULL && error->status == RUNNEL_OK)
            *error = c.error;
    }
    rn_free(heap, starts);
    compile_fini(&c);
    return c.error.status;
}

void rn_automaton_free(struct rn_automaton *a)
{
    struct rn_heap *heap = a != NULL ? a->heap : NULL;

    if (a == NULL)
        return;
    rn_free(heap, a->states);
    rn_free(heap, a->edges);
    rn_free(heap, a->calls);
    rn_free(heap, a->tokens);
    rn_free(heap, a->sets);
    rn_free(heap, a->ids);
    rn_free(heap, a);
}

bool rn_automaton_set_has(const struct rn_automaton *a, uint32_t set, int32_t token, bool text)
{
    const struct rn_automaton_set *s = &a->sets[set];
    uint32_t low = s->at, high = s->at + s->n;

    if (s->but && !text)
        return false;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (a->ids[middle] < token)
            low = middle + 1;
        else
            high = middle;
    }
    return (low < s->at + s->n && a->ids[low] == token) != s->but;
}

void rn_automaton_check(const struct rn_automaton *a)
{
    uint32_t i, k;

    RN_CHECK(a->n_states > 0 && a->start < a->n_states && a->n_classes > 0 && a->n_classes <= 256);
    RN_CHECK(a->states[0].edge == 0 && a->states[0].call == 0 && a->states[0].token == 0);
    RN_CHECK(a->states[a->n_states].edge == a->n_edges && a->states[a->n_states].call == a->n_calls &&
             a->states[a->n_states].token == a->n_tokens);
    for (i = 0; i < a->n_states; i++) {
        const struct rn_automaton_state *state = &a->states[i];

        RN_CHECK(state[0].edge <= state[1].edge && state[0].call <= state[1].call && state[0].token <= state[1].token);
        for (k = state[0].edge; k < state[1].edge; k++)
            RN_CHECK(a->edges[k].target < a->n_states && a->edges[k].low <= a->edges[k].high &&
                     (k == state[0].edge || a->edges[k - 1].high < a->edges[k].low));
    }
    for (k = 0; k < a->n_calls; k++)
        RN_CHECK(a->calls[k].start < a->n_states && a->calls[k].target < a->n_states);
    for (k = 0; k < a->n_tokens; k++)
        RN_CHECK(a->tokens[k].set < a->n_sets && a->tokens[k].target < a->n_states);
    for (k = 0; k < a->n_sets; k++)
        RN_CHECK((uint64_t)a->sets[k].at + a->sets[k].n <= a->n_ids);
    for (i = 0; i < 256; i++)
        RN_CHECK(a->class_of[i] < a->n_classes && a->byte_of[a->class_of[i]] <= i);
}
