/* The cold store, one record at a time: see cold_store.h. */
#include "cache/store/cold_store.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/check.h"
#include "base/bytes.h"
#include "cache/store/cold_parts.h"

#define TEND_BYTES (1u << 20) /* what one tend may read and write: a few milliseconds */
#define REFUSALS 32u     /* puts, until a disk that was full is tried again: some MB of what is computed meanwhile */
#define READ_FAILURES 8u /* in sequence: then the disk is taken for broken */

static struct rn_cold_store *store_of(struct rn_tier_store *tier)
{
    return (struct rn_cold_store *)tier;
}

static const struct rn_cold_store *borrow(const struct rn_tier_store *tier)
{
    return (const struct rn_cold_store *)tier;
}

/* ---- The disk ---- */

int rn_cold_pwrite(const struct rn_cold_store *store, int fd, const void *bytes, size_t n, uint64_t offset)
{
    const unsigned char *at = bytes;

    while (n > 0) {
        int64_t put = store->io->pwrite(store->io->user, fd, at, n, offset);

        if (put <= 0)
            return put == 0 ? -EIO : (int)put;
        RN_ASSERT((uint64_t)put <= n);
        at += put;
        n -= (size_t)put;
        offset += (uint64_t)put;
    }
    return 0;
}

const char *rn_cold_path(struct rn_cold_store *store, const char *name)
{
    size_t n = strlen(store->folder);

    RN_ASSERT(strlen(name) < 32);
    memcpy(store->path, store->folder, n);
    store->path[n] = '/';
    memcpy(store->path + n + 1, name, strlen(name) + 1);
    return store->path;
}

static void keep_error(struct rn_cold_store *store, const char *what, int status)
{
    if (store->has_error)
        return;
    store->has_error = true;
    rn_error_set(&store->error, RUNNEL_IO, "%s: %s: %s", store->folder, what,
                 status == 0 ? "a file ends too early" : strerror(-status));
}

/* A disk that is full may have room later, and so may a process that has reached its limit on a file's bytes. */
static bool is_full(int status)
{
    return status == -ENOSPC || status == -EDQUOT || status == -EFBIG;
}

void rn_cold_write_failed(struct rn_cold_store *store, const char *what, int status)
{
    keep_error(store, what, status);
    store->stats.writes = false;
    store->refusals = is_full(status) && store->lock_fd >= 0 ? REFUSALS : 0;
}

/* False: nothing is written, or not now. */
static bool may_write(struct rn_cold_store *store)
{
    if (store->refusals > 0 && --store->refusals == 0)
        rn_cold_write_again(store);
    RN_ASSERT(!store->stats.writes || store->refusals == 0);
    return store->stats.writes;
}

static void read_failed(struct rn_cold_store *store, int status)
{
    if (++store->failed_reads < READ_FAILURES)
        return;
    keep_error(store, "blocks cannot be read", status);
    store->stats.reads_work = false;
}

static bool error_of(struct rn_tier_store *tier, runnel_error *error)
{
    struct rn_cold_store *store = store_of(tier);

    if (!store->has_error || store->error_reported)
        return false;
    store->error_reported = true;
    *error = store->error;
    return true;
}

/* ---- Segments ---- */

uint32_t rn_cold_segment_slot(struct rn_cold_store *store)
{
    struct rn_cold_segment *segments;
    uint32_t n = store->n_segments == 0 ? 16 : 2 * store->n_segments, slot;

    for (uint32_t i = 0; i < store->n_segments; i++)
        if (store->segments[i].fd < 0)
            return i;
    segments = rn_realloc(store->heap, store->segments, n, sizeof *segments);
    if (segments == NULL)
        return RN_COLD_NONE;
    store->segments = segments;
    for (uint32_t i = store->n_segments; i < n; i++)
        segments[i] = (struct rn_cold_segment){.fd = -1};
    slot = store->n_segments;
    store->n_segments = n;
    return slot;
}

