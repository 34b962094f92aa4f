/* See warm_store.h.
 *
 * An entry is free, or a record. A record is in the table by its handle; one whose parent is here in the parent's list
 * of children; one whose parent is not here in the list of orphans by the parent's handle. The records without
 * children are in a heap, least recently used first: only they are evicted, so a record's ancestors that are here
 * outlive it. Stamps count uses; a record that loses a child takes over its stamp if that is newer. */
#include "cache/store/warm_store.h"

#include <assert.h>
#include <string.h>

#include <xxhash.h>

#include "base/check.h"
#include "cache/store/warm_pages.h"

#define NONE UINT32_MAX
#define LEAST_PAGE 256u
#define MOST_PAGE 65536u
#define PAGES_PER_PAYLOAD 32u
#define LEAST_PAYLOADS 4u
#define SMALL_PART 4u /* the index has room for payloads so many times smaller than the largest */
#define MOST_RECORDS (1u << 30)

struct entry {
    uint64_t handle, parent_handle;
    struct rn_prefix_salt salt;
    uint64_t check, stamp;
    uint32_t bytes, page;
    uint32_t parent, child; /* NONE: not here */
    uint32_t next, prev;    /* the parent's children, or orphans. Free: next free one */
    uint32_t table_next;
    uint32_t heap_at; /* NONE: it has children */
};
static_assert(sizeof(struct entry) == 80, "it is counted per block");

struct rn_warm_store {
    struct rn_tier_store tier; /* first */
    struct rn_heap *heap;
    struct rn_warm_options options;
    struct rn_warm_pages pages;
    struct entry *entries; /* [max_records] */
    int32_t *tokens;       /* [max_records × block_tokens] */
    uint32_t *leaves;      /* [n_leaves]: a heap by stamp */
    uint32_t *table;       /* [1 << table_bits]: by handle */
    uint32_t *orphans;     /* [1 << table_bits]: by the parent's handle */
    uint32_t table_bits, max_records, n_touched, first_free, n_leaves;
    uint64_t clock, next_own;
    size_t fixed_bytes;
    bool telling; /* gone() is running */
    struct rn_warm_stats stats;
};

static struct rn_warm_store *store_of(struct rn_tier_store *tier)
{
    return (struct rn_warm_store *)tier;
}

static const struct rn_warm_store *borrow(const struct rn_tier_store *tier)
{
    return (const struct rn_warm_store *)tier;
}

/* ---- Table and lists ---- */

/* Fibonacci hashing: handles count up. */
static uint32_t place(const struct rn_warm_store *store, uint64_t handle)
{
    return (uint32_t)(handle * 0x9e3779b97f4a7c15u >> (64 - store->table_bits));
}

static uint32_t find(const struct rn_warm_store *store, uint64_t handle)
{
    uint32_t at = store->table[place(store, handle)];

    while (at != NONE && store->entries[at].handle != handle)
        at = store->entries[at].table_next;
    return at;
}

static void table_remove(struct rn_warm_store *store, uint32_t entry)
{
    uint32_t *at = &store->table[place(store, store->entries[entry].handle)];

    while (*at != entry) {
        RN_CHECK(*at != NONE);
        at = &store->entries[*at].table_next;
    }
    *at = store->entries[entry].table_next;
}

/* The list that the record is in by its parent; NULL: it has none. */
static uint32_t *list_of(struct rn_warm_store *store, const struct entry *e)
{
    if (e->parent != NONE)
        return &store->entries[e->parent].child;
    return e->parent_handle == 0 ? NULL : &store->orphans[place(store, e->parent_handle)];
}

static void list_add(struct rn_warm_store *store, uint32_t entry)
{
    struct entry *e = &store->entries[entry];
    uint32_t *first = list_of(store, e);

    e->prev = e->next = NONE;
    if (first == NULL)
        return;
    RN_ASSERT(*first == NONE || store->entries[*first].prev == NONE);
    e->next = *first;
    if (e->next != NONE)
        store->entries[e->next].prev = entry;
    *first = entry;
}

