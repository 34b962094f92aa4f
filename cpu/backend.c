/* The fast CPU backend: memory, weights, the queue of steps. What a step does is in execute.c, how weights
 * come into memory in team_load.c.
 *
 *   submit ─▶ inbox ─▶ queue ─▶ step ──job on the team──▶ done: next step's job, then on_done
 *
 * One job serves all steps; whoever raises `pending` from 0 holds it first, then each done hands it on.
 * Threads: prepare and free by the owner; submit by one thread at a time; done on a worker. */
#include <sys/mman.h>

#include "base/check.h"
#include "cpu/fast.h"
#include "model/kv.h"
#include "model/op_info.h"
#include "model/stop.h"

enum {
    LINE = 64,
    HUGE_PAGE = 1 << 21,
    LANES = 32,          /* queries of a group: its state and a tile of the cache fit the first-level cache */
    SPLIT_PER_THREAD = 8 /* attentions per thread up to which they are cut into segments */
};

/* ---- Steps ---- */

/* Holder of the job only: takes the oldest step and gives the job to the team. */
static void start_next(struct rn_fast *fast)
{
    struct rn_step *step, *next;

    if (fast->queue == NULL) {
        /* acquire: pairs with the release push in submit, else the step's fields might be read too early. */
        step = atomic_exchange_explicit(&fast->inbox, NULL, memory_order_acquire);
        for (; step != NULL; step = next) {
            next = step->next;
            step->next = fast->queue;
            fast->queue = step;
        }
    }
    step = fast->queue;
    RN_CHECK(step != NULL);
    fast->queue = step->next;
    rn_fast_draws_ready(fast, step);
    RN_ASSERT(rn_step_check(step, fast->plan, &fast->limits));
    RN_ASSERT(step->draws == NULL || (step->drawer != NULL && step->drawer->n_scratch > 0));
    rn_fast_ready(fast, step);
    rn_team_submit(fast->team, &fast->job);
}

static void submit_async(struct rn_backend *backend, struct rn_step *step)
{
    struct rn_fast *fast = (struct rn_fast *)backend;
    struct rn_step *head = atomic_load_explicit(&fast->inbox, memory_order_relaxed);

    do
        step->next = head;
    while (!atomic_compare_exchange_weak_explicit(&fast->inbox, &head, step,
                                                  memory_order_release, /* pairs with start_next */
                                                  memory_order_relaxed));
    /* acq_rel: pairs with the subtraction in `done`. Who goes from 0 to 1 holds the job and sees what the last
     * holder left. */
    if (atomic_fetch_add_explicit(&fast->pending, 1, memory_order_acq_rel) == 0)
        start_next(fast);
}

/* The means that rows see in the phase. */
static void run_means(struct rn_fast *fast, uint32_t worker, uint32_t n_workers, uint32_t phase)
{
    if (!rn_fast_means_due(fast, phase))
        return;
    if (!rn_stop_is_set(fast->step->stop))
        rn_fast_means_store(fast, phase, worker, n_workers);
    rn_team_barrier(fast->team, worker); /* other workers' rows see them in this phase already */
}

/* Each worker looks for itself whether the step was stopped, and passes all barriers in any case: those of a step stand
 * here and in run_means alone, and how many they are hangs on the step and the program, never on the stop. Who has
 * computed a phase to its end has met nobody at a barrier who had seen the stop before: so what it read was computed,
 * too. */
