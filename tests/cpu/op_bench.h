/* A bench for single ops of the reference backend: slots to fill by hand, a run, and the values that must come. */
#ifndef RN_TESTS_CPU_OP_BENCH_H
#define RN_TESTS_CPU_OP_BENCH_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cpu/reference/reference.h"

enum { SLOTS = 4, WIDTH = 64, BLOCKS = 8, BLOCK_TOKENS = 2, CONTEXT = 8 };

/* A backend of four slots (3 is I32, 2 may be made "selected") without a queue, a team or a heap. */
struct op_bench {
    struct rn_reference ref;
    struct rn_plan plan;
    struct rn_slot slots[SLOTS];
    void *slot_memory[SLOTS];
    float f[SLOTS][WIDTH];
    int32_t ids[WIDTH];
    struct rn_weight weights[2];
    struct rn_tensor tensors[2];
    struct rn_rope rope;
    double inv_freq[2];
    struct rn_kv_layer layer;
    unsigned char k[BLOCKS * BLOCK_TOKENS * 8 * 4], v[BLOCKS * BLOCK_TOKENS * 8 * 4];
    unsigned char *ks[1], *vs[1];
    float row[RN_REFERENCE_ROWS * WIDTH], bias[WIDTH];
    double scores[CONTEXT], sums[WIDTH], query[WIDTH];
    float head[WIDTH];
    uint32_t selected[CONTEXT];
    struct rn_step_row rows[CONTEXT];
    struct rn_step_seq seqs[2];
    struct rn_step step;
};
extern struct op_bench b; /* the one there is */

/* For each test: all empty. */
int setup(void **state);

void widths(uint32_t s0, uint32_t s1, uint32_t s2);

/* The first n values of a slot: doubles. */
void put(uint32_t slot, uint32_t n, ...);

/* Weight `index` of the plan: data is kept. */
void weight(uint32_t index, uint32_t type, uint32_t cols, uint32_t rows, uint32_t experts, const void *data);

/* From slot 0 (and 1) to slot 2. */
struct rn_op op_of(enum rn_op_kind kind);

/* The op alone, over the rows of b.step. */
void run(const struct rn_op *op);

/* The first n values of a slot must be these doubles, within 1e-7 of them. */
void expect(uint32_t slot, uint32_t n, ...);

#endif
