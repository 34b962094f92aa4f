/* The data that all checkouts share: $RUNNEL_SHARED, or ../shared. */
#ifndef RN_TESTS_SHARED_H
#define RN_TESTS_SHARED_H

#include <stdbool.h>
#include <stddef.h>

/* The folder is there, and is the shared one: it has `oracles` in it. */
bool shared_is_there(void);

/* path [capacity] of `name` in it. Where the folder is there and the file is not, the test fails. Without the folder:
 * false, and the program ends as skipped (note_skipped). */
bool shared_find(const char *name, char *path, size_t capacity);

#endif
