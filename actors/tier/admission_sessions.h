/* Sessions, for admission alone (admission*.c): their turns, and forks, exports and imports of them as wholes.
 *
 * A fork or an export takes what its session is once the turns that were submitted before have ended: a snapshot. It
 * waits in `snapshots` while such a turn runs or waits; turns that come behind it wait until it is taken. Taking it
 * copies the tokens and adds references to the blocks, no more: whoever writes into a shared block gets a copy of it.
 * So an export holds nobody up. A session that is still to become something (a copy, a file's) is busy until then.
 *
 * Copies of copies may wait for each other in chains as long as the host likes, and each may be freed already. So what
 * becomes idle and is to be freed joins `leaving`, and is freed one after the other, and never inside the taking of the
 * snapshot that made it idle. A copy comes behind its source in `snapshots`: one pass takes a whole chain. */
#ifndef RN_ACTORS_TIER_ADMISSION_SESSIONS_H
#define RN_ACTORS_TIER_ADMISSION_SESSIONS_H

#include "actors/tier/admission.h"

/* The open session of the request; NULL when there is none (any more). */
struct rn_session *rn_admission_session_of(const struct rn_admission *admission, const struct rn_request *request);

/* The turn has ended: the request's tokens and blocks go to the session. */
void rn_admission_leave_session(struct rn_admission *admission, struct rn_request *request, struct rn_session *session);

/* Takes all snapshots that can be taken now, and frees the sessions that waited for that; true: there was one. */
bool rn_admission_take_snapshots(struct rn_admission *admission);

/* True while the turn must wait for a snapshot of its session that came before it. */
bool rn_admission_is_behind_snapshot(const struct rn_admission *admission, const struct rn_request *request);

/* A request with a job has come. True: serve is due. */
bool rn_admission_take_job(struct rn_admission *admission, struct rn_request *request);

/* True: the stream is one of a job that waits here or is with the worker; it ends soon. *serve: serve is due. */
bool rn_admission_cancel_job(struct rn_admission *admission, uint32_t slot, uint32_t generation, bool *serve);

#endif
