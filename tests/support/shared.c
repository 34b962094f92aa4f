/* See shared.h. */
#include "tests/support/shared.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/skipped.h"

static const char *folder(void)
{
    const char *named = getenv("RUNNEL_SHARED");

    return named != NULL ? named : "../shared";
}

bool shared_is_there(void)
{
    char path[1024];

    snprintf(path, sizeof path, "%s/oracles", folder());
    return access(path, R_OK | X_OK) == 0;
}

bool shared_find(const char *name, char *path, size_t capacity)
{
    snprintf(path, capacity, "%s/%s", folder(), name);
    if (access(path, R_OK) == 0)
        return true;
    if (shared_is_there())
        fail_msg("%s is missing, and %s is there", path, folder());
    note_skipped("%s is not there", path);
    return false;
}
