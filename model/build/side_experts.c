/* A feed-forward and experts beside each other (Gemma 4), each with norms of its own:
 *
 *     norm1'(ffn(norm1(x))) + norm2'(experts(norm2(x)))
 *
 * The router sees x itself: normed without the norms' weights, times a vector, divided by the root of the width. */
#include <math.h>

#include "model/build/build.h"

/* Releases a. */
static int16_t norm_of(struct rn_build *b, int16_t a, const char *stem)
{
    int16_t out = rn_build_norm(b, a, stem);

    rn_build_release(b, a);
    return out;
}

static int16_t logits_of(struct rn_build *b, int16_t x)
{
    struct rn_op op = rn_build_empty(b, RN_OP_RMS_NORM);
    int16_t logits;

    op.a = x;
    op.group = b->hparams.embedding;
    op.eps = b->hparams.rms_eps;
    op.weight = rn_build_vector(b, "blk.%d.ffn_gate_inp.scale", b->hparams.embedding, false);
    op.out = rn_build_slot(b, b->hparams.embedding, false);
    rn_build_op(b, &op);
    rn_build_scale(b, op.out, 1 / sqrt((double)b->hparams.embedding));
    logits = rn_build_matmul(
        b, op.out,
        rn_build_matrix(b, "blk.%d.ffn_gate_inp.weight", b->hparams.embedding, b->hparams.experts, 0, false));
    rn_build_release(b, op.out);
    return logits;
}

int16_t rn_build_side_experts(struct rn_build *b, int16_t x)
{
    int16_t in = rn_build_norm(b, x, "blk.%d.ffn_norm"), dense = rn_build_feed_forward(b, in), logits, experts;

    if (b->hparams.experts == 0)
        rn_build_fail(b, RUNNEL_FORMAT, "key %s.expert_count is missing or 0, where there are experts",
                      b->hparams.architecture);
    rn_build_release(b, in);
    dense = norm_of(b, dense, "blk.%d.post_ffw_norm_1");
    in = rn_build_norm(b, x, "blk.%d.pre_ffw_norm_2");
    logits = logits_of(b, x);
    experts = rn_build_moe_by(b, in, logits);
    rn_build_release(b, logits);
    rn_build_release(b, in);
    experts = norm_of(b, experts, "blk.%d.post_ffw_norm_2");
    return rn_build_add(b, dense, experts);
}
