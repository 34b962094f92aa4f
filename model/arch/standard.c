/* A row for a file whose architecture nobody knows, but whose tensors are those of a standard decoder: see table.h.
 *
 * What the tensors and keys say is taken from them: norms and where they stand, biases, gates, experts, windows, caps,
 * learned positions. Five things they do not say, and are assumed:
 *
 *   pairs of the rotation    halves, which is what most converters leave as they find it; neighbours in a file that
 *                            says "Meta AI original pth" in its key tensor_data_layout
 *   norms of queries, keys   before the rotation, where the file has such norms
 *   positions                the rotation, too, where no key or tensor tells of positions
 *   activation               SiLU before a gate, else GELU
 *   weights of experts       divided by their sum, and by a softmax, unless keys say otherwise
 *
 * A key that is not in the list below is an error, since it may change the result; so is a tensor that the plan does
 * not read, as with every row. */
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "model/arch/table.h"
#include "model/hparams.h"

/* Heads that tell how well two texts fit are not for next tokens. */
static const char *const ranking[] = {"cls.weight", "cls.bias", "cls.output.weight", "cls.output.bias", NULL};

struct file {
    const struct rn_gguf *gguf;
    struct rn_arch_choice *choice;
    runnel_error *error;
};

static bool is(struct rn_view view, const char *text)
{
    return view.n == strlen(text) && memcmp(view.bytes, text, view.n) == 0;
}

/* The first tensor "blk.<number>.<rest>"; NULL: there is none. */
static const struct rn_tensor *any_block(const struct file *f, const char *rest)
{
    const struct rn_tensor *tensor;
    uint64_t i, n = rn_gguf_n_tensors(f->gguf);
    const char *dot;
    size_t left;

    for (i = 0; i < n; i++) {
        tensor = rn_gguf_tensor(f->gguf, i);
        if (tensor->name.n < 5 || memcmp(tensor->name.bytes, "blk.", 4) != 0)
            continue;
        dot = memchr(tensor->name.bytes + 4, '.', tensor->name.n - 4);
        left = dot == NULL ? 0 : tensor->name.n - (size_t)(dot + 1 - tensor->name.bytes);
        if (left == strlen(rest) && memcmp(dot + 1, rest, left) == 0)
            return tensor;
    }
    return NULL;
}

static bool has(const struct file *f, const char *rest)
{
    return any_block(f, rest) != NULL;
}

static const struct rn_gguf_entry *find_key(const struct file *f, const char *rest)
{
    char key[RN_KEY_BYTES];

    snprintf(key, sizeof key, "%s.%s", f->choice->name, rest);
    return rn_gguf_find(f->gguf, key);
}

/* 0 where the key is absent or no number: whoever reads it says what is wrong. */
static double number(const struct file *f, const char *rest)
{
    char key[RN_KEY_BYTES];
    double value = 0;
    uint64_t whole = 0;

    snprintf(key, sizeof key, "%s.%s", f->choice->name, rest);
    if (rn_gguf_get_u64(f->gguf, key, false, 0, UINT64_MAX, &whole, NULL) == RUNNEL_OK)
        return (double)whole;
    return rn_gguf_get_f64(f->gguf, key, false, -1e30, 1e30, &value, NULL) == RUNNEL_OK ? value : 0;
}

static runnel_status bad_key(const struct file *f, const char *rest, const char *why)
{
    return rn_error_set(f->error, RUNNEL_UNSUPPORTED, "%s: key %s.%s %s: architecture '%s' is not known",
                        rn_gguf_path(f->gguf), f->choice->name, rest, why, f->choice->name);
}

/* ---- Is it one? ---- */

static runnel_status not_standard(const struct file *f, const char *what)
{
    return rn_error_set(f->error, RUNNEL_UNSUPPORTED,
                        "%s: architecture '%s' is not supported, nor a standard decoder: %s is missing",
                        rn_gguf_path(f->gguf), f->choice->name, what);
}

