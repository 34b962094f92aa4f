/* The limits of a model's backend: see model_limits.h. */
#include "actors/model_limits.h"

#include "actors/engine.h"
#include "actors/lists.h"
#include "base/check.h"
#include "model/kv_size.h"

#define WHOLE_ROWS 512u      /* of a text that attention sees both ways, unless the host says how many */
#define DEFAULT_CONTEXTS 8   /* full contexts that the default KV memory holds */
#define FREE_CONTEXTS 64     /* likewise where blocks cost nothing: no block of the model attends */
#define CHANGES_BESIDE 4096u /* biases of a row: OpenAI's interface has 300 at most */
#define CHANGES_USUAL 1024u  /* distinct tokens of a text of two thousand */

/* The device's memory. Of its own, with a drafter beside the model: as if what the drafter has were not there, which is
 * its weights and a third of what those of both leave. */
static void look_at_memory(const struct runnel_model *model, struct rn_device_memory *memory)
{
    const struct rn_gguf *drafter = model->parts.drafter.gguf;
    uint64_t own = model->parts.plan->weight_bytes, both = own + (drafter != NULL ? rn_gguf_file_bytes(drafter) : 0);

    model->parts.device->kind->memory(model->parts.device, memory);
    if (!memory->shared && model->draft_path != NULL)
        memory->free_bytes = own + (memory->free_bytes > both ? (memory->free_bytes - both) / 3 * 2 : 0);
}

/* How many slots of recurrent state: one for each stream, and as many checkpoints, and with a drafter as many more for
 * drafts; fewer where they would take more than half of the memory for KV blocks and states, or, of a model that
 * nowhere attends, all of it. */
static runnel_status choose_states(const struct runnel_model *model, uint64_t block_bytes,
                                   struct rn_backend_limits *limits, runnel_error *error)
{
    uint64_t state_bytes = model->parts.plan->state_bytes, bytes = model->options.kv_bytes, most;
    uint32_t streams = model->engine->max_streams, wanted = streams * (model->draft_path != NULL ? 3 : 2);
    struct rn_device_memory memory;

    if (state_bytes == 0)
        return RUNNEL_OK;
    if (bytes == 0) {
        look_at_memory(model, &memory);
        bytes = rn_device_kv_bytes(&memory, model->parts.plan->weight_bytes);
    } else if (bytes < state_bytes + block_bytes) {
        return rn_error_set(
            error, RUNNEL_INVALID, "kv_bytes %llu hold no recurrent state of %llu bytes and block of %llu bytes of %s",
            (unsigned long long)bytes, (unsigned long long)state_bytes, (unsigned long long)block_bytes, model->path);
    }
    most = (block_bytes > 0 ? bytes / 2 : bytes) / state_bytes;
    limits->n_states = most < 1 ? 1 : most < wanted ? (uint32_t)most : wanted;
    if (limits->n_states < streams)
        rn_log(&model->engine->log, RUNNEL_LOG_INFO,
               "%s: memory holds %u recurrent states of %llu bytes: so many streams run at a time, others wait",
               model->path, limits->n_states, (unsigned long long)state_bytes);
    return RUNNEL_OK;
}

/* Blocks of both kinds, where layers with windows have blocks of their own: of the memory that the model's blocks would
 * have without, or of kv_bytes, as many contexts of both as it holds, at least one. block_bytes: of all layers. */
static runnel_status share_blocks(const struct runnel_model *model, uint64_t bytes, uint64_t block_bytes,
                                  uint64_t context_blocks, struct rn_backend_limits *limits, runnel_error *error)
{
    uint64_t window_bytes = rn_plan_window_bytes(model->parts.plan, limits->kv_type) * limits->block_tokens;
    uint64_t other_bytes = block_bytes - window_bytes, windows = rn_kv_size_windows(limits, limits->context_tokens);
    uint64_t contexts = bytes / (other_bytes * context_blocks + window_bytes * windows), blocks;

    RN_ASSERT(window_bytes > 0 && windows > 0 && block_bytes >= window_bytes);
    contexts = contexts > 0 ? contexts : 1;
    contexts = contexts * windows < 1u << 31 ? contexts : (1u << 31) / windows;
    if (bytes < windows * window_bytes + other_bytes)
        return rn_error_set(error, RUNNEL_INVALID,
                            "%llu bytes for KV blocks do not hold the window of a stream of %s: "
                            "it takes %llu",
                            (unsigned long long)bytes, model->path,
                            (unsigned long long)(windows * window_bytes + other_bytes));
    limits->n_windows = (uint32_t)(contexts * windows);
    blocks =
        other_bytes == 0 ? FREE_CONTEXTS * context_blocks : (bytes - limits->n_windows * window_bytes) / other_bytes;
    limits->n_blocks = (uint32_t)(blocks < (1u << 31) ? blocks : 1u << 31);
    RN_ASSERT(limits->n_blocks > 0);
    return RUNNEL_OK;
}

