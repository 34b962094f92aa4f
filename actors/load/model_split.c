/* Which layers of a model are whose: see model_split.h. */
#include "actors/load/model_split.h"

#include "actors/engine.h"
#include "actors/load/model_limits.h"
#include "base/check.h"
#include "model/cut.h"
#include "model/split.h"

/* The smallest number of blocks, from n on, behind which the plan can be cut; n_layers: there is none. */
static uint32_t next_cut(const struct rn_plan *plan, uint32_t n)
{
    while (n < plan->n_layers && !rn_plan_can_cut(plan, n))
        n++;
    return n;
}

static runnel_status cut(struct runnel_model *model, uint32_t n, runnel_error *error)
{
    struct rn_model_parts *parts = &model->parts;

    rn_plan_free(parts->front);
    rn_plan_free(parts->back);
    parts->device_layers = parts->plan->n_layers - n;
    return rn_plan_cut(&model->engine->heap, parts->plan, n, &parts->front, &parts->back, error);
}

/* What this part of the plan takes of the device's memory, at least. */
struct least {
    uint64_t kept;  /* weights, and of the KV the part's share of what is asked for, or one context's */
    uint64_t steps; /* of such sizes as the device would have alone: with the CPU beside it they are not larger */
};

static struct least least_of(const struct runnel_model *model, const struct rn_plan *part)
{
    const struct rn_device *device = model->parts.device;
    struct rn_backend_limits limits;
    uint64_t own = rn_plan_kv_bytes(part, model->options.kv_type), kv = own * part->context_tokens;
    uint64_t all = rn_plan_kv_bytes(model->parts.plan, model->options.kv_type);

    if (model->options.kv_bytes > 0 && all > 0)
        kv = (uint64_t)((double)model->options.kv_bytes * ((double)own / (double)all));
    rn_model_step_limits(model, device->caps, &limits);
    limits.expert_bytes = model->parts.expert_bytes;
    return (struct least){rn_device_weight_bytes(device, part, model->parts.expert_bytes) + kv,
                          rn_device_step_bytes(device, part, &limits)};
}

/* What a drafter's file takes is not there. */
static uint64_t free_bytes(const struct runnel_model *model, const struct rn_device_memory *memory)
{
    uint64_t drafter = model->parts.drafter.gguf != NULL ? rn_gguf_file_bytes(model->parts.drafter.gguf) : 0;

    return memory->free_bytes > drafter ? memory->free_bytes - drafter : 0;
}

/* All layers where the device holds them. Else as many as leave what steps take of its memory, and a tenth at least. A
 * plan that cannot be cut stays whole: the device says what it lacks. */
static runnel_status choose(struct runnel_model *model, const struct rn_device_memory *memory, runnel_error *error)
{
    struct rn_model_parts *parts = &model->parts;
    uint64_t bytes = free_bytes(model, memory);
    runnel_status status;
    struct least least;
    uint32_t n;

    if (memory->shared)
        return RUNNEL_OK;
    least = least_of(model, parts->plan);
    if (least.kept + least.steps <= bytes)
        return RUNNEL_OK;
    for (n = next_cut(parts->plan, 1); n < parts->plan->n_layers; n = next_cut(parts->plan, n + 1)) {
        status = cut(model, n, error);
        if (status != RUNNEL_OK)
            return status;
        least = least_of(model, parts->back);
        if (least.kept + rn_device_reserve(bytes, least.steps) <= bytes)
            return RUNNEL_OK;
    }
    rn_plan_free(parts->front);
    rn_plan_free(parts->back);
    parts->front = parts->back = NULL;
    return RUNNEL_OK;
}

/* As many as the host wants, or, where the plan cannot be cut there, fewer. */
static runnel_status obey(struct runnel_model *model, const struct rn_device_memory *memory, runnel_error *error)
{
    const struct rn_plan *plan = model->parts.plan;
    uint32_t wanted = model->options.device_layers, n;

    if (memory->shared && rn_engine_device_is_auto(model->device))
        return RUNNEL_OK; /* it was to be the CPU if nothing else */
    if (memory->shared)
        return rn_error_set(error, RUNNEL_INVALID, "device_layers %u: device \"%s\" has no memory of its own", wanted,
                            model->parts.device->kind->name);
    if (wanted > plan->n_layers)
        return rn_error_set(error, RUNNEL_INVALID, "device_layers %u are more than the %u layers of %s", wanted,
                            plan->n_layers, model->path);
    if (wanted == plan->n_layers)
        return RUNNEL_OK;
    n = next_cut(plan, plan->n_layers - wanted);
    if (n < plan->n_layers)
        return cut(model, n, error);
    return rn_error_set(error, RUNNEL_UNSUPPORTED,
                        "device_layers %u: architecture %s cannot be cut between blocks with so few of them, or fewer, "
                        "on the device",
                        wanted, plan->architecture);
}

