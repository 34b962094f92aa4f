/* The ring of steps: see step_ring.h. */
#include "actors/decode/step_ring.h"

#include "actors/context.h"
#include "actors/draw_rows.h"
#include "actors/request.h"
#include "base/check.h"
#include "model/kv_size.h"
#include "model/device.h"

/* ---- Memory ---- */

/* Who waits for a draw needs one that is made in the step; logits that come up have one place; means and states change
 * what earlier positions are. */
static uint32_t size_of(const struct rn_context *context)
{
    const struct rn_device_caps *caps = context->backend->caps;
    const struct rn_backend_limits *limits = context->limits;
    uint32_t size = caps->good_ring < caps->ring ? caps->good_ring : caps->ring;

    if (!limits->draws || (caps->draw_threads == 0 && !rn_device_can(caps, RN_CAN_DRAW_ITSELF)) ||
        rn_kv_size_forgets(limits) || limits->n_states > 0 || size == 0)
        return 1;
    return size < RN_STEPS ? size : RN_STEPS;
}

static bool take_arrays(struct rn_step_arrays *arrays, const struct rn_backend_limits *limits, struct rn_heap *heap)
{
    arrays->rows = rn_alloc(heap, limits->max_rows, sizeof arrays->rows[0]);
    arrays->drawn = rn_alloc(heap, limits->max_rows, sizeof arrays->drawn[0]);
    arrays->seqs = rn_alloc(heap, limits->max_seqs, sizeof arrays->seqs[0]);
    arrays->copies = rn_alloc(heap, limits->max_seqs, sizeof arrays->copies[0]);
    arrays->counts = rn_alloc(heap, limits->max_changes, sizeof arrays->counts[0]);
    return (limits->max_changes == 0 || arrays->counts != NULL) && arrays->rows != NULL && arrays->drawn != NULL &&
           arrays->seqs != NULL && arrays->copies != NULL;
}

/* Logits of all wanted rows, where the device has no room for them; where it draws by itself those of a few. */
static bool take_logits(struct rn_step_ring *ring, const struct rn_context *context)
{
    const struct rn_backend_limits *limits = context->limits;
    bool itself = rn_device_can(context->backend->caps, RN_CAN_DRAW_ITSELF);

    RN_CHECK(!limits->draws || rn_device_can(context->backend->caps, RN_CAN_DRAW));
    ring->most_late = limits->max_outs < RN_LATE_DRAWS ? limits->max_outs : RN_LATE_DRAWS;
    if (!limits->draws)
        ring->logits = rn_alloc(context->heap, (size_t)limits->max_outs * context->n_vocab, sizeof(float));
    if (itself)
        ring->late_logits = rn_alloc(context->heap, (size_t)ring->most_late * context->n_vocab, sizeof(float));
    return (limits->draws || ring->logits != NULL) && (!itself || ring->late_logits != NULL);
}

static bool take_shared(struct rn_step_ring *ring, const struct rn_context *context)
{
    const struct rn_backend_limits *limits = context->limits;
    struct rn_heap *heap = context->heap;

    ring->moves = rn_alloc(heap, limits->max_seqs, sizeof ring->moves[0]);
    ring->parents = rn_alloc(heap, limits->max_rows, sizeof ring->parents[0]);
    if (limits->n_states > 0) {
        ring->states = rn_alloc(heap, limits->max_seqs, sizeof ring->states[0]);
        ring->state_copies = rn_alloc(heap, limits->max_seqs, sizeof ring->state_copies[0]);
    }
    ring->feature_rows = rn_alloc(heap, limits->max_rows, sizeof ring->feature_rows[0]);
    ring->features = rn_alloc(heap, (size_t)limits->max_rows * context->row_features + 1, sizeof(float));
    return (limits->n_states == 0 || (ring->states != NULL && ring->state_copies != NULL)) && ring->moves != NULL &&
           ring->parents != NULL && ring->feature_rows != NULL && ring->features != NULL;
}

static bool take_batch(struct rn_batch *batch, const struct rn_context *context)
{
    const struct rn_backend_limits *limits = context->limits;
    struct rn_heap *heap = context->heap;

    batch->n_vocab = context->n_vocab;
    batch->outs = rn_alloc(heap, limits->max_outs, sizeof batch->outs[0]);
    batch->parts = rn_alloc(heap, limits->max_seqs, sizeof batch->parts[0]);
    batch->proposals.items = rn_alloc(heap, limits->max_seqs, sizeof batch->proposals.items[0]);
    return batch->outs != NULL && batch->parts != NULL && batch->proposals.items != NULL &&
           rn_draws_init(batch, heap, context->backend, limits->max_outs) == RUNNEL_OK;
}

