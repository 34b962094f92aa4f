/* The output of a batch job: see batch_output.h. */
#include "batch_output.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "common.h"

enum { TAIL_BYTES = 4096, GROUP_LINES = 4096, GROUP_BYTES = 8 << 20 };

/* What is written between two commits. */
struct group {
    struct batch_output *output;
    uint64_t last, bytes;
    unsigned lines;
    bool failed;
};

static bool complain(struct batch_output *output)
{
    output->gone = output->is_standard && errno == EPIPE;
    if (!output->gone)
        app_error("%s: %s", output->path, strerror(errno));
    return false;
}

/* The hash of the last bytes in front of `end`. */
static bool hash_tail(struct batch_output *output, uint64_t end, uint64_t *hash)
{
    char tail[TAIL_BYTES];
    size_t n = end < TAIL_BYTES ? (size_t)end : TAIL_BYTES;
    ssize_t got = pread(fileno(output->file), tail, n, (off_t)(end - n));

    *hash = XXH3_64bits(tail, n);
    if (got >= 0 && (size_t)got < n)
        errno = EIO;
    return got >= 0 && (size_t)got == n ? true : complain(output);
}

/* Of a job that goes on: has the file what the job has written? */
static bool check_known(struct batch_output *output, uint64_t size)
{
    uint64_t hash = 0;

    if (size < output->job->out_bytes) {
        app_error("%s has %llu bytes, its journal knows of %llu: it was changed; --overwrite begins anew", output->path,
                  (unsigned long long)size, (unsigned long long)output->job->out_bytes);
        return false;
    }
    if (output->job->out_bytes == 0)
        return true;
    if (!hash_tail(output, output->job->out_bytes, &hash))
        return false;
    if (hash == output->job->tail_hash)
        return true;
    app_error("%s is not what its journal has written: it was changed; --overwrite begins anew", output->path);
    return false;
}

static bool open_standard(struct batch_output *output)
{
    int fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);

    output->path = "standard output";
    output->is_standard = true;
    output->file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (output->file != NULL)
        return true;
    if (fd >= 0)
        close(fd);
    return complain(output);
}

bool batch_output_open(struct batch_output *output, const char *path, enum batch_begin begin, bool fresh, bool ordered,
                       struct batch_job *job)
{
    struct stat status;
    int fd;

    *output = (struct batch_output){.path = path, .ordered = ordered, .job = job};
    if (app_is_standard(path))
        return open_standard(output);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
    if (fd < 0)
        return complain(output);
    output->file = fdopen(fd, "r+");
    if (output->file == NULL || fstat(fd, &status) != 0) {
        if (output->file == NULL)
            close(fd);
        return complain(output);
    }
    if (!S_ISREG(status.st_mode)) {
        app_error("%s is not a regular file", path);
        return false;
    }
    if (!fresh)
        return check_known(output, (uint64_t)status.st_size);
    if (status.st_size == 0 || begin == BATCH_OVERWRITE)
        return true;
    app_error("%s exists already, and its journal knows of no job: --overwrite begins anew", path);
    return false;
}

bool batch_output_cut(struct batch_output *output)
{
    off_t end = (off_t)output->job->out_bytes;

    if (output->is_standard)
        return true;
    if (ftruncate(fileno(output->file), end) != 0 || fseeko(output->file, end, SEEK_SET) != 0)
        return complain(output);
    return true;
}

static bool write_line(void *user, uint64_t number, const char *text, size_t n)
{
    struct group *group = user;
    struct batch_job *job = group->output->job;

    if (group->output->ordered && number != job->next)
        return false;
    errno = 0;
    if (n > 0 && fwrite(text, 1, n, group->output->file) != n) {
        group->failed = true;
        return false;
    }
    job->next = number + 1;
    job->out_bytes += n;
    group->last = number;
    group->bytes += n;
    group->lines++;
    return group->lines < GROUP_LINES && group->bytes < GROUP_BYTES;
}

/* One group of lines; *more: there may be another. */
static bool write_group(struct batch_output *output, struct batch_journal *journal, bool *more)
{
    struct group group = {.output = output};

    if (!batch_journal_visit(journal, write_line, &group))
        return false;
    if (group.failed)
        return complain(output);
    *more = group.lines == GROUP_LINES || group.bytes >= GROUP_BYTES;
    if (group.lines == 0)
        return batch_journal_commit(journal);
    errno = 0;
    if (fflush(output->file) != 0 || (!output->is_standard && fdatasync(fileno(output->file)) != 0))
        return complain(output);
    return (output->is_standard || hash_tail(output, output->job->out_bytes, &output->job->tail_hash)) &&
           batch_journal_written(journal, group.last, output->job);
}

bool batch_output_flush(struct batch_output *output, struct batch_journal *journal)
{
    bool more = true;

    while (more)
        if (!write_group(output, journal, &more))
            return false;
    return true;
}

void batch_output_close(struct batch_output *output)
{
    if (output->file != NULL)
        fclose(output->file);
    output->file = NULL;
}
