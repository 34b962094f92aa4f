/* The ranges of the sampling parameters: see sampler.h and runnel.h. */
#include "sampling/sampler.h"

#include <math.h>
#include <string.h>

#include "base/sized.h"
#include "runnel_fields.h"

/* A finite number in [low, high], or in (low, high] when `above`. */
static bool in_range(float value, double low, double high, bool above)
{
    return isfinite(value) && (above ? value > low : value >= low) && value <= high;
}

static runnel_status check_biases(const runnel_sampling *params, uint32_t n_vocab, runnel_error *error)
{
    if (params->n_biases > 0 && params->biases == NULL)
        return rn_error_set(error, RUNNEL_INVALID, "sampling.biases is NULL but n_biases is %zu", params->n_biases);
    if (params->n_biases > n_vocab)
        return rn_error_set(error, RUNNEL_INVALID, "sampling.n_biases is %zu; the vocabulary has %u tokens",
                            params->n_biases, (unsigned)n_vocab);
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

/* ---- runnel_samplers ---- */

#define DEFAULT(type, member, sampler, value, least, most, option, json, help) .member = (type)(value),

void runnel_samplers_init(runnel_samplers *samplers, size_t struct_size)
{
    static const char *const breakers[] = {"\n", ":", "\"", "*"};
    const runnel_samplers own = {.dry_breakers = breakers,
                                 .n_dry_breakers = sizeof breakers / sizeof breakers[0],
                                 RUNNEL_SAMPLERS_NUMBERS(DEFAULT)};

    rn_sized_write(samplers, struct_size, &own, sizeof own);
}

void(runnel_samplers_default)(runnel_samplers *samplers)
{
    runnel_samplers_init(samplers, RN_FIRST_SIZE(runnel_samplers, reserved));
}

static runnel_status check_breakers(const runnel_samplers *samplers, runnel_error *error)
{
    if (samplers->n_dry_breakers > RUNNEL_MAX_BREAKERS)
        return rn_error_set(error, RUNNEL_INVALID, "sampling.samplers.n_dry_breakers is %zu; at most %d",
                            samplers->n_dry_breakers, RUNNEL_MAX_BREAKERS);
    if (samplers->n_dry_breakers > 0 && samplers->dry_breakers == NULL)
        return rn_error_set(error, RUNNEL_INVALID, "sampling.samplers.dry_breakers is NULL but n_dry_breakers is %zu",
                            samplers->n_dry_breakers);
    for (size_t i = 0; i < samplers->n_dry_breakers; i++) {
        const char *text = samplers->dry_breakers[i];
        size_t n = text == NULL ? 0 : strnlen(text, RUNNEL_MAX_BREAKER_BYTES + 1);

        if (n == 0 || n > RUNNEL_MAX_BREAKER_BYTES)
            return rn_error_set(error, RUNNEL_INVALID, "sampling.samplers.dry_breakers[%zu]: not 1..%d bytes", i,
                                RUNNEL_MAX_BREAKER_BYTES);
    }
    return RUNNEL_OK;
}

/* The host draws: what draws, too, is off, and what looks at the sequence stands in front. */
static runnel_status check_host(const runnel_sampling *params, const runnel_samplers *samplers,
                                const struct rn_chain_order *order, runnel_error *error)
{
    struct rn_chain_order active;
    bool asked = false;

    if (samplers->choose == NULL)
        return RUNNEL_OK;
    if (samplers->mirostat != 0 || samplers->adaptive_target >= 0)
        return rn_error_set(error, RUNNEL_INVALID, "sampling.samplers.choose draws the token, and so does %s",
                            samplers->mirostat != 0 ? "mirostat" : "adaptive_p");
    rn_chain_order_active(order, params, samplers, &active);
    for (uint32_t i = 0; i < active.n; i++) {
        asked |= active.kinds[i] == RN_SAMPLER_host;
        if (asked && (active.kinds[i] == RN_SAMPLER_penalties || active.kinds[i] == RN_SAMPLER_dry))
            return rn_error_set(error, RUNNEL_INVALID,
                                "sampling.samplers.order: penalties and dry stand in front of host");
        if (!asked && active.kinds[i] == RN_SAMPLER_temperature && params->temperature == 0)
            return rn_error_set(error, RUNNEL_INVALID,
                                "sampling.samplers.choose: temperature 0 in front of host leaves it one candidate; 1 "
                                "leaves the logits as they are");
    }
    return RUNNEL_OK;
}

#define CHECK(type, member, sampler, value, least, most, option, json, help)                                    \
    if (!((double)samplers.member >= (double)(type)(least) && (double)samplers.member <= (double)(type)(most))) \
        return rn_error_set(error, RUNNEL_INVALID, "sampling.samplers.%s is %g; allowed: [%g, %g]", #member,    \
                            (double)samplers.member, (double)(least), (double)(most));

static runnel_status check_samplers(const runnel_sampling *params, runnel_error *error)
{
    const runnel_samplers *given = params->samplers;
    struct rn_chain_order order;
    runnel_samplers samplers;
    runnel_status status;

    runnel_samplers_default(&samplers);
    if (given == NULL)
        return RUNNEL_OK;
    if (!rn_sized_read(&samplers, sizeof samplers, given))
        return rn_error_set(error, RUNNEL_INVALID,
                            "sampling.samplers: struct_size is not of this library; use runnel_samplers_default");
    if (!rn_all_zero(samplers.reserved, sizeof samplers.reserved))
        return rn_error_set(error, RUNNEL_INVALID, "sampling.samplers: reserved is not zero");
    RUNNEL_SAMPLERS_NUMBERS(CHECK)
    if (samplers.mirostat != 0 && samplers.adaptive_target >= 0)
        return rn_error_set(error, RUNNEL_INVALID,
                            "sampling.samplers: mirostat and adaptive_p both draw the token; switch one of them on");
    if ((status = check_breakers(&samplers, error)) != RUNNEL_OK ||
        (status = rn_chain_order_read(samplers.order, &order, error)) != RUNNEL_OK)
        return status;
    return check_host(params, &samplers, &order, error);
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
    if (check_biases(params, n_vocab, error) != RUNNEL_OK)
        return RUNNEL_INVALID;
    return check_samplers(params, error);
}
