/* A folder of a test's own under /tmp, for files that are loaded once. */
#ifndef RN_TESTS_ACTORS_SCRATCH_H
#define RN_TESTS_ACTORS_SCRATCH_H

#include <stddef.h>

struct scratch {
    char directory[64];
    char path[128];
};

void scratch_open(struct scratch *scratch);

/* The path of a new file with these bytes, until the next call. */
const char *scratch_save(struct scratch *scratch, const char *name, const void *bytes, size_t n);

/* The folder goes with all its files. */
void scratch_close(struct scratch *scratch);

#endif
