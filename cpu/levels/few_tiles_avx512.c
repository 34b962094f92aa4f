/* Products of one to a few inputs with sixteen rows in a tile (cpu/tiles.h) on AVX-512: see few_avx512.inc. Columns are
 * loads, and what comes next is left to the processor: a worker reads one linear stream.
 *
 * Threads: any; nothing here has state. */
#include "cpu/levels/vectors_avx512.h"
#include "cpu/tiles.h"
#include "model/quant_grids.h"
#include "model/quant_types.h"

/* A block of sixteen rows. */
struct rows {
    const uint8_t *p;
};

INLINE struct rows rows_of(const struct rn_matmul *m)
{
    return (struct rows){m->weights};
}

INLINE struct rows step_on(struct rows w, size_t bytes)
{
    return (struct rows){w.p + RN_TILE_ROWS * bytes};
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

#define last_half half
#define ahead_of(w, first, n, lines) ((void)0)
#define Q6_K_AT(x) rn_tile_q6_k_at(x)
#define PLAIN_BYTES(n) ((n) == 1)

#include "cpu/levels/few_avx512.inc"

/* ---- Blocks of 32 ---- */

INLINE void few_nibbles(const struct rn_matmul *m, uint32_t n, const int8_t *levels)
{
    struct rows w = rows_of(m);
    VF acc[RN_FEW_AVX512];
    size_t b;

    few_zero(acc, n);
    for (b = 0; b < m->cols / 32; b++, w = step_on(w, 18))
        nibble_block(acc, w, 2, (struct lines){m, n, b}, levels, half(w, 0));
    few_store(m, acc, n);
}

INLINE void few_q4_0(const struct rn_matmul *m, uint32_t n)
{
    few_nibbles(m, n, NULL);
}

INLINE void few_iq4_nl(const struct rn_matmul *m, uint32_t n)
{
    few_nibbles(m, n, rn_levels_iq4);
}

INLINE void few_q8_0(const struct rn_matmul *m, uint32_t n)
{
    struct rows w = rows_of(m);
    VF acc[RN_FEW_AVX512];
    size_t b;

    few_zero(acc, n);
    for (b = 0; b < m->cols / 32; b++, w = step_on(w, 34))
        q8_0_block(acc, w, 2, (struct lines){m, n, b}, half(w, 0));
    few_store(m, acc, n);
}

/* ---- The formats ---- */

/* So many inputs are a constant to the compiler. */
#define EXPORT_FEW(name)                                         \
    void rn_few_tiles_##name##_avx512(const struct rn_matmul *m) \
    {                                                            \
        switch (m->n) {                                          \
        case 1:                                                  \
            few_##name(m, 1);                                    \
            return;                                              \
        case 2:                                                  \
            few_##name(m, 2);                                    \
            return;                                              \
        case 3:                                                  \
            few_##name(m, 3);                                    \
            return;                                              \
        case 4:                                                  \
            few_##name(m, 4);                                    \
            return;                                              \
        case 5:                                                  \
            few_##name(m, 5);                                    \
            return;                                              \
        case 6:                                                  \
            few_##name(m, 6);                                    \
            return;                                              \
        case 7:                                                  \
            few_##name(m, 7);                                    \
            return;                                              \
        default:                                                 \
            few_##name(m, RN_FEW_AVX512);                        \
        }                                                        \
    }
RN_FEW_OF_AVX512(EXPORT_FEW)
