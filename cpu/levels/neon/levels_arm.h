/* What the files of the NEON level lend each other. */
#ifndef RN_CPU_LEVELS_NEON_LEVELS_ARM_H
#define RN_CPU_LEVELS_NEON_LEVELS_ARM_H

#include "cpu/kernels.h"

/* Every block format of unpack.h; NULL for the rest. The first runs on every AArch64 processor, the second
 * on those with dot products (ASIMDDP). Both give the same bits: they differ inside integer sums. */
const struct rn_kernel *rn_blocks_neon(uint32_t type_id);
const struct rn_kernel *rn_blocks_neon_dot(uint32_t type_id);

#endif
