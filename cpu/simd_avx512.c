/* The AVX-512 level (F, BW, VL, VNNI): products of the block formats on vectors of sixteen rows, tiles of
 * thirty-two; the rest is the AVX2 level's. Both levels take the same integer sums and the same fmas, so they
 * agree to the bit.
 *
 * vpdpbusd adds four products of an unsigned and a signed byte to a 32-bit lane and cannot saturate. */
#include <immintrin.h>
#include <string.h>

#include "cpu/floats_x86.h"
#include "cpu/levels_x86.h"
#include "model/quant_grids.h"
#include "model/quant_types.h"

#define INLINE static inline __attribute__((always_inline))

typedef __m512i VI;
typedef __m512 VF;

#define vf_set1 _mm512_set1_ps
#define vf_zero _mm512_setzero_ps
#define vf_fma _mm512_fmadd_ps
#define vf_fms _mm512_fmsub_ps
#define vf_cast _mm512_castsi512_ps

#define AT_ONCE 8
enum { LANES = 16, ROWS = 32, GROUP = ROWS * 4, WIDE = 128, AHEAD = 512, PACK_FROM = 2 };

/* Weights of a panel are all 128 too large, as rn_line.start expects, but where there are minima. */
#define PANEL_OFFSET(f) 128

INLINE VF vf_load(const void *p)
{
    return _mm512_load_ps(p);
}

INLINE void store_lanes(float *out, VF v, uint32_t rows)
{
    _mm512_mask_storeu_ps(out, (__mmask16)(rows >= LANES ? 0xffff : (1u << rows) - 1), v);
}

INLINE __m256i bits_mask(uint32_t word)
{
    return _mm256_movm_epi8(word);
}

INLINE __m256i dot(__m256i w, __m256i q, uint32_t run)
{
    (void)run;
    return _mm256_dpbusd_epi32(_mm256_setzero_si256(), w, q);
}

#include "cpu/blocks_unpack.inc"
#include "cpu/blocks_grid.inc"

INLINE __m512i broadcast4(const void *p)
{
    return _mm512_set1_epi32((int32_t)u32_at(p));
}

/* The sums of the groups of one scale, inputs [0, n). */
INLINE void quads(VI part[][2], const uint8_t *panel, const struct rn_line *const *y, size_t b, uint32_t s, uint32_t n,
                  struct format f)
{
    uint32_t groups = 8 / f.n_scales, g, i;
    VI w[2], x;

    for (i = 0; i < n; i++)
        part[i][0] = part[i][1] = f.n_minima > 0 ? _mm512_set1_epi32(RN_MAGIC_BITS)
                                                 : broadcast4(f.n_scales == 2 ? &y[i][b].start16[s] : &y[i][b].start);
#pragma GCC unroll 8
    for (g = s * groups; g < (s + 1) * groups; g++) {
        w[0] = _mm512_load_si512(panel + g * GROUP);
        w[1] = _mm512_load_si512(panel + g * GROUP + GROUP / 2);
        for (i = 0; i < n; i++) {
            x = broadcast4(y[i][b].q + 4 * g);
            part[i][0] = _mm512_dpbusd_epi32(part[i][0], w[0], x);
            part[i][1] = _mm512_dpbusd_epi32(part[i][1], w[1], x);
        }
    }
}

#define SHAPE(scales, minima, run) packed_##scales##minima
#define SHAPES(X) X(1, 0, 0) X(1, 1, 0) X(2, 0, 0) X(2, 2, 0)

#include "cpu/blocks_products.inc"

/* ---- Floats: vectors of two rows ---- */

#define WIDTH 4
#define OTHER static const struct rn_kernel kernel_other
enum { TILE = 8, VECTORS = 4, PACK_FLOATS_FROM = 8 };

#define vf_store _mm512_storeu_ps

INLINE VF vf_twice(__m256 v)
{
    return _mm512_castsi512_ps(_mm512_broadcast_i64x4(_mm256_castps_si256(v)));
}

INLINE VF vf_eight(const float *p)
{
    return vf_twice(_mm256_loadu_ps(p));
}

#include "cpu/floats.inc"

static const struct rn_kernel *kernel_avx512(uint32_t type_id)
{
    const struct rn_kernel *kernel = block_kernel(type_id);

    return kernel != NULL ? kernel : float_kernel(type_id);
}

const struct rn_level *rn_level_avx512(void)
{
    static const struct rn_level level = {
        .name = "avx512", .rows = &rn_rows_avx2, .attention = &rn_attention_avx512, .kernel = kernel_avx512, .other = &kernel_other};

    if (rn_level_avx2() == NULL || !__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512vnni"))
        return NULL;
    return &level;
}
