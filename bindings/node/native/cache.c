/* Cache folders: what the library reports on the job's thread is copied, and shown when the job is done. */
#include <string.h>

#include "jobs.h"

struct report {
    struct report *next;
    const void *row;
};

struct reports {
    struct job *job;
    struct report *first, **last;
    runnel_cache_totals totals;
    runnel_cache_purge_options purge;
    bool no_memory;
};

static void *copy(struct reports *reports, const void *from, size_t bytes)
{
    void *to = from != NULL ? arena_alloc(&reports->job->arena, bytes) : NULL;

    if (to != NULL)
        memcpy(to, from, bytes);
    else
        reports->no_memory |= from != NULL;
    return to;
}

static const char *copy_text(struct reports *reports, const char *text)
{
    return copy(reports, text, text != NULL ? strlen(text) + 1 : 0);
}

static void add(struct reports *reports, const void *row)
{
    struct report *report = arena_alloc(&reports->job->arena, sizeof *report);

    if (report == NULL || row == NULL) {
        reports->no_memory = true;
        return;
    }
    report->row = row;
    *reports->last = report;
    reports->last = &report->next;
}

static void on_entry(void *user, const runnel_cache_entry *entry)
{
    runnel_cache_entry *row = copy(user, entry, sizeof *entry);

    if (row != NULL) {
        row->fingerprint = copy_text(user, entry->fingerprint);
        row->model = copy_text(user, entry->model);
    }
    add(user, row);
}

static void on_record(void *user, const runnel_cache_record *record)
{
    runnel_cache_record *row = copy(user, record, sizeof *record);

    if (row != NULL)
        row->tokens = copy(user, record->tokens, record->n_tokens * sizeof *record->tokens);
    add(user, row);
}

static void on_damage(void *user, const runnel_cache_damage *damage)
{
    runnel_cache_damage *row = copy(user, damage, sizeof *damage);

    if (row != NULL) {
        row->fingerprint = copy_text(user, damage->fingerprint);
        row->file = copy_text(user, damage->file);
        row->what = copy_text(user, damage->what);
    }
    add(user, row);
}

/* (undefined, path, options): options = {fingerprint, ...} */
static bool parse(napi_env env, const napi_value *arguments, struct job *job)
{
    struct reports *reports = arena_alloc(&job->arena, sizeof *reports);
    struct target target = {.fields = fields_of("runnel_cache_purge_options")};

    if (reports == NULL)
        return addon_fail(env, RUNNEL_NO_MEMORY, NULL) != NULL;
    reports->job = job;
    reports->last = &reports->first;
    reports->totals.struct_size = sizeof reports->totals;
    runnel_cache_purge_options_default(&reports->purge);
    target.base = &reports->purge;
    job->state = reports;
    return job_parse_path(env, arguments, job) && fields_read(env, &job->arena, arguments[1], &target, 1);
}

static void settle(struct job *job, struct reports *reports)
{
    if (job->status == RUNNEL_OK && reports->no_memory)
        job->status = RUNNEL_NO_MEMORY;
}

static void run_ls(struct job *job)
{
    struct reports *reports = job->state;

    job->status = runnel_cache_ls(job->path, on_entry, reports, &reports->totals, &job->error);
    settle(job, reports);
}

static void run_inspect(struct job *job)
{
    struct reports *reports = job->state;

    job->status = runnel_cache_inspect(job->path, reports->purge.fingerprint, on_record, reports, &job->error);
    settle(job, reports);
}

static void run_verify(struct job *job)
{
    struct reports *reports = job->state;

    job->status =
        runnel_cache_verify(job->path, reports->purge.fingerprint, on_damage, reports, &reports->totals, &job->error);
    settle(job, reports);
}

static void run_purge(struct job *job)
{
    struct reports *reports = job->state;

    job->status = runnel_cache_purge(job->path, &reports->purge, &reports->totals, &job->error);
}

static napi_value rows(napi_env env, const struct reports *reports, const char *type)
{
    napi_value array;
    uint32_t n = 0;

    if (napi_create_array(env, &array) != napi_ok)
        return NULL;
    for (const struct report *report = reports->first; report != NULL; report = report->next)
        napi_set_element(env, array, n++, fields_write(env, fields_of(type), report->row));
    return array;
}

static napi_value with_totals(napi_env env, struct job *job, const char *name, const char *type)
{
    const struct reports *reports = job->state;
    napi_value object = fields_write(env, fields_of("runnel_cache_totals"), &reports->totals);

    if (object != NULL && name != NULL)
        addon_set(env, object, name, rows(env, reports, type));
    return object;
}

static napi_value ls_result(napi_env env, struct job *job)
{
    return with_totals(env, job, "entries", "runnel_cache_entry");
}

static napi_value inspect_result(napi_env env, struct job *job)
{
    return rows(env, job->state, "runnel_cache_record");
}

static napi_value verify_result(napi_env env, struct job *job)
{
    return with_totals(env, job, "damages", "runnel_cache_damage");
}

static napi_value purge_result(napi_env env, struct job *job)
{
    return with_totals(env, job, NULL, NULL);
}

void cache_export(napi_env env, napi_value exports)
{
    static const struct operation operations[] = {
        {"cacheLs", JOB_OF_NOTHING, 2, parse, run_ls, ls_result},
        {"cacheInspect", JOB_OF_NOTHING, 2, parse, run_inspect, inspect_result},
        {"cacheVerify", JOB_OF_NOTHING, 2, parse, run_verify, verify_result},
        {"cachePurge", JOB_OF_NOTHING, 2, parse, run_purge, purge_result}};

    jobs_export(env, exports, operations, sizeof operations / sizeof operations[0]);
}
