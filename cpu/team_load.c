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
 * Where there is a place for tiles (tile_file.h), those that lie there are mapped and compared, piece by piece. If some are
 * missing, all are written there in the end and mapped, so that the next process and this one share them.
 * Runs on the thread that prepares, which sleeps while the team works, and on the team. */
#include <errno.h>
#include <semaphore.h>

#include <sys/mman.h>

#include "base/check.h"
#include "base/log.h"
#include "cpu/fast.h"
#include "cpu/tile_file.h"
#include "cpu/tiles.h"
#include "model/gguf.h"

enum {
    PAGE = 4096,
    PIECE = RN_TILE_FILE_PIECE /* is compared whole */,
    JOB_PIECES = 4,
    MOST_JOB_PIECES = 32,
    RELEASE_EACH = 16
};

struct loading {
    struct rn_job job; /* first */
    struct rn_fast *fast;
    const struct rn_weight *weight;
    const char *bytes; /* [n] of the weight */
    size_t n, piece;
    uint8_t *to;                        /* [n]: tiles; NULL: the bytes are read where they lie */
    const struct rn_tile_file *compare; /* where the bytes are compared as they are read; NULL: nowhere */
    uint32_t number;                    /* of the weight */
    size_t from;                        /* where in the weight the bytes begin */
    _Atomic bool differs;               /* relaxed: read when the job is done */
    _Atomic size_t next;                /* relaxed: it only shares out */
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
static uint32_t load_piece(struct loading *l, size_t at, size_t n)
{
    const struct rn_weight *w = l->weight;

    if (l->compare != NULL) {
        if (!rn_tile_file_good(l->compare, l->number, (l->from + at) / RN_TILE_FILE_PIECE))
            atomic_store_explicit(&l->differs, true, memory_order_relaxed);
        return 0;
    }
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

/* Goes through a weight's bytes at `from`, job by job. False: loading is cancelled. */
static bool load_bytes(struct loading *l, const uint8_t *from, uint8_t *to)
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
        l->from = at;
        l->bytes = (const char *)from + at;
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

/* Whether the tiles of the current weight, number i, are in the file as they were written. */
static bool is_good(struct loading *l, const struct rn_tile_file *file, uint32_t i, bool *go_on)
{
    l->compare = file;
    l->number = i;
    atomic_store_explicit(&l->differs, false, memory_order_relaxed);
    *go_on = load_bytes(l, rn_tile_file_weight(file, i), NULL);
    l->compare = NULL;
    return !atomic_load_explicit(&l->differs, memory_order_relaxed);
}

/* Uses the tiles of weight i in the tile file. False: it has none, or not as they were written. */
static bool load_mapped(struct loading *l, uint32_t i, bool *go_on)
{
    const struct rn_weights_place *place = l->fast->limits.weights_place;
    uint64_t before = l->loaded;

    if (rn_fast_map_tiles(l->fast, i) == NULL)
        return false;
    if (is_good(l, l->fast->tile_file, i, go_on))
        return true;
    rn_log(place->log, RUNNEL_LOG_WARNING, "%s: it is damaged; what is not right is made anew", place->path);
    rn_fast_forget_tiles(l->fast, i);
    l->loaded = before;
    return false;
}

/* Brings weight i into memory. False: loading is cancelled. */
static bool load_weight(struct loading *l, uint32_t i)
{
    bool go_on = true;

    l->weight = &l->fast->plan->weights[i];
    return load_mapped(l, i, &go_on) ? go_on : load_bytes(l, l->weight->tensor->data, rn_fast_take_tiles(l->fast, i));
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

/* ---- The tile file ---- */

static void free_tiles_of(struct rn_fast *fast, uint32_t i)
{
    size_t bytes = fast->plan->weights[i].tensor->bytes;

    if (fast->tiles[i] == NULL || fast->tiles[i] == rn_tile_file_weight(fast->tile_file, i))
        return;
    if (bytes >= PIECE && (uintptr_t)fast->tiles[i] % PAGE == 0) /* an allocator may keep what it gets back resident */
        (void)madvise(fast->tiles[i], bytes / PAGE * PAGE, MADV_DONTNEED);
    rn_free(fast->heap, fast->tiles[i]);
}

void rn_fast_free_tiles(struct rn_fast *fast)
{
    for (uint32_t i = 0; fast->tiles != NULL && i < fast->plan->n_weights; i++)
        free_tiles_of(fast, i);
    rn_free(fast->heap, fast->tiles);
    rn_tile_file_free(fast->tile_file);
}

static void open_tile_file(struct rn_fast *fast)
{
    const struct rn_weights_place *place = fast->limits.weights_place;
    runnel_error why = {0};

    fast->tile_file = rn_tile_file_open(fast->heap, place, fast->plan, &why);
    if (fast->tile_file == NULL && why.status != RUNNEL_OK)
        rn_log(place->log, RUNNEL_LOG_WARNING, "%s: %s; it is not used", place->path, why.message);
}

/* Whether all tiles lie in the file. */
static bool all_mapped(const struct rn_fast *fast)
{
    return rn_fast_mapped_bytes(&fast->base) == rn_fast_tiled_bytes(&fast->base);
}

/* Tiles in memory of the backend's own are read from the new file instead, one weight after the other, so that little is in
 * memory twice. */
static void move_to_file(struct loading *l)
{
    struct rn_fast *fast = l->fast;
    uint64_t loaded = l->loaded;
    const uint8_t *mapped;
    bool go_on = true;
    uint32_t i;

    l->progress = NULL; /* all is loaded */
    for (i = 0; i < fast->plan->n_weights; i++) {
        mapped = rn_tile_file_weight(fast->tile_file, i);
        l->weight = &fast->plan->weights[i];
        if (fast->tiles[i] == NULL || mapped == NULL || !is_good(l, fast->tile_file, i, &go_on))
            continue;
        free_tiles_of(fast, i);
        fast->tiles[i] = (uint8_t *)mapped; /* nobody writes into tiles that are laid */
    }
    l->loaded = loaded;
}

/* Writes the tile file where it lacks some of the tiles. A failure costs nothing but the next start's time. */
static void keep_tiles(struct loading *l)
{
    struct rn_fast *fast = l->fast;
    const struct rn_weights_place *place = fast->limits.weights_place;
    runnel_error error = {0};
    runnel_status status;

    if (all_mapped(fast))
        return;
    status = rn_tile_file_write(fast->heap, place, fast->plan, fast->tiles, fast->aheads, &error);
    if (status != RUNNEL_OK) {
        rn_log(place->log, status == RUNNEL_BUSY ? RUNNEL_LOG_INFO : RUNNEL_LOG_WARNING, "weights in tiles: %s",
               status == RUNNEL_BUSY ? "another process is writing them" : error.message);
        return;
    }
    rn_log(place->log, RUNNEL_LOG_INFO, "%s: written, %llu bytes of weights in tiles", place->path,
           (unsigned long long)rn_fast_tiled_bytes(&fast->base));
    if (fast->tile_file != NULL) /* some weights are read from the old file, which stays mapped */
        return;
    open_tile_file(fast);
    if (fast->tile_file != NULL)
        move_to_file(l);
}

runnel_status rn_fast_load_weights(struct rn_fast *fast, rn_progress_fn progress, void *user)
{
    struct loading l = {.job = {run, done, NULL}, .fast = fast, .progress = progress, .user = user};
    bool keeps = fast->limits.weights_place != NULL && fast->limits.weight_order != RUNNEL_WEIGHTS_FILE;
    bool go_on = true;
    uint32_t i;

    sem_init(&l.done, 0, 0);
    if (keeps)
        open_tile_file(fast);
    for (i = 0; go_on && i < fast->plan->n_weights; i++) {
        go_on = load_weight(&l, i);
        if (i % RELEASE_EACH == RELEASE_EACH - 1)
            release_tiled(fast, i);
    }
    release_tiled(fast, i);
    if (go_on && keeps)
        keep_tiles(&l);
    sem_destroy(&l.done);
    return go_on ? RUNNEL_OK : RUNNEL_CANCELLED;
}
