/* In which order weights lie in memory: as in the file, or in tiles (tiles.h). Which is faster depends on the machine,
 * on how it fetches ahead and on its kernels, so it is tried: while the first weight of a format is loaded, a sample of
 * the format's weights is laid into tiles and multiplied as it lies and in tiles, those with and without requests for
 * what comes next, in turn. The bits are the same either way (law 5).
 *
 *     sample     rows of the weights of a format, in the file       [........|.....|...]   at most SAMPLE bytes
 *                the same rows in tiles, in memory of the trial's   [........|.....|...]
 *
 * The sample is dropped from the caches before each product: the third level of a server would hold it, and no step
 * reads its weights from there. What is small beside the caches stays as it lies, since nothing would be measured
 * there; what would fill most of the memory does, too, since pages of a file can be dropped and others cannot.
 * Runs on the thread that prepares, which sleeps while the team works, and on the team. */
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"
#include "base/clock.h"
#include "cpu/fast.h"
#include "cpu/levels/drop.h"
#include "cpu/tiles.h"

enum { SAMPLE = 24 << 20, LEAST_SAMPLE = 16 << 20, MOST_ITEMS = 64, ROUNDS = 5, PAGE = 4096 };

/* Who is so far behind the fastest after a round, in percent, is tried no more. All are tried twice, so that nobody is
 * out because something else ran in his first round. */
static const uint8_t behind_percent[ROUNDS] = {255, 10, 5, 3, 0};

/* Tried with one input, which counts twice, with a few (one stream with drafts, or a few streams), and with those of
 * many streams. */
static const uint32_t inputs[] = {1, 1, 4, 16};
enum { SIZES = sizeof inputs / sizeof *inputs, MOST_INPUTS = 16 };

/* Tiles are taken where they need at most so much of the time, in percent, and the file is at most so much of the
 * memory. */
enum { GAIN_PERCENT = 98, MEMORY_PERCENT = 60 };

/* What is tried. */
struct candidate {
    bool tiled;
    uint8_t streams; /* tiles that a few inputs meet by turns */
    uint16_t ahead;  /* rn_matmul.ahead */
};

static const struct candidate candidates[] = {
    {false, 0, 0},
    {true, 1, 0},
    {true, 1, RN_TILE_AHEAD / 2},
    {true, 1, RN_TILE_AHEAD},
    {true, 2, RN_TILE_AHEAD},
    {true, RN_MOST_STREAMS, 0},
    {true, RN_MOST_STREAMS, RN_TILE_AHEAD},
};
enum { CANDIDATES = sizeof candidates / sizeof *candidates };

struct item {
    const struct rn_weight *weight;
    uint32_t rows;
    uint8_t *tiles;
};

struct trial {
    struct rn_job job; /* first */
    struct rn_fast *fast;
    enum { LAY, DROP, MULTIPLY } what;
    const struct rn_kernel *kernel;
    const struct candidate *candidate;
    uint32_t n_inputs;
    struct item items[MOST_ITEMS];
    uint32_t n;
    size_t bytes;
    void *input; /* of the widest */
    float *out;  /* of the highest, of MOST_INPUTS */
};

/* The kernel for the weight's tiles; NULL: it is no matrix of products, or there is none for it. */
static const struct rn_kernel *tiled_kernel(const struct rn_fast *fast, uint32_t i)
{
    const struct rn_weight *weight = &fast->plan->weights[i];
    const struct rn_kernel *kernel =
        fast->level->tiled == NULL || weight->type_id >= RN_FAST_TYPES ? NULL : fast->level->tiled(weight->type_id);
    const struct rn_kernel *found = NULL;
    const struct rn_op *op;
    uint32_t k;

    if (kernel == NULL || weight->rows % kernel->tile != 0)
        return NULL;
    for (k = 0; k < fast->program.n; k++) {
        op = fast->program.list[k].op;
        if (op == NULL || op->weight != (int32_t)i)
            continue;
        if (op->kind == RN_OP_HEAD_SUM || (op->kind == RN_OP_HEAD_MATMUL && op->k_dim < weight->rows))
            return NULL; /* parts of each matrix are read */
        if (fast->program.list[k].kernel != NULL)
            found = kernel;
    }
    return found;
}

