/* The copy line, products, experts and attention: see main.c. */
#include <stdio.h>

#include "bench/gpu/bench.h"
#include "model/quant/quant.h"

#define COPY_BYTES ((size_t)4 << 30)
enum { COPIES = 8, COLD_BYTES = 512 << 20, LAUNCHES = 40 };

/* ---- The line ---- */

void bench_copy(struct gpu_bench *b)
{
    uint64_t from = gpu_take(b, COPY_BYTES, false), to = gpu_take(b, COPY_BYTES, false);
    double best = 0, begin;

    for (int i = 0; i < COPIES; i++) {
        begin = gpu_seconds();
        gpu_good(b, "copy", b->driver->copy_within(b->driver, to, from, COPY_BYTES, b->stream));
        gpu_good(b, "copy", b->driver->stream_finish(b->driver, b->stream));
        best = 2.0 * COPY_BYTES / (gpu_seconds() - begin) > best ? 2.0 * COPY_BYTES / (gpu_seconds() - begin) : best;
    }
    b->copy_bytes_per_s = best;
    printf("copy: %.0f GB/s read plus written\n", b->copy_bytes_per_s * 1e-9);
    gpu_release(b, from);
    gpu_release(b, to);
}

/* ---- Products ---- */

struct product {
    struct gpu_bench *b;
    struct rn_typed_kernels kernels;
    uint64_t bytes, n_weights;
    struct rn_matmul_args args;
    uint32_t blocks; /* of matmul_stream; 0: matmul_few or matmul_pair */
};

static void launch_product(void *user, uint32_t i)
{
    struct product *p = user;
    struct rn_matmul_args args = p->args;
    struct rn_products_args few = {.a = args.a, .n_rows = args.n_rows, .cols = args.cols, .parts = args.parts, .n = 1};

    args.weight += i % p->n_weights * p->bytes;
    few.of[0] = (struct rn_product){args.weight, 0, args.out, args.rows, 0};
    few.blocks = p->blocks;
    if (args.n_rows <= RN_FEW_ROWS) {
        gpu_launch_one(p->b, rn_few_kernel(&p->kernels, &few), &few);
        return;
    }
    gpu_launch_one(p->b, RN_KERNEL_split_rows, &args);
    gpu_launch_one(p->b, p->kernels.matmul_many, &args);
    if (args.ways > 1)
        gpu_launch_one(p->b, RN_KERNEL_matmul_join, &args);
}

static void time_product(struct gpu_bench *b, const struct rn_type *type, uint32_t type_id, uint32_t rows,
                         uint32_t cols)
{
    static const uint32_t counts[] = {1, 4, 8, 16, 64, 512};
    uint64_t bytes = rn_tiled_bytes(type_id, rows, cols), n_weights = COLD_BYTES / bytes + 1;
    uint64_t weight = gpu_take(b, bytes * n_weights, type_id == RN_F32);
    uint64_t a = gpu_take(b, (uint64_t)512 * cols * 4, true), out = gpu_take(b, (uint64_t)512 * rows * 4, true);
    uint64_t split = gpu_take(b, rn_split_bytes(512, cols), false);
    uint64_t partial = gpu_take(b, rn_partial_bytes(512, rows, 8), false);
    struct rn_typed_kernels kernels;

    rn_kernels_of_type(type_id, &kernels);
    printf("%-5s %6u x %5u:", type->name, rows, cols);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        uint32_t ways = rn_matmul_ways(counts[i], rows, cols, (uint32_t)b->device->units);
        struct product p = {
            b, kernels, bytes, n_weights, {weight, 0, a, out, counts[i], rows, cols, 2, split, partial, ways}, 0};
        double t = gpu_time(b, b->stream, launch_product, &p, LAUNCHES);

        printf("  %u: %.1f us", counts[i], t * 1e6);
        if (counts[i] <= 64)
            printf(" %.0f %%", 100 * (double)bytes / t / b->copy_bytes_per_s);
        else
            printf(" %.0f T", 2.0 * counts[i] * rows * cols / t * 1e-12);
        if (!rn_stream_fits(counts[i], cols))
            continue;
        p.blocks = (uint32_t)b->device->units * RN_STREAM_BLOCKS;
        t = gpu_time(b, b->stream, launch_product, &p, LAUNCHES);
        printf(", as a stream %.1f us %.0f %%", t * 1e6, 100 * (double)bytes / t / b->copy_bytes_per_s);
    }
    printf("\n");
    gpu_release(b, weight);
    gpu_release(b, a);
    gpu_release(b, out);
    gpu_release(b, split);
    gpu_release(b, partial);
}

