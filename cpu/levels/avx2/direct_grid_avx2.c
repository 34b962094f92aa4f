/* Products of one input with eight whole rows on AVX2, for the formats of points: IQ1, IQ2, IQ3. The sums are those of
 * blocks_products.inc, to the bit; model/quant/iq.c has the layouts.
 *
 * A block of 256 columns has 32 points of eight columns (IQ3: 64 of four). The tables hold each point as bytes in the
 * order of its columns, so that the weights of 32 columns of a row are four loads (eight), by indices that the
 * processor reads one by one: gathering takes as many loads, and the fields of points would have to be set apart.
 *
 *     weights   |q| of 32 columns of row r           x   input, with the signs of row r      =>  eight sums of four
 *     `turn`    eight rows' eight sums each          =>  one sum of each row, or two of 16 columns
 *
 * What is a matter of indices, signs and scales is prepared for a block of all eight rows (struct block), because there
 * vectors serve several points or rows at once.
 *
 * Threads: any; nothing here has state. */
#include <immintrin.h>
#include <string.h>

#include "cpu/levels/levels_x86.h"
#include "cpu/levels/avx2/signs_avx2.h"
#include "model/quant/points.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

typedef __m256i VI;
typedef __m256 VF;

enum { ROWS = 8, STRIPS = 8 };

/* ---- Points ---- */

#define EACH RN_EACH_BYTE

/* The levels 8 25 43; 4 12 20 28 36 44 52 62; 1 3 .. 15; and of IQ1 8 times 0 1 2. */
#define IQ2(p) RN_POINT_BYTES(p, 8, 17, 1)
#define IQ3_XXS(p) RN_POINT3_BYTES(p, 4, 8, 2)
#define IQ3_S(p) RN_POINT3_BYTES(p, 1, 2, 0)
#define IQ1(p) RN_POINT_BYTES(p, 0, 8, 0)

static const uint64_t points_iq2_xxs[256] = {RN_GRID_IQ2_XXS(IQ2)};
static const uint64_t points_iq2_xs[512] = {RN_GRID_IQ2_XS(IQ2)};
static const uint64_t points_iq2_s[1024] = {RN_GRID_IQ2_S(IQ2)};
static const uint32_t points_iq3_xxs[256] = {RN_GRID_IQ3_XXS(IQ3_XXS)};
static const uint32_t points_iq3_s[512] = {RN_GRID_IQ3_S(IQ3_S)};
static const uint64_t points_iq1[2048] = {RN_GRID_IQ1_S(IQ1)};

/* ---- Rows ---- */

/* Where eight rows are read: row r at p + r * s; s4 = 4 * s. */
struct rows {
    const uint8_t *p;
    size_t s, s4;
};

INLINE struct rows rows_of(const struct rn_matmul *m)
{
    size_t s = m->row_bytes * m->step;

    return (struct rows){m->weights, s, 4 * s};
}

INLINE const uint8_t *row(struct rows w, uint32_t r)
{
    return w.p + r / 4 * w.s4 + r % 4 * w.s;
}

/* Asks for `lines` lines of every row, some way on: rows are streams of their own (rn_matmul.step). */
INLINE void ahead(struct rows w, uint32_t lines)
{
    uint32_t r, i;

    UNROLL
    for (r = 0; r < ROWS; r++)
        UNROLL
    for (i = 0; i < lines; i++)
        _mm_prefetch((const char *)row(w, r) + RN_STREAM_AHEAD + 64 * i, _MM_HINT_T1);
}

INLINE __m128i load8(const void *p)
{
    return _mm_loadl_epi64((const __m128i *)p);
}

INLINE __m128i load16(const void *p)
{
    return _mm_loadu_si128((const __m128i *)p);
}

INLINE uint32_t word16(const uint8_t *p)
{
    uint16_t x;

    memcpy(&x, p, sizeof x);
    return x;
}

/* Bytes [at, at + 16) of all rows, four to a lane: lane r of v[c] has bytes 4 c .. 4 c + 3 of row r. */
INLINE void columns(struct rows w, size_t at, VI *v)
{
    VI a[4], b[4];
    uint32_t r;

    UNROLL
    for (r = 0; r < 4; r++)
        a[r] = _mm256_inserti128_si256(_mm256_castsi128_si256(load16(row(w, r) + at)), load16(row(w, r + 4) + at), 1);
    b[0] = _mm256_unpacklo_epi32(a[0], a[1]);
    b[1] = _mm256_unpackhi_epi32(a[0], a[1]);
    b[2] = _mm256_unpacklo_epi32(a[2], a[3]);
    b[3] = _mm256_unpackhi_epi32(a[2], a[3]);
    v[0] = _mm256_unpacklo_epi64(b[0], b[2]);
    v[1] = _mm256_unpackhi_epi64(b[0], b[2]);
    v[2] = _mm256_unpacklo_epi64(b[1], b[3]);
    v[3] = _mm256_unpackhi_epi64(b[1], b[3]);
}

