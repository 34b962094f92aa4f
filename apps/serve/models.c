/* Which models are loaded: see served_models.h. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "serve.h"

enum { MOST_LOADED = 60 }; /* an engine has 64 models at most, those that are on their way out among them */
enum { BUSY_MS = 10000 };  /* about as long as a load takes */

static uint64_t budget_of(const struct serve *serve)
{
    uint64_t given = serve->options->models_memory;

    return given != 0 ? given : serve->machine_bytes / 4 * 3;
}

/* ---- Who waits --------------------------------------------------------------------------- */

/* Long bodies that were read and wait are bounded together, as those are whose bytes HTTP has. */
static bool may_wait(const struct serve *serve, const struct serve_visit *visit)
{
    return visit->json_bytes == 0 || serve->waiting_bytes == 0 ||
           serve->waiting_bytes + visit->json_bytes <= http_held_bytes(serve->http);
}

static void wait_for(struct serve_visit *visit, struct serve_model *model)
{
    struct serve_visit **end = &model->waiting;

    while (*end != NULL)
        end = &(*end)->next_waiting;
    visit->next_waiting = NULL;
    visit->waits_for = model;
    model->serve->waiting_bytes += visit->json_bytes;
    *end = visit;
}

void serve_visit_forget(struct serve_visit *visit)
{
    struct serve_visit **at = visit->waits_for != NULL ? &visit->waits_for->waiting : NULL;

    while (at != NULL && *at != NULL && *at != visit)
        at = &(*at)->next_waiting;
    if (at != NULL && *at == visit) {
        *at = visit->next_waiting;
        visit->serve->waiting_bytes -= visit->json_bytes;
    }
    visit->waits_for = NULL;
    visit->next_waiting = NULL;
}

static struct serve_visit *take_waiting(struct serve_model *model)
{
    struct serve_visit *visit = model->waiting;

    if (visit != NULL)
        serve_visit_forget(visit);
    return visit;
}

/* Their handlers begin anew. The model is used meanwhile, so that nobody unloads it between two of them. */
static void let_go_on(struct serve_model *model)
{
    struct serve_visit *last = model->waiting, *visit = NULL;

    while (last != NULL && last->next_waiting != NULL)
        last = last->next_waiting;
    model->n_users++;
    while (visit != last && (visit = take_waiting(model)) != NULL)
        serve_dispatch(visit->exchange);
    model->n_users--;
}

static void refuse_all(struct serve_model *model, int status, const char *type, const char *code)
{
    struct openai_error error = {.http = status, .type = type, .code = code};
    struct serve_visit *visit = NULL;

    snprintf(error.message, sizeof error.message, "the model '%.60s' could not be loaded: %.400s", model->name,
             model->error);
    while ((visit = take_waiting(model)) != NULL)
        serve_refuse(model->serve, visit->exchange, &error, status == 503 ? 10000 : 0);
}

struct serve_model *serve_find_model(struct serve *serve, struct http_exchange *exchange, const char *name)
{
    struct serve_model *model = name == NULL ? serve->models.at[0] : serve_model_asked(&serve->models, name);
    struct openai_error error = {.http = 404, .type = "not_found_error", .code = "model_not_found", .param = "model"};

    if (model == NULL) {
        snprintf(error.message, sizeof error.message, "there is no model '%.80s' here; GET /v1/models lists them",
                 name);
        serve_refuse(serve, exchange, &error, 0);
        return NULL;
    }
    if (model->load == SERVE_READY && !model->leaving) {
        model->used_ms = uv_now(&serve->loop);
        return model;
    }
    if (may_wait(serve, visit_of(exchange)))
        wait_for(visit_of(exchange), model);
    else
        serve_refuse_as(serve, exchange, 503, "unavailable_error", "server_busy",
                        "the requests that wait for their models leave no room for this one", BUSY_MS);
    serve_settle(serve);
    return NULL;
}

/* ---- Loading ----------------------------------------------------------------------------- */

