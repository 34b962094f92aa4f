/* What a message costs: our mailbox, ring and queue against a bare ck_ring and a queue of mutex and
 * condition variable, all in the same run.
 *
 *   stream   P producers send as fast as they can, one consumer receives: ns per message
 *   one way  P clients each send one message to a server that sends it back: half the round trip,
 *            p50, p99 and p99.9 of all samples of all runs
 *   alone    one thread sends 32 and receives 32: ns per message, no cache line ever moves (one slot:
 *            does not hold 32, left out)
 *
 * "one slot" is a pointer in a cache line and no queue: the machine's own price of a hand-over.
 *
 * Each figure of a stream is the median of the runs; the kinds take turns within a run, so that a
 * disturbance of the machine hits all of them. Who has to wait pauses a bounded number of times and
 * then yields the core; "+wake" sleeps in the kernel after 20 µs, the mutex queue sleeps at once.
 * The consumer is pinned to the last core, the producers share the others: with two cores, more
 * than one producer shares a core with the rest of its kind.
 *
 *   bench_mailbox [--json] [--runs N] [--messages N] [--rounds N] */
#define _GNU_SOURCE /* pthread_setaffinity_np */
#include <ck_ring.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "mailbox/mailbox.h"
#include "mailbox/queue.h"
#include "mailbox/ring.h"
#include "mailbox/wake.h"

#define PRODUCERS_MAX 4
#define ROOM 1024        /* messages that fit into each kind */
#define NODES (4 * ROOM) /* of each producer: a node is used again only long after it was received */
#define PAUSES 200       /* before a yield, about 3 µs */
#define WAKE_SPIN_US 20
#define RUNS_MAX 101

struct node {
    struct rn_message head;
    uint64_t value;
    uint32_t from;
    char pad[64 - sizeof(struct rn_message) - 12];
};

/* One direction. Every kind uses its own part. */
struct channel {
    struct rn_mailbox mailbox;
    struct rn_wake wake;
    struct rn_ring *ring;
    struct rn_queue *queue;
    _Alignas(64) _Atomic(struct node *) slot;
    ck_ring_t ck;
    _Alignas(64) ck_ring_buffer_t slots[2 * ROOM];
    struct locked {
        pthread_mutex_t mutex;
        pthread_cond_t not_empty, not_full;
        struct node *nodes[ROOM];
        uint32_t first, count;
    } locked;
};

/* send waits for room, receive waits for a message. What the ring's receive returns is valid until
 * the thread's next receive. */
struct kind {
    const char *name;
    int producers_max;
    void (*send)(struct channel *channel, struct node *node);
    struct node *(*receive)(struct channel *channel);
};

static inline void wait_a_little(unsigned *tries)
{
    if (++*tries % PAUSES == 0)
        sched_yield();
    else
        ck_pr_stall();
}

/* ---- The kinds --------------------------------------------------------------------------- */

static inline void mailbox_send(struct channel *channel, struct node *node)
{
    unsigned tries = 0;

    while (rn_mailbox_send_try(&channel->mailbox, &node->head) == RN_SEND_REFUSED)
        wait_a_little(&tries);
}

static inline struct node *mailbox_receive(struct channel *channel)
{
    struct rn_message *message;
    unsigned tries = 0;

    while ((message = rn_mailbox_receive(&channel->mailbox)) == NULL)
        wait_a_little(&tries);
    return (struct node *)message;
}

static inline void wake_send(struct channel *channel, struct node *node)
{
    enum rn_send sent;
    unsigned tries = 0;

    while ((sent = rn_mailbox_send_try(&channel->mailbox, &node->head)) == RN_SEND_REFUSED)
        wait_a_little(&tries);
    if (sent == RN_SEND_FIRST)
        rn_wake_notify(&channel->wake);
}

