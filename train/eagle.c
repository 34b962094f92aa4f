/* The head's passes: see eagle.h. Rows are positions; step j has the rows j..rows-1, and its arrays are indexed by
 * position, so that the first j rows of them are unused. */
#include "train/eagle.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/rng.h"
#include "train/attend.h"
#include "train/parts.h"

enum { CHUNK = 64 }; /* rows whose logits exist at once */

/* What a step leaves for its way back: [max_rows, ...] each. */
struct step {
    float *join;                                    /* [2 * width]: both norms' results */
    float *x, *normed, *q, *k, *v, *out;            /* into, and of, the attention */
    float *y, *mixed, *gate, *up, *z, *h;           /* into, and of, the feed-forward */
    float *r_embed, *r_feature, *r_x, *r_y, *norms; /* scales of the norms; [heads] of the softmax */
};

struct rn_eagle {
    struct rn_heap *heap;
    struct rn_eagle_shape shape;
    struct rn_eagle_span spans[RN_EAGLE_TENSORS];
    uint32_t max_rows, unroll;
    const struct rn_gemm *gemm;
    const float *output;
    float *memory, *scratch, *turns, *fused, *scores;
    struct step steps[RN_EAGLE_MAX_UNROLL];
    float *dk[RN_EAGLE_MAX_UNROLL], *dv[RN_EAGLE_MAX_UNROLL], *dh[RN_EAGLE_MAX_UNROLL];
    float *d_wide, *d_gate, *d_heads, *dq, *d_width, *d_y; /* on the way back; d_wide [2 * width] */
    float *logits, *final, *d_final, *r_final;             /* [CHUNK, ...] */

    /* Of the pass that runs. */
    const float *weights;
    float *gradients;
    const struct rn_eagle_text *text;
    uint32_t rows;
};

/* ---- Shape ---- */

static bool shape_fits(const struct rn_eagle_shape *s)
{
    const uint32_t most = 1u << 20;

    return s->width > 0 && s->width <= most && s->vocab > 0 && s->vocab <= 1u << 26 && s->taps > 0 &&
           s->taps <= RN_EAGLE_MAX_TAPS && s->kv_heads > 0 && s->kv_heads <= s->heads && s->heads % s->kv_heads == 0 &&
           s->head_dim > 0 && s->head_dim % 2 == 0 && s->feed_forward > 0 && s->feed_forward <= most &&
           (uint64_t)s->heads * s->head_dim <= most && s->heads <= most && s->head_dim <= most && s->eps > 0 &&
           s->rope_base > 1;
}

size_t rn_eagle_layout(const struct rn_eagle_shape *s, struct rn_eagle_span spans[RN_EAGLE_TENSORS])
{
    uint32_t q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    const struct rn_eagle_span list[RN_EAGLE_TENSORS] = {
        [RN_EAGLE_FUSE] = {"fc.weight", s->taps > 1 ? s->width : 0, s->taps * s->width, 0},
        [RN_EAGLE_EMBED_NORM] = {"blk.0.nextn.enorm.weight", 1, s->width, 0},
        [RN_EAGLE_FEATURE_NORM] = {"blk.0.nextn.hnorm.weight", 1, s->width, 0},
        [RN_EAGLE_JOIN] = {"blk.0.nextn.eh_proj.weight", s->width, 2 * s->width, 0},
        [RN_EAGLE_ATTN_NORM] = {"blk.0.attn_norm.weight", 1, s->width, 0},
        [RN_EAGLE_Q] = {"blk.0.attn_q.weight", q, s->width, 0},
        [RN_EAGLE_K] = {"blk.0.attn_k.weight", kv, s->width, 0},
        [RN_EAGLE_V] = {"blk.0.attn_v.weight", kv, s->width, 0},
        [RN_EAGLE_O] = {"blk.0.attn_output.weight", s->width, q, 0},
        [RN_EAGLE_FFN_NORM] = {"blk.0.ffn_norm.weight", 1, s->width, 0},
        [RN_EAGLE_GATE] = {"blk.0.ffn_gate.weight", s->feed_forward, s->width, 0},
        [RN_EAGLE_UP] = {"blk.0.ffn_up.weight", s->feed_forward, s->width, 0},
        [RN_EAGLE_DOWN] = {"blk.0.ffn_down.weight", s->width, s->feed_forward, 0},
        [RN_EAGLE_OUT_NORM] = {"output_norm.weight", 1, s->width, 0},
    };
    size_t total = 0;

    if (!shape_fits(s))
        return 0;
    memcpy(spans, list, sizeof list);
    for (int i = 0; i < RN_EAGLE_TENSORS; i++) {
        spans[i].offset = total;
        total += (size_t)spans[i].rows * spans[i].cols;
    }
    return total;
}

