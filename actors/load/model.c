/* A model: loading it on the worker's thread, starting its actors, freeing it. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "actors/draft/drafter_load.h"
#include "actors/engine.h"
#include "actors/host/host.h"
#include "actors/lists.h"
#include "actors/load/model_adapters.h"
#include "actors/load/model_limits.h"
#include "actors/load/model_split.h"
#include "actors/load/weights_place.h"
#include "base/check.h"
#include "base/path.h"
#include "base/sized.h"
#include "base/status.h"
#include "model/kv.h"

#define DEFAULT_CONTEXT 8192
#define MIN_BATCH 8
#define MAX_BATCH 8192
#define MAX_MEAN_WINDOW (1u << 28) /* as many positions as a plan can have */
#define MIN_COLD_BYTES (4 << 20)   /* four of the smallest segments */

static_assert(MAX_MEAN_WINDOW % RN_CHUNK == 0, "a window is rounded up to chunks, not beyond its bound");
static_assert(MIN_BATCH >= RN_WINDOW_LOGITS, "a step has a row for each row that is wanted");

void runnel_model_options_init(runnel_model_options *options, size_t struct_size)
{
    const runnel_model_options own = {0};

    rn_sized_write(options, struct_size, &own, sizeof own);
}

void(runnel_model_options_default)(runnel_model_options *options)
{
    runnel_model_options_init(options, RN_FIRST_SIZE(runnel_model_options, cache_shared_key));
}

/* The library's own name of it; NULL: there is none. */
static const char *known_codec(const char *name)
{
    for (int method = 0; method < RN_CODEC_METHODS; method++)
        if (strcmp(name, rn_codec_name((enum rn_codec_method)method)) == 0)
            return rn_codec_name((enum rn_codec_method)method);
    return NULL;
}

static runnel_status read_options(struct runnel_engine *engine, const runnel_model_options *given,
                                  runnel_model_options *options, runnel_error *error)
{
    runnel_status status;

    runnel_model_options_default(options);
    if (given == NULL)
        return RUNNEL_OK;
    if (!rn_sized_read(options, sizeof *options, given))
        return rn_error_set(error, RUNNEL_INVALID, "model options: struct_size %zu is not of this library",
                            given->struct_size);
    if (!rn_all_zero(options->reserved, sizeof options->reserved) || options->reserved_rest != 0)
        return rn_error_set(error, RUNNEL_INVALID, "model options: reserved is not zero");
    if (!rn_kv_known(options->kv_type))
        return rn_error_set(error, RUNNEL_INVALID, "model options: kv_type %d is not known", (int)options->kv_type);
    if (options->chunk_mean > MAX_MEAN_WINDOW)
        return rn_error_set(error, RUNNEL_INVALID, "model options: chunk_mean %u is more than %u", options->chunk_mean,
                            MAX_MEAN_WINDOW);
    if (options->draft_path != NULL && options->chunk_mean > 0)
        return rn_error_set(error, RUNNEL_INVALID, "model options: draft_path and chunk_mean exclude each other");
    if (options->bound_windows > 1)
        return rn_error_set(error, RUNNEL_INVALID, "model options: bound_windows %u is not 0 or 1",
                            options->bound_windows);
    if (options->bound_windows != 0 && (options->draft_path != NULL || options->chunk_mean > 0))
        return rn_error_set(error, RUNNEL_INVALID, "model options: bound_windows excludes draft_path and chunk_mean");
    if ((unsigned)options->weight_order > RUNNEL_WEIGHTS_TILES)
        return rn_error_set(error, RUNNEL_INVALID, "model options: there is no weight order %d",
                            (int)options->weight_order);
    options->chunk_mean = (options->chunk_mean + RN_CHUNK - 1) / RN_CHUNK * RN_CHUNK;
    if (!(options->max_slowdown == 0 || options->max_slowdown > 1))
        return rn_error_set(error, RUNNEL_INVALID, "model options: max_slowdown %g is not above 1",
                            (double)options->max_slowdown);
    if (options->batch_tokens != 0 && (options->batch_tokens < MIN_BATCH || options->batch_tokens > MAX_BATCH))
        return rn_error_set(error, RUNNEL_INVALID, "model options: batch_tokens %u is not in %d..%d",
                            options->batch_tokens, MIN_BATCH, MAX_BATCH);
    if (options->cache_dir != NULL && options->cache_dir[0] == '\0')
        return rn_error_set(error, RUNNEL_INVALID, "model options: cache_dir is empty");
    if (options->weights_dir != NULL && options->weights_dir[0] == '\0')
        return rn_error_set(error, RUNNEL_INVALID, "model options: weights_dir is empty");
    if (options->cache_cold_bytes != 0 && options->cache_cold_bytes < MIN_COLD_BYTES)
        return rn_error_set(error, RUNNEL_INVALID, "model options: cache_cold_bytes %llu are less than %d",
                            (unsigned long long)options->cache_cold_bytes, MIN_COLD_BYTES);
    if (options->cache_codec != NULL && (options->cache_codec = known_codec(options->cache_codec)) == NULL)
        return rn_error_set(error, RUNNEL_INVALID, "model options: cache_codec is not none, bits, lz4 or zstd");
    if (options->cache_shared == NULL &&
        (options->cache_shared_ca != NULL || options->cache_shared_cert != NULL || options->cache_shared_key != NULL))
        return rn_error_set(error, RUNNEL_INVALID, "model options: certificates without cache_shared");
    status = rn_model_adapters_check(options, error);
    return status == RUNNEL_OK ? rn_engine_check_device(engine, options->device, error) : status;
}

