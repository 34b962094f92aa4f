/* Paths: see path.h. */
#include "base/path.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FIRST_BYTES 256

/* The present directory, with room for `more` bytes behind it. NULL: no memory (*unnamed false), or it has no name. */
static char *here(struct rn_heap *heap, size_t more, bool *unnamed)
{
    *unnamed = false;
    for (size_t n = FIRST_BYTES;; n *= 2) {
        char *path = rn_alloc(heap, n + more, 1);

        if (path == NULL || getcwd(path, n) != NULL)
            return path;
        rn_free(heap, path);
        *unnamed = errno != ERANGE;
        if (*unnamed)
            return NULL;
    }
}

char *rn_path_absolute(struct rn_heap *heap, const char *path)
{
    size_t n = strlen(path);
    bool unnamed;
    char *absolute;

    if (path[0] == '/' || path[0] == '\0')
        return rn_strndup(heap, path, n);
    absolute = here(heap, n + 2, &unnamed);
    if (unnamed)
        return rn_strndup(heap, path, n);
    if (absolute != NULL)
        snprintf(strchr(absolute, '\0'), n + 2, "%s%s", strcmp(absolute, "/") == 0 ? "" : "/", path);
    return absolute;
}
