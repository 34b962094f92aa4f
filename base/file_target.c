/* Where a file goes: see file_target.h. */
#define _GNU_SOURCE /* mkostemp */
#include "base/file_target.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
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
    if (path[0] == '\0')
        return rn_error_set(error, RUNNEL_IO, "the path of a file is empty");
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

/* Access rights do not tell: of a full or read-only disk, of /proc, of one that root may not write to either. */
runnel_status rn_file_target_check(struct rn_heap *heap, const char *target, runnel_error *error)
{
    size_t n = strlen(target);
    char *beside = rn_alloc(heap, n + sizeof ".XXXXXX", 1);
    int fd, why;

    if (beside == NULL)
        return rn_error_set(error, RUNNEL_NO_MEMORY, "%s: no memory for its name", target);
    memcpy(beside, target, n);
    memcpy(beside + n, ".XXXXXX", sizeof ".XXXXXX");
    fd = mkostemp(beside, O_CLOEXEC);
    why = errno;
    if (fd >= 0) {
        unlink(beside);
        close(fd);
    }
    rn_free(heap, beside);
    return fd >= 0 ? RUNNEL_OK : rn_error_set(error, RUNNEL_IO, "%s: cannot be written: %s", target, strerror(why));
}

/* The directory that a path lies in. False: it is not there. */
static bool stat_directory(const char *path, struct stat *is)
{
    const char *slash = strrchr(path, '/');
    char directory[PATH_MAX];

    if (slash == NULL)
        return stat(".", is) == 0;
    if (slash - path >= PATH_MAX - 1)
        return false;
    memcpy(directory, path, (size_t)(slash - path) + 1);
    directory[slash - path + 1] = '\0';
    return stat(directory, is) == 0;
}

static const char *name_in(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash != NULL ? slash + 1 : path;
}

bool rn_file_target_same(const char *a, const char *b)
{
    struct stat is_a, is_b;
    bool seen_a = stat(a, &is_a) == 0, seen_b = stat(b, &is_b) == 0;

    if (seen_a != seen_b || (!seen_a && strcmp(name_in(a), name_in(b)) != 0))
        return false;
    if (!seen_a && (!stat_directory(a, &is_a) || !stat_directory(b, &is_b)))
        return strcmp(a, b) == 0;
    return is_a.st_dev == is_b.st_dev && is_a.st_ino == is_b.st_ino;
}