/* The kernel, with so many streams as far as it has them. */
static struct rn_kernel in_streams(const struct rn_kernel *kernel, uint32_t streams)
{
    struct rn_kernel own = *kernel;

    own.direct_tile = RN_TILE_ROWS * (streams <= kernel->streams && streams > 0 ? streams : 1);
    return own;
}

/* ---- Trial ---- */

static const uint8_t *matrix_of(const struct trial *t, const struct item *item)
{
    return t->candidate->tiled ? item->tiles : item->weight->tensor->data;
}

/* One worker's part of the item. */
static void drop(const struct trial *t, const struct item *item, uint32_t worker, uint32_t n_workers)
{
    size_t bytes = item->rows * item->weight->row_bytes, first = bytes / n_workers * worker;
    size_t end = worker + 1 == n_workers ? bytes : bytes / n_workers * (worker + 1);

    (void)rn_drop(matrix_of(t, item) + first, end - first);
}

/* The rows of the item that the worker will read. */
static void lay(const struct item *item, uint32_t worker, uint32_t n_workers)
{
    const struct rn_weight *w = item->weight;
    struct rn_fast_rows rows = rn_fast_share(item->rows, RN_TILE_ROWS, worker, worker + 1, n_workers);
    size_t at = rows.first * w->row_bytes;

    rn_tiles_lay(w->type_id, w->cols, rows.n, (const uint8_t *)w->tensor->data + at, item->tiles + at);
}

static void run(struct rn_job *job, uint32_t worker, uint32_t n_workers)
{
    struct trial *t = (struct trial *)job;
    const struct item *item;
    uint32_t i;

    for (i = 0; i < t->n; i++) {
        item = &t->items[i];
        if (t->what == MULTIPLY)
            rn_fast_try(t->fast, worker, n_workers, t->kernel, item->weight, matrix_of(t, item), item->rows,
                        t->candidate->ahead, t->input, t->n_inputs, t->out);
        else if (t->what == DROP)
            drop(t, item, worker, n_workers);
        else
            lay(item, worker, n_workers);
    }
}

static uint64_t time_us(struct trial *t)
{
    const struct rn_clock clock = rn_clock_machine();
    uint64_t begin = rn_now_us(&clock);

    rn_team_run(t->fast->team, &t->job);
    return rn_now_us(&clock) - begin;
}

/* Of a product with n inputs, from memory as far as the processor lets that be seen to. */
static uint64_t time_product(struct trial *t, uint32_t n)
{
    t->n_inputs = n;
    t->what = DROP;
    time_us(t);
    t->what = MULTIPLY;
    return time_us(t);
}

/* Rows of the weights of a type, from weight i on. */
static void choose_sample(struct trial *t, uint32_t i)
{
    const struct rn_plan *plan = t->fast->plan;
    uint32_t type_id = plan->weights[i].type_id, tile, rows;
    const struct rn_kernel *kernel;
    const struct rn_weight *w;

    for (; i < plan->n_weights && t->n < MOST_ITEMS && t->bytes < SAMPLE; i++) {
        w = &plan->weights[i];
        if (w->type_id != type_id || (kernel = tiled_kernel(t->fast, i)) == NULL)
            continue;
        tile = kernel->tile;
        rows = (uint32_t)((SAMPLE - t->bytes) / w->row_bytes / tile * tile);
        rows = rows < w->rows ? rows : w->rows;
        if (rows == 0)
            break;
        t->items[t->n++] = (struct item){.weight = w, .rows = rows};
        t->bytes += rows * w->row_bytes;
    }
}

/* Memory for the tiles, the input (zeros do) and the output; NULL tiles: refused. */
static uint8_t *take_memory(struct trial *t)
{
    struct rn_heap *heap = t->fast->heap;
    uint32_t cols = 0, rows = 0, i;
    uint8_t *tiles = rn_fast_take_huge(heap, t->bytes);
    size_t at = 0;

    for (i = 0; i < t->n; i++) {
        cols = t->items[i].weight->cols > cols ? t->items[i].weight->cols : cols;
        rows = t->items[i].rows > rows ? t->items[i].rows : rows;
        t->items[i].tiles = tiles == NULL ? NULL : tiles + at;
        at += t->items[i].rows * t->items[i].weight->row_bytes;
    }
    t->input = rn_alloc_aligned(heap, rn_input_bytes(t->kernel->input, cols), 64);
    t->out = rn_alloc(heap, rows, MOST_INPUTS * sizeof *t->out);
    if (tiles != NULL && t->input != NULL && t->out != NULL) {
        memset(t->input, 0, rn_input_bytes(t->kernel->input, cols));
        return tiles;
    }
    rn_free(heap, tiles);
    return NULL;
}

