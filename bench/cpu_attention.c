/* Attention of one head of keys and values on one core, in the time of the thread, so that a busy machine
 * hardly shows; and what it costs to store a key and a value.
 *
 *     cpu_attention [level [format ...]]
 *
 * Heads of 64 dimensions in f16 or the formats named, blocks of 32 positions in no order. `one head`: the same again
 * and again, from the caches; `many heads`: 512 MB of them in turn, from memory. GB/s counts keys and values once,
 * GFLOP/s four per position, dimension and query. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/rng.h"
#include "cpu/kernels.h"

enum { DIM = 64, BLOCK = 32, MAX_LANES = 32, REPEATS = 7, PATTERN = 61 /* blocks, of which the cache is made */ };

static const size_t heads_bytes = (size_t)256 << 20; /* of keys, and as much of values */
static const char *const formats[] = {
    [RUNNEL_KV_F16] = "f16", [RUNNEL_KV_F32] = "f32", [RUNNEL_KV_BF16] = "bf16", [RUNNEL_KV_FP8] = "fp8",
    [RUNNEL_KV_Q8] = "q8",   [RUNNEL_KV_Q4] = "q4",   [RUNNEL_KV_Q3] = "q3"};
enum { N_FORMATS = sizeof formats / sizeof formats[0] };

struct shape {
    uint32_t context, rows, queries;
};

static double thread_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Blocks of random rows in the format, again and again up to heads_bytes. */
static void fill(uint8_t *cache, const struct rn_level *level, runnel_kv_type type, bool keys)
{
    size_t row_bytes = rn_kv_row_bytes(type, DIM), pattern = row_bytes * BLOCK * PATTERN, i;
    uint64_t at = 0;
    float row[DIM];
    uint8_t *block;
    uint32_t p, d;

    for (p = 0; p < PATTERN * BLOCK; p++) {
        for (d = 0; d < DIM; d++)
            row[d] = (float)rn_coin(2 + keys, at++) - 0.5f;
        block = cache + (size_t)(p / BLOCK) * BLOCK * row_bytes;
        if (keys)
            level->rows->key_store(block + (size_t)(p % BLOCK) * rn_kv_unit_bytes(type), row, DIM, BLOCK, type);
        else
            level->rows->kv_store(block + p % BLOCK * row_bytes, row, DIM, type);
    }
    for (i = pattern; i < heads_bytes; i += pattern)
        memcpy(cache + i, cache, heads_bytes - i < pattern ? heads_bytes - i : pattern);
}

static void measure_store(const struct rn_level *level, runnel_kv_type type, uint8_t *cache)
{
    enum { ROWS = 20000 };
    double best = 1e9, took;
    float row[DIM];
    uint32_t i, j;

    for (i = 0; i < DIM; i++)
        row[i] = (float)rn_coin(4, i) - 0.5f;
    for (i = 0; i < REPEATS; i++) {
        took = thread_seconds();
        for (j = 0; j < ROWS; j++) {
            row[j % DIM] += 1e-3f;
            level->rows->key_store(cache + j % BLOCK * rn_kv_unit_bytes(type), row, DIM, BLOCK, type);
            level->rows->kv_store(cache + 65536 + j % BLOCK * rn_kv_row_bytes(type, DIM), row, DIM, type);
        }
        took = (thread_seconds() - took) / ROWS;
        best = took < best ? took : best;
    }
    printf("%-4s %zu bytes a key and a value: stored in %.0f ns\n", formats[type], 2 * rn_kv_row_bytes(type, DIM),
           best * 1e9);
}

