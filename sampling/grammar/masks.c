/* Masks: see masks.h. */
#include "sampling/grammar/masks.h"

#include <string.h>

#include "base/check.h"
#include "sampling/grammar/matcher.h"

#define EXITS_MOST 32768u /* of a state; with more, its rule is left nearly anywhere, and a walk of all is as quick */
#define LOOP_LEAST 24u    /* nodes below a node for which it pays to find loops out */
#define VISITED_MOST 40u  /* configurations that plain text leads to, before it is given up to look for all of them */

const struct rn_masks_limits rn_masks_limits_default = {
    .stack_bytes = 8 << 20, .mask_bytes = 16 << 20, .depth = 1000, .steps = 5000000};

/* What a state allows in its rule. */
struct rn_state_mask {
    bool walk;        /* too many exits: nothing is known */
    uint32_t n_ids;   /* few: ids; else bits */
    uint32_t n_exits; /* nodes of the trie */
    uint32_t *exits;
    int32_t *ids;
    uint64_t *bits; /* NULL: ids */
    size_t bytes;
};

/* ---- Walks ---- */

static void set_bit(uint64_t *mask, int32_t token)
{
    mask[token / 64] |= (uint64_t)1 << token % 64;
}

static void add_exit(struct rn_masks *m, uint32_t node)
{
    if (m->n_exits == m->room_exits) {
        uint32_t room = m->room_exits * 2;
        uint32_t *exits = m->n_exits > EXITS_MOST ? NULL : rn_realloc(m->heap, m->exits, room, sizeof *exits);

        if (exits == NULL) {
            if (m->n_exits <= EXITS_MOST)
                m->stacks.trouble = RN_STACKS_MEMORY;
            return;
        }
        m->exits = exits;
        m->room_exits = room;
    }
    m->exits[m->n_exits++] = node;
}

/* Kinds of bytes that lead from the set to itself, each of them. */
static uint8_t loops_of(struct rn_masks *m, uint32_t set)
{
    uint8_t loops = RN_STACKS_LOOPS_KNOWN | (RN_BYTE_FAR - 1);
    uint32_t byte;

    if (m->stacks.sets[set].loops != 0)
        return m->stacks.sets[set].loops;
    for (byte = 0; byte < 0x80; byte++) {
        uint8_t kind = (uint8_t)rn_byte_kind((uint8_t)byte);

        if ((loops & kind) != 0 && rn_stacks_read(&m->stacks, set, (uint8_t)byte) != set)
            loops &= (uint8_t)~kind;
    }
    if (m->stacks.trouble == RN_STACKS_FINE)
        m->stacks.sets[set].loops = loops;
    return loops;
}

/* Are all tokens below this node allowed, since no byte there leaves the set? Asked only where there are many. */
static bool is_loop(struct rn_masks *m, const struct rn_trie_place *place, uint32_t below, uint32_t set)
{
    return place->end - below >= LOOP_LEAST && (place->kinds & ~loops_of(m, set)) == 0;
}

/* The configuration behind one byte. */
static inline uint32_t step_by(struct rn_stacks *s, struct rn_masks_step *from, uint8_t byte)
{
    uint32_t class = s->a->class_of[byte], next;

    if (from->row != RN_STACKS_UNKNOWN) {
        next = s->rows[(size_t)from->row * s->a->n_classes + class];
        if (next != RN_STACKS_UNKNOWN)
            return next;
    }
    next = rn_stacks_read_class(s, from->set, class);
    from->row = s->sets[from->set].row;
    return next;
}

/* Nodes [node, end), whose parent was reached with configuration `set`: sets the bits of the tokens that can be read.
 * exits: keeps the nodes behind which the bottom is reached and that have children. */