static runnel_status check_tensors(const struct file *f)
{
    if (rn_gguf_find_tensor(f->gguf, "token_embd.weight") == NULL)
        return not_standard(f, "tensor token_embd.weight");
    if (rn_gguf_find_tensor(f->gguf, "output_norm.weight") == NULL)
        return not_standard(f, "tensor output_norm.weight");
    if (!has(f, "attn_q.weight") && !has(f, "attn_qkv.weight"))
        return not_standard(f, "tensor blk.0.attn_q.weight");
    if (!has(f, "attn_output.weight"))
        return not_standard(f, "tensor blk.0.attn_output.weight");
    if (!has(f, "ffn_down.weight") && !has(f, "ffn_down_exps.weight"))
        return not_standard(f, "tensor blk.0.ffn_down.weight");
    return find_key(f, "block_count") == NULL ? not_standard(f, "its key block_count") : RUNNEL_OK;
}

/* What has tensors of its own: where these are absent, so is what the keys are about. */
static bool is_of_other_tensors(struct rn_view rest)
{
    static const char *const stems[] = {"ssm.",
                                        "wkv.",
                                        "kda.",
                                        "shortconv.",
                                        "posnet.",
                                        "convnext.",
                                        "features_length",
                                        "time_mix_extra_dim",
                                        "time_decay_extra_dim",
                                        "full_attention_interval",
                                        "interleave_moe_layer_step",
                                        "moe_every_n_layers",
                                        "expert_group_scale",
                                        "experts_per_group",
                                        "attention.group_norm_",
                                        "attention.q_lora_rank",
                                        "attention.kv_lora_rank",
                                        "attention.relative_buckets_count",
                                        "attention.indexer."};
    size_t i;

    for (i = 0; i < sizeof stems / sizeof stems[0]; i++)
        if (rest.n >= strlen(stems[i]) && memcmp(rest.bytes, stems[i], strlen(stems[i])) == 0)
            return true;
    return false;
}

/* Those that are read with some flag, and those that say nothing of the forward pass. */
static bool is_known_key(struct rn_view rest)
{
    static const char *const known[] = {"block_count",
                                        "context_length",
                                        "embedding_length",
                                        "feed_forward_length",
                                        "vocab_size",
                                        "tensor_data_layout",
                                        "pooling_type",
                                        "use_parallel_residual",
                                        "leading_dense_block_count",
                                        "nextn_predict_layers",
                                        "attention.head_count",
                                        "attention.head_count_kv",
                                        "attention.key_length",
                                        "attention.value_length",
                                        "attention.layer_norm_epsilon",
                                        "attention.layer_norm_rms_epsilon",
                                        "attention.scale",
                                        "attention.causal",
                                        "attention.clamp_kqv",
                                        "attention.max_alibi_bias",
                                        "attention.sliding_window",
                                        "attention.sliding_window_pattern",
                                        "attn_logit_softcapping",
                                        "final_logit_softcapping",
                                        "embedding_scale",
                                        "residual_scale",
                                        "logit_scale",
                                        "rope.dimension_count",
                                        "rope.dimension_sections",
                                        "rope.freq_base",
                                        "rope.scale_linear",
                                        "rope.scaling.type",
                                        "rope.scaling.factor",
                                        "rope.scaling.attn_factor",
                                        "rope.scaling.original_context_length",
                                        "rope.scaling.finetuned",
                                        "rope.scaling.yarn_attn_factor",
                                        "rope.scaling.yarn_ext_factor",
                                        "rope.scaling.yarn_beta_fast",
                                        "rope.scaling.yarn_beta_slow",
                                        "rope.scaling.yarn_log_multiplier",
                                        "rope.scaling.low_freq_factor",
                                        "rope.scaling.high_freq_factor",
                                        "expert_count",
                                        "expert_used_count",
                                        "expert_feed_forward_length",
                                        "expert_shared_count",
                                        "expert_shared_feed_forward_length",
                                        "expert_gating_func",
                                        "expert_weights_norm",
                                        "expert_weights_scale",
                                        "expert_group_count",
                                        "expert_group_used_count"};
    size_t i;

    for (i = 0; i < sizeof known / sizeof known[0]; i++)
        if (is(rest, known[i]))
            return true;
    return false;
}

