/* The AVX-512 level (F, BW, VL, VNNI): packed products of the block formats, sixteen weight rows at a
 * time; the rest is the AVX2 level's. The sums inside a block are the same integers and those across
 * blocks the same fmas, so that both levels agree to the bit on these formats.
 *
 * vpdpbusd adds four products of an unsigned and a signed byte to a 32-bit lane and cannot saturate.
 * A signed weight is stored plus 128, and 128 times the sum of the inputs is taken off again; that of
 * Q4_0 is off by 8. */
#include <assert.h>

#include "cpu/blocks_avx2.h"
#include "cpu/levels_x86.h"

#define INLINE static inline __attribute__((always_inline))

enum { TILE = 16, HALF = 8 };

INLINE __m512i load512(const void *p)
{
    return _mm512_loadu_si512(p);
}

INLINE __m512i broadcast4(const void *p)
{
    return _mm512_set1_epi32((int32_t)rn_u32(p));
}

INLINE void store_lanes(const struct rn_matmul *m, uint32_t i, __m512 acc)
{
    _mm512_mask_storeu_ps(m->out[i], (__mmask16)((1u << m->rows) - 1), acc);
}

/* The half floats at offset `at` of sixteen rows, to out[0..16). */
INLINE void store_halves(const uint8_t *const *rows, size_t at, uint8_t *out)
{
    _mm256_storeu_ps((float *)out, rn_halves8(rows, at));
    _mm256_storeu_ps((float *)out + HALF, rn_halves8(rows + HALF, at));
}

/* One input: two tiles of the AVX2 level. */
static void direct(const struct rn_matmul *m, uint32_t type_id)
{
    const struct rn_kernel *kernel = rn_blocks_avx2(type_id);
    struct rn_matmul part = *m;
    uint32_t i;

    part.rows = m->rows < HALF ? m->rows : HALF;
    kernel->direct(&part);
    if (m->rows <= HALF)
        return;
    part.rows = m->rows - HALF;
    part.weights = m->weights + HALF * m->step * m->row_bytes;
    for (i = 0; i < m->n; i++)
        part.out[i] = m->out[i] + HALF * m->step;
    kernel->direct(&part);
}

/* Runs part(m, first, n) over the inputs, n a constant: 8, 4, 2 or 1. */
#define OVER_INPUTS(m, part)          \
    do {                              \
        uint32_t i_ = 0;              \
                                      \
        if ((m)->n == 8) {            \
            part((m), 0, 8);          \
            break;                    \
        }                             \
        if ((m)->n & 4) {             \
            part((m), i_, 4);         \
            i_ += 4;                  \
        }                             \
        if ((m)->n & 2) {             \
            part((m), i_, 2);         \
            i_ += 2;                  \
        }                             \
        if ((m)->n & 1)               \
            part((m), i_, 1);         \
    } while (0)
static_assert(RN_MAX_INPUTS == 8, "OVER_INPUTS takes at most eight");

/* ---- Q4_0 and Q8_0. A panel block: 8 groups of 64 bytes, 16 scales. ---- */

enum { PANEL32 = 8 * 64 + 64 };

static size_t panel32(uint32_t cols)
{
    return (size_t)cols / 32 * PANEL32;
}

INLINE void pack32(const struct rn_matmul *m, size_t block_bytes, bool nibbles)
{
    const uint8_t *rows[TILE], *block;
    uint8_t *out = m->panel;
    __m256i v[HALF];
    uint32_t b, h, r;

    rn_tile_rows(m, TILE, rows);
    for (b = 0; b < m->cols / 32; b++, out += PANEL32) {
        for (h = 0; h < 2; h++) {
            for (r = 0; r < HALF; r++) {
                block = rows[h * HALF + r] + b * block_bytes + 2;
                v[r] = nibbles ? rn_nibbles(block) : _mm256_xor_si256(rn_load256(block), _mm256_set1_epi8((char)0x80));
            }
            rn_interleave8(v, out + 32 * h, 64);
        }
        store_halves(rows, b * block_bytes, out + 8 * 64);
    }
}