static void fail(struct serve_model *model, const char *sentence)
{
    struct serve *serve = model->serve;

    model->load = SERVE_FAILED;
    model->wanted = false; /* the batch that wants it ends, or asks again */
    if (sentence != model->error)
        snprintf(model->error, sizeof model->error, "%s", sentence);
    if (model->replaces != NULL) {
        serve_candidate_failed(model);
        return;
    }
    serve_complain(serve, "%s: %s", model->name, model->error);
    refuse_all(model, 500, "server_error", "model_load_failed");
    if (serve->models.n == 1 && model->pinned && !serve->reloaded) { /* a server without a model is of no use */
        serve->code = APP_FAILURE;
        uv_stop(&serve->loop);
    }
}

static void read_facts(uv_work_t *work)
{
    struct serve_model *model = work->data;

    serve_facts_read(model, &model->read);
}

static void on_facts(uv_work_t *work, int status)
{
    struct serve_model *model = work->data;

    (void)status;
    serve_facts_fini(&model->facts);
    model->facts = model->read;
    model->read = (struct serve_facts){0};
    model->loads = false;
    if (model->serve->ending)
        return;
    model->info.struct_size = sizeof model->info;
    model->load = runnel_model_get_info(model->handle, &model->info) == RUNNEL_OK ? SERVE_READY : SERVE_FAILED;
    model->bytes = model->info.weight_bytes + model->info.kv_bytes + model->info.state_bytes +
                   model->info.draft_weight_bytes + model->info.draft_kv_bytes + model->options.cache_warm;
    model->used_ms = uv_now(&model->serve->loop);
    serve_tell(model->serve, "%s is ready", model->name);
    if (model->load == SERVE_READY && model->replaces != NULL)
        serve_candidate_take(model);
    /* Those for whom it was loaded come before who waits for its room: else models take turns and answer nobody. */
    if (model->load == SERVE_READY)
        let_go_on(model);
    serve_settle(model->serve);
}

static void on_load(void *user, const runnel_load_event *event)
{
    struct serve_model *model = user;

    if (event->state == RUNNEL_LOAD_PROGRESS)
        return;
    if (event->state == RUNNEL_LOAD_READY && !model->serve->ending) {
        model->info.struct_size = sizeof model->info; /* the thread has this, not the handle, which may be freed */
        (void)runnel_model_get_info(model->handle, &model->info);
        model->work.data = model;
        if (uv_queue_work(&model->serve->loop, &model->work, read_facts, on_facts) != 0)
            on_facts(&model->work, 0);
        return;
    }
    model->loads = false;
    if (model->serve->ending)
        return;
    runnel_model_free(model->handle);
    model->handle = NULL;
    fail(model, event->state == RUNNEL_LOAD_FAILED ? event->error->message : "its load was cancelled");
    serve_settle(model->serve);
}

/* A refusal is told as a failed load. Returns its code. */
static int load(struct serve_model *model)
{
    runnel_model_options options;
    runnel_error error = {0};
    sigset_t all, before;

    app_model_options(&model->options, &options);
    options.adapters = model->adapters.at;
    options.n_adapters = model->adapters.n;
    options.cache_shared = model->serve->cache_url;
    options.on_load = on_load;
    options.load_user = model;
    model->load = SERVE_LOADING;
    model->loads = true;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* the library's threads take no signals */
    error.status = runnel_model_load(model->serve->app.engine, model->path, &options, &model->handle, &error);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error.status == RUNNEL_OK)
        return APP_OK;
    model->handle = NULL;
    model->loads = false;
    fail(model, error.message);
    return error.status == RUNNEL_INVALID ? APP_USAGE : APP_FAILURE;
}

static void unload(struct serve_model *model)
{
    serve_tell(model->serve, "%s is unloaded", model->name);
    runnel_model_free(model->handle);
    model->handle = NULL;
    model->load = SERVE_UNLOADED;
    model->leaving = false;
    model->keep_ms = model->own_keep_ms;
}

/* ---- What a model will need ------------------------------------------------------------- */

