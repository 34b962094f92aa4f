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

static void collect_info(const struct runnel_model *model, runnel_model_info *info)
{
    const struct rn_model_parts *parts = &model->parts;
    runnel_model_info now = {0};
    struct rn_expert_room room;
    uint64_t window_bytes;

    RN_ASSERT(parts->vocab != NULL && (parts->plan == NULL || parts->plan->n_vocab == parts->n_vocab));
    now.vocab_tokens = rn_vocab_count(parts->vocab);
    now.bos = rn_vocab_bos(parts->vocab);
    now.eos = rn_vocab_eos(parts->vocab);
    now.add_bos = rn_vocab_add_bos(parts->vocab);
    now.context_tokens = parts->limits.context_tokens;
    now.block_tokens = parts->limits.block_tokens;
    if (parts->plan != NULL) {
        now.trained_tokens = parts->plan->trained_tokens;
        now.embedding = parts->plan->embedding;
        now.layers = parts->plan->n_layers;
        now.device_layers = parts->device_layers;
        rn_model_expert_room(parts, &room);
        now.device_experts = room.n_places;
        now.device_expert_bytes = room.device_bytes;
        now.parameters = parts->plan->parameters;
        now.weight_bytes = parts->plan->weight_bytes;
        now.tiled_bytes = tiled_bytes(parts->backend);
        now.mapped_bytes = mapped_bytes(parts->backend);
        now.kv_bytes_per_token = rn_plan_kv_bytes(parts->plan, parts->limits.kv_type);
        now.chunk_mean = parts->limits.mean_window;
        window_bytes = parts->limits.window > 0 ? rn_plan_window_bytes(parts->plan, parts->limits.kv_type) : 0;
        now.kv_bytes_longest = (now.kv_bytes_per_token - window_bytes) * parts->limits.block_tokens *
                                   (rn_kv_size_blocks(&parts->limits, parts->limits.context_tokens) +
                                    rn_kv_size_means(&parts->limits, parts->limits.context_tokens)) +
                               window_bytes * parts->limits.block_tokens *
                                   rn_kv_size_windows(&parts->limits, parts->limits.context_tokens);
        now.kv_bytes = (now.kv_bytes_per_token - window_bytes) * parts->limits.block_tokens * parts->limits.n_blocks +
                       window_bytes * parts->limits.block_tokens * parts->limits.n_windows;
        if (parts->drafter.plan != NULL) {
            now.draft_parameters = parts->drafter.plan->parameters;
            now.draft_kv_bytes = rn_plan_kv_bytes(parts->drafter.plan, parts->drafter.limits.kv_type) *
                                 parts->drafter.limits.block_tokens * parts->drafter.limits.n_blocks;
        }
    }
    *info = now;
}

runnel_status runnel_model_get_info(runnel_model *model, runnel_model_info *info)
{
    runnel_model_info now;

    if (model == NULL || info == NULL || !rn_sized_known(info->struct_size, sizeof now))
        return RUNNEL_INVALID;
    if (rn_model_ready(model) != RUNNEL_OK)
        return rn_model_ready(model);
    collect_info(model, &now);
    rn_sized_write(info, info->struct_size, &now, sizeof now);
    return RUNNEL_OK;
}