static inline struct node *wake_receive(struct channel *channel)
{
    for (unsigned tries = 0;;) {
        uint32_t ticket = rn_wake_ticket(&channel->wake);
        struct rn_message *message = rn_mailbox_receive(&channel->mailbox);

        if (message != NULL)
            return (struct node *)message;
        if (rn_mailbox_mark_empty(&channel->mailbox))
            rn_wake_wait(&channel->wake, ticket, -1, WAKE_SPIN_US);
        else
            wait_a_little(&tries);
    }
}

/* The payload is copied into the cell, as the token ring does. */
static inline void ring_send(struct channel *channel, struct node *node)
{
    struct node *cell;
    unsigned tries = 0;

    while ((cell = (struct node *)rn_ring_reserve_spsc(channel->ring)) == NULL)
        wait_a_little(&tries);
    cell->value = node->value;
    cell->from = node->from;
    rn_ring_publish_spsc(channel->ring);
}

/* The cell is copied and released at once, so that the server can send the copy on. */
static inline struct node *ring_receive(struct channel *channel)
{
    static _Thread_local struct node copy;
    struct node *cell;
    unsigned tries = 0;

    while ((cell = (struct node *)rn_ring_peek_spsc(channel->ring)) == NULL)
        wait_a_little(&tries);
    copy.value = cell->value;
    copy.from = cell->from;
    rn_ring_release_spsc(channel->ring);
    return &copy;
}

static inline void queue_send(struct channel *channel, struct node *node)
{
    unsigned tries = 0;

    while (!rn_queue_push_mpmc(channel->queue, node))
        wait_a_little(&tries);
}

static inline struct node *queue_receive(struct channel *channel)
{
    struct node *node;
    unsigned tries = 0;

    while ((node = (struct node *)rn_queue_pop_mpmc(channel->queue)) == NULL)
        wait_a_little(&tries);
    return node;
}

static inline void ck_spsc_send(struct channel *channel, struct node *node)
{
    unsigned tries = 0;

    while (!ck_ring_enqueue_spsc(&channel->ck, channel->slots, node))
        wait_a_little(&tries);
}

static inline struct node *ck_spsc_receive(struct channel *channel)
{
    struct node *node;
    unsigned tries = 0;

    while (!ck_ring_dequeue_spsc(&channel->ck, channel->slots, &node))
        wait_a_little(&tries);
    return node;
}

/* In two halves, with the wait for one's turn in between: ck_ring's own wait never yields, and where
 * producers share a core it takes a time slice per message. */
static inline void ck_mpsc_send(struct channel *channel, struct node *node)
{
    ck_ring_buffer_t *slot;
    unsigned tries = 0, ticket;

    while ((slot = (ck_ring_buffer_t *)ck_ring_enqueue_reserve_mpsc(&channel->ck, channel->slots, &ticket)) == NULL)
        wait_a_little(&tries);
    slot->value = node;
    for (tries = 0; ck_pr_load_uint(&channel->ck.p_tail) != ticket;)
        wait_a_little(&tries);
    ck_ring_enqueue_commit_mpsc(&channel->ck, ticket);
}

static inline struct node *ck_mpsc_receive(struct channel *channel)
{
    struct node *node;
    unsigned tries = 0;

    while (!ck_ring_dequeue_mpsc(&channel->ck, channel->slots, &node))
        wait_a_little(&tries);
    return node;
}

static inline void mutex_send(struct channel *channel, struct node *node)
{
    struct locked *q = &channel->locked;

    pthread_mutex_lock(&q->mutex);
    while (q->count == ROOM)
        pthread_cond_wait(&q->not_full, &q->mutex);
    q->nodes[(q->first + q->count++) % ROOM] = node;
    if (q->count == 1)
        pthread_cond_signal(&q->not_empty);
    pthread_mutex_unlock(&q->mutex);
}

static inline struct node *mutex_receive(struct channel *channel)
{
    struct locked *q = &channel->locked;
    struct node *node;

    pthread_mutex_lock(&q->mutex);
    while (q->count == 0)
        pthread_cond_wait(&q->not_empty, &q->mutex);
    node = q->nodes[q->first];
    q->first = (q->first + 1) % ROOM;
    if (q->count-- == ROOM)
        pthread_cond_broadcast(&q->not_full);
    pthread_mutex_unlock(&q->mutex);
    return node;
}

