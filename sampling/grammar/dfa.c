/* Sets of states become one state: see compile.h. The sets are read by bytes and, like bytes, by calls and tokens, so
 * that a rule is in one state of its own however it was written.
 *
 * A set is closed under empty edges, and has only states that something can be read from, and the end. */
#include <string.h>

#include "base/check.h"
#include "sampling/grammar/compile.h"

#define FEW 16u /* edges that are looked at one by one for each byte: as fast as tables of all bytes */

struct key {
    uint32_t at, n; /* members[at..at + n), ascending */
    uint32_t hash;
};

struct wide_edge {
    uint8_t low, high;
    uint32_t target;
};

/* What the closure of one state alone has become: most edges lead to one state, and many to the same. */
struct lone {
    uint32_t round, state;
};

struct rn_subset {
    struct rn_numbers members;
    struct key *keys; /* of the states made now: key i is of state base + i */
    uint32_t *slots;  /* [room_slots] 1 + key; 0: free */
    uint32_t n_slots; /* in use; a power of two */
    uint32_t room_slots;
    uint32_t n_keys, room_keys;
    uint32_t *stamps; /* [room_stamps] states: seen in round `stamp` */
    uint32_t room_stamps, stamp;
    struct lone *lone; /* [room_stamps] */
    uint32_t round;    /* of rn_compile_dfa */
    struct rn_numbers stack, set, targets;
    struct rn_numbers wide; /* edges of more than one byte */
    struct wide_edge *edges;
    uint32_t n_edges, room_edges;
    struct rn_dfa_step *steps; /* calls and tokens of the set at hand */
    uint32_t n_steps, room_steps;
};

void rn_subset_free(struct rn_subset *s, struct rn_heap *heap)
{
    if (s == NULL)
        return;
    rn_numbers_fini(&s->members, heap);
    rn_numbers_fini(&s->stack, heap);
    rn_numbers_fini(&s->set, heap);
    rn_numbers_fini(&s->targets, heap);
    rn_numbers_fini(&s->wide, heap);
    rn_free(heap, s->keys);
    rn_free(heap, s->slots);
    rn_free(heap, s->stamps);
    rn_free(heap, s->lone);
    rn_free(heap, s->edges);
    rn_free(heap, s->steps);
    rn_free(heap, s);
}

/* So many slots, with the keys there are. Few to begin with: a small rule behind a large one does not pay for it. */
static bool set_slots(struct rn_compile *c, uint32_t n)
{
    struct rn_subset *s = c->subset;
    uint32_t i, at;

    if (n > s->room_slots) {
        rn_free(c->heap, s->slots);
        s->room_slots = 0;
        s->slots = rn_alloc(c->heap, n, sizeof *s->slots);
        if (s->slots == NULL)
            return rn_compile_fail_memory(c);
        s->room_slots = n;
    }
    memset(s->slots, 0, n * sizeof *s->slots);
    s->n_slots = n;
    for (i = 0; i < s->n_keys; i++) {
        for (at = s->keys[i].hash & (n - 1); s->slots[at] != 0; at = (at + 1) & (n - 1))
            ;
        s->slots[at] = i + 1;
    }
    return true;
}

static bool subset_init(struct rn_compile *c)
{
    struct rn_subset *s = c->subset;

    if (s == NULL)
        s = c->subset = rn_calloc(c->heap, 1, sizeof *s);
    if (s == NULL)
        return rn_compile_fail_memory(c);
    if (s->room_stamps < c->n_states) {
        rn_free(c->heap, s->stamps);
        rn_free(c->heap, s->lone);
        s->room_stamps = 0;
        s->stamp = s->round = 0;
        s->stamps = rn_calloc(c->heap, (size_t)c->n_states * 2, sizeof *s->stamps);
        s->lone = rn_calloc(c->heap, (size_t)c->n_states * 2, sizeof *s->lone);
        if (s->stamps == NULL || s->lone == NULL)
            return rn_compile_fail_memory(c);
        s->room_stamps = c->n_states * 2;
    }
    s->n_keys = s->members.n = 0;
    if (!set_slots(c, 64))
        return false;
    if (++s->round == 0) {
        memset(s->lone, 0, s->room_stamps * sizeof *s->lone);
        s->round = 1;
    }
    return true;
}

