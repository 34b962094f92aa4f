/* Where a file goes: see file_target.h. */
#include "base/file_target.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_LINKS = 40 /* as the kernel follows */ };

/* Whether the path is a link, and what it says: text [PATH_MAX]. */
static bool read_link(const char *path, char *text)
{
    ssize_t n = readlink(path, text, PATH_MAX - 1);

    if (n >= 0)
        text[n] = '\0';
    return n >= 0;
}

/* What a link at `path` names: relative to the folder that it lies in. NULL: no memory. */
static char *behind_link(struct rn_heap *heap, const char *path, const char *text)
{
    const char *slash = text[0] == '/' ? NULL : strrchr(path, '/');
    size_t folder = slash != NULL ? (size_t)(slash - path) + 1 : 0, n = strlen(text);
    char *joined = rn_alloc(heap, folder + n + 1, 1);

    if (joined == NULL)
        return NULL;
    memcpy(joined, path, folder);
    memcpy(joined + folder, text, n + 1);
    return joined;
}

runnel_status rn_file_target(struct rn_heap *heap, const char *path, char **target, runnel_error *error)
{
    char text[PATH_MAX];
    struct stat is;
    bool seen = stat(path, &is) == 0, follow = seen || errno == ENOENT;
    char *at, *next;

    *target = NULL;
    if (seen ? !S_ISREG(is.st_mode) : errno == ELOOP)
        return rn_error_set(error, RUNNEL_IO, "%s: not a regular file", path);
    at = rn_strndup(heap, path, strlen(path));
    for (int i = 0; i < MOST_LINKS && follow && at != NULL && read_link(at, text); i++) {
        next = behind_link(heap, at, text);
        rn_free(heap, at);
        at = next;
    }
    if (at == NULL)
        return rn_error_set(error, RUNNEL_NO_MEMORY, "%s: no memory for its name", path);
    *target = at;
    return RUNNEL_OK;
}

runnel_status rn_file_target_check(struct rn_heap *heap, const char *path, runnel_error *error)
{
    char *target;
    runnel_status status = rn_file_target(heap, path, &target, error);

    rn_free(heap, target);
    return status;
}
