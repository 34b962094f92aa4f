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
#include "base/interrupt.h"
#include "text/vocab_impl.h"

#define RN_NO_RANK UINT32_MAX /* does not merge with the next symbol */
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
    void *cells;
    size_t cell_bytes; /* room */
    size_t first;      /* tokens before the fragment */
};

struct rn_tokens {
    struct rn_heap *heap;
    int32_t *ids;
    size_t n, room;
    const struct rn_interrupt *stop; /* NULL: nobody ends the work */
    uint32_t n_looks;                /* of rn_tokens_wanted */
    bool stopped;                    /* `stop` was asked */
};

/* Called in each loop over a long text, and looks at `stop` every some thousand times. False: the work is to end. */
static inline bool rn_tokens_wanted(struct rn_tokens *tokens)
{
    if (++tokens->n_looks % 4096 == 0 && rn_interrupted(tokens->stop))
        tokens->stopped = true;
    return !tokens->stopped;
}

void rn_scratch_init(struct rn_scratch *scratch, struct rn_heap *heap);
void rn_scratch_fini(struct rn_scratch *scratch);

/* Room for `bytes` bytes in scratch->text, whose contents are lost; false: refused. */
bool rn_scratch_text(struct rn_scratch *scratch, size_t bytes);

/* Room for `more` bytes behind the first n of scratch->text, which stay. False: refused, or 2 GiB and more. */
bool rn_scratch_grow_text(struct rn_scratch *scratch, size_t n, size_t more);

/* Room for count * size bytes in scratch->cells, whose contents are lost; false: refused. */
bool rn_scratch_cells(struct rn_scratch *scratch, size_t count, size_t size);

/* Room for `more` ids; false: refused, or the work is to end. */
bool rn_tokens_reserve(struct rn_tokens *tokens, size_t more);

/* Appends the tokens of word[n], 1 <= n < 2^31, well-formed UTF-8: at most n. It is looked up as a whole, taken apart
 * where that makes no difference (split_points.h), and merged. False: memory was refused, or the work is to end; so
 * below. */
bool rn_merge_word(const struct rn_vocab *vocab, struct rn_scratch *scratch, const char *word, size_t n,
                   struct rn_tokens *tokens);

/* The same by nothing but merging, from bytes (any) or characters (well-formed UTF-8). */
bool rn_merge_symbols(const struct rn_vocab *vocab, struct rn_scratch *scratch, const char *word, size_t n,
                      struct rn_tokens *tokens);

/* Appends the tokens of text[n], 0 < n < 2^31, by the vocabulary's model; each is in a file of its name. after_special:
 * nothing or a special token stands before the text, so that a space prefix is due. False: refused. */
typedef bool rn_encode(const struct rn_vocab *vocab, struct rn_scratch *scratch, const char *text, size_t n,
                       bool after_special, struct rn_tokens *tokens);
rn_encode rn_bpe_encode, rn_bpe_text_encode, rn_dna_encode, rn_spm_encode, rn_unigram_encode, rn_wordpiece_encode,
    rn_rwkv_encode, rn_plamo_encode, rn_plamo3_encode;

/* Appends the tokens of the best way to cut text[n], n > 0, normalised, by itself (unigram.c). False: refused. */
bool rn_unigram_cut(const struct rn_vocab *vocab, struct rn_scratch *scratch, const char *text, size_t n,
                    struct rn_tokens *tokens);

/* Copies text[n] to `out` with a space for each U+2581; returns the bytes written, at most n (spm.c). */
size_t rn_spaces_for_blocks(const char *text, size_t n, char *out);

/* End of the part of text[n] that begins at `at`: where the next run of spaces begins that no token has behind the
 * character in front of it (spm.c). */
size_t rn_part_end(const struct rn_vocab *vocab, const char *text, size_t at, size_t n);

/* Rank and result of merging symbols[left] with the next one (bpe.c, spm.c). */
void rn_bpe_rank(const struct rn_vocab *vocab, struct rn_symbol *symbols, uint32_t left);
void rn_spm_rank(const struct rn_vocab *vocab, const char *word, struct rn_symbol *symbols, uint32_t left);

#endif