/* A normal number, a function of seed and place (Box and Muller). */
static double normal(uint64_t seed, uint64_t place)
{
    double length = sqrt(-2.0 * log(1.0 - rn_coin(seed, 2 * place)));

    return length * cos(6.283185307179586 * rn_coin(seed, 2 * place + 1));
}

void rn_eagle_start(const struct rn_eagle_shape *shape, uint64_t seed, float *weights)
{
    struct rn_eagle_span spans[RN_EAGLE_TENSORS];
    uint32_t width = shape->width;

    rn_eagle_layout(shape, spans);
    for (int t = 0; t < RN_EAGLE_TENSORS; t++) {
        const struct rn_eagle_span *span = &spans[t];
        double size = (t == RN_EAGLE_O || t == RN_EAGLE_DOWN ? 0.25 : 1.0) / sqrt(span->cols);

        for (size_t i = 0; i < (size_t)span->rows * span->cols; i++)
            weights[span->offset + i] = span->rows == 1 ? 1.0f : (float)(size * normal(seed, span->offset + i));
    }
    for (uint32_t i = 0; i < width; i++) {
        weights[spans[RN_EAGLE_JOIN].offset + (size_t)i * 2 * width + width + i] += 1.0f;
        if (shape->taps > 1)
            weights[spans[RN_EAGLE_FUSE].offset + ((size_t)i * shape->taps + shape->taps - 1) * width + i] += 1.0f;
    }
}

/* ---- Memory ---- */

/* n floats behind the others; with memory NULL it only counts. */
static void take(struct rn_eagle *e, size_t *used, float **out, size_t n)
{
    *out = e->memory != NULL ? e->memory + *used : NULL;
    *used += (n + 15) / 16 * 16;
}

static void take_step(struct rn_eagle *e, size_t *used, struct step *s)
{
    size_t rows = e->max_rows, width = rows * e->shape.width, inner = rows * e->shape.feed_forward;
    size_t q = rows * e->shape.heads * e->shape.head_dim, kv = rows * e->shape.kv_heads * e->shape.head_dim;
    float **wide[] = {&s->x, &s->normed, &s->y, &s->mixed, &s->h};
    float **inners[] = {&s->gate, &s->up, &s->z};
    float **scales[] = {&s->r_embed, &s->r_feature, &s->r_x, &s->r_y};

    take(e, used, &s->join, 2 * width);
    for (int i = 0; i < 5; i++)
        take(e, used, wide[i], width);
    for (int i = 0; i < 3; i++)
        take(e, used, inners[i], inner);
    for (int i = 0; i < 4; i++)
        take(e, used, scales[i], rows);
    take(e, used, &s->q, q);
    take(e, used, &s->out, q);
    take(e, used, &s->k, kv);
    take(e, used, &s->v, kv);
    take(e, used, &s->norms, rows * e->shape.heads);
}

