/* Bringing the weights into memory before the first step: see fast.h.
 *
 * The file is mapped; reading a byte of each page is what reads it. The team does that, in jobs of a few
 * dozen megabytes, so that steps of other models stand between them. Within a job the workers take pieces of
 * the size of a huge page in order: a disk sees several readers close together, and the kernel, asked for huge
 * pages when the file was mapped, reads and maps each piece whole. Advice to read ahead (MADV_WILLNEED) is not
 * given: it fills the page cache with small pages, which then stay.
 *
 * What is laid into tiles (tiles.h) is read that way, too, into memory of the backend's own, and the file's pages are given
 * back job by job: at no time is much of a weight in memory twice.
 * Runs on the thread that prepares, which sleeps while the team works, and on the team. */
#include <errno.h>
#include <semaphore.h>

#include "cpu/fast.h"
#include "cpu/tiles.h"
#include "model/gguf.h"

enum { PAGE = 4096, PIECE = 2 << 20, JOB_PIECES = 4, MOST_JOB_PIECES = 32, RELEASE_EACH = 16 };

struct loading {
    struct rn_job job; /* first */
    struct rn_fast *fast;
    const struct rn_weight *weight;
    const char *bytes; /* [n] of the weight */
    size_t n, piece;
    uint8_t *to;         /* [n]: tiles; NULL: the bytes are read where they lie */
    _Atomic size_t next; /* relaxed: it only shares out */
    _Atomic uint32_t sink;
    sem_t done;
    uint64_t loaded; /* bytes of the plan */
    rn_progress_fn progress;
    void *user;
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

/* Bytes [at, at + n) of the job's. */
static uint32_t load_piece(const struct loading *l, size_t at, size_t n)
{
    const struct rn_weight *w = l->weight;

    if (l->to == NULL)
        return read_pages(l->bytes + at, n);
    rn_tiles_lay(w->type_id, w->cols, (uint32_t)(n / w->row_bytes), (const uint8_t *)l->bytes + at, l->to + at);
    return 0;
}

static void run(struct rn_job *job, uint32_t worker, uint32_t n_workers)
{
    struct loading *l = (struct loading *)job;
    uint32_t sum = 0;
    size_t at;

    (void)worker;
    (void)n_workers;
    while ((at = atomic_fetch_add_explicit(&l->next, l->piece, memory_order_relaxed)) < l->n)
        sum += load_piece(l, at, l->n - at < l->piece ? l->n - at : l->piece);
    atomic_fetch_add_explicit(&l->sink, sum, memory_order_relaxed);
}

static void done(struct rn_job *job)
{
    sem_post(&((struct loading *)job)->done);
}

/* Less than a piece is not worth a job. */
static void load_range(struct loading *l)
{
    if (l->n <= l->piece) {
        atomic_fetch_add_explicit(&l->sink, load_piece(l, 0, l->n), memory_order_relaxed);
        return;
    }
    atomic_store_explicit(&l->next, 0, memory_order_relaxed); /* the submission orders it before the run */
    rn_team_submit(l->fast->team, &l->job);
    while (sem_wait(&l->done) != 0 && errno == EINTR)
        ;
}

static float fraction(uint64_t part, uint64_t whole)
{
    return whole == 0 ? 1 : (float)((double)part / (double)whole);
}

/* Brings a weight into memory, into tiles at `to` unless that is NULL. False: loading is cancelled. */
static bool load_weight(struct loading *l, uint8_t *to)
{
    const struct rn_plan *plan = l->fast->plan;
    const struct rn_tensor *tensor = l->weight->tensor;
    uint32_t pieces = JOB_PIECES * rn_team_threads(l->fast->team);
    size_t tile = RN_TILE_ROWS * l->weight->row_bytes, most;
    bool go_on = true;
    uint64_t at;

    l->piece = to == NULL ? PIECE : rn_round_up(PIECE, tile);
    most = l->piece * (pieces < MOST_JOB_PIECES ? pieces : MOST_JOB_PIECES);
    for (at = 0; go_on && at < tensor->bytes; at += l->n) {
        l->bytes = (const char *)tensor->data + at;
        l->n = tensor->bytes - at < most ? (size_t)(tensor->bytes - at) : most;
        l->to = to == NULL ? NULL : to + at;
        load_range(l);
        if (to != NULL)
            rn_gguf_release(plan->gguf, l->bytes, l->n);
        l->loaded += l->n;
        go_on = l->progress == NULL || l->progress(l->user, fraction(l->loaded, plan->weight_bytes));
    }
    return go_on;
}

/* Gives the file's pages of all tiles up to weight n back once more: where the kernel maps huge pages, reading a weight has
 * brought pages of its neighbours along. */
static void release_tiled(const struct rn_fast *fast, uint32_t n)
{
    const struct rn_tensor *tensor;
    uint32_t i;

    for (i = 0; i < n; i++) {
        tensor = fast->plan->weights[i].tensor;
        if (fast->tiles[i] != NULL)
            rn_gguf_release(fast->plan->gguf, tensor->data, (size_t)tensor->bytes);
    }
}

runnel_status rn_fast_load_weights(struct rn_fast *fast, rn_progress_fn progress, void *user)
{
    struct loading l = {.job = {run, done, NULL}, .fast = fast, .progress = progress, .user = user};
    bool go_on = true;
    uint32_t i;

    sem_init(&l.done, 0, 0);
    for (i = 0; go_on && i < fast->plan->n_weights; i++) {
        l.weight = &fast->plan->weights[i];
        go_on = load_weight(&l, rn_fast_take_tiles(fast, i));
        if (i % RELEASE_EACH == RELEASE_EACH - 1)
            release_tiled(fast, i);
    }
    release_tiled(fast, i);
    sem_destroy(&l.done);
    return go_on ? RUNNEL_OK : RUNNEL_CANCELLED;
}
