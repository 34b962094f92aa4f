/* runnel chat: turns on a line editor, answers from one session.
 *
 * ChatML                                   plain
 *   <|im_start|>system\n S <|im_end|>\n      S \n\n
 *   <|im_start|>user\n U <|im_end|>\n        User: U \n
 *   <|im_start|>assistant\n  ANSWER          Assistant: ANSWER
 *
 * A turn is submitted as token ids. Only the marks above are read as control tokens: what the user
 * types is tokenized without them, so that it can never close its own turn. The session holds all
 * that went before, the token that ended the last answer included; a turn therefore begins with what
 * is still missing of the last one. A turn that failed has left no trace in the session. */
#include <histedit.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common.h"

struct chat {
    struct app app;
    runnel_session session;
    bool chatml;
    int32_t end_mark;  /* <|im_end|>, or -1 */
    bool begun;        /* the session holds a turn */
    bool answer_ended; /* the session holds the end of the last answer */
    struct app_ids answer;
    /* input */
    EditLine *editor; /* NULL: standard input is no terminal */
    History *history;
    char *line;        /* owned */
    size_t line_capacity;
};

/* ---- Input ------------------------------------------------------------------------------- */

static const char *prompt_text(EditLine *editor)
{
    (void)editor;
    return "> ";
}

static bool editor_open(struct chat *chat)
{
    HistEvent event;

    if (!isatty(STDIN_FILENO))
        return true;
    chat->editor = el_init("runnel", stdin, stderr, stderr);
    chat->history = history_init();
    if (chat->editor == NULL || chat->history == NULL) {
        app_error("the line editor could not be started");
        return false;
    }
    history(chat->history, &event, H_SETSIZE, 1000);
    el_set(chat->editor, EL_PROMPT, prompt_text);
    el_set(chat->editor, EL_EDITOR, "emacs");
    el_set(chat->editor, EL_SIGNAL, 1);
    el_set(chat->editor, EL_HIST, history, chat->history);
    /* While a line is edited Ctrl-C is a key and not a signal: it drops what was typed. */
    el_set(chat->editor, EL_SETTY, "-d", "-isig", NULL);
    el_set(chat->editor, EL_BIND, "^C", "em-kill-line", NULL);
    return true;
}

static void editor_close(struct chat *chat)
{
    if (chat->editor != NULL)
        el_end(chat->editor);
    if (chat->history != NULL)
        history_end(chat->history);
    free(chat->line);
}

/* The next line without its newline, valid until the next call; NULL at the end. */
static const char *read_line(struct chat *chat, size_t *n)
{
    const char *line = NULL;
    ssize_t got = 0;
    int count = 0;
    HistEvent event;

    if (chat->editor != NULL) {
        line = el_gets(chat->editor, &count);
        if (line == NULL || count <= 0)
            return NULL;
        if (count > 1)
            history(chat->history, &event, H_ENTER, line);
        *n = (size_t)count;
    } else {
        got = getline(&chat->line, &chat->line_capacity, stdin);
        if (got < 0)
            return NULL;
        line = chat->line;
        *n = (size_t)got;
    }
    while (*n > 0 && (line[*n - 1] == '\n' || line[*n - 1] == '\r'))
        --*n;
    return line;
}

/* ---- What kind of turns ------------------------------------------------------------------ */

static bool file_has_chatml(const char *path)
{
    static const char key[] = "tokenizer.chat_template";
    runnel_file *file = NULL;
    runnel_metadata entry;
    size_t n = 0;
    char *text = NULL;
    bool found = false;

    if (runnel_file_open(path, &file, NULL) != RUNNEL_OK)
        return false;
    for (uint64_t i = 0; runnel_file_metadata(file, i, &entry) == RUNNEL_OK; i++) {
        if (entry.key_bytes != sizeof key - 1 || memcmp(entry.key, key, sizeof key - 1) != 0)
            continue;
        if (runnel_file_metadata_text(file, i, 0, NULL, 0, &n) != RUNNEL_OK)
            break;
        text = calloc(n + 1, 1);
        if (text != NULL && runnel_file_metadata_text(file, i, 0, text, n, &n) == RUNNEL_OK)
            found = strstr(text, "<|im_start|>") != NULL;
        free(text);
        break;
    }
    runnel_file_close(file);
    return found;
}

