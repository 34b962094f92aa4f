/* The host of bench/streams.c: an engine with one model (a file, or a device that computes nothing), and users that
 * each have one stream at a time. Everything runs on the thread that calls host_run. */
#ifndef RN_BENCH_STREAMS_HOST_H
#define RN_BENCH_STREAMS_HOST_H

#include "actors/engine.h"
#include "streams_device.h"

#define USERS_MOST 16384

struct host;

struct user {
    struct host *host;
    runnel_stream stream;
    uint64_t submitted_ns, first_ns, last_ns; /* of this stream; 0: not yet */
    int32_t *prompt;                          /* [n_prompt]; owned */
    uint32_t n_prompt;
    int64_t max_tokens;
    bool again; /* as soon as it is done, the next stream begins, with another prompt, unless the host is ending */
    bool timed; /* the times between its tokens are kept */
    bool live;
};

struct host {
    runnel_engine *engine;
    runnel_model *model;
    struct device *device; /* NULL: a file */
    uint32_t n_vocab;
    struct user *users;                /* [USERS_MOST] */
    uint32_t n_users, n_live, n_first; /* n_first: streams that have had their first token */
    uint64_t n_tokens;
    uint64_t rng;
    bool ending;
    double *gaps; /* [n_gaps]: milliseconds between tokens of timed users */
    size_t n_gaps, gaps_capacity;
};

struct host_options {
    const char *path; /* NULL: a device with these limits */
    struct rn_backend_limits limits;
    uint32_t max_streams, context_tokens, threads;
    uint64_t kv_bytes;
    const runnel_allocator *allocator; /* NULL: the default */
    runnel_trace_fn on_trace;          /* NULL: no trace */
};

/* Starts it or ends the program with a message. */
void host_open(struct host *host, const struct host_options *options);

/* Cancels what runs and frees all. */
void host_close(struct host *host);

/* One more user; its prompt is n random tokens behind the first n_shared of `shared`. */
struct user *host_user(struct host *host, const int32_t *shared, uint32_t n_shared, uint32_t n, int64_t max_tokens);

/* Submits the user's prompt; ends the program if it is refused. */
void user_submit(struct user *user);

/* Runs callbacks until the time has come, or (until_ns 0) *counter has come up to `goal`, or down to a goal of 0. */
void host_run(struct host *host, uint64_t until_ns, const uint32_t *counter, uint32_t goal);

/* Processor time so far of the scheduler threads, and of the calling thread. */
uint64_t host_scheduler_ns(const struct host *host);
uint64_t host_own_ns(void);

/* Forgets the times between tokens. */
void host_forget_gaps(struct host *host);

/* The p-th quantile, p in [0, 1], of list[n], which it sorts. */
double quantile(double *list, size_t n, double p);

_Noreturn void die(const char *what, const char *why);

#endif
