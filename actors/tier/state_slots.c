/* Slots of recurrent state: see state_slots.h. */
#include "actors/tier/state_slots.h"

#include <string.h>

#include "base/check.h"
#include "model/backend.h"

static const struct rn_prefix_ref nowhere = {RN_PREFIX_NO_NODE, 0};

runnel_status rn_state_slots_init(struct rn_state_slots *states, struct rn_heap *heap, struct rn_prefix_tree *tree,
                                  uint32_t n, uint32_t max_leases)
{
    *states = (struct rn_state_slots){.heap = heap, .tree = tree, .n = n, .max_leases = max_leases};
    if (n == 0)
        return RUNNEL_OK;
    states->slots = rn_calloc(heap, n, sizeof *states->slots);
    return states->slots != NULL ? RUNNEL_OK : RUNNEL_NO_MEMORY;
}

void rn_state_slots_fini(struct rn_state_slots *states)
{
    for (uint32_t i = 0; i < states->n; i++)
        RN_CHECK(states->slots[i].use != RN_STATE_RUNS && states->slots[i].readers == 0);
    rn_free(states->heap, states->slots);
}

/* The node of a checkpoint, while it is ready. */
static bool look(const struct rn_state_slots *states, const struct rn_state_slot *slot, struct rn_prefix_view *view)
{
    return slot->use == RN_STATE_KEPT && rn_prefix_tree_look(states->tree, slot->at, view) &&
           view->state == RN_PREFIX_READY;
}

/* ---- Finding ---- */

static uint32_t find_at(const struct rn_state_slots *states, struct rn_prefix_ref node)
{
    for (uint32_t i = 0; i < states->n; i++)
        if (states->slots[i].use == RN_STATE_KEPT && states->slots[i].at.node == node.node &&
            states->slots[i].at.generation == node.generation)
            return i;
    return RN_NO_STATE;
}

uint32_t rn_state_slots_find(const struct rn_state_slots *states, const uint32_t *blocks, uint32_t n,
                             uint32_t *n_blocks)
{
    uint32_t best = RN_NO_STATE;
    struct rn_prefix_view view;

    *n_blocks = 0;
    for (uint32_t i = 0; i < states->n; i++) {
        if (!look(states, &states->slots[i], &view) || view.n_blocks > n || view.n_blocks <= *n_blocks ||
            blocks[view.n_blocks - 1] != view.block)
            continue;
        *n_blocks = view.n_blocks;
        best = i;
    }
    return best;
}

/* ---- Taking ---- */

/* The less it is worth, the less: 0 free, then checkpoints. */
static uint64_t worth(const struct rn_state_slots *states, const struct rn_state_slot *slot)
{
    struct rn_prefix_view view;

    if (slot->use == RN_STATE_FREE || !look(states, slot, &view))
        return slot->use != RN_STATE_FREE;
    return (view.pins > 0 ? UINT64_C(1) << 63 : 2) + slot->last_use;
}

/* A slot that may be had, that of the least worth; RN_NO_STATE: there is none. */
static uint32_t take_one(struct rn_state_slots *states)
{
    uint32_t best = RN_NO_STATE;
    uint64_t least = UINT64_MAX;

    for (uint32_t i = 0; i < states->n && least > 0; i++) {
        const struct rn_state_slot *slot = &states->slots[i];

        if (slot->use == RN_STATE_RUNS || slot->readers > 0 || worth(states, slot) >= least)
            continue;
        best = i;
        least = worth(states, slot);
    }
    if (best != RN_NO_STATE)
        states->slots[best] = (struct rn_state_slot){.use = RN_STATE_RUNS, .at = nowhere};
    return best;
}

static void set_free(struct rn_state_slots *states, uint32_t slot)
{
    RN_ASSERT(slot < states->n && states->slots[slot].use == RN_STATE_RUNS);
    states->slots[slot] = (struct rn_state_slot){.use = RN_STATE_FREE, .at = nowhere};
}

static void stop_reading(struct rn_state_slots *states, uint32_t slot)
{
    RN_CHECK(slot < states->n && states->slots[slot].use == RN_STATE_KEPT && states->slots[slot].readers > 0);
    states->slots[slot].readers--;
}

static void start_reading(struct rn_state_slots *states, uint32_t slot)
{
    RN_CHECK(slot < states->n && states->slots[slot].use == RN_STATE_KEPT);
    states->slots[slot].readers++;
    states->slots[slot].last_use = ++states->now;
}

/* The slot in which the stream begins. */
static bool take_first(struct rn_state_slots *states, struct rn_state_lease *lease, uint32_t source)
{
    uint32_t first;

    if (source != RN_NO_STATE)
        start_reading(states, source);
    first = take_one(states);
    if (first == RN_NO_STATE && source != RN_NO_STATE) {
        stop_reading(states, source);
        source = RN_NO_STATE;
        first = take_one(states); /* the source, if nobody else reads it */
    }
    *lease =
        (struct rn_state_lease){.source = source, .n = first != RN_NO_STATE, .slots = {first}, .spare = RN_NO_STATE};
    return first != RN_NO_STATE;
}

static void tell(const struct rn_state_lease *lease, struct rn_request *request, uint32_t from)
{
    request->state = lease->slots[0];
    request->state_from = from;
    request->state_spare = lease->spare;
    request->n_behind = 0;
    request->n_turns = lease->n - 1;
    for (uint32_t i = 0; i < request->n_turns; i++)
        request->turns[i] = (struct rn_state_turn){lease->ends[i], lease->slots[i + 1]};
}

