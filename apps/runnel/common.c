/* Messages, signals, output and texts of the program: see common.h. */
#include "common.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "apps/utf8.h"

/* ---- Messages and signals ---------------------------------------------------------------- */

static volatile sig_atomic_t interrupted, hung_up; /* hung_up: the signal's number */
static bool hangup_armed;

static bool errors_are_objects;

void app_errors_as_objects(void)
{
    errors_are_objects = true;
}

/* Whether the character at text, of one or two bytes, is a control character (C0, DEL, C1). */
static bool is_control(const unsigned char *text, size_t length)
{
    return length == 1 ? text[0] < 0x20 || text[0] == 0x7F : length == 2 && text[0] == 0xC2 && text[1] < 0xA0;
}

/* A character, which a terminal obeys only if it is a newline or a tab: others are shown, as less does. */
static void put_shown(FILE *to, const unsigned char *text, size_t length)
{
    if (!is_control(text, length) || text[0] == '\n' || text[0] == '\t')
        fwrite(text, 1, length, to);
    else if (length == 1)
        fprintf(to, "^%c", text[0] ^ 0x40);
    else
        fprintf(to, "<U+%04X>", text[1]);
}

void app_put_text(FILE *to, const char *text, size_t n)
{
    const unsigned char *at = (const unsigned char *)text;
    size_t length = 0;

    if (!isatty(fileno(to))) {
        fwrite(text, 1, n, to);
        return;
    }
    for (size_t i = 0; i < n; i += length) {
        length = app_utf8_length(at + i, n - i);
        length += length == 0;
        put_shown(to, at + i, length);
    }
}

static void put_error(FILE *to, const char *text)
{
    size_t left = strlen(text), length;

    if (errors_are_objects) {
        fputs("{\"time\":\"", to);
        app_put_time(to);
        fputs("\",\"level\":\"error\",\"message\":", to);
        app_json_string(to, text, left);
        fputs("}\n", to);
        return;
    }
    fputs("runnel: ", to);
    for (; left > 0; text += length, left -= length) {
        length = app_utf8_length((const unsigned char *)text, left);
        if (length > 0)
            put_shown(to, (const unsigned char *)text, length);
        else
            fprintf(to, "\\x%02X", (unsigned char)*text);
        length += length == 0;
    }
    fputc('\n', to);
}

void app_error(const char *format, ...)
{
    char *text = NULL, *line = NULL;
    size_t length = 0;
    FILE *to = NULL;
    va_list args;
    int n;

    flockfile(stderr);
    app_progress_clear();
    fflush(stdout); /* on a terminal the answer so far stands above the message */
    va_start(args, format);
    n = vasprintf(&text, format, args);
    va_end(args);
    to = open_memstream(&line, &length); /* written at once: others write beside it */
    put_error(to != NULL ? to : stderr, n >= 0 ? text : "not enough memory");
    if (to != NULL && fclose(to) == 0)
        fwrite(line, 1, length, stderr);
    funlockfile(stderr);
    free(line);
    if (n >= 0)
        free(text);
}

int app_fail(const runnel_error *error)
{
    if (error->status == RUNNEL_CANCELLED)
        return APP_CANCELLED;
    app_error("%s", error->message[0] != '\0' ? error->message : runnel_status_text(error->status));
    return error->status == RUNNEL_INVALID ? APP_USAGE : APP_FAILURE;
}

static void on_signal(int number)
{
    (void)number;
    interrupted = 1;
}

static void set_signals(void (*handler)(int), int flags)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};

    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    if (!hangup_armed)
        sigaction(SIGTERM, &action, NULL);
}

void app_signals_arm(void)
{
    /* SA_RESETHAND: the second signal finds the default action, which ends the program at once.
     * SA_RESTART: output is not torn by the first; the loop's poll is ended by a signal all the same. */
    interrupted = 0;
    set_signals(on_signal, (int)SA_RESETHAND | SA_RESTART);
}

void app_signals_disarm(void)
{
    set_signals(SIG_DFL, 0);
}

bool app_interrupted(void)
{
    return interrupted != 0;
}

/* The line editor reads once more after a signal: a second one, and a third, end that. */
static void on_hangup(int number)
{
    const struct itimerval soon = {{0, 20000}, {0, 20000}};

    if (!hung_up)
        setitimer(ITIMER_REAL, &soon, NULL);
    hung_up = number;
    interrupted = 1;
}

static void on_alarm(int number)
{
    (void)number;
}

