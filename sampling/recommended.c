/* Recommended sampling parameters: see recommended.h. */
#include "sampling/recommended.h"

#include "sampling/sampler.h"

#define KEY "general.sampling."

/* False: the file has no number of that name. */
static bool read_number(const struct rn_gguf *gguf, const char *key, double *value)
{
    const struct rn_gguf_entry *entry = rn_gguf_find(gguf, key);

    if (entry == NULL)
        return false;
    switch (entry->type) {
    case RN_GGUF_F32:
    case RN_GGUF_F64:
        *value = rn_gguf_item_f64(entry, 0);
        return true;
    case RN_GGUF_U8:
    case RN_GGUF_I8:
    case RN_GGUF_U16:
    case RN_GGUF_I16:
    case RN_GGUF_U32:
    case RN_GGUF_I32:
    case RN_GGUF_U64:
    case RN_GGUF_I64:
        *value = (double)rn_gguf_item_i64(entry, 0);
        return true;
    default:
        return false;
    }
}

/* A count: less than 0 is "all" in those files, 0 here. */
static uint32_t count_of(double value)
{
    return value > 0 && value < UINT32_MAX ? (uint32_t)value : 0;
}

static void set_member(runnel_sampling *sampling, uint32_t bit, double value)
{
    switch (bit) {
    case RUNNEL_RECOMMENDED_TEMPERATURE:
        sampling->temperature = (float)value;
        break;
    case RUNNEL_RECOMMENDED_TOP_K:
        sampling->top_k = count_of(value);
        break;
    case RUNNEL_RECOMMENDED_TOP_P:
        sampling->top_p = (float)value;
        break;
    case RUNNEL_RECOMMENDED_MIN_P:
        sampling->min_p = (float)value;
        break;
    case RUNNEL_RECOMMENDED_REPETITION_PENALTY:
        sampling->repetition_penalty = (float)value;
        break;
    case RUNNEL_RECOMMENDED_PENALTY_TOKENS:
        sampling->penalty_tokens = count_of(value);
        if (value == 0) /* in those files: no token counts */
            sampling->repetition_penalty = 1;
        break;
    }
}

uint32_t rn_sampling_recommended(const struct rn_gguf *gguf, runnel_sampling *sampling)
{
    static const struct {
        const char *key;
        uint32_t bit;
    } keys[] = {{KEY "temp", RUNNEL_RECOMMENDED_TEMPERATURE},
                {KEY "top_k", RUNNEL_RECOMMENDED_TOP_K},
                {KEY "top_p", RUNNEL_RECOMMENDED_TOP_P},
                {KEY "min_p", RUNNEL_RECOMMENDED_MIN_P},
                {KEY "penalty_repeat", RUNNEL_RECOMMENDED_REPETITION_PENALTY},
                {KEY "penalty_last_n", RUNNEL_RECOMMENDED_PENALTY_TOKENS}};
    uint32_t recommended = 0;
    double value = 0;

    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        runnel_sampling alone = {.top_p = 1, .repetition_penalty = 1}; /* each value is checked by itself */

        if (!read_number(gguf, keys[i].key, &value))
            continue;
        set_member(&alone, keys[i].bit, value);
        if (rn_sampling_check(&alone, 1, NULL) != RUNNEL_OK)
            continue;
        set_member(sampling, keys[i].bit, value);
        recommended |= keys[i].bit;
    }
    return recommended;
}

static void set_sampler(runnel_samplers *samplers, uint32_t bit, double value)
{
    switch (bit) {
    case RUNNEL_RECOMMENDED_XTC_PROBABILITY:
        samplers->xtc_probability = (float)value;
        break;
    case RUNNEL_RECOMMENDED_XTC_THRESHOLD:
        samplers->xtc_threshold = (float)value;
        break;
    case RUNNEL_RECOMMENDED_MIROSTAT:
        samplers->mirostat = value >= 0 && value < UINT32_MAX ? (uint32_t)value : UINT32_MAX; /* which is refused */
        break;
    case RUNNEL_RECOMMENDED_MIROSTAT_TAU:
        samplers->mirostat_tau = (float)value;
        break;
    case RUNNEL_RECOMMENDED_MIROSTAT_ETA:
        samplers->mirostat_eta = (float)value;
        break;
    }
}

uint32_t rn_samplers_recommended(const struct rn_gguf *gguf, runnel_samplers *samplers)
{
    static const struct {
        const char *key;
        uint32_t bit;
    } keys[] = {{KEY "xtc_probability", RUNNEL_RECOMMENDED_XTC_PROBABILITY},
                {KEY "xtc_threshold", RUNNEL_RECOMMENDED_XTC_THRESHOLD},
                {KEY "mirostat", RUNNEL_RECOMMENDED_MIROSTAT},
                {KEY "mirostat_tau", RUNNEL_RECOMMENDED_MIROSTAT_TAU},
                {KEY "mirostat_eta", RUNNEL_RECOMMENDED_MIROSTAT_ETA}};
    uint32_t recommended = 0;
    double value = 0;

    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        runnel_samplers alone;
        runnel_sampling with = {.top_p = 1, .repetition_penalty = 1, .samplers = &alone};

        runnel_samplers_default(&alone);
        if (!read_number(gguf, keys[i].key, &value))
            continue;
        set_sampler(&alone, keys[i].bit, value);
        if (rn_sampling_check(&with, 1, NULL) != RUNNEL_OK)
            continue;
        set_sampler(samplers, keys[i].bit, value);
        recommended |= keys[i].bit;
    }
    return recommended;
}
