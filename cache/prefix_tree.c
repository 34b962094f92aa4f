/* The operations of the prefix tree: see prefix_tree.h for their meaning, prefix_node.h for the structure.
 *
 * Invariants: a ready node's parent is ready or a root; a pending one's is not cold; a cold one has only cold
 * children. A path that has claimed nodes below a pending node computes that node too. rn_prefix_tree_check
 * (prefix_check.c) tests these and the rest. */
#include "cache/prefix_tree.h"

#include <string.h>
#include <xxhash.h>

#include "base/check.h"
#include "cache/prefix_node.h"

#define MOST_BLOCK_TOKENS 65536u
#define MOST_NODES (1u << 30) /* twice as many slots have 31-bit numbers */
#define MOST_NEAREST 16u      /* children that nearest() looks at */
#define LOOK_AHEAD 16u        /* blocks that match() hashes before it reads the first of them */

static uint64_t xxh3(uint64_t previous, const int32_t *tokens, uint32_t n)
{
    return XXH3_64bits_withSeed(tokens, n * sizeof *tokens, previous);
}

/* ---- Init and fini ------------------------------------------------------------------------------ */

runnel_status rn_prefix_tree_init(struct rn_prefix_tree *tree, struct rn_heap *heap, struct rn_block_pool *pool,
                                  const struct rn_prefix_options *options)
{
    uint32_t block_tokens = options->block_tokens, max_nodes = options->max_nodes;
    uint32_t bits = 2;
    size_t n_tokens;

    if (block_tokens == 0 || block_tokens > MOST_BLOCK_TOKENS || (block_tokens & (block_tokens - 1)) != 0 ||
        max_nodes < 2 || max_nodes > MOST_NODES)
        return RUNNEL_INVALID;
    while ((UINT64_C(1) << bits) < 2 * (uint64_t)max_nodes)
        bits++;
    *tree = (struct rn_prefix_tree){
        .heap = heap, .pool = pool, .options = *options, .slot_bits = bits, .reload = RN_PREFIX_QUARTERS};
    tree->first_free = tree->first_cold = tree->last_cold = NONE;
    if (tree->options.hash == NULL)
        tree->options.hash = xxh3;
    if (rn_mul_size(max_nodes, block_tokens, &n_tokens))
        tree->tokens = rn_alloc(heap, n_tokens, sizeof *tree->tokens);
    tree->nodes = rn_alloc(heap, max_nodes, sizeof *tree->nodes);
    tree->slots = rn_alloc(heap, (size_t)1 << bits, sizeof *tree->slots);
    tree->idle = rn_alloc(heap, max_nodes, sizeof *tree->idle);
    tree->node_of = rn_alloc(heap, pool->n_blocks, sizeof *tree->node_of);
    if (tree->tokens == NULL || tree->nodes == NULL || tree->slots == NULL || tree->idle == NULL ||
        tree->node_of == NULL) {
        rn_prefix_tree_fini(tree);
        return RUNNEL_NO_MEMORY;
    }
    memset(tree->slots, 0xff, ((size_t)1 << bits) * sizeof *tree->slots);
    memset(tree->node_of, 0xff, pool->n_blocks * sizeof *tree->node_of);
    return RUNNEL_OK;
}

static void cool(struct rn_prefix_tree *tree, uint32_t node);

void rn_prefix_tree_fini(struct rn_prefix_tree *tree)
{
    if (tree->heap == NULL)
        return;
    RN_CHECK(tree->count[RN_PREFIX_PENDING] == 0);
    for (uint32_t i = 0; i < tree->n_touched; i++) {
        struct rn_prefix_node *n = &tree->nodes[i];

        RN_CHECK(n->state == RN_PREFIX_FREE || n->holds == 0);
        if (n->state == RN_PREFIX_READY)
            rn_block_pool_unref(tree->pool, &n->block, 1);
        if (rn_prefix_is_warm(n->state) || n->state == RN_PREFIX_COLD)
            if (n->handle != 0 && tree->options.forgotten != NULL)
                tree->options.forgotten(tree->options.user, n->handle);
    }
    rn_free(tree->heap, tree->node_of);
    rn_free(tree->heap, tree->idle);
    rn_free(tree->heap, tree->slots);
    rn_free(tree->heap, tree->nodes);
    rn_free(tree->heap, tree->tokens);
    memset(tree, 0, sizeof *tree);
}

