/* Work that would hold up the loop: long bodies are read, texts tokenised and templates rendered on libuv's threads.
 *
 *     begin ──▶ queue, the first come first ──▶ run, on a thread of libuv's ──▶ done, on the loop
 *                 └── its client leaves ──▶ done, without having run
 *
 * A long body takes many times its bytes once it was read. So what goes on with such a body, or frees it, comes before
 * what has not begun: few are there at once, however many wait to be read.
 *
 * `run` touches nothing but what the work owns, the model that it has told to stay (serve_model_use), and options. Who
 * leaves while it runs is noticed by `done`: visit->exchange is NULL then. At most two run at once, so that others
 * find a thread: the log, and the heads of models' files. */
#ifndef RUNNEL_SERVE_WORKS_H
#define RUNNEL_SERVE_WORKS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

struct serve;
struct serve_visit;
struct http_exchange;

/* Bodies that are longer are read and judged on these threads. Reading so many bytes of JSON takes about 1 ms. */
enum { SERVE_LOOP_BYTES = 65536 };

struct serve_work {
    uv_work_t work;
    struct serve *serve;
    struct serve_visit *visit; /* a reference; NULL: nobody's */
    void (*run)(struct serve_work *work);
    void (*done)(struct serve_work *work, bool ran); /* frees what the work lies in; its last call */
    struct serve_work *next;                         /* of the queue */
    bool first;                                      /* comes before those that are not */
    bool runs;
};

/* Of a serve: the queue, and how many run. */
struct serve_works {
    struct serve_work *first;
    size_t n_running;
    bool closed; /* what begins now is done at once, without having run */
};

/* The memory is the caller's until `done` is called, which may be before this returns. visit: NULL where no client
 * waits. */
void serve_work_begin(struct serve *serve, struct serve_visit *visit, struct serve_work *work,
                      void (*run)(struct serve_work *work), void (*done)(struct serve_work *work, bool ran));

/* The visit's client has left: what has not begun for it is done without having run. */
void serve_work_forget(struct serve *serve, const struct serve_visit *visit);

/* At the end: nothing begins any more, and what runs comes to its end. On the loop's thread, outside the loop. */
void serve_work_close(struct serve *serve);

/* The exchange's body, which is JSON, is read on another thread, and its route's handler is called behind that. */
void serve_read_apart(struct serve *serve, struct http_exchange *exchange);

/* Of a body that was taken (http_take_body): its n bytes are freed. */
void serve_body_freed(struct serve *serve, size_t n);

/* Frees what may have many parts, on another thread; NULL is allowed. */
void serve_free_json(struct serve *serve, json_t *value);

#endif
