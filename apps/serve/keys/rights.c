/* Who may ask, and how much: see serve.h and keys.h. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "apps/serve/serve.h"

/* Of the numbers of one request so many are computed at once: several steps' worth of short texts. */
enum { MOST_NUMBERS = 256 };

static bool read_file(const struct serve *serve, struct serve_keys *keys, const char *path, uint64_t now_ms,
                      char sentence[512])
{
    struct app_text text = {0};
    size_t before = keys->n;
    char why[256] = "there is no key in it";
    bool good = false;

    if (!serve_read_file(serve, path, &text, sentence))
        return false;
    if (memchr(text.bytes, '\0', text.size) != NULL)
        snprintf(why, sizeof why, "there is a NUL in it");
    else
        good = keys_add_text(keys, text.bytes, now_ms, why) && keys->n > before;
    memset(text.bytes, 0, text.size);
    free(text.bytes);
    if (!good)
        snprintf(sentence, 512, "%.200s: %s", path, why);
    return good;
}

/* On any thread. */
static bool read_fresh(const struct serve *serve, struct serve_keys *fresh, uint64_t now_ms, char sentence[512])
{
    const char *key = getenv("RUNNEL_API_KEY"), *path = serve->options->api_key_file;
    char why[256];

    if (key != NULL && key[0] == '\0') {
        snprintf(sentence, 512, "RUNNEL_API_KEY is empty; unset, everyone may ask");
        return false;
    }
    if (key != NULL && !keys_add_plain(fresh, key, "environment", now_ms, why)) {
        snprintf(sentence, 512, "RUNNEL_API_KEY: %s", why);
        return false;
    }
    return path == NULL || read_file(serve, fresh, path, now_ms, sentence);
}

static bool take(struct serve *serve, struct serve_keys *fresh, char sentence[512])
{
    if (keys_replace(&serve->keys, fresh, uv_now(&serve->loop)))
        return true;
    snprintf(sentence, 512, "not enough memory");
    return false;
}

bool serve_read_keys(struct serve *serve, char sentence[512])
{
    struct serve_keys fresh = {0};
    bool good = read_fresh(serve, &fresh, uv_now(&serve->loop), sentence) && take(serve, &fresh, sentence);

    keys_fini(&fresh);
    return good;
}

/* ---- Read again -------------------------------------------------------------------------- */

struct reload {
    uv_work_t work;
    struct serve *serve;
    struct serve_keys fresh;
    uint64_t now_ms;
    bool good;
    char sentence[512]; /* why not */
};

static void read_again(uv_work_t *work)
{
    struct reload *reload = work->data;

    reload->good = read_fresh(reload->serve, &reload->fresh, reload->now_ms, reload->sentence);
}

static void on_read(uv_work_t *work, int status)
{
    struct reload *reload = work->data;
    struct serve *serve = reload->serve;

    serve->keys_reload = false;
    if (!serve->ending && status == 0 && reload->good && take(serve, &reload->fresh, reload->sentence))
        serve_tell(serve, "read again: %zu key%s", serve->keys.n, app_plural(serve->keys.n));
    else if (!serve->ending)
        serve_complain(serve, "the keys stay as they were: %s", reload->sentence);
    keys_fini(&reload->fresh);
    free(reload);
    if (serve->keys_reload_again && !serve->ending)
        serve_reload_keys(serve);
}

void serve_reload_keys(struct serve *serve)
{
    struct reload *reload = NULL;

    serve->keys_reload_again = serve->keys_reload;
    if (serve->keys_reload)
        return;
    reload = calloc(1, sizeof *reload);
    if (reload != NULL) {
        reload->serve = serve;
        reload->now_ms = uv_now(&serve->loop);
        reload->work.data = reload;
    }
    if (reload == NULL || uv_queue_work(&serve->loop, &reload->work, read_again, on_read) != 0) {
        serve_complain(serve, "the keys stay as they were: not enough memory");
        free(reload);
        return;
    }
    serve->keys_reload = true;
}

struct serve_key *serve_key_of(struct serve *serve, struct http_exchange *exchange)
{
    const char *field = http_field(exchange, "authorization"), *given = http_field(exchange, "x-api-key");
    uint8_t digest[DIGEST_BYTES];

    if (serve->keys.n == 0)
        return &serve->anyone;
    if (field != NULL && strncasecmp(field, "Bearer ", 7) == 0)
        given = field + 7 + strspn(field + 7, " ");
    if (given == NULL || given[0] == '\0' || strlen(given) >= KEY_BYTES || !digest_of(given, strlen(given), digest))
        return NULL;
    return keys_find(&serve->keys, digest);
}

/* ---- Rates ------------------------------------------------------------------------------- */

/* A span of time as OpenAI's headers write it: "120ms", "1.5s", "6m0s". */
static void put_span(char text[32], uint64_t span_ms)
{
    if (span_ms < 1000)
        snprintf(text, 32, "%llums", (unsigned long long)span_ms);
    else if (span_ms < 60000)
        snprintf(text, 32, "%llu.%03llus", (unsigned long long)(span_ms / 1000), (unsigned long long)(span_ms % 1000));
    else
        snprintf(text, 32, "%llum%llus", (unsigned long long)(span_ms / 60000),
                 (unsigned long long)(span_ms % 60000 / 1000));
}

