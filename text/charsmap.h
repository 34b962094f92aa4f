/* SentencePiece's precompiled character map: which strings a text's characters are replaced by before it is cut
 * into tokens (NFKC and some more, with case folding in some models).
 *
 *     u32 bytes of the trie | the trie, u32 each | replacements, each with a NUL behind it
 *
 * The trie is a Darts-clone double array (Yata 2008; Kanda 2018 describes it). A unit holds, from its low bits:
 * label 8, has a leaf 1, offset's scale 1, offset 22; bit 31 marks a leaf, whose other bits are the place of the
 * replacement. Child c of the unit at i lies at (i ^ offset(i)) ^ c, if its label is c; the leaf at i ^ offset(i).
 *
 * Comes from a stranger's file: every place is checked when it is looked at, and what lies outside counts as no
 * match. Immutable: any thread. */
#ifndef RN_TEXT_CHARSMAP_H
#define RN_TEXT_CHARSMAP_H

#include "base/alloc.h"
#include "base/status.h"
#include "model/gguf/gguf.h"

/* Longest string that is replaced; those of SentencePiece's maps have less than 32 bytes. */
#define RN_CHARSMAP_MAX_KEY 256

struct rn_charsmap {
    uint32_t *units;
    size_t n_units; /* 0: nothing is replaced */
    char *strings;  /* [n_strings], the last a NUL */
    size_t n_strings;
    size_t longest; /* bytes of the longest replacement */
};

/* From blob[n], which is copied; n may be 0. FORMAT, NO_MEMORY; rn_charsmap_fini in every case. */
runnel_status rn_charsmap_init(struct rn_charsmap *map, struct rn_heap *heap, const char *blob, size_t n,
                               runnel_error *error);
void rn_charsmap_fini(struct rn_charsmap *map, struct rn_heap *heap);

/* Bytes of the longest beginning of text[n] that is replaced, and by what; 0 where there is none. */
size_t rn_charsmap_match(const struct rn_charsmap *map, const char *text, size_t n, struct rn_view *by);

#endif
