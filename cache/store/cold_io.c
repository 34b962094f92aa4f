/* The machine's disk: see cold_io.h. */
#define _GNU_SOURCE /* sync_file_range */
#include "cache/store/cold_io.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static_assert(sizeof(off_t) == 8, "a segment may be larger than 2 GiB");

static int result(int value)
{
    return value < 0 ? -errno : value;
}

static int machine_open(void *user, const char *path, int flags)
{
    (void)user;
    return result(open(path, flags | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW, 0600)); /* a pipe is no reason to wait */
}

static void machine_close(void *user, int fd)
{
    (void)user;
    close(fd);
}

static int64_t machine_pread(void *user, int fd, void *bytes, size_t n, uint64_t offset)
{
    ssize_t got;

    (void)user;
    do
        got = pread(fd, bytes, n, (off_t)offset);
    while (got < 0 && errno == EINTR);
    return got < 0 ? -errno : got;
}

static int64_t machine_pwrite(void *user, int fd, const void *bytes, size_t n, uint64_t offset)
{
    ssize_t written;

    (void)user;
    do
        written = pwrite(fd, bytes, n, (off_t)offset);
    while (written < 0 && errno == EINTR);
    return written < 0 ? -errno : written;
}

static int64_t machine_size(void *user, int fd)
{
    struct stat is;

    (void)user;
    if (fstat(fd, &is) != 0)
        return -errno;
    return S_ISREG(is.st_mode) ? is.st_size : -EINVAL;
}

static int machine_truncate(void *user, int fd, uint64_t bytes)
{
    (void)user;
    return result(ftruncate(fd, (off_t)bytes));
}

static int machine_sync(void *user, int fd)
{
    (void)user;
    return result(fdatasync(fd));
}

static int machine_write_out(void *user, int fd, uint64_t offset, uint64_t n, bool wait)
{
    unsigned flags = SYNC_FILE_RANGE_WRITE;

    (void)user;
    if (wait)
        flags |= SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WAIT_AFTER;
    return result(sync_file_range(fd, (off_t)offset, (off_t)n, flags));
}

static void machine_will_read(void *user, int fd, uint64_t offset, uint64_t n)
{
    (void)user;
    posix_fadvise(fd, (off_t)offset, (off_t)n, POSIX_FADV_WILLNEED);
}

static int machine_lock(void *user, int fd)
{
    (void)user;
    return result(flock(fd, LOCK_EX | LOCK_NB));
}

static int machine_same(void *user, int fd, const char *path)
{
    struct stat open, named;

    (void)user;
    if (fstat(fd, &open) != 0)
        return -errno;
    return lstat(path, &named) == 0 && open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

static int machine_mkdir(void *user, const char *path)
{
    (void)user;
    return result(mkdir(path, 0700));
}

static int machine_unlink(void *user, const char *path)
{
    (void)user;
    return result(unlink(path));
}

static int machine_rmdir(void *user, const char *path)
{
    (void)user;
    return result(rmdir(path));
}

static int machine_list(void *user, const char *path, void (*name)(void *to, const char *name), void *to)
{
    DIR *folder = opendir(path);
    const struct dirent *entry;
    int status;

    (void)user;
    if (folder == NULL)
        return -errno;
    for (errno = 0; (entry = readdir(folder)) != NULL; errno = 0)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            name(to, entry->d_name);
    status = -errno;
    closedir(folder);
    return status;
}

const struct rn_cold_io rn_cold_io_machine = {
    .open = machine_open,
    .close = machine_close,
    .pread = machine_pread,
    .pwrite = machine_pwrite,
    .size = machine_size,
    .truncate = machine_truncate,
    .sync = machine_sync,
    .write_out = machine_write_out,
    .will_read = machine_will_read,
    .lock = machine_lock,
    .same = machine_same,
    .mkdir = machine_mkdir,
    .unlink = machine_unlink,
    .rmdir = machine_rmdir,
    .list = machine_list,
};