/* ---- Sets ---- */

static void sort_numbers(uint32_t *items, uint32_t n)
{
    uint32_t gap, i, k;

    for (gap = 1; gap < n / 3;
         gap = gap * 3 + 1) /* Shell's sort, by Knuth's gaps: sets are short and nearly in order */
        ;
    for (; gap > 0; gap /= 3) {
        for (i = gap; i < n; i++) {
            uint32_t item = items[i];

            for (k = i; k >= gap && items[k - gap] > item; k -= gap)
                items[k] = items[k - gap];
            items[k] = item;
        }
    }
}

/* The closure of s->targets into s->set. */
static bool close_set(struct rn_compile *c, uint32_t end)
{
    struct rn_subset *s = c->subset;
    uint32_t i, n, edge;

    if (++s->stamp == 0) {
        memset(s->stamps, 0, s->room_stamps * sizeof *s->stamps);
        s->stamp = 1;
    }
    s->set.n = 0;
    s->stack.n = 0;
    for (i = 0; i < s->targets.n; i++)
        if (!rn_numbers_add(c, &s->stack, s->targets.items[i]))
            return false;
    while (s->stack.n > 0) {
        uint32_t state = s->stack.items[--s->stack.n];
        bool reads = state == end;

        if (s->stamps[state] == s->stamp)
            continue;
        s->stamps[state] = s->stamp;
        edge = c->first[state];
        for (n = c->n_empty[state]; n > 0 && edge != 0; edge = c->edges[edge].next) {
            bool empty = c->edges[edge].kind == RN_NFA_EMPTY;

            n -= empty;
            reads |= !empty;
            if (empty && !rn_numbers_add(c, &s->stack, c->edges[edge].target))
                return false;
        }
        reads |= edge != 0; /* those behind the last empty one */
        if (!rn_compile_step(c, 1) || (reads && !rn_numbers_add(c, &s->set, state)))
            return false;
    }
    sort_numbers(s->set.items, s->set.n);
    return true;
}

/* The state of s->set, made where there is none; UINT32_MAX: refused. */
static uint32_t state_of_set(struct rn_compile *c, uint32_t base, uint32_t end)
{
    struct rn_subset *s = c->subset;
    uint64_t hash = s->set.n;
    uint32_t at, i;
    bool final = false;

    for (i = 0; i < s->set.n; i++) {
        hash = (hash ^ s->set.items[i]) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
        final = final || s->set.items[i] == end;
    }
    if (s->n_keys * 2 >= s->n_slots && !set_slots(c, s->n_slots * 2))
        return UINT32_MAX;
    for (at = (uint32_t)hash & (s->n_slots - 1); s->slots[at] != 0; at = (at + 1) & (s->n_slots - 1)) {
        const struct key *key = &s->keys[s->slots[at] - 1];

        if (key->hash == (uint32_t)hash && key->n == s->set.n &&
            (key->n == 0 || memcmp(s->members.items + key->at, s->set.items, key->n * sizeof(uint32_t)) == 0))
            return base + s->slots[at] - 1;
    }
    if (c->n_dfa >= c->grammar->limits.states) {
        rn_compile_fail(c, RUNNEL_INVALID, "the grammar has more than %u states when they are made deterministic",
                        c->grammar->limits.states);
        return UINT32_MAX;
    }
    if (!rn_compile_grow(c, (void **)&s->keys, s->n_keys, &s->room_keys, sizeof *s->keys) ||
        !rn_compile_grow(c, (void **)&c->dfa, c->n_dfa, &c->room_dfa, sizeof *c->dfa))
        return UINT32_MAX;
    s->keys[s->n_keys] = (struct key){s->members.n, s->set.n, (uint32_t)hash};
    for (i = 0; i < s->set.n; i++)
        if (!rn_numbers_add(c, &s->members, s->set.items[i]))
            return UINT32_MAX;
    s->slots[at] = ++s->n_keys;
    c->dfa[c->n_dfa] = (struct rn_dfa_state){.final = final};
    return c->n_dfa++;
}

