/* Text functions of the public interface: pure functions of the vocabulary, on the caller's thread. */
#include <string.h>
#include <time.h>

#include "actors/engine.h"
#include "actors/grammar/compile.h"
#include "base/check.h"
#include "base/floats.h"
#include "base/sized.h"
#include "base/status.h"

runnel_status runnel_tokenize(runnel_model *model, const char *text, size_t text_bytes, uint32_t flags, int32_t *tokens,
                              size_t capacity, size_t *count)
{
    int32_t *all = NULL;
    runnel_status status;
    fenv_t host;

    if (model == NULL || count == NULL || (text == NULL && text_bytes > 0) || (tokens == NULL && capacity > 0))
        return RUNNEL_INVALID;
    *count = 0;
    status = rn_model_enter(model);
    if (status != RUNNEL_OK)
        return status;
    host = rn_floats_default(); /* as in a request */
    status = rn_tokenize(model->parts.vocab, &model->engine->heap, text_bytes > 0 ? text : "", text_bytes, flags, &all,
                         count, NULL);
    fesetenv(&host);
    RN_ASSERT(status == RUNNEL_OK || *count == 0);
    if (status == RUNNEL_OK && capacity > 0)
        memcpy(tokens, all, (*count < capacity ? *count : capacity) * sizeof *tokens);
    rn_free(&model->engine->heap, all);
    rn_model_leave(model);
    return status;
}

static void hand_out(const char *bytes, size_t n, char *text, size_t capacity, size_t *text_bytes)
{
    *text_bytes = n;
    if (capacity > 0 && n > 0)
        memcpy(text, bytes, n < capacity ? n : capacity);
}

/* The file's vocabulary may have fewer tokens than the model has rows, or more. */
static bool has_token(const runnel_model *model, int32_t token)
{
    return token >= 0 &&
           ((uint32_t)token < rn_vocab_count(model->parts.vocab) || (uint32_t)token < model->parts.n_vocab);
}

static bool has_tokens(const runnel_model *model, const int32_t *tokens, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!has_token(model, tokens[i]))
            return false;
    return true;
}

runnel_status runnel_detokenize(runnel_model *model, const int32_t *tokens, size_t count, int special, char *text,
                                size_t capacity, size_t *text_bytes)
{
    runnel_status status;

    if (model == NULL || text_bytes == NULL || (tokens == NULL && count > 0) || (text == NULL && capacity > 0))
        return RUNNEL_INVALID;
    *text_bytes = 0;
    status = rn_model_enter(model);
    if (status != RUNNEL_OK)
        return status;
    if (has_tokens(model, tokens, count))
        rn_detokenize(model->parts.vocab, tokens, count, special != 0, text, capacity, text_bytes);
    else
        status = RUNNEL_INVALID;
    rn_model_leave(model);
    return status;
}

runnel_status runnel_token_text(runnel_model *model, int32_t token, int special, char *text, size_t capacity,
                                size_t *text_bytes)
{
    struct rn_view piece;
    runnel_status status;

    if (model == NULL || text_bytes == NULL || (text == NULL && capacity > 0))
        return RUNNEL_INVALID;
    *text_bytes = 0;
    status = rn_model_enter(model);
    if (status != RUNNEL_OK)
        return status;
    if (has_token(model, token)) {
        piece = rn_vocab_piece(model->parts.vocab, token, special != 0);
        hand_out(piece.bytes, piece.n, text, capacity, text_bytes);
    } else {
        status = RUNNEL_INVALID;
    }
    rn_model_leave(model);
    return status;
}

/* Of a model that stays meanwhile: rn_model_enter. The chat by its template; *rendered is the caller's to free where it
 * is OK, and left alone else. */
static runnel_status render(runnel_model *model, const runnel_chat *given, struct rn_rendered *rendered,
                            runnel_error *error)
{
    struct rn_heap *heap = &model->engine->heap;
    struct rn_chat *chat = NULL;
    fenv_t host = rn_floats_default(); /* as in a request */
    runnel_status status;

    status = rn_chat_new(heap, &model->parts.templates, given, &chat, error);
    if (status == RUNNEL_OK)
        status = rn_chat_render(chat, model->parts.vocab, heap, NULL, rendered, error);
    rn_chat_free(chat);
    fesetenv(&host);
    return status;
}

runnel_status runnel_apply_template(runnel_model *model, const runnel_chat *given, char *text, size_t capacity,
                                    size_t *text_bytes, runnel_error *error)
{
    struct rn_rendered rendered;
    runnel_status status;

    rn_error_clear(error);
    if (model == NULL || given == NULL || text_bytes == NULL || (text == NULL && capacity > 0))
        return rn_error_set(error, RUNNEL_INVALID, "no model, no chat, or no place for the text");
    *text_bytes = 0;
    status = rn_model_enter(model);
    if (status != RUNNEL_OK)
        return rn_error_set(error, status, "the model is not loaded");
    status = render(model, given, &rendered, error);
    if (status == RUNNEL_OK) {
        hand_out(rendered.text, rendered.n, text, capacity, text_bytes);
        rn_rendered_free(&rendered, &model->engine->heap);
    }
    rn_model_leave(model);
    return status;
}

