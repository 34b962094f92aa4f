/* A backend of two: see split.h.
 *
 *   submitter     submit(k) ─────────────▶ begin(k)?
 *   front's       on_front_done(k) ─▶ back's submit(k)
 *   back's        on_back_done(k) ─▶ begin(k+1)? ─▶ on_done(k)
 *
 * A step that waits for draws of the one before begins when that one is back, others at once. Who counts `pending` last
 * begins it: the submitter that finds no step in flight, or the one who ends a step and finds one more.
 *
 * In the host's memory a block is what the back's layers have, and behind it what the front's have; so is a state. */
#include "model/split.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/min.h"

enum { RING = 2, LAYOUT_BYTES = 128 };

struct split;

/* A step in flight. */
struct flight {
    struct split *split;
    struct rn_step *step;       /* the submitter's */
    struct rn_step front, back; /* what of it each part gets */
    struct rn_step_row *rows;   /* [max_rows]: of the front, whose rows are not wanted */
    struct rn_step_seq *seqs;   /* [2 * max_seqs]: of the front, and of the back */
    float *crossing;            /* [max_rows, the front's features_width] */
    runnel_status *fates;       /* [max_outs]: what each draw's row depends on has come to */
    bool waits;                 /* for draws of the step before */
};

struct split {
    struct rn_backend base; /* first */
    struct rn_heap *heap;
    struct rn_device_caps caps;
    struct rn_split_part parts[2]; /* front, back */
    struct rn_backend *backends[2];
    struct rn_backend_limits limits, parts_limits[2];
    struct flight flights[RING]; /* each at its number modulo their count */
    struct rn_drawn *drawn;      /* [max_outs]: what the last step that is back has drawn; its ender's, and then whoever
                                    begins the next one that waits */
    uint32_t n_drawn;
    uint64_t n_submitted;      /* the submitter's */
    uint64_t n_ended;          /* of who ends a step */
    _Atomic uint32_t pending;  /* steps in flight */
    _Atomic uint64_t n_passed; /* to the back, and who passed them is out of it. Released by on_front_done to
                                  free_backend. Weaker: a backend is freed while a step is being submitted to it */
    char layout[LAYOUT_BYTES];
};

enum { FRONT, BACK };

static struct split *self(const struct rn_backend *backend)
{
    return (struct split *)backend;
}

/* ---- What each device can ---- */

struct rn_device_caps rn_split_caps(const struct rn_device_caps *front, const struct rn_device_caps *back)
{
    const uint32_t drawing = RN_CAN_DRAW | RN_CAN_DRAW_ITSELF; /* only the back does */
    struct rn_device_caps caps = *back;

    RN_CHECK(front->block_tokens == back->block_tokens);
    caps.can = back->can & (front->can | drawing) & ~(uint32_t)RN_CAN_INPUTS; /* these are what crosses */
    caps.kv_types &= front->kv_types;
    caps.max_rows = rn_min_u32(front->max_rows, back->max_rows);
    caps.max_outs = rn_min_u32(front->max_outs, back->max_outs);
    caps.good_rows = rn_min_u32(front->good_rows, back->good_rows);
    caps.good_outs = rn_min_u32(front->good_outs, back->good_outs);
    caps.ring = rn_min_u32(RING, rn_min_u32(front->ring, back->ring));
    caps.good_ring = caps.ring; /* one for each device */
    return caps;
}

/* ---- Steps ---- */

/* Sequences as a part wants them: without the blocks of windows where none of its layers has one. */
static struct rn_step_seq *seqs_of(struct flight *flight, int part)
{
    const struct split *split = flight->split;
    struct rn_step_seq *seqs = flight->seqs + (part == BACK ? split->limits.max_seqs : 0);

    memcpy(seqs, flight->step->seqs, flight->step->n_seqs * sizeof *seqs);
    for (uint32_t i = 0; i < flight->step->n_seqs && split->parts_limits[part].window == 0; i++) {
        seqs[i].windows = NULL;
        seqs[i].n_windows = 0;
    }
    return seqs;
}

/* The step as both parts have it. */
static struct rn_step common(struct flight *flight, int part, void (*on_done)(struct rn_step *))
{
    struct rn_step step = *flight->step;

