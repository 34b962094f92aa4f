/* Putting the ops of adapters into a plan: see adapter.h.
 *
 *     o = MATMUL(W, a)          h = EXPERT_MATMUL(A, a, ids)   [rank]
 *                               d = EXPERT_MATMUL(B, h, ids)
 *                               o = ADAPT(o, d)
 *
 * ids, the row's adapter, comes once, from ADAPTER, and behind SELECT once more. Products of one input stay beside each
 * other, as devices like them: what adapters add comes in front of the first op that touches a product. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "model/adapter.h"
#include "model/build/build.h"
#include "model/op_info.h"

enum {
    WAITING = 8,    /* products at most whose ops wait */
    OPS_OF_ONE = 3, /* that a product gets */
    WEIGHTS_OF_ONE = 2,
    ROLES = 2 /* slots of a product: h and d */
};

/* A slot made here, for the product that is `lane`-th of those that wait. Where it is free again, it serves the next
 * ones. */
struct made {
    uint32_t lane, role;
};

struct adapting {
    struct rn_plan *plan; /* the one that is made; ops, slots and weights are its own */
    const struct rn_plan *old;
    const struct rn_adapters *adapters;
    struct made *made;         /* [slots behind the old ones] */
    int16_t ids, selected_ids; /* -1: none yet */
    uint32_t waiting[WAITING]; /* ops of the old plan */
    uint32_t n_waiting;
};

static bool stacks_of(const struct adapting *w, const struct rn_op *op, struct rn_adapter_stacks *stacks)
{
    return op->kind == RN_OP_MATMUL && rn_adapters_of(w->adapters, w->old->weights[op->weight].tensor, stacks);
}

static struct rn_op op_of(enum rn_op_kind kind, int32_t layer)
{
    struct rn_op op = rn_build_bare(kind, layer);

    op.adapted = true;
    return op;
}

static int16_t new_slot(struct adapting *w, struct rn_slot slot)
{
    w->plan->slots[w->plan->n_slots] = slot;
    return (int16_t)w->plan->n_slots++;
}

/* One of the same rows as `like`. */
static int16_t slot_for(struct adapting *w, struct rn_slot like, uint32_t width, uint32_t lane, uint32_t role)
{
    const uint32_t first = w->old->n_slots;

    like.width = width;
    like.is_i32 = false;
    for (uint32_t i = first; i < w->plan->n_slots; i++) {
        const struct rn_slot *slot = &w->plan->slots[i];

        if (!slot->is_i32 && slot->width == width && slot->selected == like.selected && slot->logits == like.logits &&
            w->made[i - first].lane == lane && w->made[i - first].role == role)
            return (int16_t)i;
    }
    w->made[w->plan->n_slots - first] = (struct made){lane, role};
    return new_slot(w, like);
}

/* The weight of a stack. */
static int32_t weight_of(struct adapting *w, const struct rn_tensor *tensor)
{
    struct rn_plan *plan = w->plan;

    for (uint32_t i = w->old->n_weights; i < plan->n_weights; i++)
        if (plan->weights[i].tensor == tensor)
            return (int32_t)i;
    plan->weights[plan->n_weights] =
        rn_build_weight(tensor, (uint32_t)tensor->dims[0], (uint32_t)tensor->dims[1], (uint32_t)tensor->dims[2]);
    plan->weight_bytes += tensor->bytes;
    return (int32_t)plan->n_weights++;
}

static void add(struct adapting *w, const struct rn_op *op)
{
    w->plan->ops[w->plan->n_ops++] = *op;
}

/* Ids for rows like those of `slot`. */
static int16_t ids_for(const struct adapting *w, const struct rn_slot *slot)
{
    RN_ASSERT(w->ids >= 0 && (!slot->selected || w->selected_ids >= 0));
    return slot->selected ? w->selected_ids : w->ids;
}

static void add_product(struct adapting *w, const struct rn_op *product, const struct rn_adapter_stacks *stacks,
                        uint32_t lane)
{
    const struct rn_slot from = w->old->slots[product->a], to = w->old->slots[product->out];
    struct rn_op a = op_of(RN_OP_EXPERT_MATMUL, product->layer), b = a, sum = op_of(RN_OP_ADAPT, product->layer);

    a.experts = b.experts = rn_adapters_count(w->adapters) + 1;
    a.used = b.used = 1;
    a.b = b.b = ids_for(w, &from);
    a.a = product->a;
    a.weight = weight_of(w, stacks->a);
    a.out = slot_for(w, from, stacks->rank, lane, 0);
    b.a = a.out;
    b.weight = weight_of(w, stacks->b);
    b.out = slot_for(w, to, to.width, lane, 1);
    sum.a = sum.out = product->out;
    sum.b = b.out;
    add(w, &a);
    add(w, &b);
    add(w, &sum);
}

