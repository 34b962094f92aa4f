/* How large a model's steps are, and how many KV blocks and recurrent states its memory holds. */
#ifndef RN_ACTORS_LOAD_MODEL_LIMITS_H
#define RN_ACTORS_LOAD_MODEL_LIMITS_H

#include "runnel.h"

struct rn_backend_limits;
struct rn_device_caps;

/* How large the model's steps are on a device of these capabilities: its limits but for n_blocks, n_windows and
 * n_states, which are 0. From its options and its plan. */
void rn_model_step_limits(const struct runnel_model *model, const struct rn_device_caps *caps,
                          struct rn_backend_limits *limits);

/* Sets model->parts.limits, from its options, its plan and its device. INVALID: kv_bytes hold not even one stream. */
runnel_status rn_model_choose_limits(struct runnel_model *model, runnel_error *error);

#endif