    step.seqs = seqs_of(flight, part);
    if (flight->split->parts_limits[part].n_states == 0) {
        step.states = NULL;
        step.n_state_copies = 0;
    }
    step.on_done = on_done;
    step.user = flight;
    return step;
}

static void on_back_done(struct rn_step *back);

/* Also of a step that was stopped: it ends behind those before it. */
static void on_front_done(struct rn_step *front)
{
    struct flight *flight = front->user;
    struct split *split = flight->split;
    struct rn_backend *back = split->backends[BACK];

    back->ops->submit_async(back, &flight->back);
    atomic_fetch_add_explicit(&split->n_passed, 1, memory_order_release); /* partner: free_backend; the last touch */
}

static void begin(struct split *split, struct flight *flight)
{
    struct rn_step *step = flight->step;
    struct rn_backend *front = split->backends[FRONT];

    if (flight->waits)
        rn_draw_chain(step, split->drawn, split->n_drawn);
    for (uint32_t i = 0; step->draws != NULL && i < step->n_outs; i++)
        flight->fates[i] = flight->waits ? step->draws[i].status : RUNNEL_OK;
    memcpy(flight->rows, step->rows, step->n_rows * sizeof *flight->rows);
    for (uint32_t r = 0; r < step->n_rows; r++)
        flight->rows[r].out = -1;
    flight->back = common(flight, BACK, on_back_done);
    flight->back.inputs = flight->crossing;
    flight->front = common(flight, FRONT, on_front_done);
    flight->front.rows = flight->rows;
    flight->front.n_outs = flight->front.n_features = 0;
    flight->front.logits = NULL;
    flight->front.draws = NULL;
    flight->front.drawer = NULL;
    flight->front.drawn = NULL; /* the tokens are there */
    flight->front.feature_rows = NULL;
    flight->front.features = flight->crossing;
    flight->front.early_features = false;
    front->ops->submit_async(front, &flight->front);
}

static void submit_async(struct rn_backend *base, struct rn_step *step)
{
    struct split *split = self(base);
    struct flight *flight = &split->flights[split->n_submitted++ % RING];
    bool waits = step->drawn != NULL;

    flight->step = step;
    flight->waits = waits;
    /* acq_rel: pairs with the subtraction in on_back_done. Who finds none in flight sees what the last one has drawn;
     * who ends that one while this one is counted sees that it waits. */
    if (atomic_fetch_add_explicit(&split->pending, 1, memory_order_acq_rel) == 0 || !waits)
        begin(split, flight);
}

/* What became of the step: the front's failure counts, and a draw has what its row depends on. */
static void settle(const struct flight *flight)
{
    struct rn_step *step = flight->step;

    step->status = flight->front.status != RUNNEL_OK ? flight->front.status : flight->back.status;
    for (uint32_t i = 0; step->draws != NULL && i < step->n_outs; i++) {
        runnel_status fate = step->status != RUNNEL_OK ? step->status : flight->fates[i];

        if (fate == RUNNEL_OK)
            continue;
        step->draws[i].status = fate;
        step->draws[i].is_late = false;
    }
}

static void on_back_done(struct rn_step *back)
{
    struct flight *flight = back->user, *next;
    struct split *split = flight->split;
    struct rn_step *step = flight->step;

    settle(flight);
    split->n_drawn = rn_draw_keep(step, split->drawn);
    next = &split->flights[++split->n_ended % RING];
    /* acq_rel: pairs with the addition in submit_async. Above 1 the next step is there, and begun unless it waits.
     * Before on_done: behind it the submitter may begin a further one, which must not overtake this one. */
    if (atomic_fetch_sub_explicit(&split->pending, 1, memory_order_acq_rel) > 1 && next->waits)
        begin(split, next);
    step->on_done(
        step); /* the last touch. The back's steps end one after the other, so that of `next` is not out yet */
}

static bool can_draw(const struct rn_backend *base, const runnel_sampling *sampling)
{
    const struct rn_backend *back = self(base)->backends[BACK];

    return back->ops->can_draw == NULL || back->ops->can_draw(back, sampling);
}

static struct rn_draw_mask *mask_of(struct rn_backend *base, uint32_t out)
{
    struct rn_backend *back = self(base)->backends[BACK];

    return back->ops->mask_of == NULL ? NULL : back->ops->mask_of(back, out);
}

/* ---- Prepare ---- */