/* Reads the head of the file, on a thread of libuv's. model->error: why it cannot be read. */
static void measure(uv_work_t *work)
{
    struct serve_model *model = work->data;
    struct app_memory memory;
    runnel_file *file = NULL;
    runnel_error error = {0};
    uint64_t one = 0, kv = model->options.kv_bytes, most = model->serve->machine_bytes / 4;

    model->bytes = 0;
    model->error[0] = '\0';
    model->read_stamp = app_model_stamp(model->path, &model->options);
    if (runnel_file_open(model->path, &file, &error) != RUNNEL_OK) {
        snprintf(model->error, sizeof model->error, "%s", error.message);
        return;
    }
    app_file_memory(file, &model->options, &memory);
    runnel_file_close(file);
    if (memory.error.status == RUNNEL_OK && !__builtin_mul_overflow(memory.kv_bytes_per_token, memory.context, &one) &&
        kv == 0)
        kv = one > most / 8 ? (one > most ? one : most) : one * 8; /* as runnel_model_options.kv_bytes says */
    if (__builtin_add_overflow(memory.weight_bytes, kv, &model->bytes) ||
        __builtin_add_overflow(model->bytes, model->options.cache_warm, &model->bytes) ||
        __builtin_add_overflow(model->bytes, app_adapters_bytes(&model->options), &model->bytes))
        model->bytes = UINT64_MAX;
}

static void on_measured(uv_work_t *work, int status)
{
    struct serve_model *model = work->data;

    model->load = SERVE_WAITING;
    model->stamp = model->read_stamp;
    model->asked = ++model->serve->n_asked;
    if (status != 0 || model->error[0] != '\0')
        fail(model, model->error[0] != '\0' ? model->error : "it could not be read");
    serve_settle(model->serve);
}

void serve_model_begin(struct serve_model *model)
{
    model->load = SERVE_MEASURING;
    model->work.data = model;
    model->read_stamp = model->stamp;
    if (uv_queue_work(&model->serve->loop, &model->work, measure, on_measured) != 0)
        fail(model, "not enough memory");
}

/* ---- Room -------------------------------------------------------------------------------- */

typedef bool which_fn(const struct serve_model *model);

static bool is_held(const struct serve_model *model)
{
    return model->load == SERVE_LOADING || model->load == SERVE_READY;
}

/* Stays whatever others need. */
static bool is_fixed(const struct serve_model *model)
{
    return is_held(model) && model->pinned && !model->retired;
}

/* Memory of all models, also of those that are in no list any more or not yet; *n: how many they are. */
static uint64_t bytes_of(const struct serve *serve, which_fn *which, size_t *n)
{
    const struct serve_models *lists[] = {&serve->models, &serve->retired, &serve->candidates};
    uint64_t sum = 0;

    *n = 0;
    for (size_t k = 0; k < 3; k++)
        for (size_t i = 0; i < lists[k]->n; i++)
            if (which(lists[k]->at[i]) && ++*n != 0 && __builtin_add_overflow(sum, lists[k]->at[i]->bytes, &sum))
                return UINT64_MAX;
    return sum;
}

static bool fits(const struct serve *serve, const struct serve_model *model, which_fn *which)
{
    size_t n = 0;
    uint64_t held = bytes_of(serve, which, &n), budget = budget_of(serve);

    return n < MOST_LOADED && held <= budget && model->bytes <= budget - held;
}

/* Of those that may go, the one that was used longest ago: idle, or in use and not leaving yet. NULL: none. Who is
 * replaced by `for_whom` stays until that has happened. */
static struct serve_model *find_victim(struct serve *serve, const struct serve_model *for_whom, bool idle)
{
    struct serve_model *found = NULL;

    for (size_t i = 0; i < serve->models.n; i++) {
        struct serve_model *model = serve->models.at[i];

        if (model->load != SERVE_READY || model->pinned || (model->n_users == 0) != idle || model->leaving ||
            model == for_whom->replaces)
            continue;
        if (found == NULL || model->used_ms < found->used_ms)
            found = model;
    }
    return found;
}

/* Room for the model, by unloading. False: it must wait. */
static bool make_room(struct serve *serve, const struct serve_model *model)
{
    uint64_t budget = budget_of(serve), held = 0, leaving = 0;
    struct serve_model *victim = NULL;
    size_t n = 0;

    while (!fits(serve, model, is_held) && (victim = find_victim(serve, model, true)) != NULL)
        unload(victim);
    if (fits(serve, model, is_held))
        return true;
    if (model->replaces != NULL)
        return false;
    held = bytes_of(serve, is_held, &n);
    while (held - leaving > budget - model->bytes && (victim = find_victim(serve, model, false)) != NULL) {
        victim->leaving = true;
        leaving += victim->bytes;
    }
    return false;
}

