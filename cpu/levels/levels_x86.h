/* What the x86 levels lend each other. */
#ifndef RN_CPU_LEVELS_LEVELS_X86_H
#define RN_CPU_LEVELS_LEVELS_X86_H

#include "cpu/kernels.h"

/* Every block format; NULL for the rest. */
const struct rn_kernel *rn_blocks_avx2(uint32_t type_id);
const struct rn_kernel *rn_blocks_vnni(uint32_t type_id);

/* See rn_level.tiled. */
const struct rn_kernel *rn_tiles_avx2(uint32_t type_id);
const struct rn_kernel *rn_tiles_vnni(uint32_t type_id);
const struct rn_kernel *rn_tiles_avx512(uint32_t type_id);
const struct rn_kernel *rn_tiles_amx(uint32_t type_id);

/* F32, F16 and BF16, or NULL; and any format through its decoder. */
const struct rn_kernel *rn_floats_avx2(uint32_t type_id);
extern const struct rn_kernel rn_other_avx2_kernel;

/* Products of floats with the weights as they stand, inputs three at a time; any number of rows. */
void rn_direct_f32(const struct rn_matmul *m);
void rn_direct_f16(const struct rn_matmul *m);
void rn_direct_bf16(const struct rn_matmul *m);

void rn_quantise_lines_avx2(const float *a, void *out, uint32_t n, bool fine);

/* Products of one input with sixteen rows, m->n = 1 and m->rows = 16: direct_avx512.c. */
#define RN_DIRECT_AVX512(X) X(q4_0) X(q4_1) X(q8_0) X(iq4_nl) X(mxfp4) X(nvfp4) X(q4_k) X(q6_k) X(iq4_xs)
#define RN_DECLARE(name) void rn_direct_##name##_avx512(const struct rn_matmul *m);
RN_DIRECT_AVX512(RN_DECLARE)
#undef RN_DECLARE

/* The level avx512 asks for neither VBMI nor GFNI. */
static inline bool rn_has_affine(void)
{
    return __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("gfni");
}

/* Whether nibbles are better taken out by affine transformations. On AMD these take the two units that products need,
 * while shifts and masks have others; on Intel vectors of 512 bits have two units for all, so one instruction is better
 * than two. */
static inline bool rn_wants_affine(void)
{
    return rn_has_affine() && __builtin_cpu_is("intel");
}

enum { RN_FEW_AVX512 = 8 };

/* Products of 1 <= m->n <= RN_GRID_<name> inputs with sixteen rows of points, m->rows = 16, where rn_has_affine():
 * direct_grid_avx512.c. With more inputs strips in a buffer are faster. */
enum { RN_GRID_iq2_xxs = 5, RN_GRID_iq2_xs = 4, RN_GRID_iq3_xxs = RN_FEW_AVX512, RN_GRID_iq3_s = RN_FEW_AVX512 };
#define RN_DECLARE(name) void rn_direct_##name##_avx512(const struct rn_matmul *m);
RN_DECLARE(iq2_xxs)
RN_DECLARE(iq2_xs)
RN_DECLARE(iq3_xxs)
RN_DECLARE(iq3_s)
#undef RN_DECLARE

/* Likewise of 1 <= m->n <= RN_POINTS_AVX512 inputs, on all processors of the level: direct_points_avx512.c. */
enum { RN_POINTS_AVX512 = 4 };
#define RN_POINTS_OF_AVX512(X) X(iq2_xxs) X(iq2_xs) X(iq2_s) X(iq1_s) X(iq1_m)
#define RN_DECLARE(name) void rn_points_##name##_avx512(const struct rn_matmul *m);
RN_POINTS_OF_AVX512(RN_DECLARE)
#undef RN_DECLARE

/* Products of one input with eight rows of points, m->n = 1 and m->rows = 8: direct_grid_avx2.c. */
#define RN_GRID_AVX2(X) X(iq2_xxs) X(iq2_xs) X(iq2_s) X(iq3_xxs) X(iq3_s) X(iq1_s) X(iq1_m)
#define RN_DECLARE(name) void rn_direct_##name##_avx2(const struct rn_matmul *m);
RN_GRID_AVX2(RN_DECLARE)
#undef RN_DECLARE

