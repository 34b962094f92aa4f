/* Contexts so long that the chunks of an attention are launched in turn: more than a grid has blocks, or more than the
 * workspace holds. The logits of a row are those of double precision, and to the bit those of the same tokens at the
 * beginning of the context, where one launch has all chunks. And a plan whose launches no device takes is refused. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/quant/quant.h"
#include "tests/gpu/rigs/device_runner.h"
#include "tests/gpu/rigs/open_emulated.h"
#include "tests/gpu/rigs/watch_launches.h"

/* CHUNK: positions (gpu/kernels/kernels.h). HELD: blocks that rows are in. */
enum { VOCAB = 16, BLOCK = 32, WINDOW = 40, ROWS = 41, CHUNK = 64, HELD = ROWS / BLOCK + 2 };

static struct rn_heap heap;

/* Queries, keys and values of a token, each from a table; attention over a window; logits. */
struct made {
    struct rn_plan plan;
    struct rn_op ops[6];
    struct rn_slot slots[5];
    struct rn_weight weights[4];
    struct rn_tensor tensors[4];
    struct rn_kv_layer layer;
    float *numbers[4]; /* [VOCAB, width] each */
    uint32_t widths[4];
};

enum { Q, K, V, OUT };

/* Numbers that binary16 has. */
static void make_table(struct made *made, int i, uint32_t width)
{
    made->widths[i] = width;
    made->numbers[i] = malloc((size_t)VOCAB * width * sizeof(float));
    assert_non_null(made->numbers[i]);
    for (uint32_t n = 0; n < VOCAB * width; n++)
        made->numbers[i][n] = (float)((n * 7919u + (uint32_t)i * 131u) % 127u) / 64 - 1;
    made->tensors[i] = (struct rn_tensor){.type = RN_F32,
                                          .data = (const unsigned char *)made->numbers[i],
                                          .elements = (uint64_t)VOCAB * width,
                                          .bytes = (uint64_t)VOCAB * width * sizeof(float)};
    made->weights[i] =
        (struct rn_weight){&made->tensors[i], rn_type(RN_F32), RN_F32, width, VOCAB, 1, width * sizeof(float)};
}

static void make(struct made *made, uint32_t heads, uint32_t kv_heads, uint32_t k_dim, uint32_t v_dim, uint32_t context)
{
    const struct rn_op none = {.out = -1, .out2 = -1, .a = -1, .b = -1, .weight = -1, .bias = -1, .layer = 0};

    *made = (struct made){.layer = {kv_heads * k_dim, kv_heads * v_dim, kv_heads}};
    make_table(made, Q, heads * k_dim);
    make_table(made, K, kv_heads * k_dim);
    make_table(made, V, kv_heads * v_dim);
    make_table(made, OUT, heads * v_dim);
    for (int i = 0; i < 6; i++)
        made->ops[i] = none;
    for (int i = Q; i <= V; i++) {
        made->ops[i].kind = RN_OP_EMBED;
        made->ops[i].out = (int16_t)i;
        made->ops[i].weight = i;
        made->ops[i].scale = 1;
    }
    made->ops[3].kind = RN_OP_KV_STORE;
    made->ops[3].a = K;
    made->ops[3].b = V;
    made->ops[4].kind = RN_OP_ATTENTION;
    made->ops[4].a = Q;
    made->ops[4].out = 3;
    made->ops[4].heads = made->ops[4].group = heads;
    made->ops[4].kv_heads = kv_heads;
    made->ops[4].k_dim = k_dim;
    made->ops[4].v_dim = v_dim;
    made->ops[4].window = WINDOW;
    made->ops[4].scale = 0.5f;
    made->ops[5].kind = RN_OP_MATMUL;
    made->ops[5].a = 3;
    made->ops[5].out = 4;
    made->ops[5].weight = OUT;
    made->slots[Q].width = heads * k_dim;
    made->slots[K].width = kv_heads * k_dim;
    made->slots[V].width = kv_heads * v_dim;
    made->slots[3].width = heads * v_dim;
    made->slots[4] = (struct rn_slot){.width = VOCAB, .logits = true};
    made->plan = (struct rn_plan){.n_vocab = VOCAB,
                                  .embedding = heads * k_dim,
                                  .context_tokens = context,
                                  .n_ops = 6,
                                  .n_slots = 5,
                                  .n_weights = 4,
                                  .n_kv_layers = 1,
                                  .kv_layers = &made->layer,
                                  .ops = made->ops,
                                  .slots = made->slots,
                                  .weights = made->weights,
                                  .logits_slot = 4};
    strcpy(made->plan.architecture, "long");
}

static void made_free(struct made *made)
{
    for (int i = 0; i < 4; i++)
        free(made->numbers[i]);
}

static int32_t token_at(uint32_t i)
{
    return (int32_t)(i * 5 % VOCAB + i / 7) % VOCAB;
}

