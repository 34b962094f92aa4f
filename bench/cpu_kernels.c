/* Speed of the matrix products of the fast CPU backend, for every format, beside what the machine gave in the
 * same run.
 *
 *     cpu_kernels [threads [level [format]]]
 *
 * Rows as they lie, and where the level has a kernel for it the same weights in tiles (cpu/tiles.h), in turn. One
 * product of the shape of a feed-forward layer, 5632 x 2048 weights, on a team of threads that take rows as the backend
 * does. GB/s counts weight bytes with one input, over as many copies of the matrix as exceed the caches: of seven
 * rounds the best and the median; then from the second-level cache, every worker with rows of its own. GFLOP/s counts
 * two per weight and input. Percent: of the read bandwidth, and of the level's peak in products of bytes (of floats for
 * F32, F16, BF16), both measured on the same team: see cpu/levels/peak.h. */
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/rng.h"
#include "cpu/kernels.h"
#include "cpu/levels/peak.h"
#include "cpu/team.h"

enum {
    ROWS = 5632,
    COLS = 2048,
    MAX_N = 256,
    BATCH = 256,
    ROUNDS = 2000000,
    TURNS = 7,
    CACHED = 400,
    CACHED_ROWS = 128
};

static const size_t weights_bytes = (size_t)640 << 20; /* of all copies together */

struct work {
    struct rn_job job; /* first */
    const struct rn_kernel *kernel;
    const struct rn_type *type;
    const uint8_t *weights;
    const char *inputs;
    float *out;
    void *panels[64];
    uint32_t n, copies;
    const struct rn_peak *peak;
    enum { PRODUCT, CACHE, READ, INTEGER, REAL } what;
    _Atomic uint32_t next;
    _Atomic uint64_t sink;
    sem_t done;
};

/* Rows that are handed over together. */
static uint32_t height_of(const struct work *w)
{
    return w->n >= w->kernel->pack_from ? rn_kernel_panel(w->kernel, COLS) : rn_kernel_height(w->kernel, w->n);
}

static void tile(const struct work *w, const uint8_t *matrix, uint32_t row, uint32_t step, void *panel)
{
    struct rn_matmul m = {.row_bytes = rn_type_bytes(w->type, COLS),
                          .rows = height_of(w),
                          .step = step,
                          .ahead = RN_TILE_AHEAD,
                          .cols = COLS,
                          .type = w->type,
                          .panel = panel};
    uint32_t i, j;

    m.weights = matrix + row * m.row_bytes;
    if (w->n >= w->kernel->pack_from)
        w->kernel->pack(&m);
    for (i = 0; i < w->n; i += m.n) {
        m.n = rn_kernel_inputs(w->kernel, w->n - i);
        for (j = 0; j < m.n; j++) {
            m.inputs[j] = w->inputs + (i + j) * rn_input_bytes(w->kernel->input, COLS);
            m.out[j] = w->out + (size_t)(i + j) * ROWS + row;
        }
        if (rn_kernel_gathers(w->kernel, w->n))
            w->kernel->gather(&m); /* for each tile, where the executor does it once for a worker's share */
        (w->n >= w->kernel->pack_from ? w->kernel->packed : w->kernel->direct)(&m);
    }
}

/* Rows [first, first + n). */
static void batch(const struct work *w, const uint8_t *matrix, uint32_t first, uint32_t n, void *panel)
{
    uint32_t height = height_of(w), row, i;
    uint32_t step = rn_kernel_step(w->kernel, w->n);

    if (step > n / height)
        step = n / height;
    for (row = first; row < first + n; row += height * step)
        for (i = 0; i < step; i++)
            tile(w, matrix, row + i, step, panel);
}

static void run(struct rn_job *job, uint32_t worker, uint32_t n_workers)
{
    struct work *w = (struct work *)job;
    size_t matrix = ROWS * rn_type_bytes(w->type, COLS);
    uint32_t pieces = ROWS / BATCH, i;
    size_t share = weights_bytes / n_workers / RN_PEAK_BYTES * RN_PEAK_BYTES;
    uint64_t sink = 0;

    if (w->what == READ)
        sink = w->peak->read(w->weights + worker * share, share);
    else if (w->what == INTEGER)
        sink = w->peak->integer(ROUNDS);
    else if (w->what == REAL)
        sink = w->peak->real(ROUNDS);
    atomic_fetch_add_explicit(&w->sink, sink, memory_order_relaxed);
    for (i = 0; w->what == CACHE && i < CACHED; i++)
        batch(w, w->weights + worker * matrix, 0, CACHED_ROWS, w->panels[worker]);
    if (w->what != PRODUCT)
        return;
    while ((i = atomic_fetch_add_explicit(&w->next, 1, memory_order_relaxed)) < pieces * w->copies)
        batch(w, w->weights + i / pieces * matrix, i % pieces * BATCH, BATCH, w->panels[worker]);
}