/* ---- Parts ---- */

/* Embeddings and heads need what a device may not give. */
static runnel_status check_features(struct runnel_model *model, runnel_error *error)
{
    struct rn_model_parts *parts = &model->parts;

    if (parts->drafter.kind == RN_DRAFTER_FEATURES &&
        !rn_device_can(parts->device->caps, RN_CAN_FEATURES | RN_CAN_INPUTS))
        return rn_error_set(error, RUNNEL_UNSUPPORTED, "%s: the device gives no features of %s, or takes none",
                            model->draft_path, model->path);
    if (!rn_device_can(parts->device->caps, RN_CAN_FEATURES))
        parts->n_features = parts->n_scores = parts->row_features = 0;
    RN_ASSERT(parts->n_features + parts->n_scores <= parts->row_features &&
              parts->drafter.n_features <= parts->row_features);
    return RUNNEL_OK;
}

/* Of the whole load: opening and vocabulary are the first twentieth, preparing weights the rest. */
#define OPENED 0.05f

static bool on_progress(void *user, float fraction)
{
    struct runnel_model *model = user;
    float whole = OPENED + (1.0f - OPENED) * fraction;
    uint32_t bits;

    RN_ASSERT(fraction >= 0 && fraction <= 1 && rn_word_get(&model->state) == RN_MODEL_LOADING);
    memcpy(&bits, &whole, sizeof bits);
    rn_word_set(&model->fraction, bits);
    if (model->options.on_load != NULL)
        rn_host_raise(&model->engine->host, &model->load_edge, &model->load_node);
    return rn_word_get(&model->cancel) == 0;
}

void rn_model_log_assumed(const struct runnel_model *model, const char *path, const struct rn_plan *plan)
{
    if (plan->assumed[0] != '\0')
        rn_log(&model->engine->log, RUNNEL_LOG_WARNING, "%s: %s", path, plan->assumed);
}

/* An adapter's file has neither the keys nor the vocabulary of a model: which one is missing would tell little. */
static runnel_status refuse_adapter(const struct rn_gguf *gguf, runnel_error *error)
{
    struct rn_view type = {"", 0};

    if (rn_gguf_get_string(gguf, "general.type", false, &type, NULL) != RUNNEL_OK || type.n != 7 ||
        memcmp(type.bytes, "adapter", 7) != 0)
        return RUNNEL_OK;
    return rn_error_set(error, RUNNEL_FORMAT,
                        "%s: key general.type is 'adapter': it is not a model, but an adapter, with which a model is "
                        "loaded (adapters of its options, --lora of the program)",
                        rn_gguf_path(gguf));
}

/* What is wrong with a vocabulary that works all the same. */
static void warn_of_vocab(const struct runnel_model *model)
{
    const struct rn_stray_id *stray;

    if (!rn_vocab_merges_fit(model->parts.vocab))
        rn_log(&model->engine->log, RUNNEL_LOG_WARNING,
               "%s: no merge of the vocabulary joins two of its tokens: words fall apart into bytes", model->path);
    for (uint32_t i = 0; (stray = rn_vocab_stray(model->parts.vocab, i)) != NULL; i++)
        rn_log(&model->engine->log, RUNNEL_LOG_WARNING, "%s: key %s: %llu is not one of %u tokens: it is not used",
               model->path, stray->key, (unsigned long long)stray->id, rn_vocab_count(model->parts.vocab));
}

