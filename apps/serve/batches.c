/* /v1/batches: jobs over files of requests, one after another, by the code of `runnel batch` (docs/BATCH.md).
 *
 *     validating ─▶ in_progress ─▶ finalizing ─▶ completed, failed
 *          └──────────────┴─▶ cancelling ─▶ cancelled
 *
 * A job goes on in small turns on the loop's thread, behind whatever asks for an answer now. Its journal lies in the
 * folder: a server that was killed goes on with it at the next start, and the files are the same to the byte. What the
 * end of a job will be is in its record before its files are moved to where clients see them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "apps/runnel/batch/batch.h"
#include "files.h"

enum { TICK_MS = 20, AGAIN_MS = 1000, PATH_BYTES = 4096, MOST_STREAMS = 32 };

/* The one that runs. */
struct serve_batch {
    json_t *record; /* a reference */
    struct serve_model *model;
    struct serve_key *key; /* that pays, once it was found; a reference */
    struct app_options options;
    struct batch *batch; /* owned */
    char input[PATH_BYTES], output[PATH_BYTES], errors[PATH_BYTES], journal[PATH_BYTES];
    bool ending; /* nothing is computed any more: its streams end */
    bool full;   /* there was no room for an answer */
};

/* ---- Records ----------------------------------------------------------------------------- */

static const char *status_of(const json_t *record)
{
    const char *status = json_string_value(json_object_get(store_object(record), "status"));

    return status != NULL ? status : "";
}

static bool is_status(const json_t *record, const char *status)
{
    return strcmp(status_of(record), status) == 0;
}

bool batches_is_over(const json_t *record)
{
    return is_status(record, "completed") || is_status(record, "failed") || is_status(record, "cancelled");
}

/* The status, and when it came: "in_progress_at". */
static void set_status(json_t *record, const char *status)
{
    char member[32];

    snprintf(member, sizeof member, "%s_at", status);
    json_object_set_new(store_object(record), "status", json_string(status));
    json_object_set_new(store_object(record), member, json_integer((json_int_t)time(NULL)));
}

static void set_error(json_t *record, const char *code, const char *message)
{
    json_object_set_new(store_object(record), "errors",
                        json_pack("{s:s, s:[{s:s, s:s, s:n, s:n}]}", "object", "list", "data", "code", code, "message",
                                  message, "param", "line"));
}

static uint64_t owner_of(const json_t *record)
{
    const char *text = json_string_value(json_object_get(record, "owner"));

    return text != NULL ? strtoull(text, NULL, 16) : 0;
}

bool batches_uses(const struct serve_files *files, const char *file)
{
    const json_t *record = NULL;
    size_t i = 0;

    json_array_foreach(files->store.records[STORE_BATCHES], i, record)
    {
        const char *input = json_string_value(json_object_get(store_object(record), "input_file_id"));

        if (input != NULL && strcmp(input, file) == 0 && !batches_is_over(record) &&
            json_object_get(record, "final") == NULL)
            return true;
    }
    return false;
}

/* ---- The end of a job -------------------------------------------------------------------- */

static bool is_filled(const char *path)
{
    struct stat status;

    return stat(path, &status) == 0 && status.st_size > 0;
}

/* An id for what the job has written; null: it has written nothing. */
static void name_result(struct serve *serve, json_t *record, const char *member, const char *ending)
{
    char id[48], path[PATH_BYTES];

    if (!store_path(&serve->files->store, store_id(record), ending, path, sizeof path) || !is_filled(path))
        return;
    files_new_id(serve, "file-", id);
    json_object_set_new(store_object(record), member, json_string(id));
}

/* Moves it there, unless that was done. False: it is not known there, since the disk is full, say. */
static bool move_result(struct serve *serve, const json_t *record, const char *member, const char *ending)
{
    struct serve_store *store = &serve->files->store;
    const char *id = json_string_value(json_object_get(store_object(record), member));
    char from[PATH_BYTES], to[PATH_BYTES], name[80];
    struct stat status;
    json_t *file = NULL;

    if (!store_path(store, store_id(record), ending, from, sizeof from))
        return true;
    if (id == NULL) {
        unlink(from);
        return true;
    }
    if (!store_path(store, id, "", to, sizeof to) || (rename(from, to) != 0 && errno != ENOENT))
        return false;
    if (store_find(store, STORE_FILES, id, owner_of(record)) != NULL || stat(to, &status) != 0)
        return true;
    snprintf(name, sizeof name, "%.48s_%s.jsonl", store_id(record), ending[1] == 'o' ? "output" : "error");
    file = files_keep(serve, owner_of(record), id, name, "batch_output", (uint64_t)status.st_size);
    json_decref(file);
    return file != NULL;
}