static struct serve_model *first_waiting(struct serve *serve)
{
    struct serve_model *first = NULL;

    for (size_t i = 0; i < serve->models.n; i++) {
        struct serve_model *model = serve->models.at[i];

        if (model->load == SERVE_WAITING && (first == NULL || model->asked < first->asked))
            first = model;
    }
    return first;
}

/* There is no room for the one before and the new one at once. Nor for the new one alone: then the one before stays. */
static void replace_at_once(struct serve_model *model)
{
    struct serve *serve = model->serve;
    const struct serve_model *before = model->replaces;
    double mib = 1 << 20, needed = (double)model->bytes / mib, budget = (double)budget_of(serve) / mib;
    size_t n = 0;
    uint64_t fixed = bytes_of(serve, is_fixed, &n) - (is_fixed(before) ? before->bytes : 0);

    if (fixed > budget_of(serve) || model->bytes > budget_of(serve) - fixed) {
        snprintf(model->error, sizeof model->error, "it needs %.1f MiB, of %.1f MiB for models (--models-memory)",
                 needed, budget);
        serve_candidate_failed(model);
        return;
    }
    serve_complain(serve,
                   "%s: there is no room for the one before and the new one at once (%.1f and %.1f MiB, of %.1f MiB, "
                   "--models-memory): the one before goes, whether or not the new one can be loaded",
                   model->name, (double)before->bytes / mib, needed, budget);
    serve_candidate_take(model);
}

/* Those that are to replace one whose head was read. One that is loaded goes on until the other is ready; where there
 * is no room for both it goes first. */
static void load_candidates(struct serve *serve)
{
    for (size_t i = 0; i < serve->candidates.n;) {
        struct serve_model *model = serve->candidates.at[i];

        if (model->load != SERVE_WAITING) {
            i++;
        } else if (model->replaces->load != SERVE_READY) {
            serve_candidate_take(model);
        } else if (make_room(serve, model)) {
            load(model);
            i += i < serve->candidates.n && serve->candidates.at[i] == model;
        } else {
            replace_at_once(model);
        }
    }
}

/* In the order of asking; who has no room yet is not overtaken. */
static void load_what_fits(struct serve *serve)
{
    struct serve_model *model = NULL;

    for (size_t i = 0; i < serve->models.n; i++)
        serve->models.at[i]->leaving = false;
    load_candidates(serve);
    while ((model = first_waiting(serve)) != NULL) {
        if (model->waiting == NULL && !model->pinned && !model->wanted) { /* who asked has left */
            model->load = SERVE_UNLOADED;
        } else if (!fits(serve, model, is_fixed)) {
            model->load = SERVE_UNLOADED;
            snprintf(model->error, sizeof model->error, "it needs %.1f MiB, of %.1f MiB for models (--models-memory)",
                     (double)model->bytes / (1 << 20), (double)budget_of(serve) / (1 << 20));
            serve_complain(serve, "%s: %s", model->name, model->error);
            model->wanted = false;
            refuse_all(model, 503, "unavailable_error", "model_too_large");
        } else if (make_room(serve, model)) {
            load(model);
        } else {
            return;
        }
    }
}

/* ---- Settling ---------------------------------------------------------------------------- */

static bool is_over(const struct serve_model *model, uint64_t now_ms)
{
    return model->load == SERVE_READY && !model->pinned && model->n_users == 0 && model->waiting == NULL &&
           !model->wanted && model->keep_ms >= 0 && now_ms - model->used_ms >= (uint64_t)model->keep_ms;
}

/* Those that are in no list any more: who waits for one asks anew, and it goes with its last task. */
static void bury_retired(struct serve *serve)
{
    struct serve_models *retired = &serve->retired;

    for (size_t i = 0; i < retired->n;) {
        struct serve_model *model = retired->at[i];

        let_go_on(model);
        if (model->n_users > 0 || model->loads || model->load == SERVE_MEASURING) {
            i++;
            continue;
        }
        if (model->handle != NULL)
            unload(model);
        retired->at[i] = retired->at[--retired->n];
        serve_model_free(model);
    }
}