void bench_products(struct gpu_bench *b)
{
    static const uint32_t types[] = {RN_BF16, RN_F16, RN_Q8_0, RN_Q4_0, RN_Q4_K, RN_Q6_K, RN_F32};
    static const uint32_t shapes[][2] = {{2048, 2048}, {8192, 2048}, {4096, 4096}, {14336, 4096}, {4096, 14336}};

    printf("products, rows x columns of the weight; activations: time, weights over the copy line, or operations\n");
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++)
        for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
            time_product(b, rn_type(types[t]), types[t], shapes[s][0], shapes[s][1]);
}

/* ---- Experts ---- */

enum { EXPERTS = 128, USED = 8, EXPERT_ROWS = 768, EXPERT_COLS = 2048 };

struct experts {
    struct gpu_bench *b;
    struct rn_typed_kernels kernels;
    struct rn_expert_matmul_args args;
};

/* Each launch groups and splits anew; in a step three products share one grouping. */
static void launch_experts(void *user, uint32_t i)
{
    const struct experts *e = user;

    (void)i;
    if (e->args.group == 1) {
        gpu_launch_one(e->b, e->kernels.expert_matmul, &e->args);
        return;
    }
    gpu_launch_one(e->b, RN_KERNEL_expert_group, &e->args);
    if (e->args.group == RN_EXPERT_MANY)
        gpu_launch_one(e->b, RN_KERNEL_expert_split, &e->args);
    gpu_launch_one(e->b, e->args.group == RN_EXPERT_MANY ? e->kernels.expert_many : e->kernels.expert_few, &e->args);
}

static uint64_t send(struct gpu_bench *b, const void *data, uint64_t bytes)
{
    uint64_t memory;

    gpu_good(b, "memory", b->driver->memory_new(b->driver, &memory, bytes));
    gpu_good(b, "copy in", b->driver->copy_in(b->driver, memory, data, bytes, b->stream));
    gpu_good(b, "copy in", b->driver->stream_finish(b->driver, b->stream));
    return memory;
}

/* So many rows, each with USED experts by chance; the bytes are those of the experts that have rows. */
static void time_experts(struct gpu_bench *b, uint32_t type_id, uint64_t weight, uint32_t n_rows)
{
    static const uint32_t sizes[] = {1, RN_EXPERT_FEW, RN_EXPERT_MANY};
    static rn_address matrices[EXPERTS];
    static int32_t ids[512 * USED];
    uint64_t bytes = rn_tiled_bytes(type_id, EXPERT_ROWS, EXPERT_COLS), chosen = 0;
    bool is_chosen[EXPERTS] = {false};
    struct experts e = {.b = b};

    for (uint32_t i = 0; i < EXPERTS; i++)
        matrices[i] = weight + i * bytes;
    for (uint32_t i = 0; i < n_rows * USED; i++) {
        ids[i] = (int32_t)(gpu_random(b) % EXPERTS);
        chosen += is_chosen[ids[i]] ? 0 : 1;
        is_chosen[ids[i]] = true;
    }
    rn_kernels_of_type(type_id, &e.kernels);
    e.args = (struct rn_expert_matmul_args){
        .matrices = send(b, matrices, sizeof matrices),
        .a = gpu_take(b, (uint64_t)n_rows * EXPERT_COLS * 4, true),
        .ids = send(b, ids, (uint64_t)n_rows * USED * sizeof ids[0]),
        .out = gpu_take(b, (uint64_t)n_rows * USED * EXPERT_ROWS * 4, true),
        .n_rows = n_rows,
        .used = USED,
        .experts = EXPERTS,
        .rows = EXPERT_ROWS,
        .cols = EXPERT_COLS,
        .parts = 2,
        .order = gpu_take(b, rn_expert_order_bytes((uint64_t)n_rows * USED), false),
        .slots = gpu_take(b, rn_expert_slots_bytes(n_rows * USED, EXPERTS, RN_EXPERT_FEW), false),
        .split = gpu_take(b, rn_expert_split_bytes(n_rows, EXPERT_COLS), false)};
    printf("  %u:", n_rows);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        double t;

        e.args.group = sizes[i];
        t = gpu_time(b, b->stream, launch_experts, &e, LAUNCHES);
        printf(" %s%u: %.1f us %.0f %%", sizes[i] == rn_expert_group_of(n_rows, USED, EXPERTS) ? "*" : "", sizes[i],
               t * 1e6, 100 * (double)(chosen * bytes) / t / b->copy_bytes_per_s);
    }
    gpu_release(b, e.args.matrices);
    gpu_release(b, e.args.a);
    gpu_release(b, e.args.ids);
    gpu_release(b, e.args.out);
    gpu_release(b, e.args.order);
    gpu_release(b, e.args.slots);
    gpu_release(b, e.args.split);
}

