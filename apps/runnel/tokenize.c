/* runnel tokenize: a text's tokens, one per line, or only their ids; and the text of ids. */
#include <stdlib.h>
#include <unistd.h>

#include "common.h"

static int fail(runnel_status status)
{
    runnel_error error = {.status = status};

    if (status == RUNNEL_INVALID)
        snprintf(error.message, sizeof error.message, "--tokens: the model's vocabulary has no such id");
    return app_fail(&error);
}

/* The text of tokens, control tokens by their names; owned. */
static int text_of(struct app *app, const int32_t *ids, size_t count, struct app_text *text)
{
    size_t n = 0;
    runnel_status status = runnel_detokenize(app->model, ids, count, 1, NULL, 0, &n);

    if (status == RUNNEL_OK) {
        text->bytes = malloc(n + 1);
        status = text->bytes != NULL ? runnel_detokenize(app->model, ids, count, 1, text->bytes, n, &text->size)
                                     : RUNNEL_NO_MEMORY;
    }
    return status == RUNNEL_OK ? APP_OK : fail(status);
}

/* The bytes of one token within a text, likewise. */
static int piece_of(struct app *app, int32_t id, struct app_text *piece)
{
    size_t n = 0;
    runnel_status status = runnel_token_text(app->model, id, 1, NULL, 0, &n);

    if (status == RUNNEL_OK) {
        piece->bytes = malloc(n + 1);
        status = piece->bytes != NULL ? runnel_token_text(app->model, id, 1, piece->bytes, n, &piece->size)
                                      : RUNNEL_NO_MEMORY;
    }
    return status == RUNNEL_OK ? APP_OK : fail(status);
}

static int print_token(struct app *app, int32_t id)
{
    struct app_text piece = {0};
    int code = piece_of(app, id, &piece);

    if (code != APP_OK)
        return code;
    printf("%d\t", (int)id);
    app_escaped(stdout, piece.bytes, piece.size, 0);
    fputc('\n', stdout);
    free(piece.bytes);
    return APP_OK;
}

/* The text with its tokens in brackets, or on two grounds in turn. */
static int show_token(struct app *app, int32_t id, size_t index)
{
    static const char *const grounds[] = {"\033[44m", "\033[42m"};
    bool colours = app_colours(STDOUT_FILENO);
    struct app_text piece = {0};
    int code = piece_of(app, id, &piece);

    if (code != APP_OK)
        return code;
    fputs(colours ? grounds[index % 2] : "[", stdout);
    app_escaped(stdout, piece.bytes, piece.size, 0);
    fputs(colours ? "\033[0m" : "]", stdout);
    free(piece.bytes);
    return APP_OK;
}

static int print_text(struct app *app, const struct app_ids *ids)
{
    struct app_text text = {0};
    int code = text_of(app, ids->ids, ids->count, &text);

    if (code == APP_OK) {
        app_put_text(stdout, text.bytes, text.size);
        fputc('\n', stdout);
    }
    free(text.bytes);
    return code;
}

static int print_ids(const struct app_ids *ids)
{
    for (size_t i = 0; i < ids->count; i++)
        printf("%s%d", i > 0 ? " " : "", (int)ids->ids[i]);
    fputc('\n', stdout);
    return APP_OK;
}

static int find_ids(struct app *app, const struct app_text *text, struct app_ids *ids)
{
    const struct app_options *options = app->options;
    uint32_t flags = (options->bos ? RUNNEL_TOKENIZE_BOS : 0) | (options->special ? RUNNEL_TOKENIZE_SPECIAL : 0);

    if (options->n_tokens == 0)
        return app_tokenize(app, text->bytes, text->size, flags, ids);
    for (size_t i = 0; i < options->n_tokens; i++)
        if (!app_ids_push(ids, options->tokens[i])) {
            app_error("not enough memory");
            return APP_FAILURE;
        }
    return APP_OK;
}

static int print(struct app *app, const struct app_ids *ids)
{
    const struct app_options *options = app->options;
    int code = APP_OK;

    if (options->ids)
        return print_ids(ids);
    if (options->n_tokens > 0 && !options->show)
        return print_text(app, ids);
    for (size_t i = 0; i < ids->count && code == APP_OK; i++)
        code = options->show ? show_token(app, ids->ids[i], i) : print_token(app, ids->ids[i]);
    if (code == APP_OK && options->show)
        fputc('\n', stdout);
    return code;
}

static bool check_tokens_options(const struct app_options *options)
{
    bool text = options->prompt != NULL || options->file != NULL;

    if (text == (options->n_tokens > 0))
        app_error(text ? "--tokens replaces the text: give one of them" : "give a text with -p or -f, or --tokens");
    else if (!text && (options->bos || options->special || options->ids))
        app_error("--tokens are taken as they are: --bos, --special and --ids are for texts");
    else if (options->ids && options->show)
        app_error("--ids and --show exclude each other");
    else
        return true;
    return false;
}

int app_tokens(const struct app_options *options)
{
    struct app app = {0};
    struct app_text text = {0};
    struct app_ids ids = {0};
    int code = APP_OK;

    if (!check_tokens_options(options))
        return APP_USAGE;
    code = app_read_prompt(options, &text);
    if (code != APP_OK)
        return code;
    code = app_open(&app, options, true);
    if (code == APP_OK)
        code = find_ids(&app, &text, &ids);
    if (code == APP_OK)
        code = print(&app, &ids);
    if (code == APP_OK)
        code = app_output_code();
    app_ids_fini(&ids);
    app_close(&app);
    free(text.bytes);
    return code;
}
