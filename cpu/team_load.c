/* Bringing the weights into memory before the first step: see fast.h.
 *
 * The file is mapped; reading a byte of each page is what reads it. The team does that, in jobs of a few
 * dozen megabytes, so that steps of other models stand between them. Within a job the workers take pieces of
 * the size of a huge page in order: a disk sees several readers close together, and the kernel, asked for huge
 * pages when the file was mapped, reads and maps each piece whole. Advice to read ahead (MADV_WILLNEED) is not
 * given: it fills the page cache with small pages, which then stay.
 *
 * On a machine of several memory nodes (nodes.h) the rows that the workers of a node have of each product are read by
 * these, too, and laid into tiles by them, so that the pages come to lie on that node: a job has a range of each
 * node's. Pages of a file that are in memory already stay where they are.
 *
 * What is laid into tiles (tiles.h) is read that way, too, into memory of the backend's own, and the file's pages are
 * given back job by job: at no time is much of a weight in memory twice.
 * Where there is a place for tiles (tile_file.h), those that lie there are mapped and compared, piece by piece. If some
 * are missing, all are written there in the end and mapped, so that the next process and this one share them.
 * Runs on the thread that prepares, which sleeps while the team works, and on the team. */

#include <sys/mman.h>

#include "base/check.h"
#include "base/log.h"
#include "cpu/fast.h"
#include "cpu/nodes.h"
#include "cpu/tile_file.h"
#include "cpu/tiles.h"
#include "model/gguf/gguf.h"

enum {
    PAGE = 4096,
    PIECE = RN_TILE_FILE_PIECE /* is compared whole */,
    JOB_PIECES = 4,
    MOST_JOB_PIECES = 32,
    RELEASE_EACH = 16
};

/* What the workers of one node go through: bytes [at, end) of a part of the weight, of which [next, turn) in a job. */
struct range {
    _Atomic size_t next; /* relaxed: it only shares out */
    size_t at, turn, end;
};

struct loading {
    struct rn_job job; /* first */
    struct rn_fast *fast;
    const struct rn_weight *weight;
    const uint8_t *from; /* the weight's bytes */
    uint8_t *to;         /* likewise, tiles; NULL: the bytes are read where they lie */
    size_t piece;
    struct range ranges[RN_MOST_NODES];
    const struct rn_tile_file *compare; /* where the bytes are compared as they are read; NULL: nowhere */
    uint32_t number;                    /* of the weight */
    _Atomic bool differs;               /* relaxed: read when the job is done */
    uint32_t damaged;                   /* weights whose tiles in the file were not as they were written */
    _Atomic uint32_t sink;
    uint64_t loaded; /* bytes of the plan */
    rn_progress_fn progress;
    void *user;
};

static uint32_t read_pages(const uint8_t *bytes, size_t n)
{
    const volatile uint8_t *at = bytes;
    uint32_t sum = 0;
    size_t i;

    for (i = 0; i < n; i += PAGE)
        sum += at[i];
    return sum;
}

/* Bytes [at, at + n) of the weight. */
static uint32_t load_piece(struct loading *l, size_t at, size_t n)
{
    const struct rn_weight *w = l->weight;

    if (l->compare != NULL) {
        if (!rn_tile_file_good(l->compare, l->number, at / RN_TILE_FILE_PIECE))
            atomic_store_explicit(&l->differs, true, memory_order_relaxed);
        return 0;
    }
    if (l->to == NULL)
        return read_pages(l->from + at, n);
    rn_tiles_lay(w->type_id, w->cols, (uint32_t)(n / w->row_bytes), l->from + at, l->to + at);
    return 0;
}

static void run(struct rn_job *job, uint32_t worker, uint32_t n_workers)
{
    struct loading *l = (struct loading *)job;
    struct range *r = &l->ranges[rn_team_node(l->fast->team, worker)];
    uint32_t sum = 0;
    size_t at;

    (void)n_workers;
    while ((at = atomic_fetch_add_explicit(&r->next, l->piece, memory_order_relaxed)) < r->turn)
        sum += load_piece(l, at, r->turn - at < l->piece ? r->turn - at : l->piece);
    atomic_fetch_add_explicit(&l->sink, sum, memory_order_relaxed);
}

static float fraction(uint64_t part, uint64_t whole)
{
    return whole == 0 ? 1 : (float)((double)part / (double)whole);
}

/* Gives each range its next turn, together about as much as a job is to have. Returns how many bytes they are. */
static size_t take_turns(struct loading *l)
{
    uint32_t threads = rn_team_threads(l->fast->team), nodes = rn_team_nodes(l->fast->team), pieces, i;
    size_t most, n = 0;
    struct range *r;

    pieces = JOB_PIECES * threads < MOST_JOB_PIECES ? JOB_PIECES * threads : MOST_JOB_PIECES;
    most = l->piece * (pieces > nodes ? pieces / nodes : 1);
    for (i = 0; i < nodes; i++) {
        r = &l->ranges[i];
        atomic_store_explicit(&r->next, r->at, memory_order_relaxed); /* the submission orders it before the run */
        r->turn = r->end - r->at < most ? r->end : r->at + most;
        n += r->turn - r->at;
    }
    return n;
}

/* Less than a piece is not worth a job, unless it matters who writes it. */
static void load_turns(struct loading *l, size_t n)
{
    if (n <= l->piece && rn_team_nodes(l->fast->team) == 1) {
        atomic_fetch_add_explicit(&l->sink, load_piece(l, l->ranges[0].at, n), memory_order_relaxed);
        return;
    }
    rn_team_run(l->fast->team, &l->job);
    for (uint32_t i = 0; i < rn_team_nodes(l->fast->team); i++) /* all that counts as loaded was */
        RN_CHECK(atomic_load_explicit(&l->ranges[i].next, memory_order_relaxed) >= l->ranges[i].turn);
}

