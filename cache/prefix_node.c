/* The life of one node of the prefix tree: see prefix_node.h.
 *
 *   child()  ->  PENDING  <-->  READY        change() keeps the parent's count of warm children, the order of the
 *                    \            |          ring, the list of cold nodes and the heap
 *                     +-> COLD <--+
 *                          |
 *                       remove()  ->  free */
#include <string.h>

#include "base/check.h"
#include "cache/prefix_node.h"

/* ---- The family ---------------------------------------------------------------------------- */

static void leave_family(struct rn_prefix_tree *tree, uint32_t node)
{
    struct rn_prefix_node *n = &tree->nodes[node];
    struct rn_prefix_node *parent = &tree->nodes[n->parent];

    RN_ASSERT(parent->first_child != NONE);
    RN_ASSERT(tree->nodes[n->next].prev == node && tree->nodes[n->prev].next == node);
    if (n->next == node) {
        parent->first_child = NONE;
    } else {
        tree->nodes[n->next].prev = n->prev;
        tree->nodes[n->prev].next = n->next;
        if (parent->first_child == node)
            parent->first_child = n->next;
    }
}

/* The end of a ring is the place before its first; a warm node then becomes the first. */
static void join_family(struct rn_prefix_tree *tree, uint32_t node)
{
    struct rn_prefix_node *n = &tree->nodes[node];
    struct rn_prefix_node *parent = &tree->nodes[n->parent];
    uint32_t first = parent->first_child;

    if (first == NONE) {
        n->next = n->prev = node;
    } else {
        n->next = first;
        n->prev = tree->nodes[first].prev;
        tree->nodes[n->prev].next = node;
        tree->nodes[first].prev = node;
    }
    if (first == NONE || rn_prefix_is_warm(n->state))
        parent->first_child = node;
}

/* ---- The list of cold nodes ------------------------------------------------------------------ */

static void list_cold(struct rn_prefix_tree *tree, uint32_t node)
{
    struct rn_prefix_node *n = &tree->nodes[node];

    RN_ASSERT((tree->first_cold == NONE) == (tree->last_cold == NONE));
    n->list_next = NONE;
    n->list_prev = tree->last_cold;
    if (tree->last_cold != NONE)
        tree->nodes[tree->last_cold].list_next = node;
    else
        tree->first_cold = node;
    tree->last_cold = node;
}

static void unlist_cold(struct rn_prefix_tree *tree, uint32_t node)
{
    struct rn_prefix_node *n = &tree->nodes[node];

    RN_ASSERT(n->state == RN_PREFIX_COLD && (n->list_prev != NONE || tree->first_cold == node));
    if (n->list_prev != NONE)
        tree->nodes[n->list_prev].list_next = n->list_next;
    else
        tree->first_cold = n->list_next;
    if (n->list_next != NONE)
        tree->nodes[n->list_next].list_prev = n->list_prev;
    else
        tree->last_cold = n->list_prev;
    n->list_next = n->list_prev = NONE;
}

/* ---- States -------------------------------------------------------------------------------- */

static void inherit(struct rn_prefix_node *parent, const struct rn_prefix_node *n)
{
    if (parent->last_use < n->last_use)
        parent->last_use = n->last_use;
    if (parent->rank < n->rank)
        parent->rank = n->rank;
}

/* The parent has one warm child more or fewer; a child that cools leaves it its rank and the time of its last use. */
static void tell_parent(struct rn_prefix_tree *tree, const struct rn_prefix_node *n, bool was_warm, bool is_warm)
{
    struct rn_prefix_node *parent = &tree->nodes[n->parent];

    if (was_warm == is_warm)
        return;
    RN_ASSERT(parent->state != RN_PREFIX_FREE && (is_warm || parent->n_warm > 0));
    parent->n_warm += is_warm ? 1 : UINT32_MAX;
    if (was_warm && parent->state != RN_PREFIX_ROOT)
        inherit(parent, n);
    rn_prefix_settle(tree, n->parent);
}

void rn_prefix_node_change(struct rn_prefix_tree *tree, uint32_t node, enum rn_prefix_state state)
{
    struct rn_prefix_node *n = &tree->nodes[node];
    bool was_warm = rn_prefix_is_warm(n->state), is_warm = rn_prefix_is_warm(state);

    RN_ASSERT(n->state != state && n->state >= RN_PREFIX_PENDING && state >= RN_PREFIX_PENDING);
    if (n->state == RN_PREFIX_COLD)
        unlist_cold(tree, node);
    RN_ASSERT(tree->count[n->state] > 0);
    tree->count[n->state]--;
    tree->count[state]++;
    n->state = state;
    if (state == RN_PREFIX_COLD)
        list_cold(tree, node);
    if (was_warm != is_warm) {
        leave_family(tree, node);
        join_family(tree, node);
        tell_parent(tree, n, was_warm, is_warm);
    }
    rn_prefix_settle(tree, node);
}

