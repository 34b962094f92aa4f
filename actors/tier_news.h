/* Blocks that others have put into lower tiers, for the tier alone: into the shared one, or into a folder that this
 * engine reads and another writes. They become nodes of the prefix tree without a block, like those that were evicted:
 * what was there when the model was loaded (rn_tier_adopt), and what comes later, which the mover hears of (mover.h,
 * LISTEN).
 *
 * A block that is here already, or in another tier, gets one more tier that has it. One that somebody computes just
 * now, or whose parent is not known, is not taken. News take only nodes and numbers that nobody uses. */
#ifndef RN_ACTORS_TIER_NEWS_H
#define RN_ACTORS_TIER_NEWS_H

#include "actors/tier_shelf.h"

/* rn_mover_adopt_fn. Before the first message. */
uint64_t rn_tier_adopt(void *user, enum rn_tier_kind kind, const struct rn_tier_record *record, uint64_t parent);

/* The model's actors are there, and a tier may have news: the mover shall listen. */
void rn_tier_listen(struct rn_tier *tier);

/* A LISTEN has come back: the tier takes what it has, and sends it again, or, at CLOSE, keeps it. */
void rn_tier_heard(struct rn_tier *tier, struct rn_move *move);

/* In an engine without threads nobody wakes the mover: it is asked to look, with a TEND, when it is time. */
void rn_tier_look_for_news(struct rn_tier *tier);

/* At CLOSE, after each batch: true when the LISTEN is back; else it has been called. */
bool rn_tier_stop_listening(struct rn_tier *tier);

#endif
