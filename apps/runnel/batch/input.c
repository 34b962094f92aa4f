/* The lines of a batch: see input.h. */
#include "input.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "apps/runnel/common.h"

enum { BLOCK_BYTES = 256 * 1024 };

/* A line while it is read. */
struct growing {
    char *bytes;
    size_t kept, capacity;
    XXH3_state_t *hash;
    bool blank;
};

bool batch_input_open(struct batch_input *input, const char *path, size_t limit)
{
    bool is_standard = app_is_standard(path);
    struct stat status;

    *input = (struct batch_input){.path = is_standard ? "standard input" : path, .limit = limit};
    input->fd = is_standard ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3) : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (input->fd < 0 || fstat(input->fd, &status) != 0) {
        app_error("%s: %s", input->path, strerror(errno));
        return false;
    }
    if (!is_standard && !S_ISREG(status.st_mode)) {
        app_error("%s is not a regular file; - is standard input", path);
        return false;
    }
    input->size = S_ISREG(status.st_mode) ? (uint64_t)status.st_size : 0;
    input->block = malloc(BLOCK_BYTES);
    if (input->block == NULL)
        app_error("not enough memory");
    return input->block != NULL;
}

void batch_input_close(struct batch_input *input)
{
    if (input->fd >= 0)
        close(input->fd);
    free(input->block);
    *input = (struct batch_input){.fd = -1};
}

bool batch_input_ready(const struct batch_input *input, int wait_ms)
{
    struct pollfd look = {.fd = input->fd, .events = POLLIN};

    return input->at < input->n_block || input->size > 0 || poll(&look, 1, wait_ms) > 0;
}

/* The next block; false at the end (n_block is 0) or after a message (*broken). */
static bool refill(struct batch_input *input, bool *broken)
{
    ssize_t got = 0;

    do
        got = read(input->fd, input->block, BLOCK_BYTES);
    while (got < 0 && errno == EINTR);
    input->at = 0;
    input->n_block = got > 0 ? (size_t)got : 0;
    *broken = got < 0;
    if (got < 0)
        app_error("%s: %s", input->path, strerror(errno));
    return got > 0;
}

/* Adds n bytes to the line, or only to its hash and length once it is too long. False: no memory. */
static bool grow(struct batch_input *input, struct growing *line, struct batch_raw *raw, const char *bytes, size_t n)
{
    size_t capacity = line->capacity;
    char *grown = NULL;

    XXH3_64bits_update(line->hash, bytes, n);
    for (size_t i = 0; i < n && line->blank; i++)
        line->blank = bytes[i] == ' ' || bytes[i] == '\t' || bytes[i] == '\r';
    raw->n += n;
    if (raw->n > input->limit) {
        free(line->bytes);
        line->bytes = NULL;
        line->kept = line->capacity = 0;
        return true;
    }
    if (capacity < raw->n) {
        capacity = 2 * capacity > raw->n ? 2 * capacity : raw->n;
        grown = realloc(line->bytes, capacity);
        if (grown == NULL)
            return false;
        line->bytes = grown;
        line->capacity = capacity;
    }
    memcpy(line->bytes + line->kept, bytes, n);
    line->kept += n;
    return true;
}

/* Reads up to a newline or the end of the file. */
static enum batch_read read_line(struct batch_input *input, struct growing *line, struct batch_raw *raw)
{
    bool broken = false, any = false;

    for (;;) {
        const char *from = NULL, *newline = NULL;
        size_t n = 0;

        if (input->at == input->n_block && !refill(input, &broken))
            return broken ? BATCH_ERROR : any ? BATCH_LINE : BATCH_END;
        any = true;
        from = input->block + input->at;
        newline = memchr(from, '\n', input->n_block - input->at);
        n = newline != NULL ? (size_t)(newline - from) : input->n_block - input->at;
        if (n > 0 && !grow(input, line, raw, from, n)) {
            app_error("not enough memory for a line of more than %zu bytes", raw->n);
            return BATCH_ERROR;
        }
        input->at += n + (newline != NULL);
        input->bytes += n + (newline != NULL);
        if (newline != NULL)
            return BATCH_LINE;
    }
}

enum batch_read batch_input_next(struct batch_input *input, struct batch_raw *raw)
{
    struct growing line = {.hash = XXH3_createState(), .blank = true};
    enum batch_read result = BATCH_ERROR;

    *raw = (struct batch_raw){0};
    if (line.hash == NULL) {
        app_error("not enough memory");
        return BATCH_ERROR;
    }
    XXH3_64bits_reset(line.hash);
    result = read_line(input, &line, raw);
    raw->hash = XXH3_64bits_digest(line.hash);
    XXH3_freeState(line.hash);
    raw->too_long = raw->n > input->limit;
    raw->blank = line.blank;
    raw->end = input->bytes;
    if (result == BATCH_LINE)
        raw->number = ++input->number;
    if (result != BATCH_LINE || raw->blank) {
        free(line.bytes);
        line.bytes = NULL;
    }
    raw->bytes = line.bytes;
    return result;
}
