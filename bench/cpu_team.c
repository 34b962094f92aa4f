/* What the compute team costs: a barrier, a job that does nothing, and how long a job waits for the team.
 *
 *     cpu_team [most threads]
 *
 * For each size: nanoseconds of one barrier (of 20000 in a row); of one empty job submitted when the one
 * before is done, from submit to done, by a thread that sleeps on it as an engine's do; from submit to run
 * of a job that comes after 5 ms of nothing, when the team sleeps. Medians of seven. */
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "cpu/team.h"

enum { BARRIERS = 20000, JOBS = 200, REPEATS = 7 };

struct task {
    struct rn_job job; /* first */
    struct rn_team *team;
    uint32_t barriers;
    uint64_t began_ns;
    sem_t done;
};

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void run(struct rn_job *job, uint32_t worker, uint32_t n_workers)
{
    struct task *t = (struct task *)job;
    uint32_t i;

    (void)n_workers;
    if (worker == 0)
        t->began_ns = now_ns();
    for (i = 0; i < t->barriers; i++)
        rn_team_barrier(t->team, worker);
}

static void done(struct rn_job *job)
{
    sem_post(&((struct task *)job)->done);
}

/* From submit to done; *waited: from submit to run. */
static uint64_t run_job(struct rn_team *team, uint32_t barriers, uint64_t *waited)
{
    struct task t = {.job = {run, done, NULL}, .team = team, .barriers = barriers};
    uint64_t begin, took;

    sem_init(&t.done, 0, 0);
    begin = now_ns();
    rn_team_submit(team, &t.job);
    sem_wait(&t.done);
    took = now_ns() - begin;
    sem_destroy(&t.done);
    *waited = t.began_ns - begin;
    return took;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *list)
{
    qsort(list, REPEATS, sizeof *list, ascending);
    return list[REPEATS / 2];
}

static void measure(struct rn_team *team)
{
    double barrier[REPEATS], job[REPEATS], asleep[REPEATS];
    struct timespec pause = {0, 5000000};
    uint64_t waited, begin;
    int i, j;

    for (i = 0; i < REPEATS; i++) {
        barrier[i] = (double)run_job(team, BARRIERS, &waited) / BARRIERS;
        begin = now_ns();
        for (j = 0; j < JOBS; j++)
            run_job(team, 0, &waited);
        job[i] = (double)(now_ns() - begin) / JOBS;
        nanosleep(&pause, NULL);
        run_job(team, 0, &waited);
        asleep[i] = (double)waited;
    }
    printf("%3u threads: barrier %7.0f ns   job after job %8.0f ns   submit to run, asleep %8.0f ns\n",
           rn_team_threads(team), median(barrier), median(job), median(asleep));
}

int main(int argc, char **argv)
{
    uint32_t most = argc > 1 ? (uint32_t)atoi(argv[1]) : 4, n;
    struct rn_heap heap;
    struct rn_team *team;

    rn_heap_init(&heap, NULL);
    for (n = 1; n <= most; n++) {
        team = rn_team_new(&heap, n);
        if (team == NULL)
            return 1;
        measure(team);
        rn_team_free(team);
    }
    return 0;
}
