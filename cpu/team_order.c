/* In which order weights lie in memory: as in the file, or in tiles (tiles.h). Which is faster depends on the machine,
 * on how it fetches ahead and on its kernels, so it is tried: while the first weight of a format is loaded, a sample of
 * the format's weights is laid into tiles and multiplied as it lies and in tiles, which are read in several ways. The
 * bits are the same either way (law 5). A format has one order, and for each of RN_READINGS a way to read its tiles:
 * what is best for one input is not for four.
 *
 *     sample     rows of the weights of a format, in the file       [........|.....|...]   at most 24 MiB
 *                the same rows in tiles, in memory of the trial's   [........|.....|...]
 *     a worker   its share of each, in slices                       [0123|012|3012...     candidates by turns
 *
 * Each worker goes through its share slice by slice, each slice by the next candidate, which is another one in every
 * round; there are as many rounds as candidates. All workers are at the same candidate at a time: they share what the
 * memory gives, and beside others the one that looks furthest ahead would seem to be the fastest. A candidate is as fast
 * as its median slice. So whatever else the machine does meanwhile meets all of them.
 * The sample is dropped from the caches before each round: the third level of a server would hold it, and no step
 * reads its weights from there. What is small beside the caches stays as it lies, since nothing would be measured
 * there; what would fill most of the memory does, too, since pages of a file can be dropped and others cannot.
 * Runs on the thread that prepares, which sleeps while the team works, and on the team. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"
#include "base/clock.h"
#include "cpu/fast.h"
#include "cpu/levels/drop.h"
#include "cpu/tiles.h"

enum {
    MOST_ITEMS = 64,
    SLICE = 256 << 10, /* bytes, about */
    SLICE_ROWS = 64,   /* rows of a slice are a multiple: as many tiles as are met by turns at most */
    MOST_SLICES = 512, /* of a candidate that a worker remembers */
    PAGE = 4096
};

/* Tried with one input, with a few (one stream with drafts, or a few streams), and with those of many streams. What
 * counts for the order is how far behind the fastest candidate the best one of each order is, `weight` times, so that
 * the many inputs, which take longest, do not decide alone. */
static const struct {
    uint32_t inputs, weight;
} sizes[] = {{1, 2}, {2, 1}, {4, 1}, {8, 1}, {16, 1}};
enum { SIZES = sizeof sizes / sizeof *sizes, MOST_INPUTS = 16 };

/* Tiles are taken where they need at most so much of the time, in percent, and the file is at most so much of the
 * memory. */
enum { GAIN_PERCENT = 98, MEMORY_PERCENT = 60 };

/* What is tried. */
struct candidate {
    bool tiled;
    struct rn_reading reading;
};

static const struct candidate candidates[] = {
    {false, {0, 0}},
    {true, {1, 0}},
    {true, {1, RN_TILE_AHEAD}},
    {true, {2, RN_TILE_AHEAD}},
    {true, {RN_MOST_STREAMS, 0}},
    {true, {RN_MOST_STREAMS, RN_TILE_AHEAD}},
};
enum { IN_FILE, IN_TILES, CANDIDATES = sizeof candidates / sizeof *candidates };

/* What is found for a format. */
struct choice {
    bool tiled;
    struct rn_reading readings[RN_READINGS];
};

struct item {
    const struct rn_weight *weight;
    uint32_t rows;
    uint8_t *tiles;
};

struct trial {
    struct rn_job job; /* first */
    struct rn_fast *fast;
    bool lays; /* the job: tiles are laid; else products are timed */
    const struct rn_kernel *rows, *tiles;
    uint32_t first; /* candidate */
    uint32_t n_inputs;
    struct item items[MOST_ITEMS];
    uint32_t n;
    size_t bytes;
    void *input; /* of the widest */
    float *out;  /* [workers, out_floats] */
    size_t out_floats;
    struct samples *samples; /* [workers, CANDIDATES] */
};

