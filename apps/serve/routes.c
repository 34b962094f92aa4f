/* The one table of routes, and what holds for all of them: see serve.h and routes.h. */
#include "routes.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "apps/serve/dialects/anthropic.h"

/* A route that brings a body of OpenAI's form to a page names its endpoint, too: apply-template takes chats. */
static const struct serve_route routes[] = {
    {"GET", "/", SCOPE_PUBLIC, NULL, 0, serve_page, NULL, NULL,
     "the page for browsers, or a line that the process lives"},
    {"GET", "/page/", SCOPE_PUBLIC, NULL, 0, serve_page, NULL, NULL, NULL},
    {"GET", "/health", SCOPE_PUBLIC, NULL, 0, serve_health, NULL, "Status", "the process lives"},
    {"GET", "/v1/health", SCOPE_PUBLIC, NULL, 0, serve_health, NULL, "Status", "the process lives, as with llama.cpp"},
    {"GET", "/ready", SCOPE_PUBLIC, NULL, 0, serve_ready, NULL, "Status", "all models are loaded"},
    {"GET", "/metrics", SCOPE_METRICS, NULL, 0, serve_metrics, NULL, NULL,
     "counts and latencies as text for Prometheus"},
    {"GET", "/openapi.json", SCOPE_MODELS, NULL, 0, serve_openapi, NULL, "Document", "this document"},
    {"GET", "/v1/models", SCOPE_MODELS, NULL, 0, serve_models_list, NULL, "Models", "what is served"},
    {"GET", "/v1/models/", SCOPE_MODELS, NULL, 0, serve_model_one, NULL, "Model", "one model by its name"},
    {"POST", "/v1/chat/completions", SCOPE_CHAT, &serve_openai, OPENAI_CHAT, NULL, NULL, "ChatCompletion",
     "a conversation goes on"},
    {"POST", "/v1/completions", SCOPE_CHAT, &serve_openai, OPENAI_COMPLETIONS, NULL, NULL, "Completion",
     "a text, several, or token ids go on"},
    {"POST", "/v1/embeddings", SCOPE_EMBEDDINGS, &serve_openai, OPENAI_EMBEDDINGS, NULL, NULL, "Embeddings",
     "vectors of texts"},
    {"POST", "/v1/responses", SCOPE_CHAT, &serve_responses, OPENAI_RESPONSES, NULL, NULL, "Response",
     "a conversation goes on; nothing is kept"},
    {"POST", "/v1/responses/input_tokens", SCOPE_TOKENS, NULL, OPENAI_RESPONSES, serve_input_tokens, NULL,
     "InputTokens", "the length of such a conversation in tokens"},
    {"POST", "/v1/chat/completions/input_tokens", SCOPE_TOKENS, NULL, OPENAI_CHAT, serve_input_tokens, NULL,
     "InputTokens", "the length of a conversation in tokens, as with llama.cpp"},
    {"POST", "/v1/messages", SCOPE_CHAT, &serve_anthropic, OPENAI_CHAT, NULL, anthropic_fields, "AnthropicMessage",
     "a conversation goes on, as with Anthropic"},
    {"POST", "/v1/messages/count_tokens", SCOPE_TOKENS, &serve_anthropic, 0, serve_count_tokens,
     anthropic_prompt_fields, "TokenCount", "the length of such a conversation in tokens"},
    {"POST", "/api/chat", SCOPE_CHAT, &serve_ollama_chat, OPENAI_CHAT, NULL, ollama_chat_fields, "OllamaChat",
     "a conversation goes on, as with Ollama"},
    {"POST", "/api/generate", SCOPE_CHAT, &serve_ollama_generate, OPENAI_CHAT, NULL, ollama_generate_fields,
     "OllamaText", "a prompt is answered, as with Ollama"},
    {"POST", "/api/embed", SCOPE_EMBEDDINGS, &serve_ollama_embed, OPENAI_EMBEDDINGS, NULL, ollama_embed_fields,
     "OllamaEmbeddings", "vectors of texts, as with Ollama"},
    {"POST", "/api/embeddings", SCOPE_EMBEDDINGS, &serve_ollama_embeddings, OPENAI_EMBEDDINGS, NULL,
     ollama_embeddings_fields, "OllamaEmbedding", "the vector of one text, as with Ollama"},
    {"GET", "/api/tags", SCOPE_MODELS, &serve_ollama_chat, 0, serve_ollama_tags, NULL, "OllamaModels",
     "what is served, as with Ollama"},
    {"GET", "/api/ps", SCOPE_MODELS, &serve_ollama_chat, 0, serve_ollama_ps, NULL, "OllamaModels",
     "what is loaded, as with Ollama"},
    {"POST", "/api/show", SCOPE_MODELS, &serve_ollama_chat, 0, serve_ollama_show, ollama_show_fields, "OllamaModel",
     "one model, as with Ollama"},
    {"GET", "/api/version", SCOPE_MODELS, &serve_ollama_chat, 0, serve_ollama_version, NULL, "Version", "the version"},
    {"POST", "/completion", SCOPE_CHAT, &serve_llama, OPENAI_COMPLETIONS, NULL, llama_fields, "LlamaCompletion",
     "a text goes on, as with llama.cpp"},
    {"POST", "/infill", SCOPE_CHAT, &serve_infill, OPENAI_COMPLETIONS, NULL, llama_infill_fields, "LlamaCompletion",
     "the gap in a text is filled, as with llama.cpp"},
    {"POST", "/embedding", SCOPE_EMBEDDINGS, &serve_llama_embedding, OPENAI_EMBEDDINGS, NULL, llama_embedding_fields,
     "LlamaEmbeddings", "vectors of texts, as with llama.cpp"},
    {"POST", "/embeddings", SCOPE_EMBEDDINGS, &serve_llama_embedding, OPENAI_EMBEDDINGS, NULL, llama_embedding_fields,
     "LlamaEmbeddings", "vectors of texts, as with llama.cpp"},
    {"POST", "/tokenize", SCOPE_TOKENS, NULL, 0, serve_tokenize, serve_tokenize_fields, "Tokens",
     "the tokens of a text"},
    {"POST", "/detokenize", SCOPE_TOKENS, NULL, 0, serve_detokenize, serve_detokenize_fields, "Content",
     "the text of tokens"},
    {"POST", "/apply-template", SCOPE_TOKENS, NULL, OPENAI_CHAT, serve_apply_template, NULL, "Prompt",
     "the prompt of a conversation"},
    {"POST", "/models/load", SCOPE_ADMIN, NULL, 0, serve_load, serve_load_fields, "Success",
     "a model is loaded, as with llama.cpp"},
    {"POST", "/models/unload", SCOPE_ADMIN, NULL, 0, serve_unload, serve_load_fields, "Success",
     "a model is unloaded behind its last request"},
    {"POST", "/v1/files", SCOPE_BATCHES, NULL, 0, serve_files_upload, NULL, "File", "a file of requests is uploaded"},
    {"GET", "/v1/files", SCOPE_BATCHES, NULL, 0, serve_files_list, NULL, "List", "the files that a key has"},
    {"GET", "/v1/files/*/content", SCOPE_BATCHES, NULL, 0, serve_files_one, NULL, NULL, "the bytes of a file"},
    {"GET", "/v1/files/", SCOPE_BATCHES, NULL, 0, serve_files_one, NULL, "File", "what is known of a file"},
    {"DELETE", "/v1/files/", SCOPE_BATCHES, NULL, 0, serve_files_delete, NULL, "Deleted", "a file goes"},
    {"POST", "/v1/batches", SCOPE_BATCHES, NULL, 0, serve_batches_create, serve_batch_fields, "Batch",
     "a batch over a file begins"},
    {"GET", "/v1/batches", SCOPE_BATCHES, NULL, 0, serve_batches_list, NULL, "List", "the batches that a key has"},
    {"GET", "/v1/batches/", SCOPE_BATCHES, NULL, 0, serve_batches_one, NULL, "Batch", "a batch"},
    {"POST", "/v1/batches/*/cancel", SCOPE_BATCHES, NULL, 0, serve_batches_cancel, NULL, "Batch",
     "a batch ends; what is answered stays"},
    {"POST", "/v1/rerank", SCOPE_EMBEDDINGS, &serve_openai, OPENAI_RERANK, NULL, NULL, "Ranking",
     "documents in the order of their scores"},
    {"POST", "/v2/rerank", SCOPE_EMBEDDINGS, &serve_openai, OPENAI_RERANK, NULL, NULL, "Ranking",
     "documents in the order of their scores"},
    {"POST", "/v1/reranking", SCOPE_EMBEDDINGS, &serve_openai, OPENAI_RERANK, NULL, NULL, "Ranking",
     "documents in the order of their scores"},
    {"POST", "/rerank", SCOPE_EMBEDDINGS, &serve_openai, OPENAI_RERANK, NULL, NULL, "Ranking",
     "documents in the order of their scores"},
    {"POST", "/reranking", SCOPE_EMBEDDINGS, &serve_openai, OPENAI_RERANK, NULL, NULL, "Ranking",
     "documents in the order of their scores"},
    {"POST", "/v1/classify", SCOPE_EMBEDDINGS, &serve_openai, OPENAI_CLASSIFY, NULL, NULL, "Classes",
     "what texts are, by the model's labels"},
    {"POST", "/classify", SCOPE_EMBEDDINGS, &serve_openai, OPENAI_CLASSIFY, NULL, NULL, "Classes",
     "what texts are, by the model's labels, as with vLLM"},
    {"GET", "/props", SCOPE_MODELS, &serve_llama, 0, serve_props, NULL, "Properties",
     "the first model's context and template, the version, as with llama.cpp"},
    {"GET", "/lora-adapters", SCOPE_MODELS, &serve_llama, 0, serve_lora_adapters, NULL, "Adapters",
     "the first model's adapters, as with llama.cpp"},
    {"POST", "/lora-adapters", SCOPE_ADMIN, &serve_llama, 0, serve_lora_scales, NULL, "Adapters",
     "refused: scales are set at the start"},
    {"GET", "/slots", SCOPE_METRICS, &serve_llama, 0, serve_slots, NULL, "Slots",
     "the answers under way, as with llama.cpp"},
};

