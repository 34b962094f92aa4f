/* Plans of heads and prediction layers: see head.h. */
#include "model/heads/head.h"

#include <string.h>

#include "model/build/build.h"
#include "model/heads/eagle3.h"

/* ---- What the file says ---- */

static bool is_of(const struct rn_gguf *gguf, const char *architecture)
{
    struct rn_view name = {"", 0};

    return rn_gguf_get_string(gguf, "general.architecture", true, &name, NULL) == RUNNEL_OK &&
           name.n == strlen(architecture) && memcmp(name.bytes, architecture, name.n) == 0;
}

bool rn_head_is(const struct rn_gguf *gguf)
{
    return is_of(gguf, RN_HEAD_ARCH) || is_of(gguf, RN_EAGLE3_ARCH);
}

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static runnel_status read_print(const struct rn_gguf *gguf, unsigned char print[16], runnel_error *error)
{
    struct rn_view text = {"", 0};
    runnel_status status = rn_gguf_get_string(gguf, RN_HEAD_ARCH ".target_print", true, &text, error);

    for (size_t i = 0; status == RUNNEL_OK && i < 16; i++) {
        int high = text.n == 32 ? digit(text.bytes[2 * i]) : -1, low = text.n == 32 ? digit(text.bytes[2 * i + 1]) : -1;

        if (high < 0 || low < 0)
            return rn_error_set(error, RUNNEL_FORMAT, "key " RN_HEAD_ARCH ".target_print is not 32 hex digits");
        print[i] = (unsigned char)(16 * high + low);
    }
    return status;
}

runnel_status rn_head_read(const struct rn_gguf *gguf, struct rn_head_facts *facts, runnel_error *error)
{
    const struct rn_gguf_entry *layers = NULL;
    runnel_status status;

    *facts = (struct rn_head_facts){0};
    if (is_of(gguf, RN_EAGLE3_ARCH))
        return rn_eagle3_read(gguf, facts, error);
    if (!is_of(gguf, RN_HEAD_ARCH))
        return rn_error_set(error, RUNNEL_UNSUPPORTED, "%s: not an EAGLE head", rn_gguf_path(gguf));
    status = read_print(gguf, facts->target, error);
    if (status == RUNNEL_OK)
        status = rn_gguf_get_array(gguf, RN_HEAD_ARCH ".target_layers", true, RN_GGUF_U32, &layers, error);
    if (status != RUNNEL_OK)
        return status;
    if (layers->count < 1 || layers->count > RN_HEAD_TAPS)
        return rn_error_set(error, RUNNEL_FORMAT, "key " RN_HEAD_ARCH ".target_layers has not 1 to %d numbers",
                            RN_HEAD_TAPS);
    facts->n_taps = (uint32_t)layers->count;
    for (uint32_t i = 0; i < facts->n_taps; i++) {
        int64_t layer = rn_gguf_item_i64(layers, i);

        if (layer < (i == 0 ? 0 : (int64_t)facts->taps[i - 1] + 1) || layer > 1 << 16)
            return rn_error_set(error, RUNNEL_FORMAT, "key " RN_HEAD_ARCH ".target_layers is not ascending");
        facts->taps[i] = (uint32_t)layer;
    }
    return RUNNEL_OK;
}

/* ---- The layer ---- */

/* From token and state to what the decoder layer begins with. */
static int16_t join(struct rn_build *b, int32_t embedding)
{
    int16_t token = rn_build_embed(b, embedding, 1), state = rn_build_input(b, b->hparams.embedding);
    int16_t e = rn_build_rms_norm(b, token, "blk.%d.nextn.enorm.weight");
    int16_t g = rn_build_rms_norm(b, state, "blk.%d.nextn.hnorm.weight");
    int16_t both = rn_build_concat(b, e, g), x;

    rn_build_release(b, token);
    rn_build_release(b, state);
    rn_build_release(b, e);
    rn_build_release(b, g);
    x = rn_build_linear(b, both, "blk.%d.nextn.eh_proj", b->hparams.embedding);
    rn_build_release(b, both);
    return x;
}

/* From token and state to h, which is the caller's. */
static int16_t layer(struct rn_build *b, int32_t embedding)
{
    rn_build_ropes(b);
    return rn_build_block(b, join(b, embedding));
}

static void build_head(struct rn_build *b)
{
    int32_t embedding;
    int16_t h, normed;

    b->source = b->target;
    embedding = rn_build_matrix(b, "token_embd.weight", b->hparams.embedding, b->plan->n_vocab, 0, false);
    b->source = b->plan->gguf;
    b->layer = b->last = 0;
    h = layer(b, embedding);
    rn_build_features(b, h);
    normed = rn_build_rms_norm(b, h, "output_norm.weight");
    rn_build_release(b, h);
    b->layer = -1;
    b->source = b->target;
    rn_build_logits(b, normed, "output.weight", embedding);
    b->source = b->plan->gguf;
}