/* What slices took, in ns for a KiB of weights. */
struct samples {
    uint32_t n;
    float ns[MOST_SLICES];
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

/* ---- Trial ---- */

/* With many inputs the way to read does not matter. */
static bool is_tried(const struct trial *t, uint32_t candidate)
{
    const struct rn_reading *reading = &candidates[candidate].reading;

    if (candidate < t->first || (candidate > IN_TILES && t->n_inputs > t->tiles->few))
        return false;
    return reading->streams <= 1 || reading->streams <= t->tiles->streams;
}

static uint32_t tried(const struct trial *t)
{
    uint32_t n = 0, k;

    for (k = 0; k < CANDIDATES; k++)
        n += is_tried(t, k);
    return n;
}

/* The next one of those that are tried. */
static uint32_t next_candidate(const struct trial *t, uint32_t candidate)
{
    do
        candidate = (candidate + 1) % CANDIDATES;
    while (!is_tried(t, candidate));
    return candidate;
}

/* The rows of the item that the worker lays, and reads. */
static struct rn_fast_rows share_of(const struct item *item, uint32_t worker, uint32_t n_workers)
{
    return rn_fast_share(item->rows, RN_TILE_ROWS, worker, worker + 1, n_workers);
}

/* Where the rows lie, as in the file or in tiles. */
static const uint8_t *at_rows(const struct item *item, bool tiled, uint32_t row)
{
    return (tiled ? item->tiles : (const uint8_t *)item->weight->tensor->data) + row * item->weight->row_bytes;
}

static void lay(const struct item *item, struct rn_fast_rows rows)
{
    const struct rn_weight *w = item->weight;

    rn_tiles_lay(w->type_id, w->cols, rows.n, at_rows(item, false, rows.first),
                 item->tiles + rows.first * w->row_bytes);
}

static void drop(const struct item *item, struct rn_fast_rows rows)
{
    (void)rn_drop(at_rows(item, false, rows.first), rows.n * item->weight->row_bytes);
    (void)rn_drop(at_rows(item, true, rows.first), rows.n * item->weight->row_bytes);
}

/* The rows of a slice of the item; those of the last one of a share are less than twice as many. */
static uint32_t slice_rows(const struct item *item)
{
    size_t rows = SLICE / item->weight->row_bytes / SLICE_ROWS * SLICE_ROWS;

    return rows < SLICE_ROWS ? SLICE_ROWS : (uint32_t)rows;
}

/* So many slices each worker's share of the item has. */
static uint32_t slices_of(const struct item *item, uint32_t n_workers)
{
    uint32_t n = item->rows / n_workers / slice_rows(item);

    return n > 0 ? n : 1;
}

static void time_slice(const struct trial *t, const struct rn_clock *clock, uint32_t worker, const struct item *item,
                       struct rn_fast_rows rows, uint32_t candidate)
{
    const struct candidate *how = &candidates[candidate];
    struct samples *s = &t->samples[worker * CANDIDATES + candidate];
    uint64_t begin = rn_now_ns(clock);

