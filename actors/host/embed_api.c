/* What is pooled instead of generated, of the public interface: embeddings and scores. Every parameter is checked here,
 * on the host's thread, as generate.c does. */
#include "actors/embed.h"
#include "actors/engine.h"
#include "actors/host/pool.h"
#include "actors/prompt/pair.h"
#include "base/check.h"
#include "base/sized.h"
#include "base/status.h"
#include "base/utf8.h"
#include "model/kv_size.h"
#include "model/build/scores.h"
#include "runnel_scores.h"

/* What is asked about, by the names that both requests have for it. The prompt that is made of it has others. */
static runnel_status check_text(const char *text, size_t text_bytes, const int32_t *tokens, size_t n_tokens,
                                runnel_error *error)
{
    if (text == NULL && text_bytes > 0)
        return rn_error_set(error, RUNNEL_INVALID, "text is NULL but text_bytes is %zu", text_bytes);
    if (text != NULL && tokens != NULL)
        return rn_error_set(error, RUNNEL_INVALID, "of text and tokens more than one is given");
    if (text_bytes == 0 && n_tokens == 0)
        return rn_error_set_about(error, RUNNEL_ABOUT_PROMPT, RUNNEL_INVALID, "the text is empty%s",
                                  tokens != NULL ? ", and so are the tokens" : "");
    if (text != NULL && !rn_utf8_valid(text, text_bytes))
        return rn_error_set(error, RUNNEL_INVALID, "the text is not UTF-8");
    return RUNNEL_OK;
}

/* ---- Embeddings ---- */

void runnel_embed_request_init(runnel_embed_request *request, size_t struct_size)
{
    const runnel_embed_request own = {0};

    rn_sized_write(request, struct_size, &own, sizeof own);
}

void(runnel_embed_request_default)(runnel_embed_request *request)
{
    runnel_embed_request_init(request, RN_FIRST_SIZE(runnel_embed_request, reserved));
}

static runnel_status read_embed_request(const runnel_embed_request *given, runnel_embed_request *request,
                                        runnel_error *error)
{
    runnel_embed_request_default(request);
    if (!rn_sized_read(request, sizeof *request, given))
        return rn_error_set(error, RUNNEL_INVALID,
                            "request: struct_size is not of this library; use runnel_embed_request_default");
    if (!rn_all_zero(request->reserved, sizeof request->reserved))
        return rn_error_set(error, RUNNEL_INVALID, "request: reserved is not zero");
    if ((unsigned)request->pooling > RUNNEL_POOLING_LAST)
        return rn_error_set(error, RUNNEL_INVALID, "pooling = %d is not known", (int)request->pooling);
    return check_text(request->text, request->text_bytes, request->tokens, request->n_tokens, error);
}

/* Of a model that takes requests. */
static runnel_status new_embed(const runnel_model *model, const runnel_embed_request *request, struct rn_embed **embed,
                               runnel_error *error)
{
    const struct rn_model_parts *parts = &model->parts;
    uint32_t width = parts->n_features, from_file = parts->plan != NULL ? parts->plan->pooling : 0;
    runnel_pooling pooling = request->pooling;

    if (width == 0)
        return rn_error_set(error, RUNNEL_UNSUPPORTED, "the model gives no embeddings");
    if (request->dimensions > width)
        return rn_error_set(error, RUNNEL_INVALID, "dimensions = %u is more than the model's %u", request->dimensions,
                            width);
    if (pooling == RUNNEL_POOLING_DEFAULT && from_file > RUNNEL_POOLING_LAST)
        return rn_error_set(error, RUNNEL_UNSUPPORTED,
                            "the file's pooling_type %u is not known here%s: choose a pooling", from_file,
                            parts->n_scores > 0 ? " for embeddings, though for scores" : "");
    if (pooling == RUNNEL_POOLING_DEFAULT)
        pooling = from_file == 0 ? RUNNEL_POOLING_MEAN : (runnel_pooling)from_file;
    RN_ASSERT(pooling > RUNNEL_POOLING_DEFAULT && pooling <= RUNNEL_POOLING_LAST);
    *embed = rn_embed_new(&model->engine->heap, pooling, request->raw ? RN_EMBED_AS_IS : RN_EMBED_UNIT,
                          parts->row_features - parts->n_scores - width, width,
                          request->dimensions > 0 ? request->dimensions : width);
    return *embed != NULL ? RUNNEL_OK : rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for an embedding");
}

/* The prompt of which nothing is generated. */
static runnel_request request_of_embed(const runnel_embed_request *embed)
{
    runnel_request request;

    runnel_request_default(&request);
    request.prompt = embed->text;
    request.prompt_bytes = embed->text_bytes;
    request.tokens = embed->tokens;
    request.n_tokens = embed->n_tokens;
    request.parse_special = embed->parse_special;
    request.want_progress = embed->want_progress;
    request.max_tokens = 0;
    request.on_event = embed->on_event;
    request.user = embed->user;
    request.label = embed->label;
    request.cache_salt = embed->cache_salt;
    request.priority = embed->priority;
    request.deadline_ms = embed->deadline_ms;
    request.tenant = embed->tenant;
    request.adapter = embed->adapter;
    return request;
}

