/* What has come of a stream's answer: text, reasoning and ids of tokens, kept outside of JavaScript's heap, where
 * every piece would be an object that lives until the end. On the environment's thread. */
#ifndef RN_NODE_ANSWER_H
#define RN_NODE_ANSWER_H

#include <node_api.h>
#include <runnel.h>
#include <stdbool.h>

/* Grows by doubling. */
struct answer_bytes {
    char *data; /* [n], of `capacity` */
    size_t n, capacity;
};

struct node_answer {
    struct answer_bytes text, reasoning, tokens; /* tokens: int32_t */
    bool lost;                                   /* there was no memory for a part of it */
};

void answer_free(struct node_answer *answer);

/* Keeps what the event says, if it is of text. */
void answer_add(struct node_answer *answer, const runnel_event *event);

/* Sets the members text, reasoning and tokens (an Int32Array) of the object. */
void answer_write(napi_env env, napi_value object, const struct node_answer *answer);

#endif