enum { N_ROUTES = sizeof routes / sizeof routes[0] };

const struct serve_route *serve_routes(size_t *n)
{
    *n = N_ROUTES;
    return routes;
}

size_t serve_route_stem(const struct serve_route *route)
{
    return strcspn(route->path, "*");
}

bool serve_route_is_named(const struct serve_route *route)
{
    size_t n = strlen(route->path);

    return n > 1 && route->path[n - 1] == '/';
}

/* "/v1/files/abc/content" by "/v1/files/" and "/content". */
static bool has_both_ends(const struct serve_route *route, const char *path)
{
    size_t n = serve_route_stem(route), end = strlen(route->path + n), rest = 0;

    if (end == 0 || strncmp(path, route->path, n) != 0)
        return false;
    rest = strlen(path + n);
    return rest >= end && strcmp(path + n + rest - (end - 1), route->path + n + 1) == 0;
}

/* A path with two ends is not one with a beginning. */
static bool has_path(const struct serve_route *route, const char *path)
{
    size_t n = strlen(route->path);

    if (strcmp(path, route->path) == 0)
        return !serve_route_is_named(route);
    if (serve_route_stem(route) < n)
        return has_both_ends(route, path);
    if (!serve_route_is_named(route) || strncmp(path, route->path, n) != 0)
        return false;
    for (size_t i = 0; i < N_ROUTES; i++)
        if (has_both_ends(&routes[i], path))
            return false;
    return true;
}

