/* Sets of stacks: see stacks.h. */
#include "sampling/grammar/stacks.h"

#include <string.h>

#include "base/check.h"
#include "base/sort.h"

/* A state while a set is closed. */
struct closing {
    uint32_t below; /* RN_STACKS_UNKNOWN: the state is not in */
    bool queued;
};

static bool in_trouble(const struct rn_stacks *s)
{
    return s->trouble != RN_STACKS_FINE;
}

static uint32_t give_up(struct rn_stacks *s, enum rn_stacks_trouble trouble)
{
    if (s->trouble == RN_STACKS_FINE)
        s->trouble = trouble;
    return RN_STACKS_DEAD;
}

static bool take_steps(struct rn_stacks *s, uint64_t n)
{
    if (s->steps < n) {
        give_up(s, RN_STACKS_SLOW);
        return false;
    }
    s->steps -= n;
    return !in_trouble(s);
}

/* Room for `more` items behind `used`: twice as many, or near the bound half of what is left, since each growth may
 * copy all of them. False: trouble. */
static bool grow(struct rn_stacks *s, void **items, uint32_t used, uint32_t *room, size_t more, size_t size)
{
    size_t wanted = used + more, next = *room < 64 ? 64 : (size_t)*room * 2;
    size_t left = s->most_bytes > s->bytes ? (s->most_bytes - s->bytes) / size : 0;
    void *grown;

    if (wanted <= *room)
        return true;
    if (next - *room > left / 2)
        next = *room + left / 2;
    if (next < wanted)
        next = wanted;
    if (next >= UINT32_MAX || s->bytes + (next - *room) * size > s->most_bytes) {
        give_up(s, RN_STACKS_FULL);
        return false;
    }
    grown = rn_realloc(s->heap, *items, next, size);
    if (grown == NULL) {
        give_up(s, RN_STACKS_MEMORY);
        return false;
    }
    s->bytes += (next - *room) * size;
    *items = grown;
    *room = (uint32_t)next;
    return true;
}

/* ---- Equal sets have one number ---- */

static uint32_t hash_of(const struct rn_stack_entry *entries, uint32_t n, bool bottom)
{
    uint64_t hash = n * 2 + bottom;

    for (uint32_t i = 0; i < n; i++) {
        hash = (hash ^ ((uint64_t)entries[i].state << 32 | entries[i].below)) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }
    return (uint32_t)(hash >> 16);
}

static void put_in_slot(struct rn_stacks *s, uint32_t set)
{
    uint32_t at = s->sets[set].hash & (s->n_slots - 1);

    while (s->slots[at] != 0)
        at = (at + 1) & (s->n_slots - 1);
    s->slots[at] = set + 1;
}

static bool grow_slots(struct rn_stacks *s)
{
    uint32_t n = s->n_slots * 2, i;
    uint32_t *slots;

    if (s->bytes + (n - s->n_slots) * sizeof *slots > s->most_bytes) {
        give_up(s, RN_STACKS_FULL);
        return false;
    }
    slots = rn_calloc(s->heap, n, sizeof *slots);
    if (slots == NULL) {
        give_up(s, RN_STACKS_MEMORY);
        return false;
    }
    rn_free(s->heap, s->slots);
    s->bytes += (n - s->n_slots) * sizeof *slots;
    s->slots = slots;
    s->n_slots = n;
    for (i = 0; i < s->n_sets; i++)
        put_in_slot(s, i);
    return true;
}

static uint32_t find(const struct rn_stacks *s, const struct rn_stack_entry *entries, uint32_t n, bool bottom,
                     uint32_t hash)
{
    uint32_t at = hash & (s->n_slots - 1);

    for (; s->slots[at] != 0; at = (at + 1) & (s->n_slots - 1)) {
        const struct rn_stack_set *set = &s->sets[s->slots[at] - 1];

        if (set->hash == hash && set->n == n && set->bottom == bottom &&
            memcmp(s->entries + set->at, entries, n * sizeof *entries) == 0)
            return s->slots[at] - 1;
    }
    return RN_STACKS_UNKNOWN;
}

