/* See model_adapters.h. */
#include "actors/load/model_adapters.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "actors/engine.h"
#include "actors/host/outlet.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/path.h"
#include "cache/store/fingerprint.h"

static_assert(RN_MAX_ADAPTERS == RUNNEL_MAX_ADAPTERS && RN_ADAPTER_NAME_BYTES == RUNNEL_ADAPTER_BYTES &&
                  RUNNEL_ADAPTER_BYTES == RUNNEL_LABEL_BYTES,
              "names are labels");

/* ---- Options ---- */

static runnel_status check_one(const runnel_adapter *adapter, const runnel_adapter *before, runnel_error *error)
{
    if (adapter->reserved != 0)
        return rn_error_set(error, RUNNEL_INVALID, "model options: reserved of an adapter is not zero");
    if (adapter->name == NULL || adapter->name[0] == '\0' || !rn_label_valid(adapter->name))
        return rn_error_set(error, RUNNEL_INVALID,
                            "model options: the name of an adapter is not 1 to %d bytes of UTF-8 without control bytes",
                            RUNNEL_ADAPTER_BYTES - 1);
    for (; before < adapter; before++)
        if (strcmp(before->name, adapter->name) == 0)
            return rn_error_set(error, RUNNEL_INVALID, "model options: two adapters are called %s", adapter->name);
    if (adapter->path == NULL || adapter->path[0] == '\0')
        return rn_error_set(error, RUNNEL_INVALID, "model options: adapter %s has no path", adapter->name);
    if (!isfinite(adapter->scale))
        return rn_error_set(error, RUNNEL_INVALID, "model options: the scale of adapter %s is not finite",
                            adapter->name);
    return faccessat(AT_FDCWD, adapter->path, R_OK, AT_EACCESS) == 0
               ? RUNNEL_OK
               : rn_error_set(error, RUNNEL_IO, "%s: cannot be opened: %s", adapter->path, strerror(errno));
}

runnel_status rn_model_adapters_check(const runnel_model_options *options, runnel_error *error)
{
    runnel_status status = RUNNEL_OK;

    if (options->adapters == NULL && options->n_adapters > 0)
        return rn_error_set(error, RUNNEL_INVALID, "model options: adapters is NULL but n_adapters is %zu",
                            options->n_adapters);
    if (options->n_adapters > RUNNEL_MAX_ADAPTERS)
        return rn_error_set(error, RUNNEL_INVALID, "model options: %zu adapters are more than %d", options->n_adapters,
                            RUNNEL_MAX_ADAPTERS);
    for (size_t i = 0; i < options->n_adapters && status == RUNNEL_OK; i++)
        status = check_one(&options->adapters[i], options->adapters, error);
    return status;
}

static const char *keep(char **at, const char *text)
{
    size_t n = strlen(text) + 1;
    const char *kept = memcpy(*at, text, n);

    *at += n;
    return kept;
}

runnel_adapter *rn_model_adapters_copy(struct rn_heap *heap, const runnel_model_options *options)
{
    size_t n = options->n_adapters, bytes = n * sizeof(runnel_adapter);
    char *paths[RN_MAX_ADAPTERS] = {NULL}, *at;
    runnel_adapter *copy;
    bool fits = true;

    for (size_t i = 0; i < n && fits; i++) {
        paths[i] = rn_path_absolute(heap, options->adapters[i].path);
        fits = paths[i] != NULL;
        bytes += fits ? strlen(options->adapters[i].name) + strlen(paths[i]) + 2 : 0;
    }
    copy = n == 0 || !fits ? NULL : rn_alloc(heap, bytes, 1);
    at = (char *)(copy + n);
    for (size_t i = 0; copy != NULL && i < n; i++) {
        copy[i] = options->adapters[i];
        copy[i].name = keep(&at, options->adapters[i].name);
        copy[i].path = keep(&at, paths[i]);
        if (copy[i].scale == 0)
            copy[i].scale = 1;
    }
    for (size_t i = 0; i < n; i++)
        rn_free(heap, paths[i]);
    return copy;
}

/* ---- Loading ---- */

static uint64_t print_of(const struct rn_adapters *adapters, uint32_t number)
{
    const struct rn_fingerprint whole =
        rn_fingerprint_adapter(rn_adapter_gguf(adapters, number), rn_adapter_scale(adapters, number));
    uint64_t print = rn_bytes_get(whole.bytes, 8);

    return print != 0 ? print : 1;
}

/* Nobody has cancelled the load. */
static bool goes_on(void *user)
{
    return rn_word_get(&((struct runnel_model *)user)->cancel) == 0;
}

static runnel_status load(struct runnel_model *model, runnel_error *error)
{
    struct rn_adapter_watch watch = {&model->engine->log, goes_on, model};
    struct rn_adapter_source sources[RN_MAX_ADAPTERS] = {{NULL, NULL, 0}};
    struct rn_model_adapters *adapters = &model->parts.adapters;
    const runnel_model_options *options = &model->options;
    uint32_t n = (uint32_t)options->n_adapters;
    runnel_status status;

    RN_ASSERT(n <= RN_MAX_ADAPTERS && adapters->all == NULL);
    for (uint32_t i = 0; i < n; i++)
        sources[i] = (struct rn_adapter_source){options->adapters[i].name, options->adapters[i].path,
                                                options->adapters[i].scale};
    status = rn_adapters_load(&model->engine->heap, model->parts.plan, sources, n, &watch, &adapters->all, error);
    for (uint32_t i = 0; i < n && status == RUNNEL_OK; i++) {
        adapters->prints[i] = print_of(adapters->all, i + 1);
        status = goes_on(model) ? RUNNEL_OK : RUNNEL_CANCELLED;
    }
    return status;
}

static runnel_status adapt_plans(struct rn_model_parts *parts, runnel_error *error)
{
    const struct rn_adapters *all = parts->adapters.all;
    runnel_status status;

    if (parts->back == NULL)
        return rn_plan_adapt(parts->plan, all, error);
    parts->plan->n_adapters = rn_adapters_count(all);
    status = rn_plan_adapt(parts->front, all, error);
    return status == RUNNEL_OK ? rn_plan_adapt(parts->back, all, error) : status;
}

runnel_status rn_model_adapters_load(struct runnel_model *model, runnel_error *error)
{
    struct rn_model_parts *parts = &model->parts;
    runnel_status status;

    if (model->options.n_adapters == 0)
        return RUNNEL_OK;
    status = load(model, error);
    if (status != RUNNEL_OK)
        return status;
    rn_log(&model->engine->log, RUNNEL_LOG_INFO, "%s: adapters: %u, in %.1f MiB", model->path,
           rn_adapters_count(parts->adapters.all), (double)rn_adapters_bytes(parts->adapters.all) / (1 << 20));
    return adapt_plans(parts, error);
}

void rn_model_adapters_fini(struct rn_model_adapters *adapters)
{
    rn_adapters_free(adapters->all);
    adapters->all = NULL;
}

/* ---- The host's view ---- */

runnel_status runnel_model_adapter(runnel_model *model, uint32_t index, runnel_adapter *adapter)
{
    runnel_status status;

    if (model == NULL || adapter == NULL)
        return RUNNEL_INVALID;
    status = rn_model_enter(model);
    if (status != RUNNEL_OK)
        return status;
    if (index < rn_adapters_count(model->parts.adapters.all))
        *adapter = model->options.adapters[index];
    else
        status = RUNNEL_NOT_FOUND;
    rn_model_leave(model);
    return status;
}