/* ---- Uses, blocks, claims, waiters --------------------------------------------------------------- */

static void use(struct rn_prefix_tree *tree, uint32_t node)
{
    struct rn_prefix_node *n = &tree->nodes[node];
    uint64_t worth = n->handle != 0 ? tree->reload : RN_PREFIX_QUARTERS;
    uint64_t rank = tree->inflation + RN_PREFIX_QUARTERS + n->hits * worth;

    RN_ASSERT(n->state != RN_PREFIX_FREE && n->hits <= RN_PREFIX_MOST_HITS && tree->reload <= RN_PREFIX_QUARTERS);
    n->last_use = tree->now;
    n->rank = n->rank < rank ? rank : n->rank;
    rn_prefix_settle(tree, node);
}

static void hit(struct rn_prefix_tree *tree, uint32_t node)
{
    struct rn_prefix_node *n = &tree->nodes[node];

    n->hits += n->hits < RN_PREFIX_MOST_HITS;
}

void rn_prefix_tree_set_reload(struct rn_prefix_tree *tree, uint32_t quarters)
{
    tree->reload = quarters < RN_PREFIX_QUARTERS ? quarters : RN_PREFIX_QUARTERS;
}

static void hold(struct rn_prefix_tree *tree, struct rn_prefix_path *path, uint32_t node)
{
    RN_ASSERT(tree->nodes[node].state == RN_PREFIX_ROOT || tree->nodes[node].state == RN_PREFIX_READY);
    tree->nodes[node].holds++;
    path->at = rn_prefix_ref_to(tree, node);
    rn_prefix_settle(tree, node);
}

static void let_go(struct rn_prefix_tree *tree, struct rn_prefix_path *path)
{
    uint32_t node = rn_prefix_at(tree, path->at);

    path->at = rn_prefix_ref_to(tree, NONE);
    if (node == NONE)
        return;
    RN_ASSERT(tree->nodes[node].holds > 0);
    tree->nodes[node].holds--;
    rn_prefix_settle(tree, node);
    rn_prefix_node_tidy(tree, node);
}

/* Gives the tree's reference back; the node is about to change. */
static void drop_block(struct rn_prefix_tree *tree, uint32_t node)
{
    struct rn_prefix_node *n = &tree->nodes[node];
    uint32_t block = n->block;

    RN_ASSERT(block < tree->pool->n_blocks && tree->node_of[block] == node);
    n->block = RN_PREFIX_NO_BLOCK;
    tree->node_of[block] = NONE;
    rn_block_pool_unref(tree->pool, &block, 1);
}

/* A claim goes behind `after` in the path's list; NONE: to the front. */
static void claim(struct rn_prefix_tree *tree, struct rn_prefix_path *path, uint32_t node, uint32_t after)
{
    struct rn_prefix_node *n = &tree->nodes[node];

    RN_ASSERT(n->state == RN_PREFIX_PENDING && n->computing == NULL && path->state == RN_PATH_ENTERED);
    RN_ASSERT(after == NONE || tree->nodes[after].computing == path);
    n->computing = path;
    n->list_prev = after;
    n->list_next = after == NONE ? path->first_claim : tree->nodes[after].list_next;
    if (after == NONE)
        path->first_claim = node;
    else
        tree->nodes[after].list_next = node;
    if (n->list_next == NONE)
        path->last_claim = node;
    else
        tree->nodes[n->list_next].list_prev = node;
    path->n_claims++;
}

static void unclaim(struct rn_prefix_tree *tree, uint32_t node)
{
    struct rn_prefix_node *n = &tree->nodes[node];
    struct rn_prefix_path *path = n->computing;

    RN_ASSERT(n->state == RN_PREFIX_PENDING && path->n_claims > 0);
    if (n->list_prev == NONE)
        path->first_claim = n->list_next;
    else
        tree->nodes[n->list_prev].list_next = n->list_next;
    if (n->list_next == NONE)
        path->last_claim = n->list_prev;
    else
        tree->nodes[n->list_next].list_prev = n->list_prev;
    n->list_next = n->list_prev = NONE;
    n->computing = NULL;
    path->n_claims--;
}

