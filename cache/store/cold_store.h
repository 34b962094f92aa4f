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
 * again and again stay, with their serials. With a record go all that build on it.
 *
 * Errors: the first is kept for rn_cold_store_error(). A failed write turns writing off for good, some failed reads in
 * sequence reading too: then all is a miss. What was damaged is forgotten.
 *
 * Memory: RN_COLD_ENTRY_BYTES and up to 16 bytes per record, at most max_records of them; the index of the newest
 * segment; and the two lists double when they are full, so up to twice that. All from the heap given; an append that
 * finds no memory is refused, and nothing else happens.
 *
 * One owner, any thread; open, append, read and maintain block on the disk. */
#ifndef RN_CACHE_STORE_COLD_STORE_H
#define RN_CACHE_STORE_COLD_STORE_H

#include "base/alloc.h"
#include "base/status.h"
#include "cache/store/cold_io.h"
#include "cache/prefix_tree.h"
#include "cache/store/session_print.h"

#define RN_COLD_VERSION 1
#define RN_COLD_NAME_BYTES 64
#define RN_COLD_ENTRY_BYTES 80

/* What must be the same for KV to be the same. */
struct rn_cold_id {
    struct rn_print model;         /* rn_print_model */
    struct rn_print kv;            /* rn_print_kv: layout, type, sizes, angles */
    struct rn_print adapter;       /* zeros: none */
    uint32_t block_tokens;         /* a power of two, at most 65536 */
    uint64_t block_bytes;          /* unpacked; for who looks into the folder */
    char name[RN_COLD_NAME_BYTES]; /* likewise: the model's, for people; ends with a NUL. Not part of the fingerprint */
};

struct rn_cold_limits {
    uint64_t max_bytes;     /* of all segments, as far as maintain() is called; at least 4 segments' */
    uint64_t segment_bytes; /* a segment is full with so many; 0: max_bytes / 16, in [1 MiB, 256 MiB] */
    uint32_t max_records;   /* 0: 2^20. At the limit the oldest segment goes */
    uint64_t dirty_bytes;   /* append waits for the disk rather than have more unwritten; 0: 32 MiB */
    bool read_only;         /* nothing is made, locked or written */
};

struct rn_cold_record {
    uint64_t handle;            /* never 0 */
    uint64_t parent;            /* 0: its block is the first of the prefix */
    struct rn_prefix_salt salt; /* the same as the parent's */
    const int32_t *tokens;      /* [block_tokens], valid until the callback returns */
    uint32_t depth;             /* blocks before it in the prefix */
    uint32_t payload_bytes;
};

/* Tells of a record; parents before children. */
typedef void rn_cold_record_fn(void *user, const struct rn_cold_record *record);

struct rn_cold_stats {
    uint32_t segments, records;
    uint64_t file_bytes, live_bytes;  /* of the segments; of the records that are known */
    uint64_t appended, reads, misses; /* calls; misses: reads that gave nothing */
    uint64_t bytes_written, bytes_read;
    uint64_t damaged;        /* records that were not what they should be, at open or later */
    uint64_t dropped;        /* records that went with their segment or their parent */
    uint64_t copied_bytes;   /* by maintain() */
    size_t memory_bytes;     /* of the index */
    bool writes, reads_work; /* false: off, by an error; writes: or another process has the lock */
};

struct rn_cold_store; /* cache/store/cold_parts.h */

/* Opens or makes the folder of `id` in `path` (which is made too, but not what it lies in), and tells of every record
 * that it has. Files that are damaged, foreign or of another version are left alone. `limits` are copied, `heap` and
 * `io` (NULL: the machine's) borrowed. Without the lock the store is opened for reading.
 * IO: the folder cannot be made or read. NO_MEMORY, INVALID; nothing is held. on_record NULL: not wanted. */
runnel_status rn_cold_store_open(struct rn_heap *heap, const struct rn_cold_io *io, const char *path,
                                 const struct rn_cold_id *id, const struct rn_cold_limits *limits,
                                 rn_cold_record_fn *on_record, void *user, struct rn_cold_store **store,
                                 runnel_error *error);

/* Writes the newest segment's index and lets go. NULL is allowed. */
void rn_cold_store_close(struct rn_cold_store *store);