/* The journal, and what SQLite leaves beside it where it could not tidy up. */
static void forget_journal(const struct serve_store *store, const json_t *record)
{
    static const char *const endings[] = {".journal", ".journal-wal", ".journal-shm"};
    char path[PATH_BYTES];

    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++)
        if (store_path(store, store_id(record), endings[i], path, sizeof path))
            unlink(path);
}

/* From a record that says how the job ends to files that clients see. May be done twice. Where the disk has no room for
 * what is to be known of them, the job stays as it is, and this is tried again. */
static void finalize(struct serve *serve, json_t *record)
{
    const struct serve_store *store = &serve->files->store;
    const char *final = json_string_value(json_object_get(record, "final"));
    char before[16];

    snprintf(before, sizeof before, "%s", json_string_value(json_object_get(store_object(record), "status")));
    serve->files->again_ms = uv_now(&serve->loop) + AGAIN_MS;
    if (!store_save(store, record) || !move_result(serve, record, "output_file_id", ".out") ||
        !move_result(serve, record, "error_file_id", ".err"))
        return;
    set_status(record, final != NULL ? final : "failed");
    if (store_save(store, record))
        forget_journal(store, record);
    else
        set_status(record, before);
}

static void count(struct serve_batch *run)
{
    struct batch_counts counts = {0};
    json_t *of = json_object_get(store_object(run->record), "request_counts");

    if (run->batch->journal == NULL || !batch_journal_count(run->batch->journal, &counts))
        return;
    json_object_set_new(of, "completed", json_integer((json_int_t)counts.good));
    json_object_set_new(of, "failed", json_integer((json_int_t)counts.bad));
}

/* Its files are written: what clients see of it is made of them, and it goes. */
static void finish(struct serve *serve, struct serve_batch *run, const char *final)
{
    json_t *record = run->record;

    count(run);
    batch_end(run->batch);
    json_object_set_new(record, "final", json_string(final));
    if (!is_status(record, "cancelling"))
        set_status(record, "finalizing");
    name_result(serve, record, "output_file_id", ".out");
    name_result(serve, record, "error_file_id", ".err");
    finalize(serve, record);
    serve_model_leave(run->model);
    serve->files->running = NULL;
    json_decref(record);
    key_unref(run->key);
    free(run->batch);
    free(run);
}

/* ---- A job ------------------------------------------------------------------------------- */

static struct serve_model *model_of(struct serve *serve, const json_t *record)
{
    const char *name = json_string_value(json_object_get(record, "model"));

    return name != NULL ? serve_model_asked(&serve->models, name) : NULL;
}

/* Likewise: as the record names it. */
static const runnel_adapter *adapter_of(const struct serve_batch *run)
{
    return serve_adapter_asked(run->model, json_string_value(json_object_get(run->record, "model")));
}

/* The server's options, and those of a job over these files. */
static void set_options(struct serve *serve, struct serve_batch *run)
{
    const runnel_adapter *adapter = adapter_of(run);
    struct app_options *options = &run->options;
    int64_t half = serve->options->max_streams / 2;

    *options = run->model->options;
    options->operands[0] = run->model->path;
    options->operands[1] = run->input;
    options->operands[2] = run->output;
    options->n_operands = 3;
    options->errors_file = run->errors;
    snprintf(options->request_adapter, sizeof options->request_adapter, "%s", adapter != NULL ? adapter->name : "");
    options->resume = true;
    options->batch_streams = half < 1 ? 1 : half < MOST_STREAMS ? half : MOST_STREAMS;
}

static bool set_paths(struct serve *serve, struct serve_batch *run)
{
    const struct serve_store *store = &serve->files->store;
    const char *input = json_string_value(json_object_get(store_object(run->record), "input_file_id"));
    const char *id = store_id(run->record);

    return input != NULL && store_path(store, input, "", run->input, sizeof run->input) &&
           store_path(store, id, ".out", run->output, sizeof run->output) &&
           store_path(store, id, ".err", run->errors, sizeof run->errors) &&
           store_path(store, id, ".journal", run->journal, sizeof run->journal);
}

static struct serve_key *find_key(struct serve_key *const *keys, size_t n, uint64_t tenant)
{
    for (size_t i = 0; i < n; i++)
        if (keys[i]->tenant == tenant)
            return keys[i];
    return NULL;
}