/* ---- Birth and death ------------------------------------------------------------------------- */

static uint32_t take_node(struct rn_prefix_tree *tree)
{
    uint32_t node = tree->first_free;

    if (node == NONE && tree->n_touched < tree->options.max_nodes) {
        node = tree->n_touched++;
        tree->nodes[node].generation = 1;
        return node;
    }
    if (node == NONE && tree->first_cold != NONE) { /* the oldest: nothing is below it */
        rn_prefix_node_remove(tree, tree->first_cold);
        node = tree->first_free;
    }
    if (node != NONE) {
        RN_ASSERT(node < tree->n_touched && tree->nodes[node].state == RN_PREFIX_FREE);
        tree->first_free = tree->nodes[node].list_next;
    }
    return node;
}

static uint32_t make(struct rn_prefix_tree *tree, uint64_t hash, enum rn_prefix_state state)
{
    uint32_t node = take_node(tree);

    if (node == NONE)
        return NONE;
    tree->nodes[node] = (struct rn_prefix_node){
        .hash = hash,
        .parent = NONE,
        .first_child = NONE,
        .next = node,
        .prev = node,
        .list_next = NONE,
        .list_prev = NONE,
        .block = RN_PREFIX_NO_BLOCK,
        .place = NONE,
        .generation = tree->nodes[node].generation,
        .state = state,
    };
    tree->count[state]++;
    rn_prefix_table_add(tree, node);
    return node;
}

uint32_t rn_prefix_node_root(struct rn_prefix_tree *tree, uint64_t hash, struct rn_prefix_salt salt)
{
    uint32_t node = make(tree, hash, RN_PREFIX_ROOT);

    if (node != NONE)
        tree->nodes[node].salt = salt;
    return node;
}

uint32_t rn_prefix_node_child(struct rn_prefix_tree *tree, uint32_t parent, uint64_t hash, const int32_t *tokens)
{
    uint32_t node = make(tree, hash, RN_PREFIX_PENDING);

    if (node == NONE)
        return NONE;
    RN_ASSERT(tree->nodes[parent].state != RN_PREFIX_FREE && parent != node);
    tree->nodes[node].parent = parent;
    tree->nodes[node].depth = tree->nodes[parent].depth + 1;
    memcpy(rn_prefix_tokens(tree, node), tokens, tree->options.block_tokens * sizeof *tokens);
    join_family(tree, node);
    tell_parent(tree, &tree->nodes[node], false, true);
    return node;
}

void rn_prefix_node_drop(struct rn_prefix_tree *tree, uint32_t node)
{
    struct rn_prefix_node *n = &tree->nodes[node];
    uint64_t handle = n->state == RN_PREFIX_ROOT ? 0 : n->handle;

    RN_ASSERT(n->state != RN_PREFIX_FREE && n->n_warm == 0); /* paths and pins may name it still: by generation */
    RN_CHECK(n->first_child == NONE && n->computing == NULL && n->waiting == NULL && n->block == RN_PREFIX_NO_BLOCK);
    if (n->state == RN_PREFIX_COLD)
        unlist_cold(tree, node);
    if (n->state != RN_PREFIX_ROOT) {
        leave_family(tree, node);
        tell_parent(tree, n, rn_prefix_is_warm(n->state), false);
    }
    rn_prefix_table_remove(tree, node);
    tree->count[n->state]--;
    n->state = RN_PREFIX_FREE;
    rn_prefix_settle(tree, node);
    n->generation++;
    n->list_next = tree->first_free;
    tree->first_free = node;
    if (handle != 0 && tree->options.forgotten != NULL)
        tree->options.forgotten(tree->options.user, handle);
}

static bool is_useless(const struct rn_prefix_node *n)
{
    if (n->first_child != NONE)
        return false;
    return n->state == RN_PREFIX_ROOT ? n->holds == 0 : n->state == RN_PREFIX_COLD && n->handle == 0;
}

void rn_prefix_node_tidy(struct rn_prefix_tree *tree, uint32_t node)
{
    while (node != NONE && is_useless(&tree->nodes[node])) {
        uint32_t parent = tree->nodes[node].parent;

        rn_prefix_node_drop(tree, node);
        node = parent;
    }
}

void rn_prefix_node_remove(struct rn_prefix_tree *tree, uint32_t node)
{
    uint32_t parent = tree->nodes[node].parent;

    rn_prefix_node_drop(tree, node);
    rn_prefix_node_tidy(tree, parent);
}
