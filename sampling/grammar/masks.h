/* Which tokens may come next.
 *
 * A mask is made of two parts. What a state of the automaton allows without leaving its rule does not depend on what
 * lies below it: that is found out once for each state, with the places in the trie of tokens where the rule ends and a
 * token does not ("exits"). The rest is a walk from those places, with the configuration below. So the text of a string
 * is looked through once, and after that only the tokens in which a string ends.
 *
 * Where any plain character is allowed, whole parts of the vocabulary are (token_trie.h). Masks of configurations that
 * come back are kept.
 *
 * All streams of one grammar on one thread share this: it owns the sets of stacks (stacks.h), and knows the matchers
 * that point into them, so that sets that nobody needs can be dropped. Memory is bounded; nothing is allocated where
 * what is needed has been found out before.
 *
 * Single owner. */
#ifndef RN_SAMPLING_GRAMMAR_MASKS_H
#define RN_SAMPLING_GRAMMAR_MASKS_H

#include "sampling/grammar/stacks.h"
#include "sampling/grammar/token_trie.h"

struct rn_masks_limits {
    size_t stack_bytes; /* of stacks.h; a row is 40 to 1000 bytes */
    size_t mask_bytes;  /* of what is known of states, and of kept masks */
    uint32_t depth;     /* of calls in calls: brackets in brackets */
    uint64_t steps;     /* of one mask or one token */
};

/* 8 MiB, 16 MiB, depth 1000, 5 × 10^6 steps (some 50 ms: only a grammar that is made for it takes a tenth). */
extern const struct rn_masks_limits rn_masks_limits_default;

#define RN_MASKS_KEPT 64u /* masks of configurations, by their numbers */

struct rn_matcher;

struct rn_masks_step {
    uint32_t set, row; /* row: of the set; RN_STACKS_UNKNOWN: none yet */
};

struct rn_masks {
    struct rn_heap *heap;
    const struct rn_automaton *automaton;
    const struct rn_token_trie *trie;
    struct rn_masks_limits limits;
    struct rn_stacks stacks;
    struct rn_matcher *matchers;   /* list */
    uint32_t start;                /* configuration before anything is read; RN_STACKS_UNKNOWN: not known */
    struct rn_state_mask **states; /* [states of the automaton] NULL: not known */
    size_t bytes;                  /* of states and kept */
    uint64_t *kept[RN_MASKS_KEPT]; /* [words] */
    uint32_t kept_of[RN_MASKS_KEPT];
    uint64_t *work;             /* [words] */
    struct rn_masks_step *path; /* [longest + 1] configurations along a token */
    uint32_t *exits;            /* while a state is looked at */
    uint32_t n_exits, room_exits;
    uint8_t plain[256]; /* [n_plain] classes of plain ASCII */
    uint32_t n_plain;
    uint64_t visited; /* nodes of the trie, since the beginning */
};

/* For one automaton and vocabulary, both borrowed. limits NULL: the default ones. NULL: memory was refused. */
struct rn_masks *rn_masks_new(struct rn_heap *heap, const struct rn_automaton *automaton,
                              const struct rn_token_trie *trie, const struct rn_masks_limits *limits);
void rn_masks_free(struct rn_masks *masks); /* NULL is allowed; no matcher may be left */

/* Bytes in use, without automaton and trie. */
size_t rn_masks_bytes(const struct rn_masks *masks);

/* The mask of a configuration: bit t of mask[words] is set where text token t, or a token that the grammar names, may
 * come next. Ends of an answer are the matcher's. False: stacks.trouble. */
bool rn_masks_of(struct rn_masks *masks, uint32_t set, uint64_t *mask);

/* Drops what is not needed, and tells the matchers the new numbers. False: memory was refused. */
bool rn_masks_drop(struct rn_masks *masks);

void rn_masks_check(const struct rn_masks *masks);

#endif
