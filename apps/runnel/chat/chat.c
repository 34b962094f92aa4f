/* runnel chat: turns on a line editor, answers from one session.
 *
 * The conversation is kept as messages in OpenAI's form; each turn hands all of it to the engine, which renders it with
 * the model's template and computes only what the session does not hold yet. What the user types can never become a
 * control token. A model without a template gets a plain one (User:, Assistant:). When the answer calls tools, the next
 * lines that are typed are their results. */
#include "chat.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Text that fits the terminal --------------------------------------------------------- */

size_t chat_columns(void)
{
    return app_columns();
}

void chat_wrap(FILE *to, size_t indent, size_t at, const char *text)
{
    size_t columns = app_columns(), column = at;

    for (bool first = true; *text != '\0'; first = false) {
        size_t n = strcspn(text, " ");

        if (!first && column + 1 + n >= columns) {
            fprintf(to, "\n%*s", (int)indent, "");
            column = indent;
        } else if (!first) {
            fputc(' ', to);
            column++;
        }
        fwrite(text, 1, n, to);
        column += n;
        text += n;
        text += strspn(text, " ");
    }
    fputc('\n', to);
}

/* ---- Lines ------------------------------------------------------------------------------- */

static void greet(const struct chat *chat)
{
    const char *path = chat->options.operands[0], *slash = strrchr(path, '/');
    char text[512], sampling[256];

    if (!chat_on_terminal(chat) || chat->options.quiet)
        return;
    snprintf(text, sizeof text, "%s; /help tells what else can be typed", slash != NULL ? slash + 1 : path);
    chat_wrap(stderr, 0, 0, text);
    chat_print_sampling(chat, sampling, sizeof sampling);
    snprintf(text, sizeof text, "sampling: %s", sampling);
    chat_wrap(stderr, 0, 0, text);
}

static int converse(struct chat *chat)
{
    const char *line = NULL;
    size_t n = 0;
    int code = APP_OK, failed = APP_OK;

    greet(chat);
    for (;;) {
        bool command = false;

        app_signals_disarm();
        line = chat_read_turn(chat, &n, &command);
        app_signals_arm();
        if (line == NULL || app_hung_up())
            break;
        if (n == 0)
            continue;
        if (command) {
            if (!chat_command(chat, line, n, &failed))
                break;
        } else {
            code = chat_turn(chat, line, n);
            if (code != APP_OK && code != APP_CANCELLED)
                failed = code;
        }
        if (app_output_code() != APP_OK)
            return app_output_code();
        if (app_hung_up())
            return APP_CANCELLED;
    }
    if (chat_on_terminal(chat))
        fputc('\n', stderr);
    if (chat->unfinished)
        failed = APP_FAILURE;
    return chat_on_terminal(chat) ? APP_OK : failed;
}

/* ---- The template ------------------------------------------------------------------------ */

void chat_warn_system(const struct chat *chat)
{
    if (chat->options.system != NULL && !chat->options.quiet &&
        (chat->template_info.knows & RUNNEL_TEMPLATE_SYSTEM) == 0)
        app_error("warning: the chat template leaves out what a system message says");
}

/* What the model's template of the name knows; a model that has none keeps nothing. */
static void find_info(struct chat *chat)
{
    const char *name = chat->options.template_name;
    runnel_template_info info = {.struct_size = sizeof info};

    for (uint32_t i = 0; runnel_model_template(chat->app.model, i, &info, NULL) != RUNNEL_NOT_FOUND; i++) {
        bool tool_use = name == NULL && chat->tools.bytes != NULL && strcmp(info.name, "tool_use") == 0;

        if (tool_use || (name != NULL ? strcmp(info.name, name) == 0 : info.name[0] == '\0'))
            chat->template_info = info;
        if (tool_use)
            return;
    }
}

static int inspect_template(struct chat *chat)
{
    const char *path = chat->options.template_file;
    runnel_error error = {0};

    error.status =
        runnel_inspect_template(chat->template_text.bytes, chat->template_text.size, &chat->template_info, &error);
    if (error.status == RUNNEL_OK)
        return APP_OK;
    app_error("%s: %s", path, error.message);
    return APP_FAILURE;
}