/* The set of scratch[from..), which is taken off. */
static uint32_t set_of_scratch(struct rn_stacks *s, uint32_t from, bool bottom)
{
    uint32_t n = s->n_scratch - from, depth = 0, i, hash, set;
    const struct rn_stack_entry *entries = s->scratch + from;

    s->n_scratch = from;
    if (in_trouble(s))
        return RN_STACKS_DEAD;
    hash = hash_of(entries, n, bottom);
    set = find(s, entries, n, bottom, hash);
    if (set != RN_STACKS_UNKNOWN)
        return set;
    if ((s->n_sets * 2 >= s->n_slots && !grow_slots(s)) ||
        !grow(s, (void **)&s->sets, s->n_sets, &s->room_sets, 1, sizeof *s->sets) ||
        !grow(s, (void **)&s->entries, s->n_entries, &s->room_entries, n, sizeof *s->entries))
        return RN_STACKS_DEAD;
    for (i = 0; i < n; i++) {
        RN_ASSERT(entries[i].below < s->n_sets && (i == 0 || entries[i - 1].state < entries[i].state));
        depth = s->sets[entries[i].below].depth >= depth ? s->sets[entries[i].below].depth + 1 : depth;
        s->entries[s->n_entries + i] = entries[i];
    }
    s->sets[s->n_sets] = (struct rn_stack_set){.at = s->n_entries,
                                               .n = n,
                                               .hash = hash,
                                               .depth = depth,
                                               .closed = RN_STACKS_UNKNOWN,
                                               .row = RN_STACKS_UNKNOWN,
                                               .bottom = bottom};
    s->n_entries += n;
    put_in_slot(s, s->n_sets);
    return s->n_sets++;
}

static bool add_scratch(struct rn_stacks *s, uint32_t state, uint32_t below)
{
    if (!grow(s, (void **)&s->scratch, s->n_scratch, &s->room_scratch, 1, sizeof *s->scratch))
        return false;
    s->scratch[s->n_scratch++] = (struct rn_stack_entry){state, below};
    return true;
}

uint32_t rn_stacks_entry(struct rn_stacks *s, uint32_t state, uint32_t below)
{
    uint32_t from = s->n_scratch;

    return add_scratch(s, state, below) ? set_of_scratch(s, from, false) : RN_STACKS_DEAD;
}

uint32_t rn_stacks_single(struct rn_stacks *s, uint32_t state)
{
    return rn_stacks_entry(s, state, RN_STACKS_BOTTOM);
}

/* The entries of both, merged. */
static uint32_t merge(struct rn_stacks *s, uint32_t a, uint32_t b)
{
    uint32_t from = s->n_scratch, i = 0, k = 0;

    while (i < s->sets[a].n || k < s->sets[b].n) {
        struct rn_stack_entry x = {UINT32_MAX, 0}, y = {UINT32_MAX, 0};

        if (!take_steps(s, 1))
            break;
        if (i < s->sets[a].n)
            x = s->entries[s->sets[a].at + i];
        if (k < s->sets[b].n)
            y = s->entries[s->sets[b].at + k];
        i += x.state <= y.state;
        k += y.state <= x.state;
        if (x.state == y.state)
            x.below = rn_stacks_join(s, x.below, y.below);
        else if (y.state < x.state)
            x = y;
        if (!add_scratch(s, x.state, x.below))
            break;
    }
    return set_of_scratch(s, from, s->sets[a].bottom || s->sets[b].bottom);
}

/* Recursion is as deep as the stacks, which are bounded (most_depth). Sets share what lies below them: without the
 * table of unions that were made, two of them would be walked along each path, of which there may be exponentially
 * many. */
uint32_t rn_stacks_join(struct rn_stacks *s, uint32_t a, uint32_t b)
{
    uint32_t low = a < b ? a : b, high = a < b ? b : a, both;
    struct rn_stack_join *known;

    if (low == high || low == RN_STACKS_DEAD)
        return high;
    known = &s->joins[(low * 0x9e3779b1u ^ high * 0x85ebca6bu) >> 16 & (RN_STACKS_JOINS - 1)];
    if (known->a == low && known->b == high)
        return known->both;
    both = merge(s, low, high);
    if (!in_trouble(s))
        *known = (struct rn_stack_join){low, high, both};
    return both;
}

/* ---- Closing ---- */

