/* "Don't repeat yourself" (p-e-w, text-generation-webui 5677, 2024): what would go on with a repetition becomes less
 * likely, the more the longer it is.
 *
 *   ... the cat sat on the │ mat ...        the cat sat on the │ ?
 *       └──── length 5 ────┘   ▲            └──── the end ─────┘
 *                              its logit falls by multiplier × base^(5 - allowed length)
 *
 * The length for a token is the greatest number of tokens before one of its places that are equal to as many at the end
 * of the sequence. Neither of the two holds a token in which a breaker ends: so what stands in many texts between
 * sentences is no repetition. Only the last tokens of the sequence, as many as the window has, are looked at, and
 * lengths up to RN_DRY_LONGEST tell apart. */
#ifndef RN_SAMPLING_DRY_H
#define RN_SAMPLING_DRY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/alloc.h"
#include "base/status.h"
#include "text/vocab.h"

#define RN_DRY_LONGEST 128u

/* The end of the text so far, as far as a breaker may reach back. */
struct rn_dry_tail {
    char bytes[RUNNEL_MAX_BREAKER_BYTES];
    uint32_t n;
};

struct rn_dry {
    int32_t *tokens; /* [window] a ring; those in which a breaker ends have bit 31 */
    uint32_t window; /* 0: off */
    uint64_t n_tokens;
    char *breakers; /* one behind the other, ... */
    uint8_t *sizes; /* ... [n_breakers] */
    uint32_t n_breakers;
    const struct rn_vocab *vocab; /* borrowed; NULL: tokens have no text, and nothing breaks */
    struct rn_dry_tail tail;
};

/* For sequences of at most max_tokens, of which the samplers' dry_tokens last ones count. False on refusal: nothing is
 * held. */
bool rn_dry_init(struct rn_dry *dry, struct rn_heap *heap, const runnel_samplers *samplers, uint32_t max_tokens);
void rn_dry_fini(struct rn_dry *dry, struct rn_heap *heap);

/* As after init. */
void rn_dry_clear(struct rn_dry *dry);
void rn_dry_add(struct rn_dry *dry, int32_t token);

/* The lengths of tokens that would make a repetition of at least `least` longer, if path[n_path] came behind the
 * sequence, n_path at most RUNNEL_MAX_DRAFTS: lengths[token], each token once in touched; returns how many. lengths are
 * 0 before, and are the caller's to put back. Both have room for a vocabulary. Time goes with the window alone. */
uint32_t rn_dry_lengths(const struct rn_dry *dry, const int32_t *path, uint32_t n_path, uint32_t least,
                        int32_t *lengths, int32_t *touched);

#endif
