/* Whether the prefix tree is what it says: see the invariants in prefix_tree.c and prefix_node.h. Takes no memory, and
 * time in proportion to the nodes: each structure is walked with a bound, and its length compared with the count of nodes
 * that say they are in it. */
#include <string.h>

#include "base/check.h"
#include "cache/prefix_node.h"

static bool check_counts(const struct rn_prefix_tree *tree)
{
    uint32_t count[RN_PREFIX_STATES] = {0};
    uint32_t n_free = 0;

    if (tree->n_touched > tree->options.max_nodes)
        return false;
    for (uint32_t i = 0; i < tree->n_touched; i++) {
        if ((unsigned)tree->nodes[i].state >= RN_PREFIX_STATES)
            return false;
        count[tree->nodes[i].state]++;
    }
    for (enum rn_prefix_state s = RN_PREFIX_ROOT; s < RN_PREFIX_STATES; s++)
        if (count[s] != tree->count[s])
            return false;
    for (uint32_t i = tree->first_free; i != NONE; i = tree->nodes[i].list_next)
        if (i >= tree->n_touched || tree->nodes[i].state != RN_PREFIX_FREE || ++n_free > count[RN_PREFIX_FREE])
            return false;
    return n_free == count[RN_PREFIX_FREE];
}

/* Each node is found by its content and nothing else is in the table. */
static bool check_table(const struct rn_prefix_tree *tree)
{
    uint32_t n_used = 0, n_nodes = 0;

    for (size_t i = 0; i < (size_t)1 << tree->slot_bits; i++) {
        uint32_t node = tree->slots[i].node;

        if (node == NONE)
            continue;
        n_used++;
        if (node >= tree->n_touched || tree->nodes[node].state == RN_PREFIX_FREE ||
            tree->slots[i].hash_high != (uint32_t)(tree->nodes[node].hash >> 32))
            return false;
    }
    for (uint32_t i = 0; i < tree->n_touched; i++) {
        const struct rn_prefix_node *n = &tree->nodes[i];
        uint64_t hash;

        if (n->state == RN_PREFIX_FREE)
            continue;
        n_nodes++;
        if (n->state == RN_PREFIX_ROOT) {
            hash = rn_prefix_hash_salt(tree, n->salt);
            if (hash != n->hash || rn_prefix_table_root(tree, hash, n->salt) != i)
                return false;
            continue;
        }
        if (n->parent >= tree->n_touched)
            return false;
        hash = tree->options.hash(tree->nodes[n->parent].hash, rn_prefix_tokens(tree, i), tree->options.block_tokens);
        if (hash != n->hash || rn_prefix_table_child(tree, hash, n->parent, rn_prefix_tokens(tree, i)) != i)
            return false;
    }
    return n_used == n_nodes;
}

/* The ring of a node's children: warm ones first; *n_children is raised by its length. */
static bool check_family(const struct rn_prefix_tree *tree, uint32_t node, uint32_t *n_children)
{
    const struct rn_prefix_node *n = &tree->nodes[node];
    uint32_t child = n->first_child, n_warm = 0;
    bool cold_seen = false;

    if (child == NONE)
        return n->n_warm == 0;
    do {
        const struct rn_prefix_node *c;

        if (child >= tree->n_touched || ++*n_children > tree->n_touched)
            return false;
        c = &tree->nodes[child];
        if (c->parent != node || c->depth != n->depth + 1 || c->next >= tree->n_touched ||
            tree->nodes[c->next].prev != child || (rn_prefix_is_warm(c->state) && cold_seen))
            return false;
        cold_seen = cold_seen || c->state == RN_PREFIX_COLD;
        n_warm += rn_prefix_is_warm(c->state);
        child = c->next;
    } while (child != n->first_child);
    return n_warm == n->n_warm;
}

static bool check_claim(const struct rn_prefix_tree *tree, uint32_t node)
{
    const struct rn_prefix_node *n = &tree->nodes[node];
    const struct rn_prefix_path *path = n->computing;
    uint32_t length = 0, depth = n->depth;

    if (path == NULL || path->state != RN_PATH_ENTERED)
        return false;
    if (n->list_prev == NONE ? path->first_claim != node : tree->nodes[n->list_prev].list_next != node)
        return false;
    if (n->list_next == NONE ? path->last_claim != node : tree->nodes[n->list_next].list_prev != node)
        return false;
    if (n->list_prev != NONE)
        return true;
    for (uint32_t i = node; i != NONE; i = tree->nodes[i].list_next, depth++)
        if (++length > path->n_claims || tree->nodes[i].computing != path || tree->nodes[i].depth != depth)
            return false;
    return length == path->n_claims;
}

static bool check_waiting(const struct rn_prefix_tree *tree, uint32_t node)
{
    const struct rn_prefix_path *first = tree->nodes[node].waiting;
    const struct rn_prefix_path *path = first;

    if (first == NULL)
        return true;
    do {
        if (path->state != RN_PATH_WAITING || path->waits_for != node || path->next->prev != path)
            return false;
        path = path->next;
    } while (path != first);
    return true;
}

