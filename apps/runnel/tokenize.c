/* runnel tokenize: a text's tokens, one per line, or only their ids. */
#include <stdlib.h>

#include "common.h"

static int print_token(struct app *app, int32_t id)
{
    char small[256];
    char *piece = small;
    size_t n = 0;
    runnel_error error = {0};

    error.status = runnel_detokenize(app->model, &id, 1, 1, small, sizeof small, &n);
    if (error.status == RUNNEL_OK && n > sizeof small) {
        piece = malloc(n);
        error.status = piece != NULL ? runnel_detokenize(app->model, &id, 1, 1, piece, n, &n) : RUNNEL_NO_MEMORY;
    }
    if (error.status == RUNNEL_OK) {
        printf("%d\t", (int)id);
        app_escaped(stdout, piece, n, 0);
        fputc('\n', stdout);
    }
    if (piece != small)
        free(piece);
    return error.status == RUNNEL_OK ? APP_OK : app_fail(&error);
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
        code = print_token(&app, ids.ids[i]);
    if (code == APP_OK)
        code = app_output_code();
    app_ids_fini(&ids);
    app_close(&app);
    free(text.bytes);
    return code;
}
