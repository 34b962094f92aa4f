/* The AVX2 level's products of the block formats: vectors of eight rows, tiles of sixteen.
 *
 * maddubs multiplies an unsigned by a signed byte and adds pairs into 16 bits. As |input| <= 127, `run`
 * groups of a format's bytes fit into a 16-bit sum before it is widened: 2 run 127 byte <= 32767. Bytes
 * that need all eight bits (run 0) are multiplied as magnitudes, their signs moved to the input:
 * 2 * 128 * 127 = 32512. */
#include <immintrin.h>
#include <string.h>

#include "cpu/levels_x86.h"
#include "model/quant_grids.h"
#include "model/quant_types.h"

#define INLINE static inline __attribute__((always_inline))

typedef __m256i VI;
typedef __m256 VF;

#define vf_set1 _mm256_set1_ps
#define vf_zero _mm256_setzero_ps
#define vf_fma _mm256_fmadd_ps
#define vf_fms _mm256_fmsub_ps
#define vf_cast _mm256_castsi256_ps

#define AT_ONCE 4
enum { LANES = 8, ROWS = 16, GROUP = ROWS * 4, WIDE = 0, AHEAD = 512, PACK_FROM = 2 };

#define PANEL_OFFSET(f) offset(f)
#define ONES _mm256_set1_epi16(1)

INLINE VF vf_load(const void *p)
{
    return _mm256_load_ps((const float *)p);
}

INLINE void store_lanes(float *out, VF v, uint32_t rows)
{
    float eight[8];

    if (rows >= LANES) {
        _mm256_storeu_ps(out, v);
        return;
    }
    _mm256_storeu_ps(eight, v);
    memcpy(out, eight, rows * sizeof *out);
}

INLINE __m256i bits_mask(uint32_t word)
{
    const __m256i spread = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201);
    __m256i v = _mm256_shuffle_epi8(_mm256_set1_epi32((int32_t)word), spread);

    return _mm256_cmpeq_epi8(_mm256_and_si256(v, bit), bit);
}

INLINE __m256i dot(__m256i w, __m256i q, uint32_t run)
{
    if (run > 0)
        return _mm256_madd_epi16(_mm256_maddubs_epi16(w, q), ONES);
    return _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(q, w)), ONES);
}

#include "cpu/blocks_unpack.inc"
#include "cpu/blocks_grid.inc"

/* The line's start, with 128 times the sum made `offset` times. */
INLINE __m256i start(const struct rn_line *y, uint32_t s, struct format f)
{
    int32_t begin = f.n_scales == 2 ? y->start16[s] : y->start;
    int shift = f.run == 8 ? 4 : f.run == 4 ? 3 : f.run == 2 ? 2 : 1;

    if (offset(f) == 0)
        return _mm256_set1_epi32(RN_MAGIC_BITS);
    return _mm256_add_epi32(_mm256_srai_epi32(_mm256_set1_epi32(begin), shift),
                            _mm256_set1_epi32(RN_MAGIC_BITS - (RN_MAGIC_BITS >> shift)));
}

INLINE __m256i broadcast4(const void *p)
{
    return _mm256_set1_epi32((int32_t)u32_at(p));
}

/* The sums of the groups of one scale, inputs [0, n). */
INLINE void quads(VI part[][2], const uint8_t *panel, const struct rn_line *const *y, size_t b, uint32_t s, uint32_t n,
                  struct format f)
{
    uint32_t groups = 8 / f.n_scales, run = f.run == 0 ? 1 : f.run < groups ? f.run : groups, g, k, i, v;
    VI sum[AT_ONCE][2], w[2], x;

    for (i = 0; i < n; i++)
        part[i][0] = part[i][1] = start(&y[i][b], s, f);
    for (g = s * groups; g < (s + 1) * groups; g += run) {
        for (k = 0; k < run; k++) {
            w[0] = load256(panel + (g + k) * GROUP);
            w[1] = load256(panel + (g + k) * GROUP + GROUP / 2);
            for (i = 0; i < n; i++) {
                x = broadcast4(y[i][b].q + 4 * (g + k));
                for (v = 0; v < 2; v++) {
                    if (f.run == 0)
                        part[i][v] = _mm256_add_epi32(part[i][v], dot(w[v], x, 0));
                    else if (k == 0)
                        sum[i][v] = _mm256_maddubs_epi16(w[v], x);
                    else
                        sum[i][v] = _mm256_add_epi16(sum[i][v], _mm256_maddubs_epi16(w[v], x));
                }
            }
        }
        for (i = 0; i < n && f.run > 0; i++)
            for (v = 0; v < 2; v++)
                part[i][v] = _mm256_add_epi32(part[i][v], _mm256_madd_epi16(sum[i][v], ONES));
    }
}

#define SHAPE(scales, minima, run) packed_##scales##minima##_##run
#define SHAPES(X) \
    X(1, 0, 8) X(1, 0, 4) X(1, 0, 1) X(1, 0, 0) X(1, 1, 8) X(1, 1, 4) X(2, 0, 8) X(2, 0, 4) X(2, 0, 2) X(2, 0, 1) X(2, 2, 8)

#include "cpu/blocks_products.inc"

const struct rn_kernel *rn_blocks_avx2(uint32_t type_id)
{
    return block_kernel(type_id);
}
