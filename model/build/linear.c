/* Building linear attention, and the ops on values that go with it: see build.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/build/build.h"

/* The number beside a weight; false where there is none. */
static bool read_scale(struct rn_build *b, const char *stem, double *scale)
{
    const struct rn_tensor *tensor;
    char name[64];
    float value;

    snprintf(name, sizeof name, "%s.scale", stem);
    tensor = rn_build_tensor(b, name);
    if (tensor == NULL || b->status != RUNNEL_OK)
        return false;
    rn_build_ignore(b, name);
    if (tensor->elements != 1 || (tensor->type != RN_F32 && tensor->type != RN_F16)) {
        rn_build_fail(b, RUNNEL_FORMAT, "tensor %.*s is not one number of type F32 or F16",
                      (int)(tensor->name.n < 64 ? tensor->name.n : 64), tensor->name.bytes);
        return false;
    }
    rn_type(tensor->type)->decode(tensor->data, &value, 1);
    if (!isfinite(value))
        rn_build_fail(b, RUNNEL_FORMAT, "tensor %.*s is not finite", (int)(tensor->name.n < 64 ? tensor->name.n : 64),
                      tensor->name.bytes);
    *scale = value;
    return true;
}

int16_t rn_build_stored(struct rn_build *b, int16_t a, int32_t weight, int32_t bias, const char *stem)
{
    struct rn_op op = rn_build_empty(b, RN_OP_MATMUL), sum = rn_build_empty(b, RN_OP_ADD_WEIGHT);
    double scale = 1;
    bool scaled = read_scale(b, stem, &scale);

    op.a = a;
    op.weight = weight;
    op.bias = scaled ? -1 : bias;
    op.out = rn_build_slot(b, b->status == RUNNEL_OK ? b->plan->weights[weight].rows : 1, false);
    rn_build_op(b, &op);
    rn_build_scale(b, op.out, scale);
    if (!scaled || bias < 0)
        return op.out;
    sum.a = op.out;
    sum.weight = bias;
    sum.out = rn_build_slot(b, rn_build_width(b, op.out), false);
    rn_build_op(b, &sum);
    rn_build_release(b, op.out);
    return sum.out;
}

int16_t rn_build_product(struct rn_build *b, int16_t a, const char *weight, const char *bias, uint32_t rows)
{
    int32_t matrix = rn_build_matrix(b, weight, rn_build_width(b, a), rows, 0, false);
    char stem[64];

    snprintf(stem, sizeof stem, "%.*s", (int)(strlen(weight) - strlen(".weight")), weight);
    return rn_build_stored(b, a, matrix, bias == NULL ? -1 : rn_build_values(b, bias, rows, 1, false), stem);
}

/* An op of a and a tensor of n values. */
static int16_t with_weight(struct rn_build *b, enum rn_op_kind kind, int16_t a, const char *name, uint32_t n)
{
    struct rn_op op = rn_build_empty(b, kind);

    op.a = a;
    op.weight = rn_build_values(b, name, n, 1, false);
    op.out = rn_build_slot(b, rn_build_width(b, a), false);
    rn_build_op(b, &op);
    rn_build_release(b, a);
    return op.out;
}

int16_t rn_build_times(struct rn_build *b, int16_t a, const char *name, uint32_t n)
{
    return with_weight(b, RN_OP_TIMES_WEIGHT, a, name, n);
}

int16_t rn_build_over(struct rn_build *b, int16_t a, const char *name, uint32_t n)
{
    return with_weight(b, RN_OP_OVER_WEIGHT, a, name, n);
}

int16_t rn_build_plus(struct rn_build *b, int16_t a, const char *name, uint32_t n)
{
    return with_weight(b, RN_OP_ADD_WEIGHT, a, name, n);
}

int16_t rn_build_minus(struct rn_build *b, int16_t a, int16_t c)
{
    struct rn_op op = rn_build_empty(b, RN_OP_SCALE), sum = rn_build_empty(b, RN_OP_ADD);

    op.a = c;
    op.scale = -1;
    op.out = rn_build_slot(b, rn_build_width(b, c), false);
    rn_build_op(b, &op);
    sum.a = a;
    sum.b = op.out;
    sum.out = rn_build_slot(b, rn_build_width(b, a), false);
    rn_build_op(b, &sum);
    rn_build_release(b, op.out);
    return sum.out;
}