static void measure(const struct rn_level *level, struct rn_attend t, const struct shape *s, bool many)
{
    size_t head = s->context * rn_kv_row_bytes(t.kv_type, DIM), heads = many ? heads_bytes / head : 1;
    uint32_t calls = 1 + 65536 / (s->context * s->rows), call, i;
    const uint8_t *keys = t.keys, *values = t.values;
    double best = 1e9, took, flops = 4.0 * s->context * DIM * s->rows * s->queries;
    static size_t at;

    t.rows = s->rows;
    t.queries = s->queries;
    t.q_stride = t.out_stride = (size_t)s->queries * DIM;
    t.last = t.own = s->context - s->rows;
    t.segment = rn_attend_segment(s->context);
    for (i = 0; i < REPEATS; i++) {
        took = thread_seconds();
        for (call = 0; call < calls; call++, at++) {
            t.keys = keys + at % heads * head;
            t.values = values + at % heads * head;
            level->attention->attend(&t);
        }
        took = (thread_seconds() - took) / calls;
        best = took < best ? took : best;
    }
    printf("%-4s %5u positions, %2u rows, %u queries, %s: %7.0f ns per tile  %5.1f GB/s  %6.1f GFLOP/s\n",
           formats[t.kv_type], s->context, s->rows, s->queries, many ? "many heads" : "one head  ",
           best * 1e9 / (s->context / RN_ATTEND_TILE), 2.0 * (double)head / best * 1e-9, flops / best * 1e-9);
    fflush(stdout);
}

static void measure_format(const struct rn_level *level, struct rn_attend t, uint8_t *keys, uint8_t *values)
{
    static const struct shape shapes[] = {{512, 1, 1},  {512, 1, 4},  {512, 1, 8},  {8192, 1, 1},
                                          {8192, 1, 8}, {8192, 4, 8}, {8192, 32, 1}};
    static uint32_t blocks[8192 / BLOCK];
    size_t i, j;

    measure_store(level, t.kv_type, keys);
    fill(keys, level, t.kv_type, true);
    fill(values, level, t.kv_type, false);
    t.keys = keys;
    t.values = values;
    t.blocks = blocks;
    t.key_stride = t.value_stride = BLOCK * rn_kv_row_bytes(t.kv_type, DIM);
    for (i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        for (j = 0; j < shapes[i].context / BLOCK; j++) /* an odd step visits every block once */
            blocks[j] = (uint32_t)(j * 7 % (shapes[i].context / BLOCK));
        measure(level, t, &shapes[i], false);
        measure(level, t, &shapes[i], true);
    }
}

static bool wanted(int argc, char **argv, uint32_t format)
{
    int i;

    for (i = 2; i < argc; i++)
        if (strcmp(argv[i], formats[format]) == 0)
            return true;
    return argc <= 2 && format == RUNNEL_KV_F16;
}

int main(int argc, char **argv)
{
    static float q[MAX_LANES * DIM], out[MAX_LANES * DIM];
    const struct rn_level *level = argc > 1 ? rn_level_named(argv[1]) : rn_level_best();
    struct rn_attend t = {
        .q = q, .out = out, .k_dim = DIM, .v_dim = DIM, .to = UINT32_MAX, .scale = 0.125f, .block_shift = 5};
    uint8_t *keys, *values;
    struct rn_heap heap;
    uint32_t i;

    rn_heap_init(&heap, NULL);
    keys = rn_alloc_aligned(&heap, heads_bytes, 1 << 21);
    values = rn_alloc_aligned(&heap, heads_bytes, 1 << 21);
    if (keys != NULL && values != NULL) { /* in huge pages, as the backend's: advice only */
        (void)madvise(keys, heads_bytes, MADV_HUGEPAGE);
        (void)madvise(values, heads_bytes, MADV_HUGEPAGE);
    }
    t.scratch = rn_alloc_aligned(&heap, rn_attend_floats(MAX_LANES, 8, DIM, DIM) * sizeof(float), 64);
    if (level == NULL || keys == NULL || values == NULL || t.scratch == NULL) {
        fprintf(stderr, "cpu_attention: no such level, or no memory\n");
        return 1;
    }
    for (i = 0; i < MAX_LANES * DIM; i++)
        q[i] = (float)rn_coin(1, i) - 0.5f;
    printf("level %s\n", level->name);
    for (i = 0; i < N_FORMATS; i++) {
        t.kv_type = (runnel_kv_type)i;
        if (wanted(argc, argv, i))
            measure_format(level, t, keys, values);
    }
    return 0;
}
