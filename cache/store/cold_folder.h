/* A cold tier's folder seen from outside, without the model: which fingerprints and segments lie there, whether what
 * they hold is whole, and taking it away. What is not the cold store's (other names, links, anything but plain files)
 * is counted and left alone.
 *
 * Looking and verifying take no lock and change nothing; a writer may be at work. Purging takes the lock of each
 * fingerprint concerned, or does nothing. The folders and their lock files stay, empty: who opens one at this moment
 * has its lock on a file that is there.
 *
 * One owner, any thread; blocks on the disk. */
#ifndef RN_CACHE_STORE_COLD_FOLDER_H
#define RN_CACHE_STORE_COLD_FOLDER_H

#include "cache/store/cold_scan.h"
#include "runnel_files.h"

struct rn_cold_folder {
    struct rn_heap *heap;
    const struct rn_cold_io *io;
    const char *path;                /* borrowed */
    char (*stores)[RN_COLD_HEX + 1]; /* [n]: fingerprints, ascending */
    size_t n, room;
    uint64_t foreign;
    bool no_memory;
};

/* The fingerprints in `path` that begin with `fingerprint` (NULL: all). IO: it cannot be listed; INVALID: these are no
 * digits of a fingerprint; NOT_FOUND: none is there, or several begin so; NO_MEMORY. fini is harmless after all. */
runnel_status rn_cold_folder_open(struct rn_cold_folder *folder, struct rn_heap *heap, const struct rn_cold_io *io,
                                  const char *path, const char *fingerprint, runnel_error *error);
void rn_cold_folder_fini(struct rn_cold_folder *folder);

/* One fingerprint's folder. */
struct rn_cold_listing {
    struct rn_cold_folder *folder;
    char *path;        /* of the folder, with room for a name behind it */
    size_t path_bytes; /* of the folder */
    const char *hex;
    struct rn_cold_numbers segments;
    uint64_t foreign;
    bool known; /* some segment's header is whole and of this fingerprint: it is in `id` */
    struct rn_tier_id id;
};

/* IO, NO_MEMORY. fini is harmless after all. */
runnel_status rn_cold_listing_open(struct rn_cold_listing *listing, struct rn_cold_folder *folder, size_t nth,
                                   runnel_error *error);
void rn_cold_listing_fini(struct rn_cold_listing *listing);

struct rn_cold_totals {
    uint64_t segments, records, bytes, damaged;
};

/* Reads and checks every byte that is under a check. */
runnel_status rn_cold_listing_verify(struct rn_cold_listing *listing,
                                     void (*damage)(void *user, const struct runnel_cache_damage *damage), void *user,
                                     struct rn_cold_totals *totals, runnel_error *error);

/* How many segments may have records; for a listing that is not known. */
uint64_t rn_cold_listing_left(struct rn_cold_listing *listing);

/* The lock, and what lies in the folder under it: a descriptor, for io->close; below 0: none. BUSY: another process has
 * the lock; IO, NO_MEMORY. */
runnel_status rn_cold_listing_lock(struct rn_cold_listing *listing, int *fd, runnel_error *error);

/* Under the lock: removes the oldest segments until the rest has at most keep_bytes. `gone` counts them. */
runnel_status rn_cold_listing_purge(struct rn_cold_listing *listing, uint64_t keep_bytes, struct rn_cold_totals *gone,
                                    runnel_error *error);

#endif
