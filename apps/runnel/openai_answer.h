/* Answers in OpenAI's form: events are collected per choice, then written as the body of a response.
 *
 * Memory streams hold what has come: texts and, where asked for, log-probabilities already as JSON. Nothing here
 * depends on when events came or on what ran beside them, so the same request gives the same bytes; the tokens that
 * a cache had are in the choice's usage but not in the body for this reason. */
#ifndef RUNNEL_APP_OPENAI_ANSWER_H
#define RUNNEL_APP_OPENAI_ANSWER_H

#include <stdbool.h>
#include <stdio.h>

#include "openai_request.h"

/* A text that grows. It must not be moved while it is open: the stream writes to where it stands. */
struct openai_buffer {
    FILE *to;    /* NULL: not open */
    char *bytes; /* valid after fflush(to) */
    size_t n;
};

struct openai_call {
    struct openai_buffer name, id, arguments;
    bool complete;
};

/* Choice `index` of a request while it is computed. Not to be moved. */
struct openai_choice {
    runnel_model *model;
    const struct openai_request *request;
    struct openai_buffer content, reasoning;
    struct openai_buffer entries; /* chat: the log-probabilities; completions: those of the chosen tokens */
    struct openai_buffer tokens, tops, offsets; /* completions: what stands beside them */
    uint64_t n_entries, characters;
    struct openai_call **calls; /* [n_calls], owned */
    size_t n_calls;
    float *embedding; /* [n_embedding], owned */
    size_t n_embedding;
    bool failed; /* memory was short */
    /* from the terminal event */
    runnel_event_type end; /* 0: not yet */
    runnel_finish finish;
    runnel_usage usage;
    runnel_status status;
    char error[RUNNEL_ERROR_BYTES];
};

struct openai_head {
    char id[48]; /* of the answer */
    int64_t created;
    const char *model; /* where the body names none */
};

/* Begins a choice; `request` and `model` are borrowed until it is closed. False when memory is short: close it all
 * the same. */
bool openai_choice_open(struct openai_choice *choice, const struct openai_request *request, size_t index,
                        runnel_model *model);
void openai_choice_close(struct openai_choice *choice);

/* Takes any event of the stream. */
void openai_choice_event(struct openai_choice *choice, const runnel_event *event);

/* Writes the body of a response: choices[0..n) have all ended with DONE. One line, without a newline. */
void openai_answer_write(FILE *to, const struct openai_request *request, struct openai_choice *choices, size_t n,
                         const struct openai_head *head);

/* {"error": {"message", "type", "param", "code"}} */
void openai_error_write(FILE *to, const struct openai_error *error);

/* A NUL-terminated text as a JSON string; NULL as null. */
void openai_string_write(FILE *to, const char *text);

#endif
