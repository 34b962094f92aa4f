/* Products of weights in tiles on AVX-512: the sums of simd_avx512.c, to the bit. */
#include "cpu/levels/avx512/columns_avx512.h"
#include "cpu/tiles.h"

INLINE VI load(const uint8_t *p)
{
    return _mm512_loadu_si512(p);
}

INLINE VF load_halves(const uint8_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

INLINE VI load_bytes(const uint8_t *p)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
}

/* Up to four inputs meet a block four lines at a time. Of Q6_K on Zen 4 that reads 33 GB/s, where 16 lines at once are
 * 17 (docs/SPEED-LOG.md). */
#define TWO_BY_TURNS(name, n) (m->rows % (2 * RN_TILE_ROWS) == 0 ? IN_TURNS(name, n, 2) : IN_TURNS(name, n, 1))
#define IN_ORDER(name)                   \
    (m->n == 1   ? TWO_BY_TURNS(name, 1) \
     : m->n == 2 ? TWO_BY_TURNS(name, 2) \
     : m->n == 3 ? TWO_BY_TURNS(name, 3) \
                 : TWO_BY_TURNS(name, 4))
#define FEW(name) (rn_wants_affine() ? rn_few_tiles_##name##_affine(m) : rn_few_tiles_##name##_avx512(m))
#define TURNS(name) (rn_wants_affine() ? rn_turns_##name##_affine(m) : rn_turns_##name##_avx512(m))
#define ONE_FEW(name)                                                                      \
    (m->rows % RN_TILE_ROWS != 0                               ? direct(m, &format_##name) \
     : RN_TILES_FROM_##name > 1 && m->n < RN_TILES_FROM_##name ? IN_ORDER(name)            \
     : m->rows > RN_TILE_ROWS                                  ? TURNS(name)               \
                                                               : FEW(name))
#define MOST_FEW(name) RN_FEW_AVX512
#define MOST_COLUMNS(name) RN_FEW_AVX512
#define ONE_COLUMNS(name) IN_REGISTERS_OF(name)
#define STREAMS_FEW RN_MOST_STREAMS

#include "cpu/levels/avx2/quad_vnni.inc"
#include "cpu/levels/blocks_tiles.inc"
#include "cpu/levels/blocks_columns.inc"
#include "cpu/levels/avx2/quads_vnni.inc"
#include "cpu/levels/blocks_products.inc"
#include "cpu/levels/tiles_formats.inc"

static size_t panel_unit(size_t of_vectors)
{
    return of_vectors * (RN_AMX_TILE / ROWS);
}

/* Up to RN_AMX_INPUTS inputs without a panel. */
#define UNIT_DIRECT(name, scales, minima, how)                                                                  \
    static void unpack_##name(const struct rn_matmul *m, uint32_t row, uint32_t strip, uint32_t n, uint8_t *to) \
    {                                                                                                           \
        lane_source rows;                                                                                       \
                                                                                                                \
        lane_rows(m, row, rows);                                                                                \
        blocks_##name(rows, (size_t)strip / STRIPS_##name * BYTES_##name, n / STRIPS_##name, to);               \
    }                                                                                                           \
    static void direct_unit_##name(const struct rn_matmul *m)                                                   \
    {                                                                                                           \
        if (m->n < RN_AMX_DIRECT_FROM)                                                                          \
            direct_##name(m);                                                                                   \
        else                                                                                                    \
            BY_UNIT(direct, name, scales, minima)(m, STRIPS_##name, unpack_##name);                             \
    }                                                                                                           \
    static size_t panel_unit_##name(uint32_t cols)                                                              \
    {                                                                                                           \
        return panel_unit(panel_##scales##minima(cols));                                                        \
    }                                                                                                           \
    static const struct rn_kernel kernel_unit_##name = {.input = INPUT_OF(name),                                \
                                                        .tile = RN_AMX_TILE,                                    \
                                                        .panel_tiles = PANEL_TILES / (RN_AMX_TILE / ROWS),      \
                                                        .direct_tile = RN_TILE_ROWS,                            \
                                                        .few = MOST_##how(name),                                \
                                                        .streams = STREAMS_##how,                               \
                                                        .pack_from = RN_AMX_INPUTS + 1,                         \
                                                        .step = 1,                                              \
                                                        .inputs = RN_AMX_INPUTS,                                \
                                                        .lays = true,                                           \
                                                        .panel_bytes = panel_unit_##name,                       \
                                                        .gather_from = RN_AMX_DIRECT_FROM,                      \
                                                        .gather = rn_gather_amx,                                \
                                                        .direct = direct_unit_##name,                           \
                                                        .pack = pack_unit_##name,                               \
                                                        .packed = BY_UNIT(packed, name, scales, minima)};
#include "cpu/levels/formats_amx.inc"

const struct rn_kernel *rn_tiles_avx512(uint32_t type_id)
{
    return tiled_kernel(type_id);
}

const struct rn_kernel *rn_tiles_amx(uint32_t type_id)
{
    return unit_kernel(type_id);
}