int16_t rn_build_lerp(struct rn_build *b, int16_t a, int16_t c, const char *name, uint32_t parts)
{
    struct rn_op op = rn_build_empty(b, RN_OP_LERP);

    op.a = a;
    op.b = c;
    op.weight = rn_build_values(b, name, parts * rn_build_width(b, a), 1, false);
    op.out = rn_build_slot(b, parts * rn_build_width(b, a), false);
    rn_build_op(b, &op);
    return op.out;
}

int16_t rn_build_part_sum(struct rn_build *b, int16_t a, uint32_t parts)
{
    struct rn_op op = rn_build_empty(b, RN_OP_PART_SUM);

    op.a = a;
    op.heads = parts;
    op.out = rn_build_slot(b, parts, false);
    rn_build_op(b, &op);
    rn_build_release(b, a);
    return op.out;
}

int16_t rn_build_repeat(struct rn_build *b, int16_t a, uint32_t parts, uint32_t times)
{
    struct rn_op op = rn_build_empty(b, RN_OP_REPEAT);

    if (times == 1)
        return a;
    op.a = a;
    op.heads = parts;
    op.used = times;
    op.out = rn_build_slot(b, times * rn_build_width(b, a), false);
    rn_build_op(b, &op);
    rn_build_release(b, a);
    return op.out;
}

/* The root of the mean is that of the sum, but for the root of how many they are. */
int16_t rn_build_unit(struct rn_build *b, int16_t a, uint32_t heads, double eps, double scale)
{
    struct rn_op op = rn_build_empty(b, RN_OP_RMS_NORM);

    op.a = a;
    op.group = rn_build_width(b, a) / heads;
    op.eps = eps / op.group;
    op.out = rn_build_slot(b, rn_build_width(b, a), false);
    rn_build_op(b, &op);
    rn_build_scale(b, op.out, scale / sqrt(op.group));
    rn_build_release(b, a);
    return op.out;
}

int16_t rn_build_group_norm(struct rn_build *b, int16_t a, const char *stem, uint32_t heads, double eps)
{
    struct rn_op op = rn_build_empty(b, RN_OP_LAYER_NORM);
    char name[64];

    op.a = a;
    op.group = rn_build_width(b, a) / heads;
    op.eps = eps;
    snprintf(name, sizeof name, "%s.weight", stem);
    op.weight = rn_build_values(b, name, op.group, heads, false);
    snprintf(name, sizeof name, "%s.bias", stem);
    op.bias = rn_build_values(b, name, op.group, heads, false);
    op.out = rn_build_slot(b, rn_build_width(b, a), false);
    rn_build_op(b, &op);
    rn_build_release(b, a);
    return op.out;
}

int16_t rn_build_shift(struct rn_build *b, int16_t a)
{
    struct rn_op op = rn_build_empty(b, RN_OP_SHIFT);

    op.a = a;
    op.layer = rn_build_state(b, rn_build_width(b, a));
    op.out = rn_build_slot(b, rn_build_width(b, a), false);
    rn_build_op(b, &op);
    return op.out;
}

int16_t rn_build_copy(struct rn_build *b, int16_t a)
{
    return rn_build_concat(b, a, -1);
}

int16_t rn_build_join(struct rn_build *b, int16_t a, int16_t c)
{
    int16_t out = rn_build_concat(b, a, c);

    rn_build_release(b, a);
    rn_build_release(b, c);
    return out;
}

int16_t rn_build_linear_attention(struct rn_build *b, const struct rn_op *like, int16_t a, int16_t c)
{
    struct rn_op op = *like;

    if (op.k_dim > RN_MAX_STATE_DIM || op.v_dim > RN_MAX_STATE_DIM)
        rn_build_fail(b, RUNNEL_UNSUPPORTED, "linear attention with heads of more than %d values", RN_MAX_STATE_DIM);
    op.a = a;
    op.b = c;
    op.layer = rn_build_state(b, (uint64_t)op.heads * op.k_dim * op.v_dim);
    op.out = rn_build_slot(b, op.heads * op.v_dim, false);
    rn_build_op(b, &op);
    rn_build_release(b, a);
    rn_build_release(b, c);
    return op.out;
}
