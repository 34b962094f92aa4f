/* A judge for grammars: Earley's recogniser straight over the expressions, byte by byte, without automata, tables or
 * anything that is kept. Slow, and too simple to be wrong in the same way.
 *
 * An input is a row of tokens. Text of a token is read byte by byte; a token that the grammar names is read as a whole,
 * from where it begins to where it ends. */
#ifndef RN_TESTS_GRAMMAR_ORACLE_H
#define RN_TESTS_GRAMMAR_ORACLE_H

#include "sampling/grammar/grammar.h"

struct oracle;

/* `both` and `without` are not known to it. The grammar is borrowed. */
struct oracle *oracle_new(const struct rn_grammar *grammar);
void oracle_free(struct oracle *oracle);

/* Reads one more token: bytes[n], and its id. text: it is a text token; others have no bytes. False: what has been read
 * is not the beginning of any text of the grammar; then it is as it was. */
bool oracle_read(struct oracle *oracle, int32_t token, const char *bytes, size_t n, bool text);

/* Takes the last token back. */
void oracle_unread(struct oracle *oracle);

/* Is what has been read a whole text? */
bool oracle_complete(const struct oracle *oracle);

/* Is there any text at all? */
bool oracle_possible(const struct oracle *oracle);

#endif
