/* The AVX2 level's inputs and products of floats.
 *
 * Direct: four weight rows by up to three inputs, the weights as they stand in the file. */
#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "cpu/levels/floats_x86.h"
#include "cpu/levels/levels_x86.h"
#include "cpu/levels/lines.h"

#define INLINE static inline __attribute__((always_inline))

typedef __m256 VF;

#define vf_zero _mm256_setzero_ps
#define vf_fma _mm256_fmadd_ps
#define vf_load _mm256_load_ps
#define vf_store _mm256_store_ps
#define vf_eight _mm256_loadu_ps
#define vf_twice(v) (v)

#define WIDTH 3
#define OTHER const struct rn_kernel rn_other_avx2_kernel
enum { TILE = 4, VECTORS = 4, AHEAD = 1024, PACK_FLOATS_FROM = 8 };

/* ---- Quantising a row ---- */

/* See rn_line_scale. */
static inline __m256i larger_bits(__m256i most, const float *a)
{
    __m256i bits = _mm256_and_si256(_mm256_loadu_si256((const __m256i *)a), _mm256_set1_epi32(0x7fffffff));

    return _mm256_max_epi32(most, bits);
}

static inline float line_scale(__m256i most, float *inverse)
{
    __m128i four = _mm_max_epi32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));

    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0xb1));
    return rn_line_scale((uint32_t)_mm_cvtsi128_si32(four), inverse);
}

/* 32 values to bytes. With an inverse of 0 (a block of nothing, or with NaN) all are 0. */
static inline __m256i quantise32(const float *a, float inverse)
{
    __m256 k = _mm256_set1_ps(inverse);
    __m256i i0 = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(a), k)),
            i1 = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(a + 8), k));
    __m256i i2 = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(a + 16), k)),
            i3 = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(a + 24), k));
    __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(i0, i1), _mm256_packs_epi32(i2, i3));

    if (inverse == 0)
        return _mm256_setzero_si256();
    return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* Sums of the low and the high 16 bytes. */
static inline void sums16(__m256i q, int32_t *low, int32_t *high)
{
    __m256i four = _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), q), _mm256_set1_epi16(1));

    four = _mm256_add_epi32(four, _mm256_shuffle_epi32(four, 0x4e));
    four = _mm256_add_epi32(four, _mm256_shuffle_epi32(four, 0xb1));
    *low = _mm256_extract_epi32(four, 0);
    *high = _mm256_extract_epi32(four, 4);
}

void rn_quantise_lines_avx2(const float *a, void *out, uint32_t n)
{
    struct rn_line *y = out;
    int32_t low, high;
    float inverse, d;
    __m256i q, most;
    uint32_t i;

    for (; n >= 32; n -= 32, a += 32, y++) {
        most = _mm256_setzero_si256();
        for (i = 0; i < 32; i += 8)
            most = larger_bits(most, a + i);
        d = line_scale(most, &inverse);
        q = quantise32(a, inverse);
        _mm256_storeu_si256((__m256i *)y->q, q);
        sums16(q, &low, &high);
        rn_line_sums(y, d, low, high);
    }
}

/* ---- Direct products of floats ---- */

/* Up to four rows from `row` on, inputs [first, first + n); n, kind are constants. */
INLINE void direct_part(const struct rn_matmul *m, enum rn_float_kind kind, uint32_t row, uint32_t first, uint32_t n)
{
    size_t size = kind == RN_FLOAT_32 ? 4 : 2;
    uint32_t height = m->rows - row < TILE ? m->rows - row : TILE, r, c, i;
    __m256 acc[TILE][WIDTH], x[WIDTH], w;
    const uint8_t *rows[TILE];

    for (r = 0; r < TILE; r++) {
        rows[r] = m->weights + (size_t)(row + (r < height ? r : height - 1)) * m->step * m->row_bytes;
        for (c = 0; c < n; c++)
            acc[r][c] = _mm256_setzero_ps();
    }
    for (i = 0; i + 8 <= m->cols; i += 8) {
        for (c = 0; c < n; c++)
            x[c] = _mm256_loadu_ps((const float *)m->inputs[first + c] + i);
        for (r = 0; r < TILE; r++) {
            w = rn_eight_floats(rows[r] + i * size, kind);
            if (n == 1)
                _mm_prefetch((const char *)rows[r] + i * size + AHEAD, _MM_HINT_T0);
            for (c = 0; c < n; c++)
                acc[r][c] = _mm256_fmadd_ps(w, x[c], acc[r][c]);
        }
    }
    for (r = 0; r < TILE; r++) {
        for (c = 0; c < n; c++) {
            if (i < m->cols)
                acc[r][c] = _mm256_fmadd_ps(rn_floats_at(rows[r], kind, i, m->cols),
                                            rn_floats_at(m->inputs[first + c], RN_FLOAT_32, i, m->cols), acc[r][c]);
            if (r < height)
                m->out[first + c][(size_t)(row + r) * m->step] = rn_float_sum(acc[r][c]);
        }
    }
}

INLINE void direct(const struct rn_matmul *m, enum rn_float_kind kind)
{
    uint32_t row, i;

    for (row = 0; row < m->rows; row += TILE) {
        for (i = 0; i + WIDTH <= m->n; i += WIDTH)
            direct_part(m, kind, row, i, WIDTH);
        if (i + 2 == m->n)
            direct_part(m, kind, row, i, 2);
        else if (i + 1 == m->n)
            direct_part(m, kind, row, i, 1);
    }
}

void rn_direct_f32(const struct rn_matmul *m)
{
    direct(m, RN_FLOAT_32);
}

void rn_direct_f16(const struct rn_matmul *m)
{
    direct(m, RN_FLOAT_16);
}

void rn_direct_bf16(const struct rn_matmul *m)
{
    direct(m, RN_FLOAT_B16);
}

#include "cpu/levels/floats.inc"

const struct rn_kernel *rn_floats_avx2(uint32_t type_id)
{
    return float_kernel(type_id);
}
