/* Products of one to four inputs with sixteen whole rows on AVX-512, for the formats of points of eight columns: IQ1
 * and IQ2 (IQ2_XXS and IQ2_XS where direct_grid_avx512.c cannot be used). The sums are those of blocks_products.inc, to
 * the bit; model/quant/iq.c has the layouts.
 *
 * A grid is a table that holds each point as eight bytes in the order of its columns, so that the weights of 64 columns
 * of a row are eight loads, by indices that the processor takes one by one. Gathering loads no fewer, and AMD takes
 * many instructions for it.
 *
 *     weights        eight points of row r    x   input, with signs    =>  sixteen sums of four columns
 *     `across`       sixteen rows' sums                                =>  four sums of sixteen columns, rows in lanes
 *
 * Indices, scales and bits are prepared for a block of all rows (struct block): a load that follows the store it reads
 * from at once waits for it.
 *
 * Threads: any; nothing here has state. */
#include <string.h>

#include "base/check.h"
#include "cpu/levels/avx512/load_points_avx512.h"
#include "cpu/levels/avx512/rows_avx512.h"
#include "cpu/levels/avx2/signs_avx2.h"
#include "model/quant/points.h"

enum { STRIPS = 8, POINTS = 32 };

/* ---- Points ---- */

/* IQ2: the levels 8 25 43. IQ1, in eighths: 8 times -1 0 1, plus 1, and 16 too large: 9 17 25. */
#define POINT_IQ2(p) RN_POINT_BYTES(p, 8, 17, 1)
#define POINT_IQ1(p) RN_POINT_BYTES(p, 9, 8, 0)

static const uint64_t grid_iq2_xxs[256] = {RN_GRID_IQ2_XXS(POINT_IQ2)};
static const uint64_t grid_iq2_xs[512] = {RN_GRID_IQ2_XS(POINT_IQ2)};
static const uint64_t grid_iq2_s[1024] = {RN_GRID_IQ2_S(POINT_IQ2)};
static const uint64_t grid_iq1[2048] = {RN_GRID_IQ1_S(POINT_IQ1)};

/* Half of the indices are taken out of one word: all as loads, or all by shifts, would be more of either than the
 * processor has in the time. */