/* A stack is in: the state over `below`. */
static void enter(struct rn_stacks *s, uint32_t state, uint32_t below)
{
    struct closing *c = &s->closing[state];

    if (c->below == RN_STACKS_UNKNOWN) {
        c->below = below;
        s->touched[s->n_touched++] = state;
    } else {
        below = rn_stacks_join(s, c->below, below);
        if (below == c->below)
            return;
        c->below = below;
    }
    if (!c->queued) {
        c->queued = true;
        s->queue[(s->next_queued + s->n_queue++) % s->a->n_states] = state;
    }
}

/* Each call of the state, and its end. */
static void follow(struct rn_stacks *s, uint32_t state, bool *bottom)
{
    const struct rn_automaton *a = s->a;
    uint32_t below = s->closing[state].below, i, n = s->sets[below].n;

    for (i = a->states[state].call; i < a->states[state + 1].call && take_steps(s, 1); i++) {
        const struct rn_automaton_call *call = &a->calls[i];

        if (call->last)
            enter(s, call->start, below);
        else if (s->sets[below].depth < s->most_depth)
            enter(s, call->start, rn_stacks_entry(s, call->target, below));
        else
            give_up(s, RN_STACKS_DEEP);
    }
    if (!a->states[state].final)
        return;
    *bottom = *bottom || s->sets[below].bottom;
    for (i = 0; i < n && take_steps(s, 1); i++) {
        struct rn_stack_entry entry = s->entries[s->sets[below].at + i];

        enter(s, entry.state, entry.below);
    }
}

#define FEW 32u /* entries that an insertion sort takes: nearly all configurations, most of them in order already */

static void insert(struct rn_stack_entry *entries, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) {
        struct rn_stack_entry entry = entries[i];
        uint32_t k = i;

        for (; k > 0 && entries[k - 1].state > entry.state; k--)
            entries[k] = entries[k - 1];
        entries[k] = entry;
    }
}

static int by_state(const void *a, const void *b)
{
    uint32_t x = ((const struct rn_stack_entry *)a)->state, y = ((const struct rn_stack_entry *)b)->state;

    return x < y ? -1 : x > y;
}

/* By their states; no grammar makes it slow. */
static void order(struct rn_stack_entry *entries, uint32_t n)
{
    if (n <= FEW)
        insert(entries, n);
    else
        rn_sort_in_place(entries, n, sizeof *entries, by_state);
}

/* Follows what was entered, and makes the configuration of it. */
static uint32_t finish_closing(struct rn_stacks *s, bool bottom)
{
    uint32_t from = s->n_scratch, i;

    while (s->n_queue > 0 && take_steps(s, 1)) {
        uint32_t state = s->queue[s->next_queued];

        s->next_queued = (s->next_queued + 1) % s->a->n_states;
        s->n_queue--;
        s->closing[state].queued = false;
        follow(s, state, &bottom);
    }
    for (i = 0; i < s->n_touched; i++) {
        uint32_t state = s->touched[i], below = s->closing[state].below;

        s->closing[state] = (struct closing){RN_STACKS_UNKNOWN, false};
        if (!in_trouble(s) && rn_automaton_reads(s->a, state))
            add_scratch(s, state, below);
    }
    order(s->scratch + from, s->n_scratch - from);
    s->n_touched = s->n_queue = 0;
    return set_of_scratch(s, from, bottom);
}

uint32_t rn_stacks_close(struct rn_stacks *s, uint32_t set)
{
    uint32_t i, closed;

    if (s->sets[set].closed != RN_STACKS_UNKNOWN)
        return s->sets[set].closed;
    for (i = 0; i < s->sets[set].n; i++) {
        struct rn_stack_entry entry = s->entries[s->sets[set].at + i];

        enter(s, entry.state, entry.below);
    }
    closed = finish_closing(s, s->sets[set].bottom);
    if (!in_trouble(s))
        s->sets[set].closed = closed;
    return closed;
}

uint32_t rn_stacks_start(struct rn_stacks *s)
{
    enter(s, s->a->start, RN_STACKS_BOTTOM);
    return finish_closing(s, s->a->empty);
}