static void walk(struct rn_masks *m, uint32_t node, uint32_t end, uint32_t set, bool exits, uint64_t *mask)
{
    const struct rn_trie_place *nodes = m->trie->nodes;
    struct rn_stacks *s = &m->stacks;
    uint32_t visited = 0;

    if (node >= end)
        return;
    m->path[nodes[node].depth - 1] = (struct rn_masks_step){set, s->sets[set].row};
    while (node < end) {
        const struct rn_trie_place *place = &nodes[node];
        uint32_t next = step_by(s, &m->path[place->depth - 1], place->label), below = node + 1, i, last;
        bool loop;

        visited++;
        node = place->end;
        if (next == RN_STACKS_DEAD)
            continue;
        loop = is_loop(m, place, below, next);
        last = loop ? nodes[place->end].first : nodes[below].first;
        for (i = place->first; i < last; i++)
            set_bit(mask, m->trie->ids[i]);
        if (loop || below == place->end)
            continue;
        if (exits && s->sets[next].bottom)
            add_exit(m, below - 1);
        if (s->sets[next].n == 0)
            continue;
        m->path[place->depth] = (struct rn_masks_step){next, s->sets[next].row};
        node = below;
    }
    m->visited += visited;
    if (s->steps < visited / 8) /* eight nodes are looked at in the time of one step */
        s->trouble = s->trouble == RN_STACKS_FINE ? RN_STACKS_SLOW : s->trouble;
    else
        s->steps -= visited / 8;
}

/* ---- Plain text ---- */

/* Configurations, each once. */
struct few {
    uint32_t sets[VISITED_MOST];
    uint32_t n;
};

/* False: there are too many. */
static bool add(struct few *few, uint32_t set)
{
    for (uint32_t i = 0; i < few->n; i++)
        if (few->sets[i] == set)
            return true;
    if (few->n == VISITED_MOST)
        return false;
    few->sets[few->n++] = set;
    return true;
}

/* Behind each of `from`, any byte low..high; false: one is refused, or there are too many. */
static bool read_range(struct rn_masks *m, const struct few *from, uint8_t low, uint8_t high, struct few *to)
{
    uint32_t class, i, next;

    for (class = m->automaton->class_of[low]; class <= m->automaton->class_of[high]; class ++) {
        for (i = 0; i < from->n; i++) {
            next = rn_stacks_read(&m->stacks, from->sets[i], m->automaton->byte_of[class]);
            if (next == RN_STACKS_DEAD || !add(to, next))
                return false;
        }
    }
    return true;
}

/* Characters of more than one byte, by their first byte and the second (Unicode 15, table 3-7). */
static const struct {
    uint8_t low, high, second_low, second_high, more;
} long_characters[] = {
    {0xc2, 0xdf, 0x80, 0xbf, 0}, {0xe0, 0xe0, 0xa0, 0xbf, 1}, {0xe1, 0xec, 0x80, 0xbf, 1}, {0xed, 0xed, 0x80, 0x9f, 1},
    {0xee, 0xef, 0x80, 0xbf, 1}, {0xf0, 0xf0, 0x90, 0xbf, 2}, {0xf1, 0xf3, 0x80, 0xbf, 2}, {0xf4, 0xf4, 0x80, 0x8f, 2},
};

/* Behind `set` and any plain character, into *to; false: not all are allowed, or there are too many. */
static bool read_plain(struct rn_masks *m, uint32_t set, struct few *to)
{
    const struct few from = {{set}, 1};
    uint32_t i, k;

    for (i = 0; i < m->n_plain; i++)
        if (!read_range(m, &from, m->plain[i], m->plain[i], to))
            return false;
    for (i = 0; i < sizeof long_characters / sizeof long_characters[0]; i++) {
        struct few lead = {.n = 0}, second = {.n = 0}, third = {.n = 0};

        if (!read_range(m, &from, long_characters[i].low, long_characters[i].high, &lead) ||
            !read_range(m, &lead, long_characters[i].second_low, long_characters[i].second_high, &second) ||
            (long_characters[i].more > 0 && !read_range(m, &second, 0x80, 0xbf, &third)))
            return false;
        if (long_characters[i].more == 2) {
            second = third;
            third.n = 0;
            if (!read_range(m, &second, 0x80, 0xbf, &third))
                return false;
        }
        if (long_characters[i].more == 0)
            third = second;
        for (k = 0; k < third.n; k++)
            if (!add(to, third.sets[k]))
                return false;
    }
    return true;
}

