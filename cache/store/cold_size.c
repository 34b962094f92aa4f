/* Keeping to the limits: a segment, the victim, is emptied a piece at a time and then removed.
 *
 * The victim is the one with the smallest part alive, if that is less than half, else the oldest. Its records are
 * looked at in their order; one that was used since it was written there is copied to the newest segment, as it is,
 * until half of the victim's bytes have been copied; the rest goes with the file, and what builds on it. Using a
 * record uses all before it, so what is kept has its parents.
 *
 * Each process that writes leaves a segment, however small, and each segment takes a descriptor. Where there are many,
 * the smallest ones are victims too, while there is room; of these all records are copied, or the segment stays.
 *
 * While the disk does not give some segment, others may seem emptier than they are: what they hold may build on it.
 * Then only the oldest goes, and only for room. */
#include "base/check.h"
#include "cache/store/cold_parts.h"

/* A record that is only looked at costs so much of the budget: a read of its head. */
#define LOOK_BYTES 512u

#define MANY_SEGMENTS 64u /* as many descriptors; a process has 1024 or more */

static bool crowded(const struct rn_cold_store *store)
{
    return store->stats.file_bytes + store->limits.segment_bytes > store->limits.max_bytes ||
           store->stats.records + store->limits.max_records / 16 >= store->limits.max_records;
}

/* The smallest of many segments, if four of its kind go into one; RN_COLD_NONE. */
static uint32_t small_one(const struct rn_cold_store *store)
{
    uint32_t found = RN_COLD_NONE;

    if (store->stats.segments <= MANY_SEGMENTS || store->no_joins || store->unread.n > 0)
        return RN_COLD_NONE;
    for (uint32_t i = 0; i < store->n_segments; i++) {
        const struct rn_cold_segment *segment = &store->segments[i];

        if (segment->fd >= 0 && i != store->active && segment->index != 0 &&
            segment->bytes <= store->limits.segment_bytes / 4 &&
            (found == RN_COLD_NONE || segment->bytes < store->segments[found].bytes))
            found = i;
    }
    return found;
}

static uint32_t choose(const struct rn_cold_store *store)
{
    uint32_t oldest = RN_COLD_NONE, emptiest = RN_COLD_NONE;
    double least = 0.5;

    for (uint32_t i = 0; i < store->n_segments; i++) {
        const struct rn_cold_segment *segment = &store->segments[i];

        if (segment->fd < 0 || i == store->active)
            continue;
        if (oldest == RN_COLD_NONE || segment->number < store->segments[oldest].number)
            oldest = i;
        if (store->unread.n == 0 && (double)segment->live_bytes < least * (double)segment->bytes) {
            least = (double)segment->live_bytes / (double)segment->bytes;
            emptiest = i;
        }
    }
    RN_ASSERT(oldest == RN_COLD_NONE || store->segments[oldest].index != 0);
    return emptiest != RN_COLD_NONE ? emptiest : oldest;
}

/* One that nobody can read any more goes at once. */
static bool remove_empty(struct rn_cold_store *store)
{
    if (store->unread.n > 0)
        return false;
    for (uint32_t i = 0; i < store->n_segments; i++) {
        if (store->segments[i].fd >= 0 && i != store->active && i != store->victim && store->segments[i].n_live == 0) {
            rn_cold_remove_segment(store, i);
            return true;
        }
    }
    return false;
}

/* The record to the newest segment, byte for byte. False: it cannot be kept. */
static bool copy(struct rn_cold_store *store, uint32_t entry, void *payload)
{
    struct rn_cold_entry *e = &store->entries[entry];
    uint64_t bytes = rn_cold_entry_bytes(store, e), offset;
    bool broken;

    if (!rn_cold_fetch(store, entry, payload, &broken) || rn_cold_make_room(store, bytes) != RUNNEL_OK)
        return false;
    RN_ASSERT(store->active != store->victim && e->segment == store->victim);
    offset = store->segments[store->active].bytes;
    if (rn_cold_write_record(store, payload, e->payload_bytes) != RUNNEL_OK)
        return false;
    rn_cold_index_move(store, entry, store->active, offset, store->segments[store->active].n - 1);
    e->used = false;
    store->stats.copied_bytes += bytes;
    store->victim_copied += bytes;
    return true;
}

