/* What a writer puts into the folder while this store reads it: see rn_cold_store_follow.
 *
 *   0  what it is time for: the lock, if the writer has gone; segments that could not be read (cold_reload.c)
 *   1  the names in the folder
 *   2  segments that are new are opened
 *   3  of each that has no index yet, the heads behind the last one that was seen, as far as they go
 *   4  if that was all: a segment with a newer one behind it has come to its end; one whose name has gone is let go of
 *
 * A writer makes a segment when the one before has all its records, and copies what shall stay before it removes one.
 * Since the names are read first, nothing is missed between 1 and 4. Where a head is damaged, or not there yet, reading
 * of that segment stops, until it is gone or this store writes: what is behind it is a miss. A record that is known and
 * is met again was copied, and is read at its new place from then on. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "cache/store/cold_parts.h"

#define OPENED 8u     /* segments of one call */
#define LOOKED_AT 64u /* heads of one call */

struct follow {
    struct rn_cold_store *store;
    rn_tier_record_fn *on_record;
    void *user;
    uint32_t most, n; /* records to be told, told */
    uint32_t n_looks, n_opened;
    bool more, full, no_memory;
    int32_t *tokens; /* [block_tokens] */
};

/* ---- Names ---- */

static void on_name(void *user, const char *name)
{
    struct follow *follow = user;
    struct rn_cold_store *store = follow->store;
    uint64_t number;

    if (!rn_cold_segment_number(name, &number) || follow->no_memory)
        return;
    if (number >= store->next_number)
        store->next_number = number + 1;
    follow->no_memory = !rn_cold_numbers_add(&store->names, store->heap, number);
}

static bool read_names(struct follow *follow)
{
    struct rn_cold_store *store = follow->store;

    store->names.n = 0;
    if (store->io->list(store->io->user, store->folder, on_name, follow) < 0 || follow->no_memory)
        return false;
    rn_cold_numbers_sort(&store->names);
    return true;
}

static bool is_known(const struct rn_cold_store *store, uint64_t number)
{
    for (uint32_t i = 0; i < store->n_segments; i++)
        if (store->segments[i].fd >= 0 && store->segments[i].number == number)
            return true;
    return false;
}

/* One that is not what its name says is looked at again the next time: its header may not be written yet. One that the
 * disk does not give, later. False: no memory. */
static bool open_segment(struct follow *follow, uint64_t number)
{
    struct rn_cold_store *store = follow->store;
    uint32_t slot = rn_cold_segment_slot(store);
    char name[32];
    int fd, status = 0;

    if (slot == RN_COLD_NONE)
        return false;
    rn_cold_segment_name(number, name);
    fd = store->io->open(store->io->user, rn_cold_path(store, name), O_RDONLY);
    if (fd < 0 && fd != -ENOENT) /* removed since */
        rn_cold_unread(store, number);
    if (fd < 0)
        return true;
    if (!rn_cold_header_fits(store, fd, number, &status)) {
        store->io->close(store->io->user, fd);
        if (status < 0)
            rn_cold_unread(store, number);
        return true;
    }
    RN_ASSERT(store->segments[slot].fd < 0 && !store->stats.writes && store->next_number > number);
    store->segments[slot] = (struct rn_cold_segment){.fd = fd, .number = number, .bytes = RN_COLD_HEADER_BYTES};
    store->stats.segments++;
    store->stats.file_bytes += RN_COLD_HEADER_BYTES;
    follow->n_opened++;
    return true;
}

/* From the oldest to the newest: what is in one may build on what is in one before. */
static void open_new(struct follow *follow)
{
    struct rn_cold_store *store = follow->store;

    for (uint32_t i = 0; i < store->names.n; i++) {
        if (is_known(store, store->names.numbers[i]) || rn_cold_numbers_has(&store->unread, store->names.numbers[i]))
            continue;
        if (follow->n_opened == OPENED || !open_segment(follow, store->names.numbers[i])) {
            follow->more = true;
            return;
        }
    }
}

/* ---- Records ---- */

/* Its head with the tokens is in store->head. */
static void tell(struct follow *follow, const struct rn_cold_head *head)
{
    const unsigned char *tokens = follow->store->head + RN_COLD_PLACE_BYTES + RN_COLD_HEAD_BYTES;

    RN_ASSERT(follow->n < follow->most && head->alive);
    follow->n++;
    if (follow->on_record == NULL)
        return;
    rn_cold_tokens_unpack(tokens, follow->store->id.block_tokens, follow->tokens);
    follow->on_record(follow->user, &(struct rn_tier_record){.handle = head->serial,
                                                             .parent = head->parent,
                                                             .salt = head->salt,
                                                             .tokens = follow->tokens,
                                                             .depth = head->depth,
                                                             .payload_bytes = head->payload_bytes});
}

