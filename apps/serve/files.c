/* /v1/files: what clients have uploaded for batches, and what batches have written. Bodies of uploads are
 * multipart/form-data with a part `purpose`, which is "batch", and a part `file`. See files.h, store.h. */
#include "files.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "apps/openai/openai_fields.h"
#include "apps/serve/http/multipart.h"

enum { LIST_MOST = 10000, LIST_USUAL = 20 };

/* ---- Answers ----------------------------------------------------------------------------- */

void files_reply(struct serve *serve, struct http_exchange *exchange, json_t *value)
{
    if (value == NULL) {
        serve_refuse_as(serve, exchange, 500, "server_error", NULL, "not enough memory for the answer", 0);
        return;
    }
    json_dumpf(value, serve_write(serve), JSON_COMPACT);
    json_decref(value);
    serve_reply(serve, exchange, 200, "application/json");
}

void files_refuse_unknown(struct serve *serve, struct http_exchange *exchange, const char *kind, const char *id)
{
    struct openai_error error = {.http = 404, .type = "not_found_error", .code = "not_found", .param = "id"};

    snprintf(error.message, sizeof error.message, "there is no %s '%.80s'", kind, id);
    serve_refuse(serve, exchange, &error, 0);
}

struct serve_files *files_of(struct serve *serve, struct http_exchange *exchange)
{
    if (serve->files->store.folder != NULL)
        return serve->files;
    serve_refuse_as(serve, exchange, 501, "not_supported_error", "not_supported",
                    "this server keeps no files and runs no batches: it was started without --files-dir", 0);
    return NULL;
}

static uint64_t owner_of(const struct http_exchange *exchange)
{
    return visit_of(exchange)->key->tenant;
}

/* ---- Lists ------------------------------------------------------------------------------- */

/* The value of a word of the query, as it was sent, in to[0..room); of a long one the beginning, which is no value that
 * is known. False: it is not there. */
static bool query_word(const struct http_exchange *exchange, const char *name, char *to, size_t room)
{
    const char *at = http_query(exchange);
    size_t n = strlen(name);

    while (*at != '\0') {
        size_t word = strcspn(at, "&");

        if (word > n && strncmp(at, name, n) == 0 && at[n] == '=') {
            snprintf(to, room, "%.*s", (int)(word - n - 1), at + n + 1);
            return true;
        }
        at += word + (at[word] == '&');
    }
    return false;
}

struct list {
    char after[64], purpose[32];
    size_t limit;
    bool oldest_first;
};

static bool read_list(const struct http_exchange *exchange, struct list *list, struct openai_error *error)
{
    char word[16], *end = NULL;
    long limit = LIST_USUAL;

    *list = (struct list){.limit = LIST_USUAL};
    if (query_word(exchange, "limit", word, sizeof word)) {
        limit = strtol(word, &end, 10);
        if (*end != '\0' || limit < 1 || limit > LIST_MOST)
            return openai_refuse(error, "invalid_value", "limit", "limit is %.15s; allowed is 1 to %d", word,
                                 LIST_MOST);
        list->limit = (size_t)limit;
    }
    if (query_word(exchange, "order", word, sizeof word)) {
        list->oldest_first = strcmp(word, "asc") == 0;
        if (!list->oldest_first && strcmp(word, "desc") != 0)
            return openai_refuse(error, "invalid_value", "order", "order is 'asc' or 'desc', not '%.15s'", word);
    }
    query_word(exchange, "after", list->after, sizeof list->after);
    query_word(exchange, "purpose", list->purpose, sizeof list->purpose);
    return true;
}

static bool is_listed(const struct list *list, const json_t *record, uint64_t owner)
{
    const char *purpose = json_string_value(json_object_get(store_object(record), "purpose"));

    return store_owns(record, owner) &&
           (list->purpose[0] == '\0' || (purpose != NULL && strcmp(purpose, list->purpose) == 0));
}

/* The objects behind `after`, at most `limit`; *more: there are others behind these. */
static json_t *page_of(const json_t *records, const struct list *list, uint64_t owner, bool *more)
{
    json_t *data = json_array();
    bool begun = list->after[0] == '\0';
    size_t n = json_array_size(records);

    *more = false;
    for (size_t i = 0; i < n && !*more; i++) {
        const json_t *record = json_array_get(records, list->oldest_first ? i : n - 1 - i);

        if (!is_listed(list, record, owner))
            continue;
        if (begun && json_array_size(data) == list->limit)
            *more = true;
        else if (begun)
            json_array_append(data, store_object(record));
        else
            begun = strcmp(store_id(record), list->after) == 0;
    }
    return data;
}

