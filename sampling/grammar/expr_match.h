/* Does an expression have a text? By the definition of expressions alone, without an automaton: slow, and so short that
 * it judges the others in tests. Here it tells whether a pattern has a string of the schema. */
#ifndef RN_SAMPLING_GRAMMAR_EXPR_MATCH_H
#define RN_SAMPLING_GRAMMAR_EXPR_MATCH_H

#include "sampling/grammar/grammar.h"
#include "text/value.h"

/* text[n] is bytes; tokens match nothing. Takes memory and steps of the arena, and raises in it: also a recursion
 * deeper than its limit, which left recursion is. */
bool rn_expr_matches(struct rn_arena *arena, const struct rn_grammar *grammar, rn_expr e, const char *text, size_t n);

#endif