/* The node's ring of waiting paths becomes the end of the list. */
static void wake(struct rn_prefix_tree *tree, uint32_t node, struct rn_prefix_woken *woken)
{
    struct rn_prefix_path *first = tree->nodes[node].waiting;
    struct rn_prefix_path *last;

    if (first == NULL)
        return;
    tree->nodes[node].waiting = NULL;
    last = first->prev;
    last->next = NULL;
    first->prev = woken->last;
    if (woken->last != NULL)
        woken->last->next = first;
    else
        woken->first = first;
    woken->last = last;
    for (struct rn_prefix_path *path = first; path != NULL; path = path->next)
        path->state = RN_PATH_TOLD;
}

struct rn_prefix_path *rn_prefix_woken_pop(struct rn_prefix_woken *woken)
{
    struct rn_prefix_path *path = woken->first;

    if (path == NULL)
        return NULL;
    RN_ASSERT(path->state == RN_PATH_TOLD);
    woken->first = path->next;
    if (woken->first == NULL)
        woken->last = NULL;
    else
        woken->first->prev = NULL;
    path->next = path->prev = NULL;
    path->state = RN_PATH_OUT;
    return path;
}

static void stop_waiting(struct rn_prefix_tree *tree, struct rn_prefix_path *path)
{
    struct rn_prefix_node *n = &tree->nodes[path->waits_for];

    RN_ASSERT(n->state == RN_PREFIX_PENDING && n->waiting != NULL);
    RN_ASSERT(path->next->prev == path && path->prev->next == path);
    path->next->prev = path->prev;
    path->prev->next = path->next;
    if (n->waiting == path)
        n->waiting = path->next != path ? path->next : NULL;
    path->next = path->prev = NULL;
    path->state = RN_PATH_OUT;
}

/* ---- Match --------------------------------------------------------------------------------------- */

/* What match() carries from block to block. */
struct search {
    struct rn_prefix_tree *tree;
    uint32_t *blocks;
    struct rn_prefix_match *found;
    uint32_t node; /* the last one that was found */
};

static bool take_in(struct search *search, uint32_t node)
{
    const struct rn_prefix_node *n = &search->tree->nodes[node];
    struct rn_prefix_match *found = search->found;

    RN_ASSERT(n->state != RN_PREFIX_READY || found->n_pending + found->n_cold == 0);
    RN_ASSERT(n->state != RN_PREFIX_PENDING || (found->n_cold == 0 && n->computing != NULL));
    if (n->state == RN_PREFIX_READY) {
        if (search->blocks != NULL)
            search->blocks[found->n_ready] = n->block;
        found->n_ready++;
        found->ready = rn_prefix_ref_to(search->tree, node);
    } else if (n->state == RN_PREFIX_PENDING) {
        found->n_pending++;
        found->pending = rn_prefix_ref_to(search->tree, node);
        found->computing = n->computing;
    } else if (n->handle != 0) {
        found->n_cold++;
        found->cold = rn_prefix_ref_to(search->tree, node);
    } else {
        return false;
    }
    search->node = node;
    return true;
}

/* Follows n blocks, n <= LOOK_AHEAD; false at the first that is not there. */
static bool follow(struct search *search, uint64_t *hash, const int32_t *tokens, uint32_t n)
{
    const struct rn_prefix_tree *tree = search->tree;
    uint32_t per_block = tree->options.block_tokens;
    uint64_t hashes[LOOK_AHEAD];

    for (uint32_t i = 0; i < n; i++)
        hashes[i] = *hash = tree->options.hash(*hash, tokens + (size_t)i * per_block, per_block);
    if (n > 1)
        rn_prefix_table_prefetch(tree, hashes, n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t node = rn_prefix_table_child(tree, hashes[i], search->node, tokens + (size_t)i * per_block);

        if (node == NONE || !take_in(search, node))
            return false;
    }
    return true;
}