void rn_cold_remove_segment(struct rn_cold_store *store, uint32_t slot)
{
    struct rn_cold_segment *segment = &store->segments[slot];
    char name[32];
    int status;

    RN_CHECK(segment->n_live == 0);
    RN_ASSERT(segment->fd >= 0 && slot != store->victim && segment->live_bytes == 0);
    RN_ASSERT(store->stats.segments > 0 && store->stats.file_bytes >= segment->bytes);
    rn_cold_segment_name(segment->number, name);
    status = store->io->same(store->io->user, segment->fd, rn_cold_path(store, name));
    store->io->close(store->io->user, segment->fd);
    if (status != 0) /* else it has gone with the folder, and the name is another's */
        status = store->io->unlink(store->io->user, store->path);
    if (status < 0 && status != -ENOENT)
        rn_cold_write_failed(store, "a segment cannot be removed", status);
    store->stats.file_bytes -= segment->bytes;
    store->stats.segments--;
    *segment = (struct rn_cold_segment){.fd = -1};
}

static runnel_status new_segment(struct rn_cold_store *store)
{
    unsigned char header[RN_COLD_HEADER_BYTES];
    uint32_t slot = rn_cold_segment_slot(store);
    char name[32];
    int fd, status;

    if (slot == RN_COLD_NONE)
        return RUNNEL_NO_MEMORY;
    RN_ASSERT(store->stats.writes && store->lock_fd >= 0 && store->active == RN_COLD_NONE);
    if (store->next_number >= RN_COLD_MOST_SEGMENTS) {
        rn_cold_write_failed(store, "its segments have come to the last number", -EOVERFLOW);
        return RUNNEL_IO;
    }
    if (store->io->same(store->io->user, store->lock_fd, rn_cold_path(store, RN_COLD_LOCK)) == 0) {
        rn_cold_write_failed(store, "the folder has been removed", -ENOENT); /* perhaps another has been made */
        return RUNNEL_IO;
    }
    rn_cold_segment_name(store->next_number, name);
    fd = store->io->open(store->io->user, rn_cold_path(store, name), O_RDWR | O_CREAT | O_EXCL);
    if (fd < 0) {
        rn_cold_write_failed(store, "a segment cannot be made", fd);
        return RUNNEL_IO;
    }
    rn_cold_header_pack(&store->id, store->next_number, header);
    status = rn_cold_pwrite(store, fd, header, sizeof header, 0);
    if (status < 0) {
        store->io->close(store->io->user, fd);
        store->io->unlink(store->io->user, store->path);
        rn_cold_write_failed(store, "a segment cannot be written", status);
        return RUNNEL_IO;
    }
    store->segments[slot] = (struct rn_cold_segment){.fd = fd, .number = store->next_number++, .bytes = sizeof header};
    store->stats.file_bytes += sizeof header;
    store->stats.segments++;
    store->active = slot;
    store->writing_from = store->dirty_from = 0;
    return RUNNEL_OK;
}

runnel_status rn_cold_seal(struct rn_cold_store *store, struct rn_cold_segment *segment, const void *index)
{
    size_t n = segment->n * rn_cold_index_bytes(store->id.block_tokens);
    unsigned char trailer[RN_COLD_TRAILER_BYTES];
    int status;

    RN_ASSERT(segment->index == 0 && segment->bytes % 8 == 0);
    rn_cold_trailer_pack(store->seed, segment->number, segment->bytes, segment->n, trailer);
    status = rn_cold_pwrite(store, segment->fd, index, n, segment->bytes);
    if (status == 0)
        status = rn_cold_pwrite(store, segment->fd, trailer, sizeof trailer, segment->bytes + n);
    if (status == 0)
        status = store->io->truncate(store->io->user, segment->fd, segment->bytes + n + sizeof trailer);
    if (status == 0)
        status = store->io->sync(store->io->user, segment->fd);
    if (status < 0) {
        rn_cold_write_failed(store, "a segment's index cannot be written", status);
        return RUNNEL_IO;
    }
    segment->index = segment->bytes;
    segment->bytes += n + sizeof trailer;
    store->stats.file_bytes += n + sizeof trailer;
    return RUNNEL_OK;
}

runnel_status rn_cold_seal_active(struct rn_cold_store *store)
{
    struct rn_cold_segment *segment = &store->segments[store->active];
    runnel_status status;

    RN_CHECK(segment->n * rn_cold_index_bytes(store->id.block_tokens) <= store->index_room);
    status = rn_cold_seal(store, segment, store->index);
    if (status == RUNNEL_OK)
        store->active = RN_COLD_NONE;
    return status;
}