static void run(struct rn_job *job, uint32_t worker, uint32_t n_workers)
{
    struct rn_fast *fast = (struct rn_fast *)((char *)job - offsetof(struct rn_fast, job));
    struct rn_fast_ask ask;
    uint32_t phase;

    rn_fast_ask_init(&ask, fast, worker, n_workers);
    rn_fast_begin(fast, worker, n_workers);
    rn_fast_copy_states(fast, worker, n_workers);
    if (fast->step->n_copies + fast->step->n_state_copies >
        0) /* what was copied is read, and written over, by others */
        rn_team_barrier(fast->team, worker);
    if (fast->step->n_moves > 0) {
        rn_fast_move_rows(fast, worker, n_workers);
        rn_team_barrier(fast->team, worker);
    }
    for (phase = 0; phase < fast->program.n_phases; phase++) {
        if (fast->step->n_rows < RN_LAY_FROM && rn_program_only_lays(&fast->program, phase))
            continue;
        if (!fast->is_adapted && rn_program_only_adapts(&fast->program, phase))
            continue;
        if (phase > 0)
            rn_team_barrier_meanwhile(fast->team, worker, rn_fast_ask_from(&ask, phase));
        run_means(fast, worker, n_workers, phase);
        if (!rn_stop_is_set(fast->step->stop))
            rn_fast_phase(fast, worker, n_workers, phase);
    }
    if (fast->step->draws != NULL) {
        rn_team_barrier(fast->team, worker);
        if (!rn_stop_is_set(fast->step->stop))
            rn_fast_draw(fast, worker);
    }
}

static void done(struct rn_job *job)
{
    struct rn_fast *fast = (struct rn_fast *)((char *)job - offsetof(struct rn_fast, job));
    struct rn_step *step = fast->step;
    bool more;

    step->status = rn_stop_is_set(step->stop) ? RUNNEL_CANCELLED : RUNNEL_OK;
    rn_fast_draws_done(fast);
    fast->step = NULL;
    /* acq_rel: pairs with the addition in submit; above 1 there is a step in the queue or the inbox. */
    more = atomic_fetch_sub_explicit(&fast->pending, 1, memory_order_acq_rel) > 1;
    step->on_done(step); /* without more the last touch: the owner may free the backend from here on */
    if (more)            /* behind on_done: steps end in order */
        start_next(fast);
}

/* ---- Memory ---- */

/* Fewer walks through page tables. */
void *rn_fast_take_huge(struct rn_heap *heap, size_t bytes)
{
    void *ptr = rn_alloc_aligned(heap, bytes == 0 ? LINE : bytes, bytes >= HUGE_PAGE ? HUGE_PAGE : LINE);

    if (ptr != NULL && bytes >= HUGE_PAGE) /* advice only */
        (void)madvise(ptr, bytes - bytes % HUGE_PAGE, MADV_HUGEPAGE);
    return ptr;
}

static void *take_bytes(struct rn_fast *fast, size_t n, size_t size, bool *ok)
{
    void *ptr = NULL;
    size_t bytes;

    if (rn_mul_size(n, size, &bytes))
        ptr = rn_fast_take_huge(fast->heap, bytes);
    if (ptr == NULL)
        *ok = false;
    return ptr;
}

static void **take_table(struct rn_fast *fast, size_t n, bool *ok)
{
    void **table = rn_calloc(fast->heap, n, sizeof *table);

    if (table == NULL)
        *ok = false;
    return table;
}

static void set_slopes(struct rn_fast *fast)
{
    uint32_t i, h;

    for (i = 0; i < fast->plan->n_ops; i++)
        for (h = 0; fast->slopes[i] != NULL && h < fast->plan->ops[i].heads; h++)
            fast->slopes[i][h] = (float)-rn_op_slope(&fast->plan->ops[i], h);
}