static void list_remove(struct rn_warm_store *store, uint32_t entry)
{
    struct entry *e = &store->entries[entry];
    uint32_t *first = list_of(store, e);

    if (first == NULL)
        return;
    RN_ASSERT(e->prev == NONE ? *first == entry : store->entries[e->prev].next == entry);
    RN_ASSERT(e->next == NONE || store->entries[e->next].prev == entry);
    if (e->prev != NONE)
        store->entries[e->prev].next = e->next;
    else
        *first = e->next;
    if (e->next != NONE)
        store->entries[e->next].prev = e->prev;
}

/* ---- The heap of records without children ---- */

static bool older(const struct rn_warm_store *store, uint32_t a, uint32_t b)
{
    return store->entries[store->leaves[a]].stamp < store->entries[store->leaves[b]].stamp;
}

static void swap(struct rn_warm_store *store, uint32_t a, uint32_t b)
{
    uint32_t entry = store->leaves[a];

    store->leaves[a] = store->leaves[b];
    store->leaves[b] = entry;
    store->entries[store->leaves[a]].heap_at = a;
    store->entries[store->leaves[b]].heap_at = b;
}

static void heap_fix(struct rn_warm_store *store, uint32_t at)
{
    for (; at > 0 && older(store, at, (at - 1) / 2); at = (at - 1) / 2)
        swap(store, at, (at - 1) / 2);
    for (;;) {
        uint32_t least = at;

        for (uint32_t i = 2 * at + 1; i <= 2 * at + 2; i++)
            if (i < store->n_leaves && older(store, i, least))
                least = i;
        if (least == at)
            return;
        swap(store, at, least);
        at = least;
    }
}

static void heap_add(struct rn_warm_store *store, uint32_t entry)
{
    RN_CHECK(store->n_leaves < store->max_records);
    RN_ASSERT(store->entries[entry].heap_at == NONE && store->entries[entry].child == NONE);
    store->entries[entry].heap_at = store->n_leaves;
    store->leaves[store->n_leaves++] = entry;
    heap_fix(store, store->n_leaves - 1);
}

static void heap_remove(struct rn_warm_store *store, uint32_t entry)
{
    uint32_t at = store->entries[entry].heap_at;

    RN_CHECK(at < store->n_leaves && store->leaves[at] == entry);
    swap(store, at, --store->n_leaves);
    store->entries[entry].heap_at = NONE;
    if (at < store->n_leaves)
        heap_fix(store, at);
}

static void touch(struct rn_warm_store *store, uint32_t entry)
{
    store->entries[entry].stamp = ++store->clock;
    if (store->entries[entry].heap_at != NONE)
        heap_fix(store, store->entries[entry].heap_at);
}

/* ---- Leaving ---- */

/* One without children. */
static void leave(struct rn_warm_store *store, uint32_t entry)
{
    struct entry *e = &store->entries[entry];

    RN_CHECK(e->child == NONE && !store->telling);
    if (store->tier.gone != NULL) {
        store->telling = true;
        store->tier.gone(store->tier.user, e->handle);
        store->telling = false;
    }
    table_remove(store, entry);
    list_remove(store, entry);
    heap_remove(store, entry);
    rn_warm_pages_free(&store->pages, e->page, e->bytes);
    RN_ASSERT(store->stats.records > 0 && store->stats.payload_bytes >= e->bytes);
    store->stats.records--;
    store->stats.payload_bytes -= e->bytes;
    if (e->parent != NONE) {
        struct entry *parent = &store->entries[e->parent];

        if (parent->stamp < e->stamp)
            parent->stamp = e->stamp;
        if (parent->child == NONE)
            heap_add(store, e->parent);
    }
    *e = (struct entry){.next = store->first_free};
    store->first_free = entry;
}

