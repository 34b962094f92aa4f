/* Compiled grammars: see compiled.h. */
#include "actors/grammar/compiled.h"

#include "base/check.h"

struct rn_compiled *rn_compiled_new(struct rn_heap *heap, uint64_t number, struct rn_automaton *automaton,
                                    const struct rn_token_trie *trie)
{
    struct rn_compiled *compiled = rn_calloc(heap, 1, sizeof *compiled);

    if (compiled == NULL) {
        rn_automaton_free(automaton);
        return NULL;
    }
    atomic_init(&compiled->references, 1);
    compiled->heap = heap;
    compiled->number = number;
    compiled->automaton = automaton;
    compiled->trie = trie;
    return compiled;
}

struct rn_compiled *rn_compiled_ref(struct rn_compiled *compiled)
{
    uint32_t before = atomic_fetch_add_explicit(&compiled->references, 1, memory_order_relaxed);

    RN_CHECK(before > 0 && before < UINT32_MAX);
    return compiled;
}

void rn_compiled_unref(struct rn_compiled *compiled)
{
    if (compiled == NULL || atomic_fetch_sub_explicit(&compiled->references, 1, memory_order_acq_rel) > 1)
        return;
    rn_automaton_free(compiled->automaton);
    rn_free(compiled->heap, compiled);
}
