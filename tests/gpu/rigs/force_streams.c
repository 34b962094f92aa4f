#include "tests/gpu/rigs/force_streams.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gpu/steps.h"

void force_streams(struct rn_backend *base)
{
    struct rn_gpu_backend *backend = (struct rn_gpu_backend *)base;
    uint32_t n = rn_gpu_stream_blocks(backend);

    assert_true(n > 0);
    assert_int_equal(rn_gpu_products_measure(backend, 0), RN_GPU_OK);
    for (uint32_t i = 0; i < RN_GPU_TYPES; i++) {
        assert_true(backend->stream_blocks[i] == 0 || backend->stream_blocks[i] == n);
        backend->stream_blocks[i] = n;
    }
}
