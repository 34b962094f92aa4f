/* Products of a few inputs with sixteen whole rows on AVX-512, for the formats that steps of a few rows read most:
 * a draft that is verified, a few streams. Rows are sixteen streams, as with one input, and what comes next is asked for a
 * few rows at a time, between the products: all at once it fills the queue of misses and the products wait behind it.
 * See few_avx512.inc.
 *
 * Threads: any; nothing here has state. */
#include "cpu/levels/rows_avx512.h"
#include "model/quant_grids.h"
#include "model/quant_types.h"

/* Asks for lines of the rows [first, first + n), some way on. */
INLINE void ahead_of_rows(struct rows w, uint32_t first, uint32_t n, uint32_t lines)
{
    uint32_t r, i;

    UNROLL
    for (r = first; r < first + n; r++)
        UNROLL
    for (i = 0; i < lines; i++)
        _mm_prefetch((const char *)row(w, r) + RN_STREAM_AHEAD + 64 * i, _MM_HINT_T1);
}

/* So many lines begin in the bytes, or one less. */
INLINE void ahead_of(struct rows w, uint32_t part, uint32_t parts, uint32_t bytes)
{
    ahead_of_rows(w, ROWS * part / parts, ROWS / parts, (bytes + 63) / 64);
}

INLINE struct rows step_on(struct rows w, size_t bytes)
{
    w.p += bytes;
    return w;
}

INLINE VF last_half(struct rows w, size_t at)
{
    VI v[4];

    columns(w, at - 14, v);
    return high_halves(v[3]);
}

#define Q6_K_AT(x) (x)
#define PLAIN_BYTES(n) false
#define FEW_NAME(name) rn_few_##name##_avx512
#define FEW_LEAST 2

#include "cpu/levels/few_avx512.inc"

/* ---- Blocks of 32 ---- */

/* `count` blocks of 17 or 18 bytes, constants to the compiler, the first of them block b of the row: 16 bytes of nibbles
 * behind a power of two or a half float. */
INLINE void nibble_blocks(VF *acc, struct rows w, const struct rn_matmul *m, uint32_t n, size_t b, uint32_t count,
                          uint32_t bytes, const int8_t *levels)
{
    const uint16_t at[4] = {0, (uint16_t)(bytes / 2), (uint16_t)bytes, (uint16_t)(3 * bytes / 2)};
    _Alignas(64) uint16_t scales[4][ROWS];
    uint32_t k;

    words(w, at, count == 4 ? UINT64_MAX : ((__mmask64)1 << (count * bytes)) - 1, scales);
    UNROLL
    for (k = 0; k < count; k++) {
        ahead_of_rows(w, 4 * k, 4, 1);
        nibble_block(acc, w, (k + 1) * bytes - 16, (struct lines){m, n, b + k}, levels,
                     bytes == 17 ? power_of_two(one_byte(scales[k], k)) : halves(scales[k]));
    }
}

INLINE void few_nibbles(const struct rn_matmul *m, uint32_t n, uint32_t bytes, const int8_t *levels)
{
    struct rows w = rows_of(m);
    size_t b, n_blocks = m->cols / 32;
    VF acc[RN_FEW_AVX512];

    few_zero(acc, n);
    for (b = 0; b + 4 <= n_blocks; b += 4, w.p += 4 * bytes)
        nibble_blocks(acc, w, m, n, b, 4, bytes, levels);
    for (; b < n_blocks; b++, w.p += bytes)
        nibble_blocks(acc, w, m, n, b, 1, bytes, levels);
    few_store(m, acc, n);
}

INLINE void few_q4_0(const struct rn_matmul *m, uint32_t n)
{
    few_nibbles(m, n, 18, NULL);
}

INLINE void few_iq4_nl(const struct rn_matmul *m, uint32_t n)
{
    few_nibbles(m, n, 18, rn_levels_iq4);
}

INLINE void few_mxfp4(const struct rn_matmul *m, uint32_t n)
{
    few_nibbles(m, n, 17, rn_levels_fp4);
}

INLINE void few_q8_0(const struct rn_matmul *m, uint32_t n)
{
    static const uint16_t at[4] = {0, 17, 0, 17};
    _Alignas(64) uint16_t scales[4][ROWS];
    struct rows w = rows_of(m);
    size_t b, n_blocks = m->cols / 32;
    VF acc[RN_FEW_AVX512];

    few_zero(acc, n);
    for (b = 0; b + 2 <= n_blocks; b += 2, w.p += 68) {
        words(w, at, UINT64_MAX, scales);
        ahead_of_rows(w, 0, 8, 1);
        q8_0_block(acc, w, 2, (struct lines){m, n, b}, halves(scales[0]));
        ahead_of_rows(w, 8, 8, 1);
        q8_0_block(acc, w, 36, (struct lines){m, n, b + 1}, halves(scales[1]));
    }
    if (b < n_blocks) {
        words(w, at, ((__mmask64)1 << 34) - 1, scales);
        q8_0_block(acc, w, 2, (struct lines){m, n, b}, halves(scales[0]));
    }
    few_store(m, acc, n);
}

RN_FEW_OF_AVX512(EXPORT_FEW)
