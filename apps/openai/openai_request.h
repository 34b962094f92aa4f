/* Bodies in OpenAI's form, read into requests: what `runnel batch` and any server of this form share.
 *
 *     body (JSON) ──openai_request_read──▶ openai_request ──openai_request_choice(i)──▶ runnel_request
 *
 * A body of /v1/responses is a conversation like that of a chat: its instructions and input become messages. What such
 * a body can ask of a server that keeps answers is refused.
 *
 * A body of /v1/embeddings asks for a vector of each of its inputs, which stand where prompts do: choice i is input i.
 * So do the documents of /v1/rerank and the inputs of /v1/classify.
 *
 * A body asks for n answers to each of its prompts: choice i is answer i % n to prompt i / n. Everything that can be
 * judged without a model is judged here: a field of the wrong type, out of its range, unknown, or known and not
 * supported is an openai_error that names it. What only the model can judge (ids beyond its vocabulary, a prompt
 * that is too long) is left to runnel_generate; openai_error_of tells it in the same form.
 *
 * Besides OpenAI's fields: top_k, min_p, repetition_penalty, penalty_tokens, the further samplers by the names of
 * llama.cpp's server (openai_samplers.c), grammars by the names of vLLM and llama.cpp (openai_grammar.c), and
 * chat_template_kwargs (further
 * variables of the template). A null is the same as a field that is missing. The body is not needed after reading: all
 * is copied. */
#ifndef RUNNEL_APP_OPENAI_REQUEST_H
#define RUNNEL_APP_OPENAI_REQUEST_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "openai_shape.h"
#include "runnel.h"
#include "runnel_infill.h"
#include "runnel_scores.h"

enum openai_endpoint {
    OPENAI_CHAT = 1,
    OPENAI_COMPLETIONS = 2,
    OPENAI_EMBEDDINGS = 4,
    OPENAI_RESPONSES = 8,
    OPENAI_RERANK = 16,
    OPENAI_CLASSIFY = 32
};

/* Those that are answered by numbers. */
#define OPENAI_SCORES (OPENAI_RERANK | OPENAI_CLASSIFY)
#define OPENAI_POOLED (OPENAI_EMBEDDINGS | OPENAI_SCORES)

/* "/v1/chat/completions"; and the other way round, 0: none of them. */
const char *openai_url(enum openai_endpoint endpoint);
enum openai_endpoint openai_endpoint_of(const char *url);

/* Who reads. A batch job is strict: an unknown field may be a misspelt one, and nothing streams. A server takes what
 * clients send: it leaves alone what it does not know, and its answers may stream. Free: likewise, of a dialect without
 * OpenAI's ranges: numbers may be all that the engine takes, and biases be of texts. */
enum openai_rules { OPENAI_STRICT, OPENAI_SERVED, OPENAI_FREE };

/* An error as OpenAI writes it. `type` and `code` are literals. */
struct openai_error {
    int http;         /* 400, 500, ...; 0: none */
    const char *type; /* "invalid_request_error", "server_error" */
    const char *code; /* NULL: null */
    char param[96];   /* the field at fault; "": null */
    char message[384];
    uint64_t n_prompt, n_context; /* llama.cpp's: tokens that are told beside the message; 0: none are */
};

/* Either a text or ids; owned. Both: the text, and the ids that it has together with what is behind its gap. */
struct openai_prompt {
    char *text;
    size_t text_bytes;
    int32_t *tokens;
    size_t n_tokens;
    int32_t *told; /* [n_told]: the model's tokens of a text, where they are told */
    size_t n_told;
};

/* A text whose tokens get a bias; owned. */
struct openai_text_bias {
    char *text;
    size_t n;
    float bias;
};

/* An adapter by its place among those of the model, and its scale; 0: it is off. */
struct openai_lora {
    int64_t id;
    double scale;
};