/* How many KV blocks: as asked, or as suits the device's memory, besides the states. */
static runnel_status choose_blocks(const struct runnel_model *model, struct rn_backend_limits *limits,
                                   runnel_error *error)
{
    uint64_t block_bytes = rn_plan_kv_bytes(model->parts.plan, limits->kv_type) * limits->block_tokens, taken;
    uint64_t context_blocks =
        (uint64_t)rn_kv_size_blocks(limits, limits->context_tokens) + rn_kv_size_means(limits, limits->context_tokens);
    struct rn_device_memory memory;
    runnel_status status = choose_states(model, block_bytes, limits, error);
    uint64_t blocks;

    RN_ASSERT(context_blocks > 0);
    if (status != RUNNEL_OK)
        return status;
    taken = limits->n_states * model->parts.plan->state_bytes;
    if (block_bytes == 0) {
        blocks = FREE_CONTEXTS * context_blocks;
    } else if (model->options.kv_bytes != 0) {
        blocks = (model->options.kv_bytes - taken) / block_bytes;
        if (blocks == 0 && limits->window == 0)
            return rn_error_set(error, RUNNEL_INVALID, "kv_bytes %llu hold no block of %llu bytes of %s",
                                (unsigned long long)model->options.kv_bytes, (unsigned long long)block_bytes,
                                model->path);
    } else {
        look_at_memory(model, &memory);
        blocks = rn_device_blocks(&memory, model->parts.plan->weight_bytes + taken, block_bytes, context_blocks,
                                  DEFAULT_CONTEXTS);
    }
    if (limits->window > 0)
        return share_blocks(model,
                            model->options.kv_bytes != 0 ? model->options.kv_bytes - taken : blocks * block_bytes,
                            block_bytes, context_blocks, limits, error);
    limits->n_blocks = (uint32_t)(blocks < (1u << 31) ? blocks : 1u << 31);
    RN_ASSERT(limits->n_blocks > 0);
    return RUNNEL_OK;
}

/* A text that is seen both ways is computed in one step. */
static uint32_t usual_rows(const struct runnel_model *model)
{
    const struct rn_plan *plan = model->parts.plan;
    uint32_t good = model->parts.device->caps->good_rows;
    uint32_t whole = plan->context_tokens < WHOLE_ROWS ? plan->context_tokens : WHOLE_ROWS;

    return plan->bidirectional && whole > good ? whole : good;
}

/* One row fits always, whatever it has counted, with as many biases as hosts send; of a full step each row's counts of a
 * short conversation. A row that does not fit beside others waits for the next step. */
static uint32_t max_changes(uint32_t n_vocab, uint32_t max_outs)
{
    uint64_t one = (uint64_t)n_vocab + CHANGES_BESIDE;
    uint64_t all = (uint64_t)max_outs * (n_vocab < CHANGES_USUAL ? n_vocab : CHANGES_USUAL);

    all = all > one ? all : one;
    return all < UINT32_MAX ? (uint32_t)all : UINT32_MAX;
}

runnel_status rn_model_choose_limits(struct runnel_model *model, runnel_error *error)
{
    struct rn_backend_limits *limits = &model->parts.limits;
    const struct rn_device_caps *caps = model->parts.device->caps;
    uint32_t batch = model->options.batch_tokens == 0 ? usual_rows(model) : model->options.batch_tokens;
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
    return choose_blocks(model, limits, error);
}
