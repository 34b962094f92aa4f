/* What an engine does, in numbers. */
#include <string.h>

#include "jobs.h"

static void run_stats(struct job *job)
{
    runnel_engine_stats *stats = job_struct(job, sizeof *stats);

    if (stats != NULL)
        job->status = runnel_engine_get_stats(job->of_engine, stats);
}

static napi_value stats_result(napi_env env, struct job *job)
{
    return fields_write(env, fields_of("runnel_engine_stats"), job->out);
}

static void run_metrics(struct job *job)
{
    runnel_metrics *metrics = job_struct(job, sizeof *metrics);

    if (metrics != NULL)
        job->status = runnel_engine_metrics(job->of_engine, metrics);
}

static napi_value metrics_result(napi_env env, struct job *job)
{
    return fields_write(env, fields_of("runnel_metrics"), job->out);
}

static void run_measure(struct job *job)
{
    runnel_machine *machine = job_struct(job, sizeof *machine);

    if (machine != NULL)
        job->status = runnel_engine_measure(job->of_engine, machine, &job->error);
}

static napi_value machine_result(napi_env env, struct job *job)
{
    return fields_write(env, fields_of("runnel_machine"), job->out);
}

static bool parse_device(napi_env env, const napi_value *arguments, struct job *job)
{
    if (!fields_text(env, &job->arena, "the name of a device", arguments[0], &job->text, &job->text_bytes))
        return false;
    if (strlen(job->text) == job->text_bytes)
        return true;
    addon_fail(env, RUNNEL_INVALID, "the name of a device must be without NUL characters");
    return false;
}

static void run_device(struct job *job)
{
    runnel_device_info *info = job_struct(job, sizeof *info);

    if (info != NULL)
        job->status = runnel_engine_device(job->of_engine, job->text, info, &job->error);
}

static napi_value device_result(napi_env env, struct job *job)
{
    return fields_write(env, fields_of("runnel_device_info"), job->out);
}

static runnel_status fill_prometheus(struct job *job, void *out, size_t capacity, size_t *n)
{
    return runnel_engine_prometheus(job->of_engine, out, capacity, n);
}

static void run_prometheus(struct job *job)
{
    job_fill(job, 1, 32768, fill_prometheus);
}

/* ---- Streams ------------------------------------------------------------------------------- */

static runnel_status fill_streams(struct job *job, void *out, size_t capacity, size_t *n)
{
    runnel_stream_info info = {.struct_size = sizeof info};
    uint64_t cursor = 0;
    runnel_status status;

    while ((status = runnel_engine_streams(job->of_engine, &cursor, &info)) == RUNNEL_OK)
        if ((*n)++ < capacity)
            ((runnel_stream_info *)out)[*n - 1] = info;
    return status == RUNNEL_NOT_FOUND ? RUNNEL_OK : status;
}

static void run_streams(struct job *job)
{
    job_fill(job, sizeof(runnel_stream_info), 64, fill_streams);
}

static napi_value streams_result(napi_env env, struct job *job)
{
    const runnel_stream_info *streams = job->out;
    napi_value array, object;

    if (napi_create_array_with_length(env, job->n, &array) != napi_ok)
        return NULL;
    for (uint32_t i = 0; i < job->n; i++) {
        const char *phase = runnel_phase_name(streams[i].phase);

        object = fields_write(env, fields_of("runnel_stream_info"), &streams[i]);
        if (object == NULL)
            return NULL;
        addon_set(env, object, "phase", addon_string(env, phase, strlen(phase)));
        napi_set_element(env, array, i, object);
    }
    return array;
}

/* ---- Experts ------------------------------------------------------------------------------- */

static runnel_status fill_experts(struct job *job, void *out, size_t capacity, size_t *n)
{
    runnel_expert_use *use = job->state;
    runnel_status status = runnel_engine_expert_use(job->of_engine, (uint32_t)job->number, use, out, capacity);

    *n = (size_t)use->n_blocks * use->n_experts;
    return status;
}

static void run_experts(struct job *job)
{
    runnel_expert_use *use = job_struct(job, sizeof *use);

    job->state = use;
    if (use != NULL)
        job_fill(job, sizeof(uint64_t), 8192, fill_experts);
}