/* A slot for drafts; none where each stream that may still come could not have one then. */
static uint32_t take_spare(struct rn_state_slots *states)
{
    uint32_t n_left = 0;

    for (uint32_t i = 0; i < states->n; i++)
        n_left += states->slots[i].use != RN_STATE_RUNS && states->slots[i].readers == 0;
    return n_left > states->max_leases - states->n_leases ? take_one(states) : RN_NO_STATE;
}

bool rn_state_slots_take(struct rn_state_slots *states, struct rn_state_lease *lease, struct rn_request *request,
                         uint32_t source, const uint32_t *ends, uint32_t n_ends)
{
    uint32_t n_free = 0, next;

    RN_ASSERT(lease->n == 0 && n_ends <= RN_STATE_TURNS && (source == RN_NO_STATE || source < states->n));
    if (!take_first(states, lease, source))
        return false;
    while (n_free < n_ends && lease->source == source && (next = take_one(states)) != RN_NO_STATE)
        lease->slots[++n_free] = next;
    lease->n += n_free;
    states->n_leases++;
    RN_ASSERT(states->n_leases <= states->max_leases);
    if (request->draft_max > 0)
        lease->spare = take_spare(states);
    memcpy(lease->ends, ends + (n_ends - n_free), n_free * sizeof *ends);
    tell(lease, request, source);
    RN_ASSERT(source == RN_NO_STATE || lease->source == source || lease->slots[0] == source || states->n == 0);
    return true;
}

/* ---- Checkpoints ---- */

/* The node that ends at so many blocks, on the way to `node`; nowhere: not that many are ready. */
static struct rn_prefix_ref node_at(const struct rn_state_slots *states, struct rn_prefix_ref node, uint32_t n_blocks)
{
    struct rn_prefix_view view;

    while (rn_prefix_tree_look(states->tree, node, &view) && view.n_blocks > n_blocks)
        node = view.parent;
    return rn_prefix_tree_look(states->tree, node, &view) && view.n_blocks == n_blocks && view.state == RN_PREFIX_READY
               ? node
               : nowhere;
}

/* The stream has come to where it leaves the slot behind. One of two checkpoints of a node is of no use. */
static void leave_behind(struct rn_state_slots *states, uint32_t slot, struct rn_prefix_ref node)
{
    RN_ASSERT(states->slots[slot].use == RN_STATE_RUNS);
    if (node.node != RN_PREFIX_NO_NODE && find_at(states, node) != RN_NO_STATE)
        node = nowhere;
    states->slots[slot] = (struct rn_state_slot){RN_STATE_KEPT, node, 1, ++states->now};
}

bool rn_state_slots_reached(struct rn_state_slots *states, struct rn_state_lease *lease, uint32_t n_positions,
                            struct rn_prefix_ref at)
{
    uint32_t per_block = states->tree->options.block_tokens;
    bool was_read = lease->source != RN_NO_STATE;

    RN_ASSERT(lease->n > 0 && lease->n_left < lease->n);
    if (lease->source != RN_NO_STATE)
        stop_reading(states, lease->source);
    lease->source = RN_NO_STATE;
    for (;;) {
        if (lease->reads && n_positions > lease->ends[lease->n_left - 1]) {
            stop_reading(states, lease->slots[lease->n_left - 1]);
            lease->reads = false;
            was_read = true;
        }
        if (lease->n_left + 1 == lease->n || n_positions < lease->ends[lease->n_left])
            return was_read;
        RN_ASSERT(!lease->reads && lease->ends[lease->n_left] % per_block == 0);
        leave_behind(states, lease->slots[lease->n_left], node_at(states, at, lease->ends[lease->n_left] / per_block));
        lease->n_left++;
        lease->reads = true;
    }
}

void rn_state_slots_leave(struct rn_state_slots *states, struct rn_state_lease *lease, bool good)
{
    if (lease->n == 0)
        return;
    if (lease->source != RN_NO_STATE)
        stop_reading(states, lease->source);
    if (lease->reads)
        stop_reading(states, lease->slots[lease->n_left - 1]);
    for (uint32_t i = lease->n_left; i < lease->n; i++)
        set_free(states, lease->slots[i]);
    if (lease->spare != RN_NO_STATE)
        set_free(states, lease->spare);
    states->n_leases--;
    /* Where one of these has become another's meanwhile, one checkpoint more is lost. */
    for (uint32_t i = 0; !good && i < lease->n_left; i++)
        if (states->slots[lease->slots[i]].use == RN_STATE_KEPT)
            states->slots[lease->slots[i]].at = nowhere;
    *lease = (struct rn_state_lease){.n = 0};
}

/* ---- Check ---- */

bool rn_state_slots_check(const struct rn_state_slots *states, const struct rn_state_lease *lease)
{
    if (lease->n > RN_STATE_TURNS + 1 || (lease->n > 0 && lease->n_left >= lease->n) ||
        (lease->n == 0 && (lease->n_left > 0 || lease->reads)) || (lease->reads && lease->n_left == 0))
        return false;
    for (uint32_t i = lease->n_left; i < lease->n; i++)
        if (lease->slots[i] >= states->n || states->slots[lease->slots[i]].use != RN_STATE_RUNS)
            return false;
    if (lease->n > 0 && lease->spare != RN_NO_STATE &&
        (lease->spare >= states->n || states->slots[lease->spare].use != RN_STATE_RUNS))
        return false;
    if (lease->n > 0 && lease->source != RN_NO_STATE && states->slots[lease->source].readers == 0)
        return false;
    return !lease->reads || states->slots[lease->slots[lease->n_left - 1]].readers > 0;
}