runnel_status rn_plan_new_head(struct rn_heap *heap, const struct rn_gguf *head, const struct rn_gguf *target,
                               uint32_t context_tokens, struct rn_plan **out, runnel_error *error)
{
    static const struct rn_arch own = {.name = RN_HEAD_ARCH, .build = build_head},
                                eagle3 = {.name = RN_EAGLE3_ARCH, .build = rn_eagle3_build};
    struct rn_head_facts facts;
    struct rn_build b = {.error = error, .target = target, .facts = &facts};
    runnel_status status = rn_head_read(head, &facts, error);

    return status == RUNNEL_OK ? rn_plan_make(&b, heap, head, facts.is_eagle3 ? &eagle3 : &own, context_tokens, out)
                               : status;
}

runnel_status rn_plan_new_for_head(struct rn_heap *heap, const struct rn_gguf *target, uint32_t context_tokens,
                                   const struct rn_gguf *head, struct rn_plan **out, runnel_error *error)
{
    struct rn_build b = {.error = error, .with_norm = true};
    struct rn_arch_choice choice;
    struct rn_head_facts facts;
    runnel_status status = rn_head_read(head, &facts, error);

    if (status == RUNNEL_OK)
        status = rn_plan_arch(target, &choice, error);
    if (status == RUNNEL_OK && facts.is_eagle3)
        status = rn_eagle3_fits(head, &facts, target, choice.arch.name, error);
    if (status != RUNNEL_OK)
        return status;
    b.facts = &facts;
    b.fuse = facts.is_eagle3 || facts.n_taps > 1 ? head : NULL;
    b.taps = facts.taps;
    b.n_taps = facts.n_taps;
    b.assumed = choice.assumed;
    return rn_plan_make(&b, heap, target, &choice.arch, context_tokens, out);
}

/* ---- Prediction layers ---- */

static void build_nextn(struct rn_build *b)
{
    const uint32_t n_vocab = b->plan->n_vocab, width = b->hparams.embedding;
    int32_t embedding = rn_build_matrix(b, "token_embd.weight", width, n_vocab, 0, false), own, output;
    int16_t h, normed;

    if (b->nextn >= b->hparams.n_nextn) {
        rn_build_fail(b, RUNNEL_UNSUPPORTED, "key %s.nextn_predict_layers counts layers that the file does not have",
                      b->hparams.architecture);
        return;
    }
    b->layer = b->last = (int32_t)(b->n_blocks + b->nextn);
    own = rn_build_matrix(b, "blk.%d.nextn.embed_tokens.weight", width, n_vocab, 0, true);
    h = layer(b, own >= 0 ? own : embedding);
    normed = rn_build_rms_norm(b, h,
                               rn_build_has(b, "blk.%d.nextn.shared_head_norm.weight")
                                   ? "blk.%d.nextn.shared_head_norm.weight"
                                   : "output_norm.weight");
    rn_build_release(b, h);
    rn_build_features(b, normed);
    output = rn_build_matrix(b, "output.weight", width, n_vocab, 0, true);
    rn_build_logits(b, normed, "blk.%d.nextn.shared_head_head.weight", output >= 0 ? output : embedding);
    b->plan->n_layers = 1;
}

runnel_status rn_head_count_nextn(const struct rn_gguf *gguf, uint32_t *n, runnel_error *error)
{
    struct rn_arch_choice choice;
    uint64_t count = 0;
    char key[RN_KEY_BYTES];
    runnel_status status = rn_plan_arch(gguf, &choice, error);

    if (status != RUNNEL_OK)
        return status;
    rn_hparams_key(&(struct rn_hparams){.architecture = choice.arch.name}, "nextn_predict_layers", key);
    status = rn_gguf_get_u64(gguf, key, false, 0, RN_MAX_LAYERS, &count, error);
    *n = (uint32_t)count;
    return status;
}

runnel_status rn_plan_new_nextn(struct rn_heap *heap, const struct rn_gguf *gguf, uint32_t context_tokens,
                                uint32_t which, struct rn_plan **out, runnel_error *error)
{
    struct rn_build b = {.error = error, .nextn = which, .only_nextn = true};
    struct rn_arch_choice choice;
    uint32_t n;
    runnel_status status = rn_head_count_nextn(gguf, &n, error);

    if (status == RUNNEL_OK)
        status = rn_plan_arch(gguf, &choice, error);
    if (status != RUNNEL_OK)
        return status;
    if (n <= which)
        return rn_error_set(error, RUNNEL_UNSUPPORTED,
                            "%s has %u prediction layers (key %s.nextn_predict_layers), not %u", rn_gguf_path(gguf), n,
                            choice.arch.name, which + 1);
    choice.arch.build = build_nextn;
    return rn_plan_make(&b, heap, gguf, &choice.arch, context_tokens, out);
}