static bool take_slots(struct rn_fast *fast)
{
    const struct rn_plan *plan = fast->plan;
    bool ok = true;
    uint32_t i, rows;

    fast->slots = (float **)take_table(fast, plan->n_slots, &ok);
    for (i = 0; ok && i < plan->n_slots; i++) {
        rows = plan->slots[i].logits || fast->limits.max_outs > fast->limits.max_rows ? fast->limits.max_outs
                                                                                      : fast->limits.max_rows;
        if ((int16_t)i != plan->logits_slot)
            fast->slots[i] = take_bytes(fast, rows, (size_t)plan->slots[i].width * sizeof(float), &ok);
    }
    rows = fast->limits.max_rows > fast->limits.max_outs ? fast->limits.max_rows : fast->limits.max_outs;
    for (i = 0; ok && i < RN_INPUT_KINDS; i++)
        if (fast->program.input_bytes[i] > 0)
            fast->inputs[i] = take_bytes(fast, rows, fast->program.input_bytes[i], &ok);
    if (ok && fast->program.laid_cols > 0)
        fast->laid =
            take_bytes(fast, rn_round_up(rows, 16) / 16, fast->program.laid_cols / 32 * (size_t)RN_LAID_BYTES, &ok);
    fast->angles = ok ? (float **)take_table(fast, plan->n_ropes, &ok) : NULL;
    for (i = 0; ok && i < plan->n_ropes; i++)
        fast->angles[i] = take_bytes(fast, fast->limits.max_rows, plan->ropes[i].dims * sizeof(float), &ok);
    fast->slopes = ok ? (float **)take_table(fast, plan->n_ops, &ok) : NULL;
    for (i = 0; ok && i < plan->n_ops; i++)
        if (plan->ops[i].alibi != 0)
            fast->slopes[i] = take_bytes(fast, plan->ops[i].heads, sizeof(float), &ok);
    if (ok)
        set_slopes(fast);
    if (ok)
        fast->selected_rows = take_bytes(fast, fast->limits.max_rows, sizeof *fast->selected_rows, &ok);
    if (ok)
        fast->features_of = take_bytes(fast, fast->limits.max_rows, sizeof *fast->features_of, &ok);
    if (ok)
        fast->drawn = take_bytes(fast, fast->limits.max_outs, sizeof *fast->drawn, &ok);
    if (ok && fast->limits.draws && plan->logits_slot >= 0)
        fast->own_logits = take_bytes(fast, fast->limits.max_outs, plan->n_vocab * sizeof(float), &ok);
    if (ok)
        fast->pieces = take_bytes(fast, fast->program.n, sizeof *fast->pieces, &ok);
    fast->share_stride = rn_round_up(fast->program.n, LINE / sizeof *fast->shares);
    if (ok)
        fast->shares =
            take_bytes(fast, (size_t)rn_team_threads(fast->team) * fast->share_stride, sizeof *fast->shares, &ok);
    return ok;
}

/* The cache is not written here: its pages come into being when they are used. */
static bool take_layers(struct rn_fast *fast)
{
    const struct rn_plan *plan = fast->plan;
    runnel_kv_type type = fast->limits.kv_type;
    struct rn_fast_layer *layer;
    bool ok = true;
    uint32_t i, n_blocks;

    fast->tree_blocks = rn_fast_tree_blocks(&fast->limits);
    n_blocks = fast->limits.n_blocks + fast->tree_blocks * rn_team_threads(fast->team);
    fast->layers = rn_calloc(fast->heap, plan->n_kv_layers, sizeof *fast->layers);
    if (fast->layers == NULL)
        return false;
    for (i = 0; ok && i < plan->n_kv_layers; i++) {
        layer = &fast->layers[i];
        layer->kv_heads = plan->kv_layers[i].kv_heads;
        layer->k_dim = plan->kv_layers[i].k_width / layer->kv_heads;
        layer->v_dim = plan->kv_layers[i].v_width / layer->kv_heads;
        layer->key_head = fast->limits.block_tokens * rn_kv_row_bytes(type, layer->k_dim);
        layer->value_head = fast->limits.block_tokens * rn_kv_row_bytes(type, layer->v_dim);
        layer->key_block = layer->key_head * layer->kv_heads;
        layer->value_block = layer->value_head * layer->kv_heads;
        layer->windowed = fast->limits.window > 0 && rn_plan_layer_window(plan, i) > 0;
        layer->keys = take_bytes(fast, layer->windowed ? fast->limits.n_windows : n_blocks, layer->key_block, &ok);
        layer->values = take_bytes(fast, layer->windowed ? fast->limits.n_windows : n_blocks, layer->value_block, &ok);
    }
    fast->state_stride = (plan->state_bytes + LINE - 1) / LINE * LINE;
    if (ok && fast->state_stride > 0)
        fast->states = take_bytes(fast, fast->limits.n_states, fast->state_stride, &ok);
    return ok;
}

/* What one worker needs at most, over all ops. */
struct needs {
    size_t panel, attend, part;
    uint32_t experts, used, queries;
    uint32_t chosen; /* positions, 0: none are */
    size_t gathered; /* bytes of a block of one head of keys, of what looks at these */
};

