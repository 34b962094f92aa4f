/* Vocabularies of each tokenizer, made of one list of words, for the tests of grammars. */
#ifndef RN_TESTS_GRAMMAR_VOCABULARIES_H
#define RN_TESTS_GRAMMAR_VOCABULARIES_H

#include "base/alloc.h"
#include "text/vocab.h"

#define N_MADE_VOCABULARIES 7u

/* "llama" (SentencePiece), "t5" (Unigram), "rwkv", "gemma4", "plamo2", "gpt2", "hybriddna". */
extern const char *const made_vocabularies[N_MADE_VOCABULARIES];

/* Each byte, some words as the tokenizer writes them, an unknown, an end, a control and a user-defined token. Fails the
 * test unless each token stands for its bytes. */
struct rn_vocab *made_vocabulary(struct rn_heap *heap, const char *tokenizer);

#endif
