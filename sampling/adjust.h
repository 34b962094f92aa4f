/* What changes single logits: biases, ends of the answer that may not come yet, penalties and dry. */
#ifndef RN_SAMPLING_ADJUST_H
#define RN_SAMPLING_ADJUST_H

#include "sampling/sampler_state.h"

/* The logits after biases and the samplers that come before all others: the caller's own array when there are none. */
const float *rn_adjust(const struct rn_sampler *s, struct rn_path path, const struct rn_mask *mask,
                       struct rn_sampler_scratch *scratch, const float *logits);

/* penalties or dry, further back in the chain. */
void rn_adjust_list(enum rn_sampler_kind kind, const struct rn_sampler *s, struct rn_path path,
                    struct rn_sampler_scratch *scratch, struct rn_candidates *list);

#endif
