/* Building ops that have a recurrent state: see build.h. */
#include <stdio.h>

#include "model/build/build.h"

int32_t rn_build_state(struct rn_build *b, uint64_t n)
{
    struct rn_plan *plan = b->plan;
    uint64_t units = (n + RN_STATE_UNIT - 1) / RN_STATE_UNIT;

    if (n == 0 || n > RN_MAX_WIDTH) {
        rn_build_fail(b, RUNNEL_FORMAT, "a recurrent state of %llu numbers", (unsigned long long)n);
        return 0;
    }
    if (!rn_build_grow(b, (void **)&plan->state_layers, plan->n_state_layers, &b->states_room,
                       sizeof *plan->state_layers))
        return 0;
    plan->state_layers[plan->n_state_layers] =
        (struct rn_state_layer){.at = plan->state_bytes / sizeof(float), .n = (uint32_t)n};
    plan->state_bytes += units * RN_STATE_UNIT * sizeof(float);
    return (int32_t)plan->n_state_layers++;
}

static int16_t conv(struct rn_build *b, int16_t a, const char *stem, uint32_t taps, uint32_t span, bool silu)
{
    struct rn_op op = rn_build_empty(b, RN_OP_CONV);
    uint32_t width = rn_build_width(b, a);
    char name[64];

    if (taps < 2 || taps > RN_MAX_TAPS)
        rn_build_fail(b, RUNNEL_UNSUPPORTED, "a convolution over %u positions", taps);
    op.a = a;
    op.act = RN_ACT_SILU;
    op.activated = silu;
    op.span = span;
    op.ahead = b->plan->bidirectional && span == 1 ? (taps - 1) / 2 : 0;
    op.layer = rn_build_state(b, (uint64_t)(taps - 1) * span * width);
    snprintf(name, sizeof name, "%s.weight", stem);
    op.weight = rn_build_values(b, name, taps, width, false);
    snprintf(name, sizeof name, "%s.bias", stem);
    op.bias = rn_build_vector(b, name, width, true);
    op.out = rn_build_slot(b, width, false);
    rn_build_op(b, &op);
    return op.out;
}

int16_t rn_build_conv(struct rn_build *b, int16_t a, const char *stem, uint32_t taps, bool silu)
{
    return conv(b, a, stem, taps, 1, silu);
}

int16_t rn_build_wide_conv(struct rn_build *b, int16_t a, const char *stem, uint32_t taps, uint32_t span)
{
    return conv(b, a, stem, taps, span, true);
}

/* A value for each head: one row, or one column. */
static int32_t per_head(struct rn_build *b, const char *name, uint32_t heads)
{
    return heads > 1 && rn_build_rows(b, name) == heads ? rn_build_matrix(b, name, 1, heads, 0, false)
                                                        : rn_build_vector(b, name, heads, false);
}

int16_t rn_build_scan(struct rn_build *b, int16_t x, int16_t dt, const struct rn_ssm_hparams *ssm)
{
    struct rn_op op = rn_build_empty(b, RN_OP_SCAN);

    op.a = x;
    op.b = dt;
    op.heads = ssm->heads;
    op.v_dim = ssm->inner / ssm->heads;
    op.kv_heads = ssm->groups;
    op.k_dim = ssm->state;
    op.layer = rn_build_state(b, (uint64_t)ssm->inner * ssm->state);
    op.weight = ssm->by_channel ? rn_build_matrix(b, "blk.%d.ssm_a", ssm->state, ssm->heads, 0, false)
                                : rn_build_values(b, "blk.%d.ssm_a", 1, ssm->heads, false);
    op.bias = per_head(b, "blk.%d.ssm_d", ssm->heads);
    op.out = rn_build_slot(b, ssm->inner, false);
    rn_build_op(b, &op);
    rn_build_release(b, x);
    rn_build_release(b, dt);
    return op.out;
}