/* Keeps payload[n] (n in [1, 2^30]) for the block of tokens[block_tokens] behind the record `parent` (0: none) of the
 * same salt. NOT_FOUND: the parent is not known (any more). STATE: writing is off. NO_MEMORY. IO: the disk has failed,
 * and writing is off from now on. BUSY: more bytes than max_bytes and max_records allow before maintain() has made
 * room. */
runnel_status rn_cold_store_append(struct rn_cold_store *store, uint64_t parent, struct rn_prefix_salt salt,
                                   const int32_t *tokens, const void *payload, size_t n, uint64_t *handle);

/* Bytes of a record's payload; 0: it is not known. */
size_t rn_cold_store_payload_bytes(const struct rn_cold_store *store, uint64_t handle);

/* The payload [rn_cold_store_payload_bytes] of the record with this salt, parent and tokens[block_tokens], checked.
 * NOT_FOUND: anything else, whatever the reason: a miss. */
runnel_status rn_cold_store_read(struct rn_cold_store *store, uint64_t handle, uint64_t parent,
                                 struct rn_prefix_salt salt, const int32_t *tokens, void *payload);

/* Reads of these are about to come: the disk may begin. Does not block on the disk. */
void rn_cold_store_will_read(struct rn_cold_store *store, const uint64_t *handles, uint32_t n);

/* The prefix that ends in the record was wanted: it and all before it stay when their segments go. */
void rn_cold_store_used(struct rn_cold_store *store, uint64_t handle);

/* The record is not to be seen again, nor what builds on it; also not by who opens the folder later, as far as
 * this can be written. */
void rn_cold_store_forget(struct rn_cold_store *store, uint64_t handle);

/* As forget, for this store alone: nothing is written. */
void rn_cold_store_let_go(struct rn_cold_store *store, uint64_t handle);

/* All of a salt. Returns how many records went. */
uint32_t rn_cold_store_forget_salt(struct rn_cold_store *store, struct rn_prefix_salt salt);

/* As forget_salt, and what the files hold of it, dead records too, is overwritten with zeros; *n: how many records.
 * STATE: writing is off; IO, NO_MEMORY: some are not overwritten. */
runnel_status rn_cold_store_wipe_salt(struct rn_cold_store *store, struct rn_prefix_salt salt, uint64_t *n);

/* Writes the segments from which wipe_salt has taken something anew, without what is dead in them, so that their room is
 * free. One that cannot be moved stays as it is. Up to a segment's bytes are needed meanwhile. IO: the disk has failed
 * or is full, and some are left (rn_cold_store_error). NO_MEMORY. STATE: writing is off. */
runnel_status rn_cold_store_compact(struct rn_cold_store *store);

/* There may be news: another process has the lock, or segments could not be read and are looked at again. */
bool rn_cold_store_follows(const struct rn_cold_store *store);

/* What the writer has appended since the last call, or some of it: looks at 64 heads at most, and tells of at most `most`
 * records (1 at least), parents first. Segments that the writer has removed are closed, and their records gone, but for
 * those that it has copied.
 * Where the writer has ended, this store takes the lock, reads the folder anew, which takes as long as opening it, and
 * writes from now on; what it had not seen yet is told by this call and the next ones. Where the lock cannot be had
 * for another reason, it stays a reader (rn_cold_store_error). *more: there may be more at once. *no_room: max_records is near, and there is news. Whatever
 * fails is looked at again the next time. Blocks on the disk. */
void rn_cold_store_follow(struct rn_cold_store *store, uint32_t most, rn_cold_record_fn *on_record, void *user,
                          bool *more, bool *no_room);

/* Keeps to the limits: reads and writes at most about budget_bytes, and drops at most one segment. True: there is more
 * to do. `gone` (NULL: not wanted) is told the handle of each record that is no longer known, those of reads and
 * forgets since the last call among them. */
bool rn_cold_store_maintain(struct rn_cold_store *store, uint64_t budget_bytes,
                            void (*gone)(void *user, uint64_t handle), void *user);

/* Once per store: true, and the first error that turned something off. */
bool rn_cold_store_error(struct rn_cold_store *store, runnel_error *error);

void rn_cold_store_stats(const struct rn_cold_store *store, struct rn_cold_stats *stats);

/* True when the index is consistent in itself. Linear. For tests. */
bool rn_cold_store_check(const struct rn_cold_store *store);

#endif
