/* The draft actor: makes guesses of the next tokens of many streams with a drafter (draft/drafter.h), one pass of its
 * backend at a time for all of them.
 *
 *   NEWS ─▶ draft streams ─▶ pass: rows of each that is to have one guess more ─▶ backend ─▶ DRAFTED ─▶ guesses ─▶ DRAFTS
 *
 * A draft stream is what the actor knows of one stream:
 *
 *   tokens   | known ................ | guessed ...... |
 *            0                 n_known          n_tokens
 *   KV       | done ...................... |
 *
 * A pass brings a draft stream's rows from the last that is done up to its last token, and draws the next guess from
 * that one's logits: greedily, or, for a stream that samples, with the stream's own parameters and noise of that
 * position. The target will draw with the same noise, so where the two distributions are alike they draw the same
 * token. A known token that is not what was guessed takes the guesses behind it with it; their KV is written again.
 *
 * A concurrent drafter goes on while the target verifies: behind the guesses in the step in flight it guesses the token
 * that the step will add, and then those for the next step; if time is left, or there are likelier things to guess, it
 * begins a second line at a runner-up (draft/branch.h). One that shares the target's threads works only while decode
 * waits for it, but for the prompt: that is computed in small chunks, which pass between the target's steps.
 *
 * Memory: the drafter's KV blocks, taken as a stream grows; one that finds none drafts no more. A draft stream's
 * tokens are taken from the heap when it begins. What a draft model knows of streams that have ended stays for who
 * goes on from there, and how much of a long past is read is a matter of price: draft/cache.h. */
#ifndef RN_ACTORS_DRAFT_ACTOR_H
#define RN_ACTORS_DRAFT_ACTOR_H

#include "actors/draft/state.h"

runnel_status rn_draft_actor_init(struct rn_draft_actor *draft, const struct rn_context *context);
void rn_draft_actor_fini(struct rn_draft_actor *draft);

/* Every draft stream's counts in order and its blocks enough. For tests. */
bool rn_draft_actor_check(const struct rn_draft_actor *draft);

#endif
