/* See works.h. */
#include "works.h"

#include <stdlib.h>
#include <string.h>

#include "routes.h"

enum { MOST_RUNNING = 2 }; /* of the four threads that libuv has unless UV_THREADPOOL_SIZE says otherwise */

/* ---- The queue --------------------------------------------------------------------------- */

static void start_some(struct serve *serve);

static void end(struct serve_work *work, bool ran)
{
    struct serve_visit *visit = work->visit;

    work->done(work, ran);
    visit_unref(visit);
}

static void run(uv_work_t *uv)
{
    struct serve_work *work = uv->data;

    work->run(work);
}

static void after(uv_work_t *uv, int status)
{
    struct serve_work *work = uv->data;
    struct serve *serve = work->serve;

    serve->works.n_running--;
    end(work, status == 0);
    start_some(serve);
}

static void start_some(struct serve *serve)
{
    struct serve_works *works = &serve->works;

    while (works->first != NULL && works->n_running < MOST_RUNNING) {
        struct serve_work *work = works->first;

        works->first = work->next;
        work->work.data = work;
        work->runs = uv_queue_work(&serve->loop, &work->work, run, after) == 0;
        works->n_running += work->runs;
        if (!work->runs)
            end(work, false);
    }
}

/* first: before what is not. */
static void begin(struct serve *serve, struct serve_visit *visit, struct serve_work *work, bool first,
                  void (*fn)(struct serve_work *work), void (*done)(struct serve_work *work, bool ran))
{
    struct serve_work **at = &serve->works.first;

    work->serve = serve;
    work->visit = visit != NULL ? visit_ref(visit) : NULL;
    work->run = fn;
    work->done = done;
    work->next = NULL;
    work->first = first;
    work->runs = false;
    if (serve->works.closed) {
        end(work, false);
        return;
    }
    while (*at != NULL && (!first || (*at)->first))
        at = &(*at)->next;
    work->next = *at;
    *at = work;
    start_some(serve);
}

void serve_work_begin(struct serve *serve, struct serve_visit *visit, struct serve_work *work,
                      void (*fn)(struct serve_work *work), void (*done)(struct serve_work *work, bool ran))
{
    begin(serve, visit, work, visit != NULL && visit->was_read, fn, done);
}

void serve_work_forget(struct serve *serve, const struct serve_visit *visit)
{
    struct serve_work **at = &serve->works.first, *work = NULL;

    while (*at != NULL && (*at)->visit != visit)
        at = &(*at)->next;
    work = *at;
    if (work == NULL)
        return;
    *at = work->next;
    end(work, false);
}

void serve_work_close(struct serve *serve)
{
    struct serve_works *works = &serve->works;

    works->closed = true;
    while (works->first != NULL) {
        struct serve_work *work = works->first;

        works->first = work->next;
        end(work, false);
    }
    while (works->n_running > 0)
        uv_run(&serve->loop, UV_RUN_ONCE);
}

/* ---- Freeing ----------------------------------------------------------------------------- */

struct rubbish {
    struct serve_work work; /* first */
    json_t *value;
};

static void throw_away(struct serve_work *work)
{
    struct rubbish *rubbish = (struct rubbish *)work;

    json_decref(rubbish->value);
    rubbish->value = NULL;
}

static void thrown_away(struct serve_work *work, bool ran)
{
    (void)ran;
    json_decref(((struct rubbish *)work)->value);
    free(work);
}

void serve_free_json(struct serve *serve, json_t *value)
{
    struct rubbish *rubbish = value != NULL ? calloc(1, sizeof *rubbish) : NULL;

    if (rubbish == NULL) {
        json_decref(value);
        return;
    }
    rubbish->value = value;
    begin(serve, NULL, &rubbish->work, true, throw_away, thrown_away);
}

/* ---- Reading ----------------------------------------------------------------------------- */

struct reading {
    struct serve_work work; /* first */
    const struct serve_route *route;
    char *body; /* [bytes], owned */
    size_t bytes;
    json_t *value; /* a reference; NULL: error says why */
    uint64_t value_bytes;
    struct openai_error error;
};

/* About what jansson takes for a value, with what the allocator adds. */
enum { OBJECT_BYTES = 256, MEMBER_BYTES = 96, ARRAY_BYTES = 144, LEAF_BYTES = 64 };

static uint64_t bytes_of(const json_t *value)
{
    uint64_t sum = LEAF_BYTES + json_string_length(value);
    const char *name = NULL;
    const json_t *part = NULL;

    if (json_is_object(value)) {
        sum = OBJECT_BYTES;
        json_object_foreach((json_t *)(uintptr_t)value, name, part) sum += MEMBER_BYTES + strlen(name) + bytes_of(part);
    } else if (json_is_array(value)) {
        sum = ARRAY_BYTES;
        for (size_t i = 0; i < json_array_size(value); i++)
            sum += sizeof part + bytes_of(json_array_get(value, i));
    }
    return sum;
}

void serve_body_freed(struct serve *serve, size_t n)
{
    if (!serve->ending) /* else there may be no server of HTTP any more */
        http_body_done(serve->http, n);
}

static void read_body(struct serve_work *work)
{
    struct reading *reading = (struct reading *)work;

    reading->value = serve_parse(reading->body, reading->bytes, reading->route->fields, &reading->error);
    free(reading->body);
    reading->body = NULL;
    reading->value_bytes = bytes_of(reading->value);
}

static void body_read(struct serve_work *work, bool ran)
{
    struct reading *reading = (struct reading *)work;
    struct http_exchange *exchange = work->visit->exchange;

    serve_body_freed(work->serve, reading->bytes);
    if (!ran && exchange != NULL)
        openai_no_memory(&reading->error);
    if (exchange == NULL) {
        serve_free_json(work->serve, reading->value);
    } else if (reading->value != NULL) {
        work->visit->was_read = true;
        work->visit->json = reading->value;
        work->visit->json_bytes = reading->value_bytes;
        serve_dispatch(exchange);
    } else {
        serve_refuse(work->serve, exchange, &reading->error, 0);
    }
    free(reading->body);
    free(reading);
}

void serve_read_apart(struct serve *serve, struct http_exchange *exchange)
{
    struct reading *reading = calloc(1, sizeof *reading);
    struct openai_error error;

    if (reading == NULL) {
        openai_no_memory(&error);
        serve_refuse(serve, exchange, &error, 0);
        return;
    }
    reading->route = serve_route_of(exchange);
    reading->body = http_take_body(exchange, &reading->bytes);
    serve_work_begin(serve, visit_of(exchange), &reading->work, read_body, body_read);
}
