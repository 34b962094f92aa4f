/* The shape of a grammar's rules: which reach themselves, how large they are, and which are put in place of their
 * calls. A rule in place is part of the states around it, so that these are deterministic together; one that is called
 * has its states once, and what was found out about them serves every call. See compile.h. */
#include <string.h>

#include "base/check.h"
#include "sampling/grammar/compile.h"

#define WEIGHT_MOST 0x10000000u
#define SMALL_WEIGHT 24u     /* a rule that small costs less than a call of it: white space, digits, signs */
#define SHORT_WEIGHT 200u    /* one without loops is left within a token or two: in place, what follows is known */
#define COPIES_WEIGHT 60000u /* of all its copies together; states are made at some 10 million a second */
#define SINGLE_WEIGHT 50000u /* one that is called once, in one place */
#define HEIGHT_MOST 600u     /* recursion in nfa.c: 600 frames take some 100 KiB */

/* ---- Components of a graph: Tarjan's, without recursion ---- */

struct components {
    const uint32_t *first, *targets;
    uint32_t *component, *low, *depth, *at; /* at: the next edge of a node */
    uint32_t *path, *stack;
    uint32_t n_path, n_stack, n_visited, n_components;
};

static void enter(struct components *s, uint32_t node)
{
    s->depth[node] = s->low[node] = ++s->n_visited;
    s->at[node] = s->first[node];
    s->path[s->n_path++] = s->stack[s->n_stack++] = node;
}

static void leave(struct components *s, uint32_t node)
{
    uint32_t top;

    s->n_path--;
    if (s->n_path > 0 && s->low[node] < s->low[s->path[s->n_path - 1]])
        s->low[s->path[s->n_path - 1]] = s->low[node];
    if (s->low[node] != s->depth[node])
        return;
    do {
        top = s->stack[--s->n_stack];
        s->component[top] = s->n_components;
    } while (top != node);
    s->n_components++;
}

static void walk(struct components *s, uint32_t root)
{
    enter(s, root);
    while (s->n_path > 0) {
        uint32_t node = s->path[s->n_path - 1], target;

        if (s->at[node] == s->first[node + 1]) {
            leave(s, node);
            continue;
        }
        target = s->targets[s->at[node]++];
        if (s->depth[target] == 0)
            enter(s, target);
        else if (s->component[target] == UINT32_MAX && s->depth[target] < s->low[node])
            s->low[node] = s->depth[target];
    }
}

bool rn_compile_components(struct rn_compile *c, uint32_t n, const uint32_t *first, const uint32_t *targets,
                           uint32_t *component)
{
    uint32_t *room = rn_calloc(c->heap, n + 1, 5 * sizeof *room);
    struct components s = {.first = first, .targets = targets, .component = component};
    uint32_t i;

    if (room == NULL)
        return rn_compile_fail_memory(c);
    s.low = room;
    s.depth = room + n;
    s.at = room + 2 * (size_t)n;
    s.path = room + 3 * (size_t)n;
    s.stack = room + 4 * (size_t)n;
    for (i = 0; i < n; i++)
        component[i] = UINT32_MAX;
    for (i = 0; i < n; i++)
        if (s.depth[i] == 0)
            walk(&s, i);
    rn_free(c->heap, room);
    return rn_compile_step(c, n + first[n]);
}

/* ---- Calls ---- */

/* How a node was visited while a rule's calls are listed. */
enum { MANY = 1, ONCE = 2, TAIL = 4 };

static uint32_t times(uint64_t a, uint64_t b)
{
    return a * b > WEIGHT_MOST ? WEIGHT_MOST : (uint32_t)(a * b);
}

static uint32_t plus(uint64_t a, uint64_t b)
{
    return a + b > WEIGHT_MOST ? WEIGHT_MOST : (uint32_t)(a + b);
}

struct lister {
    struct rn_compile *c;
    struct rn_numbers calls;
    uint32_t *seen; /* [nodes] rule that was there last, and how: 8 × (1 + rule) + flags */
    uint32_t rule;
};

/* How often the operand of a repetition is made. */
static uint32_t copies_of(const struct rn_grammar_node *node)
{
    if (node->c != RN_GRAMMAR_FOREVER)
        return node->c;
    return node->b > 1 ? node->b : 1;
}