/* A line counts as the request that it is. Where the key is no longer there, its batch goes on as it was let in. */
static enum batch_leave ask(void *user, uint64_t *retry_ms, struct openai_error *error)
{
    struct serve *serve = user;
    struct serve_key *key = find_key(serve->keys.at, serve->keys.n, serve->files->running->batch->tenant);
    enum serve_excess excess = key != NULL ? serve_ask_key(serve, key, retry_ms, error) : EXCESS_NONE;

    return excess == EXCESS_NONE ? BATCH_GO : excess == EXCESS_BUDGET ? BATCH_NEVER : BATCH_LATER;
}

/* Also one that is out of the table: it may come back, and pays for what its batch has used meanwhile. */
static void hold_key(const struct serve *serve, struct serve_batch *run)
{
    const struct serve_keys *keys = &serve->keys;

    run->key = find_key(keys->at, keys->n, run->batch->tenant);
    if (run->key == NULL)
        run->key = find_key(keys->gone, keys->n_gone, run->batch->tenant);
    if (run->key != NULL)
        key_ref(run->key);
}

static void pay(void *user, uint64_t tokens)
{
    struct serve *serve = user;
    struct serve_batch *run = serve->files->running;

    if (run->key == NULL)
        hold_key(serve, run);
    if (run->key != NULL)
        serve_limits_charge(&run->key->limits, (int64_t)tokens, uv_now(&serve->loop));
}

/* What is computed is as good as written: it goes to a file of the batch. */
static bool has_room(void *user, uint64_t bytes)
{
    struct serve *serve = user;
    const struct serve_store *store = &serve->files->store;
    struct serve_batch *run = serve->files->running;

    run->full = store->bytes + bytes > store->most_bytes;
    return !run->full;
}

/* A long line, read on another thread. */
struct line_reading {
    struct serve_work work; /* first */
    struct batch *batch;
    struct batch_raw raw;
    size_t limit;
    struct batch_line *line;
};

static void read_line(struct serve_work *work)
{
    struct line_reading *reading = (struct line_reading *)work;

    reading->line = batch_line_new(&reading->raw, reading->limit);
}

static void line_is_read(struct serve_work *work, bool ran)
{
    struct line_reading *reading = (struct line_reading *)work;

    (void)ran;
    free(reading->raw.bytes); /* where it did not run */
    if (work->serve->ending)
        batch_line_free(reading->line);
    else
        batch_take_line(reading->batch, reading->line);
    free(reading);
}

static void read_apart(void *user, const struct batch_raw *raw, size_t limit)
{
    struct serve *serve = user;
    struct batch *batch = serve->files->running->batch;
    struct line_reading *reading = calloc(1, sizeof *reading);

    if (reading == NULL) {
        free(raw->bytes);
        batch_take_line(batch, NULL);
        return;
    }
    reading->batch = batch;
    reading->raw = *raw;
    reading->limit = limit;
    serve_work_begin(serve, NULL, &reading->work, read_line, line_is_read);
}

static struct serve_batch *new_run(struct serve *serve, json_t *record, struct serve_model *model)
{
    struct serve_batch *run = calloc(1, sizeof *run);
    struct batch *batch = calloc(1, sizeof *batch);
    const json_t *object = store_object(record);

    if (run == NULL || batch == NULL) {
        free(run);
        free(batch);
        return NULL;
    }
    *run = (struct serve_batch){.record = json_incref(record), .model = model, .batch = batch};
    serve_model_use(model);
    set_paths(serve, run);
    set_options(serve, run);
    batch->app = (struct app){
        .options = &run->options, .engine = serve->app.engine, .model = model->handle, .info = model->info};
    if (model->facts.files != NULL)
        memcpy(batch->files, model->facts.files, (1 + model->adapters.n) * sizeof batch->files[0]);
    batch->model_name = app_adapter(&run->options) != NULL ? app_adapter(&run->options) : model->name;
    batch->template_text = serve->template_text;
    batch->tenant = owner_of(record);
    hold_key(serve, run);
    batch->owner = (struct batch_owner){ask, pay, has_room, read_apart, SERVE_LOOP_BYTES, serve};
    batch->only_model = batch->model_name;
    batch->only_url = openai_word(json_object_get(object, "endpoint"));
    batch->input.fd = -1;
    return run;
}

static void start(struct serve *serve, json_t *record, struct serve_model *model)
{
    struct serve_batch *run = new_run(serve, record, model);

    if (run == NULL) /* memory is short: it is tried again */
        return;
    serve->files->running = run;
    if (model->facts.files == NULL) {
        set_error(record, "batch_failed",
                  "the model's files were changed while it was loaded: behind a restart the job could not go on; "
                  "SIGHUP loads them anew");
        finish(serve, run, "failed");
        return;
    }
    if (!batch_begin(run->batch, run->journal)) {
        set_error(record, "batch_failed", "the job could not begin; the server's log says why");
        finish(serve, run, "failed");
        return;
    }
    chmod(run->output, 0600); /* as other files here */
    chmod(run->errors, 0600);
    if (!is_status(record, "in_progress"))
        set_status(record, "in_progress");
    store_save(&serve->files->store, record);
}

