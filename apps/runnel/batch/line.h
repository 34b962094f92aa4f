/* One line of a batch: from its JSON to a request, and from the end of its answers to a line of the output.
 *
 *     {"custom_id": .., "method": "POST", "url": "/v1/chat/completions", "body": {..}}
 *     {"id": .., "custom_id": .., "response": {"status_code": 200, "request_id": .., "body": {..}}, "error": null}
 *
 * A line that is no request (not JSON, no custom_id, an unknown url, ...) has a null response and an error with
 * code, message, param and line; a request at fault has a response with status 400 and OpenAI's error object as its
 * body. Everything written is a function of the line, its number, the model's name and the job's date. */
#ifndef RUNNEL_APP_BATCH_LINE_H
#define RUNNEL_APP_BATCH_LINE_H

#include "input.h"
#include "journal.h"
#include "apps/openai/openai_answer.h"
#include "apps/openai/openai_request.h"

enum batch_fault { BATCH_GOOD, BATCH_BAD_LINE, BATCH_BAD_REQUEST };

struct app_options;
struct batch_line;

/* One stream of a line. */
struct batch_stream {
    struct batch_line *line;
    runnel_stream id;
};

struct batch_line {
    uint64_t number, hash, end; /* end: offset behind it in the input */
    size_t bytes;               /* its length */
    char *custom_id;            /* [custom_id_bytes], owned; NULL: none */
    size_t custom_id_bytes;
    char label[RUNNEL_LABEL_BYTES]; /* of its requests: custom_id, as much of it as fits */
    enum batch_fault fault;
    struct openai_error error; /* where there is a fault */
    size_t fault_at;           /* the choice it is of */
    struct openai_request request;
    struct openai_choice *choices; /* [n_choices], owned, of which n_open are open */
    struct batch_stream *streams;  /* [n_choices], owned */
    size_t n_choices, n_open, n_submitted, n_ended;
    uint64_t answer_bytes; /* of all choices, about */
    bool too_large;
    bool let_in; /* the job's owner was asked */
};

/* A new line from what was read: takes raw->bytes. A fault is in the line. NULL: no memory. */
struct batch_line *batch_line_new(struct batch_raw *raw, size_t limit);
void batch_line_free(struct batch_line *line);

/* The line does not count, because of `first` with the same custom_id. */
void batch_line_duplicate(struct batch_line *line, uint64_t first);

/* Notes a fault of choice `at`; the one of the lowest choice stays. */
void batch_line_fault(struct batch_line *line, size_t at, runnel_about about, runnel_status status,
                      const char *sentence);

/* Notes it where the line names an adapter that is none of the job's. */
void batch_line_check_adapter(struct batch_line *line, const struct app_options *options);

/* What its random numbers come from where the body names no seed. */
uint64_t batch_line_seed(const struct batch_line *line);

/* All that will come has come. */
bool batch_line_done(const struct batch_line *line);

/* The line of the output, with its newline; tokens are added up in *answer, whose text the caller sets. */
void batch_line_write(FILE *to, struct batch_line *line, const char *model, int64_t created,
                      struct batch_answer *answer);

#endif