/* copies: how often the node is made for one of the rule. */
static void list_calls(struct lister *l, rn_expr e, uint32_t how, uint32_t copies)
{
    const struct rn_grammar *g = l->c->grammar;
    const struct rn_grammar_node *node = &g->nodes[e];
    uint32_t mark = (l->rule + 1) * 8, i;

    if ((l->seen[e] & ~7u) == mark) {
        how |= MANY; /* an expression in two places */
        if ((l->seen[e] & how) == how)
            return;
        mark |= l->seen[e] & 7;
    }
    l->seen[e] = mark | how;
    if (!rn_compile_step(l->c, 1))
        return;
    switch (node->kind) {
    case RN_GRAMMAR_CALL:
        if (node->a == l->rule && (how & TAIL)) {
            l->c->shapes[l->rule].calls_own_tail = true;
        } else {
            l->c->shapes[node->a].uses = plus(l->c->shapes[node->a].uses, how & MANY ? plus(copies, 1) : copies);
            rn_numbers_add(l->c, &l->calls, node->a);
        }
        break;
    case RN_GRAMMAR_SEQUENCE:
        for (i = 0; i < node->b; i++)
            list_calls(l, g->operands[node->a + i], i + 1 < node->b ? how & ~(uint32_t)TAIL : how, copies);
        break;
    case RN_GRAMMAR_ALTERNATIVES:
        for (i = 0; i < node->b; i++)
            list_calls(l, g->operands[node->a + i], how, copies);
        break;
    case RN_GRAMMAR_REPEAT:
        list_calls(l, node->a, node->c == 1 ? how : how & ~(uint32_t)TAIL, times(copies, copies_of(node)));
        break;
    case RN_GRAMMAR_BOTH:
    case RN_GRAMMAR_WITHOUT:
        list_calls(l, node->a, how & ~(uint32_t)TAIL, copies);
        list_calls(l, node->b, how & ~(uint32_t)TAIL, copies);
        break;
    default:
        break;
    }
}

/* ---- Weights ---- */

struct measure {
    uint32_t weight, height;
    bool loops;     /* its texts may be of any length */
    bool irregular; /* tokens, or calls of rules that are not in place */
};

static void join(struct measure *sum, struct measure part)
{
    sum->weight = plus(sum->weight, part.weight);
    sum->height = part.height > sum->height ? part.height : sum->height;
    sum->loops = sum->loops || part.loops;
    sum->irregular = sum->irregular || part.irregular;
}

/* known[nodes]: weight 0 is not yet known. Rules in place are known before those that call them. */
static struct measure measure_of(struct rn_compile *c, struct measure *known, rn_expr e)
{
    const struct rn_grammar *g = c->grammar;
    const struct rn_grammar_node *node = &g->nodes[e];
    struct measure sum = {1, 0, false, false};
    uint32_t i;

    if (known[e].weight > 0 || !rn_compile_step(c, 1))
        return known[e];
    switch (node->kind) {
    case RN_GRAMMAR_BYTES:
        sum.weight = node->b;
        break;
    case RN_GRAMMAR_SET:
        sum.weight = g->ranges[node->a + node->b - 1].last < 0x80 ? 1 : plus(3, times(node->b, 3));
        break;
    case RN_GRAMMAR_CALL:
        if (c->shapes[node->a].in_place) {
            const struct rn_rule_shape *shape = &c->shapes[node->a];

            join(&sum, (struct measure){shape->weight, shape->height, shape->loops, !shape->regular});
        } else {
            sum.loops = sum.irregular = true;
        }
        break;
    case RN_GRAMMAR_TOKENS:
    case RN_GRAMMAR_TOKENS_BUT:
        sum.irregular = true;
        break;
    case RN_GRAMMAR_SEQUENCE:
    case RN_GRAMMAR_ALTERNATIVES:
        for (i = 0; i < node->b; i++)
            join(&sum, measure_of(c, known, g->operands[node->a + i]));
        break;
    case RN_GRAMMAR_REPEAT:
        sum = measure_of(c, known, node->a);
        sum.weight = times(sum.weight, copies_of(node));
        sum.loops = sum.loops || node->c == RN_GRAMMAR_FOREVER;
        break;
    case RN_GRAMMAR_BOTH:
    case RN_GRAMMAR_WITHOUT:
        join(&sum, measure_of(c, known, node->a));
        join(&sum, measure_of(c, known, node->b));
        sum.weight = times(sum.weight, 2);
        break;
    default:
        break;
    }
    sum.height++;
    known[e] = sum;
    return sum;
}

