/* Which experts of a block are worth a place in a cache: those that were used most lately.
 *
 *   score = uses, halved whenever RN_EXPERT_PERIOD uses an expert have come to the block since it was halved last
 *
 * So an expert that gets a share p of the uses has, behind the k-th halving, a score of p n PERIOD (1 - 2^-k), n experts.
 * An expert takes the place of a cached one where its score is larger by more than chance makes it: three standard
 * deviations of the difference of two counts. Numbers alone: no memory, no clock, one thread. */
#ifndef RN_GPU_EXPERT_POLICY_H
#define RN_GPU_EXPERT_POLICY_H

#include <stdbool.h>
#include <stdint.h>

enum {
    RN_EXPERT_PERIOD = 64,  /* at 8 of 128 experts a token, a thousand tokens */
    RN_EXPERT_NOWHERE = -1, /* in no place: with a score it may come into one */
    RN_EXPERT_COMING = -2   /* on its way: it is left alone */
};

/* scores [n] grow by `fresh` [n]; *age, at first 0, is the uses since they were halved. */
void rn_expert_scores_add(uint32_t *scores, const uint32_t *fresh, uint32_t n, uint64_t *age);

/* Which expert is to come into the cache, and which goes for it, where place[e] is where expert e is, or one of the two
 * above. has_room: a place is empty, and *out is n. False: all is as it should be. Of equals the first one. */
bool rn_expert_choose(const uint32_t *scores, const int32_t *place, uint32_t n, bool has_room, uint32_t *in,
                      uint32_t *out);

#endif