INLINE VI eight_points(const uint64_t *grid, const uint16_t *index)
{
    __m256i low, high = four_points(grid, index[4], index[5], index[6], index[7]);
    uint64_t four;

    memcpy(&four, index, sizeof four);
    low = four_points(grid, four & 0xffff, four >> 16 & 0xffff, four >> 32 & 0xffff, four >> 48);
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

/* ---- What is prepared for a block ---- */

struct block {
    _Alignas(64) uint16_t index[ROWS][POINTS];
    VF scales[2 * STRIPS];
    __mmask16 lower_strips[STRIPS];  /* IQ1_S: the rows whose weights are 2 less */
    uint8_t lower[ROWS][POINTS / 8]; /* IQ1_M: likewise, a bit for each point */
    uint8_t signs[ROWS][POINTS];     /* IQ2_XXS, IQ2_XS: a bit for each column */
};

INLINE uint64_t word64(const uint8_t *p)
{
    uint64_t x;

    memcpy(&x, p, sizeof x);
    return x;
}

/* Byte i / each of eight in the low byte of word i. */
INLINE VI bytes_spread(const uint8_t *p, uint32_t each)
{
    _Alignas(64) uint8_t index[64];
    uint32_t i;

    UNROLL
    for (i = 0; i < 64; i++)
        index[i] = (uint8_t)(i % 2 == 0 ? i / 2 / each : 128);
    return _mm512_shuffle_epi8(_mm512_set1_epi64((long long)word64(p)), _mm512_load_si512(index));
}

/* low bytes, and the bits of `high` that are in `mask` */
INLINE void put_indices(uint16_t *index, const uint8_t *low, VI high, int mask)
{
    _mm512_store_si512(index, _mm512_or_si512(_mm512_cvtepu8_epi16(load32(low)),
                                              _mm512_and_si512(high, _mm512_set1_epi16((short)mask))));
}

/* Eight times four indices, four times seven signs and a scale of four bits. */
INLINE void prepare_iq2_xxs(struct block *block, struct rows w)
{
    VF d = first_half(w, 0.25f);
    uint32_t r, i;
    VI v[4], x;

    UNROLL
    for (i = 0; i < STRIPS; i++) {
        if (i % 2 == 0)
            columns(w, 2 + 8 * i, v);
        block->scales[i] = scale_of(_mm512_srli_epi32(v[2 * (i % 2) + 1], 28), 1, 0.5f, d);
    }
    UNROLL
    for (r = 0; r < ROWS; r++) {
        x = _mm512_loadu_si512(row(w, r) + 2);
        _mm512_store_si512(block->index[r], _mm512_cvtepu8_epi16(_mm512_cvtepi64_epi32(x)));
        _mm256_store_si256((__m256i *)block->signs[r], even_signs(_mm512_cvtepi64_epi32(_mm512_srli_epi64(x, 32))));
    }
}

/* Sixteen scales of four bits in the end. */
INLINE void scales_last_8(struct block *block, struct rows w, uint32_t bytes)
{
    VF d = first_half(w, 0.25f);
    uint32_t i;
    VI v[4];

    columns(w, bytes - 16, v);
    UNROLL
    for (i = 0; i < 2 * STRIPS; i++)
        block->scales[i] = scale_of(bits_of(v[2 + i / 8], i % 8 * 4, 4), 1, 0.5f, d);
}

/* Words of nine bits of index and seven signs. */
INLINE void prepare_iq2_xs(struct block *block, struct rows w)
{
    uint32_t r;
    VI x;

    scales_last_8(block, w, 74);
    UNROLL
    for (r = 0; r < ROWS; r++) {
        x = _mm512_loadu_si512(row(w, r) + 2);
        _mm512_store_si512(block->index[r], _mm512_and_si512(x, _mm512_set1_epi16(511)));
        _mm256_store_si256((__m256i *)block->signs[r], even(_mm512_cvtepi16_epi8(_mm512_srli_epi16(x, 9))));
    }
}

/* Two high bits of an index from bit 2 k on of a byte for four. */
INLINE void prepare_iq2_s(struct block *block, struct rows w)
{
    uint32_t r;

    scales_last_8(block, w, 82);
    UNROLL
    for (r = 0; r < ROWS; r++)
        put_indices(block->index[r], row(w, r) + 2,
                    _mm512_mullo_epi16(bytes_spread(row(w, r) + 66, 4), _mm512_set1_epi64(0x0004001000400100)), 0x300);
}

/* A word for each strip: four times three high bits of indices, the scale, whether it is lower. */
INLINE void prepare_iq1_s(struct block *block, struct rows w)
{
    const VI four_times =
        _mm512_set_epi64(0x0f0e0f0e0f0e0f0e, 0x0d0c0d0c0d0c0d0c, 0x0b0a0b0a0b0a0b0a, 0x0908090809080908,
                         0x0706070607060706, 0x0504050405040504, 0x0302030203020302, 0x0100010001000100);
    VF d = first_half(w, 0.125f);
    uint32_t r, i;
    VI v[4], x;

    columns(w, 34, v);
    UNROLL
    for (i = 0; i < STRIPS; i++) {
        block->scales[i] = scale_of(bits_of(v[i / 2], 16 * (i % 2) + 12, 3), 2, 1, d);
        block->lower_strips[i] = _mm512_test_epi32_mask(v[i / 2], _mm512_set1_epi32((int)(0x8000u << 16 * (i % 2))));
    }
    UNROLL
    for (r = 0; r < ROWS; r++) {
        x = _mm512_shuffle_epi8(quarter4(row(w, r) + 34), four_times);
        put_indices(block->index[r], row(w, r) + 2,
                    _mm512_slli_epi16(_mm512_srlv_epi16(x, _mm512_set1_epi64(0x0009000600030000)), 8), 0x700);
    }
}

/* A nibble for each point: three high bits of the index, whether it is lower. Four words in the end: four scales of 3
 * bits and 4 bits of d each. */
INLINE void prepare_iq1_m(struct block *block, struct rows w)
{
    const __m128i fifteen = _mm_set1_epi8(15);
    __m128i even_ones, odd_ones;
    __m256i nibbles;
    __mmask32 lower;
    uint32_t r, i;
    VI v[4], half;
    VF d;

    columns(w, 40, v);
    half = _mm512_and_si512(_mm512_srli_epi32(v[2], 12), _mm512_set1_epi32(15));
    half = _mm512_or_si512(half, _mm512_and_si512(_mm512_srli_epi32(v[2], 24), _mm512_set1_epi32(0xf0)));
    half = _mm512_or_si512(half, _mm512_and_si512(_mm512_srli_epi32(v[3], 4), _mm512_set1_epi32(0xf00)));
    half = _mm512_or_si512(half, _mm512_and_si512(_mm512_srli_epi32(v[3], 16), _mm512_set1_epi32(0xf000)));
    d = _mm512_mul_ps(low_halves(half), _mm512_set1_ps(0.125f));
    UNROLL
    for (i = 0; i < 2 * STRIPS; i++)
        block->scales[i] = scale_of(bits_of(v[2 + i / 8], 16 * (i % 8 / 4) + 3 * (i % 4), 3), 2, 1, d);
    UNROLL
    for (r = 0; r < ROWS; r++) {
        even_ones = _mm_and_si128(load16(row(w, r) + 32), fifteen);
        odd_ones = _mm_and_si128(_mm_srli_epi16(load16(row(w, r) + 32), 4), fifteen);
        nibbles = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_unpacklo_epi8(even_ones, odd_ones)),
                                          _mm_unpackhi_epi8(even_ones, odd_ones), 1);
        lower = _mm256_movepi8_mask(_mm256_slli_epi16(nibbles, 4));
        memcpy(block->lower[r], &lower, sizeof block->lower[r]);
        put_indices(block->index[r], row(w, r), _mm512_slli_epi16(_mm512_cvtepu8_epi16(nibbles), 8), 0x700);
    }
}

