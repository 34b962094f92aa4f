/* State space models, and what mixes their blocks with attention:
 *
 *   mamba       x, z = in(u)                  mamba2    z, x, B, C, dt = in(u)
 *               x = silu(conv(x))                       x, B, C = silu(conv(x, B, C))
 *               dt, B, C = norm(proj(x))                dt = softplus(dt + bias)
 *               dt = softplus(proj(dt) + bias)
 *               y = scan(x, B, C, dt)                   y = scan(x, B, C, dt)
 *               out(silu(z) * y)                        out(norm(silu(z) * y))
 *
 *   plamo2      z, x = in(u), by head
 *               x = silu(conv(x))
 *               B, C, dt = norm(proj(x)); dt = softplus(proj(dt) + bias)
 *               out(silu(z) * scan(x, B, C, dt))
 *
 * The scan and its sources: ops.def. */
#include "model/arch/families.h"
#include "model/build/build.h"

enum { MAX_STATE = 1 << 10, MAX_INNER = 1 << 20 };

/* ---- Keys ---- */

static runnel_status read_sizes(const struct rn_hparams_reader *r, struct rn_ssm_hparams *ssm, uint32_t *rank)
{
    runnel_status status = rn_hparams_u32(r, "ssm.conv_kernel", true, 2, RN_MAX_TAPS, &ssm->taps);

    if (status == RUNNEL_OK)
        status = rn_hparams_u32(r, "ssm.inner_size", true, 1, MAX_INNER, &ssm->inner);
    if (status == RUNNEL_OK)
        status = rn_hparams_u32(r, "ssm.state_size", true, 1, MAX_STATE, &ssm->state);
    if (status == RUNNEL_OK)
        status = rn_hparams_u32(r, "ssm.time_step_rank", true, 1, MAX_INNER, rank);
    return status;
}

runnel_status rn_arch_mamba_keys(const struct rn_hparams_reader *r)
{
    struct rn_ssm_hparams *ssm = &r->hparams->ssm;
    runnel_status status = read_sizes(r, ssm, &ssm->rank);
    char key[RN_KEY_BYTES];

    ssm->by_channel = true;
    ssm->heads = ssm->inner;
    ssm->groups = 1;
    rn_hparams_key(r->hparams, "ssm.dt_b_c_rms", key);
    return status == RUNNEL_OK ? rn_gguf_get_bool(r->gguf, key, false, &ssm->bare_norms, r->error) : status;
}

/* Files that have only the other eps mean it. */
runnel_status rn_arch_mamba2_keys(const struct rn_hparams_reader *r)
{
    struct rn_ssm_hparams *ssm = &r->hparams->ssm;
    runnel_status status = read_sizes(r, ssm, &ssm->heads);

    if (status == RUNNEL_OK)
        status = rn_hparams_u32(r, "ssm.group_count", true, 1, MAX_STATE, &ssm->groups);
    if (status == RUNNEL_OK && ssm->inner % ssm->heads != 0)
        status = rn_hparams_bad(r, RUNNEL_FORMAT, "ssm.time_step_rank", "does not divide ssm.inner_size");
    if (status == RUNNEL_OK && ssm->heads % ssm->groups != 0)
        status = rn_hparams_bad(r, RUNNEL_FORMAT, "ssm.group_count", "does not divide ssm.time_step_rank");
    if (r->hparams->rms_eps < 0)
        r->hparams->rms_eps = r->hparams->layer_eps;
    return status;
}

/* The divisors that such files have are not used. */
runnel_status rn_arch_falcon_h1_keys(const struct rn_hparams_reader *r)
{
    r->hparams->ssm.may_lack_norm = true;
    r->hparams->ropes[0].divisors = false;
    return rn_arch_mamba2_keys(r);
}

/* What the file says of groups counts nowhere: B and C are those of all heads. */
runnel_status rn_arch_plamo2_keys(const struct rn_hparams_reader *r)
{
    struct rn_ssm_hparams *ssm = &r->hparams->ssm;
    runnel_status status = read_sizes(r, ssm, &ssm->heads);

    ssm->groups = 1;
    ssm->in_turns = true;
    if (status == RUNNEL_OK && ssm->inner % ssm->heads != 0)
        status = rn_hparams_bad(r, RUNNEL_FORMAT, "ssm.time_step_rank", "does not divide ssm.inner_size");
    return status;
}

