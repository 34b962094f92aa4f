/* A small vocabulary for the tests of grammars: each byte, some words, control tokens, an end. */
#ifndef RN_TESTS_GRAMMAR_WORDS_H
#define RN_TESTS_GRAMMAR_WORDS_H

#include "base/alloc.h"
#include "text/vocab.h"

enum { WORD_UNKNOWN = 0, WORD_END = 1, WORD_THINK = 2, WORD_DONE = 3, WORD_BYTES = 4, WORD_FIRST = 260 };

/* Token 4 + b is the byte b, tokens from 260 are words[n]; 0 is unknown, 1 ends the answer, 2 and 3 are the control
 * tokens <think> and </think>. */
struct rn_vocab *words_vocab(struct rn_heap *heap, const char *const *words, size_t n);

#endif
