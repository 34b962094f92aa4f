/* A session's file being written or read: a request's job, in parts on the worker's thread.
 *
 *   export   tier ─snapshot: tokens, references to blocks─▶ worker ─▶ tier ─END
 *   import   tier ─▶ worker: tokens ─▶ tier: blocks ─▶ worker: their KV ─▶ tier: the session is there ─END
 *
 * Blocks go between file and device in pieces. While the device copies one, the worker writes or reads the one beside
 * it, and does not wait: the end of the copies is a COPIED to the tier, which lets the job go on with its next part.
 *
 *   export   copy 0 │ copy 1, write 0 │ copy 2, write 1 │ write 2, rename
 *   import   read 0; copy 0, read 1 │ copy 1, read 2 │ copy 2 │ check the rest           (each │ is a COPIED)
 *
 * A part that has begun copies is not the last: whatever fails, or a cancel, ends the job when they have ended. Until
 * JOB_DONE request and job are the worker's, and what is copied the device's, but for `cancel` and the list of jobs:
 * the tier lets one job of a model go on at a time, so that the memory for blocks is needed once. A job reads blocks
 * that the request holds and nobody writes into (whose session goes on meanwhile gets a copy), and writes blocks that
 * nobody knows yet. */
#ifndef RN_ACTORS_TIER_SESSION_JOB_H
#define RN_ACTORS_TIER_SESSION_JOB_H

#include "actors/runtime/worker.h"
#include "actors/tier/session_slot.h"
#include "cache/store/session_file.h"

#define RN_JOB_BLOCKS 8u /* of a piece, of which there are two: as much as a move of the mover's */

enum rn_job_kind { RN_JOB_EXPORT, RN_JOB_IMPORT };

struct rn_session_job {
    struct rn_work work;         /* first */
    struct rn_session_job *next; /* the tier's list */
    enum rn_job_kind kind;
    struct rn_request *request; /* owns the job; export: tokens and blocks; import: tokens are put there */
    struct rn_heap *heap;
    char *path;
    void *note; /* [note_bytes], of an export */
    size_t note_bytes;
    struct rn_snapshot wish; /* of an export, while it waits */
    struct rn_word cancel;
    runnel_error error; /* OK: well so far */
    bool opened;        /* the file is open; of an import: the tokens are there */
    /* Blocks on their way. */
    unsigned char *ring; /* [2 * n_piece][block bytes], from the backend: block i of the file at i % (2 * n_piece) */
    uint32_t n_piece;    /* blocks */
    uint32_t n_begun, n_filed; /* blocks whose copy has begun; blocks that the file has been given, or has given */
    struct rn_host_copies copies;
    struct rn_host_copy items[RN_JOB_BLOCKS];
    struct rn_msg *copied; /* brings the end of the copies */
    /* Export. */
    struct rn_session_writer writer;
    /* Import. */
    struct rn_session_reader reader;
    bool leased; /* blocks for the KV are there */
    bool fits;   /* its blocks are of this cache's kind */
};

/* NULL on refusal. The caller gives it to its request. */
struct rn_session_job *rn_session_job_new(struct rn_heap *heap, enum rn_job_kind kind, const char *path,
                                          const void *note, size_t note_bytes);

/* NULL is allowed. The job is not under way: what it had for its blocks is gone. */
void rn_session_job_free(struct rn_session_job *job);

/* Between two of its parts: the file and the device have the blocks in turn, a piece each at most, and the ring is
 * there while blocks are copied and not otherwise. Where nothing runs. */
bool rn_session_job_check(const struct rn_session_job *job);

/* Hands the request's job to the worker, which does its next part. Then COPIED comes to the tier, when the job can go
 * on, or JOB_DONE. Any thread. */
void rn_session_job_post(struct rn_request *request);

#endif
