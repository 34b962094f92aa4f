/* A prefix tree over a small pool, and sequences that go through it; after each step the tree is checked. */
#ifndef RN_TESTS_CACHE_PREFIX_FIXTURE_H
#define RN_TESTS_CACHE_PREFIX_FIXTURE_H

#include "cache/prefix_tree.h"

enum { B = 4, BLOCKS = 16 }; /* tokens of a block; blocks of the pool */

struct fixture {
    struct rn_heap heap;
    struct rn_block_pool pool;
    struct rn_prefix_tree tree;
    uint32_t evicted[BLOCKS]; /* in order */
    uint32_t n_evicted;
    uint64_t handle, forgotten; /* what the tier says to evictions; the last it was told to forget */
};

/* A running sequence. */
struct run {
    struct rn_prefix_path path;
    struct rn_prefix_match found;
    uint32_t blocks[8], n_blocks;
};

extern const struct rn_prefix_salt salt, other_salt;
extern const int32_t text[20], fork_text[12]; /* they have their first block in common, and half of the second */

void open_tree(struct fixture *f, uint32_t max_nodes);
void close_tree(struct fixture *f);

void match(struct fixture *f, struct run *r, struct rn_prefix_salt s, const int32_t *tokens, uint32_t n);

/* Takes blocks for n tokens and enters. */
void enter(struct fixture *f, struct run *r, struct rn_prefix_salt s, const int32_t *tokens, uint32_t n);
uint32_t publish(struct fixture *f, struct run *r, const int32_t *tokens, uint32_t n, uint32_t *duplicate_blocks,
                 struct rn_prefix_woken *woken);
void leave(struct fixture *f, struct run *r, struct rn_prefix_woken *woken);

/* A sequence that computes n tokens and leaves them in the tree. */
void compute(struct fixture *f, struct rn_prefix_salt s, const int32_t *tokens, uint32_t n);

#endif
