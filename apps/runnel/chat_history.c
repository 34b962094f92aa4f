/* The lines of earlier runs, in a file of the line editor's own form: see chat.h. Each line is appended as it is entered,
 * so that several programs at once, or one that is killed, lose nothing. */
#include <fcntl.h>
#include <histedit.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "chat.h"

/* Each directory of the path, for its owner alone where it is made. */
static void make_directories(char *path)
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
    if (n < 0 || (size_t)n >= capacity || *path != '/')
        return false;
    make_directories(path);
    return true;
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

bool chat_history_append(const char *path, const char *line)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
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
