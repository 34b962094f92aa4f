/* A visit: one request as the log tells it, from its head on. It lives until its exchange is over and the task that
 * came of it, if one did, is gone; then its line is written. The exchange's user pointer is its visit. */
#ifndef RUNNEL_SERVE_VISIT_H
#define RUNNEL_SERVE_VISIT_H

#include <jansson.h>

#include "apps/serve/http/http.h"
#include "apps/serve/keys/keys.h"
#include "runnel.h"

enum { VISIT_ID_BYTES = 65 };

struct serve;
struct serve_task;
struct serve_model;

struct serve_visit {
    struct serve *serve;
    struct http_exchange *exchange; /* NULL: it is over */
    struct serve_task *task;        /* that will answer it; NULL: none, or not any more */
    struct serve_key *key;          /* of who asks; a reference */
    const char *method, *route;     /* of the table; NULL: there is no such route */
    bool is_public;
    char id[VISIT_ID_BYTES]; /* its client's X-Request-Id, or one of ours */
    char path[128], peer[60];
    char model[128]; /* "": none was found */
    uint64_t began_ns, total_us, sent_bytes;
    int status;          /* 0: its client left before there was one */
    bool cancelled, cut; /* its client left; the server went before its answer was whole */
    uint64_t prompt_tokens, cached_tokens, completion_tokens;
    uint64_t queue_us, first_us;   /* of its first answer to have a token; 0: none */
    struct serve_model *waits_for; /* its handler is called again when this is ready; NULL: it waits for none */
    struct serve_visit *next_waiting;
    char *body;          /* as it came, for --log-prompts; owned */
    json_t *json;        /* a long body, once it was read (works.h); NULL: it was not. A reference */
    uint64_t json_bytes; /* about so much memory it takes */
    bool was_read;       /* its body is long, and was read */
    uint32_t refs;
};

/* Begins one, with the fields of the answer that each has. NULL: no memory. */
struct serve_visit *visit_begin(struct serve *serve, struct http_exchange *exchange, const char *path);

/* The exchange's, to which it belongs. NULL: no memory, and the exchange was answered. */
struct serve_visit *visit_new(struct serve *serve, struct http_exchange *exchange);
struct serve_visit *visit_of(const struct http_exchange *exchange);

struct serve_visit *visit_ref(struct serve_visit *visit);
void visit_unref(struct serve_visit *visit); /* the last one writes the line */

/* http.h's on_end. */
void visit_on_end(void *user, struct http_exchange *exchange);

/* One of its answers has ended. counts_prompt: its prompt is no other answer's too. */
void visit_count(struct serve_visit *visit, const runnel_event *event, bool counts_prompt);

#endif
