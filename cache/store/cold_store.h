/* The cold tier: computed KV blocks in files, which survive the process. docs/TIERS.md has the format byte by byte.
 *
 *   DIR/1f0c...e2/            one folder per fingerprint (model, KV layout, adapter): nothing of another is ever seen
 *       lock                  flock: one process writes; others read, follow what it writes, and one of them takes its
 *                             place when it has gone
 *       000000000000002a.kv   a segment: header | record | record | ... | index, which is written when it is full
 *       000000000000002b.kv   the newest; it has no index yet
 *
 *   record = head (96 bytes, with a checksum over itself and the tokens) | tokens of the block | payload
 *
 * A record is known by its serial (the handle: segment number and place, never used twice) and names its parent by
 * serial and checksum: so what a block's whole prefix was does not rest on a hash. A read compares salt, tokens and
 * checksums (XXH3-128, seeded with the fingerprint): it gives what was appended, or nothing. This is against accidents,
 * not against forgers; folder and files are readable for their owner alone.
 *
 * Appending writes the payload, then the head in front of it: a writer that is killed leaves whole records and perhaps
 * a torn end, which the next one leaves behind. After a power failure a payload may be missing under its head; then
 * its checksum does not fit, and it is a miss. No clock of the machine plays a part.
 *
 * The size: when the segments hold more than max_bytes, maintain() drops the oldest (or one that is mostly dead), but
 * first copies its records that were used since they were written there, half of it at most: those who are used
 * again and again stay, with their serials. With a record go all that build on it. Where there are many segments,
 * it joins small ones, of which nothing goes.
 *
 * Errors: the first is kept for rn_tier_store_error(). A failed write turns writing off: where the disk is full, for
 * some puts, else for good. Some failed reads in sequence turn reading off, too: then no get gives anything. A get
 * whose read fails says IO, and the record stays; what was damaged is forgotten.
 *
 * Memory: RN_COLD_ENTRY_BYTES and up to 16 bytes per record, at most max_records of them; the index of the newest
 * segment; and the two lists double when they are full, so up to twice that. All from the heap given; an append that
 * finds no memory is refused, and nothing else happens.
 *
 * It keeps the contract of tier.h and is durable: put appends, get reads. One owner, any thread; open, put, get,
 * forget, news, tend, maintain and what is said to do so below block on the disk. */
#ifndef RN_CACHE_STORE_COLD_STORE_H
#define RN_CACHE_STORE_COLD_STORE_H

#include "base/alloc.h"
#include "cache/store/cold_io.h"
#include "cache/store/tier.h"

#define RN_COLD_ENTRY_BYTES 80

struct rn_cold_limits {
    uint64_t max_bytes;     /* of all segments, as far as maintain() is called; at least 4 segments' */
    uint64_t segment_bytes; /* a segment is full with so many; 0: max_bytes / 16, in [1 MiB, 256 MiB] */
    uint32_t max_records;   /* 0: 2^20. At the limit the oldest segment goes */
    uint64_t dirty_bytes;   /* append waits for the disk rather than have more unwritten; 0: 32 MiB */
    bool read_only;         /* nothing is made, locked or written */
};

struct rn_cold_stats {
    uint32_t segments, records;
    uint64_t file_bytes, live_bytes; /* of the segments; of the records that are known */
    uint64_t misses;                 /* gets that gave nothing */
    uint64_t damaged;                /* records that were not what they should be, at open or later */
    uint64_t dropped;                /* records that went with their segment or their parent */
    uint64_t copied_bytes;           /* by maintain() */
    size_t memory_bytes;             /* of the index */
    bool writes, reads_work;         /* false: off, by an error; writes: or another process has the lock */
};

struct rn_cold_store; /* cache/store/cold_parts.h */

/* Opens or makes the folder of `id` in `path` (which is made too, but not what it lies in), and tells of every record
 * that it has. Files that are damaged, foreign or of another version are left alone. `limits` are copied, `heap` and
 * `io` (NULL: the machine's) borrowed. Without the lock the store is opened for reading.
 * IO: the folder cannot be made or read. NO_MEMORY, INVALID; nothing is held. on_record NULL: not wanted. */
runnel_status rn_cold_store_open(struct rn_heap *heap, const struct rn_cold_io *io, const char *path,
                                 const struct rn_tier_id *id, const struct rn_cold_limits *limits,
                                 rn_tier_record_fn *on_record, void *user, struct rn_cold_store **store,
                                 runnel_error *error);

/* Writes the newest segment's index and lets go. NULL is allowed. */
void rn_cold_store_close(struct rn_cold_store *store);

/* The store as a tier, which has it until the store is closed. A put's payload has 1 to 2^30 bytes; STATE and IO, too:
 * writing is off, now or from now on; BUSY: more bytes than max_bytes and max_records allow before tend has made room.
 * A forget is for who opens the folder later, too, as far as this can be written. news is follow, and a maintain that
 * only tells of what is gone: what the writer has removed is told first, since others may have taken its place. */
struct rn_tier_store *rn_cold_store_tier(struct rn_cold_store *store);

/* Forgets all whose salt has `salt` as its first word: of a cache_salt, whatever the adapter. What the files hold of
 * it, dead records too, is overwritten with zeros; *n: how many records.
 * STATE: writing is off; IO, NO_MEMORY: some are not overwritten. */
runnel_status rn_cold_store_wipe_salt(struct rn_cold_store *store, uint64_t salt, uint64_t *n);

/* *n: files in the folder that have a segment's name and may have records, and that wipe_salt does not look into: they
 * could not be read when the store was opened. IO: the folder cannot be read. */
runnel_status rn_cold_store_left(struct rn_cold_store *store, uint64_t *n);

/* Writes the segments from which wipe_salt has taken something anew, without what is dead in them, so that their room
 * is free. One that cannot be moved stays as it is. Up to a segment's bytes are needed meanwhile. IO: the disk has
 * failed or is full, and some are left (rn_tier_store_error). NO_MEMORY. STATE: writing is off. */
runnel_status rn_cold_store_compact(struct rn_cold_store *store);

/* There may be news: another process has the lock, or segments could not be read and are looked at again. */
bool rn_cold_store_follows(const struct rn_cold_store *store);

/* What the writer has appended since the last call, or some of it: looks at 64 heads at most, and tells of at most
 * `most` records (1 at least), parents first. Segments that the writer has removed are closed, and their records gone,
 * but for those that it has copied.
 * Where the writer has ended, this store takes the lock, reads the folder anew, which takes as long as opening it, and
 * writes from now on; what it had not seen yet is told by this call and the next ones. Where the lock cannot be had
 * for another reason, it stays a reader (rn_tier_store_error). *more: there may be more at once. *no_room: max_records
 * is near, and there is news. Whatever fails is looked at again the next time. Blocks on the disk. */
void rn_cold_store_follow(struct rn_cold_store *store, uint32_t most, rn_tier_record_fn *on_record, void *user,
                          bool *more, bool *no_room);

/* Keeps to the limits: reads and writes at most about budget_bytes, and drops at most one segment. True: there is more
 * to do. `gone` (NULL: not wanted) is told the handle of each record that is no longer known, those of reads and
 * forgets since the last call among them. */
bool rn_cold_store_maintain(struct rn_cold_store *store, uint64_t budget_bytes,
                            void (*gone)(void *user, uint64_t handle), void *user);

void rn_cold_store_stats(const struct rn_cold_store *store, struct rn_cold_stats *stats);

/* True when the index is consistent in itself. Linear. For tests. */
bool rn_cold_store_check(const struct rn_cold_store *store);

#endif