void bench_experts(struct gpu_bench *b)
{
    static const uint32_t types[] = {RN_BF16, RN_Q8_0, RN_Q4_0, RN_Q4_K, RN_MXFP4};
    static const uint32_t counts[] = {1, 4, 16, 64, 256, 512};

    printf("experts, %u of %u of %u x %u; rows: of each group of pairs (* is what a step takes) the time, and the "
           "weights of experts with rows over the copy line\n",
           USED, EXPERTS, EXPERT_ROWS, EXPERT_COLS);
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        uint64_t weight = gpu_take(b, EXPERTS * rn_tiled_bytes(types[t], EXPERT_ROWS, EXPERT_COLS), false);

        printf("%-5s", rn_type(types[t])->name);
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
            time_experts(b, types[t], weight, counts[i]);
        printf("\n");
        gpu_release(b, weight);
    }
}

/* ---- Attention ---- */

enum { HEADS = 32, KV_HEADS = 8, DIM = 128, BLOCK_LOG = 5, BLOCK = 1 << BLOCK_LOG };

struct attention {
    struct gpu_bench *b;
    enum rn_kernel kernel;
    struct rn_attention_args args;
};

static void launch_attention(void *user, uint32_t i)
{
    struct attention *a = user;

    (void)i;
    gpu_launch_one(a->b, a->kernel, &a->args);
    if (a->args.workspace != 0)
        gpu_launch_one(a->b, RN_KERNEL_attention_join, &a->args);
}

static uint64_t send_words(struct gpu_bench *b, const uint32_t *words, uint32_t n)
{
    return send(b, words, n * sizeof *words);
}

/* n_seqs rows of as many sequences, or n_rows of one sequence. */
static void time_attention(struct gpu_bench *b, uint32_t n_seqs, uint32_t n_rows, uint32_t depth)
{
    static uint32_t tables[1 << 16], table_at[512], seqs[512], positions[512];
    uint32_t per = (depth + n_rows + BLOCK - 1) / BLOCK, rows = n_seqs * n_rows;
    uint64_t block_bytes = (uint64_t)2 * BLOCK * KV_HEADS * DIM * 2, bytes = block_bytes * per * n_seqs;
    uint64_t blocks = gpu_take(b, bytes, false), q = gpu_take(b, (uint64_t)rows * HEADS * DIM * 4, true), out, room;
    struct attention a = {.b = b,
                          .kernel = rows > RN_GPU_SPLIT_ROWS ? RN_KERNEL_attention_128_f16 : RN_KERNEL_attention_f16};
    bool split = rows <= RN_GPU_SPLIT_ROWS && depth > 256;
    double t;

    out = gpu_take(b, (uint64_t)rows * HEADS * DIM * 4, true);
    for (uint32_t r = 0; r < rows; r++) {
        seqs[r] = r / n_rows;
        positions[r] = depth + r % n_rows;
        table_at[r / n_rows] = r / n_rows * per;
    }
    for (uint32_t i = 0; i < n_seqs * per; i++)
        tables[i] = i * 7919 % (n_seqs * per);
    a.args = (struct rn_attention_args){
        .cache = {blocks, blocks + block_bytes / 2, send_words(b, tables, n_seqs * per),
                  send_words(b, table_at, n_seqs), block_bytes, n_seqs * per, n_seqs, BLOCK_LOG, KV_HEADS, DIM, DIM, 0},
        .q = q,
        .out = out,
        .seqs = send_words(b, seqs, rows),
        .positions = send_words(b, positions, rows),
        .n_rows = rows,
        .heads = HEADS,
        .v_dim = DIM,
        .rows_per_tile = rows > RN_GPU_SPLIT_ROWS ? rn_attention_many_rows(HEADS, KV_HEADS) : 1,
        .n_chunks = (depth + n_rows + RN_ATTENTION_CHUNK - 1) / RN_ATTENTION_CHUNK,
        .scale = 0.088f};
    room = gpu_take(b, split ? rn_attention_bytes(rows, HEADS, DIM, a.args.n_chunks) : 256, true);
    a.args.workspace = split ? room : 0;
    t = gpu_time(b, b->stream, launch_attention, &a, 20);
    printf("attention f16, %u x %u rows behind %u: %.1f us, %.0f %% of the copy line, %.1f TFLOP/s\n", n_seqs, n_rows,
           depth, t * 1e6, 100 * (double)bytes / t / b->copy_bytes_per_s,
           4.0 * rows * HEADS * DIM * (depth + n_rows / 2.0) / t * 1e-12);
    gpu_release(b, blocks);
    gpu_release(b, q);
    gpu_release(b, out);
    gpu_release(b, room);
}

void bench_attention(struct gpu_bench *b)
{
    time_attention(b, 1, 1, 100);
    time_attention(b, 1, 1, 1000);
    time_attention(b, 1, 1, 8000);
    time_attention(b, 8, 1, 8000);
    time_attention(b, 64, 1, 1000);
    time_attention(b, 64, 1, 8000);
    time_attention(b, 1, 512, 0);
    time_attention(b, 1, 512, 7000);
}
