/* What the cold store knows: entries by serial, each in the list of its parent's children. See cold_parts.h. */
#include "base/check.h"
#include "cache/store/cold_parts.h"

#define FIRST_ENTRIES 256u
#define FIRST_TABLE_BITS 9u

/* Fibonacci hashing: serials count up, in steps. */
static uint32_t place(const struct rn_cold_store *store, uint64_t serial)
{
    return (uint32_t)(serial * 0x9e3779b97f4a7c15u >> (64 - store->table_bits));
}

static void put_in_table(struct rn_cold_store *store, uint32_t entry)
{
    uint32_t *first = &store->table[place(store, store->entries[entry].serial)];

    RN_ASSERT(entry < store->n_touched && store->entries[entry].state == RN_COLD_KNOWN);
    store->entries[entry].table_next = *first;
    *first = entry;
}

/* Twice as many of both; on refusal nothing has changed. */
static bool grow(struct rn_cold_store *store)
{
    uint32_t n = store->n_entries == 0 ? FIRST_ENTRIES : 2 * store->n_entries;
    uint32_t bits = store->n_entries == 0 ? FIRST_TABLE_BITS : store->table_bits + 1;
    uint32_t *table = rn_alloc(store->heap, (size_t)1 << bits, sizeof *table);
    struct rn_cold_entry *entries = table == NULL ? NULL : rn_realloc(store->heap, store->entries, n, sizeof *entries);

    if (entries == NULL) {
        rn_free(store->heap, table);
        return false;
    }
    rn_free(store->heap, store->table);
    store->entries = entries;
    store->n_entries = n;
    store->table = table;
    store->table_bits = bits;
    for (size_t i = 0; i < (size_t)1 << bits; i++)
        table[i] = RN_COLD_NONE;
    for (uint32_t i = 0; i < store->n_touched; i++)
        if (entries[i].state == RN_COLD_KNOWN)
            put_in_table(store, i);
    return true;
}

uint32_t rn_cold_index_take(struct rn_cold_store *store)
{
    uint32_t entry = store->first_free;

    if (entry != RN_COLD_NONE) {
        RN_ASSERT(entry < store->n_touched && store->entries[entry].state == RN_COLD_FREE);
        store->first_free = store->entries[entry].next;
        return entry;
    }
    if (store->n_touched >= store->limits.max_records || (store->n_touched == store->n_entries && !grow(store)))
        return RN_COLD_NONE;
    RN_CHECK(store->n_touched < store->n_entries);
    return store->n_touched++;
}

void rn_cold_index_give_back(struct rn_cold_store *store, uint32_t entry)
{
    RN_ASSERT(entry < store->n_touched && store->entries[entry].state != RN_COLD_KNOWN);
    store->entries[entry] = (struct rn_cold_entry){.state = RN_COLD_FREE, .next = store->first_free};
    store->first_free = entry;
}

uint64_t rn_cold_entry_bytes(const struct rn_cold_store *store, const struct rn_cold_entry *entry)
{
    return rn_cold_record_bytes(store->id.block_tokens, entry->payload_bytes);
}

static void count(struct rn_cold_store *store, const struct rn_cold_entry *entry, int sign)
{
    struct rn_cold_segment *segment = &store->segments[entry->segment];
    uint64_t bytes = rn_cold_entry_bytes(store, entry);

    RN_ASSERT(segment->fd >= 0 && entry->nth < segment->n);
    RN_ASSERT(sign > 0 || (segment->n_live > 0 && segment->live_bytes >= bytes && store->stats.records > 0));
    segment->n_live += (uint32_t)sign;
    segment->live_bytes += sign > 0 ? bytes : -bytes;
    store->stats.live_bytes += sign > 0 ? bytes : -bytes;
    store->stats.records += (uint32_t)sign;
}

void rn_cold_index_add(struct rn_cold_store *store, uint32_t entry, uint32_t parent)
{
    struct rn_cold_entry *e = &store->entries[entry];
    uint32_t *first = parent == RN_COLD_NONE ? &store->first_root : &store->entries[parent].child;

    RN_ASSERT(e->state == RN_COLD_FREE && rn_cold_index_find(store, e->serial) == RN_COLD_NONE);
    RN_ASSERT(parent != RN_COLD_NONE || e->depth == 0);
    RN_ASSERT(rn_cold_serial_good(&store->segments[e->segment], e->serial));
    RN_ASSERT(parent == RN_COLD_NONE ||
              (store->entries[parent].state == RN_COLD_KNOWN && store->entries[parent].depth + 1 == e->depth));
    e->state = RN_COLD_KNOWN;
    e->parent = parent;
    e->child = RN_COLD_NONE;
    e->prev = RN_COLD_NONE;
    e->next = *first;
    RN_ASSERT(e->next == RN_COLD_NONE || store->entries[e->next].prev == RN_COLD_NONE);
    if (e->next != RN_COLD_NONE)
        store->entries[e->next].prev = entry;
    *first = entry;
    put_in_table(store, entry);
    count(store, e, 1);
}

