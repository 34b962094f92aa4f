/* A model whose weights are too large for its device: split between the CPU and the device by layer (model/split.h), its
 * experts apart from their layers (rn_backend_limits.expert_bytes), or both. */
#ifndef RN_ACTORS_LOAD_MODEL_SPLIT_H
#define RN_ACTORS_LOAD_MODEL_SPLIT_H

#include "runnel.h"

struct rn_backend;
struct rn_expert_room;
struct rn_model_parts;
struct rn_plan;

/* Sets expert_bytes, host, front, back, device_layers and caps of model->parts: by its options; or, of a device with
 * memory of its own that does not hold the weights and the KV of a context, as many layers as it holds; says so in the
 * log. INVALID: the model has fewer layers than asked for, or no experts, or the device no memory of its own, and it was
 * not chosen by "auto"; UNSUPPORTED: it cannot be cut; NO_MEMORY. */
runnel_status rn_model_split(struct runnel_model *model, runnel_error *error);

/* Of the device, or of both. NULL: no memory. */
struct rn_backend *rn_model_new_backend(struct runnel_model *model);

/* Where experts lie that are apart; all 0: none are. */
void rn_model_expert_room(const struct rn_model_parts *parts, struct rn_expert_room *room);

/* What of the plan the device computes: all of it, or the part behind the cut. */
const struct rn_plan *rn_model_device_plan(const struct rn_model_parts *parts);

#endif
