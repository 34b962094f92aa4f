/* Anthropic's /v1/messages: bodies in and answers out. */
#ifndef RUNNEL_SERVE_ANTHROPIC_H
#define RUNNEL_SERVE_ANTHROPIC_H

#include "apps/serve/serve.h"

/* The body in OpenAI's form of a chat; NULL: *error says why, or http is 0 and memory is short. _prompt: of a body
 * whose tokens are counted, which needs no max_tokens. */
json_t *anthropic_translate(const json_t *body, struct openai_error *error);
json_t *anthropic_translate_prompt(const json_t *body, struct openai_error *error);

extern const struct serve_field_name anthropic_names[];

#endif
