/* What each draft stream wants of the next pass, and whether the drafter is fast enough to work for it. Inside the
 * draft actor. */
#ifndef RN_ACTORS_DRAFT_WISHES_H
#define RN_ACTORS_DRAFT_WISHES_H

#include "actors/draft/state.h"

/* Has the draft stream rows in the pass in flight, of its line or its branch? */
bool rn_draft_in_pass(const struct rn_draft_stream *draft_stream);

/* Does its stream go on, and may it still have guesses? */
bool rn_draft_is_open(const struct rn_draft_stream *draft_stream);

/* Is the drafter fast enough for its guesses to pay? Not before the target's time is known. */
bool rn_draft_can_work(const struct rn_draft_actor *draft);

/* Another step of the target: a drafter that was too slow may be so no longer. */
void rn_draft_look_at_time(struct rn_draft_actor *draft);

/* Is the draft stream near enough to the end of what it knows to guess? Sets its state. */
void rn_draft_look_at(struct rn_draft_stream *draft_stream);

/* Has the draft stream what its stream wants, or can it get no more? */
bool rn_draft_has_enough(const struct rn_draft_actor *draft, const struct rn_draft_stream *draft_stream);

/* Draws the draft stream's guess for token index i from logits [vocabulary]. False: these logits have none; then the
 * draft stream is to be switched off. */
bool rn_draft_guess(struct rn_draft_actor *draft, struct rn_draft_stream *draft_stream, uint32_t i, const float *logits,
                    int32_t *token, struct rn_runner_up *second);

#endif
