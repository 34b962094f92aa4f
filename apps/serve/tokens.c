/* Texts to tokens and back, and conversations to prompts: see serve.h. The bodies are those of llama.cpp's server and
 * of vLLM: "content" or "prompt", "tokens", "messages".
 *
 * A text may be long, and a template comes from whoever made the model's file: so each of these answers is made on a
 * thread of libuv's (works.h). */
#include <stdlib.h>
#include <string.h>

#include "apps/serve/dialects/anthropic.h"
#include "routes.h"

struct page {
    struct serve_work work; /* first */
    json_t *body;           /* a reference */
    struct serve_model *model;
    enum openai_endpoint endpoint;   /* of the route */
    void (*fill)(struct page *page); /* on the other thread: the answer, or the error */
    struct openai_buffer answer;     /* owned */
    struct openai_error error;       /* http 0: there is none */
};

/* ---- What all have in common ------------------------------------------------------------- */

static void run(struct serve_work *work)
{
    struct page *page = (struct page *)work;

    page->answer.to = open_memstream(&page->answer.bytes, &page->answer.n);
    if (page->answer.to == NULL) {
        openai_no_memory(&page->error);
        return;
    }
    page->fill(page);
    if (fclose(page->answer.to) != 0 && page->error.http == 0)
        openai_no_memory(&page->error);
    json_decref(page->body);
    page->body = NULL;
}

static void done(struct serve_work *work, bool ran)
{
    struct page *page = (struct page *)work;
    struct http_exchange *exchange = work->visit->exchange;

    if (!ran)
        openai_no_memory(&page->error);
    if (exchange != NULL && page->error.http != 0) {
        serve_refuse(work->serve, exchange, &page->error, 0);
    } else if (exchange != NULL) {
        serve_reply_taken(work->serve, exchange, 200, page->answer.bytes, page->answer.n);
        page->answer.bytes = NULL;
    }
    serve_model_leave(page->model);
    json_decref(page->body);
    free(page->answer.bytes);
    free(page);
}

/* The model that the body names; NULL: refused, or it waits. */
static struct serve_model *find_model(struct serve *serve, struct http_exchange *exchange, const json_t *body)
{
    const json_t *name = json_object_get(body, "model");
    struct openai_error error;

    if (name == NULL || json_is_null(name) || openai_expect_word(&error, "model", name))
        return serve_find_model(serve, exchange, openai_word(name));
    serve_refuse(serve, exchange, &error, 0);
    return NULL;
}

static void begin(struct serve *serve, struct http_exchange *exchange, void (*fill)(struct page *page))
{
    json_t *body = serve_read_json(serve, exchange);
    struct serve_model *model = body != NULL ? find_model(serve, exchange, body) : NULL;
    struct page *page = model != NULL ? calloc(1, sizeof *page) : NULL;
    struct openai_error error;

    if (page == NULL) {
        json_decref(body);
        if (model != NULL) {
            openai_no_memory(&error);
            serve_refuse(serve, exchange, &error, 0);
        }
        return;
    }
    page->body = body;
    page->model = model;
    page->fill = fill;
    page->endpoint = serve_route_of(exchange)->endpoint;
    serve_model_use(model);
    serve_work_begin(serve, visit_of(exchange), &page->work, run, done);
}

static void refuse_status(struct page *page, runnel_status status, const char *sentence)
{
    runnel_error error = {.status = status};

    snprintf(error.message, sizeof error.message, "%s", sentence[0] != '\0' ? sentence : runnel_status_text(status));
    serve_error_of(&error, &page->error);
}

static bool flag_of(const struct page *page, const char *name, bool usual)
{
    const json_t *value = json_object_get(page->body, name);

    return json_is_boolean(value) ? json_is_true(value) : usual;
}

const struct openai_field serve_tokenize_fields[] = {
    {"content", OPENAI_STRING, false, 0, 0},        {"prompt", OPENAI_STRING, false, 0, 0},
    {"add_special", OPENAI_BOOLEAN, false, 0, 0},   {"add_special_tokens", OPENAI_BOOLEAN, false, 0, 0},
    {"parse_special", OPENAI_BOOLEAN, false, 0, 0}, {"with_pieces", OPENAI_BOOLEAN, false, 0, 0},
    {"model", OPENAI_STRING, false, 0, 0},          {0}};

const struct openai_field serve_detokenize_fields[] = {
    {"tokens", OPENAI_ARRAY, true, 0, 0}, {"model", OPENAI_STRING, false, 0, 0}, {0}};

/* ---- Text to tokens ---------------------------------------------------------------------- */

