/* Input of `runnel chat`: the line editor, pastes, turns of several lines. See chat.h.
 *
 * While a line is edited the terminal marks pastes (bracketed paste: ESC [ 200 ~ text ESC [ 201 ~). The marks are a key
 * of the editor whose function reads up to the end and inserts all of it, newlines too; Enter alone ends a message. */
#include <errno.h>
#include <histedit.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#include "chat.h"

#define PASTE_ON "\033[?2004h"
#define PASTE_OFF "\033[?2004l"
#define QUOTES "\"\"\""

enum {
    LINES = 1000,        /* that are remembered, in a run and in the file */
    MOST_PASTE = 1 << 22 /* characters of a paste; what is longer is for /read */
};

struct chat_input {
    EditLine *editor; /* NULL: standard input is no terminal */
    History *history;
    char history_path[4096]; /* "": none */
    bool marks_pastes;
    const char *prompt;
    char *line; /* owned */
    size_t capacity;
    struct chat_buffer turn; /* of several lines */
};

/* ---- Pastes ------------------------------------------------------------------------------ */

/* Text for the line: what the terminal sends as Enter is a newline, other control characters but tabs go. */
static size_t clean(wchar_t *text, size_t n)
{
    size_t kept = 0;

    for (size_t i = 0; i < n; i++) {
        if (text[i] == L'\r' && i + 1 < n && text[i + 1] == L'\n')
            continue;
        if (text[i] == L'\r')
            text[i] = L'\n';
        if (text[i] == L'\n' || text[i] == L'\t' || (text[i] >= 0x20 && text[i] != 0x7f))
            text[kept++] = text[i];
    }
    text[kept] = L'\0';
    return kept;
}

/* Everything up to the mark at the end, owned by the caller, without it; NULL at the end of the input. */
static wchar_t *read_paste(EditLine *editor, size_t *n)
{
    static const wchar_t end[] = L"\033[201~";
    const size_t mark = sizeof end / sizeof *end - 1;
    wchar_t *text = NULL, last = 0;
    size_t room = 0;

    for (*n = 0; el_wgetc(editor, &last) == 1;) {
        if (*n + 1 >= room) {
            wchar_t *more = realloc(text, (2 * room + 256) * sizeof *text);

            if (more == NULL)
                break;
            text = more;
            room = 2 * room + 256;
        }
        text[(*n)++] = last;
        if (*n >= mark && wmemcmp(text + *n - mark, end, mark) == 0) {
            *n -= mark;
            return text;
        }
        if (*n > MOST_PASTE + mark) /* the last ones count: the mark is among them */
            wmemmove(text + MOST_PASTE, text + MOST_PASTE + 1, --*n - MOST_PASTE);
    }
    free(text);
    return NULL;
}

static unsigned char on_paste(EditLine *editor, wint_t key)
{
    size_t n = 0;
    wchar_t *text = read_paste(editor, &n);
    bool good = text != NULL && (clean(text, n) == 0 || el_winsertstr(editor, text) == 0);

    (void)key;
    free(text);
    return good ? CC_REFRESH : CC_ERROR;
}

/* ---- The line editor --------------------------------------------------------------------- */

static const char *prompt_text(EditLine *editor)
{
    struct chat_input *input = NULL;

    el_get(editor, EL_CLIENTDATA, &input);
    return input->prompt;
}

static void history_open(struct chat_input *input, const struct app_options *options)
{
    HistEvent event;

    history(input->history, &event, H_SETSIZE, LINES);
    if (options->no_history || !chat_history_path(input->history_path, sizeof input->history_path))
        input->history_path[0] = '\0';
    if (input->history_path[0] != '\0') {
        chat_history_folders(input->history_path);
        chat_history_trim(input->history_path, LINES);
    }
    if (input->history_path[0] == '\0' || access(input->history_path, F_OK) != 0)
        return;
    if (history(input->history, &event, H_LOAD, input->history_path) < 0) {
        app_error("%s: no history of this program, or it cannot be read; it is left alone", input->history_path);
        input->history_path[0] = '\0';
    }
}

static void bind_keys(struct chat_input *input)
{
    EditLine *editor = input->editor;

    el_set(editor, EL_CLIENTDATA, input);
    el_set(editor, EL_PROMPT, prompt_text);
    el_set(editor, EL_EDITOR, "emacs");
    el_set(editor, EL_SIGNAL, 1);
    el_set(editor, EL_HIST, history, input->history);
    /* While a line is edited Ctrl-C is a key and not a signal: it drops what was typed. */
    el_set(editor, EL_SETTY, "-d", "-isig", NULL);
    el_set(editor, EL_BIND, "^C", "em-kill-line", NULL);
    /* wide: el_set would make copies that nobody frees */
    el_wset(editor, EL_ADDFN, L"runnel-paste", L"inserts a paste", on_paste);
    el_set(editor, EL_BIND, "\033[200~", "runnel-paste", NULL);
}

