/* What a draft stream of a FEATURES drafter knows of the target and of its own layers: see draft/features.h. */
#include "actors/draft/features.h"

#include <string.h>

#include "actors/context.h"
#include "base/check.h"
#include "base/min.h"

static bool reads_features(const struct rn_draft_actor *draft)
{
    return draft->drafter->kind == RN_DRAFTER_FEATURES;
}

/* ---- Memory ---- */

bool rn_draft_stream_features_new(const struct rn_draft_actor *draft, struct rn_draft_stream *draft_stream)
{
    struct rn_heap *heap = draft->context->heap;
    uint32_t width = draft->drafter->n_features;
    bool good = true;

    if (!reads_features(draft))
        return true;
    for (uint32_t l = 0; l < draft->drafter->n_layers; l++) {
        draft_stream->layers[l].features = rn_alloc(heap, (size_t)RN_DRAFT_STREAM_FEATURES * width, sizeof(float));
        good = good && draft_stream->layers[l].features != NULL;
    }
    draft_stream->own = rn_alloc(heap, width, sizeof(float));
    return good && draft_stream->own != NULL;
}

void rn_draft_stream_features_free(const struct rn_draft_actor *draft, struct rn_draft_stream *draft_stream)
{
    struct rn_heap *heap = draft->context->heap;

    for (uint32_t l = 0; l < RN_DRAFT_LAYERS; l++) {
        rn_free(heap, draft_stream->layers[l].features);
        draft_stream->layers[l].features = NULL;
    }
    rn_free(heap, draft_stream->own);
    draft_stream->own = NULL;
}

static float *place_of(const struct rn_draft_actor *draft, const struct rn_draft_stream *draft_stream, uint32_t l,
                       uint32_t position)
{
    return draft_stream->layers[l].features +
           (size_t)(position % RN_DRAFT_STREAM_FEATURES) * draft->drafter->n_features;
}

/* ---- Beginning ---- */

void rn_draft_stream_reset(struct rn_draft_stream *draft_stream)
{
    for (uint32_t l = 0; l < RN_DRAFT_LAYERS; l++) {
        float *features = draft_stream->layers[l].features;

        draft_stream->layers[l] = (struct rn_draft_stream_layer){.features = features};
    }
    draft_stream->own_at = 0;
}

/* Rows begin anew behind the first position of which there are features, a deeper layer's one later. A pass in flight
 * is of the old ones. */
static void begin_anew(struct rn_draft_stream *draft_stream)
{
    for (uint32_t l = 0; l < RN_DRAFT_LAYERS; l++) {
        struct rn_draft_stream_layer *layer = &draft_stream->layers[l];

        if (l > 0)
            layer->f_first = layer->f_end = layer[-1].shift;
        layer->shift = layer->n_done = layer->f_first + 1;
        RN_ASSERT(l == 0 || layer->shift == layer[-1].shift + 1); /* one later than the layer before */
    }
    draft_stream->n_valid = 0;
    draft_stream->own_at = 0;
}

/* What is kept from being overwritten: the input of the last row that is done, which may be computed again, and those
 * behind it. */
static uint32_t room(const struct rn_draft_stream_layer *layer)
{
    uint32_t first = layer->n_done > 2 ? layer->n_done - 2 : 0;
    uint32_t held = layer->f_end > first ? layer->f_end - first : 0;

    return held < RN_DRAFT_STREAM_FEATURES ? RN_DRAFT_STREAM_FEATURES - held : 0;
}

/* Inputs up to `end` are there: the oldest may have been overwritten. */
static void extend(struct rn_draft_stream_layer *layer, uint32_t end)
{
    RN_ASSERT(end > layer->f_first);
    layer->f_end = end;
    if (layer->f_end - layer->f_first > RN_DRAFT_STREAM_FEATURES)
        layer->f_first = layer->f_end - RN_DRAFT_STREAM_FEATURES;
}

void rn_draft_stream_learn_features(const struct rn_draft_actor *draft, struct rn_draft_stream *draft_stream,
                                    uint32_t at, uint32_t n, const float *features)
{
    uint32_t width = draft->drafter->n_features, stride = draft->context->row_features;
    uint32_t from_own = at + draft->drafter->n_layers; /* rows from here on were made of what rows gave themselves */
    struct rn_draft_stream_layer *layer = &draft_stream->layers[0],
                                 *last = &draft_stream->layers[draft->drafter->n_layers - 1];
    bool gap = layer->f_end == 0 || at > layer->f_end || at < layer->f_first;

    RN_ASSERT(n > 0 && reads_features(draft));
    if (n > RN_DRAFT_STREAM_FEATURES) {
        features += (size_t)(n - RN_DRAFT_STREAM_FEATURES) * stride;
        at += n - RN_DRAFT_STREAM_FEATURES;
        n = RN_DRAFT_STREAM_FEATURES;
        gap = true;
    }
    for (uint32_t i = 0; i < n; i++)
        memcpy(place_of(draft, draft_stream, 0, at + i), features + (size_t)i * stride, width * sizeof(float));
    layer->f_first = gap ? at : layer->f_first;
    extend(layer, at + n);
    if (last->n_done > from_own) {
        last->n_done = from_own;
        draft_stream->n_valid = rn_min_u32(draft_stream->n_valid, from_own);
    }
    if (gap || layer->n_done <= layer->f_first)
        begin_anew(draft_stream);
}