INLINE void packed32(const struct rn_matmul *m, uint32_t first, uint32_t n, int32_t offset)
{
    const uint8_t *panel = m->panel;
    struct rn_q8 y[RN_MAX_INPUTS];
    __m512i sum[RN_MAX_INPUTS], w;
    __m512 acc[RN_MAX_INPUTS], d;
    uint32_t i, b, g;

    for (i = 0; i < n; i++) {
        y[i] = rn_q8_view(m->inputs[first + i], m->cols);
        acc[i] = _mm512_setzero_ps();
    }
    for (b = 0; b < m->cols / 32; b++, panel += PANEL32) {
        for (i = 0; i < n; i++)
            sum[i] = _mm512_set1_epi32(-offset * y[i].sum[b]);
        for (g = 0; g < 8; g++) {
            w = load512(panel + 64 * g);
            for (i = 0; i < n; i++)
                sum[i] = _mm512_dpbusd_epi32(sum[i], w, broadcast4(y[i].q + 32 * (size_t)b + 4 * g));
        }
        d = _mm512_loadu_ps(panel + 8 * 64);
        for (i = 0; i < n; i++)
            acc[i] = _mm512_fmadd_ps(_mm512_mul_ps(d, _mm512_set1_ps(y[i].d[b])), _mm512_cvtepi32_ps(sum[i]), acc[i]);
    }
    for (i = 0; i < n; i++)
        store_lanes(m, first + i, acc[i]);
}

static void pack_q4_0(const struct rn_matmul *m)
{
    pack32(m, RN_Q4_0_BYTES, true);
}

static void pack_q8_0(const struct rn_matmul *m)
{
    pack32(m, RN_Q8_0_BYTES, false);
}

INLINE void packed_q4_0_part(const struct rn_matmul *m, uint32_t first, uint32_t n)
{
    packed32(m, first, n, 8);
}

INLINE void packed_q8_0_part(const struct rn_matmul *m, uint32_t first, uint32_t n)
{
    packed32(m, first, n, 128);
}

/* ---- Q4_K. A panel block: 64 groups of 64 bytes; 8 vectors of scales (32 bits); 4 of pairs of minima; d;
 * dmin. ---- */

enum {
    Q4_K_SCALES = 64 * 64,
    Q4_K_MINIMA = Q4_K_SCALES + 8 * 64,
    Q4_K_D = Q4_K_MINIMA + 4 * 64,
    Q4_K_PANEL = Q4_K_D + 128
};

static size_t panel_q4_k(uint32_t cols)
{
    return (size_t)cols / 256 * Q4_K_PANEL;
}

static void pack_q4_k(const struct rn_matmul *m)
{
    const uint8_t *rows[TILE];
    uint8_t *out = m->panel, bytes[16];
    __m256i v[HALF];
    int16_t *minima;
    int32_t *scales;
    uint32_t b, j, r;

    rn_tile_rows(m, TILE, rows);
    for (b = 0; b < m->cols / 256; b++, out += Q4_K_PANEL) {
        for (j = 0; j < 16; j++) { /* the low, then the high eight rows */
            for (r = 0; r < HALF; r++)
                v[r] = rn_q4_k_q(rows[j / 8 * HALF + r] + (size_t)b * RN_Q4_K_BYTES, j % 8);
            rn_interleave8(v, out + j % 8 * 512 + j / 8 * 32, 64);
        }
        scales = (int32_t *)(out + Q4_K_SCALES);
        minima = (int16_t *)(out + Q4_K_MINIMA);
        for (r = 0; r < TILE; r++) {
            _mm_storeu_si128((__m128i *)bytes, rn_q4_k_scales(rows[r] + (size_t)b * RN_Q4_K_BYTES));
            for (j = 0; j < 8; j++) {
                scales[16 * j + r] = bytes[j];
                minima[32 * (j / 2) + 2 * r + j % 2] = bytes[8 + j];
            }
        }
        store_halves(rows, (size_t)b * RN_Q4_K_BYTES, out + Q4_K_D);
        store_halves(rows, (size_t)b * RN_Q4_K_BYTES + 2, out + Q4_K_D + 64);
    }
}