    rn_fast_try(t->fast, worker, how->tiled ? t->tiles : t->rows, item->weight, at_rows(item, how->tiled, rows.first),
                rows.n, how->tiled ? &how->reading : NULL, t->input, t->n_inputs, t->out + worker * t->out_floats);
    if (s->n < MOST_SLICES)
        s->ns[s->n++] = (float)(rn_now_ns(clock) - begin) * 1024 / (float)(rows.n * item->weight->row_bytes);
}

/* A worker's share of a job. */
static void run(struct rn_job *job, uint32_t worker, uint32_t n_workers)
{
    struct trial *t = (struct trial *)job;
    const struct rn_clock clock = rn_clock_machine();
    uint32_t begin = t->first, candidate, round, i, k, n;
    struct rn_fast_rows left;

    for (i = 0; i < t->n && t->lays; i++)
        lay(&t->items[i], share_of(&t->items[i], worker, n_workers));
    for (round = 0; !t->lays && round < tried(t); round++) {
        for (i = 0; i < t->n; i++)
            drop(&t->items[i], share_of(&t->items[i], worker, n_workers));
        rn_team_barrier(t->fast->team, worker);
        candidate = begin;
        begin = next_candidate(t, begin); /* a slice meets another one in the next round */
        for (i = 0; i < t->n; i++) {
            left = share_of(&t->items[i], worker, n_workers);
            for (k = slices_of(&t->items[i], n_workers); k > 0; k--, left.first += n, left.n -= n) {
                n = slice_rows(&t->items[i]) * (k == 1 ? 2 : 1);
                n = left.n < n ? left.n : n;
                if (n > 0)
                    time_slice(t, &clock, worker, &t->items[i], (struct rn_fast_rows){left.first, n}, candidate);
                candidate = next_candidate(t, candidate);
                rn_team_barrier(t->fast->team, worker);
            }
        }
    }
}

/* Rows of the weights of a type, from weight i on. */
static void choose_sample(struct trial *t, uint32_t i)
{
    const struct rn_plan *plan = t->fast->plan;
    uint32_t type_id = plan->weights[i].type_id, tile, rows;
    const struct rn_kernel *kernel;
    const struct rn_weight *w;

    for (; i < plan->n_weights && t->n < MOST_ITEMS && t->bytes < t->fast->most_sample; i++) {
        w = &plan->weights[i];
        if (w->type_id != type_id || (kernel = tiled_kernel(t->fast, i)) == NULL)
            continue;
        tile = kernel->tile;
        rows = (uint32_t)((t->fast->most_sample - t->bytes) / w->row_bytes / tile * tile);
        rows = rows < w->rows ? rows : w->rows;
        if (rows == 0)
            break;
        t->items[t->n++] = (struct item){.weight = w, .rows = rows};
        t->bytes += rows * w->row_bytes;
    }
}

/* Memory for the tiles, the input (zeros do), the output and the samples; NULL: refused. */
static uint8_t *take_memory(struct trial *t)
{
    uint32_t n_workers = rn_team_threads(t->fast->team), cols = 0, rows = 0, i;
    struct rn_heap *heap = t->fast->heap;
    uint8_t *tiles = rn_fast_take_huge(heap, t->bytes);
    size_t at = 0;

    for (i = 0; i < t->n; i++) {
        cols = t->items[i].weight->cols > cols ? t->items[i].weight->cols : cols;
        rows = 2 * slice_rows(&t->items[i]) > rows ? 2 * slice_rows(&t->items[i]) : rows;
        t->items[i].tiles = tiles == NULL ? NULL : tiles + at;
        at += t->items[i].rows * t->items[i].weight->row_bytes;
    }
    t->out_floats = (size_t)MOST_INPUTS * rows;
    t->input = rn_alloc_aligned(heap, rn_input_bytes(t->tiles->input, cols), 64);
    t->out = rn_alloc(heap, n_workers, t->out_floats * sizeof *t->out);
    t->samples = rn_alloc(heap, n_workers, CANDIDATES * sizeof *t->samples);
    if (tiles != NULL && t->input != NULL && t->out != NULL && t->samples != NULL) {
        memset(t->input, 0, rn_input_bytes(t->tiles->input, cols));
        return tiles;
    }
    rn_free(heap, tiles);
    return NULL;
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

/* What a candidate's products take, in ns for a KiB: the mean of the workers' medians; 0: nobody has met it. */
static double time_of(const struct trial *t, uint32_t candidate)
{
    uint32_t n_workers = rn_team_threads(t->fast->team), worker, n = 0;
    struct samples *s;
    double sum = 0;

    for (worker = 0; worker < n_workers; worker++) {
        s = &t->samples[worker * CANDIDATES + candidate];
        if (s->n == 0)
            continue;
        qsort(s->ns, s->n, sizeof *s->ns, by_value);
        sum += (double)s->ns[s->n / 2];
        n++;
    }
    return n == 0 ? 0 : sum / n;
}

/* What products with so many inputs take by each candidate; INFINITY: it is not tried. False: somebody was not met. */
static bool time_all(struct trial *t, uint32_t n_inputs, double *times)
{
    uint32_t k;

    t->n_inputs = n_inputs;
    for (k = 0; k < rn_team_threads(t->fast->team) * CANDIDATES; k++)
        t->samples[k].n = 0;
    rn_team_run(t->fast->team, &t->job);
    for (k = 0; k < CANDIDATES; k++) {
        times[k] = is_tried(t, k) ? time_of(t, k) : INFINITY;
        if (!(times[k] > 0))
            return false;
    }
    return true;
}

/* The fastest way to read tiles by number of inputs, and the order whose products are the fastest: the file's unless
 * tiles are clearly faster. `choice` stays where a machine has more threads than the sample has slices. */
static void choose(struct trial *t, struct choice *choice)
{
    double times[CANDIDATES], in_file = 0, in_tiles = 0, least;
    struct choice found = *choice;
    uint32_t best, i, k;

    t->lays = true;
    rn_team_run(t->fast->team, &t->job);
    t->lays = false;
    for (i = 0; i < SIZES; i++) {
        if (!time_all(t, sizes[i].inputs, times))
            return;
        for (best = IN_TILES, k = IN_TILES; k < CANDIDATES; k++)
            best = times[k] < times[best] ? k : best;
        if (sizes[i].inputs <= t->tiles->few)
            found.readings[rn_reading_of(sizes[i].inputs)] = candidates[best].reading;
        least = times[best] < times[IN_FILE] ? times[best] : times[IN_FILE];
        in_tiles += sizes[i].weight * times[best] / least;
        in_file += sizes[i].weight * times[IN_FILE] / least;
    }
    found.tiled = t->first > IN_FILE || in_tiles * 100 < in_file * GAIN_PERCENT;
    *choice = found;
}

/* What is best for the type of weight i, which has a kernel for tiles; of a choice that is tiled the ways to read tiles.
 * It stays where there is nothing to measure. */
static void measure(struct rn_fast *fast, uint32_t i, struct choice *choice)
{
    const struct rn_weight *w = &fast->plan->weights[i];
    struct trial t = {.job = {run, NULL, NULL},
                      .fast = fast,
                      .rows = fast->level->kernel(w->type_id),
                      .tiles = tiled_kernel(fast, i),
                      .first = choice->tiled ? IN_TILES : IN_FILE};
    uint8_t *tiles = NULL;

    RN_CHECK(t.rows != NULL && t.tiles != NULL && t.rows->input == t.tiles->input);
    choose_sample(&t, i);
    if (t.n == 0 || t.bytes < fast->least_sample ||
        fast->plan->weight_bytes > rn_cpu_memory_bytes() / 100 * MEMORY_PERCENT)
        return;
    tiles = take_memory(&t);
    if (tiles != NULL)
        choose(&t, choice);
    if (tiles != NULL) /* an allocator may keep what it gets back resident */
        (void)madvise(tiles, t.bytes / PAGE * PAGE, MADV_DONTNEED);
    rn_free(fast->heap, tiles);
    rn_free(fast->heap, t.input);
    rn_free(fast->heap, t.out);
    rn_free(fast->heap, t.samples);
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

/* Where tiles are wanted how they are read is tried all the same. */
static void decide(struct rn_fast *fast, uint32_t i)
{
    const runnel_weight_order order = fast->limits.weight_order;
    struct choice choice = {.tiled = order == RUNNEL_WEIGHTS_TILES};
    uint32_t type_id = fast->plan->weights[i].type_id, k;

    for (k = 0; k < RN_READINGS; k++)
        choice.readings[k] = (struct rn_reading){1, RN_TILE_AHEAD};
    if (order != RUNNEL_WEIGHTS_FILE)
        measure(fast, i, &choice);
    fast->orders[type_id] = choice.tiled ? RN_FAST_TILES : RN_FAST_ROWS;
    memcpy(fast->readings[type_id], choice.readings, sizeof choice.readings);
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
        use_kernel(fast, i, kernel);
    return fast->tiles[i];
}

const uint8_t *rn_fast_map_tiles(struct rn_fast *fast, uint32_t i)
{
    const uint8_t *tiles = rn_tile_file_weight(fast->tile_file, i);
    const struct rn_kernel *kernel = tiled_kernel(fast, i);
    uint32_t k;

    if (tiles == NULL || kernel == NULL || fast->limits.weight_order == RUNNEL_WEIGHTS_FILE)
        return NULL;
    fast->orders[fast->plan->weights[i].type_id] = RN_FAST_TILES;
    for (k = 0; k < RN_READINGS; k++)
        fast->readings[fast->plan->weights[i].type_id][k] = rn_tile_file_reading(fast->tile_file, i, k);
    fast->tiles[i] = (uint8_t *)tiles; /* nobody writes into tiles that are laid */
    use_kernel(fast, i, kernel);
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
