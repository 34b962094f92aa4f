/* A plan in words: see plan_text.h. An op's numbers are told where they say more than the formula in ops.def does
 * without them. */
#include "model/plan_text.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/plain_locale.h"
#include "model/op_info.h"

struct text {
    char *at;
    size_t capacity, n;
};

__attribute__((format(printf, 2, 3))) static void say(struct text *t, const char *format, ...)
{
    size_t room = t->n < t->capacity ? t->capacity - t->n : 0;
    const locale_t host = rn_plain_locale();
    char line[256];
    va_list list;
    int n;

    va_start(list, format);
    n = vsnprintf(line, sizeof line, format, list);
    va_end(list);
    uselocale(host);
    for (size_t i = 0; i < (size_t)n && i < sizeof line - 1; i++, t->n++)
        if (i < room)
            t->at[t->n] = line[i];
}

static void say_slot(struct text *t, const struct rn_plan *plan, int16_t slot)
{
    say(t, "x%d [%u%s]", slot, plan->slots[slot].width, plan->slots[slot].is_i32 ? " integers" : "");
}

static void say_weight(struct text *t, const struct rn_plan *plan, int32_t index)
{
    const struct rn_weight *weight;

    if (index < 0)
        return;
    weight = &plan->weights[index];
    say(t, ", %.*s %s", (int)weight->tensor->name.n, weight->tensor->name.bytes, weight->type->name);
}

static void say_number(struct text *t, const char *name, double value, double usual)
{
    if (value != usual)
        say(t, ", %s %.6g", name, value);
}

static void say_route(struct text *t, const struct rn_op *op)
{
    static const char *const gatings[] = {[RN_GATING_SOFTMAX] = "softmax",
                                          [RN_GATING_SIGMOID] = "sigmoid",
                                          [RN_GATING_CHOSEN] = "softmax of the chosen",
                                          [RN_GATING_ROOT_SOFTPLUS] = "root of softplus"};

    say(t, ", the best %u of %u by %s%s", op->used, op->experts, gatings[op->gating],
        op->normalise ? ", divided by their sum" : "");
    if (op->groups > 1)
        say(t, ", of the best %u of %u groups", op->best, op->groups);
}

static void say_attention(struct text *t, const struct rn_op *op)
{
    say(t, ", %u heads of %u on %u of %u, scale %.6g", op->heads, op->k_dim, op->kv_heads, op->v_dim,
        (double)op->scale);
    say_number(t, op->chunked ? "chunks of" : "window", op->window, 0);
    say_number(t, "softcap", (double)op->softcap, 0);
    say_number(t, "alibi", op->alibi, 0);
    say_number(t, "chosen", op->used, 0);
    say(t, "%s", op->bidirectional ? ", both ways" : "");
}

static void say_rope(struct text *t, const struct rn_plan *plan, const struct rn_op *op)
{
    const struct rn_rope *rope = &plan->ropes[op->rope];

    say(t, ", %u heads of %u, %u dimensions as %s", op->heads, op->k_dim, rope->dims, rope->neox ? "halves" : "pairs");
    say_number(t, "magnitude", rope->magnitude, 1);
    say_number(t, "shift", rope->shift, 0);
    say(t, "%s", rope->inv_freq[0] < 0 ? ", the other way" : "");
}

