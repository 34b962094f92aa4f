/* Paths that are opened later than they are given. */
#ifndef RN_BASE_PATH_H
#define RN_BASE_PATH_H

#include "base/alloc.h"

/* A copy of the path that names the same file wherever the process changes its working directory to: of a relative one
 * with the present directory in front. An empty path stays empty, and a relative one as it is where the present
 * directory has no name any more: opening either says why. The caller's, to be freed with rn_free; NULL: no memory. */
char *rn_path_absolute(struct rn_heap *heap, const char *path);

#endif
