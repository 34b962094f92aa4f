/* /v1/files and /v1/batches: see files.c, batches.c. */
#ifndef RUNNEL_SERVE_FILES_H
#define RUNNEL_SERVE_FILES_H

#include "serve.h"
#include "store.h"

struct serve_batch;

struct serve_files {
    struct serve_store store;
    struct serve_batch *running; /* NULL: none; owned */
    uint64_t again_ms;           /* when the end of a job is written again that could not be written */
    uv_timer_t tick;
    uv_check_t check;
};

/* NULL: the exchange was refused, since nothing is kept. */
struct serve_files *files_of(struct serve *serve, struct http_exchange *exchange);

/* "file-" or "batch-", and STORE_ID_DIGITS that grow with time. */
void files_new_id(struct serve *serve, const char *prefix, char id[48]);

/* A file of bytes that lie in the folder by now; a new reference to its object, NULL: not kept. */
json_t *files_keep(struct serve *serve, uint64_t owner, const char *id, const char *name, const char *purpose,
                   uint64_t bytes);

/* Whether there is room for one more file, of n bytes: the results of batches count from the moment that they are
 * computed. False: *error says so, of this param. */
bool files_have_room(const struct serve_files *files, size_t n, const char *param, struct openai_error *error);

/* Answers with the JSON (stolen; NULL: memory is short). */
void files_reply(struct serve *serve, struct http_exchange *exchange, json_t *value);

/* 404 of that kind and id. */
void files_refuse_unknown(struct serve *serve, struct http_exchange *exchange, const char *kind, const char *id);

/* The page of a list that the query asks for (after, limit, order, purpose), or a refusal. */
void files_reply_list(struct serve *serve, struct http_exchange *exchange, enum store_kind kind);

/* batches.c: has the batch ended? Does one that has not read the file? Bytes of results that are no files yet. */
bool batches_is_over(const json_t *record);
bool batches_uses(const struct serve_files *files, const char *file);
uint64_t batches_bytes(const struct serve_files *files);

#endif
