/* Composing the batch of one step: see decode_batch.c. */
#ifndef RN_ACTORS_DECODE_BATCH_H
#define RN_ACTORS_DECODE_BATCH_H

#include <stdbool.h>

#include "actors/decode_actor.h"

/* Fills the ring's next batch, decode->batch from then on, from the running sequences and the prompts; false when
 * nothing can run now. The chosen requests are in one step more, and their n_done counts the new rows. */
bool rn_batch_compose(struct rn_decode *decode);

/* Tells the sampler of a step with rows that grammars guide: before it is submitted, so that the sampler has heard of
 * it before it is done. */
void rn_batch_ask_for_masks(struct rn_decode *decode, const struct rn_batch *batch);

/* Blocks that were granted go to the ends of the request's tables: first to the means', where those are short. */
void rn_batch_take_blocks(const struct rn_decode *decode, struct rn_request *request, const uint32_t *blocks,
                          uint32_t n);

/* The rows of a step that has failed, or was stopped, are not computed: they are taken off what the request has done,
 * and what a move of it would have brought to its place. */
void rn_batch_uncount(struct rn_request *request, struct rn_batch_part *part);

/* A request with rows in the step in flight has no outcome yet. */
bool rn_batch_is_wanted(const struct rn_decode *decode);

/* True when the sequence cannot go on before its reader has read. */
bool rn_batch_is_stalled(const struct rn_decode *decode, const struct rn_request *request);

#endif