/* A part of the progress of all. */
struct share {
    rn_progress_fn progress;
    void *user;
    float from, span;
};

static bool on_progress(void *user, float fraction)
{
    const struct share *share = user;

    return share->progress == NULL || share->progress(share->user, share->from + share->span * fraction);
}

static struct rn_backend_limits limits_of(const struct split *split, int part)
{
    const struct rn_plan *plan = split->parts[part].plan;
    struct rn_backend_limits limits = split->limits;

    limits.window = limits.window > 0 ? rn_plan_window(plan) : 0;
    limits.n_windows = limits.window > 0 ? limits.n_windows : 0;
    limits.n_states = plan->state_bytes > 0 ? limits.n_states : 0;
    limits.draws = limits.draws && part == BACK;
    limits.max_changes = part == BACK ? limits.max_changes : 0;
    limits.weights_place = NULL;
    limits.expert_bytes = part == BACK ? limits.expert_bytes : 0;
    return limits;
}

static bool take_flight(struct split *split, struct flight *flight)
{
    const struct rn_backend_limits *limits = &split->limits;
    size_t width = split->parts[FRONT].plan->features_width;

    flight->split = split;
    flight->rows = rn_calloc(split->heap, limits->max_rows, sizeof *flight->rows);
    flight->seqs = rn_calloc(split->heap, 2 * (size_t)limits->max_seqs, sizeof *flight->seqs);
    flight->crossing = rn_calloc(split->heap, limits->max_rows * width, sizeof *flight->crossing);
    flight->fates = rn_calloc(split->heap, (size_t)limits->max_outs + 1, sizeof *flight->fates);
    return flight->rows != NULL && flight->seqs != NULL && flight->crossing != NULL && flight->fates != NULL;
}

static bool take_memory(struct split *split)
{
    split->drawn = rn_calloc(split->heap, (size_t)split->limits.max_outs + 1, sizeof *split->drawn);
    return split->drawn != NULL && take_flight(split, &split->flights[0]) && take_flight(split, &split->flights[1]);
}

static void describe(struct split *split)
{
    const char *layouts[2] = {"", ""};

    for (int i = 0; i < 2; i++)
        if (split->backends[i]->ops->layout != NULL)
            layouts[i] = split->backends[i]->ops->layout(split->backends[i]);
    snprintf(split->layout, sizeof split->layout, "%s | %u layers of %s", layouts[BACK],
             split->parts[FRONT].plan->n_kv_layers + split->parts[FRONT].plan->n_state_layers, layouts[FRONT]);
}

/* The back first, whose memory is the smaller one. */
static runnel_status prepare(struct rn_backend *base, const struct rn_plan *plan,
                             const struct rn_backend_limits *limits, rn_progress_fn progress, void *user,
                             runnel_error *error)
{
    struct split *split = self(base);
    float front = (float)split->parts[FRONT].plan->weight_bytes, back = (float)split->parts[BACK].plan->weight_bytes;
    struct share shares[2] = {{progress, user, back / (front + back), front / (front + back)},
                              {progress, user, 0, back / (front + back)}};
    runnel_status status = rn_limits_check(limits, plan, &split->caps, error);

    if (status != RUNNEL_OK)
        return status;
    split->limits = *limits;
    if (!take_memory(split))
        return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for what crosses between two devices");
    for (int i = BACK; i >= FRONT; i--) {
        struct rn_backend *backend = split->backends[i];

        split->parts_limits[i] = limits_of(split, i);
        status = backend->ops->prepare(backend, split->parts[i].plan, &split->parts_limits[i], on_progress, &shares[i],
                                       error);
        if (status != RUNNEL_OK)
            return status;
    }
    describe(split);
    return RUNNEL_OK;
}

/* ---- Blocks in the host's memory ---- */

static size_t block_bytes_of(const struct split *split, int part)
{
    return split->backends[part]->ops->block_bytes(split->backends[part]);
}

static size_t state_bytes_of(const struct split *split, int part)
{
    return split->backends[part]->ops->state_bytes(split->backends[part]);
}

static size_t block_bytes(const struct rn_backend *base)
{
    return block_bytes_of(self(base), FRONT) + block_bytes_of(self(base), BACK);
}

static size_t state_bytes(const struct rn_backend *base)
{
    return state_bytes_of(self(base), FRONT) + state_bytes_of(self(base), BACK);
}

