/* The checker of plans: see rn_plan_check in plan.h.
 *
 * Walks the ops in order and keeps, for each slot, whether it has been written. Everything a backend
 * relies on without looking is looked at here. */
#include "model/plan.h"

#include <math.h>
#include <string.h>

struct checker {
    const struct rn_plan *plan;
    bool *defined;   /* [n_slots] */
    uint32_t stored; /* cache layers stored so far: they are numbered in that order */
};

static const struct rn_slot *slot_at(const struct checker *c, int16_t slot)
{
    return slot >= 0 && (uint32_t)slot < c->plan->n_slots ? &c->plan->slots[slot] : NULL;
}

/* An input: exists, has been written, has this width and kind. */
static bool reads(const struct checker *c, int16_t slot, uint64_t width, bool is_i32)
{
    const struct rn_slot *s = slot_at(c, slot);

    return s != NULL && c->defined[slot] && s->width == width && s->is_i32 == is_i32;
}

/* An output: exists, has this width and kind, and the rows of the op's input. */
static bool writes(const struct checker *c, int16_t slot, uint64_t width, bool is_i32, bool selected)
{
    const struct rn_slot *s = slot_at(c, slot);

    return s != NULL && s->width == width && s->is_i32 == is_i32 && s->selected == selected;
}

static const struct rn_weight *weight_at(const struct checker *c, int32_t weight)
{
    return weight >= 0 && (uint32_t)weight < c->plan->n_weights ? &c->plan->weights[weight] : NULL;
}

static bool weight_is(const struct checker *c, int32_t weight, uint64_t cols, uint64_t rows, uint64_t experts)
{
    const struct rn_weight *w = weight_at(c, weight);

    return w != NULL && w->cols == cols && w->rows == rows && w->experts == experts;
}

static bool bias_is(const struct checker *c, int32_t bias, uint64_t cols, uint64_t rows)
{
    return bias == -1 || weight_is(c, bias, cols, rows, 1);
}

static bool weight_ok(const struct rn_weight *w)
{
    const struct rn_type *type = rn_type(w->type_id);

    return w->tensor != NULL && type != NULL && w->type == type && w->tensor->type == w->type_id && w->cols > 0 &&
           w->rows > 0 && w->experts > 0 && w->cols % type->elements == 0 &&
           w->row_bytes == rn_type_bytes(type, w->cols) &&
           (uint64_t)w->cols * w->rows * w->experts == w->tensor->elements && w->tensor->data != NULL;
}

static bool rope_ok(const struct rn_rope *rope)
{
    uint32_t i;

    if (rope->dims == 0 || rope->dims % 2 != 0 || rope->inv_freq == NULL || !isfinite(rope->magnitude))
        return false;
    for (i = 0; i < rope->dims / 2; i++)
        if (!isfinite(rope->inv_freq[i]))
            return false;
    return true;
}

static bool norm_ok(const struct checker *c, const struct rn_op *op, uint32_t width, bool selected)
{
    uint32_t group = op->kind == RN_OP_LAYER_NORM || op->group == 0 ? width : op->group;

    return reads(c, op->a, width, false) && writes(c, op->out, width, false, selected) && width % group == 0 &&
           (op->weight == -1 || weight_is(c, op->weight, group, 1, 1)) && bias_is(c, op->bias, group, 1) &&
           op->eps >= 0 && isfinite(op->eps);
}

static bool attention_ok(const struct checker *c, const struct rn_op *op, bool selected)
{
    const struct rn_plan *plan = c->plan;

    return op->layer >= 0 && (uint32_t)op->layer < c->stored && op->kv_heads > 0 && op->k_dim > 0 && op->v_dim > 0 &&
           op->heads > 0 && op->heads % op->kv_heads == 0 && plan->kv_layers[op->layer].kv_heads == op->kv_heads &&
           plan->kv_layers[op->layer].k_width == (uint64_t)op->kv_heads * op->k_dim &&
           plan->kv_layers[op->layer].v_width == (uint64_t)op->kv_heads * op->v_dim &&
           reads(c, op->a, (uint64_t)op->heads * op->k_dim, false) && !selected &&
           writes(c, op->out, (uint64_t)op->heads * op->v_dim, false, false) && isfinite(op->scale) && op->softcap >= 0;
}

