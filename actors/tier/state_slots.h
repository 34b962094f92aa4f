/* Slots of recurrent state: which are free, in which streams compute, and which are kept as checkpoints.
 *
 *   tokens   0 ......... e0 .......... e1 ..... n_fill ...        e0, e1: ends of blocks
 *   slot     [     a     )[     b      )[     c
 *
 * A state is behind one position alone, so what a prompt shares of it is a copy of what it was there. A stream gets
 * slots for what it computes: where it comes to an end it leaves its slot behind and goes on in the next one, into
 * which its next row copies the state. What is left behind is a checkpoint of the prefix tree's node that ends there. A
 * prompt that finds a checkpoint begins with a copy of it.
 *
 * A checkpoint is of use as long as its node is ready; nobody is told when it is not: that is seen when it is looked
 * at. When slots run short checkpoints give way: first those of no use, then what was used longest ago, and last those
 * whose prefix is pinned. Not one that is still to be read: by the prompt that begins with it, or by the stream that
 * has left it behind. Where nothing else is left, a prompt takes over the checkpoint with which it begins: so a single
 * slot is enough for one stream.
 *
 * The prefix cache's (prefix_cache.h), and with it the tier actor's. */
#ifndef RN_ACTORS_TIER_STATE_SLOTS_H
#define RN_ACTORS_TIER_STATE_SLOTS_H

#include "actors/request.h"
#include "cache/prefix_tree.h"

enum rn_state_use { RN_STATE_FREE, RN_STATE_RUNS, RN_STATE_KEPT };

struct rn_state_slot {
    enum rn_state_use use;
    struct rn_prefix_ref at; /* kept: the node that it is behind */
    uint32_t readers;        /* kept: for so many it must stay */
    uint64_t last_use;
};

/* What a stream has of them. */
struct rn_state_lease {
    uint32_t source; /* a checkpoint, until the stream has computed something; RN_NO_STATE: none */
    uint32_t spare;  /* in which its rows of drafts go on; RN_NO_STATE: it brings none */
    uint32_t n;      /* 0: it has nothing */
    uint32_t slots[RN_STATE_TURNS + 1];
    uint32_t ends[RN_STATE_TURNS]; /* [n - 1], ascending: where it leaves the slots behind */
    uint32_t n_left;               /* so many it has left behind ... */
    bool reads;                    /* ... and the last one of them has not been read yet, as far as is known */
};

struct rn_state_slots {
    struct rn_heap *heap;
    struct rn_prefix_tree *tree; /* borrowed */
    struct rn_state_slot *slots; /* [n] */
    uint32_t max_leases, n_leases;
    uint32_t n; /* 0: the model has no recurrent state, and nothing below is called */
    uint64_t now;
};

/* At most so many streams have leases at a time. NO_MEMORY: nothing is held. */
runnel_status rn_state_slots_init(struct rn_state_slots *states, struct rn_heap *heap, struct rn_prefix_tree *tree,
                                  uint32_t n, uint32_t max_leases);
void rn_state_slots_fini(struct rn_state_slots *states);

/* The deepest checkpoint of a prefix, of which the tree has blocks[n] ready: its slot, and *n_blocks of them are before
 * it. RN_NO_STATE: there is none, *n_blocks is 0. */
uint32_t rn_state_slots_find(const struct rn_state_slots *states, const uint32_t *blocks, uint32_t n,
                             uint32_t *n_blocks);

/* Slots for a stream that begins with a copy of `source` (RN_NO_STATE: with zeros) and is to leave checkpoints at
 * ends[n_ends], or at the last of them as far as there are slots. If the request may draft
 * it gets one more, unless another stream could have to wait for that. The request is told. False: there is no slot,
 * and nothing has changed. */
bool rn_state_slots_take(struct rn_state_slots *states, struct rn_state_lease *lease, struct rn_request *request,
                         uint32_t source, const uint32_t *ends, uint32_t n_ends);

/* The stream has computed n_positions of its prompt; `at` is the node of as many of its blocks as are ready. True: it
 * has read a checkpoint, which may give way now to who waits for a slot. */
bool rn_state_slots_reached(struct rn_state_slots *states, struct rn_state_lease *lease, uint32_t n_positions,
                            struct rn_prefix_ref at);

/* It has left: no step has a row of it. Its checkpoints stay, if they are good. Harmless when it has nothing. */
void rn_state_slots_leave(struct rn_state_slots *states, struct rn_state_lease *lease, bool good);

/* False: a slot has two owners, or none, or readers that are none. */
bool rn_state_slots_check(const struct rn_state_slots *states, const struct rn_state_lease *lease);

#endif