/* The model's own, or, where it has none, a plain one. */
static int take_template(struct chat *chat)
{
    const struct app_options *options = &chat->options;
    runnel_chat c;
    runnel_error error = {0};
    size_t n = 0;

    runnel_chat_default(&c);
    c.messages_json = "[]";
    c.template_name = options->template_name;
    error.status = runnel_apply_template(chat->app.model, &c, NULL, 0, &n, &error);
    if (error.status == RUNNEL_FORMAT || (error.status == RUNNEL_NOT_FOUND && options->template_name != NULL))
        return app_fail(&error);
    chat->plain = error.status == RUNNEL_NOT_FOUND;
    find_info(chat);
    if (!chat->plain)
        return APP_OK;
    chat->template_info.knows = RUNNEL_TEMPLATE_SYSTEM;
    if (options->n_stops == RUNNEL_MAX_STOPS) {
        app_error("--stop: at most %d times here, for the turns need one", RUNNEL_MAX_STOPS - 1);
        return APP_USAGE;
    }
    if (!options->quiet)
        app_error("the model brings no chat template: plain User:/Assistant: turns");
    return APP_OK;
}

static int choose_template(struct chat *chat)
{
    int code;

    chat->template_info.struct_size = sizeof chat->template_info;
    code = chat->options.template_file != NULL ? inspect_template(chat) : take_template(chat);
    if (code != APP_OK)
        return code;
    chat_warn_system(chat);
    if (chat->tools.bytes != NULL && !chat->options.quiet && (chat->template_info.knows & RUNNEL_TEMPLATE_TOOLS) == 0)
        app_error("warning: the chat template leaves out the tools");
    return APP_OK;
}

/* ---- The whole --------------------------------------------------------------------------- */

/* Whether a conversation can be kept there: told before one is had. *there: it has one. */
static bool look_at_session_file(const char *path, bool *there)
{
    char *target = app_target(path);
    size_t n = target != NULL ? strlen(target) : 0;
    bool good = false;

    errno = ENOENT;
    *there = access(path, F_OK) == 0;
    good = (*there || errno == ENOENT) && n > 0 && target[n - 1] != '/' && app_can_make(target);
    if (!good)
        app_error("--session %s: nothing can be written there: %s", path, strerror(errno));
    free(target);
    return good;
}

static int open_session(struct chat *chat, bool there)
{
    const char *given = chat->options.system, *kept;
    int code = chat_new(chat);

    if (code == APP_OK && there)
        code = chat_load(chat, chat->options.session_file);
    kept = chat->options.system;
    if (code == APP_OK && given != NULL && (kept == NULL || strcmp(kept, given) != 0) && !chat->options.quiet)
        app_error("warning: --system is not used: the conversation in %s has %s system message; /system sets another",
                  chat->options.session_file, kept != NULL ? "its own" : "no");
    return code;
}

/* Between a session that is open and one that is closed. */
static int talk(struct chat *chat)
{
    const char *path = chat->options.session_file;
    int code;

    if (!chat_input_open(chat))
        return APP_FAILURE;
    if (path != NULL || chat_on_terminal(chat))
        app_hangup_arm(); /* the terminal is left as it was found, and the conversation saved */
    code = converse(chat);
    if (path != NULL || chat_on_terminal(chat))
        app_hangup_disarm();
    app_signals_arm();
    return path != NULL ? app_worse(code, chat_save(chat, path)) : code;
}

static void close_chat(struct chat *chat)
{
    chat_input_close(chat);
    chat_close_sessions(chat);
    chat_answer_close(&chat->answer);
    chat_talk_fini(&chat->talk);
    app_close(&chat->app);
    free(chat->tools.bytes);
    free(chat->template_text.bytes);
    free(chat->system);
    free(chat->pending);
}

int app_chat(const struct app_options *options)
{
    static struct chat chat; /* one at a time; large, with its copy of the options */
    bool there = false;
    int code = APP_OK;

    chat = (struct chat){.options = *options};
    if (options->session_file != NULL && !look_at_session_file(options->session_file, &there))
        return APP_FAILURE;
    if ((options->tools_file != NULL && !app_read_file(options->tools_file, &chat.tools)) ||
        (options->template_file != NULL && !app_read_file(options->template_file, &chat.template_text)))
        return APP_FAILURE;
    code = app_open(&chat.app, &chat.options, false);
    if (code == APP_OK)
        code = choose_template(&chat);
    if (code == APP_OK && !chat_check_keep(&chat, "--context-keep", options->context_keep))
        code = APP_USAGE;
    if (code == APP_OK) {
        chat_choose_sampling(&chat);
        code = open_session(&chat, there);
    }
    if (code == APP_OK)
        code = talk(&chat);
    close_chat(&chat);
    if (options->session_file == NULL)
        app_hangup_raise();
    return code;
}
