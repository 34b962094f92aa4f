/* The sizing of KV memory: see device.h. */
#include "model/device.h"

#include "model/plan.h"

uint64_t rn_device_weight_bytes(const struct rn_device *device, const struct rn_plan *plan, uint64_t expert_bytes)
{
    return device->kind->weight_bytes != NULL ? device->kind->weight_bytes(device, plan, expert_bytes)
                                              : plan->weight_bytes;
}

uint64_t rn_device_kv_bytes(const struct rn_device_memory *memory, uint64_t weight_bytes)
{
    uint64_t left = memory->free_bytes > weight_bytes ? memory->free_bytes - weight_bytes : 0;

    return memory->shared ? memory->total_bytes / 4 : left / 10 * 9;
}

uint64_t rn_device_blocks(const struct rn_device_memory *memory, uint64_t weight_bytes, uint64_t block_bytes,
                          uint64_t context_blocks, uint32_t contexts)
{
    uint64_t most = rn_device_kv_bytes(memory, weight_bytes) / block_bytes, blocks = contexts * context_blocks;

    if (!memory->shared || blocks > most)
        blocks = most > context_blocks ? most : context_blocks;
    return blocks < (UINT64_C(1) << 31) ? blocks : UINT64_C(1) << 31;
}