static void done(struct rn_job *job)
{
    sem_post(&((struct work *)job)->done);
}

/* In seconds. */
static double measure_once(struct rn_team *team, struct work *w)
{
    struct rn_clock clock = rn_clock_machine();
    uint64_t begin = rn_now_us(&clock);

    atomic_store(&w->next, 0);
    rn_team_submit(team, &w->job);
    sem_wait(&w->done);
    return (double)(rn_now_us(&clock) - begin) * 1e-6;
}

/* The fastest of five. */
static double measure(struct rn_team *team, struct work *w)
{
    double best = measure_once(team, w), took;
    int i;

    for (i = 0; i < 4; i++) {
        took = measure_once(team, w);
        best = took < best ? took : best;
    }
    return best;
}

/* Bytes that are sane in the format: halves of about 0.1 wherever a block has its scale, floats of about 1, and
 * scales that are codes of about 1. */
static void fill(uint8_t *weights, uint32_t type_id)
{
    uint64_t seed = 1, mask = 0x2f2f2f2f2f2f2f2fu, ones = 0, x;
    size_t block = rn_type(type_id)->bytes, i;

    if (type_id == RN_F32)
        ones = 0x3f8000003f800000u;
    else if (type_id == RN_BF16)
        ones = 0x3f803f803f803f80u;
    else if (type_id == RN_MXFP4) { /* a scale is a byte, which stands elsewhere in a tile: any byte is one */
        mask = 0x0303030303030303u;
        ones = 0x7c7c7c7c7c7c7c7cu;
    }
    for (i = 0; i < weights_bytes; i += 8) {
        x = (rn_splitmix64(&seed) & mask) | ones;
        memcpy(weights + i, &x, 8);
    }
    for (i = 0; type_id == RN_NVFP4 && i + block <= weights_bytes; i += block)
        memset(weights + i, 0x34, 4);
}

struct machine {
    double read, integer, real; /* per second */
};

static void quantise(const struct rn_level *level, const struct work *w, const float *a)
{
    size_t bytes = rn_input_bytes(w->kernel->input, COLS), i;

    for (i = 0; i < MAX_N; i++) {
        if (w->kernel->input == RN_INPUT_F32)
            memcpy((char *)w->inputs + i * bytes, a, COLS * sizeof *a);
        else
            rn_quantise(level->rows, w->kernel->input, a, (char *)w->inputs + i * bytes, COLS);
    }
}