/* acc + d·dy·sum - dmin·dy·least, in this order. */
INLINE __m512 finish_q4_k(const uint8_t *panel, struct rn_q8k y, uint32_t b, __m512i sum, __m512 acc)
{
    __m512i least = _mm512_setzero_si512();
    __m512 scale = _mm512_set1_ps(y.d[b]);
    uint32_t j;

    for (j = 0; j < 4; j++)
        least = _mm512_dpwssd_epi32(least, load512(panel + Q4_K_MINIMA + 64 * j),
                                    broadcast4(y.sum32 + 8 * (size_t)b + 2 * j));
    acc = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_loadu_ps(panel + Q4_K_D), scale), _mm512_cvtepi32_ps(sum), acc);
    return _mm512_fnmadd_ps(_mm512_mul_ps(_mm512_loadu_ps(panel + Q4_K_D + 64), scale), _mm512_cvtepi32_ps(least), acc);
}

INLINE void packed_q4_k_part(const struct rn_matmul *m, uint32_t first, uint32_t n)
{
    const uint8_t *panel = m->panel;
    struct rn_q8k y[RN_MAX_INPUTS];
    __m512i sum[RN_MAX_INPUTS], part[RN_MAX_INPUTS], w;
    __m512 acc[RN_MAX_INPUTS];
    uint32_t i, b, j, g;

    for (i = 0; i < n; i++) {
        y[i] = rn_q8k_view(m->inputs[first + i], m->cols);
        acc[i] = _mm512_setzero_ps();
    }
    for (b = 0; b < m->cols / 256; b++, panel += Q4_K_PANEL) {
        for (i = 0; i < n; i++)
            sum[i] = _mm512_setzero_si512();
        for (j = 0; j < 8; j++) {
            for (i = 0; i < n; i++)
                part[i] = _mm512_setzero_si512();
            for (g = 8 * j; g < 8 * j + 8; g++) {
                w = load512(panel + 64 * g);
                for (i = 0; i < n; i++)
                    part[i] = _mm512_dpbusd_epi32(part[i], w, broadcast4(y[i].q + 256 * (size_t)b + 4 * g));
            }
            w = load512(panel + Q4_K_SCALES + 64 * j);
            for (i = 0; i < n; i++)
                sum[i] = _mm512_add_epi32(sum[i], _mm512_mullo_epi32(part[i], w));
        }
        for (i = 0; i < n; i++)
            acc[i] = finish_q4_k(panel, y[i], b, sum[i], acc[i]);
    }
    for (i = 0; i < n; i++)
        store_lanes(m, first + i, acc[i]);
}

/* ---- Q6_K. A panel block: 64 groups of 64 bytes; 16 vectors of scales (32 bits); 8 of pairs of scales; d. ---- */

enum {
    Q6_K_SCALES = 64 * 64,
    Q6_K_PAIRS = Q6_K_SCALES + 16 * 64,
    Q6_K_D = Q6_K_PAIRS + 8 * 64,
    Q6_K_PANEL = Q6_K_D + 64
};

static size_t panel_q6_k(uint32_t cols)
{
    return (size_t)cols / 256 * Q6_K_PANEL;
}

static void pack_q6_k(const struct rn_matmul *m)
{
    const uint8_t *rows[TILE];
    uint8_t *out = m->panel;
    __m256i v[HALF];
    int16_t *pairs;
    int32_t *scales;
    int8_t scale;
    uint32_t b, j, r;

    rn_tile_rows(m, TILE, rows);
    for (b = 0; b < m->cols / 256; b++, out += Q6_K_PANEL) {
        for (j = 0; j < 16; j++) {
            for (r = 0; r < HALF; r++)
                v[r] = rn_q6_k_q(rows[j / 8 * HALF + r] + (size_t)b * RN_Q6_K_BYTES, j % 8);
            rn_interleave8(v, out + j % 8 * 512 + j / 8 * 32, 64);
        }
        scales = (int32_t *)(out + Q6_K_SCALES);
        pairs = (int16_t *)(out + Q6_K_PAIRS);
        for (r = 0; r < TILE; r++)
            for (j = 0; j < 16; j++) {
                scale = (int8_t)rows[r][(size_t)b * RN_Q6_K_BYTES + 192 + j];
                scales[16 * j + r] = scale;
                pairs[32 * (j / 2) + 2 * r + j % 2] = scale;
            }
        store_halves(rows, (size_t)b * RN_Q6_K_BYTES + 208, out + Q6_K_D);
    }
}