void app_hangup_arm(void)
{
    struct sigaction action = {.sa_handler = on_alarm};

    sigemptyset(&action.sa_mask);
    sigaction(SIGALRM, &action, NULL);
    action.sa_handler = on_hangup;
    sigaction(SIGHUP, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    hangup_armed = true;
}

void app_hangup_disarm(void)
{
    const struct itimerval never = {{0, 0}, {0, 0}};

    signal(SIGHUP, SIG_IGN);
    setitimer(ITIMER_REAL, &never, NULL);
    hangup_armed = false;
}

bool app_hung_up(void)
{
    return hung_up != 0;
}

void app_hangup_raise(void)
{
    if (hung_up == 0)
        return;
    signal(hung_up, SIG_DFL);
    raise(hung_up);
}

/* ---- Standard error as a terminal -------------------------------------------------------- */

enum { BAR = 40, LEAST_BAR = 8, COLUMNS = 80, LINE = 512 };

static bool bar_shown; /* under the lock of stderr: messages come from the threads of the server's work, too */

static bool is_dumb(void)
{
    const char *term = getenv("TERM");

    return term == NULL || *term == '\0' || strcmp(term, "dumb") == 0;
}

bool app_redraws(void)
{
    return isatty(STDERR_FILENO) && !is_dumb();
}

bool app_colours(int fd)
{
    const char *no = getenv("NO_COLOR");

    return isatty(fd) && !is_dumb() && (no == NULL || *no == '\0');
}

/* Asked for each time, so that a window that changes is followed at the next redraw. */
size_t app_columns(void)
{
    struct winsize size;
    const char *given = getenv("COLUMNS");

    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    return given != NULL && atoi(given) > 0 ? (size_t)atoi(given) : COLUMNS;
}

/* Room that a line may take: the last column stays empty, for a terminal wraps behind it. */
static size_t line_room(void)
{
    size_t room = app_columns();

    return room > LINE ? LINE - 1 : room > 1 ? room - 1 : 1;
}

/* Without the parts behind the last commas that do not fit. */
static void shorten(char *line, size_t room)
{
    while (strlen(line) > room) {
        char *comma = strrchr(line, ',');

        if (comma == NULL) {
            line[room] = '\0';
            return;
        }
        *comma = '\0';
    }
}

void app_progress(const struct app_options *options, const char *what, double fraction, const char *tail)
{
    static const char bar[] = "########################################";
    double share = fmin(fmax(fraction, 0), 1);
    size_t room, rest;
    char line[LINE];
    int width, full, n;

    if (options->quiet || !app_redraws())
        return;
    room = line_room();
    rest = strlen("reading    [] 100 %") + strlen(tail);
    width = room > rest ? (int)(room - rest < BAR ? room - rest : BAR) : 0;
    full = (int)(share * width);
    if (fraction >= 0 && width >= LEAST_BAR)
        n = snprintf(line, sizeof line, "%-10.10s [%.*s%*s] %3.0f %%%s", what, full, bar, width - full, "", share * 100,
                     tail);
    else if (fraction >= 0)
        n = snprintf(line, sizeof line, "%.10s %.0f %%%s", what, share * 100, tail);
    else
        n = snprintf(line, sizeof line, "%.10s%s", what, tail);
    if (n < 0)
        return;
    shorten(line, room);
    flockfile(stderr);
    fprintf(stderr, "\r%s\033[K", line);
    fflush(stderr);
    bar_shown = true;
    funlockfile(stderr);
}

void app_progress_clear(void)
{
    flockfile(stderr);
    if (bar_shown)
        fputs("\r\033[K", stderr);
    bar_shown = false;
    funlockfile(stderr);
}

/* ---- Standard output --------------------------------------------------------------------- */

static int output_error; /* errno of the first write that failed */

/* Why a write in the middle of an output has failed: its errno is lost. The output is cut anyway: one more byte meets
 * the same error. */
static int lost_error(void)
{
    struct pollfd reader = {.fd = STDOUT_FILENO, .events = POLLOUT};

    if (poll(&reader, 1, 0) == 1 && (reader.revents & (POLLERR | POLLHUP)) != 0)
        return EPIPE;
    errno = EIO;
    return write(STDOUT_FILENO, "\n", 1) == 1 ? EIO : errno;
}

bool app_flush(void)
{
    errno = 0;
    if (output_error == 0 && (fflush(stdout) != 0 || ferror(stdout)))
        output_error = errno != 0 ? errno : lost_error();
    return output_error == 0;
}

int app_output_code(void)
{
    static bool told;

    if (app_flush())
        return APP_OK;
    if (output_error == EPIPE)
        return APP_CANCELLED;
    if (!told)
        app_error("standard output: %s", output_error == EBADF ? "it is closed" : strerror(output_error));
    told = true;
    return APP_FAILURE;
}

int app_worse(int code, int output)
{
    return code == APP_OK || (code == APP_CANCELLED && output != APP_OK) ? output : code;
}

/* Of text, which is no character, the bytes that begin one; 0: they begin none. */
static size_t cut_bytes(const unsigned char *text)
{
    size_t n = app_utf8_of(text[0]), i = n > 0;

    while (i < n && (text[i] & 0xC0) == 0x80)
        i++;
    return i < n ? i : 0;
}

void app_whole(char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    size_t left = strlen(text), n;

    for (; left > 0; at += n, left -= n) {
        bool cut = false;

        n = app_utf8_length(at, left);
        if (n == 0) {
            n = cut_bytes(at);
            cut = n > 0;
            n += n == 0;
        }
        if (!cut)
            text = (char *)memmove(text, at, n) + n;
    }
    *text = '\0';
}

/* \n, \t, \r and a backslash have a letter in both notations. */
static char short_escape(unsigned char c)
{
    return c == '\n' ? 'n' : c == '\t' ? 't' : c == '\r' ? 'r' : c == '\\' ? '\\' : 0;
}

void app_put_time(FILE *to)
{
    struct timeval now;
    struct tm parts;
    char text[32];

    gettimeofday(&now, NULL);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", gmtime_r(&now.tv_sec, &parts));
    fprintf(to, "%s.%03dZ", text, (int)(now.tv_usec / 1000));
}

/* The escape of what stands at text[0..n) if some clients take it for the end of a line; *length: its bytes. NULL: it
 * is none of these. */
static const char *line_end(const char *text, size_t n, size_t *length)
{
    static const struct {
        char bytes[4];
        const char *escape;
    } ends[] = {{"\xC2\x85", "\\u0085"}, {"\xE2\x80\xA8", "\\u2028"}, {"\xE2\x80\xA9", "\\u2029"}};

    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        *length = strlen(ends[i].bytes);
        if (*length <= n && memcmp(text, ends[i].bytes, *length) == 0)
            return ends[i].escape;
    }
    return NULL;
}

