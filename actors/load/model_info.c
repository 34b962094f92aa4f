/* What a host is told of a loaded model: see runnel_model_get_info in runnel.h. Any thread: what is read is constant
 * once the model is loaded. */
#include "actors/engine.h"
#include "actors/load/model_split.h"
#include "base/check.h"
#include "base/sized.h"
#include "model/kv_size.h"

static uint64_t tiled_bytes(const struct rn_backend *backend)
{
    return backend == NULL || backend->ops->tiled_bytes == NULL ? 0 : backend->ops->tiled_bytes(backend);
}

static uint64_t mapped_bytes(const struct rn_backend *backend)
{
    return backend == NULL || backend->ops->mapped_bytes == NULL ? 0 : backend->ops->mapped_bytes(backend);
}

static bool reads(const struct rn_plan *plan, const struct rn_tensor *tensor)
{
    for (uint32_t i = 0; i < plan->n_weights; i++)
        if (plan->weights[i].tensor == tensor)
            return true;
    return false;
}

/* Of the plan's weights those that the model's own plan does not read. */
static uint64_t weights_beside(const struct rn_plan *plan, const struct rn_plan *own)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < plan->n_weights; i++)
        bytes += reads(own, plan->weights[i].tensor) ? 0 : plan->weights[i].tensor->bytes;
    return bytes;
}

static void put_drafter(const struct rn_model_parts *parts, runnel_model_info *info)
{
    const struct rn_drafter *drafter = &parts->drafter;

    if (drafter->plan == NULL)
        return;
    info->draft_parameters = drafter->plan->parameters;
    info->draft_kv_bytes = rn_plan_kv_bytes(drafter->plan, drafter->limits.kv_type) * drafter->n_layers *
                           drafter->limits.block_tokens * drafter->limits.n_blocks;
    info->draft_weight_bytes = weights_beside(drafter->plan, parts->plan);
    for (uint32_t i = 1; i < drafter->n_layers; i++)
        info->draft_weight_bytes += weights_beside(drafter->deeper[i - 1].plan, parts->plan);
}

/* KV blocks, those of layers with windows apart, and recurrent states. */
static void put_caches(const struct rn_model_parts *parts, runnel_model_info *info)
{
    const struct rn_backend_limits *limits = &parts->limits;
    uint64_t all = rn_plan_kv_bytes(parts->plan, limits->kv_type);
    uint64_t windows = limits->window > 0 ? rn_plan_window_bytes(parts->plan, limits->kv_type) : 0;
    uint64_t longest =
        rn_kv_size_blocks(limits, limits->context_tokens) + rn_kv_size_means(limits, limits->context_tokens);

    info->kv_bytes_per_token = all;
    info->kv_bytes_longest = limits->block_tokens *
                             ((all - windows) * longest + windows * rn_kv_size_windows(limits, limits->context_tokens));
    info->kv_bytes = limits->block_tokens * ((all - windows) * limits->n_blocks + windows * limits->n_windows);
    info->state_bytes = parts->plan->state_bytes * limits->n_states;
}

static void put_plan(const struct rn_model_parts *parts, runnel_model_info *info)
{
    const struct rn_plan *plan = parts->plan;
    struct rn_expert_room room;

    rn_model_expert_room(parts, &room);
    info->trained_tokens = plan->trained_tokens;
    info->embedding = plan->embedding;
    info->layers = plan->n_layers;
    info->device_layers = parts->device_layers;
    info->device_experts = room.n_places;
    info->device_expert_bytes = room.device_bytes;
    info->parameters = plan->parameters;
    info->weight_bytes = plan->weight_bytes + (parts->back != NULL ? rn_adapters_bytes(parts->adapters.all) : 0);
    info->tiled_bytes = tiled_bytes(parts->backend);
    info->mapped_bytes = mapped_bytes(parts->backend);
    info->chunk_mean = parts->limits.mean_window;
}

static void collect_info(const struct runnel_model *model, runnel_model_info *info)
{
    const struct rn_model_parts *parts = &model->parts;

    RN_ASSERT(parts->vocab != NULL && (parts->plan == NULL || parts->plan->n_vocab == parts->n_vocab));
    *info = (runnel_model_info){.vocab_tokens = rn_vocab_count(parts->vocab),
                                .bos = rn_vocab_bos(parts->vocab),
                                .eos = rn_vocab_eos(parts->vocab),
                                .add_bos = rn_vocab_add_bos(parts->vocab),
                                .context_tokens = parts->limits.context_tokens,
                                .block_tokens = parts->limits.block_tokens};
    if (parts->plan == NULL)
        return;
    put_plan(parts, info);
    put_caches(parts, info);
    put_drafter(parts, info);
}

runnel_status runnel_model_get_info(runnel_model *model, runnel_model_info *info)
{
    runnel_model_info now;
    runnel_status status;

    if (model == NULL || info == NULL || !rn_sized_known(info->struct_size, sizeof now))
        return RUNNEL_INVALID;
    status = rn_model_enter(model);
    if (status != RUNNEL_OK)
        return status;
    collect_info(model, &now);
    rn_model_leave(model);
    rn_sized_write(info, info->struct_size, &now, sizeof now);
    return RUNNEL_OK;
}