/* Key rope.scaling.finetuned says whether attention rotates. */
runnel_status rn_arch_granitehybrid_keys(const struct rn_hparams_reader *r)
{
    runnel_status status = rn_arch_mamba2_keys(r);
    char key[RN_KEY_BYTES];
    bool rotates = true;
    uint32_t i;

    rn_hparams_key(r->hparams, "rope.scaling.finetuned", key);
    if (status == RUNNEL_OK)
        status = rn_gguf_get_bool(r->gguf, key, false, &rotates, r->error);
    for (i = 0; !rotates && i < r->hparams->n_layers; i++)
        r->hparams->layers[i].rope = RN_NO_ROPE;
    return status;
}

/* ---- Mixers ---- */

/* RMS norm by a tensor, or without one. Releases a. */
static int16_t small_norm(struct rn_build *b, int16_t a, const char *stem, bool has)
{
    int16_t out;

    if (!has)
        return rn_build_unit_norm(b, a, rn_build_width(b, a));
    out = rn_build_head_norm(b, a, stem, 1);
    rn_build_release(b, a);
    return out;
}

/* n values of a from `from` on, normed if that is asked for. */
static int16_t cut(struct rn_build *b, int16_t a, uint32_t from, uint32_t n, const char *stem, bool normed, bool has)
{
    int16_t out = rn_build_split(b, a, 1, from, n);

    return normed ? small_norm(b, out, stem, has) : out;
}

/* c, then d, then e. Releases all. */
static int16_t join(struct rn_build *b, int16_t c, int16_t d, int16_t e)
{
    int16_t two = rn_build_concat(b, c, d), all = rn_build_concat(b, two, e);

    rn_build_release(b, c);
    rn_build_release(b, d);
    rn_build_release(b, e);
    rn_build_release(b, two);
    return all;
}

static int16_t mix_by_channel(struct rn_build *b, int16_t in)
{
    const struct rn_ssm_hparams *ssm = &b->hparams.ssm;
    bool has = rn_build_has(b, "blk.%d.ssm_dt_norm.weight"), normed = has || ssm->bare_norms;
    int16_t both = rn_build_linear(b, in, "blk.%d.ssm_in", 2 * ssm->inner), x, z, c, all, dt, narrow;

    x = rn_build_split(b, both, 1, 0, ssm->inner);
    z = rn_build_split(b, both, 1, ssm->inner, ssm->inner);
    rn_build_release(b, both);
    c = rn_build_conv(b, x, "blk.%d.ssm_conv1d", ssm->taps, true);
    rn_build_release(b, x);
    all = rn_build_linear(b, c, "blk.%d.ssm_x", ssm->rank + 2 * ssm->state);
    narrow = cut(b, all, 0, ssm->rank, "blk.%d.ssm_dt_norm", normed, has);
    if (!rn_build_has(b, "blk.%d.ssm_dt.bias"))
        rn_build_fail(b, RUNNEL_FORMAT, "tensor blk.%d.ssm_dt.bias is missing", (int)b->layer);
    dt = rn_build_activate(b, RN_ACT_SOFTPLUS, rn_build_linear(b, narrow, "blk.%d.ssm_dt", ssm->inner));
    rn_build_release(b, narrow);
    x = join(b, c, cut(b, all, ssm->rank, ssm->state, "blk.%d.ssm_b_norm", normed, has),
             cut(b, all, ssm->rank + ssm->state, ssm->state, "blk.%d.ssm_c_norm", normed, has));
    rn_build_release(b, all);
    return rn_build_gate(b, RN_ACT_SILU, z, rn_build_scan(b, x, dt, ssm));
}

static int16_t mix_by_head(struct rn_build *b, int16_t in)
{
    const struct rn_ssm_hparams *ssm = &b->hparams.ssm;
    uint32_t wide = ssm->inner + 2 * ssm->groups * ssm->state;
    int16_t all = rn_build_linear(b, in, "blk.%d.ssm_in", ssm->inner + wide + ssm->heads), x, z, c, dt, y, out;

    z = rn_build_split(b, all, 1, 0, ssm->inner);
    x = rn_build_split(b, all, 1, ssm->inner, wide);
    dt = rn_build_split(b, all, 1, ssm->inner + wide, ssm->heads);
    rn_build_release(b, all);
    c = rn_build_conv(b, x, "blk.%d.ssm_conv1d", ssm->taps, true);
    rn_build_release(b, x);
    dt = rn_build_activate_biased(b, RN_ACT_SOFTPLUS, dt, rn_build_vector(b, "blk.%d.ssm_dt.bias", ssm->heads, false));
    y = rn_build_gate(b, RN_ACT_SILU, z, rn_build_scan(b, c, dt, ssm));
    if (ssm->may_lack_norm && !rn_build_has(b, "blk.%d.ssm_norm.weight"))
        return y;
    out = rn_build_own_rms_norm(b, y, "blk.%d.ssm_norm", ssm->groups);
    rn_build_release(b, y);
    return out;
}

