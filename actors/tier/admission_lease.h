/* Leases of blocks, for admission alone (admission*.c): who has how many, who wants more, from whom they are taken. See
 * admission.h for the order. */
#ifndef RN_ACTORS_TIER_ADMISSION_LEASE_H
#define RN_ACTORS_TIER_ADMISSION_LEASE_H

#include "actors/tier/admission.h"

/* Drops the KV of a session; its tokens stay. */
void rn_admission_drop_blocks(struct rn_admission *admission, struct rn_session *session);

/* False: n free blocks are not to be had now from the tree and idle sessions other than `session`. */
bool rn_admission_make_room(struct rn_admission *admission, const struct rn_session *session, uint32_t n);

/* As rn_admission_make_room, and where others run there is some for their growth. */
bool rn_admission_has_room(struct rn_admission *admission, const struct rn_session *session, uint32_t n);

/* Takes back what the request has, but its first n_kept blocks. */
void rn_admission_take_blocks_back(struct rn_admission *admission, struct rn_request *request, uint32_t n_kept);

/* The request goes on to prefill; it has retired or come back. */
void rn_admission_go_in(struct rn_admission *admission, const struct rn_request *request);
void rn_admission_come_out(struct rn_admission *admission, const struct rn_request *request);

/* A waiting request of that priority has found no room: takes blocks from those that run, if it may. */
void rn_admission_claim(struct rn_admission *admission, int32_t priority);

/* Of the blocks that decode was told to bring so many have come. */
void rn_admission_brought(struct rn_admission *admission, uint32_t n_blocks);

/* Nobody is short of blocks any more. (With nobody inside decode need not know: it may be closing.) */
void rn_admission_end_shortage(struct rn_admission *admission);

#endif
