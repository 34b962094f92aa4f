/* Submitting a request: every parameter is checked here, on the host's thread, so that a bad one is an
 * error of the call and never a callback. */
#include <string.h>

#include "actors/prompt/chat.h"
#include "actors/embed.h"
#include "actors/engine.h"
#include "actors/grammar/guide.h"
#include "actors/grammar/text.h"
#include "actors/host/host.h"
#include "actors/host/pool.h"
#include "actors/host/session.h"
#include "actors/prompt/pair.h"
#include "actors/telemetry/telemetry.h"
#include "base/check.h"
#include "base/floats.h"
#include "base/sized.h"
#include "base/status.h"
#include "model/device.h"
#include "model/kv_size.h"
#include "runnel_fields.h"
#include "sampling/ngram.h"

#define RETRY_MS 100 /* as long as nothing is known */
#define MOST_RETRY_MS 60000u

/* The tables have every member: a struct has no padding, so the sizes of its members add up to its own. */
#define SIZE(type, name) +sizeof(type)
#define SAME(type, name) &&_Generic(((runnel_request *)0)->name, type : 1, default : 0)
#define SAME_SAMPLING(type, name) &&_Generic(((runnel_sampling *)0)->name, type : 1, default : 0)
#define SAME_SAMPLERS(type, name) &&_Generic(((runnel_samplers *)0)->name, type : 1, default : 0)
#define SAME_CHAT(type, name) &&_Generic(((runnel_chat *)0)->name, type : 1, default : 0)
static_assert(RUNNEL_SAMPLING_FIELDS(SIZE) + sizeof((runnel_sampling *)0)->reserved == sizeof(runnel_sampling) &&
                  1 RUNNEL_SAMPLING_FIELDS(SAME_SAMPLING),
              "RUNNEL_SAMPLING_FIELDS lacks a member");
static_assert(sizeof(size_t) RUNNEL_SAMPLERS_FIELDS(SIZE) + sizeof((runnel_samplers *)0)->reserved ==
                      sizeof(runnel_samplers) &&
                  1 RUNNEL_SAMPLERS_FIELDS(SAME_SAMPLERS),
              "RUNNEL_SAMPLERS_FIELDS lacks a member");
static_assert(sizeof(size_t) + sizeof(runnel_sampling) RUNNEL_REQUEST_FIELDS(SIZE) +
                          sizeof((runnel_request *)0)->reserved ==
                      sizeof(runnel_request) &&
                  1 RUNNEL_REQUEST_FIELDS(SAME),
              "RUNNEL_REQUEST_FIELDS lacks a member");
static_assert(sizeof(size_t) RUNNEL_CHAT_FIELDS(SIZE) + sizeof((runnel_chat *)0)->reserved == sizeof(runnel_chat) &&
                  1 RUNNEL_CHAT_FIELDS(SAME_CHAT),
              "RUNNEL_CHAT_FIELDS lacks a member");

void runnel_request_init(runnel_request *request, size_t struct_size)
{
    const runnel_request own = {
        .max_tokens = -1,
        .sampling = {.top_p = 1.0f, .repetition_penalty = 1.0f},
        .cache_wait = RUNNEL_CACHE_WAIT,
        .context_keep = -1,
    };

    rn_sized_write(request, struct_size, &own, sizeof own);
}

void(runnel_request_default)(runnel_request *request)
{
    runnel_request_init(request, RN_FIRST_SIZE(runnel_request, reserved));
}

static runnel_status read_request(const runnel_request *given, runnel_request *request, runnel_error *error)
{
    runnel_request_default(request);
    if (!rn_sized_read(request, sizeof *request, given))
        return rn_error_set(error, RUNNEL_INVALID,
                            "request: struct_size is not of this library; use runnel_request_default");
    if (!rn_all_zero(request->reserved, sizeof request->reserved) ||
        !rn_all_zero(request->sampling.reserved, sizeof request->sampling.reserved))
        return rn_error_set(error, RUNNEL_INVALID, "request: reserved is not zero");
    return RUNNEL_OK;
}

