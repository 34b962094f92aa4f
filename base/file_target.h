/* Where a file that is written beside its place and renamed into it goes.
 *
 * rename() puts a regular file over whatever has the name: over a device, a pipe that somebody reads, and over a
 * symbolic link instead of what it points to. So whoever writes a file asks here first, before the work begins.
 *
 *   nothing there, or a regular file        the path itself
 *   a symbolic link to one of these         the path that the last link names, also where nothing is there yet
 *   all else: device, pipe, directory ...   refused
 *
 * Blocks on the disk; no state is shared: any thread. */
#ifndef RN_BASE_FILE_TARGET_H
#define RN_BASE_FILE_TARGET_H

#include "base/alloc.h"
#include "base/status.h"

/* *target: the caller's, to be freed with rn_free. IO: an empty path, no regular file, or links without an end;
 * NO_MEMORY. A path that cannot be looked at (its directory is missing, or the system follows no link of a stranger's
 * there) is taken as it is: opening it says why. */
runnel_status rn_file_target(struct rn_heap *heap, const char *path, char **target, runnel_error *error);

/* Can the target's directory take a file now? Makes one beside it and removes it. IO. */
runnel_status rn_file_target_check(struct rn_heap *heap, const char *target, runnel_error *error);

/* Are two paths, as they are or as rn_file_target gives them, one file, or names in one directory that would be? */
bool rn_file_target_same(const char *a, const char *b);

#endif
