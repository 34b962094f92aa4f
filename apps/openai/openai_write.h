/* What the files that write answers share: see openai_answer.h. */
#ifndef RUNNEL_APP_OPENAI_WRITE_H
#define RUNNEL_APP_OPENAI_WRITE_H

#include "openai_answer.h"

/* What the buffer holds, as a JSON string. */
void openai_pour_string(FILE *to, struct openai_buffer *buffer);

/* Not OpenAI's: ,"shifts": .. of a request whose answers may go on when the context is full. */
void openai_shifts_write(FILE *to, const struct openai_request *request, const struct openai_choice *choices, size_t n);

/* Tokens of the text that was thought aloud, counted alone: a model may have spelled it in others. */
uint64_t openai_reasoning_tokens(const struct openai_choice *choice);

/* A token with its log-probability behind those of the choice; NaN: it has none. */
void openai_logprobs_add(struct openai_choice *choice, const runnel_event *event);

/* Of a choice whose prompt is echoed with log-probabilities: its tokens, false: memory is short; and a LOGITS event. */
bool openai_prompt_open(struct openai_choice *choice, const struct openai_prompt *prompt);
void openai_prompt_event(struct openai_choice *choice, const runnel_event *event);

/* Whole answers with scores. */
void openai_rerank_write(FILE *to, const struct openai_request *request, const struct openai_choice *choices, size_t n,
                         const struct openai_head *head);
void openai_classes_write(FILE *to, const struct openai_request *request, const struct openai_choice *choices, size_t n,
                          const struct openai_head *head);

/* Of a choice of responses: the item that an event begins or ends. Before the choice has taken the event. */
void openai_items_before(struct openai_choice *choice, const runnel_event *event);

#endif
