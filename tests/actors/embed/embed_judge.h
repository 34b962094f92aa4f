/* Embeddings of a model under test, and those that another program gave of the same model and texts. */
#ifndef RN_TESTS_ACTORS_EMBED_EMBED_JUDGE_H
#define RN_TESTS_ACTORS_EMBED_EMBED_JUDGE_H

#include <stdbool.h>
#include <stdint.h>

#include "runnel.h"

enum { EMBED_MOST = 4096, EMBED_TEXTS = 3, EMBED_LINES = 9 };

extern const char *const embed_texts[EMBED_TEXTS];

/* What a stream gave. */
struct vector {
    float values[EMBED_MOST];
    uint32_t n;
    unsigned n_embeddings, n_ended, n_others;
    runnel_event last;
    char error[RUNNEL_ERROR_BYTES];
};

/* A request whose events come to *v, which begins anew. */
runnel_embed_request embed_request(const char *text, runnel_pooling pooling, bool raw, struct vector *v);

void embed_submit(runnel_model *model, const runnel_embed_request *request, runnel_stream *stream);

/* Dispatches until the stream has ended well, with one embedding. */
void embed_await(runnel_engine *engine, struct vector *v);

/* All of these in one. */
void embed(runnel_engine *engine, runnel_model *model, const char *text, runnel_pooling pooling, bool raw,
           struct vector *v);

/* Every line of embeddings.txt of the model `name`, asked for at once: fails the test where one is further off than
 * NMSE `limit`. what: for the log. */
void embed_judge(runnel_engine *engine, runnel_model *model, const char *name, const char *what, double limit);

#endif
