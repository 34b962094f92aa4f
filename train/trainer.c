/* Steps of learning: see trainer.h. */
#include "train/trainer.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/rng.h"

#define B1 0.9
#define B2 0.95

static bool options_fit(const struct rn_trainer_options *o)
{
    return o->steps > 0 && o->unroll > 0 && o->unroll <= RN_EAGLE_MAX_UNROLL && o->decay > 0 && o->decay <= 1 &&
           o->rate > 0 && o->rate <= 1 && o->weight_decay >= 0 && o->weight_decay <= 1 && o->clip > 0;
}

runnel_status rn_trainer_init(struct rn_trainer *t, struct rn_heap *heap, const struct rn_eagle_shape *shape,
                              const struct rn_trainer_options *options, const struct rn_trainer_origin *origin)
{
    *t = (struct rn_trainer){.heap = heap, .shape = *shape, .options = *options, .origin = *origin};
    t->n = rn_eagle_layout(shape, t->spans);
    if (t->n == 0 || !options_fit(options))
        return RUNNEL_INVALID;
    t->weights = rn_calloc(heap, 4 * t->n, sizeof(float));
    if (t->weights == NULL)
        return RUNNEL_NO_MEMORY;
    t->m = t->weights + t->n;
    t->v = t->m + t->n;
    t->gradients = t->v + t->n;
    rn_eagle_start(shape, options->seed, t->weights);
    RN_ASSERT(rn_trainer_check(t));
    return RUNNEL_OK;
}

void rn_trainer_fini(struct rn_trainer *t)
{
    rn_free(t->heap, t->weights);
    t->weights = NULL;
}

bool rn_trainer_check(const struct rn_trainer *t)
{
    struct rn_eagle_span spans[RN_EAGLE_TENSORS];
    size_t n = rn_eagle_layout(&t->shape, spans);

    if (n == 0 || n != t->n || !options_fit(&t->options) || t->step > t->options.steps)
        return false;
    for (int i = 0; i < RN_EAGLE_TENSORS; i++)
        if (spans[i].rows != t->spans[i].rows || spans[i].cols != t->spans[i].cols ||
            spans[i].offset != t->spans[i].offset)
            return false;
    return t->weights != NULL && t->m == t->weights + n && t->v == t->m + n && t->gradients == t->v + n;
}

void rn_trainer_begin(struct rn_trainer *t, struct rn_eagle_score *score)
{
    RN_ASSERT(rn_trainer_check(t));
    memset(t->gradients, 0, t->n * sizeof(float));
    *score = (struct rn_eagle_score){0};
}

void rn_trainer_add(struct rn_trainer *t, struct rn_eagle *eagle, const struct rn_eagle_text *text, uint32_t texts,
                    struct rn_eagle_score *score)
{
    RN_ASSERT(texts > 0);
    rn_eagle_pass(eagle, t->weights, text, t->options.decay, 1.0f / (float)texts, t->gradients, score);
}

float rn_trainer_rate(const struct rn_trainer_options *o, uint32_t step)
{
    double along;

    if (step < o->warm_steps)
        return o->rate * (float)(step + 1) / (float)o->warm_steps;
    along = o->steps > o->warm_steps ? (double)(step - o->warm_steps) / (o->steps - o->warm_steps) : 1.0;
    return o->rate * (float)(0.1 + 0.9 * 0.5 * (1.0 + cos(3.141592653589793 * fmin(along, 1.0))));
}

uint64_t rn_trainer_place(uint64_t seed, uint32_t step, uint32_t text, uint64_t places)
{
    /* The other half of the seeds than that of the starting weights. */
    uint64_t place = (uint64_t)(rn_coin(~seed, (uint64_t)step << 32 | text) * (double)places);

    RN_ASSERT(place < places);
    return place;
}

static void update(struct rn_trainer *t, const struct rn_eagle_span *span, double rate, double shrink)
{
    double first = 1.0 - pow(B1, t->step + 1.0), second = 1.0 - pow(B2, t->step + 1.0);
    float decay = span->rows > 1 ? t->options.weight_decay : 0.0f;
    float *w = t->weights + span->offset, *m = t->m + span->offset, *v = t->v + span->offset;
    const float *g = t->gradients + span->offset;

    RN_CHECK(span->offset + (size_t)span->rows * span->cols <= t->n);
    RN_ASSERT(rate > 0 && shrink > 0 && shrink <= 1);
    for (size_t i = 0; i < (size_t)span->rows * span->cols; i++) {
        float gradient = (float)shrink * g[i];

        m[i] = (float)B1 * m[i] + (float)(1.0 - B1) * gradient;
        v[i] = (float)B2 * v[i] + (float)(1.0 - B2) * gradient * gradient;
        w[i] -= (float)rate * (m[i] / (float)first / (sqrtf(v[i] / (float)second) + 1e-8f) + decay * w[i]);
    }
}

bool rn_trainer_end(struct rn_trainer *t, const struct rn_eagle_score *score)
{
    double sum = 0, norm;

    for (size_t i = 0; i < t->n; i++)
        sum += (double)t->gradients[i] * t->gradients[i];
    norm = sqrt(sum);
    if (!isfinite(norm))
        return false;
    for (int i = 0; i < RN_EAGLE_TENSORS; i++)
        update(t, &t->spans[i], rn_trainer_rate(&t->options, t->step),
               norm > t->options.clip ? t->options.clip / norm : 1.0);
    for (uint32_t j = 0; j < RN_EAGLE_MAX_UNROLL; j++) {
        t->loss[j] = score->rows[j] > 0 ? score->loss[j] / score->rows[j] : 0.0;
        t->accepted[j] = score->rows[j] > 0 ? score->hits[j] / score->rows[j] : 0.0;
    }
    RN_ASSERT(t->step < t->options.steps);
    t->step++;
    return true;
}
