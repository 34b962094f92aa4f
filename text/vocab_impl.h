/* The inside of a vocabulary, for the files of text/ alone. Immutable once built. */
#ifndef RN_TEXT_VOCAB_IMPL_H
#define RN_TEXT_VOCAB_IMPL_H

#include "text/charsmap.h"
#include "text/split/split_points.h"
#include "text/special.h"
#include "text/split/splitter.h"
#include "text/token_index.h"
#include "text/token_kind.h"
#include "text/trie.h"

/* Longest token text; more is a broken file. Known vocabularies stay below 2 KiB. */
#define RN_TOKEN_MAX_BYTES 65535
/* Most tokens; known vocabularies stay below 2^19. */
#define RN_VOCAB_MAX_TOKENS (1u << 24)

enum rn_vocab_model {
    RN_VOCAB_NONE,
    RN_VOCAB_BYTES,
    RN_VOCAB_SPM,
    RN_VOCAB_BPE,
    RN_VOCAB_UNIGRAM,
    RN_VOCAB_WORDPIECE,
    RN_VOCAB_RWKV,
    RN_VOCAB_PLAMO
};

enum rn_token_flag {
    RN_TOKEN_ENDS = 1,   /* rn_vocab_is_end */
    RN_TOKEN_WHOLE = 2,  /* a word of exactly this piece becomes this one token */
    RN_TOKEN_LSTRIP = 4, /* a special token that takes the white space before it along ... */
    RN_TOKEN_RSTRIP = 8, /* ... or behind it */
    RN_TOKEN_MERGED = 16 /* merging the characters of this piece gives this one token */
};

#define RN_MOST_STRAYS 18 /* keys that name a token */

struct rn_scratch;
struct rn_tokens;

struct rn_vocab {
    struct rn_heap *heap;
    enum rn_vocab_model model;
    bool (*encode)(const struct rn_vocab *, struct rn_scratch *, const char *, size_t, bool, struct rn_tokens *);
    uint32_t n;
    uint8_t *kinds;                 /* [n] enum rn_token_kind; NULL for RN_VOCAB_NONE */
    uint8_t *flags;                 /* [n] */
    struct rn_strings texts;        /* [n] as stored */
    struct rn_strings pieces;       /* [n] as raw bytes, names of control tokens included */
    struct rn_token_index by_text;  /* all but empty ones */
    struct rn_token_index by_piece; /* BPE, SPM: normal tokens, the ones that merging can give */
    struct rn_trie trie;            /* the other models: the pieces that text can become */
    float *scores;                  /* [n], finite; SPM, Unigram, PLaMo */
    int32_t *whole_scores;          /* [n] PLaMo: 10^4 times the scores */
    struct rn_split_points cuts;    /* BPE, SPM: of the pieces in by_piece */
    struct rn_merge_table merges;   /* BPE */
    const struct rn_pre *pre;       /* BPE */
    struct rn_special_matcher special;
    struct rn_charsmap charsmap; /* Unigram */
    double unknown_score;        /* Unigram: of a character that is no token */
    int32_t byte_token[256];     /* -1: none */
    int32_t bos, eos, sep, unknown;
    int32_t fim[RN_FIMS];                      /* -1: none */
    struct rn_stray_id strays[RN_MOST_STRAYS]; /* [n_strays] see rn_vocab_stray */
    uint32_t n_strays;
    int32_t dna_open, dna_close, dna_other; /* dna.c; dna_other -1: the vocabulary has no such pieces */
    bool merges_idle;                       /* see rn_vocab_merges_fit */
    bool add_bos, add_eos, add_sep, space_prefix;
    bool pair_sep;           /* a separator stands before the second of two texts */
    bool by_characters;      /* BPE, SPM: words begin as characters, not as bytes */
    bool blocks;             /* U+2581 in a stored token is a space */
    bool drop_spaces;        /* BPE: white space becomes nothing */
    bool squeeze_spaces;     /* Unigram: runs of spaces are one, those at the ends none */
    bool lower_case;         /* WordPiece, BPE by characters */
    bool strip_accents;      /* WordPiece */
    bool all_bytes;          /* byte_token has all 256 */
    bool inner_space;        /* a piece has a space after something else: words cannot be taken apart */
    uint32_t longest_piece;  /* of all */
    uint32_t longest_normal; /* of those in by_piece */
    size_t bytes_to_tokens;  /* most tokens that one byte of text can cost */
};

/* Fills texts, kinds, scores, merges and special ids from the file (vocab_load.c, vocab_special.c). */
runnel_status rn_vocab_load(struct rn_vocab *vocab, const struct rn_gguf *gguf, runnel_error *error);

/* Special ids, which of them are added, and which tokens end an answer or take white space along; after tokens and
 * kinds (vocab_special.c). */
runnel_status rn_vocab_load_specials(struct rn_vocab *vocab, const struct rn_gguf *gguf, runnel_error *error);

/* Tokens that the file's chat templates write, and a user's message does not; after rn_vocab_build. */
void rn_vocab_reserve(struct rn_vocab *vocab, const struct rn_gguf *gguf);

/* Builds what is derived from them: pieces, tables, flags (vocab_build.c). FORMAT, NO_MEMORY. */
runnel_status rn_vocab_build(struct rn_vocab *vocab, runnel_error *error);

/* The bytes of a RWKV token's text to out[text.n]; returns how many (rwkv.c). */
size_t rn_rwkv_unescape(struct rn_view text, char *out);

#endif
