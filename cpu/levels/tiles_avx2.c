/* Products of weights in tiles on AVX2: the sums of simd_avx2_blocks.c, to the bit. */
#include "cpu/levels/columns_avx2.h"
#include "cpu/tiles.h"

INLINE VI load(const uint8_t *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

INLINE VF load_halves(const uint8_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}

INLINE VI load_bytes(const uint8_t *p)
{
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
}

/* Measured: with more inputs the sums of a block of eight strips leave the registers. */
#define MOST_FEW(name) (STRIPS_##name == 1 ? 4 : 2)
#define ONE_FEW(name)                                         \
    (m->n == 1                        ? IN_REGISTERS(name, 1) \
     : m->n == 2 || STRIPS_##name > 1 ? IN_REGISTERS(name, 2) \
     : m->n == 3                      ? IN_REGISTERS(name, 3) \
                                      : IN_REGISTERS(name, MOST_FEW(name)))
#define STREAMS_FEW 1

#include "cpu/levels/blocks_tiles.inc"
#include "cpu/levels/blocks_columns.inc"
#include "cpu/levels/quads_avx2.inc"
#include "cpu/levels/blocks_products.inc"
#include "cpu/levels/tiles_formats.inc"

const struct rn_kernel *rn_tiles_avx2(uint32_t type_id)
{
    return tiled_kernel(type_id);
}
