/* A backend of two: the front of a cut plan (cut.h) on one device, its back on another one.
 *
 *   submit ─▶ front: blocks 0 .. n-1 ──features of every row──▶ back: the other blocks, logits, draws ─▶ on_done
 *
 * Both have the same KV blocks and states, by number, each of its own layers. Up to two steps are in flight: the front
 * computes one while the back computes the one before, but for rows whose tokens that one draws. So chunks of prompts
 * keep both devices busy, and an answer's tokens one after the other.
 *
 * A row's numbers depend on its sequence alone (law 5), since that holds on both devices and what crosses is exact. */
#ifndef RN_MODEL_SPLIT_H
#define RN_MODEL_SPLIT_H

#include "model/backend.h"

struct rn_split_part {
    struct rn_device *device;   /* open for as long as the backend lives */
    const struct rn_plan *plan; /* a part of the plan that is prepared; borrowed likewise */
};

/* What a backend of these two devices can do. Both have blocks of the same number of positions. */
struct rn_device_caps rn_split_caps(const struct rn_device_caps *front, const struct rn_device_caps *back);

/* The front's device computes in the host's memory (rn_device_memory.shared). NULL: no memory. Of the limits,
 * weights_place is for backends of whole plans: it is not looked at. */
struct rn_backend *rn_split_new(struct rn_heap *heap, const struct rn_split_part *front,
                                const struct rn_split_part *back);

#endif
