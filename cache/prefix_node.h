/* The inside of the prefix tree, for prefix_*.c alone: nodes, the table that finds them, the heap of those that may
 * be evicted. See prefix_tree.h for what it all means.
 *
 *   table   slot = (upper half of the hash, node), linear probing from the upper bits, removal by shifting back;
 *           a slot's home is in its own upper half, so that neither needs to look at nodes
 *   heap    idle[] by rank, then last_use; a node knows its place. Only evictable nodes are in it, so that eviction
 *           never searches. A leaf's rank and last_use are exact: a use is noted at the deepest node alone, and a node
 *           that stops to be ready leaves its own to its parent
 *   family  children are a ring; ready and pending ones in front, cold ones behind
 *   lists   list_next, list_prev: the claims of a path (pending) by depth; the cold ones, oldest first, which puts
 *           every one behind what is below it; the free ones */
#ifndef RN_CACHE_PREFIX_NODE_H
#define RN_CACHE_PREFIX_NODE_H

#include <assert.h>

#include "cache/prefix_tree.h"

#define NONE RN_PREFIX_NO_NODE

struct rn_prefix_slot {
    uint32_t hash_high;
    uint32_t node; /* NONE: empty */
};

static_assert(sizeof(struct rn_prefix_slot) == 8, "eight to a cache line");

struct rn_prefix_node {
    uint64_t hash; /* of the salt and all tokens up to its end */
    union {
        struct {
            uint64_t last_use;
            uint64_t handle;
            uint64_t rank;
        };
        struct rn_prefix_salt salt; /* a root's */
    };
    struct rn_prefix_path *computing; /* pending: who has claimed it */
    struct rn_prefix_path *waiting;   /* pending: the first of the ring of those who wait; NULL: none */
    uint32_t parent, first_child, next, prev;
    uint32_t list_next, list_prev;
    uint32_t depth;  /* blocks up to its end */
    uint32_t n_warm; /* children that are ready or pending */
    uint32_t block;
    uint32_t pins;
    uint32_t holds; /* paths that stand on it */
    uint32_t place; /* in the heap; NONE */
    uint32_t generation;
    uint32_t hits; /* of prompts whose known prefix ended with it; RN_PREFIX_MOST_HITS at most */
    enum rn_prefix_state state;
};

#define RN_PREFIX_MOST_HITS 3u

static inline int32_t *rn_prefix_tokens(const struct rn_prefix_tree *tree, uint32_t node)
{
    return tree->tokens + (size_t)node * tree->options.block_tokens;
}

static inline struct rn_prefix_ref rn_prefix_ref_to(const struct rn_prefix_tree *tree, uint32_t node)
{
    return (struct rn_prefix_ref){node, node == NONE ? 0 : tree->nodes[node].generation};
}

/* The node, NONE when it is gone. */
static inline uint32_t rn_prefix_at(const struct rn_prefix_tree *tree, struct rn_prefix_ref ref)
{
    return ref.node < tree->n_touched && tree->nodes[ref.node].generation == ref.generation ? ref.node : NONE;
}

static inline bool rn_prefix_is_warm(enum rn_prefix_state state)
{
    return state == RN_PREFIX_PENDING || state == RN_PREFIX_READY;
}

/* ---- The table (prefix_index.c) ---- */

uint64_t rn_prefix_hash_salt(const struct rn_prefix_tree *tree, struct rn_prefix_salt salt);
void rn_prefix_table_add(struct rn_prefix_tree *tree, uint32_t node);
void rn_prefix_table_remove(struct rn_prefix_tree *tree, uint32_t node);

/* The child of `parent` with these tokens, whose hash (with all before) is `hash`; NONE. */
uint32_t rn_prefix_table_child(const struct rn_prefix_tree *tree, uint64_t hash, uint32_t parent,
                               const int32_t *tokens);
uint32_t rn_prefix_table_root(const struct rn_prefix_tree *tree, uint64_t hash, struct rn_prefix_salt salt);

/* Ask the memory for what a later look-up of these hashes will read. */
void rn_prefix_table_prefetch(const struct rn_prefix_tree *tree, const uint64_t *hashes, uint32_t n);

/* ---- The heap (prefix_index.c) ---- */

/* Brings the node's place in the heap up to date with its state, its counts and its last_use. */
void rn_prefix_settle(struct rn_prefix_tree *tree, uint32_t node);

/* Of two nodes of the heap, the first goes earlier. */
bool rn_prefix_before(const struct rn_prefix_tree *tree, uint32_t a, uint32_t b);

/* True when the node is ready and nothing keeps it from eviction. */
bool rn_prefix_is_idle(const struct rn_prefix_tree *tree, uint32_t node);

/* ---- Nodes (prefix_node.c) ---- */

/* A new node in table and family: a pending child of `parent` (the caller gives it a claim or changes it), or a root;
 * NONE: nodes have run short. May forget the oldest cold node. */
uint32_t rn_prefix_node_child(struct rn_prefix_tree *tree, uint32_t parent, uint64_t hash, const int32_t *tokens);
uint32_t rn_prefix_node_root(struct rn_prefix_tree *tree, uint64_t hash, struct rn_prefix_salt salt);

/* From one of PENDING, READY and COLD to another. The caller has set or cleared block and claim. */
void rn_prefix_node_change(struct rn_prefix_tree *tree, uint32_t node, enum rn_prefix_state state);

/* Removes a childless node that has no block nor claim. */
void rn_prefix_node_drop(struct rn_prefix_tree *tree, uint32_t node);

/* Drops the node if it has lost its purpose (childless, and a cold node without handle or a root on which no path
 * stands), then likewise those above it. */
void rn_prefix_node_tidy(struct rn_prefix_tree *tree, uint32_t node);

/* Drops it and tidies above it. */
void rn_prefix_node_remove(struct rn_prefix_tree *tree, uint32_t node);

#endif
