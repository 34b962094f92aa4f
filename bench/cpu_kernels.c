/* Speed of the matrix products of the fast CPU backend, beside the memory that was read in the same run.
 *
 *     cpu_kernels [threads] [level]
 *
 * One product of the shape of a feed-forward layer, 5632 x 2048 weights, on a team of threads that take
 * rows as the backend does. GB/s counts weight bytes, over as many copies of the matrix as exceed
 * the caches; GFLOP/s counts two per weight and input. The read line is the bandwidth of summing the
 * same array on the same team. */
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/rng.h"
#include "cpu/kernels.h"
#include "cpu/team.h"

enum { ROWS = 5632, COLS = 2048, MAX_N = 256, BATCH = 256 };

static const size_t weights_bytes = (size_t)640 << 20; /* of all copies together */

struct work {
    struct rn_job job; /* first */
    const struct rn_kernel *kernel;
    const struct rn_type *type;
    const uint8_t *weights;
    const char *inputs;
    float *out;
    void *panels[64];
    uint32_t n, copies; /* copies 0: read the weights only */
    _Atomic uint32_t next;
    _Atomic uint64_t sink;
    sem_t done;
};

static void tile(const struct work *w, const uint8_t *matrix, uint32_t row, uint32_t step, void *panel)
{
    struct rn_matmul m = {.row_bytes = rn_type_bytes(w->type, COLS),
                          .rows = w->kernel->tile,
                          .step = step,
                          .cols = COLS,
                          .type = w->type,
                          .panel = panel};
    uint32_t i, j;

    m.weights = matrix + row * m.row_bytes;
    if (w->n >= w->kernel->pack_from)
        w->kernel->pack(&m);
    for (i = 0; i < w->n; i += m.n) {
        m.n = w->n - i < RN_MAX_INPUTS ? w->n - i : RN_MAX_INPUTS;
        for (j = 0; j < m.n; j++) {
            m.inputs[j] = w->inputs + (i + j) * rn_input_bytes(w->kernel->input, COLS);
            m.out[j] = w->out + (size_t)(i + j) * ROWS + row;
        }
        (w->n >= w->kernel->pack_from ? w->kernel->packed : w->kernel->direct)(&m);
    }
}

/* Rows [first, first + BATCH). */
static void batch(const struct work *w, const uint8_t *matrix, uint32_t first, void *panel)
{
    uint32_t step = w->n >= w->kernel->pack_from ? 1 : w->kernel->step, row, i;

    if (step > BATCH / w->kernel->tile)
        step = BATCH / w->kernel->tile;
    for (row = first; row < first + BATCH; row += w->kernel->tile * step)
        for (i = 0; i < step; i++)
            tile(w, matrix, row + i, step, panel);
}

/* Sums this worker's share in eight streams, which one core needs to keep the memory busy. */
static void read_all(struct work *w, uint32_t worker, uint32_t n_workers)
{
    const uint64_t *a = (const uint64_t *)w->weights;
    size_t n = weights_bytes / 8 / n_workers / 64 * 64, i;
    uint64_t sum[8] = {0};
    int stream, k;

    a += worker * n;
    for (i = 0; i < n / 8; i += 8)
        for (stream = 0; stream < 8; stream++)
            for (k = 0; k < 8; k++)
                sum[k] += a[(size_t)stream * (n / 8) + i + k];
    for (k = 0; k < 8; k++)
        atomic_fetch_add_explicit(&w->sink, sum[k], memory_order_relaxed);
}

static void run(struct rn_job *job, uint32_t worker, uint32_t n_workers)
{
    struct work *w = (struct work *)job;
    size_t matrix = ROWS * rn_type_bytes(w->type, COLS);
    uint32_t pieces = ROWS / BATCH, i;

    if (w->copies == 0) {
        read_all(w, worker, n_workers);
        return;
    }
    while ((i = atomic_fetch_add_explicit(&w->next, 1, memory_order_relaxed)) < pieces * w->copies)
        batch(w, w->weights + i / pieces * matrix, i % pieces * BATCH, w->panels[worker]);
}

static void done(struct rn_job *job)
{
    sem_post(&((struct work *)job)->done);
}

