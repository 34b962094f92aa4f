/* The compute team: see team.h.
 *
 * Worker 0 is the leader: it takes the jobs out of the inbox, in order, shows each to the others,
 * works on it too, and calls done when all have met at the end.
 *
 *   submit ─CAS─▶ inbox (newest first) ─exchange─▶ leader's queue (oldest first)
 *                                                     │ job, round.value + 1
 *   followers: wait(round) ─ run ─ barrier ─ wait(round) ...
 *
 * All waiting is done on an `event`: a counter to watch and a count of those who sleep on it. A
 * waiter spins for a bounded time, then sleeps in the kernel. So a machine with fewer cores than threads
 * (or valgrind, which runs one thread at a time) makes progress at the speed of its scheduler, and an
 * idle team costs nothing. A worker whose spinning was in vain, again and again, spins less and less: the
 * one it waits for has no core, perhaps for want of this one. One success shows that all are running, and it
 * spins as long as ever: who sleeps where strangers want the core too may get it back only after milliseconds.
 * It does not yield, for the same reason.
 *
 * Workers are not pinned to cores. Where strangers compute too, a pinned worker waits for its own core while another is
 * free, and all others wait for it at the next barrier (docs/SPEED-LOG.md: steps five times as long). On a machine of
 * several memory nodes each stays on its node (nodes.h).
 *
 * Invariant: every worker passes the same number of barriers in a job, the one at its end included. */
#define _GNU_SOURCE
#include "cpu/team.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/check.h"
#include "base/thread.h"
#include "cpu/cores.h"
#include "cpu/nodes.h"

enum {
    MAX_THREADS = 1024,
    LINE = 128,           /* two cache lines: neighbours are fetched in pairs */
    BARRIER_SPINS = 2000, /* of one pause each, 20..50 ns: about the imbalance of one phase of a step */
    IDLE_SPINS = 500,     /* between jobs: the threads that make the next step want these cores now */
    LEAST_SPINS = 16
};

/* value: changes exactly when there is something to see. Every change is seq_cst, see `signal`. */
struct event {
    _Alignas(LINE) _Atomic uint32_t value;
    _Atomic uint32_t sleepers;
};

/* How long to spin. */
struct patience {
    uint32_t spins, most;
};

struct worker {
    _Alignas(LINE) struct rn_team *team;
    pthread_t thread;
    uint32_t index, node;
    struct patience barrier, idle; /* the worker's own */
};

struct rn_team {
    struct rn_heap *heap;
    uint32_t n_threads;
    struct worker *workers;
    struct rn_nodes nodes;
    uint32_t firsts[RN_MOST_NODES + 1]; /* [nodes + 1]: the first worker of each */

    struct event submitted;         /* a job was pushed, or stop was set; the leader waits */
    _Atomic(struct rn_job *) inbox; /* pushed by submit, emptied by the leader */
    _Atomic bool stop;

    struct event round; /* the leader has set `job`; the followers wait */
    struct rn_job *job; /* written by the leader between rounds; NULL: go home */

    struct event phase; /* the last worker has arrived at the barrier */
    _Alignas(LINE) _Atomic uint32_t arrived;
};

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#endif
}