/* The state of the closure of s->targets. */
static uint32_t state_of_targets(struct rn_compile *c, uint32_t base, uint32_t end)
{
    struct rn_subset *s = c->subset;
    struct lone *lone = s->targets.n == 1 ? &s->lone[s->targets.items[0]] : NULL;
    uint32_t state;

    if (lone != NULL && lone->round == s->round)
        return lone->state;
    state = close_set(c, end) ? state_of_set(c, base, end) : UINT32_MAX;
    if (lone != NULL && state != UINT32_MAX)
        *lone = (struct lone){s->round, state};
    return state;
}

/* ---- Edges of one state ---- */

static bool list_edges(struct rn_compile *c, struct key key)
{
    struct rn_subset *s = c->subset;
    uint32_t i, edge;

    s->n_edges = s->n_steps = 0;
    for (i = 0; i < key.n; i++) {
        for (edge = c->first[s->members.items[key.at + i]]; edge != 0; edge = c->edges[edge].next) {
            const struct rn_nfa_edge *e = &c->edges[edge];

            if (e->kind == RN_NFA_BYTES) {
                if (!rn_compile_grow(c, (void **)&s->edges, s->n_edges, &s->room_edges, sizeof *s->edges))
                    return false;
                s->edges[s->n_edges++] = (struct wide_edge){e->low, e->high, e->target};
            } else if (e->kind != RN_NFA_EMPTY) {
                if (!rn_compile_grow(c, (void **)&s->steps, s->n_steps, &s->room_steps, sizeof *s->steps))
                    return false;
                /* calls first, then tokens: the top bit tells them apart */
                s->steps[s->n_steps++] =
                    (struct rn_dfa_step){e->value | (e->kind == RN_NFA_TOKENS ? 0x80000000u : 0), e->target};
            }
        }
    }
    return rn_compile_step(c, 1 + s->n_edges + s->n_steps);
}

static bool add_dfa_edge(struct rn_compile *c, uint32_t state, unsigned low, unsigned high, uint32_t target)
{
    struct rn_dfa_edge *last = c->n_dfa_edges > c->dfa[state].edge ? &c->dfa_edges[c->n_dfa_edges - 1] : NULL;

    if (last != NULL && last->target == target && last->high + 1u == low) {
        last->high = (uint8_t)high;
        return true;
    }
    if (!rn_compile_grow(c, (void **)&c->dfa_edges, c->n_dfa_edges, &c->room_dfa_edges, sizeof *c->dfa_edges))
        return false;
    c->dfa_edges[c->n_dfa_edges++] = (struct rn_dfa_edge){target, (uint8_t)low, (uint8_t)high};
    c->dfa[state].n_edges++;
    return true;
}

/* Edges in the order of their first bytes, by counting; those of a byte are [starts[byte], starts[byte + 1]). */
static bool sort_edges(struct rn_compile *c, uint32_t starts[258])
{
    struct rn_subset *s = c->subset;
    struct wide_edge *sorted;
    uint32_t i, sum = 0;

    memset(starts, 0, 258 * sizeof *starts);
    for (i = 0; i < s->n_edges; i++)
        starts[s->edges[i].low + 2]++;
    for (i = 2; i < 258; i++) {
        sum += starts[i];
        starts[i] = sum;
    }
    sorted = rn_alloc(c->heap, s->n_edges, sizeof *sorted);
    if (sorted == NULL)
        return rn_compile_fail_memory(c);
    for (i = 0; i < s->n_edges; i++)
        sorted[starts[s->edges[i].low + 1]++] = s->edges[i]; /* which moves that to where the next byte starts */
    rn_free(c->heap, s->edges);
    s->edges = sorted;
    s->room_edges = s->n_edges;
    return true;
}

