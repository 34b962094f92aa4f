/* The compute team: order, once-ness, barriers, parking, refusal of memory. The shared data of these
 * tests is plain, so that a race in the team shows under ThreadSanitizer. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "cpu/cores.h"
#include "cpu/team.h"
#include "tests/base/refusing.h"

enum { MAX_WORKERS = 24 };

struct test_job {
    struct rn_job job; /* first: the team gives it back by this pointer */
    uint64_t ran[MAX_WORKERS];
    uint32_t phases, n_workers, bad, done;
    uint64_t number;
    uint64_t *clock; /* shared by the jobs of one test; only the team's order protects it */
    uint64_t order;
    sem_t *finished;
    struct rn_team *team;
    uint32_t again; /* submit itself so many times more from done */
};

static void run(struct rn_job *job, uint32_t worker, uint32_t n_workers)
{
    struct test_job *t = (struct test_job *)job;
    uint32_t phase, i;

    if (worker == 0)
        t->n_workers = n_workers;
    t->ran[worker]++;
    for (phase = 0; phase < t->phases; phase++) {
        t->ran[worker] += 1;
        rn_team_barrier(t->team, worker);
        for (i = 0; i < n_workers; i++)
            if (t->ran[i] != t->ran[worker])
                t->bad++;
        rn_team_barrier(t->team, worker);
    }
}

static void done(struct rn_job *job)
{
    struct test_job *t = (struct test_job *)job;

    t->done++;
    t->order = (*t->clock)++;
    if (t->again > 0) {
        t->again--;
        rn_team_submit(t->team, job);
    } else if (t->finished != NULL) {
        sem_post(t->finished);
    }
}

static struct test_job make_job(struct rn_team *team, uint64_t *clock, sem_t *finished, uint32_t phases)
{
    return (struct test_job){
        .job = {run, done, NULL}, .team = team, .clock = clock, .finished = finished, .phases = phases};
}

static void test_barriers(void **state)
{
    static const uint32_t sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 17};
    struct rn_heap heap;
    struct rn_team *team;
    struct test_job job;
    uint64_t clock = 0;
    uint32_t i, w;
    sem_t finished;

    (void)state;
    rn_heap_init(&heap, NULL);
    sem_init(&finished, 0, 0);
    for (i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        team = rn_team_new(&heap, sizes[i]);
        assert_non_null(team);
        assert_int_equal(rn_team_threads(team), sizes[i]);
        job = make_job(team, &clock, &finished, 300);
        rn_team_submit(team, &job.job);
        sem_wait(&finished);
        assert_int_equal(job.n_workers, sizes[i]);
        assert_int_equal(job.bad, 0);
        assert_int_equal(job.done, 1);
        for (w = 0; w < MAX_WORKERS; w++)
            assert_int_equal(job.ran[w], w < sizes[i] ? 301 : 0);
        rn_team_free(team);
    }
    sem_destroy(&finished);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

/* Worker 0 waits until it has been told to go on; worker 1 arrives then. */
struct waiting {
    struct rn_job job;             /* first */
    struct rn_meanwhile meanwhile; /* worker 0's */
    _Atomic uint32_t times;        /* go_on was called */
    uint32_t never;                /* rounds in which it was not */
    struct rn_team *team;
};

static void go_on(struct rn_meanwhile *meanwhile)
{
    struct waiting *w = (struct waiting *)((char *)meanwhile - offsetof(struct waiting, meanwhile));

    atomic_fetch_add(&w->times, 1);
}

static void run_waiting(struct rn_job *job, uint32_t worker, uint32_t n_workers)
{
    struct waiting *w = (struct waiting *)job;
    uint32_t round;

    (void)n_workers;
    for (round = 0; round < 100; round++) {
        while (worker == 1 && atomic_load(&w->times) == 0)
            sched_yield();
        rn_team_barrier_meanwhile(w->team, worker, worker == 0 ? &w->meanwhile : NULL);
        if (worker == 0)
            w->never += atomic_exchange(&w->times, 0) == 0;
        rn_team_barrier(w->team, worker);
    }
}