/* The low 16 bits of the lanes, half floats. */
INLINE VF halves(VI v)
{
    v = _mm256_and_si256(v, _mm256_set1_epi32(0xffff));
    return _mm256_cvtph_ps(_mm_packus_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1)));
}

INLINE VF first_half(struct rows w)
{
    VI v[4];

    columns(w, 0, v);
    return halves(v[0]);
}

/* ---- What is prepared for a block ---- */

struct block {
    _Alignas(32) float scales[2 * STRIPS][ROWS];
    _Alignas(32) uint32_t bits[STRIPS][ROWS]; /* a byte for eight columns: signs, or which points are lower (IQ1_M) */
    _Alignas(32) uint16_t index[ROWS][8 * STRIPS];
    _Alignas(32) int32_t begin[STRIPS][ROWS]; /* IQ1_S: what the sums begin with */
};

/* Scale i: d * (step * code + plus), codes of `bits` bits from bit `shift` on of the lanes. */
INLINE void put_scale(struct block *b, uint32_t i, VI v, uint32_t shift, int bits, float step, float plus, VF d)
{
    VI code = _mm256_and_si256(_mm256_srli_epi32(v, (int)shift), _mm256_set1_epi32((1 << bits) - 1));

    _mm256_store_ps(b->scales[i], _mm256_mul_ps(d, _mm256_fmadd_ps(_mm256_cvtepi32_ps(code), _mm256_set1_ps(step),
                                                                   _mm256_set1_ps(plus))));
}

INLINE void put_bits(struct block *b, uint32_t strip, VI bits)
{
    _mm256_store_si256((VI *)b->bits[strip], bits);
}

/* Sixteen nibbles in the last 8 of the block's bytes. */
INLINE void scales_last_8(struct block *b, struct rows w, uint32_t bytes)
{
    VF d = _mm256_mul_ps(first_half(w), _mm256_set1_ps(0.25f));
    uint32_t i;
    VI v[4];

    columns(w, bytes - 16, v);
    UNROLL
    for (i = 0; i < 16; i++)
        put_scale(b, i, v[2 + i / 8], i % 8 * 4, 4, 1, 0.5f, d);
}

/* index[0..16) = low bytes, and the words `high`, which are multiples of 256. */
INLINE void put_16(uint16_t *index, const uint8_t *low, VI high)
{
    _mm256_store_si256((VI *)index, _mm256_or_si256(_mm256_cvtepu8_epi16(load16(low)), high));
}

/* Byte or word number i / each of v in word i. */
INLINE VI bytes_spread(const uint8_t *p, int each)
{
    const VI fours = _mm256_setr_epi8(0, -1, 0, -1, 0, -1, 0, -1, 1, -1, 1, -1, 1, -1, 1, -1, 2, -1, 2, -1, 2, -1, 2,
                                      -1, 3, -1, 3, -1, 3, -1, 3, -1);
    const VI eights = _mm256_setr_epi8(0, -1, 0, -1, 0, -1, 0, -1, 0, -1, 0, -1, 0, -1, 0, -1, 1, -1, 1, -1, 1, -1, 1,
                                       -1, 1, -1, 1, -1, 1, -1, 1, -1);
    int32_t four = 0;

    memcpy(&four, p, each == 4 ? 4 : 2);
    return _mm256_shuffle_epi8(_mm256_set1_epi32(four), each == 4 ? fours : eights);
}

INLINE VI words_repeated(short a, short b, short c, short d)
{
    return _mm256_setr_epi16(a, b, c, d, a, b, c, d, a, b, c, d, a, b, c, d);
}

INLINE void prepare_iq2_xxs(struct block *b, struct rows w)
{
    VF d = _mm256_mul_ps(first_half(w), _mm256_set1_ps(0.25f));
    uint32_t j;
    VI v[4];

    UNROLL
    for (j = 0; j < STRIPS; j++) {
        if (j % 2 == 0)
            columns(w, 2 + 8 * j, v);
        put_scale(b, j, v[j % 2 * 2 + 1], 28, 4, 1, 0.5f, d);
        put_bits(b, j, even_signs(v[j % 2 * 2 + 1]));
    }
}

