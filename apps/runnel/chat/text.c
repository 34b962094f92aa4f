/* /edit and /read of `runnel chat`: texts from elsewhere. See chat.h. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "chat.h"

/* ---- /edit ------------------------------------------------------------------------------- */

static const char *editor_command(void)
{
    const char *editor = getenv("EDITOR"), *visual = getenv("VISUAL");

    return editor != NULL && *editor != '\0' ? editor : visual != NULL && *visual != '\0' ? visual : "vi";
}

/* Runs the editor on a file, with signals as programs expect them; it may be a command with options. False after a
 * message. */
static bool run_editor(const char *path)
{
    char *line = NULL, *argv[] = {"sh", "-c", NULL, "sh", (char *)path, NULL};
    posix_spawnattr_t attributes;
    sigset_t defaults;
    pid_t child = 0;
    int status = 0, error;

    if (asprintf(&line, "%s \"$1\"", editor_command()) < 0) {
        app_error("not enough memory");
        return false;
    }
    argv[2] = line;
    sigfillset(&defaults);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    error = posix_spawn(&child, "/bin/sh", NULL, &attributes, argv, environ);
    posix_spawnattr_destroy(&attributes);
    free(line);
    if (error != 0) {
        app_error("/bin/sh: %s", strerror(error));
        return false;
    }
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        if (app_hung_up())
            kill(child, SIGTERM);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return true;
    app_error("the editor '%s' failed, and nothing was changed; $EDITOR names another", editor_command());
    return false;
}

/* A new file with the text, for its owner alone. False after a message. */
static bool write_temporary(char *path, size_t capacity, const char *text)
{
    const char *directory = getenv("TMPDIR");
    size_t n = strlen(text);
    bool good;
    int fd;

    snprintf(path, capacity, "%s/runnel-XXXXXX.txt", directory != NULL && *directory != '\0' ? directory : "/tmp");
    fd = mkostemps(path, 4, O_CLOEXEC); /* mode 0600 */
    good = fd >= 0 && write(fd, text, n) == (ssize_t)n;
    if (!good)
        app_error("%s: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    if (fd >= 0 && !good)
        unlink(path);
    return good;
}

/* The text as the user leaves it, owned by the caller; NULL after a message, or where nothing was changed. */
static char *edited(const char *text)
{
    char path[4096];
    struct app_text got = {0};
    bool good;

    if (!write_temporary(path, sizeof path, text))
        return NULL;
    good = run_editor(path) && app_read_file(path, &got);
    unlink(path);
    while (good && got.size > 0 && got.bytes[got.size - 1] == '\n')
        got.bytes[--got.size] = '\0';
    if (good && (got.size == 0 || strcmp(got.bytes, text) == 0)) {
        app_error("nothing was changed");
        good = false;
    }
    if (!good) {
        free(got.bytes);
        return NULL;
    }
    return got.bytes;
}

int chat_edit(struct chat *chat, const char *operand)
{
    size_t turns = chat_talk_turns(&chat->talk), last = chat_talk_turn(&chat->talk, turns > 0 ? turns - 1 : 0);
    char *before, *after;
    int code;

    (void)operand;
    if (!chat_on_terminal(chat)) {
        app_error("/edit needs a terminal");
        return APP_FAILURE;
    }
    before = chat_talk_content(&chat->talk, last);
    after = edited(before != NULL ? before : "");
    free(before);
    if (after == NULL)
        return APP_OK;
    fprintf(stderr, "> %s\n", after);
    chat_remember(chat, after);
    chat_talk_remove(&chat->talk, last, chat->talk.n);
    code = chat_turn(chat, after, strlen(after));
    free(after);
    return code;
}

/* ---- /read ------------------------------------------------------------------------------- */

/* Behind what was read before, with an empty line between and after. */
static bool add_pending(struct chat *chat, const struct app_text *text)
{
    size_t before = chat->pending != NULL ? chat->n_pending : 0;
    char *more = realloc(chat->pending, before + text->size + 3);

    if (more == NULL) {
        app_error("not enough memory");
        return false;
    }
    memcpy(mempcpy(more + before, text->bytes, text->size), "\n\n", 3);
    chat->pending = more;
    chat->n_pending = before + text->size + 2;
    return true;
}

int chat_read(struct chat *chat, const char *path)
{
    struct app_text text = {0};
    struct stat status;
    size_t tokens = 0, used = chat_tokens(chat, &chat->talk, false);
    bool good = false;

    if (stat(path, &status) == 0 && !S_ISREG(status.st_mode)) {
        app_error("%s is not a regular file", path);
        return APP_FAILURE;
    }
    if (app_is_standard(path) || !app_read_file(path, &text)) {
        if (app_is_standard(path))
            app_error("/read takes the name of a file");
        return APP_FAILURE;
    }
    while (text.size > 0 && (text.bytes[text.size - 1] == '\n' || text.bytes[text.size - 1] == '\r'))
        text.bytes[--text.size] = '\0';
    if (text.size == 0)
        app_error("%s is empty", path);
    else if (memchr(text.bytes, '\0', text.size) != NULL ||
             runnel_tokenize(chat->app.model, text.bytes, text.size, 0, NULL, 0, &tokens) != RUNNEL_OK)
        app_error("%s is no text in UTF-8", path);
    else
        good = add_pending(chat, &text);
    free(text.bytes);
    if (!good)
        return APP_FAILURE;
    fprintf(stderr, "%s: %zu token%s, in front of your next message\n", path, tokens, app_plural(tokens));
    if (used + tokens >= chat->app.info.context_tokens)
        app_error("that does not fit: %zu of %u tokens are used. /clear forgets this file too, /drop the oldest turns",
                  used, chat->app.info.context_tokens);
    return APP_OK;
}