static runnel_status open_file(struct runnel_model *model, runnel_error *error)
{
    struct rn_model_parts *parts = &model->parts;
    struct rn_heap *heap = &model->engine->heap;
    runnel_status status = rn_gguf_open(heap, model->path, &parts->gguf, error);
    uint64_t n_vocab = 0;

    if (status == RUNNEL_OK)
        status = refuse_adapter(parts->gguf, error);
    if (status != RUNNEL_OK)
        return status;
    rn_gguf_set_rows(parts->gguf, &model->engine->architectures);
    if (!model->options.vocab_only) {
        status = model->draft_path != NULL
                     ? rn_drafter_plan_model(model, model->draft_path, error)
                     : rn_plan_new(heap, parts->gguf, model->options.context_tokens, &parts->plan, error);
        if (status != RUNNEL_OK)
            return status;
        rn_model_log_assumed(model, model->path, parts->plan);
        status = rn_drafter_check_model(model, error);
        if (status != RUNNEL_OK)
            return status;
        n_vocab = parts->plan->n_vocab;
        parts->n_features = parts->plan->features_width - parts->plan->normed_at - parts->plan->n_scores;
        parts->n_scores = parts->plan->n_scores;
        parts->row_features = parts->plan->features_width;
    }
    parts->n_vocab = (uint32_t)n_vocab;
    status = rn_vocab_new(heap, parts->gguf, (uint32_t)n_vocab, &parts->vocab, error);
    if (status == RUNNEL_OK)
        warn_of_vocab(model);
    if (status == RUNNEL_OK && rn_chat_templates_init(&parts->templates, heap, parts->gguf) != RUNNEL_OK)
        status = rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for the chat templates of %s", model->path);
    return status;
}

/* Where the backend counts; NULL: the model has no experts, or nothing is counted. */
static struct rn_expert_use *expert_use(struct runnel_model *model)
{
    const struct rn_plan *plan = model->parts.plan;
    struct rn_heap *heap = &model->engine->heap;
    struct rn_metrics *metrics;

    for (uint32_t i = 0; i < plan->n_ops; i++) {
        if (!plan->ops[i].counted)
            continue;
        metrics = rn_metrics_of(&model->engine->metrics, heap, model->path);
        return metrics != NULL ? rn_metrics_experts(metrics, heap, plan->n_layers, plan->ops[i].experts) : NULL;
    }
    return NULL;
}

static runnel_status prepare_backend(struct runnel_model *model, runnel_error *error)
{
    struct rn_model_parts *parts = &model->parts;
    struct rn_backend_limits limits = parts->limits;
    struct rn_heap *heap = &model->engine->heap;
    struct rn_weights_place place = {.path = NULL};
    runnel_status status = RUNNEL_OK;

    if (model->weights_dir != NULL) {
        status = rn_weights_place_init(&place, heap, model->weights_dir, parts->gguf, &model->engine->log, error);
        limits.weights_place = &place;
    }
    limits.expert_use = expert_use(model);
    limits.expert_bytes = parts->expert_bytes;
    if (status == RUNNEL_OK)
        status = parts->backend->ops->prepare(parts->backend, parts->plan, &limits, on_progress, model, error);
    rn_weights_place_fini(&place, heap);
    return status;
}

/* The whole load, on the device of this name. */
static runnel_status load_parts_on(struct runnel_model *model, const char *device, runnel_error *error)
{
    struct rn_model_parts *parts = &model->parts;
    runnel_status status = rn_word_get(&model->cancel) != 0 ? RUNNEL_CANCELLED : open_file(model, error);

    if (status != RUNNEL_OK || model->options.vocab_only)
        return status;
    RN_ASSERT(parts->plan != NULL && parts->n_vocab > 0 && parts->backend == NULL);
    if (!on_progress(model, 0.0f))
        return RUNNEL_CANCELLED;
    parts->device = rn_engine_device(model->engine, device, error);
    if (parts->device == NULL)
        return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory or threads for the device of %s", model->path);
    status = check_features(model, error);
    if (status == RUNNEL_OK)
        status = rn_model_split(model, error);
    if (status == RUNNEL_OK)
        status = rn_model_adapters_load(model, error);
    if (status == RUNNEL_OK)
        status = rn_model_choose_limits(model, error);
    if (status == RUNNEL_OK && model->draft_path != NULL)
        status = rn_drafter_load(model, model->draft_path, error);
    if (status != RUNNEL_OK)
        return status;
    parts->backend = rn_model_new_backend(model);
    if (parts->backend == NULL)
        return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for the backend of %s", model->path);
    status = prepare_backend(model, error);
    return status == RUNNEL_OK && rn_drafter_measures(model) ? rn_drafter_measure_model(model, error) : status;
}

