/* The sampler `host`, which is a function of JavaScript. */
#ifndef RN_NODE_CHOOSE_H
#define RN_NODE_CHOOSE_H

#include "engine.h"

/* A runnel_choose_fn; user is the stream's struct node_slot. On the thread of the engine's events. */
int64_t choose_callback(void *user, runnel_candidates *candidates);

/* Calls onChoose, on the loop's thread. */
int64_t choose_by_javascript(struct node_slot *slot, runnel_candidates *candidates);

void choose_export(napi_env env, napi_value exports);

#endif
