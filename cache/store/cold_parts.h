/* The inside of the cold store, for its own files: cold_index.c (what is known), cold_store.c (one record),
 * cold_open.c (what lies in the folder), cold_size.c (keeping to the limits), cold_follow.c (what another writes).
 *
 * An entry is known (in the table, in the list of its parent and in its segment's count) or gone (in the list of those
 * to tell of) or free. A known entry's parent is known. */
#ifndef RN_CACHE_STORE_COLD_PARTS_H
#define RN_CACHE_STORE_COLD_PARTS_H

#include <assert.h>

#include "cache/store/cold_scan.h"
#include "cache/store/cold_store.h"

#define RN_COLD_NONE UINT32_MAX

enum rn_cold_entry_state { RN_COLD_FREE, RN_COLD_KNOWN, RN_COLD_GONE };

struct rn_cold_entry {
    uint64_t serial, check, offset;
    struct rn_prefix_salt salt;
    uint32_t payload_bytes, depth;
    uint32_t segment, nth;  /* where it lies; nth of the segment's records */
    uint32_t parent, child; /* entries */
    uint32_t next, prev;    /* known: the parent's children, or the roots. Gone, free: the list, by next */
    uint32_t table_next;
    uint8_t state;
    bool used;
    bool unreported; /* found by a reload: who uses the store has not been told of it yet */
};
static_assert(sizeof(struct rn_cold_entry) == RN_COLD_ENTRY_BYTES, "what the header promises");

struct rn_cold_segment {
    int fd;     /* -1: this slot is not in use */
    uint32_t n; /* records in the file, known or not */
    uint64_t number, bytes;
    uint64_t index; /* where its index begins; 0: it has none yet */
    uint64_t live_bytes;
    uint32_t n_live;
    bool ended; /* follows: nothing comes behind its records any more */
    bool wiped; /* wipe_salt has taken something out of it */
};

/* A serial is given by the segment that a record is written to first; copies keep it, and lie in later ones. */
static inline bool rn_cold_serial_good(const struct rn_cold_segment *segment, uint64_t serial)
{
    return serial >> RN_COLD_NTH_BITS <= segment->number && (serial & ((1u << RN_COLD_NTH_BITS) - 1)) != 0;
}

/* Something that is tried again: after one call, two, four, up to RN_COLD_MOST_APART. All 0: at once. */
struct rn_cold_pause {
    uint32_t left, apart; /* calls that pass before the next try; between the last two */
};

#define RN_COLD_MOST_APART 1024u /* calls: some eight minutes, at two a second */

struct rn_cold_store {
    struct rn_tier_store tier; /* first */
    struct rn_heap *heap;
    const struct rn_cold_io *io;
    struct rn_tier_id id;
    struct rn_cold_limits limits;
    uint64_t seed;
    char *folder, *path; /* path: folder, a slash, room for a name */
    int lock_fd;
    unsigned char *head; /* [rn_cold_index_bytes]: one head at a time */

    struct rn_cold_entry *entries; /* [n_entries] */
    uint32_t n_entries, n_touched, first_free;
    uint32_t first_root;
    uint32_t first_gone;
    uint32_t *table; /* [1 << table_bits]: first of a chain */
    uint32_t table_bits;

    struct rn_cold_segment *segments; /* [n_segments] */
    uint32_t n_segments;
    uint64_t next_number;
    uint32_t active;      /* the segment that is written; RN_COLD_NONE: none yet */
    unsigned char *index; /* [index_room]: of the active one */
    size_t index_room;
    uint64_t writing_from, dirty_from; /* of the active one: being written to the disk, not yet begun */

    uint32_t victim; /* the segment that is being emptied; RN_COLD_NONE */
    uint32_t victim_next;
    uint64_t victim_copied;
    bool joins;    /* the victim is small: all of it is copied */
    bool no_joins; /* one could not be copied */

    bool follows; /* it has not the lock: another process may write */
    bool waits;   /* ... and it takes the lock when it is free */
    struct rn_cold_pause lock_pause, unread_pause;
    struct rn_cold_numbers unread;            /* segments that the disk has not given: to be looked at again */
    uint32_t next_unreported, end_unreported; /* entries that are unreported lie there, parents first */
    struct rn_cold_numbers names;             /* of the folder's segments, when it was looked at last */

    uint32_t failed_reads; /* in sequence */
    uint32_t refusals;     /* the disk is full: so many puts until one tries again; 0: it is not, or nothing helps */
    bool has_error, error_reported;
    runnel_error error;
    struct rn_cold_stats stats;
};

/* ---- cold_index.c ---- */

