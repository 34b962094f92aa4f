/* See visit.h. */
#include "visit.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "serve.h"

/* Whether an id of the client's can stand in headers, logs and file names. */
static bool is_sane(const char *id)
{
    size_t n = strlen(id);

    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)id[i]) && strchr("._-:", id[i]) == NULL)
            return false;
    return n > 0 && n < VISIT_ID_BYTES;
}

struct serve_visit *visit_begin(struct serve *serve, struct http_exchange *exchange, const char *path)
{
    struct serve_visit *visit = calloc(1, sizeof *visit);
    const char *id = http_field(exchange, "x-request-id");
    char made[48];

    if (visit == NULL)
        return NULL;
    visit->serve = serve;
    visit->exchange = exchange;
    visit->refs = 1;
    visit->began_ns = uv_hrtime();
    serve_new_id(serve, "req_", made);
    snprintf(visit->id, sizeof visit->id, "%s", id != NULL && is_sane(id) ? id : made);
    snprintf(visit->path, sizeof visit->path, "%s", path);
    app_whole(visit->path);
    snprintf(visit->peer, sizeof visit->peer, "%s", http_peer(exchange));
    http_add_field(exchange, "X-Request-Id", visit->id);
    if (serve_dialect_at(path) == &serve_anthropic) /* what its clients look for */
        http_add_field(exchange, "Request-Id", visit->id);
    return visit;
}

struct serve_visit *visit_new(struct serve *serve, struct http_exchange *exchange)
{
    struct serve_visit *visit = visit_begin(serve, exchange, http_path(exchange));

    http_set_user(exchange, visit);
    if (visit == NULL)
        http_answer(exchange, 503, NULL, NULL, 0);
    return visit;
}

struct serve_visit *visit_of(const struct http_exchange *exchange)
{
    return http_user(exchange);
}

struct serve_visit *visit_ref(struct serve_visit *visit)
{
    visit->refs++;
    return visit;
}

void visit_unref(struct serve_visit *visit)
{
    if (visit == NULL || --visit->refs > 0)
        return;
    serve_log_visit(visit);
    key_unref(visit->key);
    free(visit->body);
    serve_free_json(visit->serve, visit->json);
    free(visit);
}

void visit_on_end(void *user, struct http_exchange *exchange)
{
    struct serve_visit *visit = http_user(exchange);

    (void)user;
    if (visit == NULL)
        return;
    visit->status = http_status(exchange);
    visit->sent_bytes = http_sent(exchange);
    visit->total_us = (uv_hrtime() - visit->began_ns) / 1000;
    visit->exchange = NULL;
    visit_unref(visit);
}

void visit_count(struct serve_visit *visit, const runnel_event *event, bool counts_prompt)
{
    visit->completion_tokens += event->usage.completion_tokens;
    if (counts_prompt) {
        visit->prompt_tokens += event->usage.prompt_tokens;
        visit->cached_tokens += event->usage.cached_tokens;
    }
    if (event->timings.first_token_us == 0 ||
        (visit->first_us != 0 && visit->first_us <= event->timings.first_token_us))
        return;
    visit->queue_us = event->timings.admitted_us;
    visit->first_us = event->timings.first_token_us;
}