/* The fastest of five, in seconds. */
static double measure(struct rn_team *team, struct work *w)
{
    struct rn_clock clock = rn_clock_machine();
    uint64_t best = UINT64_MAX, begin, took;
    int i;

    for (i = 0; i < 5; i++) {
        atomic_store(&w->next, 0);
        begin = rn_now_us(&clock);
        rn_team_submit(team, &w->job);
        sem_wait(&w->done);
        took = rn_now_us(&clock) - begin;
        best = took < best ? took : best;
    }
    return (double)best * 1e-6;
}

/* Bytes that are sane in the format: halves of about 0.1 wherever a block has its scale, floats of about 1. */
static void fill(uint8_t *weights, uint32_t type_id)
{
    uint64_t seed = 1, mask = 0x2f2f2f2f2f2f2f2fu, ones = 0, x;
    size_t i;

    if (type_id == RN_F32)
        ones = 0x3f8000003f800000u;
    else if (type_id == RN_BF16)
        ones = 0x3f803f803f803f80u;
    for (i = 0; i < weights_bytes; i += 8) {
        x = (rn_splitmix64(&seed) & mask) | ones;
        memcpy(weights + i, &x, 8);
    }
}

static void bench_type(struct rn_team *team, const struct rn_level *level, struct work *w, uint32_t type_id,
                       const float *a)
{
    size_t matrix, bytes;
    double gemv, gemm, gemm16;
    uint32_t i;

    w->type = rn_type(type_id);
    w->kernel = level->kernel(type_id);
    if (w->kernel == NULL)
        w->kernel = level->other;
    fill((uint8_t *)w->weights, type_id);
    matrix = ROWS * rn_type_bytes(w->type, COLS);
    bytes = rn_input_bytes(w->kernel->input, COLS);
    for (i = 0; i < MAX_N; i++) {
        char *to = (char *)w->inputs + i * bytes;

        if (w->kernel->input == RN_INPUT_Q8)
            level->rows->quantise_q8(a, to, COLS);
        else if (w->kernel->input == RN_INPUT_Q8K)
            level->rows->quantise_q8k(a, to, COLS);
        else
            memcpy(to, a, COLS * sizeof *a);
    }
    w->n = 1;
    w->copies = (uint32_t)(weights_bytes / matrix);
    gemv = measure(team, w) / w->copies;
    w->copies = 4;
    w->n = 16;
    gemm16 = measure(team, w) / w->copies;
    w->n = MAX_N;
    w->copies = 1;
    gemm = measure(team, w);
    printf("%-7s %6.1f GB/s with 1 input  %7.1f GFLOP/s with 16  %7.1f GFLOP/s with %d\n", w->type->name,
           (double)matrix / gemv * 1e-9, 2.0 * ROWS * COLS * 16 / gemm16 * 1e-9,
           2.0 * ROWS * COLS * MAX_N / gemm * 1e-9, MAX_N);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static const uint32_t types[] = {RN_F32, RN_F16, RN_BF16, RN_Q8_0, RN_Q4_0, RN_Q4_K, RN_Q6_K, RN_Q5_K, RN_IQ4_XS};
    static float a[COLS];
    const struct rn_level *level = argc > 2 ? rn_level_named(argv[2]) : rn_level_best();
    struct work w = {.job = {run, done, NULL}};
    struct rn_heap heap;
    struct rn_team *team;
    size_t i;

    rn_heap_init(&heap, NULL);
    team = rn_team_new(&heap, argc > 1 ? (uint32_t)atoi(argv[1]) : 0);
    w.weights = rn_alloc_aligned(&heap, weights_bytes, 1 << 21);
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
    w.type = rn_type(RN_F32);
    fill((uint8_t *)w.weights, RN_F32);
    printf("level %s, %u threads, %d x %d weights\n", level->name, rn_team_threads(team), ROWS, COLS);
    printf("read    %6.1f GB/s\n", (double)weights_bytes / measure(team, &w) * 1e-9);
    for (i = 0; i < sizeof types / sizeof *types; i++)
        bench_type(team, level, &w, types[i], a);
    return 0;
}