static void tell_rate(struct http_exchange *exchange, const char *what, struct serve_bucket *bucket, uint64_t now_ms)
{
    char name[64], value[32];

    if (bucket->per_minute == 0)
        return;
    snprintf(name, sizeof name, "x-ratelimit-limit-%s", what);
    snprintf(value, sizeof value, "%lld", (long long)bucket->per_minute);
    http_add_field(exchange, name, value);
    snprintf(name, sizeof name, "x-ratelimit-remaining-%s", what);
    snprintf(value, sizeof value, "%lld", (long long)serve_bucket_left(bucket, now_ms));
    http_add_field(exchange, name, value);
    snprintf(name, sizeof name, "x-ratelimit-reset-%s", what);
    put_span(value, serve_bucket_full_ms(bucket, now_ms));
    http_add_field(exchange, name, value);
}

static void budget_error(struct openai_error *error)
{
    *error = (struct openai_error){.http = 429, .type = "insufficient_quota", .code = "insufficient_quota"};
    snprintf(error->message, sizeof error->message, "this key's budget of tokens is used up");
}

static void rate_error(struct openai_error *error, const char *type, const char *what)
{
    *error = (struct openai_error){.http = 429, .type = type, .code = "rate_limit_exceeded"};
    snprintf(error->message, sizeof error->message, "this key has reached its limit of %s", what);
}

enum serve_excess serve_ask_key(struct serve *serve, struct serve_key *key, uint64_t *retry_ms,
                                struct openai_error *error)
{
    enum serve_excess excess = serve_limits_ask(&key->limits, uv_now(&serve->loop), retry_ms);

    if (excess == EXCESS_BUDGET)
        budget_error(error);
    else if (excess == EXCESS_TOKENS)
        rate_error(error, "tokens", "tokens per minute");
    else if (excess == EXCESS_REQUESTS)
        rate_error(error, "requests", "requests per minute");
    return excess;
}

bool serve_let_in(struct serve_visit *visit)
{
    struct serve_limits *limits = &visit->key->limits;
    uint64_t now_ms = uv_now(&visit->serve->loop), retry_ms = 0;
    struct openai_error error;
    enum serve_excess excess = serve_ask_key(visit->serve, visit->key, &retry_ms, &error);

    tell_rate(visit->exchange, "requests", &limits->requests, now_ms);
    tell_rate(visit->exchange, "tokens", &limits->tokens, now_ms);
    if (excess == EXCESS_NONE)
        return true;
    serve_refuse(visit->serve, visit->exchange, &error, retry_ms < UINT32_MAX ? (uint32_t)retry_ms : UINT32_MAX - 999);
    return false;
}

/* Numbers are told at the end alone, so they may be computed one after the other: at most half of what the server runs
 * at once, so that others find room, and what the key has left. */
static int64_t numbers_at_once(const struct serve_task *task)
{
    const struct serve_limits *limits = &task->visit->key->limits;
    int64_t half = (task->serve->options->max_streams + 1) / 2, n = half < MOST_NUMBERS ? half : MOST_NUMBERS;
    int64_t left = limits->streams - limits->live;

    if (limits->streams > 0 && n > left)
        n = left > 0 ? left : 1;
    return (int64_t)task->n_choices < n ? (int64_t)task->n_choices : n;
}

bool serve_open_answers(struct serve_task *task, struct openai_error *error)
{
    const struct openai_request *request = &task->request;
    long long most = task->serve->options->max_streams, own = task->visit->key->limits.streams;
    bool numbers = (request->endpoint & OPENAI_POOLED) != 0;
    int64_t n = numbers ? numbers_at_once(task) : (int64_t)task->n_choices;

    if (n > most) /* no time helps */
        return openai_refuse(error, "invalid_value", NULL, "%zu answers are asked for; at most %lld run at once",
                             task->n_choices, most);
    if (own > 0 && n > own) {
        openai_refuse(error, "invalid_value",
                      request->n_prompts > 1 ? "prompt"
                      : request->best_of > 0 ? "best_of"
                                             : "n",
                      "%zu answers are asked for; this key may have %lld at once", task->n_choices, own);
        serve_name_field(task->dialect, task->names_used, error);
        return false;
    }
    if (!serve_limits_open(&task->visit->key->limits, n)) {
        rate_error(error, "requests", "answers at once");
        return false;
    }
    task->n_counted = n;
    return true;
}

/* Tokens of an answer are paid as they come; at its end what is left of it, and the prompt, once for all answers to
 * it. */
bool serve_pay(struct serve_stream *stream, const runnel_event *event, struct openai_error *error)
{
    struct serve_task *task = stream->task;
    bool first = (task->request.endpoint & OPENAI_POOLED) != 0 ||
                 serve_index(stream) % openai_request_tries(&task->request) == 0;
    uint64_t tokens = event->n_tokens;

    if (event->type >= RUNNEL_EVENT_DONE) {
        tokens =
            event->usage.completion_tokens > stream->charged ? event->usage.completion_tokens - stream->charged : 0;
        tokens += first ? event->usage.prompt_tokens : 0;
        visit_count(task->visit, event, first);
    }
    stream->charged += event->n_tokens;
    if (serve_limits_charge(&task->visit->key->limits, (int64_t)tokens, uv_now(&task->serve->loop)))
        return true;
    budget_error(error);
    return false;
}