static runnel_status check_keys(const struct file *f)
{
    size_t prefix = strlen(f->choice->name);
    uint64_t i, n = rn_gguf_n_entries(f->gguf);

    for (i = 0; i < n; i++) {
        struct rn_view key = rn_gguf_entry(f->gguf, i)->key;
        char text[RN_KEY_BYTES];

        if (key.n <= prefix + 1 || memcmp(key.bytes, f->choice->name, prefix) != 0 || key.bytes[prefix] != '.')
            continue;
        key = (struct rn_view){key.bytes + prefix + 1, key.n - prefix - 1};
        snprintf(text, sizeof text, "%.*s", (int)(key.n < 80 ? key.n : 80), key.bytes);
        if (!is_known_key(key) && !is_of_other_tensors(key))
            return bad_key(f, text, "may change what is computed");
    }
    if (number(f, "logit_scale") != 0 && number(f, "logit_scale") != 1)
        return bad_key(f, "logit_scale", "divides in some architectures and multiplies in others");
    if (has(f, "exp_probs_b.bias") && find_key(f, "expert_gating_func") == NULL)
        return bad_key(f, "expert_gating_func", "is missing, though experts have biases");
    return RUNNEL_OK;
}

/* ---- What it has ---- */

static bool says_rotation(const struct file *f)
{
    return find_key(f, "rope.freq_base") != NULL || find_key(f, "rope.dimension_count") != NULL;
}

static uint64_t rotation_flags(const struct file *f)
{
    bool positions = rn_gguf_find_tensor(f->gguf, "position_embd.weight") != NULL;
    struct rn_view layout = {"", 0};
    uint64_t flags = positions ? RN_ARCH_POSITIONS : 0;
    char key[RN_KEY_BYTES];

    if (number(f, "attention.max_alibi_bias") > 0)
        return flags | RN_ARCH_ALIBI | RN_ARCH_NO_ROPE;
    if (positions && !says_rotation(f))
        return flags | RN_ARCH_NO_ROPE;
    snprintf(key, sizeof key, "%s.tensor_data_layout", f->choice->name);
    rn_gguf_get_string(f->gguf, key, false, &layout, NULL);
    return is(layout, "Meta AI original pth") ? flags : flags | RN_ARCH_NEOX;
}

/* Of queries and keys: of each head, or of all together. */
static uint64_t head_norm_flags(const struct file *f)
{
    const struct rn_tensor *weight = any_block(f, "attn_q_norm.weight"), *q = any_block(f, "attn_q.weight");
    const struct rn_tensor *output = any_block(f, "attn_output.weight");
    uint64_t all = q != NULL ? q->dims[1] : output->dims[0];

    if (weight == NULL || weight->dims[1] != 1)
        return 0;
    return weight->dims[0] == all ? RN_ARCH_ROW_NORM : RN_ARCH_HEAD_NORM;
}

static uint64_t norm_flags(const struct file *f)
{
    bool layer = find_key(f, "attention.layer_norm_epsilon") != NULL;
    bool rms = find_key(f, "attention.layer_norm_rms_epsilon") != NULL;
    bool biased = rn_gguf_find_tensor(f->gguf, "output_norm.bias") != NULL;
    uint64_t flags = layer && (!rms || biased) ? RN_ARCH_LAYER_NORM : 0;

    if (rn_gguf_find_tensor(f->gguf, "token_embd_norm.weight") != NULL)
        flags |= RN_ARCH_EMBEDDING_NORM;
    if (has(f, "post_attention_norm.weight") && has(f, "post_ffw_norm.weight"))
        flags |= RN_ARCH_NORM_AFTER;
    if ((flags & RN_ARCH_NORM_AFTER) != 0 && !has(f, "attn_norm.weight") && !has(f, "ffn_norm.weight"))
        flags |= RN_ARCH_NO_NORM_BEFORE;
    if (has(f, "attn_sub_norm.weight") && has(f, "ffn_sub_norm.weight"))
        flags |= RN_ARCH_SUB_NORM;
    return flags | head_norm_flags(f);
}

/* Without a norm of its own the feed-forward begins with attention's, beside it; post_attention_norm alone is the
 * feed-forward's under another name. */
