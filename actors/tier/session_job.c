/* The worker's part of sessions' files: see session_job.h. */
#include "actors/tier/session_job.h"

#include <string.h>

#include "actors/adapters.h"
#include "actors/context.h"
#include "actors/telemetry/prints.h"
#include "actors/request.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/path.h"
#include "base/status.h"
#include "model/kv_size.h"

static void run(struct rn_work *work);

struct rn_session_job *rn_session_job_new(struct rn_heap *heap, enum rn_job_kind kind, const char *path,
                                          const void *note, size_t note_bytes)
{
    struct rn_session_job *job = rn_calloc(heap, 1, sizeof *job);

    if (job == NULL)
        return NULL;
    job->heap = heap;
    job->kind = kind;
    job->work.run = run;
    job->reader.fd = job->writer.file.fd = -1;
    job->path = rn_path_absolute(heap, path); /* it is opened later, when the process may be in another directory */
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
    RN_ASSERT(job->ring == NULL);
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

/* Of a job; the reader asks too: a file may have many gigabytes of holes. */
static bool stops(void *user)
{
    struct rn_session_job *job = user;

    return rn_word_get(&job->cancel) != 0;
}

static bool cancelled(struct rn_session_job *job)
{
    if (stops(job))
        rn_error_set(&job->error, RUNNEL_CANCELLED, "cancelled");
    return job->error.status != RUNNEL_OK;
}

/* ---- The ring of blocks ---- */

static bool make_ring(struct rn_session_job *job, uint32_t n_blocks)
{
    const struct rn_context *context = job->request->context;
    size_t bytes = block_bytes(context);

    job->n_piece = n_blocks < RN_JOB_BLOCKS ? n_blocks : RN_JOB_BLOCKS;
    if (n_blocks == 0)
        return true;
    job->ring = context->backend->ops->host_alloc(context->backend, 2 * (size_t)job->n_piece * bytes);
    if (job->ring == NULL)
        rn_error_set(&job->error, RUNNEL_NO_MEMORY, "no memory for %u blocks of %zu bytes", 2 * job->n_piece, bytes);
    return job->ring != NULL;
}

static void free_ring(struct rn_session_job *job)
{
    struct rn_backend *backend = job->request->context->backend;

    if (job->ring != NULL)
        backend->ops->host_free(backend, job->ring);
    job->ring = NULL;
}

static unsigned char *bytes_of(const struct rn_session_job *job, uint32_t block)
{
    RN_ASSERT(job->ring != NULL && job->n_piece > 0);
    return job->ring + block % (2 * job->n_piece) * block_bytes(job->request->context);
}

/* On a thread of the backend, or within begin_copies: the tier lets the job go on. */
static void on_copies_done(struct rn_host_copies *copies)
{
    struct rn_session_job *job = copies->user;

    rn_actor_send(job->request->context->tier, job->copied);
}

/* The request's blocks from n_begun on, `n` of them; false: none. */
static bool begin_copies(struct rn_session_job *job, uint32_t n)
{
    const struct rn_request *request = job->request;
    struct rn_backend *backend = request->context->backend;
    uint32_t per_block = request->context->limits->block_tokens;
    bool to_host = job->kind == RN_JOB_EXPORT;

    RN_ASSERT(n <= job->n_piece && job->n_begun + n <= request->n_blocks);
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = job->n_begun + k, left = to_host ? request->n_cached - i * per_block : 0;

        job->items[k] = (struct rn_host_copy){request->blocks[i], left < per_block ? left : per_block, to_host,
                                              bytes_of(job, i), false};
    }
    if (n == 0)
        return false;
    RN_ASSERT(job->ring != NULL && job->error.status == RUNNEL_OK);
    job->n_begun += n;
    job->copies = (struct rn_host_copies){.n = n, .items = job->items, .on_done = on_copies_done, .user = job};
    job->copied = rn_msg_new(request->context->runtime, RN_MSG_COPIED);
    backend->ops->copy_async(backend, &job->copies);
    return true;
}

/* The copies that were begun have ended; false: the job ends here. */
static bool goes_on(struct rn_session_job *job)
{
    if (job->copies.status != RUNNEL_OK)
        rn_error_set(&job->error, RUNNEL_DEVICE, "the device could not copy the session's blocks");
    return !cancelled(job);
}

/* ---- Export ---- */

/* Of KV that was computed with the adapter of that print: the cache's own, and the print in it. */
static struct rn_fingerprint adapted(struct rn_fingerprint kv, uint64_t print)
{
    rn_bytes_put(kv.bytes, rn_bytes_get(kv.bytes, 8) ^ print, 8);
    return kv;
}

static struct rn_session_head head_of(const struct rn_session_job *job)
{
    const struct rn_request *request = job->request;
    const struct rn_context *context = request->context;
    const struct rn_session_fingerprints *prints = rn_session_fingerprints_of(context);
    bool has_blocks =
        rn_backend_has_blocks(context->backend) && context->limits->n_states == 0; /* see prefix_cache.c */
    uint32_t n_computed = has_blocks ? request->n_cached : 0, per_block = context->limits->block_tokens;
    uint32_t n_blocks = (uint32_t)(((uint64_t)n_computed + per_block - 1) / per_block);

    RN_CHECK(n_blocks <= request->n_blocks); /* a turn that did not begin may have left one more, to be written into */
    return (struct rn_session_head){
        .model = prints->model,
        .vocab = prints->vocab,
        .kv = adapted(prints->kv, request->adapter_print),
        .block_tokens = per_block,
        .block_bytes = block_bytes(context),
        .note_bytes = job->note_bytes,
        .n_tokens = request->n_tokens,
        .n_computed = n_computed,
        .n_blocks = n_blocks,
    };
}