/* The targets of all edges that have this byte: those that begin with it, and of those before the wide ones. */
static bool list_targets(struct rn_compile *c, const uint32_t starts[258], const struct rn_numbers *wide, unsigned byte)
{
    struct rn_subset *s = c->subset;
    uint32_t i;

    s->targets.n = 0;
    for (i = starts[byte]; i < starts[byte + 1]; i++)
        if (!rn_numbers_add(c, &s->targets, s->edges[i].target))
            return false;
    for (i = 0; i < wide->n && wide->items[i] < starts[byte]; i++)
        if (s->edges[wide->items[i]].high >= byte && !rn_numbers_add(c, &s->targets, s->edges[wide->items[i]].target))
            return false;
    return rn_compile_step(c, 1 + i / 8);
}

/* The targets of all of a few edges that have this byte, and where the first byte is that has others. */
static unsigned list_few(struct rn_compile *c, unsigned byte)
{
    struct rn_subset *s = c->subset;
    unsigned next = 256;
    uint32_t i;

    s->targets.n = 0;
    for (i = 0; i < s->n_edges && s->edges[i].low <= byte; i++) {
        if (s->edges[i].high < byte || !rn_numbers_add(c, &s->targets, s->edges[i].target))
            continue;
        next = s->edges[i].high + 1u < next ? s->edges[i].high + 1u : next;
    }
    return i < s->n_edges && s->edges[i].low < next ? s->edges[i].low : next;
}

/* By insertion. They are turned round first: lists begin with the newest edge, which as a rule has the greatest
 * bytes. */
static void sort_few(struct rn_subset *s)
{
    uint32_t i, k;

    for (i = 0; i < s->n_edges / 2; i++) {
        struct wide_edge edge = s->edges[i];

        s->edges[i] = s->edges[s->n_edges - 1 - i];
        s->edges[s->n_edges - 1 - i] = edge;
    }
    for (i = 1; i < s->n_edges; i++) {
        struct wide_edge edge = s->edges[i];

        for (k = i; k > 0 && s->edges[k - 1].low > edge.low; k--)
            s->edges[k] = s->edges[k - 1];
        s->edges[k] = edge;
    }
}

/* Of a few edges: without the tables of read_many, which cost more than those. */
static bool read_few(struct rn_compile *c, uint32_t state, uint32_t base, uint32_t end)
{
    struct rn_subset *s = c->subset;
    unsigned low, high;
    uint32_t target;

    sort_few(s);
    for (low = s->n_edges == 0 ? 256 : s->edges[0].low; low < 256; low = high) {
        high = list_few(c, low);
        if (!rn_compile_step(c, 1) || (s->targets.n > 0 && ((target = state_of_targets(c, base, end)) == UINT32_MAX ||
                                                            !add_dfa_edge(c, state, low, high - 1, target))))
            return false;
    }
    return true;
}

static bool read_many(struct rn_compile *c, uint32_t state, uint32_t base, uint32_t end)
{
    struct rn_subset *s = c->subset;
    bool cut[257] = {false};
    uint32_t starts[258], i, target;
    unsigned low, high;

    s->wide.n = 0;
    if (!sort_edges(c, starts))
        return false;
    for (i = 0; i < s->n_edges; i++) {
        cut[s->edges[i].low] = cut[s->edges[i].high + 1] = true;
        if (s->edges[i].low != s->edges[i].high && !rn_numbers_add(c, &s->wide, i))
            return false;
    }
    for (low = s->edges[0].low; low < 256; low = high) {
        for (high = low + 1; high < 256 && !cut[high]; high++)
            ;
        if (!list_targets(c, starts, &s->wide, low))
            return false;
        if (s->targets.n > 0 &&
            ((target = state_of_targets(c, base, end)) == UINT32_MAX || !add_dfa_edge(c, state, low, high - 1, target)))
            return false;
    }
    return true;
}

