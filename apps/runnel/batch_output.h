/* The output of a batch job: written from the journal alone, whole lines, and on the disk before the journal says
 * so. */
#ifndef RUNNEL_APP_BATCH_OUTPUT_H
#define RUNNEL_APP_BATCH_OUTPUT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "batch_journal.h"

struct batch_output {
    const char *path;
    FILE *file; /* NULL: not open */
    bool ordered;
    bool is_standard;      /* nothing in it can be looked at or taken back */
    bool gone;             /* its reader has */
    struct batch_job *job; /* out_bytes, tail_hash and next are kept here */
};

/* Opens the output of a job (- is standard output) and checks that it is the one that the job knows; what is in it is
 * not touched. False after a message. Close after any outcome. */
bool batch_output_open(struct batch_output *output, const char *path, enum batch_begin begin, bool fresh, bool ordered,
                       struct batch_job *job);

/* Cuts off what the journal does not know of. */
bool batch_output_cut(struct batch_output *output);

/* Writes what the journal has for the output: all answers, or, ordered, those up to the first line without one.
 * Commits. */
bool batch_output_flush(struct batch_output *output, struct batch_journal *journal);

void batch_output_close(struct batch_output *output);

#endif