runnel_status rn_step_ring_init(struct rn_step_ring *ring, const struct rn_context *context, struct rn_step_cost *cost)
{
    bool good;

    *ring = (struct rn_step_ring){.size = size_of(context)};
    good = take_logits(ring, context) && take_shared(ring, context);
    for (uint32_t i = 0; i < ring->size && good; i++)
        good = take_arrays(&ring->arrays[i], context->limits, context->heap);
    for (uint32_t i = 0; i < ring->size + 1 && good; i++) {
        ring->batches[i].cost = cost;
        good = take_batch(&ring->batches[i], context);
    }
    return good ? RUNNEL_OK : RUNNEL_NO_MEMORY;
}

void rn_step_ring_fini(struct rn_step_ring *ring, struct rn_heap *heap)
{
    for (uint32_t i = 0; i < RN_STEPS + 1; i++) {
        rn_draws_fini(&ring->batches[i], heap);
        rn_free(heap, ring->batches[i].outs);
        rn_free(heap, ring->batches[i].parts);
        rn_free(heap, ring->batches[i].proposals.items);
    }
    for (uint32_t i = 0; i < RN_STEPS; i++) {
        rn_free(heap, ring->arrays[i].rows);
        rn_free(heap, ring->arrays[i].drawn);
        rn_free(heap, ring->arrays[i].seqs);
        rn_free(heap, ring->arrays[i].copies);
        rn_free(heap, ring->arrays[i].counts);
    }
    rn_free(heap, ring->moves);
    rn_free(heap, ring->parents);
    rn_free(heap, ring->states);
    rn_free(heap, ring->state_copies);
    rn_free(heap, ring->feature_rows);
    rn_free(heap, ring->features);
    rn_free(heap, ring->logits);
    rn_free(heap, ring->late_logits);
}

/* ---- Turning ---- */

static struct rn_batch *batch_of(struct rn_step_ring *ring, uint64_t submission)
{
    return &ring->batches[submission % (ring->size + 1)];
}

struct rn_batch *rn_step_ring_next(struct rn_step_ring *ring)
{
    struct rn_step_arrays *arrays = &ring->arrays[ring->n_submitted % ring->size];
    struct rn_batch *batch = batch_of(ring, ring->n_submitted);

    RN_CHECK(ring->n_flying < ring->size);
    RN_ASSERT(batch->list == NULL && batch->computed == NULL && batch->news == NULL);
    batch->n_parts = batch->n_drafts = batch->n_branches = batch->n_late = batch->n_guided = batch->n_waiting = 0;
    batch->n_repeated = batch->n_counts = batch->n_changes = 0;
    batch->n_readers = 0;
    batch->counts = arrays->counts;
    batch->verifies = batch->holds = false;
    batch->proposals.n = 0;
    batch->step = (struct rn_step){.rows = arrays->rows,
                                   .seqs = arrays->seqs,
                                   .copies = arrays->copies,
                                   .stop = &arrays->stop,
                                   .moves = ring->moves,
                                   .states = ring->states,
                                   .state_copies = ring->state_copies,
                                   .feature_rows = ring->feature_rows,
                                   .features = ring->features,
                                   .logits = ring->logits};
    return batch;
}

void rn_step_ring_submit(struct rn_step_ring *ring)
{
    RN_CHECK(ring->n_flying < ring->size);
    rn_stop_clear(&ring->arrays[ring->n_submitted % ring->size].stop);
    ring->n_flying++;
    ring->n_submitted++;
}

void rn_step_ring_take(struct rn_step_ring *ring, struct rn_batch *batch)
{
    RN_CHECK(ring->n_flying > 0 && batch == batch_of(ring, ring->n_submitted - ring->n_flying));
    ring->n_flying--;
    if (batch->begin_ns < ring->end_ns)
        batch->begin_ns = ring->end_ns;
    RN_ASSERT(batch->begin_ns <= batch->end_ns && batch->end_ns >= ring->end_ns); /* steps end in their order */
    ring->end_ns = batch->end_ns;
}

void rn_step_ring_stop(struct rn_step_ring *ring)
{
    for (uint32_t i = 1; i <= ring->n_flying; i++)
        rn_stop_set(&ring->arrays[(ring->n_submitted - i) % ring->size].stop);
}

bool rn_step_ring_draws(const struct rn_step_ring *ring, const struct rn_request *request)
{
    return request->in_steps > 0 && request->draw_step == ring->n_submitted;
}

uint32_t rn_step_ring_drawn(const struct rn_step_ring *ring, const struct rn_request *request)
{
    RN_CHECK(rn_step_ring_draws(ring, request));
    return request->draw_row;
}

bool rn_step_ring_check(const struct rn_step_ring *ring)
{
    if (ring->size == 0 || ring->size > RN_STEPS || ring->n_flying > ring->size || ring->n_flying > ring->n_submitted)
        return false;
    for (uint64_t i = ring->n_flying; i < ring->size + 1; i++) {
        const struct rn_batch *batch = &ring->batches[(ring->n_submitted - ring->n_flying + i) % (ring->size + 1)];

        if (batch->list != NULL || batch->computed != NULL)
            return false;
    }
    return true;
}