void files_reply_list(struct serve *serve, struct http_exchange *exchange, enum store_kind kind)
{
    struct serve_files *files = files_of(serve, exchange);
    struct openai_error error;
    struct list list;
    json_t *data = NULL;
    bool more = false;
    size_t n = 0;

    if (files == NULL)
        return;
    if (!read_list(exchange, &list, &error)) {
        serve_refuse(serve, exchange, &error, 0);
        return;
    }
    data = page_of(files->store.records[kind], &list, owner_of(exchange), &more);
    n = json_array_size(data);
    files_reply(serve, exchange,
                json_pack("{s:s, s:o, s:O?, s:O?, s:b}", "object", "list", "data", data, "first_id",
                          json_object_get(json_array_get(data, 0), "id"), "last_id",
                          json_object_get(json_array_get(data, n > 0 ? n - 1 : 0), "id"), "has_more", (int)more));
}

void serve_files_list(struct serve *serve, struct http_exchange *exchange, const char *rest)
{
    (void)rest;
    files_reply_list(serve, exchange, STORE_FILES);
}

/* ---- Uploads ----------------------------------------------------------------------------- */

void files_new_id(struct serve *serve, const char *prefix, char id[48])
{
    struct timespec now;
    uint64_t bits = 0;

    clock_gettime(CLOCK_REALTIME, &now);
    if (getrandom(&bits, sizeof bits, GRND_NONBLOCK) != sizeof bits)
        bits = serve->seed ^ ++serve->number * UINT64_C(0x9e3779b97f4a7c15);
    snprintf(id, 48, "%s%011llx%016llx", prefix,
             (unsigned long long)now.tv_sec * 1000 + (unsigned long long)now.tv_nsec / 1000000,
             (unsigned long long)bits);
}

json_t *files_keep(struct serve *serve, uint64_t owner, const char *id, const char *name, const char *purpose,
                   uint64_t bytes)
{
    json_t *object =
        json_pack("{s:s, s:s, s:I, s:I, s:s, s:s, s:s}", "id", id, "object", "file", "bytes", (json_int_t)bytes,
                  "created_at", (json_int_t)time(NULL), "filename", name, "purpose", purpose, "status", "processed");

    if (object == NULL || !store_add(&serve->files->store, STORE_FILES, owner, json_incref(object))) {
        json_decref(object);
        return NULL;
    }
    return object;
}

/* An upload is read by its boundary and then written, both on another thread. In between it gets its room. */
struct upload {
    struct serve_work work; /* first */
    char id[48], purpose[32], filename[MULTIPART_FILENAME];
    uint64_t owner;
    char *type, *body; /* Content-Type, or NULL; [body_bytes]; owned */
    const char *bytes; /* [n], in the body; NULL: there is no file */
    size_t body_bytes, n;
    struct openai_error error; /* http 0: the form is good */
    bool written;
};

static bool bad_form(struct openai_error *error, const char *why)
{
    return openai_refuse(error, "invalid_form", "file", "%s", why);
}

static bool read_form(struct upload *upload, struct openai_error *error)
{
    struct multipart form;
    struct multipart_part part;
    enum multipart_step step = MULTIPART_BAD;
    const char *why = NULL;

    if (!multipart_open(&form, upload->type, upload->body != NULL ? upload->body : "", upload->body_bytes, &why))
        return bad_form(error, why);
    while ((step = multipart_next(&form, &part, &why)) == MULTIPART_PART) {
        if (strcmp(part.name, "file") == 0) {
            upload->bytes = part.bytes;
            upload->n = part.n;
            snprintf(upload->filename, sizeof upload->filename, "%s", part.filename);
        } else if (strcmp(part.name, "purpose") == 0) {
            snprintf(upload->purpose, sizeof upload->purpose, "%.*s", (int)(part.n < 31 ? part.n : 31), part.bytes);
        }
    }
    if (step == MULTIPART_BAD)
        return bad_form(error, why);
    if (upload->bytes == NULL)
        return openai_refuse(error, "missing_required_parameter", "file", "file is missing");
    if (upload->purpose[0] == '\0')
        return openai_refuse(error, "missing_required_parameter", "purpose", "purpose is missing");
    if (strcmp(upload->purpose, "batch") != 0)
        return openai_refuse(error, "unsupported_value", "purpose", "purpose: only 'batch' is supported, not '%.30s'",
                             upload->purpose);
    return true;
}

