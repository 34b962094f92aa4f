/* runnel template: the text that a chat template makes of a context, exactly as it is; or what templates know. */
#include <stdlib.h>
#include <string.h>

#include "common.h"

/* Text that the library writes in two calls: one measures. */
typedef runnel_status (*render_fn)(void *user, char *text, size_t capacity, size_t *n, runnel_error *error);

/* path: where the template is from. */
static int print_rendered(const char *path, render_fn render, void *user)
{
    runnel_error error = {0};
    char *text = NULL;
    size_t n = 0;

    error.status = render(user, NULL, 0, &n, &error);
    if (error.status == RUNNEL_OK) {
        text = malloc(n + 1);
        if (text == NULL) {
            app_error("not enough memory");
            return APP_FAILURE;
        }
        error.status = render(user, text, n, &n, &error);
    }
    if (error.status == RUNNEL_OK)
        app_put_text(stdout, text, n);
    free(text);
    if (strncmp(error.message, "variables: ", 11) == 0) { /* what this program calls by another name */
        app_error("--context: %s", error.message + 11);
        return APP_USAGE;
    }
    if (error.status == RUNNEL_FORMAT)
        app_error("%s: %s", path, error.message);
    else if (error.status != RUNNEL_OK)
        return app_fail(&error);
    return error.status == RUNNEL_OK ? app_output_code() : APP_FAILURE;
}

struct by_file {
    struct app_text source, context;
    int64_t now_s;
};

static runnel_status render_file(void *user, char *text, size_t capacity, size_t *n, runnel_error *error)
{
    struct by_file *f = user;

    return runnel_render_template(f->source.bytes, f->source.size, f->context.bytes, f->context.size, f->now_s, text,
                                  capacity, n, error);
}

struct by_model {
    runnel_model *model;
    runnel_chat chat;
};

static runnel_status render_model(void *user, char *text, size_t capacity, size_t *n, runnel_error *error)
{
    struct by_model *m = user;

    return runnel_apply_template(m->model, &m->chat, text, capacity, n, error);
}

/* The context's members are the variables: they take the place of the (empty) messages. */
static int with_model(const struct app_options *options, const struct app_text *context)
{
    struct app app = {0};
    struct by_model m = {0};
    int code = app_open(&app, options, true);

    if (code == APP_OK) {
        runnel_chat_default(&m.chat);
        m.model = app.model;
        m.chat.no_generation_prompt = 1;
        m.chat.variables = context->bytes;
        m.chat.template_name = options->template_name;
        m.chat.now_s = options->now_s;
        code = print_rendered(options->operands[0], render_model, &m);
    }
    app_close(&app);
    return code;
}

/* ---- What templates know ----------------------------------------------------------------- */

static int show_model(const char *path, bool json)
{
    runnel_file *file = NULL;
    runnel_error error = {0};
    uint32_t n;

    error.status = runnel_file_open(path, &file, &error);
    if (error.status != RUNNEL_OK)
        return app_fail(&error);
    if (json)
        fputc('[', stdout);
    n = app_templates_print(file, json);
    if (json)
        puts("]");
    else if (n == 0)
        puts("no chat template");
    runnel_file_close(file);
    return app_output_code();
}

static int show_file(const char *path, bool json)
{
    runnel_template_info info = {.struct_size = sizeof info};
    runnel_error error = {0};
    struct app_text source = {0};

    if (!app_read_file(path, &source))
        return APP_FAILURE;
    error.status = runnel_inspect_template(source.bytes, source.size, &info, &error);
    free(source.bytes);
    if (error.status != RUNNEL_OK && error.status != RUNNEL_FORMAT)
        return app_fail(&error);
    fputs(json ? "[" : "", stdout);
    app_template_print(&info, &error, json);
    fputs(json ? "]\n" : "", stdout);
    return error.status == RUNNEL_OK ? app_output_code() : APP_FAILURE;
}

int app_template(const struct app_options *options)
{
    struct by_file f = {.now_s = options->now_s};
    int code = APP_FAILURE;

    if ((options->file != NULL) == (options->n_operands > 0)) {
        app_error("give a model, or a template with --file");
        return APP_USAGE;
    }
    if (options->show && options->context_file == NULL)
        return options->n_operands > 0 ? show_model(options->operands[0], options->json)
                                       : show_file(options->file, options->json);
    if (options->show || options->json) {
        app_error("--show tells what templates know, --json has it as JSON: without --context");
        return APP_USAGE;
    }
    if (options->context_file == NULL) {
        app_error("give a file with the context with --context; - is standard input");
        return APP_USAGE;
    }
    if (!app_read_file(options->context_file, &f.context))
        return APP_FAILURE;
    if (options->n_operands > 0)
        code = with_model(options, &f.context);
    else if (app_read_file(options->file, &f.source))
        code = print_rendered(options->file, render_file, &f);
    free(f.source.bytes);
    free(f.context.bytes);
    return code;
}
