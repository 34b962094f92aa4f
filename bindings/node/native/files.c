/* Model files that are looked into, and sessions in files. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file.h"
#include "jobs.h"
#include "parse.h"

struct node_file *file_open(napi_env env, napi_value value)
{
    struct node_file *file = addon_box(env, value, BOX_FILE);

    if (file != NULL && file->closed) {
        addon_fail(env, RUNNEL_CLOSED, "the file is closed");
        return NULL;
    }
    return file;
}

static void close_file(struct node_file *file)
{
    file->closed = true;
    if (file->jobs > 0)
        return;
    runnel_file_close(file->file);
    file->file = NULL;
}

void file_job_done(struct node_file *file)
{
    file->jobs--;
    if (file->closed)
        close_file(file);
}

static void finalize(napi_env env, void *data, void *hint)
{
    struct node_file *file = data;

    (void)env;
    (void)hint;
    close_file(file);
    free(file);
}

static void run_open(struct job *job)
{
    runnel_file *file = NULL;

    job->status = runnel_file_open(job->path, &file, &job->error);
    job->state = file;
}

static napi_value open_result(napi_env env, struct job *job)
{
    struct node_file *file = calloc(1, sizeof *file);
    napi_value handle = NULL;

    if (file == NULL || napi_create_external(env, file, finalize, NULL, &handle) != napi_ok) {
        runnel_file_close(job->state);
        free(file);
        return NULL;
    }
    file->kind = BOX_FILE;
    file->file = job->state;
    return handle;
}

/* fileClose(file) */
static napi_value file_close(napi_env env, napi_callback_info info)
{
    struct node_file *file;
    napi_value value;

    if (!addon_arguments(env, info, 1, &value))
        return NULL;
    file = addon_box(env, value, BOX_FILE);
    if (file != NULL)
        close_file(file);
    return NULL;
}

/* ---- What is in it ------------------------------------------------------------------------- */

static void run_info(struct job *job)
{
    runnel_file_info *info = job_struct(job, sizeof *info);

    if (info != NULL)
        job->status = runnel_file_get_info(job->file, info);
}

static napi_value info_result(napi_env env, struct job *job)
{
    return fields_write(env, fields_of("runnel_file_info"), job->out);
}

static void run_metadata(struct job *job)
{
    runnel_metadata *metadata = job_struct(job, sizeof *metadata);

    if (metadata != NULL)
        job->status = runnel_file_metadata(job->file, (uint64_t)job->number, metadata);
}

static napi_value metadata_result(napi_env env, struct job *job)
{
    return fields_write(env, fields_of("runnel_metadata"), job->out);
}

static bool parse_element(napi_env env, const napi_value *arguments, struct job *job)
{
    return job_parse_number(env, arguments, job) &&
           napi_get_value_int64(env, arguments[1], &job->other_number) == napi_ok;
}

static runnel_status fill_element(struct job *job, void *out, size_t capacity, size_t *n)
{
    return runnel_file_metadata_text(job->file, (uint64_t)job->number, (uint64_t)job->other_number, out, capacity, n);
}

static void run_metadata_text(struct job *job)
{
    job_fill(job, 1, 256, fill_element);
}

static void run_tensor(struct job *job)
{
    runnel_tensor *tensor = job_struct(job, sizeof *tensor);

    if (tensor != NULL)
        job->status = runnel_file_tensor(job->file, (uint64_t)job->number, tensor);
}

static napi_value tensor_result(napi_env env, struct job *job)
{
    return fields_write(env, fields_of("runnel_tensor"), job->out);
}

static bool parse_rows(napi_env env, const napi_value *arguments, struct job *job)
{
    return fields_architectures(env, &job->arena, "architectures", arguments[0], (void *)&job->state, &job->n);
}

static void run_set_architectures(struct job *job)
{
    if (job->node_file->jobs > 0) { /* they read the file meanwhile */
        job->status = job->error.status = RUNNEL_STATE;
        snprintf(job->error.message, sizeof job->error.message, "templates() is reading the file");
        return;
    }
    job->status = runnel_file_set_architectures(job->file, job->state, job->n, &job->error);
}

static void run_kv_bytes(struct job *job)
{
    uint64_t bytes = 0;
    int type = job->number < 0 || job->number > INT_MAX ? -1 : (int)job->number; /* -1: none, as the library says */

    job->status = runnel_file_kv_bytes_per_token(job->file, (runnel_kv_type)type, &bytes, &job->error);
    job->n = bytes;
}