static napi_value experts_result(napi_env env, struct job *job)
{
    const runnel_expert_use *use = job->state;
    const uint64_t *counts = job->out;
    napi_value object, blocks, block;

    if (napi_create_object(env, &object) != napi_ok ||
        napi_create_array_with_length(env, use->n_blocks, &blocks) != napi_ok)
        return NULL;
    for (uint32_t i = 0; i < use->n_blocks; i++) {
        if (napi_create_array_with_length(env, use->n_experts, &block) != napi_ok)
            return NULL;
        for (uint32_t k = 0; k < use->n_experts; k++)
            napi_set_element(env, block, k, addon_count(env, counts[(size_t)i * use->n_experts + k]));
        napi_set_element(env, blocks, i, block);
    }
    addon_set(env, object, "model", addon_string(env, use->model, strlen(use->model)));
    addon_set(env, object, "blocks", blocks);
    addon_set(env, object, "hits", addon_count(env, use->hits));
    addon_set(env, object, "misses", addon_count(env, use->misses));
    addon_set(env, object, "fetchedBytes", addon_count(env, use->fetched_bytes));
    return object;
}

/* ---- Names --------------------------------------------------------------------------------- */

/* nameOf(kind, number): of a status, an event, a phase or a drafter's rest; "statusText" and "restText" are
 * sentences. */
static napi_value name_of(napi_env env, napi_callback_info info)
{
    struct arena arena = {0};
    napi_value values[2];
    const char *kind, *name = NULL;
    size_t bytes;
    int32_t number = 0;

    if (!addon_arguments(env, info, 2, values) || !fields_text(env, &arena, "kind", values[0], &kind, &bytes))
        return NULL;
    napi_get_value_int32(env, values[1], &number);
    if (strcmp(kind, "status") == 0)
        name = runnel_status_name((runnel_status)number);
    else if (strcmp(kind, "statusText") == 0)
        name = runnel_status_text((runnel_status)number);
    else if (strcmp(kind, "event") == 0)
        name = runnel_event_name((runnel_event_type)number);
    else if (strcmp(kind, "phase") == 0)
        name = runnel_phase_name((runnel_phase)number);
    else if (strcmp(kind, "rest") == 0)
        name = runnel_rest_name((runnel_rest)number);
    else if (strcmp(kind, "restText") == 0)
        name = runnel_rest_text((runnel_rest)number);
    arena_free(&arena);
    return name != NULL ? addon_string(env, name, strlen(name))
                        : addon_fail(env, RUNNEL_NOT_FOUND, "there are no names of this kind");
}

/* architecture(index): {name, features}; undefined: there are not so many. */
static napi_value architecture(napi_env env, napi_callback_info info)
{
    char features[RUNNEL_FEATURES_BYTES];
    napi_value value, object;
    const char *name;
    uint32_t index = 0;

    if (!addon_arguments(env, info, 1, &value))
        return NULL;
    napi_get_value_uint32(env, value, &index);
    name = runnel_architecture(index, features);
    if (name == NULL || napi_create_object(env, &object) != napi_ok)
        return NULL;
    addon_set(env, object, "name", addon_string(env, name, strlen(name)));
    addon_set(env, object, "features", addon_string(env, features, strlen(features)));
    return object;
}

void observe_export(napi_env env, napi_value exports)
{
    static const struct operation operations[] = {
        {"engineStats", JOB_OF_ENGINE, 0, NULL, run_stats, stats_result},
        {"engineMetrics", JOB_OF_ENGINE, 0, NULL, run_metrics, metrics_result},
        {"engineMeasure", JOB_OF_ENGINE, 0, NULL, run_measure, machine_result},
        {"engineDevice", JOB_OF_ENGINE, 1, parse_device, run_device, device_result},
        {"enginePrometheus", JOB_OF_ENGINE, 0, NULL, run_prometheus, job_text},
        {"engineStreams", JOB_OF_ENGINE, 0, NULL, run_streams, streams_result},
        {"engineExperts", JOB_OF_ENGINE, 1, job_parse_number, run_experts, experts_result}};
    static const struct method methods[] = {{"nameOf", name_of}, {"architecture", architecture}};

    jobs_export(env, exports, operations, sizeof operations / sizeof operations[0]);
    addon_export(env, exports, methods, sizeof methods / sizeof methods[0]);
}