/* HEAD is answered as GET. */
static bool has_method(const struct serve_route *route, const char *method)
{
    return strcmp(route->method, method) == 0 || (strcmp(route->method, "GET") == 0 && strcmp(method, "HEAD") == 0);
}

static const struct serve_route *find_route(const struct http_exchange *exchange, bool *known)
{
    const char *path = http_path(exchange), *method = http_method(exchange);

    *known = false;
    for (size_t i = 0; i < N_ROUTES; i++) {
        if (!has_path(&routes[i], path))
            continue;
        *known = true;
        if (has_method(&routes[i], method))
            return &routes[i];
    }
    return NULL;
}

const struct serve_route *serve_route_of(const struct http_exchange *exchange)
{
    bool known = false;

    return find_route(exchange, &known);
}

const struct serve_dialect *serve_dialect_at(const char *path)
{
    static const struct {
        const char *stem; /* also of what is not served */
        const struct serve_dialect *dialect;
    } stems[] = {{"/api/", &serve_ollama_chat}, {"/v1/messages/", &serve_anthropic}};

    for (size_t i = 0; i < N_ROUTES; i++)
        if (has_path(&routes[i], path) && routes[i].dialect != NULL)
            return routes[i].dialect;
    for (size_t i = 0; i < sizeof stems / sizeof stems[0]; i++)
        if (strncmp(path, stems[i].stem, strlen(stems[i].stem)) == 0)
            return stems[i].dialect;
    return &serve_openai;
}

