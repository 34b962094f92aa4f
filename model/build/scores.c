/* The head of a reranker or classifier: see build.h.
 *
 *     scores = cls.output · tanh(cls · x + bias) + bias      x: the final norm's, of the wanted position
 *
 * ModernBERT's is GELU and a norm (cls.norm) instead of tanh.
 *
 * A file may have one of the two products alone. That is the head of RoBERTa's classifiers (Liu et al. 2019, arXiv
 * 1907.11692), and without cls that of Qwen3's rerankers (arXiv 2506.05176), whose rows are those of two tokens. */
#include <stdio.h>

#include "model/build/build.h"
#include "model/build/scores.h"

runnel_status rn_scores_labels(const struct rn_gguf *gguf, const char *architecture, const struct rn_gguf_entry **entry,
                               runnel_error *error)
{
    char key[RN_KEY_BYTES];
    runnel_status status;

    *entry = NULL;
    snprintf(key, sizeof key, "%s.classifier.output_labels", architecture);
    status = rn_gguf_get_array(gguf, key, false, RN_GGUF_STRING, entry, error);
    if (*entry != NULL && (*entry)->count == 0) /* some programs write all keys that they know */
        *entry = NULL;
    return status;
}

/* Key classifier.pooling_type: what the head reads. That is the position which has seen all of the text: the last one,
 * or of models that see both ways the first, which stands for the whole. A head over the mean is none of single
 * positions. */
static void read_pooling(struct rn_build *b)
{
    const uint64_t read = b->plan->bidirectional ? RN_POOLING_FIRST : RN_POOLING_LAST;
    uint64_t pooling = b->hparams.scores_pooling != 0 ? b->hparams.scores_pooling : read;
    char key[RN_KEY_BYTES];

    b->plan->scores_from = (uint32_t)read;
    if (b->status != RUNNEL_OK)
        return;
    rn_hparams_key(&b->hparams, "classifier.pooling_type", key);
    b->status = rn_gguf_get_u64(b->plan->gguf, key, false, 0, UINT32_MAX, &pooling, b->error);
    if (b->status == RUNNEL_OK && pooling != read)
        rn_build_fail(b, RUNNEL_UNSUPPORTED, "key %s is %llu: a head of such a model reads the %s position here (%llu)",
                      key, (unsigned long long)pooling, read == RN_POOLING_FIRST ? "first" : "last",
                      (unsigned long long)read);
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

/* ModernBERT's norm, where the file has one. */
static int16_t hidden_of(struct rn_build *b, int16_t normed)
{
    int16_t a = rn_build_linear(b, normed, "cls", rn_build_rows(b, "cls.weight")), out;

    a = rn_build_activate(b, b->hparams.scores_act, a);
    if (b->hparams.scores_act == RN_ACT_TANH || !rn_build_has(b, "cls.norm.weight"))
        return a;
    out = rn_build_norm(b, a, "cls.norm");
    rn_build_release(b, a);
    return out;
}

static int16_t head_of(struct rn_build *b, int16_t normed, bool hidden, bool out)
{
    int16_t a = normed, scores;

    if (hidden)
        a = hidden_of(b, a);
    if (!out)
        return a;
    scores = rn_build_linear(b, a, "cls.output", rn_build_rows(b, "cls.output.weight"));
    if (hidden)
        rn_build_release(b, a);
    return scores;
}

void rn_build_ignore_scores(struct rn_build *b)
{
    static const char *const names[] = {"cls.weight",    "cls.bias",          "cls.norm.weight",
                                        "cls.norm.bias", "cls.output.weight", "cls.output.bias"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        rn_build_ignore(b, names[i]);
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
    read_pooling(b);
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