/* Products of 2 <= m->n <= RN_FEW_AVX512 inputs with sixteen rows, m->rows = 16: few_avx512.c, and where
 * rn_wants_affine() few_affine_avx512.c. */
#define RN_FEW_OF_AVX512(X) X(q4_0) X(q8_0) X(iq4_nl) X(mxfp4) X(q4_k) X(q5_k) X(q6_k) X(iq4_xs)
#define RN_DECLARE(name)                                    \
    void rn_few_##name##_avx512(const struct rn_matmul *m); \
    void rn_few_##name##_affine(const struct rn_matmul *m);
RN_FEW_OF_AVX512(RN_DECLARE)
#undef RN_DECLARE

/* The same of RN_TILES_FROM_<name> <= m->n <= RN_FEW_AVX512 inputs with sixteen rows in a tile: few_tiles_avx512.c,
 * likewise. With fewer inputs of Q6_K, whose blocks are read in two places by turns, the order of loads counts more:
 * tiles_avx512.c. */
enum {
    RN_TILES_FROM_q4_0 = 1,
    RN_TILES_FROM_q8_0 = 1,
    RN_TILES_FROM_iq4_nl = 1,
    RN_TILES_FROM_mxfp4 = 1,
    RN_TILES_FROM_q4_k = 1,
    RN_TILES_FROM_q5_k = 1,
    RN_TILES_FROM_q6_k = 5,
    RN_TILES_FROM_iq4_xs = 1
};
#define RN_DECLARE(name)                                          \
    void rn_few_tiles_##name##_avx512(const struct rn_matmul *m); \
    void rn_few_tiles_##name##_affine(const struct rn_matmul *m);
RN_FEW_OF_AVX512(RN_DECLARE)
#undef RN_DECLARE

/* The same of several tiles one behind the other, which take turns, two or four at a time, as far as registers last. */
#define RN_DECLARE(name)                                      \
    void rn_turns_##name##_avx512(const struct rn_matmul *m); \
    void rn_turns_##name##_affine(const struct rn_matmul *m);
RN_FEW_OF_AVX512(RN_DECLARE)
#undef RN_DECLARE

/* Packed products of panels of up to RN_AMX_ROWS rows with up to RN_AMX_INPUTS inputs, of formats with one scale to 32
 * columns and no minimum, or one: packed_amx.c. turn: n strips as the vectors
 * read them, of so many bytes, become strips as these do. */
enum { RN_AMX_INPUTS = 32, RN_AMX_ROWS = 128 };
void rn_turn_amx(const uint8_t *strips, uint32_t n, size_t bytes, uint8_t *to);
void rn_lay_amx(const struct rn_line *const inputs[16], uint32_t first, uint32_t n, void *to);
void rn_packed_10_amx(const struct rn_matmul *m);
void rn_packed_11_amx(const struct rn_matmul *m);
void rn_packed_fine_amx(const struct rn_matmul *m); /* one scale, no minimum, RN_INPUT_FINE */

/* Sixteen rows of m's weights from `row` on become strips: n of 32 columns from `strip` on, whole blocks of the format.
 * From beyond the last row on they are the last ones. */
typedef void rn_unpack(const struct rn_matmul *m, uint32_t row, uint32_t strip, uint32_t n, uint8_t *to);

/* Products of rows in tiles with up to RN_AMX_INPUTS inputs, without a panel, likewise; a block of the format is so
 * many strips. With fewer than RN_AMX_DIRECT_FROM the vectors are faster. */
enum { RN_AMX_DIRECT_FROM = 9, RN_AMX_TILE = 64 };
void rn_gather_amx(const struct rn_matmul *m); /* before: see rn_kernel.gather */
void rn_direct_10_amx(const struct rn_matmul *m, uint32_t strips, rn_unpack *unpack);
void rn_direct_11_amx(const struct rn_matmul *m, uint32_t strips, rn_unpack *unpack);
void rn_direct_fine_amx(const struct rn_matmul *m, uint32_t strips, rn_unpack *unpack);

extern const struct rn_rows rn_rows_avx2;
void rn_stream_avx2(void *to, const void *from, size_t n);
extern const struct rn_attention rn_attention_avx512, rn_attention_amx;

#endif