static void need_attention(struct rn_fast *fast, struct needs *most, const struct rn_op *op)
{
    uint32_t queries = op->heads / op->kv_heads;
    size_t floats = rn_attend_floats(queries < LANES ? LANES / queries : 1, queries, op->k_dim, op->v_dim);
    size_t part = rn_attend_part(queries, op->v_dim);

    most->attend = floats > most->attend ? floats : most->attend;
    most->part = part > most->part ? part : most->part;
    most->queries = queries > most->queries ? queries : most->queries;
    if (op->kv_heads < fast->least_kv_heads || fast->least_kv_heads == 0)
        fast->least_kv_heads = op->kv_heads;
}

static void need_choice(const struct rn_fast *fast, struct needs *most, const struct rn_op *op)
{
    size_t floats = rn_attend_floats(1, op->heads, op->k_dim, op->k_dim);

    if (op->kind == RN_OP_CHOOSE)
        most->attend = floats > most->attend ? floats : most->attend;
    else if (op->b >= 0 && fast->layers[op->layer].key_head > most->gathered)
        most->gathered = fast->layers[op->layer].key_head;
    most->chosen = op->used > most->chosen ? op->used : most->chosen;
}

/* Products of a weight; it may yet be laid into tiles (team_order.c). */
static size_t panel_of(const struct rn_fast *fast, const struct rn_instruction *in)
{
    const struct rn_weight *weight = &fast->plan->weights[in->op->weight];
    const struct rn_kernel *tiled =
        fast->level->tiled == NULL || weight->type_id >= RN_FAST_TYPES ? NULL : fast->level->tiled(weight->type_id);
    size_t rows = rn_kernel_panel_bytes(in->kernel, weight->cols);
    size_t tiles = tiled == NULL ? 0 : rn_kernel_panel_bytes(tiled, weight->cols);

    return tiles > rows ? tiles : rows;
}

static struct needs needs_of(struct rn_fast *fast)
{
    struct needs most = {.panel = LINE, .attend = 1, .part = 1, .experts = 1, .used = 1, .queries = 1};
    const struct rn_instruction *in;
    const struct rn_op *op;
    uint32_t i;
    size_t n;

    for (i = 0; i < fast->program.n; i++) {
        in = &fast->program.list[i];
        op = in->op;
        if (in->kernel != NULL) {
            n = panel_of(fast, in);
            most.panel = n > most.panel ? n : most.panel;
        }
        if (op != NULL && op->kind == RN_OP_ATTENTION)
            need_attention(fast, &most, op);
        if (op != NULL && (op->kind == RN_OP_ATTENTION || op->kind == RN_OP_CHOOSE))
            need_choice(fast, &most, op);
        if (op != NULL && op->kind == RN_OP_HEAD_SUM) {
            n = rn_round_up(fast->plan->weights[op->weight].cols * sizeof(float), LINE);
            most.panel = n > most.panel ? n : most.panel;
        }
        if (op != NULL && op->kind == RN_OP_EXPERT_MATMUL) {
            most.experts = op->experts > most.experts ? op->experts : most.experts;
            most.used = op->used > most.used ? op->used : most.used;
        }
    }
    return most;
}

/* What chooses positions, and what looks at these. */
static bool take_choice(struct rn_fast *fast, const struct needs *needs)
{
    uint32_t threads = rn_team_threads(fast->team), n = needs->chosen / fast->limits.block_tokens + 1, i;
    bool ok = true;

    if (needs->chosen == 0)
        return true;
    for (i = 0; ok && i < threads; i++)
        fast->scratch[i].gathered = take_bytes(fast, n, needs->gathered, &ok);
    fast->scores = ok ? take_bytes(fast, (size_t)threads * fast->limits.context_tokens, sizeof(float), &ok) : NULL;
    fast->scored = ok ? take_bytes(fast, threads, sizeof *fast->scored, &ok) : NULL;
    fast->in_order = ok ? take_bytes(fast, n, sizeof *fast->in_order, &ok) : NULL;
    for (i = 0; ok && i < threads; i++) /* relaxed: no thread runs a step yet */
        atomic_store_explicit(&fast->scored[i], 0, memory_order_relaxed);
    for (i = 0; ok && i < n; i++)
        fast->in_order[i] = i;
    return ok;
}

