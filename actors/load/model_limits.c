/* The limits of a model's backend: see model_limits.h. */
#include "actors/load/model_limits.h"

#include "actors/engine.h"
#include "actors/lists.h"
#include "actors/load/model_split.h"
#include "base/check.h"
#include "model/kv_size.h"

#define WHOLE_ROWS 512u      /* of a text that attention sees both ways, unless the host says how many */
#define DEFAULT_CONTEXTS 8   /* full contexts that the default KV memory holds */
#define FREE_CONTEXTS 64     /* likewise where blocks cost nothing: no block of the model attends */
#define CHANGES_BESIDE 4096u /* biases of a row: OpenAI's interface has 300 at most */
#define CHANGES_USUAL 1024u  /* distinct tokens of a text of two thousand */

/* A device with what it computes of the model: all of it, or a part (model_split.h). */
struct side {
    const struct rn_device *device;
    const struct rn_plan *plan;
};

static uint32_t sides_of(const struct runnel_model *model, struct side sides[2])
{
    const struct rn_model_parts *parts = &model->parts;

    sides[0] = (struct side){parts->device, rn_model_device_plan(parts)};
    sides[1] = (struct side){parts->host, parts->front};
    return parts->back != NULL ? 2 : 1;
}

/* The side's memory. Of a device's own, with a drafter beside the model: as if what the drafter has were not there,
 * which is its weights and a third of what those of both leave. */
static void look_at_memory(const struct runnel_model *model, const struct side *side, struct rn_device_memory *memory)
{
    const struct rn_gguf *drafter = model->parts.drafter.gguf;
    uint64_t own = rn_device_weight_bytes(side->device, side->plan, model->parts.expert_bytes),
             both = own + (drafter != NULL ? rn_gguf_file_bytes(drafter) : 0);

    side->device->kind->memory(side->device, memory);
    if (!memory->shared && model->draft_path != NULL)
        memory->free_bytes = own + (memory->free_bytes > both ? (memory->free_bytes - both) / 3 * 2 : 0);
}

static uint64_t block_bytes_of(const struct rn_plan *plan, const struct rn_backend_limits *limits)
{
    return rn_plan_kv_bytes(plan, limits->kv_type) * limits->block_tokens;
}

/* What steps take of the side's memory. */
static uint64_t step_bytes_of(const struct runnel_model *model, const struct side *side,
                              const struct rn_backend_limits *limits)
{
    struct rn_backend_limits with_experts = *limits;

    with_experts.expert_bytes = model->parts.expert_bytes;
    return rn_device_step_bytes(side->device, side->plan, &with_experts);
}

/* How many states the memory of each side holds. */
static uint64_t states_that_fit(const struct runnel_model *model, const struct rn_backend_limits *limits)
{
    struct rn_device_memory memory;
    uint64_t most = UINT64_MAX, n, bytes;
    struct side sides[2];

    for (uint32_t i = sides_of(model, sides); i-- > 0;) {
        if (sides[i].plan->state_bytes == 0)
            continue;
        look_at_memory(model, &sides[i], &memory);
        bytes = rn_device_kv_bytes(&memory,
                                   rn_device_weight_bytes(sides[i].device, sides[i].plan, model->parts.expert_bytes),
                                   step_bytes_of(model, &sides[i], limits));
        n = (block_bytes_of(sides[i].plan, limits) > 0 ? bytes / 2 : bytes) / sides[i].plan->state_bytes;
        most = n < most ? n : most;
    }
    return most;
}

/* How many slots of recurrent state: one for each stream, and as many checkpoints, and with a drafter as many more for
 * drafts; fewer where they would take more than half of the memory for KV blocks and states, or, of a model that
 * nowhere attends, all of it. */
static runnel_status choose_states(const struct runnel_model *model, uint64_t block_bytes,
                                   struct rn_backend_limits *limits, runnel_error *error)
{
    uint64_t state_bytes = model->parts.plan->state_bytes, bytes = model->options.kv_bytes, most;
    uint32_t streams = model->engine->max_streams, wanted = streams * (model->draft_path != NULL ? 3 : 2);

