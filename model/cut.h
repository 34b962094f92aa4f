/* A plan cut in two between blocks, so that two devices compute a model one behind the other.
 *
 *   front   EMBED → blocks 0 .. n-1 ─┬─ TAP: what the back reads, as the features of every row
 *                                    │
 *   back                       INPUT ┴─ SPLIT → blocks n .. → SELECT → logits, features
 *
 * Each is a plan of its own, with those weights and cache layers that its ops touch, and has the same ops as the whole
 * one: so it computes the same numbers. What is a feature of the whole plan is one of the back: a value that a TAP of
 * the front would give out crosses, too. The front has no logits (rn_plan.logits_slot -1): nothing is wanted of its
 * steps but their features. */
#ifndef RN_MODEL_CUT_H
#define RN_MODEL_CUT_H

#include "model/plan.h"

/* The plan can be cut behind its first n blocks: both parts have some, what crosses is floats of each row, and no cache
 * layer or state is touched on both sides. */
bool rn_plan_can_cut(const struct rn_plan *plan, uint32_t n);

/* Both parts, which borrow the plan's files. Plans without INPUT. UNSUPPORTED: it cannot be cut there; NO_MEMORY. */
runnel_status rn_plan_cut(struct rn_heap *heap, const struct rn_plan *plan, uint32_t n, struct rn_plan **front,
                          struct rn_plan **back, runnel_error *error);

#endif