static void free_parts(struct runnel_model *model)
{
    struct rn_model_parts *parts = &model->parts;

    if (parts->backend != NULL)
        parts->backend->ops->free(parts->backend);
    rn_plan_free(parts->front);
    rn_plan_free(parts->back);
    rn_plan_free(parts->plan);
    rn_model_adapters_fini(&parts->adapters);
    rn_drafter_fini(&parts->drafter); /* the model's plan may have weights of a head's file */
    rn_chat_templates_fini(&parts->templates);
    rn_vocab_free(parts->vocab);
    if (parts->gguf != NULL)
        rn_gguf_free(parts->gguf);
    *parts = (struct rn_model_parts){0};
}

/* ---- Actors ---- */

/* What the actors work with, once the parts are there. */
static void fill_context(struct runnel_model *model, struct rn_metrics *metrics)
{
    struct rn_model_parts *parts = &model->parts;
    struct rn_context *context = &model->context;

    context->metrics = metrics;
    context->options = &model->options;
    context->gguf = parts->gguf;
    context->vocab = parts->vocab;
    context->plan = parts->plan;
    context->backend = parts->backend;
    context->limits = &parts->limits;
    context->n_vocab = parts->n_vocab;
    context->row_features = parts->row_features;
    context->cost = &parts->cost;
    context->times = &model->times;
    context->drafter = &parts->drafter;
    context->adapters = &parts->adapters;
    context->prints = &model->prints;
    context->cold_io = parts->cold_io;
    context->cache_places = parts->cache_places;
    context->news_us = parts->news_us != 0 ? parts->news_us : RN_NEWS_US;
    context->tokenizer = &model->tokenizer.actor;
    context->grammar = &model->grammar.actor;
    context->tier = &model->tier.actor;
    context->mover = &model->mover.actor;
    context->prefill = &model->prefill.actor;
    context->decode = &model->decode.actor;
    context->verifier = &model->verifier.actor;
    context->draft = &model->draft.actor;
    context->sampler = &model->sampler.actor;
    context->detokenizer = &model->detokenizer.actor;
}

/* For the trace. */
static void name_actors(struct runnel_model *model)
{
    struct rn_actor *actors[RN_MODEL_ACTORS] = {&model->tokenizer.actor,   &model->tier.actor,  &model->prefill.actor,
                                                &model->decode.actor,      &model->draft.actor, &model->sampler.actor,
                                                &model->detokenizer.actor, &model->mover.actor, &model->verifier.actor,
                                                &model->grammar.actor};

    for (uint32_t i = 0; i < RN_MODEL_ACTORS; i++)
        RN_CHECK(actors[i]->runtime == model->context.runtime); /* every one was initialised */
    for (uint32_t i = 0; i < RN_MODEL_ACTORS; i++)
        actors[i]->model = model->context.metrics->name;
}

