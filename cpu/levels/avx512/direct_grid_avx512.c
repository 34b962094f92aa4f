/* Products of one to a few inputs with sixteen whole rows on AVX-512 with VBMI and GFNI, for the formats of points
 * whose grid fits into registers: IQ2_XXS, IQ2_XS, IQ3 (others: direct_points_avx512.c). The sums are those of
 * blocks_products.inc, to the bit; model/quant/iq.c has the layouts.
 *
 * A block of 256 columns has 32 points of eight columns (IQ3: 64 of four). Their indices are looked up together, those
 * of rows r and r + 8 in one register, and stay where they are: what comes out is not points but fields of
 * all points, and the inputs are brought into that order once for sixteen rows:
 *
 *     byte p of weights f      field f of point p (row r), of point p - 32 (row r + 8)
 *     byte p of inputs f       column 8 p + f, likewise
 *
 * Bytes of 0..7 bits beside a point, its signs, are masks in this order: sign f of all points is one test. A dword of
 * the sum has four points of one row: 32 columns, which is a strip, or by halves two scales of 16 columns.
 * `turn` makes lanes of rows out of registers of rows.
 *
 * Threads: any; nothing here has state. */
#include <string.h>

#include "base/check.h"
#include "cpu/levels/avx512/points_avx512.h"
#include "cpu/levels/avx512/rows_avx512.h"
#include "model/quant/grids.h"

enum { PAIRS = ROWS / 2, STRIPS = 8, PLANES = 8 };

/* ---- Inputs ---- */

/* Of 128 bytes those in places `first` of every `step`, then those in the places behind, until there are 64. */
INLINE VI fields_of(VI a, VI b, uint32_t step, uint32_t first)
{
    _Alignas(64) uint8_t index[64];
    uint32_t each = 128 / step, i;

    UNROLL
    for (i = 0; i < 64; i++)
        index[i] = (uint8_t)(i % each * step + first + i / each);
    return _mm512_permutex2var_epi8(a, _mm512_load_si512(index), b);
}

INLINE VI two_lines(const struct rn_line *y)
{
    return two_rows(load32(y[0].q), load32(y[1].q));
}

/* Inputs by fields, eight columns to a point; twice, for two rows. */
INLINE void planes_of_8(const struct rn_line *y, VI *planes)
{
    VI a = two_lines(y), b = two_lines(y + 2), c = two_lines(y + 4), d = two_lines(y + 6), v[2], w[2];
    const VI pairs = _mm512_set_epi64(9, 8, 1, 0, 9, 8, 1, 0);
    uint32_t f;

    UNROLL
    for (f = 0; f < 2; f++) {
        v[f] = fields_of(a, b, 8, 4 * f);
        w[f] = fields_of(c, d, 8, 4 * f);
    }
    UNROLL
    for (f = 0; f < PLANES; f++)
        planes[f] =
            _mm512_permutex2var_epi64(v[f / 4], _mm512_add_epi64(pairs, _mm512_set1_epi64(2 * (f % 4))), w[f / 4]);
}

/* Four columns to a point, one row. */
INLINE void planes_of_4(const struct rn_line *y, VI *planes)
{
    VI a = two_lines(y), b = two_lines(y + 2), c = two_lines(y + 4), d = two_lines(y + 6), v, w;
    uint32_t f;

    UNROLL
    for (f = 0; f < 4; f += 2) {
        v = fields_of(a, b, 4, f);
        w = fields_of(c, d, 4, f);
        planes[f] = lower(v, w);
        planes[f + 1] = upper(v, w);
    }
}

/* ---- Sums ---- */

