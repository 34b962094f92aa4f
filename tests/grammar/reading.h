/* Whether a text is one of a grammar's, for tests: everything is made and freed again. */
#ifndef RN_TESTS_GRAMMAR_READING_H
#define RN_TESTS_GRAMMAR_READING_H

#include "sampling/grammar/front.h"
#include "sampling/grammar/matcher.h"

/* A grammar that is ready to read. */
struct reading {
    struct rn_heap heap;
    struct rn_vocab *vocab;
    struct rn_token_trie *trie;
    struct rn_automaton *automaton;
    struct rn_masks *masks;
    struct rn_matcher *matcher;
    runnel_error error; /* of reading_open, where it failed */
};

/* The vocabulary of words.h without words. */
void reading_init(struct reading *r);
void reading_fini(struct reading *r); /* fails the test where memory is left */

/* Makes a text a grammar and an automaton; the first error's status. */
runnel_status reading_open(struct reading *r, enum rn_front kind, const char *text, size_t n);
runnel_status reading_open_grammar(struct reading *r, struct rn_grammar *grammar); /* frees it */
void reading_close(struct reading *r);

/* Is bytes[n] a whole text; is it the beginning of one? From the beginning. */
bool reading_whole(struct reading *r, const char *bytes, size_t n);
bool reading_begins(struct reading *r, const char *bytes, size_t n);

#endif
