/* Requests in the order of their turns: see fair_queue.h.
 *
 * A list holds the order. Three trees over the same requests find a place in it:
 *
 *   by turn     where a new one goes
 *   by tenant   (priority, tenant, turn): the last one of its tenant
 *   by stream   the one to take
 *
 * Each is a treap: a search tree by its order, and a heap by a number that is drawn from the stream's slot, so that it
 * has the shape of a tree into which the requests came in random order. Depth is logarithmic, whatever the order. */
#include "actors/fair_queue.h"
#include "base/check.h"
#include "base/rng.h"

enum { BY_TURN, BY_TENANT, BY_STREAM };
static_assert(BY_STREAM + 1 == RN_TURN_TREES, "a request has a link for each");

/* True when a stands in front of b. */
static bool goes_before(const struct rn_request *a, const struct rn_request *b)
{
    if (a->priority != b->priority)
        return a->priority > b->priority;
    if (a->turn.tag != b->turn.tag)
        return a->turn.tag < b->turn.tag;
    return a->order < b->order;
}

/* ---- Trees ---- */

static struct rn_turn_link *link_of(struct rn_request *request, int tree)
{
    return &request->turn.links[tree];
}

/* Below 0: a's tenant comes first. */
static int compare_tenants(const struct rn_request *a, const struct rn_request *b)
{
    if (a->priority != b->priority)
        return a->priority > b->priority ? -1 : 1;
    return (a->tenant > b->tenant) - (a->tenant < b->tenant);
}

static uint64_t stream_of(const struct rn_request *request)
{
    return (uint64_t)request->slot << 32 | request->generation;
}

static bool stands_before(int tree, const struct rn_request *a, const struct rn_request *b)
{
    int tenants = tree == BY_TENANT ? compare_tenants(a, b) : 0;

    if (tree == BY_STREAM)
        return stream_of(a) < stream_of(b);
    return tenants != 0 ? tenants < 0 : goes_before(a, b);
}

/* Whoever has the larger one is nearer to the root. */
static uint64_t draw_of(const struct rn_request *request)
{
    uint64_t state = request->slot;

    return rn_splitmix64(&state);
}

/* Puts `below` where `was` hangs, below `up` (NULL: it is the root). */
static void hang(struct rn_fair_queue *turns, int tree, struct rn_request *up, const struct rn_request *was,
                 struct rn_request *below)
{
    if (up == NULL)
        turns->trees[tree] = below;
    else if (link_of(up, tree)->left == was)
        link_of(up, tree)->left = below;
    else
        link_of(up, tree)->right = below;
    if (below != NULL)
        link_of(below, tree)->up = up;
}

/* Changes places with the one above it; the order stays. */
static void rotate_up(struct rn_fair_queue *turns, int tree, struct rn_request *request)
{
    struct rn_turn_link *own = link_of(request, tree), *above;
    struct rn_request *up = own->up, *between;
    bool left;

    RN_ASSERT(up != NULL);
    above = link_of(up, tree);
    left = above->left == request;
    between = left ? own->right : own->left;
    hang(turns, tree, above->up, up, request);
    hang(turns, tree, up, request, between);
    *(left ? &own->right : &own->left) = up;
    above->up = request;
    turns->n_looks++;
}

static void enter_tree(struct rn_fair_queue *turns, int tree, struct rn_request *request)
{
    struct rn_request **at = &turns->trees[tree], *up = NULL;

    while (*at != NULL) {
        up = *at;
        at = stands_before(tree, request, up) ? &link_of(up, tree)->left : &link_of(up, tree)->right;
        turns->n_looks++;
    }
    *at = request;
    *link_of(request, tree) = (struct rn_turn_link){.up = up};
    while (link_of(request, tree)->up != NULL && draw_of(request) > draw_of(link_of(request, tree)->up))
        rotate_up(turns, tree, request);
}

static void leave_tree(struct rn_fair_queue *turns, int tree, struct rn_request *request)
{
    struct rn_turn_link *own = link_of(request, tree);

    while (own->left != NULL && own->right != NULL)
        rotate_up(turns, tree, draw_of(own->left) > draw_of(own->right) ? own->left : own->right);
    hang(turns, tree, own->up, request, own->left != NULL ? own->left : own->right);
    *own = (struct rn_turn_link){.up = NULL};
}

/* Its tenant's last one of its priority; NULL: there is none. */
static const struct rn_request *last_of_tenant(struct rn_fair_queue *turns, const struct rn_request *request)
{
    struct rn_request *at = turns->trees[BY_TENANT], *last = NULL;

    while (at != NULL) {
        bool beyond = compare_tenants(request, at) < 0;

        last = beyond ? last : at;
        at = beyond ? link_of(at, BY_TENANT)->left : link_of(at, BY_TENANT)->right;
        turns->n_looks++;
    }
    return last != NULL && compare_tenants(last, request) == 0 ? last : NULL;
}

/* In front of which one it goes; NULL: behind all. */
static struct rn_request *place_of(struct rn_fair_queue *turns, const struct rn_request *request)
{
    struct rn_request *at = turns->trees[BY_TURN], *next = NULL;

    while (at != NULL) {
        bool before = goes_before(request, at);

        next = before ? at : next;
        at = before ? link_of(at, BY_TURN)->left : link_of(at, BY_TURN)->right;
        turns->n_looks++;
    }
    return next;
}

