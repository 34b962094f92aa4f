/* Prefixes on their way up from lower tiers, for the prefix cache alone.
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
 * it is the request's own choice (runnel_cache_wait). How many blocks are brought up follows from cost.h. */
#ifndef RN_ACTORS_TIER_PROMOTION_H
#define RN_ACTORS_TIER_PROMOTION_H

#include "actors/tier/cached_stream.h"
#include "actors/tier/directory.h"

#define RN_PROMOTIONS 4u /* prefixes that come up at once */

struct rn_promotion {
    struct rn_prefix_path path;
    struct rn_cached_stream *stream; /* of the request that it is for; NULL: of none any more */
    bool busy, failed;
    uint32_t n_before;          /* blocks of the prefix that were here */
    uint32_t n, n_sent, n_back; /* blocks to come, asked for, answered */
    int32_t *tokens;            /* [(n_before + n) × block_tokens] */
    uint32_t *blocks;           /* [n_before + n]: those to come are taken from the pool */
    uint64_t *numbers;          /* [n] */
    struct rn_prefix_salt salt;
};

struct rn_promotions {
    const struct rn_context *context;
    struct rn_tier_blocks *blocks;  /* borrowed */
    struct rn_directory *directory; /* borrowed: takes and sends the moves */
    struct rn_promotion items[RN_PROMOTIONS];
};

void rn_promotions_init(struct rn_promotions *promotions, struct rn_tier_blocks *blocks,
                        struct rn_directory *directory);

/* True: the path is a promotion's. */
bool rn_promotions_has(const struct rn_promotions *promotions, const struct rn_prefix_path *path);

/* Lower tiers have some of it, and none was begun for the stream's admission. */
bool rn_promotions_can_begin(const struct rn_promotions *promotions, const struct rn_cached_stream *stream,
                             const struct rn_prefix_match *found);

/* Blocks asked for that have not come. */
uint32_t rn_promotions_on_the_way(const struct rn_promotions *promotions);

/* Begins one for the stream, if it can and there is anything worth it: of the free blocks it takes what it needs or
 * what there is. `tokens` are the prompt's, ready[found->n_ready] the blocks that the tree has of it. */
void rn_promotions_begin(struct rn_promotions *promotions, struct rn_cached_stream *stream, struct rn_prefix_salt salt,
                         const int32_t *tokens, const struct rn_prefix_match *found, const uint32_t *ready);

/* A move up has come back; see rn_directory_arrived for n_others. rn_directory_moved is next. */
void rn_promotions_arrived(struct rn_promotions *promotions, const struct rn_move *move, uint32_t n_others);

/* Asks for what can be asked for now. */
void rn_promotions_send(struct rn_promotions *promotions);

/* The request goes on, or has gone: nothing that comes up is its own any more. */
void rn_promotions_let_go(struct rn_cached_stream *stream);

/* False: something above does not hold. */
bool rn_promotions_check(const struct rn_promotions *promotions);

#endif
