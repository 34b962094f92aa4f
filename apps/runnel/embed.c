/* runnel embed: texts become vectors. A line for each text, its numbers parted by blanks; with --json one object in the
 * form of OpenAI's /v1/embeddings. */
#include <stdlib.h>
#include <string.h>

#include "common.h"

struct embedder {
    struct app app;
    uint64_t n, tokens;                /* texts so far, and their tokens */
    char why[RUNNEL_ERROR_BYTES + 32]; /* a text has failed */
};

static runnel_pooling pooling_of(const char *name)
{
    static const char *const names[] = {NULL, "mean", "first", "last"};

    for (int i = 1; name != NULL && i < 4; i++)
        if (strcmp(name, names[i]) == 0) /* the table has checked it */
            return (runnel_pooling)i;
    return RUNNEL_POOLING_DEFAULT;
}

static void print_vector(const struct embedder *e, const runnel_event *event)
{
    bool json = e->app.options->json;

    if (json)
        printf("%s{\"object\":\"embedding\",\"index\":%llu,\"embedding\":[", e->n > 0 ? "," : "",
               (unsigned long long)e->n);
    for (uint32_t i = 0; i < event->n_embedding; i++) /* nine digits are the float itself */
        printf("%s%.9g", i == 0 ? "" : json ? "," : " ", (double)event->embedding[i]);
    fputs(json ? "]}" : "\n", stdout);
}

static int fail(struct embedder *e, const char *error)
{
    snprintf(e->why, sizeof e->why, "text %llu: %s", (unsigned long long)e->n + 1, error);
    app_error("%s", e->why);
    return APP_FAILURE;
}

/* Until the stream has ended. A signal, or a reader of standard output that has gone, cancels it; a vector that has
 * come is printed. */
static int follow(struct embedder *e, runnel_stream stream)
{
    runnel_event event = {.type = RUNNEL_EVENT_TOKEN};

    while (event.type < RUNNEL_EVENT_DONE) {
        runnel_status status = runnel_stream_next(e->app.engine, stream, APP_TICK_MS, &event);

        if (status == RUNNEL_OK && event.type == RUNNEL_EVENT_EMBEDDING)
            print_vector(e, &event);
        if (app_interrupted() || !app_flush())
            runnel_stream_cancel(e->app.engine, stream);
    }
    if (event.type == RUNNEL_EVENT_FAILED)
        return fail(e, event.error);
    e->tokens += event.usage.prompt_tokens;
    return event.type == RUNNEL_EVENT_DONE ? APP_OK : APP_CANCELLED;
}

static int embed(struct embedder *e, const char *text, size_t n)
{
    const struct app_options *options = e->app.options;
    runnel_embed_request request;
    runnel_stream stream;
    runnel_error error = {0};
    int code = APP_OK;

    if (app_interrupted())
        return APP_CANCELLED;
    runnel_embed_request_default(&request);
    request.text = text;
    request.text_bytes = n;
    request.parse_special = options->special;
    request.pooling = pooling_of(options->pooling);
    request.dimensions = (uint32_t)options->dimensions;
    request.raw = options->raw;
    request.adapter = app_adapter(options);
    if (runnel_embed(e->app.model, &request, &stream, &error) != RUNNEL_OK)
        return fail(e, error.message);
    code = follow(e, stream);
    e->n++;
    return code;
}

/* The lines of a file that are not empty. */
static int embed_lines(struct embedder *e, const struct app_text *text)
{
    const char *at = text->bytes, *end = text->bytes + text->size;
    int code = APP_OK;

    while (at < end && code == APP_OK) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t n = (size_t)((stop != NULL ? stop : end) - at);

        if (n > 0 && at[n - 1] == '\r')
            n--;
        if (n > 0)
            code = embed(e, at, n);
        at = stop != NULL ? stop + 1 : end;
    }
    return code;
}

static int embed_all(struct embedder *e, const struct app_text *file)
{
    const struct app_options *options = e->app.options;
    int code = APP_OK;

    if (options->json)
        fputs("{\"object\":\"list\",\"data\":[", stdout);
    for (int i = 1; i < options->n_operands && code == APP_OK; i++)
        code = embed(e, options->operands[i], strlen(options->operands[i]));
    if (code == APP_OK)
        code = embed_lines(e, file);
    if (options->json && code != APP_OK) { /* whole all the same, and no list that could be taken for one */
        const char *why = e->why[0] != '\0' ? e->why : "cancelled";

        fputs("],\"error\":{\"message\":", stdout);
        app_json_string(stdout, why, strlen(why));
        fputs("}}\n", stdout);
    } else if (options->json) {
        fputs("],\"model\":", stdout);
        app_json_string(stdout, options->operands[0], strlen(options->operands[0]));
        printf(",\"usage\":{\"prompt_tokens\":%llu,\"total_tokens\":%llu}}\n", (unsigned long long)e->tokens,
               (unsigned long long)e->tokens);
    }
    return code;
}

int app_embed(const struct app_options *options)
{
    struct embedder e = {.n = 0};
    struct app_text file = {0};
    int code = APP_OK;

    if (options->n_operands < 2 && options->file == NULL) {
        app_error("give texts behind the model, or a file of lines with -f");
        return APP_USAGE;
    }
    if (options->file != NULL && !app_read_file(options->file, &file))
        return APP_FAILURE;
    code = app_open(&e.app, options, false);
    if (code == APP_OK) {
        code = embed_all(&e, &file);
        code = app_worse(code, app_output_code());
    }
    app_close(&e.app);
    free(file.bytes);
    return code;
}