static uint32_t *row_of(struct rn_stacks *s, uint32_t set)
{
    uint32_t n = s->a->n_classes, row = s->sets[set].row;

    if (row == RN_STACKS_UNKNOWN) {
        if (!grow(s, (void **)&s->rows, s->n_rows, &s->room_rows, 1, n * sizeof *s->rows))
            return NULL;
        row = s->sets[set].row = s->n_rows++;
        memset(s->rows + (size_t)row * n, 0xff, n * sizeof *s->rows);
    }
    return s->rows + (size_t)row * n;
}

uint32_t rn_stacks_read_class(struct rn_stacks *s, uint32_t set, uint32_t class)
{
    uint8_t byte = s->a->byte_of[class];
    uint32_t i, next = RN_STACKS_DEAD, *row;

    if (!take_steps(s, 1 + s->sets[set].n))
        return RN_STACKS_DEAD;
    for (i = 0; i < s->sets[set].n; i++) {
        struct rn_stack_entry entry = s->entries[s->sets[set].at + i];
        uint32_t target = rn_automaton_read(s->a, entry.state, byte);

        if (target != UINT32_MAX)
            enter(s, target, entry.below);
    }
    if (s->n_touched > 0)
        next = finish_closing(s, false);
    row = in_trouble(s) ? NULL : row_of(s, set);
    if (row == NULL)
        return RN_STACKS_DEAD;
    row[class] = next;
    return next;
}

uint32_t rn_stacks_read_token(struct rn_stacks *s, uint32_t set, int32_t token, bool text)
{
    const struct rn_automaton *a = s->a;
    uint32_t i, k;

    for (i = 0; i < s->sets[set].n; i++) {
        struct rn_stack_entry entry = s->entries[s->sets[set].at + i];

        for (k = a->states[entry.state].token; k < a->states[entry.state + 1].token; k++)
            if (take_steps(s, 1) && rn_automaton_set_has(a, a->tokens[k].set, token, text))
                enter(s, a->tokens[k].target, entry.below);
    }
    return s->n_touched > 0 ? finish_closing(s, false) : RN_STACKS_DEAD;
}

/* ---- Dropping ---- */

bool rn_stacks_begin_drop(struct rn_stacks *s)
{
    s->moved = rn_calloc(s->heap, s->n_sets, sizeof *s->moved);
    if (s->moved == NULL)
        return false;
    s->trouble = RN_STACKS_FINE;
    s->moved[RN_STACKS_DEAD] = s->moved[RN_STACKS_BOTTOM] = 1;
    return true;
}

void rn_stacks_keep(struct rn_stacks *s, uint32_t set)
{
    s->moved[set] = 1;
}

/* Gives room back, so that what grows next may be another array. */
static void shrink(struct rn_stacks *s, void **items, uint32_t used, uint32_t *room, size_t size)
{
    uint32_t next = used < 64 ? 64 : used;
    void *smaller = next < *room ? rn_realloc(s->heap, *items, next, size) : NULL;

    if (smaller == NULL)
        return;
    *items = smaller;
    s->bytes -= (*room - next) * size;
    *room = next;
}

void rn_stacks_drop(struct rn_stacks *s)
{
    uint32_t i, k, n = 0, n_entries = 0;

    for (i = s->n_sets; i-- > 0;) /* what lies below has lower numbers */
        for (k = 0; s->moved[i] != 0 && k < s->sets[i].n; k++)
            s->moved[s->entries[s->sets[i].at + k].below] = 1;
    memset(s->slots, 0, s->n_slots * sizeof *s->slots);
    for (i = 0; i < s->n_sets; i++) {
        struct rn_stack_set set = s->sets[i];

        if (s->moved[i] == 0)
            continue;
        for (k = 0; k < set.n; k++) {
            struct rn_stack_entry entry = s->entries[set.at + k];

            s->entries[n_entries + k] = (struct rn_stack_entry){entry.state, s->moved[entry.below]};
        }
        set.at = n_entries;
        set.closed = set.row = RN_STACKS_UNKNOWN;
        set.hash = hash_of(s->entries + set.at, set.n, set.bottom);
        n_entries += set.n;
        s->sets[n] = set;
        s->moved[i] = n;
        put_in_slot(s, n++);
    }
    s->n_sets = n;
    s->n_entries = n_entries;
    s->n_rows = 0;
    memset(s->joins, 0, RN_STACKS_JOINS * sizeof *s->joins);
    s->dropped++;
    shrink(s, (void **)&s->sets, n, &s->room_sets, sizeof *s->sets);
    shrink(s, (void **)&s->entries, n_entries, &s->room_entries, sizeof *s->entries);
    shrink(s, (void **)&s->rows, 0, &s->room_rows, s->a->n_classes * sizeof *s->rows);
}

