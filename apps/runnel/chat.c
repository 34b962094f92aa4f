/* runnel chat: turns on a line editor, answers from one session.
 *
 * The conversation is kept as a JSON array of messages in OpenAI's form; each turn hands all of it to the
 * engine, which renders it with the model's template and computes only what the session does not hold yet. What
 * the user types can never become a control token. A model without a template gets a plain one (User:, Assistant:).
 * When the answer calls tools, the next lines that are typed are their results. */
#include <histedit.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common.h"

enum {
    MAX_CALLS = 32, /* of one answer */
    MAX_ASIDE = 16  /* copies set aside */
};

/* A text that grows, as a stream to print to. */
struct buffer {
    FILE *to;
    char *bytes; /* valid after fflush(to) */
    size_t n;
};

struct call {
    struct buffer name, id, arguments;
    bool complete;
};

/* What an answer has come to. */
struct answer {
    struct buffer content, reasoning;
    struct call calls[MAX_CALLS];
    unsigned n_calls;
    enum { SHOWS_NOTHING, SHOWS_TEXT, SHOWS_REASONING, SHOWS_CALL } shows;
};

/* A conversation that waits for /back. */
struct aside {
    runnel_session session;
    char *messages; /* owned; [n] */
    size_t n;
};

struct chat {
    struct app app;
    runnel_session session;
    struct aside aside[MAX_ASIDE];
    unsigned n_aside;
    struct app_text tools, template_text;
    bool plain;             /* no template: PLAIN */
    struct buffer messages; /* members of the array, without its brackets */
    struct answer answer;
    /* input */
    EditLine *editor; /* NULL: standard input is no terminal */
    History *history;
    const char *prompt;
    char *line;         /* owned */
    struct buffer turn; /* of several lines */
    size_t line_capacity;
};

static const char PLAIN[] = "{% for m in messages %}{% if m.role == 'system' %}{{ m.content + '\\n\\n' }}"
                            "{% elif m.role == 'assistant' %}{{ 'Assistant: ' + m.content + '\\n' }}"
                            "{% else %}{{ 'User: ' + m.content + '\\n' }}{% endif %}{% endfor %}"
                            "{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}";
static const char PLAIN_STOP[] = "\nUser:";

/* ---- Buffers ----------------------------------------------------------------------------- */

static bool buffer_open(struct buffer *buffer)
{
    buffer->to = open_memstream(&buffer->bytes, &buffer->n);
    return buffer->to != NULL;
}

static void buffer_close(struct buffer *buffer)
{
    if (buffer->to != NULL)
        fclose(buffer->to);
    free(buffer->bytes);
    *buffer = (struct buffer){0};
}

static void answer_close(struct answer *answer)
{
    buffer_close(&answer->content);
    buffer_close(&answer->reasoning);
    for (unsigned i = 0; i < answer->n_calls; i++) {
        buffer_close(&answer->calls[i].name);
        buffer_close(&answer->calls[i].id);
        buffer_close(&answer->calls[i].arguments);
    }
    *answer = (struct answer){0};
}

static bool call_open(struct answer *answer)
{
    struct call *call = &answer->calls[answer->n_calls];

    if (answer->n_calls == MAX_CALLS)
        return false;
    *call = (struct call){0};
    answer->n_calls++;
    return buffer_open(&call->name) && buffer_open(&call->id) && buffer_open(&call->arguments);
}

/* ---- Input ------------------------------------------------------------------------------- */

static const char *prompt_text(EditLine *editor)
{
    struct chat *chat = NULL;

    el_get(editor, EL_CLIENTDATA, &chat);
    return chat->prompt;
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
    el_set(chat->editor, EL_CLIENTDATA, chat);
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
    buffer_close(&chat->turn);
}

