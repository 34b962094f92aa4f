/* What the verifier proposes to decode for the next step: of each stream that drafts the chain of drafts behind its
 * last token, and which of their runners-up are rows, too. Values only. Decode takes of a chain what the step has room
 * for and of one that stands behind other tokens nothing. On its way a list passes the sampler if streams with grammars
 * draft: what their grammars refuse is cut. */
#ifndef RN_ACTORS_DRAFT_PROPOSAL_H
#define RN_ACTORS_DRAFT_PROPOSAL_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include "sampling/sampler.h"
#include "sampling/speculate.h"

static_assert(RN_DRAFT_MOST <= 32, "the branches of a chain are bits of a word");
static_assert(RUNNEL_MAX_DRAFTS <= RN_DRAFT_MOST, "what a request may ask for fits a proposal");

struct rn_proposal {
    uint32_t slot, generation; /* of the stream */
    uint32_t first;            /* the first draft is the sequence's token of this index */
    uint32_t n;                /* drafts of the chain, each in the vocabulary */
    uint32_t branches;         /* bit i: the runner-up of draft i is to be a row */
    bool by_grammar;           /* the drafts are what a grammar leaves no choice of */
    bool by_model;             /* the drafts are the drafter's, not those of the stream's own text */
    bool features;             /* the drafter wants the features of the stream's rows */
    int32_t tokens[RN_DRAFT_MOST];
    struct rn_runner_up seconds[RN_DRAFT_MOST]; /* the runner-up of each; token -1: it has none */
};

struct rn_proposal_list {
    uint32_t n;
    bool guided;               /* grammars have a say in some of the drafts: the sampler looks at them */
    struct rn_proposal *items; /* [max_seqs] */
};

#endif
