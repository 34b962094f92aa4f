/* How far a batch job is: a bar while it runs, a summary at its end. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "batch.h"

enum { SHOW_US = 200 * 1000 };

uint64_t batch_clock_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static double seconds_since(const struct batch *batch, uint64_t from_us)
{
    return (double)(batch->now_us - from_us) * 1e-6 + 1e-6;
}

/* How far in the input all lines are done, but for those in flight. */
static uint64_t done_bytes(const struct batch *batch)
{
    uint64_t bytes = batch->input.bytes;

    return bytes > batch->line_bytes ? bytes - batch->line_bytes : 0;
}

void batch_show(struct batch *batch)
{
    double size = (double)batch->input.size, done = (double)done_bytes(batch);
    double here = done - (double)batch->first_offset, seconds = seconds_since(batch, batch->began_us);
    double left = here > 0 ? fmax(size - done, 0) * seconds / here : 0;
    unsigned long whole = left < 3.6e9 ? (unsigned long)left : 3600000000ul;
    char tail[128];
    int n;

    if (batch->app.options->quiet || !app_redraws() || batch->now_us - batch->shown_us < SHOW_US)
        return;
    batch->shown_us = batch->now_us;
    n = snprintf(tail, sizeof tail, "  %llu line%s, %.1f/s", (unsigned long long)batch->done_lines,
                 app_plural(batch->done_lines), (double)batch->done_lines / seconds);
    if (here > 0 && size > 0)
        snprintf(tail + n, sizeof tail - (size_t)n, ", %lu:%02lu:%02lu left", whole / 3600, whole / 60 % 60,
                 whole % 60);
    app_progress(batch->app.options, "batch", size > 0 ? fmin(done / size, 1) : -1, tail);
}

void batch_summary(const struct batch *batch, const struct batch_counts *counts)
{
    double seconds = seconds_since(batch, batch->began_us);

    if (batch->app.options->quiet)
        return;
    fprintf(stderr, "lines: %llu, %llu ok, %llu error%s", (unsigned long long)counts->lines,
            (unsigned long long)counts->good, (unsigned long long)counts->bad, app_plural(counts->bad));
    if (counts->lines > batch->done_lines)
        fprintf(stderr, " (%llu from earlier runs)", (unsigned long long)(counts->lines - batch->done_lines));
    fprintf(stderr, "\ntokens: %llu of prompts (%llu cached), %llu of answers\n",
            (unsigned long long)counts->prompt_tokens, (unsigned long long)counts->cached_tokens,
            (unsigned long long)counts->completion_tokens);
    if (counts->shifts > 0)
        fprintf(stderr, "context: full %llu time%s, %llu token%s of the texts went\n",
                (unsigned long long)counts->shifts, app_plural(counts->shifts),
                (unsigned long long)counts->shifted_tokens, app_plural(counts->shifted_tokens));
    fprintf(stderr, "time: %.1f s, %.1f lines/s, %.1f tokens/s\n", seconds, (double)batch->done_lines / seconds,
            (double)batch->tokens / seconds);
}

/* ---- As JSON ----------------------------------------------------------------------------- */

static void put_member(FILE *to, const char *name, const char *text)
{
    fprintf(to, ",\"%s\":", name);
    openai_string_write(to, text);
}

/* Members that OpenAI's batch object has are named as there. */
static void put_summary(FILE *to, const struct batch *batch, const struct batch_counts *counts)
{
    const struct app_options *options = batch->app.options;
    double seconds = seconds_since(batch, batch->began_us);
    bool ended = batch->code == APP_OK || batch->code == APP_BAD_LINES;

    fprintf(to, "{\"object\":\"batch\",\"status\":\"%s\",\"exit_code\":%d",
            ended                          ? "completed"
            : batch->code == APP_CANCELLED ? "cancelled"
                                           : "failed",
            batch->code);
    put_member(to, "model", batch->model_name);
    put_member(to, "input_file", options->operands[1]);
    put_member(to, "output_file", options->operands[2]);
    put_member(to, "error_file", options->errors_file);
    fprintf(to, ",\"request_counts\":{\"total\":%llu,\"completed\":%llu,\"failed\":%llu}",
            (unsigned long long)counts->lines, (unsigned long long)counts->good, (unsigned long long)counts->bad);
    fprintf(to,
            ",\"usage\":{\"input_tokens\":%llu,\"input_tokens_details\":{\"cached_tokens\":%llu},"
            "\"output_tokens\":%llu,\"total_tokens\":%llu,\"shifts\":%llu,\"shifted_tokens\":%llu}",
            (unsigned long long)counts->prompt_tokens, (unsigned long long)counts->cached_tokens,
            (unsigned long long)counts->completion_tokens,
            (unsigned long long)(counts->prompt_tokens + counts->completion_tokens), (unsigned long long)counts->shifts,
            (unsigned long long)counts->shifted_tokens);
    fprintf(to, ",\"run\":{\"lines\":%llu,\"seconds\":%.3f,\"lines_per_s\":%.3f,\"tokens_per_s\":%.3f}}\n",
            (unsigned long long)batch->done_lines, seconds, (double)batch->done_lines / seconds,
            (double)batch->tokens / seconds);
}