void rn_prefix_tree_match(struct rn_prefix_tree *tree, struct rn_prefix_salt salt, const int32_t *tokens,
                          uint32_t n_tokens, uint32_t *blocks, struct rn_prefix_match *found)
{
    uint32_t n_blocks = n_tokens / tree->options.block_tokens;
    uint64_t hash = rn_prefix_hash_salt(tree, salt);
    struct search search = {tree, blocks, found, rn_prefix_table_root(tree, hash, salt)};
    uint32_t step = 1; /* doubles: a prompt that is not known costs one hash, one that is, few waits for memory */

    *found = (struct rn_prefix_match){.ready = rn_prefix_ref_to(tree, search.node)};
    found->pending = found->cold = rn_prefix_ref_to(tree, NONE);
    if (search.node == NONE)
        return;
    for (uint32_t i = 0; i < n_blocks; i += step, step = step < LOOK_AHEAD ? 2 * step : LOOK_AHEAD) {
        if (step > n_blocks - i)
            step = n_blocks - i;
        if (!follow(&search, &hash, tokens + (size_t)i * tree->options.block_tokens, step))
            break;
    }
    RN_ASSERT(found->n_ready + found->n_pending + found->n_cold <= n_blocks);
    tree->now++;
    if (found->n_ready > 0)
        use(tree, found->ready.node);
}

static uint32_t n_same(const int32_t *a, const int32_t *b, uint32_t n)
{
    uint32_t i = 0;

    while (i < n && a[i] == b[i])
        i++;
    return i;
}

uint32_t rn_prefix_tree_nearest(const struct rn_prefix_tree *tree, struct rn_prefix_ref ref, const int32_t *ids,
                                uint32_t n, uint32_t *block)
{
    uint32_t parent = rn_prefix_at(tree, ref), best = 0;
    uint32_t node = parent != NONE ? tree->nodes[parent].first_child : NONE;
    uint32_t most = n < tree->options.block_tokens ? n : tree->options.block_tokens;

    for (uint32_t i = 0; node != NONE && i < MOST_NEAREST && rn_prefix_is_warm(tree->nodes[node].state); i++) {
        uint32_t same =
            tree->nodes[node].state == RN_PREFIX_READY ? n_same(rn_prefix_tokens(tree, node), ids, most) : 0;

        if (same > best) {
            best = same;
            *block = tree->nodes[node].block;
        }
        node = tree->nodes[node].next;
        if (node == tree->nodes[parent].first_child)
            break;
    }
    RN_ASSERT(best == 0 || (best <= n && *block < tree->pool->n_blocks));
    return best;
}

/* ---- Wait, enter, publish, leave ----------------------------------------------------------------- */

bool rn_prefix_tree_wait(struct rn_prefix_tree *tree, struct rn_prefix_path *path, const struct rn_prefix_match *found)
{
    uint32_t node = rn_prefix_at(tree, found->pending);
    struct rn_prefix_path *first;

    RN_CHECK(path->state == RN_PATH_OUT);
    if (node == NONE || tree->nodes[node].state != RN_PREFIX_PENDING)
        return false;
    first = tree->nodes[node].waiting;
    if (first == NULL) {
        tree->nodes[node].waiting = path->next = path->prev = path;
    } else {
        path->next = first;
        path->prev = first->prev;
        first->prev->next = path;
        first->prev = path;
    }
    path->waits_for = node;
    path->state = RN_PATH_WAITING;
    return true;
}

/* Claims what is behind path->at; `hash` is that node's. */
static void claim_rest(struct rn_prefix_tree *tree, struct rn_prefix_path *path, const int32_t *tokens,
                       uint32_t n_blocks)
{
    uint32_t per_block = tree->options.block_tokens;
    uint32_t parent = path->at.node, node = NONE;
    uint64_t hash = tree->nodes[parent].hash;
    bool known = true;

    for (uint32_t i = path->n_ready; i < n_blocks; i++, parent = node) {
        const int32_t *ids = tokens + (size_t)i * per_block;

        hash = tree->options.hash(hash, ids, per_block);
        known = known && (node = rn_prefix_table_child(tree, hash, parent, ids)) != NONE;
        if (!known && (node = rn_prefix_node_child(tree, parent, hash, ids)) == NONE)
            return;
        if (known && rn_prefix_is_warm(tree->nodes[node].state))
            continue;
        if (known)
            rn_prefix_node_change(tree, node, RN_PREFIX_PENDING);
        claim(tree, path, node, path->last_claim);
    }
}