static void put_bytes(FILE *to, const char *piece, size_t n)
{
    json_t *text = json_stringn(piece, n); /* NULL for what is not UTF-8 */

    if (text != NULL)
        app_json_string(to, piece, n);
    else
        fputc('[', to);
    for (size_t i = 0; text == NULL && i < n; i++)
        fprintf(to, "%s%u", i > 0 ? "," : "", (unsigned char)piece[i]);
    if (text == NULL)
        fputc(']', to);
    json_decref(text);
}

static void put_piece(struct page *page, int32_t token)
{
    char *text = NULL;
    size_t n = 0;

    if (runnel_token_text(page->model->handle, token, 1, NULL, 0, &n) == RUNNEL_OK)
        text = malloc(n + 1);
    if (text == NULL || runnel_token_text(page->model->handle, token, 1, text, n, &n) != RUNNEL_OK)
        n = 0;
    fprintf(page->answer.to, "{\"id\":%d,\"piece\":", (int)token);
    put_bytes(page->answer.to, n > 0 ? text : "", n);
    fputc('}', page->answer.to);
    free(text);
}

static void put_tokens(struct page *page, const int32_t *tokens, size_t n)
{
    FILE *to = page->answer.to;
    bool pieces = flag_of(page, "with_pieces", false);

    fputs("{\"tokens\":[", to);
    for (size_t i = 0; i < n; i++) {
        fputs(i > 0 ? "," : "", to);
        if (pieces)
            put_piece(page, tokens[i]);
        else
            fprintf(to, "%d", (int)tokens[i]);
    }
    fprintf(to, "],\"count\":%zu,\"max_model_len\":%u}", n, page->model->info.context_tokens);
}

static void tokenize_text(struct page *page, const json_t *text)
{
    uint32_t flags =
        flag_of(page, "add_special", false) || flag_of(page, "add_special_tokens", false) ? RUNNEL_TOKENIZE_BOS : 0;
    size_t bytes = json_string_length(text), n = 0;
    int32_t *tokens = NULL;
    runnel_status status;

    if (flag_of(page, "parse_special", false))
        flags |= RUNNEL_TOKENIZE_SPECIAL;
    status = runnel_tokenize(page->model->handle, json_string_value(text), bytes, flags, NULL, 0, &n);
    tokens = status == RUNNEL_OK ? malloc((n + 1) * sizeof *tokens) : NULL;
    if (tokens != NULL)
        status = runnel_tokenize(page->model->handle, json_string_value(text), bytes, flags, tokens, n, &n);
    else if (status == RUNNEL_OK)
        status = RUNNEL_NO_MEMORY;
    if (status == RUNNEL_OK)
        put_tokens(page, tokens, n);
    else
        refuse_status(page, status, "");
    free(tokens);
}

static void fill_tokens(struct page *page)
{
    const json_t *text = json_object_get(page->body, "content");

    if (text == NULL || json_is_null(text))
        text = json_object_get(page->body, "prompt");
    if (openai_expect(&page->error, "content", text, JSON_STRING))
        tokenize_text(page, text);
}

void serve_tokenize(struct serve *serve, struct http_exchange *exchange, const char *rest)
{
    (void)rest;
    begin(serve, exchange, fill_tokens);
}

/* ---- Tokens to text ---------------------------------------------------------------------- */

static bool read_ids(const json_t *ids, uint32_t n_vocabulary, int32_t *out, struct openai_error *error)
{
    for (size_t i = 0; i < json_array_size(ids); i++) {
        json_int_t id = json_integer_value(json_array_get(ids, i));
        char param[48];

        snprintf(param, sizeof param, "tokens[%zu]", i);
        if (!openai_expect(error, param, json_array_get(ids, i), JSON_INTEGER))
            return false;
        if (id < 0 || id >= n_vocabulary)
            return openai_refuse(error, "invalid_value", param, "%s is %lld; the vocabulary has %u tokens", param,
                                 (long long)id, n_vocabulary);
        out[i] = (int32_t)id;
    }
    return true;
}

static void detokenize(struct page *page, const int32_t *ids, size_t n)
{
    size_t bytes = 0;
    char *text = NULL;
    runnel_status status = runnel_detokenize(page->model->handle, ids, n, 1, NULL, 0, &bytes);

    text = status == RUNNEL_OK ? malloc(bytes + 1) : NULL;
    if (text != NULL)
        status = runnel_detokenize(page->model->handle, ids, n, 1, text, bytes, &bytes);
    else if (status == RUNNEL_OK)
        status = RUNNEL_NO_MEMORY;
    if (status != RUNNEL_OK) {
        refuse_status(page, status, "");
    } else {
        fputs("{\"content\":", page->answer.to);
        app_json_string(page->answer.to, text, bytes);
        fputs(",\"prompt\":", page->answer.to);
        app_json_string(page->answer.to, text, bytes);
        fputc('}', page->answer.to);
    }
    free(text);
}

