/* A grammar of each kind, with a judge that knows nothing of the grammar room: jansson, POSIX regular expressions,
 * hand-written rules. */
#ifndef RN_TESTS_ACTORS_GRAMMAR_GRAMMAR_KINDS_H
#define RN_TESTS_ACTORS_GRAMMAR_GRAMMAR_KINDS_H

#include <stdbool.h>

#include "runnel.h"

#define N_GRAMMAR_KINDS 7

struct grammar_kind {
    runnel_grammar_kind kind;
    const char *text;
    bool (*judge)(const char *text);
    bool bounded; /* each text comes to its end */
};
extern const struct grammar_kind grammar_kinds[N_GRAMMAR_KINDS];

/* Of grammar_kinds[kind]. */
runnel_grammar grammar_of(size_t kind);

/* By an extended regular expression of POSIX. */
bool matches_regex(const char *text, const char *pattern);

#endif