static size_t take_all(struct rn_eagle *e)
{
    const struct rn_eagle_shape *s = &e->shape;
    size_t used = 0, rows = e->max_rows;

    take(e, &used, &e->scratch, e->gemm->scratch_floats);
    take(e, &used, &e->turns, rows * s->head_dim);
    take(e, &used, &e->scores, rows);
    take(e, &used, &e->fused, s->taps > 1 ? rows * s->width : 0);
    for (uint32_t j = 0; j < e->unroll; j++) {
        take_step(e, &used, &e->steps[j]);
        take(e, &used, &e->dk[j], rows * s->kv_heads * s->head_dim);
        take(e, &used, &e->dv[j], rows * s->kv_heads * s->head_dim);
        take(e, &used, &e->dh[j], rows * s->width);
    }
    take(e, &used, &e->d_wide, rows * 2 * s->width);
    take(e, &used, &e->d_gate, rows * s->feed_forward);
    take(e, &used, &e->d_heads, rows * s->heads * s->head_dim);
    take(e, &used, &e->dq, rows * s->heads * s->head_dim);
    take(e, &used, &e->d_width, rows * s->width);
    take(e, &used, &e->d_y, rows * s->width);
    take(e, &used, &e->logits, (size_t)CHUNK * s->vocab);
    take(e, &used, &e->final, (size_t)CHUNK * s->width);
    take(e, &used, &e->d_final, (size_t)CHUNK * s->width);
    take(e, &used, &e->r_final, CHUNK);
    return used;
}

runnel_status rn_eagle_new(struct rn_heap *heap, const struct rn_eagle_shape *shape, uint32_t max_tokens,
                           uint32_t unroll, const struct rn_gemm *gemm, const float *output, struct rn_eagle **out)
{
    struct rn_eagle_span spans[RN_EAGLE_TENSORS];
    struct rn_eagle *e;
    size_t n_floats, n_taken;

    if (rn_eagle_layout(shape, spans) == 0 || max_tokens < 2 || max_tokens > 1u << 16 || unroll == 0 ||
        unroll > RN_EAGLE_MAX_UNROLL)
        return RUNNEL_INVALID;
    e = rn_calloc(heap, 1, sizeof *e);
    if (e == NULL)
        return RUNNEL_NO_MEMORY;
    e->heap = heap;
    e->shape = *shape;
    memcpy(e->spans, spans, sizeof spans);
    e->max_rows = max_tokens - 1;
    e->unroll = unroll;
    e->gemm = gemm;
    e->output = output;
    n_floats = take_all(e);
    e->memory = rn_alloc_aligned(heap, n_floats * sizeof(float), 64);
    if (e->memory == NULL) {
        rn_free(heap, e);
        return RUNNEL_NO_MEMORY;
    }
    n_taken = take_all(e);
    RN_CHECK(n_taken == n_floats);
    rn_turns_fill(e->max_rows, shape->head_dim, shape->rope_base, e->turns);
    *out = e;
    return RUNNEL_OK;
}

bool rn_eagle_check(const struct rn_eagle *e)
{
    return shape_fits(&e->shape) && e->memory != NULL && e->scratch == e->memory && e->max_rows > 0 &&
           e->max_rows < 1u << 16 && e->unroll > 0 && e->unroll <= RN_EAGLE_MAX_UNROLL && e->rows <= e->max_rows;
}

void rn_eagle_free(struct rn_eagle *e)
{
    if (e == NULL)
        return;
    rn_free(e->heap, e->memory);
    rn_free(e->heap, e);
}

/* ---- Products with weights ---- */

static const float *weight(const struct rn_eagle *e, enum rn_eagle_tensor tensor)
{
    return e->weights + e->spans[tensor].offset;
}

static float *gradient(const struct rn_eagle *e, enum rn_eagle_tensor tensor)
{
    return e->gradients + e->spans[tensor].offset;
}

/* y [rows, outputs] (+)= x [rows, inputs] · weightᵀ. */
static void linear(const struct rn_eagle *e, size_t rows, const float *x, enum rn_eagle_tensor tensor, float *y,
                   bool add)
{
    size_t outputs = e->spans[tensor].rows, inputs = e->spans[tensor].cols;

    e->gemm->run(rows, outputs, inputs, (struct rn_strided){x, inputs, 1},
                 (struct rn_strided){weight(e, tensor), 1, inputs}, y, outputs, add, e->scratch);
}

/* Its way back: the weight's gradient += dyᵀ · x, and dx (NULL: not wanted) (+)= dy · weight. */
static void linear_back(const struct rn_eagle *e, size_t rows, const float *x, enum rn_eagle_tensor tensor,
                        const float *dy, float *dx, bool add)
{
    size_t outputs = e->spans[tensor].rows, inputs = e->spans[tensor].cols;

    e->gemm->run(outputs, inputs, rows, (struct rn_strided){dy, 1, outputs}, (struct rn_strided){x, inputs, 1},
                 gradient(e, tensor), inputs, true, e->scratch);
    if (dx != NULL)
        e->gemm->run(rows, inputs, outputs, (struct rn_strided){dy, outputs, 1},
                     (struct rn_strided){weight(e, tensor), inputs, 1}, dx, inputs, add, e->scratch);
}