runnel_status runnel_tokenize_chat(runnel_model *model, const runnel_chat *given, int32_t *tokens, size_t capacity,
                                   size_t *count, runnel_error *error)
{
    struct rn_rendered rendered = {0};
    struct rn_heap *heap;
    int32_t *all = NULL;
    runnel_status status;
    fenv_t host;

    rn_error_clear(error);
    if (model == NULL || given == NULL || count == NULL || (tokens == NULL && capacity > 0))
        return rn_error_set(error, RUNNEL_INVALID, "no model, no chat, or no place for the tokens");
    *count = 0;
    status = rn_model_enter(model);
    if (status != RUNNEL_OK)
        return rn_error_set(error, status, "the model is not loaded");
    heap = &model->engine->heap;
    status = render(model, given, &rendered, error);
    host = rn_floats_default();
    if (status == RUNNEL_OK)
        status = rn_chat_tokenize(&rendered, model->parts.vocab, heap, NULL, &all, count, error);
    fesetenv(&host);
    if (status == RUNNEL_OK && capacity > 0)
        memcpy(tokens, all, (*count < capacity ? *count : capacity) * sizeof *tokens);
    rn_free(heap, all);
    rn_rendered_free(&rendered, heap);
    rn_model_leave(model);
    return status;
}

/* ---- Grammars ---- */

static runnel_status compile_alone(runnel_model *model, const struct rn_grammar_text *text, runnel_error *error)
{
    struct rn_automaton *automaton;
    runnel_error inner = {0};
    runnel_status status = rn_grammar_compile(&model->engine->heap, model->parts.vocab, text, NULL, &automaton, &inner);

    rn_automaton_free(automaton);
    if (status == RUNNEL_OK)
        return RUNNEL_OK;
    return rn_error_set_about(error, inner.about != RUNNEL_ABOUT_NONE ? inner.about : RUNNEL_ABOUT_GRAMMAR, status,
                              "grammar: %s", inner.message);
}

/* How the chat's prompt ends decides what its answer begins with. */
static runnel_status look_at_prompt(runnel_model *model, const runnel_request *request, struct rn_grammar_text *text,
                                    runnel_error *error)
{
    struct rn_rendered rendered = {0};
    runnel_status status;

    if (text->format == NULL)
        return RUNNEL_OK;
    status = render(model, request->chat, &rendered, error);
    if (status == RUNNEL_OK)
        text->opened = rn_answer_opened(text->format, rendered.text, rendered.n, rendered.content);
    rn_rendered_free(&rendered, &model->engine->heap);
    return status;
}

static runnel_status check_grammar(runnel_model *model, const runnel_request *request, runnel_error *error)
{
    struct rn_heap *heap = &model->engine->heap;
    struct rn_grammar_text *text = NULL;
    struct rn_chat *chat = NULL;
    runnel_status status = RUNNEL_OK;

    if (request->chat != NULL)
        status = rn_chat_new(heap, &model->parts.templates, request->chat, &chat, error);
    if (status == RUNNEL_OK)
        status = rn_grammar_text_new(heap, request, chat, &text, error);
    if (status == RUNNEL_OK && text != NULL)
        status = look_at_prompt(model, request, text, error);
    if (status == RUNNEL_OK && text != NULL)
        status = compile_alone(model, text, error);
    rn_grammar_text_free(text);
    rn_chat_free(chat);
    return status == RUNNEL_OK ? RUNNEL_OK : rn_error_set(error, status, "no memory for a grammar"); /* unless set */
}

runnel_status runnel_grammar_check(runnel_model *model, const runnel_request *given, runnel_error *error)
{
    runnel_request request;
    runnel_status status;
    fenv_t host;

    rn_error_clear(error);
    if (model == NULL || given == NULL)
        return rn_error_set(error, RUNNEL_INVALID, "no model, or no request");
    runnel_request_default(&request);
    if (!rn_sized_read(&request, sizeof request, given))
        return rn_error_set(error, RUNNEL_INVALID,
                            "request: struct_size is not of this library; use runnel_request_default");
    status = rn_model_enter(model);
    if (status != RUNNEL_OK)
        return rn_error_set(error, status, "the model is not loaded");
    host = rn_floats_default();
    status = check_grammar(model, &request, error);
    fesetenv(&host);
    rn_model_leave(model);
    return status;
}

/* ---- Templates by themselves ---- */

runnel_status runnel_render_template(const char *template_text, size_t template_bytes, const char *context,
                                     size_t context_bytes, int64_t now_s, char *text, size_t capacity,
                                     size_t *text_bytes, runnel_error *error)
{
    const struct rn_template_context c = {
        .json = context, .json_bytes = context_bytes, .now_s = now_s != 0 ? now_s : (int64_t)time(NULL)};
    struct rn_template *tmpl = NULL;
    struct rn_rendered rendered;
    struct rn_heap heap;
    runnel_status status;
    fenv_t host;

    rn_error_clear(error);
    if (template_text == NULL || context == NULL || text_bytes == NULL || (text == NULL && capacity > 0))
        return rn_error_set(error, RUNNEL_INVALID, "no template, no context, or no place for the text");
    *text_bytes = 0;
    rn_heap_init(&heap, NULL);
    host = rn_floats_default();
    status = rn_template_parse(&heap, template_text, template_bytes, &tmpl, error);
    if (status == RUNNEL_OK)
        status = rn_template_render(tmpl, &heap, &c, NULL, &rendered, error);
    if (status == RUNNEL_OK) {
        hand_out(rendered.text, rendered.n, text, capacity, text_bytes);
        rn_rendered_free(&rendered, &heap);
    }
    rn_template_free(tmpl);
    fesetenv(&host);
    return status;
}