const struct serve_dialect *serve_dialect_of(const struct http_exchange *exchange)
{
    return serve_dialect_at(http_path(exchange));
}

/* ---- Pages of other hosts (CORS) --------------------------------------------------------- */

/* The exact origins of --cors, parted by commas; "*": all. */
static bool is_allowed(const struct serve *serve, const char *origin)
{
    const char *list = serve->options->cors;
    size_t n = strlen(origin);

    while (list != NULL && *list != '\0') {
        size_t word = strcspn(list, ",");

        if ((word == 1 && list[0] == '*') || (word == n && memcmp(list, origin, n) == 0))
            return true;
        list += word + (list[word] == ',');
    }
    return false;
}

/* Whether the exchange comes from a page that may ask; says so in the answer, and what the page may read of it. */
static bool add_cors(const struct serve *serve, struct http_exchange *exchange)
{
    const char *origin = http_field(exchange, "origin");

    if (serve->options->cors == NULL)
        return false;
    http_add_field(exchange, "Vary", "Origin");
    if (origin == NULL || !is_allowed(serve, origin))
        return false;
    http_add_field(exchange, "Access-Control-Allow-Origin", origin);
    http_add_field(exchange, "Access-Control-Expose-Headers",
                   "x-request-id, retry-after, x-ratelimit-limit-requests, x-ratelimit-remaining-requests, "
                   "x-ratelimit-reset-requests, x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, "
                   "x-ratelimit-reset-tokens");
    return true;
}

/* What a browser sends for a page changes nothing here unless the page is this server's own or --cors names it; what
 * pages may read CORS decides. Programs send no Origin. Where a proxy has put another host in its place, the browser
 * says itself that the page is of that origin (Fetch Metadata), which no page can say. */
static bool is_foreign(const struct http_exchange *exchange, bool allowed)
{
    const char *origin = http_field(exchange, "origin"), *host = http_field(exchange, "host");
    const char *site = http_field(exchange, "sec-fetch-site"), *of = NULL;

    if (origin == NULL || allowed || strcmp(http_method(exchange), "GET") == 0 ||
        strcmp(http_method(exchange), "HEAD") == 0 || (site != NULL && strcmp(site, "same-origin") == 0))
        return false;
    of = strstr(origin, "://");
    return of == NULL || host == NULL || strcasecmp(of + 3, host) != 0;
}

/* Names of header fields, parted by commas, in a list that is no longer than any client's. */
static bool is_names(const char *list)
{
    size_t n = strlen(list);

    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)list[i]) && strchr("-_, ", list[i]) == NULL)
            return false;
    return n > 0 && n <= 1024;
}

/* Clients send fields of their own (anthropic-version, x-stainless-..), which are left alone: a page that may ask may
 * send what it names. */
