/* What was made of grammars, kept for the next request that has the same: automata by their texts, and masks by their
 * automata.
 *
 * An entry is found by its key, byte for byte, and has a value. Entries that are in use stay; of the others those that
 * were used last, as far as the bound of bytes allows. An entry that would not fit beside those in use goes when its
 * last user releases it.
 *
 * Single owner, as its entries. */
#ifndef RN_SAMPLING_GRAMMAR_CACHE_H
#define RN_SAMPLING_GRAMMAR_CACHE_H

#include <stdint.h>

#include "base/alloc.h"
#include "base/status.h"

struct rn_grammar_cache;

/* Of values. */
struct rn_grammar_cache_ops {
    size_t (*bytes)(const void *value); /* counted when an entry is added, and whenever it is released */
    void (*free)(void *value);
};

struct rn_grammar_cached {
    void *value;
    uint32_t users;
    uint64_t hash;
    size_t key_bytes;
    size_t bytes; /* as counted last */
    struct rn_grammar_cached *newer, *older, *next;
    char key[];
};

/* most_bytes: of entries that nobody uses together with those in use. NULL: memory was refused. */
struct rn_grammar_cache *rn_grammar_cache_new(struct rn_heap *heap, const struct rn_grammar_cache_ops *ops,
                                              size_t most_bytes);
void rn_grammar_cache_free(struct rn_grammar_cache *cache); /* no entry may be in use; NULL is allowed */

/* The entry of key[n], with one user more; NULL: there is none. */
struct rn_grammar_cached *rn_grammar_cache_find(struct rn_grammar_cache *cache, const void *key, size_t n);

/* An entry for a key that has none, with one user. Takes the value over. NULL: memory was refused, and the value is
 * freed. */
struct rn_grammar_cached *rn_grammar_cache_add(struct rn_grammar_cache *cache, const void *key, size_t n, void *value);

/* One user less. */
void rn_grammar_cache_release(struct rn_grammar_cache *cache, struct rn_grammar_cached *entry);

/* Bytes of all entries, as counted when they were last added or released. */
size_t rn_grammar_cache_bytes(const struct rn_grammar_cache *cache);

/* Its lists and counts are in order. */
bool rn_grammar_cache_check(const struct rn_grammar_cache *cache);

#endif
