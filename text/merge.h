/* Merging the symbols of one word, pair by pair, best pair first: what byte-level BPE and
 * SentencePiece's score merges have in common.
 *
 *     symbols   h  e  l  l  o        a linked list in an array; a merge grows the left one and
 *     ranks     7  .  3  9  .        takes the right one out
 *
 * A symbol's rank is that of merging it with the next one: lower goes first, of equal ones the
 * leftmost. Short words look through all ranks for each merge; long ones keep a heap of
 * (rank, symbol), whose entries are stale when the symbol's rank is another by now. n log n. */
#ifndef RN_TEXT_MERGE_H
#define RN_TEXT_MERGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/alloc.h"
#include "text/vocab_impl.h"

#define RN_NO_RANK UINT32_MAX  /* does not merge with the next symbol */
#define RN_NO_SYMBOL UINT32_MAX

struct rn_symbol {
    uint32_t begin, bytes; /* in the word; bytes 0: merged away */
    uint32_t prev, next;   /* RN_NO_SYMBOL at the ends */
    uint32_t rank;
    uint32_t result; /* token that merging with the next one gives */
    int32_t id;      /* token of the symbol itself; -1: none */
};

/* Memory of one call, grown to the longest word and reused. */
struct rn_scratch {
    struct rn_heap *heap;
    struct rn_symbol *symbols;
    size_t n_symbols; /* room */
    uint64_t *queue;
    size_t n_queue; /* room */
    char *text;
    size_t text_bytes; /* room */
};

struct rn_tokens {
    struct rn_heap *heap;
    int32_t *ids;
    size_t n, room;
};

void rn_scratch_init(struct rn_scratch *scratch, struct rn_heap *heap);
void rn_scratch_fini(struct rn_scratch *scratch);

/* Room for `bytes` bytes in scratch->text; false: refused. */
bool rn_scratch_text(struct rn_scratch *scratch, size_t bytes);

/* Room for `more` ids; false: refused. */
bool rn_tokens_reserve(struct rn_tokens *tokens, size_t more);

/* Appends the tokens of word[n], 1 <= n < 2^31, as bytes (BPE) or characters (SPM, well-formed
 * UTF-8): at most n. False: memory was refused. */
bool rn_merge_word(const struct rn_vocab *vocab, struct rn_scratch *scratch, const char *word, size_t n,
                   struct rn_tokens *tokens);

/* Appends the tokens of text[n], n < 2^31: its words, each by rn_merge_word. False: refused. */
bool rn_bpe_encode(const struct rn_vocab *vocab, struct rn_scratch *scratch, const char *text, size_t n,
                   struct rn_tokens *tokens);
/* after_special: nothing or a special token stands before it, so that the space prefix is due. */
bool rn_spm_encode(const struct rn_vocab *vocab, struct rn_scratch *scratch, const char *text, size_t n,
                   bool after_special, struct rn_tokens *tokens);

/* Rank and result of merging symbols[left] with the next one (bpe.c, spm.c). */
void rn_bpe_rank(const struct rn_vocab *vocab, struct rn_symbol *symbols, uint32_t left);
void rn_spm_rank(const struct rn_vocab *vocab, const char *word, struct rn_symbol *symbols, uint32_t left);

#endif