INLINE void prepare_iq2_xs(struct block *b, struct rows w)
{
    VI v[4], low, high;
    uint32_t j;

    scales_last_8(b, w, 74);
    UNROLL
    for (j = 0; j < STRIPS; j++) {
        if (j % 2 == 0)
            columns(w, 2 + 8 * j, v);
        low = v[j % 2 * 2];
        high = v[j % 2 * 2 + 1];
        put_bits(b, j,
                 even(_mm256_or_si256(_mm256_or_si256(seven(low, 9, 0), seven(low, 25, 8)),
                                      _mm256_or_si256(seven(high, 9, 16), seven(high, 25, 24)))));
    }
}

/* Two high bits of an index from bit 2 k on of a byte for four. */
INLINE void prepare_iq2_s(struct block *b, struct rows w)
{
    const VI factors = words_repeated(256, 64, 16, 4), mask = _mm256_set1_epi16(0x300);
    uint32_t r, i;

    scales_last_8(b, w, 82);
    UNROLL
    for (r = 0; r < ROWS; r++)
        for (i = 0; i < 2; i++)
            put_16(b->index[r] + 16 * i, row(w, r) + 2 + 16 * i,
                   _mm256_and_si256(_mm256_mullo_epi16(bytes_spread(row(w, r) + 66 + 4 * i, 4), factors), mask));
}

INLINE void prepare_iq3_xxs(struct block *b, struct rows w)
{
    VF d = _mm256_mul_ps(first_half(w), _mm256_set1_ps(0.5f));
    uint32_t j;
    VI v[4];

    UNROLL
    for (j = 0; j < STRIPS; j++) {
        if (j % 4 == 0)
            columns(w, 66 + 4 * j, v);
        put_scale(b, j, v[j % 4], 28, 4, 1, 0.5f, d);
        put_bits(b, j, even_signs(v[j % 4]));
    }
}

/* The high bit of an index: bit k of a byte for eight. */
INLINE void prepare_iq3_s(struct block *b, struct rows w)
{
    const VI factors = _mm256_setr_epi16(256, 128, 64, 32, 16, 8, 4, 2, 256, 128, 64, 32, 16, 8, 4, 2);
    VF d = first_half(w);
    uint32_t r, i;
    VI v[4];

    columns(w, 94, v); /* the last 4 bytes of the block */
    UNROLL
    for (i = 0; i < STRIPS; i++)
        put_scale(b, i, v[3], 4 * i, 4, 2, 1, d);
    UNROLL
    for (r = 0; r < ROWS; r++)
        for (i = 0; i < 4; i++)
            put_16(b->index[r] + 16 * i, row(w, r) + 2 + 16 * i,
                   _mm256_and_si256(_mm256_mullo_epi16(bytes_spread(row(w, r) + 66 + 2 * i, 8), factors),
                                    _mm256_set1_epi16(256)));
}

/* Weights are 8 too large, less 1 or 2: a sum begins with minus (7 or 9) times that of the inputs. */
INLINE void begin_iq1_s(struct block *b, uint32_t strip, VI down, const struct rn_line *y)
{
    int32_t sum = (rn_line_begin(y) - y->start) / 128;
    VI twice = _mm256_and_si256(down, _mm256_set1_epi32(2 * sum));

    _mm256_store_si256((VI *)b->begin[strip], _mm256_sub_epi32(_mm256_set1_epi32(rn_line_begin(y) - 7 * sum), twice));
}

