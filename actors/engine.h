/* The inside of an engine and of a model: what engine.c wires together. Private to actors/ (and to
 * tests, which build engines without threads and models without files through the functions here). */
#ifndef RN_ACTORS_ENGINE_H
#define RN_ACTORS_ENGINE_H

#include <stdatomic.h>
#include <sys/types.h>

#include "actors/adapters.h"
#include "actors/prompt/chat.h"
#include "actors/context.h"
#include "actors/decode_actor.h"
#include "actors/detokenizer_actor.h"
#include "actors/draft_actor.h"
#include "actors/grammar_actor.h"
#include "actors/host/bridge.h"
#include "actors/telemetry/metrics.h"
#include "actors/tier/mover.h"
#include "actors/telemetry/telemetry.h"
#include "actors/prefill_actor.h"
#include "actors/telemetry/prints.h"
#include "actors/router_actor.h"
#include "actors/runtime/trace.h"
#include "actors/runtime/worker.h"
#include "actors/sampler_actor.h"
#include "actors/tier/session_job.h"
#include "actors/tier/session_slot.h"
#include "actors/tier_actor.h"
#include "actors/tokenizer_actor.h"
#include "actors/verifier_actor.h"
#include "base/clock.h"
#include "base/log.h"
#include "mailbox/gate.h"
#include "model/arch/table.h"
#include "model/backend.h"
#include "model/gemm.h"
#include "text/vocab.h"

#define RN_MAX_MODELS 64

/* A device that models have asked for. The first one is opened with the engine, the others by the load that asks first,
 * on the worker's thread; all stay open as long as the engine lives. */
#define RN_MAX_DEVICES 16
/* A training of a head has a place here from its beginning until it is freed. Host threads alone read and write. */
#define RN_MAX_TRAININGS 16
struct rn_trainings {
    _Atomic(struct runnel_training *) at[RN_MAX_TRAININGS]; /* NULL: free */
    struct rn_gate gate; /* each is inside until it has given back what is the engine's */
};

struct runnel_engine {
    struct rn_heap heap;
    struct rn_log log;
    struct rn_clock clock;
    struct rn_arch_rows architectures; /* the host's; constant */
    struct rn_totals totals;
    struct rn_metrics_list metrics;
    struct rn_tracer *tracer; /* NULL: nothing is traced */
    pid_t process;            /* that made it: of its children none has the threads */
    struct rn_word closing;
    struct rn_gate gate;   /* of host threads inside calls that block; closed with `closing` */
    struct rn_gate calls;  /* of those inside calls that use what a model consists of, or send to actors; likewise */
    struct rn_gate intake; /* of those inside calls that submit; closed: no more requests are taken */
    uint64_t max_queued_tokens, max_queued_bytes; /* UINT64_MAX: no limit */
    uint32_t max_streams, max_sessions, session_places;
    uint32_t compute_nice; /* of the threads of each device that computes on the host's */
    struct rn_runtime runtime;
    struct rn_router router;
    struct rn_host host;
    struct rn_worker worker;
    struct rn_device *devices[RN_MAX_DEVICES]; /* NULL: none yet; in manual mode none */
    char *device_library;                      /* NULL: by its usual name */
    struct rn_trainings trainings;             /* that have not been freed */
    struct rn_counter measuring;               /* 1 inside runnel_engine_measure */
    struct rn_pool session_slots;
    struct rn_session *sessions; /* [session_places]; see session_slot.h */
    struct rn_context context;   /* for the router and the models' actors */
};

enum rn_model_state { RN_MODEL_LOADING = 0, RN_MODEL_READY = 1, RN_MODEL_FAILED = 2, RN_MODEL_CANCELLED = 3 };