static runnel_status submit_embed(runnel_model *model, const runnel_embed_request *embed, runnel_stream *stream,
                                  runnel_error *error)
{
    struct rn_embed *pool = NULL;
    runnel_request request;
    runnel_status status = rn_host_check_model(model, error);

    if (status == RUNNEL_OK)
        status = new_embed(model, embed, &pool, error);
    if (status != RUNNEL_OK)
        return status;
    request = request_of_embed(embed);
    return rn_host_pool(model, &request, NULL, pool, stream, error);
}

runnel_status runnel_embed(runnel_model *model, const runnel_embed_request *given, runnel_stream *stream,
                           runnel_error *error)
{
    runnel_embed_request embed;
    runnel_status status;

    rn_error_clear(error);
    if (model == NULL || stream == NULL)
        return rn_error_set(error, RUNNEL_INVALID, "embed: model or the stream's place is NULL");
    status = read_embed_request(given, &embed, error);
    if (status == RUNNEL_OK)
        status = rn_host_enter(model, error);
    if (status != RUNNEL_OK)
        return status;
    status = submit_embed(model, &embed, stream, error);
    rn_host_leave(model);
    return status;
}

/* ---- Scores ---- */

void runnel_score_request_init(runnel_score_request *request, size_t struct_size)
{
    const runnel_score_request own = {0};

    rn_sized_write(request, struct_size, &own, sizeof own);
}

void(runnel_score_request_default)(runnel_score_request *request)
{
    runnel_score_request_init(request, RN_FIRST_SIZE(runnel_score_request, reserved));
}

static runnel_status read_score_request(const runnel_score_request *given, runnel_score_request *request,
                                        runnel_error *error)
{
    runnel_score_request_default(request);
    if (!rn_sized_read(request, sizeof *request, given))
        return rn_error_set(error, RUNNEL_INVALID,
                            "request: struct_size is not of this library; use runnel_score_request_default");
    if (!rn_all_zero(request->reserved, sizeof request->reserved))
        return rn_error_set(error, RUNNEL_INVALID, "request: reserved is not zero");
    if ((unsigned)request->form > RUNNEL_SCORES_PROBABILITIES)
        return rn_error_set(error, RUNNEL_INVALID, "form = %d is not known", (int)request->form);
    if (request->query == NULL && request->query_bytes > 0)
        return rn_error_set(error, RUNNEL_INVALID, "query is NULL but query_bytes is %zu", request->query_bytes);
    if (request->query != NULL && (request->tokens != NULL || request->n_tokens > 0))
        return rn_error_set(error, RUNNEL_INVALID, "a query goes with a text, and not with tokens");
    if (request->query != NULL && request->parse_special)
        return rn_error_set(error, RUNNEL_INVALID, "parse_special does not go with a query");
    return check_text(request->text, request->text_bytes, request->tokens, request->n_tokens, error);
}

static runnel_request request_of_score(const runnel_score_request *score)
{
    runnel_embed_request embed;

    runnel_embed_request_default(&embed);
    embed.text = score->text;
    embed.text_bytes = score->text_bytes;
    embed.tokens = score->tokens;
    embed.n_tokens = score->n_tokens;
    embed.parse_special = score->parse_special;
    embed.want_progress = score->want_progress;
    embed.on_event = score->on_event;
    embed.user = score->user;
    embed.label = score->label;
    embed.cache_salt = score->cache_salt;
    embed.priority = score->priority;
    embed.deadline_ms = score->deadline_ms;
    embed.tenant = score->tenant;
    embed.adapter = score->adapter;
    return request_of_embed(&embed);
}

static struct rn_view template_of(const runnel_model *model)
{
    struct rn_view view = {NULL, 0};

    if (model->parts.gguf != NULL)
        rn_gguf_get_string(model->parts.gguf, RN_PAIR_TEMPLATE, false, &view, NULL);
    return view;
}

/* Texts that do not fit even if each token were the longest are not taken. */
static runnel_status new_pair(runnel_model *model, const runnel_score_request *request, struct rn_pair **pair,
                              runnel_error *error)
{
    uint64_t most = rn_kv_size_longest(&model->parts.limits) * rn_vocab_longest_piece(model->parts.vocab);

    if (request->query == NULL)
        return RUNNEL_OK;
    return rn_pair_new(&model->engine->heap, template_of(model), (struct rn_view){request->query, request->query_bytes},
                       (struct rn_view){request->text, request->text_bytes}, most, pair, error);
}

