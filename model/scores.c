/* The head of a reranker or classifier: see build.h.
 *
 *     scores = cls.output · tanh(cls · x + bias) + bias      x: the final norm's, of the wanted position
 *
 * A file may have one of the two products alone. That is the head of RoBERTa's classifiers (Liu et al. 2019, arXiv
 * 1907.11692), and without cls that of Qwen3's rerankers (arXiv 2506.05176), whose rows are those of two tokens. */
#include <stdio.h>

#include "model/build.h"
#include "model/scores.h"

runnel_status rn_scores_labels(const struct rn_gguf *gguf, const char *architecture, const struct rn_gguf_entry **entry,
                               runnel_error *error)
{
    char key[RN_KEY_BYTES];

    *entry = NULL;
    snprintf(key, sizeof key, "%s.classifier.output_labels", architecture);
    return rn_gguf_get_array(gguf, key, false, RN_GGUF_STRING, entry, error);
}

/* Key classifier.pooling_type: what the head reads. It is read behind attention over the text before it alone. */
static void check_pooling(struct rn_build *b)
{
    char key[RN_KEY_BYTES];
    uint64_t pooling = RN_POOLING_LAST;

    if (b->status != RUNNEL_OK)
        return;
    rn_hparams_key(&b->hparams, "classifier.pooling_type", key);
    b->status = rn_gguf_get_u64(b->plan->gguf, key, false, 0, UINT32_MAX, &pooling, b->error);
    if (b->status == RUNNEL_OK && pooling != RN_POOLING_LAST)
        rn_build_fail(b, RUNNEL_UNSUPPORTED, "key %s is %llu: a head reads the last position here (%d)", key,
                      (unsigned long long)pooling, RN_POOLING_LAST);
}

static void check_labels(struct rn_build *b, uint32_t n_scores)
{
    const struct rn_gguf_entry *labels = NULL;

    if (b->status != RUNNEL_OK)
        return;
    b->status = rn_scores_labels(b->plan->gguf, b->hparams.architecture, &labels, b->error);
    if (b->status == RUNNEL_OK && labels != NULL && labels->count != n_scores)
        rn_build_fail(b, RUNNEL_FORMAT, "key %s.classifier.output_labels has %llu labels, the head %u scores",
                      b->hparams.architecture, (unsigned long long)labels->count, n_scores);
}

static int16_t head_of(struct rn_build *b, int16_t normed, bool hidden, bool out)
{
    int16_t a = normed, scores;

    if (hidden)
        a = rn_build_activate(b, RN_ACT_TANH, rn_build_linear(b, a, "cls", rn_build_rows(b, "cls.weight")));
    if (!out)
        return a;
    scores = rn_build_linear(b, a, "cls.output", rn_build_rows(b, "cls.output.weight"));
    if (hidden)
        rn_build_release(b, a);
    return scores;
}

void rn_build_scores(struct rn_build *b, int16_t normed)
{
    bool hidden = rn_build_has(b, "cls.weight"), out = rn_build_has(b, "cls.output.weight");
    uint32_t width;
    int16_t scores;

    if (!hidden && !out)
        return;
    if (b->hparams.n_nextn > 0)
        rn_build_fail(b, RUNNEL_UNSUPPORTED, "tensor %s beside prediction layers",
                      out ? "cls.output.weight" : "cls.weight");
    check_pooling(b);
    scores = head_of(b, normed, hidden, out);
    width = rn_build_width(b, scores);
    if (width > RN_MAX_SCORES)
        rn_build_fail(b, RUNNEL_UNSUPPORTED, "tensor %s has %u rows: at most %d scores are given",
                      out ? "cls.output.weight" : "cls.weight", width, RN_MAX_SCORES);
    check_labels(b, width);
    rn_build_features(b, scores);
    b->plan->n_scores = width;
    b->plan->scores_of_tokens = (b->arch->flags & RN_ARCH_TOKEN_SCORES) != 0;
    rn_build_release(b, scores);
}