    if (state_bytes == 0)
        return RUNNEL_OK;
    if (bytes > 0 && bytes < state_bytes + block_bytes)
        return rn_error_set(
            error, RUNNEL_INVALID, "kv_bytes %llu hold no recurrent state of %llu bytes and block of %llu bytes of %s",
            (unsigned long long)bytes, (unsigned long long)state_bytes, (unsigned long long)block_bytes, model->path);
    most = bytes == 0 ? states_that_fit(model, limits) : (block_bytes > 0 ? bytes / 2 : bytes) / state_bytes;
    limits->n_states = most < 1 ? 1 : most < wanted ? (uint32_t)most : wanted;
    if (limits->n_states < streams)
        rn_log(&model->engine->log, RUNNEL_LOG_INFO,
               "%s: memory holds %u recurrent states of %llu bytes: so many streams run at a time, others wait",
               model->path, limits->n_states, (unsigned long long)state_bytes);
    return RUNNEL_OK;
}

/* Memory for the KV blocks of some layers. */
struct room {
    const struct rn_plan *plan; /* of these */
    uint64_t bytes;
};

/* As asked, for those of all layers; or what suits each side's memory, besides the states. */
static uint32_t rooms_of(const struct runnel_model *model, const struct rn_backend_limits *limits,
                         uint64_t context_blocks, struct room rooms[2])
{
    const struct rn_plan *plan = model->parts.plan;
    struct rn_device_memory memory;
    struct side sides[2];
    uint64_t taken, block_bytes, blocks;
    uint32_t n = 0;

    if (model->options.kv_bytes != 0) {
        rooms[0] = (struct room){plan, model->options.kv_bytes - limits->n_states * plan->state_bytes};
        return 1;
    }
    for (uint32_t i = sides_of(model, sides); i-- > 0;) {
        taken = limits->n_states * sides[i].plan->state_bytes +
                rn_device_weight_bytes(sides[i].device, sides[i].plan, model->parts.expert_bytes);
        block_bytes = block_bytes_of(sides[i].plan, limits);
        if (block_bytes == 0)
            continue;
        look_at_memory(model, &sides[i], &memory);
        blocks = rn_device_blocks(&memory, taken, step_bytes_of(model, &sides[i], limits), block_bytes, context_blocks,
                                  DEFAULT_CONTEXTS);
        rooms[n++] = (struct room){sides[i].plan, blocks * block_bytes};
    }
    return n;
}

/* Blocks of both kinds, where layers with windows have blocks of their own: as many contexts of both as each room
 * holds, at least one. */
static runnel_status share_blocks(const struct runnel_model *model, const struct room *rooms, uint32_t n_rooms,
                                  uint64_t context_blocks, struct rn_backend_limits *limits, runnel_error *error)
{
    uint64_t windows = rn_kv_size_windows(limits, limits->context_tokens), contexts = UINT64_MAX, blocks = UINT64_MAX;

    RN_ASSERT(windows > 0);
    for (uint32_t i = 0; i < n_rooms; i++) {
        uint64_t window_bytes = rn_plan_window_bytes(rooms[i].plan, limits->kv_type) * limits->block_tokens;
        uint64_t other_bytes = block_bytes_of(rooms[i].plan, limits) - window_bytes, least;
        uint64_t n = rooms[i].bytes / (other_bytes * context_blocks + window_bytes * windows);

        least = windows * window_bytes + other_bytes;
        if (rooms[i].bytes < least)
            return rn_error_set(error, RUNNEL_INVALID,
                                "%llu bytes for KV blocks do not hold the window of a stream of %s: it takes %llu",
                                (unsigned long long)rooms[i].bytes, model->path, (unsigned long long)least);
        contexts = n < contexts ? n : contexts;
    }
    contexts = contexts > 0 ? contexts : 1;
    contexts = contexts * windows < 1u << 31 ? contexts : (1u << 31) / windows;
    limits->n_windows = (uint32_t)(contexts * windows);
    for (uint32_t i = 0; i < n_rooms; i++) {
        uint64_t window_bytes = rn_plan_window_bytes(rooms[i].plan, limits->kv_type) * limits->block_tokens;
        uint64_t other_bytes = block_bytes_of(rooms[i].plan, limits) - window_bytes, n;

        n = other_bytes == 0 ? FREE_CONTEXTS * context_blocks
                             : (rooms[i].bytes - limits->n_windows * window_bytes) / other_bytes;
        blocks = n < blocks ? n : blocks;
    }
    limits->n_blocks = (uint32_t)(blocks < (1u << 31) ? blocks : 1u << 31);
    RN_ASSERT(limits->n_blocks > 0);
    return RUNNEL_OK;
}