static void futex(_Atomic uint32_t *word, int op, uint32_t value)
{
    syscall(SYS_futex, (uint32_t *)word, op | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

/* Changes the event. What the caller wrote before is seen by whoever sees the new value.
 * seq_cst on both sides: pairs with `sleep_on`. Either this load sees the sleeper, or the sleeper's
 * load sees the new value; with anything weaker both could miss and the sleeper would stay asleep. */
static void signal_all(struct event *event)
{
    atomic_fetch_add_explicit(&event->value, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&event->sleepers, memory_order_seq_cst) != 0)
        futex(&event->value, FUTEX_WAKE, INT_MAX);
}

static void sleep_on(struct event *event, uint32_t old)
{
    atomic_fetch_add_explicit(&event->sleepers, 1, memory_order_seq_cst); /* pairs with the load in signal_all */
    while (atomic_load_explicit(&event->value, memory_order_seq_cst) == old)
        futex(&event->value, FUTEX_WAIT, old);
    atomic_fetch_sub_explicit(&event->sleepers, 1, memory_order_relaxed); /* a wake too many is harmless */
}

/* Returns once the event's value is not `old`; meanwhile: NULL, or what goes on as long as this spins. The acquire
 * loads pair with the change in signal_all: weaker, and the job or the other workers' results might be read too
 * early. */
static void wait_on(struct event *event, uint32_t old, struct patience *patience, struct rn_meanwhile *meanwhile)
{
    uint32_t i;

    for (i = 0; i < patience->spins; i++) {
        if (atomic_load_explicit(&event->value, memory_order_acquire) != old) {
            patience->spins = patience->most;
            return;
        }
        if (meanwhile != NULL)
            meanwhile->go_on(meanwhile);
        relax();
    }
    if (patience->spins > LEAST_SPINS)
        patience->spins -= patience->spins / 4;
    sleep_on(event, old);
}

void rn_team_barrier(struct rn_team *team, uint32_t worker)
{
    rn_team_barrier_meanwhile(team, worker, NULL);
}

void rn_team_barrier_meanwhile(struct rn_team *team, uint32_t worker, struct rn_meanwhile *meanwhile)
{
    uint32_t old;

    RN_ASSERT(worker < team->n_threads);
    if (team->n_threads == 1)
        return;
    /* Relaxed: the phase cannot change before this worker arrives, and it left the last phase by an acquire load. */
    old = atomic_load_explicit(&team->phase.value, memory_order_relaxed);
    /* acq_rel: pairs with the other arrivals, so that the last one has seen what all wrote and passes it on
     * with the phase. */
    if (atomic_fetch_add_explicit(&team->arrived, 1, memory_order_acq_rel) + 1 == team->n_threads) {
        atomic_store_explicit(&team->arrived, 0, memory_order_relaxed); /* seen through the phase by all */
        signal_all(&team->phase);
        return;
    }
    wait_on(&team->phase, old, &team->workers[worker].barrier, meanwhile);
}

void rn_team_submit(struct rn_team *team, struct rn_job *job)
{
    struct rn_job *head = atomic_load_explicit(&team->inbox, memory_order_relaxed);

    do
        job->next = head;
    while (!atomic_compare_exchange_weak_explicit(&team->inbox, &head, job, memory_order_release, /* pairs with take */
                                                  memory_order_relaxed));
    signal_all(&team->submitted);
}

/* A job that somebody sleeps for. */
struct awaited {
    struct rn_job job; /* first */
    struct rn_job *of;
    sem_t done;
};

static void run_awaited(struct rn_job *job, uint32_t worker, uint32_t n_workers)
{
    struct rn_job *of = ((struct awaited *)job)->of;

    of->run(of, worker, n_workers);
}

static void end_awaited(struct rn_job *job)
{
    sem_post(&((struct awaited *)job)->done);
}

void rn_team_run(struct rn_team *team, struct rn_job *job)
{
    struct awaited awaited = {.job = {run_awaited, end_awaited, NULL}, .of = job};

    sem_init(&awaited.done, 0, 0);
    rn_team_submit(team, &awaited.job);
    while (sem_wait(&awaited.done) != 0 && errno == EINTR)
        continue;
    sem_destroy(&awaited.done);
}

/* All that was submitted, oldest first; NULL: nothing. */
static struct rn_job *take(struct rn_team *team)
{
    /* acquire: pairs with the release in submit, else the job's own fields might be read too early. */
    struct rn_job *newest = atomic_exchange_explicit(&team->inbox, NULL, memory_order_acquire);
    struct rn_job *oldest = NULL, *next;

    for (; newest != NULL; newest = next) {
        next = newest->next;
        newest->next = oldest;
        oldest = newest;
    }
    return oldest;
}

/* Waits for jobs; NULL: the team stops. */
static struct rn_job *await_jobs(struct rn_team *team)
{
    struct rn_job *jobs;
    uint32_t seen;

    for (;;) {
        seen =
            atomic_load_explicit(&team->submitted.value, memory_order_acquire); /* pairs with signal_all: before take */
        jobs = take(team);
        if (jobs != NULL)
            return jobs;
        if (atomic_load_explicit(&team->stop, memory_order_acquire)) /* pairs with the store in halt */
            return NULL;
        wait_on(&team->submitted, seen, &team->workers[0].idle, NULL);
    }
}

static void show(struct rn_team *team, struct rn_job *job)
{
    team->job = job;
    if (team->n_threads > 1)
        signal_all(&team->round);
}

static void lead(struct rn_team *team)
{
    struct rn_job *job, *queue;

    while ((queue = await_jobs(team)) != NULL) {
        while (queue != NULL) {
            job = queue;
            queue = job->next; /* before run: from there on the job is its owner's */
            show(team, job);
            job->run(job, 0, team->n_threads);
            rn_team_barrier(team, 0);
            job->done(job);
        }
    }
    show(team, NULL);
}

static void follow(struct rn_team *team, uint32_t worker)
{
    uint32_t seen = 0;

    for (;;) {
        wait_on(&team->round, seen, &team->workers[worker].idle, NULL);
        seen++; /* the next round cannot begin before this worker has passed the barrier below */
        if (team->job == NULL)
            return;
        team->job->run(team->job, worker, team->n_threads);
        rn_team_barrier(team, worker);
    }
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    char name[16];

    snprintf(name, sizeof name, "rn-cpu-%u", worker->index);
    pthread_setname_np(pthread_self(), name);
    rn_nodes_stay(&worker->team->nodes, worker->node);
    if (worker->index == 0)
        lead(worker->team);
    else
        follow(worker->team, worker->index);
    return NULL;
}

/* Starts the followers, then the leader; returns how many started. */
static uint32_t start(struct rn_team *team)
{
    uint32_t started, index;

    for (started = 0; started < team->n_threads; started++) {
        index = team->n_threads - 1 - started;
        if (!rn_thread_start(&team->workers[index].thread, work, &team->workers[index]))
            break;
    }
    return started;
}

/* Sends home and joins the last `started` workers. Without a leader the caller plays its part. */
static void halt(struct rn_team *team, uint32_t started)
{
    uint32_t i;

    if (started == team->n_threads) {
        atomic_store_explicit(&team->stop, true, memory_order_release); /* pairs with the load in await_jobs */
        signal_all(&team->submitted);
    } else {
        show(team, NULL);
    }
    for (i = team->n_threads - started; i < team->n_threads; i++)
        pthread_join(team->workers[i].thread, NULL);
}

static void release(struct rn_team *team)
{
    rn_free(team->heap, team->workers);
    rn_free(team->heap, team);
}

/* A team with more threads than there are processors does not spin. */
static void set_up_workers(struct rn_team *team)
{
    bool spins = team->n_threads <= rn_cores_logical();
    struct worker *w;
    uint32_t node = 0, i;

    for (i = 0; i <= team->nodes.n; i++)
        team->firsts[i] = rn_nodes_first(&team->nodes, i, team->n_threads);
    for (i = 0; i < team->n_threads; i++) {
        while (team->firsts[node + 1] <= i)
            node++;
        w = &team->workers[i];
        *w = (struct worker){.team = team, .index = i, .node = node};
        w->barrier.spins = w->barrier.most = spins ? BARRIER_SPINS : LEAST_SPINS;
        w->idle.spins = w->idle.most = spins ? IDLE_SPINS : LEAST_SPINS;
    }
}

struct rn_team *rn_team_new_at(struct rn_heap *heap, uint32_t n_threads, const char *root)
{
    struct rn_team *team = rn_alloc_aligned(heap, sizeof *team, _Alignof(struct rn_team));
    uint32_t n = n_threads == 0 ? rn_cores_usable() : n_threads;
    uint32_t started;

    if (team == NULL)
        return NULL;
    *team = (struct rn_team){.heap = heap, .n_threads = n < MAX_THREADS ? n : MAX_THREADS};
    team->workers = rn_alloc_aligned(heap, team->n_threads * sizeof *team->workers, LINE);
    if (team->workers == NULL) {
        release(team);
        return NULL;
    }
    rn_nodes_read(&team->nodes, root);
    set_up_workers(team);
    started = start(team);
    if (started != team->n_threads) {
        halt(team, started);
        release(team);
        return NULL;
    }
    return team;
}

struct rn_team *rn_team_new(struct rn_heap *heap, uint32_t n_threads)
{
    return rn_team_new_at(heap, n_threads, RN_NODES_ROOT);
}

void rn_team_free(struct rn_team *team)
{
    if (team == NULL)
        return;
    RN_ASSERT(atomic_load_explicit(&team->inbox, memory_order_relaxed) == NULL);
    halt(team, team->n_threads);
    release(team);
}

uint32_t rn_team_threads(const struct rn_team *team)
{
    return team->n_threads;
}

uint32_t rn_team_nodes(const struct rn_team *team)
{
    return team->nodes.n;
}

uint32_t rn_team_node(const struct rn_team *team, uint32_t worker)
{
    RN_ASSERT(worker < team->n_threads);
    return team->workers[worker].node;
}

uint32_t rn_team_first(const struct rn_team *team, uint32_t node)
{
    RN_ASSERT(node <= team->nodes.n);
    return team->firsts[node];
}
