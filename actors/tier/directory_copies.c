/* Copies into lower tiers: see directory_copies.h. */
#include "actors/tier/directory_copies.h"

#include <string.h>

#include "actors/context.h"
#include "actors/request.h"
#include "base/check.h"

#define OLDEST 32u      /* of the blocks that can be evicted, those that are looked at for a copy ... */
#define LOOKS 256u      /* ... as long as there were not so many with those before them: some microseconds */
#define LONG_TOKENS 512 /* computed by one request: seconds on a CPU, and a tenth of that to write and read once */

/* ---- Down ---- */

/* The node's number, a new one if need be; 0: there is none, or it is a root. */
static uint64_t have_number(struct rn_directory *directory, struct rn_prefix_ref node)
{
    struct rn_prefix_view view;
    uint64_t number;

    if (!rn_prefix_tree_look(&directory->blocks->tree, node, &view) || view.state == RN_PREFIX_ROOT)
        return 0;
    if (view.handle != 0)
        return view.handle;
    number = view.state == RN_PREFIX_READY ? rn_directory_take_number(directory, node) : 0;
    if (number != 0)
        rn_prefix_tree_set_handle(&directory->blocks->tree, node, number);
    return number;
}

static uint32_t most_lent(const struct rn_directory *directory)
{
    uint32_t part = directory->blocks->pool.n_blocks / 8;

    return part < 1 ? 1 : part < RN_MOVE_BLOCKS ? part : RN_MOVE_BLOCKS;
}

/* False: it cannot be put in. */
static bool put_in(struct rn_directory *directory, struct rn_move *move, struct rn_prefix_ref node, uint8_t to)
{
    struct rn_move_item *item = &move->items[move->n];
    uint64_t number = have_number(directory, node);
    struct rn_directory_entry *entry = rn_directory_entry_of(directory, number);
    struct rn_prefix_view view;

    RN_CHECK(move->n < RN_MOVE_BLOCKS);
    if (entry == NULL || entry->writing || !rn_prefix_tree_look(&directory->blocks->tree, node, &view) ||
        (view.state != RN_PREFIX_READY && entry->has == 0))
        return false;
    RN_ASSERT(view.handle == number && view.n_blocks > 0 && (to & ~directory->writes) == 0);
    item->tier_directory = number;
    item->first = view.n_blocks == 1;
    item->parent = item->first ? 0 : have_number(directory, view.parent);
    item->to = to;
    item->block = view.state == RN_PREFIX_READY ? view.block : RN_MOVE_NO_BLOCK;
    memcpy(item->tokens, view.tokens, directory->context->limits->block_tokens * sizeof *item->tokens);
    rn_prefix_tree_spell(&directory->blocks->tree, node, &item->salt, NULL);
    item->idle =
        item->block != RN_MOVE_NO_BLOCK && rn_block_pool_references(&directory->blocks->pool, item->block) == 1;
    directory->blocks->n_lent += item->idle;
    if (item->block != RN_MOVE_NO_BLOCK)
        rn_tier_blocks_ref(directory->blocks, &item->block, 1);
    entry->writing = true;
    move->n++;
    return true;
}

static void send_down(struct rn_directory *directory, const struct rn_prefix_ref *nodes, uint32_t n, uint8_t to,
                      bool wanted)
{
    struct rn_move *move = rn_directory_move(directory, RN_MOVE_DOWN);

    RN_CHECK(move != NULL && n <= RN_MOVE_BLOCKS);
    for (uint32_t i = 0; i < n && put_in(directory, move, nodes[i], to); i++)
        continue;
    directory->down_wanted = wanted;
    directory->down_while_idle = directory->idle == RN_IDLE_YES;
    if (move->n > 0) {
        rn_directory_send(directory, move);
        return;
    }
    directory->n_out++;
    rn_directory_put_back(directory, move);
}

/* One more behind the n of the chain. */
static void add_to_chain(struct rn_directory *directory, struct rn_prefix_ref node, uint32_t n)
{
    const struct rn_backend_limits *limits = directory->context->limits;

    RN_CHECK(n <= limits->context_tokens / limits->block_tokens);
    directory->chain[n] = node;
}

static bool is_unproven(const struct rn_directory *directory, const struct rn_prefix_view *view)
{
    return view->state == RN_PREFIX_READY && directory->unproven[view->block];
}

/* Of the prefix that ends in the node, those that lack one of the tiers: the first n of them, in order. *waits: there
 * are more, behind one that has not proved good yet. */
static uint32_t lacking(struct rn_directory *directory, struct rn_prefix_ref node, uint8_t tiers,
                        struct rn_prefix_ref *first, uint32_t n, bool *waits)
{
    struct rn_prefix_view view;
    uint32_t n_chain = 0, n_first = 0;

