/* What a role knows of its surroundings: what it works with and to whom it sends, and no other role's structures.
 *
 *   engine.c   the engine's context: the first part; the router's
 *   model.c    each model's context: a copy of it, and the second part; that of every actor of the model
 *
 * A context is filled before the actors that read it begin, and constant until they are gone: any thread may read it.
 * It owns nothing. */
#ifndef RN_ACTORS_CONTEXT_H
#define RN_ACTORS_CONTEXT_H

#include "actors/bounds.h"
#include "actors/telemetry/metrics.h"
#include "actors/runtime/runtime.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "model/backend.h"
#include "model/kv_size.h"
#include "runnel.h"
#include "text/vocab.h"

struct rn_cold_io;
struct rn_drafter;
struct rn_gguf;
struct rn_host;
struct rn_model_adapters;
struct rn_outlet;
struct rn_pool;
struct rn_session;
struct rn_session_fingerprints;
struct rn_step_cost;
struct rn_step_times;
struct rn_worker;

struct rn_context {
    /* The engine's. */
    struct runnel_engine *engine; /* opaque: the handle for what serves the host */
    struct rn_host *host;         /* where events leave, see actors/host/bridge.h */
    struct rn_heap *heap;
    const struct rn_clock *clock;
    const struct rn_log *log;
    struct rn_runtime *runtime;
    struct rn_worker *worker; /* for work that may block */
    struct rn_totals *totals;
    const struct rn_metrics_list *every_model; /* the metrics of all models */
    struct rn_outlet *outlets;                 /* [max_streams]: where the host's events go */
    struct rn_session *sessions;               /* [session_places]; see session_slot.h */
    struct rn_pool *session_slots;
    uint32_t max_streams, session_places;
    const struct rn_word *closing; /* 1: the engine is being freed */
    uint64_t max_queued_bytes;     /* of totals->queued_bytes; UINT64_MAX: no limit */
    struct rn_bounds bounds;       /* of the mailbox of a model's actor */
    struct rn_actor *router;

    /* The model's. */
    struct runnel_model *model;     /* opaque: the handle for messages */
    const struct rn_word *released; /* 1: the model is being freed */
    struct rn_metrics *metrics;
    const runnel_model_options *options;
    const struct rn_gguf *gguf; /* NULL: it has no file */
    const struct rn_vocab *vocab;
    const struct rn_plan *plan; /* NULL: the backend needs none */
    struct rn_backend *backend;
    const struct rn_backend_limits *limits;
    uint32_t n_vocab;                /* width of the logits */
    uint32_t row_features;           /* what a step writes for a row; what embeddings are made of see embed.h */
    const struct rn_step_cost *cost; /* of the model's steps, as far as the load has measured them */
    struct rn_step_times *times;     /* see telemetry/telemetry.h */
    struct rn_drafter *drafter;      /* of kind NONE: there is none */
    const struct rn_model_adapters *adapters;
    struct rn_session_fingerprints *prints;
    const struct rn_cold_io *cold_io; /* the cold tier's disk; NULL: the machine's */
    uint32_t cache_places;            /* blocks that a lower tier can have, at most; 0: by its size */
    uint64_t news_us;                 /* between two looks for what others put into lower tiers */
    struct rn_actor *tokenizer, *grammar, *tier, *mover, *prefill, *decode, *verifier, *draft, *sampler, *detokenizer;
};

/* Attention of the model sees what is behind a row: all of a text is in each step. */
static inline bool rn_context_sees_both_ways(const struct rn_context *context)
{
    return context->plan != NULL && context->plan->bidirectional;
}

/* Tokens of the longest prompt, history included, behind which so many may come. */
static inline uint64_t rn_context_prompt_room(const struct rn_context *context, int64_t max_tokens)
{
    return rn_kv_size_text(context->limits, rn_context_sees_both_ways(context)) - (max_tokens == 0 ? 0 : 1);
}

#endif
