/* What a plan gives: logits, and features, of blocks that are tapped and of embeddings: see build.h. */
#include "model/build/build.h"

#include <stdio.h>
#include <string.h>

/* Another slot: what is scaled may have become features, which are not. Releases a. */
static int16_t scaled(struct rn_build *b, int16_t a, double scale)
{
    struct rn_op op = rn_build_empty(b, RN_OP_SCALE);

    op.a = a;
    op.scale = (float)scale;
    op.out = rn_build_slot(b, rn_build_width(b, a), false);
    rn_build_op(b, &op);
    rn_build_release(b, a);
    return op.out;
}

/* ---- Tokens that are never given ---- */

#define SUPPRESSED "tokenizer.ggml.suppress_tokens"
#define MOST_RUNS 256 /* of neighbours among those: each is an op. Known files have one */

static void bar(struct rn_build *b, int16_t a, uint32_t from, uint32_t n)
{
    struct rn_op op = rn_build_empty(b, RN_OP_BAR);

    op.a = op.out = a;
    op.group = from;
    op.used = n;
    rn_build_op(b, &op);
}

/* Those that have a bit, n in all. */
static void bar_marked(struct rn_build *b, int16_t a, const unsigned char *marked, uint32_t n)
{
    uint32_t runs = 0;

    for (uint32_t id = 0, from = 0; id <= n; id++) {
        if (id < n && (marked[id / 8] >> id % 8 & 1) != 0)
            continue;
        if (id > from) {
            bar(b, a, from, id - from);
            runs++;
        }
        from = id + 1;
        if (runs > MOST_RUNS) {
            rn_build_fail(b, RUNNEL_UNSUPPORTED, "key " SUPPRESSED " has more than %d runs of tokens", MOST_RUNS);
            return;
        }
    }
}

/* Those that the file lists; ids that the model has not are passed over. A head drafts for a model, so it is the
 * model's list that counts. */
static void bar_listed(struct rn_build *b, int16_t a)
{
    const struct rn_gguf *gguf = b->target != NULL ? b->target : b->plan->gguf;
    const struct rn_gguf_entry *list = NULL;
    uint32_t n = b->plan->n_vocab;
    unsigned char *marked;

    if (b->status != RUNNEL_OK)
        return;
    b->status = rn_gguf_get_array(gguf, SUPPRESSED, false, RN_GGUF_I32, &list, b->error);
    if (b->status != RUNNEL_OK || list == NULL)
        return;
    marked = rn_calloc(b->plan->heap, n / 8 + 1, 1);
    if (marked == NULL) {
        rn_build_fail(b, RUNNEL_NO_MEMORY, "no memory for the plan");
        return;
    }
    for (uint64_t i = 0; i < list->count; i++) {
        int64_t id = rn_gguf_item_i64(list, i);

        if (id >= 0 && id < n)
            marked[id / 8] |= (unsigned char)(1 << id % 8);
    }
    bar_marked(b, a, marked, n);
    rn_free(b->plan->heap, marked);
}

void rn_build_bar(struct rn_build *b, int16_t a)
{
    uint32_t from = b->hparams.barred_from, to = b->hparams.barred_to, n = b->plan->n_vocab;

    if (n <= to)
        rn_build_fail(b, RUNNEL_FORMAT, "tensor token_embd.weight has %u rows, too few for architecture %s", n,
                      b->hparams.architecture);
    if (to > 0)
        bar(b, a, from, to - from);
    bar_listed(b, a);
}

/* ---- Logits ---- */

void rn_build_logits(struct rn_build *b, int16_t normed, const char *name, int32_t shared)
{
    char stem[RN_BUILD_NAME_BYTES];
    int32_t weight;
    int16_t out;

    b->logits = true;
    if (b->hparams.logit_scale != 1)
        normed = scaled(b, normed, b->hparams.logit_scale);
    weight = rn_build_matrix(b, name, b->hparams.embedding, b->plan->n_vocab, 0, true);
    snprintf(stem, sizeof stem, "%.*s", (int)(strlen(name) - strlen(".weight")), weight < 0 ? "" : name);
    out = rn_build_stored(b, normed, weight < 0 ? shared : weight,
                          rn_build_vector(b, "output.bias", b->plan->n_vocab, true), stem);
    rn_build_release(b, normed);
    rn_build_softcap(b, out, b->hparams.final_softcap);
    rn_build_bar(b, out);
    b->plan->logits_slot = out;
}