static void test_meanwhile(void **state)
{
    struct waiting w = {.job = {run_waiting, NULL, NULL}, .meanwhile = {go_on}};
    struct rn_heap heap;

    (void)state;
    rn_heap_init(&heap, NULL);
    w.team = rn_team_new(&heap, 2);
    assert_non_null(w.team);
    rn_team_run(w.team, &w.job);
    assert_int_equal(w.never, 0);
    rn_team_free(w.team);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

/* A burst from one thread runs in the order of submission; done may submit its own job again. */
static void test_order(void **state)
{
    enum { JOBS = 200, AGAIN = 3 };
    static struct test_job jobs[JOBS];
    struct rn_heap heap;
    struct rn_team *team;
    uint64_t clock = 0;
    sem_t finished;
    int i;

    (void)state;
    rn_heap_init(&heap, NULL);
    sem_init(&finished, 0, 0);
    team = rn_team_new(&heap, 3);
    assert_non_null(team);
    for (i = 0; i < JOBS; i++) {
        jobs[i] = make_job(team, &clock, &finished, i % 3);
        rn_team_submit(team, &jobs[i].job);
    }
    for (i = 0; i < JOBS; i++)
        sem_wait(&finished);
    for (i = 0; i < JOBS; i++) {
        assert_int_equal(jobs[i].order, i);
        assert_int_equal(jobs[i].bad, 0);
    }
    clock = 0;
    jobs[0] = make_job(team, &clock, &finished, 1);
    jobs[0].again = AGAIN;
    rn_team_submit(team, &jobs[0].job);
    sem_wait(&finished);
    assert_int_equal(jobs[0].done, AGAIN + 1);
    assert_int_equal(jobs[0].ran[2], 2 * (AGAIN + 1));
    rn_team_free(team);
    sem_destroy(&finished);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

enum { THREADS = 4, PER_THREAD = 100 };

struct submitter {
    struct rn_team *team;
    uint64_t *clock;
    sem_t finished; /* its own: it waits for every tenth job, so that the team parks now and then */
    struct test_job jobs[PER_THREAD];
};

static void *submit_all(void *argument)
{
    struct submitter *s = argument;
    struct timespec pause = {0, 200000};
    int i;

    for (i = 0; i < PER_THREAD; i++) {
        s->jobs[i] = make_job(s->team, s->clock, &s->finished, 1);
        rn_team_submit(s->team, &s->jobs[i].job);
        if (i % 10 == 9)
            nanosleep(&pause, NULL);
    }
    for (i = 0; i < PER_THREAD; i++)
        sem_wait(&s->finished);
    return NULL;
}

static void test_many_submitters(void **state)
{
    static struct submitter submitters[THREADS];
    struct rn_heap heap;
    struct rn_team *team;
    pthread_t threads[THREADS];
    uint64_t clock = 0;
    int i, j;

    (void)state;
    rn_heap_init(&heap, NULL);
    team = rn_team_new(&heap, 3);
    assert_non_null(team);
    for (i = 0; i < THREADS; i++) {
        submitters[i].team = team;
        submitters[i].clock = &clock;
        sem_init(&submitters[i].finished, 0, 0);
        assert_int_equal(pthread_create(&threads[i], NULL, submit_all, &submitters[i]), 0);
    }
    for (i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(clock, THREADS * PER_THREAD);
    for (i = 0; i < THREADS; i++)
        for (j = 0; j < PER_THREAD; j++) {
            assert_int_equal(submitters[i].jobs[j].done, 1);
            assert_int_equal(submitters[i].jobs[j].bad, 0);
            if (j > 0)
                assert_true(submitters[i].jobs[j].order > submitters[i].jobs[j - 1].order);
        }
    rn_team_free(team);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

/* Jobs so far apart that the team sleeps between them; and a team that never had one. */
static void test_parked(void **state)
{
    struct timespec pause = {0, 2000000};
    struct rn_heap heap;
    struct rn_team *team;
    struct test_job job;
    uint64_t clock = 0;
    sem_t finished;
    int i;

    (void)state;
    rn_heap_init(&heap, NULL);
    sem_init(&finished, 0, 0);
    team = rn_team_new(&heap, 4);
    assert_non_null(team);
    for (i = 0; i < 50; i++) {
        nanosleep(&pause, NULL);
        job = make_job(team, &clock, &finished, 2);
        rn_team_submit(team, &job.job);
        sem_wait(&finished);
        assert_int_equal(job.done, 1);
        assert_int_equal(job.bad, 0);
    }
    nanosleep(&pause, NULL);
    rn_team_free(team);
    rn_team_free(rn_team_new(&heap, 2));
    rn_team_free(NULL);
    sem_destroy(&finished);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

/* Two teams at once, of every size up to four times the cores of a small machine: neither starves the other,
 * though each has a thread for every core and spins. A wait that never gave its core away would not end. */
static void *submit_to_own_team(void *argument)
{
    enum { JOBS = 20, PHASES = 20 };
    static const struct timespec nap = {0, 300000};
    uint32_t size = *(const uint32_t *)argument, i;
    uintptr_t bad = 0;
    struct rn_heap heap;
    struct rn_team *team;
    struct test_job job;
    uint64_t clock = 0;
    sem_t finished;

    rn_heap_init(&heap, NULL);
    sem_init(&finished, 0, 0);
    team = rn_team_new(&heap, size);
    for (i = 0; team != NULL && i < JOBS; i++) {
        job = make_job(team, &clock, &finished, PHASES);
        rn_team_submit(team, &job.job);
        sem_wait(&finished);
        bad += job.bad + (job.ran[size - 1] != PHASES + 1) + (job.done != 1);
        if (i % 7 == 0)
            nanosleep(&nap, NULL);
    }
    bad += clock != JOBS;
    rn_team_free(team);
    sem_destroy(&finished);
    return (void *)(bad + rn_heap_blocks(&heap));
}

static void test_two_teams(void **state)
{
    pthread_t threads[2];
    uint32_t size, sizes[2];
    void *bad;
    int i;

    (void)state;
    for (size = 1; size <= 8; size++) {
        sizes[0] = size;
        sizes[1] = 9 - size;
        for (i = 0; i < 2; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, submit_to_own_team, &sizes[i]), 0);
        for (i = 0; i < 2; i++) {
            pthread_join(threads[i], &bad);
            assert_null(bad);
        }
    }
}

static void test_refusal(void **state)
{
    struct refusing refusing = {0};
    struct rn_heap heap = refusing_heap(&refusing);
    struct rn_team *team = NULL;
    uint32_t allowed;

    (void)state;
    for (allowed = 0; team == NULL; allowed++) {
        assert_true(allowed < 10);
        refusing_allow(&refusing, allowed);
        team = rn_team_new(&heap, 2);
        if (team == NULL)
            assert_int_equal(rn_heap_blocks(&heap), 0);
    }
    assert_true(allowed > 1);
    rn_team_free(team);
    assert_int_equal(rn_heap_blocks(&heap), 0);
}

static void test_cores(void **state)
{
    uint32_t n, cores, i, j;
    cpu_set_t allowed;
    int list[4];
    struct rn_heap heap;
    struct rn_team *team;

    (void)state;
    assert_int_equal(rn_cores_quota("max 100000\n"), UINT32_MAX);
    assert_int_equal(rn_cores_quota(""), UINT32_MAX);
    assert_int_equal(rn_cores_quota("50000 0\n"), UINT32_MAX);
    assert_int_equal(rn_cores_quota("50000 100000\n"), 1);
    assert_int_equal(rn_cores_quota("250000 100000\n"), 2);
    assert_int_equal(rn_cores_quota("400000 100000\n"), 4);
    assert_true(rn_cores_usable() >= 1 && rn_cores_usable() <= rn_cores_logical());
    n = rn_cores_list(list, 4, &cores);
    assert_true(n >= rn_cores_logical() && cores >= rn_cores_usable() && cores <= n);
    for (i = 0; i < 4 && i < n; i++) { /* each once, and all of them ours */
        assert_int_equal(sched_getaffinity(0, sizeof allowed, &allowed), 0);
        assert_true(CPU_ISSET(list[i], &allowed));
        for (j = 0; j < i; j++)
            assert_int_not_equal(list[i], list[j]);
    }
    rn_heap_init(&heap, NULL);
    team = rn_team_new(&heap, 0);
    assert_non_null(team);
    assert_int_equal(rn_team_threads(team), rn_cores_usable());
    rn_team_free(team);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_barriers),        cmocka_unit_test(test_meanwhile), cmocka_unit_test(test_order),
        cmocka_unit_test(test_many_submitters), cmocka_unit_test(test_parked),    cmocka_unit_test(test_refusal),
        cmocka_unit_test(test_cores),           cmocka_unit_test(test_two_teams),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