static bool is_better_in_place(const struct rn_rule_shape *shape)
{
    if (shape->uses < 2)
        return shape->weight <= SINGLE_WEIGHT;
    return shape->weight <= (shape->loops ? SMALL_WEIGHT : SHORT_WEIGHT) &&
           times(shape->weight, shape->uses) <= COPIES_WEIGHT;
}

/* Sets in_place, weight and height of the rules in the order of their components: callees first. order[i] is a rule. */
static void judge(struct rn_compile *c, const uint32_t *order, struct measure *known)
{
    uint32_t i;

    for (i = 0; i < c->grammar->n_rules && !rn_compile_failed(c); i++) {
        struct rn_rule_shape *shape = &c->shapes[order[i]];
        struct measure measure = measure_of(c, known, c->grammar->rules[order[i]].body);

        shape->weight = measure.weight;
        shape->height = measure.height + 1;
        shape->loops = measure.loops || shape->calls_own_tail;
        shape->regular = !measure.irregular && !shape->recursive && shape->height <= HEIGHT_MOST;
        if (shape->regular && !shape->loops && shape->uses > 1 && shape->weight > SMALL_WEIGHT &&
            shape->weight <= SINGLE_WEIGHT && !rn_compile_copy(c, order[i]))
            return;
        if (shape->copy.n_states > 0)
            shape->weight = shape->copy.n_states;
        shape->in_place = !shape->recursive && shape->height <= HEIGHT_MOST && is_better_in_place(shape);
    }
}

/* Rules by their components; a component of several, or with an edge to itself, is recursive. */
static bool order_rules(struct rn_compile *c, const uint32_t *first, const uint32_t *targets, uint32_t *component,
                        uint32_t *order)
{
    uint32_t n = c->grammar->n_rules, i, k;
    uint32_t *count = rn_calloc(c->heap, n + 1, sizeof *count);

    if (count == NULL)
        return rn_compile_fail_memory(c);
    for (i = 0; i < n; i++)
        count[component[i]]++;
    for (i = 0; i < n; i++) {
        c->shapes[i].recursive = count[component[i]] > 1;
        for (k = first[i]; k < first[i + 1]; k++)
            c->shapes[i].recursive = c->shapes[i].recursive || targets[k] == i;
    }
    for (i = 0, k = 0; i < n; i++) {
        uint32_t rules = count[i];

        count[i] = k;
        k += rules;
    }
    for (i = 0; i < n; i++)
        order[count[component[i]]++] = i;
    rn_free(c->heap, count);
    return true;
}

bool rn_compile_shapes(struct rn_compile *c)
{
    const struct rn_grammar *g = c->grammar;
    uint32_t *first = rn_calloc(c->heap, (size_t)g->n_rules + 1, 3 * sizeof *first);
    struct measure *known = rn_calloc(c->heap, g->n_nodes, sizeof *known);
    struct lister l = {.c = c, .seen = rn_calloc(c->heap, g->n_nodes, sizeof *l.seen)};

    c->shapes = rn_calloc(c->heap, g->n_rules, sizeof *c->shapes);
    if (first == NULL || known == NULL || l.seen == NULL || c->shapes == NULL)
        rn_compile_fail_memory(c);
    for (l.rule = 0; l.rule < g->n_rules && !rn_compile_failed(c); l.rule++) {
        first[l.rule] = l.calls.n;
        list_calls(&l, g->rules[l.rule].body, ONCE | TAIL, 1);
    }
    if (!rn_compile_failed(c)) {
        uint32_t *component = first + g->n_rules + 1, *order = component + g->n_rules;

        first[g->n_rules] = l.calls.n;
        if (rn_compile_components(c, g->n_rules, first, l.calls.items, component) &&
            order_rules(c, first, l.calls.items, component, order))
            judge(c, order, known);
    }
    rn_numbers_fini(&l.calls, c->heap);
    rn_free(c->heap, l.seen);
    rn_free(c->heap, known);
    rn_free(c->heap, first);
    return !rn_compile_failed(c);
}
