/* One pass of the drafter: see draft/pass.c. Inside the draft actor. */
#ifndef RN_ACTORS_DRAFT_PASS_H
#define RN_ACTORS_DRAFT_PASS_H

#include "actors/draft/state.h"

/* Begins the next pass, if none is in flight and there is something to compute. */
void rn_draft_begin_pass(struct rn_draft_actor *draft);

/* Stops the pass in flight if each stream that has rows in it has ended or is off. */
void rn_draft_stop_pass(struct rn_draft_actor *draft);

/* The pass is back: guesses are drawn, draft streams that have ended let go. */
void rn_draft_end_pass(struct rn_draft_actor *draft);

/* The draft stream's blocks and memory are free again; it is in no pass. */
void rn_draft_free_stream(struct rn_draft_actor *draft, struct rn_draft_stream *draft_stream);

/* No guesses any more for this stream. */
void rn_draft_switch_off(struct rn_draft_actor *draft, struct rn_draft_stream *draft_stream);

#endif
