/* Copies into lower tiers, for the directory alone (directory*.c). */
#ifndef RN_ACTORS_TIER_DIRECTORY_COPIES_H
#define RN_ACTORS_TIER_DIRECTORY_COPIES_H

#include "actors/tier/directory.h"

/* Sends the next blocks of what is wanted in the tiers that last; of what would be evicted next. One move down is under
 * way at a time. */
void rn_directory_send_wanted(struct rn_directory *directory);
void rn_directory_send_oldest(struct rn_directory *directory);

/* There is something to copy, if nobody minds. */
bool rn_directory_has_copies(const struct rn_directory *directory);

/* A move down is back. */
void rn_directory_settle_down(struct rn_directory *directory, struct rn_move *move);

#endif