bool chat_input_open(struct chat *chat)
{
    struct chat_input *input = calloc(1, sizeof *input);

    chat->input = input;
    if (input == NULL) {
        app_error("not enough memory");
        return false;
    }
    if (!isatty(STDIN_FILENO))
        return true;
    input->editor = el_init("runnel", stdin, stderr, stderr);
    input->history = history_init();
    if (input->editor == NULL || input->history == NULL) {
        app_error("the line editor could not be started");
        return false;
    }
    input->marks_pastes = app_redraws();
    history_open(input, &chat->options);
    bind_keys(input);
    return true;
}

void chat_input_close(struct chat *chat)
{
    struct chat_input *input = chat->input;

    if (input == NULL)
        return;
    if (input->editor != NULL)
        el_end(input->editor);
    if (input->history != NULL)
        history_end(input->history);
    free(input->line);
    chat_buffer_close(&input->turn);
    free(input);
    chat->input = NULL;
}

bool chat_on_terminal(const struct chat *chat)
{
    return chat->input != NULL && chat->input->editor != NULL;
}

void chat_remember(struct chat *chat, const char *line)
{
    struct chat_input *input = chat->input;
    HistEvent event;

    history(input->history, &event, H_ENTER, line);
    if (input->history_path[0] == '\0' || chat_history_append(input->history_path, line))
        return;
    app_error("%s cannot be written: this run keeps its lines to itself", input->history_path);
    input->history_path[0] = '\0';
}

static const char *edit_line(struct chat *chat, size_t *n)
{
    struct chat_input *input = chat->input;
    const char *line;
    int count = 0;

    if (input->marks_pastes)
        fputs(PASTE_ON, stderr);
    fflush(stderr);
    line = el_gets(input->editor, &count);
    if (input->marks_pastes)
        fputs(PASTE_OFF, stderr);
    if (line == NULL || count <= 0)
        return NULL;
    if (count > 1)
        chat_remember(chat, line);
    *n = (size_t)count;
    return line;
}

/* The input has ended, or cannot be read. */
static void look_at_end(struct chat *chat)
{
    if (!ferror(stdin) || app_hung_up())
        return;
    app_error("standard input: %s", strerror(errno));
    chat->unfinished = true;
}

const char *chat_read_line(struct chat *chat, const char *prompt, size_t *n)
{
    struct chat_input *input = chat->input;
    const char *line;
    ssize_t got;

    input->prompt = prompt;
    if (input->editor != NULL) {
        line = edit_line(chat, n);
        if (line == NULL)
            return NULL;
    } else {
        errno = 0;
        got = getline(&input->line, &input->capacity, stdin);
        if (got < 0) {
            look_at_end(chat);
            return NULL;
        }
        line = input->line;
        *n = (size_t)got;
    }
    while (*n > 0 && (line[*n - 1] == '\n' || line[*n - 1] == '\r'))
        --*n;
    return line;
}

/* ---- Turns ------------------------------------------------------------------------------- */

static bool begins_with_quotes(const char *line, size_t n)
{
    return n >= 3 && memcmp(line, QUOTES, 3) == 0;
}

static bool ends_with_quotes(const char *line, size_t n)
{
    return n >= 3 && memcmp(line + n - 3, QUOTES, 3) == 0;
}

/* Lines up to one that ends with three quotes; the first is behind those that opened, and may be empty. False at the
 * end of the input. */
static bool read_quoted(struct chat *chat, const char *line, size_t n)
{
    FILE *to = chat->input->turn.to;
    bool opens = true, begun = false, ends = false;

    for (; line != NULL && !ends; line = ends ? line : chat_read_line(chat, ". ", &n)) {
        ends = ends_with_quotes(line, n);
        n -= ends ? 3 : 0;
        if (n > 0 || !(opens || ends)) {
            if (begun)
                fputc('\n', to);
            fwrite(line, 1, n, to);
            begun = true;
        }
        opens = false;
    }
    return ends;
}

/* Lines while they end with a backslash. */
static bool read_continued(struct chat *chat, const char *line, size_t n)
{
    FILE *to = chat->input->turn.to;
    bool more;

    do {
        if (line == NULL)
            return false;
        more = n > 0 && line[n - 1] == '\\';
        fwrite(line, 1, n - more, to);
        if (more)
            fputc('\n', to);
        line = more ? chat_read_line(chat, ". ", &n) : NULL;
    } while (more);
    return true;
}

const char *chat_read_turn(struct chat *chat, size_t *n, bool *command)
{
    struct chat_input *input = chat->input;
    const char *line = chat_read_line(chat, "> ", n);
    bool quoted = line != NULL && begins_with_quotes(line, *n), good;

    *command = line != NULL && *n > 0 && line[0] == '/' && memchr(line, '\n', *n) == NULL;
    if (line == NULL || (!quoted && (*n == 0 || line[*n - 1] != '\\')))
        return line;
    *command = false;
    chat_buffer_close(&input->turn);
    if (!chat_buffer_open(&input->turn))
        return NULL;
    good = quoted ? read_quoted(chat, line + 3, *n - 3) : read_continued(chat, line, *n);
    fflush(input->turn.to);
    *n = input->turn.n;
    if (good || app_hung_up())
        return good ? input->turn.bytes : NULL;
    app_error("the input ends inside a message that %s: it is not sent",
              quoted ? "three quotes began" : "a backslash continues");
    chat->unfinished = true;
    return NULL;
}
