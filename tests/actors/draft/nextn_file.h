/* A file of runnel-tiny with prediction layers of its own. They are the head of taught.h, trained on what stands before
 * the final norm (taught_begin's layer 5), with norms that undo what the layers read behind it. So their guesses are
 * often right, and chains of them are seen. */
#ifndef RN_TESTS_ACTORS_DRAFT_NEXTN_FILE_H
#define RN_TESTS_ACTORS_DRAFT_NEXTN_FILE_H

#include <stdint.h>

/* path: in /tmp. */
void nextn_file_write(uint32_t layers, const char *path);

#endif
