/* The reference backend: its life, its memory and its queue. The ops are in ops.c.
 *
 * Plain C, sums in double, one thread, no thought of speed: it judges every other backend. The step
 * runs on worker 0 of the team; the others return at once.
 *
 *   submit ─push─▶ inbox (newest first) ─exchange─▶ queue (oldest first) ─▶ run ─▶ done ─▶ on_done
 *                    pending: 0 → 1 hands the job to the team; done hands it over again while pending > 0
 *
 * Invariant: the job is with the team, or about to be, exactly while pending > 0. Nothing of the
 * backend is touched behind on_done: whoever gets that call may free it. */
#include "cpu/reference/reference.h"

#include <string.h>

#include "base/check.h"
#include "model/kv.h"
#include "model/op_info.h"
#include "model/stop.h"

static struct rn_reference *self(struct rn_backend *backend)
{
    return (struct rn_reference *)backend;
}

static bool supports(const struct rn_op *op, uint32_t type_id)
{
    if ((unsigned)op->kind >= RN_OP_KINDS)
        return false;
    return op->weight < 0 || rn_type(type_id) != NULL;
}

/* ---- Memory ---- */

static void release(struct rn_reference *ref)
{
    uint32_t i;

    for (i = 0; ref->slots != NULL && i < ref->plan->n_slots; i++)
        rn_free(ref->heap, ref->slots[i]);
    for (i = 0; ref->k != NULL && i < ref->plan->n_kv_layers; i++)
        rn_free(ref->heap, ref->k[i]);
    for (i = 0; ref->v != NULL && i < ref->plan->n_kv_layers; i++)
        rn_free(ref->heap, ref->v[i]);
    rn_free(ref->heap, ref->selected);
    rn_free(ref->heap, ref->slots);
    rn_free(ref->heap, ref->k);
    rn_free(ref->heap, ref->v);
    rn_free(ref->heap, ref->row);
    rn_free(ref->heap, ref->bias);
    rn_free(ref->heap, ref->scores);
    rn_free(ref->heap, ref->sums);
    rn_free(ref->heap, ref->query);
    rn_free(ref->heap, ref->head);
    rn_free(ref->heap, ref->drawn);
    rn_free(ref->heap, ref->states);
    ref->slots = NULL;
    ref->selected = NULL;
    ref->k = ref->v = NULL;
    ref->row = ref->bias = NULL;
    ref->scores = ref->sums = ref->query = NULL;
    ref->head = NULL;
    ref->drawn = NULL;
    ref->states = NULL;
    ref->plan = NULL;
}

static bool take_slots(struct rn_reference *ref)
{
    const struct rn_plan *plan = ref->plan;
    uint32_t i, rows;
    size_t bytes;

    ref->slots = rn_calloc(ref->heap, plan->n_slots, sizeof *ref->slots);
    if (ref->slots == NULL)
        return false;
    for (i = 0; i < plan->n_slots; i++) {
        rows = plan->slots[i].logits || ref->limits.max_outs > ref->limits.max_rows ? ref->limits.max_outs
                                                                                    : ref->limits.max_rows;
        if (!rn_mul_size(rows, plan->slots[i].width, &bytes))
            return false;
        ref->slots[i] = rn_alloc(ref->heap, bytes, 4);
        if (ref->slots[i] == NULL)
            return false;
    }
    return true;
}

/* [n_blocks * block_tokens, heads] rows of the cache format. */
static unsigned char *take_cache(const struct rn_reference *ref, uint32_t layer, uint32_t dim)
{
    uint32_t heads = ref->plan->kv_layers[layer].kv_heads;
    bool windowed = ref->limits.window > 0 && rn_plan_layer_window(ref->plan, layer) > 0;

    return rn_alloc(ref->heap,
                    (size_t)(windowed ? ref->limits.n_windows : ref->limits.n_blocks) * ref->limits.block_tokens,
                    heads * rn_kv_row_bytes(ref->limits.kv_type, dim));
}