void rn_prefix_tree_enter(struct rn_prefix_tree *tree, struct rn_prefix_path *path, struct rn_prefix_salt salt,
                          const int32_t *tokens, uint32_t n_tokens, const struct rn_prefix_match *found)
{
    uint32_t at = rn_prefix_at(tree, found->ready);
    uint64_t hit_tokens = (uint64_t)found->n_ready * tree->options.block_tokens;

    RN_CHECK(path->state == RN_PATH_OUT && hit_tokens <= n_tokens);
    if (at != NONE && tree->nodes[at].state != RN_PREFIX_READY && tree->nodes[at].state != RN_PREFIX_ROOT)
        at = NONE;
    path->state = RN_PATH_ENTERED;
    path->n_ready = at != NONE ? found->n_ready : 0;
    if (path->n_ready > 0)
        hit(tree, at);
    path->n_claims = 0;
    path->first_claim = path->last_claim = NONE;
    path->at = rn_prefix_ref_to(tree, NONE);
    tree->totals.hit_tokens += hit_tokens;
    tree->totals.missed_tokens += n_tokens - hit_tokens;
    if (at == NONE) {
        uint64_t hash = rn_prefix_hash_salt(tree, salt);

        at = rn_prefix_table_root(tree, hash, salt);
        if (at == NONE)
            at = rn_prefix_node_root(tree, hash, salt);
        if (at == NONE)
            return;
    }
    RN_ASSERT(tree->nodes[at].depth == path->n_ready);
    hold(tree, path, at);
    claim_rest(tree, path, tokens, n_tokens / tree->options.block_tokens);
}

/* The node behind `at` with these tokens, made if need be; NONE: nodes have run short. */
static uint32_t next_node(struct rn_prefix_tree *tree, const struct rn_prefix_path *path, uint32_t at,
                          const int32_t *ids)
{
    uint32_t per_block = tree->options.block_tokens;
    uint32_t node = path->first_claim;
    uint64_t hash;

    RN_ASSERT(tree->nodes[at].state == RN_PREFIX_ROOT || tree->nodes[at].state == RN_PREFIX_READY);
    if (node != NONE && tree->nodes[node].parent == at) {
        RN_ASSERT(memcmp(rn_prefix_tokens(tree, node), ids, per_block * sizeof *ids) == 0);
        return node;
    }
    hash = tree->options.hash(tree->nodes[at].hash, ids, per_block);
    node = rn_prefix_table_child(tree, hash, at, ids);
    return node != NONE ? node : rn_prefix_node_child(tree, at, hash, ids);
}

/* The node is ready, with this block unless it was before. Returns the duplicate block's or NO_BLOCK. */
static uint32_t make_ready(struct rn_prefix_tree *tree, uint32_t node, uint32_t block, struct rn_prefix_woken *woken)
{
    struct rn_prefix_node *n = &tree->nodes[node];

    if (n->state == RN_PREFIX_READY) {
        if (n->block == block)
            return RN_PREFIX_NO_BLOCK;
        tree->totals.duplicate_blocks++;
        return n->block;
    }
    rn_block_pool_ref(tree->pool, &block, 1);
    RN_CHECK(tree->node_of[block] == NONE);
    tree->node_of[block] = node;
    n->block = block;
    if (n->computing != NULL)
        unclaim(tree, node);
    rn_prefix_node_change(tree, node, RN_PREFIX_READY);
    wake(tree, node, woken);
    return RN_PREFIX_NO_BLOCK;
}

uint32_t rn_prefix_tree_publish(struct rn_prefix_tree *tree, struct rn_prefix_path *path, const int32_t *tokens,
                                const uint32_t *blocks, uint32_t n_blocks, uint32_t *duplicate_blocks,
                                struct rn_prefix_woken *woken)
{
    uint32_t first = path->n_ready;
    uint32_t at = rn_prefix_at(tree, path->at), node;

    RN_CHECK(path->state == RN_PATH_ENTERED);
    if (at == NONE || first >= n_blocks)
        return first;
    for (uint32_t i = first; i < n_blocks; i++) {
        uint32_t duplicate_block;

        node = next_node(tree, path, at, tokens + (size_t)i * tree->options.block_tokens);
        if (node == NONE)
            break;
        duplicate_block = make_ready(tree, node, blocks[i], woken);
        if (duplicate_blocks != NULL)
            duplicate_blocks[i] = duplicate_block;
        at = node;
        path->n_ready++;
    }
    RN_ASSERT(path->n_ready >= first && path->n_ready <= n_blocks);
    RN_ASSERT(tree->nodes[at].depth == path->n_ready);
    tree->now++;
    if (path->n_ready > first) {
        use(tree, at);
        node = rn_prefix_at(tree, path->at);
        hold(tree, path, at);
        RN_ASSERT(node != NONE && tree->nodes[node].holds > 0 && tree->nodes[node].n_warm > 0);
        tree->nodes[node].holds--; /* it has a warm child: neither idle nor useless */
    }
    return path->n_ready;
}

