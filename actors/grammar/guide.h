/* What guides the draws of one request by its grammar. The request owns it; it is lent to the step with the request's
 * rows, and has something for each of them:
 *
 *     row 0      behind the last token        mask, and room for logits
 *     row 1..    behind drafts, as wanted     likewise
 *
 * Rows are large: a logit is four bytes of each token of the vocabulary. So a request has them only while it is with
 * those that run (rn_request_take_rows), not while it waits.
 *
 * The sampler makes the masks of a step while the step runs (matchers.h), the step draws from them on the device's
 * threads, or the device by itself from a copy. A row that is to be drawn before its mask is there leaves its logits
 * here, and the sampler draws from them when the step is done: the same token comes of it. */
#ifndef RN_ACTORS_GRAMMAR_GUIDE_H
#define RN_ACTORS_GRAMMAR_GUIDE_H

#include "actors/grammar/compiled.h"
#include "base/status.h"
#include "mailbox/flag.h"
#include "sampling/sampler.h"

/* Of a row: what is known of its mask. */
enum rn_guide_state {
    RN_GUIDE_WAITS = 0, /* nothing yet */
    RN_GUIDE_MASKED,    /* its mask is there */
    RN_GUIDE_REFUSED,   /* the grammar does not allow the drafts in front of it, or has come to its end there */
    RN_GUIDE_FAILED     /* its error says why it has none */
};

struct rn_guide_row {
    struct rn_word state; /* set by the sampler, read by the device's thread that draws the row: the mask is whole
                             before, and the error */
    bool may_end;         /* of rn_mask */
    bool kept;            /* its logits are here: set by the device's thread, read when the step is done */
    runnel_error error;   /* why it has no mask, or its draw could not be taken; status OK: neither */
};

struct rn_guide {
    struct rn_heap *heap;
    struct rn_compiled *compiled; /* a reference */
    uint32_t words, n_vocab;
    bool keeps_logits;
    size_t row_bytes;
    uint32_t n_rows;              /* 0: none now */
    struct rn_guide_row *rows;    /* [n_rows] */
    uint64_t *masks;              /* [n_rows, words] */
    float *logits;                /* [n_rows, n_vocab]; NULL: logits stay where they are until the sampler has them */
    uint32_t n_forced;            /* what comes next where the grammar leaves no choice of text, ... */
    int32_t forced[RN_PATH_MOST]; /* ... in the longest tokens. Guesses: others may spell the same */
    bool begun;                   /* the sampler has a matcher of the stream: its end comes by there */
};

/* Without rows. keeps_logits: as of `logits`. Takes a reference. NULL: memory was refused. */
struct rn_guide *rn_guide_new(struct rn_heap *heap, struct rn_compiled *compiled, uint32_t n_vocab, bool keeps_logits);
void rn_guide_free(struct rn_guide *guide); /* NULL is allowed */

/* What a row takes with logits of n_vocab tokens and a vocabulary of n_tokens. */
size_t rn_guide_row_bytes(uint32_t n_vocab, uint32_t n_tokens, bool keeps_logits);

/* Of a guide without rows. False: memory was refused, and it has none still. */
bool rn_guide_take_rows(struct rn_guide *guide, uint32_t n_rows);

/* No step has any of them. */
void rn_guide_drop_rows(struct rn_guide *guide);

/* Decode, when the row is composed. */
void rn_guide_begin_row(struct rn_guide *guide, uint32_t row);

static inline uint64_t *rn_guide_mask(const struct rn_guide *guide, uint32_t row)
{
    return guide->masks + (size_t)row * guide->words;
}

static inline float *rn_guide_logits(const struct rn_guide *guide, uint32_t row)
{
    return guide->logits + (size_t)row * guide->n_vocab;
}

static inline enum rn_guide_state rn_guide_state(const struct rn_guide *guide, uint32_t row)
{
    return (enum rn_guide_state)rn_word_get(&guide->rows[row].state);
}

#endif
