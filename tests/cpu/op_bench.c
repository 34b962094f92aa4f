/* See op_bench.h. */
#include "tests/cpu/op_bench.h"

#include <math.h>
#include <string.h>

struct op_bench b;

static const uint32_t scattered[2][4] = {{5, 0, 7, 2}, {1, 6, 3, 4}};

int setup(void **state)
{
    uint32_t i;

    (void)state;
    memset(&b, 0, sizeof b);
    b.plan = (struct rn_plan){.n_slots = SLOTS,
                              .slots = b.slots,
                              .n_weights = 2,
                              .weights = b.weights,
                              .n_ropes = 1,
                              .ropes = &b.rope,
                              .n_kv_layers = 1,
                              .kv_layers = &b.layer};
    for (i = 0; i < SLOTS; i++)
        b.slot_memory[i] = b.f[i];
    b.slot_memory[3] = b.ids;
    b.ks[0] = b.k;
    b.vs[0] = b.v;
    b.rope.inv_freq = b.inv_freq;
    b.ref = (struct rn_reference){.plan = &b.plan,
                                  .slots = b.slot_memory,
                                  .k = b.ks,
                                  .v = b.vs,
                                  .row = b.row,
                                  .bias = b.bias,
                                  .scores = b.scores,
                                  .sums = b.sums,
                                  .query = b.query,
                                  .head = b.head,
                                  .selected = b.selected};
    b.ref.limits = (struct rn_backend_limits){.max_rows = CONTEXT,
                                              .max_seqs = 2,
                                              .max_outs = CONTEXT,
                                              .n_blocks = BLOCKS,
                                              .block_tokens = BLOCK_TOKENS,
                                              .context_tokens = CONTEXT,
                                              .kv_type = RUNNEL_KV_F32};
    b.seqs[0] = (struct rn_step_seq){.blocks = scattered[0], .n_blocks = 4};
    b.seqs[1] = (struct rn_step_seq){.blocks = scattered[1], .n_blocks = 4};
    b.step = (struct rn_step){.n_rows = 1, .n_seqs = 2, .rows = b.rows, .seqs = b.seqs};
    return 0;
}

void widths(uint32_t s0, uint32_t s1, uint32_t s2)
{
    b.slots[0].width = s0;
    b.slots[1].width = s1;
    b.slots[2].width = s2;
}

void put(uint32_t slot, uint32_t n, ...)
{
    va_list values;
    uint32_t i;

    va_start(values, n);
    for (i = 0; i < n; i++)
        b.f[slot][i] = (float)va_arg(values, double);
    va_end(values);
}

void weight(uint32_t index, uint32_t type, uint32_t cols, uint32_t rows, uint32_t experts, const void *data)
{
    b.tensors[index] = (struct rn_tensor){.type = type, .data = data};
    b.weights[index] = (struct rn_weight){
        &b.tensors[index], rn_type(type), type, cols, rows, experts, rn_type_bytes(rn_type(type), cols)};
}

struct rn_op op_of(enum rn_op_kind kind)
{
    return (struct rn_op){.kind = kind, .out = 2, .out2 = -1, .a = 0, .b = -1, .weight = -1, .bias = -1, .scale = 1};
}

void run(const struct rn_op *op)
{
    memset(b.f[op->out], 0xff, op->out == op->a ? 0 : sizeof b.f[0]); /* NaN: all must be written */
    rn_reference_choose(&b.ref, &b.step);
    rn_reference_op(&b.ref, op, &b.step);
}

void expect(uint32_t slot, uint32_t n, ...)
{
    va_list values;
    double wanted;
    uint32_t i;

    va_start(values, n);
    for (i = 0; i < n; i++) {
        wanted = va_arg(values, double);
        if (!(fabs(b.f[slot][i] - wanted) <= 1e-7 * fabs(wanted) + 1e-9))
            fail_msg("value %u is %.9g, not %.9g", i, (double)b.f[slot][i], wanted);
    }
    va_end(values);
}