static bool take_scratch(struct rn_fast *fast)
{
    struct needs needs = needs_of(fast);
    uint32_t rows = fast->limits.max_rows > fast->limits.max_outs ? fast->limits.max_rows : fast->limits.max_outs;
    uint32_t n = rn_team_threads(fast->team), i;
    bool ok = true;

    fast->scratch = rn_calloc(fast->heap, n, sizeof *fast->scratch);
    if (fast->scratch == NULL)
        return false;
    for (i = 0; ok && i < n; i++) {
        if (fast->limits.mean_window > 0)
            fast->scratch[i].means = take_bytes(fast, RN_MEANS_PARTS, needs.part * sizeof(float), &ok);
        if (fast->tree_blocks > 0)
            fast->scratch[i].blocks =
                take_bytes(fast, fast->limits.context_tokens / fast->limits.block_tokens + 2, sizeof(uint32_t), &ok);
        fast->scratch[i].panel = take_bytes(fast, needs.panel, 1, &ok);
        fast->scratch[i].attend = take_bytes(fast, needs.attend, sizeof(float), &ok);
        fast->scratch[i].order = take_bytes(fast, rows, (size_t)needs.used * sizeof(uint32_t), &ok);
        fast->scratch[i].starts = take_bytes(fast, (size_t)needs.experts + 1, sizeof(uint32_t), &ok);
        fast->scratch[i].active = take_bytes(fast, needs.experts, sizeof(uint32_t), &ok);
    }
    ok = ok && take_choice(fast, &needs);
    fast->group_rows = needs.queries < LANES ? LANES / needs.queries : 1;
    fast->max_split = n * SPLIT_PER_THREAD;
    if (ok)
        fast->groups = take_bytes(fast, fast->limits.max_rows, sizeof *fast->groups, &ok);
    if (ok && fast->tree_blocks > 0)
        fast->places = take_bytes(fast, fast->limits.max_rows, sizeof *fast->places, &ok);
    if (ok && fast->limits.mean_window > 0)
        fast->mean_rows = take_bytes(fast, fast->limits.max_rows, sizeof *fast->mean_rows, &ok);
    if (ok)
        fast->parts = take_bytes(fast, (size_t)fast->max_split * RN_ATTEND_SEGMENTS, needs.part * sizeof(float), &ok);
    if (ok)
        fast->parts_done = take_bytes(fast, fast->max_split, sizeof *fast->parts_done, &ok);
    for (i = 0; ok && i < fast->max_split; i++) /* relaxed: no thread runs a step yet */
        atomic_store_explicit(&fast->parts_done[i], 0, memory_order_relaxed);
    return ok;
}

/* A weight as floats; turned: by columns. */
static float *take_vector(struct rn_fast *fast, const struct rn_weight *w, bool turned, bool *ok)
{
    float *all = take_bytes(fast, w->tensor->elements, sizeof *all, ok);
    float *row = turned && *ok ? take_bytes(fast, w->cols, sizeof *row, ok) : NULL;
    uint32_t r, i;

    for (r = 0; *ok && turned && r < w->rows; r++) {
        w->type->decode((const uint8_t *)w->tensor->data + r * w->row_bytes, row, w->cols);
        for (i = 0; i < w->cols; i++)
            all[(size_t)i * w->rows + r] = row[i];
    }
    if (*ok && !turned)
        w->type->decode(w->tensor->data, all, w->tensor->elements);
    rn_free(fast->heap, row);
    return all;
}

