/* Loaded in front of the C library: writes down which files the process's first thread opens or asks about, a path on a
 * line. LOOP_OPENS: the file that gets them. */
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static void *next(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

static void note(const char *path)
{
    int (*real)(const char *, int, ...) = (int (*)(const char *, int, ...))next("open");
    const char *file = getenv("LOOP_OPENS");
    int fd =
        file != NULL && path != NULL && gettid() == getpid() ? real(file, O_WRONLY | O_APPEND | O_CREAT, 0600) : -1;

    if (fd < 0)
        return;
    dprintf(fd, "%s\n", path);
    close(fd);
}

static mode_t mode_of(int flags, va_list arguments)
{
    return (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
}

#define OPEN(name)                                                                          \
    EXPORT int name(const char *path, int flags, ...)                                       \
    {                                                                                       \
        int (*real)(const char *, int, ...) = (int (*)(const char *, int, ...))next(#name); \
        va_list arguments;                                                                  \
        mode_t mode;                                                                        \
                                                                                            \
        va_start(arguments, flags);                                                         \
        mode = mode_of(flags, arguments);                                                   \
        va_end(arguments);                                                                  \
        note(path);                                                                         \
        return real(path, flags, mode);                                                     \
    }

OPEN(open)
OPEN(open64)

#define FOPEN(name)                                                                                       \
    EXPORT FILE *name(const char *path, const char *mode)                                                 \
    {                                                                                                     \
        FILE *(*real)(const char *, const char *) = (FILE * (*)(const char *, const char *)) next(#name); \
                                                                                                          \
        note(path);                                                                                       \
        return real(path, mode);                                                                          \
    }

FOPEN(fopen)
FOPEN(fopen64)

#define STAT(name)                                                                                    \
    EXPORT int name(const char *path, struct stat *status)                                            \
    {                                                                                                 \
        int (*real)(const char *, struct stat *) = (int (*)(const char *, struct stat *))next(#name); \
                                                                                                      \
        note(path);                                                                                   \
        return real(path, status);                                                                    \
    }

STAT(stat)

EXPORT int scandir(const char *path, struct dirent ***names, int (*filter)(const struct dirent *),
                   int (*compare)(const struct dirent **, const struct dirent **))
{
    int (*real)(const char *, struct dirent ***, int (*)(const struct dirent *),
                int (*)(const struct dirent **, const struct dirent **)) =
        (int (*)(const char *, struct dirent ***, int (*)(const struct dirent *),
                 int (*)(const struct dirent **, const struct dirent **)))next("scandir");

    note(path);
    return real(path, names, filter, compare);
}
