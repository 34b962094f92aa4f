/* A plan small enough to be worked out by hand, whose ops have kernels: an embedding, a norm, a product with a bias, a
 * sum, and the logits of every row. Its cache has a layer that no op touches: its blocks are copied only. */
#ifndef RN_TESTS_GPU_RIGS_SMALL_PLAN_H
#define RN_TESTS_GPU_RIGS_SMALL_PLAN_H

#include "model/backend.h"

enum { SMALL_VOCAB = 48, SMALL_WIDTH = 64, SMALL_KV = 32, SMALL_SLOTS = 4, SMALL_WEIGHTS = 5, SMALL_OPS = 5 };

struct small_plan {
    struct rn_plan plan; /* of the arrays below */
    struct rn_op ops[SMALL_OPS];
    struct rn_slot slots[SMALL_SLOTS];
    struct rn_weight weights[SMALL_WEIGHTS];
    struct rn_tensor tensors[SMALL_WEIGHTS];
    struct rn_kv_layer layer;
    float table[SMALL_VOCAB * SMALL_WIDTH], norm[SMALL_WIDTH], product[SMALL_WIDTH * SMALL_WIDTH], bias[SMALL_WIDTH],
        output[SMALL_VOCAB * SMALL_WIDTH];
};

/* Fills it with numbers of the seed. */
void small_plan_init(struct small_plan *small, uint64_t seed);

/* The logits of a token, in double precision. */
void small_plan_logits(const struct small_plan *small, int32_t token, double logits[SMALL_VOCAB]);

#endif
