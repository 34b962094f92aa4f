/* The embedding of a text: features of its positions, pooled; or its scores, which are features, too.
 *
 *   mean   sum over positions / n       first, last   that position's
 *   then, as `end` says, of what is kept (the first n_out values):
 *     AS_IS        as they are
 *     UNIT         divided by their L2 norm; a zero stays zero
 *     CHANCES      their softmax; of a single value its sigmoid
 *
 * The features are the values [at, at + width) of a row:   | those of drafters | for embeddings | scores |
 *
 * Sums are double and go by position, one after another, so that they do not depend on how the prompt was cut into
 * steps (law 5). Owner: the request's; the sampler actor's while a step with its rows is away. */
#ifndef RN_ACTORS_EMBED_H
#define RN_ACTORS_EMBED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/alloc.h"
#include "runnel.h"

enum rn_embed_end { RN_EMBED_AS_IS, RN_EMBED_UNIT, RN_EMBED_CHANCES };

struct rn_embed {
    struct rn_heap *heap;
    runnel_pooling pooling; /* not DEFAULT */
    enum rn_embed_end end;
    uint32_t at, width; /* of features */
    uint32_t n_out;     /* of the embedding, at most as many */
    uint32_t next;      /* the first position that was not asked for yet: decode's */
    uint32_t n;         /* rows added */
    float *out;         /* [n_out]: the outlet's */
    double sum[];       /* [width] */
};

/* NULL on refusal. */
struct rn_embed *rn_embed_new(struct rn_heap *heap, runnel_pooling pooling, enum rn_embed_end end, uint32_t at,
                              uint32_t width, uint32_t n_out);
void rn_embed_free(struct rn_embed *embed); /* NULL is allowed */

/* True when the features of this position of n_prompt are wanted and were not asked for before; then they are now. */
bool rn_embed_ask(struct rn_embed *embed, uint32_t position, uint32_t n_prompt);

/* rows: n of `stride` floats each, those of the next positions that were asked for. */
void rn_embed_add(struct rn_embed *embed, const float *rows, uint32_t n, uint32_t stride);

/* Writes out. NUMERIC: it is not finite. */
runnel_status rn_embed_finish(struct rn_embed *embed);

#endif