uint32_t rn_stacks_moved(const struct rn_stacks *s, uint32_t set)
{
    return s->moved[set];
}

void rn_stacks_end_drop(struct rn_stacks *s)
{
    rn_free(s->heap, s->moved);
    s->moved = NULL;
}

/* ---- From the beginning to the end ---- */

bool rn_stacks_init(struct rn_stacks *s, struct rn_heap *heap, const struct rn_automaton *a, size_t most_bytes,
                    uint32_t most_depth)
{
    uint32_t i;

    *s = (struct rn_stacks){.heap = heap, .a = a, .most_bytes = most_bytes, .most_depth = most_depth};
    s->n_slots = 256;
    s->slots = rn_calloc(heap, s->n_slots, sizeof *s->slots);
    s->closing = rn_alloc(heap, a->n_states, sizeof *s->closing);
    s->touched = rn_alloc(heap, a->n_states, sizeof *s->touched);
    s->queue = rn_alloc(heap, a->n_states, sizeof *s->queue);
    s->joins = rn_calloc(heap, RN_STACKS_JOINS, sizeof *s->joins);
    if (s->joins == NULL || s->slots == NULL || s->closing == NULL || s->touched == NULL || s->queue == NULL) {
        rn_stacks_fini(s);
        return false;
    }
    for (i = 0; i < a->n_states; i++)
        s->closing[i] = (struct closing){RN_STACKS_UNKNOWN, false};
    s->bytes = s->n_slots * sizeof *s->slots;
    if (!grow(s, (void **)&s->scratch, 0, &s->room_scratch, 1, sizeof *s->scratch) ||
        !grow(s, (void **)&s->entries, 0, &s->room_entries, 1, sizeof *s->entries) ||
        set_of_scratch(s, 0, false) != RN_STACKS_DEAD || in_trouble(s) ||
        set_of_scratch(s, 0, true) != RN_STACKS_BOTTOM) {
        rn_stacks_fini(s);
        return false;
    }
    return true;
}

void rn_stacks_fini(struct rn_stacks *s)
{
    rn_free(s->heap, s->sets);
    rn_free(s->heap, s->entries);
    rn_free(s->heap, s->rows);
    rn_free(s->heap, s->slots);
    rn_free(s->heap, s->scratch);
    rn_free(s->heap, s->closing);
    rn_free(s->heap, s->touched);
    rn_free(s->heap, s->queue);
    rn_free(s->heap, s->joins);
    rn_free(s->heap, s->moved);
    *s = (struct rn_stacks){0};
}

void rn_stacks_check(const struct rn_stacks *s)
{
    uint32_t i, k, entries = 0;

    RN_CHECK(s->n_sets >= 2 && s->sets[RN_STACKS_DEAD].n == 0 && !s->sets[RN_STACKS_DEAD].bottom);
    RN_CHECK(s->sets[RN_STACKS_BOTTOM].n == 0 && s->sets[RN_STACKS_BOTTOM].bottom);
    RN_CHECK(s->n_touched == 0 && s->n_queue == 0 && s->n_scratch == 0 && s->bytes <= s->most_bytes);
    for (i = 0; i < s->n_sets; i++) {
        const struct rn_stack_set *set = &s->sets[i];

        RN_CHECK(set->at == entries && set->depth <= s->most_depth + 1);
        RN_CHECK(set->row == RN_STACKS_UNKNOWN || set->row < s->n_rows);
        RN_CHECK(find(s, s->entries + set->at, set->n, set->bottom, set->hash) == i);
        entries += set->n;
        for (k = set->at; k < entries; k++)
            RN_CHECK(s->entries[k].state < s->a->n_states && s->entries[k].below < i &&
                     (k == set->at || s->entries[k - 1].state < s->entries[k].state));
    }
    RN_CHECK(entries == s->n_entries);
    for (i = 0; i < s->n_rows * s->a->n_classes; i++)
        RN_CHECK(s->rows[i] == RN_STACKS_UNKNOWN || s->rows[i] < s->n_sets);
}
