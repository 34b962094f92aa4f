/* The tokenizer actor: text → tokens, before admission. Owns nothing but the request at hand. */
#ifndef RN_ACTORS_TOKENIZER_ACTOR_H
#define RN_ACTORS_TOKENIZER_ACTOR_H

#include <stdbool.h>

#include "actors/runtime/runtime.h"

struct rn_context;

struct rn_tokenizer {
    struct rn_actor actor; /* first */
    const struct rn_context *context;
    bool
        sessions_follow; /* a request with a session has gone to the grammar actor: what concerns sessions follows it */
};

void rn_tokenizer_init(struct rn_tokenizer *tokenizer, const struct rn_context *context);

/* It owns nothing between two messages; it is whom the others send to. */
bool rn_tokenizer_check(const struct rn_tokenizer *tokenizer);

#endif
