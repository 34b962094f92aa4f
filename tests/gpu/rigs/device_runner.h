/* A runner (tests/cpu/runner.h) whose backend is on a device that the test has opened. */
#ifndef RN_TESTS_GPU_RIGS_DEVICE_RUNNER_H
#define RN_TESTS_GPU_RIGS_DEVICE_RUNNER_H

#include "model/device.h"
#include "tests/cpu/runner.h"

/* The backend's own status; close_on_device in any case. */
static inline runnel_status prepare_on_device(struct runner *r, struct rn_heap *heap, struct rn_device *device,
                                              const struct rn_plan *plan, const struct rn_backend_limits *limits,
                                              runnel_error *error)
{
    *r = (struct runner){.plan = plan, .limits = *limits};
    sem_init(&r->done, 0, 0);
    r->backend = device->kind->new_backend(device, heap);
    assert_non_null(r->backend);
    return r->backend->ops->prepare(r->backend, plan, &r->limits, NULL, NULL, error);
}

/* The same; a refusal fails the test. name: of the model. */
static inline void open_on_device(struct runner *r, struct rn_heap *heap, struct rn_device *device, const char *name,
                                  const struct rn_plan *plan, const struct rn_backend_limits *limits)
{
    runnel_error error = {0};

    if (prepare_on_device(r, heap, device, plan, limits, &error) != RUNNEL_OK)
        fail_msg("%s: %s", name, error.message);
}

static inline void close_on_device(struct runner *r)
{
    r->backend->ops->free(r->backend);
    sem_destroy(&r->done);
}

#endif