    *waits = false;
    for (; rn_prefix_tree_look(&directory->blocks->tree, node, &view) && view.state != RN_PREFIX_ROOT;
         node = view.parent) {
        bool unproven = is_unproven(directory, &view);

        *waits |= unproven;
        if (view.state == RN_PREFIX_PENDING || unproven)
            n_chain = 0; /* what is below it has to wait */
        else if ((rn_directory_has(directory, view.handle) & tiers) != tiers)
            add_to_chain(directory, node, n_chain++);
    }
    while (n_chain > 0 && n_first < n)
        first[n_first++] = directory->chain[--n_chain];
    return n_first;
}

static uint8_t lasting(const struct rn_directory *directory)
{
    return directory->tiers & directory->writes & (uint8_t) ~(RN_TIER_BIT(RN_TIER_WARM) | directory->refused);
}

static uint32_t depth_of(const struct rn_directory *directory, struct rn_prefix_ref node)
{
    struct rn_prefix_view view;

    return rn_prefix_tree_look(&directory->blocks->tree, node, &view) ? view.n_blocks : 0;
}

static struct rn_durable_prefix *wanted_at(struct rn_directory *directory, uint32_t nth)
{
    return &directory->wanted[(directory->first_wanted + nth) % RN_DIRECTORY_MAX_WANTED];
}

/* The first one goes, to the end if it has to wait. */
static void pass_wanted(struct rn_directory *directory, bool waits)
{
    struct rn_durable_prefix first = *wanted_at(directory, 0);

    RN_ASSERT(directory->n_wanted > 0 && directory->n_asked_for >= first.asked_for);
    directory->first_wanted = (directory->first_wanted + 1) % RN_DIRECTORY_MAX_WANTED;
    directory->refused = 0;
    if (waits) {
        *wanted_at(directory, directory->n_wanted - 1) = first;
        return;
    }
    directory->n_wanted--;
    directory->n_asked_for -= first.asked_for;
}

/* Copies may be made now: nobody computes, they were asked for, or they can be paid. */
static bool may_copy(struct rn_directory *directory, bool asked_for)
{
    bool may = directory->idle == RN_IDLE_YES || asked_for || directory->closing ||
               rn_copy_budget_allows(&directory->budget, most_lent(directory));

    directory->unpaid |= !may;
    return may;
}

/* The next blocks of a prefix that is wanted in the tiers that last. */
void rn_directory_send_wanted(struct rn_directory *directory)
{
    for (uint32_t left = directory->n_wanted; left > 0 && !directory->down_out; left--) {
        struct rn_durable_prefix *wanted = wanted_at(directory, 0);
        struct rn_prefix_ref nodes[RN_MOVE_BLOCKS];
        bool waits = false;
        uint32_t n = lasting(directory) == 0
                         ? 0
                         : lacking(directory, wanted->node, lasting(directory), nodes, most_lent(directory), &waits);

        /* each of its blocks once: a tier that is too small for them would lose the first ones to the last */
        if (n > 0 && wanted->n_copied < depth_of(directory, wanted->node)) {
            if (!may_copy(directory, directory->n_asked_for > 0)) /* and all that was wanted before what is asked for */
                return;
            send_down(directory, nodes, n, lasting(directory), true);
        }
        wanted->n_copied += n;
        if (!directory->down_out)
            pass_wanted(directory, waits);
    }
}

static bool needs_copy(const struct rn_directory *directory, const struct rn_prefix_view *view)
{
    const struct rn_directory_entry *entry = rn_directory_entry_of(directory, view->handle);

    if (view->state != RN_PREFIX_READY)
        return false;
    return entry == NULL || ((entry->has & RN_TIER_BIT(RN_TIER_WARM)) == 0 && !entry->pushed && !entry->writing);
}

/* Two of the oldest may have the same block before them. */
static bool is_among(struct rn_prefix_ref node, const struct rn_prefix_ref *nodes, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (nodes[i].node == node.node)
            return true;
    return false;
}

/* Of the prefix that ends in the node, those that need a copy: the first ones, added to nodes[n]; how many there are
 * then. */
static uint32_t add_prefix(struct rn_directory *directory, struct rn_prefix_ref node, struct rn_prefix_ref *nodes,
                           uint32_t n, uint32_t *n_looks)
{
    struct rn_prefix_view view;
    uint32_t n_chain = 0;

    for (; rn_prefix_tree_look(&directory->blocks->tree, node, &view) && view.state != RN_PREFIX_ROOT;
         node = view.parent) {
        if (needs_copy(directory, &view) && !is_among(node, nodes, n))
            add_to_chain(directory, node, n_chain++);
        ++*n_looks;
    }
    while (n_chain > 0 && n < most_lent(directory))
        nodes[n++] = directory->chain[--n_chain];
    return n;
}