/* The character at text[0..n), as it stands in a string of JSON: at most six bytes. *length: those that it has. */
static char *put_character(char *to, const unsigned char *text, size_t n, size_t *length)
{
    static const char digits[] = "0123456789abcdef";
    unsigned char c = text[0];
    char letter = c == '"' ? '"' : short_escape(c);
    const char *escape = c >= 0x80 ? line_end((const char *)text, n, length) : NULL;

    if (escape != NULL)
        return mempcpy(to, escape, 6);
    *length = app_utf8_length(text, n);
    if (*length == 0) {
        *length = 1;
        return mempcpy(to, "\\ufffd", 6);
    }
    if (letter != 0) {
        *to++ = '\\';
        *to++ = letter;
        return to;
    }
    if (!is_control(text, *length))
        return mempcpy(to, text, *length);
    c = text[*length - 1];
    to = mempcpy(to, "\\u00", 4);
    *to++ = digits[c >> 4];
    *to++ = digits[c & 15];
    return to;
}

size_t app_json_bytes(char *to, const char *text, size_t n)
{
    char *end = to;
    size_t length = 0;

    *end++ = '"';
    for (size_t i = 0; i < n; i += length)
        end = put_character(end, (const unsigned char *)text + i, n - i, &length);
    *end++ = '"';
    return (size_t)(end - to);
}

void app_json_string(FILE *to, const char *text, size_t n)
{
    char piece[512], *end = piece;
    size_t length = 0;

    *end++ = '"';
    for (size_t i = 0; i < n; i += length) {
        if (piece + sizeof piece - end <= 6) {
            fwrite(piece, 1, (size_t)(end - piece), to);
            end = piece;
        }
        end = put_character(end, (const unsigned char *)text + i, n - i, &length);
    }
    *end++ = '"';
    fwrite(piece, 1, (size_t)(end - piece), to);
}

void app_json_line(FILE *to, const char *text, size_t n)
{
    size_t from = 0, length = 0;

    for (size_t i = 0; i < n; i += length) {
        bool blank = text[i] == '\n' || text[i] == '\r';
        const char *put = blank ? " " : (unsigned char)text[i] >= 0x80 ? line_end(text + i, n - i, &length) : NULL;

        length = blank || put == NULL ? 1 : length;
        if (put == NULL)
            continue;
        fwrite(text + from, 1, i - from, to);
        fputs(put, to);
        from = i + length;
    }
    fwrite(text + from, 1, n - from, to);
}

void app_number(FILE *to, double value)
{
    const double whole_from = 1e9, exact_to = 9007199254740992.0; /* 2^53: beyond it doubles have gaps */

    fprintf(to, fabs(value) >= whole_from && fabs(value) <= exact_to ? "%.0f" : "%.9g", value);
}

void app_json_number(FILE *to, double value)
{
    if (isfinite(value))
        app_number(to, value);
    else
        fputs("null", to);
}

static void put_bytes(FILE *to, const unsigned char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        fprintf(to, "\\x%02X", bytes[i]);
}

