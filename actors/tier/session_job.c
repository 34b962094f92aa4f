/* The worker's part of sessions' files: see session_job.h. */
#include "actors/tier/session_job.h"

#include <string.h>

#include "actors/context.h"
#include "actors/telemetry/prints.h"
#include "actors/request.h"
#include "base/check.h"
#include "base/status.h"
#include "model/kv_size.h"

/* rn_wake wants its own cache line. */
static struct rn_session_job *new_job(struct rn_heap *heap)
{
    struct rn_session_job *job = rn_alloc_aligned(heap, sizeof *job, _Alignof(struct rn_session_job));

    if (job != NULL)
        memset(job, 0, sizeof *job);
    return job;
}

struct rn_session_job *rn_session_job_new(struct rn_heap *heap, enum rn_job_kind kind, const char *path,
                                          const void *note, size_t note_bytes)
{
    struct rn_session_job *job = new_job(heap);

    if (job == NULL)
        return NULL;
    job->heap = heap;
    job->kind = kind;
    job->reader.fd = -1;
    rn_wake_init(&job->copied);
    job->path = rn_strndup(heap, path, strlen(path));
    job->note = rn_alloc(heap, note_bytes, 1);
    if (job->path == NULL || job->note == NULL) {
        rn_session_job_free(job);
        return NULL;
    }
    if (note_bytes > 0)
        memcpy(job->note, note, note_bytes);
    job->note_bytes = note_bytes;
    return job;
}

void rn_session_job_free(struct rn_session_job *job)
{
    if (job == NULL)
        return;
    rn_session_reader_fini(&job->reader);
    rn_free(job->heap, job->path);
    rn_free(job->heap, job->note);
    rn_free(job->heap, job);
}

static size_t block_bytes(const struct rn_context *context)
{
    const struct rn_backend *backend = context->backend;

    return rn_backend_has_blocks(backend) ? backend->ops->block_bytes(backend) : 0;
}

static void on_copied(struct rn_host_copies *copies)
{
    rn_wake_notify(copies->user);
}

/* Copies one block, to its end: the worker may block. */
static runnel_status copy_block(struct rn_session_job *job, uint32_t block, uint32_t n_positions, bool to_host,
                                void *bytes)
{
    struct rn_backend *backend = job->request->context->backend;
    struct rn_host_copy copy = {block, n_positions, to_host, bytes, false};
    struct rn_host_copies copies = {.n = 1, .items = &copy, .on_done = on_copied, .user = &job->copied};
    uint32_t ticket = rn_wake_ticket(&job->copied);

    backend->ops->copy_async(backend, &copies);
    while (!rn_wake_wait(&job->copied, ticket, -1, 0))
        ;
    return copies.status;
}

/* ---- Export ---- */

static bool cancelled(struct rn_session_job *job)
{
    if (rn_word_get(&job->cancel) != 0)
        rn_error_set(&job->error, RUNNEL_CANCELLED, "cancelled");
    return job->error.status != RUNNEL_OK;
}

static struct rn_session_head head_of(const struct rn_session_job *job)
{
    const struct rn_request *request = job->request;
    const struct rn_context *context = request->context;
    const struct rn_session_fingerprints *prints = rn_session_fingerprints_of(context);
    bool blocks = rn_backend_has_blocks(context->backend);

    return (struct rn_session_head){
        .model = prints->model,
        .vocab = prints->vocab,
        .kv = prints->kv,
        .block_tokens = context->limits->block_tokens,
        .block_bytes = block_bytes(context),
        .note_bytes = job->note_bytes,
        .n_tokens = request->n_tokens,
        .n_computed = blocks ? request->n_cached : 0,
        .n_blocks = blocks ? request->n_blocks : 0,
    };
}

static runnel_status write_blocks(struct rn_session_job *job, struct rn_session_writer *writer, void *bytes)
{
    const struct rn_request *request = job->request;
    uint32_t per_block = request->context->limits->block_tokens;

    for (uint32_t i = 0; i < writer->n_blocks && !cancelled(job); i++) {
        uint32_t n = request->n_cached - i * per_block < per_block ? request->n_cached - i * per_block : per_block;

        if (copy_block(job, request->blocks[i], n, true, bytes) != RUNNEL_OK)
            return rn_error_set(&job->error, RUNNEL_DEVICE, "block %u could not be read", request->blocks[i]);
        if (rn_session_writer_block(writer, bytes, &job->error) != RUNNEL_OK)
            return job->error.status;
    }
    return job->error.status;
}