static bool check_node(const struct rn_prefix_tree *tree, uint32_t node)
{
    const struct rn_prefix_node *n = &tree->nodes[node];
    enum rn_prefix_state above = n->parent == NONE ? RN_PREFIX_FREE : tree->nodes[n->parent].state;

    if ((n->state != RN_PREFIX_READY && (n->block != RN_PREFIX_NO_BLOCK || n->pins > 0)) ||
        (n->state != RN_PREFIX_PENDING && (n->computing != NULL || n->waiting != NULL)) ||
        (n->holds > 0 && n->state != RN_PREFIX_READY && n->state != RN_PREFIX_ROOT) ||
        (n->state == RN_PREFIX_ROOT) != (n->parent == NONE) || (n->state == RN_PREFIX_ROOT) != (n->depth == 0))
        return false;
    switch (n->state) {
    case RN_PREFIX_ROOT:
        return n->first_child != NONE || n->holds > 0;
    case RN_PREFIX_PENDING:
        return above != RN_PREFIX_COLD && check_claim(tree, node) && check_waiting(tree, node);
    case RN_PREFIX_READY:
        return (above == RN_PREFIX_READY || above == RN_PREFIX_ROOT) && n->block < tree->pool->n_blocks &&
               tree->node_of[n->block] == node && rn_block_pool_references(tree->pool, n->block) > 0;
    case RN_PREFIX_COLD:
        return n->handle != 0 || n->first_child != NONE;
    default:
        return false;
    }
}

static bool check_nodes(const struct rn_prefix_tree *tree)
{
    uint32_t n_children = 0, n_blocks = 0, n_nodes = 0;

    for (uint32_t i = 0; i < tree->n_touched; i++) {
        if (tree->nodes[i].state == RN_PREFIX_FREE)
            continue;
        n_nodes++;
        if (!check_node(tree, i) || !check_family(tree, i, &n_children))
            return false;
    }
    for (uint32_t b = 0; b < tree->pool->n_blocks; b++)
        n_blocks += tree->node_of[b] != NONE;
    return n_blocks == tree->count[RN_PREFIX_READY] && n_children + tree->count[RN_PREFIX_ROOT] == n_nodes;
}

static bool check_heap(const struct rn_prefix_tree *tree)
{
    uint32_t n_idle = 0;

    for (uint32_t i = 0; i < tree->n_touched; i++) {
        const struct rn_prefix_node *n = &tree->nodes[i];
        bool idle = rn_prefix_is_idle(tree, i);

        n_idle += idle;
        if (idle != (n->place != NONE) || (idle && (n->place >= tree->n_idle || tree->idle[n->place] != i)))
            return false;
        if (idle && n->place > 0 && rn_prefix_before(tree, i, tree->idle[(n->place - 1) / 2]))
            return false;
    }
    return n_idle == tree->n_idle;
}

/* Numbers the nodes of the list of cold ones by their place in it: `place` is free, since none of them is in the heap.
 * Their count; *whole: they are linked both ways, and no node but a cold one is among them. */
static uint32_t number_cold(const struct rn_prefix_tree *tree, bool *whole)
{
    uint32_t length = 0, last = NONE, i = tree->first_cold;

    while (i < tree->n_touched && tree->nodes[i].state == RN_PREFIX_COLD && tree->nodes[i].list_prev == last &&
           length < tree->count[RN_PREFIX_COLD]) {
        tree->nodes[i].place = length++;
        last = i;
        i = tree->nodes[i].list_next;
    }
    *whole = i == NONE && tree->last_cold == last;
    return length;
}

/* The list of cold nodes: all of them, and none has a child behind it. */
static bool check_cold(const struct rn_prefix_tree *tree)
{
    bool good;
    uint32_t length = number_cold(tree, &good), i = tree->first_cold;

    good = good && length == tree->count[RN_PREFIX_COLD];
    for (uint32_t k = 0; k < length; k++, i = tree->nodes[i].list_next) {
        const struct rn_prefix_node *parent = &tree->nodes[tree->nodes[i].parent];

        good = good && (parent->state != RN_PREFIX_COLD || parent->place > k);
    }
    i = tree->first_cold;
    for (uint32_t k = 0; k < length; k++, i = tree->nodes[i].list_next)
        tree->nodes[i].place = NONE;
    return good;
}

uint32_t rn_prefix_tree_count_pins(const struct rn_prefix_tree *tree)
{
    uint32_t n_pins = 0;

    for (uint32_t i = 0; i < tree->n_touched; i++)
        n_pins += tree->nodes[i].state != RN_PREFIX_FREE ? tree->nodes[i].pins : 0;
    return n_pins;
}

bool rn_prefix_tree_check(const struct rn_prefix_tree *tree)
{
    return check_counts(tree) && check_nodes(tree) && check_table(tree) && check_heap(tree) && check_cold(tree);
}
