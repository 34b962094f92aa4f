/* The prefix tree: which token prefixes have been computed, and in which KV blocks they lie.
 *
 *   salt 17            one root per salt: what must be the same for KV to be shared (model, adapter, KV
 *    |                 format, tenant)
 *   [The quick brown fox] block 4                     ready:   its KV is in a block; the tree holds one reference
 *    |                \
 *   [ jumps over the ] 9   [ was seen in the] -       pending: a running sequence computes it; others can wait
 *    |
 *   [ lazy dog. Then ] -  (handle 77)                 cold:    no block; a colder tier knows it under a handle
 *
 * A node is one whole block of B token ids. Partially filled blocks are never in the tree. A child is found by a
 * hash of salt and all tokens up to its end, and is taken only if its parent is the node before and its B ids are
 * the same: no answer ever depends on a hash being unique.
 *
 * One owner, one thread (the tier actor's). All memory is taken at init; no operation after it allocates or fails
 * for want of memory. When all nodes are in use, the coldest cold one is used again; when none is cold, fewer
 * blocks are claimed or published, and nothing else happens.
 *
 * How a sequence uses it (P is its `struct rn_prefix_path`, which must stay where it is between enter or wait and
 * leave; `tokens` are those of the whole sequence from its start):
 *
 *   1. match(tokens, n_prompt - 1)  At least one token must be left to compute, since its logits are needed: a
 *                                   prompt of exactly k blocks uses at most k - 1 of the tree. This is the caller's
 *                                   rule; n_prompt - 1 obeys it.
 *   2. n_pending > 0?               wait(P): told when the last of them is ready or was abandoned; then 1. again.
 *                                   Or do not wait, go on, and compute them as well.
 *   3. ref(blocks, n_ready)         before anything may evict. Take free blocks for the rest; evict() when there are
 *                                   too few.
 *   4. enter(P)                     claims the blocks it is about to compute: others see them as pending.
 *   5. publish(P, n)                whenever more of its blocks are full and computed, generated ones too.
 *   6. leave(P), unref(all blocks)  at the end, however it ended: what it has claimed and not published is
 *                                   abandoned, those who wait for it are told.
 *
 * Who waits has claimed nothing, and who has claimed something never waits: so no two wait for each other. A
 * sequence that is put aside (preempted, paused) leaves, and enters again later.
 *
 * References. Block numbers and counts are the block pool's. Blocks that may be in the tree are referenced and
 * released through rn_prefix_tree_ref and _unref, which also tell the tree when a block falls idle. A block can be
 * evicted when it is ready, nobody but the tree has a reference, no child is ready or pending, and neither a pin
 * nor a path that stands on it holds it. Pins and paths hold a whole prefix by its last node alone, because what
 * is above a ready node is never a leaf.
 *
 * What goes first. Recency, frequency and cost make one number, a node's rank (GreedyDual, Young 1994, with frequency:
 * Cherkasova 1998), and of equal rank the least recently used goes:
 *
 *   at a use      rank = inflation + 4 + 4 hits      hits: of prompts that found it last, 3 at most; kept while it is cold
 *                 ... + reload hits             instead, if a colder tier has it too: reload is what bringing it back
 *                                               costs, in quarters of computing it
 *   at eviction   inflation = the rank of what goes
 *
 * A use of a node (match, publish, unref) is a use of all nodes above it: their rank is the highest that one of those
 * below them has had. The inflation rises by 4 while the pool turns over once: what came only once stays for one
 * turnover, in the order of its last use, what was found h times for h to h + 1 of them since its last use, and
 * nothing for ever.
 *
 * Copy on write. KV may be written into block b only while its writer has the only reference, and a full block is never
 * written again. A sequence that goes on in a block that others have too, the tree for instance, takes a new one, and
 * what is filled is copied. */
#ifndef RN_CACHE_PREFIX_TREE_H
#define RN_CACHE_PREFIX_TREE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/alloc.h"
#include "cache/block_pool.h"
#include "cache/salt.h"

#define RN_PREFIX_NO_NODE UINT32_MAX
#define RN_PREFIX_NO_BLOCK UINT32_MAX

/* A node by number; stale once the node is gone (evicted, abandoned, forgotten), and then every function that takes it
 * says so and does nothing. */
struct rn_prefix_ref {
    uint32_t node; /* RN_PREFIX_NO_NODE: none */
    uint32_t generation;
};

enum rn_prefix_state {
    RN_PREFIX_FREE,
    RN_PREFIX_ROOT,
    RN_PREFIX_PENDING,
    RN_PREFIX_READY,
    RN_PREFIX_COLD,
    RN_PREFIX_STATES
};

struct rn_prefix_tree;

/* The hash of n tokens behind a prefix whose hash is `previous` (for a salt: its two words as four tokens behind the
 * seed). Its quality matters for speed alone. */
