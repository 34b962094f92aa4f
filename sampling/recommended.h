/* The sampling parameters that a model file recommends: its keys general.sampling.*, with the names that llama.cpp's
 * converter gives them. */
#ifndef RN_SAMPLING_RECOMMENDED_H
#define RN_SAMPLING_RECOMMENDED_H

#include "model/gguf/gguf.h"
#include "runnel.h"

/* Sets the members of *sampling for which the file has a usable value; returns their RUNNEL_RECOMMENDED_ bits. A value
 * of another type or out of range counts as absent. */
uint32_t rn_sampling_recommended(const struct rn_gguf *gguf, runnel_sampling *sampling);

/* The same of *samplers, whose size is this library's. */
uint32_t rn_samplers_recommended(const struct rn_gguf *gguf, runnel_samplers *samplers);

#endif
