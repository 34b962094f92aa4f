/* What an answer may be, as rules: the form between the front ends (GBNF, regular expressions, EBNF, choices, JSON
 * Schema), which build it, and the automaton (automaton.h), which is compiled from it.
 *
 * An expression stands for a set of texts:
 *
 *     empty                      the empty text alone
 *     bytes "abc"                these bytes
 *     set [a-z]                  one code point of a set, as UTF-8
 *     tokens <[7]>, !<[7]>       one token by its id, or any text token but those: a mark that is no text
 *     call r                     what rule r stands for
 *     sequence a b c             one behind the other; of none: empty
 *     alternatives a | b | c     one of them; of none: no text at all
 *     repeat a {m,n}             m to n times
 *     both a & b                 what is in a and in b
 *     without a - b              what is in a and not in b
 *
 * The operands of `both` and `without` are regular: no tokens, and no rule in them that reaches itself.
 *
 * How a front end builds one:
 *
 *     struct rn_grammar *g = rn_grammar_new(heap, NULL, vocab);
 *     uint32_t list = rn_grammar_rule(g, "list", 4);          // may be called before it is defined
 *     static const struct rn_code_points digits[] = {{'0', '9'}};
 *     rn_expr number = rn_grammar_repeat(g, rn_grammar_set(g, digits, 1, false), 1, RN_GRAMMAR_FOREVER);
 *     rn_expr more[] = {number, rn_grammar_bytes(g, ",", 1), rn_grammar_call(g, list)};
 *
 *     rn_grammar_define(g, list, rn_grammar_alternatives(g, (rn_expr[]){number, rn_grammar_sequence(g, more, 3)}, 2));
 *     status = rn_grammar_finish(g, list, &error);            // from now on it is constant
 *
 * Errors wait: the first one stays (a limit, memory, a bad argument, the front end's own by rn_grammar_fail), later
 * calls do nothing, return RN_GRAMMAR_NONE, and take RN_GRAMMAR_NONE as an operand; rn_grammar_finish tells it. So a
 * front end looks at rn_grammar_failed only where it loops. A front end that has a source text tells it
 * (rn_grammar_source) and where in it the next things come from (rn_grammar_at): sentences then begin with "line L,
 * column C: ".
 *
 * An expression may be used in several places. Left recursion is allowed. What matches no text, what is never called,
 * and rules without an end are found out when the automaton is made.
 *
 * Threads: one at a time; a finished grammar is constant. */
#ifndef RN_SAMPLING_GRAMMAR_GRAMMAR_H
#define RN_SAMPLING_GRAMMAR_GRAMMAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/alloc.h"
#include "base/interrupt.h"
#include "base/status.h"
#include "text/vocab.h"

#define RN_GRAMMAR_FOREVER UINT32_MAX /* `most` of a repetition without end */
#define RN_GRAMMAR_NONE 0u            /* not an expression: there was an error */

typedef uint32_t rn_expr;

/* Of a grammar and of its automaton. What exceeds one is refused by a sentence that names it. */
struct rn_grammar_limits {
    size_t source_bytes; /* of the text that a front end reads */
    uint32_t rules;      /* with names and without */
    uint32_t nodes;      /* expressions and their operands */
    uint32_t depth;      /* of expressions in expressions; rules do not count */
    uint32_t states;     /* of the automaton, in each form that it has while it is made */
    size_t bytes;        /* of the grammar's bytes and sets, and of the automaton, each */
    uint64_t steps;      /* of making the automaton; a million take some 30 ms */
};

/* 2 MiB of source, 50,000 rules, 2^20 nodes, depth 256, 2^18 states, 64 MiB, 10^7 steps. */
extern const struct rn_grammar_limits rn_grammar_limits_default;

/* Code points from `first` to `last`. */
struct rn_code_points {
    uint32_t first, last;
};

enum rn_grammar_kind {
    RN_GRAMMAR_EMPTY = 1,
    RN_GRAMMAR_BYTES,        /* a: place in bytes, b: how many */
    RN_GRAMMAR_SET,          /* a: place in ranges, b: how many; ascending, apart from each other, no surrogates */
    RN_GRAMMAR_TOKENS,       /* a: place in ids, b: how many, ascending */
    RN_GRAMMAR_TOKENS_BUT,   /* the same: any text token but those */
    RN_GRAMMAR_CALL,         /* a: rule */
    RN_GRAMMAR_SEQUENCE,     /* a: place in operands, b: how many */
    RN_GRAMMAR_ALTERNATIVES, /* the same */
    RN_GRAMMAR_REPEAT,       /* a: operand, b: least, c: most */
    RN_GRAMMAR_BOTH,         /* a, b: operands */
    RN_GRAMMAR_WITHOUT       /* the same */
};

struct rn_grammar_node {
    enum rn_grammar_kind kind;
    uint32_t a, b, c;
    uint32_t depth; /* of nodes below it and itself */
};

struct rn_grammar_rule {
    uint32_t name, name_bytes; /* place in bytes; none: 0 bytes */
    rn_expr body;              /* RN_GRAMMAR_NONE: not yet defined */
    uint32_t at;               /* where it was first named, a byte of the source */
};

/* What is to be told where an expression matches no text, and the grammar therefore none. */
struct rn_grammar_reason {
    rn_expr e;
    uint32_t text; /* place in bytes, ended by 0 */
};

