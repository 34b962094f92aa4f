/* Grammars that have been compiled, kept for the next request that has the same.
 *
 * An entry is found by its kind, its text, byte for byte, and the vocabulary's fingerprint. It holds the automaton and
 * the masks; what was found out for one stream serves the next. Entries that are in use stay; of the others those that
 * were used last, as far as the bound of bytes allows. An entry that would not fit beside those in use goes when its last
 * user releases it.
 *
 * Single owner, as its entries and their matchers. */
#ifndef RN_SAMPLING_GRAMMAR_CACHE_H
#define RN_SAMPLING_GRAMMAR_CACHE_H

#include "sampling/grammar/front.h"
#include "sampling/grammar/masks.h"

struct rn_grammar_cache;

struct rn_compiled {
    struct rn_automaton *automaton;
    struct rn_masks *masks;
    const struct rn_token_trie *trie; /* borrowed */
    uint32_t kind;                    /* enum rn_front, or a number of another front end's, from 16 */
    uint32_t users;
    uint64_t hash;
    size_t text_bytes;
    size_t bytes; /* as counted last */
    struct rn_compiled *newer, *older, *next;
    char text[];
};

/* most_bytes: of entries that nobody uses together with those in use. NULL: memory was refused. */
struct rn_grammar_cache *rn_grammar_cache_new(struct rn_heap *heap, size_t most_bytes);
void rn_grammar_cache_free(struct rn_grammar_cache *cache); /* no entry may be in use; NULL is allowed */

/* The entry, with one user more; NULL: there is none. */
struct rn_compiled *rn_grammar_cache_find(struct rn_grammar_cache *cache, uint32_t kind, const char *text, size_t n,
                                          const struct rn_token_trie *trie);

/* An entry of a finished grammar, which is made an automaton of and freed, whatever happens. *out has one user. Statuses
 * of rn_automaton_new. limits NULL: the default ones. */
runnel_status rn_grammar_cache_add(struct rn_grammar_cache *cache, uint32_t kind, const char *text, size_t n,
                                   struct rn_grammar *grammar, const struct rn_token_trie *trie,
                                   const struct rn_masks_limits *limits, struct rn_compiled **out, runnel_error *error);

/* The entry, made by rn_front_read where there is none. */
runnel_status rn_grammar_cache_get(struct rn_grammar_cache *cache, enum rn_front kind, const char *text, size_t n,
                                   const struct rn_vocab *vocab, const struct rn_token_trie *trie,
                                   struct rn_compiled **out, runnel_error *error);

/* One user less; its matchers are freed before. */
void rn_grammar_cache_release(struct rn_grammar_cache *cache, struct rn_compiled *compiled);

/* Drops the entries of a trie that is about to go; none of them may be in use. */
void rn_grammar_cache_forget(struct rn_grammar_cache *cache, const struct rn_token_trie *trie);

/* Bytes of all entries, as counted when they were last taken or released. */
size_t rn_grammar_cache_bytes(const struct rn_grammar_cache *cache);

void rn_grammar_cache_check(const struct rn_grammar_cache *cache);

#endif