static runnel_status check_stops(const runnel_request *request, uint32_t n_vocab, runnel_error *error)
{
    if (request->stops == NULL && request->n_stops > 0)
        return rn_error_set(error, RUNNEL_INVALID, "stops is NULL but n_stops is %zu", request->n_stops);
    if (request->n_stops > RUNNEL_MAX_STOPS)
        return rn_error_set(error, RUNNEL_INVALID, "stops: at most %d", RUNNEL_MAX_STOPS);
    for (size_t i = 0; i < request->n_stops; i++) {
        size_t n = request->stops[i] == NULL ? 0 : strnlen(request->stops[i], RUNNEL_MAX_STOP_BYTES + 1);

        if (n == 0 || n > RUNNEL_MAX_STOP_BYTES)
            return rn_error_set(error, RUNNEL_INVALID, "stops[%zu]: not 1..%d bytes", i, RUNNEL_MAX_STOP_BYTES);
        if (!rn_utf8_valid(request->stops[i], n))
            return rn_error_set(error, RUNNEL_INVALID, "stops[%zu]: not UTF-8", i);
    }
    if (request->stop_tokens == NULL && request->n_stop_tokens > 0)
        return rn_error_set(error, RUNNEL_INVALID, "stop_tokens is NULL but n_stop_tokens is %zu",
                            request->n_stop_tokens);
    if (request->n_stop_tokens > n_vocab)
        return rn_error_set(error, RUNNEL_INVALID, "stop_tokens: more than the vocabulary has");
    for (size_t i = 0; i < request->n_stop_tokens; i++)
        if (request->stop_tokens[i] < 0 || (uint32_t)request->stop_tokens[i] >= n_vocab)
            return rn_error_set(error, RUNNEL_INVALID, "stop_tokens[%zu] = %d is not in the vocabulary of %u", i,
                                request->stop_tokens[i], n_vocab);
    return RUNNEL_OK;
}

static runnel_status check_prompt(const runnel_model *model, const runnel_request *request, runnel_error *error)
{
    uint32_t n_vocab = model->parts.n_vocab;

    if ((request->prompt != NULL) + (request->tokens != NULL) + (request->chat != NULL) > 1)
        return rn_error_set(error, RUNNEL_INVALID, "of prompt, tokens and chat more than one is given");
    if (request->prompt == NULL && request->prompt_bytes > 0)
        return rn_error_set(error, RUNNEL_INVALID, "prompt is NULL but prompt_bytes is %zu", request->prompt_bytes);
    if (request->chat == NULL && request->prompt_bytes == 0 && request->n_tokens == 0)
        return rn_error_set_about(error, RUNNEL_ABOUT_PROMPT, RUNNEL_INVALID,
                                  "the prompt is empty: give a text, tokens or a chat");
    if (request->tokens == NULL && request->n_tokens > 0)
        return rn_error_set(error, RUNNEL_INVALID, "tokens is NULL but n_tokens is %zu", request->n_tokens);
    for (size_t i = 0; i < request->n_tokens; i++)
        if (request->tokens[i] < 0 || (uint32_t)request->tokens[i] >= n_vocab)
            return rn_error_set(error, RUNNEL_INVALID, "tokens[%zu] = %d is not in the vocabulary of %u", i,
                                request->tokens[i], n_vocab);
    if (request->prompt != NULL && !rn_utf8_valid(request->prompt, request->prompt_bytes))
        return rn_error_set(error, RUNNEL_INVALID, "the prompt is not UTF-8");
    return RUNNEL_OK;
}

/* Half the context is left to go on with. */
static runnel_status check_keep(const runnel_model *model, const runnel_request *request, runnel_error *error)
{
    uint64_t most = rn_kv_size_longest(&model->parts.limits) / 2;

    if (request->context_keep < -1 || (request->context_keep >= 0 && (uint64_t)request->context_keep > most))
        return rn_error_set(error, RUNNEL_INVALID, "context_keep = %lld is not -1 or 0..%llu, half the context",
                            (long long)request->context_keep, (unsigned long long)most);
    if (request->context_keep >= 0 && request->session.id != 0)
        return rn_error_set(error, RUNNEL_INVALID,
                            "context_keep does not go with a session, whose text it would cut: submit the whole "
                            "conversation without one (what is known of it is cached), or leave out its oldest turns");
    return RUNNEL_OK;
}

runnel_status rn_host_enter(runnel_model *model, runnel_error *error)
{
    struct runnel_engine *engine = model->engine;

    if (rn_engine_check_process(engine, error) != RUNNEL_OK)
        return RUNNEL_STATE;
    if (!rn_gate_enter(&engine->calls))
        return rn_error_set(error, RUNNEL_CLOSED, "the engine is being freed");
    if (rn_gate_enter(&engine->intake))
        return RUNNEL_OK;
    rn_gate_leave(&engine->calls);
    return rn_error_set(error, RUNNEL_CLOSED, "the engine is being drained");
}

