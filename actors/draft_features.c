/* What a seat of a FEATURES drafter knows of the target: see draft_actor.h. */
#include <string.h>

#include "actors/draft_actor.h"
#include "actors/engine.h"
#include "base/check.h"

static bool reads_features(const struct rn_draft_actor *draft)
{
    return draft->drafter->kind == RN_DRAFTER_FEATURES;
}

bool rn_seat_features_new(const struct rn_draft_actor *draft, struct rn_seat *seat)
{
    struct rn_heap *heap = &draft->model->engine->heap;
    uint32_t width = draft->drafter->n_features;

    if (!reads_features(draft))
        return true;
    seat->features = rn_alloc(heap, (size_t)RN_SEAT_FEATURES * width, sizeof(float));
    seat->own = rn_alloc(heap, width, sizeof(float));
    return seat->features != NULL && seat->own != NULL;
}

void rn_seat_features_free(const struct rn_draft_actor *draft, struct rn_seat *seat)
{
    struct rn_heap *heap = &draft->model->engine->heap;

    rn_free(heap, seat->features);
    rn_free(heap, seat->own);
    seat->features = seat->own = NULL;
}

static float *place_of(const struct rn_draft_actor *draft, const struct rn_seat *seat, uint32_t position)
{
    return seat->features + (size_t)(position % RN_SEAT_FEATURES) * draft->drafter->n_features;
}

/* Rows begin anew behind the first position of which there are features. A pass in flight is of the old ones. */
static void begin_anew(struct rn_seat *seat)
{
    seat->shift = seat->n_done = seat->f_first + 1;
    seat->n_valid = 0;
    seat->own_at = 0;
}

void rn_seat_learn_features(const struct rn_draft_actor *draft, struct rn_seat *seat, uint32_t at, uint32_t n,
                            const float *features)
{
    uint32_t width = draft->drafter->n_features, stride = draft->model->parts.row_features;
    bool gap = seat->f_end == 0 || at > seat->f_end || at < seat->f_first;

    if (n > RN_SEAT_FEATURES) {
        features += (size_t)(n - RN_SEAT_FEATURES) * stride;
        at += n - RN_SEAT_FEATURES;
        n = RN_SEAT_FEATURES;
        gap = true;
    }
    for (uint32_t i = 0; i < n; i++)
        memcpy(place_of(draft, seat, at + i), features + (size_t)i * stride, width * sizeof(float));
    seat->f_end = at + n;
    seat->f_first = gap ? at : seat->f_first;
    if (seat->f_end - seat->f_first > RN_SEAT_FEATURES)
        seat->f_first = seat->f_end - RN_SEAT_FEATURES;
    if (seat->n_done > at + 1) { /* made of what rows gave themselves */
        seat->n_done = at + 1;
        seat->n_valid = seat->n_valid < at + 1 ? seat->n_valid : at + 1;
    }
    if (gap || seat->n_done <= seat->f_first)
        begin_anew(seat);
}

static bool has_input(const struct rn_seat *seat, uint32_t i)
{
    return seat->f_end > 0 && i > seat->f_first && i <= seat->f_end;
}

uint32_t rn_seat_rows(const struct rn_draft_actor *draft, const struct rn_seat *seat, uint32_t most)
{
    uint32_t n = 0;

    if (!reads_features(draft))
        return most;
    if (seat->f_end == 0)
        return 0;
    while (n < most && (has_input(seat, seat->n_done + n) ||
                        (n == 0 && seat->own_at > 0 && seat->own_at + 1 == seat->n_done)))
        n++;
    return n;
}

const float *rn_seat_input(const struct rn_draft_actor *draft, const struct rn_seat *seat, uint32_t i)
{
    RN_ASSERT(has_input(seat, i) || seat->own_at + 1 == i);
    return has_input(seat, i) ? place_of(draft, seat, i - 1) : seat->own;
}

void rn_seat_keep(const struct rn_draft_actor *draft, struct rn_seat *seat, uint32_t token, const float *features)
{
    if (!reads_features(draft))
        return;
    seat->own_at = token < seat->n_done ? token : 0; /* else it was of what is no more */
    memcpy(seat->own, features, draft->drafter->n_features * sizeof(float));
}
