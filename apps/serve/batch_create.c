/* POST /v1/batches: from a body to the record of a batch, with which batches.c goes on. The file is looked into apart
 * from the loop. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "apps/openai/openai_fields.h"
#include "files.h"

enum { MOST_REQUESTS = 50000 };

struct wish {
    struct serve_work work; /* first */
    uint64_t owner;
    json_t *body; /* a reference: what the next three are of */
    const char *input, *endpoint;
    const json_t *metadata;
    char model[SERVE_NAME_BYTES];
    size_t n_requests;
    struct openai_error error; /* http 0: there is none */
    char why[512];             /* the file could not be read; "": it was */
};

const struct openai_field serve_batch_fields[] = {{"input_file_id", OPENAI_STRING, true, 0, 0},
                                                  {"endpoint", OPENAI_STRING, true, 0, 0},
                                                  {"completion_window", OPENAI_STRING, true, 0, 0},
                                                  {"metadata", OPENAI_OBJECT, false, 0, 0},
                                                  {0}};

/* The model that the first line with a body names; the others must name none, or the same. */
static void find_model(const char *text, size_t n, struct wish *wish)
{
    const char *end = memchr(text, '\n', n);
    json_t *line = openai_parse(text, end != NULL ? (size_t)(end - text) : n, NULL);
    const char *model = openai_word(json_object_get(json_object_get(line, "body"), "model"));

    if (model != NULL)
        snprintf(wish->model, sizeof wish->model, "%s", model);
    json_decref(line);
}

static bool is_blank(const char *line, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r')
            return false;
    return true;
}

/* Counts the lines, and looks at the first, behind a byte order mark. */
static void look_into(struct serve_work *work)
{
    struct wish *wish = (struct wish *)work;
    size_t n = 0;
    char *text = store_read(&work->serve->files->store, wish->input, &n, wish->why);

    if (text == NULL) {
        openai_refuse(&wish->error, "invalid_value", "input_file_id", "the file could not be read");
        return;
    }
    for (size_t at = openai_mark_bytes(text, n), length = 0; at < n; at += length + 1) {
        const char *end = memchr(text + at, '\n', n - at);

        length = end != NULL ? (size_t)(end - text) - at : n - at;
        if (is_blank(text + at, length))
            continue;
        if (wish->n_requests++ == 0)
            find_model(text + at, length, wish);
    }
    free(text);
    if (wish->n_requests == 0 || wish->n_requests > MOST_REQUESTS)
        openai_refuse(&wish->error, "invalid_value", "input_file_id", "the file has %zu requests; allowed is 1 to %d",
                      wish->n_requests, MOST_REQUESTS);
}

/* Of too many the oldest that is over is forgotten; its files stay. */
static bool make_room(struct serve_store *store)
{
    const json_t *record = NULL;
    size_t i = 0;

    if (json_array_size(store->records[STORE_BATCHES]) < STORE_RECORDS)
        return true;
    json_array_foreach(store->records[STORE_BATCHES], i, record)
    {
        if (batches_is_over(record)) {
            store_remove(store, STORE_BATCHES, record);
            return true;
        }
    }
    return false;
}

static bool refuse_unknown(const struct wish *wish, struct openai_error *error)
{
    openai_refuse(error, "not_found", "input_file_id", "there is no file '%.60s'", wish->input);
    error->http = 404;
    error->type = "not_found_error";
    return false;
}

static bool read_wish(struct serve *serve, const json_t *body, struct wish *wish, struct openai_error *error)
{
    const char *window = openai_word(json_object_get(body, "completion_window"));

    wish->input = openai_word(json_object_get(body, "input_file_id"));
    wish->endpoint = openai_word(json_object_get(body, "endpoint"));
    wish->metadata = json_object_get(body, "metadata");
    if (!openai_fields_check(serve_batch_fields, body, error))
        return false;
    if (strcmp(window, "24h") != 0)
        return openai_refuse(error, "invalid_value", "completion_window", "completion_window must be '24h'");
    if (openai_endpoint_of(wish->endpoint) == 0)
        return openai_refuse(error, "invalid_value", "endpoint", "endpoint: '%.60s' takes no batches", wish->endpoint);
    return store_find(&serve->files->store, STORE_FILES, wish->input, wish->owner) != NULL ||
           refuse_unknown(wish, error);
}

