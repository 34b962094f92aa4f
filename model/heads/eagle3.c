/* EAGLE-3 heads as users find them (Li et al. 2025, arXiv 2503.01840): GGUF files of architecture eagle3, which
 * llama.cpp's converter makes of published heads, and llama.cpp reads.
 *
 *     streams behind blocks l - 1, l of target_layers, beside each other ─ (enc.output_norm) ─ fc ─▶ g(t)
 *
 *     embedding(t + 1) ─ attn_norm ───┐
 *                                     ├─▶ attention over both, own cache ─ + r ─┬─ ffn_norm ─ feed-forward ─ + ─▶ h
 *     g(t), or h before ─ attn_norm_2 ┘                                         └────────────────────────────┘
 *     h ─ output_norm ─ output ─▶ logits of token t + 2
 *
 *     r is g(t), or with norm_before_residual what attn_norm_2 gives. The row stands at position t, and h of it where
 *     g(t + 1) stands when the next token is drafted, as in head.h.
 *
 *   eagle3.target_layers         (older files: extract_layers) l counts blocks from 0: the stream that block l reads;
 *                                as many as the target has: what its final norm reads
 *   eagle3.target_hidden_size    the target's width; the head's own is embedding_length
 *   eagle3.norm_before_fc        enc.output_norm stands before fc (EAGLE-3.1); default false
 *   eagle3.norm_before_residual  see above; default false
 *   fc.weight                    [all streams -> head's width]
 *   blk.0.*                      a block of Llama's, with products of twice the width for queries, keys and values
 *   token_embd, output           the head's own, or absent: the target's
 *   d2t                          for each row of the head's own output the target's token; absent: all, in order
 *   rope_freqs                   as in every file
 *
 * Nothing in such a file says which file its target is: rn_eagle3_fits compares what both say. */
#include "model/heads/eagle3.h"

#include <string.h>

#include "base/one_line.h"

/* ---- What the file says ---- */

static runnel_status read_layers(const struct rn_gguf *gguf, struct rn_head_facts *facts, runnel_error *error)
{
    static const char key[] = RN_EAGLE3_ARCH ".target_layers", older[] = RN_EAGLE3_ARCH ".extract_layers";
    const char *name = rn_gguf_find(gguf, key) == NULL && rn_gguf_find(gguf, older) != NULL ? older : key;
    const struct rn_gguf_entry *layers = NULL;
    runnel_status status = rn_gguf_get_array(gguf, name, true, RN_GGUF_U32, &layers, error);

    if (status != RUNNEL_OK)
        return status;
    if (layers->count < 1 || layers->count > RN_HEAD_TAPS)
        return rn_error_set(error, RUNNEL_FORMAT, "%s: key %s has not 1 to %d numbers", rn_gguf_path(gguf), name,
                            RN_HEAD_TAPS);
    facts->n_taps = (uint32_t)layers->count;
    for (uint32_t i = 0; i < facts->n_taps; i++) {
        int64_t layer = rn_gguf_item_i64(layers, i);

        if (layer == 0 && i == 0)
            return rn_error_set(error, RUNNEL_UNSUPPORTED, "%s: key %s has 0: heads that read embeddings are not known",
                                rn_gguf_path(gguf), name);
        if (layer < (i == 0 ? 1 : (int64_t)facts->taps[i - 1] + 2) || layer > RN_MAX_LAYERS)
            return rn_error_set(error, RUNNEL_FORMAT, "%s: key %s is not ascending from 1 to %d", rn_gguf_path(gguf),
                                name, RN_MAX_LAYERS);
        facts->taps[i] = (uint32_t)layer - 1;
    }
    return RUNNEL_OK;
}

static runnel_status read_u32(const struct rn_gguf *gguf, const char *key, uint64_t max, uint32_t *value,
                              runnel_error *error)
{
    uint64_t wide = 0;
    runnel_status status = rn_gguf_get_u64(gguf, key, true, 1, max, &wide, error);

    *value = (uint32_t)wide;
    return status;
}

runnel_status rn_eagle3_read(const struct rn_gguf *gguf, struct rn_head_facts *facts, runnel_error *error)
{
    uint32_t blocks;
    runnel_status status = read_layers(gguf, facts, error);

    facts->is_eagle3 = true;
    if (status == RUNNEL_OK)
        status = read_u32(gguf, RN_EAGLE3_ARCH ".block_count", 1, &blocks, error);
    if (status == RUNNEL_OK)
        status = read_u32(gguf, RN_EAGLE3_ARCH ".embedding_length", RN_MAX_WIDTH, &facts->width, error);
    if (status == RUNNEL_OK)
        status = read_u32(gguf, RN_EAGLE3_ARCH ".target_hidden_size", RN_MAX_WIDTH, &facts->target_width, error);
    if (status == RUNNEL_OK)
        status =
            rn_gguf_get_f64(gguf, RN_EAGLE3_ARCH ".attention.layer_norm_rms_epsilon", true, 0, 1, &facts->eps, error);
    if (status == RUNNEL_OK)
        status = rn_gguf_get_bool(gguf, RN_EAGLE3_ARCH ".norm_before_fc", false, &facts->norm_before_fc, error);
    if (status == RUNNEL_OK)
        status =
            rn_gguf_get_bool(gguf, RN_EAGLE3_ARCH ".norm_before_residual", false, &facts->norm_before_residual, error);
    return status;
}

