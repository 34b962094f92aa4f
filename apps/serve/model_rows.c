/* Rows of architectures that models of a server need: see served_models.h. An engine takes them when it begins. */
#include <stdlib.h>
#include <string.h>

#include "serve.h"

static bool is_known(const struct serve *serve, const char *text)
{
    for (size_t i = 0; i < serve->n_rows; i++)
        if (strcmp(serve->rows[i], text) == 0)
            return true;
    return false;
}

static bool keep(struct serve *serve, const char *text)
{
    char **grown = NULL;

    if (text == NULL || is_known(serve, text))
        return true;
    grown = realloc(serve->rows, (serve->n_rows + 1) * sizeof *grown);
    if (grown == NULL)
        return false;
    serve->rows = grown;
    grown[serve->n_rows] = strdup(text);
    return grown[serve->n_rows++] != NULL;
}

/* Of the program's option first, then of each model. */
static bool collect(struct serve *serve)
{
    bool good = keep(serve, serve->options->architecture);

    for (size_t i = 0; good && i < serve->models.n; i++)
        good = keep(serve, serve->models.at[i]->options.architecture);
    return good;
}

int serve_open_engine(struct serve *serve, runnel_engine_options *options)
{
    struct app_architecture *made = NULL;
    const runnel_architecture_row **rows = NULL;
    bool collected = collect(serve);
    int code = APP_OK;
    size_t n = 0;

    made = collected ? calloc(serve->n_rows + 1, sizeof *made) : NULL;
    rows = made != NULL ? calloc(serve->n_rows + 1, sizeof(*rows)) : NULL;
    if (rows == NULL) {
        app_error("not enough memory");
        code = APP_FAILURE;
    }
    for (; code == APP_OK && n < serve->n_rows; n++) {
        if (!app_architecture_read(serve->rows[n], &made[n]))
            code = APP_USAGE;
        rows[n] = &made[n].row;
    }
    options->architectures = rows;
    options->n_architectures = n;
    if (code == APP_OK)
        code = app_engine_open(&serve->app, serve->options, options);
    free(rows);
    free(made);
    return code;
}

bool serve_has_rows(const struct serve *serve, const struct serve_models *list, char sentence[512])
{
    for (size_t i = 0; i < list->n; i++) {
        const char *text = list->at[i]->options.architecture;

        if (text == NULL || is_known(serve, text))
            continue;
        snprintf(sentence, 512, "model %.100s: a new architecture (%.100s) is known from the next start on",
                 list->at[i]->name, text);
        return false;
    }
    return true;
}

void serve_rows_fini(struct serve *serve)
{
    for (size_t i = 0; i < serve->n_rows; i++)
        free(serve->rows[i]);
    free(serve->rows);
    serve->rows = NULL;
    serve->n_rows = 0;
}
