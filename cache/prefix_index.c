/* How the prefix tree finds a node by its content, and the one to evict: see prefix_node.h. */
#include <string.h>

#include "base/check.h"
#include "cache/prefix_node.h"

#define PREFETCH_BYTES 256 /* of a block's ids; the processor goes on by itself */

/* ---- The table ---------------------------------------------------------------------------- */

static uint32_t high(uint64_t hash)
{
    return (uint32_t)(hash >> 32);
}

static uint32_t mask(const struct rn_prefix_tree *tree)
{
    return (uint32_t)((UINT64_C(1) << tree->slot_bits) - 1);
}

static uint32_t home(const struct rn_prefix_tree *tree, uint32_t hash_high)
{
    return hash_high >> (32 - tree->slot_bits);
}

uint64_t rn_prefix_hash_salt(const struct rn_prefix_tree *tree, struct rn_prefix_salt salt)
{
    int32_t words[4];

    memcpy(words, salt.word, sizeof words);
    return tree->options.hash(tree->options.seed, words, 4);
}

void rn_prefix_table_add(struct rn_prefix_tree *tree, uint32_t node)
{
    uint32_t hash_high = high(tree->nodes[node].hash);
    uint32_t at = home(tree, hash_high);

    RN_ASSERT(node < tree->n_touched && at <= mask(tree));
    while (tree->slots[at].node != NONE)
        at = (at + 1) & mask(tree);
    tree->slots[at] = (struct rn_prefix_slot){hash_high, node};
}

/* What follows in the run moves back over the gap, unless that is before its home. */
void rn_prefix_table_remove(struct rn_prefix_tree *tree, uint32_t node)
{
    uint32_t gap = home(tree, high(tree->nodes[node].hash));
    uint32_t at;

    while (tree->slots[gap].node != node) {
        RN_CHECK(tree->slots[gap].node != NONE);
        gap = (gap + 1) & mask(tree);
    }
    for (at = (gap + 1) & mask(tree); tree->slots[at].node != NONE; at = (at + 1) & mask(tree)) {
        uint32_t from_home = (at - home(tree, tree->slots[at].hash_high)) & mask(tree);

        if (from_home < ((at - gap) & mask(tree)))
            continue;
        tree->slots[gap] = tree->slots[at];
        gap = at;
    }
    tree->slots[gap].node = NONE;
}

uint32_t rn_prefix_table_child(const struct rn_prefix_tree *tree, uint64_t hash, uint32_t parent, const int32_t *tokens)
{
    size_t bytes = tree->options.block_tokens * sizeof *tokens;

    for (uint32_t at = home(tree, high(hash)); tree->slots[at].node != NONE; at = (at + 1) & mask(tree)) {
        uint32_t node = tree->slots[at].node;

        if (tree->slots[at].hash_high == high(hash) && tree->nodes[node].parent == parent &&
            memcmp(rn_prefix_tokens(tree, node), tokens, bytes) == 0)
            return node;
    }
    return NONE;
}

uint32_t rn_prefix_table_root(const struct rn_prefix_tree *tree, uint64_t hash, struct rn_prefix_salt salt)
{
    for (uint32_t at = home(tree, high(hash)); tree->slots[at].node != NONE; at = (at + 1) & mask(tree)) {
        const struct rn_prefix_node *node = &tree->nodes[tree->slots[at].node];

        if (tree->slots[at].hash_high == high(hash) && node->state == RN_PREFIX_ROOT &&
            rn_prefix_salt_same(node->salt, salt))
            return tree->slots[at].node;
    }
    return NONE;
}

void rn_prefix_table_prefetch(const struct rn_prefix_tree *tree, const uint64_t *hashes, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        __builtin_prefetch(&tree->slots[home(tree, high(hashes[i]))]);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = home(tree, high(hashes[i]));
        uint32_t node;

        while (tree->slots[at].node != NONE && tree->slots[at].hash_high != high(hashes[i]))
            at = (at + 1) & mask(tree);
        node = tree->slots[at].node;
        if (node == NONE)
            return; /* those behind are not there either */
        __builtin_prefetch(&tree->nodes[node].parent);
        for (uint32_t byte = 0; byte < tree->options.block_tokens * sizeof(int32_t) && byte < PREFETCH_BYTES;
             byte += 64)
            __builtin_prefetch((const char *)rn_prefix_tokens(tree, node) + byte);
    }
}

/* ---- The heap ----------------------------------------------------------------------------- */

bool rn_prefix_before(const struct rn_prefix_tree *tree, uint32_t a, uint32_t b)
{
    const struct rn_prefix_node *x = &tree->nodes[a], *y = &tree->nodes[b];

    return x->rank != y->rank ? x->rank < y->rank : x->last_use < y->last_use;
}

static void put(struct rn_prefix_tree *tree, uint32_t place, uint32_t node)
{
    RN_ASSERT(place < tree->n_idle);
    tree->idle[place] = node;
    tree->nodes[node].place = place;
}

static void sift_up(struct rn_prefix_tree *tree, uint32_t place, uint32_t node)
{
    while (place > 0 && rn_prefix_before(tree, node, tree->idle[(place - 1) / 2])) {
        put(tree, place, tree->idle[(place - 1) / 2]);
        place = (place - 1) / 2;
    }
    put(tree, place, node);
}

static void sift_down(struct rn_prefix_tree *tree, uint32_t place, uint32_t node)
{
    uint32_t child;

    while ((child = 2 * place + 1) < tree->n_idle) {
        if (child + 1 < tree->n_idle && rn_prefix_before(tree, tree->idle[child + 1], tree->idle[child]))
            child++;
        if (!rn_prefix_before(tree, tree->idle[child], node))
            break;
        put(tree, place, tree->idle[child]);
        place = child;
    }
    put(tree, place, node);
}

static void resift(struct rn_prefix_tree *tree, uint32_t place, uint32_t node)
{
    if (place > 0 && rn_prefix_before(tree, node, tree->idle[(place - 1) / 2]))
        sift_up(tree, place, node);
    else
        sift_down(tree, place, node);
}

static void heap_remove(struct rn_prefix_tree *tree, uint32_t node)
{
    uint32_t place = tree->nodes[node].place;
    uint32_t last;

    RN_CHECK(tree->n_idle > 0);
    last = tree->idle[--tree->n_idle];
    RN_ASSERT(place <= tree->n_idle && tree->idle[place] == node);
    tree->nodes[node].place = NONE;
    if (last != node)
        resift(tree, place, last);
}

bool rn_prefix_is_idle(const struct rn_prefix_tree *tree, uint32_t node)
{
    const struct rn_prefix_node *n = &tree->nodes[node];

    return n->state == RN_PREFIX_READY && n->n_warm == 0 && n->pins == 0 && n->holds == 0 &&
           rn_block_pool_references(tree->pool, n->block) == 1;
}

void rn_prefix_settle(struct rn_prefix_tree *tree, uint32_t node)
{
    bool idle = rn_prefix_is_idle(tree, node);
    uint32_t place = tree->nodes[node].place;

    RN_ASSERT(place == NONE || (place < tree->n_idle && tree->idle[place] == node));
    if (idle && place == NONE)
        sift_up(tree, tree->n_idle++, node);
    else if (idle)
        resift(tree, place, node);
    else if (place != NONE)
        heap_remove(tree, node);
    RN_ASSERT((tree->nodes[node].place != NONE) == idle && tree->n_idle <= tree->options.max_nodes);
}