INLINE __m512 finish_q6_k(const uint8_t *panel, struct rn_q8k y, uint32_t b, __m512i sum, __m512 acc)
{
    __m512i offset = _mm512_setzero_si512();
    uint32_t j;

    for (j = 0; j < 8; j++)
        offset = _mm512_dpwssd_epi32(offset, load512(panel + Q6_K_PAIRS + 64 * j),
                                     broadcast4(y.sum16 + 16 * (size_t)b + 2 * j));
    sum = _mm512_sub_epi32(sum, _mm512_slli_epi32(offset, 5));
    return _mm512_fmadd_ps(_mm512_mul_ps(_mm512_loadu_ps(panel + Q6_K_D), _mm512_set1_ps(y.d[b])),
                           _mm512_cvtepi32_ps(sum), acc);
}

INLINE void packed_q6_k_part(const struct rn_matmul *m, uint32_t first, uint32_t n)
{
    const uint8_t *panel = m->panel;
    struct rn_q8k y[RN_MAX_INPUTS];
    __m512i sum[RN_MAX_INPUTS], part[RN_MAX_INPUTS], w;
    __m512 acc[RN_MAX_INPUTS];
    uint32_t i, b, j, g;

    for (i = 0; i < n; i++) {
        y[i] = rn_q8k_view(m->inputs[first + i], m->cols);
        acc[i] = _mm512_setzero_ps();
    }
    for (b = 0; b < m->cols / 256; b++, panel += Q6_K_PANEL) {
        for (i = 0; i < n; i++)
            sum[i] = _mm512_setzero_si512();
        for (j = 0; j < 16; j++) {
            for (i = 0; i < n; i++)
                part[i] = _mm512_setzero_si512();
            for (g = 4 * j; g < 4 * j + 4; g++) {
                w = load512(panel + 64 * g);
                for (i = 0; i < n; i++)
                    part[i] = _mm512_dpbusd_epi32(part[i], w, broadcast4(y[i].q + 256 * (size_t)b + 4 * g));
            }
            w = load512(panel + Q6_K_SCALES + 64 * j);
            for (i = 0; i < n; i++)
                sum[i] = _mm512_add_epi32(sum[i], _mm512_mullo_epi32(part[i], w));
        }
        for (i = 0; i < n; i++)
            acc[i] = finish_q6_k(panel, y[i], b, sum[i], acc[i]);
    }
    for (i = 0; i < n; i++)
        store_lanes(m, first + i, acc[i]);
}

/* ---- The level ---- */

#define KERNEL(name, kind, type_id, rows_apart, bytes)                                                \
    static void direct_##name(const struct rn_matmul *m)                                              \
    {                                                                                                 \
        direct(m, type_id);                                                                           \
    }                                                                                                 \
    static void packed_##name(const struct rn_matmul *m)                                              \
    {                                                                                                 \
        OVER_INPUTS(m, packed_##name##_part);                                                         \
    }                                                                                                 \
    static const struct rn_kernel kernel_##name = {                                                   \
        .input = kind, .tile = TILE, .pack_from = 2, .step = rows_apart, .panel_bytes = bytes,        \
        .direct = direct_##name, .pack = pack_##name, .packed = packed_##name}

KERNEL(q4_0, RN_INPUT_Q8, RN_Q4_0, 16, panel32);
KERNEL(q8_0, RN_INPUT_Q8, RN_Q8_0, 16, panel32);
KERNEL(q4_k, RN_INPUT_Q8K, RN_Q4_K, 8, panel_q4_k);
KERNEL(q6_k, RN_INPUT_Q8K, RN_Q6_K, 8, panel_q6_k);

static const struct rn_kernel *kernel_avx512(uint32_t type_id)
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
        return rn_kernel_avx2(type_id);
    }
}

const struct rn_level *rn_level_avx512(void)
{
    static const struct rn_level level = {
        .name = "avx512", .rows = &rn_rows_avx2, .attention = &rn_attention_avx512, .kernel = kernel_avx512,
        .other = &rn_kernel_avx2_other};

    if (rn_level_avx2() == NULL || !__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512vnni"))
        return NULL;
    return &level;
}