/* Room for one more entry of the active segment's index. */
static bool grow_index(struct rn_cold_store *store, uint32_t n)
{
    size_t one = rn_cold_index_bytes(store->id.block_tokens);
    unsigned char *index;

    if ((n + 1) * one <= store->index_room)
        return true;
    index = rn_realloc(store->heap, store->index, 2 * (n + 1), one);
    if (index == NULL)
        return false;
    store->index = index;
    store->index_room = 2 * (n + 1) * one;
    return true;
}

runnel_status rn_cold_make_room(struct rn_cold_store *store, uint64_t bytes)
{
    const struct rn_cold_segment *segment;

    if (store->active != RN_COLD_NONE) {
        segment = &store->segments[store->active];
        if (segment->n > 0 &&
            (segment->bytes + bytes > store->limits.segment_bytes || segment->n == RN_COLD_SEGMENT_RECORDS) &&
            rn_cold_seal_active(store) != RUNNEL_OK)
            return RUNNEL_IO;
    }
    if (store->active == RN_COLD_NONE) {
        runnel_status status = new_segment(store);

        if (status != RUNNEL_OK)
            return status;
    }
    return grow_index(store, store->segments[store->active].n) ? RUNNEL_OK : RUNNEL_NO_MEMORY;
}

/* ---- Writing ---- */

/* At most dirty_bytes wait for the disk: half of them on their way, half not yet. */
static int bound_dirty(struct rn_cold_store *store, const struct rn_cold_segment *segment)
{
    const struct rn_cold_io *io = store->io;
    int status = 0;

    RN_ASSERT(store->writing_from <= store->dirty_from && store->dirty_from <= segment->bytes);
    if (segment->bytes - store->dirty_from < store->limits.dirty_bytes / 2)
        return 0;
    if (store->dirty_from > store->writing_from)
        status =
            io->write_out(io->user, segment->fd, store->writing_from, store->dirty_from - store->writing_from, true);
    if (status == 0)
        status = io->write_out(io->user, segment->fd, store->dirty_from, segment->bytes - store->dirty_from, false);
    store->writing_from = store->dirty_from;
    store->dirty_from = segment->bytes;
    return status;
}

/* The payload first: where there is a head, there was a payload. */
runnel_status rn_cold_write_record(struct rn_cold_store *store, const void *payload, size_t n)
{
    struct rn_cold_segment *segment = &store->segments[store->active];
    size_t head_bytes = rn_cold_head_bytes(store->id.block_tokens), one = head_bytes + RN_COLD_PLACE_BYTES;
    uint64_t bytes = rn_cold_record_bytes(store->id.block_tokens, n);
    int status;

    RN_CHECK((segment->n + 1) * one <= store->index_room);
    RN_ASSERT(segment->index == 0 && segment->n < RN_COLD_SEGMENT_RECORDS);
    status = rn_cold_pwrite(store, segment->fd, payload, n, segment->bytes + head_bytes);
    if (status == 0)
        status = rn_cold_pwrite(store, segment->fd, store->head + RN_COLD_PLACE_BYTES, head_bytes, segment->bytes);
    if (status < 0) {
        rn_cold_write_failed(store, "a block cannot be written", status);
        if (is_full(status)) /* what there is of it takes room */
            store->io->truncate(store->io->user, segment->fd, segment->bytes);
        return RUNNEL_IO;
    }
    rn_bytes_put(store->head, segment->bytes, RN_COLD_PLACE_BYTES);
    memcpy(store->index + segment->n * one, store->head, one);
    segment->n++;
    segment->bytes += bytes;
    store->stats.file_bytes += bytes;
    status = bound_dirty(store, segment);
    if (status < 0) {
        rn_cold_write_failed(store, "a block cannot be brought to the disk", status);
        return RUNNEL_IO;
    }
    return RUNNEL_OK;
}

/* What the record will say, by its parent. */
static runnel_status plan_record(const struct rn_cold_store *store, uint64_t parent, struct rn_prefix_salt salt,
                                 struct rn_cold_head *head, uint32_t *parent_entry)
{
    const struct rn_cold_entry *e;

