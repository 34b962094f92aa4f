/* What tests of JSON Schema share: a schema as a grammar and its automaton, and JSON as the grammar spells it. */
#ifndef RN_TESTS_GRAMMAR_SCHEMA_JUDGE_H
#define RN_TESTS_GRAMMAR_SCHEMA_JUDGE_H

#include <jansson.h>

#include "sampling/grammar/schema/schema.h"
#include "sampling/grammar/stacks.h"

struct judge {
    struct rn_heap *heap;
    struct rn_grammar *grammar;
    struct rn_automaton *automaton; /* NULL: it has no text at all */
    struct rn_stacks stacks;
    bool has_stacks;
};

/* The status of reading the schema; the judge is to be given back either way. */
runnel_status judge_init(struct judge *judge, struct rn_heap *heap, const char *schema, size_t n,
                         const struct rn_schema_options *options, runnel_error *error);
void judge_fini(struct judge *judge);

/* Has the automaton this text? */
bool judge_accepts(struct judge *judge, const char *text, size_t n);

/* Has the grammar, by the definition of its expressions? */
bool judge_accepts_slowly(struct judge *judge, const char *text, size_t n);

/* A value as the grammar spells it, members in the order in which their names stand in the schema's text (NULL: their
 * own); from malloc. Numbers without exponents, a whole number without a fraction. */
char *judge_spell(const json_t *value, const char *schema);

/* A file whose numbers keep all their digits: judge_spell writes them out, judge_write as they stand in the file. NULL:
 * it cannot be read, and why is told. */
json_t *judge_load(const char *path);
char *judge_write(const json_t *value);

#endif
