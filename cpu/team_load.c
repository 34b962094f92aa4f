/* Bringing the weights into memory before the first step: see fast.h.
 *
 * The file is mapped; reading a byte of each page is what reads it. The team does that, in jobs of a few
 * dozen megabytes, so that steps of other models stand between them. Within a job the workers take pieces of
 * the size of a huge page in order: a disk sees several readers close together, and the kernel, asked for huge
 * pages when the file was mapped, reads and maps each piece whole. Advice to read ahead (MADV_WILLNEED) is not
 * given: it fills the page cache with small pages, which then stay.
 * Runs on the thread that prepares, which sleeps while the team works, and on the team. */
#include <errno.h>
#include <semaphore.h>

#include "cpu/fast.h"

enum { PAGE = 4096, PIECE = 2 << 20, JOB_PIECES = 4, MOST_JOB_PIECES = 32 };

struct reading {
    struct rn_job job; /* first */
    const char *bytes;
    size_t n;
    _Atomic size_t next; /* relaxed: it only shares out */
    _Atomic uint32_t sink;
    sem_t done;
};

static uint32_t read_pages(const char *bytes, size_t n)
{
    const volatile char *at = bytes;
    uint32_t sum = 0;
    size_t i;

    for (i = 0; i < n; i += PAGE)
        sum += (uint32_t)at[i];
    return sum;
}

static void run(struct rn_job *job, uint32_t worker, uint32_t n_workers)
{
    struct reading *r = (struct reading *)job;
    uint32_t sum = 0;
    size_t at;

    (void)worker;
    (void)n_workers;
    while ((at = atomic_fetch_add_explicit(&r->next, PIECE, memory_order_relaxed)) < r->n)
        sum += read_pages(r->bytes + at, r->n - at < PIECE ? r->n - at : PIECE);
    atomic_fetch_add_explicit(&r->sink, sum, memory_order_relaxed);
}

static void done(struct rn_job *job)
{
    sem_post(&((struct reading *)job)->done);
}

/* Less than a piece is not worth a job. */
static void read_range(struct rn_team *team, struct reading *r, const char *bytes, size_t n)
{
    if (n < PIECE) {
        atomic_fetch_add_explicit(&r->sink, read_pages(bytes, n), memory_order_relaxed);
        return;
    }
    r->bytes = bytes;
    r->n = n;
    atomic_store_explicit(&r->next, 0, memory_order_relaxed); /* the submission orders it before the run */
    rn_team_submit(team, &r->job);
    while (sem_wait(&r->done) != 0 && errno == EINTR)
        ;
}

static float fraction(uint64_t part, uint64_t whole)
{
    return whole == 0 ? 1 : (float)((double)part / (double)whole);
}

runnel_status rn_fast_read_weights(struct rn_team *team, const struct rn_plan *plan, rn_progress_fn progress,
                                   void *user)
{
    struct reading r = {.job = {run, done, NULL}};
    uint32_t pieces = JOB_PIECES * rn_team_threads(team), i;
    size_t most = (size_t)PIECE * (pieces < MOST_JOB_PIECES ? pieces : MOST_JOB_PIECES), n;
    const struct rn_tensor *tensor;
    uint64_t at, read = 0;
    bool go_on = true;

    sem_init(&r.done, 0, 0);
    for (i = 0; go_on && i < plan->n_weights; i++) {
        tensor = plan->weights[i].tensor;
        for (at = 0; go_on && at < tensor->bytes; at += n) {
            n = tensor->bytes - at < most ? (size_t)(tensor->bytes - at) : most;
            read_range(team, &r, (const char *)tensor->data + at, n);
            read += n;
            go_on = progress == NULL || progress(user, fraction(read, plan->weight_bytes));
        }
    }
    sem_destroy(&r.done);
    return go_on ? RUNNEL_OK : RUNNEL_CANCELLED;
}