/* ---- Forward ---- */

static struct rn_attend attention(struct rn_eagle *e, float **lists[5])
{
    for (uint32_t j = 0; j < e->unroll; j++) {
        lists[0][j] = e->steps[j].q;
        lists[1][j] = e->steps[j].k;
        lists[2][j] = e->steps[j].v;
        lists[3][j] = e->steps[j].out;
        lists[4][j] = e->steps[j].norms;
    }
    return (struct rn_attend){e->rows,  e->shape.heads, e->shape.kv_heads, e->shape.head_dim, lists[0],
                              lists[1], lists[2],       lists[3],          lists[4],          e->scores};
}

/* The features that step j begins with: row j, and on. */
static const float *step_features(const struct rn_eagle *e, uint32_t j)
{
    if (j > 0)
        return e->steps[j - 1].h + (size_t)(j - 1) * e->shape.width;
    return e->shape.taps > 1 ? e->fused : e->text->features;
}

static void attend(struct rn_eagle *e, uint32_t j, const float *d_out)
{
    float *lists[5][RN_EAGLE_MAX_UNROLL];
    struct rn_attend at = attention(e, (float **[]){lists[0], lists[1], lists[2], lists[3], lists[4]});

    if (d_out == NULL)
        rn_attend_step(&at, j);
    else
        rn_attend_back(&at, j, d_out, e->dq, e->dk, e->dv);
}

static void forward(struct rn_eagle *e, uint32_t j)
{
    const struct rn_eagle_shape *s = &e->shape;
    const struct step *at = &e->steps[j];
    size_t n = e->rows - j, width = s->width, q = (size_t)j * s->heads * s->head_dim;
    size_t kv = (size_t)j * s->kv_heads * s->head_dim, inner = (size_t)j * s->feed_forward, row = j * width;

    rn_norm(n, width, e->text->embeddings + row + width, weight(e, RN_EAGLE_EMBED_NORM), s->eps, at->join + 2 * row,
            2 * width, at->r_embed + j);
    rn_norm(n, width, step_features(e, j), weight(e, RN_EAGLE_FEATURE_NORM), s->eps, at->join + 2 * row + width,
            2 * width, at->r_feature + j);
    linear(e, n, at->join + 2 * row, RN_EAGLE_JOIN, at->x + row, false);
    rn_norm(n, width, at->x + row, weight(e, RN_EAGLE_ATTN_NORM), s->eps, at->normed + row, width, at->r_x + j);
    linear(e, n, at->normed + row, RN_EAGLE_Q, at->q + q, false);
    linear(e, n, at->normed + row, RN_EAGLE_K, at->k + kv, false);
    linear(e, n, at->normed + row, RN_EAGLE_V, at->v + kv, false);
    rn_turn(n, j, s->heads, s->head_dim, e->turns, 1.0f, at->q + q);
    rn_turn(n, j, s->kv_heads, s->head_dim, e->turns, 1.0f, at->k + kv);
    attend(e, j, NULL);
    memcpy(at->y + row, at->x + row, n * width * sizeof(float));
    linear(e, n, at->out + q, RN_EAGLE_O, at->y + row, true);
    rn_norm(n, width, at->y + row, weight(e, RN_EAGLE_FFN_NORM), s->eps, at->mixed + row, width, at->r_y + j);
    linear(e, n, at->mixed + row, RN_EAGLE_GATE, at->gate + inner, false);
    linear(e, n, at->mixed + row, RN_EAGLE_UP, at->up + inner, false);
    rn_swiglu(n * s->feed_forward, at->gate + inner, at->up + inner, at->z + inner);
    memcpy(at->h + row, at->y + row, n * width * sizeof(float));
    linear(e, n, at->z + inner, RN_EAGLE_DOWN, at->h + row, true);
}

