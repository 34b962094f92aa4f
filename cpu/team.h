/* The compute team: threads that run one job after another, each job on all of them.
 *
 * A job is a function called as run(job, worker, n_workers) on every thread of the team; inside it
 * the workers meet at rn_team_barrier. Between jobs the threads spin for a short while, then park. */
#ifndef RN_CPU_TEAM_H
#define RN_CPU_TEAM_H

#include "cpu/cpu.h"

struct rn_team;

struct rn_job {
    void (*run)(struct rn_job *job, uint32_t worker, uint32_t n_workers);
    void (*done)(struct rn_job *job); /* called once, on one worker, after all have returned from run; may submit */
    struct rn_job *next;
};

/* n_threads 0: one per physical core that the process may use (affinity mask, cgroup quota).
 * NULL on refusal of memory or threads. */
struct rn_team *rn_team_new(struct rn_heap *heap, uint32_t n_threads);

/* Likewise on the memory nodes that the files below `root` tell of (nodes.h), for tests. */
struct rn_team *rn_team_new_at(struct rn_heap *heap, uint32_t n_threads, const char *root);

/* Joins the threads; nothing is queued or running. NULL is allowed. */
void rn_team_free(struct rn_team *team);
uint32_t rn_team_threads(const struct rn_team *team);

/* Memory nodes that the workers are spread over; the node of a worker; the first worker of a node, of node number
 * rn_team_nodes the number of workers. */
uint32_t rn_team_nodes(const struct rn_team *team);
uint32_t rn_team_node(const struct rn_team *team, uint32_t worker);
uint32_t rn_team_first(const struct rn_team *team, uint32_t node);

/* Adds to the nice values of all threads, at most 19 in all, for good; returns how many were refused that. Blocks until
 * the jobs before have run. */
uint32_t rn_team_lower(struct rn_team *team, uint32_t nice);

/* Queues a job and returns at once; any thread. Jobs run in order. */
void rn_team_submit(struct rn_team *team, struct rn_job *job);

/* Likewise, and sleeps until all have returned from run: what they wrote is seen then. done is not called. Not on a
 * worker. */
void rn_team_run(struct rn_team *team, struct rn_job *job);

/* All workers of the running job meet here; what each wrote before is seen by all after. */
void rn_team_barrier(struct rn_team *team, uint32_t worker);

/* What a worker does while it waits: go_on is called again and again, each time for some ten nanoseconds, or not at
 * all. */
struct rn_meanwhile {
    void (*go_on)(struct rn_meanwhile *meanwhile);
};

/* rn_team_barrier, and meanwhile that. */
void rn_team_barrier_meanwhile(struct rn_team *team, uint32_t worker, struct rn_meanwhile *meanwhile);

/* Backends on a team, which must outlive them. NULL on refusal. The fast one has the machine's best level. */
struct rn_backend *rn_cpu_reference_new(struct rn_heap *heap, struct rn_team *team);
struct rn_backend *rn_cpu_backend_new(struct rn_heap *heap, struct rn_team *team);

/* What both can do, with a team of so many threads. */
struct rn_device_caps rn_cpu_caps(const struct rn_team *team);

/* See rn_device_kind.measure: some sixty passes of 20 ms to 300 ms. What belongs to a level is left to the caller, but
 * for its loops: rn_peak(its name). */
struct rn_peak;
runnel_status rn_cpu_measure(const struct rn_peak *peak, struct rn_heap *heap, struct rn_team *team,
                             bool (*is_unwanted)(void *user), void *user, runnel_machine *machine, runnel_error *error);

/* The machine's memory, as far as this process may have it; 0: not known. */
uint64_t rn_cpu_memory_bytes(void);

#endif