static void say_numbers(struct text *t, const struct rn_plan *plan, const struct rn_op *op)
{
    static const char *const activations[] = {[RN_ACT_SILU] = "SiLU",           [RN_ACT_GELU_TANH] = "GELU (tanh)",
                                              [RN_ACT_GELU_ERF] = "GELU (erf)", [RN_ACT_RELU] = "ReLU",
                                              [RN_ACT_RELU2] = "ReLU squared",  [RN_ACT_SIGMOID] = "sigmoid",
                                              [RN_ACT_TANH] = "tanh",           [RN_ACT_EXP] = "exp",
                                              [RN_ACT_SOFTPLUS] = "softplus",   [RN_ACT_NONE] = "product"};

    switch (op->kind) {
    case RN_OP_RMS_NORM:
    case RN_OP_LAYER_NORM:
        say(t, ", eps %.6g", op->eps);
        if (op->group != 0)
            say_number(t, "by", op->group, plan->slots[op->a].width);
        break;
    case RN_OP_ACTIVATE:
    case RN_OP_GATE:
        say(t, ", %s", activations[op->act]);
        break;
    case RN_OP_CUT_GATE:
        say(t, ", scale %.6g, cut %.6g, plus %.6g", (double)op->scale, (double)op->cut, (double)op->plus);
        break;
    case RN_OP_XIELU:
        say(t, ", alpha_n %.6g, alpha_p %.6g, scale %.6g, eps %.6g", op->alpha_n, op->alpha_p, (double)op->scale,
            op->eps);
        break;
    case RN_OP_TEMPER:
        say(t, ", scale %.6g, each %u positions", (double)op->scale, op->span);
        say_number(t, "ahead", op->ahead, 0);
        break;
    case RN_OP_TAIL:
        say(t, ", scale %.6g", (double)op->scale);
        break;
    case RN_OP_MIX:
        say(t, ", of %u parts", op->heads);
        say_number(t, "own", (double)op->scale, 1);
        break;
    case RN_OP_HYPER:
        say(t, ", %u streams, factors %.6g, %.6g, %.6g, %u turns, eps %.6g", op->heads, (double)op->factors[0],
            (double)op->factors[1], (double)op->factors[2], op->turns, op->eps);
        break;
    case RN_OP_REACH:
        say(t, ", window %u, blocks of %u", op->window, op->per);
        break;
    case RN_OP_COMPRESS:
        say(t, ", state layer %d, blocks of %u", op->layer, op->per);
        break;
    case RN_OP_SPREAD:
        say_number(t, "plus", (double)op->scale, 0);
        break;
    case RN_OP_SPLIT:
        say(t, ", of each of %u parts %u from %u on", op->heads, op->k_dim, op->group);
        break;
    case RN_OP_CONCAT:
        say_number(t, "heads", op->heads > 1 ? op->heads : 0, 0);
        break;
    case RN_OP_HEAD_MATMUL:
    case RN_OP_HEAD_SUM:
        say(t, ", %u heads, rows %u to %u", op->heads, op->group, op->group + op->k_dim);
        break;
    case RN_OP_ROPE:
        say_rope(t, plan, op);
        break;
    case RN_OP_KV_STORE:
        say(t, ", layer %d", op->layer);
        break;
    case RN_OP_ATTENTION:
        say(t, ", layer %d", op->layer);
        if (op->second > 0)
            say(t, " and %u", op->second - 1);
        say_attention(t, op);
        break;
    case RN_OP_CHOOSE:
        say(t, ", layer %d, %u positions, %u heads of %u", op->layer, op->used, op->heads, op->k_dim);
        say_number(t, "blocks of", op->per, 0);
        say_number(t, "last", op->best, 0);
        break;
    case RN_OP_SCAN:
        say(t, ", state layer %d, %u heads of %u, %u of %u", op->layer, op->heads, op->v_dim, op->kv_heads, op->k_dim);
        break;
    case RN_OP_CONV:
        say(t, ", state layer %d, %u rows%s%s", op->layer, plan->weights[op->weight].cols, op->activated ? ", " : "",
            op->activated ? activations[op->act] : "");
        say_number(t, "ahead", op->ahead, 0);
        say_number(t, "rows apart", op->span > 1 ? op->span : 1, 1);
        break;
    case RN_OP_GRAMS:
        say(t, ", %u rows by up to %u tokens", plan->grams.heads, plan->grams.most);
        break;
    case RN_OP_ROUTE:
        say_route(t, op);
        say_number(t, "scale", (double)op->scale, 1);
        break;
    case RN_OP_PART_SUM:
        say(t, ", %u parts", op->heads);
        break;
    case RN_OP_REPEAT:
        say(t, ", each of %u parts %u times", op->heads, op->used);
        break;
    case RN_OP_BAR:
        say(t, ", %u from %u on", op->used, op->group);
        break;
    case RN_OP_SHIFT:
        say(t, ", state layer %d", op->layer);
        break;
    case RN_OP_WKV6:
    case RN_OP_WKV7:
    case RN_OP_GATED_DELTA:
        say(t, ", state layer %d, %u heads of %u by %u", op->layer, op->heads, op->k_dim, op->v_dim);
        say_number(t, "scale", (double)op->scale, 1);
        break;
    case RN_OP_EMBED:
    case RN_OP_EMBED_POSITION:
    case RN_OP_SCALE:
    case RN_OP_SOFTCAP:
    case RN_OP_CLAMP:
        say_number(t, "scale", (double)op->scale, 1);
        break;
    default:
        break;
    }
}

static void say_op(struct text *t, const struct rn_plan *plan, const struct rn_op *op)
{
    if (op->out >= 0)
        say_slot(t, plan, op->out);
    if (op->out2 >= 0) {
        say(t, ", ");
        say_slot(t, plan, op->out2);
    }
    say(t, "%s%s", op->out >= 0 ? " = " : "", rn_op_name(op->kind));
    if (op->a >= 0)
        say(t, " x%d", op->a);
    if (op->b >= 0)
        say(t, " x%d", op->b);
    say_weight(t, plan, op->weight);
    say_weight(t, plan, op->bias);
    if (op->adapted)
        say(t, ", for adapters");
    say_numbers(t, plan, op);
    say(t, "\n");
}

size_t rn_plan_text(const struct rn_plan *plan, char *text, size_t capacity)
{
    struct text t = {text, capacity, 0};

    say(&t, "plan of %s: %u blocks, %u ops, embedding %u, vocabulary %u\n", plan->architecture, plan->n_layers,
        plan->n_ops, plan->embedding, plan->n_vocab);
    if (plan->assumed[0] != '\0')
        say(&t, "%s\n", plan->assumed);
    for (uint32_t i = 0; i < plan->n_ops; i++)
        say_op(&t, plan, &plan->ops[i]);
    return t.n;
}