/* The whole lines of a file: how many, their bytes, and whether it has more. False: it cannot be read. */
static bool count_lines(const char *path, json_int_t *lines, off_t *bytes, bool *has_more)
{
    FILE *file = fopen(path, "rbe");
    char piece[16384];
    off_t read = 0;
    size_t n = 0;
    bool good = false;

    if (file == NULL)
        return false;
    while ((n = fread(piece, 1, sizeof piece, file)) > 0) {
        for (size_t i = 0; i < n; i++)
            if (piece[i] == '\n') {
                *bytes = read + (off_t)i + 1;
                ++*lines;
            }
        read += (off_t)n;
    }
    good = ferror(file) == 0;
    fclose(file);
    *has_more = read > *bytes;
    return good;
}

/* What an earlier process has written, up to the last whole line: it may have been killed within one. */
static void take_result(struct serve *serve, json_t *record, const char *member, const char *ending, const char *count)
{
    char path[PATH_BYTES];
    json_int_t lines = 0;
    off_t whole = 0;
    bool has_more = false;

    if (!store_path(&serve->files->store, store_id(record), ending, path, sizeof path) || !is_filled(path) ||
        !count_lines(path, &lines, &whole, &has_more))
        return;
    if (!has_more || truncate(path, whole) == 0)
        name_result(serve, record, member, ending);
    json_object_set_new(json_object_get(store_object(record), "request_counts"), count, json_integer(lines));
}

/* One that does not run ends with the answers that it has. */
static void end_idle(struct serve *serve, json_t *record, const char *final)
{
    take_result(serve, record, "output_file_id", ".out", "completed");
    take_result(serve, record, "error_file_id", ".err", "failed");
    json_object_set_new(record, "final", json_string(final));
    finalize(serve, record);
}

/* Begins one that waits, if its model is there. */
static void begin(struct serve *serve, json_t *record)
{
    struct serve_model *model = model_of(serve, record);

    if (json_object_get(record, "final") != NULL) {
        if (uv_now(&serve->loop) >= serve->files->again_ms)
            finalize(serve, record);
    } else if (is_status(record, "cancelling")) { /* of an earlier process */
        end_idle(serve, record, "cancelled");
    } else if (model == NULL || model->load == SERVE_FAILED ||
               (model->load == SERVE_UNLOADED && model->error[0] != '\0')) {
        set_error(record, "model_not_found", "the model of the batch is not served any more");
        end_idle(serve, record, "failed");
    } else if (model->load == SERVE_READY && !model->leaving) {
        start(serve, record, model);
    } else {
        serve_model_want(model);
    }
}

static bool go_on(struct serve_batch *run)
{
    if (!run->ending && batch_turn(run->batch))
        return true;
    if (!run->ending) { /* over: what still runs is not wanted */
        run->ending = true;
        batch_cancel(run->batch);
    }
    return batch_live(run->batch) > 0 || run->batch->reads;
}

static void set_full(const struct serve_store *store, json_t *record)
{
    char message[160];

    snprintf(
        message, sizeof message,
        "there is no room for further answers: all files may have %llu bytes (--files-size); those before are kept",
        (unsigned long long)store->most_bytes);
    set_error(record, "storage_full", message);
}

static void step(struct serve *serve)
{
    struct serve_batch *run = serve->files->running;
    int code = APP_OK;

    if (run == NULL || go_on(run))
        return;
    code = run->batch->code;
    if (code == APP_CANCELLED && is_status(run->record, "cancelling")) {
        batch_turn(run->batch); /* writes what is answered */
        finish(serve, run, "cancelled");
    } else if (run->full) {
        set_full(&serve->files->store, run->record);
        finish(serve, run, "failed");
    } else if (code == APP_CANCELLED && run->batch->input_ended && run->batch->n_lines == 0) {
        finish(serve, run, "completed");
    } else {
        set_error(run->record, "batch_failed", "the job could not go on; the server's log says why");
        finish(serve, run, "failed");
    }
    serve_begin_batches(serve);
}

static void on_tick(uv_timer_t *timer)
{
    struct serve *serve = timer->data;

    if (serve->files->running == NULL)
        serve_begin_batches(serve);
    else
        step(serve);
}

static void on_check(uv_check_t *check)
{
    step(check->data);
}

