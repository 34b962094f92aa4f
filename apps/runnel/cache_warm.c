/* runnel cache warm: computes the prompts of a file once, so that the tiers that last have them when they are wanted.
 *
 * A line is a prompt, or an object {"prompt": ..}; empty lines are left out. Each is computed alone, without an answer,
 * and pinned, which brings it into these tiers at once; what is still on its way there is written before the model is
 * freed. That a tier has not taken all of it is a failure: whoever runs this wants the prompts there. Where blocks
 * could not be moved (a record was damaged, a disk full), the prompts are asked for a second time: what is there now is
 * found, and a fault that has been mended does not come again. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "common.h"
#include "runnel_files.h"

struct warm {
    struct app app;
    const struct app_options *options;
    uint64_t prompts, tokens, cached, failed;
    uint64_t blocks; /* whole ones that were computed, and are to be kept */
    uint64_t lost;   /* blocks that could not be moved, this time */
    bool again;      /* it looks whether all is there: the first fault ends it */
    bool nothing;    /* a tier has taken none */
};

static bool on_event(void *user, const runnel_event *event)
{
    (void)user;
    (void)event;
    return true;
}

/* Computes one prompt. An exit code; a prompt that is refused is counted and not the end. */
static int compute(struct warm *warm, uint64_t line, const char *prompt, size_t n)
{
    const uint64_t per_block = warm->app.info.block_tokens;
    struct app_outcome outcome = {0};
    runnel_request request;
    int code;

    runnel_request_default(&request);
    request.prompt = prompt;
    request.prompt_bytes = n;
    request.max_tokens = 0;
    request.pin_prefix = 1;
    request.cache_salt = warm->options->salt.value;
    request.adapter = app_adapter(warm->options);
    code = app_stream(&warm->app, &request, on_event, NULL, &outcome);
    if (code == APP_CANCELLED)
        return code;
    warm->prompts++;
    warm->tokens += outcome.usage.prompt_tokens;
    warm->cached += outcome.usage.cached_tokens;
    if (outcome.usage.prompt_tokens > 0)
        warm->blocks += (outcome.usage.prompt_tokens - 1) / per_block - outcome.usage.cached_tokens / per_block;
    if (code == APP_OK)
        return code;
    if (!warm->again)
        app_error("line %" PRIu64 ": not computed", line);
    warm->failed++;
    return APP_OK;
}