/* The newest record of the segment, whose head is in store->head. */
static void take(struct follow *follow, uint32_t slot, uint64_t at, const struct rn_cold_head *head)
{
    struct rn_cold_store *store = follow->store;
    uint32_t entry = rn_cold_index_find(store, head->serial), parent;

    RN_ASSERT(store->segments[slot].n > 0 && at < store->segments[slot].bytes);
    if (entry != RN_COLD_NONE && store->entries[entry].check == head->check &&
        store->entries[entry].payload_bytes == head->payload_bytes)
        rn_cold_index_move(store, entry, slot, at, store->segments[slot].n - 1);
    if (entry != RN_COLD_NONE || !head->alive || !rn_cold_serial_good(&store->segments[slot], head->serial) ||
        !rn_cold_find_parent(store, head, &parent))
        return;
    entry = rn_cold_index_take(store);
    follow->full |= entry == RN_COLD_NONE;
    if (entry == RN_COLD_NONE)
        return;
    store->entries[entry] = (struct rn_cold_entry){.serial = head->serial,
                                                   .check = head->check,
                                                   .offset = at,
                                                   .salt = head->salt,
                                                   .payload_bytes = head->payload_bytes,
                                                   .depth = head->depth,
                                                   .segment = slot,
                                                   .nth = store->segments[slot].n - 1};
    rn_cold_index_add(store, entry, parent);
    tell(follow, head);
}

/* The disk does not give a head: those behind it, and what builds on them, wait until the folder is read anew. */
static bool put_off(struct rn_cold_store *store, struct rn_cold_segment *segment)
{
    rn_cold_unread(store, segment->number);
    segment->ended = true;
    return true;
}

/* True: that was all there is now. */
static bool read_on(struct follow *follow, uint32_t slot)
{
    struct rn_cold_store *store = follow->store;
    struct rn_cold_segment *segment = &store->segments[slot];
    int64_t size = store->io->size(store->io->user, segment->fd);
    struct rn_cold_scan scan = {.heap = store->heap,
                                .io = store->io,
                                .fd = segment->fd,
                                .size = (uint64_t)size,
                                .number = segment->number,
                                .seed = store->seed,
                                .block_tokens = store->id.block_tokens};

    while (size >= 0) {
        uint64_t at = segment->bytes, bytes;
        struct rn_cold_head head;

        if (follow->n == follow->most || follow->n_looks == LOOKED_AT)
            return false;
        follow->n_looks++;
        if (!rn_cold_head_at(&scan, at, store->head, &head))
            return scan.broken ? put_off(store, segment) : true;
        bytes = rn_cold_record_bytes(store->id.block_tokens, head.payload_bytes);
        segment->n++;
        segment->bytes += bytes;
        store->stats.file_bytes += bytes;
        take(follow, slot, at, &head);
    }
    return put_off(store, segment);
}

/* From the oldest to the newest, so that parents come first. True: that was all there is now. */
static bool read_all(struct follow *follow)
{
    struct rn_cold_store *store = follow->store;

    for (uint32_t i = 0; i < store->names.n; i++)
        for (uint32_t slot = 0; slot < store->n_segments; slot++)
            if (store->segments[slot].fd >= 0 && store->segments[slot].number == store->names.numbers[i] &&
                store->segments[slot].index == 0 && !store->segments[slot].ended && !read_on(follow, slot))
                return false;
    return true;
}

/* ---- Segments that are gone ---- */

static void let_go(struct rn_cold_store *store, uint32_t slot)
{
    struct rn_cold_segment *segment = &store->segments[slot];

    for (uint32_t i = 0; i < store->n_touched && segment->n_live > 0; i++)
        if (store->entries[i].state == RN_COLD_KNOWN && store->entries[i].segment == slot)
            store->stats.dropped += rn_cold_index_drop(store, i);
    RN_ASSERT(segment->n_live == 0 && segment->live_bytes == 0);
    RN_ASSERT(store->stats.segments > 0 && store->stats.file_bytes >= segment->bytes);
    store->io->close(store->io->user, segment->fd);
    store->stats.file_bytes -= segment->bytes;
    store->stats.segments--;
    *segment = (struct rn_cold_segment){.fd = -1};
}

