/* What one tenant's answers said, so that another of its requests can be told what followed: a ring of tokens, and an
 * index of where each run of two to six of them was met last.
 *
 *   ring    ... | answer | -1 | answer | -1 | answer ...     the oldest are written over
 *   slots   hash of n tokens → place behind them in the ring (or behind others of that hash)
 *
 * A place is compared before it is used. Memory is the same whatever is added: about 200 KiB. Single owner; which
 * requests may look into which store is its owner's to say (actors/draft/share.h). */
#ifndef RN_SAMPLING_NGRAM_STORE_H
#define RN_SAMPLING_NGRAM_STORE_H

#include "base/alloc.h"

#define RN_NGRAM_LEAST 2u /* tokens of an n-gram; shorter ones match by chance */
#define RN_NGRAM_MOST 6u

struct rn_ngram_store;

/* Empty; NULL on refusal. */
struct rn_ngram_store *rn_ngram_store_new(struct rn_heap *heap);
void rn_ngram_store_free(struct rn_ngram_store *store); /* NULL is allowed */

/* Forgets all. */
void rn_ngram_store_clear(struct rn_ngram_store *store);

/* A text of n tokens, none below 0; of a longer one than the ring the end. */
void rn_ngram_store_add(struct rn_ngram_store *store, const int32_t *tokens, uint32_t n);

/* What followed the last time that the store met the last tokens of tokens[n_tokens], the longest run first, none
 * shorter than `least`: into drafts[most], returns how many; 0: it never met them. */
uint32_t rn_ngram_store_propose(const struct rn_ngram_store *store, const int32_t *tokens, uint32_t n_tokens,
                                uint32_t least, uint32_t most, int32_t *drafts);

/* The hash of n tokens. */
static inline uint32_t rn_ngram_hash(const int32_t *tokens, uint32_t n)
{
    uint64_t hash = n;

    for (uint32_t i = 0; i < n; i++)
        hash = (hash ^ (uint32_t)tokens[i]) * 0x9e3779b97f4a7c15ull;
    return (uint32_t)(hash >> 32);
}

#endif