/* No queue at all: one pointer in one cache line. What the machine takes at least for a hand-over. */
static inline void slot_send(struct channel *channel, struct node *node)
{
    unsigned tries = 0;

    while (atomic_load_explicit(&channel->slot, memory_order_acquire) != NULL)
        wait_a_little(&tries);
    atomic_store_explicit(&channel->slot, node, memory_order_release); /* partner: slot_receive */
}

static inline struct node *slot_receive(struct channel *channel)
{
    struct node *node;
    unsigned tries = 0;

    while ((node = atomic_load_explicit(&channel->slot, memory_order_acquire)) == NULL)
        wait_a_little(&tries);
    atomic_store_explicit(&channel->slot, NULL, memory_order_release); /* partner: slot_send */
    return node;
}

static const struct kind mailbox_kind = {"mailbox", PRODUCERS_MAX, mailbox_send, mailbox_receive};
static const struct kind wake_kind = {"mailbox+wake", PRODUCERS_MAX, wake_send, wake_receive};
static const struct kind ring_kind = {"ring", 1, ring_send, ring_receive};
static const struct kind queue_kind = {"queue", PRODUCERS_MAX, queue_send, queue_receive};
static const struct kind ck_spsc_kind = {"ck_ring spsc", 1, ck_spsc_send, ck_spsc_receive};
static const struct kind ck_mpsc_kind = {"ck_ring mpsc", PRODUCERS_MAX, ck_mpsc_send, ck_mpsc_receive};
static const struct kind slot_kind = {"one slot", 1, slot_send, slot_receive};
static const struct kind mutex_kind = {"mutex+condvar", PRODUCERS_MAX, mutex_send, mutex_receive};

static void channel_init(struct channel *channel, struct rn_heap *heap)
{
    memset(channel, 0, sizeof *channel);
    rn_mailbox_init(&channel->mailbox, ROOM);
    rn_wake_init(&channel->wake);
    channel->ring = rn_ring_new(heap, ROOM, sizeof(struct node));
    channel->queue = rn_queue_new(heap, ROOM);
    RN_CHECK(channel->ring != NULL && channel->queue != NULL);
    ck_ring_init(&channel->ck, 2 * ROOM);
    pthread_mutex_init(&channel->locked.mutex, NULL);
    pthread_cond_init(&channel->locked.not_empty, NULL);
    pthread_cond_init(&channel->locked.not_full, NULL);
}

static void channel_fini(struct channel *channel)
{
    rn_ring_free(channel->ring);
    rn_queue_free(channel->queue);
    pthread_mutex_destroy(&channel->locked.mutex);
    pthread_cond_destroy(&channel->locked.not_empty);
    pthread_cond_destroy(&channel->locked.not_full);
}

/* ---- One run ----------------------------------------------------------------------------- */

struct run {
    struct channel to_server, to_client[PRODUCERS_MAX];
    struct node nodes[PRODUCERS_MAX][NODES];
    int producers;
    uint64_t messages; /* of each producer */
    float *samples;    /* [producers, messages] ns, one-way runs only */
    pthread_barrier_t start;
    double seconds;
    uint64_t sum;
};

struct thread {
    struct run *run;
    uint32_t id;
};