/* ---- Whether it is for this target ---- */

static runnel_status target_number(const struct rn_gguf *target, const char *architecture, const char *rest,
                                   bool required, uint64_t *value, runnel_error *error)
{
    char key[RN_KEY_BYTES];

    rn_hparams_key(&(struct rn_hparams){.architecture = architecture}, rest, key);
    return rn_gguf_get_u64(target, key, required, 0, RN_MAX_WIDTH, value, error);
}

/* Width and blocks. */
static runnel_status compare_shapes(const struct rn_gguf *head, const struct rn_head_facts *facts,
                                    const struct rn_gguf *target, const char *architecture, runnel_error *error)
{
    uint64_t width = 0, blocks = 0, nextn = 0;
    runnel_status status = target_number(target, architecture, "embedding_length", true, &width, error);

    if (status == RUNNEL_OK)
        status = target_number(target, architecture, "block_count", true, &blocks, error);
    if (status == RUNNEL_OK)
        status = target_number(target, architecture, "nextn_predict_layers", false, &nextn, error);
    if (status != RUNNEL_OK)
        return status;
    if (width != facts->target_width)
        return rn_error_set(error, RUNNEL_INVALID,
                            "%s: key " RN_EAGLE3_ARCH
                            ".target_hidden_size is %u, and the model's embedding_length %llu",
                            rn_gguf_path(head), facts->target_width, (unsigned long long)width);
    blocks -= nextn < blocks ? nextn : 0;
    if (facts->taps[facts->n_taps - 1] >= blocks)
        return rn_error_set(error, RUNNEL_INVALID,
                            "%s: key " RN_EAGLE3_ARCH ".target_layers has %u, and the model %llu blocks",
                            rn_gguf_path(head), facts->taps[facts->n_taps - 1] + 1, (unsigned long long)blocks);
    return RUNNEL_OK;
}

/* An array of that kind under tokenizer.ggml., of n items; or NULL. */
static const struct rn_gguf_entry *tokens_of(const struct rn_gguf *gguf, const char *key, uint32_t item, uint64_t n)
{
    const struct rn_gguf_entry *entry = NULL;

    if (rn_gguf_get_array(gguf, key, false, item, &entry, NULL) != RUNNEL_OK || entry == NULL)
        return NULL;
    return n == 0 || entry->count == n ? entry : NULL;
}

/* Texts of ordinary tokens, where both files have them: the others have new names in many a fine-tuned model. */
static runnel_status compare_tokens(const struct rn_gguf *head, const struct rn_gguf *target, runnel_error *error)
{
    enum { ORDINARY = 1 };
    const struct rn_gguf_entry *a = tokens_of(target, "tokenizer.ggml.tokens", RN_GGUF_STRING, 0);
    const struct rn_gguf_entry *b = tokens_of(head, "tokenizer.ggml.tokens", RN_GGUF_STRING, 0), *kinds;
    const char *of_a, *of_b;

    if (a == NULL || b == NULL)
        return RUNNEL_OK;
    if (a->count != b->count)
        return rn_error_set(error, RUNNEL_INVALID, "%s: key tokenizer.ggml.tokens has %llu tokens and the model's %llu",
                            rn_gguf_path(head), (unsigned long long)b->count, (unsigned long long)a->count);
    kinds = tokens_of(target, "tokenizer.ggml.token_type", RN_GGUF_U32, a->count);
    of_a = a->data;
    of_b = b->data;
    for (uint64_t i = 0; i < a->count; i++) {
        struct rn_view x = rn_gguf_item_string(&of_a), y = rn_gguf_item_string(&of_b);

        if ((kinds == NULL || rn_gguf_item_i64(kinds, i) == ORDINARY) &&
            (x.n != y.n || (x.n > 0 && memcmp(x.bytes, y.bytes, x.n) != 0)))
            return rn_error_set(
                error, RUNNEL_INVALID, "%s: key tokenizer.ggml.tokens: token %llu is \"%s\" and the model's \"%s\"",
                rn_gguf_path(head), (unsigned long long)i, rn_quoted(y.bytes, y.n).text, rn_quoted(x.bytes, x.n).text);
    }
    return RUNNEL_OK;
}

