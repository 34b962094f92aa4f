/* Products of weights in tiles on AVX-512: the sums of simd_avx512.c, to the bit. */
#include "cpu/levels/columns_avx512.h"
#include "cpu/tiles.h"

INLINE VI load(const uint8_t *p)
{
    return _mm512_loadu_si512(p);
}

INLINE VF load_halves(const uint8_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

INLINE VI load_bytes(const uint8_t *p)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
}

#define ONE_FEW(name) (m->rows == RN_TILE_ROWS ? rn_few_tiles_##name##_avx512(m) : direct(m, &format_##name))
#define MOST_FEW RN_FEW_AVX512

#include "cpu/levels/blocks_tiles.inc"
#include "cpu/levels/blocks_columns.inc"
#include "cpu/levels/quads_avx512.inc"
#include "cpu/levels/blocks_products.inc"
#include "cpu/levels/tiles_formats.inc"

const struct rn_kernel *rn_tiles_avx512(uint32_t type_id)
{
    return tiled_kernel(type_id);
}
