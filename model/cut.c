/* A plan cut in two: see cut.h. */
#include "model/cut.h"

#include <string.h>

#include "base/check.h"
#include "model/build/build.h"
#include "model/op_info.h"

/* A value that the back reads and the front has computed. */
struct crossing {
    int16_t slot; /* of the whole plan */
    uint32_t at;  /* where in the front's features */
    int32_t tap;  /* the op of the front that gives it out in the whole plan; -1: ops of the back read it */
};

struct cut {
    const struct rn_plan *plan;
    uint32_t at; /* the first op of the back */
    uint32_t n_kv, n_states;
    uint32_t n_crossings, width;
    struct crossing *crossings;
};

/* ---- Where ---- */

static bool is_numbered(const struct rn_op *op)
{
    return rn_op_info(op->kind)->memory == RN_MEMORY_NOTHING && op->layer >= 0;
}

/* The first op of a block that is not among the first n, where none behind it belongs to these; n_ops: there is none.
 * An op with memory of its own has the number of that in place of its block's, and goes with those before it. */
static uint32_t find(const struct rn_plan *plan, uint32_t n)
{
    uint32_t at = 0;

    while (at < plan->n_ops && !(is_numbered(&plan->ops[at]) && (uint32_t)plan->ops[at].layer >= n))
        at++;
    for (uint32_t i = at; i < plan->n_ops; i++)
        if (is_numbered(&plan->ops[i]) && (uint32_t)plan->ops[i].layer < n)
            return plan->n_ops;
    return at;
}

/* Layers are numbered in the order of their first ops: the front has those up to a number, if the back has none of
 * them. */
static bool count_memory(struct cut *cut)
{
    const struct rn_plan *plan = cut->plan;

    for (uint32_t i = 0; i < plan->n_ops; i++) {
        enum rn_op_memory memory = rn_op_info(plan->ops[i].kind)->memory;
        uint32_t *n = memory == RN_MEMORY_STATE ? &cut->n_states : &cut->n_kv;
        uint32_t layer = (uint32_t)plan->ops[i].layer;

        if (memory == RN_MEMORY_NOTHING)
            continue;
        if (i >= cut->at && layer < *n)
            return false;
        if (i < cut->at && layer >= *n)
            *n = layer + 1;
    }
    return true;
}

static void add_crossing(struct cut *cut, int16_t slot, int32_t tap)
{
    if (cut->crossings != NULL)
        cut->crossings[cut->n_crossings] = (struct crossing){slot, cut->width, tap};
    cut->n_crossings++;
    cut->width += cut->plan->slots[slot].width;
}

/* What ops of the back read before one of them has written it, and what the front gives out. False: a value that does
 * not belong to a row each, or is no float. */
static bool find_crossings(struct cut *cut)
{
    const struct rn_plan *plan = cut->plan;
    bool known[INT16_MAX] = {false}; /* it crosses, or the back has written it */

    cut->n_crossings = cut->width = 0;
    for (uint32_t i = 0; i < cut->at; i++) {
        if (plan->ops[i].kind == RN_OP_SELECT)
            return false;
        if (plan->ops[i].kind == RN_OP_TAP)
            add_crossing(cut, plan->ops[i].a, (int32_t)i);
    }
    for (uint32_t i = cut->at; i < plan->n_ops; i++) {
        struct rn_op_touched t = rn_op_touched(plan, &plan->ops[i]);

        for (uint32_t r = 0; r < t.n_reads; r++) {
            if ((uint32_t)t.reads[r] >= plan->n_slots || known[t.reads[r]])
                continue;
            if (plan->slots[t.reads[r]].is_i32 || plan->slots[t.reads[r]].selected)
                return false;
            known[t.reads[r]] = true;
            add_crossing(cut, (int16_t)t.reads[r], -1);
        }
        for (uint32_t w = 0; w < t.n_writes; w++)
            if ((uint32_t)t.writes[w] < plan->n_slots)
                known[t.writes[w]] = true;
    }
    return cut->n_crossings > 0;
}

/* All of it but the crossings' memory. */
static bool look(struct cut *cut, const struct rn_plan *plan, uint32_t n)
{
    *cut = (struct cut){.plan = plan};
    if (n == 0 || n >= plan->n_layers || plan->inputs_width > 0)
        return false;
    cut->at = find(plan, n);
    return cut->at < plan->n_ops && count_memory(cut) && find_crossings(cut);
}

bool rn_plan_can_cut(const struct rn_plan *plan, uint32_t n)
{
    struct cut cut;

    return look(&cut, plan, n);
}

/* ---- A part ---- */

struct part {
    const struct cut *cut;
    struct rn_plan *plan;
    int16_t *slot_of;   /* [slots of the whole plan]: the part's; -1: it has none yet */
    int32_t *weight_of; /* likewise */
    uint32_t first_kv, first_state;
};

static int16_t new_slot(struct part *part, struct rn_slot slot)
{
    part->plan->slots[part->plan->n_slots] = slot;
    return (int16_t)part->plan->n_slots++;
}

