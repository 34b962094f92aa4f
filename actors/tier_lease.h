/* Leases of blocks, for tier_actor.c alone: who has how many, who wants more, from whom they are taken. See
 * tier_actor.h for the order. One PREEMPT or SHORT is under way at a time: what it brings may be enough. */
#ifndef RN_ACTORS_TIER_LEASE_H
#define RN_ACTORS_TIER_LEASE_H

#include "actors/tier_actor.h"

/* NO_MEMORY: nothing is held. */
runnel_status rn_tier_lease_init(struct rn_tier *tier);
void rn_tier_lease_fini(struct rn_tier *tier);

uint32_t rn_tier_blocks_for(const struct rn_tier *tier, uint32_t tokens);

/* Drops the KV of a session; its tokens stay. */
void rn_tier_drop_blocks(struct rn_tier *tier, struct rn_session *session);

/* False: n free blocks are not to be had now from the tree and idle sessions other than `session`. */
bool rn_tier_make_room(struct rn_tier *tier, const struct rn_session *session, uint32_t n);

/* As rn_tier_make_room, and where others run there is some for their growth. */
bool rn_tier_has_room(struct rn_tier *tier, const struct rn_session *session, uint32_t n);

/* Takes n free blocks, for which room was made. */
void rn_tier_take(struct rn_tier *tier, uint32_t n, uint32_t *blocks);

/* Blocks that should stay free behind an admission, for those that run to grow into: else it would soon be taken
 * back. */
uint32_t rn_tier_reserve(const struct rn_tier *tier);

/* The request goes on to prefill; it has retired or come back. */
void rn_tier_go_in(struct rn_tier *tier, const struct rn_request *request);
void rn_tier_come_out(struct rn_tier *tier, const struct rn_request *request);

/* GROW, UNGRANT, SHORT_BACK: rn_tier_grow_all is due. */
void rn_tier_on_grow(struct rn_actor *self, struct rn_msg *msg);
void rn_tier_on_ungrant(struct rn_actor *self, struct rn_msg *msg);
void rn_tier_on_short_back(struct rn_actor *self, struct rn_msg *msg);

/* Gives those that want to grow what there is, by rank. False: one is left without, and it is being seen to; *priority
 * is its own. */
bool rn_tier_grow_all(struct rn_tier *tier, int32_t *priority);

/* A waiting request of that priority has found no room: takes blocks from those that run, if it may. */
void rn_tier_claim(struct rn_tier *tier, int32_t priority);

/* Nobody is short of blocks any more. (With nobody inside decode need not know: it may be closing.) */
void rn_tier_end_shortage(struct rn_tier *tier);

#endif