/* Read by the automaton; front ends use the functions below. */
struct rn_grammar {
    struct rn_heap *heap;
    const struct rn_vocab *vocab; /* names of tokens; borrowed until finished, NULL: none are known */
    struct rn_grammar_limits limits;
    runnel_error error;
    struct rn_grammar_node *nodes; /* [n_nodes], 0 is none */
    struct rn_grammar_rule *rules; /* [n_rules] */
    rn_expr *operands;
    struct rn_code_points *ranges;
    int32_t *ids;
    char *bytes;
    struct rn_grammar_reason *reasons;
    uint32_t n_nodes, n_rules, n_operands, n_ranges, n_ids, n_bytes, n_reasons;
    uint32_t room_nodes, room_rules, room_operands, room_ranges, room_ids, room_bytes, room_reasons;
    uint32_t *names; /* rules by their names: 1 + rule; 0: free */
    uint32_t n_names, room_names;
    uint32_t root;
    const struct rn_interrupt
        *stop;          /* ends the reading, and the making of an automaton; NULL, as it is made: nobody does */
    const char *source; /* borrowed until finished */
    size_t source_bytes;
    uint32_t at;
    bool finished;
};

/* An empty grammar. limits NULL: the default ones. vocab is used while it is built, and may be NULL: then ids of
 * tokens are not checked and names of tokens are refused. NULL: memory was refused. */
struct rn_grammar *rn_grammar_new(struct rn_heap *heap, const struct rn_grammar_limits *limits,
                                  const struct rn_vocab *vocab);
void rn_grammar_free(struct rn_grammar *grammar); /* NULL is allowed */

/* The text that is read, borrowed until the grammar is finished; refused where it is longer than the limit or not
 * UTF-8. */
void rn_grammar_source(struct rn_grammar *grammar, const char *text, size_t n);

/* What comes next stands at this byte of the source. */
void rn_grammar_at(struct rn_grammar *grammar, size_t at);

bool rn_grammar_failed(const struct rn_grammar *grammar);

/* Sets the error, unless there is one; with the position in front. FORMAT: the text is malformed; UNSUPPORTED: what it
 * asks for is not known; INVALID: a limit. Text of the source that is put into the sentence goes through
 * rn_grammar_quote. */
void rn_grammar_fail(struct rn_grammar *grammar, runnel_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Up to 40 bytes of text[n], UTF-8, whole characters, with "..." where it was longer. */
struct rn_quote {
    char text[48];
};
struct rn_quote rn_grammar_quote(const char *text, size_t n);

struct rn_quote rn_grammar_rule_name(const struct rn_grammar *grammar, uint32_t rule);

rn_expr rn_grammar_empty(struct rn_grammar *grammar);

/* bytes[n] are copied; any bytes. */
rn_expr rn_grammar_bytes(struct rn_grammar *grammar, const char *bytes, size_t n);

/* ranges[n] in any order, overlapping or not; surrogates are left out. negated: all code points but those. One that
 * begins behind its end or ends above U+10FFFF is refused. */
rn_expr rn_grammar_set(struct rn_grammar *grammar, const struct rn_code_points *ranges, size_t n, bool negated);

/* One token of ids[n]. but: any token that is text (not a control token, not the end of an answer) and none of
 * those. */
rn_expr rn_grammar_tokens(struct rn_grammar *grammar, const int32_t *ids, size_t n, bool but);

/* The token whose stored text is text[n] ("<think>"); refused where the vocabulary has none. */
rn_expr rn_grammar_token_named(struct rn_grammar *grammar, const char *text, size_t n, bool but);

rn_expr rn_grammar_call(struct rn_grammar *grammar, uint32_t rule);
rn_expr rn_grammar_sequence(struct rn_grammar *grammar, const rn_expr *items, size_t n);
rn_expr rn_grammar_alternatives(struct rn_grammar *grammar, const rn_expr *items, size_t n);

/* least <= most. The automaton has a copy of the item for each time, so that a thousand times a large item exceeds the
 * limits. */
rn_expr rn_grammar_repeat(struct rn_grammar *grammar, rn_expr item, uint32_t least, uint32_t most);
rn_expr rn_grammar_both(struct rn_grammar *grammar, rn_expr a, rn_expr b);
rn_expr rn_grammar_without(struct rn_grammar *grammar, rn_expr a, rn_expr b);

/* The rule of that name; a new one, not yet defined, where there is none. n 0: a new one without a name. */
uint32_t rn_grammar_rule(struct rn_grammar *grammar, const char *name, size_t n);
bool rn_grammar_is_defined(const struct rn_grammar *grammar, uint32_t rule);

/* Gives the rule its body; refused where it has one. */
void rn_grammar_define(struct rn_grammar *grammar, uint32_t rule, rn_expr body);

/* What the automaton's error says where the grammar matches no text and this expression is one that does not. */
void rn_grammar_reason(struct rn_grammar *grammar, rn_expr e, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The grammar is complete and begins with the rule `root`. The first error, if there was one; FORMAT: a rule that is
 * named and not defined, or no root. The grammar is to be freed either way. */
runnel_status rn_grammar_finish(struct rn_grammar *grammar, uint32_t root, runnel_error *error);

#endif
