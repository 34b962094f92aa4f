/* Sessions from the host's side: making, freeing, copying them, and sending them to and from files. What they are lies
 * with the tier actor; here ids are given out and wishes sent, in order, on the way that requests go. */
#include "actors/host/session.h"

#include <string.h>

#include "actors/engine.h"
#include "actors/host/host.h"
#include "actors/host/pool.h"
#include "base/check.h"
#include "base/sized.h"
#include "base/status.h"
#include "runnel_files.h"

struct rn_session *rn_session_find(runnel_model *model, runnel_session session)
{
    uint32_t slot = (uint32_t)session.id, generation = (uint32_t)(session.id >> 32);
    struct rn_session *s;

    if (slot >= model->engine->session_places || (generation & 1) == 0)
        return NULL;
    s = &model->engine->sessions[slot];
    if (rn_word_get(&s->generation) != generation || rn_word_get(&s->freeing) == generation ||
        atomic_load_explicit(&s->model, memory_order_relaxed) != model)
        return NULL;
    return s;
}

static runnel_session id_of(uint32_t slot, uint32_t generation)
{
    return (runnel_session){(uint64_t)generation << 32 | slot};
}

/* ---- New, free, fork ---- */

/* OK: rn_model_leave is due. */
static runnel_status enter_model(runnel_model *model)
{
    runnel_status status;

    if (rn_engine_check_process(model->engine, NULL) != RUNNEL_OK)
        return RUNNEL_STATE;
    status = rn_model_enter(model);
    if (status != RUNNEL_OK || (model->parts.backend != NULL && rn_word_get(&model->released) == 0))
        return status;
    rn_model_leave(model);
    return RUNNEL_STATE;
}

/* Opens a place; the tier does not know of it yet. */
static runnel_status open_place(runnel_model *model, runnel_session *session)
{
    struct runnel_engine *engine = model->engine;
    uint32_t slot, generation;
    struct rn_session *s;
    void *cell;

    if (!rn_counter_take(&engine->totals.sessions, engine->max_sessions))
        return RUNNEL_BUSY;
    cell = rn_pool_take(&engine->session_slots);
    if (cell == NULL) {
        rn_counter_add(&engine->totals.sessions, -1);
        return RUNNEL_BUSY;
    }
    slot = rn_pool_index(&engine->session_slots, cell);
    s = &engine->sessions[slot];
    atomic_store_explicit(&s->model, model, memory_order_relaxed);
    generation = rn_word_get(&s->generation) + 1;
    RN_CHECK(slot < engine->session_places && (generation & 1) != 0); /* the place was free */
    rn_word_set(&s->generation, generation);
    *session = id_of(slot, generation);
    return RUNNEL_OK;
}

/* Closes it again, before the tier has heard of it. */
static void close_place(struct runnel_engine *engine, runnel_session session)
{
    uint32_t slot = (uint32_t)session.id;

    RN_ASSERT(rn_word_get(&engine->sessions[slot].generation) == (uint32_t)(session.id >> 32));
    RN_ASSERT(rn_counter_get(&engine->totals.sessions) > 0);
    rn_word_set(&engine->sessions[slot].generation, (uint32_t)(session.id >> 32) + 1);
    rn_counter_add(&engine->totals.sessions, -1);
    rn_pool_give(&engine->session_slots, rn_pool_cell(&engine->session_slots, slot));
}

static void send_session(runnel_model *model, enum rn_message_kind kind, runnel_session session)
{
    struct rn_msg *msg = rn_msg_new(&model->engine->runtime, kind);

    msg->session = (struct rn_pay_session){(uint32_t)session.id, (uint32_t)(session.id >> 32), model};
    rn_actor_send(&model->engine->router.actor, msg);
}

runnel_status runnel_session_new(runnel_model *model, runnel_session *session)
{
    runnel_status status = model == NULL || session == NULL ? RUNNEL_INVALID : enter_model(model);

    if (status != RUNNEL_OK)
        return status;
    status = open_place(model, session);
    if (status == RUNNEL_OK)
        send_session(model, RN_MSG_SESSION_NEW, *session);
    rn_model_leave(model);
    return status;
}

static runnel_status free_session(runnel_model *model, runnel_session session)
{
    struct rn_session *s = rn_session_find(model, session);

    if (s == NULL || !rn_host_claim(&s->freeing, (uint32_t)(session.id >> 32)))
        return RUNNEL_NOT_FOUND; /* of two callers, and the tier, one frees it */
    RN_ASSERT(rn_counter_get(&model->engine->totals.sessions) > 0);
    rn_counter_add(&model->engine->totals.sessions, -1);
    send_session(model, RN_MSG_SESSION_FREE, session);
    return RUNNEL_OK;
}

