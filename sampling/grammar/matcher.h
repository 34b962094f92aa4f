/* One stream's place in a grammar.
 *
 *     rn_matcher_mask(m, mask)      which tokens may come next
 *     rn_matcher_accept(m, token)   one has come
 *     rn_matcher_rollback(m, n)     the last n have not
 *
 * A place is one number (stacks.h), and the last places are kept for rolling back: to copy a matcher is to copy some
 * numbers. So a draft is walked by accepting its tokens, each branch of a tree by a copy, and both are taken back.
 *
 * The end of an answer is allowed exactly when the text is complete; behind it nothing is. Ends are the vocabulary's
 * tokens for that, and those that the stream has besides (rn_matcher_set_ends). Other control tokens are never allowed
 * but where the grammar names them. If no token at all is allowed and the text is not complete, the vocabulary
 * cannot spell what the grammar wants: the mask is empty.
 *
 * Owned by who owns its masks, which outlive it. Accepting and masks allocate nothing once what they need was found out
 * before. */
#ifndef RN_SAMPLING_GRAMMAR_MATCHER_H
#define RN_SAMPLING_GRAMMAR_MATCHER_H

#include "sampling/grammar/masks.h"

struct rn_matcher {
    struct rn_masks *masks;
    struct rn_matcher *previous, *next;
    uint32_t place;     /* configuration, or RN_MATCHER_ENDED */
    uint32_t n_past;    /* places that can be rolled back to */
    uint32_t most_past; /* of which the ring has room */
    uint32_t newest;    /* in the ring, of the last one */
    uint32_t *past;     /* [most_past] */
    int32_t *ends;      /* [n_ends] the stream's own: sorted, none of them the vocabulary's */
    uint32_t n_ends;
    bool avoids_ends; /* the vocabulary's ends are let in only where nothing else is */
};

#define RN_MATCHER_ENDED (UINT32_MAX - 1)

/* At the beginning. rollback: as many tokens can be taken back. *out is NULL unless it succeeds. NO_MEMORY; BUSY: a
 * limit of the masks. */
runnel_status rn_matcher_new(struct rn_masks *masks, uint32_t rollback, struct rn_matcher **out, runnel_error *error);
void rn_matcher_free(struct rn_matcher *matcher); /* NULL is allowed */

/* What ends the stream's answer where its text is complete: tokens[n] besides the vocabulary's ends; with `avoids`
 * these are let in only where nothing else may come. Copied; the same may stand there more than once. Replaces what was
 * set before. NO_MEMORY, and nothing is changed. */
runnel_status rn_matcher_set_ends(struct rn_matcher *matcher, const int32_t *tokens, uint32_t n, bool avoids,
                                  runnel_error *error);

/* Back to the beginning; nothing can be rolled back. */
runnel_status rn_matcher_reset(struct rn_matcher *matcher, runnel_error *error);

/* Bit t of mask[words] for each token t that may come next; words: (tokens of the vocabulary + 63) / 64. BUSY: a limit
 * of the masks was reached; NO_MEMORY. The matcher is as it was. */
runnel_status rn_matcher_mask(struct rn_matcher *matcher, uint64_t *mask, runnel_error *error);

/* Of a mask that the matcher has made: does it allow ends of the answer and nothing else? *empty: nothing at all. */
bool rn_matcher_allows_ends_alone(const struct rn_matcher *matcher, const uint64_t *mask, bool *empty);

/* One more token. INVALID: it is not allowed; BUSY, NO_MEMORY: as above. The matcher is as it was then. */
runnel_status rn_matcher_accept(struct rn_matcher *matcher, int32_t token, runnel_error *error);

/* Bytes that count as one token for rollback: text that was not made of tokens. */
runnel_status rn_matcher_accept_bytes(struct rn_matcher *matcher, const char *bytes, size_t n, runnel_error *error);

/* Takes the last n accepted back; false, and nothing happens: they are not kept. */
bool rn_matcher_rollback(struct rn_matcher *matcher, uint32_t n);

/* Is the text complete as it is? It may go on for all that. */
bool rn_matcher_can_end(const struct rn_matcher *matcher);

/* Is the text complete, and nothing can follow but the end? */
bool rn_matcher_must_end(const struct rn_matcher *matcher);

/* Has the end of the answer been accepted? */
bool rn_matcher_has_ended(const struct rn_matcher *matcher);

/* The bytes that come next whatever is chosen, as long as there is no choice: into bytes[room], *n gets how many. None
 * where the text may end or a token is named. */
runnel_status rn_matcher_forced(struct rn_matcher *matcher, char *bytes, size_t room, size_t *n, runnel_error *error);

/* The token that the grammar names where nothing else may come, neither text nor the end; -1: there is a choice. */
int32_t rn_matcher_only_token(const struct rn_matcher *matcher);

/* For masks.c: keeps the sets of its places while others are dropped, and takes their new numbers. */
void rn_matcher_keep(struct rn_matcher *matcher);
void rn_matcher_move(struct rn_matcher *matcher);

#endif