/* So many plain characters are allowed, whichever they are; UINT32_MAX: any number of them. */
static uint32_t plain_characters(struct rn_masks *m, uint32_t set)
{
    struct few known = {{set}, 1};
    uint32_t characters = 0, done = 0;

    while (done < known.n) {
        uint32_t level = known.n;

        for (; done < level; done++)
            if (!read_plain(m, known.sets[done], &known))
                return characters;
        characters++;
    }
    return UINT32_MAX;
}

/* All parts of the vocabulary from a configuration. */
static void walk_all(struct rn_masks *m, uint32_t set, bool exits, uint64_t *mask)
{
    const struct rn_token_trie *trie = m->trie;
    uint32_t characters = plain_characters(m, set), part, i;

    for (part = 0; part < RN_TOKEN_PARTS; part++) {
        const struct rn_token_part *p = &trie->parts[part];

        if (part == 0 || p->characters > characters) {
            walk(m, p->begin, p->end, set, exits, mask);
            continue;
        }
        for (i = 0; i < trie->words; i++)
            mask[i] |= trie->part_text[(size_t)part * trie->words + i];
    }
}

/* ---- What is known of a state ---- */

static void forget_state(struct rn_masks *m, uint32_t state)
{
    struct rn_state_mask *known = m->states[state];

    if (known == NULL)
        return;
    m->bytes -= known->bytes;
    rn_free(m->heap, known);
    m->states[state] = NULL;
}

static void forget_all(struct rn_masks *m)
{
    uint32_t i;

    for (i = 0; i < m->automaton->n_states; i++)
        forget_state(m, i);
}

/* One block: the struct, its exits, and its ids or bits. */
static struct rn_state_mask *new_state_mask(struct rn_masks *m, uint32_t n_ids, uint32_t n_exits, bool bits)
{
    size_t bytes = sizeof(struct rn_state_mask) + (bits ? m->trie->words * sizeof(uint64_t) : n_ids * sizeof(int32_t)) +
                   n_exits * sizeof(uint32_t);
    struct rn_state_mask *known;

    if (m->bytes + bytes > m->limits.mask_bytes)
        forget_all(m);
    known = rn_alloc(m->heap, bytes, 1);
    if (known == NULL)
        return NULL;
    *known = (struct rn_state_mask){.n_ids = n_ids, .n_exits = n_exits, .bytes = bytes};
    if (bits)
        known->bits = (uint64_t *)(known + 1);
    else
        known->ids = (int32_t *)(known + 1);
    known->exits = bits ? (uint32_t *)(known->bits + m->trie->words) : (uint32_t *)(known->ids + n_ids);
    m->bytes += bytes;
    return known;
}

static uint32_t count_bits(const uint64_t *mask, uint32_t words)
{
    uint32_t n = 0, i;

    for (i = 0; i < words; i++)
        n += (uint32_t)__builtin_popcountll(mask[i]);
    return n;
}

static void list_bits(const uint64_t *mask, uint32_t words, int32_t *ids)
{
    uint32_t i;

    for (i = 0; i < words; i++)
        for (uint64_t word = mask[i]; word != 0; word &= word - 1)
            *ids++ = (int32_t)(i * 64 + (uint32_t)__builtin_ctzll(word));
}

/* NULL: trouble. */
static const struct rn_state_mask *look_at(struct rn_masks *m, uint32_t state)
{
    uint32_t words = m->trie->words, n, set;
    struct rn_state_mask *known;
    bool bits, many;

    if (m->states[state] != NULL)
        return m->states[state];
    m->n_exits = 0;
    memset(m->work, 0, words * sizeof *m->work);
    set = rn_stacks_single(&m->stacks, state);
    if (m->stacks.trouble == RN_STACKS_FINE)
        walk_all(m, set, true, m->work);
    if (m->stacks.trouble != RN_STACKS_FINE)
        return NULL;
    n = count_bits(m->work, words);
    bits = n > words * 2;
    many = m->n_exits > EXITS_MOST;
    known = many ? new_state_mask(m, 0, 0, false) : new_state_mask(m, n, m->n_exits, bits);
    if (known == NULL) {
        m->stacks.trouble = RN_STACKS_MEMORY;
        return NULL;
    }
    known->walk = many;
    if (!many && bits)
        memcpy(known->bits, m->work, words * sizeof *m->work);
    else if (!many)
        list_bits(m->work, words, known->ids);
    if (!many && m->n_exits > 0)
        memcpy(known->exits, m->exits, m->n_exits * sizeof *m->exits);
    m->states[state] = known;
    return known;
}

