/* A lower priority for the compute team: see team.h. Each worker lowers its own, in a job, so that a thread's id need
 * not be known to others. */
#include <stdatomic.h>

#include "base/thread.h"
#include "cpu/team.h"

struct lower {
    struct rn_job job; /* first */
    uint32_t nice;
    _Atomic uint32_t refused;
};

static void run(struct rn_job *job, uint32_t worker, uint32_t n_workers)
{
    struct lower *lower = (struct lower *)job;

    (void)worker;
    (void)n_workers;
    if (!rn_thread_lower(lower->nice))
        atomic_fetch_add_explicit(&lower->refused, 1,
                                  memory_order_relaxed); /* read behind the job's end, which orders */
}

uint32_t rn_team_lower(struct rn_team *team, uint32_t nice)
{
    struct lower lower = {.job = {run, NULL, NULL}, .nice = nice};

    if (nice == 0)
        return 0;
    rn_team_run(team, &lower.job);
    return atomic_load_explicit(&lower.refused, memory_order_relaxed); /* the job's end orders */
}