/* Of a model that takes requests. */
static runnel_status new_scores(const runnel_model *model, const runnel_score_request *request, struct rn_embed **embed,
                                runnel_error *error)
{
    const struct rn_model_parts *parts = &model->parts;
    bool chances = request->form == RUNNEL_SCORES_PROBABILITIES ||
                   (request->form == RUNNEL_SCORES_OF_MODEL && parts->plan != NULL && parts->plan->scores_of_tokens);

    if (parts->n_scores == 0)
        return rn_error_set(error, RUNNEL_UNSUPPORTED,
                            "the model has no head that ranks or classifies (tensors cls and cls.output)");
    *embed = rn_embed_new(&model->engine->heap, (runnel_pooling)parts->plan->scores_from,
                          chances ? RN_EMBED_CHANCES : RN_EMBED_AS_IS, parts->row_features - parts->n_scores,
                          parts->n_scores, parts->n_scores);
    return *embed != NULL ? RUNNEL_OK : rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for scores");
}

static runnel_status submit_score(runnel_model *model, const runnel_score_request *score, runnel_stream *stream,
                                  runnel_error *error)
{
    struct rn_embed *pool = NULL;
    struct rn_pair *pair = NULL;
    runnel_request request;
    runnel_status status = rn_host_check_model(model, error);

    if (status == RUNNEL_OK)
        status = new_pair(model, score, &pair, error);
    if (status == RUNNEL_OK)
        status = new_scores(model, score, &pool, error);
    if (status != RUNNEL_OK) {
        rn_pair_free(pair);
        return status;
    }
    request = request_of_score(score);
    return rn_host_pool(model, &request, pair, pool, stream, error);
}

runnel_status runnel_score(runnel_model *model, const runnel_score_request *given, runnel_stream *stream,
                           runnel_error *error)
{
    runnel_score_request score;
    runnel_status status;

    rn_error_clear(error);
    if (model == NULL || stream == NULL)
        return rn_error_set(error, RUNNEL_INVALID, "score: model or the stream's place is NULL");
    status = read_score_request(given, &score, error);
    if (status == RUNNEL_OK)
        status = rn_host_enter(model, error);
    if (status != RUNNEL_OK)
        return status;
    status = submit_score(model, &score, stream, error);
    rn_host_leave(model);
    return status;
}

/* ---- What a head gives ---- */

/* Of a model that stays meanwhile: rn_model_enter. */
static runnel_status labels_of(const runnel_model *model, const struct rn_gguf_entry **labels)
{
    const struct rn_plan *plan = model->parts.plan;

    *labels = NULL;
    if (model->parts.backend == NULL) /* vocab_only: nothing is known of a head */
        return RUNNEL_STATE;
    if (plan == NULL || plan->n_scores == 0)
        return RUNNEL_UNSUPPORTED;
    return rn_scores_labels(plan->gguf, plan->architecture, labels, NULL);
}

static runnel_status tell_scores(const runnel_model *model, runnel_scores_info *now)
{
    const struct rn_gguf_entry *labels = NULL;
    runnel_status status = labels_of(model, &labels);

    if (status != RUNNEL_OK)
        return status;
    now->n_scores = model->parts.plan->n_scores;
    now->n_labels = labels != NULL ? (uint32_t)labels->count : 0;
    now->of_tokens = model->parts.plan->scores_of_tokens;
    now->has_template = template_of(model).n > 0;
    RN_ASSERT(now->n_labels == 0 || now->n_labels == now->n_scores);
    return RUNNEL_OK;
}

runnel_status runnel_model_scores(runnel_model *model, runnel_scores_info *info)
{
    runnel_scores_info now = {0};
    runnel_status status;

    if (model == NULL || info == NULL || !rn_sized_known(info->struct_size, sizeof now))
        return RUNNEL_INVALID;
    status = rn_model_enter(model);
    if (status != RUNNEL_OK)
        return status;
    status = tell_scores(model, &now);
    rn_model_leave(model);
    if (status == RUNNEL_OK)
        rn_sized_write(info, info->struct_size, &now, sizeof now);
    return status;
}

static runnel_status find_label(const runnel_model *model, uint32_t index, const char **text, size_t *text_bytes)
{
    const struct rn_gguf_entry *labels = NULL;
    struct rn_view label = {NULL, 0};
    const char *cursor;
    runnel_status status = labels_of(model, &labels);

    if (status == RUNNEL_STATE)
        return status;
    if (status != RUNNEL_OK || labels == NULL || index >= labels->count)
        return RUNNEL_NOT_FOUND;
    cursor = labels->data;
    for (uint32_t i = 0; i <= index; i++)
        label = rn_gguf_item_string(&cursor);
    *text = label.bytes;
    *text_bytes = label.n;
    return RUNNEL_OK;
}

runnel_status runnel_model_label(runnel_model *model, uint32_t index, const char **text, size_t *text_bytes)
{
    runnel_status status;

    if (model == NULL || text == NULL || text_bytes == NULL)
        return RUNNEL_INVALID;
    status = rn_model_enter(model);
    if (status != RUNNEL_OK)
        return status;
    status = find_label(model, index, text, text_bytes);
    rn_model_leave(model);
    return status;
}