/* The entry and all that build on it. Returns how many. */
static uint32_t drop(struct rn_warm_store *store, uint32_t entry)
{
    uint32_t at = entry, n = 0;

    for (;;) {
        uint32_t parent;

        while (store->entries[at].child != NONE)
            at = store->entries[at].child;
        parent = store->entries[at].parent;
        leave(store, at);
        n++;
        if (at == entry)
            return n;
        at = parent;
    }
}

static bool evict(struct rn_warm_store *store)
{
    if (store->n_leaves == 0)
        return false;
    RN_ASSERT(store->entries[store->leaves[0]].stamp <= store->clock);
    leave(store, store->leaves[0]);
    return true;
}

/* ---- Coming ---- */

/* The records that name the handle as their parent have the same salt, and `parent` (an entry, or NONE) is not below
 * them: a circle would have no end to be evicted. */
static bool children_fit(const struct rn_warm_store *store, uint64_t handle, uint32_t parent,
                         struct rn_prefix_salt salt)
{
    bool any = false;

    for (uint32_t at = store->orphans[place(store, handle)]; at != NONE; at = store->entries[at].next) {
        if (store->entries[at].parent_handle != handle)
            continue;
        if (!rn_prefix_salt_same(store->entries[at].salt, salt))
            return false;
        any = true;
    }
    if (!any || parent == NONE)
        return true;
    while (store->entries[parent].parent != NONE)
        parent = store->entries[parent].parent;
    return store->entries[parent].parent_handle != handle;
}

/* The handle is free, and the records it is to be joined with have the same salt. */
static bool fits(const struct rn_warm_store *store, uint64_t handle, uint64_t parent, struct rn_prefix_salt salt)
{
    uint32_t at = parent == 0 ? NONE : find(store, parent);

    if (at != NONE && !rn_prefix_salt_same(store->entries[at].salt, salt))
        return false;
    if (handle == 0)
        return true;
    if ((handle & RN_WARM_OWN_HANDLE) != 0 || handle == parent || find(store, handle) != NONE)
        return false;
    return children_fit(store, handle, at, salt);
}

/* An entry, and pages for n bytes. */
static runnel_status make_room(struct rn_warm_store *store, size_t n, uint32_t *entry)
{
    uint32_t pages = rn_warm_pages_for(&store->pages, n);

    while (store->stats.records == store->max_records || !rn_warm_pages_have(&store->pages, pages))
        if (!evict(store))
            return store->pages.n_slabs == 0 ? RUNNEL_NO_MEMORY : RUNNEL_BUSY;
    *entry = store->first_free;
    if (*entry == NONE) {
        RN_CHECK(store->n_touched < store->max_records);
        *entry = store->n_touched++;
    } else {
        RN_ASSERT(*entry < store->n_touched && store->entries[*entry].handle == 0);
        store->first_free = store->entries[*entry].next;
    }
    return RUNNEL_OK;
}

/* Those who have waited for this parent. */
static void adopt(struct rn_warm_store *store, uint32_t entry)
{
    uint64_t handle = store->entries[entry].handle;
    uint32_t next;

    for (uint32_t at = store->orphans[place(store, handle)]; at != NONE; at = next) {
        next = store->entries[at].next;
        if (store->entries[at].parent_handle != handle)
            continue;
        RN_ASSERT(rn_prefix_salt_same(store->entries[at].salt, store->entries[entry].salt));
        list_remove(store, at);
        store->entries[at].parent = entry;
        list_add(store, at);
    }
}

static void join(struct rn_warm_store *store, uint32_t entry)
{
    struct entry *e = &store->entries[entry];
    uint32_t *first = &store->table[place(store, e->handle)];

    RN_ASSERT(find(store, e->handle) == NONE);
    e->table_next = *first;
    *first = entry;
    e->parent = e->parent_handle == 0 ? NONE : find(store, e->parent_handle);
    list_add(store, entry);
    if (e->parent != NONE && store->entries[e->parent].heap_at != NONE)
        heap_remove(store, e->parent);
    adopt(store, entry);
    if (e->child == NONE)
        heap_add(store, entry);
}