void app_escaped(FILE *to, const char *text, size_t n, size_t limit)
{
    const unsigned char *at = (const unsigned char *)text;
    size_t length = 0;

    for (size_t i = 0; i < n; i += length) {
        char letter = short_escape(at[i]);

        if (limit != 0 && i >= limit) {
            fputs("...", to);
            return;
        }
        length = app_utf8_length(at + i, n - i);
        if (letter != 0)
            fprintf(to, "\\%c", letter);
        else if (length == 0 || is_control(at + i, length))
            put_bytes(to, at + i, length > 0 ? length : 1);
        else
            fwrite(at + i, 1, length, to);
        length += length == 0;
    }
}

/* ---- Texts ------------------------------------------------------------------------------- */

static bool read_stream(FILE *file, struct app_text *text)
{
    size_t capacity = 4096, got = 0;
    char *grown = NULL;

    text->size = 0;
    text->bytes = malloc(capacity);
    while (text->bytes != NULL) {
        got = fread(text->bytes + text->size, 1, capacity - text->size - 1, file);
        text->size += got;
        if (got == 0)
            break;
        if (capacity - text->size > 1)
            continue;
        capacity *= 2;
        grown = realloc(text->bytes, capacity);
        if (grown == NULL)
            free(text->bytes);
        text->bytes = grown;
    }
    if (text->bytes != NULL)
        text->bytes[text->size] = '\0';
    return text->bytes != NULL && !ferror(file);
}

const char *app_plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}

bool app_is_standard(const char *path)
{
    return strcmp(path, "-") == 0;
}

bool app_can_make(const char *path)
{
    char *copy = strdup(path);
    bool can = copy != NULL && faccessat(AT_FDCWD, dirname(copy), W_OK | X_OK, AT_EACCESS) == 0;

    free(copy);
    return can;
}

bool app_take_file(const char *path, struct app_text *text, char why[512])
{
    bool is_stdin = app_is_standard(path);
    FILE *file = NULL;
    bool good = false;

    *text = (struct app_text){0};
    errno = 0;
    file = is_stdin ? stdin : fopen(path, "rbe");
    good = file != NULL && read_stream(file, text);
    if (!good)
        snprintf(why, 512, "%.300s: %.200s", is_stdin ? "standard input" : path,
                 errno != 0 ? strerror(errno) : "it could not be read");
    if (file != NULL && !is_stdin)
        fclose(file);
    if (!good) {
        free(text->bytes);
        *text = (struct app_text){0};
    }
    return good;
}

bool app_read_file(const char *path, struct app_text *text)
{
    char why[512];
    bool good = app_take_file(path, text, why);

    if (!good)
        app_error("%s", why);
    return good;
}

int app_read_prompt(const struct app_options *options, struct app_text *text)
{
    *text = (struct app_text){0};
    if (options->prompt != NULL && options->file != NULL) {
        app_error("--prompt and --file exclude each other");
        return APP_USAGE;
    }
    if (options->file != NULL)
        return app_read_file(options->file, text) ? APP_OK : APP_FAILURE;
    text->bytes = strdup(options->prompt != NULL ? options->prompt : "");
    if (text->bytes == NULL) {
        app_error("not enough memory");
        return APP_FAILURE;
    }
    text->size = strlen(text->bytes);
    return APP_OK;
}

bool app_ids_push(struct app_ids *ids, int32_t id)
{
    int32_t *grown = realloc(ids->ids, (ids->count + 1) * sizeof *grown);

    if (grown == NULL)
        return false;
    ids->ids = grown;
    ids->ids[ids->count++] = id;
    return true;
}

void app_ids_fini(struct app_ids *ids)
{
    free(ids->ids);
    *ids = (struct app_ids){0};
}

/* "ngram" or "ngram,...": the length of the word and the comma; else 0. */
static size_t ngram_bytes(const char *draft)
{
    if (draft == NULL || strncmp(draft, "ngram", 5) != 0)
        return 0;
    return draft[5] == ',' ? 6 : draft[5] == '\0' ? 5 : 0;
}

const char *app_draft_path(const struct app_options *options)
{
    const char *rest = options->draft != NULL ? options->draft + ngram_bytes(options->draft) : "";

    if (*rest == '\0' || strcmp(rest, "none") == 0)
        return NULL;
    return strncmp(rest, "eagle:", 6) == 0 ? rest + 6 : rest;
}

void app_draft(const struct app_options *options, runnel_request *request)
{
    if (options->speculate || ngram_bytes(options->draft) > 0)
        request->draft |= RUNNEL_DRAFT_NGRAM;
    if (app_draft_path(options) != NULL)
        request->draft |= RUNNEL_DRAFT_MODEL;
    request->draft_max = (uint32_t)options->draft_max;
    request->draft_share = options->draft_share;
    request->draft_chain = options->draft_chain;
}
