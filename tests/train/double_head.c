/* See double_head.h. */
#include "double_head.h"

#include <math.h>
#include <string.h>

enum { MOST_ROWS = 16, MOST_WIDTH = 32, MOST_STEPS = 8 };

struct row {
    double h[MOST_WIDTH], k[MOST_WIDTH], v[MOST_WIDTH];
};

struct judge {
    const struct rn_eagle_shape *shape;
    const struct rn_eagle_text *text;
    const double *weights;
    struct rn_eagle_span spans[RN_EAGLE_TENSORS];
    struct row rows[MOST_STEPS][MOST_ROWS];
};

static const double *tensor(const struct judge *judge, int which)
{
    return judge->weights + judge->spans[which].offset;
}

static void product(const struct judge *judge, int which, const double *x, double *y)
{
    const double *w = tensor(judge, which);

    for (uint32_t i = 0; i < judge->spans[which].rows; i++) {
        y[i] = 0;
        for (uint32_t j = 0; j < judge->spans[which].cols; j++)
            y[i] += w[i * judge->spans[which].cols + j] * x[j];
    }
}

static void normed(const struct judge *judge, int which, const double *x, double *y)
{
    uint32_t n = judge->shape->width;
    double mean = 0;

    for (uint32_t i = 0; i < n; i++)
        mean += x[i] * x[i] / n;
    for (uint32_t i = 0; i < n; i++)
        y[i] = tensor(judge, which)[i] * x[i] / sqrt(mean + judge->shape->eps);
}

/* By complex multiplication. */
static void rotated(const struct rn_eagle_shape *shape, uint32_t heads, uint32_t position, double *x)
{
    for (uint32_t i = 0; i < heads * shape->head_dim; i += 2) {
        double angle = position * exp(-log(shape->rope_base) * (i % shape->head_dim) / shape->head_dim);
        double re = x[i] * cos(angle) - x[i + 1] * sin(angle);

        x[i + 1] = x[i] * sin(angle) + x[i + 1] * cos(angle);
        x[i] = re;
    }
}

static void attention(const struct judge *judge, uint32_t step, uint32_t t, const double *q, double *out)
{
    const struct rn_eagle_shape *s = judge->shape;
    const struct row *seen[MOST_ROWS + MOST_STEPS];
    uint32_t n = 0;

    for (uint32_t p = 0; p + step <= t; p++)
        seen[n++] = &judge->rows[0][p];
    for (uint32_t i = 1; i <= step; i++)
        seen[n++] = &judge->rows[i][t - step + i];
    for (uint32_t h = 0; h < s->heads; h++) {
        uint32_t kv = h * s->kv_heads / s->heads * s->head_dim;
        double p[MOST_ROWS + MOST_STEPS], sum = 0;

        for (uint32_t i = 0; i < n; i++) {
            double score = 0;

            for (uint32_t d = 0; d < s->head_dim; d++)
                score += q[h * s->head_dim + d] * seen[i]->k[kv + d];
            sum += p[i] = exp(score / sqrt(s->head_dim));
        }
        for (uint32_t d = 0; d < s->head_dim; d++) {
            out[h * s->head_dim + d] = 0;
            for (uint32_t i = 0; i < n; i++)
                out[h * s->head_dim + d] += p[i] / sum * seen[i]->v[kv + d];
        }
    }
}

static void layer(struct judge *judge, uint32_t step, uint32_t t, const double *joined)
{
    const struct rn_eagle_shape *s = judge->shape;
    struct row *row = &judge->rows[step][t];
    double x[MOST_WIDTH], a[MOST_WIDTH], q[MOST_WIDTH], out[MOST_WIDTH], gate[MOST_WIDTH], up[MOST_WIDTH];

    product(judge, RN_EAGLE_JOIN, joined, x);
    normed(judge, RN_EAGLE_ATTN_NORM, x, a);
    product(judge, RN_EAGLE_Q, a, q);
    product(judge, RN_EAGLE_K, a, row->k);
    product(judge, RN_EAGLE_V, a, row->v);
    rotated(s, s->heads, t, q);
    rotated(s, s->kv_heads, t, row->k);
    attention(judge, step, t, q, out);
    product(judge, RN_EAGLE_O, out, a);
    for (uint32_t i = 0; i < s->width; i++)
        x[i] += a[i];
    normed(judge, RN_EAGLE_FFN_NORM, x, a);
    product(judge, RN_EAGLE_GATE, a, gate);
    product(judge, RN_EAGLE_UP, a, up);
    for (uint32_t i = 0; i < s->feed_forward; i++)
        up[i] *= gate[i] / (1 + exp(-gate[i]));
    product(judge, RN_EAGLE_DOWN, up, row->h);
    for (uint32_t i = 0; i < s->width; i++)
        row->h[i] += x[i];
}

