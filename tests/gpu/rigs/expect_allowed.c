#include "tests/gpu/rigs/expect_allowed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "gpu/steps.h"

/* Asks for what the launches of this shape want; what was not allowed changes the device's list. */
static void ask(struct rn_gpu_backend *backend, const struct rn_gpu_shape *shape)
{
    uint32_t before[RN_KERNEL_COUNT];

    memcpy(before, backend->device->shared_bytes, sizeof before);
    backend->allows = true;
    assert_int_equal(rn_gpu_program_run(backend, shape), RN_GPU_OK);
    backend->allows = false;
    for (int k = 0; k < RN_KERNEL_COUNT; k++)
        if (backend->device->shared_bytes[k] != before[k])
            fail_msg("%s: %s wants %u bytes for %u rows, %u of them selected, %u wanted: %u are allowed",
                     backend->plan->architecture, rn_kernel_info((enum rn_kernel)k)->name,
                     backend->device->shared_bytes[k], shape->n_rows, shape->n_selected, shape->n_outs, before[k]);
}

/* Every number of rows, of wanted ones and of selected ones, each beside many and few of the others. */
static void ask_all(struct rn_gpu_backend *backend, struct rn_gpu_shape shape)
{
    const struct rn_backend_limits *limits = &backend->limits;

    for (uint32_t n = 1; n <= limits->max_rows; n++) {
        uint32_t n_outs = n < limits->max_outs ? n : limits->max_outs;
        const uint32_t numbers[][3] = {
            {n, 0, 0}, {n, n_outs, n}, {limits->max_rows, n_outs, n}, {limits->max_rows, 0, n}};

        for (int i = 0; i < 4; i++) {
            shape.n_rows = numbers[i][0];
            shape.n_outs = numbers[i][1];
            shape.n_selected = shape.n_features = numbers[i][2];
            ask(backend, &shape);
        }
    }
}

void expect_allowed(struct rn_backend *base)
{
    struct rn_gpu_backend *backend = (struct rn_gpu_backend *)base;
    uint32_t types[RN_GPU_TYPES];

    memcpy(types, backend->stream_blocks, sizeof types);
    for (int k = 0; k < RN_KERNEL_COUNT; k++)
        backend->device->shared_bytes[k] = 48 << 10; /* as if no other plan had been here */
    assert_int_equal(rn_gpu_program_allow(backend), RN_GPU_OK);
    for (uint32_t way = 0; way < 8; way++) { /* streams, trees, adapters */
        for (uint32_t i = 0; i < RN_GPU_TYPES; i++)
            backend->stream_blocks[i] = way & 1 ? rn_gpu_stream_blocks(backend) : 0;
        ask_all(backend, (struct rn_gpu_shape){.n_seqs = 1,
                                               .longest = rn_gpu_longest(backend, backend->limits.context_tokens),
                                               .has_tree = way >> 1 & 1,
                                               .is_adapted = way >> 2});
    }
    memcpy(backend->stream_blocks, types, sizeof types);
}

uint64_t weights_bytes(const struct rn_backend *backend)
{
    return ((const struct rn_gpu_backend *)backend)->weights_bytes;
}
