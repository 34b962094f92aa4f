/* The checker of plans: see rn_plan_check in plan.h.
 *
 * Walks the ops in order and keeps, for each slot, whether it has been written. Everything a backend
 * relies on without looking is looked at here. */
#include <math.h>
#include <stdio.h>

#include "base/min.h"
#include "model/op_info.h"

struct checker {
    const struct rn_plan *plan;
    bool *defined;   /* [n_slots] */
    uint32_t stored; /* cache layers stored so far: they are numbered in that order */
    uint32_t kept;   /* state layers that have an op so far, likewise */
};

static const struct rn_slot no_slot;
static const struct rn_weight no_weight;
static const struct rn_kv_layer no_layer;
static const struct rn_state_layer no_state;

static bool index_ok(int64_t index, uint32_t n)
{
    return index >= -1 && index < (int64_t)n;
}

/* Of an index that index_ok has seen; an empty one where it is -1. */
static const struct rn_slot *slot_at(const struct rn_plan *plan, int16_t slot)
{
    return slot < 0 ? &no_slot : &plan->slots[slot];
}

static const struct rn_weight *weight_at(const struct rn_plan *plan, int32_t weight)
{
    return weight < 0 ? &no_weight : &plan->weights[weight];
}

/* An empty one for what is no cache layer. */
static const struct rn_kv_layer *layer_at(const struct rn_plan *plan, int32_t layer)
{
    return layer < 0 || (uint32_t)layer >= plan->n_kv_layers ? &no_layer : &plan->kv_layers[layer];
}

/* Likewise. */
static const struct rn_state_layer *state_at(const struct rn_plan *plan, int32_t layer)
{
    return layer < 0 || (uint32_t)layer >= plan->n_state_layers ? &no_state : &plan->state_layers[layer];
}

/* ---- Tables ---- */

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

    if (rope->dims == 0 || rope->dims % 2 != 0 || rope->shift >= RN_MOST_SHIFT || rope->shift <= -RN_MOST_SHIFT ||
        rope->inv_freq == NULL || !isfinite(rope->magnitude))
        return false;
    for (i = 0; i < rope->dims / 2; i++)
        if (!isfinite(rope->inv_freq[i]))
            return false;
    return true;
}

/* The layers of the state lie one behind the other within it. */
static bool states_ok(const struct rn_plan *plan)
{
    uint64_t end = 0;
    uint32_t i;

    for (i = 0; i < plan->n_state_layers; i++) {
        if (plan->state_layers[i].n == 0 || plan->state_layers[i].at < end ||
            plan->state_layers[i].at % RN_STATE_UNIT != 0)
            return false;
        end = plan->state_layers[i].at + plan->state_layers[i].n;
    }
    return end * sizeof(float) <= plan->state_bytes;
}

/* Behind each of these rows there is one: a LOOK_UP has the table. */
static bool grams_ok(const struct rn_grams *grams)
{
    uint32_t i;

    if (grams->most == 0)
        return true;
    if (grams->most < 2 || grams->most > RN_MAX_GRAM || grams->heads == 0 || grams->heads > RN_MAX_GRAM_HEADS ||
        grams->heads % (grams->most - 1) != 0)
        return false;
    for (i = 0; i < grams->heads; i++)
        if (grams->sizes[i] == 0 || (uint64_t)grams->offsets[i] + grams->sizes[i] > INT32_MAX)
            return false;
    return true;
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
    return states_ok(plan) && grams_ok(&plan->grams) && plan->n_ops > 0 && plan->n_slots > 0 &&
           plan->n_slots <= INT16_MAX && plan->n_vocab > 0 && plan->context_tokens > 0;
}

/* ---- What a row of ops.def says: a function for each op ---- */

/* Of out, out2, a, b. */
struct widths {
    uint64_t out, out2, a, b;
};

#define WIDTH_NONE 0
#define WIDTH_F32(width) (width)
#define WIDTH_I32(width) (width)
#define WIDTH_MAYBE_F32(width) (width)
#define WIDTH_MAYBE_I32(width) (width)
#define WIDTH_OVER_F32(width) (width)