struct openai_request {
    enum openai_endpoint endpoint;
    enum openai_rules rules;
    bool stream;                   /* served: the answer comes in pieces ... */
    bool usage_at_end;             /* ... with the usage behind them ... */
    bool usage_always;             /* ... and in each */
    int64_t priority, deadline_ms; /* served: of runnel_request */
    int32_t *stop_ids;             /* [n_stop_ids]: served: tokens that end an answer; owned */
    size_t n_stop_ids;
    char *cache_salt; /* served: requests of other salts share no cached prompt with it; NULL: not given; owned */
    char *adapter;    /* by its name, "": none; NULL: not given; owned */
    struct openai_lora *loras; /* [n_loras]: served: llama.cpp's list of adapters; owned. NULL: not given */
    size_t n_loras;
    char *model;        /* as the body names it; NULL: it does not. Owned, like all below */
    int64_t n;          /* answers per prompt */
    bool echo;          /* completions: the text begins with the prompt */
    bool parse_special; /* completions: control tokens written in the prompt become control tokens */
    bool logprobs;
    bool llama_entries;        /* log-probabilities as llama.cpp's server writes them, a list with ids */
    bool ends_untold;          /* completions: log-probabilities without that of the token that ended the answer */
    bool keeps_ids;            /* of the answer's tokens ... */
    bool tells_ids;            /* ... which are told, and those of the prompts: served */
    bool tokens_as_ids;        /* log-probabilities name tokens "token_id:5" */
    bool hides_reasoning;      /* an answer is told without its reasoning */
    bool keep_stop;            /* the stop that ends an answer is part of it */
    bool no_generation_prompt; /* the prompt does not end with the beginning of an answer ... */
    bool continue_final;       /* ... but with the last message, which the answer goes on with */
    bool one_call;             /* at most one tool call in an answer ... */
    bool functions;            /* ... which has the form of "function_call" */
    bool has_seed;
    runnel_sampling sampling;
    runnel_samplers samplers;
    char *breakers[RUNNEL_MAX_BREAKERS]; /* samplers' */
    char *sampler_order;
    runnel_grammar grammar; /* kind NONE: any text */
    char grammar_of[48];    /* the member that said so */
    char *grammar_text;     /* its text */
    char **grammar_choices; /* its choices */
    bool unenforced_format; /* response_format was not strict */
    bool has_unenforced;    /* grammar_options said what then */
    bool closes;            /* the schema's objects are closed, ... */
    bool has_closed;        /* ... unless grammar_options said which */
    char *tool_choice;      /* NULL: tools that are strict bind */
    int64_t ignore_eos;
    int64_t best_of;      /* answers to each prompt, of which the n best are shown; 0: n */
    int64_t max_tokens;   /* -1: until the context is full */
    int64_t context_keep; /* -1: it ends then */
    int64_t top_logprobs;
    int64_t dimensions; /* embeddings: 0: all */
    runnel_pooling pooling;
    bool base64;   /* embeddings: little-endian floats in base64, not a list of numbers */
    bool as_it_is; /* embeddings: not scaled to length 1 */
    char *query;   /* [query_bytes]: rerank */
    size_t query_bytes;
    int64_t top_n;                      /* rerank: only the best so many are shown; 0: all */
    bool return_documents;              /* rerank: with their texts */
    bool bare_scores;                   /* rerank: in the form of text-embeddings-inference */
    char *messages, *tools, *variables; /* JSON; tools and variables may be NULL */
    struct {
        char *instructions, *metadata, *tools, *tool_choice, *format, *reasoning;
    } given;                       /* responses: JSON, as it is echoed; NULL: not given */
    struct openai_prompt *prompts; /* [n_prompts]; completions, and the inputs of embeddings. NULL: a chat whose ids
                                      are not told */
    size_t n_prompts;              /* 1 for a chat, and for responses */
    char *suffix;                  /* [suffix_bytes]: completions: what is behind the gap */
    size_t suffix_bytes;
    runnel_infill_file *files; /* [n_files]: other files that the model is shown; NULL: none; owned */
    size_t n_files;
    char **stops; /* [n_stops], at most RUNNEL_MAX_STOPS */
    size_t n_stops;
    struct openai_text_bias *text_biases; /* [n_text_biases]: until they are the model's tokens, in sampling.biases */
    size_t n_text_biases;
};

/* How many choices a body may ask for, over all its prompts. */
#define OPENAI_MAX_CHOICES 2048

/* What OpenAI's server tells of the best tokens, at most. */
#define OPENAI_MAX_TOP_LOGPROBS 20

