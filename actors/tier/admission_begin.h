/* How a request begins, for admission alone (admission*.c).
 *
 * What a prompt shares is whole blocks, and by copy what it has in common with one block more. If the blocks behind
 * them are being computed by a request that runs, it waits here until they are ready or given up, and holds nobody
 * else up; one that waits holds nothing, one that runs never waits. A block into which is written has one reference:
 * its writer's. A turn whose session shares the block that it goes on in (with the tree, a fork, an export) gets a
 * copy of it, made by the step of its first rows. What lower tiers have of a prompt comes up while it waits. */
#ifndef RN_ACTORS_TIER_ADMISSION_BEGIN_H
#define RN_ACTORS_TIER_ADMISSION_BEGIN_H

#include "actors/tier/admission.h"

/* Shares what can be shared and leases the rest. True: it can start, or it has failed, which its outcome says. False:
 * it has to wait for blocks, its own or another's. `session`: its own, NULL: none. For one that begins for the first
 * time, and for one that was taken back: that has all its tokens itself. */
bool rn_admission_begin_first(struct rn_admission *admission, struct rn_request *request, struct rn_session *session);
bool rn_admission_begin_again(struct rn_admission *admission, struct rn_request *request);

/* The context of one that was taken back is full: what stands between its head and the last half of the rest goes. What
 * is left is read again as a prompt. It holds no blocks. */
void rn_admission_shift(const struct rn_admission *admission, struct rn_request *request);

#endif