static void on_settle(uv_timer_t *timer)
{
    struct serve *serve = timer->data;
    uint64_t now_ms = uv_now(&serve->loop);

    if (serve->ending)
        return;
    bury_retired(serve);
    for (size_t i = 0; i < serve->models.n; i++) {
        struct serve_model *model = serve->models.at[i];

        if (is_over(model, now_ms))
            unload(model);
        else if ((model->waiting != NULL || model->wanted) &&
                 (model->load == SERVE_UNLOADED || model->load == SERVE_FAILED))
            serve_model_begin(model);
    }
    load_what_fits(serve);
    for (size_t i = 0; i < serve->models.n; i++)
        if (serve->models.at[i]->load == SERVE_READY && !serve->models.at[i]->leaving)
            let_go_on(serve->models.at[i]);
}

void serve_settle(struct serve *serve)
{
    if (!serve->ending)
        uv_timer_start(&serve->settle, on_settle, 0, 0);
}

void serve_model_want(struct serve_model *model)
{
    if (model->wanted)
        return;
    model->wanted = true;
    serve_settle(model->serve);
}

void serve_model_use(struct serve_model *model)
{
    model->wanted = false;
    model->n_users++;
}

void serve_model_leave(struct serve_model *model)
{
    model->n_users--;
    model->used_ms = uv_now(&model->serve->loop);
    if (model->n_users == 0)
        serve_settle(model->serve);
}

/* ---- The whole --------------------------------------------------------------------------- */

int serve_read_models(struct serve *serve)
{
    const struct app_options *options = serve->options;
    char sentence[512];
    int code = app_shared_url(options->cache_shared, &serve->cache_text, &serve->cache_url) ? APP_OK : APP_FAILURE;

    if (code == APP_OK && !serve_list_models(serve, &serve->models, sentence)) {
        app_error("%s", sentence);
        return options->models_file == NULL && options->models_dir == NULL ? APP_USAGE : APP_FAILURE;
    }
    for (size_t i = 0; i < serve->models.n && code == APP_OK; i++)
        code =
            app_model_apart(&serve->models.at[i]->options, APP_SERVE, serve->models.at[i]->path) ? APP_OK : APP_USAGE;
    return code;
}

/* Of the machine, or what its control group allows. */
static uint64_t machine_bytes(const struct serve *serve)
{
    runnel_device_info cpu = {.struct_size = sizeof cpu};

    return runnel_engine_device(serve->app.engine, "cpu", &cpu, NULL) == RUNNEL_OK && cpu.memory_bytes > 0
               ? cpu.memory_bytes
               : UINT64_MAX;
}

int serve_load_models(struct serve *serve)
{
    int code = APP_OK;

    serve->machine_bytes = machine_bytes(serve);
    for (size_t i = 0; i < serve->models.n && code == APP_OK; i++)
        if (serve->models.at[i]->pinned)
            code = load(serve->models.at[i]);
    return code;
}

uint64_t serve_count_waiting(const struct serve *serve)
{
    uint64_t n = 0;

    for (size_t i = 0; i < serve->models.n; i++)
        for (const struct serve_visit *at = serve->models.at[i]->waiting; at != NULL; at = at->next_waiting)
            n++;
    return n;
}

bool serve_is_ready(const struct serve *serve)
{
    for (size_t i = 0; i < serve->models.n; i++)
        if (serve->models.at[i]->pinned && serve->models.at[i]->load != SERVE_READY)
            return false;
    return true;
}

void serve_models_unload(struct serve *serve)
{
    const struct serve_models *lists[] = {&serve->models, &serve->retired, &serve->candidates};

    for (size_t k = 0; k < 3; k++)
        for (size_t i = 0; i < lists[k]->n; i++) {
            runnel_model_free(lists[k]->at[i]->handle);
            lists[k]->at[i]->handle = NULL;
        }
}

void serve_models_end(struct serve *serve)
{
    serve_models_fini(&serve->models);
    serve_models_fini(&serve->retired);
    serve_models_fini(&serve->candidates);
    free(serve->cache_text.bytes);
}