static void run_export(struct rn_session_job *job)
{
    struct rn_session_head head = head_of(job);
    struct rn_backend *backend = job->request->context->backend;
    struct rn_session_writer writer;
    void *bytes;

    if (cancelled(job) || rn_session_writer_open(&writer, job->heap, job->path, &head, job->request->tokens, job->note,
                                                 &job->error) != RUNNEL_OK)
        return;
    bytes = head.block_bytes > 0 ? backend->ops->host_alloc(backend, head.block_bytes) : NULL;
    if (bytes == NULL && head.block_bytes > 0)
        rn_error_set(&job->error, RUNNEL_NO_MEMORY, "no memory for a block of %llu bytes",
                     (unsigned long long)head.block_bytes);
    else if (write_blocks(job, &writer, bytes) == RUNNEL_OK && !cancelled(job))
        rn_session_writer_finish(&writer, &job->error);
    rn_session_writer_fini(&writer);
    if (bytes != NULL)
        backend->ops->host_free(backend, bytes);
    job->request->n_cached = head.n_computed;
}

/* ---- Import ---- */

static runnel_status check_head(struct rn_session_job *job)
{
    const struct rn_context *context = job->request->context;
    const struct rn_backend_limits *limits = context->limits;
    const struct rn_session_head *head = &job->reader.head;
    const struct rn_session_fingerprints *prints = rn_session_fingerprints_of(context);

    if (!rn_fingerprint_equal(&head->model, &prints->model))
        return rn_error_set(&job->error, RUNNEL_UNSUPPORTED, "%s: a session of another model", job->path);
    if (!rn_fingerprint_equal(&head->vocab, &prints->vocab))
        return rn_error_set(&job->error, RUNNEL_UNSUPPORTED, "%s: a session of another vocabulary", job->path);
    if (head->n_tokens > limits->context_tokens || head->n_tokens > rn_kv_size_positions(limits))
        return rn_error_set(&job->error, RUNNEL_CONTEXT, "%s: the session has %u tokens, %u fit", job->path,
                            head->n_tokens, limits->context_tokens);
    job->fits = limits->mean_window == 0 && rn_backend_has_blocks(context->backend) &&
                rn_fingerprint_equal(&head->kv, &prints->kv) && head->block_tokens == limits->block_tokens &&
                head->block_bytes == block_bytes(context);
    return RUNNEL_OK;
}

static void read_tokens(struct rn_session_job *job)
{
    struct rn_request *request = job->request;
    uint32_t n_vocab = request->context->n_vocab;

    if (cancelled(job) || rn_session_reader_open(&job->reader, job->path, &job->error) != RUNNEL_OK ||
        check_head(job) != RUNNEL_OK)
        return;
    request->tokens = rn_alloc(request->heap, job->reader.head.n_tokens, sizeof *request->tokens);
    if (request->tokens == NULL) {
        rn_error_set(&job->error, RUNNEL_NO_MEMORY, "no memory for %u tokens", job->reader.head.n_tokens);
        return;
    }
    if (rn_session_reader_text(&job->reader, request->tokens, NULL, &job->error) != RUNNEL_OK)
        return;
    request->n_tokens = request->capacity = job->reader.head.n_tokens;
    for (uint32_t i = 0; i < request->n_tokens; i++)
        if (request->tokens[i] < 0 || (uint32_t)request->tokens[i] >= n_vocab)
            rn_error_set(&job->error, RUNNEL_FORMAT, "%s: token %u is %d, which is not in the vocabulary", job->path, i,
                         request->tokens[i]);
}

/* All of them are checked; those that the request has blocks for are put there. */
static void read_blocks(struct rn_session_job *job)
{
    struct rn_request *request = job->request;
    struct rn_backend *backend = request->context->backend;
    void *bytes =
        request->n_blocks > 0 ? backend->ops->host_alloc(backend, (size_t)job->reader.head.block_bytes) : NULL;

    if (bytes == NULL && request->n_blocks > 0)
        rn_error_set(&job->error, RUNNEL_NO_MEMORY, "no memory for a block of %llu bytes",
                     (unsigned long long)job->reader.head.block_bytes);
    for (uint32_t i = 0; i < job->reader.head.n_blocks && !cancelled(job); i++) {
        bool wanted = i < request->n_blocks;

        if (rn_session_reader_block(&job->reader, wanted ? bytes : NULL, &job->error) == RUNNEL_OK && wanted &&
            copy_block(job, request->blocks[i], 0, false, bytes) != RUNNEL_OK)
            rn_error_set(&job->error, RUNNEL_DEVICE, "block %u could not be written", request->blocks[i]);
    }
    if (bytes != NULL)
        backend->ops->host_free(backend, bytes);
    rn_session_reader_fini(&job->reader);
}

static void run(struct rn_work *work)
{
    struct rn_session_job *job = (struct rn_session_job *)work;
    const struct rn_context *context = job->request->context;
    struct rn_msg *msg;

    if (job->kind == RN_JOB_EXPORT)
        run_export(job);
    else if (!job->opened)
        read_tokens(job);
    else
        read_blocks(job);
    job->opened = true;
    msg = rn_msg_new(context->runtime, RN_MSG_JOB_DONE);
    msg->job.job = job;
    rn_actor_send(context->tier, msg);
}

void rn_session_job_post(struct rn_request *request)
{
    request->job->work.run = run;
    rn_worker_post(request->context->worker, &request->job->work);
}
