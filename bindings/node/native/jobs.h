/* Calls that may take long: each runs on this thread, or on one of Node's pool and gives a promise.
 *
 *     export(handle, argument ..., sync)
 *
 * The handle is an engine's, a model's, a file's or undefined, as the operation says. parse reads the arguments and
 * result makes the value, both on the environment's thread; run is the work, on any thread. A job holds the engine
 * or the file while it runs, so that neither they nor the model are freed under it. */
#ifndef RN_NODE_JOBS_H
#define RN_NODE_JOBS_H

#include <runnel_files.h>
#include <runnel_infill.h>

#include "fields.h"
#include "model.h"

enum { MAX_JOB_ARGUMENTS = 5 };

struct job {
    const struct operation *operation;
    napi_async_work work;
    napi_deferred deferred;
    napi_ref handle;
    struct node_engine *engine; /* NULL: of no engine */
    struct node_model *node_model;
    struct node_file *node_file;
    runnel_model *model;
    runnel_engine *of_engine;
    runnel_file *file;
    struct arena arena; /* of arguments and result */
    runnel_status status;
    runnel_error error;
    const char *text, *path;
    size_t text_bytes, path_bytes;
    const int32_t *tokens;
    size_t n_tokens;
    int32_t token;
    int64_t number, other_number;
    void *state; /* the operation's own */
    void *out;   /* [n] */
    size_t n;
};

enum job_handle { JOB_OF_NOTHING, JOB_OF_ENGINE, JOB_OF_MODEL, JOB_OF_FILE };

struct operation {
    const char *name;
    enum job_handle of;
    uint32_t n_arguments;
    bool (*parse)(napi_env env, const napi_value *arguments, struct job *job); /* NULL: nothing to read */
    void (*run)(struct job *job);
    napi_value (*result)(napi_env env, struct job *job); /* NULL: undefined */
};

void jobs_export(napi_env env, napi_value exports, const struct operation *operations, size_t n);

/* On any thread: makes `out` a struct of so many bytes, with its struct_size. NULL: no memory, as the status says. */
void *job_struct(struct job *job, size_t bytes);

/* Calls fill with more room until all of it fits in job->out: [job->n] elements. */
void job_fill(struct job *job, size_t element_bytes, size_t guess,
              runnel_status (*fill)(struct job *job, void *out, size_t capacity, size_t *n));

/* Results. */
napi_value job_text(napi_env env, struct job *job);
napi_value job_tokens(napi_env env, struct job *job);
napi_value job_bytes(napi_env env, struct job *job);

/* The argument as job->text, job->path or job->number. */
bool job_parse_text(napi_env env, const napi_value *arguments, struct job *job);
bool job_parse_path(napi_env env, const napi_value *arguments, struct job *job);
bool job_parse_number(napi_env env, const napi_value *arguments, struct job *job);

void text_export(napi_env env, napi_value exports);
void observe_export(napi_env env, napi_value exports);
void files_export(napi_env env, napi_value exports);
void cache_export(napi_env env, napi_value exports);
void training_export(napi_env env, napi_value exports);

#endif
