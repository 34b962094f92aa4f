/* The AVX2 level's products of the block formats: vectors of eight rows. See columns_avx2.h. */
#include "cpu/levels/columns_avx2.h"

#define ONE_ROWS(name) ONE_COLUMNS(name)
#define MOST_FEW(name) 2 /* measured */
#define ONE_FEW(name) (m->n == 1 ? IN_REGISTERS(name, 1) : IN_REGISTERS(name, 2))
#define MOST_SOME(name) 1
#define ONE_SOME(name) ONE_COLUMNS(name)
#define ONE_GRID(name) (m->rows == LANES ? rn_direct_##name##_avx2(m) : ONE_BUFFERED(name))

INLINE __m128i load128(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)p);
}

INLINE void chunk(const uint8_t *const *rows, size_t at, VI *v)
{
    __m256i a[4], b[4];
    int i;

    for (i = 0; i < 4; i++)
        a[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(load128(rows[i] + at)), load128(rows[i + 4] + at), 1);
    b[0] = _mm256_unpacklo_epi32(a[0], a[1]);
    b[1] = _mm256_unpackhi_epi32(a[0], a[1]);
    b[2] = _mm256_unpacklo_epi32(a[2], a[3]);
    b[3] = _mm256_unpackhi_epi32(a[2], a[3]);
    v[0] = _mm256_unpacklo_epi64(b[0], b[2]);
    v[1] = _mm256_unpackhi_epi64(b[0], b[2]);
    v[2] = _mm256_unpacklo_epi64(b[1], b[3]);
    v[3] = _mm256_unpackhi_epi64(b[1], b[3]);
}

#include "cpu/levels/blocks_rows.inc"
#include "cpu/levels/blocks_columns.inc"
#include "cpu/levels/blocks_grid.inc"
#include "cpu/levels/quads_avx2.inc"
#include "cpu/levels/blocks_products.inc"
#include "cpu/levels/blocks_formats.inc"

const struct rn_kernel *rn_blocks_avx2(uint32_t type_id)
{
    return block_kernel(type_id);
}
