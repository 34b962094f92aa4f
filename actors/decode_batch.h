/* Composing the batch of one step: see decode_batch.c. */
#ifndef RN_ACTORS_DECODE_BATCH_H
#define RN_ACTORS_DECODE_BATCH_H

#include <stdbool.h>

#include "actors/decode_actor.h"

/* Fills decode->batch from the running sequences and the prompts; false when nothing can run now. The
 * chosen requests are marked in_step and their n_done counts the new rows. */
bool rn_batch_compose(struct rn_decode *decode);

/* Blocks that were granted go to the ends of the request's tables: first to the means', where those are short. */
void rn_batch_take_blocks(const struct rn_decode *decode, struct rn_request *request, const uint32_t *blocks,
                          uint32_t n);

/* Could the running sequence be in the next step? */
bool rn_batch_can_step(const struct rn_decode *decode, const struct rn_request *request);

/* Room for drafts that the next step has; before it is composed. */
void rn_batch_count_spare(struct rn_decode *decode);

/* Drafts that the running sequence could take into the next step, as far as there is room. */
uint32_t rn_batch_draft_room(const struct rn_decode *decode, const struct rn_request *request);

/* Has its own proposer something for it? */
bool rn_batch_has_drafts(const struct rn_decode *decode, const struct rn_request *request);

/* True when the sequence cannot go on before its reader has read. */
bool rn_batch_is_stalled(const struct rn_decode *decode, const struct rn_request *request);

#endif