/* A name that is no UTF-8 cannot be told. */
static const char *name_of(const struct upload *upload)
{
    json_t *text = json_string(upload->filename);
    bool good = text != NULL && upload->filename[0] != '\0';

    json_decref(text);
    return good ? upload->filename : "upload.jsonl";
}

bool files_have_room(const struct serve_files *files, size_t n, const char *param, struct openai_error *error)
{
    const struct serve_store *store = &files->store;
    size_t n_files = json_array_size(store->records[STORE_FILES]) + store->n_writing;
    uint64_t bytes = store->bytes + batches_bytes(files);

    if (n_files < STORE_RECORDS && bytes + n <= store->most_bytes)
        return true;
    openai_refuse(error, "storage_full", param, "there is no room for a further file: %zu have %llu bytes", n_files,
                  (unsigned long long)bytes);
    error->http = 507;
    error->type = "unavailable_error";
    return false;
}

static void write_upload(struct serve_work *work)
{
    struct upload *upload = (struct upload *)work;

    upload->written = store_write(&work->serve->files->store, upload->id, upload->bytes, upload->n);
}

static void free_upload(struct serve *serve, struct upload *upload)
{
    serve_body_freed(serve, upload->body_bytes);
    free(upload->body);
    free(upload->type);
    free(upload);
}

/* A file whose client has left is not kept: nobody knows its name. */
static void upload_written(struct serve_work *work, bool ran)
{
    struct upload *upload = (struct upload *)work;
    struct serve *serve = work->serve;
    struct http_exchange *exchange = work->visit->exchange;
    struct serve_store *store = &serve->files->store;
    json_t *object = NULL;

    store->bytes -= upload->n;
    store->n_writing--;
    if (ran && upload->written && exchange != NULL)
        object = files_keep(serve, upload->owner, upload->id, name_of(upload), "batch", upload->n);
    if (object == NULL)
        store_unlink(store, upload->id);
    if (exchange != NULL && object != NULL)
        files_reply(serve, exchange, object);
    else if (exchange != NULL)
        serve_refuse_as(serve, exchange, 500, "server_error", NULL, "the file could not be written", 0);
    free_upload(serve, upload);
}

static void read_upload(struct serve_work *work)
{
    struct upload *upload = (struct upload *)work;

    read_form(upload, &upload->error);
}

static void upload_read(struct serve_work *work, bool ran)
{
    struct upload *upload = (struct upload *)work;
    struct serve *serve = work->serve;
    struct http_exchange *exchange = work->visit->exchange;
    struct serve_store *store = &serve->files->store;

    if (!ran)
        openai_no_memory(&upload->error);
    if (upload->error.http != 0 || exchange == NULL ||
        !files_have_room(serve->files, upload->n, "file", &upload->error)) {
        if (exchange != NULL)
            serve_refuse(serve, exchange, &upload->error, 0);
        free_upload(serve, upload);
        return;
    }
    files_new_id(serve, "file-", upload->id);
    store->bytes += upload->n; /* taken, until it is known what becomes of it */
    store->n_writing++;
    serve_work_begin(serve, work->visit, work, write_upload, upload_written);
}

void serve_files_upload(struct serve *serve, struct http_exchange *exchange, const char *rest)
{
    struct serve_files *files = files_of(serve, exchange);
    struct upload *upload = files != NULL ? calloc(1, sizeof *upload) : NULL;
    const char *type = NULL;

    (void)rest;
    if (files == NULL) /* it was answered, and the exchange is gone */
        return;
    type = http_field(exchange, "content-type");
    if (upload == NULL || (type != NULL && (upload->type = strdup(type)) == NULL)) {
        serve_refuse_as(serve, exchange, 500, "server_error", NULL, "not enough memory for the file", 0);
        free(upload);
        return;
    }
    upload->owner = owner_of(exchange);
    upload->body = http_take_body(exchange, &upload->body_bytes);
    serve_work_begin(serve, visit_of(exchange), &upload->work, read_upload, upload_read);
}

/* ---- One file ---------------------------------------------------------------------------- */

struct content {
    struct serve_work work; /* first */
    char id[64];
    char *bytes; /* [n], owned; NULL: it could not be read, and why */
    size_t n;
    char why[512];
};