static bool store_ok(const struct checker *c, const struct rn_op *op)
{
    const struct rn_plan *plan = c->plan;

    if (op->layer < 0 || (uint32_t)op->layer != c->stored || c->stored >= plan->n_kv_layers)
        return false;
    return reads(c, op->a, plan->kv_layers[op->layer].k_width, false) && !plan->slots[op->a].selected &&
           reads(c, op->b, plan->kv_layers[op->layer].v_width, false) && !plan->slots[op->b].selected;
}

static bool expert_ok(const struct checker *c, const struct rn_op *op, uint32_t width, bool selected)
{
    const struct rn_weight *w = weight_at(c, op->weight);

    return w != NULL && op->used > 0 && op->used <= op->experts && w->experts == op->experts &&
           width == (uint64_t)w->cols * (op->per_expert_input ? op->used : 1) && reads(c, op->a, width, false) &&
           reads(c, op->b, op->used, true) && writes(c, op->out, (uint64_t)w->rows * op->used, false, selected) &&
           bias_is(c, op->bias, w->rows, op->experts);
}

static bool route_ok(const struct checker *c, const struct rn_op *op, bool selected)
{
    return op->used > 0 && op->used <= op->experts && reads(c, op->a, op->experts, false) &&
           writes(c, op->out, op->used, true, selected) && writes(c, op->out2, op->used, false, selected) &&
           op->out != op->out2;
}

static bool rope_op_ok(const struct checker *c, const struct rn_op *op, uint32_t width, bool selected)
{
    return op->rope < c->plan->n_ropes && op->heads > 0 && !selected && reads(c, op->a, width, false) &&
           width == (uint64_t)op->heads * op->k_dim && c->plan->ropes[op->rope].dims <= op->k_dim &&
           writes(c, op->out, width, false, false);
}

static bool matmul_ok(const struct checker *c, const struct rn_op *op, uint32_t width, bool selected)
{
    const struct rn_weight *w = weight_at(c, op->weight);

    return w != NULL && w->experts == 1 && w->cols == width && reads(c, op->a, width, false) &&
           writes(c, op->out, w->rows, false, selected) && bias_is(c, op->bias, w->rows, 1);
}

static bool concat_ok(const struct checker *c, const struct rn_op *op, uint32_t width, bool selected)
{
    const struct rn_slot *b = slot_at(c, op->b);
    uint64_t more = op->b == -1 || b == NULL ? 0 : b->width;

    return reads(c, op->a, width, false) && (op->b == -1 || reads(c, op->b, more, false)) &&
           writes(c, op->out, width + more, false, selected);
}

/* a and b have the rows of one kind, or b is absent; of rows with logits nothing comes for others. */
static bool same_rows(const struct checker *c, const struct rn_op *op)
{
    const struct rn_slot *a = slot_at(c, op->a), *b = slot_at(c, op->b), *out = slot_at(c, op->out);
    bool narrow = (a != NULL && a->logits) || (b != NULL && b->logits);

    if (a != NULL && b != NULL && (a->selected != b->selected || a->logits != b->logits))
        return false;
    if (out == NULL || op->kind == RN_OP_EMBED || op->kind == RN_OP_INPUT)
        return out == NULL || (!out->selected && !out->logits);
    return out->logits ? a != NULL && a->selected : !narrow;
}

static bool in_place(const struct rn_op *op)
{
    return op->out >= 0 && (op->out == op->a || op->out == op->b);
}

static bool index_ok(int64_t index, uint32_t n)
{
    return index >= -1 && index < (int64_t)n;
}

/* Also of what the op does not use: a backend may look at any field. */
static bool indices_ok(const struct checker *c, const struct rn_op *op)
{
    uint32_t slots = c->plan->n_slots, weights = c->plan->n_weights;

    return index_ok(op->out, slots) && index_ok(op->out2, slots) && index_ok(op->a, slots) && index_ok(op->b, slots) &&
           index_ok(op->weight, weights) && index_ok(op->bias, weights) && op->layer >= -1;
}