/* Of row ROWS - 1 behind the others, in double precision; one head of keys. */
static void want(const struct made *made, double logits[VOCAB])
{
    const struct rn_op *op = &made->ops[4];
    const float *q = made->numbers[Q] + token_at(ROWS - 1) * made->widths[Q];

    memset(logits, 0, VOCAB * sizeof *logits);
    for (uint32_t h = 0; h < op->heads; h++) {
        double weights[WINDOW], sum = 0;

        for (uint32_t i = 0; i < WINDOW; i++) {
            const float *k = made->numbers[K] + token_at(ROWS - WINDOW + i) * made->widths[K];
            double score = 0;

            for (uint32_t d = 0; d < op->k_dim; d++)
                score += (double)q[h * op->k_dim + d] * k[d];
            sum += weights[i] = exp(score * op->scale);
        }
        for (uint32_t d = 0; d < op->v_dim; d++) {
            double o = 0;

            for (uint32_t i = 0; i < WINDOW; i++)
                o += weights[i] / sum * made->numbers[V][token_at(ROWS - WINDOW + i) * made->widths[V] + d];
            for (uint32_t t = 0; t < VOCAB; t++)
                logits[t] += o * made->numbers[OUT][t * made->widths[OUT] + h * op->v_dim + d];
        }
    }
}

/* The tokens from a position on: all rows but the last in one step, and the last alone, whose logits come. */
static void run_at(struct runner *r, uint32_t base, float logits[VOCAB])
{
    uint32_t n_blocks = (base + ROWS + BLOCK - 1) / BLOCK, *blocks = calloc(n_blocks, sizeof *blocks);
    struct rn_step_seq seq = {.blocks = blocks, .n_blocks = n_blocks};
    struct rn_step_row rows[ROWS];
    struct rn_step step = {.n_rows = ROWS - 1, .n_seqs = 1, .rows = rows, .seqs = &seq};

    assert_non_null(blocks);
    for (uint32_t i = 0; i < HELD && base / BLOCK + i < n_blocks; i++) /* what nobody sees is in block 0, too */
        blocks[base / BLOCK + i] = i;
    for (uint32_t i = 0; i < ROWS; i++)
        rows[i] = (struct rn_step_row){token_at(i), base + i, 0, -1};
    run_step(r, &step);
    rows[ROWS - 1].out = 0;
    step.n_rows = step.n_outs = 1;
    step.rows = &rows[ROWS - 1];
    step.logits = logits;
    run_step(r, &step);
    free(blocks);
}

/* first: the first chunk of another launch, in whose midst the row's window ends; it begins in the one before. */
static void run_both(struct made *made, uint32_t first, size_t memory_bytes)
{
    const uint32_t ahead = WINDOW / 2;
    const struct rn_backend_limits limits = {.max_rows = ROWS,
                                             .max_seqs = 1,
                                             .max_outs = 1,
                                             .n_blocks = HELD,
                                             .block_tokens = BLOCK,
                                             .context_tokens = made->plan.context_tokens,
                                             .kv_type = RUNNEL_KV_F16};
    struct rn_device *device = open_emulated(&heap, memory_bytes);
    float early[VOCAB], late[VOCAB];
    double wanted[VOCAB], error = 0, norm = 0;
    struct runner r;

    open_on_device(&r, &heap, device, "long", &made->plan, &limits);
    run_at(&r, 10 * CHUNK - ahead, early);
    watch_launches(device);
    run_at(&r, first * CHUNK - ahead, late);
    assert_true(longest_grid() > first / 2); /* it was split */
    assert_memory_equal(late, early, sizeof late);
    want(made, wanted);
    for (int t = 0; t < VOCAB; t++) {
        error += (late[t] - wanted[t]) * (late[t] - wanted[t]);
        norm += wanted[t] * wanted[t];
    }
    assert_true(norm > 0 && error / norm < 1e-7);
    close_on_device(&r);
    device->kind->close(device);
    assert_int_equal(rn_heap_blocks(&heap), 0);
    made_free(made);
}

/* 65,535 blocks are the most along an axis of a grid. */
static void test_grid(void **state)
{
    struct made made;

    (void)state;
    make(&made, 1, 1, 4, 4, (65536 + 64) * CHUNK);
    run_both(&made, 65535, 160 << 20);
}

/* A row's 112 heads of 512 numbers have 225 KiB of a chunk. */
static void test_workspace(void **state)
{
    enum { HEADS = 112, DIM = 512 };
    const uint32_t held = (256u << 20) / (HEADS * (DIM + 2) * 4) - 1;
    struct made made;

    (void)state;
    make(&made, HEADS, 1, 4, DIM, 2 * held * CHUNK);
    run_both(&made, held, 400 << 20);
}

static void test_refused(void **state)
{
    const struct rn_backend_limits limits = {.max_rows = 8,
                                             .max_seqs = 1,
                                             .max_outs = 1,
                                             .n_blocks = 1,
                                             .block_tokens = BLOCK,
                                             .context_tokens = BLOCK,
                                             .kv_type = RUNNEL_KV_F16};
    struct rn_device *device = open_emulated(&heap, 512 << 20);
    runnel_error error = {0};
    struct runner r;
    struct made made;

    (void)state;
    make(&made, 70000, 70000, 4, 4, BLOCK);
    assert_int_equal(prepare_on_device(&r, &heap, device, &made.plan, &limits, &error), RUNNEL_UNSUPPORTED);
    if (strstr(error.message, "wants 70000 blocks in a row, and there are at most 65535") == NULL)
        fail_msg("%s", error.message);
    close_on_device(&r);
    device->kind->close(device);
    made_free(&made);
}

static int setup(void **state)
{
    (void)state;
    rn_heap_init(&heap, NULL);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_grid), cmocka_unit_test(test_workspace),
                                       cmocka_unit_test(test_refused)};

    return cmocka_run_group_tests(tests, setup, NULL);
}
