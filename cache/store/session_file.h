/* A session in a file: its tokens, a note of the host's, and the KV of the tokens that were computed. docs/SESSIONS.md
 * has the format byte by byte.
 *
 *   header (128 bytes, with its checksum) | tokens | note | block 0, checksum | block 1, checksum | ...
 *
 * Every byte is under a checksum (XXH3-128), and that of a block is seeded with the header's and with its number: a
 * block of another file or place does not pass. This is against accidents, not against forgers. What can be read
 * is either what was written, or an error; memory taken is bounded by the size of the file.
 *
 * Written as base/new_file.h says: whenever the writer is killed, the file there is the old one or the new one, whole.
 *
 * All functions block on the disk; no state is shared: any thread. */
#ifndef RN_CACHE_STORE_SESSION_FILE_H
#define RN_CACHE_STORE_SESSION_FILE_H

#include "base/new_file.h"
#include "cache/store/fingerprint.h"

#define RN_SESSION_VERSION 1
#define RN_SESSION_HEADER_BYTES 128
#define RN_SESSION_CHECK_BYTES 16

struct rn_session_head {
    struct rn_fingerprint model, vocab, kv; /* whose session it is, and how its blocks are to be read */
    uint32_t block_tokens;                  /* a power of two */
    uint64_t block_bytes;                   /* 0 where there are no blocks */
    uint64_t note_bytes;
    uint32_t n_tokens;
    uint32_t n_computed; /* of them, those whose KV is in the blocks; at most n_tokens */
    uint32_t n_blocks;   /* as many as n_computed positions need */
};

struct rn_session_reader {
    int fd;
    const char *name; /* borrowed; for errors */
    struct rn_session_head head;
    struct rn_fingerprint text_check; /* of tokens and note */
    uint64_t seed;                    /* of this file's blocks */
    uint32_t next;                    /* block */
    bool (*stops)(void *user); /* asked every few kilobytes: true: no more is read. NULL, as after the opening: no */
    void *user;
};

/* Reads and checks the header and the file's size; takes the descriptor over, also on failure. FORMAT: no session
 * file, or a damaged one; UNSUPPORTED: of a later version; IO. */
runnel_status rn_session_reader_init(struct rn_session_reader *reader, int fd, const char *name, runnel_error *error);

/* Opens the path. IO; else as above. */
runnel_status rn_session_reader_open(struct rn_session_reader *reader, const char *path, runnel_error *error);

/* Tokens and note, once, directly behind the opening. tokens [head.n_tokens], note [head.note_bytes]; either may be
 * NULL: it is checked and not kept. CANCELLED, here and below: `stops` has said so. */
runnel_status rn_session_reader_text(struct rn_session_reader *reader, int32_t *tokens, void *note,
                                     runnel_error *error);

/* The next block [head.block_bytes], behind the text; bytes NULL: it is checked alone. */
runnel_status rn_session_reader_block(struct rn_session_reader *reader, void *bytes, runnel_error *error);

/* Harmless after a failed open. */
void rn_session_reader_fini(struct rn_session_reader *reader);

/* True: closed, or open with a head that is good, at one of its blocks. Between two calls, here and below. */
bool rn_session_reader_check(const struct rn_session_reader *reader);

struct rn_session_writer {
    struct rn_new_file file;
    uint64_t seed, block_bytes;
    uint32_t next, n_blocks;
};

/* Begins a file for `path`, next to it, readable for its owner alone. IO (also: what is there is no regular file),
 * NO_MEMORY: nothing is left behind. */
runnel_status rn_session_writer_open(struct rn_session_writer *writer, struct rn_heap *heap, const char *path,
                                     const struct rn_session_head *head, const int32_t *tokens, const void *note,
                                     runnel_error *error);

/* The next block [block_bytes]. */
runnel_status rn_session_writer_block(struct rn_session_writer *writer, const void *bytes, runnel_error *error);

/* All blocks are written: the file takes its place. After an error it is not there, or (the directory could not be
 * synced) may be gone after a power failure. */
runnel_status rn_session_writer_finish(struct rn_session_writer *writer, runnel_error *error);

/* Removes what is not finished, and lets go. Harmless after a failed open. */
void rn_session_writer_fini(struct rn_session_writer *writer);

/* True: closed, or open with a name to write to, and no more blocks than it was to have. */
bool rn_session_writer_check(const struct rn_session_writer *writer);

#endif
