/* A prefix tree too simple to be wrong, for test_prefix_model.c: an array of prefixes, each spelled out from its first
 * token, searched from end to end; and the world around it, of which the model and the real tree are parts. */
#ifndef RN_TESTS_CACHE_PREFIX_NAIVE_H
#define RN_TESTS_CACHE_PREFIX_NAIVE_H

#include "base/rng.h"
#include "cache/prefix_node.h"
#include "cache/prefix_tree.h"

#define B 2
#define DEPTH 7 /* blocks of the longest sequence */
#define SALTS 3
#define BLOCKS 28
#define SEQUENCES 8
#define NODES_MOST 64
#define PINS_MOST 6
#define FORGOTTEN_MOST 256

struct entry {
    enum rn_prefix_state state;
    uint32_t salt, depth;
    int32_t tokens[DEPTH * B];
    uint32_t block, pins, holds;
    int claimer; /* sequence; -1 */
    uint64_t handle, last_use, rank, cooled, joined;
    uint32_t hits;
};

struct sequence {
    struct rn_prefix_path path;
    uint32_t salt, n_tokens, n_computed, n_published;
    int32_t tokens[DEPTH * B];
    uint32_t blocks[DEPTH];
    uint32_t n_blocks;
    struct entry *waits_for; /* the model's */
    uint64_t since;          /* when it began to wait */
    struct entry *at;        /* NULL: forgotten, or never in */
};

struct pin {
    struct rn_prefix_ref ref;
    struct entry *entry; /* NULL: forgotten */
};

struct world {
    struct rn_heap heap;
    struct rn_block_pool pool;
    struct rn_prefix_tree tree;
    uint64_t rng, now, order, handles, inflation;
    uint32_t reload;
    uint32_t max_nodes, cold_chance;
    struct entry entries[NODES_MOST];
    struct sequence sequences[SEQUENCES];
    struct pin pins[PINS_MOST];
    uint32_t n_pins;
    uint64_t forgotten[FORGOTTEN_MOST], expected[FORGOTTEN_MOST];
    uint32_t n_forgotten, n_expected;
    struct sequence *woken[SEQUENCES];
    uint32_t n_woken;
    /* What happened, to see that the test reached it. */
    uint32_t n_evicted, n_cold_hits, n_twins, n_inherited, n_abandoned, n_woken_all, n_short, n_forgotten_in,
        n_recycled;
};

static inline uint32_t chance(struct world *w, uint32_t n)
{
    return (uint32_t)(rn_splitmix64(&w->rng) % n);
}

/* The entry of tokens[depth * B] below a salt; NULL. depth 0: the root. */
struct entry *naive_find(struct world *w, uint32_t salt, const int32_t *tokens, uint32_t depth);
bool naive_is_child(const struct entry *e, const struct entry *parent);
uint32_t naive_children(struct world *w, const struct entry *parent, bool only_warm);

/* A new entry, a root or pending; forgets the one that has been cold longest when all are in use; NULL. */
struct entry *naive_add(struct world *w, uint32_t salt, const int32_t *tokens, uint32_t depth);

/* It and all above it were used now. */
void naive_touch(struct world *w, struct entry *e);

/* The entry is gone, and all that points to it. */
void naive_forget(struct world *w, struct entry *e);

/* It and those above it go if they have lost their purpose. */
void naive_tidy(struct world *w, struct entry *e);

/* What has to be evicted next; NULL: nothing may. */
struct entry *naive_victim(struct world *w);

/* It has lost its block or claim. */
void naive_cool(struct world *w, struct entry *e);

/* All who wait for it, in the order in which they began, are expected to be told. */
void naive_wake(struct world *w, const struct entry *e);

#endif
