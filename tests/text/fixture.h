/* What the tests of text/ share: GGUF files made in memory, files of ../shared, tokenizing with a
 * check of every promise that holds for any text. */
#ifndef RN_TESTS_TEXT_FIXTURE_H
#define RN_TESTS_TEXT_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "text/vocab.h"

#define KEY "tokenizer.ggml."
#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define BLOCK "\xe2\x96\x81" /* U+2581 */

/* A GGUF file under construction. */
struct maker {
    unsigned char *bytes;
    size_t n, room;
    uint64_t n_entries;
};

void maker_init(struct maker *maker);
void maker_fini(struct maker *maker);
void maker_string(struct maker *maker, const char *key, const char *value);
void maker_bool(struct maker *maker, const char *key, int value);
void maker_u32(struct maker *maker, const char *key, uint32_t value);
void maker_strings(struct maker *maker, const char *key, const char *const *values, size_t n);
/* item: an RN_GGUF_ type; values: as many bytes as that takes. */
void maker_array(struct maker *maker, const char *key, uint32_t item, const void *values, uint64_t n, size_t bytes);

/* The vocabulary of the file made; the status of rn_vocab_new, or of parsing. */
runnel_status maker_vocab(struct maker *maker, struct rn_heap *heap, struct rn_vocab **vocab, runnel_error *error);

/* The same; fails the test unless it is OK. Frees the file. */
struct rn_vocab *made(struct rn_heap *heap, struct maker *maker);

/* shared_find in a static buffer; NULL where there is no shared folder. */
const char *shared_path(const char *name);

/* The vocabulary of a file; fails the test if that does not load. */
struct rn_vocab *vocab_of_file(struct rn_heap *heap, const char *path);

/* rn_tokenize that must succeed; checks the bound and that every id is in the vocabulary. */
int32_t *tokenize(struct rn_heap *heap, const struct rn_vocab *vocab, const char *text, size_t n, uint32_t flags,
                  size_t *count);

/* Fails unless text[n] becomes the ids, which end with -2. */
void check_ids(struct rn_heap *heap, const struct rn_vocab *vocab, const char *text, size_t n, uint32_t flags,
               const int32_t *expected);

/* The same of a string literal's text, in a function with a `heap`: the ids with a comma behind each. */
#define CHECK_IDS(vocab, text, flags, ...) \
    check_ids(&heap, vocab, text, strlen(text), flags, (const int32_t[]){__VA_ARGS__ - 2})

/* Fails unless the ids of text[n] decode to it again. */
void check_round_trip(struct rn_heap *heap, const struct rn_vocab *vocab, const char *text, size_t n);

/* A random text of at most `most` bytes of valid UTF-8, of a mix that tokenizers are touchy about:
 * letters of several scripts, digits, white space of all kinds, marks, symbols, contractions. */
size_t random_text(uint64_t *state, char *text, size_t most);

#endif
