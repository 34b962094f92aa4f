/* The ceiling of the hit rate: what share of the blocks that prompts asked for an endless cache would have had,
 *
 *     r = (N - U) / N      N blocks seen, U different ones among them
 *
 * A block is identified by salt and all token ids from the sequence's start to the block's end. N is exact, U is
 * estimated in 16 KiB whatever the traffic, by a HyperLogLog sketch read as it is written:
 *
 *   sketch      Flajolet, Fusy, Gandouet, Meunier, "HyperLogLog", AofA 2007: register j keeps the highest rank (1 + the
 *               number of leading zero bits) among the hashes that fall to it
 *   estimator   "historic inverse probability" (Cohen, "All-distances sketches, revisited", PODS 2014; Ting,
 *               "Streamed approximate counting of distinct elements", KDD 2014): whenever a register rises, U grows by
 *               1 / p, where p is the chance that a new block makes any register rise. Unbiased from the first block on
 *               without tables; needs the stream to be read in one place, which it is
 *
 * 24,420 registers of 5 bits: the standard error of U is sqrt(ln 2 / 24420) = 0.53 %, and that of r is (1 - r) times as
 * much. Registers saturate at about 10^13 different blocks. Single owner, no memory of its own. */
#ifndef RN_CACHE_HIT_CEILING_H
#define RN_CACHE_HIT_CEILING_H

#include <stdint.h>

#include "cache/prefix_tree.h"

#define RN_CEILING_WORDS 4070u
#define RN_CEILING_REGISTERS (6u * RN_CEILING_WORDS) /* six to a word */

struct rn_hit_ceiling {
    uint64_t n_seen;
    double n_unique; /* estimate of U */
    uint64_t chance; /* p times RN_CEILING_REGISTERS, in units of 2^-31: exact */
    uint32_t words[RN_CEILING_WORDS];
};

void rn_hit_ceiling_init(struct rn_hit_ceiling *ceiling);

/* A prompt asks for the whole blocks of tokens[n_tokens]: n_tokens / block_tokens of them. As for match(), give one
 * token less than the prompt has. */
void rn_hit_ceiling_add(struct rn_hit_ceiling *ceiling, struct rn_prefix_salt salt, const int32_t *tokens,
                        uint32_t n_tokens, uint32_t block_tokens);

/* One block by a 64-bit hash with evenly spread bits. */
void rn_hit_ceiling_add_hash(struct rn_hit_ceiling *ceiling, uint64_t hash);

/* True: the chance is that of the registers as they stand, and the counts are what can have come of it. Linear in the
 * registers. */
bool rn_hit_ceiling_check(const struct rn_hit_ceiling *ceiling);

/* r, in [0, 1]; 0 before the first block. */
double rn_hit_ceiling_rate(const struct rn_hit_ceiling *ceiling);

#endif