/* The best times of a candidate so far. */
struct times {
    uint64_t us[SIZES];
    bool out; /* it is tried no more */
};

static uint64_t sum_of(const struct times *times)
{
    uint64_t sum = 0;
    int n;

    for (n = 0; n < SIZES; n++)
        sum += times->us[n];
    return sum;
}

/* The candidate's products once more, each of which keeps its best time. */
static void time_candidate(struct trial *t, const struct candidate *candidate, const struct rn_kernel *rows,
                           const struct rn_kernel *tiles, struct times *best)
{
    struct rn_kernel own = in_streams(tiles, candidate->streams);
    uint64_t took;
    int n;

    t->candidate = candidate;
    t->kernel = candidate->tiled ? &own : rows;
    for (n = 0; n < SIZES; n++) {
        took = time_product(t, inputs[n]);
        best->us[n] = took < best->us[n] ? took : best->us[n];
    }
}

/* The fastest candidate so far; those that are `percent` of its time behind are out. */
static uint32_t drop_slow(struct times *best, uint32_t percent)
{
    uint32_t k, found = CANDIDATES;

    for (k = 0; k < CANDIDATES; k++)
        if (!best[k].out && (found == CANDIDATES || sum_of(&best[k]) < sum_of(&best[found])))
            found = k;
    for (k = 0; k < CANDIDATES; k++)
        best[k].out = best[k].out || sum_of(&best[k]) * 100 > sum_of(&best[found]) * (100 + percent);
    return found;
}

/* The candidate from the first-th on whose products were the fastest, each the best of a few rounds in turn; the file's
 * order unless another is clearly faster. */
static const struct candidate *fastest(struct trial *t, const struct rn_kernel *rows, const struct rn_kernel *tiles,
                                       uint32_t first)
{
    struct times best[CANDIDATES];
    uint32_t i, k, found = first;

    memset(best, 0x0f, sizeof best); /* longer than anything takes */
    for (k = 0; k < CANDIDATES; k++)
        best[k].out = k < first || (candidates[k].streams > 1 && candidates[k].streams > tiles->streams);
    t->what = LAY;
    time_us(t);
    for (i = 0; i < ROUNDS; i++) {
        for (k = 0; k < CANDIDATES; k++)
            if (!best[k].out)
                time_candidate(t, &candidates[k], rows, tiles, &best[k]);
        found = drop_slow(best, behind_percent[i]);
    }
    return &candidates[first == 0 && sum_of(&best[found]) * 100 >= sum_of(&best[0]) * GAIN_PERCENT ? 0 : found];
}

/* What is best for the type of weight i, which has a kernel for tiles, of the candidates from the first-th on; `usual`
 * where there is nothing to measure. */
static const struct candidate *measure(struct rn_fast *fast, uint32_t i, uint32_t first, const struct candidate *usual)
{
    const struct rn_weight *w = &fast->plan->weights[i];
    struct trial t = {.job = {run, NULL, NULL}, .fast = fast, .kernel = tiled_kernel(fast, i)};
    const struct rn_kernel *rows = fast->level->kernel(w->type_id);
    const struct candidate *best = usual;
    uint8_t *tiles = NULL;

    RN_CHECK(rows != NULL && t.kernel != NULL && rows->input == t.kernel->input);
    choose_sample(&t, i);
    if (t.bytes < LEAST_SAMPLE || fast->plan->weight_bytes > rn_cpu_memory_bytes() / 100 * MEMORY_PERCENT)
        return best;
    tiles = take_memory(&t);
    if (tiles != NULL)
        best = fastest(&t, rows, t.kernel, first);
    if (tiles != NULL) /* an allocator may keep what it gets back resident */
        (void)madvise(tiles, t.bytes / PAGE * PAGE, MADV_DONTNEED);
    rn_free(fast->heap, tiles);
    rn_free(fast->heap, t.input);
    rn_free(fast->heap, t.out);
    return best;
}