runnel_status rn_model_start(struct runnel_model *model, runnel_error *error)
{
    const struct rn_context *context = &model->context;
    struct rn_metrics *metrics;
    runnel_status status = RUNNEL_OK;

    RN_ASSERT(model->parts.backend != NULL && model->parts.limits.n_blocks > 0 && model->parts.n_vocab > 0);
    RN_ASSERT(model->parts.limits.max_seqs > 0 && model->parts.limits.max_outs > 0);
    metrics = rn_metrics_of(&model->engine->metrics, &model->engine->heap, model->path);
    if (metrics == NULL)
        goto fail;
    fill_context(model, metrics);
    rn_tokenizer_init(&model->tokenizer, context);
    rn_detokenizer_init(&model->detokenizer, context);
    if (rn_tier_init(&model->tier, context, rn_mover_places_for(context)) != RUNNEL_OK)
        goto fail;
    status = rn_mover_init(&model->mover, context, model->tier.directory.n, rn_directory_adopt, &model->tier.directory,
                           error);
    if (status != RUNNEL_OK)
        goto fail_tier;
    rn_directory_open(&model->tier.directory, rn_mover_tiers(&model->mover), rn_mover_writes(&model->mover));
    if (rn_prefill_init(&model->prefill, context) != RUNNEL_OK)
        goto fail_mover;
    if (rn_decode_init(&model->decode, context) != RUNNEL_OK)
        goto fail_prefill;
    if (rn_verifier_init(&model->verifier, context) != RUNNEL_OK)
        goto fail_decode;
    model->decode.news = rn_verifier_first_list(&model->verifier);
    if (rn_draft_actor_init(&model->draft, context) != RUNNEL_OK)
        goto fail_verifier;
    if (rn_sampler_actor_init(&model->sampler, context) != RUNNEL_OK)
        goto fail_draft;
    if (rn_grammar_actor_init(&model->grammar, context) != RUNNEL_OK)
        goto fail_sampler;
    name_actors(model);
    if (rn_mover_listens(&model->mover))
        rn_directory_listen(&model->tier.directory);
    return RUNNEL_OK;
fail_sampler:
    rn_sampler_actor_fini(&model->sampler);
fail_draft:
    rn_draft_actor_fini(&model->draft);
fail_verifier:
    rn_verifier_fini(&model->verifier);
fail_decode:
    rn_decode_fini(&model->decode);
fail_prefill:
    rn_prefill_fini(&model->prefill);
fail_mover:
    rn_mover_fini(&model->mover);
fail_tier:
    rn_tier_fini(&model->tier);
fail:
    if (status == RUNNEL_INVALID) /* a limit of the lower tiers, of which the error tells */
        return status;
    return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for the actors of %s",
                        model->path != NULL ? model->path : "the model");
}

static void stop_actors(struct runnel_model *model)
{
    rn_sampler_actor_fini(&model->sampler);
    rn_grammar_actor_fini(&model->grammar); /* behind what the sampler has of its trie */
    rn_draft_actor_fini(&model->draft);
    rn_verifier_fini(&model->verifier);
    rn_decode_fini(&model->decode);
    rn_prefill_fini(&model->prefill);
    rn_tier_fini(&model->tier);
    rn_mover_fini(&model->mover);
}

/* ---- Life ---- */

static void send_model(struct runnel_model *model, enum rn_message_kind kind)
{
    struct rn_msg *msg = rn_msg_new(&model->engine->runtime, kind);

    msg->model.model = model;
    rn_actor_send(&model->engine->router.actor, msg);
}

static void log_outcome(const struct runnel_model *model, runnel_status status)
{
    const struct rn_log *log = &model->engine->log;
    const char *path = model->path != NULL ? model->path : "a model without a file";

    if (status == RUNNEL_OK)
        rn_log(log, RUNNEL_LOG_INFO, "%s: loaded, %u KV blocks of %u positions", path, model->parts.limits.n_blocks,
               model->parts.limits.block_tokens);
    else if (status == RUNNEL_CANCELLED)
        rn_log(log, RUNNEL_LOG_INFO, "%s: load cancelled", path);
    else
        rn_log(log, RUNNEL_LOG_ERROR, "load failed: %s", model->error.message);
}

/* The end of a load, told to everyone: waiters, the host, the router. */
static void publish(struct runnel_model *model, runnel_status status)
{
    bool tells_host = model->options.on_load != NULL;

    RN_ASSERT(rn_word_get(&model->state) == RN_MODEL_LOADING); /* a load ends once */
    RN_ASSERT(status == RUNNEL_OK || model->parts.gguf == NULL);
    log_outcome(model, status);
    rn_word_set(&model->state, status == RUNNEL_OK          ? RN_MODEL_READY
                               : status == RUNNEL_CANCELLED ? RN_MODEL_CANCELLED
                                                            : RN_MODEL_FAILED);
    rn_wake_notify(&model->wake);
    if (tells_host)
        rn_host_raise(&model->engine->host, &model->load_edge,
                      &model->load_node); /* from here on the dispatcher's reference may be gone */
    else
        rn_model_load_reported(model);
    send_model(model, RN_MSG_MODEL_LOADED);
}

