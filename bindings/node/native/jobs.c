/* Jobs on this thread or the pool's: see jobs.h. */
#include "jobs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "file.h"

void *job_struct(struct job *job, size_t bytes)
{
    job->out = arena_alloc(&job->arena, bytes);
    if (job->out == NULL)
        job->status = RUNNEL_NO_MEMORY;
    else
        *(size_t *)job->out = bytes; /* struct_size, which comes first */
    return job->out;
}

void job_fill(struct job *job, size_t element_bytes, size_t guess,
              runnel_status (*fill)(struct job *job, void *out, size_t capacity, size_t *n))
{
    size_t capacity = guess;

    for (;;) {
        job->out = arena_alloc(&job->arena, capacity * element_bytes + 1);
        if (job->out == NULL) {
            job->status = RUNNEL_NO_MEMORY;
            return;
        }
        job->n = 0;
        job->status = fill(job, job->out, capacity, &job->n);
        if (job->status != RUNNEL_OK || job->n <= capacity)
            return;
        capacity = job->n + job->n / 16;
    }
}

napi_value job_text(napi_env env, struct job *job)
{
    return addon_string(env, job->out, job->n);
}

napi_value job_bytes(napi_env env, struct job *job)
{
    napi_value buffer = NULL;

    napi_create_buffer_copy(env, job->n, job->out, NULL, &buffer);
    return buffer;
}

napi_value job_tokens(napi_env env, struct job *job)
{
    return fields_token_array(env, job->out, job->n);
}

bool job_parse_text(napi_env env, const napi_value *arguments, struct job *job)
{
    return fields_text(env, &job->arena, "text", arguments[0], &job->text, &job->text_bytes);
}

bool job_parse_path(napi_env env, const napi_value *arguments, struct job *job)
{
    return fields_path(env, &job->arena, arguments[0], &job->path);
}

bool job_parse_number(napi_env env, const napi_value *arguments, struct job *job)
{
    double number = NAN;

    napi_get_value_double(env, arguments[0], &number);
    if (number == floor(number) && fabs(number) <= 9007199254740992.0) {
        job->number = (int64_t)number;
        return true;
    }
    addon_fail(env, RUNNEL_INVALID, "not a whole number");
    return false;
}

/* ---- The way of a job ---------------------------------------------------------------------- */

static bool open_handle(napi_env env, napi_value handle, struct job *job)
{
    switch (job->operation->of) {
    case JOB_OF_ENGINE:
        job->engine = engine_open(env, handle);
        if (job->engine == NULL)
            return false;
        job->of_engine = job->engine->engine;
        return true;
    case JOB_OF_MODEL:
        job->node_model = model_open(env, handle);
        if (job->node_model == NULL)
            return false;
        job->engine = job->node_model->engine;
        job->of_engine = job->engine->engine;
        job->model = job->node_model->model;
        return true;
    case JOB_OF_FILE:
        job->node_file = file_open(env, handle);
        if (job->node_file == NULL)
            return false;
        job->file = job->node_file->file;
        return true;
    default:
        return true;
    }
}

static void free_job(napi_env env, struct job *job)
{
    arena_free(&job->arena);
    if (job->handle != NULL)
        napi_delete_reference(env, job->handle);
    if (job->work != NULL)
        napi_delete_async_work(env, job->work);
    free(job);
}

/* The status of a call that fills no error is told by its own sentence. */
static const runnel_error *error_of(struct job *job)
{
    if (job->error.status != job->status)
        job->error = (runnel_error){.status = job->status};
    return &job->error;
}

static napi_value result_of(napi_env env, struct job *job)
{
    napi_value value = job->operation->result != NULL ? job->operation->result(env, job) : NULL;

    return value != NULL ? value : addon_undefined(env);
}

static void run(napi_env env, void *data)
{
    struct job *job = data;

    (void)env;
    if (job->engine != NULL && !engine_enter(job->engine)) {
        job->status = RUNNEL_CLOSED;
        return;
    }
    job->operation->run(job);
    if (job->engine != NULL)
        engine_leave(job->engine);
}

static void complete(napi_env env, napi_status status, void *data)
{
    struct job *job = data;

    if (status == napi_cancelled)
        job->status = RUNNEL_CANCELLED;
    if (job->node_model != NULL)
        model_job_done(job->node_model);
    if (job->node_file != NULL)
        file_job_done(job->node_file);
    if (job->status == RUNNEL_OK)
        napi_resolve_deferred(env, job->deferred, result_of(env, job));
    else
        napi_reject_deferred(env, job->deferred, addon_error(env, error_of(job)));
    free_job(env, job);
}

static napi_value start(napi_env env, napi_value handle, struct job *job)
{
    bool has_handle = job->operation->of != JOB_OF_NOTHING;
    napi_value name, promise;

    /* A worker that is being terminated has no promises any more. */
    if (napi_create_string_latin1(env, job->operation->name, NAPI_AUTO_LENGTH, &name) != napi_ok ||
        napi_create_async_work(env, NULL, name, run, complete, job, &job->work) != napi_ok ||
        (has_handle && napi_create_reference(env, handle, 1, &job->handle) != napi_ok) ||
        napi_create_promise(env, &job->deferred, &promise) != napi_ok ||
        napi_queue_async_work(env, job->work) != napi_ok) {
        free_job(env, job);
        return addon_fail(env, RUNNEL_NO_MEMORY, NULL);
    }
    if (job->node_model != NULL)
        job->node_model->jobs++;
    if (job->node_file != NULL)
        job->node_file->jobs++;
    return promise;
}

static napi_value finish(napi_env env, struct job *job)
{
    napi_value value = NULL;

    run(env, job);
    if (job->status == RUNNEL_OK)
        value = result_of(env, job);
    else
        addon_throw(env, error_of(job));
    free_job(env, job);
    return value;
}

static napi_value call(napi_env env, napi_callback_info info)
{
    napi_value values[MAX_JOB_ARGUMENTS + 2];
    size_t n = MAX_JOB_ARGUMENTS + 2;
    struct job *job = calloc(1, sizeof *job);
    void *operation = NULL;
    bool sync = false;

    if (job == NULL)
        return addon_fail(env, RUNNEL_NO_MEMORY, NULL);
    napi_get_cb_info(env, info, &n, values, NULL, &operation);
    job->operation = operation;
    /* To read arguments may run JavaScript that closes the handle: it is looked at afterwards. */
    if ((job->operation->parse != NULL && !job->operation->parse(env, values + 1, job)) ||
        !open_handle(env, values[0], job)) {
        free_job(env, job);
        return NULL;
    }
    napi_get_value_bool(env, values[1 + job->operation->n_arguments], &sync);
    return sync ? finish(env, job) : start(env, values[0], job);
}

void jobs_export(napi_env env, napi_value exports, const struct operation *operations, size_t n)
{
    napi_value function;

    for (size_t i = 0; i < n; i++)
        if (napi_create_function(env, operations[i].name, NAPI_AUTO_LENGTH, call, (void *)(uintptr_t)&operations[i],
                                 &function) == napi_ok)
            addon_set(env, exports, operations[i].name, function);
}