/* The program's own standard output or error, by another name; -1: neither. */
static int own_output(const struct stat *named)
{
    struct stat own;

    for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++)
        if (fstat(fd, &own) == 0 && own.st_dev == named->st_dev && own.st_ino == named->st_ino)
            return fd;
    return -1;
}

/* Whether a file can be written beside its place, behind the links, and put there. */
static int check_place(const char *path)
{
    char *target = realpath(path, NULL);
    bool can = app_can_make(target != NULL ? target : path);

    if (!can)
        app_error("--summary %s: nothing can be written there: %s", path, strerror(errno));
    free(target);
    return can ? APP_OK : APP_FAILURE;
}

int batch_check_summary(const char *path)
{
    struct stat named;

    if (app_is_standard(path))
        return APP_OK;
    if (stat(path, &named) != 0)
        return lstat(path, &named) == 0 ? APP_OK : check_place(path);
    if (own_output(&named) >= 0 || S_ISFIFO(named.st_mode) || S_ISCHR(named.st_mode))
        return APP_OK;
    if (S_ISREG(named.st_mode))
        return check_place(path);
    app_error("--summary %s: not a file, a pipe or a terminal", path);
    return APP_USAGE;
}

static bool complain(const char *path)
{
    app_error("%s: %s", path, strerror(errno));
    return false;
}

/* To what is open already; takes the descriptor over. */
static bool write_through(const struct batch *batch, const struct batch_counts *counts, const char *path, int fd)
{
    FILE *to = fd >= 0 ? fdopen(fd, "w") : NULL;
    bool good = to != NULL;

    fflush(stdout);
    if (good) {
        put_summary(to, batch, counts);
        good = ferror(to) == 0;
        good = fclose(to) == 0 && good;
    } else if (fd >= 0) {
        close(fd);
    }
    return good ? true : complain(path);
}

/* Whole, or not there: it is written beside its place. */
static bool replace(const struct batch *batch, const struct batch_counts *counts, const char *path, const char *part)
{
    FILE *to = fopen(part, "we");
    bool good = to != NULL;

    if (good) {
        put_summary(to, batch, counts);
        good = ferror(to) == 0;
        good = fclose(to) == 0 && good && rename(part, path) == 0;
    }
    if (good)
        return true;
    complain(path);
    if (to != NULL)
        unlink(part);
    return false;
}

/* A regular file, the one behind the links, or none yet. */
static bool write_file(const struct batch *batch, const struct batch_counts *counts, const char *path)
{
    char *target = realpath(path, NULL), *part = NULL;
    bool good = false;

    if (asprintf(&part, "%s.part", target != NULL ? target : path) < 0)
        app_error("not enough memory");
    else
        good = replace(batch, counts, target != NULL ? target : path, part);
    free(part);
    free(target);
    return good;
}

bool batch_write_summary(const struct batch *batch, const struct batch_counts *counts)
{
    const char *path = batch->app.options->summary_file;
    struct stat named;
    int own;

    if (app_is_standard(path)) {
        put_summary(stdout, batch, counts);
        return app_output_code() == APP_OK;
    }
    if (stat(path, &named) != 0) {
        if (lstat(path, &named) != 0)
            return write_file(batch, counts, path);
        /* a link to nothing: there is nothing to lose */
        return write_through(batch, counts, path, open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
    }
    own = own_output(&named);
    if (own >= 0)
        return write_through(batch, counts, path, fcntl(own, F_DUPFD_CLOEXEC, 3));
    return S_ISREG(named.st_mode) ? write_file(batch, counts, path)
                                  : write_through(batch, counts, path, open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY));
}