void rn_host_leave(runnel_model *model)
{
    struct runnel_engine *engine = model->engine;

    rn_gate_leave(&engine->intake);
    rn_gate_leave(&engine->calls);
}

runnel_status rn_host_check_model(runnel_model *model, runnel_error *error)
{
    if (rn_model_is_going(model))
        return rn_error_set(error, RUNNEL_CLOSED, "the engine or model is being freed");
    if (rn_word_get(&model->state) != RN_MODEL_READY || model->parts.backend == NULL)
        return rn_error_set(error, RUNNEL_STATE, "the model is not loaded for generation");
    return RUNNEL_OK;
}

/* A model that sees both ways gives logits, an embedding or scores of a whole text; an encoder no logits. */
static runnel_status check_whole(const runnel_model *model, const runnel_request *request, bool pooled,
                                 runnel_error *error)
{
    bool logits = request->want_logits && request->max_tokens == 0 && request->chat == NULL && request->session.id == 0;

    if (!pooled && model->parts.plan != NULL && model->parts.plan->logits_slot < 0)
        return rn_error_set(error, RUNNEL_UNSUPPORTED, "a model of architecture %s gives embeddings, and no logits",
                            model->parts.plan->architecture);
    if (!rn_context_sees_both_ways(&model->context))
        return RUNNEL_OK;
    if (!pooled && !logits)
        return rn_error_set(error, RUNNEL_UNSUPPORTED,
                            "a model of architecture %s attends in both directions: it fills in whole texts and does "
                            "not generate one token after the other",
                            model->parts.plan->architecture);
    if (model->parts.limits.mean_window > 0)
        return rn_error_set(
            error, RUNNEL_UNSUPPORTED,
            "a model of architecture %s attends in both directions: chunk_mean is for those that do not",
            model->parts.plan->architecture);
    return RUNNEL_OK;
}

/* What rn_sampling_check leaves: the texts are texts. */
static runnel_status check_breakers(const runnel_samplers *given, runnel_error *error)
{
    runnel_samplers samplers = {.n_dry_breakers = 0};

    if (given == NULL || !rn_sized_read(&samplers, sizeof samplers, given))
        return RUNNEL_OK;
    for (size_t i = 0; i < samplers.n_dry_breakers; i++)
        if (!rn_utf8_valid(samplers.dry_breakers[i], strlen(samplers.dry_breakers[i])))
            return rn_error_set(error, RUNNEL_INVALID, "sampling.samplers.dry_breakers[%zu]: not UTF-8", i);
    return RUNNEL_OK;
}

static runnel_status check_sampling(const runnel_model *model, const runnel_sampling *sampling, runnel_error *error)
{
    const struct rn_model_parts *parts = &model->parts;
    uint32_t n_vocab = parts->n_vocab > 0 ? parts->n_vocab : rn_vocab_count(parts->vocab); /* it has no weights */
    runnel_status status = rn_sampling_check(sampling, n_vocab, error);

    return status == RUNNEL_OK ? check_breakers(sampling->samplers, error) : status;
}

runnel_status runnel_sampling_check(runnel_model *model, const runnel_request *given, runnel_error *error)
{
    runnel_request request;
    runnel_status status;

    rn_error_clear(error);
    if (model == NULL || given == NULL)
        return rn_error_set(error, RUNNEL_INVALID, "no model, or no request");
    status = read_request(given, &request, error);
    if (status != RUNNEL_OK)
        return status;
    status = rn_model_enter(model);
    if (status != RUNNEL_OK)
        return rn_error_set(error, status, "the model is not loaded");
    status = check_sampling(model, &request.sampling, error);
    rn_model_leave(model);
    return status;
}