uint32_t rn_cold_index_find(const struct rn_cold_store *store, uint64_t serial)
{
    uint32_t at = store->table == NULL ? RN_COLD_NONE : store->table[place(store, serial)];

    while (at != RN_COLD_NONE && store->entries[at].serial != serial)
        at = store->entries[at].table_next;
    return at;
}

bool rn_cold_find_parent(const struct rn_cold_store *store, const struct rn_cold_head *head, uint32_t *parent)
{
    const struct rn_cold_entry *p;

    *parent = RN_COLD_NONE;
    if (head->parent == 0)
        return true;
    *parent = rn_cold_index_find(store, head->parent);
    if (*parent == RN_COLD_NONE)
        return false;
    p = &store->entries[*parent];
    return p->check == head->parent_check && p->depth + 1 == head->depth && rn_prefix_salt_same(p->salt, head->salt);
}

void rn_cold_index_move(struct rn_cold_store *store, uint32_t entry, uint32_t segment, uint64_t at, uint32_t nth)
{
    struct rn_cold_entry *e = &store->entries[entry];

    RN_ASSERT(e->state == RN_COLD_KNOWN && store->segments[segment].fd >= 0);
    count(store, e, -1);
    e->segment = segment;
    e->offset = at;
    e->nth = nth;
    count(store, e, 1);
}

/* One without children. */
static void drop_leaf(struct rn_cold_store *store, uint32_t entry)
{
    struct rn_cold_entry *e = &store->entries[entry];
    uint32_t *at = &store->table[place(store, e->serial)];

    RN_CHECK(e->state == RN_COLD_KNOWN && e->child == RN_COLD_NONE);
    while (*at != entry) {
        RN_CHECK(*at != RN_COLD_NONE);
        at = &store->entries[*at].table_next;
    }
    *at = e->table_next;
    RN_ASSERT(e->prev == RN_COLD_NONE || store->entries[e->prev].next == entry);
    RN_ASSERT(e->next == RN_COLD_NONE || store->entries[e->next].prev == entry);
    if (e->prev != RN_COLD_NONE)
        store->entries[e->prev].next = e->next;
    else if (e->parent != RN_COLD_NONE)
        store->entries[e->parent].child = e->next;
    else
        store->first_root = e->next;
    if (e->next != RN_COLD_NONE)
        store->entries[e->next].prev = e->prev;
    count(store, e, -1);
    e->state = RN_COLD_GONE;
    e->next = store->first_gone;
    store->first_gone = entry;
}

uint32_t rn_cold_index_drop(struct rn_cold_store *store, uint32_t entry)
{
    uint32_t at = entry, n = 0;

    for (;;) {
        uint32_t parent;

        while (store->entries[at].child != RN_COLD_NONE)
            at = store->entries[at].child;
        parent = store->entries[at].parent;
        drop_leaf(store, at);
        n++;
        if (at == entry)
            return n;
        at = parent;
    }
}

/* ---- Check ---- */

static bool entry_good(const struct rn_cold_store *store, uint32_t entry)
{
    const struct rn_cold_entry *e = &store->entries[entry], *parent;

    if (rn_cold_index_find(store, e->serial) != entry || store->segments[e->segment].fd < 0 ||
        e->nth >= store->segments[e->segment].n ||
        e->offset + rn_cold_entry_bytes(store, e) > store->segments[e->segment].bytes)
        return false;
    if (e->parent == RN_COLD_NONE)
        return e->depth == 0;
    parent = &store->entries[e->parent];
    return parent->state == RN_COLD_KNOWN && parent->depth + 1 == e->depth && parent->serial < e->serial &&
           rn_prefix_salt_same(parent->salt, e->salt);
}

static bool segment_good(const struct rn_cold_store *store, uint32_t slot)
{
    const struct rn_cold_segment *segment = &store->segments[slot];
    uint64_t bytes = 0;
    uint32_t n = 0;

    for (uint32_t i = 0; i < store->n_touched; i++) {
        if (store->entries[i].state == RN_COLD_KNOWN && store->entries[i].segment == slot) {
            bytes += rn_cold_entry_bytes(store, &store->entries[i]);
            n++;
        }
    }
    return segment->fd >= 0 ? n == segment->n_live && bytes == segment->live_bytes : n == 0;
}

bool rn_cold_store_check(const struct rn_cold_store *store)
{
    uint64_t file_bytes = 0;
    uint32_t known = 0, n_segments = 0;

    for (uint32_t i = 0; i < store->n_touched; i++) {
        if (store->entries[i].state != RN_COLD_KNOWN)
            continue;
        known++;
        if (!entry_good(store, i))
            return false;
    }
    for (uint32_t i = 0; i < store->n_segments; i++) {
        if (!segment_good(store, i))
            return false;
        n_segments += store->segments[i].fd >= 0;
        file_bytes += store->segments[i].fd >= 0 ? store->segments[i].bytes : 0;
    }
    return known == store->stats.records && n_segments == store->stats.segments &&
           file_bytes == store->stats.file_bytes;
}
