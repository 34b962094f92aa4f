/* Products of the block formats, AVX2: see kernels.h for the order of the sums.
 *
 * Direct, one input row: eight weight rows at a time; their integer sums of one block are added across
 * lanes into one vector, one lane per weight row, which is scaled and added by one fma.
 *
 * Packed: the tile's eight rows become a panel of bytes, four columns of all eight rows side by side
 * (32 bytes); the same four columns of an input are broadcast, and the sums grow in the lanes where
 * they are wanted.
 *
 * Nothing saturates: |input| <= 127. maddubs adds two products into 16 bits: of Q4_0 and Q4_K at most
 * 2·15·127 = 3810, eight of them 30480; of Q6_K 2·63·127 = 16002, two of them 32004; of Q8_0
 * 2·128·127 = 32512. */
#include "cpu/blocks_avx2.h"
#include "cpu/levels_x86.h"

#define INLINE static inline __attribute__((always_inline))

enum { TILE = 8, AT_ONCE = 4 };

#define ONES _mm256_set1_epi16(1)

static void store_lanes(const struct rn_matmul *m, uint32_t i, __m256 acc)
{
    float eight[8];
    uint32_t r;

    if (m->rows == TILE && m->step == 1) {
        _mm256_storeu_ps(m->out[i], acc);
        return;
    }
    _mm256_storeu_ps(eight, acc);
    for (r = 0; r < m->rows; r++)
        m->out[i][r * m->step] = eight[r];
}

/* Runs `part`(m, first, n) over the inputs, n a constant. */
#define OVER_INPUTS(m, part)                                    \
    do {                                                        \
        uint32_t i_ = 0;                                        \
                                                                \
        for (; i_ + AT_ONCE <= (m)->n; i_ += AT_ONCE)           \
            part((m), i_, AT_ONCE);                             \
        switch ((m)->n - i_) {                                  \
        case 3:                                                 \
            part((m), i_, 3);                                   \
            break;                                              \
        case 2:                                                 \
            part((m), i_, 2);                                   \
            break;                                              \
        case 1:                                                 \
            part((m), i_, 1);                                   \
            break;                                              \
        }                                                       \
    } while (0)

/* ---- Q4_0 and Q8_0. A panel block: 8 groups of 32 bytes, 8 scales. ---- */

enum { PANEL32 = 8 * 32 + 32 };

static size_t panel32(uint32_t cols)
{
    return (size_t)cols / 32 * PANEL32;
}

INLINE __m256i sum_q4_0(const uint8_t *block, __m256i y)
{
    return _mm256_madd_epi16(_mm256_maddubs_epi16(rn_nibbles(block + 2), y), ONES);
}

INLINE __m256i sum_q8_0(const uint8_t *block, __m256i y)
{
    __m256i w = rn_load256(block + 2);

    return _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(y, w)), ONES);
}

INLINE void direct32(const struct rn_matmul *m, size_t block_bytes, bool nibbles)
{
    const uint8_t *rows[TILE];
    struct rn_q8 y;
    __m256i part[TILE], q, sum;
    __m256 acc;
    uint32_t i, b, r;

    for (i = 0; i < m->n; i++) {
        rn_tile_rows(m, TILE, rows);
        y = rn_q8_view(m->inputs[i], m->cols);
        acc = _mm256_setzero_ps();
        for (b = 0; b < m->cols / 32; b++) {
            q = rn_load256(y.q + 32 * (size_t)b);
            for (r = 0; r < TILE; r++) {
                if (b % 2 == 0)
                    rn_ahead(rows[r] + b * block_bytes, block_bytes);
                part[r] = nibbles ? sum_q4_0(rows[r] + b * block_bytes, q) : sum_q8_0(rows[r] + b * block_bytes, q);
            }
            sum = rn_sums8(part);
            if (nibbles)
                sum = _mm256_sub_epi32(sum, _mm256_set1_epi32(8 * y.sum[b]));
            acc = _mm256_fmadd_ps(_mm256_mul_ps(rn_halves8(rows, b * block_bytes), _mm256_set1_ps(y.d[b])),
                                  _mm256_cvtepi32_ps(sum), acc);
        }
        store_lanes(m, i, acc);
    }
}

static void direct_q4_0(const struct rn_matmul *m)
{
    direct32(m, RN_Q4_0_BYTES, true);
}

static void direct_q8_0(const struct rn_matmul *m)
{
    direct32(m, RN_Q8_0_BYTES, false);
}

