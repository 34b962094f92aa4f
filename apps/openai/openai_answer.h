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
    bool told, own_id; /* responses: its id was written, and it was one of ours */
};

/* Responses: a stretch of a choice's texts, or a call. */
enum openai_item_kind { OPENAI_REASONING, OPENAI_MESSAGE, OPENAI_CALL };

struct openai_item {
    enum openai_item_kind kind;
    size_t call;                    /* of CALL: which */
    size_t begin, end;              /* of REASONING and MESSAGE: in the choice's text; the end once it has ended */
    size_t first_entry, last_entry; /* of MESSAGE: of its log-probabilities, likewise */
};

/* Choice `index` of a request while it is computed. Not to be moved. */
struct openai_choice {
    runnel_model *model;
    const struct openai_request *request;
    struct openai_buffer content, reasoning;
    struct openai_buffer ids;     /* of its tokens, parted by commas; where the request keeps them */
    struct openai_buffer entries; /* chat: the log-probabilities; completions: those of the chosen tokens */
    struct openai_buffer tokens, tops, offsets; /* completions: what stands beside them */
    uint64_t n_entries, n_ids, characters;
    int32_t *prompt; /* [n_prompt]: whose log-probabilities are told, too; owned */
    size_t n_prompt;
    bool own_bos;               /* of them the first is no part of the text */
    double logprob;             /* the sum of its tokens' ... */
    uint64_t n_tokens;          /* ... so many; where log-probabilities were asked for */
    struct openai_call **calls; /* [n_calls], owned */
    size_t n_calls;
    struct openai_item *items; /* [n_items]: responses; owned */
    size_t n_items;
    float *embedding; /* [n_embedding], owned */
    size_t n_embedding;
    bool shown;  /* among the best so far, while they are written */
    bool failed; /* memory was short */
    /* from the terminal event */
    runnel_event_type end; /* 0: not yet */
    runnel_finish finish;
    int32_t stop, stop_token; /* of runnel_event */
    runnel_usage usage;
    runnel_timings timings;
    runnel_status status;
    char error[RUNNEL_ERROR_BYTES];
    runnel_about about; /* FAILED */
};

struct openai_head {
    char id[48]; /* of the answer */
    int64_t created;
    const char *model; /* where the body names none */
    bool details;      /* the usage tells what a cache had and what was guessed: not the same in every run */
};

/* Begins a choice; `request` and `model` are borrowed until it is closed. False when memory is short: close it all
 * the same. */
bool openai_choice_open(struct openai_choice *choice, const struct openai_request *request, size_t index,
                        runnel_model *model);
void openai_choice_close(struct openai_choice *choice);

/* The stop string that ended a choice; NULL: none. And vLLM's stop_reason: it, or the id of the stop token, or null. */
const char *openai_choice_stop(const struct openai_choice *choice);
void openai_stop_write(FILE *to, const struct openai_choice *choice);

/* Takes any event of the stream. */
void openai_choice_event(struct openai_choice *choice, const runnel_event *event);

/* Writes the body of a response: choices[0..n) have all ended with DONE. One line, without a newline. */
void openai_answer_write(FILE *to, const struct openai_request *request, struct openai_choice *choices, size_t n,
                         const struct openai_head *head);

/* Of /v1/responses: the whole; before the choice's terminal event it is in progress, and without output. Item i, its
 * id, the one part of a message's or of reasoning's content, and log-probabilities; begun: as they are when nothing of
 * it has come yet. */
void openai_response_write(FILE *to, const struct openai_request *request, struct openai_choice *choice,
                           const struct openai_head *head);
void openai_item_write(FILE *to, struct openai_choice *choice, size_t i, const struct openai_head *head, bool begun);
void openai_item_id_write(FILE *to, const struct openai_choice *choice, size_t i, const struct openai_head *head);
void openai_part_write(FILE *to, struct openai_choice *choice, size_t i, bool begun);
void openai_item_logprobs_write(FILE *to, struct openai_choice *choice, const struct openai_item *item);

/* "usage": {..}, of choices that have ended. */
void openai_usage_write(FILE *to, const struct openai_request *request, const struct openai_choice *choices, size_t n,
                        const struct openai_head *head);

/* Of a choice with log-probabilities: those that have come since the last call, as the value of "logprobs"; they are
 * forgotten then. */
void openai_logprobs_take(FILE *to, struct openai_choice *choice);

/* Of a choice that keeps ids: those that have come since the last call, as an array; they are forgotten then. */
void openai_ids_take(FILE *to, struct openai_choice *choice);

/* Of a request that tells ids: those of choice `index`'s prompt, as an array. */
void openai_prompt_ids_write(FILE *to, const struct openai_request *request, size_t index);

/* {"error": {"message", "type", "param", "code"}} */
void openai_error_write(FILE *to, const struct openai_error *error);

/* What an error says, as a JSON string: without the characters that a precision has cut. */
void openai_sentence_write(FILE *to, const char *sentence);

/* A NUL-terminated text as a JSON string; NULL as null. */
void openai_string_write(FILE *to, const char *text);

#endif
