/* A file that is written beside its place and takes it once it is whole.
 *
 *     struct rn_new_file file;
 *     status = rn_new_file_open(&file, heap, path, RN_NEW_FILE_ONE, error);
 *     if (status == RUNNEL_OK)
 *         status = rn_new_file_write(&file, bytes, n, error);
 *     if (status == RUNNEL_OK)
 *         status = rn_new_file_finish(&file, error);
 *     rn_new_file_fini(&file);
 *
 * Whenever the writer is killed or the machine loses power, at the path is what was there before or the new file, whole.
 * Which place that is for a symbolic link, and what is refused, says file_target.h. What lies under the temporary name
 * is not followed, if it is a link, and not written to, if it is no regular file.
 *
 * Blocks on the disk; no state is shared: any thread, one owner for each. */
#ifndef RN_BASE_NEW_FILE_H
#define RN_BASE_NEW_FILE_H

#include "base/alloc.h"
#include "base/status.h"

enum rn_new_file_name {
    /* "<path>.new", as readable as umask says. One writer at a time, of all processes, where the file system has locks;
     * what a killed one has left is written over. */
    RN_NEW_FILE_ONE,
    /* "<path>.XXXXXX", readable for its owner alone. Writers do not disturb each other, the last one's file stays; what
     * a killed one has left stays, too. */
    RN_NEW_FILE_OWN
};

struct rn_new_file {
    struct rn_heap *heap;
    char *path;      /* where it goes */
    char *temporary; /* NULL: it is there, or was not made */
    int fd;          /* for pwrite, too; -1: closed */
};

/* IO names the file, also one that is there and no regular file; BUSY: another writes it; NO_MEMORY. After an error
 * there is nothing to let go. */
runnel_status rn_new_file_open(struct rn_new_file *file, struct rn_heap *heap, const char *path,
                               enum rn_new_file_name name, runnel_error *error);

/* All n bytes, behind those before. IO. */
runnel_status rn_new_file_write(const struct rn_new_file *file, const void *bytes, size_t n, runnel_error *error);

/* To the disk, and to its place. IO: the old file is still there, or (the directory could not be synced) the new one
 * may be gone after a power failure. */
runnel_status rn_new_file_finish(struct rn_new_file *file, runnel_error *error);

/* Removes what is not finished, and lets go. Harmless after a failed open, and a second time. */
void rn_new_file_fini(struct rn_new_file *file);

#endif
