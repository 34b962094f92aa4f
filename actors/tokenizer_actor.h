/* The tokenizer actor: text → tokens, before admission. Owns nothing but the request at hand. */
#ifndef RN_ACTORS_TOKENIZER_ACTOR_H
#define RN_ACTORS_TOKENIZER_ACTOR_H

#include "actors/runtime/runtime.h"

struct runnel_model;

struct rn_tokenizer {
    struct rn_actor actor; /* first */
    struct runnel_model *model;
};

void rn_tokenizer_init(struct rn_tokenizer *tokenizer, struct runnel_model *model);

#endif
