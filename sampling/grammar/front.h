/* Texts that say what an answer may be, and the grammars that they become.
 *
 *     GBNF      llama.cpp's dialect: rules `name ::= ...`, beginning with `root`
 *     REGEX     a regular expression; the answer is a whole match of it
 *     EBNF      Lark's notation: rules `name: ...`, terminals `NAME: ...`, beginning with `start`
 *     CHOICES   one of some texts
 *
 * What cannot be kept is refused by name, with its place: lookaround, back references and anchors in the middle of a
 * regular expression; templates, imports other than of `common`, priorities of rules in EBNF. Left recursion works in
 * all of them.
 *
 * Pure functions of a text; they need time in proportion to it, and stack by its nesting, which is bounded. */
#ifndef RN_SAMPLING_GRAMMAR_FRONT_H
#define RN_SAMPLING_GRAMMAR_FRONT_H

#include "sampling/grammar/grammar.h"

enum rn_front { RN_FRONT_GBNF = 1, RN_FRONT_REGEX, RN_FRONT_EBNF, RN_FRONT_CHOICES };

/* The finished grammar of text[n]. vocab: for tokens that it names; NULL: none are known. limits NULL: the default
 * ones. CHOICES are given by rn_choices_text. FORMAT, UNSUPPORTED: a sentence with line and column; INVALID: a limit;
 * NO_MEMORY. *out is NULL then. */
runnel_status rn_front_read(struct rn_heap *heap, enum rn_front kind, const char *text, size_t n,
                            const struct rn_vocab *vocab, const struct rn_grammar_limits *limits,
                            struct rn_grammar **out, runnel_error *error);

/* The same as a rule of a grammar that has others besides. Errors wait in the grammar. */
uint32_t rn_front_rule(struct rn_grammar *grammar, enum rn_front kind, const char *text, size_t n);

/* Choices [n] as the one text that CHOICES reads: each with a line of its length in bytes before it. *text is taken
 * from the heap. False: refused. */
bool rn_choices_text(struct rn_heap *heap, const char *const *choices, const size_t *bytes, size_t n, char **text,
                     size_t *text_bytes);

/* ---- For other front ends: parts of a grammar that is being built. Errors wait in it. ---- */

struct rn_regex_options {
    bool search; /* it may be found anywhere, unless it has ^ or $: as "pattern" of JSON Schema. Else all must match */
    bool ignore_case; /* of ASCII letters */
    bool dot_all;     /* . is any character; else not the end of a line */
    /* How one of the characters ranges[n], which are normal (code_points.h), is written: inside a JSON string a quote
     * has a backslash. NULL: as itself, in UTF-8. */
    rn_expr (*write)(void *user, struct rn_grammar *grammar, const struct rn_code_points *ranges, size_t n);
    void *user;
};

/* The expression of a regular expression, by the rules of ECMA-262 with Unicode: \d and \w are of ASCII, \s has all
 * white space, \p{..} are general categories. Lazy quantifiers match the same texts as others. `at`: where it stands in
 * the grammar's source, for sentences. options NULL: none of them. */
rn_expr rn_regex(struct rn_grammar *grammar, const char *text, size_t n, size_t at,
                 const struct rn_regex_options *options);

/* Reads a whole text into an empty grammar; returns the rule that it begins with. */
uint32_t rn_gbnf(struct rn_grammar *grammar, const char *text, size_t n);
uint32_t rn_ebnf(struct rn_grammar *grammar, const char *text, size_t n);

#endif