static bool read_bytes(struct rn_compile *c, uint32_t state, uint32_t base, uint32_t end)
{
    c->dfa[state].edge = c->n_dfa_edges;
    return c->subset->n_edges <= FEW ? read_few(c, state, base, end) : read_many(c, state, base, end);
}

static bool read_steps(struct rn_compile *c, uint32_t state, uint32_t base, uint32_t end)
{
    struct rn_subset *s = c->subset;
    uint32_t i, k;

    c->dfa[state].call = c->n_calls;
    c->dfa[state].token = c->n_tokens;
    for (i = 1; i < s->n_steps; i++) { /* few: in order by insertion */
        struct rn_dfa_step step = s->steps[i];

        for (k = i; k > 0 && s->steps[k - 1].value > step.value; k--)
            s->steps[k] = s->steps[k - 1];
        s->steps[k] = step;
        if (!rn_compile_step(c, 1 + (i - k) / 16))
            return false;
    }
    for (i = 0; i < s->n_steps; i = k) {
        uint32_t value = s->steps[i].value, target;

        s->targets.n = 0;
        for (k = i; k < s->n_steps && s->steps[k].value == value; k++)
            if (!rn_numbers_add(c, &s->targets, s->steps[k].target))
                return false;
        if ((target = state_of_targets(c, base, end)) == UINT32_MAX)
            return false;
        if (value & 0x80000000u) {
            if (!rn_compile_grow(c, (void **)&c->tokens, c->n_tokens, &c->room_tokens, sizeof *c->tokens))
                return false;
            c->tokens[c->n_tokens++] = (struct rn_dfa_step){value & 0x7fffffffu, target};
            c->dfa[state].n_tokens++;
        } else {
            if (!rn_compile_grow(c, (void **)&c->calls, c->n_calls, &c->room_calls, sizeof *c->calls))
                return false;
            c->calls[c->n_calls++] = (struct rn_dfa_step){value, target};
            c->dfa[state].n_calls++;
        }
    }
    return true;
}

bool rn_compile_dfa(struct rn_compile *c, uint32_t start, uint32_t end, uint32_t *out)
{
    uint32_t base = c->n_dfa, state;

    if (!subset_init(c))
        return false;
    c->subset->targets.n = 0;
    if (!rn_numbers_add(c, &c->subset->targets, start) || state_of_targets(c, base, end) == UINT32_MAX)
        return false;
    for (state = base; state < c->n_dfa; state++)
        if (!list_edges(c, c->subset->keys[state - base]) || !read_bytes(c, state, base, end) ||
            !read_steps(c, state, base, end))
            return false;
    *out = base;
    return true;
}

/* ---- Products ---- */

#define DEAD UINT32_MAX

struct pair {
    uint32_t a, b;  /* b may be DEAD */
    uint32_t state; /* of the NFA */
};

struct product {
    struct rn_compile *c;
    struct pair *pairs;
    uint32_t *slots;
    uint32_t n, room, n_slots;
    bool negated;
};

