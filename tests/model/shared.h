/* Where the data shared by all checkouts lies: $RUNNEL_SHARED or ../shared. */
#ifndef RN_TESTS_MODEL_SHARED_H
#define RN_TESTS_MODEL_SHARED_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* path[capacity] of `name` there; false where it is missing. */
static inline int shared_path(const char *name, char *path, size_t capacity)
{
    const char *root = getenv("RUNNEL_SHARED");

    snprintf(path, capacity, "%s/%s", root != NULL ? root : "../shared", name);
    return access(path, R_OK) == 0;
}

#endif
