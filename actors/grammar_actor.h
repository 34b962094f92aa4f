/* The grammar actor: compiles what requests want their answers to be.
 *
 *   COMPILE ─▶ is it in the cache? ── no ─▶ notation → grammar → automaton ─▶ cache ─┐
 *                      └── yes ──────────────────────────────────────────────────────┴▶ guide ─▶ ADMIT
 *
 * A grammar is compiled once for all requests that have it, and found again by all that was asked for: kind, options,
 * text, tools. What is wrong with it fails the request; it goes on to the tier for that. Compiling is bounded in steps
 * and memory (sampling/grammar/grammar.h), and yet may take a second where somebody means it ill: so the actor has a
 * thread of its own, and nobody else waits.
 *
 * What concerns sessions comes this way, too, once a turn with a grammar has: all of it reaches the tier in the order
 * in which the tokenizer had it. */
#ifndef RN_ACTORS_GRAMMAR_ACTOR_H
#define RN_ACTORS_GRAMMAR_ACTOR_H

#include "actors/grammar/compiled.h"
#include "actors/runtime/dedicated.h"
#include "sampling/grammar/cache.h"

struct rn_context;

/* Automata that are kept, beside those in use; most are some 10 KB. */
#define RN_GRAMMAR_CACHE_BYTES (64u << 20)

struct rn_grammar_actor {
    struct rn_actor actor;          /* first */
    struct rn_dedicated *dedicated; /* NULL: a manual engine */
    const struct rn_context *context;
    struct rn_token_trie *trie;     /* of the model's vocabulary, made for the first grammar; constant from then on */
    struct rn_grammar_cache *cache; /* compiled grammars by what was asked for; likewise */
    uint64_t n_compiled;            /* numbers that were given out */
};

runnel_status rn_grammar_actor_init(struct rn_grammar_actor *grammar, const struct rn_context *context);

/* All actors are gone, and nobody has a compiled grammar. */
void rn_grammar_actor_fini(struct rn_grammar_actor *grammar);

bool rn_grammar_actor_check(const struct rn_grammar_actor *grammar);

#endif