typedef uint64_t rn_prefix_hash_fn(uint64_t previous, const int32_t *tokens, uint32_t n);

struct rn_prefix_options {
    uint32_t block_tokens;   /* B: a power of two, at most 65536 */
    uint32_t max_nodes;      /* roots included, [2, 2^30]; the pool's blocks plus roots, pending and cold nodes */
    uint64_t seed;           /* of the hash; random, so that nobody can prepare prompts that collide */
    rn_prefix_hash_fn *hash; /* NULL: XXH3 */

    /* The colder tier. They may look into the tree and take references of blocks from the pool, but must not change
     * the tree. NULL: the handle stays as it is, which is 0 until rn_prefix_tree_set_handle; nobody is told.
     * evicted: `node` (still with its block, see rn_prefix_tree_look) is about to lose it. Returns the handle under
     * which a colder tier has or will have the block, 0: none. A tier that needs time to copy takes a reference of
     * the block. A node that was cold before still shows its old handle.
     * forgotten: the tree no longer knows the node of this handle (nodes ran short, forget, fini). */
    void *user;
    uint64_t (*evicted)(void *user, const struct rn_prefix_tree *tree, struct rn_prefix_ref node);
    void (*forgotten)(void *user, uint64_t handle);
};

struct rn_prefix_stats {
    uint32_t roots, pending, ready, cold;   /* nodes of each kind; each ready one has a block */
    uint32_t idle;                          /* of the ready ones: leaves that may be evicted now */
    uint64_t hit_tokens, missed_tokens;     /* of the prompts that entered */
    uint64_t duplicate_blocks;              /* blocks computed although another was first */
    uint64_t evicted, abandoned, inherited; /* inherited: abandoned, but its computation goes on (see leave) */
};

/* OUT: neither of the others. TOLD: in a woken list; pop it before it is used again. */
enum rn_prefix_path_state { RN_PATH_OUT, RN_PATH_WAITING, RN_PATH_TOLD, RN_PATH_ENTERED };

/* A sequence's place in the tree; zero but for `owner` before its first use and after leave. The caller reads
 * `owner`, `state`, `n_ready` and `n_claims`, the rest is the tree's. */
struct rn_prefix_path {
    void *owner; /* the caller's */
    enum rn_prefix_path_state state;
    uint32_t n_ready;                   /* blocks of the sequence that are known to be ready, from its start */
    uint32_t n_claims;                  /* nodes it has claimed and not published */
    uint32_t first_claim, last_claim;   /* a list by depth */
    struct rn_prefix_ref at;            /* entered: the last of the n_ready, or the root; held */
    uint32_t waits_for;                 /* waiting: the node */
    struct rn_prefix_path *next, *prev; /* waiting: a ring of those who wait for it. Told: the list */
};

/* Paths that have to be told: their wait is over, the next step is to match again. In the order in which they began
 * to wait for their node. Start with {NULL, NULL}, and pop all of them before any of them does anything else. */
struct rn_prefix_woken {
    struct rn_prefix_path *first, *last;
};
struct rn_prefix_path *rn_prefix_woken_pop(struct rn_prefix_woken *woken);

struct rn_prefix_match {
    uint32_t n_ready;           /* blocks, from the start */
    uint32_t n_pending;         /* behind them */
    uint32_t n_cold;            /* behind those, each with a handle */
    struct rn_prefix_ref ready; /* the last of each kind. Where n_ready is 0: the root, if the salt has one */
    struct rn_prefix_ref pending;
    struct rn_prefix_ref cold;
    struct rn_prefix_path *computing; /* the path that claimed the last pending one; NULL: none is pending */
};

/* What a node is. `tokens` are its own B ids, valid until the tree changes; its prefix is found along `parent`. */
struct rn_prefix_view {
    enum rn_prefix_state state;
    uint32_t n_blocks; /* of the prefix that ends here; 0: a root */
    uint32_t block;    /* RN_PREFIX_NO_BLOCK unless ready */
    uint32_t pins;
    uint64_t handle; /* the colder tier's; 0: none */
    const int32_t *tokens;
    struct rn_prefix_ref parent;
};

struct rn_prefix_slot;
struct rn_prefix_node;