static bool open_export(struct rn_session_job *job)
{
    struct rn_session_head head = head_of(job);
    struct rn_request *request = job->request;

    if (cancelled(job) || rn_session_writer_open(&job->writer, job->heap, job->path, &head, request->tokens, job->note,
                                                 &job->error) != RUNNEL_OK)
        return false;
    request->n_cached = head.n_computed;
    job->opened = true;
    return make_ring(job, head.n_blocks);
}

/* Those before `end`, which have come. */
static void write_blocks(struct rn_session_job *job, uint32_t end)
{
    RN_ASSERT(job->n_filed <= end && end - job->n_filed <= job->n_piece);
    for (; job->n_filed < end && !cancelled(job); job->n_filed++)
        rn_session_writer_block(&job->writer, bytes_of(job, job->n_filed), &job->error);
}

/* The next part of an export: a piece is written while the next one is copied. True: it goes on when that has come. */
static bool export_part(struct rn_session_job *job)
{
    uint32_t end = job->n_begun, left;
    bool copies = false;

    if (goes_on(job) && (job->opened || open_export(job))) {
        left = job->writer.n_blocks - end;
        copies = begin_copies(job, left < job->n_piece ? left : job->n_piece);
        write_blocks(job, end);
        if (!copies && !cancelled(job))
            rn_session_writer_finish(&job->writer, &job->error);
    }
    if (!copies) {
        rn_session_writer_fini(&job->writer);
        free_ring(job);
    }
    return copies;
}

/* ---- Import ---- */

/* The file's KV is as this model's cache has it, with one of its adapters or with none, which becomes the request's. */
static bool is_of_cache(struct rn_request *request, const struct rn_fingerprint *kv)
{
    const struct rn_context *context = request->context;
    const struct rn_fingerprint own = rn_session_fingerprints_of(context)->kv;
    uint64_t print = rn_bytes_get(own.bytes, 8) ^ rn_bytes_get(kv->bytes, 8);
    const struct rn_fingerprint with = adapted(own, print);

    request->adapter = print == 0 ? 0 : rn_model_adapters_by_print(context->adapters, print);
    request->adapter_print = request->adapter == 0 ? 0 : print;
    return rn_fingerprint_equal(kv, &with) && (print == 0 || request->adapter != 0);
}

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
    job->fits = !rn_kv_size_forgets(limits) && limits->n_states == 0 && rn_backend_has_blocks(context->backend) &&
                is_of_cache(job->request, &head->kv) && head->block_tokens == limits->block_tokens &&
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
    job->reader.stops = stops;
    job->reader.user = job;
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

/* The next piece of those that the request has blocks for. */
static void read_piece(struct rn_session_job *job)
{
    uint32_t end = job->n_filed + job->n_piece;

    RN_ASSERT(job->n_filed == job->n_begun); /* the piece before is on its way, or there: the other half is free */
    if (end > job->request->n_blocks)
        end = job->request->n_blocks;
    for (; job->n_filed < end && !cancelled(job); job->n_filed++)
        if (rn_session_reader_block(&job->reader, bytes_of(job, job->n_filed), &job->error) != RUNNEL_OK)
            return;
}

/* Those for which the request has no blocks. */
static void check_rest(struct rn_session_job *job)
{
    while (job->reader.next < job->reader.head.n_blocks && !cancelled(job))
        rn_session_reader_block(&job->reader, NULL, &job->error);
}

/* The next part of an import: all blocks are checked; those that the request has room for are put there, a piece while
 * the next one is read. True: it goes on when that is done. */
static bool import_part(struct rn_session_job *job)
{
    bool copies = false;

    if (goes_on(job) && (job->ring != NULL || make_ring(job, job->request->n_blocks))) {
        if (job->n_filed == job->n_begun)
            read_piece(job);
        if (!cancelled(job))
            copies = begin_copies(job, job->n_filed - job->n_begun);
        if (copies)
            read_piece(job);
        else
            check_rest(job);
    }
    if (!copies) {
        rn_session_reader_fini(&job->reader);
        free_ring(job);
    }
    return copies;
}

static void run(struct rn_work *work)
{
    struct rn_session_job *job = (struct rn_session_job *)work;
    const struct rn_context *context = job->request->context;
    struct rn_msg *msg;

    RN_ASSERT(job->request->job == job && job->request->outcome == RN_OUTCOME_NONE);
    if (job->kind == RN_JOB_EXPORT ? export_part(job) : job->opened && import_part(job))
        return;
    if (job->kind == RN_JOB_IMPORT && !job->opened)
        read_tokens(job);
    job->opened = true;
    msg = rn_msg_new(context->runtime, RN_MSG_JOB_DONE);
    msg->job.job = job;
    rn_actor_send(context->tier, msg);
}

void rn_session_job_post(struct rn_request *request)
{
    rn_worker_post(request->context->worker, &request->job->work);
}

bool rn_session_job_check(const struct rn_session_job *job)
{
    uint32_t first = job->kind == RN_JOB_EXPORT ? job->n_filed : job->n_begun;
    uint32_t last = job->kind == RN_JOB_EXPORT ? job->n_begun : job->n_filed;

    if (job->request == NULL || job->request->job != job || !rn_session_reader_check(&job->reader) ||
        !rn_session_writer_check(&job->writer))
        return false;
    if (job->ring == NULL)
        return true;
    return job->n_piece > 0 && job->n_piece <= RN_JOB_BLOCKS && first <= last && last - first <= job->n_piece &&
           last <= job->request->n_blocks && job->copies.n > 0 && job->copies.n <= job->n_piece;
}
