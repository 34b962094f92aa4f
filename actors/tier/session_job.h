/* A session's file being written or read: a request's job on the worker's thread.
 *
 *   export   tier ─snapshot: tokens, references to blocks─▶ worker ─▶ tier ─END
 *   import   tier ─▶ worker: tokens ─▶ tier: blocks ─▶ worker: their KV ─▶ tier: the session is there ─END
 *
 * While the worker has it, request and job are the worker's, but for `cancel`. It reads blocks that the request holds
 * and nobody writes into (whose session goes on meanwhile gets a copy), and writes blocks that nobody knows yet. */
#ifndef RN_ACTORS_TIER_SESSION_JOB_H
#define RN_ACTORS_TIER_SESSION_JOB_H

#include "actors/runtime/worker.h"
#include "actors/tier/session_slot.h"
#include "cache/store/session_file.h"

enum rn_job_kind { RN_JOB_EXPORT, RN_JOB_IMPORT };

struct rn_session_job {
    struct rn_work work;         /* first */
    struct rn_session_job *next; /* the tier's list of those with the worker */
    enum rn_job_kind kind;
    struct rn_request *request; /* owns the job; export: tokens and blocks; import: tokens are put there */
    struct rn_heap *heap;
    char *path;
    void *note; /* [note_bytes], of an export */
    size_t note_bytes;
    struct rn_snapshot wish; /* of an export, while it waits */
    struct rn_word cancel;
    runnel_error error;    /* OK: well so far */
    struct rn_wake copied; /* a block's copy is done; the worker waits for it */
    /* Import. */
    struct rn_session_reader reader;
    bool opened; /* the tokens are there */
    bool leased; /* so are blocks for their KV */
    bool fits;   /* its blocks are of this cache's kind */
};

/* NULL on refusal. The caller gives it to its request. */
struct rn_session_job *rn_session_job_new(struct rn_heap *heap, enum rn_job_kind kind, const char *path,
                                          const void *note, size_t note_bytes);

/* NULL is allowed. Closes the file. */
void rn_session_job_free(struct rn_session_job *job);

/* Hands the request's job to the worker, which does its next part and sends JOB_DONE to the tier. */
void rn_session_job_post(struct rn_request *request);

#endif
