/* The detokenizer actor: tokens → text pieces → the stream's ring. It is the producer of every outlet of
 * its model; it alone writes events, so their order is the order of its messages. It finds stop
 * strings, and completes the text and the outcome when a request has ended. */
#ifndef RN_ACTORS_DETOKENIZER_ACTOR_H
#define RN_ACTORS_DETOKENIZER_ACTOR_H

#include "actors/runtime/runtime.h"
#include "runnel.h"

struct runnel_model;

/* One event of a step, of one stream. */
struct rn_token_item {
    uint32_t slot, generation;
    runnel_event_type type; /* TOKEN, PROGRESS, LOGITS, EMBEDDING */
    int32_t token;
    float logprob;
    uint32_t n_top;
    bool joined;         /* on the way back: it became part of another event, and its credit is free */
    const float *logits; /* LOGITS: a row of the outlet's buffer, held by the stream's credit */
    uint64_t position;
    uint64_t prompt_done, prompt_total;
    runnel_logprob top[RUNNEL_MAX_TOP_LOGPROBS];
};

/* The events of one step. Moves decode → detokenizer → decode. */
struct rn_token_list {
    struct rn_token_list *next; /* decode's free list */
    uint32_t n, capacity;
    struct rn_token_item *items;
};

struct rn_detokenizer {
    struct rn_actor actor; /* first */
    struct runnel_model *model;
};

void rn_detokenizer_init(struct rn_detokenizer *detokenizer, struct runnel_model *model);

#endif