/* The one that runs, or is the next to run. */
static json_t *first_waiting(const struct serve_files *files)
{
    json_t *record = NULL;
    size_t i = 0;

    json_array_foreach(files->store.records[STORE_BATCHES], i, record)
    {
        if (!batches_is_over(record))
            return record;
    }
    return NULL;
}

/* One batch at a time has results that are no files yet: the one that runs, that ran in an earlier process, or whose
 * end could not be written. */
uint64_t batches_bytes(const struct serve_files *files)
{
    static const char *const endings[] = {".out", ".err"};
    const json_t *record = files->running == NULL ? first_waiting(files) : NULL;
    char path[PATH_BYTES];
    struct stat status;
    uint64_t sum = files->running != NULL ? batch_answer_bytes(files->running->batch) : 0;

    for (size_t i = 0; record != NULL && i < sizeof endings / sizeof endings[0]; i++)
        if (store_path(&files->store, store_id(record), endings[i], path, sizeof path) && stat(path, &status) == 0)
            sum += (uint64_t)status.st_size;
    return sum;
}

void serve_begin_batches(struct serve *serve)
{
    struct serve_files *files = serve->files;
    json_t *record = first_waiting(files);

    if (files->tick.data == NULL) {
        uv_timer_init(&serve->loop, &files->tick);
        uv_check_init(&serve->loop, &files->check);
        files->tick.data = files->check.data = serve;
    }
    if (record == NULL || serve->draining) {
        uv_timer_stop(&files->tick);
        uv_check_stop(&files->check);
        return;
    }
    uv_timer_start(&files->tick, on_tick, TICK_MS, TICK_MS);
    uv_check_start(&files->check, on_check);
    if (files->running == NULL)
        begin(serve, record);
}

void serve_stop_batches(struct serve *serve)
{
    if (serve->files != NULL && serve->files->running != NULL)
        batch_detach(serve->files->running->batch);
}

void serve_end_batches(struct serve *serve)
{
    struct serve_files *files = serve->files;
    struct serve_batch *run = files != NULL ? files->running : NULL;

    if (run == NULL)
        return;
    batch_end(run->batch);
    json_decref(run->record);
    key_unref(run->key);
    free(run->batch);
    free(run);
    files->running = NULL;
}

/* ---- One, and all ------------------------------------------------------------------------ */

void serve_batches_list(struct serve *serve, struct http_exchange *exchange, const char *rest)
{
    (void)rest;
    files_reply_list(serve, exchange, STORE_BATCHES);
}

static void reply_record(struct serve *serve, struct http_exchange *exchange, const json_t *record)
{
    struct serve_batch *run = serve->files->running;

    if (run != NULL && run->record == record)
        count(run);
    files_reply(serve, exchange, json_incref(store_object(record)));
}

void serve_batches_one(struct serve *serve, struct http_exchange *exchange, const char *rest)
{
    struct serve_files *files = files_of(serve, exchange);
    const json_t *record =
        files != NULL ? store_find(&files->store, STORE_BATCHES, rest, visit_of(exchange)->key->tenant) : NULL;

    if (record != NULL)
        reply_record(serve, exchange, record);
    else if (files != NULL)
        files_refuse_unknown(serve, exchange, "batch", rest);
}

static void cancel(struct serve *serve, json_t *record)
{
    struct serve_batch *run = serve->files->running;
    struct serve_model *model = model_of(serve, record);

    if (batches_is_over(record) || is_status(record, "cancelling") || is_status(record, "finalizing"))
        return;
    set_status(record, "cancelling");
    if (run != NULL && run->record == record) {
        batch_cancel(run->batch);
    } else {
        if (model != NULL)
            model->wanted = false; /* another batch that wants it says so again */
        end_idle(serve, record, "cancelled");
    }
    store_save(&serve->files->store, record);
}

/* ID/cancel. */
void serve_batches_cancel(struct serve *serve, struct http_exchange *exchange, const char *rest)
{
    struct serve_files *files = files_of(serve, exchange);
    const char *slash = NULL;
    json_t *record = NULL;
    char id[64];

    if (files == NULL) /* it was answered, and `rest` is gone with the exchange */
        return;
    slash = strchr(rest, '/');
    snprintf(id, sizeof id, "%.*s", slash != NULL && slash - rest < 63 ? (int)(slash - rest) : 0, rest);
    record = store_find(&files->store, STORE_BATCHES, id, visit_of(exchange)->key->tenant);
    if (record == NULL || strcmp(slash, "/cancel") != 0) {
        files_refuse_unknown(serve, exchange, "batch", rest);
        return;
    }
    cancel(serve, record);
    reply_record(serve, exchange, record);
}
