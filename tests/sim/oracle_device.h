/* A device that computes the oracle model in the oracle's place (oracle_backend.h): steps and copies begin on it when
 * they are submitted, and are waited for when the simulation completes them. So what a device has in flight runs while
 * the actors do, and the schedule stays the seed's. Called by one thread. */
#ifndef RN_TESTS_SIM_ORACLE_DEVICE_H
#define RN_TESTS_SIM_ORACLE_DEVICE_H

#include "model/backend.h"

struct oracle_device {
    uint32_t ring; /* steps in flight at once */
    bool may_fail; /* steps and copies, as DEVICE: calls of its driver fail now and then */
    bool (*can_draw)(const struct oracle_device *device, const runnel_sampling *sampling);

    /* await: the oldest one that was begun; its draws' results are in the step then. settle: all that were begun have
     * ended, awaited or not. */
    void (*begin)(struct oracle_device *device, struct rn_step *step);
    runnel_status (*await)(struct oracle_device *device, struct rn_step *step);
    void (*settle)(struct oracle_device *device);

    void (*begin_copies)(struct oracle_device *device, struct rn_host_copies *copies);
    runnel_status (*await_copies)(struct oracle_device *device, struct rn_host_copies *copies);

    /* What lies at a place of a block becomes rubbish. Nothing that runs touches it. */
    void (*poison)(struct oracle_device *device, uint32_t block, uint32_t place, uint64_t rubbish);

    size_t (*block_bytes)(const struct oracle_device *device);
    void *(*host_alloc)(struct oracle_device *device, size_t bytes);
    void (*host_free)(struct oracle_device *device, void *memory);
    void (*free)(struct oracle_device *device);
};

#endif
