/* The table of routes, for whoever goes through it: see routes.c. */
#ifndef RUNNEL_SERVE_ROUTES_H
#define RUNNEL_SERVE_ROUTES_H

#include "apps/openai/openai_fields.h"
#include "serve.h"

struct serve_route {
    const char *method, *path;           /* a path that ends with "/" is the beginning of one; "*": anything, a name */
    uint32_t auth;                       /* the scope that a key needs; SCOPE_PUBLIC: no key is needed */
    const struct serve_dialect *dialect; /* NULL: OpenAI's */
    enum openai_endpoint endpoint;       /* what a body in OpenAI's form asks for; 0: it is none */
    serve_page_fn *page;                 /* NULL: serve_ask */

    /* Of its document: */
    const struct openai_field *fields; /* of a body in a form of its own, which is judged by them; NULL: `endpoint`'s */
    const char *answer;                /* of openapi.json's schemas; NULL: a text */
    const char *summary;               /* NULL: it is no part of the document */
};

const struct serve_route *serve_routes(size_t *n);

/* How many bytes of its path stand before what is a name. */
size_t serve_route_stem(const struct serve_route *route);

/* Whether its path ends with a name: "/v1/models/", and not "/". */
bool serve_route_is_named(const struct serve_route *route);

/* The route of an exchange that on_head has let pass; NULL: there is none. */
const struct serve_route *serve_route_of(const struct http_exchange *exchange);

/* Which adapter answers: in every dialect by the same fields, which ask.c passes. */
#define SERVE_ADAPTER_FIELDS                 \
    {"adapter", OPENAI_STRING, false, 0, 0}, \
    {                                        \
        "lora", OPENAI_LORAS, false, 0, 0    \
    }

/* The fields of each dialect's bodies, beside what translates them. */
extern const struct openai_field anthropic_fields[], anthropic_prompt_fields[]; /* anthropic_request.c */
extern const struct openai_field ollama_chat_fields[], ollama_generate_fields[], ollama_embed_fields[],
    ollama_embeddings_fields[], ollama_show_fields[];                                             /* ollama.c */
extern const struct openai_field serve_load_fields[];                                             /* ollama_models.c */
extern const struct openai_field llama_fields[], llama_infill_fields[], llama_embedding_fields[]; /* llama_request.c */
extern const struct openai_field serve_batch_fields[];                                            /* batches.c */
extern const struct openai_field serve_tokenize_fields[], serve_detokenize_fields[];              /* tokens.c */

#endif
