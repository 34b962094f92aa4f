/* generate.c: requests that generate nothing, and whose features are pooled. */
#ifndef RN_ACTORS_HOST_POOL_H
#define RN_ACTORS_HOST_POOL_H

#include "runnel.h"

struct rn_embed;
struct rn_pair;

/* Whether the model takes requests at all: CLOSED, STATE. What it consists of may be read behind OK. */
runnel_status rn_host_check_model(runnel_model *model, runnel_error *error);

/* Submits as runnel_generate does. pair: the prompt where the request has none; NULL else. Both are taken, also on
 * failure. max_tokens is 0. */
runnel_status rn_host_pool(runnel_model *model, const runnel_request *request, struct rn_pair *pair,
                           struct rn_embed *embed, runnel_stream *stream, runnel_error *error);

#endif
