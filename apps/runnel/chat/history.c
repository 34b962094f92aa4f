/* The lines of earlier runs, in a file of the line editor's own form: see chat.h. Each line is appended as it is
 * entered, so that several programs at once, or one that is killed, lose nothing; a lock keeps them apart while the
 * oldest go. */
#include <fcntl.h>
#include <histedit.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "chat.h"

void chat_history_folders(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
}

bool chat_history_path(char *path, size_t capacity)
{
    const char *home = getenv("HOME"), *state = getenv("XDG_STATE_HOME");
    int n;

    if (home == NULL || *home == '\0')
        return false;
    n = state != NULL && *state == '/' ? snprintf(path, capacity, "%s/runnel/chat_history", state)
                                       : snprintf(path, capacity, "%s/.local/state/runnel/chat_history", home);
    return n >= 0 && (size_t)n < capacity && *path == '/';
}

/* What the line editor would write of a history with this line alone; behind its heading where the file has one. */
static bool print_entry(FILE *to, const char *line)
{
    History *one = history_init();
    HistEvent event;
    bool good = one != NULL && history(one, &event, H_SETSIZE, 1) >= 0 && history(one, &event, H_ENTER, line) >= 0 &&
                history(one, &event, H_SAVE_FP, to) >= 0;

    if (one != NULL)
        history_end(one);
    return good;
}

/* Opens the file and locks it. One that has been replaced in between is no longer it. -1: it cannot be had. */
static int open_locked(const char *path, int flags)
{
    for (;;) {
        int fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
        struct stat held, named;

        if (fd < 0 || flock(fd, LOCK_EX) != 0 || fstat(fd, &held) != 0 || !S_ISREG(held.st_mode)) {
            if (fd >= 0)
                close(fd);
            return -1;
        }
        if (lstat(path, &named) == 0 && named.st_dev == held.st_dev && named.st_ino == held.st_ino)
            return fd;
        close(fd);
    }
}

bool chat_history_append(const char *path, const char *line)
{
    int fd = open_locked(path, O_WRONLY | O_CREAT | O_APPEND);
    FILE *to = fd >= 0 ? fdopen(fd, "a") : NULL;
    bool good = false;

    if (to == NULL) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    if (fchmod(fd, 0600) == 0 && fseek(to, 0, SEEK_END) == 0)
        good = print_entry(to, line);
    return fclose(to) == 0 && good;
}

/* ---- Trimming ---------------------------------------------------------------------------- */

/* The heading and the lines behind the first `skip`. */
static bool copy_rest(FILE *from, FILE *to, size_t skip)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t n;

    rewind(from);
    for (size_t i = 0; (n = getline(&line, &room, from)) > 0; i++)
        if (i == 0 || i > skip)
            fwrite(line, 1, (size_t)n, to);
    free(line);
    return ferror(from) == 0 && ferror(to) == 0;
}

/* The lines behind the heading; 0: it is no history. */
static size_t count_lines(FILE *from)
{
    static const char heading[] = "_HiStOrY_V2_\n";
    char first[sizeof heading] = "";
    size_t lines = 0;

    if (fgets(first, sizeof first, from) == NULL || strcmp(first, heading) != 0)
        return 0;
    for (int c; (c = getc(from)) != EOF;)
        lines += c == '\n';
    return lines;
}

/* The file is complete before it takes the place of the other one. */
static void put_in_place(FILE *from, const char *path, size_t skip)
{
    char part[4200];
    int fd;
    FILE *to;
    bool good;

    snprintf(part, sizeof part, "%s.XXXXXX", path);
    fd = mkostemp(part, O_CLOEXEC); /* mode 0600 */
    to = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (to == NULL) {
        if (fd >= 0)
            close(fd);
        return;
    }
    good = copy_rest(from, to, skip);
    good = fclose(to) == 0 && good && rename(part, path) == 0;
    if (!good)
        unlink(part);
}

void chat_history_trim(const char *path, size_t most)
{
    int fd = open_locked(path, O_RDWR);
    FILE *from = fd >= 0 ? fdopen(fd, "r") : NULL;
    size_t lines;

    if (from == NULL) {
        if (fd >= 0)
            close(fd);
        return;
    }
    lines = count_lines(from);
    if (lines > most)
        put_in_place(from, path, lines - most);
    fclose(from); /* and with it goes the lock */
}