static json_t *new_object(const struct wish *wish, const char *id)
{
    json_int_t now = (json_int_t)time(NULL);
    json_t *object = json_pack("{s:s, s:s, s:s, s:n, s:s, s:s, s:s, s:n, s:n, s:I, s:I, s:{s:I, s:i, s:i}}", "id", id,
                               "object", "batch", "endpoint", wish->endpoint, "errors", "input_file_id", wish->input,
                               "completion_window", "24h", "status", "validating", "output_file_id", "error_file_id",
                               "created_at", now, "expires_at", now + 24 * 3600, "request_counts", "total",
                               (json_int_t)wish->n_requests, "completed", 0, "failed", 0);
    static const char *const later[] = {"in_progress_at", "finalizing_at", "completed_at", "failed_at",
                                        "expired_at",     "cancelling_at", "cancelled_at"};

    for (size_t i = 0; object != NULL && i < sizeof later / sizeof later[0]; i++)
        json_object_set_new(object, later[i], json_null());
    if (object != NULL)
        json_object_set(object, "metadata", wish->metadata != NULL ? (json_t *)(uintptr_t)wish->metadata : json_null());
    return object;
}

static void create(struct serve *serve, struct http_exchange *exchange, const struct wish *wish)
{
    struct serve_store *store = &serve->files->store;
    struct serve_model *model = serve_find_model(serve, exchange, wish->model[0] != '\0' ? wish->model : NULL);
    const runnel_adapter *adapter = NULL;
    json_t *object = NULL, *record = NULL;
    char id[48];

    if (model == NULL) /* refused, or it waits for the model */
        return;
    if (!make_room(store)) {
        serve_refuse_as(serve, exchange, 507, "unavailable_error", "storage_full",
                        "there is no room for a further batch: none of those that are there is over", 0);
        return;
    }
    adapter = serve_adapter_asked(model, wish->model[0] != '\0' ? wish->model : NULL);
    files_new_id(serve, "batch-", id);
    object = new_object(wish, id);
    if (object == NULL || !store_add(store, STORE_BATCHES, wish->owner, json_incref(object))) {
        json_decref(object);
        serve_refuse_as(serve, exchange, 500, "server_error", NULL, "the batch could not be written", 0);
        return;
    }
    record = store_find(store, STORE_BATCHES, id, wish->owner);
    json_object_set_new(record, "model", json_string(adapter != NULL ? adapter->name : model->name));
    store_save(store, record);
    files_reply(serve, exchange, object);
    serve_begin_batches(serve);
}

static void is_looked_into(struct serve_work *work, bool ran)
{
    struct wish *wish = (struct wish *)work;
    struct http_exchange *exchange = work->visit->exchange;
    struct serve_store *store = &work->serve->files->store;
    bool there = store_find(store, STORE_FILES, wish->input, wish->owner) != NULL; /* it may have been deleted */
    bool good = exchange != NULL && ran && there && wish->error.http == 0;

    if (!ran)
        openai_no_memory(&wish->error);
    else if (!there)
        refuse_unknown(wish, &wish->error);
    else if (wish->why[0] != '\0')
        app_error("%s", wish->why);
    if (good) /* a batch writes an answer at least */
        good = files_have_room(work->serve->files, 1, NULL, &wish->error);
    if (good)
        create(work->serve, exchange, wish);
    else if (exchange != NULL)
        serve_refuse(work->serve, exchange, &wish->error, 0);
    json_decref(wish->body);
    free(wish);
}

void serve_batches_create(struct serve *serve, struct http_exchange *exchange, const char *rest)
{
    struct wish *wish = NULL;
    struct openai_error error;
    json_t *body = NULL;

    (void)rest;
    if (files_of(serve, exchange) == NULL || (body = serve_read_json(serve, exchange)) == NULL)
        return;
    wish = calloc(1, sizeof *wish);
    if (wish == NULL)
        openai_no_memory(&error);
    else
        wish->owner = visit_of(exchange)->key->tenant;
    if (wish == NULL || !read_wish(serve, body, wish, &error)) {
        serve_refuse(serve, exchange, &error, 0);
        json_decref(body);
        free(wish);
        return;
    }
    wish->body = body;
    serve_work_begin(serve, visit_of(exchange), &wish->work, look_into, is_looked_into);
}
