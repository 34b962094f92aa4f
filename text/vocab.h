/* A vocabulary: token ids, the bytes they stand for, and how text becomes ids.
 *
 * Built once per model from GGUF metadata (tokenizer.ggml.*), immutable afterwards: any thread may
 * use it without a lock. Kinds: SentencePiece with score merges ("llama") and Unigram ("t5"), BPE over bytes
 * ("gpt2") or characters ("gemma4" and others) with the pre-tokenizers listed in splitter.c, WordPiece ("bert"),
 * RWKV, PLaMo-2, HybriDNA, and plain bytes (for the oracle model). docs/TOKENIZERS.md has the table. */
#ifndef RN_TEXT_VOCAB_H
#define RN_TEXT_VOCAB_H

#include <stdbool.h>
#include <stdint.h>

#include "base/alloc.h"
#include "base/interrupt.h"
#include "base/status.h"
#include "base/utf8.h"
#include "model/gguf/gguf.h"
#include "text/token_kind.h"

struct rn_vocab; /* opaque */

/* From a file's metadata. FORMAT, UNSUPPORTED (a tokenizer or pre-tokenizer that is not known: named
 * in *error), NO_MEMORY. "no_vocab" files give a vocabulary of n_vocab_hint tokens without text (tokenizing
 * is then refused with UNSUPPORTED). Copies what it needs: the file may be closed afterwards. */
runnel_status rn_vocab_new(struct rn_heap *heap, const struct rn_gguf *gguf, uint32_t n_vocab_hint,
                           struct rn_vocab **out, runnel_error *error);

/* 256 tokens, each a byte; no BOS, no EOS. For the oracle model. NULL on refusal. */
struct rn_vocab *rn_vocab_new_bytes(struct rn_heap *heap);
void rn_vocab_free(struct rn_vocab *vocab);

uint32_t rn_vocab_count(const struct rn_vocab *vocab);
int32_t rn_vocab_bos(const struct rn_vocab *vocab); /* -1: none */
int32_t rn_vocab_eos(const struct rn_vocab *vocab); /* -1: none */
bool rn_vocab_add_bos(const struct rn_vocab *vocab);
/* What stands behind a text, or between two that are one prompt, to ids[3]; how many these are. */
size_t rn_vocab_ends(const struct rn_vocab *vocab, bool between, int32_t ids[3]);

int32_t rn_vocab_fim(const struct rn_vocab *vocab, enum rn_fim which); /* -1: none */
enum rn_token_kind rn_vocab_kind(const struct rn_vocab *vocab, int32_t token);

/* True for tokens that end an answer: EOS, EOT, EOM and the control tokens by which known chat
 * formats end a turn (<|im_end|>, <|eot_id|>, <end_of_turn>, ...). */
bool rn_vocab_is_end(const struct rn_vocab *vocab, int32_t token);

/* The raw bytes a token stands for: spaces as spaces, byte tokens as their byte; control tokens as
 * nothing, or as their name when `special`. Unknown and out-of-range ids: nothing. Borrowed. */
struct rn_view rn_vocab_piece(const struct rn_vocab *vocab, int32_t token, bool special);

/* Longest piece in bytes, names of control tokens included; at least 1. */
uint32_t rn_vocab_longest_piece(const struct rn_vocab *vocab);

/* False: the file has a list of merges, and none of them joins two of its tokens to a third one, so that words fall
 * apart into bytes (BPE). The list is another vocabulary's. */
bool rn_vocab_merges_fit(const struct rn_vocab *vocab);

/* The index'th key of the file that names a token by a number that is no token's: it counts as absent. NULL: there are
 * no more. */
const struct rn_stray_id *rn_vocab_stray(const struct rn_vocab *vocab, uint32_t index);

/* True when the piece of the first token of a text starts with a space that the tokenizer put there
 * (SentencePiece's prefix, WordPiece's phantom space) and that detokenizing from the start of a text takes away. */
bool rn_vocab_strips_first_space(const struct rn_vocab *vocab);

/* The id of a token by its exact text as stored ("<|im_start|>"), or -1. */
int32_t rn_vocab_find(const struct rn_vocab *vocab, const char *text, size_t n);

/* Text to ids. flags: RUNNEL_TOKENIZE_*. *tokens is taken from `heap` (free with rn_free), also when
 * *count is 0. INVALID: not UTF-8, or 2 GiB and more. UNSUPPORTED: no text vocabulary. NO_MEMORY. Linear time (n log n
 * at most) on any input; pure: no state is shared. */
runnel_status rn_tokenize(const struct rn_vocab *vocab, struct rn_heap *heap, const char *text, size_t n,
                          uint32_t flags, int32_t **tokens, size_t *count, runnel_error *error);

/* As rn_tokenize with RUNNEL_TOKENIZE_SPECIAL, but control tokens are found only where none of their bytes lies in
 * data [n_data], ascending and disjoint ranges of the text: what a user wrote never becomes a control token.
 * User-defined tokens (RN_TOKEN_USER) are text, and are found anywhere. A fragment between tokens is encoded as a
 * whole, however many ranges it touches. */
struct rn_range;
runnel_status rn_tokenize_marked(const struct rn_vocab *vocab, struct rn_heap *heap, const char *text, size_t n,
                                 uint32_t flags, const struct rn_range *data, size_t n_data, int32_t **tokens,
                                 size_t *count, runnel_error *error);

/* The same, marked or plain, until `stop` is asked: then CANCELLED. stop NULL: nobody ends it. */
struct rn_tokenize_text {
    const char *text; /* [n] */
    size_t n;
    uint32_t flags;
    bool marked;                 /* by these ranges; else `data` is not looked at */
    const struct rn_range *data; /* [n_data] */
    size_t n_data;
};
runnel_status rn_tokenize_until(const struct rn_vocab *vocab, struct rn_heap *heap, const struct rn_tokenize_text *text,
                                const struct rn_interrupt *stop, int32_t **tokens, size_t *count, runnel_error *error);

/* Upper bound of the ids that rn_tokenize and rn_tokenize_marked can give for n bytes: what admission may rely on. It
 * is n and a few, but for vocabularies with a character map, which may make many characters of one, or of characters in
 * lower case, which may have more bytes. */
size_t rn_tokenize_bound(const struct rn_vocab *vocab, size_t n);

/* Ids to bytes, the inverse where the vocabulary is lossless: writes at most `capacity` bytes,
 * *n gets the whole size. Takes SentencePiece's first space away. */
void rn_detokenize(const struct rn_vocab *vocab, const int32_t *tokens, size_t count, bool special, char *text,
                   size_t capacity, size_t *n);

#endif
