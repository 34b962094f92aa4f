/* Loading a model with LoRA adapters. On the threads of a model's load, see model.c. */
#ifndef RN_ACTORS_LOAD_MODEL_ADAPTERS_H
#define RN_ACTORS_LOAD_MODEL_ADAPTERS_H

#include "actors/adapters.h"
#include "runnel.h"

struct rn_heap;
struct runnel_model;

/* The options name adapters as they may. INVALID, IO. On a host's thread. */
runnel_status rn_model_adapters_check(const runnel_model_options *options, runnel_error *error);

/* A copy of them, in one piece of memory; NULL: none, or no memory. */
runnel_adapter *rn_model_adapters_copy(struct rn_heap *heap, const runnel_model_options *options);

/* Loads them, and puts their ops into the plans of model->parts, which are cut by now. Blocks on the disk. As
 * rn_adapters_load and rn_plan_adapt; CANCELLED where the load is. */
runnel_status rn_model_adapters_load(struct runnel_model *model, runnel_error *error);

/* Behind all plans. */
void rn_model_adapters_fini(struct rn_model_adapters *adapters);

#endif