static bool take_caches(struct rn_reference *ref)
{
    const struct rn_plan *plan = ref->plan;
    const struct rn_kv_layer *layer;
    uint32_t i;

    ref->k = rn_calloc(ref->heap, plan->n_kv_layers, sizeof *ref->k);
    ref->v = rn_calloc(ref->heap, plan->n_kv_layers, sizeof *ref->v);
    if (ref->k == NULL || ref->v == NULL)
        return false;
    for (i = 0; i < plan->n_kv_layers; i++) {
        layer = &plan->kv_layers[i];
        ref->k[i] = take_cache(ref, i, layer->k_width / layer->kv_heads);
        ref->v[i] = take_cache(ref, i, layer->v_width / layer->kv_heads);
        if (ref->k[i] == NULL || ref->v[i] == NULL)
            return false;
    }
    if (plan->state_bytes == 0)
        return true;
    ref->states = rn_alloc(ref->heap, ref->limits.n_states, plan->state_bytes);
    return ref->states != NULL;
}

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static bool take_scratch(struct rn_reference *ref)
{
    const struct rn_plan *plan = ref->plan;
    uint32_t i, cols = 1, head = 1, queries = 1, seen = ref->limits.context_tokens;

    for (i = 0; i < plan->n_weights; i++)
        cols = larger(cols, plan->weights[i].cols);
    for (i = 0; i < plan->n_ops; i++) {
        const struct rn_op *op = &plan->ops[i];

        if (op->kind == RN_OP_ATTENTION || op->kind == RN_OP_CHOOSE) {
            head = larger(head, larger(op->k_dim, op->v_dim));
            queries = larger(queries, op->heads * op->k_dim);
            seen = larger(seen, op->used);
        } else if (op->kind == RN_OP_HEAD_SUM) {
            head = larger(head, plan->weights[op->weight].cols);
        }
    }
    ref->selected = rn_alloc(ref->heap, ref->limits.max_rows, sizeof *ref->selected);
    ref->row = rn_alloc(ref->heap, cols, RN_REFERENCE_ROWS * sizeof *ref->row);
    ref->bias = rn_alloc(ref->heap, cols, sizeof *ref->bias);
    ref->scores = rn_alloc(ref->heap, seen, sizeof *ref->scores);
    ref->sums = rn_alloc(ref->heap, head, sizeof *ref->sums);
    ref->query = rn_alloc(ref->heap, queries, sizeof *ref->query);
    ref->head = rn_alloc(ref->heap, head, sizeof *ref->head);
    ref->drawn = rn_alloc(ref->heap, ref->limits.max_outs, sizeof *ref->drawn);
    return ref->selected != NULL && ref->row != NULL && ref->bias != NULL && ref->scores != NULL && ref->sums != NULL &&
           ref->query != NULL && ref->head != NULL && ref->drawn != NULL;
}

static bool limits_ok(const struct rn_backend_limits *l)
{
    return l->max_rows > 0 && l->max_seqs > 0 && l->max_outs > 0 && l->n_blocks > 0 && l->block_tokens > 0 &&
           (l->block_tokens & (l->block_tokens - 1)) == 0 && l->context_tokens > 0 && rn_kv_known(l->kv_type) &&
           l->mean_window % RN_CHUNK == 0;
}

static runnel_status check_ops(const struct rn_plan *plan, runnel_error *error)
{
    const struct rn_weight *weight;
    uint32_t i;

    for (i = 0; i < plan->n_ops; i++) {
        weight = plan->ops[i].weight < 0 ? NULL : &plan->weights[plan->ops[i].weight];
        if (!supports(&plan->ops[i], weight == NULL ? 0 : weight->type_id))
            return rn_error_set(error, RUNNEL_UNSUPPORTED, "op %s with tensor %.*s cannot be computed",
                                rn_op_name(plan->ops[i].kind), weight == NULL ? 0 : (int)weight->tensor->name.n,
                                weight == NULL ? "" : weight->tensor->name.bytes);
    }
    return RUNNEL_OK;
}

static runnel_status prepare(struct rn_backend *backend, const struct rn_plan *plan,
                             const struct rn_backend_limits *limits, rn_progress_fn progress, void *user,
                             runnel_error *error)
{
    struct rn_reference *ref = self(backend);
    runnel_status status;

    RN_CHECK(ref->plan == NULL);
    RN_ASSERT(rn_plan_check(plan));
    if (!limits_ok(limits))
        return rn_error_set(
            error, RUNNEL_INVALID,
            "the limits of the backend hold a zero, a bad block size, an unknown KV type or half a chunk");
    if (plan->state_bytes > 0 && limits->n_states == 0)
        return rn_error_set(error, RUNNEL_INVALID, "limits: no slots for the recurrent states of the plan");
    status = rn_limits_check(limits, plan, &ref->caps, error);
    if (status == RUNNEL_OK)
        status = check_ops(plan, error);
    if (status != RUNNEL_OK)
        return status;
    if (progress != NULL && !progress(user, 0))
        return rn_error_set(error, RUNNEL_CANCELLED, "loading was cancelled");
    ref->plan = plan;
    ref->limits = *limits;
    if (!take_slots(ref) || !take_caches(ref) || !take_scratch(ref))
        status =
            rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for the activations and %u KV blocks", limits->n_blocks);
    else if (progress != NULL && !progress(user, 1))
        status = rn_error_set(error, RUNNEL_CANCELLED, "loading was cancelled");
    if (status != RUNNEL_OK)
        release(ref);
    return status;
}

/* ---- The queue ---- */

/* The oldest step that has not run; there is one. */
static struct rn_step *next_step(struct rn_reference *ref)
{
    struct rn_step *newest, *next, *step;