/* ---- The order ---- */

void rn_fair_queue_put_back(struct rn_fair_queue *turns, struct rn_request *request, struct rn_request *next)
{
    struct rn_request *previous = next != NULL ? next->turn.previous : turns->last;

    RN_ASSERT(request->next == NULL && request->turn.previous == NULL && request != turns->first);
    RN_ASSERT((previous == NULL || !goes_before(request, previous)) && (next == NULL || !goes_before(next, request)));
    request->turn.previous = previous;
    request->next = next;
    if (next != NULL)
        next->turn.previous = request;
    else
        turns->last = request;
    if (previous != NULL)
        previous->next = request;
    else
        turns->first = request;
    turns->n++;
    for (int tree = 0; tree < RN_TURN_TREES; tree++)
        enter_tree(turns, tree, request);
}

void rn_fair_queue_push(struct rn_fair_queue *turns, struct rn_request *request, uint64_t cost)
{
    const struct rn_request *own = last_of_tenant(turns, request);

    request->turn.tag =
        own != NULL && own->turn.tag + own->turn.cost > turns->served ? own->turn.tag + own->turn.cost : turns->served;
    request->turn.cost = cost;
    rn_fair_queue_put_back(turns, request, place_of(turns, request));
}

void rn_fair_queue_push_front(struct rn_fair_queue *turns, struct rn_request *request)
{
    request->turn.tag = 0;
    request->turn.cost = 0;
    rn_fair_queue_put_back(turns, request, place_of(turns, request));
}

void rn_fair_queue_take(struct rn_fair_queue *turns, struct rn_request *request)
{
    struct rn_request *previous = request->turn.previous;

    RN_ASSERT(turns->n > 0 && (previous != NULL ? previous->next : turns->first) == request);
    RN_ASSERT((request->next != NULL ? request->next->turn.previous : turns->last) == request);
    if (previous != NULL)
        previous->next = request->next;
    else
        turns->first = request->next;
    if (request->next != NULL)
        request->next->turn.previous = previous;
    else
        turns->last = previous;
    request->next = request->turn.previous = NULL;
    turns->n--;
    for (int tree = 0; tree < RN_TURN_TREES; tree++)
        leave_tree(turns, tree, request);
}

void rn_fair_queue_served(struct rn_fair_queue *turns, const struct rn_request *request)
{
    if (request->turn.tag > turns->served)
        turns->served = request->turn.tag;
}

struct rn_request *rn_fair_queue_find(struct rn_fair_queue *turns, uint32_t slot, uint32_t generation)
{
    uint64_t wanted = (uint64_t)slot << 32 | generation;
    struct rn_request *at = turns->trees[BY_STREAM];

    while (at != NULL && stream_of(at) != wanted) {
        at = wanted < stream_of(at) ? link_of(at, BY_STREAM)->left : link_of(at, BY_STREAM)->right;
        turns->n_looks++;
    }
    return at;
}

struct rn_request *rn_fair_queue_remove(struct rn_fair_queue *turns, uint32_t slot, uint32_t generation)
{
    struct rn_request *request = rn_fair_queue_find(turns, slot, generation);

    if (request != NULL)
        rn_fair_queue_take(turns, request);
    return request;
}

/* ---- Check ---- */

static const struct rn_request *leftmost(const struct rn_request *at, int tree)
{
    while (at != NULL && at->turn.links[tree].left != NULL)
        at = at->turn.links[tree].left;
    return at;
}

static const struct rn_request *next_in_tree(const struct rn_request *at, int tree)
{
    const struct rn_request *up = at->turn.links[tree].up;

    if (at->turn.links[tree].right != NULL)
        return leftmost(at->turn.links[tree].right, tree);
    for (; up != NULL && up->turn.links[tree].right == at; up = up->turn.links[tree].up)
        at = up;
    return up;
}

static bool hangs_rightly(const struct rn_request *up, const struct rn_request *below, int tree)
{
    return below == NULL || (below->turn.links[tree].up == up && draw_of(below) <= draw_of(up));
}

/* All are in it, in its order. */
static bool check_tree(const struct rn_fair_queue *turns, int tree)
{
    const struct rn_request *previous = NULL, *root = turns->trees[tree];
    uint32_t n = 0;

    if (root != NULL && root->turn.links[tree].up != NULL)
        return false;
    for (const struct rn_request *r = leftmost(root, tree); r != NULL; previous = r, r = next_in_tree(r, tree))
        if (++n > turns->n || !hangs_rightly(r, r->turn.links[tree].left, tree) ||
            !hangs_rightly(r, r->turn.links[tree].right, tree) ||
            (previous != NULL && stands_before(tree, r, previous)) || (tree == BY_TURN && r->turn.previous != previous))
            return false;
    return n == turns->n;
}

bool rn_fair_queue_check(const struct rn_fair_queue *turns)
{
    const struct rn_request *previous = NULL;
    uint32_t n = 0;

    for (const struct rn_request *r = turns->first; r != NULL && n < turns->n; previous = r, r = r->next, n++)
        if (r->turn.previous != previous || (previous != NULL && goes_before(r, previous)))
            return false;
    for (int tree = 0; tree < RN_TURN_TREES; tree++)
        if (!check_tree(turns, tree))
            return false;
    return n == turns->n && turns->last == previous && (previous == NULL || previous->next == NULL);
}