struct rn_prefix_tree {
    struct rn_heap *heap;
    struct rn_block_pool *pool;
    struct rn_prefix_options options;
    struct rn_prefix_node *nodes; /* [max_nodes] */
    int32_t *tokens;              /* [max_nodes][B] */
    struct rn_prefix_slot *slots; /* [1 << slot_bits]: the table, at most half full */
    uint32_t slot_bits;
    uint32_t *idle; /* [n_idle]: evictable nodes, a binary heap, what goes next on top */
    uint32_t n_idle;
    uint32_t *node_of;              /* [pool->n_blocks]: the ready node whose block it is */
    uint32_t n_touched;             /* nodes from here on were never used */
    uint32_t first_free;            /* a list of those that were */
    uint32_t first_cold, last_cold; /* in the order in which they became cold */
    uint64_t now;                   /* counts uses */
    uint64_t inflation;             /* the highest rank of what was evicted */
    uint32_t reload;                /* 0..RN_PREFIX_QUARTERS */
    uint32_t count[RN_PREFIX_STATES];
    struct rn_prefix_stats totals; /* its uint64_t part */
};

/* Borrows heap and pool until fini. NO_MEMORY: nothing is held. INVALID: an option is out of range. */
runnel_status rn_prefix_tree_init(struct rn_prefix_tree *tree, struct rn_heap *heap, struct rn_block_pool *pool,
                                  const struct rn_prefix_options *options);

/* Gives the tree's references back. Every path must have left (RN_CHECK). Harmless on a zeroed tree. */
void rn_prefix_tree_fini(struct rn_prefix_tree *tree);

#define RN_PREFIX_QUARTERS 4u /* as dear to bring back as to compute; so it is taken to be until it is known better */

/* What it costs to bring a block back from a colder tier, in quarters of computing it. For uses from now on. */
void rn_prefix_tree_set_reload(struct rn_prefix_tree *tree, uint32_t quarters);

/* The longest known prefix of tokens[n_tokens], in whole blocks: n_tokens / B at most. blocks[n_tokens / B] gets the
 * numbers of the n_ready first ones (NULL: not wanted). Takes no references: they may be evicted by the next
 * evict(). Counts as a use of the ready part. O(blocks found). */
void rn_prefix_tree_match(struct rn_prefix_tree *tree, struct rn_prefix_salt salt, const int32_t *tokens,
                          uint32_t n_tokens, uint32_t *blocks, struct rn_prefix_match *found);

/* Behind the node, the ready block that has the most tokens in common with ids[n], of some that were there last: how
 * many of its first ones; *block is then its number. 0: none. Counts as no use, takes no reference. */
uint32_t rn_prefix_tree_nearest(const struct rn_prefix_tree *tree, struct rn_prefix_ref at, const int32_t *ids,
                                uint32_t n, uint32_t *block);

/* Queues the path with those who wait for found->pending. False: that node is no longer pending, match again. The
 * path must be OUT (RN_CHECK). It waits until it comes out of a woken list or leaves. */
bool rn_prefix_tree_wait(struct rn_prefix_tree *tree, struct rn_prefix_path *path, const struct rn_prefix_match *found);

/* The sequence starts to compute behind the n_ready blocks of `found` (from a match of the same salt and tokens;
 * ref() has kept them): claims each whole block of tokens[n_tokens] behind them that is neither ready nor claimed,
 * so that it is pending; cold ones too, whether they are computed or brought back. Fewer, when nodes run short.
 * Counts n_ready × B tokens as hits and the rest of n_tokens as missed. */
void rn_prefix_tree_enter(struct rn_prefix_tree *tree, struct rn_prefix_path *path, struct rn_prefix_salt salt,
                          const int32_t *tokens, uint32_t n_tokens, const struct rn_prefix_match *found);

/* The sequence's first n_blocks blocks are full and computed: those behind path->n_ready become ready, claimed or
 * not, each with a reference of the tree to blocks[i]. tokens [n_blocks × B] and blocks [n_blocks] from the
 * sequence's start. If a node is ready already with another block, that duplicate block wins: the tree keeps it and
 * takes no reference of blocks[i], which stays the sequence's own; the two hold the same KV, so the sequence may
 * change over (ref the duplicate block, unref its own) when no step uses its block table. duplicate blocks (NULL: not
 * wanted) gets for each i in [n_ready before, n_ready after) the duplicate block's number or RN_PREFIX_NO_BLOCK. Paths
 * that waited go to the end of `woken`. Returns the new n_ready: less than n_blocks when nodes ran short or where
 * the path stands was forgotten since enter. A block is never published at two places (RN_CHECK). */
uint32_t rn_prefix_tree_publish(struct rn_prefix_tree *tree, struct rn_prefix_path *path, const int32_t *tokens,
                                const uint32_t *blocks, uint32_t n_blocks, uint32_t *duplicate_blocks,
                                struct rn_prefix_woken *woken);

/* The sequence has ended, failed, was cancelled or put aside, in whatever state its path is (harmless when in none):
 * it no longer waits, and its claims are abandoned. A claimed node goes (or is cold again), and those who wait for it
 * go to the end of `woken`; but if another path has claimed nodes below it, that one computes it too, and inherits
 * the claim. References to blocks are the caller's to release. */
