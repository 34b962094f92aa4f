/* The files of a batch job: see output.h. */
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "apps/runnel/common.h"

enum { TAIL_BYTES = 4096, GROUP_LINES = 4096, GROUP_BYTES = 8 << 20 };

/* What is written between two commits. */
struct group {
    struct batch_output *output;
    uint64_t last, bytes;
    unsigned lines;
    struct batch_file *failed; /* NULL: none has */
};

static bool complain(const struct batch_file *file)
{
    app_error("%s: %s", file->path, strerror(errno));
    return false;
}

/* The hash of the last bytes in front of `end`. */
static bool hash_tail(const struct batch_file *file, uint64_t end, uint64_t *hash)
{
    char tail[TAIL_BYTES];
    size_t n = end < TAIL_BYTES ? (size_t)end : TAIL_BYTES;
    ssize_t got = pread(fileno(file->file), tail, n, (off_t)(end - n));

    *hash = XXH3_64bits(tail, n);
    if (got >= 0 && (size_t)got < n)
        errno = EIO;
    return got >= 0 && (size_t)got == n ? true : complain(file);
}

/* ---- Opening ----------------------------------------------------------------------------- */

/* Of a job that goes on: has the file what the job has written? */
static bool check_known(const struct batch_file *file, uint64_t size)
{
    uint64_t hash = 0;

    if (size < file->place->bytes) {
        app_error("%s has %llu bytes, its journal knows of %llu: it was changed; --overwrite begins anew", file->path,
                  (unsigned long long)size, (unsigned long long)file->place->bytes);
        return false;
    }
    if (file->place->bytes == 0)
        return true;
    if (!hash_tail(file, file->place->bytes, &hash))
        return false;
    if (hash == file->place->tail_hash)
        return true;
    app_error("%s is not what its journal has written: it was changed; --overwrite begins anew", file->path);
    return false;
}

static bool open_standard(struct batch_file *file)
{
    int fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);

    file->path = "standard output";
    file->is_standard = true;
    file->file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (file->file != NULL)
        return true;
    /* one that was closed is open for reading alone (main.c) */
    app_error("standard output: %s", errno == EINVAL ? "it is closed" : strerror(errno));
    if (fd >= 0)
        close(fd);
    return false;
}

static bool open_file(struct batch_file *file, enum batch_begin begin, bool fresh)
{
    struct stat status;
    int fd;

    if (app_is_standard(file->path))
        return open_standard(file);
    fd = open(file->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
    if (fd < 0)
        return complain(file);
    file->file = fdopen(fd, "r+");
    if (file->file == NULL || fstat(fd, &status) != 0) {
        complain(file);
        if (file->file == NULL)
            close(fd);
        return false;
    }
    if (!S_ISREG(status.st_mode)) {
        app_error("%s is not a regular file", file->path);
        return false;
    }
    if (!fresh)
        return check_known(file, (uint64_t)status.st_size);
    if (status.st_size == 0 || begin == BATCH_OVERWRITE)
        return true;
    app_error("%s exists already, and its journal knows of no job: --overwrite begins anew", file->path);
    return false;
}

bool batch_output_open(struct batch_output *output, const char *path, const char *errors, enum batch_begin begin,
                       bool fresh, bool ordered, struct batch_job *job)
{
    *output = (struct batch_output){.ordered = ordered, .job = job};
    for (size_t i = 0; i < BATCH_FILES; i++)
        output->files[i].place = &job->places[i];
    output->files[BATCH_OUTPUT].path = path;
    output->files[BATCH_ERRORS].path = errors;
    return open_file(&output->files[BATCH_OUTPUT], begin, fresh) &&
           (errors == NULL || open_file(&output->files[BATCH_ERRORS], begin, fresh));
}

bool batch_output_cut(struct batch_output *output)
{
    for (size_t i = 0; i < BATCH_FILES; i++) {
        const struct batch_file *file = &output->files[i];
        off_t end = (off_t)file->place->bytes;

        if (file->file == NULL || file->is_standard)
            continue;
        if (ftruncate(fileno(file->file), end) != 0 || fseeko(file->file, end, SEEK_SET) != 0)
            return complain(file);
    }
    return true;
}

void batch_output_close(struct batch_output *output)
{
    for (size_t i = 0; i < BATCH_FILES; i++) {
        if (output->files[i].file != NULL)
            fclose(output->files[i].file);
        output->files[i].file = NULL;
    }
}

/* ---- Writing ----------------------------------------------------------------------------- */

/* A reader that has gone is nothing to tell of. */
static bool complain_write(struct batch_output *output, const struct batch_file *file)
{
    output->gone = file->is_standard && errno == EPIPE;
    return output->gone ? false : complain(file);
}

static bool write_line(void *user, uint64_t number, bool good, const char *text, size_t n)
{
    struct group *group = user;
    struct batch_job *job = group->output->job;
    struct batch_file *file = &group->output->files[good ? BATCH_OUTPUT : BATCH_ERRORS];

    if (group->output->ordered && number != job->next)
        return false;
    if (file->file == NULL)
        file = &group->output->files[BATCH_OUTPUT];
    errno = 0;
    if (n > 0 && fwrite(text, 1, n, file->file) != n) {
        group->failed = file;
        return false;
    }
    job->next = number + 1;
    file->place->bytes += n;
    job->waiting_bytes -= n;
    group->last = number;
    group->bytes += n;
    group->lines++;
    return group->lines < GROUP_LINES && group->bytes < GROUP_BYTES;
}

/* What the group has written is on the disk. */
static bool sync_file(struct batch_output *output, const struct batch_file *file)
{
    errno = 0;
    if (fflush(file->file) != 0 || (!file->is_standard && fdatasync(fileno(file->file)) != 0))
        return complain_write(output, file);
    return file->is_standard || hash_tail(file, file->place->bytes, &file->place->tail_hash);
}

/* One group of lines; *more: there may be another. */
static bool write_group(struct batch_output *output, struct batch_journal *journal, bool *more)
{
    struct group group = {.output = output};
    uint64_t before[BATCH_FILES];

    for (size_t i = 0; i < BATCH_FILES; i++)
        before[i] = output->files[i].place->bytes;
    if (!batch_journal_visit(journal, write_line, &group))
        return false;
    if (group.failed != NULL)
        return complain_write(output, group.failed);
    *more = group.lines == GROUP_LINES || group.bytes >= GROUP_BYTES;
    if (group.lines == 0)
        return batch_journal_commit(journal);
    for (size_t i = 0; i < BATCH_FILES; i++)
        if (output->files[i].place->bytes > before[i] && !sync_file(output, &output->files[i]))
            return false;
    return batch_journal_written(journal, group.last, output->job);
}

bool batch_output_flush(struct batch_output *output, struct batch_journal *journal)
{
    bool more = true;

    while (more)
        if (!write_group(output, journal, &more))
            return false;
    return true;
}