void rn_draft_stream_forget(struct rn_draft_stream *draft_stream, uint32_t x)
{
    for (uint32_t l = 0; l < RN_DRAFT_LAYERS; l++) {
        struct rn_draft_stream_layer *layer = &draft_stream->layers[l];

        layer->n_done = rn_min_u32(layer->n_done, x > layer->shift ? x : layer->shift);
        if (l > 0 && layer->f_end > x)
            layer->f_end = x > layer->f_first ? x : layer->f_first;
    }
    draft_stream->n_valid = rn_min_u32(draft_stream->n_valid, x);
}

/* ---- Rows ---- */

uint32_t rn_draft_stream_next_layer(const struct rn_draft_actor *draft, const struct rn_draft_stream *draft_stream)
{
    uint32_t i = draft_stream->n_tokens - 1, end = draft_stream->layers[0].f_end;

    RN_ASSERT(draft_stream->n_known <= draft_stream->n_tokens && draft_stream->n_tokens <= draft_stream->capacity);
    if (!reads_features(draft) || draft_stream->n_tokens == 0 || i <= end)
        return 0;
    return rn_min_u32(i - end, draft->drafter->n_layers - 1);
}

uint32_t rn_draft_stream_pending(const struct rn_draft_stream *draft_stream, uint32_t l)
{
    return draft_stream->n_tokens > draft_stream->layers[l].n_done
               ? draft_stream->n_tokens - draft_stream->layers[l].n_done
               : 0;
}

static bool has_input(const struct rn_draft_stream_layer *layer, uint32_t i)
{
    return layer->f_end > layer->f_first && i > layer->f_first && i <= layer->f_end;
}

/* Of the rows from `first` on. */
static uint32_t rows_from(const struct rn_draft_actor *draft, const struct rn_draft_stream *draft_stream, uint32_t l,
                          uint32_t first, uint32_t most)
{
    const struct rn_draft_stream_layer *layer = &draft_stream->layers[l];
    bool is_last = l + 1 == draft->drafter->n_layers;
    uint32_t n = 0;

    if (!reads_features(draft))
        return most;
    if (draft_stream->layers[0].f_end == 0)
        return 0;
    if (!is_last) /* what the next layer has not read yet stays */
        most = rn_min_u32(most, room(layer + 1));
    while (n < most && (has_input(layer, first + n) ||
                        (is_last && n == 0 && draft_stream->own_at > 0 && draft_stream->own_at + 1 == first)))
        n++;
    return n;
}

uint32_t rn_draft_stream_rows(const struct rn_draft_actor *draft, const struct rn_draft_stream *draft_stream,
                              uint32_t l, uint32_t most)
{
    return rows_from(draft, draft_stream, l, draft_stream->layers[l].n_done, most);
}

uint32_t rn_draft_stream_next_rows(const struct rn_draft_actor *draft, const struct rn_draft_stream *draft_stream,
                                   uint32_t l)
{
    const struct rn_draft_stream_layer *layer = &draft_stream->layers[l];
    uint32_t n = rn_draft_stream_pending(draft_stream, l);

    if (n > 0)
        return rn_draft_stream_rows(draft, draft_stream, l, n);
    return layer->n_done > layer->shift ? rows_from(draft, draft_stream, l, layer->n_done - 1, 1) : 0;
}

const float *rn_draft_stream_input(const struct rn_draft_actor *draft, const struct rn_draft_stream *draft_stream,
                                   uint32_t l, uint32_t i)
{
    RN_ASSERT(has_input(&draft_stream->layers[l], i) || draft_stream->own_at + 1 == i);
    return has_input(&draft_stream->layers[l], i) ? place_of(draft, draft_stream, l, i - 1) : draft_stream->own;
}

/* What rows [from, end) gave is the next layer's input. */
static void keep_for_next(const struct rn_draft_actor *draft, struct rn_draft_stream *draft_stream, uint32_t l,
                          uint32_t from, uint32_t end, const float *features)
{
    uint32_t width = draft->drafter->n_features;
    struct rn_draft_stream_layer *next = &draft_stream->layers[l + 1];

    if (from > next->f_end || end <= from)
        return;
    RN_CHECK(end - from <= RN_DRAFT_STREAM_FEATURES);
    for (uint32_t i = from; i < end; i++)
        memcpy(place_of(draft, draft_stream, l + 1, i), features + (size_t)(i - from) * width, width * sizeof(float));
    if (end > next->f_end)
        extend(next, end);
}

void rn_draft_stream_keep(const struct rn_draft_actor *draft, struct rn_draft_stream *draft_stream, uint32_t l,
                          uint32_t from, uint32_t end, const float *features)
{
    uint32_t width = draft->drafter->n_features;

    if (!reads_features(draft))
        return;
    RN_ASSERT(l < draft->drafter->n_layers && from < end);
    if (l + 1 < draft->drafter->n_layers) {
        keep_for_next(draft, draft_stream, l, from, rn_min_u32(end, draft_stream->n_valid), features);
        return;
    }
    draft_stream->own_at = end - 1 < draft_stream->layers[l].n_done ? end - 1 : 0; /* else it was of what is no more */
    memcpy(draft_stream->own, features, width * sizeof(float));
}
