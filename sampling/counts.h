/* How often each token occurs among the last so many of a sequence: what penalties need.
 *
 *   entries   [ token, count | token, count | ... ]           dense, in no order
 *   slots     [ 0 | 2 | 0 | 1 | ... ]                         open addressing: entry + 1, or 0; at most half full
 *   ring      [ the last `window` tokens ]                    only when there is a window
 *
 * Single owner. Nothing is allocated after new. */
#ifndef RN_SAMPLING_COUNTS_H
#define RN_SAMPLING_COUNTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/alloc.h"

struct rn_count {
    int32_t token;
    uint32_t count; /* at least 1 */
};

struct rn_counts {
    struct rn_count *entries; /* [n_entries] of [limit] */
    uint32_t *slots;          /* [mask + 1] */
    int32_t *ring;            /* [window]; NULL when the window is 0 */
    uint64_t n_tokens;        /* told so far */
    uint32_t n_entries;
    uint32_t limit;
    uint32_t mask;
    uint32_t window;
};

/* For sequences of at most max_tokens ids in [0, n_vocab), of which the last `window` count (0: all).
 * False on refusal: nothing is held. */
bool rn_counts_init(struct rn_counts *counts, struct rn_heap *heap, uint32_t n_vocab, uint32_t max_tokens,
                    uint32_t window);
void rn_counts_fini(struct rn_counts *counts, struct rn_heap *heap);

/* As after init. */
void rn_counts_clear(struct rn_counts *counts);

/* One more token. More distinct tokens than init was told of are a breach (RN_CHECK). */
void rn_counts_add(struct rn_counts *counts, int32_t token);

/* How often `token` occurs in the window. */
uint32_t rn_counts_of(const struct rn_counts *counts, int32_t token);

/* If path[n_path] came behind it: each token whose count would be another then, once, with that count, which may be 0
 * and may be the old one; returns how many, at most 2 n_path, into changes. The counts stay as they are. */
uint32_t rn_counts_behind(const struct rn_counts *counts, const int32_t *path, uint32_t n_path,
                          struct rn_count *changes);

/* True when every entry is found through its slot, no slot is left over, and the counts add up. For tests. */
bool rn_counts_check(const struct rn_counts *counts);

#endif
