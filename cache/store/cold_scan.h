/* A segment's records as they lie in its file: by its index, or where it has none that is whole (its writer was killed,
 * or still writes) by the heads one after another. Behind a damaged head the next one is looked for at every multiple
 * of 8, and taken if its check and its payload's fit and no record before it has its serial: so neither a piece of a
 * payload nor an entry of half an index is taken for a record. One owner; blocks on the disk. */
#ifndef RN_CACHE_STORE_COLD_SCAN_H
#define RN_CACHE_STORE_COLD_SCAN_H

#include "cache/store/cold_format.h"
#include "cache/store/cold_io.h"

#define RN_COLD_SEGMENT_RECORDS 8192u /* at most; bounds the index that is held for the newest segment */

struct rn_cold_scan {
    struct rn_heap *heap; /* borrowed, like io and fd */
    const struct rn_cold_io *io;
    int fd;
    uint64_t size, number, seed; /* of the file; of the segment; of its checks */
    uint32_t block_tokens;

    unsigned char *index; /* [n × rn_cold_index_bytes], from the heap: the caller's to free */
    uint32_t n;
    uint64_t index_at;      /* where the index begins; 0: the heads were read */
    uint64_t end;           /* behind the index, or behind the last record */
    uint32_t skipped;       /* places from which the next head had to be looked for, and was found */
    bool no_memory, broken; /* broken: the disk has failed */
};

/* The segments of a folder, by the numbers in their names. All 0: none. numbers[n] is the owner's to free. */
struct rn_cold_numbers {
    uint64_t *numbers; /* [n] of [room] */
    size_t n, room;
};

/* False: no memory, and nothing has changed. */
bool rn_cold_numbers_add(struct rn_cold_numbers *of, struct rn_heap *heap, uint64_t number);

bool rn_cold_numbers_has(const struct rn_cold_numbers *of, uint64_t number);

/* From the oldest to the newest. */
void rn_cold_numbers_sort(struct rn_cold_numbers *of);

/* All n bytes, or false; *status gets 0 for an end that came too early, or the errno, negative. */
bool rn_cold_pread(const struct rn_cold_io *io, int fd, void *bytes, size_t n, uint64_t offset, int *status);

/* False: there is no plain file with this path, or none that is longer than a header: it has no record. */
bool rn_cold_may_hold(const struct rn_cold_io *io, const char *path);

/* True: a whole head at this place, and room for its payload; entry [rn_cold_index_bytes] and *head are filled in.
 * False, and `broken` is set: the disk has failed. Of the scan, what is up to block_tokens. */
bool rn_cold_head_at(struct rn_cold_scan *scan, uint64_t at, unsigned char *entry, struct rn_cold_head *head);

/* Fills in what is behind block_tokens. Nothing is told of what the records are; look at no_memory and broken. */
void rn_cold_scan(struct rn_cold_scan *scan);

#endif
