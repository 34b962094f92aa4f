/* Taking a salt's records out of the files: they are not only marked as dead, their tokens and payloads are overwritten
 * with zeros, in the records and in the indexes. Their heads stay, with checks that fit, until the segment is
 * compacted. A writer that is killed meanwhile leaves some of them overwritten in part: these fit no check, and are
 * misses.
 *
 * Compacting gives the room of what wipe_salt has taken out back: each segment that lost something is written anew,
 * without what is dead in it, and then its file goes. For a tool that has the folder for itself; it reads and writes
 * all of such a segment at once.
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
#include "base/check.h"
#include "cache/store/cold_parts.h"

/* ---- Wiping ---- */

struct wipe {
    struct rn_cold_store *store;
    uint64_t salt;          /* the first word */
    int32_t *tokens;        /* [block_tokens]: zeros */
    unsigned char *payload; /* [payload_room]: zeros */
    size_t payload_room;
    uint64_t n;
};

static runnel_status failed(struct rn_cold_store *store, int status)
{
    rn_cold_write_failed(store, "a block cannot be overwritten", status);
    return RUNNEL_IO;
}

/* The check of a payload of n zeros. */
static bool check_of_zeros(struct wipe *wipe, const struct rn_cold_head *head, struct rn_fingerprint *check)
{
    struct rn_heap *heap = wipe->store->heap;

    if (wipe->payload_room < head->payload_bytes) {
        rn_free(heap, wipe->payload);
        wipe->payload = rn_calloc(heap, head->payload_bytes, 1);
        wipe->payload_room = wipe->payload == NULL ? 0 : head->payload_bytes;
    }
    if (wipe->payload == NULL)
        return false;
    *check = rn_cold_payload_check(wipe->store->seed, head->serial, wipe->payload, head->payload_bytes);
    return true;
}

/* The record at `at`, and its entry of the index at entry_at. Payload first: what is left has a check that fits no
 * more. */
static runnel_status wipe_record(struct wipe *wipe, struct rn_cold_segment *segment, struct rn_cold_head *head,
                                 uint64_t at, uint64_t entry_at)
{
    struct rn_cold_store *store = wipe->store;
    size_t head_bytes = rn_cold_head_bytes(store->id.block_tokens);
    int status;

    if (!check_of_zeros(wipe, head, &head->payload_check))
        return RUNNEL_NO_MEMORY;
    RN_ASSERT(wipe->payload_room >= head->payload_bytes);
    RN_ASSERT(at + rn_cold_record_bytes(store->id.block_tokens, head->payload_bytes) <= entry_at);
    head->alive = false;
    rn_bytes_put(store->head, at, RN_COLD_PLACE_BYTES);
    rn_cold_head_pack(head, store->seed, wipe->tokens, store->id.block_tokens, store->head + RN_COLD_PLACE_BYTES);
    status = rn_cold_pwrite(store, segment->fd, wipe->payload, head->payload_bytes, at + head_bytes);
    if (status == 0)
        status = rn_cold_pwrite(store, segment->fd, store->head + RN_COLD_PLACE_BYTES, head_bytes, at);
    if (status == 0)
        status = rn_cold_pwrite(store, segment->fd, store->head, RN_COLD_PLACE_BYTES + head_bytes, entry_at);
    if (status < 0)
        return failed(store, status);
    wipe->n++;
    segment->wiped = true;
    return RUNNEL_OK;
}

static runnel_status wipe_segment(struct wipe *wipe, struct rn_cold_segment *segment)
{
    struct rn_cold_store *store = wipe->store;
    size_t one = rn_cold_index_bytes(store->id.block_tokens);
    runnel_status status = RUNNEL_OK;

    RN_ASSERT(segment->index != 0);
    for (uint32_t i = 0; i < segment->n && status == RUNNEL_OK; i++) {
        uint64_t entry_at = segment->index + i * one, at;
        struct rn_cold_head head;
        int error;

        if (!rn_cold_pread(store->io, segment->fd, store->head, one, entry_at, &error))
            return failed(store, error);
        at = rn_bytes_get(store->head, RN_COLD_PLACE_BYTES);
        if (!rn_cold_head_unpack(store->head + RN_COLD_PLACE_BYTES, store->seed, store->id.block_tokens, &head)) {
            segment->wiped = true; /* perhaps by a wipe that was killed: compacting takes it away */
            continue;
        }
        if (head.salt.word[0] != wipe->salt || at < RN_COLD_HEADER_BYTES || at > segment->index ||
            rn_cold_record_bytes(store->id.block_tokens, head.payload_bytes) > segment->index - at)
            continue;
        status = wipe_record(wipe, segment, &head, at, entry_at);
    }
    if (status == RUNNEL_OK) {
        int error = store->io->sync(store->io->user, segment->fd);

        if (error < 0)
            return failed(store, error);
    }
    return status;
}

static void forget_salt(struct rn_cold_store *store, uint64_t salt)
{
    uint32_t at = store->first_root;

    while (at != RN_COLD_NONE) {
        const struct rn_cold_entry *root = &store->entries[at];

        at = root->next;
        if (root->salt.word[0] == salt)
            rn_tier_store_forget(&store->tier, root->serial);
    }
}

runnel_status rn_cold_store_wipe_salt(struct rn_cold_store *store, uint64_t salt, uint64_t *n)
{
    struct wipe wipe = {.store = store, .salt = salt};
    runnel_status status = RUNNEL_OK;

    *n = 0;
    if (!store->stats.writes)
        return RUNNEL_STATE;
    forget_salt(store, salt);
    if (store->active != RN_COLD_NONE && store->segments[store->active].n > 0)
        status = rn_cold_seal_active(store);
    wipe.tokens = rn_calloc(store->heap, store->id.block_tokens, sizeof *wipe.tokens);
    if (wipe.tokens == NULL)
        status = RUNNEL_NO_MEMORY;
    for (uint32_t i = 0; i < store->n_segments && status == RUNNEL_OK; i++)
        if (store->segments[i].fd >= 0 && store->segments[i].index != 0)
            status = wipe_segment(&wipe, &store->segments[i]);
    rn_free(store->heap, wipe.tokens);
    rn_free(store->heap, wipe.payload);
    *n = wipe.n;
    return status;
}

/* ---- What was not reached ---- */

struct left {
    struct rn_cold_store *store;
    uint64_t n;
};

/* All records of the segment are in its index, if there are any. */
static bool is_whole(const struct rn_cold_store *store, uint64_t number)
{
    for (uint32_t i = 0; i < store->n_segments; i++) {
        const struct rn_cold_segment *segment = &store->segments[i];

        if (segment->fd >= 0 && segment->number == number)
            return segment->index != 0 || segment->n == 0;
    }
    return false;
}

static void count_left(void *user, const char *name)
{
    struct left *left = user;
    uint64_t number;

    left->n += rn_cold_segment_number(name, &number) && !is_whole(left->store, number) &&
               rn_cold_may_hold(left->store->io, rn_cold_path(left->store, name));
}

runnel_status rn_cold_store_left(struct rn_cold_store *store, uint64_t *n)
{
    struct left left = {.store = store};
    int status = store->io->list(store->io->user, store->folder, count_left, &left);

    *n = left.n;
    return status < 0 ? RUNNEL_IO : RUNNEL_OK;
}

/* ---- Compacting ---- */

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

    RN_ASSERT(compact->from != store->active && store->segments[compact->from].index != 0);
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

    RN_CHECK(store->segments[to].n * one <= store->index_room);
    RN_ASSERT(store->segments[to].index != 0 && to != compact->from);
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
    RN_ASSERT(store->segments[compact->from].n_live == 0);
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
