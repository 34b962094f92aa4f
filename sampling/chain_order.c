/* The order of a chain: see chain.h. */
#include <string.h>

#include "sampling/chain.h"

#define NAME(name, needs, text) #name,
static const char *const names[] = {RUNNEL_SAMPLER_NAMES(NAME)};

#define LONGEST_NAME 32u

/* The text is the name, each "_" in it as it is, as "-", or left out. */
static bool is_name(const char *name, const char *text, size_t n)
{
    size_t at = 0;

    for (; *name != '\0'; name++) {
        bool hyphen = *name == '_' && at < n && text[at] == '-';

        if (at < n && (text[at] == *name || hyphen))
            at++;
        else if (*name != '_')
            return false;
    }
    return at == n;
}

static uint32_t kind_of(const char *text, size_t n)
{
    static const struct {
        const char *name;
        enum rn_sampler_kind kind;
    } others[] = {{"temp", RN_SAMPLER_temperature},
                  {"typical", RN_SAMPLER_typical_p},
                  {"typ", RN_SAMPLER_typical_p},
                  {"typ_p", RN_SAMPLER_typical_p},
                  {"nucleus", RN_SAMPLER_top_p}};

    for (uint32_t i = 0; i < RN_SAMPLERS; i++)
        if (is_name(names[i], text, n))
            return i;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (is_name(others[i].name, text, n))
            return others[i].kind;
    return RN_SAMPLERS;
}

static bool is_last(uint32_t kind)
{
    return kind == RN_SAMPLER_mirostat || kind == RN_SAMPLER_adaptive_p;
}

/* They act once they are set, named or not. */
static bool needs_no_name(uint32_t kind)
{
    return kind == RN_SAMPLER_host || is_last(kind);
}

static bool has(const struct rn_chain_order *order, uint32_t kind)
{
    return memchr(order->kinds, (int)kind, order->n) != NULL;
}

static runnel_status add(struct rn_chain_order *order, const char *text, size_t n, runnel_error *error)
{
    uint32_t kind = kind_of(text, n), last = order->n > 0 ? order->kinds[order->n - 1] : RN_SAMPLERS;

    if (kind == RN_SAMPLERS)
        return rn_error_set(error, RUNNEL_INVALID, "sampling.samplers.order: there is no sampler '%.*s'",
                            (int)(n < LONGEST_NAME ? n : LONGEST_NAME), text);
    if (has(order, kind))
        return rn_error_set(error, RUNNEL_INVALID, "sampling.samplers.order: %s stands twice", names[kind]);
    if (is_last(last) && !is_last(kind))
        return rn_error_set(error, RUNNEL_INVALID, "sampling.samplers.order: %s draws the token, so %s cannot follow",
                            names[last], names[kind]);
    order->kinds[order->n++] = (uint8_t)kind;
    return RUNNEL_OK;
}

runnel_status rn_chain_order_read(const char *text, struct rn_chain_order *order, runnel_error *error)
{
    *order = (struct rn_chain_order){.n = 0};
    if (text == NULL) {
        for (; order->n < RN_SAMPLERS; order->n++)
            order->kinds[order->n] = (uint8_t)order->n;
        return RUNNEL_OK;
    }
    while (*text != '\0') {
        size_t n = strcspn(text, ",;");
        runnel_status status = add(order, text, n, error);

        if (status != RUNNEL_OK)
            return status;
        text += n;
        if (*text != '\0' && *++text == '\0')
            return rn_error_set(error, RUNNEL_INVALID, "sampling.samplers.order ends with a comma");
    }
    return RUNNEL_OK;
}

static bool is_on(uint32_t kind, const runnel_sampling *p, const runnel_samplers *s)
{
    switch ((enum rn_sampler_kind)kind) {
    case RN_SAMPLER_penalties:
        return p->repetition_penalty != 1 || p->frequency_penalty != 0 || p->presence_penalty != 0;
    case RN_SAMPLER_dry:
        return s->dry_multiplier > 0;
    case RN_SAMPLER_temperature:
        return p->temperature != 1 || s->temperature_range > 0;
    case RN_SAMPLER_top_n_sigma:
        return s->top_n_sigma > 0;
    case RN_SAMPLER_top_k:
        return p->top_k > 0;
    case RN_SAMPLER_typical_p:
        return s->typical_p < 1;
    case RN_SAMPLER_top_p:
        return p->top_p < 1;
    case RN_SAMPLER_min_p:
        return p->min_p > 0;
    case RN_SAMPLER_xtc:
        return s->xtc_probability > 0 && s->xtc_threshold <= 0.5f;
    case RN_SAMPLER_host:
        return s->choose != NULL;
    case RN_SAMPLER_mirostat:
        return s->mirostat > 0;
    case RN_SAMPLER_adaptive_p:
        return s->adaptive_target >= 0;
    case RN_SAMPLERS:
        break;
    }
    return false;
}

void rn_chain_order_active(const struct rn_chain_order *order, const runnel_sampling *params,
                           const runnel_samplers *samplers, struct rn_chain_order *active)
{
    active->n = 0;
    for (uint32_t i = 0; i < order->n; i++)
        if (is_on(order->kinds[i], params, samplers))
            active->kinds[active->n++] = order->kinds[i];
    for (uint32_t kind = 0; kind < RN_SAMPLERS; kind++)
        if (needs_no_name(kind) && is_on(kind, params, samplers) && !has(order, kind))
            active->kinds[active->n++] = (uint8_t)kind;
}