/* A word for each strip: four times three high bits of indices, the scale, the shift. */
INLINE void prepare_iq1_s(struct block *b, struct rows w, const struct rn_line *y)
{
    const VI eights = _mm256_setr_epi8(0, 1, 0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3, 2, 3, 4, 5, 4, 5, 4, 5, 4, 5, 6, 7, 6,
                                       7, 6, 7, 6, 7);
    const VI factors = words_repeated(256, 32, 4, 0), left = words_repeated(0x700, 0x700, 0x700, 0);
    const VI right = words_repeated(0, 0, 0, 0x700);
    VF d = _mm256_mul_ps(first_half(w), _mm256_set1_ps(0.125f));
    VI v[4], x;
    uint32_t r, i;
    int64_t four;

    columns(w, 34, v);
    UNROLL
    for (i = 0; i < STRIPS; i++) {
        put_scale(b, i, v[i / 2], 16 * (i % 2) + 12, 3, 2, 1, d);
        begin_iq1_s(b, i, _mm256_srai_epi32(i % 2 == 1 ? v[i / 2] : _mm256_slli_epi32(v[i / 2], 16), 31), &y[i]);
    }
    UNROLL
    for (r = 0; r < ROWS; r++)
        for (i = 0; i < 2; i++) {
            memcpy(&four, row(w, r) + 34 + 8 * i, sizeof four);
            x = _mm256_shuffle_epi8(_mm256_set1_epi64x(four), eights);
            x = _mm256_or_si256(_mm256_and_si256(_mm256_mullo_epi16(x, factors), left),
                                _mm256_and_si256(_mm256_srli_epi16(x, 1), right));
            put_16(b->index[r] + 16 * i, row(w, r) + 2 + 16 * i, x);
        }
}

/* A nibble for each point: three high bits of the index, the shift. Four words in the end: four scales of 3 bits and
 * 4 bits of d each. */
INLINE void prepare_iq1_m(struct block *b, struct rows w)
{
    VI v[4], half;
    __m128i nibbles, low, high, points[2], lower[2];
    uint32_t r, i;
    VF d;

    columns(w, 40, v);
    half = _mm256_and_si256(_mm256_srli_epi32(v[2], 12), _mm256_set1_epi32(15));
    half = _mm256_or_si256(half, _mm256_and_si256(_mm256_srli_epi32(v[2], 24), _mm256_set1_epi32(0xf0)));
    half = _mm256_or_si256(half, _mm256_and_si256(_mm256_srli_epi32(v[3], 4), _mm256_set1_epi32(0xf00)));
    half = _mm256_or_si256(half, _mm256_and_si256(_mm256_srli_epi32(v[3], 16), _mm256_set1_epi32(0xf000)));
    d = _mm256_mul_ps(halves(half), _mm256_set1_ps(0.125f));
    UNROLL
    for (i = 0; i < 16; i++)
        put_scale(b, i, v[2 + i / 8], 16 * (i % 8 / 4) + 3 * (i % 4), 3, 2, 1, d);
    UNROLL
    for (r = 0; r < ROWS; r++) {
        nibbles = load16(row(w, r) + 32);
        low = _mm_and_si128(nibbles, _mm_set1_epi8(15));
        high = _mm_and_si128(_mm_srli_epi16(nibbles, 4), _mm_set1_epi8(15));
        points[0] = _mm_unpacklo_epi8(low, high);
        points[1] = _mm_unpackhi_epi8(low, high);
        UNROLL
        for (i = 0; i < 2; i++) {
            put_16(b->index[r] + 16 * i, row(w, r) + 16 * i,
                   _mm256_slli_epi16(_mm256_and_si256(_mm256_cvtepu8_epi16(points[i]), _mm256_set1_epi16(7)), 8));
            lower[i] = _mm_srli_epi16(_mm_andnot_si128(points[i], _mm_set1_epi8(8)), 2); /* 2, and 0 where lower */
        }
        UNROLL
        for (i = 0; i < 2; i++) {
            b->bits[4 * i][r] = (uint32_t)_mm_extract_epi32(lower[i], 0);
            b->bits[4 * i + 1][r] = (uint32_t)_mm_extract_epi32(lower[i], 1);
            b->bits[4 * i + 2][r] = (uint32_t)_mm_extract_epi32(lower[i], 2);
            b->bits[4 * i + 3][r] = (uint32_t)_mm_extract_epi32(lower[i], 3);
        }
    }
}

/* ---- Weights of 32 columns of a row ---- */

INLINE VI four_points(const uint64_t *points, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    __m128i ab = _mm_castpd_si128(_mm_loadh_pd(_mm_castsi128_pd(load8(points + a)), (const double *)(points + b)));
    __m128i cd = _mm_castpd_si128(_mm_loadh_pd(_mm_castsi128_pd(load8(points + c)), (const double *)(points + d)));

    return _mm256_inserti128_si256(_mm256_castsi128_si256(ab), cd, 1);
}

INLINE VI indexed(const uint64_t *points, const uint16_t *index)
{
    return four_points(points, index[0], index[1], index[2], index[3]);
}