/* A claim is given up. */
static void abandon(struct rn_prefix_tree *tree, uint32_t node, struct rn_prefix_woken *woken)
{
    struct rn_prefix_node *n = &tree->nodes[node];

    unclaim(tree, node);
    if (n->n_warm > 0) {
        struct rn_prefix_path *gone_to = tree->nodes[n->first_child].computing;

        RN_ASSERT(gone_to != NULL);
        claim(tree, gone_to, node, NONE);
        tree->totals.inherited++;
        return;
    }
    tree->totals.abandoned++;
    wake(tree, node, woken);
    cool(tree, node);
}

/* A node that was pending or ready becomes cold, if that has a purpose. */
static void cool(struct rn_prefix_tree *tree, uint32_t node)
{
    RN_ASSERT(tree->nodes[node].n_warm == 0 && tree->nodes[node].computing == NULL &&
              tree->nodes[node].waiting == NULL);
    rn_prefix_node_change(tree, node, RN_PREFIX_COLD);
    rn_prefix_node_tidy(tree, node);
}

void rn_prefix_tree_leave(struct rn_prefix_tree *tree, struct rn_prefix_path *path, struct rn_prefix_woken *woken)
{
    RN_CHECK(path->state != RN_PATH_TOLD);
    RN_ASSERT(path->state == RN_PATH_ENTERED || path->n_claims == 0);
    if (path->state == RN_PATH_WAITING)
        stop_waiting(tree, path);
    if (path->state == RN_PATH_ENTERED) {
        while (path->last_claim != NONE) /* the deepest first */
            abandon(tree, path->last_claim, woken);
        RN_ASSERT(path->n_claims == 0);
        let_go(tree, path);
    }
    *path = (struct rn_prefix_path){.owner = path->owner};
}

/* ---- References, pins ---------------------------------------------------------------------------- */

void rn_prefix_tree_ref(struct rn_prefix_tree *tree, const uint32_t *blocks, uint32_t n)
{
    rn_block_pool_ref(tree->pool, blocks, n);
    for (uint32_t i = 0; i < n; i++)
        if (tree->node_of[blocks[i]] != NONE)
            rn_prefix_settle(tree, tree->node_of[blocks[i]]);
}

void rn_prefix_tree_unref(struct rn_prefix_tree *tree, const uint32_t *blocks, uint32_t n)
{
    rn_block_pool_unref(tree->pool, blocks, n);
    tree->now++;
    for (uint32_t i = 0; i < n; i++)
        if (tree->node_of[blocks[i]] != NONE)
            use(tree, tree->node_of[blocks[i]]);
}

bool rn_prefix_tree_pin(struct rn_prefix_tree *tree, struct rn_prefix_ref ref)
{
    uint32_t node = rn_prefix_at(tree, ref);

    if (node == NONE || tree->nodes[node].state != RN_PREFIX_READY)
        return false;
    RN_CHECK(tree->nodes[node].pins < UINT32_MAX);
    tree->nodes[node].pins++;
    rn_prefix_settle(tree, node);
    return true;
}

void rn_prefix_tree_unpin(struct rn_prefix_tree *tree, struct rn_prefix_ref ref)
{
    uint32_t node = rn_prefix_at(tree, ref);

    if (node == NONE)
        return;
    RN_CHECK(tree->nodes[node].pins > 0);
    tree->nodes[node].pins--;
    rn_prefix_settle(tree, node);
}

/* ---- Evict, forget, the colder tier --------------------------------------------------------------- */

