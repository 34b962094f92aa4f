/* Loaded in front of the C library: ends the process with SIGKILL at its n-th write to a file, so that a test can visit
 * every moment at which a crash could hurt. Writes end half done, and where a sync would have been the last bytes are
 * missing, as after a crash of the machine (but for SQLite's files: that it stands such a thing it tests itself).
 *
 * CRASH_AT: which one (0: none). CRASH_FILE: only files whose path ends so count. CRASH_COUNT: a file that gets their
 * number when the process ends. CRASH_TELL: a descriptor that gets a byte instead of the SIGKILL; then the thread waits
 * for ever while the others go on, until somebody else kills the process. */
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static atomic_long count;

static void *next(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

static const char *path_of(int fd, char path[4096])
{
    char link[64];
    ssize_t n = -1;

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    n = readlink(link, path, 4095);
    path[n > 0 ? n : 0] = '\0';
    return path;
}

static int is_file(int fd)
{
    const char *end = getenv("CRASH_FILE");
    struct stat status;
    char path[4096];
    size_t n = 0, n_end = end != NULL ? strlen(end) : 0;

    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))
        return 0;
    if (n_end == 0)
        return 1;
    n = strlen(path_of(fd, path));
    return n >= n_end && strcmp(path + n - n_end, end) == 0;
}

/* Counts a call on a file; 1: this is the one. */
static int is_now(int fd)
{
    const char *at = getenv("CRASH_AT");

    return is_file(fd) && atomic_fetch_add(&count, 1) + 1 == (at != NULL ? atol(at) : 0);
}

static void crash(void)
{
    const char *tell = getenv("CRASH_TELL");
    ssize_t (*real)(int, const void *, size_t) = (ssize_t(*)(int, const void *, size_t))next("write");

    if (tell == NULL || real(atoi(tell), "!", 1) != 1)
        kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

EXPORT ssize_t write(int fd, const void *bytes, size_t n)
{
    ssize_t (*real)(int, const void *, size_t) = (ssize_t(*)(int, const void *, size_t))next("write");

    if (is_now(fd)) {
        real(fd, bytes, n / 2);
        crash();
    }
    return real(fd, bytes, n);
}

/* Of the C library's own streams: their calls of write stay inside it. */
EXPORT size_t fwrite(const void *bytes, size_t size, size_t n, FILE *file)
{
    size_t (*real)(const void *, size_t, size_t, FILE *) =
        (size_t(*)(const void *, size_t, size_t, FILE *))next("fwrite");

    if (is_now(fileno(file))) {
        real(bytes, 1, size * n / 2, file);
        fflush(file);
        crash();
    }
    return real(bytes, size, n, file);
}

EXPORT ssize_t pwrite64(int fd, const void *bytes, size_t n, off64_t at)
{
    ssize_t (*real)(int, const void *, size_t, off64_t) =
        (ssize_t(*)(int, const void *, size_t, off64_t))next("pwrite64");

    if (is_now(fd)) {
        real(fd, bytes, n / 2, at);
        crash();
    }
    return real(fd, bytes, n, at);
}

EXPORT ssize_t pwrite(int fd, const void *bytes, size_t n, off_t at)
{
    return pwrite64(fd, bytes, n, at);
}

EXPORT int fdatasync(int fd)
{
    int (*real)(int) = (int (*)(int))next("fdatasync");
    struct stat status;
    char path[4096];

    if (is_now(fd)) {
        if (*path_of(fd, path) != '\0' && strstr(path, "journal") == NULL && fstat(fd, &status) == 0 &&
            status.st_size > 3)
            (void)!truncate(path, status.st_size - 3);
        crash();
    }
    return real(fd);
}

EXPORT int ftruncate64(int fd, off64_t n)
{
    int (*real)(int, off64_t) = (int (*)(int, off64_t))next("ftruncate64");

    if (is_now(fd))
        crash();
    return real(fd, n);
}

EXPORT int ftruncate(int fd, off_t n)
{
    return ftruncate64(fd, n);
}

__attribute__((destructor)) static void tell(void)
{
    const char *path = getenv("CRASH_COUNT");
    FILE *file = path != NULL ? fopen(path, "w") : NULL;

    if (file == NULL)
        return;
    fprintf(file, "%ld\n", atomic_load(&count));
    fclose(file);
}
