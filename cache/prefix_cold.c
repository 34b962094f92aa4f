/* What a colder tier asks of the prefix tree besides its callbacks: see prefix_tree.h. */
#include "base/check.h"
#include "cache/prefix_node.h"

uint32_t rn_prefix_tree_oldest(const struct rn_prefix_tree *tree, struct rn_prefix_ref *nodes, uint32_t n)
{
    uint32_t n_idle = tree->n_idle < n ? tree->n_idle : n;

    for (uint32_t i = 0; i < n_idle; i++)
        nodes[i] = rn_prefix_ref_to(tree, tree->idle[i]);
    return n_idle;
}

bool rn_prefix_tree_drop_cold(struct rn_prefix_tree *tree)
{
    if (tree->first_cold == NONE)
        return false;
    rn_prefix_node_remove(tree, tree->first_cold); /* nothing is below the oldest one */
    return true;
}

void rn_prefix_tree_release_lent(struct rn_prefix_tree *tree, uint32_t block)
{
    rn_block_pool_unref(tree->pool, &block, 1);
    if (tree->node_of[block] != NONE)
        rn_prefix_settle(tree, tree->node_of[block]);
}

/* Nodes for one more root and child, without a cold one having to go for them. */
static bool has_nodes(const struct rn_prefix_tree *tree)
{
    uint32_t used = 0;

    for (int state = RN_PREFIX_ROOT; state < RN_PREFIX_STATES; state++)
        used += tree->count[state];
    RN_ASSERT(used <= tree->options.max_nodes);
    return tree->options.max_nodes - used >= 2;
}

/* From the end of the list of cold nodes to the place before one that is above it: what is below goes first. */
static void list_before(struct rn_prefix_tree *tree, uint32_t node, uint32_t next)
{
    struct rn_prefix_node *n = &tree->nodes[node], *behind = &tree->nodes[next];

    RN_ASSERT(tree->last_cold == node && n->list_prev != NONE && behind->state == RN_PREFIX_COLD);
    tree->last_cold = n->list_prev;
    tree->nodes[n->list_prev].list_next = NONE;
    n->list_next = next;
    n->list_prev = behind->list_prev;
    if (n->list_prev != NONE)
        tree->nodes[n->list_prev].list_next = node;
    else
        tree->first_cold = node;
    behind->list_prev = node;
}

bool rn_prefix_tree_child(const struct rn_prefix_tree *tree, struct rn_prefix_salt salt, struct rn_prefix_ref parent,
                          const int32_t *tokens, struct rn_prefix_ref *node)
{
    uint64_t hash = rn_prefix_hash_salt(tree, salt);
    uint32_t above = parent.node == NONE ? rn_prefix_table_root(tree, hash, salt) : rn_prefix_at(tree, parent), child;

    if (above == NONE)
        return false;
    hash = tree->options.hash(tree->nodes[above].hash, tokens, tree->options.block_tokens);
    child = rn_prefix_table_child(tree, hash, above, tokens);
    *node = rn_prefix_ref_to(tree, child);
    return child != NONE;
}

bool rn_prefix_tree_oldest_cold(const struct rn_prefix_tree *tree, struct rn_prefix_ref *node)
{
    *node = rn_prefix_ref_to(tree, tree->first_cold);
    return tree->first_cold != NONE;
}

bool rn_prefix_tree_adopt(struct rn_prefix_tree *tree, struct rn_prefix_salt salt, struct rn_prefix_ref parent,
                          const int32_t *tokens, uint64_t handle, struct rn_prefix_ref *ref)
{
    uint64_t hash = rn_prefix_hash_salt(tree, salt);
    uint32_t above = parent.node == NONE ? rn_prefix_table_root(tree, hash, salt) : rn_prefix_at(tree, parent), node;

    RN_CHECK(handle != 0);
    if ((parent.node != NONE && above == NONE) || !has_nodes(tree))
        return false;
    if (above == NONE)
        above = rn_prefix_node_root(tree, hash, salt);
    RN_CHECK(above != NONE); /* there are nodes for both */
    hash = tree->options.hash(tree->nodes[above].hash, tokens, tree->options.block_tokens);
    if (tree->nodes[above].state == RN_PREFIX_PENDING || rn_prefix_table_child(tree, hash, above, tokens) != NONE)
        return false;
    node = rn_prefix_node_child(tree, above, hash, tokens);
    RN_CHECK(node != NONE);
    tree->nodes[node].handle = handle;
    rn_prefix_node_change(tree, node, RN_PREFIX_COLD);
    if (tree->nodes[above].state == RN_PREFIX_COLD)
        list_before(tree, node, above);
    *ref = rn_prefix_ref_to(tree, node);
    return true;
}
