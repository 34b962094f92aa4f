/* Shared memory that a load allows, apart from tests that know the CPU's kernels, whose names are these. */
#ifndef RN_TESTS_GPU_RIGS_EXPECT_ALLOWED_H
#define RN_TESTS_GPU_RIGS_EXPECT_ALLOWED_H

#include "model/backend.h"

/* Of a backend of CUDA that is prepared and has no step in flight: whatever shape a step has, few rows by matmul_stream
 * or not, none of its launches wants more shared memory than the load of this plan has allowed. */
void expect_allowed(struct rn_backend *backend);

/* What its weights have taken. */
uint64_t weights_bytes(const struct rn_backend *backend);

#endif