/* ---- Masks ---- */

static void add_named_tokens(struct rn_masks *m, uint32_t state, uint64_t *mask)
{
    const struct rn_automaton *a = m->automaton;
    uint32_t i, k, words = m->trie->words;

    for (i = a->states[state].token; i < a->states[state + 1].token; i++) {
        const struct rn_automaton_set *set = &a->sets[a->tokens[i].set];

        if (!set->but) {
            for (k = set->at; k < set->at + set->n; k++)
                if ((uint32_t)a->ids[k] < m->trie->n_vocab)
                    set_bit(mask, a->ids[k]);
            continue;
        }
        memset(m->work, 0, words * sizeof *m->work);
        for (k = set->at; k < set->at + set->n; k++)
            if ((uint32_t)a->ids[k] < m->trie->n_vocab)
                set_bit(m->work, a->ids[k]);
        for (k = 0; k < words; k++)
            mask[k] |= m->trie->text[k] & ~m->work[k];
    }
}

/* What one stack allows: a state above `below`. */
static bool add_entry(struct rn_masks *m, struct rn_stack_entry entry, uint64_t *mask)
{
    const struct rn_state_mask *known = look_at(m, entry.state);
    uint32_t words = m->trie->words, i, set;

    if (known == NULL)
        return false;
    add_named_tokens(m, entry.state, mask);
    if (known->walk) {
        set = rn_stacks_entry(&m->stacks, entry.state, entry.below);
        if (m->stacks.trouble == RN_STACKS_FINE)
            walk_all(m, set, false, mask);
        return m->stacks.trouble == RN_STACKS_FINE;
    }
    for (i = 0; known->bits != NULL && i < words; i++)
        mask[i] |= known->bits[i];
    for (i = 0; known->bits == NULL && i < known->n_ids; i++)
        set_bit(mask, known->ids[i]);
    if (known->n_exits == 0 || m->stacks.sets[entry.below].n == 0)
        return true;
    set = rn_stacks_close(&m->stacks, entry.below);
    for (i = 0; i < known->n_exits && m->stacks.trouble == RN_STACKS_FINE; i++)
        walk(m, known->exits[i] + 1, m->trie->nodes[known->exits[i]].end, set, false, mask);
    return m->stacks.trouble == RN_STACKS_FINE;
}

/* Room for a mask that is kept; NULL: there is none, which is no error. */
static uint64_t *room_to_keep(struct rn_masks *m, uint32_t slot)
{
    size_t bytes = m->trie->words * sizeof(uint64_t);

    if (m->kept[slot] == NULL && m->bytes + bytes <= m->limits.mask_bytes / 2) {
        m->kept[slot] = rn_alloc(m->heap, bytes, 1);
        m->bytes += m->kept[slot] != NULL ? bytes : 0;
    }
    return m->kept[slot];
}

bool rn_masks_of(struct rn_masks *m, uint32_t set, uint64_t *mask)
{
    size_t bytes = m->trie->words * sizeof *mask;
    uint32_t slot = set % RN_MASKS_KEPT, i;
    uint64_t *kept;

    if (m->kept_of[slot] == set) {
        memcpy(mask, m->kept[slot], bytes);
        return true;
    }
    memset(mask, 0, bytes);
    for (i = 0; i < m->stacks.sets[set].n; i++)
        if (!add_entry(m, m->stacks.entries[m->stacks.sets[set].at + i], mask))
            return false;
    kept = room_to_keep(m, slot);
    if (kept != NULL) {
        memcpy(kept, mask, bytes);
        m->kept_of[slot] = set;
    }
    return true;
}

/* ---- From the beginning to the end ---- */

static void forget_kept(struct rn_masks *m)
{
    for (uint32_t i = 0; i < RN_MASKS_KEPT; i++)
        m->kept_of[i] = RN_STACKS_UNKNOWN;
}

