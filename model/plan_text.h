/* A plan in words, for `runnel info --plan`. */
#ifndef RN_MODEL_PLAN_TEXT_H
#define RN_MODEL_PLAN_TEXT_H

#include <stddef.h>

#include "model/plan.h"

/* A line of sizes, then one for each op:
 *
 *     plan of llama: 5 blocks, 86 ops, embedding 64, vocabulary 512
 *     x4 [64] = RMS_NORM x3, blk.0.attn_norm.weight F32, eps 1e-05
 *
 * xN is slot N. Writes at most `capacity` bytes; returns the whole size. */
size_t rn_plan_text(const struct rn_plan *plan, char *text, size_t capacity);

#endif
