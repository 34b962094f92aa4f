/* Bodies in OpenAI's form, read into requests: what `runnel batch` and any server of this form share.
 *
 *     body (JSON) ──openai_request_read──▶ openai_request ──openai_request_choice(i)──▶ runnel_request
 *
 * A body of /v1/responses is a conversation like that of a chat: its instructions and input become messages. What such
 * a body can ask of a server that keeps answers is refused.
 *
 * A body of /v1/embeddings asks for a vector of each of its inputs, which stand where prompts do: choice i is input i.
 *
 * A body asks for n answers to each of its prompts: choice i is answer i % n to prompt i / n. Everything that can be
 * judged without a model is judged here: a field of the wrong type, out of its range, unknown, or known and not
 * supported is an openai_error that names it. What only the model can judge (ids beyond its vocabulary, a prompt
 * that is too long) is left to runnel_generate; openai_error_of tells it in the same form.
 *
 * Besides OpenAI's fields: top_k, min_p, repetition_penalty, penalty_tokens, the further samplers by the names of
 * llama.cpp's server (openai_samplers.c), and chat_template_kwargs (further
 * variables of the template). A null is the same as a field that is missing. The body is not needed after reading: all
 * is copied. */
#ifndef RUNNEL_APP_OPENAI_REQUEST_H
#define RUNNEL_APP_OPENAI_REQUEST_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runnel.h"

enum openai_endpoint { OPENAI_CHAT = 1, OPENAI_COMPLETIONS = 2, OPENAI_EMBEDDINGS = 4, OPENAI_RESPONSES = 8 };

/* An error as OpenAI writes it. `type` and `code` are literals. */
struct openai_error {
    int http;         /* 400, 500, ...; 0: none */
    const char *type; /* "invalid_request_error", "server_error" */
    const char *code; /* NULL: null */
    char param[96];   /* the field at fault; "": null */
    char message[384];
};

/* Either a text or ids; owned. */
struct openai_prompt {
    char *text;
    size_t text_bytes;
    int32_t *tokens;
    size_t n_tokens;
};

struct openai_request {
    enum openai_endpoint endpoint;
    char *model; /* as the body names it; NULL: it does not. Owned, like all below */
    int64_t n;   /* answers per prompt */
    bool echo;   /* completions: the text begins with the prompt */
    bool logprobs;
    bool one_call; /* at most one tool call in an answer */
    bool has_seed;
    runnel_sampling sampling;
    runnel_samplers samplers;
    char *breakers[RUNNEL_MAX_BREAKERS]; /* samplers' */
    char *sampler_order;
    int64_t ignore_eos;
    int64_t max_tokens;   /* -1: until the context is full */
    int64_t context_keep; /* -1: it ends then */
    int64_t top_logprobs;
    int64_t dimensions;                 /* embeddings: 0: all */
    bool base64;                        /* embeddings: little-endian floats in base64, not a list of numbers */
    char *messages, *tools, *variables; /* JSON; tools and variables may be NULL */
    char *instructions, *metadata;      /* responses: JSON, as they are echoed; NULL: not given */
    struct openai_prompt *prompts;      /* [n_prompts]; completions, and the inputs of embeddings */
    size_t n_prompts;                   /* 1 for a chat, and for responses */
    char *stops[RUNNEL_MAX_STOPS];
    size_t n_stops;
};

/* How many choices a body may ask for, over all its prompts. */
#define OPENAI_MAX_CHOICES 2048

/* Sets the error: a literal code, the field (NULL: none) and a sentence. False, so that a reader can return it. */
bool openai_refuse(struct openai_error *error, const char *code, const char *param, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* False when `value` is not of the JSON type `type` (JSON_TRUE stands for both booleans), with an error that says
 * so. */
bool openai_expect(struct openai_error *error, const char *param, const json_t *value, json_type type);

/* Reads a body. False: *error says why and nothing is owned. */
bool openai_request_read(struct openai_request *request, enum openai_endpoint endpoint, const json_t *body,
                         struct openai_error *error);
void openai_request_fini(struct openai_request *request);

size_t openai_request_choices(const struct openai_request *request);

/* The request of choice `index`, without callback; *chat is filled for a chat (its template and clock are the
 * caller's) and hung into it. Points into `request` and `chat`. `seed` is taken where the body names none. Further
 * answers to a prompt get further seeds, the first has the seed itself. */
void openai_request_choice(const struct openai_request *request, size_t index, uint64_t seed, runnel_request *out,
                           runnel_chat *chat);

/* The request of choice `index` of embeddings, likewise. */
void openai_request_embed(const struct openai_request *request, size_t index, runnel_embed_request *out);

/* Messages in OpenAI's form as templates know them: contents that are lists of text parts become strings (parts
 * parted by newlines), arguments of calls that are JSON in a string become that JSON. A new reference; NULL: *error
 * says why. */
json_t *openai_messages(const json_t *messages, struct openai_error *error);

/* Likewise of a body of responses: the instructions (NULL: none) as a message of the system, and the input, which is a
 * text of the user's or a list of messages. */
json_t *openai_input(const json_t *input, const json_t *instructions, struct openai_error *error);

/* A field of a further sampler, into *request. 0: it is not one; -1: *error says what is wrong. */
int openai_read_sampler(struct openai_request *request, const char *name, const json_t *value,
                        struct openai_error *error);
void openai_fini_samplers(struct openai_request *request);

/* True for an array of tools of type function, each with a name. */
bool openai_tools_check(const json_t *tools, struct openai_error *error);

/* What the library says of a request, as an error of this form: 400 where the request is at fault, else 500. */
void openai_error_of(runnel_status status, const char *sentence, struct openai_error *error);

#endif
