/* The folder read anew while the store is in use: for a reader that takes the place of a writer that has gone, and
 * where the disk gives a segment that it did not give before.
 *
 *   writer    closes, or is killed: the lock is free
 *   reader    at its next look for news has the lock, alone; reads all of the folder as at a start, into lists of its
 *             own; then these take the place of the old ones
 *
 *   known before and found again      stays what it was, under its handle, with its mark of use
 *   known before, not found           gone: is told as such
 *   found, not known before           unreported: rn_cold_store_follow tells of it, a few at a time, parents first
 *
 * So a torn end, a record in two places, a damaged head are met by the same code as at a start, and a call that fails
 * leaves the store as it was. The lock counts only while its file is the one in the folder: one that was removed with
 * the folder locks nobody out.
 *
 * Segments that the disk has not given are looked at again after one call, two, four, ...; what builds on them may lie
 * in others, so the whole folder is read then too. Until then they are misses. While the disk is full they wait until
 * it takes the end of the newest segment.
 *
 * Memory for the time of the call: the index twice, and what rn_cold_load needs. */
#include <errno.h>
#include <fcntl.h>

#include "base/check.h"
#include "cache/store/cold_parts.h"

/* ---- Tried again ---- */

static bool is_due(struct rn_cold_pause *pause)
{
    if (pause->left == 0)
        return true;
    pause->left--;
    return false;
}

static void put_off(struct rn_cold_pause *pause)
{
    pause->apart = pause->apart == 0 ? 1 : 2 * pause->apart;
    if (pause->apart > RN_COLD_MOST_APART)
        pause->apart = RN_COLD_MOST_APART;
    pause->left = pause->apart - 1;
    RN_ASSERT(pause->apart > 0 && pause->apart <= RN_COLD_MOST_APART);
}

/* Without memory it is not looked at again before the next load. */
void rn_cold_unread(struct rn_cold_store *store, uint64_t number)
{
    if (!rn_cold_numbers_has(&store->unread, number))
        rn_cold_numbers_add(&store->unread, store->heap, number);
}

/* ---- Another index ---- */

/* All that the store knows of the folder; not what it knows of itself. */
static void begin_anew(struct rn_cold_store *fresh, const struct rn_cold_store *store, bool writes)
{
    *fresh = *store;
    fresh->entries = NULL;
    fresh->n_entries = fresh->n_touched = 0;
    fresh->first_free = fresh->first_root = fresh->first_gone = RN_COLD_NONE;
    fresh->table = NULL;
    fresh->table_bits = 0;
    fresh->segments = NULL;
    fresh->n_segments = 0;
    fresh->active = fresh->victim = RN_COLD_NONE;
    fresh->index = NULL;
    fresh->index_room = 0;
    fresh->unread = (struct rn_cold_numbers){.n = 0};
    fresh->next_unreported = fresh->end_unreported = 0;
    fresh->stats.segments = fresh->stats.records = 0;
    fresh->stats.file_bytes = fresh->stats.live_bytes = fresh->stats.damaged = 0;
    fresh->stats.writes = writes;
    fresh->refusals = 0;
    fresh->follows = store->follows && !writes;
    fresh->waits = store->waits && !writes;
}

static void free_index(struct rn_cold_store *store)
{
    for (uint32_t i = 0; i < store->n_segments; i++)
        if (store->segments[i].fd >= 0)
            store->io->close(store->io->user, store->segments[i].fd);
    rn_free(store->heap, store->entries);
    rn_free(store->heap, store->table);
    rn_free(store->heap, store->segments);
    rn_free(store->heap, store->index);
    rn_free(store->heap, store->unread.numbers);
}

/* Who uses the store finds out by a miss where there is no memory to tell it. */
static void will_tell_gone(struct rn_cold_store *fresh, uint64_t serial)
{
    uint32_t entry = rn_cold_index_take(fresh);

    if (entry == RN_COLD_NONE)
        return;
    fresh->entries[entry] = (struct rn_cold_entry){.serial = serial, .state = RN_COLD_GONE, .next = fresh->first_gone};
    fresh->first_gone = entry;
}

