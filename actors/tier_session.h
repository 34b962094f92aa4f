/* Sessions as wholes, for the tier actor: forks, exports, imports.
 *
 * A fork or an export takes what its session is once the turns that were submitted before have ended: a snapshot. It
 * waits in tier->snapshots while such a turn runs or waits; turns that come behind it wait until it is taken. Taking it
 * copies the tokens and adds references to the blocks, no more: whoever writes into a shared block gets a copy of it.
 * So an export holds nobody up. A session that is still to become something (a copy, a file's) is busy until then. */
#ifndef RN_ACTORS_TIER_SESSION_H
#define RN_ACTORS_TIER_SESSION_H

#include "actors/tier_actor.h"

/* ---- tier_actor.c ---- */

struct rn_session *rn_tier_session_of(struct rn_tier *tier, const struct rn_request *request);

/* Hands out the blocks there are. */
void rn_tier_serve(struct rn_tier *tier);

/* Its outcome is set: it goes to the detokenizer. */
void rn_tier_end(struct rn_tier *tier, struct rn_request *request);

/* The session is not busy any more; frees it where that is wanted. */
void rn_tier_session_idle(struct rn_tier *tier, struct rn_session *session);

/* Ends the turns that wait for it, lets snapshots be taken of it, and frees it. */
void rn_tier_drop_session(struct rn_tier *tier, struct rn_session *session);

/* ---- tier_session.c ---- */

/* Takes all that can be taken now; true: there was one. */
bool rn_tier_take_snapshots(struct rn_tier *tier);

/* True while the turn must wait for a snapshot of its session that came before it. */
bool rn_tier_is_behind_snapshot(const struct rn_tier *tier, const struct rn_request *request);

/* ADMIT of a request with a job. */
void rn_tier_take_job(struct rn_tier *tier, struct rn_request *request);

/* True: the stream is one of a job that waits here or is with the worker; it ends soon. */
bool rn_tier_cancel_job(struct rn_tier *tier, uint32_t slot, uint32_t generation);

void rn_tier_on_session_fork(struct rn_actor *self, struct rn_msg *msg);
void rn_tier_on_job_done(struct rn_actor *self, struct rn_msg *msg);

#endif
