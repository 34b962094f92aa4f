/* A proposer without a model: what followed the last time that the sequence was at its last few tokens ("prompt
 * lookup", Saxena 2023; the idea of LLMA, Yang et al. 2023). Strong where an answer repeats its prompt or itself.
 *
 *   ... a b c d [e f g ...] ... a b c d | e f g ...
 *               found here             end: proposed
 *
 * Looks for the last six tokens, then five, ... two. One table for all lengths:
 *
 *   slots   hash of n tokens → position behind the last place where they were met (or another n-gram of that hash)
 *
 * A place is compared before it is used; a collision loses the older entry and no more. So a token costs five writes
 * and a proposal at most five looks, and memory is bounded whatever the length.
 *
 * With a store (ngram_store.h) it looks there too, and the longer match wins: what a tenant's other answers said. */
#ifndef RN_SAMPLING_NGRAM_H
#define RN_SAMPLING_NGRAM_H

#include "base/alloc.h"
#include "sampling/ngram_store.h"
#include "sampling/proposer.h"

/* For a sequence of about max_tokens at most; more only costs matches. NULL on refusal. */
struct rn_proposer *rn_ngram_new(struct rn_heap *heap, uint32_t max_tokens);

/* From now on it looks into this store, too; NULL: into none. The store is lent until then. Of another proposer than
 * rn_ngram_new's nothing happens. */
void rn_ngram_share(struct rn_proposer *proposer, const struct rn_ngram_store *store);

#endif
