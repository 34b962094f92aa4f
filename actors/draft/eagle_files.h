/* The files of a training: looked at before it works for minutes. */
#ifndef RN_ACTORS_DRAFT_EAGLE_FILES_H
#define RN_ACTORS_DRAFT_EAGLE_FILES_H

#include "base/alloc.h"
#include "base/status.h"

/* Can `model` (of a split one, its first part) be read, and `head` and `state` (NULL: none) be written without writing
 * over each other or over a part of the model? INVALID names the one that would; IO; NO_MEMORY. Blocks on the disk. */
runnel_status rn_eagle_files_check(struct rn_heap *heap, const char *model, const char *head, const char *state,
                                   runnel_error *error);

#endif