    if (ref->queue == NULL) {
        /* acquire: pairs with the release in submit, else the step's fields might be read too early. */
        newest = atomic_exchange_explicit(&ref->inbox, NULL, memory_order_acquire);
        for (; newest != NULL; newest = next) {
            next = newest->next;
            newest->next = ref->queue;
            ref->queue = newest;
        }
    }
    step = ref->queue;
    RN_CHECK(step != NULL);
    ref->queue = step->next;
    return step;
}

static void compute(struct rn_reference *ref, struct rn_step *step)
{
    const struct rn_plan *plan = ref->plan;
    const float *logits;
    uint32_t i;

    rn_draw_chain(step, ref->drawn, ref->n_drawn);
    RN_ASSERT(rn_step_check(step, plan, &ref->limits));
    rn_reference_copy_blocks(ref, step);
    rn_reference_move_rows(ref, step);
    rn_reference_copy_states(ref, step);
    rn_reference_choose(ref, step);
    for (i = 0; i < plan->n_ops && !rn_stop_is_set(step->stop); i++)
        rn_reference_op(ref, &plan->ops[i], step);
    logits = plan->logits_slot < 0 ? NULL : ref->slots[plan->logits_slot];
    if (step->n_outs > 0 && step->logits != NULL)
        memcpy(step->logits, logits, (size_t)step->n_outs * plan->n_vocab * sizeof(float));
    for (i = 0; step->draws != NULL && i < step->n_outs && !rn_stop_is_set(step->stop); i++)
        rn_draw_one(step, i, logits + (size_t)i * plan->n_vocab, plan->n_vocab, 0);
    step->status = rn_stop_is_set(step->stop) ? RUNNEL_CANCELLED : RUNNEL_OK;
    if (step->status != RUNNEL_OK)
        rn_draw_stop(step);
    ref->n_drawn = rn_draw_keep(step, ref->drawn);
}

static struct rn_reference *of_job(struct rn_job *job)
{
    return (struct rn_reference *)((char *)job - offsetof(struct rn_reference, job));
}

static void run(struct rn_job *job, uint32_t worker, uint32_t n_workers)
{
    struct rn_reference *ref = of_job(job);

    (void)n_workers;
    if (worker != 0)
        return;
    ref->current = next_step(ref);
    compute(ref, ref->current);
}

static void done(struct rn_job *job)
{
    struct rn_reference *ref = of_job(job);
    struct rn_step *step = ref->current;
    bool more;

    /* acq_rel: pairs with the addition in submit. Who sees 0 there has the job for itself; who sees more here
     * also sees that step in the inbox. */
    more = atomic_fetch_sub_explicit(&ref->pending, 1, memory_order_acq_rel) > 1;
    step->on_done(step);
    if (more) /* behind on_done: steps end in order */
        rn_team_submit(ref->team, &ref->job);
}

static void submit_async(struct rn_backend *backend, struct rn_step *step)
{
    struct rn_reference *ref = self(backend);
    struct rn_step *head = atomic_load_explicit(&ref->inbox, memory_order_relaxed);

    RN_CHECK(ref->plan != NULL);
    /* release: pairs with the acquire in next_step. */
    do
        step->next = head;
    while (
        !atomic_compare_exchange_weak_explicit(&ref->inbox, &head, step, memory_order_release, memory_order_relaxed));
    /* acq_rel: pairs with the subtraction in done, and comes after the push, so that done finds the step. */
    if (atomic_fetch_add_explicit(&ref->pending, 1, memory_order_acq_rel) == 0)
        rn_team_submit(ref->team, &ref->job);
}

/* ---- Life ---- */

static void free_reference(struct rn_backend *backend)
{
    struct rn_reference *ref = self(backend);

    RN_ASSERT(atomic_load_explicit(&ref->pending, memory_order_relaxed) == 0);
    if (ref->plan != NULL)
        release(ref);
    rn_free(ref->heap, ref);
}

static const struct rn_backend_ops reference_ops = {
    .name = "reference",
    .prepare = prepare,
    .submit_async = submit_async,
    .free = free_reference,
    .block_bytes = rn_reference_block_bytes,
    .layout = rn_reference_layout,
    .state_bytes = rn_reference_state_bytes,
    .copy_async = rn_reference_copy_async,
    .host_alloc = rn_reference_host_alloc,
    .host_free = rn_reference_host_free,
};

struct rn_backend *rn_cpu_reference_new(struct rn_heap *heap, struct rn_team *team)
{
    struct rn_reference *ref = rn_calloc(heap, 1, sizeof *ref);

    if (ref == NULL)
        return NULL;
    ref->caps = rn_cpu_caps(team);
    ref->base = (struct rn_backend){&reference_ops, &ref->caps};
    ref->heap = heap;
    ref->team = team;
    ref->job = (struct rn_job){.run = run, .done = done};
    return &ref->base;
}
