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
struct batch_growing {
    char *bytes;
    size_t n, kept, capacity; /* n: read so far; kept: of them, those in bytes */
    XXH3_state_t *hash;
    bool begun, blank;
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

static struct batch_growing *line_new(void)
{
    struct batch_growing *line = calloc(1, sizeof *line);

    if (line != NULL && (line->hash = XXH3_createState()) == NULL) {
        free(line);
        line = NULL;
    }
    if (line == NULL) {
        app_error("not enough memory");
        return NULL;
    }
    XXH3_64bits_reset(line->hash);
    line->blank = true;
    return line;
}

static void line_free(struct batch_growing *line)
{
    if (line == NULL)
        return;
    free(line->bytes);
    XXH3_freeState(line->hash);
    free(line);
}

void batch_input_close(struct batch_input *input)
{
    if (input->fd >= 0)
        close(input->fd);
    line_free(input->line);
    free(input->block);
    *input = (struct batch_input){.fd = -1};
}

bool batch_input_ready(const struct batch_input *input, int wait_ms)
{
    struct pollfd look = {.fd = input->fd, .events = POLLIN};

    return input->at < input->n_block || input->size > 0 || poll(&look, 1, wait_ms) > 0;
}

/* The next block. BATCH_LINE: it is there; else n_block is 0. */
static enum batch_read refill(struct batch_input *input)
{
    ssize_t got = 0;

    input->at = input->n_block = 0;
    if (!batch_input_ready(input, 0))
        return BATCH_WAIT;
    do
        got = read(input->fd, input->block, BLOCK_BYTES);
    while (got < 0 && errno == EINTR);
    if (got < 0) {
        app_error("%s: %s", input->path, strerror(errno));
        return BATCH_ERROR;
    }
    input->n_block = (size_t)got;
    return got > 0 ? BATCH_LINE : BATCH_END;
}

/* Adds n bytes to the line, or only to its hash and length once it is too long. False: no memory. */
static bool grow(struct batch_input *input, struct batch_growing *line, const char *bytes, size_t n)
{
    size_t capacity = line->capacity;
    char *grown = NULL;

    XXH3_64bits_update(line->hash, bytes, n);
    for (size_t i = 0; i < n && line->blank; i++)
        line->blank = bytes[i] == ' ' || bytes[i] == '\t' || bytes[i] == '\r';
    line->n += n;
    if (line->n > input->limit) {
        free(line->bytes);
        line->bytes = NULL;
        line->kept = line->capacity = 0;
        return true;
    }
    if (capacity < line->n) {
        capacity = 2 * capacity > line->n ? 2 * capacity : line->n;
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

/* Reads up to a newline, the end of the file or of what is there. */
static enum batch_read read_line(struct batch_input *input, struct batch_growing *line)
{
    enum batch_read block = BATCH_LINE;

    for (;;) {
        const char *from = NULL, *newline = NULL;
        size_t n = 0;

        if (input->at == input->n_block && (block = refill(input)) != BATCH_LINE)
            return block == BATCH_END && line->begun ? BATCH_LINE : block;
        line->begun = true;
        from = input->block + input->at;
        newline = memchr(from, '\n', input->n_block - input->at);
        n = newline != NULL ? (size_t)(newline - from) : input->n_block - input->at;
        if (n > 0 && !grow(input, line, from, n)) {
            app_error("not enough memory for a line of more than %zu bytes", line->n);
            return BATCH_ERROR;
        }
        input->at += n + (newline != NULL);
        input->bytes += n + (newline != NULL);
        if (newline != NULL)
            return BATCH_LINE;
    }
}

/* The bytes of one that is not blank become the caller's. */
static void give_line(struct batch_input *input, struct batch_growing *line, struct batch_raw *raw)
{
    *raw = (struct batch_raw){.number = ++input->number,
                              .hash = XXH3_64bits_digest(line->hash),
                              .bytes = line->blank ? NULL : line->bytes,
                              .n = line->n,
                              .too_long = line->n > input->limit,
                              .blank = line->blank,
                              .end = input->bytes};
    if (!line->blank)
        line->bytes = NULL;
}

enum batch_read batch_input_next(struct batch_input *input, struct batch_raw *raw)
{
    enum batch_read result = BATCH_ERROR;

    *raw = (struct batch_raw){0};
    if (input->line == NULL)
        input->line = line_new();
    if (input->line == NULL)
        return BATCH_ERROR;
    result = read_line(input, input->line);
    if (result == BATCH_LINE)
        give_line(input, input->line, raw);
    if (result != BATCH_WAIT) {
        line_free(input->line);
        input->line = NULL;
    }
    return result;
}