/* The device failed, not the host: another one may do. */
static bool is_of_device(runnel_status status)
{
    return status == RUNNEL_UNSUPPORTED || status == RUNNEL_NO_MEMORY || status == RUNNEL_DEVICE;
}

/* The parts, and the actors on them; what is left of a failure is the caller's to free. */
static runnel_status load_on(struct runnel_model *model, const char *device, runnel_error *error)
{
    runnel_status status = load_parts_on(model, device, error);

    return status == RUNNEL_OK && !model->options.vocab_only ? rn_model_start(model, error) : status;
}

static runnel_status load(struct runnel_model *model, runnel_error *error)
{
    bool is_auto = rn_engine_device_is_auto(model->device);
    runnel_error why = {0};
    runnel_status status = load_on(model, is_auto ? "cuda" : model->device, is_auto ? &why : error);

    if (!is_auto || status == RUNNEL_OK)
        return status;
    if (!is_of_device(status))
        return why.status == RUNNEL_OK ? status : rn_error_set(error, status, "%s", why.message);
    free_parts(model);
    rn_log(&model->engine->log, RUNNEL_LOG_WARNING, "%s: device \"auto\": the model is loaded on the CPU: %s",
           model->path, why.message);
    return load_on(model, NULL, error);
}

static void end_load(struct runnel_model *model, runnel_status status)
{
    if (status != RUNNEL_OK) {
        rn_error_set(&model->error, status, "%s: %s", model->path, runnel_status_text(status));
        free_parts(model);
    }
    publish(model, status);
}

static void run_load(struct rn_work *work)
{
    struct runnel_model *model = (struct runnel_model *)((char *)work - offsetof(struct runnel_model, load_work));

    if (rn_word_replace(&model->begun, 0, 1))
        end_load(model, load(model, &model->error));
}

static void run_free(struct rn_work *work)
{
    struct runnel_model *model = (struct runnel_model *)((char *)work - offsetof(struct runnel_model, free_work));

    RN_ASSERT(model->routed.closed && model->routed.n_streams == 0 && model->routed.n_held == 0);
    if (rn_word_get(&model->state) == RN_MODEL_READY) {
        if (model->parts.backend != NULL)
            stop_actors(model);
        free_parts(model);
    }
    send_model(model, RN_MSG_MODEL_FREED);
}

/* ---- For the router ---- */

static_assert(offsetof(struct runnel_model, routed) == 0, "the router knows a model by its part of it");

static void cancel_routed(struct rn_routed *routed)
{
    rn_word_set(&((struct runnel_model *)routed)->cancel, 1);
}

static bool routed_acts(const struct rn_routed *routed)
{
    const struct runnel_model *model = (const struct runnel_model *)routed;

    return rn_word_get(&model->state) == RN_MODEL_READY && model->parts.backend != NULL;
}

static void unref_routed(struct rn_routed *routed)
{
    rn_model_unref((struct runnel_model *)routed);
}

static void free_routed(struct rn_routed *routed)
{
    struct runnel_model *model = (struct runnel_model *)routed;

    RN_ASSERT(routed->n_gone == (routed_acts(routed) ? RN_MODEL_ACTORS : 0) && routed->load_ended);
    model->free_work.run = run_free; /* behind the load, if that is queued still */
    rn_worker_post(&model->engine->worker, &model->free_work);
}

static const struct rn_routed_ops routed_ops = {
    .cancel = cancel_routed, .acts = routed_acts, .post_free = free_routed, .unref = unref_routed};

/* ---- New models ---- */

/* A copy, NULL of NULL; false: no memory. */
static bool keep_text(struct runnel_engine *engine, const char *text, char **kept)
{
    *kept = text == NULL ? NULL : rn_strndup(&engine->heap, text, strlen(text));
    return text == NULL || *kept != NULL;
}

/* Likewise, of a path that is opened later, when the process may be in another directory. */
static bool keep_path(struct runnel_engine *engine, const char *path, char **kept)
{
    *kept = path == NULL ? NULL : rn_path_absolute(&engine->heap, path);
    return path == NULL || *kept != NULL;
}

