/* Where a word can be taken apart before it is merged.
 *
 * All that merging ever makes are tokens. So nothing merges across a place between two characters that stand side by
 * side inside of no token, and what lies on its two sides can be merged by itself, with the same result. In a line
 * of Chinese about every other place is one, and most of what lies between is a token: a long word of many merges
 * becomes a few lookups.
 *
 *     token   . . a b . .     "ab" is in the set: a word may merge across a|b
 *
 * The set is a Bloom filter with one hash: a pair that is in it by chance is merely not taken apart. Tokens of
 * byte-level vocabularies may begin or end inside of a character; then the whole character on the other side counts
 * with any, and two parts count by the bytes at the place. Immutable once filled. */
#ifndef RN_TEXT_SPLIT_SPLIT_POINTS_H
#define RN_TEXT_SPLIT_SPLIT_POINTS_H

#include "base/alloc.h"
#include "model/gguf/gguf.h"

struct rn_split_points {
    uint64_t *bits;
    uint32_t shift; /* 64 - log2 of the number of bits */
    bool parts;     /* some token has a part of a character */
};

/* For about `tokens` tokens; false: refused. */
bool rn_split_points_init(struct rn_split_points *cuts, struct rn_heap *heap, uint32_t tokens);
void rn_split_points_fini(struct rn_split_points *cuts, struct rn_heap *heap);

/* Adds all places inside of a token's bytes. */
void rn_split_points_add(struct rn_split_points *cuts, struct rn_view piece);

/* The next place after `at` where text[n], well-formed UTF-8, can be taken apart, or n. `at` is the begin of a
 * character. */
size_t rn_split_points_next(const struct rn_split_points *cuts, const char *text, size_t at, size_t n);

#endif
