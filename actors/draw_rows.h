/* Drawing tokens from the wanted rows of a batch. Three ways, which give the same tokens:
 *
 *   inside the step, by the device's threads      RN_CAN_DRAW          draw_in_step, from logits that stay there
 *   inside the step, by the device itself         RN_CAN_DRAW_ITSELF   parameters and coin go down, tokens come up
 *   by the sampler actor, when the step is done   any other device, and of one that draws by itself the rows with
 *                                                 what it cannot draw: their logits come up
 *
 * A row with a grammar is drawn from its mask (grammar/guide.h), which a device that draws by itself finds in its
 * memory of the host (model/draw_mask.h); where that is not there in time, by the sampler.
 *
 * A row's draw reads the request's sampling state, which nobody changes until the batch is back at decode, and the
 * drafts in front of the row. */
#ifndef RN_ACTORS_DRAW_ROWS_H
#define RN_ACTORS_DRAW_ROWS_H

#include "actors/batch.h"

/* Rows of a step that the sampler draws where the device draws by itself: so many have room for their logits. */
#define RN_LATE_DRAWS 64u

/* Working memory for a device that draws in the step: the batch's draws, and a scratch for each thread that may draw.
 * Without such a device it takes nothing. NO_MEMORY: what it has taken, rn_draws_fini gives back. */
runnel_status rn_draws_init(struct rn_batch *batch, struct rn_heap *heap, const struct rn_backend *backend,
                            uint32_t max_outs);
void rn_draws_fini(struct rn_batch *batch, struct rn_heap *heap);

/* Decode, when the batch is composed: the step draws, if the device can. */
void rn_draws_ask(struct rn_batch *batch);

/* The sampler, when the step is done: each wanted row has its token, a status, or is refuted by the draw in front of
 * it. scratch: for rows that the step has not drawn. */
void rn_draws_take(struct rn_batch *batch, struct rn_sampler_scratch *scratch);

/* The drafts from the row that follows what the sampling state knows of down to this one, in order, in
 * tokens[RN_PATH_MOST]. */
struct rn_path rn_draw_path(const struct rn_batch_out *out, int32_t *tokens);

/* Fails the request of a row for which no token could be drawn. */
void rn_draw_fail(struct rn_request *request, const struct rn_batch_out *out);

/* Draws the token of the step's wanted row `out` from its logits[n_vocab]. Writes that rn_batch_out and the scratch
 * alone and reads of others only what they were composed with: rows may be drawn in any order, each thread with a
 * scratch of its own. */
void rn_draw_row(struct rn_batch *batch, uint32_t out, const float *logits, struct rn_sampler_scratch *scratch);

#endif