/* What of the options the load and the mover open later. */
static bool keep_cache(struct runnel_model *model, const runnel_model_options *options)
{
    struct runnel_engine *engine = model->engine;

    if (!keep_path(engine, options->weights_dir, &model->weights_dir) ||
        !keep_path(engine, options->cache_dir, &model->cache_dir) ||
        !keep_text(engine, options->cache_shared, &model->cache_shared) ||
        !keep_path(engine, options->cache_shared_ca, &model->cache_shared_ca) ||
        !keep_path(engine, options->cache_shared_cert, &model->cache_shared_cert) ||
        !keep_path(engine, options->cache_shared_key, &model->cache_shared_key))
        return false;
    model->options.weights_dir = model->weights_dir;
    model->options.cache_dir = model->cache_dir;
    model->options.cache_shared = model->cache_shared;
    model->options.cache_shared_ca = model->cache_shared_ca;
    model->options.cache_shared_cert = model->cache_shared_cert;
    model->options.cache_shared_key = model->cache_shared_key;
    return true;
}

/* A model with nothing loaded, counted against the engine's models. */
static runnel_status new_model(struct runnel_engine *engine, const runnel_model_options *options,
                               struct runnel_model **out, runnel_error *error)
{
    struct runnel_model *model;

    if (rn_word_get(&engine->closing) != 0)
        return rn_error_set(error, RUNNEL_CLOSED, "the engine is being freed");
    if (!rn_counter_take(&engine->totals.models, RN_MAX_MODELS))
        return rn_error_set(error, RUNNEL_BUSY, "an engine has at most %d models", RN_MAX_MODELS);
    model = rn_alloc_aligned(&engine->heap, sizeof *model, 64);
    if (model == NULL) {
        rn_counter_add(&engine->totals.models, -1);
        return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for a model");
    }
    memset(model, 0, sizeof *model);
    model->engine = engine;
    model->context = engine->context;
    model->context.model = model;
    model->context.released = &model->released;
    model->routed = (struct rn_routed){.ops = &routed_ops, .context = &model->context};
    model->options = *options;
    model->load_node.kind = RN_HOST_LOAD;
    rn_wake_init(&model->wake);
    rn_word_set(&model->references, 2);
    model->adapters = rn_model_adapters_copy(&engine->heap, options);
    model->options.adapters = model->adapters;
    if (!keep_cache(model, options) || (options->n_adapters > 0 && model->adapters == NULL)) {
        rn_model_drop(model);
        return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for a model");
    }
    *out = model;
    return RUNNEL_OK;
}

static runnel_status begin_load(runnel_engine *engine, const char *path, const runnel_model_options *given,
                                runnel_model **out, runnel_error *error)
{
    runnel_model_options options;
    struct runnel_model *model = NULL;
    runnel_status status = read_options(engine, given, &options, error);
    bool kept;

    if (status != RUNNEL_OK)
        return status;
    if (faccessat(AT_FDCWD, path, R_OK, AT_EACCESS) != 0)
        return rn_error_set(error, RUNNEL_IO, "%s: cannot be opened: %s", path, strerror(errno));
    if (options.draft_path != NULL && !rn_drafter_is_inside(options.draft_path) &&
        faccessat(AT_FDCWD, options.draft_path, R_OK, AT_EACCESS) != 0)
        return rn_error_set(error, RUNNEL_IO, "%s: cannot be opened: %s", options.draft_path, strerror(errno));
    status = new_model(engine, &options, &model, error);
    if (status != RUNNEL_OK)
        return status;
    kept = keep_path(engine, path, &model->path) && keep_text(engine, options.device, &model->device);
    if (options.draft_path != NULL && !options.vocab_only)
        kept = kept &&
               (rn_drafter_is_inside(options.draft_path) ? keep_text(engine, options.draft_path, &model->draft_path)
                                                         : keep_path(engine, options.draft_path, &model->draft_path));
    model->options.device = model->options.draft_path = NULL; /* the caller's */
    if (!kept) {
        rn_model_drop(model);
        return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for a model");
    }
    rn_counter_add(&engine->totals.loads, 1);
    *out = model;
    send_model(model, RN_MSG_MODEL_NEW);
    rn_uv_keep_alive(engine);
    model->load_work.run = run_load;
    rn_worker_post(&engine->worker, &model->load_work);
    return RUNNEL_OK;
}

runnel_status runnel_model_load(runnel_engine *engine, const char *path, const runnel_model_options *options,
                                runnel_model **model, runnel_error *error)
{
    runnel_status status;

    rn_error_clear(error);
    if (engine == NULL || path == NULL || model == NULL)
        return rn_error_set(error, RUNNEL_INVALID, "load: engine, path or the handle's place is NULL");
    status = rn_engine_check_process(engine, error);
    if (status != RUNNEL_OK)
        return status;
    if (!rn_gate_enter(&engine->calls))
        return rn_error_set(error, RUNNEL_CLOSED, "the engine is being freed");
    status = begin_load(engine, path, options, model, error);
    rn_gate_leave(&engine->calls);
    return status;
}