static const char *layout(const struct rn_backend *base)
{
    return self(base)->layout;
}

static void on_item_copied(struct rn_host_copies *copies)
{
    bool *done = copies->user;

    *done = true;
}

/* The front's part of one item, on this thread: its device's memory is the host's. */
static runnel_status copy_front(const struct split *split, const struct rn_host_copy *item)
{
    struct rn_backend *front = split->backends[FRONT];
    struct rn_host_copy own = *item;
    bool done = false;
    struct rn_host_copies one = {.n = 1, .items = &own, .on_done = on_item_copied, .user = &done};

    own.host = (char *)item->host + (item->is_state ? state_bytes_of(split, BACK) : block_bytes_of(split, BACK));
    front->ops->copy_async(front, &one);
    RN_CHECK(done);
    return one.status;
}

/* The back goes on with the list itself, so that nothing has to be kept of it. */
static void copy_async(struct rn_backend *base, struct rn_host_copies *copies)
{
    struct split *split = self(base);
    struct rn_backend *back = split->backends[BACK];
    runnel_status status = RUNNEL_OK;

    for (uint32_t i = 0; i < copies->n && status == RUNNEL_OK; i++)
        status = copy_front(split, &copies->items[i]);
    if (status == RUNNEL_OK) {
        back->ops->copy_async(back, copies);
        return;
    }
    copies->status = status;
    copies->on_done(copies);
}

static void *host_alloc(struct rn_backend *base, size_t bytes)
{
    struct rn_backend *back = self(base)->backends[BACK];

    return back->ops->host_alloc(back, bytes);
}

static void host_free(struct rn_backend *base, void *memory)
{
    struct rn_backend *back = self(base)->backends[BACK];

    back->ops->host_free(back, memory);
}

static uint64_t tiled_bytes(const struct rn_backend *base)
{
    const struct split *split = self(base);
    uint64_t bytes = 0;

    for (int i = 0; i < 2; i++)
        if (split->backends[i]->ops->tiled_bytes != NULL)
            bytes += split->backends[i]->ops->tiled_bytes(split->backends[i]);
    return bytes;
}

/* ---- Life ---- */

static void free_backend(struct rn_backend *base)
{
    struct split *split = self(base);

    /* acquire: partner on_front_done */
    while (atomic_load_explicit(&split->n_passed, memory_order_acquire) != split->n_submitted)
        sched_yield();
    for (int i = 0; i < 2; i++)
        if (split->backends[i] != NULL)
            split->backends[i]->ops->free(split->backends[i]);
    for (int i = 0; i < RING; i++) {
        rn_free(split->heap, split->flights[i].rows);
        rn_free(split->heap, split->flights[i].seqs);
        rn_free(split->heap, split->flights[i].crossing);
        rn_free(split->heap, split->flights[i].fates);
    }
    rn_free(split->heap, split->drawn);
    rn_free(split->heap, split);
}

static const struct rn_backend_ops split_ops = {
    .name = "split",
    .prepare = prepare,
    .submit_async = submit_async,
    .can_draw = can_draw,
    .mask_of = mask_of,
    .free = free_backend,
    .block_bytes = block_bytes,
    .layout = layout,
    .state_bytes = state_bytes,
    .tiled_bytes = tiled_bytes,
    .copy_async = copy_async,
    .host_alloc = host_alloc,
    .host_free = host_free,
};

struct rn_backend *rn_split_new(struct rn_heap *heap, const struct rn_split_part *front,
                                const struct rn_split_part *back)
{
    struct split *split = rn_calloc(heap, 1, sizeof *split);

    if (split == NULL)
        return NULL;
    RN_CHECK(rn_device_can(front->device->caps, RN_CAN_FEATURES) && rn_device_can(back->device->caps, RN_CAN_INPUTS));
    split->heap = heap;
    split->parts[FRONT] = *front;
    split->parts[BACK] = *back;
    split->caps = rn_split_caps(front->device->caps, back->device->caps);
    split->base = (struct rn_backend){&split_ops, &split->caps};
    for (int i = 0; i < 2; i++) {
        split->backends[i] = split->parts[i].device->kind->new_backend(split->parts[i].device, heap);
        if (split->backends[i] == NULL) {
            free_backend(&split->base);
            return NULL;
        }
    }
    return &split->base;
}