INLINE void pack32(const struct rn_matmul *m, size_t block_bytes, bool nibbles)
{
    const uint8_t *rows[TILE];
    uint8_t *out = m->panel;
    __m256i v[TILE];
    uint32_t b, r;

    rn_tile_rows(m, TILE, rows);
    for (b = 0; b < m->cols / 32; b++, out += PANEL32) {
        for (r = 0; r < TILE; r++)
            v[r] = nibbles ? rn_nibbles(rows[r] + b * block_bytes + 2) : rn_load256(rows[r] + b * block_bytes + 2);
        rn_interleave8(v, out, 32);
        _mm256_storeu_ps((float *)(out + 256), rn_halves8(rows, b * block_bytes));
    }
}

static void pack_q4_0(const struct rn_matmul *m)
{
    pack32(m, RN_Q4_0_BYTES, true);
}

static void pack_q8_0(const struct rn_matmul *m)
{
    pack32(m, RN_Q8_0_BYTES, false);
}

INLINE void packed32(const struct rn_matmul *m, uint32_t first, uint32_t n, bool nibbles)
{
    const uint8_t *panel = m->panel;
    struct rn_q8 y[AT_ONCE];
    __m256i sum[AT_ONCE], w, magnitude, x;
    __m256 acc[AT_ONCE], d;
    uint32_t i, b, g;

    for (i = 0; i < n; i++) {
        y[i] = rn_q8_view(m->inputs[first + i], m->cols);
        acc[i] = _mm256_setzero_ps();
    }
    for (b = 0; b < m->cols / 32; b++, panel += PANEL32) {
        for (i = 0; i < n; i++)
            sum[i] = _mm256_setzero_si256();
        for (g = 0; g < 8; g++) {
            w = rn_load256(panel + 32 * g);
            magnitude = nibbles ? w : _mm256_abs_epi8(w);
            for (i = 0; i < n; i++) {
                x = rn_broadcast4(y[i].q + 32 * (size_t)b + 4 * g);
                if (nibbles)
                    sum[i] = _mm256_add_epi16(sum[i], _mm256_maddubs_epi16(w, x));
                else
                    sum[i] = _mm256_add_epi32(
                        sum[i], _mm256_madd_epi16(_mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(x, w)), ONES));
            }
        }
        d = _mm256_loadu_ps((const float *)(panel + 256));
        for (i = 0; i < n; i++) {
            if (nibbles)
                sum[i] = _mm256_sub_epi32(_mm256_madd_epi16(sum[i], ONES), _mm256_set1_epi32(8 * y[i].sum[b]));
            acc[i] = _mm256_fmadd_ps(_mm256_mul_ps(d, _mm256_set1_ps(y[i].d[b])), _mm256_cvtepi32_ps(sum[i]), acc[i]);
        }
    }
    for (i = 0; i < n; i++)
        store_lanes(m, first + i, acc[i]);
}

INLINE void packed_q4_0_part(const struct rn_matmul *m, uint32_t first, uint32_t n)
{
    packed32(m, first, n, true);
}

INLINE void packed_q8_0_part(const struct rn_matmul *m, uint32_t first, uint32_t n)
{
    packed32(m, first, n, false);
}

static void packed_q4_0(const struct rn_matmul *m)
{
    OVER_INPUTS(m, packed_q4_0_part);
}

static void packed_q8_0(const struct rn_matmul *m)
{
    OVER_INPUTS(m, packed_q8_0_part);
}

/* ---- Q4_K. A panel block: 64 groups of 32 bytes; 8 vectors of scales, each twice in 16 bits; 4 vectors
 * of pairs of minima; d; dmin. ---- */

enum {
    Q4_K_SCALES = 64 * 32,
    Q4_K_MINIMA = Q4_K_SCALES + 8 * 32,
    Q4_K_D = Q4_K_MINIMA + 4 * 32,
    Q4_K_PANEL = Q4_K_D + 64
};

static size_t panel_q4_k(uint32_t cols)
{
    return (size_t)cols / 256 * Q4_K_PANEL;
}

/* Both float steps of a block: acc + d·dy·sum - dmin·dy·least. */
INLINE __m256 finish_q4_k(__m256 acc, __m256 d, __m256 dmin, float dy, __m256i sum, __m256i least)
{
    __m256 scale = _mm256_set1_ps(dy);

    acc = _mm256_fmadd_ps(_mm256_mul_ps(d, scale), _mm256_cvtepi32_ps(sum), acc);
    return _mm256_fnmadd_ps(_mm256_mul_ps(dmin, scale), _mm256_cvtepi32_ps(least), acc);
}