/* What a loaded model consists of. The model owns all of it. */
struct rn_model_parts {
    struct rn_gguf *gguf; /* NULL for a model without a file */
    struct rn_vocab *vocab;
    struct rn_chat_templates templates;
    struct rn_plan *plan;       /* NULL for a backend that needs none, or vocab_only */
    struct rn_device *device;   /* the engine's, of the backend; NULL: of a model without a file, or vocab_only */
    struct rn_device *host;     /* with `front`: the engine's CPU */
    struct rn_plan *front;      /* the plan in two parts, the first of which the host computes ... */
    struct rn_plan *back;       /* ... and the second one the device (model_split.h); NULL both: it is whole */
    uint32_t device_layers;     /* on a device with memory of its own */
    uint64_t expert_bytes;      /* rn_backend_limits.expert_bytes */
    struct rn_device_caps caps; /* of the backend */
    struct rn_backend *backend; /* NULL: vocab_only */
    struct rn_backend_limits limits;
    uint32_t n_vocab;                                                      /* width of the logits */
    struct rn_proposer *(*new_proposer)(void *user, struct rn_heap *heap); /* instead of the one that a request asks
                                                                              for: tests put liars in. NULL: none */
    void *proposer_user;
    const struct rn_cold_io *cold_io; /* the cold tier's disk; NULL: the machine's */
    uint32_t cache_places;            /* blocks that a lower tier can have, at most; 0: by its size. For tests */
    uint64_t news_us;          /* between two looks for what others put into lower tiers; 0: RN_NEWS_US. For tests */
    uint32_t n_features;       /* of a row, to make embeddings of; 0: there are none */
    uint32_t n_scores;         /* of a row, behind them: a head's; 0: there are none. They are the last ones of ... */
    uint32_t row_features;     /* ... what a step writes for a row; a drafter's are the first ones */
    struct rn_drafter drafter; /* kind NONE: none */
    struct rn_model_adapters adapters;
    struct rn_step_cost cost; /* of the model's steps, as far as the load has measured them */
};

struct runnel_model {
    struct rn_routed routed; /* first; the router's */
    struct runnel_engine *engine;

    /* The load: written by runnel_model_load, then by the loader's thread alone until `state` is set. */
    char *path;
    char *device;
    char *draft_path;  /* NULL: none */
    char *weights_dir; /* likewise */
    runnel_adapter *adapters;
    char *cache_dir, *cache_shared, *cache_shared_ca, *cache_shared_cert, *cache_shared_key;
    runnel_model_options options;
    runnel_error error; /* of a failed load */
    struct rn_model_parts parts;
    struct rn_work load_work, free_work; /* a load that was ended before it began may be queued still, with the free */

    /* Shared words. */
    struct rn_word state;      /* enum rn_model_state; publishes everything above */
    struct rn_word cancel;     /* 1: the host wants the load to end; the loader alone asks */
    struct rn_word begun;      /* 1: the load has begun, or was ended before: who sets it publishes its end */
    struct rn_word released;   /* 1: the host has given its handle back: see rn_model_is_going */
    struct rn_word fraction;   /* bits of a float */
    struct rn_word references; /* the engine; the load events until the terminal one is delivered; waits */
    struct rn_wake wake;       /* for runnel_model_wait */

    /* Load events on their way to the host; see host.c. */
    struct rn_message load_node;
    struct rn_edge load_edge;
    bool load_reported; /* the terminal load event was delivered; the dispatcher's */

    struct rn_context context;             /* set before the model is READY, if it can generate */
    struct rn_session_fingerprints prints; /* the worker's */

    struct rn_tokenizer tokenizer;
    struct rn_grammar_actor grammar;
    struct rn_tier tier;
    struct rn_mover mover;
    struct rn_prefill prefill;
    struct rn_decode decode;
    struct rn_verifier verifier;
    struct rn_draft_actor draft;
    struct rn_sampler_actor sampler;
    struct rn_detokenizer detokenizer;
    struct rn_step_times times;
};

/* Like runnel_engine_new. clock NULL: the machine's. manual: no thread is started; actors run by
 * rn_runtime_step, jobs of the worker inside the call that posts them. */
runnel_status rn_engine_new(const runnel_engine_options *options, const struct rn_clock *clock, bool manual,
                            runnel_engine **out, runnel_error *error);

/* OK; STATE, and the error says why: this process was forked from the engine's, whose threads are not here. Any thread,
 * for what would wait for them. */
runnel_status rn_engine_check_process(const struct runnel_engine *engine, runnel_error *error);

/* Enters the engine's gate, for what blocks or delivers. OK: the caller leaves it again; CLOSED: the engine is being
 * freed; STATE: as above. */
runnel_status rn_engine_enter(struct runnel_engine *engine, runnel_error *error);