static int compute_line(struct warm *warm, uint64_t number, const char *line, size_t n)
{
    json_error_t error;
    json_t *object, *prompt;
    int code = APP_OK;

    if (line[0] != '{')
        return compute(warm, number, line, n);
    object = json_loadb(line, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    prompt = json_object_get(object, "prompt");
    if (json_is_string(prompt)) {
        code = compute(warm, number, json_string_value(prompt), json_string_length(prompt));
    } else if (!warm->again) {
        app_error("line %" PRIu64 ": %s", number, object == NULL ? error.text : "there is no text \"prompt\" in it");
        warm->failed++;
    }
    json_decref(object);
    return code;
}

/* Whether it is known that the second time ends as the first. */
static bool is_lost(const struct warm *warm)
{
    runnel_metrics now = {.struct_size = sizeof now};

    return warm->again && runnel_engine_metrics(warm->app.engine, &now) == RUNNEL_OK && now.cache_errors > 0;
}

static int compute_all(struct warm *warm, const struct app_text *text)
{
    const char *end = text->bytes + text->size, *next;
    uint64_t number = 1;
    int code = APP_OK;

    for (const char *at = text->bytes; at < end && code == APP_OK && !is_lost(warm); at = next + 1, number++) {
        size_t n;

        next = memchr(at, '\n', (size_t)(end - at));
        next = next != NULL ? next : end;
        n = (size_t)(next - at);
        n -= n > 0 && at[n - 1] == '\r';
        app_progress(warm->options, "computing", (double)(at - text->bytes) / (double)text->size, "");
        if (n > 0)
            code = compute_line(warm, number, at, n);
    }
    app_progress_clear();
    return code;
}

/* Frees the model, waits until it has gone, and with it what it was to write, and looks what has become of that. */
static void finish(struct warm *warm)
{
    const struct app_options *options = warm->options;
    runnel_engine_stats stats = {.struct_size = sizeof stats};
    runnel_metrics now = {.struct_size = sizeof now};
    bool took = true;

    app_telemetry_metrics(warm->app.engine);
    runnel_model_free(warm->app.model);
    warm->app.model = NULL;
    while (runnel_engine_get_stats(warm->app.engine, &stats) == RUNNEL_OK && stats.models > 0)
        runnel_engine_wait(warm->app.engine, 2);
    if (runnel_engine_metrics(warm->app.engine, &now) != RUNNEL_OK)
        return;
    took = (options->cache_dir == NULL || now.cold_bytes_in > 0) &&
           (options->cache_shared == NULL || now.shared_bytes_in > 0);
    warm->lost = now.cache_errors;
    warm->nothing = warm->blocks > 0 && !took && now.cache_skipped == 0; /* skipped: they were there already */
}

/* Whether all that was computed is kept. False after a message. */
static bool judge(const struct warm *warm)
{
    if (warm->lost > 0)
        app_error("%" PRIu64 " block%s could not be moved to the tiers or from there: not all is kept", warm->lost,
                  app_plural(warm->lost));
    else if (warm->nothing)
        app_error("a tier has taken nothing: it is not kept there");
    return warm->lost == 0 && !warm->nothing;
}

/* What was computed, and what the folder holds when all has been written; or that not all was computed. */
static int report(const struct warm *warm, bool cancelled)
{
    runnel_cache_totals kept = {.struct_size = sizeof kept};
    runnel_error error = {0};

    if (!cancelled && warm->options->cache_dir != NULL &&
        runnel_cache_ls(warm->options->cache_dir, NULL, NULL, &kept, &error) != RUNNEL_OK)
        return app_fail(&error);
    if (warm->options->json)
        printf("{\"prompts\":%" PRIu64 ",\"tokens\":%" PRIu64 ",\"cached_tokens\":%" PRIu64 ",\"failed\":%" PRIu64,
               warm->prompts, warm->tokens, warm->cached, warm->failed);
    else
        printf("%" PRIu64 " prompts, %" PRIu64 " tokens, %" PRIu64 " of them computed before; %" PRIu64 " failed",
               warm->prompts, warm->tokens, warm->cached, warm->failed);
    if (cancelled)
        fputs(warm->options->json ? ",\"cancelled\":true" : "; cancelled", stdout);
    else if (warm->options->cache_dir != NULL)
        printf(warm->options->json ? ",\"records\":%" PRIu64 : "; %" PRIu64 " records in the folder", kept.records);
    puts(warm->options->json ? "}" : "");
    return app_output_code();
}

/* Computes the prompts with a model of their own. An exit code. */
static int compute_once(struct warm *warm, const struct app_text *text)
{
    static struct app_options model; /* large: a thousand biases */
    int code;

    model = *warm->options;
    model.operands[0] = warm->options->operands[1];
    code = app_open(&warm->app, &model, false);
    if (code == APP_OK)
        code = compute_all(warm, text);
    if (code == APP_OK)
        finish(warm);
    app_close(&warm->app);
    return code;
}

/* Whether what was computed is there, after faults on its way. */
static int look_again(struct warm *warm, const struct app_text *text)
{
    struct warm second = {.options = warm->options, .again = true};
    int code = compute_once(&second, text);

    warm->lost = second.lost;
    warm->nothing = second.nothing;
    return code;
}

int app_cache_warm(const struct app_options *options)
{
    struct warm warm = {.options = options};
    struct app_text text = {0};
    int code;

    if (options->cache_dir == NULL && options->cache_shared == NULL) {
        app_error("warm needs --cache-dir or --cache-shared: where what it computes shall be kept");
        return APP_USAGE;
    }
    if (!app_read_file(options->operands[2], &text))
        return APP_FAILURE;
    code = compute_once(&warm, &text);
    if (code == APP_OK && warm.lost > 0)
        code = look_again(&warm, &text);
    free(text.bytes);
    if (code == APP_OK || code == APP_CANCELLED)
        code = app_worse(code, report(&warm, code == APP_CANCELLED));
    return code == APP_OK && (!judge(&warm) || warm.failed > 0) ? APP_FAILURE : code;
}
