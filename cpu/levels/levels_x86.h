/* What the x86 levels lend each other. */
#ifndef RN_CPU_LEVELS_LEVELS_X86_H
#define RN_CPU_LEVELS_LEVELS_X86_H

#include "cpu/kernels.h"

/* Every block format; NULL for the rest. */
const struct rn_kernel *rn_blocks_avx2(uint32_t type_id);

/* See rn_level.tiled. */
const struct rn_kernel *rn_tiles_avx2(uint32_t type_id);
const struct rn_kernel *rn_tiles_avx512(uint32_t type_id);

/* F32, F16 and BF16, or NULL; and any format through its decoder. */
const struct rn_kernel *rn_floats_avx2(uint32_t type_id);
extern const struct rn_kernel rn_other_avx2_kernel;

/* Products of floats with the weights as they stand, inputs three at a time; any number of rows. */
void rn_direct_f32(const struct rn_matmul *m);
void rn_direct_f16(const struct rn_matmul *m);
void rn_direct_bf16(const struct rn_matmul *m);

void rn_quantise_lines_avx2(const float *a, void *out, uint32_t n);

/* Products of one input with sixteen rows, m->n = 1 and m->rows = 16: direct_avx512.c. */
#define RN_DIRECT_AVX512(X) X(q4_0) X(q4_1) X(q8_0) X(iq4_nl) X(mxfp4) X(nvfp4) X(q4_k) X(q6_k) X(iq4_xs)
#define RN_DECLARE(name) void rn_direct_##name##_avx512(const struct rn_matmul *m);
RN_DIRECT_AVX512(RN_DECLARE)
#undef RN_DECLARE

/* Likewise of points, where the machine has VBMI and GFNI, too: direct_grid_avx512.c. */
#define RN_GRID_AVX512(X) X(iq2_xxs) X(iq2_xs) X(iq2_s) X(iq3_xxs) X(iq3_s) X(iq1_s) X(iq1_m)
#define RN_DECLARE(name) void rn_direct_##name##_avx512(const struct rn_matmul *m);
RN_GRID_AVX512(RN_DECLARE)
#undef RN_DECLARE

/* Of points, with eight rows, m->n = 1 and m->rows = 8: direct_grid_avx2.c. */
#define RN_DECLARE(name) void rn_direct_##name##_avx2(const struct rn_matmul *m);
RN_GRID_AVX512(RN_DECLARE)
#undef RN_DECLARE

/* The same of 2 <= m->n <= RN_FEW_AVX512 inputs: few_avx512.c. */
enum { RN_FEW_AVX512 = 8 };
#define RN_FEW_OF_AVX512(X) X(q4_0) X(q8_0) X(iq4_nl) X(mxfp4) X(q4_k) X(q5_k) X(q6_k) X(iq4_xs)
#define RN_DECLARE(name) void rn_few_##name##_avx512(const struct rn_matmul *m);
RN_FEW_OF_AVX512(RN_DECLARE)
#undef RN_DECLARE

/* The same of 1 <= m->n <= RN_FEW_AVX512 inputs with sixteen rows in a tile: few_tiles_avx512.c. */
#define RN_DECLARE(name) void rn_few_tiles_##name##_avx512(const struct rn_matmul *m);
RN_FEW_OF_AVX512(RN_DECLARE)
#undef RN_DECLARE

extern const struct rn_rows rn_rows_avx2;
void rn_stream_avx2(void *to, const void *from, size_t n);
extern const struct rn_attention rn_attention_avx512, rn_attention_amx;

#endif