INLINE void row_q4_k(const uint8_t *block, const int8_t *q, const int16_t *sum32, __m256i *sum, __m256i *least)
{
    __m256i s = _mm256_cvtepu8_epi16(rn_q4_k_scales(block)), total = _mm256_setzero_si256();
    int16_t scales[16];
    uint32_t j;

    *least = _mm256_zextsi128_si256(
        _mm_madd_epi16(_mm256_extracti128_si256(s, 1), _mm_loadu_si128((const __m128i *)sum32)));
    _mm256_storeu_si256((__m256i *)scales, s);
    for (j = 0; j < 8; j++)
        total =
            _mm256_add_epi32(total, _mm256_madd_epi16(_mm256_maddubs_epi16(rn_q4_k_q(block, j), rn_load256(q + 32 * j)),
                                                      _mm256_set1_epi16(scales[j])));
    *sum = total;
}

static void direct_q4_k(const struct rn_matmul *m)
{
    const uint8_t *rows[TILE];
    struct rn_q8k y;
    __m256i sum[TILE], least[TILE];
    __m256 acc;
    size_t at;
    uint32_t i, b, r;

    rn_tile_rows(m, TILE, rows);
    for (i = 0; i < m->n; i++) {
        y = rn_q8k_view(m->inputs[i], m->cols);
        acc = _mm256_setzero_ps();
        for (b = 0; b < m->cols / 256; b++) {
            at = (size_t)b * RN_Q4_K_BYTES;
            for (r = 0; r < TILE; r++) {
                rn_ahead(rows[r] + at, RN_Q4_K_BYTES);
                row_q4_k(rows[r] + at, y.q + 256 * (size_t)b, y.sum32 + 8 * (size_t)b, &sum[r], &least[r]);
            }
            acc = finish_q4_k(acc, rn_halves8(rows, at), rn_halves8(rows, at + 2), y.d[b], rn_sums8(sum),
                              rn_sums8(least));
        }
        store_lanes(m, i, acc);
    }
}

static void pack_q4_k(const struct rn_matmul *m)
{
    const uint8_t *rows[TILE];
    uint8_t *out = m->panel, bytes[TILE][16];
    int16_t *scales, *minima;
    __m256i v[TILE];
    uint32_t b, j, r;

    rn_tile_rows(m, TILE, rows);
    for (b = 0; b < m->cols / 256; b++, out += Q4_K_PANEL) {
        for (j = 0; j < 8; j++) {
            for (r = 0; r < TILE; r++)
                v[r] = rn_q4_k_q(rows[r] + (size_t)b * RN_Q4_K_BYTES, j);
            rn_interleave8(v, out + j * 256, 32);
        }
        for (r = 0; r < TILE; r++)
            _mm_storeu_si128((__m128i *)bytes[r], rn_q4_k_scales(rows[r] + (size_t)b * RN_Q4_K_BYTES));
        scales = (int16_t *)(out + Q4_K_SCALES);
        minima = (int16_t *)(out + Q4_K_MINIMA);
        for (j = 0; j < 8; j++)
            for (r = 0; r < TILE; r++) {
                scales[16 * j + 2 * r] = scales[16 * j + 2 * r + 1] = bytes[r][j];
                minima[16 * (j / 2) + 2 * r + j % 2] = bytes[r][8 + j];
            }
        _mm256_storeu_ps((float *)(out + Q4_K_D), rn_halves8(rows, (size_t)b * RN_Q4_K_BYTES));
        _mm256_storeu_ps((float *)(out + Q4_K_D + 32), rn_halves8(rows, (size_t)b * RN_Q4_K_BYTES + 2));
    }
}

