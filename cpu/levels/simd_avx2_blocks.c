/* The AVX2 level's products of the block formats: vectors of eight rows.
 *
 * maddubs multiplies an unsigned by a signed byte and adds pairs into 16 bits. As |input| <= 127, `run`
 * groups of a format's bytes fit into a 16-bit sum before it is widened: 2 run 127 byte <= 32767. Bytes
 * that need all eight bits (run 0) are multiplied as magnitudes, their signs moved to the input:
 * 2 * 128 * 127 = 32512. */
#include <immintrin.h>
#include <string.h>

#include "cpu/levels/levels_x86.h"
#include "model/quant_grids.h"
#include "model/quant_types.h"

#define INLINE static inline __attribute__((always_inline))

typedef __m256i VI;
typedef __m256 VF;

#define vi_and _mm256_and_si256
#define vi_or _mm256_or_si256
#define vi_xor _mm256_xor_si256
#define vi_add8 _mm256_add_epi8
#define vi_add32 _mm256_add_epi32
#define vi_sub32 _mm256_sub_epi32
#define vi_max32 _mm256_max_epi32
#define vi_srl32(v, n) _mm256_srli_epi32(v, n)
#define vi_sll32(v, n) _mm256_slli_epi32(v, n)
#define vi_sra32(v, n) _mm256_srai_epi32(v, n)
#define vi_sllv32 _mm256_sllv_epi32
#define vi_srlv32 _mm256_srlv_epi32
#define vi_gather(base, v) _mm256_i32gather_epi32((const int *)(const void *)(base), v, 4)
#define vi_shuffle _mm256_shuffle_epi8
#define vi_set8(x) _mm256_set1_epi8((char)(x))
#define vi_set32 _mm256_set1_epi32
#define vi_store(to, v) _mm256_store_si256((__m256i *)(to), v)

#define vf_set1 _mm256_set1_ps
#define vf_zero _mm256_setzero_ps
#define vf_from _mm256_cvtepi32_ps
#define vf_cast _mm256_castsi256_ps
#define vf_sub _mm256_sub_ps
#define vf_mul _mm256_mul_ps
#define vf_fma _mm256_fmadd_ps
#define vf_fms _mm256_fmsub_ps
#define vf_minus(v) _mm256_xor_ps(v, _mm256_set1_ps(-0.0f))
#define vf_load(p) _mm256_load_ps((const float *)(p))
#define vf_store(to, v) _mm256_store_ps((float *)(to), v)

#define AT_ONCE 4
#define OFFSET(n) (n)
enum { LANES = 8, PACK_FROM = RN_PACK_FROM };

#define ONE_ROWS(name) ONE_COLUMNS(name)
#define ONE_FEW(name) ONE_COLUMNS(name)
#define ONE_SOME(name) ONE_COLUMNS(name)
#define MOST_FEW 1
#define ONE_GRID(name) (m->rows == LANES ? rn_direct_##name##_avx2(m) : ONE_BUFFERED(name))

#define ONES _mm256_set1_epi16(1)

/* a < b ? x : 0 */
INLINE VI vi_where_less(VI a, VI b, VI x)
{
    return _mm256_and_si256(_mm256_cmpgt_epi32(b, a), x);
}

INLINE VI vi_table(const int8_t *levels)
{
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)levels));
}

/* Byte k of each lane, in all four. */
INLINE VI vi_spread(VI v, int k)
{
    return _mm256_shuffle_epi8(
        v, _mm256_add_epi8(_mm256_set1_epi8((char)k), _mm256_set_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0,
                                                                       0x0c0c0c0c, 0x08080808, 0x04040404, 0)));
}

INLINE VI plus_where(VI v, VI bits, VI mask, int value)
{
    return _mm256_add_epi8(v, _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(bits, mask), mask), vi_set8(value)));
}