    *head = (struct rn_cold_head){.salt = salt, .alive = true};
    *parent_entry = RN_COLD_NONE;
    if (parent == 0)
        return RUNNEL_OK;
    *parent_entry = rn_cold_index_find(store, parent);
    if (*parent_entry == RN_COLD_NONE)
        return RUNNEL_NOT_FOUND;
    e = &store->entries[*parent_entry];
    if (!rn_prefix_salt_same(e->salt, salt))
        return RUNNEL_NOT_FOUND;
    head->parent = parent;
    head->parent_check = e->check;
    head->depth = e->depth + 1;
    return RUNNEL_OK;
}

static runnel_status write_planned(struct rn_cold_store *store, struct rn_cold_head *head, const int32_t *tokens,
                                   const void *payload, uint32_t entry)
{
    struct rn_cold_segment *segment = &store->segments[store->active];
    struct rn_cold_entry *e = &store->entries[entry];

    head->serial = segment->number << RN_COLD_NTH_BITS | (segment->n + 1);
    RN_ASSERT(head->serial > head->parent);
    head->payload_check = rn_cold_payload_check(store->seed, head->serial, payload, head->payload_bytes);
    rn_cold_head_pack(head, store->seed, tokens, store->id.block_tokens, store->head + RN_COLD_PLACE_BYTES);
    *e = (struct rn_cold_entry){.serial = head->serial,
                                .check = head->check,
                                .offset = segment->bytes,
                                .salt = head->salt,
                                .payload_bytes = head->payload_bytes,
                                .depth = head->depth,
                                .segment = store->active,
                                .nth = segment->n};
    return rn_cold_write_record(store, payload, head->payload_bytes);
}

static runnel_status put(struct rn_tier_store *tier, const struct rn_tier_key *key, const void *payload, size_t n,
                         uint64_t *handle)
{
    struct rn_cold_store *store = store_of(tier);
    uint64_t bytes = rn_cold_record_bytes(store->id.block_tokens, n);
    struct rn_cold_head head;
    uint32_t parent_entry, entry;
    runnel_status status;

    *handle = 0;
    if (!may_write(store))
        return RUNNEL_STATE;
    if (n == 0 || n > RN_COLD_MAX_PAYLOAD)
        return RUNNEL_INVALID;
    status = plan_record(store, key->parent, key->salt, &head, &parent_entry);
    if (status != RUNNEL_OK)
        return status;
    if (store->stats.file_bytes + bytes > store->limits.max_bytes || store->stats.records >= store->limits.max_records)
        return RUNNEL_BUSY;
    status = rn_cold_make_room(store, bytes);
    if (status != RUNNEL_OK)
        return status;
    entry = rn_cold_index_take(store);
    if (entry == RN_COLD_NONE)
        return store->n_touched >= store->limits.max_records ? RUNNEL_BUSY : RUNNEL_NO_MEMORY;
    head.payload_bytes = (uint32_t)n;
    status = write_planned(store, &head, key->tokens, payload, entry);
    if (status != RUNNEL_OK) {
        rn_cold_index_give_back(store, entry);
        return status;
    }
    rn_cold_index_add(store, entry, parent_entry);
    RN_ASSERT(store->stats.live_bytes <= store->stats.file_bytes);
    *handle = head.serial;
    return RUNNEL_OK;
}

/* ---- Reading ---- */

static size_t payload_bytes(const struct rn_tier_store *tier, uint64_t handle)
{
    const struct rn_cold_store *store = borrow(tier);
    uint32_t entry = rn_cold_index_find(store, handle);

    return entry == RN_COLD_NONE ? 0 : store->entries[entry].payload_bytes;
}

static bool damaged(struct rn_cold_store *store, uint32_t entry)
{
    store->stats.damaged++;
    rn_cold_index_drop(store, entry);
    return false;
}

bool rn_cold_record_fits(const struct rn_cold_store *store, const unsigned char *bytes, const void *payload,
                         const struct rn_cold_head *head)
{
    struct rn_cold_head own;
    struct rn_fingerprint check;

    if (!rn_cold_head_unpack(bytes, store->seed, store->id.block_tokens, &own) || !own.alive ||
        own.serial != head->serial || own.check != head->check || own.payload_bytes != head->payload_bytes)
        return false;
    check = rn_cold_payload_check(store->seed, own.serial, payload, own.payload_bytes);
    return rn_fingerprint_equal(&check, &own.payload_check);
}

