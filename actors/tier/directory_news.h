/* News of lower tiers, for the directory alone (directory*.c); see directory.h. */
#ifndef RN_ACTORS_TIER_DIRECTORY_NEWS_H
#define RN_ACTORS_TIER_DIRECTORY_NEWS_H

#include "actors/tier/directory.h"

/* A LISTEN has come back: the directory takes what it has, and sends it again, or, at CLOSE, keeps it. */
void rn_directory_on_listed(struct rn_directory *directory, struct rn_move *move);

/* In an engine without threads nobody wakes the mover: it is asked to look, with a TEND, when it is time. */
void rn_directory_look_for_news(struct rn_directory *directory);

/* At CLOSE, after each batch: true when the LISTEN is back; else it has been called. */
bool rn_directory_stop_listening(struct rn_directory *directory);

#endif