static void add_waiting(struct adapting *w)
{
    struct rn_adapter_stacks stacks;

    for (uint32_t i = 0; i < w->n_waiting; i++)
        if (stacks_of(w, &w->old->ops[w->waiting[i]], &stacks))
            add_product(w, &w->old->ops[w->waiting[i]], &stacks, i);
    w->n_waiting = 0;
}

static bool has(const int32_t *list, uint32_t n, int32_t slot)
{
    for (uint32_t i = 0; i < n; i++)
        if (list[i] == slot)
            return true;
    return false;
}

/* The op reads or writes what a product that waits has given, or writes what that has read. */
static bool is_awaited(const struct adapting *w, const struct rn_op *op)
{
    const struct rn_op_touched t = rn_op_touched(w->old, op);

    for (uint32_t i = 0; i < w->n_waiting; i++) {
        const struct rn_op *product = &w->old->ops[w->waiting[i]];

        if (has(t.reads, t.n_reads, product->out) || has(t.writes, t.n_writes, product->out) ||
            has(t.writes, t.n_writes, product->a))
            return true;
    }
    return false;
}

static void add_ids(struct adapting *w)
{
    struct rn_op op = op_of(RN_OP_ADAPTER, -1);

    op.out = w->ids = new_slot(w, (struct rn_slot){.width = 1, .is_i32 = true});
    add(w, &op);
}

static void select_ids(struct adapting *w)
{
    struct rn_op op = op_of(RN_OP_SELECT_IDS, -1);

    op.a = w->ids;
    op.out = w->selected_ids = new_slot(w, (struct rn_slot){.width = 1, .is_i32 = true, .selected = true});
    add(w, &op);
}

static void walk(struct adapting *w)
{
    struct rn_adapter_stacks stacks;

    add_ids(w);
    for (uint32_t i = 0; i < w->old->n_ops; i++) {
        const struct rn_op *op = &w->old->ops[i];

        if (w->n_waiting == WAITING || is_awaited(w, op))
            add_waiting(w);
        add(w, op);
        if (op->kind == RN_OP_SELECT && w->selected_ids < 0)
            select_ids(w);
        if (stacks_of(w, op, &stacks))
            w->waiting[w->n_waiting++] = i;
    }
    add_waiting(w);
}

/* How many products get ops. */
static uint32_t count_products(const struct adapting *w)
{
    struct rn_adapter_stacks stacks;
    uint32_t n = 0;

    for (uint32_t i = 0; i < w->old->n_ops; i++)
        n += stacks_of(w, &w->old->ops[i], &stacks);
    return n;
}

static bool take_room(struct adapting *w, uint32_t n)
{
    struct rn_heap *heap = w->old->heap;
    struct rn_plan *plan = w->plan;

    plan->ops = rn_calloc(heap, (size_t)w->old->n_ops + (size_t)n * OPS_OF_ONE + 2, sizeof *plan->ops);
    plan->slots = rn_calloc(heap, (size_t)w->old->n_slots + (size_t)n * ROLES + 2, sizeof *plan->slots);
    plan->weights = rn_calloc(heap, (size_t)w->old->n_weights + (size_t)n * WEIGHTS_OF_ONE, sizeof *plan->weights);
    w->made = rn_calloc(heap, (size_t)n * ROLES + 2, sizeof *w->made);
    if (plan->ops == NULL || plan->slots == NULL || plan->weights == NULL || w->made == NULL)
        return false;
    memcpy(plan->slots, w->old->slots, w->old->n_slots * sizeof *plan->slots);
    memcpy(plan->weights, w->old->weights, w->old->n_weights * sizeof *plan->weights);
    plan->n_ops = 0;
    return true;
}

/* Of what was made and of what it replaces, one goes. */
static void give_back(struct adapting *w, const struct rn_plan *plan)
{
    struct rn_heap *heap = w->old->heap;

    rn_free(heap, plan->ops);
    rn_free(heap, plan->slots);
    rn_free(heap, plan->weights);
    rn_free(heap, w->made);
}

runnel_status rn_plan_adapt(struct rn_plan *plan, const struct rn_adapters *adapters, runnel_error *error)
{
    const struct rn_plan old = *plan;
    struct rn_plan made = *plan;
    struct adapting w = {.plan = &made, .old = &old, .adapters = adapters, .ids = -1, .selected_ids = -1};
    uint32_t n = count_products(&w);

    plan->n_adapters = rn_adapters_count(adapters);
    if (n == 0)
        return RUNNEL_OK;
    made.n_adapters = plan->n_adapters;
    if (!take_room(&w, n)) {
        give_back(&w, &made);
        return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for a plan with adapters");
    }
    walk(&w);
    if (made.n_slots > INT16_MAX) {
        give_back(&w, &made);
        return rn_error_set(error, RUNNEL_UNSUPPORTED, "with adapters the plan needs too many slots");
    }
    *plan = made;
    give_back(&w, &old);
    RN_ASSERT(rn_plan_check(plan));
    return RUNNEL_OK;
}

