/* What the files that read bodies share: see openai_request.h. */
#ifndef RUNNEL_APP_OPENAI_READER_H
#define RUNNEL_APP_OPENAI_READER_H

#include "openai_request.h"

/* What is read before the parts of a request are put together. The JSON is the body's. */
struct openai_reader {
    struct openai_request *r;
    struct openai_error *error;
    const json_t *tools, *variables, *effort, *documents, *input, *instructions;
    const json_t *allowed;  /* tool_choice's list of tools ... */
    const char *allowed_of; /* ... and where it stands */
    json_t *own_tools;      /* where `tools` points to if they are not the body's; owned */
    int64_t chat_tokens;    /* max_completion_tokens; 0: not given */
    bool chat_logprobs, no_tools, asks_prompt;
};

/* ---- openai_input.c: fields of responses that have no simple kind ---- */

typedef bool openai_take_fn(struct openai_reader *reader, const char *name, const json_t *value);
openai_take_fn openai_take_input, openai_take_instructions, openai_take_text, openai_take_reasoning;
openai_take_fn openai_take_truncation, openai_take_metadata, openai_take_tools, openai_take_include;

/* tool_choice, also of chats. */
openai_take_fn openai_take_choice;

/* The tools that tool_choice leaves; then the conversation. False: reader->error says why. */
bool openai_finish_choice(struct openai_reader *reader);
bool openai_finish_input(struct openai_reader *reader);

/* ---- openai_functions.c ---- */

openai_take_fn openai_take_functions, openai_take_function_call;

/* A message of the older form becomes one with tools; `where` names it in errors. */
bool openai_fix_function(json_t *message, const char *where, struct openai_error *error);

/* ---- openai_biases.c ---- */

openai_take_fn openai_take_biases;

/* ---- openai_infill.c ---- */

openai_take_fn openai_take_suffix, openai_take_files;
bool openai_finish_infill(struct openai_reader *reader);

/* ---- openai_scores.c ---- */

openai_take_fn openai_take_query, openai_take_documents, openai_take_return, openai_take_rank_fields;
bool openai_finish_scores(struct openai_reader *reader);

/* ---- openai_messages.c ---- */

extern const char *const openai_roles[]; /* up to a NULL */

/* words: up to a NULL. */
bool openai_known_word(const char *const *words, const char *word);

/* False, with an error, when what is offered as a function is none: its name, or what else has the wrong type. */
bool openai_function_check(const json_t *function, const char *where, struct openai_error *error);

#endif