/* What products are not made with. */
static bool take_vectors(struct rn_fast *fast)
{
    const struct rn_plan *plan = fast->plan;
    enum rn_op_weight kind;
    int32_t wanted[2];
    bool ok = true;
    uint32_t i, j;

    fast->tiles = (uint8_t **)take_table(fast, plan->n_weights, &ok);
    fast->vectors = ok ? (float **)take_table(fast, plan->n_weights, &ok) : NULL;
    for (i = 0; ok && i < plan->n_ops; i++) {
        kind = rn_op_info(plan->ops[i].kind)->weight;
        wanted[0] = kind == RN_WEIGHT_VECTOR || kind == RN_WEIGHT_NUMBERS ? plan->ops[i].weight : -1;
        wanted[1] = plan->ops[i].bias;
        for (j = 0; ok && j < 2; j++)
            if (wanted[j] >= 0 && fast->vectors[wanted[j]] == NULL)
                fast->vectors[wanted[j]] =
                    take_vector(fast, &plan->weights[wanted[j]], j == 0 && kind == RN_WEIGHT_NUMBERS, &ok);
    }
    return ok;
}

/* ---- Prepare ---- */

static bool supports(const struct rn_op *op, uint32_t type_id)
{
    if ((unsigned)op->kind >= RN_OP_KINDS)
        return false;
    return op->weight < 0 || rn_type(type_id) != NULL;
}

static runnel_status check_plan(const struct rn_plan *plan, const struct rn_backend_limits *limits, runnel_error *error)
{
    const struct rn_weight *w;
    uint32_t i;

    if (!rn_kv_known(limits->kv_type))
        return rn_error_set(error, RUNNEL_INVALID, "limits: KV type %d is not known", (int)limits->kv_type);
    if (plan->state_bytes > 0 && limits->n_states == 0)
        return rn_error_set(error, RUNNEL_INVALID, "limits: no slots for the recurrent states of the plan");
    if (limits->mean_window % RN_CHUNK != 0)
        return rn_error_set(error, RUNNEL_INVALID, "limits: a mean window of %u positions is no whole chunk",
                            limits->mean_window);
    if (limits->max_rows == 0 || limits->block_tokens == 0 || (limits->block_tokens & (limits->block_tokens - 1)) != 0)
        return rn_error_set(error, RUNNEL_INVALID,
                            "limits: no rows, or %u positions per block, which is no power of two",
                            limits->block_tokens);
    for (i = 0; i < plan->n_ops; i++) {
        w = plan->ops[i].weight < 0 ? NULL : &plan->weights[plan->ops[i].weight];
        if (!supports(&plan->ops[i], w == NULL ? 0 : w->type_id))
            return rn_error_set(error, RUNNEL_UNSUPPORTED, "op %u with tensor %.*s", i,
                                w == NULL ? 1 : (int)w->tensor->name.n, w == NULL ? "-" : w->tensor->name.bytes);
    }
    RN_ASSERT(rn_plan_check(plan));
    return RUNNEL_OK;
}

static runnel_status prepare(struct rn_backend *backend, const struct rn_plan *plan,
                             const struct rn_backend_limits *limits, rn_progress_fn progress, void *user,
                             runnel_error *error)
{
    struct rn_fast *fast = (struct rn_fast *)backend;
    runnel_status status = check_plan(plan, limits, error);

    RN_CHECK(fast->plan == NULL);
    if (status == RUNNEL_OK)
        status = rn_limits_check(limits, plan, &fast->caps, error);
    if (status != RUNNEL_OK)
        return status;
    fast->plan = plan;
    fast->limits = *limits;
    fast->block_shift = (uint32_t)__builtin_ctz(limits->block_tokens);
    if (rn_program_init(&fast->program, fast->heap, plan, fast->level) != RUNNEL_OK || !take_vectors(fast) ||
        !take_slots(fast) || !take_layers(fast) || !take_scratch(fast))
        return rn_error_set(error, RUNNEL_NO_MEMORY, "no memory for %u blocks and steps of %u rows", limits->n_blocks,
                            limits->max_rows);
    rn_fast_describe(fast);
    if (rn_fast_load_weights(fast, progress, user) != RUNNEL_OK)
        return rn_error_set(error, RUNNEL_CANCELLED, "loading was cancelled");
    fast->limits.weights_place = NULL; /* the caller's */
    return RUNNEL_OK;
}

/* ---- New and free ---- */

