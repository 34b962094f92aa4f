/* The doorkeeper: has this prefix been used before? What is used once is not worth a place on the disk.
 *
 * Two Bloom filters of 2^16 bits with two bits a block: the younger one is written, both are read, and when it holds
 * RN_DOOR_BLOCKS blocks it becomes the older one, whose content is dropped. So the last 8,192 to 16,384 blocks are
 * remembered, with one in about 20 to 100 falsely so; nothing depends on it but what is kept. (The doorkeeper of
 * Einziger, Friedman and Manes, TinyLFU, 2017, which clears its one filter.)
 *
 * One owner. Nothing is allocated. */
#ifndef RN_CACHE_DOORKEEPER_H
#define RN_CACHE_DOORKEEPER_H

#include <stdint.h>

#include "cache/prefix_tree.h"

#define RN_DOOR_BITS 16u
#define RN_DOOR_BLOCKS 8192u

struct rn_doorkeeper {
    uint64_t seen[2][(1u << RN_DOOR_BITS) / 64]; /* 0: the younger */
    uint32_t n;                                  /* blocks in it */
};

/* Notes each block of tokens[n_blocks × block_tokens], known by all tokens up to its end and the salt. Returns how
 * many, from the first on without a gap, had been noted before. */
uint32_t rn_doorkeeper_note(struct rn_doorkeeper *door, struct rn_prefix_salt salt, const int32_t *tokens,
                            uint32_t n_blocks, uint32_t block_tokens);

/* True: the younger filter has as many bits as its blocks can have set. */
bool rn_doorkeeper_check(const struct rn_doorkeeper *door);

#endif