static int compare(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* GB/s with one input: the kernels in turn, so that what else the machine does meets all of them. */
static void bench_one(struct rn_team *team, struct work *w, const struct rn_kernel *const *kernels, size_t n,
                      double best[2], double median[2])
{
    size_t matrix = ROWS * rn_type_bytes(w->type, COLS), k;
    double took[2][TURNS], bytes;
    int i;

    w->n = 1;
    w->copies = (uint32_t)(weights_bytes / matrix);
    bytes = (double)matrix * w->copies * 1e-9;
    for (i = 0; i < TURNS; i++)
        for (k = 0; k < n; k++) {
            w->kernel = kernels[k];
            took[k][i] = measure_once(team, w);
        }
    for (k = 0; k < n; k++) {
        qsort(took[k], TURNS, sizeof took[k][0], compare);
        best[k] = bytes / took[k][0];
        median[k] = bytes / took[k][TURNS / 2];
    }
}

static double bench_cached(struct rn_team *team, struct work *w)
{
    double bytes = (double)rn_type_bytes(w->type, COLS) * CACHED_ROWS * CACHED * rn_team_threads(team), took;

    w->what = CACHE;
    took = measure(team, w);
    w->what = PRODUCT;
    return bytes / took * 1e-9;
}

static void bench_many(struct rn_team *team, struct work *w, const struct machine *machine)
{
    static const uint32_t counts[] = {2, 4, 8, 16, 64, MAX_N};
    double peak = w->kernel->input == RN_INPUT_F32 ? machine->real : machine->integer, took = 1;
    uint32_t most = (uint32_t)(weights_bytes / (ROWS * rn_type_bytes(w->type, COLS)));
    size_t i;

    for (i = 0; i < sizeof counts / sizeof *counts; i++) {
        w->n = counts[i];
        w->copies = counts[i] == MAX_N ? 1 : counts[i] > 16 ? 4 : most < 16 ? most : 16;
        took = measure(team, w) / w->copies;
        printf(" %6.0f", 2.0 * ROWS * COLS * counts[i] / took * 1e-9);
    }
    printf(" %4.0f%%\n", 2.0 * ROWS * COLS * MAX_N / took / peak * 100);
    fflush(stdout);
}

static void bench_type(struct rn_team *team, const struct rn_level *level, struct work *w, uint32_t type_id,
                       const float *a, const struct machine *machine)
{
    const struct rn_kernel *kernels[2] = {level->kernel(type_id), level->tiled == NULL ? NULL : level->tiled(type_id)};
    size_t n = kernels[1] == NULL ? 1 : 2, k;
    double best[2], median[2];

    w->type = rn_type(type_id);
    kernels[0] = kernels[0] == NULL ? level->other : kernels[0];
    w->kernel = kernels[0];
    fill((uint8_t *)w->weights, type_id);
    quantise(level, w, a);
    bench_one(team, w, kernels, n, best, median);
    for (k = 0; k < n; k++) {
        w->n = 1;
        w->kernel = kernels[k];
        printf("%-7s %-5s %5.1f %5.1f %4.0f%% %6.1f", w->type->name, k == 0 ? "rows" : "tiles", best[k], median[k],
               best[k] / machine->read * 1e11, bench_cached(team, w));
        bench_many(team, w, machine);
    }
}

static struct machine measure_machine(struct rn_team *team, struct work *w)
{
    uint32_t threads = rn_team_threads(team);
    struct machine machine;

    w->type = rn_type(RN_F32);
    fill((uint8_t *)w->weights, RN_F32);
    w->what = READ;
    machine.read = (double)weights_bytes / measure(team, w);
    w->what = INTEGER;
    machine.integer = w->peak->integer_ops * ROUNDS * threads / measure(team, w);
    w->what = REAL;
    machine.real = w->peak->real_ops * ROUNDS * threads / measure(team, w);
    w->what = PRODUCT;
    return machine;
}

int main(int argc, char **argv)
{
    static const uint32_t types[] = {RN_F32,     RN_F16,   RN_BF16,  RN_Q8_0,  RN_Q4_0,    RN_Q4_1,  RN_Q5_0,
                                     RN_Q5_1,    RN_Q4_K,  RN_Q5_K,  RN_Q6_K,  RN_Q2_K,    RN_Q3_K,  RN_IQ4_NL,
                                     RN_IQ4_XS,  RN_MXFP4, RN_NVFP4, RN_IQ3_S, RN_IQ3_XXS, RN_IQ2_S, RN_IQ2_XS,
                                     RN_IQ2_XXS, RN_IQ1_M, RN_IQ1_S, RN_TQ1_0, RN_TQ2_0};
    static float a[COLS];
    const struct rn_level *level = argc > 2 ? rn_level_named(argv[2]) : rn_level_best();
    struct work w = {.job = {run, done, NULL}};
    struct machine machine;
    struct rn_heap heap;
    struct rn_team *team;
    size_t i;

    rn_heap_init(&heap, NULL);
    team = rn_team_new(&heap, argc > 1 ? (uint32_t)atoi(argv[1]) : 0);
    w.weights = rn_alloc_aligned(&heap, weights_bytes, 1 << 21);
    if (w.weights != NULL) /* advice only */
        (void)madvise((void *)w.weights, weights_bytes, MADV_HUGEPAGE);
    w.inputs = rn_alloc_aligned(&heap, (size_t)MAX_N * COLS * 4, 64);
    w.out = rn_alloc(&heap, (size_t)MAX_N * ROWS, 4);
    if (level == NULL || team == NULL || rn_team_threads(team) > 64 || w.weights == NULL || w.inputs == NULL ||
        w.out == NULL) {
        fprintf(stderr, "cpu_kernels: no such level, too many threads, or no memory\n");
        return 1;
    }
    for (i = 0; i < rn_team_threads(team); i++)
        w.panels[i] = rn_alloc_aligned(&heap, 1 << 20, 64);
    for (i = 0; i < COLS; i++)
        a[i] = (float)rn_coin(1, i) - 0.5f;
    sem_init(&w.done, 0, 0);
    w.peak = rn_peak(level->name);
    machine = measure_machine(team, &w);
    printf("level %s, %u threads, %d x %d weights\n", level->name, rn_team_threads(team), ROWS, COLS);
    printf("machine: read %.1f GB/s, bytes %.0f GOP/s, floats %.0f GFLOP/s\n", machine.read * 1e-9,
           machine.integer * 1e-9, machine.real * 1e-9);
    printf("format        GB/s: best, median, of read; from cache. GFLOP/s with 2, 4, 8, 16, 64, %d inputs\n", MAX_N);
    for (i = 0; i < sizeof types / sizeof *types; i++)
        if (argc < 4 || strcmp(argv[3], rn_type(types[i])->name) == 0)
            bench_type(team, level, &w, types[i], a, &machine);
    return 0;
}
