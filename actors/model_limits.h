/* How large a model's steps are, and how many KV blocks and recurrent states its memory holds. */
#ifndef RN_ACTORS_MODEL_LIMITS_H
#define RN_ACTORS_MODEL_LIMITS_H

#include "runnel.h"

/* Sets model->parts.limits, from its options, its plan and its device. INVALID: kv_bytes hold not even one stream. */
runnel_status rn_model_choose_limits(struct runnel_model *model, runnel_error *error);

#endif
