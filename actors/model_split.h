/* A model whose weights are too large for its device, split between the CPU and the device by layer (model/split.h). */
#ifndef RN_ACTORS_MODEL_SPLIT_H
#define RN_ACTORS_MODEL_SPLIT_H

#include "runnel.h"

struct rn_backend;
struct rn_model_parts;
struct rn_plan;

/* Sets host, front, back, device_layers and caps of model->parts: by its options; or, of a device with memory of its
 * own that does not hold the weights and the KV of a context, as many layers as it holds; says so in the log. INVALID:
 * the model has fewer layers than asked for, or the device no memory of its own, and it was not chosen by "auto";
 * UNSUPPORTED: it cannot be cut; NO_MEMORY. */
runnel_status rn_model_split(struct runnel_model *model, runnel_error *error);

/* Of the device, or of both. NULL: no memory. */
struct rn_backend *rn_model_new_backend(struct runnel_model *model);

/* What of the plan the device computes: all of it, or the part behind the cut. */
const struct rn_plan *rn_model_device_plan(const struct rn_model_parts *parts);

#endif