static int16_t mix_in_turns(struct rn_build *b, int16_t in)
{
    const struct rn_ssm_hparams *ssm = &b->hparams.ssm;
    uint32_t head = ssm->inner / ssm->heads, all_rows = rn_build_rows(b, "blk.%d.ssm_x.weight"), rank;
    int16_t both = rn_build_linear(b, in, "blk.%d.ssm_in", 2 * ssm->inner), x, z, c, all, dt, narrow;

    if (all_rows <= 2 * ssm->state)
        rn_build_fail(b, RUNNEL_FORMAT, "tensor blk.%d.ssm_x.weight has %u rows, not more than %u", (int)b->layer,
                      all_rows, 2 * ssm->state);
    rank = all_rows - 2 * ssm->state;
    z = rn_build_split(b, both, ssm->heads, 0, head);
    x = rn_build_split(b, both, ssm->heads, head, head);
    rn_build_release(b, both);
    c = rn_build_conv(b, x, "blk.%d.ssm_conv1d", ssm->taps, true);
    rn_build_release(b, x);
    all = rn_build_linear(b, c, "blk.%d.ssm_x", all_rows);
    narrow = cut(b, all, 2 * ssm->state, rank, "blk.%d.ssm_dt_norm", true, true);
    dt = rn_build_product(b, narrow, "blk.%d.ssm_dt.weight", "blk.%d.ssm_dt.bias", ssm->heads);
    rn_build_release(b, narrow);
    dt = rn_build_activate(b, RN_ACT_SOFTPLUS, dt);
    x = join(b, c, cut(b, all, 0, ssm->state, "blk.%d.ssm_b_norm", true, true),
             cut(b, all, ssm->state, ssm->state, "blk.%d.ssm_c_norm", true, true));
    rn_build_release(b, all);
    return rn_build_gate(b, RN_ACT_SILU, z, rn_build_scan(b, x, dt, ssm));
}

/* What out is made of, [inner]. Keeps in. */
static int16_t mix(struct rn_build *b, int16_t in)
{
    if (b->hparams.ssm.in_turns)
        return mix_in_turns(b, in);
    return b->hparams.ssm.by_channel ? mix_by_channel(b, in) : mix_by_head(b, in);
}

/* Releases y. */
static int16_t mixed(struct rn_build *b, int16_t y)
{
    int16_t out = rn_build_linear(b, y, "blk.%d.ssm_out", b->hparams.embedding);

    rn_build_release(b, y);
    return out;
}

/* ---- Blocks ---- */

/* x + what attention, or a scan where the block has none, gives. Releases x. */
static int16_t mixer_half(struct rn_build *b, int16_t x)
{
    bool attends = b->hparams.layers[b->layer].heads > 0;
    int16_t in = rn_build_norm(b, x, "blk.%d.attn_norm"), y = attends ? rn_build_mix(b, in) : mix(b, in), out;

    rn_build_release(b, in);
    rn_build_last_rows(b, &y, &x);
    out = attends ? rn_build_attention_out(b, y) : mixed(b, y);
    if ((b->arch->flags & RN_ARCH_NORM_AFTER) != 0) {
        in = rn_build_norm(b, out, "blk.%d.post_attention_norm");
        rn_build_release(b, out);
        out = in;
    }
    rn_build_scale(b, out, b->hparams.residual_scale);
    return rn_build_add(b, out, x);
}

/* A scan, whatever heads the file speaks of. */
int16_t rn_arch_mamba_block(struct rn_build *b, int16_t x)
{
    b->hparams.layers[b->layer].heads = 0;
    return mixer_half(b, x);
}

int16_t rn_arch_hybrid_block(struct rn_build *b, int16_t x)
{
    return rn_build_ffn_part(b, mixer_half(b, x));
}

/* Both side by side. */
int16_t rn_arch_falcon_h1_block(struct rn_build *b, int16_t x)
{
    int16_t in = rn_build_norm(b, x, "blk.%d.attn_norm"), y = mix(b, in), seen = rn_build_mix(b, in), out;
    bool all_rows = !b->selected;

    rn_build_release(b, in);
    rn_build_last_rows(b, &y, &x);
    if (all_rows && b->selected)
        seen = rn_build_select(b, seen);
    out = rn_build_add(b, rn_build_attention_out(b, seen), mixed(b, y));
    return rn_build_ffn_part(b, rn_build_add(b, out, x));
}

/* One of three: a feed-forward where the block has a width for it. */
int16_t rn_arch_nemotron_h_block(struct rn_build *b, int16_t x)
{
    if (b->hparams.layers[b->layer].feed_forward == 0)
        return mixer_half(b, x);
    rn_build_last_rows(b, NULL, &x);
    return rn_build_ffn_part(b, x);
}
