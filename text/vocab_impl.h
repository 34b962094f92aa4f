/* The inside of a vocabulary, for the files of text/ alone. Immutable once built. */
#ifndef RN_TEXT_VOCAB_IMPL_H
#define RN_TEXT_VOCAB_IMPL_H

#include "text/special.h"
#include "text/splitter.h"
#include "text/token_index.h"
#include "text/vocab.h"

/* Longest token text; more is a broken file. Known vocabularies stay below 2 KiB. */
#define RN_TOKEN_MAX_BYTES 65535
/* Most tokens; known vocabularies stay below 2^19. */
#define RN_VOCAB_MAX_TOKENS (1u << 24)

enum rn_vocab_model { RN_VOCAB_NONE, RN_VOCAB_BYTES, RN_VOCAB_SPM, RN_VOCAB_BPE };

enum rn_token_flag {
    RN_TOKEN_ENDS = 1, /* rn_vocab_is_end */
    RN_TOKEN_WHOLE = 2 /* a word of exactly this piece becomes this one token */
};

struct rn_vocab {
    struct rn_heap *heap;
    enum rn_vocab_model model;
    uint32_t n;
    uint8_t *kinds; /* [n] enum rn_token_kind; NULL for RN_VOCAB_NONE */
    uint8_t *flags; /* [n] */
    struct rn_strings texts;  /* [n] as stored */
    struct rn_strings pieces; /* [n] as raw bytes, names of control tokens included */
    struct rn_token_index by_text;  /* all but empty ones */
    struct rn_token_index by_piece; /* normal tokens, the ones that merging can give */
    float *scores;                  /* [n], finite; SPM */
    struct rn_merge_table merges;   /* BPE */
    const struct rn_pre *pre;       /* BPE */
    struct rn_special_matcher special;
    int32_t byte_token[256]; /* -1: none */
    int32_t bos, eos, unknown;
    bool add_bos, add_eos, space_prefix;
    bool inner_space;        /* SPM: a normal piece has a space after something else: words cannot be taken apart */
    uint32_t longest_piece;  /* of all */
    uint32_t longest_normal; /* of those in by_piece */
    uint32_t bytes_to_tokens; /* most tokens that one byte of text can cost */
};

/* Fills texts, kinds, scores, merges and special ids from the file (vocab_load.c). */
runnel_status rn_vocab_load(struct rn_vocab *vocab, const struct rn_gguf *gguf, runnel_error *error);

/* Builds what is derived from them: pieces, tables, flags (vocab_build.c). FORMAT, NO_MEMORY. */
runnel_status rn_vocab_build(struct rn_vocab *vocab, runnel_error *error);

#endif