static void free_table(struct rn_fast *fast, void **table, uint32_t n)
{
    uint32_t i;

    for (i = 0; table != NULL && i < n; i++)
        rn_free(fast->heap, table[i]);
    rn_free(fast->heap, table);
}

static void free_backend(struct rn_backend *backend)
{
    struct rn_fast *fast = (struct rn_fast *)backend;
    struct rn_fast_scratch *s;
    uint32_t i;

    if (fast->plan != NULL) {
        free_table(fast, (void **)fast->slots, fast->plan->n_slots);
        rn_fast_free_tiles(fast);
        free_table(fast, (void **)fast->vectors, fast->plan->n_weights);
        free_table(fast, (void **)fast->angles, fast->plan->n_ropes);
        free_table(fast, (void **)fast->slopes, fast->plan->n_ops);
        for (i = 0; fast->layers != NULL && i < fast->plan->n_kv_layers; i++) {
            rn_free(fast->heap, fast->layers[i].keys);
            rn_free(fast->heap, fast->layers[i].values);
        }
        for (i = 0; fast->scratch != NULL && i < rn_team_threads(fast->team); i++) {
            s = &fast->scratch[i];
            rn_free(fast->heap, s->panel);
            rn_free(fast->heap, s->attend);
            rn_free(fast->heap, s->means);
            rn_free(fast->heap, s->blocks);
            rn_free(fast->heap, s->gathered);
            rn_free(fast->heap, s->order);
            rn_free(fast->heap, s->starts);
            rn_free(fast->heap, s->active);
        }
    }
    for (i = 0; i < RN_INPUT_KINDS; i++)
        rn_free(fast->heap, fast->inputs[i]);
    rn_free(fast->heap, fast->laid);
    rn_free(fast->heap, fast->layers);
    rn_free(fast->heap, fast->scratch);
    rn_free(fast->heap, fast->groups);
    rn_free(fast->heap, fast->scores);
    rn_free(fast->heap, (void *)fast->scored);
    rn_free(fast->heap, fast->in_order);
    rn_free(fast->heap, fast->mean_rows);
    rn_free(fast->heap, fast->places);
    rn_free(fast->heap, fast->parts);
    rn_free(fast->heap, (void *)fast->parts_done);
    rn_free(fast->heap, fast->selected_rows);
    rn_free(fast->heap, fast->features_of);
    rn_free(fast->heap, fast->drawn);
    rn_free(fast->heap, fast->states);
    rn_free(fast->heap, fast->own_logits);
    rn_free(fast->heap, (void *)fast->pieces);
    rn_free(fast->heap, (void *)fast->shares);
    rn_program_fini(&fast->program);
    rn_free(fast->heap, fast);
}

struct rn_backend *rn_cpu_backend_new_level(struct rn_heap *heap, struct rn_team *team, const struct rn_level *level)
{
    static const struct rn_backend_ops ops = {
        .name = "cpu",
        .prepare = prepare,
        .submit_async = submit_async,
        .free = free_backend,
        .block_bytes = rn_fast_block_bytes,
        .layout = rn_fast_layout,
        .state_bytes = rn_fast_state_bytes,
        .tiled_bytes = rn_fast_tiled_bytes,
        .mapped_bytes = rn_fast_mapped_bytes,
        .copy_async = rn_fast_copy_async,
        .host_alloc = rn_fast_host_alloc,
        .host_free = rn_fast_host_free,
    };
    struct rn_fast *fast = rn_calloc(heap, 1, sizeof *fast);

    if (fast == NULL)
        return NULL;
    fast->caps = rn_cpu_caps(team);
    fast->base = (struct rn_backend){&ops, &fast->caps};
    fast->heap = heap;
    fast->team = team;
    fast->level = level;
    fast->least_sample = RN_LEAST_SAMPLE;
    fast->most_sample = RN_MOST_SAMPLE;
    fast->program.heap = heap;
    fast->job.run = run;
    fast->job.done = done;
    return &fast->base;
}

struct rn_backend *rn_cpu_backend_new(struct rn_heap *heap, struct rn_team *team)
{
    return rn_cpu_backend_new_level(heap, team, rn_level_best());
}