static bool op_ok(const struct checker *c, const struct rn_op *op)
{
    const struct rn_slot *a = slot_at(c, op->a);
    uint32_t width = a == NULL ? 0 : a->width;
    bool selected = a != NULL && a->selected;

    if (!indices_ok(c, op) || !same_rows(c, op) || (in_place(op) && op->kind != RN_OP_ROPE))
        return false;
    switch (op->kind) {
    case RN_OP_EMBED:
        return weight_is(c, op->weight, c->plan->embedding, c->plan->n_vocab, 1) &&
               writes(c, op->out, c->plan->embedding, false, false);
    case RN_OP_RMS_NORM:
    case RN_OP_LAYER_NORM:
        return a != NULL && norm_ok(c, op, width, selected);
    case RN_OP_MATMUL:
        return matmul_ok(c, op, width, selected);
    case RN_OP_ADD:
    case RN_OP_GATE:
        return reads(c, op->a, width, false) && reads(c, op->b, width, false) &&
               writes(c, op->out, width, false, selected);
    case RN_OP_SCALE:
    case RN_OP_SOFTCAP:
    case RN_OP_ACTIVATE:
        return reads(c, op->a, width, false) && writes(c, op->out, width, false, selected) && isfinite(op->scale) &&
               (op->kind != RN_OP_SOFTCAP || op->scale > 0);
    case RN_OP_ROPE:
        return rope_op_ok(c, op, width, selected);
    case RN_OP_KV_STORE:
        return store_ok(c, op);
    case RN_OP_ATTENTION:
        return attention_ok(c, op, selected);
    case RN_OP_ROUTE:
        return route_ok(c, op, selected);
    case RN_OP_EXPERT_MATMUL:
        return expert_ok(c, op, width, selected);
    case RN_OP_EXPERT_SUM:
        return op->used > 0 && width % op->used == 0 && reads(c, op->a, width, false) &&
               reads(c, op->b, op->used, false) && writes(c, op->out, width / op->used, false, selected);
    case RN_OP_SELECT:
        return reads(c, op->a, width, false) && !selected && writes(c, op->out, width, false, true);
    case RN_OP_TAP:
        return reads(c, op->a, width, false) && op->out == -1 && (c->plan->taps_selected || !selected) &&
               !slot_at(c, op->a)->logits && (uint64_t)op->group + width <= c->plan->features_width;
    case RN_OP_INPUT:
        return c->plan->inputs_width > 0 && writes(c, op->out, c->plan->inputs_width, false, false);
    case RN_OP_CONCAT:
        return concat_ok(c, op, width, selected);
    case RN_OP_KINDS:
        break;
    }
    return false;
}

static bool tables_ok(const struct rn_plan *plan)
{
    uint32_t i;

    for (i = 0; i < plan->n_slots; i++)
        if (plan->slots[i].width == 0 || (plan->slots[i].logits && !plan->slots[i].selected))
            return false;
    for (i = 0; i < plan->n_weights; i++)
        if (!weight_ok(&plan->weights[i]))
            return false;
    for (i = 0; i < plan->n_ropes; i++)
        if (!rope_ok(&plan->ropes[i]))
            return false;
    return plan->n_ops > 0 && plan->n_slots > 0 && plan->n_slots <= INT16_MAX && plan->n_vocab > 0 &&
           plan->context_tokens > 0;
}

static bool ops_ok(struct checker *c)
{
    const struct rn_plan *plan = c->plan;
    const struct rn_slot *logits = slot_at(c, plan->logits_slot);
    uint32_t i;

    for (i = 0; i < plan->n_ops; i++) {
        if (!op_ok(c, &plan->ops[i]))
            return false;
        if (plan->ops[i].out >= 0)
            c->defined[plan->ops[i].out] = true;
        if (plan->ops[i].kind == RN_OP_ROUTE)
            c->defined[plan->ops[i].out2] = true;
        if (plan->ops[i].kind == RN_OP_KV_STORE)
            c->stored++;
    }
    return c->stored == plan->n_kv_layers && logits != NULL && c->defined[plan->logits_slot] &&
           logits->width == plan->n_vocab && logits->logits && !logits->is_i32;
}

bool rn_plan_check(const struct rn_plan *plan)
{
    bool defined[INT16_MAX] = {false};
    struct checker c = {.plan = plan, .defined = defined};

    return tables_ok(plan) && ops_ok(&c);
}
