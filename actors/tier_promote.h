/* Prefixes on their way up from lower tiers, for the tier alone.
 *
 *   request's prompt   | ready ... | cold, cold, cold | what is to be computed
 *   promotion                      | claims these: pending ... ready one move after the other
 *
 * A promotion is a path of the prefix tree like a request's: the blocks that it brings up are pending, so whoever wants
 * them too waits for them, and when they have come they are ready for all. What does not come is cold again or gone,
 * and is computed. It holds its blocks only until they have come: a request that waits holds nothing, and for each
 * admission of a request one promotion is begun at most, so whoever finds its blocks evicted again computes them.
 *
 * It begins when the request comes and has to wait anyway, or when its turn comes; whether the request then waits for
 * it is the request's own choice (runnel_cache_wait). How many blocks are brought up follows from tier_cost.h. */
#ifndef RN_ACTORS_TIER_PROMOTE_H
#define RN_ACTORS_TIER_PROMOTE_H

#include "actors/tier_cache.h"

/* Its turn has come: tokens of the prompt are in tier->tokens, `fit` is what was found for them, and it begins with
 * blocks for n_positions. True: what lower tiers have of it is on its way, or something was evicted for it; look again.
 * False: there is nothing that would be worth it, or the request does not want to wait. */
bool rn_tier_bring_up(struct rn_tier *tier, const struct rn_request *request, const struct rn_session *session,
                      uint32_t n_positions, const struct rn_fit *fit);

/* The request has come and will wait a while. */
void rn_tier_prefetch(struct rn_tier *tier, const struct rn_request *request);

/* True: the path is a promotion's, and the request does not wait for those (any more). */
bool rn_tier_passes_by(const struct rn_tier *tier, const struct rn_request *request, const struct rn_prefix_path *path);

/* CACHE_DUE. */
void rn_tier_on_cache_due(struct rn_actor *self, struct rn_msg *msg);

/* A move up has come back. */
void rn_tier_promoted(struct rn_tier *tier, struct rn_move *move);

void rn_tier_send_promotions(struct rn_tier *tier);

/* The request goes on, or has gone: nothing that comes up is its own any more. */
void rn_tier_let_go_of_promotion(struct rn_tier *tier, uint32_t slot);

#endif
