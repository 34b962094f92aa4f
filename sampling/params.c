/* The ranges of the sampling parameters: see sampler.h and runnel.h. */
#include "sampling/sampler.h"

#include <math.h>

/* A finite number in [low, high], or in (low, high] when `above`. */
static bool in_range(float value, double low, double high, bool above)
{
    return isfinite(value) && (above ? value > low : value >= low) && value <= high;
}

static runnel_status check_biases(const runnel_sampling *params, uint32_t n_vocab, runnel_error *error)
{
    if (params->n_biases > 0 && params->biases == NULL)
        return rn_error_set(error, RUNNEL_INVALID, "sampling.biases is NULL but n_biases is %zu", params->n_biases);
    for (size_t i = 0; i < params->n_biases; i++) {
        const runnel_logit_bias *b = &params->biases[i];

        if (b->token < 0 || (uint32_t)b->token >= n_vocab)
            return rn_error_set(error, RUNNEL_INVALID, "sampling.biases[%zu].token is %d; the vocabulary has %u tokens",
                                i, (int)b->token, (unsigned)n_vocab);
        if (isnan(b->bias) || b->bias == INFINITY)
            return rn_error_set(error, RUNNEL_INVALID, "sampling.biases[%zu].bias is %g; finite or -inf is allowed", i,
                                (double)b->bias);
    }
    return RUNNEL_OK;
}

runnel_status rn_sampling_check(const runnel_sampling *params, uint32_t n_vocab, runnel_error *error)
{
    const struct {
        const char *name;
        float value;
        bool good;
        const char *range;
    } fields[] = {
        {"temperature", params->temperature, in_range(params->temperature, 0, INFINITY, false), "[0, inf)"},
        {"top_p", params->top_p, in_range(params->top_p, 0, 1, true), "(0, 1]"},
        {"min_p", params->min_p, in_range(params->min_p, 0, 1, false), "[0, 1]"},
        {"repetition_penalty", params->repetition_penalty, in_range(params->repetition_penalty, 0, INFINITY, true),
         "(0, inf)"},
        {"frequency_penalty", params->frequency_penalty, isfinite(params->frequency_penalty), "(-inf, inf)"},
        {"presence_penalty", params->presence_penalty, isfinite(params->presence_penalty), "(-inf, inf)"},
    };

    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (!fields[i].good)
            return rn_error_set(error, RUNNEL_INVALID, "sampling.%s is %g; allowed: %s", fields[i].name,
                                (double)fields[i].value, fields[i].range);
    return check_biases(params, n_vocab, error);
}