static uint64_t memory_bytes(const struct rn_tier_store *tier)
{
    const struct rn_warm_store *store = borrow(tier);

    return store->fixed_bytes + store->pages.n_slabs * (uint64_t)rn_warm_pages_slab(store->pages.page_bytes);
}

static runnel_status put(struct rn_tier_store *tier, const struct rn_tier_key *key, const void *payload, size_t n,
                         uint64_t *handle)
{
    struct rn_warm_store *store = store_of(tier);
    uint32_t block_tokens = store->options.block_tokens, entry;
    runnel_status status = RUNNEL_INVALID;

    RN_CHECK(!store->telling);
    if (n > 0 && n <= store->options.payload_bytes && fits(store, *handle, key->parent, key->salt))
        status = make_room(store, n, &entry);
    if (status != RUNNEL_OK)
        return status;
    if (*handle == 0)
        *handle = RN_WARM_OWN_HANDLE | ++store->next_own;
    store->entries[entry] = (struct entry){.handle = *handle,
                                           .parent_handle = key->parent,
                                           .salt = key->salt,
                                           .check = XXH3_64bits(payload, n),
                                           .stamp = ++store->clock,
                                           .bytes = (uint32_t)n,
                                           .page = rn_warm_pages_write(&store->pages, payload, n),
                                           .child = NONE,
                                           .heap_at = NONE};
    memcpy(store->tokens + (size_t)entry * block_tokens, key->tokens, block_tokens * sizeof *key->tokens);
    join(store, entry);
    RN_ASSERT(memory_bytes(tier) <= store->options.max_bytes);
    RN_ASSERT(store->stats.records < store->max_records && store->n_leaves <= store->n_touched);
    store->stats.records++;
    store->stats.payload_bytes += n;
    return RUNNEL_OK;
}

/* ---- Reading ---- */

static size_t payload_bytes(const struct rn_tier_store *tier, uint64_t handle)
{
    const struct rn_warm_store *store = borrow(tier);
    uint32_t entry = find(store, handle);

    return entry == NONE ? 0 : store->entries[entry].bytes;
}

static runnel_status get(struct rn_tier_store *tier, uint64_t handle, const struct rn_tier_key *key, void *payload)
{
    struct rn_warm_store *store = store_of(tier);
    uint32_t entry = find(store, handle), block_tokens = store->options.block_tokens;
    const struct entry *e;

    store->stats.gets++;
    store->stats.misses++;
    if (entry == NONE)
        return RUNNEL_NOT_FOUND;
    e = &store->entries[entry];
    if (e->parent_handle != key->parent || !rn_prefix_salt_same(e->salt, key->salt) ||
        memcmp(store->tokens + (size_t)entry * block_tokens, key->tokens, block_tokens * sizeof *key->tokens) != 0)
        return RUNNEL_NOT_FOUND;
    RN_ASSERT(e->bytes > 0 && e->bytes <= store->options.payload_bytes && e->stamp <= store->clock);
    rn_warm_pages_read(&store->pages, e->page, payload, e->bytes);
    if (XXH3_64bits(payload, e->bytes) != e->check) {
        store->stats.damaged++;
        if (!store->telling)
            drop(store, entry);
        return RUNNEL_NOT_FOUND;
    }
    if (!store->telling)
        touch(store, entry);
    store->stats.misses--;
    return RUNNEL_OK;
}

static void used(struct rn_tier_store *tier, uint64_t handle)
{
    struct rn_warm_store *store = store_of(tier);
    uint32_t entry = find(store, handle);

    if (entry != NONE)
        touch(store, entry);
}

/* ---- Forgetting ---- */

static uint32_t forget(struct rn_tier_store *tier, uint64_t handle)
{
    struct rn_warm_store *store = store_of(tier);
    uint32_t entry = find(store, handle);

    return entry == NONE ? 0 : drop(store, entry);
}

/* ---- The whole ---- */