static runnel_status check_request(runnel_model *model, const runnel_request *request, const struct rn_pair *pair,
                                   bool pooled, runnel_error *error)
{
    runnel_status status = rn_host_check_model(model, error);

    if (status == RUNNEL_OK)
        status = check_whole(model, request, pooled, error);
    if (status != RUNNEL_OK)
        return status;
    if (request->max_tokens < -1)
        return rn_error_set(error, RUNNEL_INVALID, "max_tokens = %lld is not -1 or more",
                            (long long)request->max_tokens);
    if (request->n_top > RUNNEL_MAX_TOP_LOGPROBS || request->n_top > model->parts.n_vocab)
        return rn_error_set(error, RUNNEL_INVALID, "n_top = %u is more than %d", request->n_top,
                            RUNNEL_MAX_TOP_LOGPROBS);
    if ((request->draft & ~(uint32_t)(RUNNEL_DRAFT_NGRAM | RUNNEL_DRAFT_MODEL)) != 0)
        return rn_error_set(error, RUNNEL_INVALID, "draft %u is not known", request->draft);
    if ((request->draft & RUNNEL_DRAFT_MODEL) != 0 && model->parts.drafter.kind == RN_DRAFTER_NONE)
        return rn_error_set(error, RUNNEL_INVALID, "draft: no drafter was loaded with the model (draft_path)");
    if (request->draft_max > RUNNEL_MAX_DRAFTS)
        return rn_error_set(error, RUNNEL_INVALID, "draft_max = %u is more than %d", request->draft_max,
                            RUNNEL_MAX_DRAFTS);
    if (request->draft_share != 0 && (request->draft & RUNNEL_DRAFT_NGRAM) == 0)
        return rn_error_set(error, RUNNEL_INVALID, "draft_share needs RUNNEL_DRAFT_NGRAM");
    if (request->n_top > 0 && !request->want_logprobs)
        return rn_error_set(error, RUNNEL_INVALID, "n_top needs want_logprobs");
    if (request->coalesce_bytes > RUNNEL_MAX_COALESCE_BYTES)
        return rn_error_set(error, RUNNEL_INVALID, "coalesce_bytes = %u is more than %u", request->coalesce_bytes,
                            RUNNEL_MAX_COALESCE_BYTES);
    if (request->coalesce_bytes > 0 && request->want_logprobs)
        return rn_error_set(error, RUNNEL_INVALID, "coalesce_bytes joins tokens, and want_logprobs wants each of them");
    if ((status = check_sampling(model, &request->sampling, error)) != RUNNEL_OK)
        return status;
    if (!rn_label_valid(request->label))
        return rn_error_set(error, RUNNEL_INVALID, RN_LABEL_RULE);
    if (request->ignore_eos > 2)
        return rn_error_set(error, RUNNEL_INVALID, "ignore_eos %d is not 0, 1 or 2", request->ignore_eos);
    if (request->pin_prefix > 2)
        return rn_error_set(error, RUNNEL_INVALID, "pin_prefix %d is not 0, 1 or 2", request->pin_prefix);
    if ((unsigned)request->cache_wait > RUNNEL_CACHE_DEADLINE)
        return rn_error_set(error, RUNNEL_INVALID, "cache_wait %d is not known", (int)request->cache_wait);
    if ((status = check_stops(request, model->parts.n_vocab, error)) != RUNNEL_OK ||
        (status = check_keep(model, request, error)) != RUNNEL_OK)
        return status;
    return pair != NULL ? RUNNEL_OK : check_prompt(model, request, error);
}

/* ---- The length of the prompt ---- */

#define MEASURED_BYTES ((size_t)64 << 10)

static uint32_t tokenize_flags(const runnel_request *request)
{
    return RUNNEL_TOKENIZE_BOS | (request->parse_special ? RUNNEL_TOKENIZE_SPECIAL : 0);
}

/* Tokenizes here what might be too long, so that "too long" is an error of the submit. Left to the tokenizer actor is
 * what is short enough by its bytes, and what would hold up the host's loop for more than a millisecond or two. */
static runnel_status measure(runnel_model *model, const runnel_request *request, struct rn_request *r, uint64_t history,
                             runnel_error *error)
{
    uint64_t room = rn_context_prompt_room(&model->context, request->max_tokens);
    size_t count = request->n_tokens;
    runnel_status status;

    if (request->chat != NULL || request->prompt_bytes > MEASURED_BYTES)
        return RUNNEL_OK;
    if (request->tokens == NULL) {
        if (rn_tokenize_bound(model->parts.vocab, request->prompt_bytes) + history <= room)
            return RUNNEL_OK;
        status = rn_tokenize(model->parts.vocab, r->heap, request->prompt, request->prompt_bytes,
                             tokenize_flags(request), &r->tokens, &count, error);
        if (status != RUNNEL_OK)
            return status;
        r->n_tokens = r->capacity = (uint32_t)(count < UINT32_MAX ? count : UINT32_MAX);
        r->first_bos = rn_vocab_add_bos(model->parts.vocab);
    }
    if (count + history - (history > 0 && r->first_bos ? 1 : 0) > room)
        return rn_error_set(error, RUNNEL_CONTEXT, "the prompt has %zu tokens%s, %llu fit", count,
                            history > 0 ? " besides its session's" : "",
                            (unsigned long long)(room > history ? room - history : 0));
    return RUNNEL_OK;
}

