/* The lines of a file, one after another, in bounded memory: a line beyond the limit is read through and not kept. Of a
 * pipe nothing is awaited but by batch_input_ready. */
#ifndef RUNNEL_APP_BATCH_INPUT_H
#define RUNNEL_APP_BATCH_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct batch_input {
    const char *path;
    int fd;          /* -1: not open */
    size_t limit;    /* longest line, in bytes */
    uint64_t number; /* of the line read last, from 1 */
    uint64_t bytes;  /* read as lines so far */
    uint64_t size;   /* of the file, when it was opened; 0: not known */
    char *block;     /* [n_block], looked at up to `at` */
    size_t at, n_block;
    struct batch_growing *line; /* that has begun, or NULL */
};

struct batch_raw {
    uint64_t number;
    uint64_t hash; /* XXH3-64 of the line without its newline */
    char *bytes;   /* [n], owned by the caller; NULL: too long, or blank */
    size_t n;      /* the whole length, also of what was not kept */
    bool too_long, blank;
    uint64_t end; /* offset behind the line in the file */
};

enum batch_read { BATCH_LINE, BATCH_END, BATCH_ERROR, BATCH_WAIT };

/* Opens a regular file, or standard input, of any kind, for "-". False after a message. */
bool batch_input_open(struct batch_input *input, const char *path, size_t limit);
void batch_input_close(struct batch_input *input);

/* Whether reading goes on without waiting for whoever writes; looks for it for so long at most, or until a signal. */
bool batch_input_ready(const struct batch_input *input, int wait_ms);

/* The next line. BATCH_ERROR after a message. BATCH_WAIT: its end is not there yet; a later call goes on with it. A
 * newline at the very end is not the beginning of another line. */
enum batch_read batch_input_next(struct batch_input *input, struct batch_raw *raw);

#endif