/* A free entry; RN_COLD_NONE: no memory, or the limit. It is the caller's until add or drop. */
uint32_t rn_cold_index_take(struct rn_cold_store *store);
void rn_cold_index_give_back(struct rn_cold_store *store, uint32_t entry);

/* All but the links are filled in; `parent` is known or RN_COLD_NONE. */
void rn_cold_index_add(struct rn_cold_store *store, uint32_t entry, uint32_t parent);
uint32_t rn_cold_index_find(const struct rn_cold_store *store, uint64_t serial);

/* *parent: the entry that the head names, RN_COLD_NONE for the first of a prefix. False: it is not
 * known, or another. */
bool rn_cold_find_parent(const struct rn_cold_store *store, const struct rn_cold_head *head, uint32_t *parent);

/* The known record lies elsewhere from now on: at `at`, the nth of that segment's. */
void rn_cold_index_move(struct rn_cold_store *store, uint32_t entry, uint32_t segment, uint64_t at, uint32_t nth);

/* The entry and all that build on it are gone. Returns how many. */
uint32_t rn_cold_index_drop(struct rn_cold_store *store, uint32_t entry);

uint64_t rn_cold_entry_bytes(const struct rn_cold_store *store, const struct rn_cold_entry *entry);

/* ---- cold_store.c ---- */

extern const struct rn_tier_ops rn_cold_ops;

/* All n bytes: 0; or an errno, negative. */
int rn_cold_pwrite(const struct rn_cold_store *store, int fd, const void *bytes, size_t n, uint64_t offset);

/* store->path becomes that of the name in the folder; returns it. */
const char *rn_cold_path(struct rn_cold_store *store, const char *name);

void rn_cold_write_failed(struct rn_cold_store *store, const char *what, int status);

/* A slot with fd -1; RN_COLD_NONE: no memory. */
uint32_t rn_cold_segment_slot(struct rn_cold_store *store);

/* There is an active segment with room for a record of so many bytes. */
runnel_status rn_cold_make_room(struct rn_cold_store *store, uint64_t bytes);

/* Payload, then store->head (place and head with tokens) to the active segment; what a record's place is. */
runnel_status rn_cold_write_record(struct rn_cold_store *store, const void *payload, size_t n);

/* Writes index [n × rn_cold_index_bytes] and trailer behind the records of the segment, and syncs it. */
runnel_status rn_cold_seal(struct rn_cold_store *store, struct rn_cold_segment *segment, const void *index);
runnel_status rn_cold_seal_active(struct rn_cold_store *store);

/* Closes the segment and removes its file. */
void rn_cold_remove_segment(struct rn_cold_store *store, uint32_t slot);

/* The bytes of a record's head with tokens, and its payload, are whole, alive, and those of *head. */
bool rn_cold_record_fits(const struct rn_cold_store *store, const unsigned char *bytes, const void *payload,
                         const struct rn_cold_head *head);

/* The record's head with tokens to store->head + RN_COLD_PLACE_BYTES and its payload, checked against the entry.
 * False: it is not what it should be (it is dropped), or (*broken) the disk did not give it. */
bool rn_cold_fetch(struct rn_cold_store *store, uint32_t entry, void *payload, bool *broken);

/* ---- cold_open.c ---- */

/* The file begins with a header of this store's with that number. *status: below 0 where the disk has failed. */
bool rn_cold_header_fits(const struct rn_cold_store *store, int fd, uint64_t number, int *status);

/* The place of a record with such a payload lies among the records of the segment. */
bool rn_cold_place_good(const struct rn_cold_store *store, const struct rn_cold_segment *segment, uint64_t place,
                        uint32_t payload_bytes);

/* The disk was full, and is tried again: what a load could not give its index gets it now, so that no segment but the
 * active one is without. Where that fails, stats.writes is false again. */
void rn_cold_write_again(struct rn_cold_store *store);

runnel_status rn_cold_load(struct rn_cold_store *store, rn_tier_record_fn *on_record, void *user, runnel_error *error);

/* 0: the store has the lock of the folder that is there now. -EWOULDBLOCK: another has it; any other errno: it cannot
 * be had. `flags` as for opening the file. */
int rn_cold_lock(struct rn_cold_store *store, int flags);

/* ---- cold_reload.c ---- */

/* The segment is to be looked at again later. */
void rn_cold_unread(struct rn_cold_store *store, uint64_t number);

/* What it is time for: takes the lock if the writer has gone, looks again at segments that could not be read; and reads
 * the folder anew where there is reason to. */
void rn_cold_look_again(struct rn_cold_store *store);

#endif