/* ---- Building the request ---- */

static runnel_status copy_prompt(runnel_model *model, const runnel_request *request, struct rn_request *r,
                                 runnel_error *error)
{
    if (r->tokens != NULL)
        return RUNNEL_OK;
    if (request->chat != NULL) {
        r->whole = true;
        return rn_chat_new(r->heap, &model->parts.templates, request->chat, &r->chat, error);
    }
    if (request->tokens != NULL) {
        r->tokens = rn_alloc(r->heap, request->n_tokens, sizeof *r->tokens);
        if (r->tokens == NULL)
            return RUNNEL_NO_MEMORY;
        memcpy(r->tokens, request->tokens, request->n_tokens * sizeof *r->tokens);
        r->n_tokens = r->capacity = (uint32_t)request->n_tokens;
        return RUNNEL_OK;
    }
    r->text = rn_strndup(r->heap, request->prompt, request->prompt_bytes);
    r->text_bytes = request->prompt_bytes;
    r->tokenize_flags = tokenize_flags(request);
    return r->text != NULL ? RUNNEL_OK : RUNNEL_NO_MEMORY;
}

/* Its memory is taken here, where a refusal is an error of the submit. */
static runnel_status make_proposer(const runnel_model *model, const runnel_request *request, struct rn_request *r)
{
    uint32_t most = model->parts.limits.context_tokens;

    if (!rn_sampler_can_draft(r->sampler))
        return RUNNEL_OK;
    if (request->draft == RUNNEL_DRAFT_NONE) {
        r->draft_max = r->grammar != NULL ? RN_FORCED_DEFAULT : 0;
        return RUNNEL_OK;
    }
    r->draft_max = request->draft_max > 0 ? request->draft_max : RN_DRAFT_DEFAULT;
    r->draft_model = (request->draft & RUNNEL_DRAFT_MODEL) != 0;
    r->draft_share = request->draft_share != 0;
    r->draft_chain = request->draft_chain != 0;
    RN_ASSERT(r->draft_max > 0 && r->draft_max <= RN_DRAFT_MOST);
    if ((request->draft & RUNNEL_DRAFT_NGRAM) == 0)
        return RUNNEL_OK;
    r->proposer = model->parts.new_proposer != NULL ? model->parts.new_proposer(model->parts.proposer_user, r->heap)
                                                    : rn_ngram_new(r->heap, most);
    return r->proposer != NULL ? RUNNEL_OK : RUNNEL_NO_MEMORY;
}

/* Tells the sampler what ends an answer, and may not come yet: the model's tokens, and behind them the request's. */
static bool keep_from_ending(const runnel_model *model, const runnel_request *request, struct rn_request *r)
{
    const runnel_samplers *samplers = rn_sampler_params(r->sampler)->samplers;
    uint32_t n_vocab = model->parts.n_vocab, n = 0, n_never;
    bool never = request->ignore_eos == 2, good;
    int32_t *ends;

    if (!never && samplers->min_tokens == 0)
        return true;
    ends = rn_alloc(r->heap, n_vocab + request->n_stop_tokens, sizeof *ends);
    if (ends == NULL)
        return false;
    for (uint32_t i = 0; (never || request->ignore_eos == 0) && i < n_vocab; i++)
        if (rn_vocab_is_end(model->parts.vocab, (int32_t)i))
            ends[n++] = (int32_t)i;
    n_never = never ? n : 0;
    for (size_t i = 0; i < request->n_stop_tokens; i++)
        ends[n++] = request->stop_tokens[i];
    good = rn_sampler_keep_from_ending(r->sampler, ends, n_never, n, samplers->min_tokens);
    rn_free(r->heap, ends);
    return good;
}

static bool make_sampler(const runnel_model *model, const runnel_request *request, struct rn_request *r)
{
    r->sampler = rn_sampler_new(r->heap, &request->sampling, model->parts.n_vocab, model->parts.limits.context_tokens);
    if (r->sampler == NULL)
        return false;
    rn_sampler_use_vocab(r->sampler, model->parts.vocab);
    return keep_from_ending(model, request, r);
}

