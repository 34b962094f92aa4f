/* Products of one to a few inputs with sixteen rows in a tile (cpu/tiles.h) on AVX-512: see few_avx512.inc. Columns are
 * loads. A worker reads one linear stream; what comes next is asked for between the products, because one that several
 * inputs meet moves on too slowly for the processor to look ahead far enough by itself.
 *
 * Threads: any; nothing here has state. */
#include "cpu/levels/vectors_avx512.h"
#include "cpu/tiles.h"
#include "model/quant_grids.h"
#include "model/quant_types.h"

/* A block of sixteen rows. */
struct rows {
    const uint8_t *p;
    size_t ahead;
};

INLINE struct rows rows_of(const struct rn_matmul *m)
{
    return (struct rows){m->weights, m->ahead};
}

INLINE struct rows step_on(struct rows w, size_t bytes)
{
    return (struct rows){w.p + RN_TILE_ROWS * bytes, w.ahead};
}

INLINE void columns(struct rows w, size_t at, VI *v)
{
    uint32_t c;

    UNROLL
    for (c = 0; c < 4; c++)
        v[c] = _mm512_loadu_si512(w.p + RN_TILE_ROWS * (at + 4 * c));
}

INLINE VF half(struct rows w, size_t at)
{
    return _mm512_cvtph_ps(load32(w.p + RN_TILE_ROWS * at));
}

INLINE VI first_byte(struct rows w)
{
    return _mm512_cvtepu8_epi32(load16(w.p));
}

/* One of `parts` of the lines of a block, some way on. No way at all: they are read next, and this costs nothing. */
INLINE void ahead_of(struct rows w, uint32_t part, uint32_t parts, uint32_t bytes)
{
    const uint32_t lines = (RN_TILE_ROWS * bytes + 63) / 64;
    uint32_t i;

    UNROLL
    for (i = lines * part / parts; i < lines * (part + 1) / parts; i++)
        _mm_prefetch((const char *)w.p + w.ahead + 64 * i, _MM_HINT_T0);
}

#define last_half half
#define Q6_K_AT(x) rn_tile_q6_k_at(x)
#define PLAIN_BYTES(n) ((n) == 1)
#define FEW_NAME(name) rn_few_tiles_##name##_avx512
#define FEW_LEAST 1

#include "cpu/levels/few_avx512.inc"

/* ---- Blocks of 32 ---- */

/* Blocks of 17 or 18 bytes: 16 bytes of nibbles behind a power of two or a half float. */
INLINE void few_nibbles(const struct rn_matmul *m, uint32_t n, uint32_t bytes, const int8_t *levels)
{
    struct rows w = rows_of(m);
    VF acc[RN_FEW_AVX512];
    size_t b;

    few_zero(acc, n);
    for (b = 0; b < m->cols / 32; b++, w = step_on(w, bytes)) {
        ahead_of(w, 0, 1, bytes);
        nibble_block(acc, w, bytes - 16, (struct lines){m, n, b}, levels,
                     bytes == 17 ? power_of_two(first_byte(w)) : half(w, 0));
    }
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
    struct rows w = rows_of(m);
    VF acc[RN_FEW_AVX512];
    size_t b;

    few_zero(acc, n);
    for (b = 0; b < m->cols / 32; b++, w = step_on(w, 34)) {
        ahead_of(w, 0, 1, 34);
        q8_0_block(acc, w, 2, (struct lines){m, n, b}, half(w, 0));
    }
    few_store(m, acc, n);
}

RN_FEW_OF_AVX512(EXPORT_FEW)
