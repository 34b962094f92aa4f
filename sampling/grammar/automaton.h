/* A grammar as an automaton over bytes with a stack.
 *
 *     state   reads a byte        → state
 *             reads a token       → state, where an answer's token begins
 *             calls a rule        → its first state, with the state behind the call on the stack
 *             final               the rule may end here: the state on top of the stack goes on
 *
 * States are deterministic within their rule: a byte leads to one state, a call of a rule to one. Between a state, the
 * rules it calls, and what stands behind its rule there is choice; stacks.h follows all of it at once. A call behind
 * which its own rule ends leaves nothing on the stack.
 *
 * From each state the end can be reached; a rule reads at least one byte or token; before it has, it never calls
 * itself. So what was matched can always be completed, and following calls comes to an end (compile.h says how).
 *
 * Bytes that no state tells apart are one class, so that tables have a column for each class only.
 *
 * Threads: constant once made. */
#ifndef RN_SAMPLING_GRAMMAR_AUTOMATON_H
#define RN_SAMPLING_GRAMMAR_AUTOMATON_H

#include "sampling/grammar/grammar.h"

struct rn_automaton_state { /* its parts lie up to those of the next state */
    uint32_t edge, call, token;
    bool final;
};

struct rn_automaton_edge {
    uint32_t target;
    uint8_t low, high; /* ascending, disjoint */
};

struct rn_automaton_call {
    uint32_t start;  /* of the rule */
    uint32_t target; /* behind it */
    bool last;       /* nothing but the end stands behind it */
};

struct rn_automaton_token {
    uint32_t set;
    uint32_t target;
};

struct rn_automaton_set {
    uint32_t at, n; /* ids[at..at + n), ascending */
    bool but;       /* any text token but those */
};

struct rn_automaton {
    struct rn_heap *heap;
    struct rn_automaton_state *states; /* [n_states + 1] */
    struct rn_automaton_edge *edges;
    struct rn_automaton_call *calls;
    struct rn_automaton_token *tokens;
    struct rn_automaton_set *sets; /* [n_sets] */
    int32_t *ids;
    uint32_t n_states, n_edges, n_calls, n_tokens, n_sets, n_ids;
    uint32_t start;
    bool empty; /* the empty text matches */
    uint32_t n_classes;
    uint8_t class_of[256];
    uint8_t byte_of[256]; /* [n_classes] the first byte of each class */
    size_t bytes;         /* all of it */
};

/* The automaton of a finished grammar. FORMAT: no text matches; INVALID: a limit of the grammar, named; UNSUPPORTED: an
 * operand of `both` or `without` that is not regular; NO_MEMORY; CANCELLED once its `stop` is asked. The grammar may be
 * freed afterwards. */
runnel_status rn_automaton_new(struct rn_heap *heap, const struct rn_grammar *grammar, struct rn_automaton **out,
                               runnel_error *error);
void rn_automaton_free(struct rn_automaton *automaton); /* NULL is allowed */

/* Is this token one of the set? text: it is a text token. */
bool rn_automaton_set_has(const struct rn_automaton *automaton, uint32_t set, int32_t token, bool text);

/* The state behind a byte; UINT32_MAX: it is not read. */
static inline uint32_t rn_automaton_read(const struct rn_automaton *a, uint32_t state, uint8_t byte)
{
    uint32_t low = a->states[state].edge, high = a->states[state + 1].edge;

    while (high - low > 8) {
        uint32_t middle = low + (high - low) / 2;

        if (a->edges[middle].low <= byte)
            low = middle;
        else
            high = middle;
    }
    for (; low < high; low++)
        if (byte >= a->edges[low].low && byte <= a->edges[low].high)
            return a->edges[low].target;
    return UINT32_MAX;
}

/* Does it read bytes or tokens itself? */
static inline bool rn_automaton_reads(const struct rn_automaton *a, uint32_t state)
{
    return a->states[state].edge < a->states[state + 1].edge || a->states[state].token < a->states[state + 1].token;
}

/* Ends the process unless all that this header says about the arrays holds. */
void rn_automaton_check(const struct rn_automaton *automaton);

#endif