INLINE void packed_q4_k_part(const struct rn_matmul *m, uint32_t first, uint32_t n)
{
    const uint8_t *panel = m->panel;
    struct rn_q8k y[AT_ONCE];
    __m256i sum[AT_ONCE], part[AT_ONCE], least, w;
    __m256 acc[AT_ONCE];
    uint32_t i, b, j, g;

    for (i = 0; i < n; i++) {
        y[i] = rn_q8k_view(m->inputs[first + i], m->cols);
        acc[i] = _mm256_setzero_ps();
    }
    for (b = 0; b < m->cols / 256; b++, panel += Q4_K_PANEL) {
        for (i = 0; i < n; i++)
            sum[i] = _mm256_setzero_si256();
        for (j = 0; j < 8; j++) {
            for (i = 0; i < n; i++)
                part[i] = _mm256_setzero_si256();
            for (g = 8 * j; g < 8 * j + 8; g++) {
                w = rn_load256(panel + 32 * g);
                for (i = 0; i < n; i++)
                    part[i] = _mm256_add_epi16(
                        part[i], _mm256_maddubs_epi16(w, rn_broadcast4(y[i].q + 256 * (size_t)b + 4 * g)));
            }
            w = rn_load256(panel + Q4_K_SCALES + 32 * j);
            for (i = 0; i < n; i++)
                sum[i] = _mm256_add_epi32(sum[i], _mm256_madd_epi16(part[i], w));
        }
        for (i = 0; i < n; i++) {
            least = _mm256_setzero_si256();
            for (j = 0; j < 4; j++)
                least = _mm256_add_epi32(least, _mm256_madd_epi16(rn_load256(panel + Q4_K_MINIMA + 32 * j),
                                                                  rn_broadcast4(y[i].sum32 + 8 * (size_t)b + 2 * j)));
            acc[i] = finish_q4_k(acc[i], _mm256_loadu_ps((const float *)(panel + Q4_K_D)),
                                 _mm256_loadu_ps((const float *)(panel + Q4_K_D + 32)), y[i].d[b], sum[i], least);
        }
    }
    for (i = 0; i < n; i++)
        store_lanes(m, first + i, acc[i]);
}

static void packed_q4_k(const struct rn_matmul *m)
{
    OVER_INPUTS(m, packed_q4_k_part);
}

/* ---- Q6_K. A panel block: 64 groups of 32 bytes; 16 vectors of scales, each twice in 16 bits; 8 vectors
 * of pairs of scales; d. The sum of q·y less 32 times the sum of y. ---- */

enum {
    Q6_K_SCALES = 64 * 32,
    Q6_K_PAIRS = Q6_K_SCALES + 16 * 32,
    Q6_K_D = Q6_K_PAIRS + 8 * 32,
    Q6_K_PANEL = Q6_K_D + 32
};

static size_t panel_q6_k(uint32_t cols)
{
    return (size_t)cols / 256 * Q6_K_PANEL;
}

INLINE __m256i row_q6_k(const uint8_t *block, const int8_t *q, const int16_t *sum16)
{
    const __m128i apart = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    __m128i bytes = _mm_loadu_si128((const __m128i *)(block + 192));
    __m256i scales = _mm256_cvtepi8_epi16(_mm_shuffle_epi8(bytes, apart)); /* even ones low, odd ones high */
    __m256i sum = _mm256_madd_epi16(_mm256_cvtepi8_epi16(bytes), rn_load256(sum16));
    __m256i pick, w;
    uint32_t j;

    sum = _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_slli_epi32(sum, 5));
    for (j = 0; j < 8; j++) {
        w = _mm256_maddubs_epi16(rn_q6_k_q(block, j), rn_load256(q + 32 * j));
        pick = _mm256_set1_epi16((int16_t)(2 * j | (2 * j + 1) << 8));
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(w, _mm256_shuffle_epi8(scales, pick)));
    }
    return sum;
}

static void direct_q6_k(const struct rn_matmul *m)
{
    const uint8_t *rows[TILE];
    struct rn_q8k y;
    __m256i sum[TILE];
    __m256 acc;
    size_t at;
    uint32_t i, b, r;

    rn_tile_rows(m, TILE, rows);
    for (i = 0; i < m->n; i++) {
        y = rn_q8k_view(m->inputs[i], m->cols);
        acc = _mm256_setzero_ps();
        for (b = 0; b < m->cols / 256; b++) {
            at = (size_t)b * RN_Q6_K_BYTES;
            for (r = 0; r < TILE; r++) {
                rn_ahead(rows[r] + at, RN_Q6_K_BYTES);
                sum[r] = row_q6_k(rows[r] + at, y.q + 256 * (size_t)b, y.sum16 + 16 * (size_t)b);
            }
            acc = _mm256_fmadd_ps(_mm256_mul_ps(rn_halves8(rows, at + 208), _mm256_set1_ps(y.d[b])),
                                  _mm256_cvtepi32_ps(rn_sums8(sum)), acc);
        }
        store_lanes(m, i, acc);
    }
}