INLINE VI plus_where_reached(VI v, VI x, int limit)
{
    return _mm256_sub_epi8(v, _mm256_cmpeq_epi8(_mm256_max_epu8(x, vi_set8(limit)), x));
}

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

INLINE VF low_halves(VI v)
{
    v = _mm256_and_si256(v, _mm256_set1_epi32(0xffff));
    return _mm256_cvtph_ps(_mm_packus_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1)));
}

INLINE void store_lanes(float *out, VF v, uint32_t rows, uint32_t step)
{
    float eight[8];
    uint32_t r;

    if (rows >= LANES && step == 1) {
        _mm256_storeu_ps(out, v);
        return;
    }
    _mm256_storeu_ps(eight, v);
    for (r = 0; r < LANES && r < rows; r++)
        out[(size_t)r * step] = eight[r];
}

INLINE __m256i products(__m256i w, __m256i x, uint32_t run)
{
    if (run > 0)
        return _mm256_maddubs_epi16(w, x);
    return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
}

INLINE __m256i quad(__m256i sum, __m256i w, __m256i x, uint32_t run)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(products(w, x, run), ONES));
}

#include "cpu/levels/blocks_columns.inc"
#include "cpu/levels/blocks_grid.inc"

/* What a sum begins with: the line's start has 128 times the sum of the inputs, here it is `offset` times. */
INLINE __m256i start(const struct rn_line *y, uint32_t s, struct shape f)
{
    int32_t begin = f.n_scales == 2 ? y->start16[s] : y->start;
    int shift = f.run == 8 ? 4 : f.run == 4 ? 3 : f.run == 2 ? 2 : 1;

    if (offset(f) == 0)
        return _mm256_set1_epi32(RN_MAGIC_BITS);
    return _mm256_add_epi32(_mm256_srai_epi32(_mm256_set1_epi32(begin), shift),
                            _mm256_set1_epi32(RN_MAGIC_BITS - (RN_MAGIC_BITS >> shift)));
}

/* The integer sums of the columns of one scale. */
INLINE void quads(VI part[][2], const uint8_t *const *strips, uint32_t vecs, const struct rn_line *const *y, size_t b,
                  uint32_t s, uint32_t n, struct shape f)
{
    uint32_t groups = 8 / f.n_scales, run = f.run == 0 ? 1 : f.run < groups ? f.run : groups, g, k, i, v;
    VI sum[AT_ONCE][2], w[2], x;

    for (i = 0; i < n; i++)
        for (v = 0; v < vecs; v++)
            part[i][v] = start(&y[i][b], s, f);
    for (g = s * groups; g < (s + 1) * groups; g += run) {
        for (k = 0; k < run; k++) {
            for (v = 0; v < vecs; v++)
                w[v] = _mm256_load_si256((const __m256i *)(strips[v] + (g + k) * VEC));
            for (i = 0; i < n; i++) {
                x = broadcast4(y[i][b].q + 4 * (g + k));
                for (v = 0; v < vecs; v++)
                    sum[i][v] =
                        k == 0 ? products(w[v], x, f.run) : _mm256_add_epi16(sum[i][v], products(w[v], x, f.run));
            }
        }
        for (i = 0; i < n; i++)
            for (v = 0; v < vecs; v++)
                part[i][v] = _mm256_add_epi32(part[i][v], _mm256_madd_epi16(sum[i][v], ONES));
    }
}

#define SHAPE(what, scales, minima, run) what##_##scales##minima##_##run
#define SHAPES(X) \
    X(1, 0, 8)    \
    X(1, 0, 4) X(1, 0, 1) X(1, 0, 0) X(1, 1, 8) X(1, 1, 4) X(2, 0, 8) X(2, 0, 4) X(2, 0, 2) X(2, 0, 1) X(2, 2, 8)

#include "cpu/levels/blocks_products.inc"

const struct rn_kernel *rn_blocks_avx2(uint32_t type_id)
{
    return block_kernel(type_id);
}