static napi_value count_result(napi_env env, struct job *job)
{
    return addon_count(env, job->n);
}

static runnel_status fill_plan(struct job *job, void *out, size_t capacity, size_t *n)
{
    return runnel_file_plan(job->file, out, capacity, n, &job->error);
}

static void run_plan(struct job *job)
{
    job_fill(job, 1, 65536, fill_plan);
}

/* ---- Sessions in files --------------------------------------------------------------------- */

static runnel_status fill_note(struct job *job, void *out, size_t capacity, size_t *n)
{
    return runnel_session_read_note(job->path, out, capacity, n, &job->error);
}

static void run_read_note(struct job *job)
{
    job_fill(job, 1, 4096, fill_note);
}

/* The parts of sessionExport and sessionImport that are alike: (model, options, slot). */
static struct node_slot *begin(napi_env env, const napi_value *values, struct arena *arena, struct node_model **model,
                               runnel_session_file *file)
{
    struct target target = {.fields = fields_of("runnel_session_file"), .base = file};
    struct node_slot *slot;

    runnel_session_file_default(file);
    if (!fields_read(env, arena, values[1], &target, 1) || (slot = submit_begin(env, values, model)) == NULL)
        return NULL;
    file->on_event = engine_callback((*model)->engine);
    file->user = slot;
    return slot;
}

/* sessionExport(model, options, slot, session): the stream's id. */
static napi_value session_export(napi_env env, napi_callback_info info)
{
    struct arena arena = {0};
    runnel_session_file file;
    runnel_session session = {0};
    runnel_stream stream = {0};
    runnel_error error = {0};
    struct node_model *model;
    struct node_slot *slot;
    runnel_status status;
    napi_value values[4], result = NULL;

    if (!addon_arguments(env, info, 4, values))
        return NULL;
    slot = begin(env, values, &arena, &model, &file);
    if (slot != NULL) {
        addon_id(env, values[3], &session.id);
        status = runnel_session_export(model->model, session, &file, &stream, &error);
        result = submit_end(env, slot, status, &error, stream);
    }
    arena_free(&arena);
    return result;
}

/* sessionImport(model, options, slot): [stream's id, session's id]. */
static napi_value session_import(napi_env env, napi_callback_info info)
{
    struct arena arena = {0};
    runnel_session_file file;
    runnel_session session = {0};
    runnel_stream stream = {0};
    runnel_error error = {0};
    struct node_model *model;
    struct node_slot *slot;
    runnel_status status;
    napi_value values[3], id = NULL, result = NULL;

    if (!addon_arguments(env, info, 3, values))
        return NULL;
    slot = begin(env, values, &arena, &model, &file);
    if (slot != NULL) {
        status = runnel_session_import(model->model, &file, &session, &stream, &error);
        id = submit_end(env, slot, status, &error, stream);
    }
    if (id != NULL && napi_create_array(env, &result) == napi_ok) {
        napi_set_element(env, result, 0, id);
        napi_create_bigint_uint64(env, session.id, &id);
        napi_set_element(env, result, 1, id);
    }
    arena_free(&arena);
    return result;
}

void files_export(napi_env env, napi_value exports)
{
    static const struct operation operations[] = {
        {"fileOpen", JOB_OF_NOTHING, 1, job_parse_path, run_open, open_result},
        {"fileInfo", JOB_OF_FILE, 0, NULL, run_info, info_result},
        {"fileMetadata", JOB_OF_FILE, 1, job_parse_number, run_metadata, metadata_result},
        {"fileMetadataText", JOB_OF_FILE, 2, parse_element, run_metadata_text, job_text},
        {"fileTensor", JOB_OF_FILE, 1, job_parse_number, run_tensor, tensor_result},
        {"fileSetArchitectures", JOB_OF_FILE, 1, parse_rows, run_set_architectures, NULL},
        {"fileKvBytesPerToken", JOB_OF_FILE, 1, job_parse_number, run_kv_bytes, count_result},
        {"filePlan", JOB_OF_FILE, 0, NULL, run_plan, job_text},
        {"sessionReadNote", JOB_OF_NOTHING, 1, job_parse_path, run_read_note, job_bytes}};
    static const struct method methods[] = {
        {"fileClose", file_close}, {"sessionExport", session_export}, {"sessionImport", session_import}};

    jobs_export(env, exports, operations, sizeof operations / sizeof operations[0]);
    addon_export(env, exports, methods, sizeof methods / sizeof methods[0]);
}