INLINE __m128i four_small(const uint32_t *points, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    __m128i v = _mm_cvtsi32_si128((int32_t)points[a]);

    v = _mm_insert_epi32(v, (int32_t)points[b], 1);
    v = _mm_insert_epi32(v, (int32_t)points[c], 2);
    return _mm_insert_epi32(v, (int32_t)points[d], 3);
}

INLINE VI weights_iq2_xxs(const struct block *b, const uint8_t *p, uint32_t r, uint32_t j)
{
    const uint8_t *index = p + 2 + 8 * j;

    (void)b;
    (void)r;
    return four_points(points_iq2_xxs, index[0], index[1], index[2], index[3]);
}

INLINE VI weights_iq2_xs(const struct block *b, const uint8_t *p, uint32_t r, uint32_t j)
{
    const uint8_t *at = p + 2 + 8 * j;

    (void)b;
    (void)r;
    return four_points(points_iq2_xs, word16(at) & 511, word16(at + 2) & 511, word16(at + 4) & 511,
                       word16(at + 6) & 511);
}

INLINE VI weights_iq2_s(const struct block *b, const uint8_t *p, uint32_t r, uint32_t j)
{
    (void)p;
    return indexed(points_iq2_s, b->index[r] + 4 * j);
}

INLINE VI weights_iq3_xxs(const struct block *b, const uint8_t *p, uint32_t r, uint32_t j)
{
    const uint8_t *i = p + 2 + 8 * j;
    __m128i low = four_small(points_iq3_xxs, i[0], i[1], i[2], i[3]);

    (void)b;
    (void)r;
    return _mm256_inserti128_si256(_mm256_castsi128_si256(low), four_small(points_iq3_xxs, i[4], i[5], i[6], i[7]), 1);
}

INLINE VI weights_iq3_s(const struct block *b, const uint8_t *p, uint32_t r, uint32_t j)
{
    const uint16_t *i = b->index[r] + 8 * j;
    __m128i low = four_small(points_iq3_s, i[0], i[1], i[2], i[3]);

    (void)p;
    return _mm256_inserti128_si256(_mm256_castsi128_si256(low), four_small(points_iq3_s, i[4], i[5], i[6], i[7]), 1);
}

INLINE VI weights_iq1(const struct block *b, const uint8_t *p, uint32_t r, uint32_t j)
{
    (void)p;
    return indexed(points_iq1, b->index[r] + 4 * j);
}

/* ---- Sums ---- */

/* Byte i / 8 of four, in byte i. */
INLINE VI spread_bits(const void *four)
{
    const VI eights = _mm256_setr_epi64x(0, (long long)EACH, (long long)(2 * EACH), (long long)(3 * EACH));
    int32_t x;

    memcpy(&x, four, sizeof x);
    return _mm256_shuffle_epi8(_mm256_set1_epi32(x), eights);
}

/* x, and -x where a column's bit is set. */
INLINE VI with_signs(VI x, const void *signs)
{
    const VI bits = _mm256_set1_epi64x((long long)0x8040201008040201u);
    VI minus = _mm256_cmpeq_epi8(_mm256_and_si256(spread_bits(signs), bits), bits);

    return _mm256_sign_epi8(x, _mm256_or_si256(minus, _mm256_set1_epi8(1)));
}

INLINE VI dot(VI w, VI x)
{
    return _mm256_madd_epi16(_mm256_maddubs_epi16(w, x), _mm256_set1_epi16(1));
}

/* v[r]: eight sums of row r, those of 16 columns in each half -> out[0], out[1]: the sums of halves of all rows. */
INLINE void turn(const VI *v, VI *out)
{
    VI a = _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
    VI b = _mm256_hadd_epi32(_mm256_hadd_epi32(v[4], v[5]), _mm256_hadd_epi32(v[6], v[7]));

    out[0] = _mm256_permute2x128_si256(a, b, 0x20);
    out[1] = _mm256_permute2x128_si256(a, b, 0x31);
}

/* acc + float(sum) * d_input * d_weight; sum begins with the bits of magic_d: see struct rn_line. */
INLINE VF add_product(VF acc, VI sum, const struct rn_line *y, const float *scale)
{
    VF product = _mm256_sub_ps(_mm256_castsi256_ps(sum), _mm256_set1_ps(y->magic_d));

    return _mm256_fmadd_ps(product, _mm256_load_ps(scale), acc);
}

INLINE VI plus32(VI v, int32_t x)
{
    return _mm256_add_epi32(v, _mm256_set1_epi32(x));
}