/* Matrices that the head's file may lack: the target's have the target's width. */
static runnel_status compare_widths(const struct rn_gguf *head, const struct rn_head_facts *facts, runnel_error *error)
{
    static const char *const names[] = {"token_embd.weight", "output.weight"};

    for (size_t i = 0; i < sizeof names / sizeof *names && facts->width != facts->target_width; i++)
        if (rn_gguf_find_tensor(head, names[i]) == NULL)
            return rn_error_set(error, RUNNEL_INVALID,
                                "%s: key " RN_EAGLE3_ARCH ".embedding_length is %u, and the model's %s, which the file "
                                "has none of its own of, is %u wide",
                                rn_gguf_path(head), facts->width, names[i], facts->target_width);
    return RUNNEL_OK;
}

runnel_status rn_eagle3_fits(const struct rn_gguf *head, const struct rn_head_facts *facts,
                             const struct rn_gguf *target, const char *architecture, runnel_error *error)
{
    runnel_status status = compare_shapes(head, facts, target, architecture, error);

    if (status == RUNNEL_OK)
        status = compare_widths(head, facts, error);
    return status == RUNNEL_OK ? compare_tokens(head, target, error) : status;
}

/* ---- The head ---- */

/* Its one block: from token and state to h, which is the caller's. */
static int16_t block(struct rn_build *b, int32_t embedding)
{
    int16_t token = rn_build_embed(b, embedding, 1), state = rn_build_input(b, b->hparams.embedding);
    int16_t e = rn_build_rms_norm(b, token, "blk.%d.attn_norm.weight");
    int16_t g = rn_build_rms_norm(b, state, "blk.%d.attn_norm_2.weight");
    int16_t both = rn_build_concat(b, e, g), x = b->facts->norm_before_residual ? g : state, out;

    rn_build_release(b, token);
    rn_build_release(b, e);
    rn_build_release(b, b->facts->norm_before_residual ? state : g);
    out = rn_build_attention(b, both, &x);
    return rn_build_ffn_part(b, rn_build_add(b, out, x));
}

/* Of the head's own output matrix with a row for some tokens. Releases normed. */
static void some_logits(struct rn_build *b, int16_t normed)
{
    const struct rn_tensor *tensor = rn_build_tensor(b, "d2t");
    int16_t out;
    int32_t weight;

    if (tensor->dims[0] > b->plan->n_vocab) {
        rn_build_fail(b, RUNNEL_FORMAT, "tensor d2t has %llu tokens, and the model %u",
                      (unsigned long long)tensor->dims[0], b->plan->n_vocab);
        return;
    }
    b->logits = true;
    weight = rn_build_matrix(b, "output.weight", b->hparams.embedding, (uint32_t)tensor->dims[0], 0, false);
    out = rn_build_stored(b, normed, weight, -1, "output");
    rn_build_release(b, normed);
    b->plan->logits_slot = rn_build_scatter(b, out, "d2t");
    rn_build_bar(b, b->plan->logits_slot);
}

/* A matrix of the target. */
static int32_t of_target(struct rn_build *b, const char *name)
{
    int32_t weight;

    b->source = b->target;
    weight = rn_build_matrix(b, name, b->hparams.embedding, b->plan->n_vocab, 0, false);
    b->source = b->plan->gguf;
    return weight;
}

/* Of all tokens, by the head's own output matrix or the target's; an embedding is one where there is none. */
static void all_logits(struct rn_build *b, int16_t normed, int32_t embedding, bool is_own)
{
    if (!rn_build_has(b, "output.weight")) {
        if (is_own && rn_gguf_find_tensor(b->target, "output.weight") == NULL)
            embedding = of_target(b, "token_embd.weight");
        b->source = b->target;
    }
    rn_build_logits(b, normed, "output.weight", embedding);
    b->source = b->plan->gguf;
}

void rn_eagle3_build(struct rn_build *b)
{
    int32_t embedding = rn_build_matrix(b, "token_embd.weight", b->hparams.embedding, b->plan->n_vocab, 0, true);
    bool is_own = embedding >= 0;
    int16_t h, normed;

    if (!is_own)
        embedding = of_target(b, "token_embd.weight");
    rn_build_ropes(b);
    b->layer = b->last = 0;
    h = block(b, embedding);
    rn_build_features(b, h);
    normed = rn_build_rms_norm(b, h, "output_norm.weight");
    rn_build_release(b, h);
    b->layer = -1;
    if (rn_build_has(b, "d2t"))
        some_logits(b, normed);
    else
        all_logits(b, normed, embedding, is_own);
}