static int choose_turns(struct chat *chat)
{
    const struct app_options *options = chat->app.options;
    struct app_ids mark = {0};
    int code = APP_OK;

    chat->end_mark = -1;
    chat->chatml = file_has_chatml(options->operands[0]);
    if (!chat->chatml) {
        if (!options->quiet)
            app_error("the model brings no chat template that is known here: plain User:/Assistant: turns");
        return APP_OK;
    }
    code = app_tokenize(&chat->app, "<|im_end|>", 10, RUNNEL_TOKENIZE_SPECIAL, &mark);
    if (code == APP_OK && mark.count == 1)
        chat->end_mark = mark.ids[0];
    app_ids_fini(&mark);
    return code;
}

/* ---- A turn ------------------------------------------------------------------------------ */

static int add(struct chat *chat, struct app_ids *ids, const char *text, size_t n, bool mark)
{
    return n > 0 ? app_tokenize(&chat->app, text, n, mark ? RUNNEL_TOKENIZE_SPECIAL : 0, ids) : APP_OK;
}

static int add_mark(struct chat *chat, struct app_ids *ids, const char *mark)
{
    return add(chat, ids, mark, strlen(mark), true);
}

static int chatml_turn(struct chat *chat, const char *user, size_t n, struct app_ids *ids)
{
    const char *system = chat->app.options->system;
    int code = APP_OK;

    if (chat->begun)
        code = add_mark(chat, ids, chat->answer_ended ? "\n" : "<|im_end|>\n");
    if (!chat->begun && system != NULL) {
        code = add_mark(chat, ids, "<|im_start|>system\n");
        code = code == APP_OK ? add(chat, ids, system, strlen(system), false) : code;
        code = code == APP_OK ? add_mark(chat, ids, "<|im_end|>\n") : code;
    }
    code = code == APP_OK ? add_mark(chat, ids, "<|im_start|>user\n") : code;
    code = code == APP_OK ? add(chat, ids, user, n, false) : code;
    return code == APP_OK ? add_mark(chat, ids, "<|im_end|>\n<|im_start|>assistant\n") : code;
}

static int plain_turn(struct chat *chat, const char *user, size_t n, struct app_ids *ids)
{
    const char *system = chat->app.options->system;
    const char *before = !chat->begun ? "User: " : chat->answer_ended ? " " : "\nUser: ";
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    int code = APP_FAILURE;

    if (to == NULL)
        return APP_FAILURE;
    if (!chat->begun && system != NULL)
        fprintf(to, "%s\n\n", system);
    fprintf(to, "%s%.*s\nAssistant:", before, (int)n, user);
    if (fclose(to) == 0)
        code = add(chat, ids, text, size, false);
    free(text);
    return code;
}

static bool on_event(void *user, const runnel_event *event)
{
    struct chat *chat = user;

    if (event->type != RUNNEL_EVENT_TOKEN)
        return true;
    fwrite(event->text, 1, event->text_bytes, stdout);
    return event->token < 0 || app_ids_push(&chat->answer, event->token);
}

static const char *own_stop(const struct chat *chat)
{
    return chat->chatml ? "<|im_end|>" : "\nUser:";
}

/* Whether the tokens of the answer, spelled out, contain our stop string. */
static bool answer_has_stop(struct chat *chat)
{
    const struct app_ids *ids = &chat->answer;
    size_t n = 0;
    char *text = NULL;
    bool found = false;

    if (runnel_detokenize(chat->app.model, ids->ids, ids->count, 0, NULL, 0, &n) != RUNNEL_OK)
        return false;
    text = malloc(n + 1);
    if (text != NULL && runnel_detokenize(chat->app.model, ids->ids, ids->count, 0, text, n, &n) == RUNNEL_OK)
        found = memmem(text, n, own_stop(chat), strlen(own_stop(chat))) != NULL;
    free(text);
    return found;
}

/* Whether the session holds the mark that ends an answer. A token that ends one is counted, but is not
 * among the events. */
static bool answer_is_ended(struct chat *chat, const struct app_outcome *outcome)
{
    if (outcome->type != RUNNEL_EVENT_DONE || outcome->finish != RUNNEL_FINISH_STOP)
        return false;
    return (chat->chatml && outcome->usage.completion_tokens > chat->answer.count) || answer_has_stop(chat);
}

