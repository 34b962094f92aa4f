/* generate.c: how a call that submits begins and ends; requests that generate nothing, and whose features are pooled.
 * */
#ifndef RN_ACTORS_HOST_POOL_H
#define RN_ACTORS_HOST_POOL_H

#include "runnel.h"

struct rn_embed;
struct rn_pair;

/* A call that submits is inside from its first look at the model until its stream is counted: so what the model
 * consists of stays, and a drain that finds nobody inside has seen every stream. OK: rn_host_leave is due; CLOSED: the
 * engine is being freed or drained; STATE: another process's. */
runnel_status rn_host_enter(runnel_model *model, runnel_error *error);
void rn_host_leave(runnel_model *model);

/* Inside: whether the model takes requests at all: CLOSED, STATE. What it consists of may be read behind OK. */
runnel_status rn_host_check_model(runnel_model *model, runnel_error *error);

/* Inside: submits as runnel_generate does. pair: the prompt where the request has none; NULL else. Both are taken, also
 * on failure. max_tokens is 0. */
runnel_status rn_host_pool(runnel_model *model, const runnel_request *request, struct rn_pair *pair,
                           struct rn_embed *embed, runnel_stream *stream, runnel_error *error);

#endif