static void store_rows(const struct rn_matmul *m, VF v)
{
    float lanes[ROWS];
    uint32_t r;

    _mm256_storeu_ps(lanes, v);
    for (r = 0; r < ROWS; r++)
        m->out[0][(size_t)r * m->step] = lanes[r];
}

/* How a format's columns become sums. */
enum kind {
    SIGNS_PREPARED, /* block.bits */
    SIGNS_THERE,    /* in the block, from `signs_at` on */
    SHIFTED,        /* IQ1_S: by the sums' beginnings */
    LOWERED         /* IQ1_M: the weights of a point are 9 too large, and 11 where it is not lower */
};

typedef VI weights_fn(const struct block *b, const uint8_t *p, uint32_t r, uint32_t j);

/* One strip of all rows. */
INLINE VF strip(VF acc, const struct block *b, struct rows w, uint32_t j, const struct rn_line *y, weights_fn *weights,
                enum kind kind, size_t signs_at, uint32_t n_scales)
{
    VI x = _mm256_loadu_si256((const VI *)y->q), v[ROWS], sums[2], weight;
    int32_t begin;
    uint32_t r;

    UNROLL
    for (r = 0; r < ROWS; r++) {
        weight = weights(b, row(w, r), r, j);
        if (kind == LOWERED)
            weight = _mm256_add_epi8(weight, spread_bits(&b->bits[j][r]));
        if (kind == SIGNS_PREPARED)
            v[r] = dot(weight, with_signs(x, &b->bits[j][r]));
        else if (kind == SIGNS_THERE)
            v[r] = dot(weight, with_signs(x, row(w, r) + signs_at + 4 * j));
        else
            v[r] = dot(weight, x);
    }
    turn(v, sums);
    if (n_scales == 1) {
        sums[0] = _mm256_add_epi32(sums[0], sums[1]);
        sums[0] = kind == SHIFTED ? _mm256_add_epi32(sums[0], _mm256_load_si256((const VI *)b->begin[j]))
                                  : plus32(sums[0], rn_line_begin(y));
        return add_product(acc, sums[0], y, b->scales[j]);
    }
    for (r = 0; r < 2; r++) {
        begin = rn_line_begin(y) - (kind == LOWERED ? 9 * ((rn_line_begin(y) - y->start16[r]) / 128) : 0);
        sums[r] = plus32(sums[r], begin);
        acc = add_product(acc, sums[r], y, b->scales[2 * j + r]);
    }
    return acc;
}

/* Blocks of `bytes` bytes, which `prepare` prepares. */
#define DIRECT(name, bytes, prepare, weights, kind, signs_at, n_scales)               \
    void rn_direct_##name##_avx2(const struct rn_matmul *m)                           \
    {                                                                                 \
        const struct rn_line *y = m->inputs[0];                                       \
        VF acc = _mm256_setzero_ps();                                                 \
        struct rows w = rows_of(m);                                                   \
        struct block block;                                                           \
        uint32_t b, j;                                                                \
                                                                                      \
        for (b = 0; b < m->cols / 256; b++, w.p += (bytes)) {                         \
            ahead(w, ((bytes) + 63) / 64);                                            \
            prepare;                                                                  \
            for (j = 0; j < STRIPS; j++, y++)                                         \
                acc = strip(acc, &block, w, j, y, weights, kind, signs_at, n_scales); \
        }                                                                             \
        store_rows(m, acc);                                                           \
    }

DIRECT(iq2_xxs, 66, prepare_iq2_xxs(&block, w), weights_iq2_xxs, SIGNS_PREPARED, 0, 1)
DIRECT(iq2_xs, 74, prepare_iq2_xs(&block, w), weights_iq2_xs, SIGNS_PREPARED, 0, 2)
DIRECT(iq2_s, 82, prepare_iq2_s(&block, w), weights_iq2_s, SIGNS_THERE, 34, 2)
DIRECT(iq3_xxs, 98, prepare_iq3_xxs(&block, w), weights_iq3_xxs, SIGNS_PREPARED, 0, 1)
DIRECT(iq3_s, 110, prepare_iq3_s(&block, w), weights_iq3_s, SIGNS_THERE, 74, 1)
DIRECT(iq1_s, 50, prepare_iq1_s(&block, w, y), weights_iq1, SHIFTED, 0, 1)
DIRECT(iq1_m, 56, prepare_iq1_m(&block, w), weights_iq1, LOWERED, 0, 2)