static int16_t slot_of(struct part *part, int16_t slot)
{
    if (slot < 0)
        return -1;
    if (part->slot_of[slot] < 0)
        part->slot_of[slot] = new_slot(part, part->cut->plan->slots[slot]);
    return part->slot_of[slot];
}

static int32_t weight_of(struct part *part, int32_t weight)
{
    struct rn_plan *plan = part->plan;

    if (weight < 0)
        return -1;
    if (part->weight_of[weight] < 0) {
        part->weight_of[weight] = (int32_t)plan->n_weights;
        plan->weights[plan->n_weights++] = part->cut->plan->weights[weight];
        plan->parameters += part->cut->plan->weights[weight].tensor->elements;
        plan->weight_bytes += part->cut->plan->weights[weight].tensor->bytes;
    }
    return part->weight_of[weight];
}

static void add_op(struct part *part, struct rn_op op)
{
    part->plan->ops[part->plan->n_ops++] = op;
}

/* An op of the whole plan. */
static void copy_op(struct part *part, struct rn_op op)
{
    enum rn_op_memory memory = rn_op_info(op.kind)->memory;

    op.a = slot_of(part, op.a);
    op.b = slot_of(part, op.b);
    op.out = slot_of(part, op.out);
    op.out2 = slot_of(part, op.out2);
    op.weight = weight_of(part, op.weight);
    op.bias = weight_of(part, op.bias);
    if (memory == RN_MEMORY_STATE)
        op.layer -= (int32_t)part->first_state;
    else if (memory != RN_MEMORY_NOTHING)
        op.layer -= (int32_t)part->first_kv;
    op.second -= op.second > 0 ? part->first_kv : 0;
    add_op(part, op);
}

/* `rope` and `inv_freq` are the whole plan's, copied: an op keeps its number of them. */
static bool copy_ropes(struct rn_plan *plan, const struct rn_plan *whole)
{
    for (uint32_t i = 0; i < whole->n_ropes; i++) {
        uint32_t n = whole->ropes[i].dims / 2;

        plan->ropes[i] = whole->ropes[i];
        plan->ropes[i].inv_freq = rn_alloc(plan->heap, n, sizeof(double));
        if (plan->ropes[i].inv_freq == NULL)
            return false;
        memcpy(plan->ropes[i].inv_freq, whole->ropes[i].inv_freq, n * sizeof(double));
        plan->n_ropes++;
    }
    return true;
}

/* Layers [first, first + n) of the whole plan's; states begin at the part's own start. */
static void copy_memory(struct part *part, uint32_t n_kv, uint32_t n_states)
{
    const struct rn_plan *whole = part->cut->plan;
    struct rn_plan *plan = part->plan;
    uint64_t begin = part->first_state < whole->n_state_layers ? whole->state_layers[part->first_state].at : 0;
    uint64_t end = part->first_state + n_states < whole->n_state_layers
                       ? whole->state_layers[part->first_state + n_states].at * sizeof(float)
                       : whole->state_bytes;

    for (uint32_t i = 0; i < n_kv; i++)
        plan->kv_layers[i] = whole->kv_layers[part->first_kv + i];
    for (uint32_t i = 0; i < n_states; i++) {
        plan->state_layers[i] = whole->state_layers[part->first_state + i];
        plan->state_layers[i].at -= begin;
    }
    plan->n_kv_layers = n_kv;
    plan->n_state_layers = n_states;
    plan->state_bytes = n_states > 0 ? end - begin * sizeof(float) : 0;
}

/* What both parts have of the whole plan, and room for everything. */
static bool open_part(struct part *part, struct rn_heap *heap, const struct cut *cut)
{
    const struct rn_plan *whole = cut->plan;
    struct rn_plan *plan = rn_calloc(heap, 1, sizeof *plan);

    *part = (struct part){.cut = cut, .plan = plan};
    if (plan == NULL)
        return false;
    *plan = *whole;
    plan->heap = heap;
    plan->n_ops = plan->n_slots = plan->n_weights = plan->n_ropes = 0;
    plan->parameters = plan->weight_bytes = 0;
    plan->ops = rn_calloc(heap, (size_t)whole->n_ops + 2 * (size_t)cut->n_crossings + 1, sizeof *plan->ops);
    plan->slots = rn_calloc(heap, (size_t)whole->n_slots + cut->n_crossings + 1, sizeof *plan->slots);
    plan->weights = rn_calloc(heap, (size_t)whole->n_weights + 1, sizeof *plan->weights);
    plan->ropes = rn_calloc(heap, (size_t)whole->n_ropes + 1, sizeof *plan->ropes);
    plan->kv_layers = rn_calloc(heap, (size_t)whole->n_kv_layers + 1, sizeof *plan->kv_layers);
    plan->state_layers = rn_calloc(heap, (size_t)whole->n_state_layers + 1, sizeof *plan->state_layers);
    part->slot_of = rn_alloc(heap, whole->n_slots, sizeof *part->slot_of);
    part->weight_of = rn_alloc(heap, (size_t)whole->n_weights + 1, sizeof *part->weight_of);
    if (plan->ops == NULL || plan->slots == NULL || plan->weights == NULL || plan->ropes == NULL ||
        plan->kv_layers == NULL || plan->state_layers == NULL || part->slot_of == NULL || part->weight_of == NULL)
        return false;
    for (uint32_t i = 0; i < whole->n_slots; i++)
        part->slot_of[i] = -1;
    for (uint32_t i = 0; i < whole->n_weights; i++)
        part->weight_of[i] = -1;
    return copy_ropes(plan, whole);
}