/* The victim's next record; what it cost. */
static uint64_t step(struct rn_cold_store *store)
{
    struct rn_cold_segment *victim = &store->segments[store->victim];
    size_t one = rn_cold_index_bytes(store->id.block_tokens);
    struct rn_cold_head head;
    uint64_t bytes = 0;
    uint32_t entry;
    void *payload;
    bool used;
    int status;

    RN_ASSERT(victim->fd >= 0 && victim->index != 0 && store->victim_next < victim->n);
    if (!rn_cold_pread(store->io, victim->fd, store->head, one, victim->index + store->victim_next++ * one, &status) ||
        !rn_cold_head_unpack(store->head + RN_COLD_PLACE_BYTES, store->seed, store->id.block_tokens, &head))
        return LOOK_BYTES;
    entry = rn_cold_index_find(store, head.serial);
    if (entry == RN_COLD_NONE || store->entries[entry].segment != store->victim)
        return LOOK_BYTES;
    used = store->entries[entry].used;
    if (!used && !store->joins)
        return LOOK_BYTES;
    bytes = rn_cold_entry_bytes(store, &store->entries[entry]);
    if (!store->joins && store->victim_copied + bytes > victim->bytes / 2)
        return LOOK_BYTES;
    payload = rn_alloc(store->heap, store->entries[entry].payload_bytes, 1);
    if (payload == NULL)
        return LOOK_BYTES;
    if (copy(store, entry, payload) && store->joins)
        store->entries[entry].used = used;
    rn_free(store->heap, payload);
    return LOOK_BYTES + 2 * bytes;
}

/* What has not been copied goes, and the file; one that was to be joined stays then. */
static void finish(struct rn_cold_store *store)
{
    uint32_t victim = store->victim;

    store->no_joins |= store->joins && store->segments[victim].n_live > 0;
    if (store->joins && store->no_joins) {
        store->victim = RN_COLD_NONE;
        return;
    }
    for (uint32_t i = 0; i < store->n_touched && store->segments[victim].n_live > 0; i++)
        if (store->entries[i].state == RN_COLD_KNOWN && store->entries[i].segment == victim)
            store->stats.dropped += rn_cold_index_drop(store, i);
    RN_ASSERT(victim != store->active && store->segments[victim].live_bytes == 0);
    store->victim = RN_COLD_NONE;
    rn_cold_remove_segment(store, victim);
}

static void tell_gone(struct rn_cold_store *store, void (*gone)(void *user, uint64_t handle), void *user)
{
    while (store->first_gone != RN_COLD_NONE) {
        uint32_t entry = store->first_gone;

        RN_ASSERT(entry < store->n_touched && store->entries[entry].state == RN_COLD_GONE);
        store->first_gone = store->entries[entry].next;
        if (gone != NULL)
            gone(user, store->entries[entry].serial);
        rn_cold_index_give_back(store, entry);
    }
}

/* False: there is none to be emptied. */
static bool have_victim(struct rn_cold_store *store)
{
    if (store->victim != RN_COLD_NONE)
        return true;
    store->joins = !crowded(store);
    store->victim = store->joins ? small_one(store) : choose(store);
    if (!store->joins && store->victim == RN_COLD_NONE && store->active != RN_COLD_NONE &&
        rn_cold_seal_active(store) == RUNNEL_OK)
        store->victim = choose(store);
    store->victim_next = 0;
    store->victim_copied = 0;
    return store->victim != RN_COLD_NONE;
}

bool rn_cold_store_maintain(struct rn_cold_store *store, uint64_t budget_bytes,
                            void (*gone)(void *user, uint64_t handle), void *user)
{
    bool more = false;

    RN_ASSERT(store->victim == RN_COLD_NONE || store->segments[store->victim].fd >= 0);
    if (store->stats.writes && remove_empty(store)) {
        more = true;
    } else if (store->stats.writes && have_victim(store)) {
        uint64_t spent = 0;

        while (spent < budget_bytes && store->stats.writes && store->victim_next < store->segments[store->victim].n)
            spent += step(store);
        if (store->stats.writes && store->victim_next >= store->segments[store->victim].n)
            finish(store);
        more = store->stats.writes &&
               (store->victim != RN_COLD_NONE || crowded(store) || small_one(store) != RN_COLD_NONE);
    }
    tell_gone(store, gone, user);
    return more;
}