/* ---- Tiles ---- */

/* Products with the weight read rows or tiles from now on, for which `kernel` is. */
static void use_kernel(struct rn_fast *fast, uint32_t i, const struct rn_kernel *kernel)
{
    struct rn_instruction *in;
    uint32_t k;

    for (k = 0; k < fast->program.n; k++) {
        in = &fast->program.list[k];
        if (in->kernel != NULL && in->op->weight == (int32_t)i) {
            RN_CHECK(in->input == kernel->input);
            in->kernel = kernel;
        }
    }
}

/* Products with the weight read tiles from now on. */
static void use_tiles(struct rn_fast *fast, uint32_t i, const struct rn_kernel *kernel)
{
    uint32_t type_id = fast->plan->weights[i].type_id;

    fast->tiled[type_id] = in_streams(kernel, fast->streams[type_id]);
    use_kernel(fast, i, &fast->tiled[type_id]);
}

/* Where tiles are wanted how they are read is tried all the same. */
static void decide(struct rn_fast *fast, uint32_t i)
{
    static const struct candidate in_tiles = {true, 1, RN_TILE_AHEAD};
    uint32_t type_id = fast->plan->weights[i].type_id;
    const struct candidate *best = fast->limits.weight_order == RUNNEL_WEIGHTS_FILE ? candidates
                                   : fast->limits.weight_order == RUNNEL_WEIGHTS_TILES
                                       ? measure(fast, i, 1, &in_tiles)
                                       : measure(fast, i, 0, candidates);

    fast->orders[type_id] = best->tiled ? RN_FAST_TILES : RN_FAST_ROWS;
    fast->aheads[type_id] = best->ahead;
    fast->streams[type_id] = best->streams;
}

uint8_t *rn_fast_take_tiles(struct rn_fast *fast, uint32_t i)
{
    const struct rn_weight *w = &fast->plan->weights[i];
    const struct rn_kernel *kernel = tiled_kernel(fast, i);

    if (kernel == NULL)
        return NULL;
    if (fast->orders[w->type_id] == RN_FAST_UNDECIDED)
        decide(fast, i);
    if (fast->orders[w->type_id] == RN_FAST_TILES)
        fast->tiles[i] = rn_fast_take_huge(fast->heap, w->tensor->bytes);
    if (fast->tiles[i] != NULL)
        use_tiles(fast, i, kernel);
    return fast->tiles[i];
}

const uint8_t *rn_fast_map_tiles(struct rn_fast *fast, uint32_t i)
{
    const uint8_t *tiles = rn_tile_file_weight(fast->tile_file, i);
    const struct rn_kernel *kernel = tiled_kernel(fast, i);

    if (tiles == NULL || kernel == NULL || fast->limits.weight_order == RUNNEL_WEIGHTS_FILE)
        return NULL;
    fast->orders[fast->plan->weights[i].type_id] = RN_FAST_TILES;
    fast->aheads[fast->plan->weights[i].type_id] = rn_tile_file_ahead(fast->tile_file, i);
    fast->streams[fast->plan->weights[i].type_id] = rn_tile_file_streams(fast->tile_file, i);
    fast->tiles[i] = (uint8_t *)tiles; /* nobody writes into tiles that are laid */
    use_tiles(fast, i, kernel);
    return tiles;
}

void rn_fast_forget_tiles(struct rn_fast *fast, uint32_t i)
{
    const struct rn_kernel *kernel = fast->level->kernel(fast->plan->weights[i].type_id);

    RN_CHECK(kernel != NULL);
    fast->tiles[i] = NULL;
    use_kernel(fast, i, kernel);
}

static uint64_t bytes_in_tiles(const struct rn_fast *fast, bool mapped_only)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < fast->plan->n_weights; i++)
        if (fast->tiles[i] != NULL && (!mapped_only || fast->tiles[i] == rn_tile_file_weight(fast->tile_file, i)))
            bytes += fast->plan->weights[i].tensor->bytes;
    return bytes;
}

uint64_t rn_fast_tiled_bytes(const struct rn_backend *backend)
{
    return bytes_in_tiles((const struct rn_fast *)backend, false);
}

uint64_t rn_fast_mapped_bytes(const struct rn_backend *backend)
{
    return bytes_in_tiles((const struct rn_fast *)backend, true);
}
