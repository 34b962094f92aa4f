/* The sizing of KV memory: see device.h. */
#include "model/device.h"

#include "model/plan.h"

uint64_t rn_device_weight_bytes(const struct rn_device *device, const struct rn_plan *plan, uint64_t expert_bytes)
{
    return device->kind->weight_bytes != NULL ? device->kind->weight_bytes(device, plan, expert_bytes)
                                              : plan->weight_bytes;
}

uint64_t rn_device_step_bytes(const struct rn_device *device, const struct rn_plan *plan,
                              const struct rn_backend_limits *limits)
{
    return device->kind->step_bytes != NULL ? device->kind->step_bytes(device, plan, limits) : 0;
}

uint64_t rn_device_reserve(uint64_t left_bytes, uint64_t step_bytes)
{
    uint64_t tenth = left_bytes / 10, wanted = step_bytes + left_bytes / 50;

    return wanted > tenth ? wanted : tenth;
}

uint64_t rn_device_kv_bytes(const struct rn_device_memory *memory, uint64_t weight_bytes, uint64_t step_bytes)
{
    uint64_t left = memory->free_bytes > weight_bytes ? memory->free_bytes - weight_bytes : 0;
    uint64_t reserve = rn_device_reserve(left, step_bytes);

    if (memory->shared)
        return memory->total_bytes / 4;
    return left > reserve ? left - reserve : 0;
}

uint64_t rn_device_blocks(const struct rn_device_memory *memory, uint64_t weight_bytes, uint64_t step_bytes,
                          uint64_t block_bytes, uint64_t context_blocks, uint32_t contexts)
{
    uint64_t most = rn_device_kv_bytes(memory, weight_bytes, step_bytes) / block_bytes;
    uint64_t blocks = contexts * context_blocks;

    if (!memory->shared || blocks > most)
        blocks = most > context_blocks ? most : context_blocks;
    return blocks < (UINT64_C(1) << 31) ? blocks : UINT64_C(1) << 31;
}
