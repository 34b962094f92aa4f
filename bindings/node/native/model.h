/* A model of an engine, as JavaScript holds it. */
#ifndef RN_NODE_MODEL_H
#define RN_NODE_MODEL_H

#include "engine.h"

struct node_model {
    enum box_kind kind;
    struct node_engine *engine;
    napi_ref of_engine;  /* the engine's handle, which is not collected before the model's */
    runnel_model *model; /* NULL: closed */
    uint32_t slot;       /* of the load */
    runnel_error error;  /* of the load, on its way to JavaScript */
    uint32_t jobs;       /* that use it on other threads; the last one frees it where it is closed meanwhile */
    bool closed;
};

/* The model of a handle; NULL: an error was thrown, CLOSED where it or its engine is closed. */
struct node_model *model_open(napi_env env, napi_value value);

/* A job has ended. On the environment's thread. */
void model_job_done(struct node_model *model);

#endif
