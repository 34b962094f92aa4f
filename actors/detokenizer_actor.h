/* The detokenizer actor: tokens → text pieces → the stream's ring. It is the producer of every outlet of
 * its model; it alone writes events, so their order is the order of its messages. It finds stop
 * strings, and completes the text and the outcome when a request has ended. */
#ifndef RN_ACTORS_DETOKENIZER_ACTOR_H
#define RN_ACTORS_DETOKENIZER_ACTOR_H

#include "actors/runtime/runtime.h"

struct rn_context;

struct rn_detokenizer {
    struct rn_actor actor; /* first */
    const struct rn_context *context;
};

void rn_detokenizer_init(struct rn_detokenizer *detokenizer, const struct rn_context *context);

/* It owns nothing between two messages but the producer's side of the outlets: none holds more than its stream's
 * credits allow, and a text is stopped at a token that it had. Where nobody consumes meanwhile. */
bool rn_detokenizer_check(const struct rn_detokenizer *detokenizer);

#endif