/* What of the old entries has to do with the new ones. */
static void carry_over(const struct rn_cold_store *store, struct rn_cold_store *fresh)
{
    RN_ASSERT(fresh->first_gone == RN_COLD_NONE && fresh->first_free == RN_COLD_NONE);
    fresh->end_unreported = fresh->n_touched; /* they were added by serial: parents first */
    for (uint32_t i = 0; i < fresh->end_unreported; i++)
        fresh->entries[i].unreported = true;
    for (uint32_t i = 0; i < store->n_touched; i++) {
        const struct rn_cold_entry *e = &store->entries[i];
        uint32_t at = e->state == RN_COLD_KNOWN ? rn_cold_index_find(fresh, e->serial) : RN_COLD_NONE;

        if (at != RN_COLD_NONE && fresh->entries[at].check == e->check) {
            fresh->entries[at].unreported = e->unreported;
            fresh->entries[at].used |= e->used;
        } else if (e->state != RN_COLD_FREE) {
            will_tell_gone(fresh, e->serial);
        }
    }
    if (fresh->stats.damaged < store->stats.damaged)
        fresh->stats.damaged = store->stats.damaged; /* the same damage is met again */
}

/* A writer's newest segment comes to its end: it is read like any other then. */
static bool end_active(struct rn_cold_store *store)
{
    if (store->active == RN_COLD_NONE)
        return true;
    if (store->segments[store->active].n > 0)
        return rn_cold_seal_active(store) == RUNNEL_OK;
    rn_cold_remove_segment(store, store->active);
    store->active = RN_COLD_NONE;
    return store->stats.writes;
}

/* False: the store is what it was. Where the disk was full it is tried: what is read anew has to be written to its end,
 * so that it can be gone on with. */
static bool reload(struct rn_cold_store *store, bool writes)
{
    struct rn_cold_store fresh;
    runnel_error error;

    if (store->refusals > 0) {
        RN_ASSERT(writes);
        rn_cold_write_again(store);
        if (!store->stats.writes)
            return false;
    }
    if (store->stats.writes && !end_active(store))
        return false;
    begin_anew(&fresh, store, writes);
    if (rn_cold_load(&fresh, NULL, NULL, &error) != RUNNEL_OK) {
        free_index(&fresh);
        return false;
    }
    RN_ASSERT(fresh.active == RN_COLD_NONE && fresh.next_number >= store->next_number);
    carry_over(store, &fresh);
    free_index(store);
    *store = fresh;
    return true;
}

/* ---- Taking the writer's place ---- */

/* The process lacks something just now; it says nothing of the lock. */
static bool may_pass(int status)
{
    return status == -EMFILE || status == -ENFILE || status == -ENOMEM || status == -EINTR;
}

static void take_over(struct rn_cold_store *store)
{
    int status;

    RN_ASSERT(store->follows && !store->stats.writes && store->lock_fd < 0);
    status = rn_cold_lock(store, O_RDWR);
    if (status == -EWOULDBLOCK || status == -ENOENT) /* or the folder has been removed */
        return;
    if (status < 0 && !may_pass(status)) {
        store->waits = false;
        rn_cold_write_failed(store, "cannot be locked", status);
    } else if (status < 0 || !reload(store, true)) {
        put_off(&store->lock_pause);
    } else {
        store->lock_pause = (struct rn_cold_pause){0, 0};
    }
    if (status == 0 && store->follows) { /* it was not to be read: somebody else may try */
        store->io->close(store->io->user, store->lock_fd);
        store->lock_fd = -1;
    }
    RN_ASSERT(store->follows == (store->lock_fd < 0));
}

/* ---- Segments that could not be read ---- */

/* The disk gives its header now, or it has gone. */
static bool is_back(struct rn_cold_store *store, uint64_t number)
{
    char name[32];
    int fd, status = 0;

    rn_cold_segment_name(number, name);
    fd = store->io->open(store->io->user, rn_cold_path(store, name), O_RDONLY);
    if (fd < 0)
        return fd == -ENOENT;
    rn_cold_header_fits(store, fd, number, &status);
    store->io->close(store->io->user, fd);
    return status == 0;
}

static void look_at_unread(struct rn_cold_store *store)
{
    bool any = false;

    for (size_t i = 0; i < store->unread.n && !any; i++)
        any = is_back(store, store->unread.numbers[i]);
    if (!any || !reload(store, store->stats.writes || store->refusals > 0) || store->unread.n > 0)
        put_off(&store->unread_pause);
    else
        store->unread_pause = (struct rn_cold_pause){0, 0};
}

void rn_cold_look_again(struct rn_cold_store *store)
{
    if (store->waits && is_due(&store->lock_pause))
        take_over(store);
    if (store->unread.n > 0 && is_due(&store->unread_pause))
        look_at_unread(store);
}