runnel_status rn_model_new_of_parts(struct runnel_engine *engine, const struct rn_model_parts *parts,
                                    const runnel_model_options *given, struct runnel_model **out, runnel_error *error)
{
    runnel_model_options options;
    struct runnel_model *model = NULL;
    runnel_status status;

    rn_error_clear(error);
    status = read_options(engine, given, &options, error);
    if (status == RUNNEL_OK)
        status = new_model(engine, &options, &model, error);
    if (status != RUNNEL_OK) {
        struct runnel_model none = {.engine = engine, .parts = *parts};

        free_parts(&none);
        return status;
    }
    RN_ASSERT(parts->backend != NULL && parts->limits.block_tokens > 0);
    model->options.on_load = NULL;
    model->parts = *parts;
    rn_word_set(&model->begun, 1);
    status = rn_model_start(model, error);
    if (status != RUNNEL_OK) {
        free_parts(model);
        rn_model_drop(model);
        return status;
    }
    *out = model;
    send_model(model, RN_MSG_MODEL_NEW);
    rn_counter_add(&engine->totals.loads, 1);
    publish(model, RUNNEL_OK);
    return RUNNEL_OK;
}

static void cancel_load(struct runnel_model *model)
{
    rn_word_set(&model->cancel, 1);
    if (rn_word_replace(&model->begun, 0, 1)) /* it waits behind others, and ends here */
        end_load(model, RUNNEL_CANCELLED);
}

void runnel_model_cancel_load(runnel_model *model)
{
    struct runnel_engine *engine;
    bool held;

    if (model == NULL)
        return;
    engine = model->engine;
    held = rn_engine_hold(engine);
    cancel_load(model);
    rn_engine_let_go(engine, held);
}

void runnel_model_free(runnel_model *model)
{
    struct runnel_engine *engine;
    bool held;

    if (model == NULL)
        return;
    engine = model->engine;
    held = rn_engine_hold(engine);
    cancel_load(model);
    rn_word_set(&model->released, 1);
    rn_wake_notify(&model->wake);
    send_model(model, RN_MSG_MODEL_FREE);
    rn_engine_let_go(engine, held);
}

static runnel_status await_load(struct runnel_model *model, int64_t timeout_ms, runnel_error *error)
{
    const struct rn_clock clock = rn_clock_machine();
    uint64_t start_us = rn_now_us(&clock);

    for (;;) {
        uint32_t ticket = rn_wake_ticket(&model->wake);
        uint32_t state = rn_word_get(&model->state);
        uint64_t waited_us = rn_now_us(&clock) - start_us;

        if (rn_model_is_going(model))
            return rn_error_set(error, RUNNEL_CLOSED, "the model is being freed");
        if (state == RN_MODEL_READY)
            return RUNNEL_OK;
        if (state == RN_MODEL_CANCELLED)
            return rn_error_set(error, RUNNEL_CANCELLED, "the load was cancelled");
        if (state == RN_MODEL_FAILED)
            return rn_error_set(error, model->error.status, "%s", model->error.message);
        if (timeout_ms >= 0 && waited_us / 1000 >= (uint64_t)timeout_ms)
            return rn_error_set(error, RUNNEL_TIMEOUT, "the model is still loading");
        rn_wake_wait(&model->wake, ticket, rn_us_left(timeout_ms, waited_us), 0);
    }
}

/* With a reference, since another thread may give the handle back meanwhile. */
runnel_status runnel_model_wait(runnel_model *model, int64_t timeout_ms, runnel_error *error)
{
    struct runnel_engine *engine;
    runnel_status status;

    rn_error_clear(error);
    if (model == NULL)
        return rn_error_set(error, RUNNEL_INVALID, "model is NULL");
    engine = model->engine;
    status = rn_engine_enter(engine, error);
    if (status != RUNNEL_OK)
        return status;
    atomic_fetch_add(&model->references.value, 1); /* partner: rn_model_unref */
    status = await_load(model, timeout_ms, error);
    rn_model_unref(model);
    rn_gate_leave(&engine->gate);
    return status;
}
