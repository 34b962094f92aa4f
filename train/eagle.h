/* An EAGLE head: a small network that continues a large one's text from the large one's own states.
 *
 * At position t the target has computed its features f(t), the residual streams behind a few chosen blocks, and has
 * drawn token t + 1. The head predicts the distribution of token t + 2:
 *
 *     f(t) ─ fuse ─▶ g ─ norm ─┐
 *                              ├─ join ─▶ x ─ one decoder layer ─▶ h ─ norm ─ target's output matrix ─▶ q(t + 2)
 *     embedding(t + 1) ─ norm ─┘             (attention over the rows before it)
 *
 * and goes on by itself: in the next step h stands where g stood, one position on. A head that is to draft k tokens
 * meets its own h in training as it will in use, so the loss is the sum over `unroll` such steps:
 *
 *     step 0     g(t) = fuse · f(t)                    keys: step 0 of positions 0..t
 *     step j     g(t) = h of step j - 1 at t - 1       keys: step 0 of positions 0..t-j, step i of t-j+i, 1 <= i <= j
 *
 * Loss: cross-entropy of q against the target's own distribution at t + 1, step j weighted by decay^j, the mean over
 * all rows. The target's embedding and output matrix are not trained.
 *
 * Sources: EAGLE (arXiv 2401.15077), one layer over feature and embedding; EAGLE-3 (2503.01840), several blocks'
 * features fused, no loss on features, the unrolled steps. The norms before `join` are those of DeepSeek-V3's
 * multi-token prediction (2412.19437): features and embeddings differ in size by orders of magnitude.
 *
 * Threads: plain single-owner data; every function runs on the caller's thread. */
#ifndef RN_TRAIN_EAGLE_H
#define RN_TRAIN_EAGLE_H

#include "base/alloc.h"
#include "base/status.h"
#include "model/gemm.h"

enum { RN_EAGLE_MAX_UNROLL = 8, RN_EAGLE_MAX_TAPS = 8 };

struct rn_eagle_shape {
    uint32_t width, vocab; /* the target's */
    uint32_t taps;         /* blocks whose residual streams are read; 1: there is no fuse */
    uint32_t heads, kv_heads, head_dim, feed_forward;
    float eps;       /* of the norms */
    float rope_base; /* pairs (2i, 2i + 1) of a head at position p turn by p * base^(-2i / head_dim) */
};

/* What is trained, in one array of floats. Matrices are [outputs, inputs]. */
enum rn_eagle_tensor {
    RN_EAGLE_FUSE,         /* [width, taps * width]; of no rows where taps is 1 */
    RN_EAGLE_EMBED_NORM,   /* [width] */
    RN_EAGLE_FEATURE_NORM, /* [width] */
    RN_EAGLE_JOIN,         /* [width, 2 * width]: embedding, then feature */
    RN_EAGLE_ATTN_NORM,    /* [width] */
    RN_EAGLE_Q,
    RN_EAGLE_K,
    RN_EAGLE_V,
    RN_EAGLE_O,
    RN_EAGLE_FFN_NORM, /* [width] */
    RN_EAGLE_GATE,
    RN_EAGLE_UP,
    RN_EAGLE_DOWN,
    RN_EAGLE_OUT_NORM, /* [width] */
    RN_EAGLE_TENSORS
};

struct rn_eagle_span {
    const char *name;    /* as in the file */
    uint32_t rows, cols; /* rows 1: a norm's vector */
    size_t offset;       /* floats from the start */
};

/* The spans of a shape, in the order of the enum; returns the number of floats in all. 0: the shape has a zero
 * where none may be, heads not divisible by kv_heads, an odd head_dim, more taps than allowed, or is too large. */
size_t rn_eagle_layout(const struct rn_eagle_shape *shape, struct rn_eagle_span spans[RN_EAGLE_TENSORS]);

/* Starting weights, a function of shape and seed alone: norms 1, matrices normal with 1/sqrt(inputs), the two that
 * write into the residual stream a quarter of that, and on the join of the (last tap's) feature the identity. */
void rn_eagle_start(const struct rn_eagle_shape *shape, uint64_t seed, float *weights);

/* A sequence of n tokens as the target saw it; all borrowed. Row i belongs to token i. */
struct rn_eagle_text {
    uint32_t n;              /* >= 2: there are n - 1 rows to learn from */
    const float *embeddings; /* [n, width] */
    const float *features;   /* [n, taps * width] */
    const float *wanted;     /* [n, vocab]: the target's distribution of token i + 1 */
};

/* What a pass found, summed over the rows of step j. */
struct rn_eagle_score {
    double loss[RN_EAGLE_MAX_UNROLL];    /* cross-entropy in nats */
    double hits[RN_EAGLE_MAX_UNROLL];    /* rows whose likeliest token is the target's likeliest */
    double seconds[RN_EAGLE_MAX_UNROLL]; /* of the others, whose second likeliest is */
    double rows[RN_EAGLE_MAX_UNROLL];
};

struct rn_eagle; /* working memory of passes */

/* For texts of at most max_tokens. gemm and output [vocab, width] (the target's output matrix) are borrowed. INVALID:
 * layout says 0, or unroll is not in 1..RN_EAGLE_MAX_UNROLL; NO_MEMORY. */
runnel_status rn_eagle_new(struct rn_heap *heap, const struct rn_eagle_shape *shape, uint32_t max_tokens,
                           uint32_t unroll, const struct rn_gemm *gemm, const float *output, struct rn_eagle **out);
void rn_eagle_free(struct rn_eagle *eagle);

/* True: its sizes are what they can be. Between two calls. */
bool rn_eagle_check(const struct rn_eagle *eagle);

/* Runs the steps over the text and adds to *score. decay^j / rows of step j weighs a row of step j; gradients [layout]
 * are added to (scaled by `scale`, 1 / texts of a batch), NULL: only the score is wanted. n <= max_tokens. */
void rn_eagle_pass(struct rn_eagle *eagle, const float *weights, const struct rn_eagle_text *text, float decay,
                   float scale, float *gradients, struct rn_eagle_score *score);

#endif
