/* Log and trace: see log.h. */
#include "log.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct node_log {
    pthread_mutex_t lock; /* of the two below: after the environment's end the function must not be called any more */
    napi_threadsafe_function call;
    bool open;
};

/* What was said. Strings lie behind it. */
struct said {
    bool is_span;
    runnel_log_level level;
    runnel_trace_event span;
    char *name, *model, *messages, *label; /* a line is in `name` */
};

static void on_call(napi_env env, napi_value function, void *context, void *data);

struct node_log *log_new(napi_env env, napi_value function)
{
    struct node_log *log = calloc(1, sizeof *log);
    napi_value name;

    if (log == NULL || napi_create_string_latin1(env, "runnel log", NAPI_AUTO_LENGTH, &name) != napi_ok ||
        napi_create_threadsafe_function(env, function, NULL, name, 0, 1, NULL, NULL, NULL, on_call, &log->call) !=
            napi_ok) {
        free(log);
        addon_fail(env, RUNNEL_INVALID, "onLog and onTrace must be functions");
        return NULL;
    }
    napi_unref_threadsafe_function(env, log->call);
    pthread_mutex_init(&log->lock, NULL);
    log->open = true;
    return log;
}

void log_free(struct node_log *log)
{
    if (log == NULL)
        return;
    if (log->open)
        napi_release_threadsafe_function(log->call, napi_tsfn_release);
    pthread_mutex_destroy(&log->lock);
    free(log);
}

static void send(struct node_log *log, struct said *said)
{
    napi_status status = napi_closing;

    if (said == NULL)
        return;
    pthread_mutex_lock(&log->lock);
    if (log->open)
        status = napi_call_threadsafe_function(log->call, said, napi_tsfn_nonblocking);
    log->open = log->open && status != napi_closing;
    pthread_mutex_unlock(&log->lock);
    if (status != napi_ok)
        free(said);
}

static char *append(char **end, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *at = memcpy(*end, text, bytes);

    *end += bytes;
    return at;
}

static struct said *say(const char *name, const char *model, const char *messages, const char *label)
{
    struct said *said = calloc(1, sizeof *said + strlen(name) + strlen(model) + strlen(messages) + strlen(label) + 4);
    char *end = said != NULL ? (char *)(said + 1) : NULL;

    if (said == NULL)
        return NULL;
    said->name = append(&end, name);
    said->model = append(&end, model);
    said->messages = append(&end, messages);
    said->label = append(&end, label);
    return said;
}

void log_line(void *user, runnel_log_level level, const char *line)
{
    struct said *said = say(line, "", "", "");

    if (said != NULL)
        said->level = level;
    send(user, said);
}

void log_span(void *user, const runnel_trace_event *event)
{
    struct said *said = say(event->name, event->model, event->messages, event->label);

    if (said != NULL) {
        said->is_span = true;
        said->span = *event;
    }
    send(user, said);
}

static napi_value span_value(napi_env env, const struct said *said)
{
    static const char *const kinds[] = {"actor", "step", "request"};
    const runnel_trace_event *span = &said->span;
    napi_value object, id;

    if (napi_create_object(env, &object) != napi_ok || napi_create_bigint_uint64(env, span->stream, &id) != napi_ok)
        return NULL;
    addon_set(env, object, "kind", addon_string(env, kinds[span->kind], strlen(kinds[span->kind])));
    addon_set(env, object, "track", addon_number(env, span->track));
    addon_set(env, object, "name", addon_string(env, said->name, strlen(said->name)));
    addon_set(env, object, "model", addon_string(env, said->model, strlen(said->model)));
    addon_set(env, object, "messages", addon_string(env, said->messages, strlen(said->messages)));
    addon_set(env, object, "label", addon_string(env, said->label, strlen(said->label)));
    addon_set(env, object, "beginNs", addon_count(env, span->begin_ns));
    addon_set(env, object, "endNs", addon_count(env, span->end_ns));
    addon_set(env, object, "stream", id);
    addon_set(env, object, "rows", addon_number(env, span->rows));
    addon_set(env, object, "sequences", addon_number(env, span->sequences));
    addon_set(env, object, "promptTokens", addon_number(env, span->prompt_tokens));
    addon_set(env, object, "tokens", addon_number(env, span->tokens));
    return object;
}

/* On the environment's thread; env is NULL where it ends. */
static void on_call(napi_env env, napi_value function, void *context, void *data)
{
    struct said *said = data;
    napi_value arguments[2], result;

    (void)context;
    if (env != NULL && said->is_span) {
        arguments[0] = span_value(env, said);
        if (arguments[0] != NULL)
            napi_call_function(env, addon_undefined(env), function, 1, arguments, &result);
    } else if (env != NULL) {
        arguments[0] = addon_number(env, said->level);
        arguments[1] = addon_string(env, said->name, strlen(said->name));
        napi_call_function(env, addon_undefined(env), function, 2, arguments, &result);
    }
    if (env != NULL)
        addon_uncaught(env);
    free(said);
}
