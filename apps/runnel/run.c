/* runnel run: an answer (several: answers.c), streamed to standard output as text or as a JSON object per line. The
 * text is exact: a newline is added behind it on a terminal only. */
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common.h"
#include "runnel_infill.h"

static bool on_json(void *user, const runnel_event *event)
{
    const struct app_options *options = user;

    app_json_event(event, options->logprobs >= 0);
    return true;
}

static bool on_text(void *user, const runnel_event *event)
{
    const struct app_options *options = user;

    if (event->type == RUNNEL_EVENT_PROGRESS) {
        app_progress(options, "reading", (double)event->prompt_done / (double)event->prompt_total, "");
    } else if (event->type == RUNNEL_EVENT_TOKEN) {
        app_progress_clear();
        app_put_text(stdout, event->text, event->text_bytes);
    }
    return true;
}

/* Text on standard input that nobody has asked for was perhaps meant as the prompt. */
static void hint_unread(const struct app_options *options)
{
    struct stat status;
    int waiting = 0;

    if (options->quiet || options->prompt != NULL || options->file != NULL || fstat(STDIN_FILENO, &status) != 0)
        return;
    if ((S_ISREG(status.st_mode) && lseek(STDIN_FILENO, 0, SEEK_CUR) < status.st_size) ||
        (S_ISFIFO(status.st_mode) && ioctl(STDIN_FILENO, FIONREAD, &waiting) == 0 && waiting > 0))
        app_error("the text on standard input was not read; -f - takes it as the prompt");
}

/* The prompt's text and --suffix as the model's tokens, which are the caller's. An exit code. */
static int fill_gap(struct app *app, const struct app_text *text, runnel_request *request, int32_t **tokens)
{
    runnel_infill infill;
    runnel_error error = {0};
    size_t n = 0;

    runnel_infill_default(&infill);
    infill.prefix = text->size > 0 ? text->bytes : NULL;
    infill.prefix_bytes = text->size;
    infill.suffix = app->options->suffix;
    infill.suffix_bytes = strlen(app->options->suffix);
    error.status = runnel_tokenize_infill(app->model, &infill, NULL, 0, &n, &error);
    if (error.status == RUNNEL_OK && (*tokens = calloc(n, sizeof **tokens)) == NULL)
        error.status = RUNNEL_NO_MEMORY;
    if (error.status == RUNNEL_OK)
        error.status = runnel_tokenize_infill(app->model, &infill, *tokens, n, &n, &error);
    request->prompt = NULL;
    request->prompt_bytes = 0;
    request->tokens = *tokens;
    request->n_tokens = n;
    return error.status == RUNNEL_OK ? APP_OK : app_fail(&error);
}

static int answer(struct app *app, const struct app_text *text)
{
    const struct app_options *options = app->options;
    struct app_outcome outcome;
    runnel_request request;
    int32_t *tokens = NULL;
    int code = APP_OK, output = APP_OK;

    app_request(options, &request);
    request.pin_prefix = options->cache_dir != NULL || options->cache_shared != NULL; /* the next run may begin alike */
    request.prompt = text->size > 0 ? text->bytes : NULL;
    request.prompt_bytes = text->size;
    request.tokens = options->tokens;
    request.n_tokens = options->n_tokens;
    request.want_progress = 1;
    if (options->suffix != NULL && (code = fill_gap(app, text, &request, &tokens)) != APP_OK) {
        free(tokens);
        return code;
    }
    if (options->n_answers > 1 || options->best_of > (options->json ? 0 : 1))
        code = app_answers(app, &request, &outcome);
    else
        code = app_stream(app, &request, options->json ? on_json : on_text, (void *)options, &outcome);
    if (outcome.type != 0 && !options->json && isatty(STDOUT_FILENO))
        fputc('\n', stdout);
    free(tokens);
    output = app_output_code();
    if (outcome.type != 0)
        app_figures(options, &outcome);
    return app_worse(code, output);
}

int app_run(const struct app_options *options)
{
    struct app app = {0};
    struct app_text text = {0};
    int code = APP_OK;

    if (options->logprobs >= 0 && !options->json) {
        app_error("--logprobs needs --json");
        return APP_USAGE;
    }
    if (options->best_of > 0 && options->best_of < options->n_answers) {
        app_error("--best-of must be at least --n");
        return APP_USAGE;
    }
    code = app_read_prompt(options, &text);
    if (code != APP_OK)
        return code;
    if (options->suffix != NULL && options->n_tokens > 0) {
        app_error("--suffix needs a prompt that is a text, not --tokens");
        free(text.bytes);
        return APP_USAGE;
    }
    if ((text.size > 0) == (options->n_tokens > 0) && options->suffix == NULL) {
        app_error(text.size > 0 ? "--tokens replaces the text: give one of them"
                                : "the prompt is empty: give a text with -p or -f, or --tokens");
        hint_unread(options);
        free(text.bytes);
        return APP_USAGE;
    }
    code = app_open(&app, options, false);
    if (code == APP_OK)
        code = answer(&app, &text);
    hint_unread(options);
    app_close(&app);
    free(text.bytes);
    return code;
}