static void read_content(struct serve_work *work)
{
    struct content *content = (struct content *)work;

    content->bytes = store_read(&work->serve->files->store, content->id, &content->n, content->why);
}

/* Those who take files slowly are bounded together, as bodies are; where nobody else waits, each fits. */
static void send_content(struct serve *serve, struct http_exchange *exchange, struct content *content)
{
    struct http_stats stats;

    http_server_stats(serve->http, &stats);
    if (stats.unsent > 0 && stats.unsent + content->n > http_held_bytes(serve->http)) {
        serve_refuse_as(serve, exchange, 503, "unavailable_error", "server_busy",
                        "answers that their readers have not taken leave no room for this file", 1000);
        return;
    }
    serve->counts.answers[2]++;
    http_answer_take(exchange, 200, "application/octet-stream", content->bytes, content->n);
    content->bytes = NULL;
}

static void content_read(struct serve_work *work, bool ran)
{
    struct content *content = (struct content *)work;
    struct http_exchange *exchange = work->visit->exchange;
    bool there = exchange != NULL && store_find(&work->serve->files->store, STORE_FILES, content->id,
                                                owner_of(exchange)) != NULL; /* it may have been deleted meanwhile */

    if (there && ran && content->bytes == NULL)
        app_error("%s", content->why);
    if (exchange != NULL && content->bytes != NULL) {
        send_content(work->serve, exchange, content);
    } else if (exchange != NULL && !there) {
        files_refuse_unknown(work->serve, exchange, "file", content->id);
    } else if (exchange != NULL) {
        serve_refuse_as(work->serve, exchange, 500, "server_error", NULL, "the file could not be read", 0);
    }
    free(content->bytes);
    free(content);
}

static void reply_content(struct serve *serve, struct http_exchange *exchange, const char *id)
{
    struct content *content = calloc(1, sizeof *content);

    if (content == NULL) {
        serve_refuse_as(serve, exchange, 500, "server_error", NULL, "not enough memory for the file", 0);
        return;
    }
    snprintf(content->id, sizeof content->id, "%s", id);
    serve_work_begin(serve, visit_of(exchange), &content->work, read_content, content_read);
}

/* ID, or ID/content. */
void serve_files_one(struct serve *serve, struct http_exchange *exchange, const char *rest)
{
    struct serve_files *files = files_of(serve, exchange);
    const char *slash = NULL;
    json_t *record = NULL;
    char id[64];

    if (files == NULL) /* it was answered, and `rest` is gone with the exchange */
        return;
    slash = strchr(rest, '/');
    snprintf(id, sizeof id, "%.*s", slash != NULL ? (int)(slash - rest < 63 ? slash - rest : 63) : 63, rest);
    record = store_find(&files->store, STORE_FILES, id, owner_of(exchange));
    if (record == NULL || (slash != NULL && strcmp(slash, "/content") != 0))
        files_refuse_unknown(serve, exchange, "file", slash != NULL && strcmp(slash, "/content") == 0 ? id : rest);
    else if (slash != NULL)
        reply_content(serve, exchange, id);
    else
        files_reply(serve, exchange, json_incref(store_object(record)));
}

void serve_files_delete(struct serve *serve, struct http_exchange *exchange, const char *rest)
{
    struct serve_files *files = files_of(serve, exchange);
    json_t *record = files != NULL ? store_find(&files->store, STORE_FILES, rest, owner_of(exchange)) : NULL;

    if (files == NULL)
        return;
    if (record == NULL) {
        files_refuse_unknown(serve, exchange, "file", rest);
    } else if (batches_uses(files, rest)) {
        serve_refuse_as(serve, exchange, 409, "invalid_request_error", "file_in_use",
                        "a batch that is not over reads this file", 0);
    } else {
        store_remove(&files->store, STORE_FILES, record);
        files_reply(serve, exchange, json_pack("{s:s, s:s, s:b}", "id", rest, "object", "file", "deleted", 1));
    }
}

/* ---- The whole --------------------------------------------------------------------------- */

bool serve_open_files(struct serve *serve)
{
    const struct app_options *options = serve->options;

    serve->files = calloc(1, sizeof *serve->files);
    if (serve->files == NULL) {
        app_error("not enough memory");
        return false;
    }
    return store_open(&serve->files->store, options->files_dir, options->files_bytes);
}

void serve_close_files(struct serve *serve)
{
    if (serve->files != NULL)
        store_close(&serve->files->store);
    free(serve->files);
    serve->files = NULL;
}
