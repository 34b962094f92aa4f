/* Who proposes drafts: guesses of the next tokens of a sequence, which the model then verifies all in one pass.
 *
 *   tokens of the sequence ─▶ propose ─▶ d1 d2 ... dk ─▶ one step with the rows  last token | d1 | d2 | ... | dk
 *
 * A draft is accepted exactly when the model, with the noise of its position, draws that token itself: so a proposer
 * can be as wrong as it likes, and costs time only. One object for each sequence; single owner. */
#ifndef RN_SAMPLING_PROPOSER_H
#define RN_SAMPLING_PROPOSER_H

#include <stdint.h>

struct rn_proposer {
    const struct rn_proposer_ops *ops;
};

struct rn_proposer_ops {
    /* The tokens that may follow tokens[n_tokens], into drafts[most]; returns how many. The tokens of a sequence only
     * grow from call to call, until restart. What is beyond `most`, or no id of the vocabulary, and all behind it, the caller leaves
     * out. Runs between two steps: must be quick, and allocates nothing. */
    uint32_t (*propose)(struct rn_proposer *proposer, const int32_t *tokens, uint32_t n_tokens, uint32_t most,
                        int32_t *drafts);
    /* The next tokens are of another sequence. NULL: it keeps nothing of them. */
    void (*restart)(struct rn_proposer *proposer);
    void (*free)(struct rn_proposer *proposer);
};

#endif
