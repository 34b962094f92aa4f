/* What a draft model knows of a stream's past, and what that may cost: of drafters of TOKENS, which must have computed
 * each token before the one that they guess behind.
 *
 *   stream   | known tokens ................................ |
 *   draft stream     | cut off | shared blocks | to be read ........ |
 *                base ─┘
 *
 * The KV of a stream that has ended stays, as long as nobody needs its blocks: a session's next turn, a request that
 * was preempted, a fork and whoever has the same prompt begin with it. What is shared are whole blocks of tokens that
 * are known and the same, at the same positions; nobody writes into them again. Streams of different cache_salt share
 * nothing, so that no speed tells one what another has asked.
 *
 * What is left is read in chunks between the target's steps, and nobody knows yet whether it pays. So the verifier
 * says what it may cost (rn_verifier_tell): where drafter and target take turns half of what the stream's budget
 * holds, which pays for it as for a draft, and 1/32 of what the target itself has to compute of it; beside the target
 * 16 steps and all of that. Where it would take longer only the last tokens are read: the draft stream's positions
 * begin there (its base). A position is relative to those that the drafter attends to, so it just knows less. Inside
 * the draft actor. */
#ifndef RN_ACTORS_DRAFT_CACHE_H
#define RN_ACTORS_DRAFT_CACHE_H

#include "actors/draft/state.h"

/* The draft stream's stream has ended, and the draft stream is in no pass: what it has computed of it is remembered,
 * if there is memory for that. */
void rn_draft_cache_keep(struct rn_draft_actor *draft, const struct rn_draft_stream *draft_stream);

/* While a pass is composed, so that no draft stream is in one: a draft stream that has not begun takes over what there
 * is, and one that has too much to read begins nearer to its end. */
void rn_draft_cache_settle(struct rn_draft_actor *draft, struct rn_draft_stream *draft_stream);

/* A pass with rows of the draft stream's past is back: what they are to be paid for. */
void rn_draft_cache_note(const struct rn_draft_actor *draft, struct rn_draft_stream *draft_stream);

/* Forgets streams that have ended, until a block is free. False: there is none to be had so. */
bool rn_draft_cache_make_room(struct rn_draft_actor *draft);

void rn_draft_cache_fini(struct rn_draft_actor *draft);

/* What is remembered are whole blocks that are held. */
bool rn_draft_cache_check(const struct rn_draft_actor *draft);

#endif