/* Where node number i begins in [begin, end), which has the rows of a matrix: at the first row of its stretch, rounded
 * to what must not be taken apart. A node without workers, for which nobody reads, has nothing. */
static size_t border(const struct loading *l, size_t begin, size_t end, uint32_t i)
{
    const struct rn_team *team = l->fast->team;
    uint32_t first = rn_team_first(team, i), n = rn_team_threads(team);
    size_t unit = l->compare != NULL ? PIECE : l->to != NULL ? RN_TILE_ROWS * l->weight->row_bytes : PAGE;
    struct rn_fast_rows rows;

    if (first == n)
        return end;
    rows = rn_fast_share((uint32_t)((end - begin) / l->weight->row_bytes), RN_TILE_ROWS, 0, first, n);
    return begin + rows.n * l->weight->row_bytes / unit * unit;
}

/* Goes through bytes [begin, end) of the weight, job by job. False: loading is cancelled. */
static bool load_part(struct loading *l, size_t begin, size_t end)
{
    const struct rn_plan *plan = l->fast->plan;
    uint32_t nodes = rn_team_nodes(l->fast->team), i;
    bool go_on = true;
    struct range *r;
    size_t n;

    for (i = 0; i < nodes; i++) {
        l->ranges[i].at = border(l, begin, end, i);
        l->ranges[i].end = border(l, begin, end, i + 1);
    }
    while (go_on && (n = take_turns(l)) > 0) {
        load_turns(l, n);
        for (i = 0; i < nodes; i++) {
            r = &l->ranges[i];
            if (l->to != NULL)
                rn_gguf_release(plan->gguf, (const char *)l->from + r->at, r->turn - r->at);
            r->at = r->turn;
        }
        l->loaded += n;
        go_on = l->progress == NULL || l->progress(l->user, fraction(l->loaded, plan->weight_bytes));
    }
    return go_on;
}

/* Goes through a weight's bytes. Experts are matrices of their own, of which each node has a stretch. False: loading is
 * cancelled. */
static bool load_bytes(struct loading *l, const uint8_t *from, uint8_t *to)
{
    const struct rn_weight *w = l->weight;
    size_t bytes = (size_t)w->tensor->bytes, part = w->rows * w->row_bytes, at;
    bool go_on = true;

    l->from = from;
    l->to = to;
    l->piece = to == NULL ? PIECE : rn_round_up(PIECE, RN_TILE_ROWS * w->row_bytes);
    if (rn_team_nodes(l->fast->team) == 1 || l->compare != NULL || part == 0 || bytes % part != 0)
        part = bytes;
    for (at = 0; go_on && at < bytes; at += part)
        go_on = load_part(l, at, at + part);
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
    uint64_t before = l->loaded;

    if (rn_fast_map_tiles(l->fast, i) == NULL)
        return false;
    if (is_good(l, l->fast->tile_file, i, go_on))
        return true;
    l->damaged++;
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

/* Gives the file's pages of all tiles up to weight n back once more: where the kernel maps huge pages, reading a weight
 * has brought pages of its neighbours along. */
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

static void say_damage(const struct loading *l)
{
    const struct rn_weights_place *place = l->fast->limits.weights_place;

    if (l->damaged > 0)
        rn_log(place->log, RUNNEL_LOG_WARNING, "%s: it is damaged; %u of its weights are made anew", place->path,
               (unsigned)l->damaged);
}

/* Bytes of the tiles that belong into the file. */
static uint64_t bytes_for_file(const struct rn_fast *fast)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < fast->plan->n_weights; i++)
        if (fast->tiles[i] != NULL && rn_tile_file_keeps(fast->plan, i))
            bytes += fast->plan->weights[i].tensor->bytes;
    return bytes;
}

/* Tiles in memory of the backend's own are read from the new file instead, one weight after the other, so that little
 * is in memory twice. */
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
    uint64_t bytes = bytes_for_file(fast);
    runnel_error error = {0};
    runnel_status status;

    if (rn_fast_mapped_bytes(&fast->base) == bytes)
        return;
    status = rn_tile_file_write(fast->heap, place, fast->plan, fast->tiles, fast->readings, &error);
    if (status != RUNNEL_OK) {
        rn_log(place->log, status == RUNNEL_BUSY ? RUNNEL_LOG_INFO : RUNNEL_LOG_WARNING, "weights in tiles: %s",
               status == RUNNEL_BUSY ? "another process is writing them" : error.message);
        return;
    }
    rn_log(place->log, RUNNEL_LOG_INFO, "%s: written, %llu bytes of weights in tiles", place->path,
           (unsigned long long)bytes);
    if (fast->tile_file != NULL) /* some weights are read from the old file, which stays mapped */
        return;
    open_tile_file(fast);
    if (fast->tile_file != NULL)
        move_to_file(l);
}

runnel_status rn_fast_load_weights(struct rn_fast *fast, rn_progress_fn progress, void *user)
{
    struct loading l = {.job = {run, NULL, NULL}, .fast = fast, .progress = progress, .user = user};
    bool keeps = fast->limits.weights_place != NULL && fast->limits.weight_order != RUNNEL_WEIGHTS_FILE;
    bool go_on = true;
    uint32_t i;

    if (keeps)
        open_tile_file(fast);
    for (i = 0; go_on && i < fast->plan->n_weights; i++) {
        go_on = load_weight(&l, i);
        if (i % RELEASE_EACH == RELEASE_EACH - 1)
            release_tiled(fast, i);
    }
    release_tiled(fast, i);
    say_damage(&l);
    if (go_on && keeps)
        keep_tiles(&l);
    return go_on ? RUNNEL_OK : RUNNEL_CANCELLED;
}