static uint32_t table_bits(uint32_t records)
{
    uint32_t bits = 1;

    while ((1u << bits) < records)
        bits++;
    return bits;
}

static size_t fixed_bytes(const struct rn_warm_store *store)
{
    size_t one = sizeof *store->entries + sizeof *store->leaves + store->options.block_tokens * sizeof *store->tokens;

    return sizeof *store + store->max_records * one + (2 * sizeof *store->table << store->table_bits);
}

/* How many records and slabs there may be. False: too little for anything. */
static bool plan(struct rn_warm_store *store, size_t *page_bytes, uint32_t *slabs)
{
    const struct rn_warm_options *options = &store->options;
    uint64_t records, least, n, slab;

    if (options->payload_bytes == 0 || options->payload_bytes > (size_t)1 << 30 || options->block_tokens == 0 ||
        options->block_tokens > 1u << 20)
        return false;
    *page_bytes = LEAST_PAGE;
    while (2 * *page_bytes <= options->payload_bytes / PAGES_PER_PAYLOAD && *page_bytes < MOST_PAGE)
        *page_bytes *= 2;
    least = options->payload_bytes / SMALL_PART > *page_bytes ? options->payload_bytes / SMALL_PART : *page_bytes;
    records = options->max_bytes / (least + options->block_tokens * sizeof(int32_t) + sizeof(struct entry) +
                                    sizeof *store->leaves + 4 * sizeof *store->table);
    store->max_records = records < MOST_RECORDS ? (uint32_t)records : MOST_RECORDS;
    store->table_bits = table_bits(store->max_records);
    store->fixed_bytes = fixed_bytes(store);
    slab = rn_warm_pages_slab(*page_bytes) + rn_warm_pages_fixed(1);
    if (store->fixed_bytes > options->max_bytes)
        return false;
    n = (options->max_bytes - store->fixed_bytes) / slab;
    *slabs = n < UINT32_MAX / RN_WARM_SLAB_PAGES ? (uint32_t)n : UINT32_MAX / RN_WARM_SLAB_PAGES - 1;
    store->fixed_bytes += rn_warm_pages_fixed(*slabs);
    RN_ASSERT(store->fixed_bytes + *slabs * (uint64_t)rn_warm_pages_slab(*page_bytes) <= options->max_bytes);
    return store->max_records >= LEAST_PAYLOADS &&
           *slabs * rn_warm_pages_slab(*page_bytes) / LEAST_PAYLOADS >= options->payload_bytes + *page_bytes;
}

static runnel_status take_memory(struct rn_warm_store *store, size_t page_bytes, uint32_t slabs)
{
    struct rn_heap *heap = store->heap;
    size_t places = (size_t)1 << store->table_bits;

    store->entries = rn_alloc(heap, store->max_records, sizeof *store->entries);
    store->tokens = rn_alloc(heap, store->max_records, store->options.block_tokens * sizeof *store->tokens);
    store->leaves = rn_alloc(heap, store->max_records, sizeof *store->leaves);
    store->table = rn_alloc(heap, places, sizeof *store->table);
    store->orphans = rn_alloc(heap, places, sizeof *store->orphans);
    if (store->entries == NULL || store->tokens == NULL || store->leaves == NULL || store->table == NULL ||
        store->orphans == NULL)
        return RUNNEL_NO_MEMORY;
    memset(store->table, 0xff, places * sizeof *store->table); /* NONE */
    memset(store->orphans, 0xff, places * sizeof *store->orphans);
    return rn_warm_pages_init(&store->pages, heap, page_bytes, slabs);
}

static bool check_store(const struct rn_tier_store *tier)
{
    return rn_warm_store_check(borrow(tier));
}

static void close_store(struct rn_tier_store *tier)
{
    rn_warm_store_close(store_of(tier));
}

static const struct rn_tier_ops warm_ops = {
    .name = "warm",
    .put = put,
    .payload_bytes = payload_bytes,
    .get = get,
    .used = used,
    .forget = forget,
    .bytes = memory_bytes,
    .check = check_store,
    .close = close_store,
};

