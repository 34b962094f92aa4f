/* Attention of one head of keys and values on one core, in the time of the thread, so that a busy machine
 * hardly shows.
 *
 *     cpu_attention [level]
 *
 * Heads of 64 dimensions in half floats, blocks of 32 positions in no order. `one head`: the same again and again, from
 * the caches; `many heads`: 512 MB of them in turn, from memory. GB/s counts keys and values once, GFLOP/s four
 * per position, dimension and query. */
#include <stdio.h>
#include <time.h>

#include "base/rng.h"
#include "cpu/kernels.h"

enum { DIM = 64, BLOCK = 32, MAX_LANES = 32, REPEATS = 7 };

static const size_t heads_bytes = (size_t)256 << 20; /* of keys, and as much of values */

struct shape {
    uint32_t context, rows, queries;
};

static double thread_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Halves below 2^-7 in size. */
static uint8_t *random_halves(struct rn_heap *heap)
{
    uint64_t *halves = rn_alloc_aligned(heap, heads_bytes, 1 << 21), seed = 1;
    size_t i;

    for (i = 0; halves != NULL && i < heads_bytes / 8; i++)
        halves[i] = rn_splitmix64(&seed) & 0x9fff9fff9fff9fffu;
    return (uint8_t *)halves;
}

static void measure(const struct rn_level *level, struct rn_attend t, const struct shape *s, bool many)
{
    size_t head = (size_t)s->context * DIM * 2, heads = many ? heads_bytes / head : 1;
    uint32_t calls = 1 + 65536 / (s->context * s->rows), call, i;
    const uint8_t *keys = t.keys, *values = t.values;
    double best = 1e9, took, flops = 4.0 * s->context * DIM * s->rows * s->queries;
    static size_t at;

    t.rows = s->rows;
    t.queries = s->queries;
    t.q_stride = t.out_stride = (size_t)s->queries * DIM;
    t.last = s->context - s->rows;
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
    printf("%5u positions, %2u rows, %u queries, %s: %7.0f ns per tile  %5.1f GB/s  %6.1f GFLOP/s\n", s->context,
           s->rows, s->queries, many ? "many heads" : "one head  ", best * 1e9 / (s->context / RN_ATTEND_TILE),
           2.0 * (double)head / best * 1e-9, flops / best * 1e-9);
}

int main(int argc, char **argv)
{
    static const struct shape shapes[] = {{512, 1, 1},  {512, 1, 4},  {512, 1, 8},
                                          {8192, 1, 8}, {8192, 4, 8}, {8192, 32, 1}};
    static float q[MAX_LANES * DIM], out[MAX_LANES * DIM];
    static uint32_t blocks[8192 / BLOCK];
    const struct rn_level *level = argc > 1 ? rn_level_named(argv[1]) : rn_level_best();
    struct rn_attend t = {.q = q, .out = out, .k_dim = DIM, .v_dim = DIM, .to = UINT32_MAX, .scale = 0.125f,
                          .blocks = blocks, .block_shift = 5, .kv_type = RUNNEL_KV_F16,
                          .key_stride = BLOCK * DIM * 2, .value_stride = BLOCK * DIM * 2};
    struct rn_heap heap;
    size_t i, j;

    rn_heap_init(&heap, NULL);
    t.keys = random_halves(&heap);
    t.values = random_halves(&heap);
    t.scratch = rn_alloc_aligned(&heap, rn_attend_floats(MAX_LANES, 8, DIM, DIM) * sizeof(float), 64);
    if (level == NULL || t.keys == NULL || t.values == NULL || t.scratch == NULL) {
        fprintf(stderr, "cpu_attention: no such level, or no memory\n");
        return 1;
    }
    for (i = 0; i < MAX_LANES * DIM; i++)
        q[i] = (float)rn_coin(1, i) - 0.5f;
    printf("level %s\n", level->name);
    for (i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        for (j = 0; j < shapes[i].context / BLOCK; j++) /* an odd step visits every block once */
            blocks[j] = (uint32_t)(j * 7 % (shapes[i].context / BLOCK));
        measure(level, t, &shapes[i], false);
        measure(level, t, &shapes[i], true);
    }
    return 0;
}
