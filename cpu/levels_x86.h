/* The kernels that the x86 levels lend each other. */
#ifndef RN_CPU_LEVELS_X86_H
#define RN_CPU_LEVELS_X86_H

#include "cpu/kernels.h"

/* Q4_0, Q8_0, Q4_K, Q6_K; NULL for the rest. The products of both agree to the bit. */
const struct rn_kernel *rn_blocks_avx2(uint32_t type_id);

#endif