runnel_status runnel_session_free(runnel_model *model, runnel_session session)
{
    runnel_status status;

    if (model == NULL)
        return RUNNEL_INVALID;
    if (!rn_gate_enter(&model->engine->calls))
        return RUNNEL_OK; /* it goes with the engine */
    status = free_session(model, session);
    rn_model_leave(model);
    return status;
}

static runnel_status fork_session(runnel_model *model, runnel_session session, runnel_session *copy)
{
    runnel_status status = rn_session_find(model, session) != NULL ? open_place(model, copy) : RUNNEL_NOT_FOUND;
    struct rn_msg *msg;

    if (status != RUNNEL_OK)
        return status;
    msg = rn_msg_new(&model->engine->runtime, RN_MSG_SESSION_FORK);
    msg->fork = (struct rn_pay_fork){(uint32_t)copy->id, (uint32_t)(copy->id >> 32), (uint32_t)session.id,
                                     (uint32_t)(session.id >> 32), model};
    rn_actor_send(&model->engine->router.actor, msg);
    return RUNNEL_OK;
}

runnel_status runnel_session_fork(runnel_model *model, runnel_session session, runnel_session *copy)
{
    runnel_status status = model == NULL || copy == NULL ? RUNNEL_INVALID : enter_model(model);

    if (status != RUNNEL_OK)
        return status;
    status = fork_session(model, session, copy);
    rn_model_leave(model);
    return status;
}

/* ---- Files ---- */

void runnel_session_file_init(runnel_session_file *file, size_t struct_size)
{
    const runnel_session_file own = {0};

    rn_sized_write(file, struct_size, &own, sizeof own);
}

void(runnel_session_file_default)(runnel_session_file *file)
{
    runnel_session_file_init(file, RN_FIRST_SIZE(runnel_session_file, label));
}

static runnel_status read_file(const runnel_session_file *given, runnel_session_file *file, runnel_error *error)
{
    runnel_session_file_default(file);
    if (!rn_sized_read(file, sizeof *file, given))
        return rn_error_set(error, RUNNEL_INVALID,
                            "session file: struct_size is not of this library; use runnel_session_file_default");
    if (!rn_label_valid(file->label))
        return rn_error_set(error, RUNNEL_INVALID, "session file: " RN_LABEL_RULE);
    if (file->path == NULL || file->path[0] == '\0')
        return rn_error_set(error, RUNNEL_INVALID, "session file: no path");
    if (file->note == NULL && file->note_bytes > 0)
        return rn_error_set(error, RUNNEL_INVALID, "session file: note is NULL but note_bytes is %zu",
                            file->note_bytes);
    return RUNNEL_OK;
}

static struct rn_request *build(runnel_model *model, const runnel_session_file *file, enum rn_job_kind kind)
{
    struct rn_request *r = rn_request_new(&model->engine->heap);
    bool exports = kind == RN_JOB_EXPORT;

    if (r == NULL)
        return NULL;
    r->context = &model->context;
    r->cache_salt = file->cache_salt;
    rn_request_set_label(r, file->label);
    r->job = rn_session_job_new(r->heap, kind, file->path, exports ? file->note : NULL, exports ? file->note_bytes : 0);
    if (r->job == NULL) {
        rn_request_free(r);
        return NULL;
    }
    r->job->request = r;
    return r;
}

/* A stream of which nothing comes but its end. */
static runnel_status open_outlet(struct rn_request *r, const runnel_session_file *file)
{
    struct rn_host *host = &r->context->engine->host;
    struct rn_outlet_options options = {.on_event = file->on_event,
                                        .user = file->user,
                                        .longest_piece = 1,
                                        .taken = host->delivery == RUNNEL_DELIVER_TAKE,
                                        .label = file->label,
                                        .model_name = r->context->metrics->name,
                                        .phase = RUNNEL_PHASE_FILE};
    void *cell = rn_pool_take(&host->slots);

    if (cell == NULL)
        return RUNNEL_BUSY;
    r->slot = rn_pool_index(&host->slots, cell);
    if (rn_outlet_open(&host->outlets[r->slot], r->heap, &options, &r->generation) == RUNNEL_OK)
        return RUNNEL_OK;
    rn_pool_give(&host->slots, cell);
    return RUNNEL_NO_MEMORY;
}

static runnel_status prepare(runnel_model *model, const runnel_session_file *file, enum rn_job_kind kind,
                             struct rn_request **out, runnel_error *error)
{
    struct rn_request *r = build(model, file, kind);
    runnel_status status = r == NULL ? RUNNEL_NO_MEMORY : open_outlet(r, file);

    if (status == RUNNEL_OK) {
        *out = r;
        return RUNNEL_OK;
    }
    rn_request_free(r);
    if (status == RUNNEL_BUSY)
        return rn_host_refuse(model->engine, error, "all %llu streams are taken", model->engine->max_streams);
    return rn_error_set(error, status, "no memory for a stream (of %u)", model->engine->max_streams);
}