/* What embeddings are made of: normed, or what the file's products behind it give. Keeps normed. */
static void embedding_features(struct rn_build *b, int16_t normed)
{
    bool second = (b->arch->flags & RN_ARCH_DENSE_OUT) != 0 && rn_build_has(b, "dense_2.weight");
    bool third = (b->arch->flags & RN_ARCH_DENSE_OUT) != 0 && rn_build_has(b, "dense_3.weight");
    int16_t a = normed, out;

    if ((second || third) && b->hparams.n_nextn > 0)
        rn_build_fail(b, RUNNEL_UNSUPPORTED, "tensor dense_%d.weight beside prediction layers", second ? 2 : 3);
    if (second)
        a = rn_build_linear(b, a, "dense_2", rn_build_rows(b, "dense_2.weight"));
    if (third) {
        out = rn_build_linear(b, a, "dense_3", rn_build_rows(b, "dense_3.weight"));
        if (second)
            rn_build_release(b, a);
        a = out;
    }
    rn_build_features(b, a);
    if (second || third)
        rn_build_release(b, a);
}

/* A plan that is tapped alone gives neither embeddings nor scores: what the file has for these is not read. */
static void without_embeddings(struct rn_build *b)
{
    static const char *const dense[] = {"dense_2.weight", "dense_2.bias", "dense_3.weight", "dense_3.bias"};
    size_t i;

    for (i = 0; (b->arch->flags & RN_ARCH_DENSE_OUT) != 0 && i < sizeof dense / sizeof *dense; i++)
        rn_build_ignore(b, dense[i]);
    rn_build_ignore_scores(b);
}

/* Some files have a matrix for them all the same. Releases normed. */
static void without_logits(struct rn_build *b, int16_t normed)
{
    if (b->n_taps > 0)
        rn_build_fail(b, RUNNEL_UNSUPPORTED, "architecture %s gives embeddings, and no logits that could be drafted",
                      b->hparams.architecture);
    rn_build_ignore(b, "output.weight");
    rn_build_ignore(b, "output.bias");
    b->plan->logits_slot = -1;
    rn_build_release(b, normed);
}

void rn_build_head(struct rn_build *b, int16_t x, int32_t embedding)
{
    const char *stem = b->arch->output_norm != NULL ? b->arch->output_norm : "output_norm";
    int16_t normed;

    if (!b->selected)
        x = rn_build_select(b, x);
    normed = stem[0] == '\0' ? rn_build_copy(b, x) : rn_build_norm(b, x, stem);
    if (b->n_taps == 0 || b->with_norm) {
        b->plan->normed_at = b->plan->features_width;
        embedding_features(b, normed);
        rn_build_scores(b, normed);
    } else {
        without_embeddings(b);
    }
    if ((b->arch->flags & RN_ARCH_NO_LOGITS) != 0)
        without_logits(b, normed);
    else
        rn_build_logits(b, normed, "output.weight", embedding);
    rn_build_release(b, x);
}

/* ---- Features: of blocks that are tapped, and what comes last ---- */

uint32_t rn_build_fused_width(const struct rn_build *b)
{
    return b->facts->width > 0 ? b->facts->width : b->hparams.embedding;
}

/* RMS norm of all that is tapped, where the head's file asks for it. Releases all. */
static int16_t norm_tapped(struct rn_build *b, int16_t all)
{
    double eps = b->hparams.rms_eps;
    int16_t normed;

    if (!b->facts->norm_before_fc)
        return all;
    b->hparams.rms_eps = b->facts->eps;
    normed = rn_build_rms_norm(b, all, "enc.output_norm.weight");
    b->hparams.rms_eps = eps;
    rn_build_release(b, all);
    return normed;
}

/* x joins what is tapped already; the last one makes a feature of all. */
static void fuse(struct rn_build *b, int16_t x, bool is_last)
{
    struct rn_op op = rn_build_empty(b, RN_OP_TAP);
    int16_t all = rn_build_concat(b, b->tapped < 0 ? x : b->tapped, b->tapped < 0 ? -1 : x);

    if (b->tapped >= 0)
        rn_build_release(b, b->tapped);
    b->tapped = all;
    if (!is_last)
        return;
    b->source = b->fuse;
    all = norm_tapped(b, all);
    op.a = rn_build_linear(b, all, "fc", rn_build_fused_width(b));
    b->source = b->plan->gguf;
    rn_build_op(b, &op);
    rn_build_release(b, op.a);
    rn_build_release(b, all);
}

void rn_build_tap(struct rn_build *b, int16_t x)
{
    struct rn_op op = rn_build_empty(b, RN_OP_TAP);

    op.a = x;
    for (uint32_t i = 0; i < b->n_taps; i++) {
        op.group = i * b->hparams.embedding;
        if (b->taps[i] != (uint32_t)b->layer)
            continue;
        if (b->fuse != NULL)
            fuse(b, x, i + 1 == b->n_taps);
        else
            rn_build_op(b, &op);
    }
}

void rn_build_features(struct rn_build *b, int16_t a)
{
    struct rn_op op = rn_build_empty(b, RN_OP_TAP);

    op.a = a;
    op.group = b->plan->features_width;
    b->plan->features_width += rn_build_width(b, a);
    b->plan->taps_selected = true;
    rn_build_op(b, &op);
}
