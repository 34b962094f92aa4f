/* Finding tokens that are written out in a text ("<|im_start|>"): user-defined ones always, control
 * tokens on request. At each place the longest wins, and the place furthest left wins first, as in
 * an Aho-Corasick automaton of kind "leftmost longest".
 *
 * The texts lie sorted; a match narrows the range of those that share its bytes so far. Time is
 * linear in the text times the longest prefix of a token that the text repeats.
 *
 * User-defined tokens that the chat template writes are reserved: in a chat they are found in what the template wrote
 * alone, as control tokens are. In a text without marks they are user-defined tokens like the others. */
#ifndef RN_TEXT_SPECIAL_H
#define RN_TEXT_SPECIAL_H

#include "text/token_index.h"

#define RN_SPECIAL_BYTES 256 /* longer tokens are not searched for */

struct rn_special_matcher {
    uint32_t *ids;  /* [n] sorted by text, no two alike */
    bool *reserved; /* [n] */
    uint32_t n;
    uint32_t first[257];     /* ids[first[b]..first[b + 1]) begin with byte b */
    uint8_t starts[256];     /* bit 0: a user-defined token begins with this byte; bit 1: any does */
    uint32_t shortest_bytes; /* UINT32_MAX: no token */
};

/* kinds [n_tokens]: control, unknown and user-defined tokens are taken whose text is UTF-8 of at most RN_SPECIAL_BYTES.
 * False: refused. */
bool rn_special_init(struct rn_special_matcher *matcher, struct rn_heap *heap, const struct rn_strings *texts,
                     const uint8_t *kinds, uint32_t n_tokens);

/* The user-defined tokens that stand in this text, a chat template, are reserved. */
void rn_special_reserve(struct rn_special_matcher *matcher, const struct rn_strings *texts, const uint8_t *kinds,
                        const char *text, size_t n);
void rn_special_fini(struct rn_special_matcher *matcher, struct rn_heap *heap);

/* A search through text[n]. `all`: control tokens too, but none with a byte in one of the ranges data [n_data], which
 * ascend and are disjoint; reserved ones as if they were control tokens. */
struct rn_range;
struct rn_special_search {
    const struct rn_special_matcher *matcher;
    const struct rn_strings *texts;
    const uint8_t *kinds;
    const char *text;
    size_t n;
    bool all;
    const struct rn_range *data;
    size_t n_data;
    size_t next; /* 0 at first: the range that the search has come to */
};

/* Finds the next one in text[at..n), where `at` never goes back: its id, *begin and *end; -1 and both n where there is
 * none. */
int32_t rn_special_next(struct rn_special_search *search, size_t at, size_t *begin, size_t *end);

#endif