/* v[i]: strips of row i, then of row i + 8 -> v[s]: strip s of all rows. */
INLINE void turn(VI *v)
{
    const VI even_quarters = _mm512_set_epi64(13, 12, 5, 4, 9, 8, 1, 0);
    const VI odd_quarters = _mm512_set_epi64(15, 14, 7, 6, 11, 10, 3, 2);
    VI t[8], u[8];
    uint32_t i;

    UNROLL
    for (i = 0; i < 8; i += 2) {
        t[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    }
    UNROLL
    for (i = 0; i < 8; i += 4) {
        u[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        u[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        u[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        u[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    UNROLL
    for (i = 0; i < 4; i++) {
        v[i] = _mm512_permutex2var_epi64(u[i], even_quarters, u[i + 4]);
        v[i + 4] = _mm512_permutex2var_epi64(u[i], odd_quarters, u[i + 4]);
    }
}

INLINE VI minus_where(__mmask64 where, VI v)
{
    return _mm512_mask_sub_epi8(v, where, _mm512_setzero_si512(), v);
}

/* Levels of two bits: those of the lower field of a nibble, of the upper one. */
struct levels2 {
    VI lower, upper;
};

INLINE struct levels2 make_levels2(int a, int b, int c)
{
    _Alignas(16) int8_t lower_of[16], upper_of[16];
    const int8_t level[4] = {(int8_t)a, (int8_t)b, (int8_t)c, 0};
    uint32_t i;

    UNROLL
    for (i = 0; i < 16; i++) {
        lower_of[i] = level[i % 4];
        upper_of[i] = level[i / 4];
    }
    return (struct levels2){_mm512_broadcast_i32x4(_mm_load_si128((const __m128i *)lower_of)),
                            _mm512_broadcast_i32x4(_mm_load_si128((const __m128i *)upper_of))};
}

/* Field f of eight of two bits. */
INLINE VI field2(struct points points, uint32_t f, struct levels2 levels)
{
    VI v = f < 4 ? points.low : points.high;

    v = f % 4 < 2 ? low_nibbles(v) : high_nibbles(v);
    return _mm512_shuffle_epi8(f % 2 == 0 ? levels.lower : levels.upper, v);
}

/* Adds words to dwords: the even ones to sums[0], the odd ones to sums[1]. */
INLINE void add_words(VI *sums, VI words)
{
    sums[0] = _mm512_dpwssd_epi32(sums[0], words, _mm512_set1_epi32(1));
    sums[1] = _mm512_dpwssd_epi32(sums[1], words, _mm512_set1_epi32(0x10000));
}

/* What a few inputs have of a block. How many they are, n below, is a constant to the compiler. */
struct block_of {
    const struct rn_line *y[RN_FEW_AVX512]; /* of its first strip */
    VI planes[RN_FEW_AVX512][PLANES];
};

INLINE void zero(VI *v, uint32_t n)
{
    uint32_t i;

    UNROLL
    for (i = 0; i < n; i++)
        v[i] = _mm512_setzero_si512();
}

/* The sums of 32 columns, of each input. */
INLINE void signed_sums(VI *sums, struct points points, VI signs, const struct block_of *of, uint32_t n,
                        struct levels2 levels)
{
    __mmask64 minus;
    uint32_t f, i;
    VI field;

    zero(sums, n);
    UNROLL
    for (f = 0; f < PLANES; f++) {
        field = field2(points, f, levels);
        minus = _mm512_test_epi8_mask(signs, bytes(1 << f));
        UNROLL
        for (i = 0; i < n; i++)
            sums[i] = dot(sums[i], field, minus_where(minus, of->planes[i][f]));
    }
}

/* The sums of 16 columns, of each input two; three products of two times 43 and 127 fit into a word. */
INLINE void signed_halves(VI (*sums)[2], struct points points, VI signs, const struct block_of *of, uint32_t n,
                          struct levels2 levels)
{
    VI words[RN_FEW_AVX512], product, field;
    __mmask64 minus;
    uint32_t f, i;

    UNROLL
    for (i = 0; i < n; i++)
        zero(sums[i], 2);
    UNROLL
    for (f = 0; f < PLANES; f++) {
        field = field2(points, f, levels);
        minus = _mm512_test_epi8_mask(signs, bytes(1 << f));
        UNROLL
        for (i = 0; i < n; i++) {
            product = _mm512_maddubs_epi16(field, minus_where(minus, of->planes[i][f]));
            words[i] = f % 3 == 0 ? product : _mm512_add_epi16(words[i], product);
            if (f % 3 == 2 || f + 1 == PLANES)
                add_words(sums[i], words[i]);
        }
    }
}

INLINE void all_planes_of_8(struct block_of *of, uint32_t n)
{
    uint32_t i;

    for (i = 0; i < n; i++)
        planes_of_8(of->y[i], of->planes[i]);
}

INLINE void all_planes_of_4(struct block_of *of, uint32_t n)
{
    uint32_t i;

    for (i = 0; i < n; i++)
        planes_of_4(of->y[i], of->planes[i]);
}

/* ---- Strips ---- */

INLINE VF add_sum(VF acc, VI sum, const struct rn_line *y, VF scale)
{
    return add_product(acc, _mm512_add_epi32(sum, begin(y)), y, scale);
}

/* The sums of pair i of rows, which signed_halves leaves. */
INLINE void keep_halves(VI (*sums)[2][STRIPS], uint32_t i, VI (*halves)[2], uint32_t n)
{
    uint32_t k;

    UNROLL
    for (k = 0; k < n; k++) {
        sums[k][0][i] = halves[k][0];
        sums[k][1][i] = halves[k][1];
    }
}

/* The strips of all inputs join acc; `scales` of each strip. */
INLINE void add_strips(VF *acc, VI (*sums)[STRIPS], const struct block_of *of, uint32_t n, const VF *scales)
{
    uint32_t i, s;

    for (i = 0; i < n; i++) {
        turn(sums[i]);
        UNROLL
        for (s = 0; s < STRIPS; s++)
            acc[i] = add_sum(acc[i], sums[i][s], &of->y[i][s], scales[s]);
    }
}

/* Strips of two halves whose scales are sixteen nibbles. */
INLINE void add_halves(VF *acc, VI (*sums)[2][STRIPS], const struct block_of *of, uint32_t n, const VI *nibbles, VF d)
{
    VF scales[2 * STRIPS];
    uint32_t i, k;

    UNROLL
    for (k = 0; k < 2 * STRIPS; k++)
        scales[k] = scale_of(bits_of(nibbles[k / 8], k % 8 * 4, 4), 1, 0.5f, d);
    for (i = 0; i < n; i++) {
        turn(sums[i][0]);
        turn(sums[i][1]);
        UNROLL
        for (k = 0; k < 2 * STRIPS; k++)
            acc[i] = add_sum(acc[i], sums[i][k % 2][k / 2], &of->y[i][k / 2], scales[k]);
    }
}

/* Asks for lines of rows i and i + 8, some way on (rn_matmul.step). For all rows at once, before the pairs, it cost a
 * tenth. */
INLINE void ahead_pair(struct rows w, uint32_t i, uint32_t lines)
{
    uint32_t k;

    UNROLL
    for (k = 0; k < lines; k++) {
        _mm_prefetch((const char *)row(w, i) + RN_STREAM_AHEAD + 64 * k, _MM_HINT_T1);
        _mm_prefetch((const char *)row(w, i + 8) + RN_STREAM_AHEAD + 64 * k, _MM_HINT_T1);
    }
}

/* ---- IQ2 ---- */

#define LEVELS_IQ2 make_levels2(8, 25, 43)

/* Eight times four indices, four times seven signs and a nibble. */
INLINE void iq2_xxs_block(VF *acc, struct rows w, struct block_of *of, uint32_t n, const struct table *table)
{
    const VI pick = _mm512_set1_epi64(0x352e272018100800); /* bits 0, 8, 16, 24; 32, 39, 46, 53 */
    _Alignas(64) static const uint8_t low4[64] = {
#define EIGHT(x) x, x + 1, x + 2, x + 3, x + 8, x + 9, x + 10, x + 11
        EIGHT(0),  EIGHT(16), EIGHT(32), EIGHT(48), EIGHT(64),
        EIGHT(80), EIGHT(96), EIGHT(112)
#undef EIGHT
    };
    const VI first = _mm512_load_si512(low4);
    const struct levels2 levels = LEVELS_IQ2;
    VI sums[RN_FEW_AVX512][STRIPS], of_pair[RN_FEW_AVX512], codes[STRIPS], a, b, signs;
    VF d = first_half(w, 0.25f), scales[STRIPS];
    uint32_t i, k;

    all_planes_of_8(of, n);
    for (i = 0; i < PAIRS; i++) {
        ahead_pair(w, i, 1);
        a = _mm512_loadu_si512(row(w, i) + 2);
        b = _mm512_loadu_si512(row(w, i + 8) + 2);
        codes[i] =
            two_rows(_mm512_cvtepi64_epi32(_mm512_srli_epi64(a, 60)), _mm512_cvtepi64_epi32(_mm512_srli_epi64(b, 60)));
        a = _mm512_multishift_epi64_epi8(pick, a);
        b = _mm512_multishift_epi64_epi8(pick, b);
        signs = even(_mm512_permutex2var_epi8(a, _mm512_add_epi8(first, bytes(4)), b));
        signed_sums(of_pair, points_of_256(table, _mm512_permutex2var_epi8(a, first, b)), signs, of, n, levels);
        UNROLL
        for (k = 0; k < n; k++)
            sums[k][i] = of_pair[k];
    }
    turn(codes);
    UNROLL
    for (i = 0; i < STRIPS; i++)
        scales[i] = scale_of(codes[i], 1, 0.5f, d);
    add_strips(acc, sums, of, n, scales);
}

/* Words of nine bits of index and seven signs. */
INLINE void iq2_xs_block(VF *acc, struct rows w, struct block_of *of, uint32_t n, const struct table *table)
{
    const struct levels2 levels = LEVELS_IQ2;
    VI sums[RN_FEW_AVX512][2][STRIPS], halves[RN_FEW_AVX512][2], nibbles[4], a, b, signs;
    VF d = first_half(w, 0.25f);
    __mmask64 ninth;
    uint32_t i;

    all_planes_of_8(of, n);
    columns(w, 74 - 16, nibbles);
    for (i = 0; i < PAIRS; i++) {
        ahead_pair(w, i, 1);
        a = _mm512_loadu_si512(row(w, i) + 2);
        b = _mm512_loadu_si512(row(w, i + 8) + 2);
        ninth = _mm512_kunpackd(_mm512_test_epi16_mask(b, _mm512_set1_epi16(256)),
                                _mm512_test_epi16_mask(a, _mm512_set1_epi16(256)));
        signs = even(every(_mm512_srli_epi16(a, 9), _mm512_srli_epi16(b, 9), 2, 0));
        signed_halves(halves, points_of_512(table, every(a, b, 2, 0), ninth), signs, of, n, levels);
        keep_halves(sums, i, halves, n);
    }
    add_halves(acc, sums, of, n, nibbles + 2, d);
}

/* ---- IQ3: 64 points of four columns ---- */

INLINE VI levels3(int a, int b, int c, int d, int e, int f, int g, int h)
{
    return quarter4(
        (const int8_t[16]){(int8_t)a, (int8_t)b, (int8_t)c, (int8_t)d, (int8_t)e, (int8_t)f, (int8_t)g, (int8_t)h});
}

/* The sums of 16 columns of one row, of each input. signs: a byte for each eight columns. */
INLINE void sums3(VI *sums, struct points points, __m256i signs, const struct block_of *of, uint32_t n, VI levels)
{
    VI twice = _mm512_permutexvar_epi64(_mm512_set_epi64(3, 3, 2, 2, 1, 1, 0, 0), _mm512_castsi256_si512(signs)), v;
    __mmask64 minus;
    uint32_t f, i;

    twice = _mm512_unpacklo_epi8(twice, twice);
    zero(sums, n);
    UNROLL
    for (f = 0; f < 4; f++) {
        v = f < 2 ? points.low : points.high;
        v = _mm512_shuffle_epi8(levels, f % 2 == 0 ? low_nibbles(v) : high_nibbles(v));
        minus = _mm512_test_epi8_mask(twice, _mm512_set1_epi16((short)(0x1001 << f)));
        UNROLL
        for (i = 0; i < n; i++)
            sums[i] = dot(sums[i], v, minus_where(minus, of->planes[i][f]));
    }
}

/* Sums of 16 columns of two rows -> strips of one row, then of the other. */
INLINE VI strips_of(VI a, VI b)
{
    return _mm512_permutexvar_epi64(_mm512_set_epi64(7, 5, 3, 1, 6, 4, 2, 0), wide_sums(a, b));
}

/* The sums of pair i of rows, of each of the two rows by sums3. */
INLINE void keep_strips(VI (*sums)[STRIPS], uint32_t i, VI (*part)[RN_FEW_AVX512], uint32_t n)
{
    uint32_t k;

    UNROLL
    for (k = 0; k < n; k++)
        sums[k][i] = strips_of(part[0][k], part[1][k]);
}

/* Signs of two strips in each qword: four times seven, and a nibble. */
INLINE __m256i iq3_xxs_signs(__m256i words)
{
    const __m256i pick = _mm256_set1_epi64x(0x352e2720150e0700); /* bits 0, 7, 14, 21; 32, 39, 46, 53 */

    return _mm256_gf2p8affine_epi64_epi8(_mm256_multishift_epi64_epi8(pick, words),
                                         _mm256_set1_epi64x(0x010204081020407f), 0);
}

INLINE void iq3_xxs_block(VF *acc, struct rows w, struct block_of *of, uint32_t n, const struct table *table)
{
    const VI levels = levels3(4, 12, 20, 28, 36, 44, 52, 62);
    VI sums[RN_FEW_AVX512][STRIPS], codes[STRIPS], part[2][RN_FEW_AVX512];
    VF d = first_half(w, 0.5f), scales[STRIPS];
    __m256i words[2];
    const uint8_t *p;
    uint32_t i, h;

    all_planes_of_4(of, n);
    for (i = 0; i < PAIRS; i++) {
        ahead_pair(w, i, 2);
        UNROLL
        for (h = 0; h < 2; h++) {
            p = row(w, i + 8 * h);
            words[h] = load32(p + 66);
            sums3(part[h], points_of_256(table, _mm512_loadu_si512(p + 2)), iq3_xxs_signs(words[h]), of, n, levels);
        }
        keep_strips(sums, i, part, n);
        codes[i] = _mm512_srli_epi32(two_rows(words[0], words[1]), 28);
    }
    turn(codes);
    UNROLL
    for (i = 0; i < STRIPS; i++)
        scales[i] = scale_of(codes[i], 1, 0.5f, d);
    add_strips(acc, sums, of, n, scales);
}

INLINE void iq3_s_block(VF *acc, struct rows w, struct block_of *of, uint32_t n, const struct table *table)
{
    const VI levels = levels3(1, 3, 5, 7, 9, 11, 13, 15);
    VI sums[RN_FEW_AVX512][STRIPS], part[2][RN_FEW_AVX512], last[4];
    VF d = first_half(w, 1), scales[STRIPS];
    const uint8_t *p;
    uint64_t ninth;
    uint32_t i, h;

    all_planes_of_4(of, n);
    columns(w, 110 - 16, last);
    for (i = 0; i < PAIRS; i++) {
        ahead_pair(w, i, 2);
        UNROLL
        for (h = 0; h < 2; h++) {
            p = row(w, i + 8 * h);
            memcpy(&ninth, p + 66, sizeof ninth);
            sums3(part[h], points_of_512(table, _mm512_loadu_si512(p + 2), ninth), load32(p + 74), of, n, levels);
        }
        keep_strips(sums, i, part, n);
    }
    UNROLL
    for (i = 0; i < STRIPS; i++)
        scales[i] = scale_of(bits_of(last[3], 4 * i, 4), 2, 1, d);
    add_strips(acc, sums, of, n, scales);
}

/* ---- The formats ---- */

/* X(name, bytes of a block, points, what makes their table) */
#define GRIDS(X)                     \
    X(iq2_xxs, 66, 256, make_table)  \
    X(iq2_xs, 74, 512, make_table)   \
    X(iq3_xxs, 98, 256, make_table3) \
    X(iq3_s, 110, 512, make_table3)

#define EXPORT(name, size, points, make)                                                        \
    INLINE void name##_inputs(const struct rn_matmul *m, const struct table *table, uint32_t n) \
    {                                                                                           \
        struct rows w = rows_of(m);                                                             \
        struct block_of of;                                                                     \
        VF acc[RN_FEW_AVX512];                                                                  \
        uint32_t b, i;                                                                          \
                                                                                                \
        UNROLL                                                                                  \
        for (i = 0; i < n; i++) {                                                               \
            of.y[i] = m->inputs[i];                                                             \
            acc[i] = _mm512_setzero_ps();                                                       \
        }                                                                                       \
        for (b = 0; b < m->cols / 256; b++, w.p += size) {                                      \
            name##_block(acc, w, &of, n, table);                                                \
            UNROLL                                                                              \
            for (i = 0; i < n; i++)                                                             \
                of.y[i] += STRIPS;                                                              \
        }                                                                                       \
        store_inputs(m, acc, n);                                                                \
    }                                                                                           \
    void rn_direct_##name##_avx512(const struct rn_matmul *m)                                   \
    {                                                                                           \
        struct table table;                                                                     \
                                                                                                \
        make(&table, rn_grid_##name, points);                                                   \
        switch (m->n) {                                                                         \
            CASE(name, 1)                                                                       \
            CASE(name, 2)                                                                       \
            CASE(name, 3)                                                                       \
            CASE(name, 4)                                                                       \
            CASE(name, 5)                                                                       \
            CASE(name, 6)                                                                       \
            CASE(name, 7)                                                                       \
            CASE(name, 8)                                                                       \
        }                                                                                       \
        RN_CHECK(false);                                                                        \
    }
/* So many inputs are a constant to the compiler. */
#define CASE(name, n)                \
    case n:                          \
        if ((n) > RN_GRID_##name)    \
            break;                   \
        name##_inputs(m, &table, n); \
        return;
GRIDS(EXPORT)