struct rn_tier_store *rn_warm_store_tier(struct rn_warm_store *store)
{
    return &store->tier;
}

runnel_status rn_warm_store_open(struct rn_heap *heap, const struct rn_warm_options *options,
                                 struct rn_warm_store **out, runnel_error *error)
{
    struct rn_warm_store *store = rn_calloc(heap, 1, sizeof *store);
    size_t page_bytes;
    uint32_t slabs;

    *out = NULL;
    if (store == NULL)
        return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for a warm tier");
    store->tier.ops = &warm_ops;
    store->heap = heap;
    store->options = *options;
    store->first_free = NONE;
    if (!plan(store, &page_bytes, &slabs)) {
        rn_warm_store_close(store);
        return rn_error_set(
            error, RUNNEL_INVALID,
            "cache_warm_bytes is %llu, too little: a warm tier holds at least %u blocks, of %zu bytes here, "
            "and its index",
            (unsigned long long)options->max_bytes, (unsigned)LEAST_PAYLOADS, options->payload_bytes);
    }
    if (take_memory(store, page_bytes, slabs) != RUNNEL_OK) {
        rn_warm_store_close(store);
        return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for the index of a warm tier");
    }
    *out = store;
    return RUNNEL_OK;
}

void rn_warm_store_close(struct rn_warm_store *store)
{
    if (store == NULL)
        return;
    rn_warm_pages_fini(&store->pages);
    rn_free(store->heap, store->entries);
    rn_free(store->heap, store->tokens);
    rn_free(store->heap, store->leaves);
    rn_free(store->heap, store->table);
    rn_free(store->heap, store->orphans);
    rn_free(store->heap, store);
}

void rn_warm_store_stats(const struct rn_warm_store *store, struct rn_warm_stats *stats)
{
    *stats = store->stats;
    stats->max_records = store->max_records;
    stats->memory_bytes = memory_bytes(&store->tier);
}

/* ---- Check ---- */

static bool linked(const struct rn_warm_store *store, uint32_t first, uint32_t entry)
{
    while (first != NONE && first != entry)
        first = store->entries[first].next;
    return first == entry;
}

static bool record_good(const struct rn_warm_store *store, uint32_t entry)
{
    const struct entry *e = &store->entries[entry], *parent;

    if (find(store, e->handle) != entry || e->bytes == 0)
        return false;
    if (e->child == NONE ? e->heap_at >= store->n_leaves || store->leaves[e->heap_at] != entry : e->heap_at != NONE)
        return false;
    if (e->child == NONE && e->heap_at > 0 && older(store, e->heap_at, (e->heap_at - 1) / 2))
        return false;
    if (e->parent_handle == 0)
        return e->parent == NONE;
    if (e->parent == NONE)
        return find(store, e->parent_handle) == NONE &&
               linked(store, store->orphans[place(store, e->parent_handle)], entry);
    parent = &store->entries[e->parent];
    return parent->handle == e->parent_handle && rn_prefix_salt_same(parent->salt, e->salt) &&
           linked(store, parent->child, entry);
}

bool rn_warm_store_check(const struct rn_warm_store *store)
{
    uint64_t bytes = 0, pages = 0;
    uint32_t records = 0, leaves = 0;

    for (uint32_t i = 0; i < store->n_touched; i++) {
        const struct entry *e = &store->entries[i];

        if (e->handle == 0)
            continue;
        if (!record_good(store, i))
            return false;
        records++;
        leaves += e->child == NONE;
        bytes += e->bytes;
        pages += rn_warm_pages_for(&store->pages, e->bytes);
    }
    return records == store->stats.records && leaves == store->n_leaves && bytes == store->stats.payload_bytes &&
           pages + store->pages.n_free == store->pages.n_slabs * (uint64_t)RN_WARM_SLAB_PAGES &&
           rn_warm_pages_check(&store->pages);
}