/* ---- What can be adapted ---- */

/* "<stem>.scale" beside "<stem>.weight": the product is scaled behind the op, which what an adapter adds is not. */
static bool is_scaled(const struct rn_plan *plan, struct rn_view name)
{
    static const char end[] = ".weight";
    char scale[128];

    if (name.n < sizeof end - 1 || name.n >= sizeof scale ||
        memcmp(name.bytes + name.n - (sizeof end - 1), end, sizeof end - 1) != 0)
        return false;
    snprintf(scale, sizeof scale, "%.*s.scale", (int)(name.n - (sizeof end - 1)), name.bytes);
    return rn_gguf_find_tensor(plan->gguf, scale) != NULL;
}

/* The op with the weight of that tensor as its matrix: NULL, or what it does instead. */
static const char *wrong_use(const struct rn_plan *plan, const struct rn_op *op, const struct rn_tensor *tensor)
{
    const struct rn_weight *weight = op->weight < 0 ? NULL : &plan->weights[op->weight];

    if (op->bias >= 0 && plan->weights[op->bias].tensor == tensor)
        return "a bias";
    if (weight == NULL || weight->tensor != tensor)
        return NULL;
    return op->kind == RN_OP_MATMUL && weight->cols == tensor->dims[0] && weight->rows == tensor->dims[1] &&
                   weight->experts == 1
               ? NULL
               : rn_op_name(op->kind);
}

static bool is_weight(const struct rn_plan *plan, const struct rn_tensor *tensor)
{
    for (uint32_t i = 0; i < plan->n_weights; i++)
        if (plan->weights[i].tensor == tensor)
            return true;
    return false;
}

/* What the plan reads in place of the tensor, which it does not read; NULL: nothing. Some files have a matrix twice: as
 * one, and in the parts that are read. */
static const struct rn_tensor *read_instead(const struct rn_plan *plan, const struct rn_tensor *tensor)
{
    static const char *const twice[][2] = {{"attn_kv_b.weight", "attn_k_b.weight"},
                                           {"ssm_in.weight", "attn_qkv.weight"}};
    const struct rn_tensor *part;
    char name[128];
    size_t n;

    for (size_t i = 0; i < sizeof twice / sizeof twice[0]; i++) {
        n = strlen(twice[i][0]);
        if (tensor->name.n < n || memcmp(tensor->name.bytes + tensor->name.n - n, twice[i][0], n) != 0)
            continue;
        snprintf(name, sizeof name, "%.*s%s", (int)(tensor->name.n - n), tensor->name.bytes, twice[i][1]);
        part = rn_gguf_find_tensor(plan->gguf, name);
        if (part != NULL && is_weight(plan, part))
            return part;
    }
    return NULL;
}

/* One that no op reads. */
static runnel_status can_pass_over(const struct rn_plan *plan, const struct rn_tensor *tensor, const char *path,
                                   runnel_error *error)
{
    const struct rn_tensor *part = read_instead(plan, tensor);

    if (part != NULL)
        return rn_error_set(error, RUNNEL_UNSUPPORTED,
                            "%s: adapters of tensor %.*s are not supported: architecture %s reads %.*s in its place",
                            path, (int)tensor->name.n, tensor->name.bytes, plan->architecture, (int)part->name.n,
                            part->name.bytes);
    if (tensor->dims[1] == 1 || tensor->dims[2] != 1) /* vectors can be read when a plan is built, as those of ropes */
        return rn_error_set(error, RUNNEL_UNSUPPORTED,
                            "%s: adapters of tensor %.*s are not supported: architecture %s does not multiply by it",
                            path, (int)tensor->name.n, tensor->name.bytes, plan->architecture);
    return RUNNEL_OK;
}

runnel_status rn_plan_can_adapt(const struct rn_plan *plan, const struct rn_tensor *tensor, const char *path,
                                bool *is_read, runnel_error *error)
{
    const int n = (int)tensor->name.n;
    const char *wrong;

    *is_read = is_weight(plan, tensor);
    if (!*is_read)
        return can_pass_over(plan, tensor, path, error);
    if (is_scaled(plan, tensor->name))
        return rn_error_set(error, RUNNEL_UNSUPPORTED,
                            "%s: adapters of tensor %.*s, which is stored with a scale, are not supported", path, n,
                            tensor->name.bytes);
    for (uint32_t i = 0; i < plan->n_ops; i++) {
        wrong = wrong_use(plan, &plan->ops[i], tensor);
        if (wrong != NULL)
            return rn_error_set(error, RUNNEL_UNSUPPORTED,
                                "%s: adapters of tensor %.*s are not supported: architecture %s reads it as %s", path,
                                n, tensor->name.bytes, plan->architecture, wrong);
    }
    return RUNNEL_OK;
}
