/* What steps take: see step_cost.h. */
#include "sampling/step_cost.h"

#include <math.h>

#define SMOOTHING 0.04f /* weight of the newest step, once there were many */
#define MOST_SEEN 25u
#define OUTLIER 1.5f   /* a step that took longer than so many times what it should was held up */
#define FEW 4u         /* of fewer steps one that was held up counts for much */
#define DUE 10u        /* steps for each try to measure a size again of which there is one measurement */
#define DRIFT 0.03125f /* how far the other sizes follow */
#define CAPS 4u        /* larger sizes that bound one */
#define MORE_ROWS 4.0f /* in the guess beyond what is known: a row costs a fifth of a step of one */
#define SPREAD 0.0025f /* a twentieth, taken for granted ... */
#define SPREAD_SEEN 4u /* ... with the weight of so many steps */
#define SPREAD_SMOOTHING 0.03f

static uint32_t size_of(uint32_t n_rows)
{
    uint32_t size = RN_COST_EXACT, width = RN_COST_EXACT / 4, most = RN_COST_EXACT + width;

    if (n_rows <= RN_COST_EXACT)
        return n_rows > 0 ? n_rows - 1 : 0;
    for (; n_rows > most && size < RN_COST_SIZES - 1; size++) {
        if ((size - RN_COST_EXACT) % 4 == 3)
            width *= 2;
        most += width;
    }
    return size;
}

/* So many times the time of that size. */
static float beyond(const struct rn_step_cost *cost, uint32_t size, float rows)
{
    return (rows + MORE_ROWS) / (cost->rows[size] + MORE_ROWS);
}

/* No more than a larger step takes: one that was held up when it was measured stays dear, since nobody tries it. */
static float capped(const struct rn_step_cost *cost, uint32_t size, float us)
{
    for (uint32_t i = size + 1; i <= size + CAPS && i < RN_COST_SIZES; i++)
        us = cost->n[i] > 0 && cost->us[i] < us ? cost->us[i] : us;
    return us;
}

/* A time as a sum of those of one or two sizes. */
struct mix {
    uint32_t n;
    uint32_t sizes[2];
    float weights[2];
};

static struct mix mix_of(const struct rn_step_cost *cost, uint32_t n_rows)
{
    uint32_t size = size_of(n_rows), low, high;
    float rows = (float)n_rows, share;

    low = cost->n[size] > 0 && cost->rows[size] <= rows ? size + 1 : size; /* one more than it is */
    high = low;
    while (low > 0 && cost->n[low - 1] == 0)
        low--;
    while (high < RN_COST_SIZES && cost->n[high] == 0)
        high++;
    if (low == 0 && high == RN_COST_SIZES)
        return (struct mix){.n = 0};
    if (low == 0)
        return (struct mix){1, {high}, {beyond(cost, high, rows)}};
    low--;
    if (high == RN_COST_SIZES)
        return (struct mix){1, {low}, {beyond(cost, low, rows)}};
    share = (rows - cost->rows[low]) / (cost->rows[high] - cost->rows[low]);
    return (struct mix){2, {low, high}, {1 - share, share}};
}

static float time_of(const struct rn_step_cost *cost, const struct mix *mix)
{
    float low = cost->us[mix->sizes[0]], high = cost->us[mix->sizes[1]];

    if (mix->n < 2)
        return mix->n == 0 ? 0 : mix->weights[0] * low;
    return high > low ? mix->weights[0] * low + mix->weights[1] * high : low; /* more rows take no less */
}

float rn_step_cost_of(const struct rn_step_cost *cost, uint32_t n_rows)
{
    struct mix mix = mix_of(cost, n_rows);
    float us = time_of(cost, &mix);

    return mix.n < 2 ? us : capped(cost, size_of(n_rows), us);
}