static void pack_q6_k(const struct rn_matmul *m)
{
    const uint8_t *rows[TILE];
    uint8_t *out = m->panel;
    int16_t *scales, *pairs, scale;
    __m256i v[TILE];
    uint32_t b, j, r;

    rn_tile_rows(m, TILE, rows);
    for (b = 0; b < m->cols / 256; b++, out += Q6_K_PANEL) {
        for (j = 0; j < 8; j++) {
            for (r = 0; r < TILE; r++)
                v[r] = rn_q6_k_q(rows[r] + (size_t)b * RN_Q6_K_BYTES, j);
            rn_interleave8(v, out + j * 256, 32);
        }
        scales = (int16_t *)(out + Q6_K_SCALES);
        pairs = (int16_t *)(out + Q6_K_PAIRS);
        for (j = 0; j < 16; j++)
            for (r = 0; r < TILE; r++) {
                scale = (int8_t)rows[r][(size_t)b * RN_Q6_K_BYTES + 192 + j];
                scales[16 * j + 2 * r] = scales[16 * j + 2 * r + 1] = scale;
                pairs[16 * (j / 2) + 2 * r + j % 2] = scale;
            }
        _mm256_storeu_ps((float *)(out + Q6_K_D), rn_halves8(rows, (size_t)b * RN_Q6_K_BYTES + 208));
    }
}

INLINE void packed_q6_k_part(const struct rn_matmul *m, uint32_t first, uint32_t n)
{
    const uint8_t *panel = m->panel;
    struct rn_q8k y[AT_ONCE];
    __m256i sum[AT_ONCE], offset, w0, w1, scale;
    __m256 acc[AT_ONCE];
    const int8_t *q;
    uint32_t i, b, j;

    for (i = 0; i < n; i++) {
        y[i] = rn_q8k_view(m->inputs[first + i], m->cols);
        acc[i] = _mm256_setzero_ps();
    }
    for (b = 0; b < m->cols / 256; b++, panel += Q6_K_PANEL) {
        for (i = 0; i < n; i++)
            sum[i] = _mm256_setzero_si256();
        for (j = 0; j < 32; j++) { /* eight columns; two of these have one scale */
            w0 = rn_load256(panel + 64 * j);
            w1 = rn_load256(panel + 64 * j + 32);
            scale = rn_load256(panel + Q6_K_SCALES + 32 * (j / 2));
            for (i = 0; i < n; i++) {
                q = y[i].q + 256 * (size_t)b + 8 * j;
                sum[i] = _mm256_add_epi32(
                    sum[i], _mm256_madd_epi16(_mm256_add_epi16(_mm256_maddubs_epi16(w0, rn_broadcast4(q)),
                                                               _mm256_maddubs_epi16(w1, rn_broadcast4(q + 4))), scale));
            }
        }
        for (i = 0; i < n; i++) {
            offset = _mm256_setzero_si256();
            for (j = 0; j < 8; j++)
                offset =
                    _mm256_add_epi32(offset, _mm256_madd_epi16(rn_load256(panel + Q6_K_PAIRS + 32 * j),
                                                               rn_broadcast4(y[i].sum16 + 16 * (size_t)b + 2 * j)));
            sum[i] = _mm256_sub_epi32(sum[i], _mm256_slli_epi32(offset, 5));
            acc[i] = _mm256_fmadd_ps(
                _mm256_mul_ps(_mm256_loadu_ps((const float *)(panel + Q6_K_D)), _mm256_set1_ps(y[i].d[b])),
                _mm256_cvtepi32_ps(sum[i]), acc[i]);
        }
    }
    for (i = 0; i < n; i++)
        store_lanes(m, first + i, acc[i]);
}

static void packed_q6_k(const struct rn_matmul *m)
{
    OVER_INPUTS(m, packed_q6_k_part);
}

#define KERNEL(name, kind, rows_apart, bytes)                                                              \
    static const struct rn_kernel kernel_##name = {                                                       \
        .input = kind, .tile = TILE, .pack_from = 2, .step = rows_apart, .panel_bytes = bytes,            \
        .direct = direct_##name, .pack = pack_##name, .packed = packed_##name}

KERNEL(q4_0, RN_INPUT_Q8, 16, panel32);
KERNEL(q8_0, RN_INPUT_Q8, 16, panel32);
KERNEL(q4_k, RN_INPUT_Q8K, 8, panel_q4_k);
KERNEL(q6_k, RN_INPUT_Q8K, 8, panel_q6_k);

const struct rn_kernel *rn_blocks_avx2(uint32_t type_id)
{
    switch (type_id) {
    case RN_Q4_0:
        return &kernel_q4_0;
    case RN_Q8_0:
        return &kernel_q8_0;
    case RN_Q4_K:
        return &kernel_q4_k;
    case RN_Q6_K:
        return &kernel_q6_k;
    default:
        return NULL;
    }
}