/* Whether experts are apart from their layers. */
static runnel_status place_experts(struct runnel_model *model, runnel_error *error)
{
    const struct rn_device_kind *kind = model->parts.device->kind;
    uint64_t wanted = model->options.device_expert_bytes;
    struct rn_expert_room room;

    if (wanted == 0 || (kind->expert_room == NULL && rn_engine_device_is_auto(model->device)))
        return RUNNEL_OK; /* it was to be the CPU if nothing else */
    if (kind->expert_room == NULL)
        return rn_error_set(error, RUNNEL_INVALID, "device_expert_bytes %llu: device \"%s\" has no memory of its own",
                            (unsigned long long)wanted, kind->name);
    kind->expert_room(model->parts.plan, wanted, &room);
    if (room.n == 0)
        return rn_error_set(error, RUNNEL_INVALID, "device_expert_bytes %llu: %s has no experts",
                            (unsigned long long)wanted, model->path);
    model->parts.expert_bytes = wanted;
    return RUNNEL_OK;
}

void rn_model_expert_room(const struct rn_model_parts *parts, struct rn_expert_room *room)
{
    *room = (struct rn_expert_room){.n = 0};
    if (parts->expert_bytes > 0)
        parts->device->kind->expert_room(rn_model_device_plan(parts), parts->expert_bytes, room);
}

static void log_experts(struct runnel_model *model)
{
    struct rn_expert_room room;

    rn_model_expert_room(&model->parts, &room);
    if (model->parts.expert_bytes > 0)
        rn_log(&model->engine->log, RUNNEL_LOG_INFO,
               "%s: %u experts with %.1f MiB lie in the host's memory, and %u of them, in %.1f MiB, on %s, too",
               model->path, room.n, (double)room.host_bytes / (1 << 20), room.n_places,
               (double)room.device_bytes / (1 << 20), model->parts.device->kind->name);
}

runnel_status rn_model_split(struct runnel_model *model, runnel_error *error)
{
    struct rn_model_parts *parts = &model->parts;
    struct rn_device_memory memory;
    runnel_status status;

    parts->caps = *parts->device->caps;
    parts->device->kind->memory(parts->device, &memory);
    status = place_experts(model, error);
    if (status == RUNNEL_OK)
        status = model->options.device_layers > 0 ? obey(model, &memory, error) : choose(model, &memory, error);
    if (status == RUNNEL_OK)
        log_experts(model);
    if (parts->back == NULL)
        parts->device_layers = memory.shared ? 0 : parts->plan->n_layers;
    if (status != RUNNEL_OK || parts->back == NULL)
        return status;
    parts->host = rn_engine_device(model->engine, NULL, error);
    if (parts->host == NULL)
        return RUNNEL_NO_MEMORY;
    parts->caps = rn_split_caps(parts->host->caps, parts->device->caps);
    rn_log(&model->engine->log, RUNNEL_LOG_INFO,
           "%s: %u of %u layers, with %.1f MiB of weights, are computed on the CPU, the others on %s", model->path,
           parts->plan->n_layers - parts->device_layers, parts->plan->n_layers,
           (double)parts->front->weight_bytes / (1 << 20), parts->device->kind->name);
    return RUNNEL_OK;
}

struct rn_backend *rn_model_new_backend(struct runnel_model *model)
{
    struct rn_model_parts *parts = &model->parts;

    RN_ASSERT((parts->front != NULL) == (parts->back != NULL));
    if (parts->back == NULL)
        return parts->device->kind->new_backend(parts->device, &model->engine->heap);
    return rn_split_new(&model->engine->heap, &(struct rn_split_part){parts->host, parts->front},
                        &(struct rn_split_part){parts->device, parts->back});
}

const struct rn_plan *rn_model_device_plan(const struct rn_model_parts *parts)
{
    return parts->back != NULL ? parts->back : parts->plan;
}