static runnel_status copy_parameters(runnel_model *model, const runnel_request *request, struct rn_request *r)
{
    r->context = &model->context;
    rn_request_set_label(r, request->label);
    r->ignore_eos = request->ignore_eos != 0;
    r->want_logprobs = request->want_logprobs != 0;
    r->want_progress = request->want_progress != 0;
    r->want_logits = request->want_logits != 0;
    r->n_top = request->n_top;
    r->max_tokens = request->max_tokens;
    r->context_keep = request->context_keep;
    r->session = (uint32_t)request->session.id;
    r->session_generation = (uint32_t)(request->session.id >> 32);
    r->cache_salt = request->cache_salt;
    r->tenant = request->tenant;
    r->priority = request->priority;
    r->deadline_ms = request->deadline_ms;
    r->pin_prefix = request->pin_prefix;
    r->cache_wait = (uint8_t)request->cache_wait;
    r->cache_wait_ms = request->cache_wait_ms;
    r->n_stop_tokens = (uint32_t)request->n_stop_tokens;
    if (request->n_stop_tokens > 0) {
        r->stop_tokens = rn_alloc(r->heap, request->n_stop_tokens, sizeof *r->stop_tokens);
        if (r->stop_tokens == NULL)
            return RUNNEL_NO_MEMORY;
        memcpy(r->stop_tokens, request->stop_tokens, request->n_stop_tokens * sizeof *r->stop_tokens);
    }
    return make_sampler(model, request, r) ? make_proposer(model, request, r) : RUNNEL_NO_MEMORY;
}

static runnel_status choose_adapter(const runnel_model *model, const runnel_request *request, struct rn_request *r,
                                    runnel_error *error)
{
    const struct rn_model_adapters *adapters = &model->parts.adapters;

    if (request->adapter == NULL)
        return RUNNEL_OK;
    r->adapter = rn_adapters_find(adapters->all, request->adapter);
    if (r->adapter == 0)
        return rn_error_set(error, RUNNEL_NOT_FOUND, "adapter: the model has none of that name");
    r->adapter_print = adapters->prints[r->adapter - 1];
    return RUNNEL_OK;
}

/* pair: instead of the request's prompt, or NULL; taken on success. */
static runnel_status build(runnel_model *model, const runnel_request *request, struct rn_pair *pair,
                           struct rn_request **out, runnel_error *error)
{
    struct rn_request *r = rn_request_new(&model->engine->heap);
    uint64_t history = 0;
    runnel_status status;
    fenv_t host;

    if (r == NULL)
        return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for a request");
    if (request->session.id != 0) {
        struct rn_session *session = rn_session_find(model, request->session);

        if (session == NULL) {
            rn_request_free(r);
            return rn_error_set(error, RUNNEL_NOT_FOUND, "the session does not exist");
        }
        history = rn_word_get(&session->n_known);
    }
    status = choose_adapter(model, request, r, error);
    if (status != RUNNEL_OK) {
        rn_request_free(r);
        return status;
    }
    host = rn_floats_default(); /* the scores of tokens, and what a sampler begins with */
    status = pair != NULL ? RUNNEL_OK : measure(model, request, r, history, error);
    if (status == RUNNEL_OK && pair == NULL)
        status = copy_prompt(model, request, r, error);
    if (status == RUNNEL_OK)
        status = rn_grammar_text_new(r->heap, request, r->chat, &r->grammar, error);
    if (status == RUNNEL_OK)
        status = copy_parameters(model, request, r);
    fesetenv(&host);
    if (status != RUNNEL_OK) {
        rn_request_free(r);
        return rn_error_set(error, status, "no memory for a request");
    }
    r->pair = pair;
    RN_ASSERT((r->tokens != NULL) + (r->text != NULL) + (r->chat != NULL) + (pair != NULL) == 1 &&
              r->n_tokens == r->capacity);
    *out = r;
    return RUNNEL_OK;
}

/* ---- Limits ---- */

/* A submit that is refused may succeed when a stream has ended. */
runnel_status rn_host_refuse(const struct runnel_engine *engine, runnel_error *error, const char *sentence,
                             unsigned long long limit)
{
    uint32_t us = rn_word_get(&engine->totals.retry_us);

    rn_error_set(error, RUNNEL_BUSY, sentence, limit);
    if (error != NULL)
        error->retry_ms = us == 0 ? RETRY_MS : us / 1000 + 1 < MOST_RETRY_MS ? us / 1000 + 1 : MOST_RETRY_MS;
    return RUNNEL_BUSY;
}

