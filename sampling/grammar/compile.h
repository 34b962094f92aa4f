/* The inside of making an automaton (automaton.c): what its passes share.
 *
 *     rules.c      which rules reach themselves, which are put in place of their calls
 *     nfa.c        expressions become states with edges, a part for each rule
 *     reduce.c     what can not come to an end goes; rules match at least one byte; left recursion becomes a loop
 *     dfa.c        states become deterministic within their rule: a call is read like a byte
 *
 * Errors wait in `error`, as in a grammar; each pass returns false when there is one. automaton.c gives the memory of
 * all passes back. */
#ifndef RN_SAMPLING_GRAMMAR_COMPILE_H
#define RN_SAMPLING_GRAMMAR_COMPILE_H

#include "sampling/grammar/grammar.h"

#define RN_NO_STATE UINT32_MAX

enum rn_nfa_kind { RN_NFA_EMPTY, RN_NFA_BYTES, RN_NFA_CALL, RN_NFA_TOKENS };

struct rn_nfa_edge {
    uint32_t target;
    uint32_t next;  /* edge of the same state; 0: none */
    uint32_t value; /* CALL: rule; TOKENS: expression */
    uint8_t kind, low, high;
};

/* A rule's part of the states. It is left by reaching `end`. */
struct rn_nfa_rule {
    uint32_t start, end; /* RN_NO_STATE: it is not called */
    uint32_t next;       /* rule to make next, while it waits */
    bool nullable;       /* it also matches the empty text; from reduce.c on the states no longer do */
};

/* A regular rule that is put in place often, made deterministic once: its states count from 0, where it begins. */
struct rn_rule_copy {
    uint32_t edge, n_edges;  /* copy_edges */
    uint32_t final, n_final; /* copy_final: numbers of states */
    uint32_t n_states;       /* 0: there is none */
};

struct rn_copy_edge {
    uint32_t from, to;
    uint8_t low, high;
};

struct rn_rule_shape {
    uint32_t weight; /* about how many states it makes */
    uint32_t uses;   /* copies of calls of it, in all rules; at least: some are counted once */
    uint32_t height; /* of the recursion that makes it */
    bool recursive, in_place, calls_own_tail;
    bool loops;   /* its texts may be of any length */
    bool regular; /* no tokens in it, and no calls but of rules in place */
    struct rn_rule_copy copy;
};

/* An edge of a deterministic state. */
struct rn_dfa_edge {
    uint32_t target;
    uint8_t low, high;
};

struct rn_dfa_step { /* by a call or a token */
    uint32_t value;  /* rule; expression */
    uint32_t target;
};

struct rn_dfa_state {
    uint32_t edge, n_edges, call, n_calls, token, n_tokens;
    bool final;
};

/* Growing arrays of uint32_t. */
struct rn_numbers {
    uint32_t *items;
    uint32_t n, room;
};

struct rn_compile {
    struct rn_heap *heap;
    const struct rn_grammar *grammar;
    runnel_error error;
    uint64_t steps;   /* left */
    uint64_t look_at; /* with fewer of them left the grammar's `stop` is asked; 0: never */

    struct rn_rule_shape *shapes; /* [rules] */
    struct rn_nfa_rule *rules;    /* [rules] */
    struct rn_numbers waiting;    /* rules that are called and not yet made */

    struct rn_copy_edge *copy_edges;
    uint32_t n_copy_edges, room_copy_edges;
    struct rn_numbers copy_final;

    uint32_t *first;   /* [n_states] edge; 0: none */
    uint32_t *n_empty; /* [n_states] at most so many of its edges are empty ones */
    struct rn_nfa_edge *edges;
    uint32_t n_states, n_edges, room_states, room_empty, room_edges;

    struct rn_dfa_state *dfa;
    struct rn_dfa_edge *dfa_edges;
    struct rn_dfa_step *calls, *tokens;
    uint32_t n_dfa, n_dfa_edges, n_calls, n_tokens, room_dfa, room_dfa_edges, room_calls, room_tokens;
    struct rn_subset *subset; /* dfa.c's own */
};

static inline bool rn_compile_failed(const struct rn_compile *c)
{
    return c->error.status != RUNNEL_OK;
}

/* Sets the error; returns false. */
bool rn_compile_fail(struct rn_compile *c, runnel_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
bool rn_compile_fail_memory(struct rn_compile *c);

/* Looks at the grammar's `stop`; false, and an error: it is asked. */
bool rn_compile_look(struct rn_compile *c);

/* Counts steps; false: they are used up, or there is an error. */
static inline bool rn_compile_step(struct rn_compile *c, uint64_t n)
{
    if (c->steps >= n && !rn_compile_failed(c)) {
        c->steps -= n;
        return c->steps >= c->look_at || rn_compile_look(c);
    }
    return rn_compile_fail(c, RUNNEL_INVALID, "the grammar takes more than %llu steps to compile",
                           (unsigned long long)c->grammar->limits.steps);
}

/* Room for one more item of an array that has *room; false: refused. */
bool rn_compile_grow(struct rn_compile *c, void **items, uint32_t used, uint32_t *room, size_t size);

static inline bool rn_numbers_add(struct rn_compile *c, struct rn_numbers *numbers, uint32_t number)
{
    if (numbers->n == numbers->room &&
        !rn_compile_grow(c, (void **)&numbers->items, numbers->n, &numbers->room, sizeof number))
        return false;
    numbers->items[numbers->n++] = number;
    return !rn_compile_failed(c);
}

void rn_numbers_fini(struct rn_numbers *numbers, struct rn_heap *heap);

/* rules.c: fills `shapes`. */
bool rn_compile_shapes(struct rn_compile *c);

/* Strongly connected components of a graph of n nodes: node i has the edges targets[first[i]..first[i + 1]).
 * component[n] gets their numbers: one that is reached from another has the lower number. False: refused. */
bool rn_compile_components(struct rn_compile *c, uint32_t n, const uint32_t *first, const uint32_t *targets,
                           uint32_t *component);

/* nfa.c */
uint32_t rn_nfa_state(struct rn_compile *c);
bool rn_nfa_edge(struct rn_compile *c, uint32_t from, struct rn_nfa_edge edge);
bool rn_nfa_empty(struct rn_compile *c, uint32_t from, uint32_t to);

/* Makes the rule's deterministic form, for copies of it. What it needed meanwhile is given up again. */
bool rn_compile_copy(struct rn_compile *c, uint32_t rule);

/* Makes the states of the root and of all rules that are called from it. */
bool rn_compile_nfa(struct rn_compile *c);

/* reduce.c */
bool rn_compile_reduce(struct rn_compile *c);

/* dfa.c: the deterministic form of what lies between two states; *out gets its first state. Behind it the states are
 * final where `end` is among them. */
bool rn_compile_dfa(struct rn_compile *c, uint32_t start, uint32_t end, uint32_t *out);

/* Two states' texts, both regular: those of a that are of b, too (negated: that are not), as edges between `from` and
 * `to` of the NFA. */
bool rn_compile_product(struct rn_compile *c, uint32_t a, uint32_t b, bool negated, uint32_t from, uint32_t to);
void rn_subset_free(struct rn_subset *subset, struct rn_heap *heap);

#endif