static void fill_text(struct page *page)
{
    const json_t *ids = json_object_get(page->body, "tokens");
    int32_t *tokens = NULL;

    if (!openai_expect(&page->error, "tokens", ids, JSON_ARRAY))
        return;
    tokens = calloc(json_array_size(ids) + 1, sizeof *tokens);
    if (tokens == NULL)
        openai_no_memory(&page->error);
    else if (read_ids(ids, page->model->info.vocab_tokens, tokens, &page->error))
        detokenize(page, tokens, json_array_size(ids));
    free(tokens);
}

void serve_detokenize(struct serve *serve, struct http_exchange *exchange, const char *rest)
{
    (void)rest;
    begin(serve, exchange, fill_text);
}

/* ---- Conversations ----------------------------------------------------------------------- */

static void fill_chat(const struct page *page, const struct openai_request *request, runnel_chat *chat)
{
    const struct serve *serve = page->work.serve; /* its template and options stay as they are */
    runnel_request unused;

    runnel_chat_default(chat);
    openai_request_choice(request, 0, 0, &unused, chat);
    chat->template_text = serve->template_text.bytes;
    chat->template_name = serve->options->template_name;
    chat->now_s = serve->options->now_s;
}

static void apply(struct page *page, const struct openai_request *request)
{
    runnel_error error = {0};
    runnel_chat chat;
    size_t n = 0;
    char *text = NULL;

    fill_chat(page, request, &chat);
    error.status = runnel_apply_template(page->model->handle, &chat, NULL, 0, &n, &error);
    text = error.status == RUNNEL_OK ? malloc(n + 1) : NULL;
    if (text != NULL)
        error.status = runnel_apply_template(page->model->handle, &chat, text, n, &n, &error);
    else if (error.status == RUNNEL_OK)
        error.status = RUNNEL_NO_MEMORY;
    if (error.status != RUNNEL_OK) {
        refuse_status(page, error.status, error.message);
    } else {
        fputs("{\"prompt\":", page->answer.to);
        app_json_string(page->answer.to, text, n);
        fputc('}', page->answer.to);
    }
    free(text);
}

static void fill_prompt(struct page *page)
{
    struct openai_request request;

    if (!openai_request_read(&request, OPENAI_CHAT, OPENAI_SERVED, page->body, &page->error))
        return;
    apply(page, &request);
    openai_request_fini(&request);
}

void serve_apply_template(struct serve *serve, struct http_exchange *exchange, const char *rest)
{
    (void)rest;
    begin(serve, exchange, fill_prompt);
}

/* The length of a conversation's prompt; false: the page is refused. */
static bool count(struct page *page, const struct openai_request *request, size_t *n)
{
    runnel_error fault = {0};
    runnel_chat chat;

    fill_chat(page, request, &chat);
    fault.status = runnel_tokenize_chat(page->model->handle, &chat, NULL, 0, n, &fault);
    if (fault.status != RUNNEL_OK)
        refuse_status(page, fault.status, fault.message);
    return fault.status == RUNNEL_OK;
}

static void fill_count(struct page *page)
{
    json_t *translated = anthropic_translate_prompt(page->body, &page->error);
    struct openai_request request;
    size_t n = 0;
    bool good = false;

    if (translated == NULL && page->error.http == 0)
        openai_no_memory(&page->error);
    good = translated != NULL && openai_request_read(&request, OPENAI_CHAT, OPENAI_SERVED, translated, &page->error);
    json_decref(translated);
    if (!good) {
        serve_name_field(&serve_anthropic, serve_names_used(&serve_anthropic, page->body), &page->error);
        return;
    }
    if (count(page, &request, &n))
        fprintf(page->answer.to, "{\"input_tokens\":%zu}", n);
    openai_request_fini(&request);
}

static void fill_input_tokens(struct page *page)
{
    struct openai_request request;
    size_t n = 0;

    if (!openai_request_read(&request, page->endpoint, OPENAI_SERVED, page->body, &page->error))
        return;
    if (count(page, &request, &n))
        fprintf(page->answer.to, "{\"object\":\"response.input_tokens\",\"input_tokens\":%zu}", n);
    openai_request_fini(&request);
}

/* OpenAI's, of a body of /v1/responses; and of one of /v1/chat/completions. */
void serve_input_tokens(struct serve *serve, struct http_exchange *exchange, const char *rest)
{
    (void)rest;
    begin(serve, exchange, fill_input_tokens);
}

/* Anthropic's: the tokens of the prompt that a body of /v1/messages would have. */
void serve_count_tokens(struct serve *serve, struct http_exchange *exchange, const char *rest)
{
    (void)rest;
    begin(serve, exchange, fill_count);
}
