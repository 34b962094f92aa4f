/* The files that the answers of a batch job go to: written from the journal alone, whole lines, and on the disk before
 * the journal says so. The output, and where the job has one a second file, for the lines whose answer is an error. */
#ifndef RUNNEL_APP_BATCH_OUTPUT_H
#define RUNNEL_APP_BATCH_OUTPUT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "journal.h"

struct batch_file {
    const char *path;
    FILE *file;                /* NULL: not open */
    bool is_standard;          /* nothing in it can be looked at or taken back */
    struct batch_place *place; /* the job's, kept here */
};

struct batch_output {
    struct batch_file files[BATCH_FILES]; /* BATCH_ERRORS: without a path where errors go to the output */
    bool ordered;
    bool gone;             /* the reader of standard output has */
    struct batch_job *job; /* places and next are kept here */
};

/* Opens the files of a job (- is standard output; errors NULL: there is no such file) and checks that they are those
 * that the job knows; what is in them is not touched. False after a message. Close after any outcome. */
bool batch_output_open(struct batch_output *output, const char *path, const char *errors, enum batch_begin begin,
                       bool fresh, bool ordered, struct batch_job *job);

/* Cuts off what the journal does not know of. */
bool batch_output_cut(struct batch_output *output);

/* Writes what the journal has for the files: all answers, or, ordered, those up to the first line without one.
 * Commits. */
bool batch_output_flush(struct batch_output *output, struct batch_journal *journal);

void batch_output_close(struct batch_output *output);

#endif
