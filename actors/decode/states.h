/* Recurrent states of the sequences that decode runs, and how they go back behind drafts.
 *
 * A state is behind one position alone. So a sequence that brings drafts into a step leaves its state where it is, and
 * its rows go on in a copy, in its second slot:
 *
 *                          n_done
 *     slot      ──────────────┤ stays               position  p    d1   d2   d3
 *     second                  └──copy──▶ last d1 d2 d3        right right wrong
 *
 * Where all drafts were right the slots change roles. Else the state is behind its sequence by the last token and the
 * drafts that were right (`n_behind`): their rows are in the sequence's next step again, in front of its own, and store
 * what they have stored (law 5). They may be followed by drafts, too, up to RN_MOST_BEHIND rows that are computed again
 * for one sequence. A request without a second slot brings no drafts (tier/state_slots.h). */
#ifndef RN_ACTORS_DECODE_STATES_H
#define RN_ACTORS_DECODE_STATES_H

#include "actors/batch.h"
#include "actors/request.h"

/* Behind so many rows a sequence takes a step without drafts, in which it comes up with itself. */
enum { RN_MOST_BEHIND = 6 };

/* The request joins the batch as its next part: states[max_seqs], which are the step's, gets the slot that its rows
 * change. */
void rn_decode_put_state(struct rn_batch *batch, uint32_t *states, struct rn_request *request);

/* How many drafts it may bring for its state's sake; UINT32_MAX: any number. */
uint32_t rn_decode_state_room(const struct rn_request *request);

/* The batch's last part has its drafts: where there are some its state stays, and its rows go on in a copy. */
void rn_decode_keep_state(struct rn_batch *batch, uint32_t *states, struct rn_batch_part *part);

/* The step is back, and what it means for the sequence is known: n_accepted drafts were right. */
void rn_decode_settle_state(struct rn_batch_part *part);

#endif