static void submit(struct rn_request *r, runnel_session session, runnel_stream *stream)
{
    struct runnel_engine *engine = r->context->engine;
    struct rn_msg *msg;

    RN_ASSERT(r->job != NULL && r->job->request == r && (session.id >> 32 & 1) != 0);
    r->session = (uint32_t)session.id;
    r->session_generation = (uint32_t)(session.id >> 32);
    r->submitted_us = rn_now_us(&engine->clock);
    rn_counter_add(&engine->totals.streams, 1);
    *stream = rn_stream_id(r->slot, r->generation);
    msg = rn_msg_new(&engine->runtime, RN_MSG_SUBMIT);
    RN_ASSERT(rn_request_check(r) && r->n_queued == 0 && r->n_bytes == 0);
    msg->request.request = r;
    rn_actor_send(&engine->router.actor, msg);
    rn_uv_keep_alive(engine);
}

static runnel_status export_session(runnel_model *model, runnel_session session, const runnel_session_file *file,
                                    runnel_stream *stream, runnel_error *error)
{
    struct rn_request *r = NULL;
    runnel_status status;

    if (rn_session_find(model, session) == NULL)
        return rn_error_set(error, RUNNEL_NOT_FOUND, "the session does not exist");
    status = prepare(model, file, RN_JOB_EXPORT, &r, error);
    if (status == RUNNEL_OK)
        submit(r, session, stream);
    return status;
}

/* Of an engine that is being drained, too. */
runnel_status runnel_session_export(runnel_model *model, runnel_session session, const runnel_session_file *given,
                                    runnel_stream *stream, runnel_error *error)
{
    runnel_session_file file;
    runnel_status status;

    rn_error_clear(error);
    if (model == NULL || stream == NULL)
        return rn_error_set(error, RUNNEL_INVALID, "session file: model or the stream's place is NULL");
    status = read_file(given, &file, error);
    if (status != RUNNEL_OK)
        return status;
    status = enter_model(model);
    if (status != RUNNEL_OK)
        return rn_error_set(error, status, "the model cannot be used: %s", runnel_status_text(status));
    status = export_session(model, session, &file, stream, error);
    rn_model_leave(model);
    return status;
}

static runnel_status import_session(runnel_model *model, const runnel_session_file *file, runnel_session *session,
                                    runnel_stream *stream, runnel_error *error)
{
    struct runnel_engine *engine = model->engine;
    struct rn_request *r = NULL;
    runnel_session place;
    runnel_status status = rn_host_check_model(model, error);

    if (status == RUNNEL_OK && open_place(model, &place) != RUNNEL_OK)
        return rn_error_set(error, RUNNEL_BUSY, "max_sessions: all %u sessions are taken, or %u more are being freed",
                            engine->max_sessions, RN_SESSIONS_LEAVING);
    if (status != RUNNEL_OK)
        return status;
    status = prepare(model, file, RN_JOB_IMPORT, &r, error);
    if (status != RUNNEL_OK) {
        close_place(engine, place);
        return status;
    }
    *session = place;
    send_session(model, RN_MSG_SESSION_NEW, place);
    submit(r, place, stream);
    return RUNNEL_OK;
}

runnel_status runnel_session_import(runnel_model *model, const runnel_session_file *given, runnel_session *session,
                                    runnel_stream *stream, runnel_error *error)
{
    runnel_session_file file;
    runnel_status status;

    rn_error_clear(error);
    if (model == NULL || session == NULL || stream == NULL)
        return rn_error_set(error, RUNNEL_INVALID, "session file: model, or a place for the handles, is NULL");
    status = read_file(given, &file, error);
    if (status == RUNNEL_OK)
        status = rn_host_enter(model, error);
    if (status != RUNNEL_OK)
        return status;
    status = import_session(model, &file, session, stream, error);
    rn_host_leave(model);
    return status;
}

/* ---- The note ---- */

static runnel_status read_note(struct rn_session_reader *reader, void *note, size_t capacity, runnel_error *error)
{
    size_t n = (size_t)reader->head.note_bytes;

    if (capacity >= n)
        return rn_session_reader_text(reader, NULL, note, error);
    return RUNNEL_OK;
}

runnel_status runnel_session_read_note(const char *path, void *note, size_t capacity, size_t *note_bytes,
                                       runnel_error *error)
{
    struct rn_session_reader reader;
    runnel_status status;

    rn_error_clear(error);
    if (path == NULL || note_bytes == NULL || (note == NULL && capacity > 0))
        return rn_error_set(error, RUNNEL_INVALID, "note: path, note or note_bytes is NULL");
    status = rn_session_reader_open(&reader, path, error);
    if (status != RUNNEL_OK)
        return status;
    *note_bytes = (size_t)reader.head.note_bytes;
    status = read_note(&reader, note, capacity, error);
    rn_session_reader_fini(&reader);
    return status;
}