/* A prompt counts by its tokens, or where they are not known yet by its bytes: there are never more. */
static uint64_t queued_tokens(const struct rn_request *r)
{
    return r->chat != NULL   ? r->chat->context_bytes
           : r->pair != NULL ? r->pair->bytes
           : r->text != NULL ? r->text_bytes
                             : r->n_tokens;
}

/* That of its last token, which it has while it runs: what it cannot do without. */
static size_t grammar_row_bytes(const struct rn_request *r)
{
    const struct rn_context *context = r->context;

    if (r->grammar == NULL)
        return 0;
    return rn_guide_row_bytes(context->n_vocab, rn_vocab_count(context->vocab),
                              rn_device_can(context->backend->caps, RN_CAN_DRAW));
}

static uint64_t request_bytes(const runnel_request *request, const struct rn_request *r)
{
    uint64_t stops = 0;

    for (size_t i = 0; i < request->n_stops; i++)
        stops += strlen(request->stops[i]) + 1;
    return sizeof *r + stops + request->sampling.n_biases * sizeof request->sampling.biases[0] + grammar_row_bytes(r) +
           r->text_bytes + (r->chat != NULL ? r->chat->context_bytes : 0) + (r->pair != NULL ? r->pair->bytes : 0) +
           (r->grammar != NULL ? rn_grammar_text_bytes(r->grammar) : 0) + (uint64_t)r->n_tokens * sizeof r->tokens[0] +
           (uint64_t)r->n_stop_tokens * sizeof r->stop_tokens[0];
}

static runnel_status enter_queue(struct runnel_engine *engine, const runnel_request *request, struct rn_request *r,
                                 runnel_error *error)
{
    uint64_t tokens = queued_tokens(r), bytes = request_bytes(request, r);

    RN_ASSERT(r->n_queued == 0 && r->n_bytes == 0 && bytes >= sizeof *r);
    if (!rn_counter_reserve(&engine->totals.queued_tokens, (int64_t)tokens, engine->max_queued_tokens))
        return rn_host_refuse(engine, error, "prompts of %llu tokens may wait, and do", engine->max_queued_tokens);
    if (!rn_counter_reserve(&engine->totals.queued_bytes, (int64_t)bytes, engine->max_queued_bytes)) {
        rn_counter_add(&engine->totals.queued_tokens, -(int64_t)tokens);
        return rn_host_refuse(engine, error, "requests may have %llu bytes, and have", engine->max_queued_bytes);
    }
    r->n_queued = tokens;
    r->n_bytes = bytes;
    return RUNNEL_OK;
}

/* Behind a prompt that is only BOS the first piece begins a text, as it does for detokenizing. A grammar has read the
 * space of that piece: the text keeps it, or would not be one of the grammar's. */
static bool begins_text(const runnel_model *model, const runnel_request *request, const struct rn_request *r)
{
    return r->grammar == NULL && request->n_tokens == 1 && request->tokens[0] == rn_vocab_bos(model->parts.vocab) &&
           request->session.id == 0 && rn_vocab_strips_first_space(model->parts.vocab);
}

/* What takes the answer to a chat apart; NULL and OK: nothing does. */
static runnel_status new_answer(struct rn_request *r, const runnel_request *request, struct rn_answer **answer)
{
    *answer = NULL;
    if (r->chat == NULL || request->raw_answer)
        return RUNNEL_OK;
    *answer = rn_answer_new(r->heap, r->chat->format, &r->chat->tools);
    return *answer != NULL ? RUNNEL_OK : RUNNEL_NO_MEMORY;
}