bool rn_cold_fetch(struct rn_cold_store *store, uint32_t entry, void *payload, bool *broken)
{
    const struct rn_cold_entry *e = &store->entries[entry];
    size_t head_bytes = rn_cold_head_bytes(store->id.block_tokens);
    unsigned char *bytes = store->head + RN_COLD_PLACE_BYTES;
    int fd = store->segments[e->segment].fd, status;
    const struct rn_cold_head head = {.serial = e->serial, .check = e->check, .payload_bytes = e->payload_bytes};

    RN_ASSERT(e->state == RN_COLD_KNOWN && fd >= 0);
    *broken = false;
    if (!rn_cold_pread(store->io, fd, bytes, head_bytes, e->offset, &status) ||
        !rn_cold_pread(store->io, fd, payload, e->payload_bytes, e->offset + head_bytes, &status)) {
        *broken = status < 0;
        if (!*broken)
            return damaged(store, entry);
        read_failed(store, status);
        return false;
    }
    store->failed_reads = 0;
    return rn_cold_record_fits(store, bytes, payload, &head) || damaged(store, entry);
}

static bool tokens_are(const struct rn_cold_store *store, const int32_t *tokens)
{
    const unsigned char *bytes = store->head + RN_COLD_PLACE_BYTES + RN_COLD_HEAD_BYTES;

    for (uint32_t i = 0; i < store->id.block_tokens; i++)
        if ((uint32_t)rn_bytes_get(bytes + 4 * (size_t)i, 4) != (uint32_t)tokens[i])
            return false;
    return true;
}

static runnel_status get(struct rn_tier_store *tier, uint64_t handle, const struct rn_tier_key *key, void *payload)
{
    struct rn_cold_store *store = store_of(tier);
    uint32_t entry = rn_cold_index_find(store, handle);
    const struct rn_cold_entry *e;
    bool broken;

    store->stats.misses++;
    if (entry == RN_COLD_NONE)
        return RUNNEL_NOT_FOUND;
    e = &store->entries[entry];
    if (!rn_prefix_salt_same(e->salt, key->salt) ||
        key->parent != (e->parent == RN_COLD_NONE ? 0 : store->entries[e->parent].serial))
        return RUNNEL_NOT_FOUND;
    if (!store->stats.reads_work)
        return RUNNEL_IO;
    if (!rn_cold_fetch(store, entry, payload, &broken))
        return broken ? RUNNEL_IO : RUNNEL_NOT_FOUND;
    if (!tokens_are(store, key->tokens))
        return RUNNEL_NOT_FOUND;
    store->stats.misses--;
    return RUNNEL_OK;
}

static void will_get(struct rn_tier_store *tier, const uint64_t *handles, uint32_t n)
{
    struct rn_cold_store *store = store_of(tier);

    for (uint32_t i = 0; i < n; i++) {
        uint32_t entry = rn_cold_index_find(store, handles[i]);
        const struct rn_cold_entry *e = &store->entries[entry == RN_COLD_NONE ? 0 : entry];

        if (entry != RN_COLD_NONE)
            store->io->will_read(store->io->user, store->segments[e->segment].fd, e->offset,
                                 rn_cold_entry_bytes(store, e));
    }
}

static void used(struct rn_tier_store *tier, uint64_t handle)
{
    struct rn_cold_store *store = store_of(tier);
    uint32_t at = rn_cold_index_find(store, handle);

    for (; at != RN_COLD_NONE; at = store->entries[at].parent) {
        RN_ASSERT(store->entries[at].state == RN_COLD_KNOWN);
        store->entries[at].used = true;
    }
}

/* ---- Forgetting ---- */

/* Says so on the disk: in the record, and in the index that has its head too. */
static void mark_dead(struct rn_cold_store *store, const struct rn_cold_entry *e)
{
    const struct rn_cold_segment *segment = &store->segments[e->segment];
    size_t in_index = e->nth * rn_cold_index_bytes(store->id.block_tokens) + RN_COLD_PLACE_BYTES + RN_COLD_AT_STATE;
    const unsigned char dead = RN_COLD_DEAD;
    int status;

    if (!store->stats.writes)
        return;
    status = rn_cold_pwrite(store, segment->fd, &dead, 1, e->offset + RN_COLD_AT_STATE);
    RN_ASSERT(e->nth < segment->n && (e->segment == store->active) == (segment->index == 0));
    RN_CHECK(e->segment != store->active || in_index < store->index_room);
    if (e->segment == store->active)
        store->index[in_index] = dead;
    else if (status == 0)
        status = rn_cold_pwrite(store, segment->fd, &dead, 1, segment->index + in_index);
    if (status < 0)
        rn_cold_write_failed(store, "a block cannot be marked", status);
}

