/* A compiled grammar: its automaton and the vocabulary's trie. It is constant once made, and several have it: the
 * grammar actor's cache, requests on their way, and the sampler's masks. Each has a reference; who gives the last one
 * back frees it.
 *
 *     grammar actor ── one, with its cache ──▶ struct rn_compiled ◀── one ── request ── lent with its rows ──▶ sampler
 *                                                    ▲                                                            │
 *                                                    └──────────────────────── one, with the masks ───────────────┘
 */
#ifndef RN_ACTORS_GRAMMAR_COMPILED_H
#define RN_ACTORS_GRAMMAR_COMPILED_H

#include <stdatomic.h>

#include "sampling/grammar/automaton.h"
#include "sampling/grammar/token_trie.h"

struct rn_compiled {
    /* Relaxed up, by one who has a reference. Down with release, and with acquire where it was the last: partner of
     * itself. If weaker, the automaton could be freed while another's last look at it is under way. */
    _Atomic(uint32_t) references;
    struct rn_heap *heap;
    uint64_t number; /* no other one of the model has had it */
    struct rn_automaton *automaton;
    const struct rn_token_trie *trie; /* of the model, as long as its actors are there */
};

/* With one reference. Takes the automaton over. NULL: memory was refused, and the automaton is freed. */
struct rn_compiled *rn_compiled_new(struct rn_heap *heap, uint64_t number, struct rn_automaton *automaton,
                                    const struct rn_token_trie *trie);
struct rn_compiled *rn_compiled_ref(struct rn_compiled *compiled);
void rn_compiled_unref(struct rn_compiled *compiled); /* NULL is allowed */

#endif
