/* The compute team: threads that run one job after another, each job on all of them.
 *
 * A job is a function called as run(job, worker, n_workers) on every thread of the team; inside it
 * the workers meet at rn_team_barrier. Between jobs the threads spin for a short while, then park. */
#ifndef RN_CPU_TEAM_H
#define RN_CPU_TEAM_H

#include "cpu/cpu.h"

struct rn_job {
    void (*run)(struct rn_job *job, uint32_t worker, uint32_t n_workers);
    void (*done)(struct rn_job *job); /* called once, on one worker, after all have returned from run; may submit */
    struct rn_job *next;
};

/* Queues a job and returns at once; any thread. Jobs run in order. */
void rn_team_submit(struct rn_team *team, struct rn_job *job);

/* All workers of the running job meet here; what each wrote before is seen by all after. */
void rn_team_barrier(struct rn_team *team, uint32_t worker);

#endif