static void answer_preflight(struct serve *serve, struct http_exchange *exchange, bool allowed)
{
    const char *asked = http_field(exchange, "access-control-request-headers");

    if (serve->options->cors != NULL)
        http_add_field(exchange, "Vary", "Access-Control-Request-Headers");
    http_add_field(exchange, "Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
    http_add_field(
        exchange, "Access-Control-Allow-Headers",
        allowed && asked != NULL && is_names(asked) ? asked : "authorization, content-type, x-api-key, x-request-id");
    http_add_field(exchange, "Access-Control-Max-Age", "86400");
    serve_write(serve);
    serve_reply(serve, exchange, 204, NULL);
}

/* ---- The way of an exchange -------------------------------------------------------------- */

/* "GET, HEAD, POST": what a path that is there can be asked. */
static void add_allowed(struct http_exchange *exchange)
{
    char list[64] = "";

    for (size_t i = 0; i < N_ROUTES; i++)
        if (has_path(&routes[i], http_path(exchange)) && strstr(list, routes[i].method) == NULL) {
            strcat(list, list[0] != '\0' ? ", " : "");
            strcat(list, strcmp(routes[i].method, "GET") == 0 ? "GET, HEAD" : routes[i].method);
        }
    http_add_field(exchange, "Allow", list);
}

/* For the log: names of the table's, where there is one. */
static void describe(struct serve_visit *visit, const struct serve_route *route)
{
    static const char *const methods[] = {"GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH"};
    const char *method = http_method(visit->exchange); /* NULL: it was not read */

    visit->method = "other";
    for (size_t i = 0; method != NULL && i < sizeof methods / sizeof methods[0]; i++)
        if (strcmp(method, methods[i]) == 0)
            visit->method = methods[i];
    visit->route = route != NULL ? route->path : NULL;
    visit->is_public = route != NULL && route->auth == SCOPE_PUBLIC;
}

/* ---- Refusals of HTTP itself -------------------------------------------------------------- */

/* One that came to no handler: its visit begins and ends here. */
static struct serve_visit *visit_of_refused(struct serve *serve, struct http_exchange *exchange, const char *path)
{
    struct serve_visit *visit = visit_begin(serve, exchange, path);

    if (visit == NULL)
        return NULL;
    add_cors(serve, exchange);
    describe(visit, NULL);
    visit->exchange = NULL;
    return visit;
}

/* They have the form of their route, an id and a line of the log, too. */
const char *serve_refusal(void *user, struct http_exchange *exchange, const char *path, int status, const char *reason,
                          const char **type, size_t *n)
{
    static const struct {
        int status;
        const char *code;
    } codes[] = {{408, "request_timeout"},
                 {413, "content_too_large"},
                 {414, "uri_too_long"},
                 {431, "headers_too_large"},
                 {503, "server_busy"}};
    struct serve *serve = user;
    struct openai_error error = {.http = status, .type = status < 500 ? "invalid_request_error" : "unavailable_error"};
    struct serve_visit *visit = visit_of(exchange), *own = NULL;
    FILE *to = serve_write(serve);

    if (visit == NULL)
        visit = own = visit_of_refused(serve, exchange, path);
    if (status == 503)
        http_add_field(exchange, "Retry-After", "1");
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
        if (codes[i].status == status)
            error.code = codes[i].code;
    snprintf(error.message, sizeof error.message, "%s", reason);
    serve_dialect_at(path)->put_error(to, &error, visit != NULL ? visit->id : NULL);
    fflush(to);
    serve->counts.answers[status / 100]++;
    if (own != NULL) {
        own->status = status;
        own->sent_bytes = strcmp(own->method, "HEAD") == 0 ? 0 : serve->out.n;
        visit_unref(own);
    }
    *type = "application/json";
    *n = serve->out.n;
    return serve->out.bytes;
}

static bool is_there(const char *path)
{
    for (size_t i = 0; i < N_ROUTES; i++)
        if (has_path(&routes[i], path))
            return true;
    return false;
}

enum { MEANT_BYTES = 96 };

/* What a client may mean whose address has no "/v1" at its end, or one too many, or a slash; false: nothing. */
static bool find_meant(const char *path, char meant[MEANT_BYTES])
{
    size_t n = strlen(path);

    if (n + sizeof "/v1" > MEANT_BYTES)
        return false;
    snprintf(meant, MEANT_BYTES, "/v1%s", path);
    if (is_there(meant))
        return true;
    snprintf(meant, MEANT_BYTES, "%s", strncmp(path, "/v1/", 4) == 0 ? path + 3 : path);
    if (is_there(meant))
        return true;
    snprintf(meant, MEANT_BYTES, "%.*s", (int)n - 1, path);
    return n > 1 && path[n - 1] == '/' && is_there(meant);
}

static void refuse_unknown(struct serve *serve, struct http_exchange *exchange, bool known)
{
    struct openai_error error = {.http = known ? 405 : 404, .type = "not_found_error"};
    const char *path = http_path(exchange);
    char meant[MEANT_BYTES];

    if (known)
        snprintf(error.message, sizeof error.message, "%.16s is no method of %.160s", http_method(exchange), path);
    else if (find_meant(path, meant))
        snprintf(error.message, sizeof error.message, "there is no %.16s %.160s; there is %s", http_method(exchange),
                 path, meant);
    else
        snprintf(error.message, sizeof error.message, "there is no %.16s %.160s", http_method(exchange), path);
    if (known)
        add_allowed(exchange);
    serve_refuse(serve, exchange, &error, 0);
}

static void refuse_nobody(struct serve *serve, struct http_exchange *exchange)
{
    http_add_field(exchange, "WWW-Authenticate", "Bearer");
    serve_refuse_as(serve, exchange, 401, "authentication_error", "invalid_api_key",
                    "a valid key is needed: Authorization: Bearer KEY", 0);
}

static void refuse_scope(struct serve *serve, struct http_exchange *exchange, const struct serve_route *route)
{
    struct openai_error error = {.http = 403, .type = "permission_error", .code = "insufficient_scope"};

    snprintf(error.message, sizeof error.message, "this key has not the scope '%s', which %.100s needs",
             scope_word(route->auth), route->path);
    serve_refuse(serve, exchange, &error, 0);
}

static void refuse_foreign(struct serve *serve, struct http_exchange *exchange)
{
    struct openai_error error = {.http = 403, .type = "permission_error", .code = "foreign_origin"};

    snprintf(error.message, sizeof error.message, "pages of the origin '%.120s' may not ask: --cors does not name it",
             http_field(exchange, "origin"));
    app_whole(error.message);
    serve_refuse(serve, exchange, &error, 0);
}

static void refuse_host(struct serve *serve, struct http_exchange *exchange)
{
    struct openai_error error = {.http = 403, .type = "permission_error", .code = "foreign_host"};

    snprintf(error.message, sizeof error.message, "this server is not known as '%.120s': --allow-host does not name it",
             http_field(exchange, "host"));
    app_whole(error.message);
    serve_refuse(serve, exchange, &error, 0);
}

static bool is_coded(const struct http_exchange *exchange)
{
    const char *coding = http_field(exchange, "content-encoding");

    return coding != NULL && coding[0] != '\0' && strcasecmp(coding, "identity") != 0;
}

static void refuse_coded(struct serve *serve, struct http_exchange *exchange)
{
    http_add_field(exchange, "Accept-Encoding", "identity");
    serve_refuse_as(serve, exchange, 415, "invalid_request_error", "unsupported_encoding",
                    "bodies are taken as they are: no Content-Encoding is supported", 0);
}

/* What takes the model's time counts against a key's rates. */
static bool is_metered(const struct serve_route *route)
{
    return (route->auth & (SCOPE_CHAT | SCOPE_EMBEDDINGS | SCOPE_TOKENS)) != 0;
}

/* Who may not, or asks for what is not there, is told before anything of the body is read. */
void serve_on_head(void *user, struct http_exchange *exchange)
{
    struct serve *serve = user;
    struct serve_visit *visit = visit_new(serve, exchange);
    const struct serve_route *route = NULL;
    struct serve_key *key = NULL;
    bool known = false, allowed = false;

    if (visit == NULL)
        return;
    allowed = add_cors(serve, exchange);
    route = find_route(exchange, &known);
    describe(visit, route);
    if (!serve_knows_host(serve, exchange)) {
        refuse_host(serve, exchange);
        return;
    }
    if (strcmp(http_method(exchange), "OPTIONS") == 0) {
        answer_preflight(serve, exchange, allowed);
        return;
    }
    if (is_foreign(exchange, allowed)) {
        refuse_foreign(serve, exchange);
        return;
    }
    key = serve_key_of(serve, exchange);
    visit->key = key != NULL ? key_ref(key) : NULL;
    if (key == NULL && (route == NULL || route->auth != SCOPE_PUBLIC))
        refuse_nobody(serve, exchange);
    else if (route == NULL)
        refuse_unknown(serve, exchange, known);
    else if (route->auth == SCOPE_PUBLIC)
        serve_dispatch(exchange); /* no body: whoever has no key would fill the room of others' */
    else if ((route->auth & key->scopes) == 0)
        refuse_scope(serve, exchange, route);
    else if (is_coded(exchange))
        refuse_coded(serve, exchange);
    else if (serve->draining)
        serve_refuse_as(serve, exchange, 503, "unavailable_error", "draining", "the server is going down", 1000);
    else if (is_metered(route))
        serve_let_in(visit);
}

/* With --log-prompts the log has what was sent. */
static void keep_body(struct serve_visit *visit)
{
    size_t n = 0;
    const char *body = http_body(visit->exchange, &n);

    if (visit->serve->options->log_prompts && n > 0 && visit->body == NULL)
        visit->body = strndup(body, n);
}

static bool takes_json(const struct serve_route *route)
{
    return route->endpoint != 0 || route->fields != NULL;
}

void serve_dispatch(struct http_exchange *exchange)
{
    struct serve *serve = visit_of(exchange)->serve;
    const struct serve_route *route = serve_route_of(exchange);
    size_t n = 0;

    if (route == NULL) /* on_head has answered */
        return;
    keep_body(visit_of(exchange));
    http_body(exchange, &n);
    if (n > SERVE_LOOP_BYTES && takes_json(route)) {
        serve_read_apart(serve, exchange);
        return;
    }
    if (route->page != NULL)
        route->page(serve, exchange, http_path(exchange) + serve_route_stem(route));
    else
        serve_ask(serve, exchange, route->endpoint);
}

void serve_on_request(void *user, struct http_exchange *exchange)
{
    (void)user;
    serve_dispatch(exchange);
}

void serve_on_gone(void *user, struct http_exchange *exchange)
{
    struct serve *serve = user;
    struct serve_visit *visit = visit_of(exchange);
    struct serve_task *task = visit != NULL ? visit->task : NULL;

    if (visit == NULL)
        return;
    visit->cut = serve->ending && http_status(exchange) == 200;
    visit->cancelled = !serve->ending && (task != NULL || http_status(exchange) == 0); /* else the rest was refused */
    visit->exchange = NULL; /* what is done for it from now on sees that */
    serve_visit_forget(visit);
    if (task != NULL) {
        visit->task = NULL;
        serve->counts.cancelled += visit->cancelled;
        task->exchange = NULL;
        serve_task_cancel(task);
        serve_task_release(task);
    }
    serve_work_forget(serve, visit);
}

/* A reader who is behind stops its own streams, and nobody else's. */
static void hold(struct serve_task *task, bool pause)
{
    if (task == NULL || task->paused == pause)
        return;
    task->paused = pause;
    for (size_t i = 0; i < task->n_submitted; i++) {
        if (!task->streams[i].live)
            continue;
        if (pause)
            runnel_stream_pause(task->serve->app.engine, task->streams[i].id);
        else
            runnel_stream_resume(task->serve->app.engine, task->streams[i].id);
    }
}

void serve_on_slow(void *user, struct http_exchange *exchange)
{
    (void)user;
    hold(visit_of(exchange)->task, true);
}

void serve_on_taken(void *user, struct http_exchange *exchange)
{
    (void)user;
    hold(visit_of(exchange)->task, false);
}