/* ---- Sums ---- */

/* The sums of an input, as rows are met one after the other. A dword of a row is four products, 43 * 127 each at most,
 * so that it fits into a word. */
struct sums {
    VI one, two, of[4]; /* quarter k of `of[g]`: the sums k of the rows 4 g, ..., 4 g + 3 */
};

INLINE void join(struct sums *sums, uint32_t r, VI v)
{
    if (r % 2 == 0)
        sums->one = v;
    else if (r % 4 == 1)
        sums->two = packed_sums(sums->one, v);
    else
        sums->of[r / 4] = wide_sums(sums->two, packed_sums(sums->one, v));
}

/* ---- Blocks ---- */

/* A constant to the compiler, as the number of inputs is. */
struct shape {
    const uint64_t *grid;
    uint32_t bytes;    /* of a block */
    uint32_t n_scales; /* of 32 columns */
    enum { LOWER_STRIPS, LOWER, SIGNS_PREPARED, SIGNS_THERE } kind;
    uint32_t signs_at; /* SIGNS_THERE: in the file's block, a bit for each column */
};

INLINE bool has_signs(struct shape f)
{
    return f.kind == SIGNS_PREPARED || f.kind == SIGNS_THERE;
}

/* What the sums of a strip, or of half k of it, begin with. Weights of IQ1 are 16 too large, and 18 where they are
 * lower. */
INLINE VI begin_of(const struct rn_line *y, uint32_t k, __mmask16 lower, struct shape f)
{
    VI first;

    if (has_signs(f))
        return begin(y);
    first = start(y, f.n_scales == 2 ? y->start16[k] : y->start, 3);
    if (f.kind == LOWER_STRIPS)
        first = _mm512_mask_sub_epi32(first, lower, first, _mm512_set1_epi32((rn_line_begin(y) - y->start) / 64));
    return first;
}

/* The two strips from number 2 h on join acc. */
INLINE VF add_strips(VF acc, VI *of, const struct block *block, uint32_t h, const struct rn_line *y, struct shape f)
{
    uint32_t k, s;
    VI sum;

    across(of);
    UNROLL
    for (k = 0; k < 2 * f.n_scales; k++) {
        s = 2 * h + k / f.n_scales;
        sum = f.n_scales == 2 ? of[k] : _mm512_add_epi32(of[2 * k], of[2 * k + 1]);
        sum = _mm512_add_epi32(sum, begin_of(&y[s], k % 2, block->lower_strips[s], f));
        acc = add_product(acc, sum, &y[s], block->scales[2 * f.n_scales * h + k]);
    }
    return acc;
}

