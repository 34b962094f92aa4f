/* The sampler `host`, which is a function of JavaScript. */
#ifndef RN_NODE_CHOOSE_H
#define RN_NODE_CHOOSE_H

#include "engine.h"

/* A runnel_choose_fn; user is the stream's struct node_slot. Calls onChoose on the loop's thread. */
int64_t choose_by_javascript(void *user, runnel_candidates *candidates);

void choose_export(napi_env env, napi_value exports);

#endif
