/* Speed of products of a few inputs by weights in tiles that are read from memory, one tile after the other and two or
 * four by turns (rn_matmul.rows): what a decode step of one stream, or of one with drafts, waits for.
 *
 *     cpu_turns [threads [level [format [seconds]]]]
 *
 * Each thread goes through weights of its own, larger than the caches, in pieces of 1024 rows of 2048 columns; each
 * piece is met by a number of inputs, by tiles at a time, each of a run of tiles, and with lines asked for from a
 * distance ahead, all of which are drawn for it. So all variants see the same machine, whatever else it does meanwhile,
 * and their medians compare where a single run does not. GB/s of weights of all threads: the sum of the threads' medians
 * and, in brackets, of their upper quartiles. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/rng.h"
#include "cpu/kernels.h"

enum { COLS = 2048, PIECE_ROWS = 1024, MOST_THREADS = 64, MOST_SAMPLES = 2000, MOST_INPUTS = 8, HUGE_PAGE = 2 << 20 };

static const size_t weights_bytes = (size_t)400 << 20; /* of a thread */
static const uint32_t inputs_of[] = {1, 2, 3, 4, 6, 8}, tiles_of[] = {1, 2, 4};
static const uint32_t aheads[] = {0, RN_TILE_AHEAD / 2, RN_TILE_AHEAD, 2 * RN_TILE_AHEAD};

enum {
    INPUTS = sizeof inputs_of / sizeof *inputs_of,
    TILES = sizeof tiles_of / sizeof *tiles_of,
    AHEADS = sizeof aheads / sizeof *aheads
};

/* What all threads share. */
struct bench {
    struct rn_clock clock;
    const struct rn_kernel *kernel;
    const struct rn_type *type;
    char *inputs;
    size_t row_bytes;
    double seconds;
};

struct samples {
    uint32_t n;
    float gb_per_s[MOST_SAMPLES];
};

struct worker {
    const struct bench *bench;
    pthread_t thread;
    uint64_t seed;
    struct samples samples[INPUTS][TILES][AHEADS];
};

/* So many bytes of numbers that are no infinities in any format. */
static uint8_t *make_weights(struct rn_heap *heap, size_t n, uint64_t *seed)
{
    uint8_t *weights = rn_alloc_aligned(heap, n, HUGE_PAGE);
    size_t i;

    if (weights != NULL)
        (void)madvise(weights, n / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE); /* advice only: as a model's */
    for (i = 0; weights != NULL && i < n; i++)
        weights[i] = (uint8_t)(rn_splitmix64(seed) & 0x2f);
    return weights;
}

static double piece(const struct bench *b, const uint8_t *weights, float *out, uint32_t n, uint32_t tiles,
                    uint32_t ahead)
{
    struct rn_matmul m = {.row_bytes = b->row_bytes,
                          .rows = tiles * RN_TILE_ROWS,
                          .step = 1,
                          .gap = PIECE_ROWS / tiles - RN_TILE_ROWS,
                          .ahead = aheads[ahead],
                          .cols = COLS,
                          .type = b->type,
                          .n = n};
    uint64_t begin = rn_now_ns(&b->clock);
    uint32_t row, i;

    for (row = 0; row < PIECE_ROWS / tiles; row += RN_TILE_ROWS) {
        m.weights = weights + row * b->row_bytes;
        for (i = 0; i < n; i++) {
            m.inputs[i] = b->inputs + i * rn_input_bytes(b->kernel->input, COLS);
            m.out[i] = out + (size_t)i * PIECE_ROWS + row;
        }
        b->kernel->direct(&m);
    }
    return (double)(PIECE_ROWS * b->row_bytes) / (double)(rn_now_ns(&b->clock) - begin);
}