static void run_row(struct judge *judge, uint32_t step, uint32_t t)
{
    const struct rn_eagle_shape *s = judge->shape;
    double feature[RN_EAGLE_MAX_TAPS * MOST_WIDTH], g[MOST_WIDTH], e[MOST_WIDTH], joined[2 * MOST_WIDTH];

    for (uint32_t i = 0; i < s->taps * s->width; i++)
        feature[i] = judge->text->features[t * s->taps * s->width + i];
    for (uint32_t i = 0; i < s->width; i++)
        e[i] = judge->text->embeddings[(t + 1) * s->width + i];
    if (step > 0)
        memcpy(g, judge->rows[step - 1][t - 1].h, sizeof g);
    else if (s->taps > 1)
        product(judge, RN_EAGLE_FUSE, feature, g);
    else
        memcpy(g, feature, s->width * sizeof *g);
    normed(judge, RN_EAGLE_EMBED_NORM, e, joined);
    normed(judge, RN_EAGLE_FEATURE_NORM, g, joined + s->width);
    layer(judge, step, t, joined);
}

static double row_loss(const struct judge *judge, const float *output, const double *h, const float *wanted)
{
    const struct rn_eagle_shape *s = judge->shape;
    double final[MOST_WIDTH], sum = 0, loss = 0;

    normed(judge, RN_EAGLE_OUT_NORM, h, final);
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < s->vocab; i++) {
            double logit = 0;

            for (uint32_t d = 0; d < s->width; d++)
                logit += (double)output[i * s->width + d] * final[d];
            if (pass == 0)
                sum += exp(logit);
            else
                loss -= wanted[i] * (logit - log(sum));
        }
    return loss;
}

double double_head(const struct rn_eagle_shape *shape, const double *weights, const struct rn_eagle_text *text,
                   const float *output, uint32_t unroll, double decay, double *loss)
{
    struct judge judge = {.shape = shape, .text = text, .weights = weights};
    uint32_t rows = text->n - 1;
    double whole = 0;

    rn_eagle_layout(shape, judge.spans);
    for (uint32_t j = 0; j < unroll && j < rows; j++) {
        loss[j] = 0;
        for (uint32_t t = j; t < rows; t++) {
            run_row(&judge, j, t);
            loss[j] += row_loss(&judge, output, judge.rows[j][t].h, text->wanted + (size_t)(t + 1) * shape->vocab);
        }
        loss[j] /= rows - j;
        whole += pow(decay, j) * loss[j];
    }
    return whole;
}

void double_head_row(const struct rn_eagle_shape *shape, const double *weights, const struct rn_eagle_text *text,
                     const float *output, uint32_t j, uint32_t t, double *logits, double *h)
{
    struct judge judge = {.shape = shape, .text = text, .weights = weights};
    double final[MOST_WIDTH];

    rn_eagle_layout(shape, judge.spans);
    for (uint32_t p = 0; p + j <= t; p++)
        run_row(&judge, 0, p);
    for (uint32_t i = 1; i <= j; i++)
        run_row(&judge, i, t - j + i);
    memcpy(h, judge.rows[j][t].h, shape->width * sizeof *h);
    normed(&judge, RN_EAGLE_OUT_NORM, h, final);
    for (uint32_t i = 0; i < shape->vocab; i++) {
        logits[i] = 0;
        for (uint32_t d = 0; d < shape->width; d++)
            logits[i] += (double)output[i * shape->width + d] * final[d];
    }
}