/* The plan, which is the caller's now; NULL, where it could not be opened. */
static struct rn_plan *close_part(struct part *part, struct rn_heap *heap, bool good)
{
    rn_free(heap, part->slot_of);
    rn_free(heap, part->weight_of);
    RN_ASSERT(!good || rn_plan_check(part->plan));
    if (good)
        return part->plan;
    rn_plan_free(part->plan);
    return NULL;
}

/* ---- Front and back ---- */

static struct rn_plan *make_front(struct rn_heap *heap, const struct cut *cut)
{
    struct part part;
    uint32_t c = 0;

    if (!open_part(&part, heap, cut))
        return close_part(&part, heap, false);
    part.plan->features_width = cut->width;
    part.plan->normed_at = part.plan->n_scores = 0;
    part.plan->scores_of_tokens = part.plan->taps_selected = false;
    part.plan->logits_slot = -1;
    copy_memory(&part, cut->n_kv, cut->n_states);
    for (uint32_t i = 0; i < cut->at; i++) {
        copy_op(&part, cut->plan->ops[i]);
        if (cut->plan->ops[i].kind == RN_OP_TAP) /* of the crossings, which begin with these in their order */
            part.plan->ops[part.plan->n_ops - 1].group = cut->crossings[c++].at;
    }
    for (; c < cut->n_crossings; c++) {
        struct rn_op tap = rn_build_bare(RN_OP_TAP, -1);

        tap.a = slot_of(&part, cut->crossings[c].slot);
        tap.group = cut->crossings[c].at;
        add_op(&part, tap);
    }
    return close_part(&part, heap, true);
}

/* What has crossed, in slots of its own; and the front's TAPs, of these. */
static void take_crossings(struct part *part)
{
    const struct cut *cut = part->cut;
    struct rn_op input = rn_build_bare(RN_OP_INPUT, -1);

    input.out = new_slot(part, (struct rn_slot){.width = cut->width});
    add_op(part, input);
    for (uint32_t c = 0; c < cut->n_crossings; c++) {
        const struct crossing *crossing = &cut->crossings[c];
        struct rn_op split = rn_build_bare(RN_OP_SPLIT, -1), tap;

        split.a = input.out;
        split.heads = 1;
        split.group = crossing->at;
        split.k_dim = cut->plan->slots[crossing->slot].width;
        split.out =
            crossing->tap < 0 ? slot_of(part, crossing->slot) : new_slot(part, (struct rn_slot){.width = split.k_dim});
        add_op(part, split);
        if (crossing->tap < 0)
            continue;
        tap = cut->plan->ops[crossing->tap];
        tap.a = split.out;
        add_op(part, tap);
    }
}

static struct rn_plan *make_back(struct rn_heap *heap, const struct cut *cut)
{
    const struct rn_plan *whole = cut->plan;
    struct part part;

    if (!open_part(&part, heap, cut))
        return close_part(&part, heap, false);
    part.plan->inputs_width = cut->width;
    part.first_kv = cut->n_kv;
    part.first_state = cut->n_states;
    copy_memory(&part, whole->n_kv_layers - cut->n_kv, whole->n_state_layers - cut->n_states);
    take_crossings(&part);
    for (uint32_t i = cut->at; i < whole->n_ops; i++)
        copy_op(&part, whole->ops[i]);
    part.plan->logits_slot = slot_of(&part, whole->logits_slot);
    return close_part(&part, heap, true);
}

runnel_status rn_plan_cut(struct rn_heap *heap, const struct rn_plan *plan, uint32_t n, struct rn_plan **front,
                          struct rn_plan **back, runnel_error *error)
{
    struct cut cut;

    *front = *back = NULL;
    if (!look(&cut, plan, n))
        return rn_error_set(error, RUNNEL_UNSUPPORTED, "architecture %s cannot be cut behind %u of %u blocks",
                            plan->architecture, n, plan->n_layers);
    cut.crossings = rn_calloc(heap, cut.n_crossings, sizeof *cut.crossings);
    if (cut.crossings != NULL) {
        find_crossings(&cut);
        *front = make_front(heap, &cut);
        *back = make_back(heap, &cut);
        rn_free(heap, cut.crossings);
    }
    if (*front != NULL && *back != NULL)
        return RUNNEL_OK;
    rn_plan_free(*front);
    rn_plan_free(*back);
    *front = *back = NULL;
    return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for two parts of the plan");
}
