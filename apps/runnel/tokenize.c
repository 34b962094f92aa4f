/* runnel tokenize: a text's tokens, one per line, or only their ids. */
#include <stdlib.h>
#include <unistd.h>

#include "common.h"

/* The text of a token, control tokens by their names; owned. */
static int piece_of(struct app *app, int32_t id, struct app_text *piece)
{
    runnel_error error = {0};
    size_t n = 0;

    error.status = runnel_detokenize(app->model, &id, 1, 1, NULL, 0, &n);
    if (error.status == RUNNEL_OK) {
        piece->bytes = malloc(n + 1);
        error.status = piece->bytes != NULL ? runnel_detokenize(app->model, &id, 1, 1, piece->bytes, n, &piece->size)
                                            : RUNNEL_NO_MEMORY;
    }
    return error.status == RUNNEL_OK ? APP_OK : app_fail(&error);
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

static int print_ids(const struct app_ids *ids)
{
    for (size_t i = 0; i < ids->count; i++)
        printf("%s%d", i > 0 ? " " : "", (int)ids->ids[i]);
    fputc('\n', stdout);
    return APP_OK;
}

int app_tokens(const struct app_options *options)
{
    struct app app = {0};
    struct app_text text = {0};
    struct app_ids ids = {0};
    uint32_t flags = (options->bos ? RUNNEL_TOKENIZE_BOS : 0) | (options->special ? RUNNEL_TOKENIZE_SPECIAL : 0);
    int code = APP_OK;

    if (options->prompt == NULL && options->file == NULL) {
        app_error("give a text with -p or -f");
        return APP_USAGE;
    }
    code = app_read_prompt(options, &text);
    if (code != APP_OK)
        return code;
    code = app_open(&app, options, true);
    if (code == APP_OK)
        code = app_tokenize(&app, text.bytes, text.size, flags, &ids);
    if (code == APP_OK && options->ids)
        code = print_ids(&ids);
    for (size_t i = 0; i < ids.count && code == APP_OK && !options->ids; i++)
        code = options->show ? show_token(&app, ids.ids[i], i) : print_token(&app, ids.ids[i]);
    if (code == APP_OK && options->show)
        fputc('\n', stdout);
    if (code == APP_OK)
        code = app_output_code();
    app_ids_fini(&ids);
    app_close(&app);
    free(text.bytes);
    return code;
}
