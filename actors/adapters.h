/* The LoRA adapters of a model, as its actors know them. Constant once the model is loaded: any thread may read. */
#ifndef RN_ACTORS_ADAPTERS_H
#define RN_ACTORS_ADAPTERS_H

#include "model/adapter.h"

struct rn_model_adapters {
    struct rn_adapters *all; /* NULL: it has none */
    uint64_t
        prints[RN_MAX_ADAPTERS]; /* of number i + 1: what tells KV that was computed with it from other KV. Never 0,
                                         which is that of none */
};

/* The number of the adapter with that print; 0: none has it. */
static inline uint32_t rn_model_adapters_by_print(const struct rn_model_adapters *adapters, uint64_t print)
{
    for (uint32_t i = 0; i < rn_adapters_count(adapters->all); i++)
        if (adapters->prints[i] == print)
            return i + 1;
    return 0;
}

#endif
