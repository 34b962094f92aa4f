/* Files that replace others at once: see new_file.h. */
#define _GNU_SOURCE /* mkostemp */
#include "base/new_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/file_target.h"

static runnel_status failed(const struct rn_new_file *file, const char *what, runnel_error *error)
{
    return rn_error_set(error, RUNNEL_IO, "%s: %s: %s", file->path, what, strerror(errno));
}

static runnel_status name_it(struct rn_new_file *file, const char *suffix, runnel_error *error)
{
    size_t n = strlen(file->path), n_suffix = strlen(suffix) + 1;

    file->temporary = rn_alloc(file->heap, n + n_suffix, 1);
    if (file->temporary == NULL)
        return rn_error_set(error, RUNNEL_NO_MEMORY, "%s: no memory for its name", file->path);
    memcpy(file->temporary, file->path, n);
    memcpy(file->temporary + n, suffix, n_suffix);
    return RUNNEL_OK;
}

/* Opens the one temporary name, with this writer its only one where the file system has locks, and empties it. */
static runnel_status open_one(struct rn_new_file *file, runnel_error *error)
{
    struct stat mine, named;
    bool taken;

    file->fd = open(file->temporary, O_RDWR | O_CREAT | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK | O_CLOEXEC, 0666);
    if (file->fd < 0 || fstat(file->fd, &mine) != 0)
        return failed(file, "cannot be written", error);
    if (!S_ISREG(mine.st_mode))
        return rn_error_set(error, RUNNEL_IO, "%s: not a regular file", file->temporary);
    taken = flock(file->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    /* Another may have given it its place, or removed it, between the opening and the lock. */
    if (taken || lstat(file->temporary, &named) != 0 || mine.st_ino != named.st_ino || mine.st_dev != named.st_dev)
        return rn_error_set(error, RUNNEL_BUSY, "%s: another writes it", file->path);
    return ftruncate(file->fd, 0) == 0 ? RUNNEL_OK : failed(file, "cannot be emptied", error);
}

static runnel_status open_own(struct rn_new_file *file, runnel_error *error)
{
    file->fd = mkostemp(file->temporary, O_CLOEXEC);
    return file->fd >= 0 ? RUNNEL_OK : failed(file, "cannot be made", error);
}

runnel_status rn_new_file_open(struct rn_new_file *file, struct rn_heap *heap, const char *path,
                               enum rn_new_file_name name, runnel_error *error)
{
    runnel_status status;

    *file = (struct rn_new_file){.heap = heap, .fd = -1};
    status = rn_file_target(heap, path, &file->path, error);
    if (status == RUNNEL_OK)
        status = name_it(file, name == RN_NEW_FILE_ONE ? ".new" : ".XXXXXX", error);
    if (status == RUNNEL_OK)
        status = name == RN_NEW_FILE_ONE ? open_one(file, error) : open_own(file, error);
    if (status != RUNNEL_OK) {
        rn_free(heap, file->temporary); /* what lies there, if anything, is not this writer's */
        file->temporary = NULL;
        rn_new_file_fini(file);
    }
    return status;
}

runnel_status rn_new_file_write(const struct rn_new_file *file, const void *bytes, size_t n, runnel_error *error)
{
    const char *at = bytes;
    ssize_t written;

    RN_ASSERT(file->fd >= 0 && file->temporary != NULL);
    while (n > 0) {
        written = write(file->fd, at, n);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return failed(file, "cannot be written", error);
        at += written;
        n -= (size_t)written;
    }
    return RUNNEL_OK;
}

/* A new name is safe once its directory is. */
static runnel_status sync_directory(const struct rn_new_file *file, runnel_error *error)
{
    char *slash = strrchr(file->temporary, '/');
    int fd;
    bool good;

    if (slash != NULL)
        slash[slash == file->temporary] = '\0'; /* "/name" lies in "/" */
    fd = open(slash != NULL ? file->temporary : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    good = fd >= 0 && fsync(fd) == 0;
    if (fd >= 0)
        close(fd);
    return good ? RUNNEL_OK : failed(file, "its directory cannot be synced", error);
}

runnel_status rn_new_file_finish(struct rn_new_file *file, runnel_error *error)
{
    runnel_status status;

    RN_ASSERT(file->fd >= 0 && file->temporary != NULL);
    if (fsync(file->fd) != 0)
        return failed(file, "cannot be synced", error);
    if (rename(file->temporary, file->path) != 0)
        return failed(file, "cannot be renamed to", error);
    status = sync_directory(file, error);
    rn_free(file->heap, file->temporary); /* it has its name */
    file->temporary = NULL;
    return status;
}

void rn_new_file_fini(struct rn_new_file *file)
{
    if (file->temporary != NULL)
        unlink(file->temporary); /* while it is locked, and so this writer's */
    if (file->fd >= 0)
        close(file->fd);
    rn_free(file->heap, file->temporary);
    rn_free(file->heap, file->path);
    *file = (struct rn_new_file){.heap = file->heap, .fd = -1};
}
