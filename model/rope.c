/* The table of angles: see rope.h. */
#include "model/rope.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

/* The (fractional) pair that turns `turns` times within the original context: solves
 * original * base^(-2i / dims) = 2 pi turns for i. */
static double pair_of_turns(const struct rn_rope_hparams *h, double turns)
{
    return h->dims * log(h->original_tokens / (turns * 2 * pi)) / (2 * log(h->base));
}

/* 1: the frequency stays, 0: it is divided by the factor. */
static double yarn_ramp(const struct rn_rope_hparams *h, uint32_t pair)
{
    double low = fmax(0, floor(pair_of_turns(h, h->beta_fast)));
    double high = fmin(h->dims - 1.0, ceil(pair_of_turns(h, h->beta_slow)));
    double y = (pair - low) / fmax(0.001, high - low);

    return 1 - fmin(1, fmax(0, y));
}

static double yarn(const struct rn_rope_hparams *h, uint32_t pair, double f)
{
    double ramp = yarn_ramp(h, pair) * h->ext_factor;

    return f * ramp + f / h->factor * (1 - ramp);
}

static double llama3(const struct rn_rope_hparams *h, double f)
{
    double waves = h->original_tokens * f / (2 * pi); /* within the original context */
    double blend = (waves - h->low_factor) / (h->high_factor - h->low_factor);

    blend = fmin(1, fmax(0, blend));
    return f * blend + f / h->factor * (1 - blend);
}

/* YaRN's 0.1 m ln(s) + 1, the growth of a vector whose softmax temperature is folded into the rotation. */
static double growth(double factor, double multiplier)
{
    return factor <= 1 ? 1 : 0.1 * multiplier * log(factor) + 1;
}

double rn_rope_magnitude(const struct rn_rope_hparams *h)
{
    double m = h->attention_factor;

    if (h->scaling != RN_ROPE_YARN || h->ext_factor == 0)
        return m;
    if (h->yarn_attention > 0)
        return m * h->yarn_attention;
    m *= growth(h->factor, 1);
    if (h->log_multiplier != 0)
        m /= growth(h->factor, h->log_multiplier);
    return m;
}

/* The axis of a pair is the fourth, where text is at position 0. */
static bool stands_still(const struct rn_rope_hparams *h, uint32_t pair)
{
    const uint32_t *s = h->sections;
    uint32_t three = s[0] + s[1] + s[2], all = three + s[3];

    if (all == 0)
        return false;
    pair %= all;
    return h->interleaved ? pair >= 3 * s[pair % 3] : pair >= three;
}

void rn_rope_fill(const struct rn_rope_hparams *h, const float *divisors, struct rn_rope *rope)
{
    uint32_t i;
    double f;

    for (i = 0; i < h->dims / 2; i++) {
        f = pow(h->base, -2.0 * i / h->dims);
        if (divisors != NULL)
            f /= divisors[i];
        if (h->scaling == RN_ROPE_YARN)
            f = yarn(h, i, f);
        else if (h->scaling != RN_ROPE_LLAMA3)
            f /= h->factor;
        else if (divisors == NULL)
            f = llama3(h, f);
        rope->inv_freq[i] = stands_still(h, i) ? 0 : h->back ? -f : f;
    }
    rope->magnitude = rn_rope_magnitude(h);
}

bool rn_rope_is_long(const struct rn_rope_hparams *h, uint32_t context_tokens)
{
    return context_tokens > h->original_tokens;
}