static uint64_t shape_flags(const struct file *f)
{
    const struct rn_tensor *up = any_block(f, "ffn_up.weight"), *down = any_block(f, "ffn_down.weight");
    bool by_key = has(f, "ffn_norm.weight") && find_key(f, "use_parallel_residual") != NULL;
    uint64_t flags = by_key ? RN_ARCH_PARALLEL_KEY : 0;

    if (has(f, "attn_norm.weight") && !has(f, "ffn_norm.weight")) {
        if (!has(f, "post_attention_norm.weight"))
            flags |= RN_ARCH_PARALLEL;
        else if (!has(f, "post_ffw_norm.weight"))
            f->choice->arch.ffn_norm = "blk.%d.post_attention_norm";
    }
    if (up != NULL && down != NULL && !has(f, "ffn_gate.weight"))
        flags |= up->dims[1] == down->dims[0] ? RN_ARCH_PLAIN_FFN : RN_ARCH_FUSED_FFN;
    return flags;
}

static uint64_t number_flags(const struct file *f)
{
    uint64_t flags = 0;

    if (find_key(f, "embedding_scale") != NULL || find_key(f, "residual_scale") != NULL)
        flags |= RN_ARCH_SCALES;
    if (find_key(f, "attn_logit_softcapping") != NULL || find_key(f, "final_logit_softcapping") != NULL)
        flags |= RN_ARCH_SOFTCAPS;
    if (find_key(f, "attention.clamp_kqv") != NULL)
        flags |= RN_ARCH_CLAMP;
    if (has(f, "attn_sinks.weight"))
        flags |= RN_ARCH_SINKS;
    return flags;
}

/* Which blocks have the window is a key's to say. A window as long as the context is none. */
static runnel_status read_window(const struct file *f)
{
    double window = number(f, "attention.sliding_window");

    if (window == 0 || window >= number(f, "context_length"))
        return RUNNEL_OK;
    if (find_key(f, "attention.sliding_window_pattern") == NULL)
        return bad_key(f, "attention.sliding_window", "does not say which blocks it is for");
    f->choice->arch.window_period = 1; /* no block, but for that key */
    return RUNNEL_OK;
}

/* ---- What was assumed ---- */

static void say_assumed(const struct file *f)
{
    const struct rn_arch *arch = &f->choice->arch;
    bool rotates = (arch->flags & RN_ARCH_NO_ROPE) == 0;
    bool normed = rotates && (arch->flags & (RN_ARCH_HEAD_NORM | RN_ARCH_ROW_NORM)) != 0;
    const char *rotation = !rotates                            ? "no rotation"
                           : (arch->flags & RN_ARCH_NEOX) != 0 ? "rotation of halves"
                                                               : "rotation of neighbours";

    snprintf(
        f->choice->assumed, sizeof f->choice->assumed,
        "architecture '%s' is not known; its tensors are a standard decoder's, for which these are assumed: %s, %s%s, "
        "%s norms%s%s%s",
        f->choice->name, rotation, arch->act == RN_ACT_SILU ? "SiLU" : "GELU",
        (arch->flags & RN_ARCH_PLAIN_FFN) != 0 ? "" : " gate",
        (arch->flags & RN_ARCH_LAYER_NORM) != 0 ? "layer" : "RMS",
        normed ? ", norms of queries and keys before the rotation" : "",
        find_key(f, "expert_count") != NULL && has(f, "ffn_down_exps.weight") ? ", experts by their shares" : "",
        rotates && !says_rotation(f) ? "; no key or tensor tells of positions" : "");
}

runnel_status rn_arch_standard(const struct rn_gguf *gguf, struct rn_arch_choice *choice, runnel_error *error)
{
    const struct file f = {gguf, choice, error};
    runnel_status status = check_tensors(&f);

    choice->arch = (struct rn_arch){
        .name = choice->name, .unused = ranking, .experts = RN_EXPERTS_NORMALISED | RN_EXPERTS_KEYS | RN_EXPERTS_SCALE};
    if (status == RUNNEL_OK)
        status = check_keys(&f);
    if (status == RUNNEL_OK)
        status = read_window(&f);
    if (status != RUNNEL_OK)
        return status;
    choice->arch.flags = rotation_flags(&f) | norm_flags(&f) | shape_flags(&f) | number_flags(&f);
    choice->arch.act = (choice->arch.flags & RN_ARCH_PLAIN_FFN) != 0 ? RN_ACT_GELU_TANH : RN_ACT_SILU;
    say_assumed(&f);
    return RUNNEL_OK;
}
