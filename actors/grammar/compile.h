/* From what a request asks its answer to be to an automaton. A pure function of the request and the vocabulary, bounded
 * in steps and memory (sampling/grammar/grammar.h). */
#ifndef RN_ACTORS_GRAMMAR_COMPILE_H
#define RN_ACTORS_GRAMMAR_COMPILE_H

#include "actors/grammar/text.h"
#include "sampling/grammar/automaton.h"

/* The automaton is the caller's. FORMAT, UNSUPPORTED, INVALID, NO_MEMORY, CANCELLED once `stop` is asked (NULL: nobody
 * ends it): *out is NULL, and the error says why. */
runnel_status rn_grammar_compile(struct rn_heap *heap, const struct rn_vocab *vocab, const struct rn_grammar_text *text,
                                 const struct rn_interrupt *stop, struct rn_automaton **out, runnel_error *error);

#endif
