/* A proposer that lies: drafts are right with a given chance, else wrong tokens or no tokens of the vocabulary at all;
 * it offers fewer than asked, none, or claims to have written more. Over the oracle model, whose next token it
 * knows. */
#ifndef RN_TESTS_SIM_LIAR_H
#define RN_TESTS_SIM_LIAR_H

#include "sampling/proposer.h"
#include "tests/sim/oracle_backend.h"

struct liar_plan {
    struct oracle_alphabet alphabet;
    uint64_t salt;    /* the oracle's */
    uint32_t percent; /* of its drafts are right */
    bool honest_count;
    uint64_t seed; /* advances with each proposer */
};

/* rn_model_parts.new_proposer; user: a struct liar_plan that lives as long as the model. */
struct rn_proposer *liar_new(void *user, struct rn_heap *heap);

#endif