static double now_s(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* The consumer (id PRODUCERS_MAX) gets the last core, the producers take turns on the others. */
static void pin(uint32_t id)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(cores < 2 ? 0 : id == PRODUCERS_MAX ? (size_t)cores - 1 : id % (size_t)(cores - 1), &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

/* The loops are inlined once per kind, with `kind` a constant, so that no indirect call is measured. */
#define PER_KIND static inline __attribute__((always_inline))

PER_KIND void *stream_produce(const struct kind *kind, struct thread *me)
{
    struct run *run = me->run;

    pin(me->id);
    pthread_barrier_wait(&run->start);
    for (uint64_t n = 0; n < run->messages; n++) {
        struct node *node = &run->nodes[me->id][n % NODES];

        node->value = n;
        node->from = me->id;
        kind->send(&run->to_server, node);
    }
    return NULL;
}

PER_KIND void *stream_consume(const struct kind *kind, struct thread *me)
{
    struct run *run = me->run;
    uint64_t all = run->messages * (uint64_t)run->producers, sum = 0;
    double start;

    pin(PRODUCERS_MAX);
    pthread_barrier_wait(&run->start);
    start = now_s();
    for (uint64_t n = 0; n < all; n++)
        sum += kind->receive(&run->to_server)->value;
    run->seconds = now_s() - start;
    run->sum = sum;
    return NULL;
}

PER_KIND void *client(const struct kind *kind, struct thread *me)
{
    struct run *run = me->run;
    struct node *node = &run->nodes[me->id][0];

    pin(me->id);
    pthread_barrier_wait(&run->start);
    for (uint64_t n = 0; n < run->messages; n++) {
        double sent = now_s();

        node->value = n;
        node->from = me->id;
        kind->send(&run->to_server, node);
        RN_CHECK(kind->receive(&run->to_client[me->id])->value == n + 1);
        run->samples[me->id * run->messages + n] = (float)((now_s() - sent) * 0.5e9);
    }
    return NULL;
}

PER_KIND void *server(const struct kind *kind, struct thread *me)
{
    struct run *run = me->run;

    pin(PRODUCERS_MAX);
    pthread_barrier_wait(&run->start);
    for (uint64_t n = 0; n < run->messages * (uint64_t)run->producers; n++) {
        struct node *node = kind->receive(&run->to_server);

        node->value++;
        kind->send(&run->to_client[node->from], node);
    }
    return NULL;
}

PER_KIND void *alone(const struct kind *kind, struct thread *me)
{
    enum { BATCH = 32 };
    struct run *run = me->run;
    double start;

    pin(PRODUCERS_MAX);
    start = now_s();
    for (uint64_t n = 0; n < run->messages; n += BATCH) {
        for (uint64_t i = 0; i < BATCH; i++)
            kind->send(&run->to_server, &run->nodes[0][i]);
        for (uint64_t i = 0; i < BATCH; i++)
            run->sum += kind->receive(&run->to_server)->value;
    }
    run->seconds = now_s() - start;
    return NULL;
}

typedef void *(*thread_fn)(void *);

struct loops {
    const struct kind *kind;
    thread_fn stream_produce, stream_consume, client, server, alone;
};

#define LOOP(loop, name)                                  \
    static void *name##_##loop(void *user)                \
    {                                                     \
        return loop(&name##_kind, (struct thread *)user); \
    }
#define LOOPS(name) \
    LOOP(stream_produce, name) LOOP(stream_consume, name) LOOP(client, name) LOOP(server, name) LOOP(alone, name)
#define ENTRY(name)                                                                                            \
    {                                                                                                          \
        &name##_kind, name##_stream_produce, name##_stream_consume, name##_client, name##_server, name##_alone \
    }

LOOPS(mailbox)
LOOPS(wake)
LOOPS(ring)
LOOPS(queue)
LOOPS(ck_spsc)
LOOPS(ck_mpsc)
LOOPS(slot)
LOOPS(mutex)

static const struct loops all_loops[] = {ENTRY(mailbox), ENTRY(wake),    ENTRY(ring), ENTRY(queue),
                                         ENTRY(ck_spsc), ENTRY(ck_mpsc), ENTRY(slot), ENTRY(mutex)};

#define KINDS (sizeof all_loops / sizeof *all_loops)

static struct run *run_new(struct rn_heap *heap, int producers, uint64_t messages, float *samples)
{
    struct run *run = (struct run *)rn_alloc_aligned(heap, sizeof *run, 64);

    RN_CHECK(run != NULL);
    memset(run, 0, sizeof *run);
    run->producers = producers;
    run->messages = messages;
    run->samples = samples;
    channel_init(&run->to_server, heap);
    for (int i = 0; i < PRODUCERS_MAX; i++)
        channel_init(&run->to_client[i], heap);
    pthread_barrier_init(&run->start, NULL, (unsigned)producers + 1);
    return run;
}

static void run_free(struct rn_heap *heap, struct run *run)
{
    channel_fini(&run->to_server);
    for (int i = 0; i < PRODUCERS_MAX; i++)
        channel_fini(&run->to_client[i]);
    pthread_barrier_destroy(&run->start);
    rn_free(heap, run);
}

static void run_threads(struct run *run, thread_fn produce, thread_fn consume)
{
    pthread_t threads[PRODUCERS_MAX + 1];
    struct thread users[PRODUCERS_MAX + 1];

    for (int i = 0; i <= run->producers; i++) {
        users[i] = (struct thread){run, (uint32_t)i};
        RN_CHECK(pthread_create(&threads[i], NULL, i < run->producers ? produce : consume, &users[i]) == 0);
    }
    for (int i = 0; i <= run->producers; i++)
        pthread_join(threads[i], NULL);
}

/* ---- The measurements -------------------------------------------------------------------- */

struct options {
    bool json;
    int runs;
    uint64_t messages; /* of one stream */
    uint64_t rounds;   /* of one client */
};

struct results {
    double alone_ns[KINDS];
    double stream_ns[KINDS][PRODUCERS_MAX];
    double one_way_ns[KINDS][PRODUCERS_MAX][3]; /* p50, p99, p99.9 */
};

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static int compare_floats(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, compare_doubles);
    return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

static double stream_once(struct rn_heap *heap, const struct loops *loops, int producers, uint64_t messages)
{
    uint64_t each = messages / (uint64_t)producers;
    struct run *run = run_new(heap, producers, each, NULL);
    double ns;

    run_threads(run, loops->stream_produce, loops->stream_consume);
    RN_CHECK(run->sum == (uint64_t)producers * (each * (each - 1) / 2)); /* nothing lost, nothing twice */
    ns = run->seconds * 1e9 / (double)(each * (uint64_t)producers);
    run_free(heap, run);
    return ns;
}

static double alone_once(struct rn_heap *heap, const struct loops *loops, uint64_t messages)
{
    struct run *run = run_new(heap, 1, messages, NULL);
    struct thread me = {run, 0};
    pthread_t thread;
    double ns;

    RN_CHECK(pthread_create(&thread, NULL, loops->alone, &me) == 0);
    pthread_join(thread, NULL);
    ns = run->seconds * 1e9 / (double)messages;
    run_free(heap, run);
    return ns;
}

static void measure_streams(struct rn_heap *heap, const struct options *options, struct results *results)
{
    static double alone_ns[KINDS][RUNS_MAX], stream_ns[KINDS][PRODUCERS_MAX][RUNS_MAX];

    for (int r = 0; r < options->runs; r++) {
        for (size_t k = 0; k < KINDS; k++) {
            if (all_loops[k].kind != &slot_kind)
                alone_ns[k][r] = alone_once(heap, &all_loops[k], options->messages);
            for (int p = 1; p <= all_loops[k].kind->producers_max; p++)
                stream_ns[k][p - 1][r] = stream_once(heap, &all_loops[k], p, options->messages);
        }
    }
    for (size_t k = 0; k < KINDS; k++) {
        results->alone_ns[k] = median(alone_ns[k], options->runs);
        for (int p = 1; p <= all_loops[k].kind->producers_max; p++)
            results->stream_ns[k][p - 1] = median(stream_ns[k][p - 1], options->runs);
    }
}

static void measure_one_way(struct rn_heap *heap, const struct options *options, struct results *results)
{
    static const double quantile[3] = {0.50, 0.99, 0.999};

    for (int p = 1; p <= PRODUCERS_MAX; p++) {
        size_t per_run = (size_t)p * options->rounds, n = per_run * (size_t)options->runs;

        for (size_t k = 0; k < KINDS; k++) {
            float *samples;

            if (p > all_loops[k].kind->producers_max)
                continue;
            samples = (float *)rn_alloc(heap, n, sizeof *samples);
            RN_CHECK(samples != NULL);
            for (int r = 0; r < options->runs; r++) {
                struct run *run = run_new(heap, p, options->rounds, samples + (size_t)r * per_run);

                run_threads(run, all_loops[k].client, all_loops[k].server);
                run_free(heap, run);
            }
            qsort(samples, n, sizeof *samples, compare_floats);
            for (int q = 0; q < 3; q++)
                results->one_way_ns[k][p - 1][q] = samples[(size_t)(quantile[q] * (double)(n - 1))];
            rn_free(heap, samples);
        }
    }
}

/* ---- Output ------------------------------------------------------------------------------ */

static void print_table(const struct options *options, const struct results *results)
{
    printf("%ld cores, %d runs, %llu messages a stream, %llu rounds a client\n\n", sysconf(_SC_NPROCESSORS_ONLN),
           options->runs, (unsigned long long)options->messages, (unsigned long long)options->rounds);
    printf("%-14s %9s %9s %11s %11s %11s %11s %11s\n", "kind", "producers", "alone ns", "stream ns", "million/s",
           "p50 ns", "p99 ns", "p99.9 ns");
    for (size_t k = 0; k < KINDS; k++) {
        for (int p = 1; p <= all_loops[k].kind->producers_max; p++) {
            const double *one_way = results->one_way_ns[k][p - 1];

            printf("%-14s %9d %9.1f %11.1f %11.2f %11.0f %11.0f %11.0f\n", all_loops[k].kind->name, p,
                   results->alone_ns[k], results->stream_ns[k][p - 1], 1e3 / results->stream_ns[k][p - 1], one_way[0],
                   one_way[1], one_way[2]);
        }
    }
}

static void print_json(const struct options *options, const struct results *results)
{
    const char *comma = "";

    printf("{\"bench\":\"mailbox\",\"cores\":%ld,\"runs\":%d,\"messages\":%llu,\"rounds\":%llu,\"rows\":[",
           sysconf(_SC_NPROCESSORS_ONLN), options->runs, (unsigned long long)options->messages,
           (unsigned long long)options->rounds);
    for (size_t k = 0; k < KINDS; k++) {
        for (int p = 1; p <= all_loops[k].kind->producers_max; p++) {
            const double *one_way = results->one_way_ns[k][p - 1];

            printf("%s\n{\"kind\":\"%s\",\"producers\":%d,\"alone_ns\":%.2f,\"stream_ns\":%.2f,\"p50_ns\":%.1f,"
                   "\"p99_ns\":%.1f,\"p999_ns\":%.1f}",
                   comma, all_loops[k].kind->name, p, results->alone_ns[k], results->stream_ns[k][p - 1], one_way[0],
                   one_way[1], one_way[2]);
            comma = ",";
        }
    }
    printf("\n]}\n");
}

static bool read_options(int argc, char **argv, struct options *options)
{
    *options = (struct options){.runs = 5, .messages = 400000, .rounds = 10000};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            options->json = true;
        else if (strcmp(argv[i], "--runs") == 0 && i + 1 < argc)
            options->runs = atoi(argv[++i]);
        else if (strcmp(argv[i], "--messages") == 0 && i + 1 < argc)
            options->messages = strtoull(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--rounds") == 0 && i + 1 < argc)
            options->rounds = strtoull(argv[++i], NULL, 10);
        else
            return false;
    }
    return options->runs >= 1 && options->runs <= RUNS_MAX && options->messages >= 32 && options->rounds >= 1;
}

int main(int argc, char **argv)
{
    static struct results results;
    struct options options;
    struct rn_heap heap;

    if (!read_options(argc, argv, &options)) {
        fprintf(stderr, "usage: bench_mailbox [--json] [--runs N] [--messages N] [--rounds N]\n");
        return 2;
    }
    options.messages -= options.messages % 32;
    rn_heap_init(&heap, NULL);
    measure_streams(&heap, &options, &results);
    measure_one_way(&heap, &options, &results);
    (options.json ? print_json : print_table)(&options, &results);
    return 0;
}