/* The next line without its newline, valid until the next call; NULL at the end. */
static const char *read_line(struct chat *chat, const char *prompt, size_t *n)
{
    const char *line = NULL;
    ssize_t got = 0;
    int count = 0;
    HistEvent event;

    chat->prompt = prompt;
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

/* A turn: on a terminal a line that ends with a backslash goes on in the next one, and what stands between two lines of
 * three quotes is one. */
static const char *read_turn(struct chat *chat, size_t *n)
{
    const char *line = read_line(chat, "> ", n);
    bool quoted = line != NULL && *n == 3 && memcmp(line, "\"\"\"", 3) == 0;
    bool more = line != NULL && (quoted || (*n > 0 && line[*n - 1] == '\\'));

    if (chat->editor == NULL || !more)
        return line;
    buffer_close(&chat->turn);
    if (!buffer_open(&chat->turn))
        return NULL;
    if (!quoted)
        fprintf(chat->turn.to, "%.*s\n", (int)*n - 1, line);
    for (line = read_line(chat, ". ", n); line != NULL && more; line = more ? read_line(chat, ". ", n) : line) {
        bool last = quoted && *n == 3 && memcmp(line, "\"\"\"", 3) == 0;

        more = quoted ? !last : *n > 0 && line[*n - 1] == '\\';
        if (!last)
            fprintf(chat->turn.to, "%.*s%s", (int)*n - (!quoted && more), line, quoted || more ? "\n" : "");
    }
    fflush(chat->turn.to);
    *n = chat->turn.n - (quoted && chat->turn.n > 0);
    return line != NULL ? chat->turn.bytes : NULL;
}

/* ---- The conversation -------------------------------------------------------------------- */

static void add_message(struct chat *chat, const char *role, const char *text, size_t n)
{
    FILE *to = chat->messages.to;

    fprintf(to, "%s{\"role\":\"%s\",\"content\":", ftell(to) > 0 ? "," : "", role);
    app_json_string(to, text, n);
    fputc('}', to);
}

/* The id of a call: the model's own, or its number. */
static void put_call_id(FILE *to, struct call *call, unsigned number)
{
    fflush(call->id.to);
    if (call->id.n > 0)
        app_json_string(to, call->id.bytes, call->id.n);
    else
        fprintf(to, "\"call_%u\"", number);
}

static void add_calls(FILE *to, struct answer *answer)
{
    fputs(",\"tool_calls\":[", to);
    for (unsigned i = 0; i < answer->n_calls; i++) {
        struct call *call = &answer->calls[i];

        fflush(call->name.to);
        fflush(call->arguments.to);
        fprintf(to, "%s{\"type\":\"function\",\"id\":", i > 0 ? "," : "");
        put_call_id(to, call, i);
        fputs(",\"function\":{\"name\":", to);
        app_json_string(to, call->name.bytes, call->name.n);
        fprintf(to, ",\"arguments\":%s}}", call->arguments.n > 0 ? call->arguments.bytes : "{}");
    }
    fputc(']', to);
}

/* A call that was cut off is no call. */
static void drop_incomplete(struct answer *answer)
{
    while (answer->n_calls > 0 && !answer->calls[answer->n_calls - 1].complete) {
        struct call *call = &answer->calls[--answer->n_calls];

        buffer_close(&call->name);
        buffer_close(&call->id);
        buffer_close(&call->arguments);
    }
}

static void add_answer(struct chat *chat)
{
    struct answer *answer = &chat->answer;
    FILE *to = chat->messages.to;

    fflush(answer->content.to);
    fflush(answer->reasoning.to);
    fputs(",{\"role\":\"assistant\",\"content\":", to);
    /* A plain template puts a space behind "Assistant:", as the model did. */
    if (chat->plain && answer->content.n > 0 && answer->content.bytes[0] == ' ')
        app_json_string(to, answer->content.bytes + 1, answer->content.n - 1);
    else
        app_json_string(to, answer->content.bytes, answer->content.n);
    if (answer->reasoning.n > 0) {
        fputs(",\"reasoning_content\":", to);
        app_json_string(to, answer->reasoning.bytes, answer->reasoning.n);
    }
    drop_incomplete(answer);
    if (answer->n_calls > 0)
        add_calls(to, answer);
    fputc('}', to);
}

/* Asks for the results of the calls; false at the end of the input. */
static bool read_results(struct chat *chat)
{
    struct answer *answer = &chat->answer;
    FILE *to = chat->messages.to;
    char prompt[96];

    for (unsigned i = 0; i < answer->n_calls; i++) {
        struct call *call = &answer->calls[i];
        const char *line = NULL;
        size_t n = 0;

        snprintf(prompt, sizeof prompt, "result of %.60s> ", call->name.bytes);
        app_signals_disarm();
        line = read_line(chat, prompt, &n);
        app_signals_arm();
        if (line == NULL)
            return false;
        fputs(",{\"role\":\"tool\",\"tool_call_id\":", to);
        put_call_id(to, call, i);
        fputs(",\"name\":", to);
        app_json_string(to, call->name.bytes, call->name.n);
        fputs(",\"content\":", to);
        app_json_string(to, line, n);
        fputc('}', to);
    }
    return true;
}

/* ---- An answer --------------------------------------------------------------------------- */

static bool put(struct buffer *buffer, const runnel_event *event)
{
    return fwrite(event->text, 1, event->text_bytes, buffer->to) == event->text_bytes;
}

static bool collect(struct answer *answer, const runnel_event *event)
{
    struct call *call = answer->n_calls > 0 ? &answer->calls[answer->n_calls - 1] : NULL;

    switch (event->type) {
    case RUNNEL_EVENT_TOKEN:
        return put(&answer->content, event);
    case RUNNEL_EVENT_REASONING:
        return put(&answer->reasoning, event);
    case RUNNEL_EVENT_TOOL_CALL:
        return call_open(answer) && put(&answer->calls[answer->n_calls - 1].name, event);
    case RUNNEL_EVENT_TOOL_ID:
        return put(&call->id, event);
    case RUNNEL_EVENT_TOOL_ARGUMENTS:
        return put(&call->arguments, event);
    case RUNNEL_EVENT_TOOL_END:
        call->complete = true;
        return true;
    default:
        return true;
    }
}

/* Text goes to standard output; what the model thinks to standard error, if that is a terminal; calls to standard
 * output. */
static void show(struct chat *chat, const runnel_event *event)
{
    struct answer *answer = &chat->answer;
    bool thinks_aloud = isatty(STDERR_FILENO) && !chat->app.options->quiet;

    if (answer->shows == SHOWS_REASONING && event->type != RUNNEL_EVENT_REASONING && event->text_bytes > 0) {
        fputs(app_colours(STDERR_FILENO) ? "\033[0m\n" : "\n", stderr);
        answer->shows = SHOWS_NOTHING;
    }
    if (event->type == RUNNEL_EVENT_TOKEN) {
        fwrite(event->text, 1, event->text_bytes, stdout);
        answer->shows = event->text_bytes > 0 ? SHOWS_TEXT : answer->shows;
    } else if (event->type == RUNNEL_EVENT_REASONING && thinks_aloud) {
        if (answer->shows != SHOWS_REASONING)
            fputs(app_colours(STDERR_FILENO) ? "\033[2m" : "", stderr);
        fwrite(event->text, 1, event->text_bytes, stderr);
        answer->shows = SHOWS_REASONING;
    } else if (event->type == RUNNEL_EVENT_TOOL_CALL) {
        printf("%s%.*s ", answer->shows == SHOWS_TEXT ? "\n" : "", (int)event->text_bytes, event->text);
        answer->shows = SHOWS_CALL;
    } else if (event->type == RUNNEL_EVENT_TOOL_ARGUMENTS) {
        fwrite(event->text, 1, event->text_bytes, stdout);
    } else if (event->type == RUNNEL_EVENT_TOOL_END && event->tool_call + 1 < MAX_CALLS) {
        answer->shows = SHOWS_TEXT;
    }
}

static bool on_event(void *user, const runnel_event *event)
{
    struct chat *chat = user;

    if (chat->app.options->json)
        app_json_event(event, false);
    else
        show(chat, event);
    return collect(&chat->answer, event);
}

/* The array of messages, owned; NULL when memory is short. */
static char *all_messages(struct chat *chat)
{
    char *all = NULL;

    fflush(chat->messages.to);
    if (asprintf(&all, "[%s]", chat->messages.bytes) < 0)
        return NULL;
    return all;
}

/* Submits the conversation as it is, with our own stop beside the user's. */
static int submit(struct chat *chat, struct app_outcome *outcome)
{
    const struct app_options *options = chat->app.options;
    const char *stops[RUNNEL_MAX_STOPS + 1];
    char *messages = all_messages(chat);
    runnel_request request;
    runnel_chat c;
    int code = APP_FAILURE;

    if (messages == NULL || !buffer_open(&chat->answer.content) || !buffer_open(&chat->answer.reasoning)) {
        app_error("not enough memory");
        free(messages);
        return APP_FAILURE;
    }
    memcpy(stops, options->stops, sizeof options->stops);
    stops[options->n_stops] = PLAIN_STOP;
    runnel_chat_default(&c);
    c.messages_json = messages;
    c.tools = chat->tools.bytes;
    c.variables = options->variables;
    c.template_name = options->template_name;
    c.template_text = chat->plain ? PLAIN : chat->template_text.bytes;
    app_request(options, &request);
    request.chat = &c;
    request.raw_answer = options->raw;
    request.session = chat->session;
    request.stops = stops;
    request.n_stops = options->n_stops + chat->plain;
    code = app_stream(&chat->app, &request, on_event, chat, outcome);
    free(messages);
    return code;
}

static int end_answer(struct chat *chat, const struct app_outcome *outcome, int code)
{
    if (chat->answer.shows == SHOWS_REASONING && app_colours(STDERR_FILENO))
        fputs("\033[0m", stderr);
    if (!chat->app.options->json && (outcome->type != RUNNEL_EVENT_FAILED || chat->answer.shows != SHOWS_NOTHING))
        fputc('\n', stdout);
    app_flush();
    if (chat->editor != NULL && outcome->type != RUNNEL_EVENT_FAILED)
        app_figures(chat->app.options, outcome);
    return code;
}

/* The conversation is text[0..n) from here on. (A memory stream can be neither shortened nor moved: it writes to where
 * its buffer was when it was opened.) */
static bool set_messages(struct chat *chat, const char *text, size_t n)
{
    buffer_close(&chat->messages);
    if (!buffer_open(&chat->messages)) {
        app_error("not enough memory");
        return false;
    }
    return n == 0 || fwrite(text, 1, n, chat->messages.to) == n;
}

/* The conversation's first n bytes, owned; NULL after a message. */
static char *copy_messages(struct chat *chat, size_t n)
{
    char *copy = malloc(n + 1);

    if (copy == NULL) {
        app_error("not enough memory");
        return NULL;
    }
    fflush(chat->messages.to);
    if (n > 0)
        memcpy(copy, chat->messages.bytes, n);
    return copy;
}

/* Forgets what was added to the conversation behind its first n bytes. */
static bool take_back(struct chat *chat, size_t n)
{
    char *kept = copy_messages(chat, n);
    bool good = kept != NULL && set_messages(chat, kept, n);

    free(kept);
    return good;
}

/* A line of the user, the answer, and so on while the answer calls tools. A turn that failed leaves no trace. */
static int turn(struct chat *chat, const char *user, size_t n)
{
    size_t before = (size_t)ftell(chat->messages.to);
    bool again = true;
    int code = APP_OK;

    add_message(chat, "user", user, n);
    while (again) {
        struct app_outcome outcome = {0};

        code = submit(chat, &outcome);
        if (outcome.type == 0 || outcome.type == RUNNEL_EVENT_FAILED) {
            if (outcome.type != 0)
                end_answer(chat, &outcome, code);
            answer_close(&chat->answer);
            return take_back(chat, before) && outcome.type == 0 ? code : APP_FAILURE;
        }
        code = end_answer(chat, &outcome, code);
        add_answer(chat);
        again = chat->answer.n_calls > 0 && code == APP_OK && read_results(chat);
        answer_close(&chat->answer);
    }
    return code;
}

static int new_session(struct chat *chat)
{
    const char *system = chat->app.options->system;
    runnel_error error = {0};

    if (chat->session.id != 0)
        runnel_session_free(chat->app.model, chat->session);
    chat->session.id = 0;
    if (!take_back(chat, 0))
        return APP_FAILURE;
    if (system != NULL)
        add_message(chat, "system", system, strlen(system));
    error.status = runnel_session_new(chat->app.model, &chat->session);
    return error.status == RUNNEL_OK ? APP_OK : app_fail(&error);
}

/* ---- Sessions ---------------------------------------------------------------------------- */

static int save(struct chat *chat, const char *path)
{
    char *messages = all_messages(chat);
    int code;

    if (messages == NULL) {
        app_error("not enough memory");
        return APP_FAILURE;
    }
    code = app_session_save(&chat->app, chat->session, path, messages, strlen(messages));
    free(messages);
    return code;
}

/* The conversation in the file takes the place of this one; unless it cannot be read. */
static int load(struct chat *chat, const char *path)
{
    struct app_text note = {NULL, 0};
    runnel_session session = {0};
    int code = app_session_load(&chat->app, path, &session, &note);

    if (code != APP_OK)
        return code;
    if (note.size < 2 || note.bytes[0] != '[' || note.bytes[note.size - 1] != ']') {
        app_error("%s: a session, and no conversation of this program", path);
        runnel_session_free(chat->app.model, session);
        free(note.bytes);
        return APP_FAILURE;
    }
    runnel_session_free(chat->app.model, chat->session);
    chat->session = session;
    code = set_messages(chat, note.bytes + 1, note.size - 2) ? APP_OK : APP_FAILURE;
    free(note.bytes);
    return code;
}

/* Sets what there is aside, and goes on with a copy. */
static int fork_chat(struct chat *chat)
{
    struct aside *aside = &chat->aside[chat->n_aside];
    size_t n = (size_t)ftell(chat->messages.to);
    runnel_session copy;
    runnel_error error = {0};

    if (chat->n_aside == MAX_ASIDE) {
        app_error("at most %d copies can be set aside; /back returns to one", MAX_ASIDE);
        return APP_FAILURE;
    }
    aside->messages = copy_messages(chat, n);
    if (aside->messages == NULL)
        return APP_FAILURE;
    error.status = runnel_session_fork(chat->app.model, chat->session, &copy);
    if (error.status != RUNNEL_OK) {
        free(aside->messages);
        return app_fail(&error);
    }
    aside->session = chat->session;
    aside->n = n;
    chat->n_aside++;
    chat->session = copy;
    return APP_OK;
}

/* Drops this conversation for the one set aside last. */
static int back(struct chat *chat)
{
    struct aside *aside;
    int code;

    if (chat->n_aside == 0) {
        app_error("nothing is set aside; see /fork");
        return APP_FAILURE;
    }
    aside = &chat->aside[--chat->n_aside];
    runnel_session_free(chat->app.model, chat->session);
    chat->session = aside->session;
    code = set_messages(chat, aside->messages, aside->n) ? APP_OK : APP_FAILURE;
    free(aside->messages);
    return code;
}

static int open_session(struct chat *chat)
{
    const char *path = chat->app.options->session_file;
    int code = new_session(chat);

    return code == APP_OK && path != NULL && access(path, F_OK) == 0 ? load(chat, path) : code;
}

static void close_sessions(struct chat *chat)
{
    while (chat->n_aside > 0) {
        struct aside *aside = &chat->aside[--chat->n_aside];

        runnel_session_free(chat->app.model, aside->session);
        free(aside->messages);
    }
    if (chat->session.id != 0)
        runnel_session_free(chat->app.model, chat->session);
}

/* ---- Lines ------------------------------------------------------------------------------- */

static bool is_word(const char *line, size_t n, const char *word)
{
    while (n > 0 && line[n - 1] == ' ')
        n--;
    return n == strlen(word) && memcmp(line, word, n) == 0;
}

/* What follows a command and blanks in the line, or NULL where the line is another; owned by the caller. */
static char *operand(const char *line, size_t n, const char *word)
{
    size_t at = strlen(word);

    if (n <= at + 1 || memcmp(line, word, at) != 0 || line[at] != ' ')
        return NULL;
    while (at < n && line[at] == ' ')
        at++;
    return at < n ? strndup(line + at, n - at) : NULL;
}

/* Commands that do something with the conversation; false: the line is none of them. */
static bool on_session_command(struct chat *chat, const char *line, size_t n, int *code)
{
    char *saved = operand(line, n, "/save"), *loaded = operand(line, n, "/load");
    bool known = true;

    if (is_word(line, n, "/save") || is_word(line, n, "/load"))
        app_error("%.5s needs a file: %.5s FILE", line, line);
    else if (saved != NULL)
        *code = save(chat, saved);
    else if (loaded != NULL)
        *code = load(chat, loaded);
    else if (is_word(line, n, "/fork"))
        *code = fork_chat(chat);
    else if (is_word(line, n, "/back"))
        *code = back(chat);
    else
        known = false;
    free(saved);
    free(loaded);
    return known;
}

/* A line that begins with a slash. Returns false to leave. */
static bool on_command(struct chat *chat, const char *line, size_t n, int *code)
{
    if (on_session_command(chat, line, n, code))
        return true;
    if (is_word(line, n, "/exit") || is_word(line, n, "/quit") || is_word(line, n, "/bye"))
        return false;
    if (is_word(line, n, "/clear")) {
        *code = new_session(chat);
        return *code == APP_OK;
    }
    if (is_word(line, n, "/help"))
        fputs(
            "/clear      forget the conversation\n/fork       set it aside and go on with a copy\n"
            "/back       drop it for the one set aside last\n/save FILE  keep it in a file\n"
            "/load FILE  go on with the one in the file\n/exit       leave; so do /quit, /bye and Ctrl-D\n"
            "/help       this text\nCtrl-C      stop the answer\n"
            "\\           at the end of a line: the turn goes on in the next one; so do lines between two of \"\"\"\n",
            stderr);
    else
        app_error("'%.*s' is not a command; see /help", (int)(n < 80 ? n : 80), line);
    return true;
}

static void handshake(const struct chat *chat)
{
    const char *path = chat->app.options->operands[0], *slash = strrchr(path, '/');

    if (chat->editor != NULL && !chat->app.options->quiet)
        fprintf(stderr, "%s; /help tells what else can be typed\n", slash != NULL ? slash + 1 : path);
}

static int converse(struct chat *chat)
{
    const char *line = NULL;
    size_t n = 0;
    int code = APP_OK, failed = APP_OK;

    handshake(chat);
    for (;;) {
        app_signals_disarm();
        line = read_turn(chat, &n);
        app_signals_arm();
        if (line == NULL || app_hung_up())
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
        if (app_hung_up())
            return APP_CANCELLED;
        if (code != APP_OK && code != APP_CANCELLED)
            failed = code;
    }
    if (chat->editor != NULL)
        fputc('\n', stderr);
    return chat->editor == NULL ? failed : APP_OK;
}

/* Which template: a given one, the model's, or, where it has none, a plain one. */
static int choose_template(struct chat *chat)
{
    const struct app_options *options = chat->app.options;
    runnel_chat c;
    runnel_error error = {0};
    size_t n = 0;

    if (options->template_file != NULL)
        return app_read_file(options->template_file, &chat->template_text) ? APP_OK : APP_FAILURE;
    runnel_chat_default(&c);
    c.messages_json = "[]";
    c.template_name = options->template_name;
    error.status = runnel_apply_template(chat->app.model, &c, NULL, 0, &n, &error);
    if (error.status == RUNNEL_FORMAT || (error.status == RUNNEL_NOT_FOUND && options->template_name != NULL))
        return app_fail(&error);
    chat->plain = error.status == RUNNEL_NOT_FOUND;
    if (!chat->plain)
        return APP_OK;
    if (options->n_stops == RUNNEL_MAX_STOPS) {
        app_error("--stop: at most %d times here, for the turns need one", RUNNEL_MAX_STOPS - 1);
        return APP_USAGE;
    }
    if (!options->quiet)
        app_error("the model brings no chat template: plain User:/Assistant: turns");
    return APP_OK;
}

int app_chat(const struct app_options *options)
{
    struct chat chat = {0};
    int code = APP_OK;

    if (options->tools_file != NULL && !app_read_file(options->tools_file, &chat.tools))
        return APP_FAILURE;
    code = app_open(&chat.app, options, false);
    if (code == APP_OK)
        code = choose_template(&chat);
    if (code == APP_OK && !buffer_open(&chat.messages)) {
        app_error("not enough memory");
        code = APP_FAILURE;
    }
    if (code == APP_OK)
        code = open_session(&chat);
    if (code == APP_OK) {
        if (options->session_file != NULL)
            app_hangup_arm(); /* the conversation is saved all the same */
        code = editor_open(&chat) ? converse(&chat) : APP_FAILURE;
        if (options->session_file != NULL)
            app_hangup_disarm();
        app_signals_arm();
        if (options->session_file != NULL)
            code = app_worse(code, save(&chat, options->session_file));
    }
    editor_close(&chat);
    close_sessions(&chat);
    answer_close(&chat.answer);
    buffer_close(&chat.messages);
    app_close(&chat.app);
    free(chat.tools.bytes);
    free(chat.template_text.bytes);
    return code;
}
