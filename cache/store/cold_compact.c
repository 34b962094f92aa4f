/* Giving back the room of what wipe_salt has taken out: each segment that lost something is written anew, without what
 * is dead in it, and then its file goes. For a tool that has the folder for itself; it reads and writes all of such a
 * segment at once.
 *
 *   old   header | record | dead | record | dead | index          ──▶   gone, when the new one is on the disk
 *   new   header | record | record | index
 *
 * What is alive in the file is kept, known to the store or not: the segment with its parent may be one that the disk
 * does not give just now. Records keep their serials. One that fits its checks no more goes.
 *
 * A process that is killed meanwhile leaves some records in both files: the next one to open the folder takes the newer
 * one if it is whole. Where the disk fails or is full the new file is removed, and the old one stays as it was. At most
 * one segment's bytes are needed besides; those of which nothing is left go first and make room. */
#include <string.h>

#include "base/bytes.h"
#include "cache/store/cold_parts.h"

struct compact {
    struct rn_cold_store *store;
    uint32_t from;          /* the slot that is emptied */
    unsigned char *payload; /* [payload_room] */
    size_t payload_room;
};

/* The entry i of the segment's index is in store->head, and the record alive: true, and *head, its payload. *status:
 * whether that could be found out. */
static bool read_alive(struct compact *compact, uint32_t nth, struct rn_cold_head *head, runnel_status *status)
{
    struct rn_cold_store *store = compact->store;
    const struct rn_cold_segment *segment = &store->segments[compact->from];
    size_t one = rn_cold_index_bytes(store->id.block_tokens), head_bytes = one - RN_COLD_PLACE_BYTES;
    unsigned char *bytes = store->head + RN_COLD_PLACE_BYTES;
    int error = 0;
    uint64_t at;

    *status = RUNNEL_OK;
    if (!rn_cold_pread(store->io, segment->fd, store->head, one, segment->index + nth * one, &error))
        goto failed;
    at = rn_bytes_get(store->head, RN_COLD_PLACE_BYTES);
    if (!rn_cold_head_unpack(bytes, store->seed, store->id.block_tokens, head) || !head->alive ||
        !rn_cold_place_good(store, segment, at, head->payload_bytes))
        return false;
    if (compact->payload_room < head->payload_bytes) {
        rn_free(store->heap, compact->payload);
        compact->payload = rn_alloc(store->heap, head->payload_bytes, 1);
        compact->payload_room = compact->payload == NULL ? 0 : head->payload_bytes;
        if (compact->payload == NULL)
            return *status = RUNNEL_NO_MEMORY, false;
    }
    if (rn_cold_pread(store->io, segment->fd, bytes, head_bytes, at, &error) &&
        rn_cold_pread(store->io, segment->fd, compact->payload, head->payload_bytes, at + head_bytes, &error))
        return rn_cold_record_fits(store, bytes, compact->payload, head);
failed:
    if (error < 0) {
        rn_cold_write_failed(store, "a block cannot be moved", error);
        *status = RUNNEL_IO;
    }
    return false;
}

/* All that is alive, to the newest segment, which is made for it. */
static runnel_status copy_alive(struct compact *compact)
{
    struct rn_cold_store *store = compact->store;
    uint32_t n = store->segments[compact->from].n;

    for (uint32_t i = 0; i < n; i++) {
        struct rn_cold_head head;
        runnel_status status;

        if (!read_alive(compact, i, &head, &status)) {
            if (status != RUNNEL_OK)
                return status;
            continue;
        }
        status = rn_cold_make_room(store, rn_cold_record_bytes(store->id.block_tokens, head.payload_bytes));
        if (status == RUNNEL_OK)
            status = rn_cold_write_record(store, compact->payload, head.payload_bytes);
        if (status != RUNNEL_OK)
            return status;
    }
    return RUNNEL_OK;
}

/* What is known of the old segment is read in the new one, whose index is still in memory. */
static void move_known(struct compact *compact, uint32_t to)
{
    struct rn_cold_store *store = compact->store;
    size_t one = rn_cold_index_bytes(store->id.block_tokens);

    for (uint32_t i = 0; i < store->segments[to].n; i++) {
        const unsigned char *bytes = store->index + i * one;
        uint32_t entry = rn_cold_index_find(store, rn_cold_head_serial(bytes + RN_COLD_PLACE_BYTES));

        if (entry != RN_COLD_NONE && store->entries[entry].segment == compact->from)
            rn_cold_index_move(store, entry, to, rn_bytes_get(bytes, RN_COLD_PLACE_BYTES), i);
    }
}

static void remove_old(struct compact *compact)
{
    struct rn_cold_store *store = compact->store;

    for (uint32_t i = 0; i < store->n_touched && store->segments[compact->from].n_live > 0; i++)
        if (store->entries[i].state == RN_COLD_KNOWN && store->entries[i].segment == compact->from)
            rn_cold_index_drop(store, i);
    rn_cold_remove_segment(store, compact->from);
}

static runnel_status compact_segment(struct compact *compact)
{
    struct rn_cold_store *store = compact->store;
    runnel_status status = copy_alive(compact);
    uint32_t to = store->active;

    if (status == RUNNEL_OK && to != RN_COLD_NONE)
        status = rn_cold_seal_active(store);
    store->active = RN_COLD_NONE;
    if (status != RUNNEL_OK) {
        if (to != RN_COLD_NONE)
            rn_cold_remove_segment(store, to);
        return status;
    }
    if (to != RN_COLD_NONE)
        move_known(compact, to);
    remove_old(compact);
    return store->stats.writes ? RUNNEL_OK : RUNNEL_IO;
}

/* The oldest of those to be written anew; RN_COLD_NONE. */
static uint32_t next_one(const struct rn_cold_store *store)
{
    uint32_t found = RN_COLD_NONE;

    for (uint32_t i = 0; i < store->n_segments; i++)
        if (store->segments[i].fd >= 0 && store->segments[i].wiped && store->segments[i].index != 0 &&
            (found == RN_COLD_NONE || store->segments[i].number < store->segments[found].number))
            found = i;
    return found;
}

runnel_status rn_cold_store_compact(struct rn_cold_store *store)
{
    struct compact compact = {.store = store};
    uint64_t segment_bytes = store->limits.segment_bytes;
    runnel_status status = RUNNEL_OK;

    if (!store->stats.writes)
        return RUNNEL_STATE;
    if (store->active != RN_COLD_NONE && store->segments[store->active].n > 0)
        status = rn_cold_seal_active(store);
    store->limits.segment_bytes = UINT64_MAX; /* one for one */
    while (status == RUNNEL_OK && (compact.from = next_one(store)) != RN_COLD_NONE)
        status = compact_segment(&compact);
    store->limits.segment_bytes = segment_bytes;
    rn_free(store->heap, compact.payload);
    return status;
}