/* The widths that the operands must have; false where `valid` does not hold. */
#define RN_OP(NAME, name, work, memory, rows, weight_, out_, out2_, a_, b_, valid)                       \
    static bool widths_##name(const struct rn_plan *plan, const struct rn_op *op, struct widths *widths) \
    {                                                                                                    \
        const struct rn_slot *a = slot_at(plan, op->a), *b = slot_at(plan, op->b);                       \
        const struct rn_weight *w = weight_at(plan, op->weight);                                         \
        const struct rn_kv_layer *kv = layer_at(plan, op->layer);                                        \
        const struct rn_state_layer *st = state_at(plan, op->layer);                                     \
                                                                                                         \
        (void)a, (void)b, (void)w, (void)kv, (void)st;                                                   \
        if (!(valid))                                                                                    \
            return false;                                                                                \
        *widths = (struct widths){WIDTH_##out_, WIDTH_##out2_, WIDTH_##a_, WIDTH_##b_};                  \
        return true;                                                                                     \
    }
#include "model/ops.def"

typedef bool (*widths_fn)(const struct rn_plan *plan, const struct rn_op *op, struct widths *widths);

static const widths_fn widths_of[] = {
#define RN_OP(NAME, name, ...) [RN_OP_##NAME] = widths_##name,
#include "model/ops.def"
};

/* ---- Ops ---- */

/* There or not, as the row says. */
static bool there(enum rn_op_operand operand, int16_t slot)
{
    return operand == RN_OPERAND_MAYBE_F32 || operand == RN_OPERAND_MAYBE_I32 ||
           (operand == RN_OPERAND_NONE) == (slot < 0);
}

static bool is(const struct checker *c, enum rn_op_operand operand, int16_t slot, uint64_t width)
{
    const struct rn_slot *s = slot_at(c->plan, slot);

    return slot < 0 ||
           (s->width == width && s->is_i32 == (operand == RN_OPERAND_I32 || operand == RN_OPERAND_MAYBE_I32));
}

static bool operands_ok(const struct checker *c, const struct rn_op_info *info, const struct rn_op *op)
{
    struct widths widths;

    if (!there(info->out, op->out) || !there(info->out2, op->out2) || !there(info->a, op->a) || !there(info->b, op->b))
        return false;
    if ((op->a >= 0 && !c->defined[op->a]) || (op->b >= 0 && !c->defined[op->b]))
        return false;
    if (op->out >= 0 &&
        (op->out == op->out2 || op->out == op->b || (op->out == op->a && info->out != RN_OPERAND_OVER_F32)))
        return false;
    if (op->out2 >= 0 && (op->out2 == op->a || op->out2 == op->b))
        return false;
    return widths_of[op->kind](c->plan, op, &widths) && is(c, info->out, op->out, widths.out) &&
           is(c, info->out2, op->out2, widths.out2) && is(c, info->a, op->a, widths.a) &&
           is(c, info->b, op->b, widths.b);
}

static bool weight_is(const struct rn_plan *plan, int32_t weight, uint64_t cols, uint64_t rows, uint64_t experts)
{
    const struct rn_weight *w = weight_at(plan, weight);

    return weight < 0 || (w->cols == cols && w->rows == rows && w->experts == experts);
}

/* The weight and its bias; widths are right. */
static bool weights_ok(const struct rn_plan *plan, const struct rn_op_info *info, const struct rn_op *op)
{
    const struct rn_weight *w = weight_at(plan, op->weight);
    uint32_t group = op->group == 0 ? slot_at(plan, op->a)->width : op->group, n;

    switch (info->weight) {
    case RN_WEIGHT_NONE:
        return op->weight < 0 && op->bias < 0;
    case RN_WEIGHT_TABLE:
        return op->weight >= 0 && slot_at(plan, op->out)->width % w->cols == 0 && w->experts == 1 && op->bias < 0;
    case RN_WEIGHT_MATRIX:
        return op->weight >= 0 && w->experts == 1 && weight_is(plan, op->bias, w->rows, 1, 1);
    case RN_WEIGHT_EXPERTS:
        return op->weight >= 0 && w->experts == op->experts && weight_is(plan, op->bias, w->rows, op->experts, 1);
    case RN_WEIGHT_HEADS:
    case RN_WEIGHT_HEAD_ROWS:
        return op->weight >= 0 && op->heads > 0 && w->experts == op->heads && op->bias < 0;
    case RN_WEIGHT_NUMBERS:
        return op->weight >= 0 && w->experts == 1 &&
               (weight_is(plan, op->bias, w->rows, 1, 1) || weight_is(plan, op->bias, 1, w->rows, 1));
    case RN_WEIGHT_VECTOR:
        n = slot_at(plan, op->a)->width / group;
        return (weight_is(plan, op->weight, group, 1, 1) || weight_is(plan, op->weight, group, n, 1)) &&
               weight_is(plan, op->bias, group, op->weight < 0 ? 1 : w->rows, 1);
    }
    return false;
}

/* The rows of an output: those of a, or fewer, which are the first ones. */
static bool rows_follow(const struct rn_slot *out, const struct rn_slot *a)
{
    return out->selected == a->selected && (out->logits ? a->selected : !a->logits);
}

/* b may have more rows than a, of which the first ones are a's. */
static bool rows_ok(const struct rn_plan *plan, const struct rn_op_info *info, const struct rn_op *op)
{
    const struct rn_slot *a = slot_at(plan, op->a), *b = slot_at(plan, op->b);
    const struct rn_slot *outs[] = {slot_at(plan, op->out), slot_at(plan, op->out2)};
    const bool there_is[] = {op->out >= 0, op->out2 >= 0};

    if (op->b >= 0 && (a->selected != b->selected || (b->logits && !a->logits)))
        return false;
    if (info->rows != RN_ROWS_SAME && a->selected)
        return false;
    for (int i = 0; i < 2; i++) {
        if (!there_is[i])
            continue;
        if (info->rows == RN_ROWS_WANTED ? !outs[i]->selected || outs[i]->logits : !rows_follow(outs[i], a))
            return false;
    }
    return true;
}

/* The second layer of an attention has the form of the first. */
static bool second_ok(const struct checker *c, const struct rn_op *op)
{
    const struct rn_kv_layer *first = layer_at(c->plan, op->layer), *second;

    if (op->second == 0)
        return true;
    second = layer_at(c->plan, (int32_t)(op->second - 1));
    return op->kind == RN_OP_ATTENTION && op->second <= c->stored && op->second - 1 != (uint32_t)op->layer &&
           first->k_width == second->k_width && first->v_width == second->v_width && first->kv_heads == 1 &&
           second->kv_heads == 1;
}

/* Layers are written in their order, and read behind that. */
static bool memory_ok(const struct checker *c, const struct rn_op_info *info, const struct rn_op *op)
{
    switch (info->memory) {
    case RN_MEMORY_NOTHING:
        return op->layer >= -1;
    case RN_MEMORY_KV_WRITE:
        return op->layer >= 0 && (uint32_t)op->layer == c->stored && c->stored < c->plan->n_kv_layers;
    case RN_MEMORY_KV_READ:
        return op->layer >= 0 && (uint32_t)op->layer < c->stored && second_ok(c, op);
    case RN_MEMORY_STATE:
        return op->layer >= 0 && (uint32_t)op->layer == c->kept && c->kept < c->plan->n_state_layers;
    }
    return false;
}

static bool indices_ok(const struct rn_plan *plan, const struct rn_op *op)
{
    uint32_t slots = plan->n_slots, weights = plan->n_weights;

    return index_ok(op->out, slots) && index_ok(op->out2, slots) && index_ok(op->a, slots) && index_ok(op->b, slots) &&
           index_ok(op->weight, weights) && index_ok(op->bias, weights);
}

static bool op_ok(const struct checker *c, const struct rn_op *op)
{
    const struct rn_op_info *info = rn_op_info(op->kind);

    return info != NULL && indices_ok(c->plan, op) && memory_ok(c, info, op) && operands_ok(c, info, op) &&
           weights_ok(c->plan, info, op) && rows_ok(c->plan, info, op);
}

static bool has_logits(const struct rn_plan *plan)
{
    for (uint32_t i = 0; i < plan->n_slots; i++)
        if (plan->slots[i].logits)
            return true;
    return false;
}

/* What has none gives features. */
static bool logits_ok(const struct checker *c)
{
    const struct rn_plan *plan = c->plan;
    const struct rn_slot *logits;

    if (plan->logits_slot == -1)
        return plan->features_width > 0 && !has_logits(plan);
    if (plan->logits_slot < 0 || !index_ok(plan->logits_slot, plan->n_slots) || !c->defined[plan->logits_slot])
        return false;
    logits = &plan->slots[plan->logits_slot];
    return logits->width == plan->n_vocab && logits->logits && !logits->is_i32;
}

static bool ops_ok(struct checker *c, const struct rn_op **wrong)
{
    const struct rn_plan *plan = c->plan;
    const struct rn_op *op;
    uint32_t i;

    for (i = 0; i < plan->n_ops; i++) {
        op = &plan->ops[i];
        if (!op_ok(c, op)) {
            *wrong = op;
            return false;
        }
        if (op->out >= 0)
            c->defined[op->out] = true;
        if (op->out2 >= 0)
            c->defined[op->out2] = true;
        c->stored += rn_op_info(op->kind)->memory == RN_MEMORY_KV_WRITE;
        c->kept += rn_op_info(op->kind)->memory == RN_MEMORY_STATE;
    }
    return c->stored == plan->n_kv_layers && c->kept == plan->n_state_layers && logits_ok(c);
}

static void say_flaw(const struct rn_plan *plan, const struct rn_op *op, uint32_t index, char *text, size_t size)
{
    const struct rn_tensor *tensor = index_ok(op->weight, plan->n_weights) ? weight_at(plan, op->weight)->tensor : NULL;

    if (tensor == NULL)
        snprintf(text, size, "op %u, %s", index, rn_op_name(op->kind));
    else
        snprintf(text, size, "op %u, %s with tensor %.*s", index, rn_op_name(op->kind),
                 (int)(tensor->name.n < 64 ? tensor->name.n : 64), tensor->name.bytes);
}

bool rn_plan_flaw(const struct rn_plan *plan, char *text, size_t size)
{
    bool defined[INT16_MAX] = {false};
    struct checker c = {.plan = plan, .defined = defined};
    const struct rn_op *wrong = NULL;

    snprintf(text, size, "%s", "");
    if (tables_ok(plan) && ops_ok(&c, &wrong))
        return false;
    if (wrong != NULL)
        say_flaw(plan, wrong, (uint32_t)(wrong - plan->ops), text, size);
    else
        snprintf(text, size, "%s", tables_ok(plan) ? "its layers and logits" : "its sizes");
    return true;
}

bool rn_plan_check(const struct rn_plan *plan)
{
    char text[8];

    return !rn_plan_flaw(plan, text, sizeof text);
}