/* ---- Loss ---- */

static size_t likeliest(const float *x, size_t n)
{
    size_t best = 0;

    for (size_t i = 1; i < n; i++)
        if (x[i] > x[best])
            best = i;
    return best;
}

/* How many are likelier; of equal ones the first is. */
static size_t rank_of(const float *x, size_t n, size_t token)
{
    size_t rank = 0;

    for (size_t i = 0; i < n; i++)
        rank += x[i] > x[token] || (x[i] == x[token] && i < token);
    return rank;
}

/* Cross-entropy of one row; logits become factor * (q - wanted), the way back of factor * loss. *rank: of the target's
 * likeliest token. */
static double row_loss(size_t n, float *logits, const float *wanted, float factor, size_t *rank)
{
    float most = logits[likeliest(logits, n)];
    double sum = 0, loss = 0, mass = 0;

    *rank = rank_of(logits, n, likeliest(wanted, n));
    for (size_t i = 0; i < n; i++) {
        loss -= (double)wanted[i] * (logits[i] - most);
        mass += wanted[i];
        sum += logits[i] = expf(logits[i] - most);
    }
    for (size_t i = 0; i < n; i++)
        logits[i] = factor * (float)(mass * logits[i] / sum - wanted[i]);
    return loss + mass * log(sum);
}

/* The loss of step j, and where gradients are wanted its way back into dh[j]. */
static void score_step(struct rn_eagle *e, uint32_t j, float factor, struct rn_eagle_score *score)
{
    size_t width = e->shape.width, vocab = e->shape.vocab;
    const float *norm = weight(e, RN_EAGLE_OUT_NORM);

    RN_ASSERT(j < e->unroll && j < e->rows);
    for (uint32_t t = j; t < e->rows; t += CHUNK) {
        size_t n = e->rows - t < CHUNK ? e->rows - t : CHUNK;
        const float *h = e->steps[j].h + t * width;
        size_t rank;

        rn_norm(n, width, h, norm, e->shape.eps, e->final, width, e->r_final);
        e->gemm->run(n, vocab, width, (struct rn_strided){e->final, width, 1}, (struct rn_strided){e->output, 1, width},
                     e->logits, vocab, false, e->scratch);
        for (size_t i = 0; i < n; i++) {
            score->loss[j] +=
                row_loss(vocab, e->logits + i * vocab, e->text->wanted + (t + i + 1) * vocab, factor, &rank);
            score->hits[j] += rank == 0;
            score->seconds[j] += rank == 1;
        }
        score->rows[j] += (double)n;
        if (e->gradients == NULL)
            continue;
        e->gemm->run(n, width, vocab, (struct rn_strided){e->logits, vocab, 1},
                     (struct rn_strided){e->output, width, 1}, e->d_final, width, false, e->scratch);
        rn_norm_back(n, width, h, norm, e->r_final, e->d_final, width, e->dh[j] + t * width,
                     gradient(e, RN_EAGLE_OUT_NORM));
    }
}

/* ---- Back ---- */

/* From dh[j] to d_y, the gradient at the attention's end. */
static void back_feed_forward(struct rn_eagle *e, uint32_t j)
{
    const struct step *at = &e->steps[j];
    size_t n = e->rows - j, width = e->shape.width, row = j * width, inner = (size_t)j * e->shape.feed_forward;
    const float *dh = e->dh[j] + row;

    memcpy(e->d_y, dh, n * width * sizeof(float));
    linear_back(e, n, at->z + inner, RN_EAGLE_DOWN, dh, e->d_gate, false);
    rn_swiglu_back(n * e->shape.feed_forward, at->gate + inner, at->up + inner, e->d_gate);
    linear_back(e, n, at->mixed + row, RN_EAGLE_GATE, at->gate + inner, e->d_width, false);
    linear_back(e, n, at->mixed + row, RN_EAGLE_UP, at->up + inner, e->d_width, true);
    rn_norm_back(n, width, at->y + row, weight(e, RN_EAGLE_FFN_NORM), at->r_y + j, e->d_width, width, e->d_y,
                 gradient(e, RN_EAGLE_FFN_NORM));
}