/* How many KV blocks: as asked, or as suits the device's memory, besides the states. */
static runnel_status choose_blocks(const struct runnel_model *model, struct rn_backend_limits *limits,
                                   runnel_error *error)
{
    uint64_t block_bytes = block_bytes_of(model->parts.plan, limits);
    uint64_t context_blocks =
        (uint64_t)rn_kv_size_blocks(limits, limits->context_tokens) + rn_kv_size_means(limits, limits->context_tokens);
    runnel_status status = choose_states(model, block_bytes, limits, error);
    uint64_t blocks = UINT64_MAX, n;
    struct room rooms[2];
    uint32_t n_rooms;

    RN_ASSERT(context_blocks > 0);
    if (status != RUNNEL_OK)
        return status;
    if (block_bytes == 0)
        blocks = FREE_CONTEXTS * context_blocks;
    n_rooms = block_bytes == 0 ? 0 : rooms_of(model, limits, context_blocks, rooms);
    if (limits->window > 0)
        return share_blocks(model, rooms, n_rooms, context_blocks, limits, error);
    for (uint32_t i = 0; i < n_rooms; i++) {
        n = rooms[i].bytes / block_bytes_of(rooms[i].plan, limits);
        blocks = n < blocks ? n : blocks;
    }
    if (blocks == 0)
        return rn_error_set(error, RUNNEL_INVALID, "kv_bytes %llu hold no block of %llu bytes of %s",
                            (unsigned long long)model->options.kv_bytes, (unsigned long long)block_bytes, model->path);
    limits->n_blocks = (uint32_t)(blocks < (1u << 31) ? blocks : 1u << 31);
    RN_ASSERT(limits->n_blocks > 0);
    return RUNNEL_OK;
}

/* A text that is seen both ways is computed in one step. */
static uint32_t usual_rows(const struct runnel_model *model, uint32_t good)
{
    const struct rn_plan *plan = model->parts.plan;
    uint32_t whole = plan->context_tokens < WHOLE_ROWS ? plan->context_tokens : WHOLE_ROWS;

    return plan->bidirectional && whole > good ? whole : good;
}

/* One row fits always, whatever it has counted, with as many biases as hosts send; of a full step each row's counts of
 * a short conversation. A row that does not fit beside others waits for the next step. */
static uint32_t max_changes(uint32_t n_vocab, uint32_t max_outs)
{
    uint64_t one = (uint64_t)n_vocab + CHANGES_BESIDE;
    uint64_t all = (uint64_t)max_outs * (n_vocab < CHANGES_USUAL ? n_vocab : CHANGES_USUAL);

    all = all > one ? all : one;
    return all < UINT32_MAX ? (uint32_t)all : UINT32_MAX;
}

void rn_model_step_limits(const struct runnel_model *model, const struct rn_device_caps *caps,
                          struct rn_backend_limits *limits)
{
    uint32_t batch =
        model->options.batch_tokens == 0 ? usual_rows(model, caps->good_rows) : model->options.batch_tokens;
    uint32_t outs = batch < caps->good_outs ? batch : caps->good_outs;
    bool states = model->parts.plan->state_bytes > 0; /* steps with states have no trees */
    bool trees =
        model->draft_path != NULL && model->options.chunk_mean == 0 && !states && rn_device_can(caps, RN_CAN_TREES);

    outs = outs < model->engine->max_streams ? outs : model->engine->max_streams;
    *limits = (struct rn_backend_limits){
        .max_rows = batch,
        .max_outs = outs < RN_WINDOW_LOGITS ? RN_WINDOW_LOGITS : outs,
        .max_seqs = outs + RN_PREFILL_LANES,
        .block_tokens = caps->block_tokens,
        .context_tokens = model->parts.plan->context_tokens,
        .kv_type = model->options.kv_type,
        .mean_window = model->options.chunk_mean,
        .window = model->options.bound_windows != 0 ? rn_plan_window(model->parts.plan) : 0,
        .tree_depth = trees ? RN_DRAFT_MOST : 0,
        .weight_order = model->options.weight_order,
        .draws = rn_device_can(caps, RN_CAN_DRAW),
    };
    if (limits->draws && rn_device_can(caps, RN_CAN_DRAW_ITSELF))
        limits->max_changes = max_changes(model->parts.plan->n_vocab, limits->max_outs);
    RN_ASSERT(limits->max_outs <= limits->max_rows && limits->max_outs < limits->max_seqs);
}

runnel_status rn_model_choose_limits(struct runnel_model *model, runnel_error *error)
{
    rn_model_step_limits(model, &model->parts.caps, &model->parts.limits);
    return choose_blocks(model, &model->parts.limits, error);
}