static uint32_t forget(struct rn_tier_store *tier, uint64_t handle)
{
    struct rn_cold_store *store = store_of(tier);
    uint32_t entry = rn_cold_index_find(store, handle);

    if (entry == RN_COLD_NONE)
        return 0;
    mark_dead(store, &store->entries[entry]);
    return rn_cold_index_drop(store, entry);
}

/* ---- The contract ---- */

/* A writer knows what its files hold, whether anybody asks for it or not; who reads need not. */
static void decline(struct rn_tier_store *tier, uint64_t handle)
{
    struct rn_cold_store *store = store_of(tier);
    uint32_t entry = rn_cold_index_find(store, handle);

    if (!store->stats.writes && entry != RN_COLD_NONE)
        rn_cold_index_drop(store, entry);
}

static void news(struct rn_tier_store *tier, uint32_t most, rn_tier_record_fn *on_record, void *user, bool *more,
                 bool *no_room)
{
    rn_cold_store_follow(store_of(tier), most, on_record, user, more, no_room);
    rn_cold_store_maintain(store_of(tier), 0, tier->gone, tier->user);
}

static bool listens(const struct rn_tier_store *tier)
{
    return rn_cold_store_follows(borrow(tier));
}

static bool tend(struct rn_tier_store *tier)
{
    return rn_cold_store_maintain(store_of(tier), TEND_BYTES, tier->gone, tier->user);
}

static bool writes(const struct rn_tier_store *tier)
{
    return borrow(tier)->stats.writes || borrow(tier)->refusals > 0;
}

static uint64_t file_bytes(const struct rn_tier_store *tier)
{
    return borrow(tier)->stats.file_bytes;
}

static bool check_store(const struct rn_tier_store *tier)
{
    return rn_cold_store_check(borrow(tier));
}

static void close_store(struct rn_tier_store *tier)
{
    rn_cold_store_close(store_of(tier));
}

const struct rn_tier_ops rn_cold_ops = {
    .name = "cold",
    .durable = true,
    .put = put,
    .payload_bytes = payload_bytes,
    .get = get,
    .will_get = will_get,
    .used = used,
    .forget = forget,
    .decline = decline,
    .news = news,
    .listens = listens,
    .tend = tend,
    .writes = writes,
    .error = error_of,
    .bytes = file_bytes,
    .check = check_store,
    .close = close_store,
};

struct rn_tier_store *rn_cold_store_tier(struct rn_cold_store *store)
{
    return &store->tier;
}

/* ---- The whole ---- */

void rn_cold_store_stats(const struct rn_cold_store *store, struct rn_cold_stats *stats)
{
    *stats = store->stats;
    stats->memory_bytes = store->n_entries * sizeof *store->entries + store->n_segments * sizeof *store->segments +
                          store->index_room + (store->names.room + store->unread.room) * sizeof *store->names.numbers +
                          (store->table == NULL ? 0 : sizeof *store->table << store->table_bits);
}

void rn_cold_store_close(struct rn_cold_store *store)
{
    if (store == NULL)
        return;
    if (store->active != RN_COLD_NONE && store->stats.writes) {
        if (store->segments[store->active].n > 0)
            rn_cold_seal_active(store);
        else
            rn_cold_remove_segment(store, store->active);
    }
    for (uint32_t i = 0; i < store->n_segments; i++)
        if (store->segments[i].fd >= 0)
            store->io->close(store->io->user, store->segments[i].fd);
    if (store->lock_fd >= 0)
        store->io->close(store->io->user, store->lock_fd);
    rn_free(store->heap, store->folder);
    rn_free(store->heap, store->path);
    rn_free(store->heap, store->head);
    rn_free(store->heap, store->entries);
    rn_free(store->heap, store->table);
    rn_free(store->heap, store->segments);
    rn_free(store->heap, store->index);
    rn_free(store->heap, store->names.numbers);
    rn_free(store->heap, store->unread.numbers);
    rn_free(store->heap, store);
}