static runnel_status open_outlet(runnel_model *model, const runnel_request *request, struct rn_request *r)
{
    struct rn_host *host = &model->engine->host;
    struct rn_outlet_options options = {
        .on_event = request->on_event,
        .user = request->user,
        .stops = request->stops,
        .n_stops = request->n_stops,
        .n_top = request->n_top,
        .longest_piece = rn_vocab_longest_piece(model->parts.vocab),
        .n_logits = request->want_logits ? model->parts.n_vocab : 0,
        .coalesce_bytes = request->coalesce_bytes,
        .n_embedding = r->embed != NULL ? r->embed->n_out : 0,
        .strip_first_space = begins_text(model, request, r),
        .keep_stop = request->keep_stop != 0,
        .taken = host->delivery == RUNNEL_DELIVER_TAKE,
        .label = request->label,
        .model_name = model->context.metrics->name,
        .phase = RUNNEL_PHASE_QUEUED,
    };
    void *cell = rn_pool_take(&host->slots);
    struct rn_outlet *outlet;

    if (cell == NULL)
        return RUNNEL_BUSY;
    if (new_answer(r, request, &options.answer) != RUNNEL_OK) {
        rn_pool_give(&host->slots, cell);
        return RUNNEL_NO_MEMORY;
    }
    r->slot = rn_pool_index(&host->slots, cell);
    RN_CHECK(r->slot < model->engine->max_streams);
    outlet = &host->outlets[r->slot];
    if (rn_outlet_open(outlet, &model->engine->heap, &options, &r->generation) != RUNNEL_OK) {
        rn_answer_free(options.answer);
        rn_pool_give(&host->slots, cell);
        return RUNNEL_NO_MEMORY;
    }
    r->answer = options.answer;
    return RUNNEL_OK;
}

/* Takes the request on, and sends it off. */
static runnel_status submit(runnel_model *model, const runnel_request *request, struct rn_request *r,
                            runnel_stream *stream, runnel_error *error)
{
    struct runnel_engine *engine = model->engine;
    struct rn_msg *msg;
    runnel_status status = enter_queue(engine, request, r, error);

    if (status == RUNNEL_OK && (status = open_outlet(model, request, r)) != RUNNEL_OK) {
        rn_request_uncount(r);
        if (status == RUNNEL_BUSY)
            rn_host_refuse(engine, error, "all %llu streams are taken", engine->max_streams);
        else
            rn_error_set(error, status, "no memory for a stream (of %u)", engine->max_streams);
    }
    if (status != RUNNEL_OK) {
        rn_request_free(r);
        rn_telemetry_refused(&model->context, status);
        return status;
    }
    RN_ASSERT(rn_request_check(r) && r->outcome == RN_OUTCOME_NONE && r->n_done == 0 && r->n_blocks == 0);
    r->submitted_us = rn_now_us(&engine->clock);
    rn_telemetry_submitted(r);
    rn_counter_add(&engine->totals.streams, 1);
    *stream = rn_stream_id(r->slot, r->generation);
    msg = rn_msg_new(&engine->runtime, RN_MSG_SUBMIT);
    msg->request.request = r;
    rn_actor_send(&engine->router.actor, msg);
    rn_uv_keep_alive(engine);
    return RUNNEL_OK;
}

static runnel_status generate(runnel_model *model, const runnel_request *request, runnel_stream *stream,
                              runnel_error *error)
{
    struct rn_request *r = NULL;
    runnel_status status = check_request(model, request, NULL, false, error);

    if (status == RUNNEL_OK)
        status = build(model, request, NULL, &r, error);
    return status == RUNNEL_OK ? submit(model, request, r, stream, error) : status;
}

runnel_status runnel_generate(runnel_model *model, const runnel_request *given, runnel_stream *stream,
                              runnel_error *error)
{
    runnel_request request;
    runnel_status status;

    rn_error_clear(error);
    if (model == NULL || stream == NULL)
        return rn_error_set(error, RUNNEL_INVALID, "generate: model or the stream's place is NULL");
    status = read_request(given, &request, error);
    if (status == RUNNEL_OK)
        status = rn_host_enter(model, error);
    if (status != RUNNEL_OK)
        return status;
    status = generate(model, &request, stream, error);
    rn_host_leave(model);
    return status;
}

runnel_status rn_host_pool(runnel_model *model, const runnel_request *request, struct rn_pair *pair,
                           struct rn_embed *embed, runnel_stream *stream, runnel_error *error)
{
    struct rn_request *r = NULL;
    runnel_status status = check_request(model, request, pair, true, error);

    if (status == RUNNEL_OK)
        status = build(model, request, pair, &r, error);
    if (status != RUNNEL_OK) {
        rn_pair_free(pair);
        rn_embed_free(embed);
        return status;
    }
    RN_ASSERT(r->pair == pair && r->embed == NULL && request->max_tokens == 0);
    r->embed = embed;
    return submit(model, request, r, stream, error);
}