uint32_t rn_prefix_tree_evict(struct rn_prefix_tree *tree, uint32_t n)
{
    uint32_t done = 0;

    for (; done < n && tree->n_idle > 0; done++) {
        uint32_t node = tree->idle[0];
        struct rn_prefix_node *first = &tree->nodes[node];

        RN_ASSERT(rn_prefix_is_idle(tree, node) && first->place == 0);
        tree->inflation = tree->inflation < first->rank ? first->rank : tree->inflation;
        if (tree->options.evicted != NULL)
            first->handle = tree->options.evicted(tree->options.user, tree, rn_prefix_ref_to(tree, node));
        drop_block(tree, node);
        cool(tree, node);
    }
    tree->totals.evicted += done;
    return done;
}

/* Removes the node and all below it, the deepest first; how many. */
static uint32_t drop_all(struct rn_prefix_tree *tree, uint32_t top, struct rn_prefix_woken *woken)
{
    uint32_t node = top, n_gone = 0;

    for (;;) {
        struct rn_prefix_node *n = &tree->nodes[node];
        uint32_t parent = n->parent;

        if (n->first_child != NONE) {
            node = n->first_child;
            continue;
        }
        if (n->state == RN_PREFIX_PENDING) {
            unclaim(tree, node);
            wake(tree, node, woken);
        } else if (n->state == RN_PREFIX_READY) {
            drop_block(tree, node);
        }
        rn_prefix_node_drop(tree, node);
        n_gone++;
        if (node == top)
            return n_gone;
        node = parent;
    }
}

uint32_t rn_prefix_tree_forget(struct rn_prefix_tree *tree, const uint32_t *blocks, uint32_t n,
                               struct rn_prefix_woken *woken)
{
    uint32_t n_gone = 0;

    for (uint32_t i = 0; i < n; i++) {
        uint32_t node = tree->node_of[blocks[i]];

        if (node != NONE) {
            uint32_t parent = tree->nodes[node].parent;

            n_gone += drop_all(tree, node, woken);
            rn_prefix_node_tidy(tree, parent);
        }
    }
    return n_gone;
}

bool rn_prefix_tree_set_handle(struct rn_prefix_tree *tree, struct rn_prefix_ref ref, uint64_t handle)
{
    uint32_t node = rn_prefix_at(tree, ref);

    if (node == NONE || tree->nodes[node].state == RN_PREFIX_ROOT)
        return false;
    tree->nodes[node].handle = handle;
    rn_prefix_node_tidy(tree, node);
    return true;
}

/* ---- Looking -------------------------------------------------------------------------------------- */

bool rn_prefix_tree_look(const struct rn_prefix_tree *tree, struct rn_prefix_ref ref, struct rn_prefix_view *view)
{
    uint32_t node = rn_prefix_at(tree, ref);
    const struct rn_prefix_node *n;

    if (node == NONE)
        return false;
    n = &tree->nodes[node];
    *view = (struct rn_prefix_view){
        .state = n->state,
        .n_blocks = n->depth,
        .block = n->block,
        .pins = n->pins,
        .handle = n->state == RN_PREFIX_ROOT ? 0 : n->handle,
        .tokens = n->state == RN_PREFIX_ROOT ? NULL : rn_prefix_tokens(tree, node),
        .parent = rn_prefix_ref_to(tree, n->parent),
    };
    return true;
}

bool rn_prefix_tree_spell(const struct rn_prefix_tree *tree, struct rn_prefix_ref ref, struct rn_prefix_salt *salt,
                          int32_t *tokens)
{
    uint32_t node = rn_prefix_at(tree, ref);
    uint32_t per_block = tree->options.block_tokens;

    if (node == NONE)
        return false;
    for (; tree->nodes[node].state != RN_PREFIX_ROOT; node = tree->nodes[node].parent)
        if (tokens != NULL)
            memcpy(tokens + (size_t)(tree->nodes[node].depth - 1) * per_block, rn_prefix_tokens(tree, node),
                   per_block * sizeof *tokens);
    *salt = tree->nodes[node].salt;
    return true;
}

struct rn_prefix_stats rn_prefix_tree_stats(const struct rn_prefix_tree *tree)
{
    struct rn_prefix_stats stats = tree->totals;

    stats.roots = tree->count[RN_PREFIX_ROOT];
    stats.pending = tree->count[RN_PREFIX_PENDING];
    stats.ready = tree->count[RN_PREFIX_READY];
    stats.cold = tree->count[RN_PREFIX_COLD];
    stats.idle = tree->n_idle;
    return stats;
}