static void *work(void *data)
{
    struct worker *w = data;
    const struct bench *b = w->bench;
    const size_t bytes = PIECE_ROWS * b->row_bytes, pieces = weights_bytes / bytes;
    struct rn_heap heap;
    uint8_t *weights;
    float *out;
    uint64_t end;
    size_t at;

    rn_heap_init(&heap, NULL);
    weights = make_weights(&heap, pieces * bytes, &w->seed);
    out = rn_alloc_aligned(&heap, sizeof *out * MOST_INPUTS * PIECE_ROWS, 64);
    if (weights == NULL || out == NULL) {
        fprintf(stderr, "no memory\n");
        exit(1);
    }
    end = rn_now_ns(&b->clock) + (uint64_t)(b->seconds * 1e9);
    for (at = 0; rn_now_ns(&b->clock) < end; at = (at + 1) % pieces) {
        uint64_t drawn = rn_splitmix64(&w->seed);
        uint32_t i = (uint32_t)(drawn % INPUTS), t = (uint32_t)(drawn / INPUTS % TILES),
                 a = (uint32_t)(drawn / INPUTS / TILES % AHEADS);
        struct samples *s = &w->samples[i][t][a];
        double speed = piece(b, weights + at * bytes, out, inputs_of[i], tiles_of[t], a);

        if (s->n < MOST_SAMPLES)
            s->gb_per_s[s->n++] = (float)speed;
    }
    rn_free(&heap, weights);
    rn_free(&heap, out);
    return NULL;
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

static void print(struct worker *workers, uint32_t n_workers, uint32_t i, uint32_t t, uint32_t a)
{
    double median = 0, quartile = 0;
    uint32_t k;

    for (k = 0; k < n_workers; k++) {
        struct samples *s = &workers[k].samples[i][t][a];

        if (s->n == 0)
            continue;
        qsort(s->gb_per_s, s->n, sizeof *s->gb_per_s, by_value);
        median += (double)s->gb_per_s[s->n / 2];
        quartile += (double)s->gb_per_s[s->n * 3 / 4];
    }
    printf("  %5.1f (%5.1f)", median, quartile);
}

static void print_table(struct worker *workers, uint32_t n_workers)
{
    uint32_t i, t, a;

    printf("inputs  tiles");
    for (a = 0; a < AHEADS; a++)
        printf("  %6u ahead ", aheads[a]);
    printf("\n");
    for (i = 0; i < INPUTS; i++)
        for (t = 0; t < TILES; t++) {
            printf("%6u  %5u", inputs_of[i], tiles_of[t]);
            for (a = 0; a < AHEADS; a++)
                print(workers, n_workers, i, t, a);
            printf("\n");
        }
}

static void make_inputs(struct rn_heap *heap, const struct rn_level *level, struct bench *b)
{
    size_t bytes = rn_input_bytes(b->kernel->input, COLS);
    char *inputs = rn_alloc_aligned(heap, MOST_INPUTS * bytes, 64);
    float row[COLS];
    uint32_t i, c;

    if (inputs == NULL) {
        fprintf(stderr, "no memory\n");
        exit(1);
    }
    for (i = 0; i < MOST_INPUTS; i++) {
        for (c = 0; c < COLS; c++)
            row[c] = (float)rn_coin(i, c) - 0.5f;
        rn_quantise(level->rows, b->kernel->input, row, inputs + i * bytes, COLS);
    }
    b->inputs = inputs;
}

/* The kernel for the type of that name, *type; NULL: it has none for weights in tiles. */
static const struct rn_kernel *kernel_of(const struct rn_level *level, const char *name, const struct rn_type **type)
{
    enum { IDS = 64 };
    uint32_t id;

    for (id = 0; level != NULL && level->tiled != NULL && id < IDS; id++) {
        *type = rn_type(id);
        if (*type != NULL && strcmp((*type)->name, name) == 0)
            return level->tiled(id);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    uint32_t n = argc > 1 ? (uint32_t)atoi(argv[1]) : 2, k;
    const struct rn_level *level = argc > 2 ? rn_level_named(argv[2]) : rn_level_best();
    struct bench bench = {.clock = rn_clock_machine(), .seconds = argc > 4 ? atof(argv[4]) : 20};
    struct worker *workers = calloc(MOST_THREADS, sizeof *workers);
    struct rn_heap heap;

    bench.kernel = kernel_of(level, argc > 3 ? argv[3] : "Q4_0", &bench.type);
    if (n < 1 || n > MOST_THREADS || bench.kernel == NULL || workers == NULL) {
        fprintf(stderr, "cpu_turns [threads, at most %d [level [format that is laid into tiles [seconds]]]]\n",
                MOST_THREADS);
        return 2;
    }
    rn_heap_init(&heap, NULL);
    bench.row_bytes = rn_type_bytes(bench.type, COLS);
    make_inputs(&heap, level, &bench);
    for (k = 0; k < n; k++) {
        workers[k] = (struct worker){.bench = &bench, .seed = k};
        pthread_create(&workers[k].thread, NULL, work, &workers[k]);
    }
    for (k = 0; k < n; k++)
        pthread_join(workers[k].thread, NULL);
    printf("%s, %s, %u threads, %g s: GB/s, median and upper quartile\n", level->name, bench.type->name, n,
           bench.seconds);
    print_table(workers, n);
    rn_free(&heap, bench.inputs);
    free(workers);
    return 0;
}