/* Keeps an engine that another thread begins to free from going before rn_engine_let_go, which gets the result. False:
 * that has begun already, and waits for the callback that the caller is in. Does not block; nor does who holds it. */
bool rn_engine_hold(struct runnel_engine *engine);
void rn_engine_let_go(struct runnel_engine *engine, bool held);

/* The last part of runnel_engine_free: delivers what is left, joins the threads and frees all. Every stream, load and
 * training has ended. On the thread of an attached loop, or without one. */
void rn_engine_free_rest(struct runnel_engine *engine);

/* Devices by name: "cpu", or "kind:part"; NULL is the first kind that the build knows. check: UNSUPPORTED says why it
 * is not there, as far as that is known at once: of a device with a driver the load finds out. "auto" always is there,
 * and is the best one that a model can be loaded on. */
runnel_status rn_engine_check_device(struct runnel_engine *engine, const char *device, runnel_error *error);
bool rn_engine_device_is_auto(const char *device);

/* The engine's own, opened if nobody has asked for it yet, or anew if it was lost and no model is on it any more. On
 * the worker's thread. NULL, and the error says why: it is not there, or memory or threads are refused. Not for "auto".
 * */
struct rn_device *rn_engine_device(struct runnel_engine *engine, const char *device, runnel_error *error);

/* One more like this one, or like the engine's first, with threads of its own if it computes on the host's; the caller
 * closes it. NULL likewise, and allowed in close. */
struct rn_device *rn_engine_open_device(struct runnel_engine *engine, const struct rn_device *like, uint32_t n_threads);
void rn_engine_close_device(struct rn_device *device);

/* draft/eagle_train.c: cancels them, waits for their threads and frees all that is the engine's; the handles stay the
 * host's. */
void rn_trainings_end(struct runnel_engine *engine);

/* Products of float matrices on the calling thread. */
const struct rn_gemm *rn_engine_gemm(void);

/* Makes a READY model of parts (which it takes over, also on failure) without loading a file. options may be NULL.
 * Returns OK; INVALID, UNSUPPORTED, BUSY, CLOSED or NO_MEMORY, as runnel_model_load. For tests and the simulation. */
runnel_status rn_model_new_of_parts(struct runnel_engine *engine, const struct rn_model_parts *parts,
                                    const runnel_model_options *options, struct runnel_model **out,
                                    runnel_error *error);

/* It is being freed, with the engine or by itself: nothing new begins. */
static inline bool rn_model_is_going(const struct runnel_model *model)
{
    return rn_word_get(&model->released) != 0 || rn_word_get(&model->engine->closing) != 0;
}

/* OK while the host may use what the model consists of: STATE before it is loaded, CLOSED once the engine is
 * being freed (callbacks still run then). */
static inline runnel_status rn_model_ready(const struct runnel_model *model)
{
    if (rn_word_get(&model->engine->closing) != 0)
        return RUNNEL_CLOSED;
    return rn_word_get(&model->state) == RN_MODEL_READY ? RUNNEL_OK : RUNNEL_STATE;
}

/* What is left of a wait of timeout_ms (negative: for ever), in the terms of rn_wake_wait; waited_us is less. */
static inline int64_t rn_us_left(int64_t timeout_ms, uint64_t waited_us)
{
    return timeout_ms < 0 || timeout_ms > INT64_MAX / 1000 ? -1 : timeout_ms * 1000 - (int64_t)waited_us;
}

/* As above, and what the model consists of stays until rn_model_leave, which is due behind OK. Does not block; nor does
 * who is inside. Any thread. */
runnel_status rn_model_enter(struct runnel_model *model);
void rn_model_leave(struct runnel_model *model);

/* Drops one reference; the last one frees the struct. load_reported: the host knows how the load ended; drops that
 * reference. drop: frees the struct of a model that nobody knows yet. Any thread. */
void rn_model_unref(struct runnel_model *model);
void rn_model_load_reported(struct runnel_model *model);
void rn_model_drop(struct runnel_model *model);

/* model.c: starts and stops the actors of a model whose parts are there. */
/* Warns of what the plan of the file `path` assumes, if it does. */
void rn_model_log_assumed(const struct runnel_model *model, const char *path, const struct rn_plan *plan);
runnel_status rn_model_start(struct runnel_model *model, runnel_error *error);

#endif