/* With log-probabilities of the prompt: each of them takes memory for some rows of logits. */
#define OPENAI_MAX_ECHOED 16

/* Sets the error: a literal code, the field (NULL: none) and a sentence. False, so that a reader can return it. */
bool openai_refuse(struct openai_error *error, const char *code, const char *param, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Likewise: memory is short. */
bool openai_no_memory(struct openai_error *error);

/* False when `value` is not of the JSON type `type` (JSON_TRUE stands for both booleans), with an error that says
 * so. */
bool openai_expect(struct openai_error *error, const char *param, const json_t *value, json_type type);

/* Names and words have no zero byte. word: of a string, "" where it has one; NULL: the value is none. expect: false,
 * with an error, when the value is no such string. */
const char *openai_word(const json_t *value);
bool openai_expect_word(struct openai_error *error, const char *param, const json_t *value);

/* JSON as requests are written in it, of any type: texts may have zero bytes, and no object has a name twice. A number
 * that neither a 64-bit integer nor the first 15 digits of a double give back is kept as it is written: see
 * openai_numbers.c. A new reference; NULL: *where (NULL is allowed) says why. as: with flags of json_loadb. */
json_t *openai_parse(const char *bytes, size_t n, json_error_t *where);
json_t *openai_parse_as(const char *bytes, size_t n, size_t flags, json_error_t *where);

/* A value as compact JSON, numbers as they were written; NULL: no memory. */
char *openai_dump(const json_t *value);

/* Whether the value is such a number. Whether it is a number that no 64-bit integer reaches. */
bool openai_is_kept(const json_t *value);
bool openai_is_too_long(const json_t *value);

/* Of a file of JSON lines, the bytes of the byte order mark that some editors put in front. */
size_t openai_mark_bytes(const char *bytes, size_t n);

/* Whole numbers of a body (5.0) become integers, and kept ones numbers: its own, those of its arrays, of logit_bias,
 * of lora's entries, Ollama's options and Anthropic's thinking. What is passed on as it is (schemas, variables,
 * conversations) stays. */
void openai_make_whole(json_t *body);

/* A whole number in [min, max]. */
bool openai_read_integer(struct openai_error *error, const char *name, const json_t *value, double min, double max,
                         int64_t *out);

/* A value that is neither missing nor null, by the field's shape. False: *error names the field. */
bool openai_field_check(const struct openai_field *field, const json_t *value, struct openai_error *error);

/* Reads a body. False: *error says why and nothing is owned. */
bool openai_request_read(struct openai_request *request, enum openai_endpoint endpoint, enum openai_rules rules,
                         const json_t *body, struct openai_error *error);
void openai_request_fini(struct openai_request *request);

/* The adapter that the body names by its field, NULL: none; where it has no such field, `usual`. */
const char *openai_request_adapter(const struct openai_request *request, const char *usual);

/* Answers that are computed: to one prompt, and to all. */
size_t openai_request_tries(const struct openai_request *request);
size_t openai_request_choices(const struct openai_request *request);

/* Of a request whose prompts have a gap: makes them the model's tokens, which is quick; of others nothing. Before its
 * first choice. UNSUPPORTED: the model fills no gaps; CONTEXT; INVALID; NO_MEMORY. */
runnel_status openai_infill(struct openai_request *request, runnel_model *model, runnel_error *error);

/* Of a request with biases of texts: makes them biases of the model's tokens. Before its first choice. The statuses of
 * runnel_tokenize; NO_MEMORY. */
runnel_status openai_place_biases(struct openai_request *request, runnel_model *model);

/* Of a request that tells ids: makes those of its prompts, of a chat with `chat` as openai_request_choice has filled
 * it. *longest: how many tokens the longest of them has; one of more than `most` is told none. So is a prompt that
 * cannot be tokenized: the submit will say why. False: memory is short. Takes as long as tokenizing each prompt
 * once. */
bool openai_tell_prompts(struct openai_request *request, runnel_model *model, const runnel_chat *chat, size_t most,
                         size_t *longest);

/* The request of choice `index`, without callback; *chat is filled for a chat (its template and clock are the
 * caller's) and hung into it. Points into `request` and `chat`. `seed` is taken where the body names none. Further
 * answers to a prompt get further seeds, the first has the seed itself. */
void openai_request_choice(const struct openai_request *request, size_t index, uint64_t seed, runnel_request *out,
                           runnel_chat *chat);

/* The request of choice `index` of embeddings, likewise. */
void openai_request_embed(const struct openai_request *request, size_t index, runnel_embed_request *out);

/* The request of choice `index` of scores, likewise. */
void openai_request_score(const struct openai_request *request, size_t index, runnel_score_request *out);

/* Messages in OpenAI's form as templates know them: contents that are lists of text parts become strings (parts
 * parted by newlines), arguments of calls that are JSON in a string become that JSON. A new reference; NULL: *error
 * says why. */
json_t *openai_messages(const json_t *messages, struct openai_error *error);

/* The texts of a list of parts of those types (the last one NULL), parted by newlines, as a new string; `where` names
 * the list in errors. NULL: *error says why, or memory is short. */
json_t *openai_join_parts(const json_t *parts, const char *where, const char *const *types, struct openai_error *error);

/* The last message is an answer with a text and without calls, which some clients mean to be gone on with. */
bool openai_is_begun(const json_t *messages);

/* A field of a further sampler, into *request. 0: it is not one; -1: *error says what is wrong. */
int openai_read_sampler(struct openai_request *request, const char *name, const json_t *value,
                        struct openai_error *error);
void openai_fini_samplers(struct openai_request *request);

/* The further samplers' numbers as members of an object, each with a comma in front. */
void openai_samplers_write(FILE *to, const struct openai_request *request);

void openai_fini_infill(struct openai_request *request);
void openai_fini_biases(struct openai_request *request);

/* A field that only a server understands (how an answer streams, who goes first, tokens that end it), likewise. */
int openai_read_served(struct openai_request *request, const char *name, const json_t *value,
                       struct openai_error *error);

/* A list of adapters, as llama.cpp has it: objects with an id and a scale. False: *error says what is wrong with it. */
bool openai_loras_check(const char *name, const json_t *value, struct openai_error *error);

/* A member that says what the answer may be, likewise. And OpenAI's own form of it, and tool_choice. */
int openai_read_grammar(struct openai_request *request, const char *name, const json_t *value,
                        struct openai_error *error);
bool openai_read_format(struct openai_request *request, const char *name, const json_t *value,
                        struct openai_error *error);
bool openai_read_tool_choice(struct openai_request *request, const char *name, const json_t *value,
                             struct openai_error *error);

/* What these make together with the tools (NULL: none). */
bool openai_finish_grammar(struct openai_request *request, const json_t *tools, struct openai_error *error);

/* What the library says of a grammar, as an error of the member that has it. */
void openai_grammar_fault(const struct openai_request *request, runnel_about about, struct openai_error *error);
void openai_fini_grammar(struct openai_request *request);

/* Fields as the tables have them: those of openai_request.c for this endpoint, and the others' for those that answer
 * with texts. And the field without which there is nothing to answer. */
void openai_fields_of_requests(enum openai_endpoint endpoint, openai_field_fn *fn, void *user);
void openai_fields_served(enum openai_endpoint endpoint, openai_field_fn *fn, void *user);
void openai_fields_of_samplers(openai_field_fn *fn, void *user);
void openai_fields_of_grammars(openai_field_fn *fn, void *user);
const char *openai_field_needed(enum openai_endpoint endpoint);

/* True for an array of tools of type function, each with a name, and the other members of their types. */
bool openai_tools_check(const json_t *tools, struct openai_error *error);

/* What the library says of a request, as an error of this form: 400 where the request is at fault, else 500. fault:
 * where it is about a part of the request, or the sentence begins with a member of it, it becomes one of the field of
 * the body that has that. */
void openai_error_of(runnel_status status, const char *sentence, struct openai_error *error);
void openai_request_fault(const struct openai_request *request, runnel_about about, struct openai_error *error);

/* The field of a member of runnel_samplers, member[0..n); NULL: there is none. */
const char *openai_sampler_field(const char *member, size_t n);

#endif
