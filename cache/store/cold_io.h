/* The disk as the cold store sees it: a table of functions, so that a test can make any call fail, be short or slow,
 * or find the disk full.
 *
 * Each returns 0 or more, or an errno with its sign turned (-ENOSPC). All block. */
#ifndef RN_CACHE_STORE_COLD_IO_H
#define RN_CACHE_STORE_COLD_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rn_cold_io {
    void *user;
    int (*open)(void *user, const char *path, int flags); /* open(2) with close-on-exec; new files are their owner's
                                                             alone. A descriptor */
    void (*close)(void *user, int fd);
    int64_t (*pread)(void *user, int fd, void *bytes, size_t n, uint64_t offset);        /* may be short; 0: the end */
    int64_t (*pwrite)(void *user, int fd, const void *bytes, size_t n, uint64_t offset); /* may be short */
    int64_t (*size)(void *user, int fd); /* of a regular file; -EINVAL for anything else */
    int (*truncate)(void *user, int fd, uint64_t bytes);
    int (*sync)(void *user, int fd);                                              /* fdatasync */
    int (*write_out)(void *user, int fd, uint64_t offset, uint64_t n, bool wait); /* begins writing a range's dirty
                                                              pages; wait: until they are written */
    void (*will_read)(void *user, int fd, uint64_t offset, uint64_t n);           /* a hint */
    int (*lock)(void *user, int fd);                   /* alone, until close; -EWOULDBLOCK: another has it */
    int (*same)(void *user, int fd, const char *path); /* 1: the path names this very file; 0: another, or none */
    int (*mkdir)(void *user, const char *path);        /* its owner's alone */
    int (*unlink)(void *user, const char *path);
    int (*rmdir)(void *user, const char *path);
    int (*list)(void *user, const char *path, void (*name)(void *to, const char *name),
                void *to); /* of a folder, but for . and .., in any order */
};

/* The machine's. `user` is not used: any thread. */
extern const struct rn_cold_io rn_cold_io_machine;

#endif