/* The NFA state of a pair; UINT32_MAX: refused. */
static uint32_t state_of_pair(struct product *p, uint32_t a, uint32_t b)
{
    struct rn_compile *c = p->c;
    uint32_t hash = (uint32_t)(((uint64_t)a << 32 ^ b) * 0x9e3779b97f4a7c15u >> 32), at, i;

    if (p->n * 2 >= p->n_slots) {
        uint32_t n_slots = p->n_slots == 0 ? 64 : p->n_slots * 2;
        uint32_t *slots = rn_calloc(c->heap, n_slots, sizeof *slots);

        if (slots == NULL) {
            rn_compile_fail_memory(c);
            return UINT32_MAX;
        }
        for (i = 0; i < p->n; i++) {
            at =
                (uint32_t)(((uint64_t)p->pairs[i].a << 32 ^ p->pairs[i].b) * 0x9e3779b97f4a7c15u >> 32) & (n_slots - 1);
            for (; slots[at] != 0; at = (at + 1) & (n_slots - 1))
                ;
            slots[at] = i + 1;
        }
        rn_free(c->heap, p->slots);
        p->slots = slots;
        p->n_slots = n_slots;
    }
    for (at = hash & (p->n_slots - 1); p->slots[at] != 0; at = (at + 1) & (p->n_slots - 1))
        if (p->pairs[p->slots[at] - 1].a == a && p->pairs[p->slots[at] - 1].b == b)
            return p->pairs[p->slots[at] - 1].state;
    if (!rn_compile_grow(c, (void **)&p->pairs, p->n, &p->room, sizeof *p->pairs))
        return UINT32_MAX;
    p->pairs[p->n] = (struct pair){a, b, rn_nfa_state(c)};
    if (rn_compile_failed(c))
        return UINT32_MAX;
    p->slots[at] = p->n + 1;
    return p->pairs[p->n++].state;
}

static bool add_pair_edge(struct product *p, uint32_t from, unsigned low, unsigned high, uint32_t a, uint32_t b)
{
    uint32_t state = state_of_pair(p, a, b);

    return state != UINT32_MAX &&
           rn_nfa_edge(
               p->c, from,
               (struct rn_nfa_edge){.kind = RN_NFA_BYTES, .low = (uint8_t)low, .high = (uint8_t)high, .target = state});
}

/* The part of a's edge that each edge of b covers, and, negated, what none covers. */
static bool pair_edges(struct product *p, struct pair pair, struct rn_dfa_edge edge)
{
    struct rn_compile *c = p->c;
    const struct rn_dfa_state *b = pair.b == DEAD ? NULL : &c->dfa[pair.b];
    unsigned low = edge.low;
    uint32_t i;

    for (i = 0; b != NULL && i < b->n_edges; i++) {
        struct rn_dfa_edge other = c->dfa_edges[b->edge + i];
        unsigned first = other.low > edge.low ? other.low : edge.low;
        unsigned last = other.high < edge.high ? other.high : edge.high;

        if (first > last)
            continue;
        if (p->negated && first > low && !add_pair_edge(p, pair.state, low, first - 1, edge.target, DEAD))
            return false;
        if (!add_pair_edge(p, pair.state, first, last, edge.target, other.target))
            return false;
        low = last + 1;
    }
    return !p->negated || low > edge.high || add_pair_edge(p, pair.state, low, edge.high, edge.target, DEAD);
}

bool rn_compile_product(struct rn_compile *c, uint32_t a, uint32_t b, bool negated, uint32_t from, uint32_t to)
{
    struct product p = {.c = c, .negated = negated};
    uint32_t i, k, first = state_of_pair(&p, a, b);
    bool ok = first != UINT32_MAX && rn_nfa_empty(c, from, first);

    for (i = 0; ok && i < p.n; i++) {
        struct pair pair = p.pairs[i];
        bool in_b = pair.b != DEAD && c->dfa[pair.b].final;

        for (k = 0; ok && k < c->dfa[pair.a].n_edges; k++)
            ok = pair_edges(&p, pair, c->dfa_edges[c->dfa[pair.a].edge + k]);
        if (ok && c->dfa[pair.a].final && in_b != negated)
            ok = rn_nfa_empty(c, pair.state, to);
    }
    rn_free(c->heap, p.pairs);
    rn_free(c->heap, p.slots);
    /* what was made for the operands is done with */
    c->n_dfa = 0;
    c->n_dfa_edges = c->n_calls = c->n_tokens = 0;
    return ok;
}