/* From d_y to d_y, the gradient at x. Keys and values of step j have had all their gradients: later steps went
 * first. */
static void back_attention(struct rn_eagle *e, uint32_t j)
{
    const struct rn_eagle_shape *s = &e->shape;
    const struct step *at = &e->steps[j];
    size_t n = e->rows - j, width = s->width, row = j * width, q = (size_t)s->heads * s->head_dim;
    size_t kv = (size_t)j * s->kv_heads * s->head_dim;

    linear_back(e, n, at->out + j * q, RN_EAGLE_O, e->d_y, e->d_heads + j * q, false);
    memset(e->dq + j * q, 0, n * q * sizeof(float));
    attend(e, j, e->d_heads);
    rn_turn(n, j, s->heads, s->head_dim, e->turns, -1.0f, e->dq + j * q);
    rn_turn(n, j, s->kv_heads, s->head_dim, e->turns, -1.0f, e->dk[j] + kv);
    linear_back(e, n, at->normed + row, RN_EAGLE_Q, e->dq + j * q, e->d_width, false);
    linear_back(e, n, at->normed + row, RN_EAGLE_K, e->dk[j] + kv, e->d_width, true);
    linear_back(e, n, at->normed + row, RN_EAGLE_V, e->dv[j] + kv, e->d_width, true);
    rn_norm_back(n, width, at->x + row, weight(e, RN_EAGLE_ATTN_NORM), at->r_x + j, e->d_width, width, e->d_y,
                 gradient(e, RN_EAGLE_ATTN_NORM));
}

/* From d_y, at x, to the step before, or to the fused features. The embedding's own gradient ends in d_width unread. */
static void back_join(struct rn_eagle *e, uint32_t j)
{
    const struct step *at = &e->steps[j];
    size_t n = e->rows - j, width = e->shape.width, row = j * width;
    float *into = j > 0 ? e->dh[j - 1] + row - width : e->d_y;

    linear_back(e, n, at->join + 2 * row, RN_EAGLE_JOIN, e->d_y, e->d_wide, false);
    rn_norm_back(n, width, e->text->embeddings + row + width, weight(e, RN_EAGLE_EMBED_NORM), at->r_embed + j,
                 e->d_wide, 2 * width, e->d_width, gradient(e, RN_EAGLE_EMBED_NORM));
    if (j == 0)
        memset(into, 0, n * width * sizeof(float));
    rn_norm_back(n, width, step_features(e, j), weight(e, RN_EAGLE_FEATURE_NORM), at->r_feature + j, e->d_wide + width,
                 2 * width, into, gradient(e, RN_EAGLE_FEATURE_NORM));
    if (j == 0 && e->shape.taps > 1)
        linear_back(e, n, e->text->features, RN_EAGLE_FUSE, into, NULL, false);
}

void rn_eagle_pass(struct rn_eagle *e, const float *weights, const struct rn_eagle_text *text, float decay, float scale,
                   float *gradients, struct rn_eagle_score *score)
{
    size_t kv = (size_t)e->shape.kv_heads * e->shape.head_dim;
    uint32_t steps;

    RN_CHECK(text->n >= 2 && text->n - 1 <= e->max_rows);
    e->weights = weights;
    RN_ASSERT(rn_eagle_check(e));
    e->gradients = gradients;
    e->text = text;
    e->rows = text->n - 1;
    steps = e->unroll < e->rows ? e->unroll : e->rows;
    if (e->shape.taps > 1)
        linear(e, e->rows, text->features, RN_EAGLE_FUSE, e->fused, false);
    for (uint32_t j = 0; j < steps; j++) {
        forward(e, j);
        memset(e->dk[j], 0, e->rows * kv * sizeof(float));
        memset(e->dv[j], 0, e->rows * kv * sizeof(float));
        memset(e->dh[j], 0, e->rows * e->shape.width * sizeof(float));
    }
    for (uint32_t j = steps; j-- > 0;) {
        score_step(e, j, scale * powf(decay, (float)j) / (float)(e->rows - j), score);
        if (gradients == NULL)
            continue;
        back_feed_forward(e, j);
        back_attention(e, j);
        back_join(e, j);
    }
}
