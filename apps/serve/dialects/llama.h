/* llama.cpp's /completion, /infill and /embedding: bodies in and answers out. */
#ifndef RUNNEL_SERVE_LLAMA_H
#define RUNNEL_SERVE_LLAMA_H

#include "apps/serve/serve.h"

/* The body in OpenAI's form of a completion; NULL: *error says why, or http is 0 and memory is short. */
json_t *llama_translate(const json_t *body, struct openai_error *error);
json_t *llama_translate_infill(const json_t *body, struct openai_error *error);

/* Of /embedding and /embeddings, in OpenAI's form of embeddings. */
json_t *llama_translate_embedding(const json_t *body, struct openai_error *error);

/* Of the former two, and of vectors. */
extern const struct serve_field_name llama_names[], llama_embedding_names[];

/* What a body wants in its answers, into the task. */
void llama_wish(struct serve_task *task, const json_t *body);

#endif
