/* The wanted rows of the step that decode composes: who draws each of them, the device or the sampler actor, what it
 * takes, and how many steps may be in flight for that. */
#ifndef RN_ACTORS_DECODE_OUTS_H
#define RN_ACTORS_DECODE_OUTS_H

#include "actors/decode_actor.h"

/* How many steps may be in flight now, by the requests that decode has. */
uint32_t rn_outs_depth(const struct rn_decode *decode);

/* Rows of the request from which the step may still have to be drawn: there is room for the logits that the sampler
 * draws from, or for what the device changes. */
uint32_t rn_outs_left(const struct rn_decode *decode, const struct rn_request *request);

/* Of the next position. Not its pick: that is large, and the sampler writes it. row: which of the request's that are
 * drawn in this step. keep_logits: where a copy of them goes, or NULL. */
void rn_outs_put(struct rn_decode *decode, struct rn_batch_out *out, struct rn_request *request, bool sample,
                 uint32_t row, float *keep_logits);

#endif
