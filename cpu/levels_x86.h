/* What the x86 levels lend each other. */
#ifndef RN_CPU_LEVELS_X86_H
#define RN_CPU_LEVELS_X86_H

#include "cpu/kernels.h"

/* Q4_0, Q8_0, Q4_K, Q6_K; NULL for the rest. */
const struct rn_kernel *rn_blocks_avx2(uint32_t type_id);

/* All formats of the AVX2 level with a kernel of their own; NULL for the rest. */
const struct rn_kernel *rn_kernel_avx2(uint32_t type_id);
extern const struct rn_kernel rn_kernel_avx2_other;
extern const struct rn_rows rn_rows_avx2;

extern const struct rn_attention rn_attention_avx512;

#endif
