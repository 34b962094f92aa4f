/* Composing the batch of one step: see compose.c. */
#ifndef RN_ACTORS_DECODE_COMPOSE_H
#define RN_ACTORS_DECODE_COMPOSE_H

#include <stdbool.h>

#include "actors/decode_actor.h"

/* outs.c: how many steps may be in flight now, by the requests that decode has. */
uint32_t rn_outs_depth(const struct rn_decode *decode);

/* outs.c: rows of the request from which the step may still have to be drawn: there is room for the logits that
 * the sampler draws from, or for what the device changes. */
uint32_t rn_outs_left(const struct rn_decode *decode, const struct rn_request *request);

/* outs.c: the end of this prompt was left out, as there was none left. So much is kept from the running sequences of
 * the next step: else they might have all of it in each. */
void rn_outs_keep(struct rn_decode *decode, const struct rn_request *request);

/* outs.c: of the next position. Not its pick: that is large, and the sampler writes it. row: which of the
 * request's that are drawn in this step. keep_logits: where a copy of them goes, or NULL. */
void rn_outs_put(struct rn_decode *decode, struct rn_batch_out *out, struct rn_request *request, bool sample,
                 uint32_t row, float *keep_logits);

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