void rn_prefix_tree_leave(struct rn_prefix_tree *tree, struct rn_prefix_path *path, struct rn_prefix_woken *woken);

/* rn_block_pool_ref and _unref for the blocks of one sequence, whether they are in the tree or not. unref counts as
 * a use of those that are. */
void rn_prefix_tree_ref(struct rn_prefix_tree *tree, const uint32_t *blocks, uint32_t n);
void rn_prefix_tree_unref(struct rn_prefix_tree *tree, const uint32_t *blocks, uint32_t n);

/* Keeps the whole prefix that ends in the node from eviction, until as many unpins. pin is false when the node is
 * gone or not ready; unpin of a node that was forgotten does nothing, one too many is a breach (RN_CHECK). */
bool rn_prefix_tree_pin(struct rn_prefix_tree *tree, struct rn_prefix_ref node);
void rn_prefix_tree_unpin(struct rn_prefix_tree *tree, struct rn_prefix_ref node);

/* Frees up to n blocks, least recently used first; returns how many. O(log nodes) each. */
uint32_t rn_prefix_tree_evict(struct rn_prefix_tree *tree, uint32_t n);

/* Forgets each node that has one of the blocks, and all below it, pinned or not, in use or not: what the blocks hold is
 * not to be trusted, nor what was computed from it. Sequences keep their references, those that stand below publish
 * nothing any more, and all who wait there are told. Returns the number of nodes gone. */
uint32_t rn_prefix_tree_forget(struct rn_prefix_tree *tree, const uint32_t *blocks, uint32_t n,
                               struct rn_prefix_woken *woken);

/* True while the block is a ready node's: then one of its references is the tree's. */
static inline bool rn_prefix_tree_has(const struct rn_prefix_tree *tree, uint32_t block)
{
    return tree->node_of[block] != RN_PREFIX_NO_NODE;
}

/* The colder tier has the node under another handle, or (0) no more. False when the node is gone. A cold node without
 * handle goes as soon as nothing is below it. `forgotten` is not called for the old handle. */
bool rn_prefix_tree_set_handle(struct rn_prefix_tree *tree, struct rn_prefix_ref node, uint64_t handle);

/* A block that a colder tier has had since before this tree was: it becomes a cold node behind `parent` (node
 * RN_PREFIX_NO_NODE: the first of its prefix) with that handle (not 0). False: the parent is gone or pending, the node
 * is there already, or nodes have run short (no other goes for it). */
bool rn_prefix_tree_adopt(struct rn_prefix_tree *tree, struct rn_prefix_salt salt, struct rn_prefix_ref parent,
                          const int32_t *tokens, uint64_t handle, struct rn_prefix_ref *ref);

/* The node that a block of these tokens behind `parent` is (as above), whatever its state; false: there is none. */
bool rn_prefix_tree_child(const struct rn_prefix_tree *tree, struct rn_prefix_salt salt, struct rn_prefix_ref parent,
                          const int32_t *tokens, struct rn_prefix_ref *node);

/* The cold node that drop_cold would forget; false: there is none. */
bool rn_prefix_tree_oldest_cold(const struct rn_prefix_tree *tree, struct rn_prefix_ref *node);

/* Forgets the cold node that became cold longest ago; `forgotten` is told. False: there is none. */
bool rn_prefix_tree_drop_cold(struct rn_prefix_tree *tree);

/* As rn_prefix_tree_unref of a block that was read for a colder tier: that was no use of it. */
void rn_prefix_tree_release_lent(struct rn_prefix_tree *tree, uint32_t block);

/* Up to n of the blocks that can be evicted, the next one first, the others roughly in the order in which they would
 * go. Returns how many. */
uint32_t rn_prefix_tree_oldest(const struct rn_prefix_tree *tree, struct rn_prefix_ref *nodes, uint32_t n);

/* False when the node is gone. */
bool rn_prefix_tree_look(const struct rn_prefix_tree *tree, struct rn_prefix_ref node, struct rn_prefix_view *view);

/* Salt and tokens [n_blocks × B] of the prefix that ends in the node; false when it is gone. tokens may be NULL. */
bool rn_prefix_tree_spell(const struct rn_prefix_tree *tree, struct rn_prefix_ref node, struct rn_prefix_salt *salt,
                          int32_t *tokens);

struct rn_prefix_stats rn_prefix_tree_stats(const struct rn_prefix_tree *tree);

/* Pins of all nodes together. Linear in nodes. For tests. */
uint32_t rn_prefix_tree_count_pins(const struct rn_prefix_tree *tree);

/* True when everything above holds. Linear in nodes, slots and blocks. The owner's: it writes numbers into nodes and takes
 * them back. For tests. */
bool rn_prefix_tree_check(const struct rn_prefix_tree *tree);

#endif