bool rn_masks_drop(struct rn_masks *m)
{
    struct rn_matcher *matcher;

    if (!rn_stacks_begin_drop(&m->stacks))
        return false;
    for (matcher = m->matchers; matcher != NULL; matcher = matcher->next)
        rn_matcher_keep(matcher);
    if (m->start != RN_STACKS_UNKNOWN)
        rn_stacks_keep(&m->stacks, m->start);
    rn_stacks_drop(&m->stacks);
    for (matcher = m->matchers; matcher != NULL; matcher = matcher->next)
        rn_matcher_move(matcher);
    if (m->start != RN_STACKS_UNKNOWN)
        m->start = rn_stacks_moved(&m->stacks, m->start);
    rn_stacks_end_drop(&m->stacks);
    forget_kept(m);
    return true;
}

static void list_plain(struct rn_masks *m)
{
    for (uint32_t byte = 0x20; byte < 0x7f; byte++)
        if (byte != '"' && byte != '\\' && m->automaton->byte_of[m->automaton->class_of[byte]] == byte)
            m->plain[m->n_plain++] = (uint8_t)byte;
}

struct rn_masks *rn_masks_new(struct rn_heap *heap, const struct rn_automaton *automaton,
                              const struct rn_token_trie *trie, const struct rn_masks_limits *limits)
{
    struct rn_masks *m = rn_calloc(heap, 1, sizeof *m);

    if (m == NULL)
        return NULL;
    m->heap = heap;
    m->automaton = automaton;
    m->trie = trie;
    m->limits = limits != NULL ? *limits : rn_masks_limits_default;
    m->start = RN_STACKS_UNKNOWN;
    m->room_exits = 256;
    forget_kept(m);
    list_plain(m);
    m->states = rn_calloc(heap, automaton->n_states, sizeof(struct rn_state_mask *));
    m->work = rn_alloc(heap, trie->words, sizeof *m->work);
    m->path = rn_alloc(heap, (size_t)trie->longest + 1, sizeof *m->path);
    m->exits = rn_alloc(heap, m->room_exits, sizeof *m->exits);
    if (!rn_stacks_init(&m->stacks, heap, automaton, m->limits.stack_bytes, m->limits.depth) || m->states == NULL ||
        m->work == NULL || m->path == NULL || m->exits == NULL) {
        rn_masks_free(m);
        return NULL;
    }
    return m;
}

void rn_masks_free(struct rn_masks *m)
{
    uint32_t i;

    if (m == NULL)
        return;
    RN_CHECK(m->matchers == NULL);
    if (m->states != NULL)
        forget_all(m);
    for (i = 0; i < RN_MASKS_KEPT; i++)
        rn_free(m->heap, m->kept[i]);
    if (m->stacks.heap != NULL)
        rn_stacks_fini(&m->stacks);
    rn_free(m->heap, m->states);
    rn_free(m->heap, m->work);
    rn_free(m->heap, m->path);
    rn_free(m->heap, m->exits);
    rn_free(m->heap, m);
}

size_t rn_masks_bytes(const struct rn_masks *m)
{
    return sizeof *m + m->bytes + m->stacks.bytes + RN_STACKS_JOINS * sizeof *m->stacks.joins +
           m->automaton->n_states * (sizeof *m->states + 16) + m->trie->words * sizeof *m->work +
           m->room_exits * sizeof *m->exits + ((size_t)m->trie->longest + 1) * sizeof *m->path;
}

void rn_masks_check(const struct rn_masks *m)
{
    const struct rn_matcher *matcher;
    size_t bytes = 0;
    uint32_t i;

    rn_stacks_check(&m->stacks);
    for (i = 0; i < m->automaton->n_states; i++)
        bytes += m->states[i] != NULL ? m->states[i]->bytes : 0;
    for (i = 0; i < RN_MASKS_KEPT; i++) {
        bytes += m->kept[i] != NULL ? m->trie->words * sizeof *m->work : 0;
        RN_CHECK(m->kept_of[i] == RN_STACKS_UNKNOWN || (m->kept[i] != NULL && m->kept_of[i] < m->stacks.n_sets));
    }
    RN_CHECK(bytes == m->bytes);
    for (matcher = m->matchers; matcher != NULL; matcher = matcher->next)
        RN_CHECK(matcher->masks == m && (matcher->next == NULL || matcher->next->previous == matcher));
}