static bool is_filling(const struct rn_directory *directory)
{
    return (directory->tiers & RN_TIER_BIT(RN_TIER_WARM)) != 0 && directory->calm != directory->blocks->tree.now &&
           directory->blocks->pool.n_free < directory->blocks->pool.n_blocks / 2;
}

/* The blocks that would be evicted next, and those before them. */
void rn_directory_send_oldest(struct rn_directory *directory)
{
    struct rn_prefix_ref oldest[OLDEST], nodes[RN_MOVE_BLOCKS];
    uint32_t n_oldest, n = 0, n_looks = 0;

    if (directory->down_out || !is_filling(directory) || !may_copy(directory, false))
        return;
    n_oldest = rn_prefix_tree_oldest(&directory->blocks->tree, oldest, OLDEST);
    for (uint32_t i = 0; i < n_oldest && n < most_lent(directory) && n_looks < LOOKS; i++)
        n = add_prefix(directory, oldest[i], nodes, n, &n_looks);
    if (n > 0)
        send_down(directory, nodes, n, RN_TIER_BIT(RN_TIER_WARM), false);
    if (!directory->down_out)
        directory->calm = directory->blocks->tree.now;
}

/* The prefix that ends in the node shall be in the tiers that last; asked_for: the request said so. */
static void want(struct rn_directory *directory, struct rn_prefix_ref node, bool asked_for)
{
    struct rn_durable_prefix *last = directory->n_wanted > 0 ? wanted_at(directory, directory->n_wanted - 1) : NULL;
    bool again = last != NULL && last->node.node == node.node && last->node.generation == node.generation;

    if ((lasting(directory) | directory->refused) == 0)
        return;
    if (!again && directory->n_wanted < RN_DIRECTORY_MAX_WANTED) {
        last = wanted_at(directory, directory->n_wanted++);
        *last = (struct rn_durable_prefix){.node = node};
    } else if (!again) {
        if (!asked_for || last->asked_for)
            return;
        *last =
            (struct rn_durable_prefix){.node = node}; /* before it is the budget that decides; this one is asked for */
    }
    RN_ASSERT(directory->n_wanted > 0 && directory->n_wanted <= RN_DIRECTORY_MAX_WANTED);
    directory->n_asked_for += asked_for && !last->asked_for;
    last->asked_for |= asked_for;
}

void rn_directory_left(struct rn_directory *directory, const struct rn_request *request, struct rn_prefix_ref last,
                       uint32_t n)
{
    uint32_t per_block = directory->context->limits->block_tokens, n_wanted, n_new;
    struct rn_prefix_salt salt = rn_request_salt(request);
    struct rn_prefix_view view;

    if (directory->tiers == 0 || n == 0)
        return;
    RN_CHECK((uint64_t)n * per_block <= request->capacity); /* behind a stop string fewer tokens count than are here */
    n_new = n > request->n_shared ? n - request->n_shared : 0; /* a session's blocks need not be in the tree */
    n_wanted = rn_doorkeeper_note(&directory->door, salt, request->tokens, n, per_block);
    if (n_new * per_block >= LONG_TOKENS || request->pin_prefix == 1)
        n_wanted = n;
    while (n_wanted > 0 && rn_prefix_tree_look(&directory->blocks->tree, last, &view) && view.n_blocks > n_wanted)
        last = view.parent;
    if (n_wanted > 0)
        want(directory, last, request->pin_prefix == 1);
}

bool rn_directory_has_copies(const struct rn_directory *directory)
{
    return directory->n_wanted > 0 || is_filling(directory);
}

/* ---- Answers ---- */

static void settle_item(struct rn_directory *directory, struct rn_move_item *item)
{
    struct rn_directory_entry *entry = rn_directory_entry_of(directory, item->tier_directory);

    RN_ASSERT(directory->blocks->n_lent >= item->idle && (entry == NULL || entry->writing));
    directory->blocks->n_lent -= item->idle;
    if (item->block != RN_MOVE_NO_BLOCK)
        rn_tier_blocks_release_lent(directory->blocks, item->block);
    if (entry == NULL)
        return;
    entry->writing = false;
    if ((item->to & ~item->has & RN_TIER_BIT(RN_TIER_WARM)) != 0)
        entry->pushed = true; /* it is too small, or did not take it */
    rn_directory_settle(directory, item->tier_directory, item->has);
}

/* What could not be copied now is not tried again at once. */
void rn_directory_settle_down(struct rn_directory *directory, struct rn_move *move)
{
    for (uint32_t i = 0; i < move->n; i++)
        settle_item(directory, &move->items[i]);
    if (directory->down_wanted)
        directory->refused |= move->refused; /* the others shall have it still */
    else if (move->n_errors > 0)
        directory->calm = directory->blocks->tree.now;
}