/* What the sizes' own errors make of the difference of two mixes, squared. */
static float error_of(const struct rn_step_cost *cost, const struct mix *more, const struct mix *less)
{
    float sum = 0;

    for (uint32_t i = 0; i < more->n + less->n; i++) {
        const struct mix *mix = i < more->n ? more : less, *other = i < more->n ? less : more;
        uint32_t k = i < more->n ? i : i - more->n, size = mix->sizes[k];
        float weight = mix->weights[k];
        bool twice = false;

        for (uint32_t j = 0; j < other->n; j++)
            if (other->sizes[j] == size) {
                weight -= other->weights[j];
                twice = true;
            }
        if (!twice || i < more->n) /* a size of both counts once */
            sum += weight * weight * cost->us[size] * cost->us[size] / (float)cost->n[size];
    }
    return cost->spread * sum;
}

float rn_step_cost_rise(const struct rn_step_cost *cost, uint32_t n_rows, uint32_t n_more, float *doubt)
{
    struct mix less = mix_of(cost, n_rows), more = mix_of(cost, n_rows + n_more);
    float us = rn_step_cost_of(cost, n_rows), rise = rn_step_cost_of(cost, n_rows + n_more) - us;
    float guess = us * (float)n_more / ((float)n_rows + MORE_ROWS), error = error_of(cost, &more, &less);

    *doubt = guess > 0 ? sqrtf(error * guess * guess / (error + guess * guess)) : 0;
    return rise > 0 ? rise : 0;
}

uint32_t rn_step_cost_doubtful(const struct rn_step_cost *cost, uint32_t n_rows)
{
    uint32_t n = cost->n[size_of(n_rows)];

    return n > 0 && n < FEW && cost->n_notes % (DUE * n * n) == 0 ? n : 0;
}

/* Steps of one size are alike, so what their time changes by is the machine's doing: the other sizes follow. */
static void follow(struct rn_step_cost *cost, float change)
{
    for (uint32_t i = 0; i < RN_COST_SIZES; i++)
        cost->us[i] *= 1 + DRIFT * (change - 1);
}

static float larger(float a, float b)
{
    return a > b ? a : b;
}

/* A measurement of a size that has been measured: by its mean of n it is off by (1 + 1/n) of what single ones are. */
static void note_spread(struct rn_step_cost *cost, uint32_t n, float off)
{
    off = off > -0.5f ? off : -0.5f; /* what told too much was held up: that is not how steps differ */
    cost->spread += larger(1.0f / (float)(SPREAD_SEEN + cost->n_notes), SPREAD_SMOOTHING) *
                    (off * off * (float)n / (float)(n + 1) - cost->spread);
}

void rn_step_cost_record(struct rn_step_cost *cost, uint32_t n_rows, uint64_t us)
{
    float expected = rn_step_cost_of(cost, n_rows), now = us > 0 ? (float)us : 1, weight;
    uint32_t size = size_of(n_rows);

    cost->spread = cost->n_notes == 0 ? SPREAD : cost->spread;
    cost->n_notes += cost->n_notes < UINT32_MAX ? 1 : 0;
    now = expected == 0 || now < OUTLIER * expected ? now : OUTLIER * expected;
    if (cost->n[size] > 0)
        note_spread(cost, cost->n[size], now / expected - 1);
    if (size < RN_COST_EXACT && cost->n[size] > 0)
        follow(cost, now / expected);
    if (cost->n[size] < FEW && OUTLIER * now < cost->us[size])
        cost->n[size] = 0; /* nothing is faster than it can be: those before were held up */
    weight = larger(1.0f / (float)(cost->n[size] + 1), SMOOTHING);
    cost->us[size] += weight * (now - cost->us[size]);
    cost->rows[size] += weight * ((float)n_rows - cost->rows[size]);
    cost->n[size] += cost->n[size] < MOST_SEEN;
}

/* One row more than the largest step that is known has, of many rows a few. */
uint32_t rn_step_cost_reach(const struct rn_step_cost *cost)
{
    uint32_t known = RN_COST_SIZES, top;

    while (known > 0 && cost->n[known - 1] == 0)
        known--;
    if (known == 0)
        return 0;
    top = (uint32_t)cost->rows[known - 1];
    return top + 1 + top / 16;
}