/* The user's request with our own stops beside his. */
static int submit(struct chat *chat, const struct app_ids *ids, struct app_outcome *outcome)
{
    const struct app_options *options = chat->app.options;
    const char *stops[RUNNEL_MAX_STOPS + 1];
    int32_t stop_tokens[APP_MAX_STOP_TOKENS + 1];
    runnel_request request;
    size_t n_stops = options->n_stops, n_tokens = options->n_stop_tokens;

    memcpy(stops, options->stops, sizeof options->stops);
    memcpy(stop_tokens, options->stop_tokens, sizeof options->stop_tokens);
    if (chat->end_mark >= 0)
        stop_tokens[n_tokens++] = chat->end_mark;
    else
        stops[n_stops++] = own_stop(chat);
    app_request(options, &request);
    request.tokens = ids->ids;
    request.n_tokens = ids->count;
    request.stops = stops;
    request.n_stops = n_stops;
    request.stop_tokens = stop_tokens;
    request.n_stop_tokens = n_tokens;
    request.session = chat->session;
    chat->answer.count = 0;
    return app_stream(&chat->app, &request, on_event, chat, outcome);
}

static int new_session(struct chat *chat)
{
    runnel_error error = {0};

    if (chat->session.id != 0)
        runnel_session_free(chat->app.model, chat->session);
    chat->session.id = 0;
    chat->begun = chat->answer_ended = false;
    error.status = runnel_session_new(chat->app.model, &chat->session);
    return error.status == RUNNEL_OK ? APP_OK : app_fail(&error);
}

static int turn(struct chat *chat, const char *user, size_t n)
{
    const runnel_model_info *info = &chat->app.info;
    struct app_ids ids = {0};
    struct app_outcome outcome = {0};
    int code = APP_OK;

    if (!chat->begun && info->add_bos && info->bos >= 0 && !app_ids_push(&ids, info->bos))
        code = APP_FAILURE;
    if (code == APP_OK)
        code = chat->chatml ? chatml_turn(chat, user, n, &ids) : plain_turn(chat, user, n, &ids);
    if (code == APP_OK)
        code = submit(chat, &ids, &outcome);
    app_ids_fini(&ids);
    if (outcome.type == 0)
        return code;
    fputc('\n', stdout);
    app_flush();
    if (outcome.type == RUNNEL_EVENT_FAILED)
        return code;
    chat->begun = true;
    chat->answer_ended = answer_is_ended(chat, &outcome);
    if (chat->editor != NULL)
        app_figures(chat->app.options, &outcome);
    return code;
}

/* ---- The conversation -------------------------------------------------------------------- */

static bool is_word(const char *line, size_t n, const char *word)
{
    return n == strlen(word) && memcmp(line, word, n) == 0;
}

/* A line that begins with a slash. Returns false to leave. */
static bool on_command(struct chat *chat, const char *line, size_t n, int *code)
{
    if (is_word(line, n, "/exit") || is_word(line, n, "/quit"))
        return false;
    if (is_word(line, n, "/clear")) {
        *code = new_session(chat);
        return *code == APP_OK;
    }
    if (is_word(line, n, "/help"))
        fputs("/clear   forget the conversation\n/exit    leave; so does Ctrl-D\n/help    this text\n"
              "Ctrl-C   stop the answer\n", stderr);
    else
        app_error("'%.*s' is not a command; see /help", (int)(n < 80 ? n : 80), line);
    return true;
}

static int converse(struct chat *chat)
{
    const char *line = NULL;
    size_t n = 0;
    int code = APP_OK, failed = APP_OK;

    for (;;) {
        app_signals_disarm();
        line = read_line(chat, &n);
        app_signals_arm();
        if (line == NULL)
            break;
        if (n == 0)
            continue;
        if (line[0] == '/') {
            if (!on_command(chat, line, n, &failed))
                break;
            continue;
        }
        code = turn(chat, line, n);
        if (app_output_code() != APP_OK)
            return app_output_code();
        if (code != APP_OK && code != APP_CANCELLED)
            failed = code;
    }
    if (chat->editor != NULL)
        fputc('\n', stderr);
    return chat->editor == NULL ? failed : APP_OK;
}

int app_chat(const struct app_options *options)
{
    struct chat chat = {0};
    int code = app_open(&chat.app, options, false);

    if (code == APP_OK)
        code = choose_turns(&chat);
    if (code == APP_OK && options->n_stops == RUNNEL_MAX_STOPS && chat.end_mark < 0) {
        app_error("--stop: at most %d times here, for the turns need one", RUNNEL_MAX_STOPS - 1);
        code = APP_USAGE;
    }
    if (code == APP_OK)
        code = new_session(&chat);
    if (code == APP_OK)
        code = editor_open(&chat) ? converse(&chat) : APP_FAILURE;
    editor_close(&chat);
    if (chat.session.id != 0)
        runnel_session_free(chat.app.model, chat.session);
    app_ids_fini(&chat.answer);
    app_close(&chat.app);
    return code;
}