static void look_at_ends(struct rn_cold_store *store)
{
    for (uint32_t slot = 0; slot < store->n_segments; slot++) {
        struct rn_cold_segment *segment = &store->segments[slot];

        if (segment->fd < 0)
            continue;
        if (!rn_cold_numbers_has(&store->names, segment->number))
            let_go(store, slot);
        else
            segment->ended |= segment->number < store->names.numbers[store->names.n - 1];
    }
}

/* ---- What a reload has found ---- */

/* Its head is read once more, for the tokens. One that cannot be read is a miss for now. */
static void tell_entry(struct follow *follow, uint32_t at)
{
    struct rn_cold_store *store = follow->store;
    const struct rn_cold_entry *e = &store->entries[at];
    unsigned char *bytes = store->head + RN_COLD_PLACE_BYTES;
    const struct rn_cold_segment *segment = &store->segments[e->segment];
    struct rn_cold_head head;
    int status;

    RN_ASSERT(e->state == RN_COLD_KNOWN && segment->fd >= 0);
    if (!rn_cold_pread(store->io, segment->fd, bytes, rn_cold_head_bytes(store->id.block_tokens), e->offset, &status)) {
        if (status < 0)
            rn_cold_unread(store, segment->number);
        store->stats.dropped += rn_cold_index_drop(store, at);
        return;
    }
    if (!rn_cold_head_unpack(bytes, store->seed, store->id.block_tokens, &head) || !head.alive ||
        head.serial != e->serial || head.check != e->check) {
        store->stats.dropped += rn_cold_index_drop(store, at);
        return;
    }
    tell(follow, &head);
}

/* True: all have been told. */
static bool report_unreported(struct follow *follow)
{
    struct rn_cold_store *store = follow->store;

    RN_ASSERT(store->next_unreported <= store->end_unreported && store->end_unreported <= store->n_touched);
    for (; store->next_unreported < store->end_unreported; store->next_unreported++) {
        struct rn_cold_entry *e = &store->entries[store->next_unreported];

        if (e->state != RN_COLD_KNOWN || !e->unreported)
            continue;
        if (follow->n == follow->most || follow->n_looks == LOOKED_AT)
            return false;
        follow->n_looks++;
        e->unreported = false;
        tell_entry(follow, store->next_unreported);
    }
    return true;
}

/* ---- All of it ---- */

bool rn_cold_store_follows(const struct rn_cold_store *store)
{
    return store->follows || store->unread.n > 0 || store->next_unreported < store->end_unreported;
}

/* The folder was removed and made anew: a segment's name is that of another file now. All is read again then. */
static bool is_replaced(struct rn_cold_store *store)
{
    for (uint32_t slot = 0; slot < store->n_segments; slot++) {
        const struct rn_cold_segment *segment = &store->segments[slot];
        char name[32];

        if (segment->fd < 0 || !rn_cold_numbers_has(&store->names, segment->number))
            continue;
        rn_cold_segment_name(segment->number, name);
        if (store->io->same(store->io->user, segment->fd, rn_cold_path(store, name)) == 0) {
            rn_cold_unread(store, segment->number);
            return true;
        }
    }
    return false;
}

static void read_news(struct follow *follow)
{
    RN_ASSERT(!follow->store->stats.writes && follow->store->active == RN_COLD_NONE);
    if (!read_names(follow) || is_replaced(follow->store))
        return;
    open_new(follow);
    if (read_all(follow) && !follow->more)
        look_at_ends(follow->store);
    else
        follow->more = true;
}

void rn_cold_store_follow(struct rn_cold_store *store, uint32_t most, rn_tier_record_fn *on_record, void *user,
                          bool *more, bool *no_room)
{
    struct follow follow = {.store = store, .on_record = on_record, .user = user, .most = most};

    *more = *no_room = false;
    if (!rn_cold_store_follows(store) || !store->stats.reads_work)
        return;
    rn_cold_look_again(store);
    follow.tokens = rn_alloc(store->heap, store->id.block_tokens, sizeof *follow.tokens);
    if (follow.tokens != NULL && !report_unreported(&follow))
        follow.more = true;
    else if (follow.tokens != NULL && store->follows)
        read_news(&follow);
    rn_free(store->heap, follow.tokens);
    RN_ASSERT(follow.n <= most && follow.n_looks <= LOOKED_AT && follow.n_opened <= OPENED);
    *more = follow.more && (follow.n > 0 || follow.n_looks == LOOKED_AT || follow.n_opened > 0);
    *no_room = store->follows &&
               (follow.full ||
                (follow.n > 0 && store->stats.records + store->limits.max_records / 16 >= store->limits.max_records));
}