/* x, and -x where the 64 columns have a sign. */
INLINE VI with_signs(VI x, const struct block *block, struct rows w, uint32_t r, uint32_t h, struct shape f)
{
    if (!has_signs(f))
        return x;
    return _mm512_mask_sub_epi8(
        x, word64(f.kind == SIGNS_THERE ? row(w, r) + f.signs_at + 8 * h : block->signs[r] + 8 * h),
        _mm512_setzero_si512(), x);
}

/* The two strips from number 2 h on, of all rows and inputs. */
INLINE void two_strips(VF *acc, const struct block *block, struct rows w, uint32_t h, const struct rn_line *const *y,
                       uint32_t n, struct shape f)
{
    struct sums sums[RN_POINTS_AVX512];
    VI x[RN_POINTS_AVX512], weights;
    uint32_t r, i;

    for (i = 0; i < n; i++)
        x[i] = _mm512_inserti64x4(_mm512_castsi256_si512(load32(y[i][2 * h].q)), load32(y[i][2 * h + 1].q), 1);
    UNROLL
    for (r = 0; r < ROWS; r++) {
        weights = eight_points(f.grid, block->index[r] + 8 * h);
        if (f.kind == LOWER)
            weights =
                _mm512_mask_sub_epi64(weights, block->lower[r][h], weights, bytes(2)); /* no byte is less than 2 */
        for (i = 0; i < n; i++)
            join(&sums[i], r, dot(_mm512_setzero_si512(), weights, with_signs(x[i], block, w, r, h, f)));
    }
    for (i = 0; i < n; i++)
        acc[i] = add_strips(acc[i], sums[i].of, block, h, y[i], f);
}

INLINE void some_inputs(const struct rn_matmul *m, void (*prepare)(struct block *, struct rows), struct shape f,
                        uint32_t n)
{
    const struct rn_line *y[RN_POINTS_AVX512];
    struct rows w = rows_of(m);
    VF acc[RN_POINTS_AVX512];
    struct block block;
    uint32_t b, h, i;

    for (i = 0; i < n; i++) {
        y[i] = m->inputs[i];
        acc[i] = _mm512_setzero_ps();
    }
    for (b = 0; b < m->cols / 256; b++, w.p += f.bytes) {
        ahead(w, (f.bytes + 63) / 64);
        prepare(&block, w);
        for (h = 0; h < STRIPS / 2; h++)
            two_strips(acc, &block, w, h, y, n, f);
        for (i = 0; i < n; i++)
            y[i] += STRIPS;
    }
    store_inputs(m, acc, n);
}

#define EXPORT(name, ...)                                                   \
    void rn_points_##name##_avx512(const struct rn_matmul *m)               \
    {                                                                       \
        static const struct shape f = {__VA_ARGS__};                        \
                                                                            \
        RN_CHECK(m->n >= 1 && m->n <= RN_POINTS_AVX512 && m->rows == ROWS); \
        switch (m->n) {                                                     \
        case 1:                                                             \
            some_inputs(m, prepare_##name, f, 1);                           \
            break;                                                          \
        case 2:                                                             \
            some_inputs(m, prepare_##name, f, 2);                           \
            break;                                                          \
        case 3:                                                             \
            some_inputs(m, prepare_##name, f, 3);                           \
            break;                                                          \
        default:                                                            \
            some_inputs(m, prepare_##name, f, 4);                           \
        }                                                                   \
    }
EXPORT(iq2_xxs, grid_iq2_xxs, 66, 1, SIGNS_PREPARED, 0)
EXPORT(iq2_xs, grid_iq2_xs, 74, 2, SIGNS_PREPARED, 0)
EXPORT(iq2_s, grid_iq2_s, 82, 2, SIGNS_THERE, 34)
EXPORT(iq1_s, grid_iq1, 50, 1, LOWER_STRIPS, 0)
EXPORT(iq1_m, grid_iq1, 56, 2, LOWER, 0)
