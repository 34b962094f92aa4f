/* The AVX-512 level (F, BW, VL, VNNI): products of the block formats on vectors of sixteen rows, tiles of
 * thirty-two; the rest is the AVX2 level's. Both levels take the same integer sums and the same fmas, so they
 * agree to the bit.
 *
 * vpdpbusd adds four products of an unsigned and a signed byte to a 32-bit lane and cannot saturate. */
#include <cpuid.h>
#include <immintrin.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cpu/levels/avx512/columns_avx512.h"
#include "cpu/levels/floats_x86.h"

/* The last rows of a matrix may be fewer. */
#define ONE_ROWS(name) (m->rows == LANES ? rn_direct_##name##_avx512(m) : ONE_BUFFERED(name))
#define FEW(name) (rn_wants_affine() ? rn_few_##name##_affine(m) : rn_few_##name##_avx512(m))
#define ONE_FEW(name) (m->rows == LANES && m->n > 1 ? FEW(name) : ONE_ROWS(name))
#define ONE_SOME(name) (m->n == 1 ? ONE_COLUMNS(name) : m->rows == LANES ? FEW(name) : ONE_BUFFERED(name))
#define MOST_FEW(name) RN_FEW_AVX512
#define MOST_SOME(name) MOST_FEW(name)
#define MOST_TERNARY(name) MOST_##name
#define ONE_TERNARY(name) IN_REGISTERS_OF(name)
#define MOST_POINTS(name) RN_POINTS_AVX512
#define ONE_POINTS(name) (m->rows == LANES ? rn_points_##name##_avx512(m) : ONE_BUFFERED(name))
#define ONE_GRID(name) ONE_COLUMNS(name)

enum { MOST_tq1_0 = 4, MOST_tq2_0 = RN_FEW_AVX512 }; /* measured */

INLINE __m128i load128(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)p);
}

INLINE void chunk(const uint8_t *const *rows, size_t at, VI *v)
{
    __m512i a[4], b[4];
    int i;

    for (i = 0; i < 4; i++) {
        a[i] = _mm512_castsi128_si512(load128(rows[i] + at));
        a[i] = _mm512_inserti32x4(a[i], load128(rows[i + 4] + at), 1);
        a[i] = _mm512_inserti32x4(a[i], load128(rows[i + 8] + at), 2);
        a[i] = _mm512_inserti32x4(a[i], load128(rows[i + 12] + at), 3);
    }
    b[0] = _mm512_unpacklo_epi32(a[0], a[1]);
    b[1] = _mm512_unpackhi_epi32(a[0], a[1]);
    b[2] = _mm512_unpacklo_epi32(a[2], a[3]);
    b[3] = _mm512_unpackhi_epi32(a[2], a[3]);
    v[0] = _mm512_unpacklo_epi64(b[0], b[2]);
    v[1] = _mm512_unpackhi_epi64(b[0], b[2]);
    v[2] = _mm512_unpacklo_epi64(b[1], b[3]);
    v[3] = _mm512_unpackhi_epi64(b[1], b[3]);
}

#include "cpu/levels/avx2/quad_vnni.inc"
#include "cpu/levels/blocks_rows.inc"
#include "cpu/levels/blocks_columns.inc"
#include "cpu/levels/blocks_grid.inc"
#include "cpu/levels/avx2/quads_vnni.inc"
#include "cpu/levels/blocks_products.inc"
#include "cpu/levels/blocks_formats.inc"

/* Rows as they lie are unpacked too slowly to do it again for each call. */
#define UNIT_DIRECT(name, scales, minima, how)                                                                    \
    static const struct rn_kernel kernel_unit_##name =                                                            \
        KERNEL(name, scales, minima, how, direct_##name, pack_unit_##name, BY_UNIT(packed, name, scales, minima), \
               RN_AMX_INPUTS, true);
#include "cpu/levels/formats_amx.inc"

/* ---- Points in registers ---- */

/* The kernels of formats of which a few inputs meet points in registers, where the processor has what that takes: for
 * packed products by vectors, and by the matrix unit. */
#define TABLES(X) X(IQ3_S, iq3_s) X(IQ3_XXS, iq3_xxs) X(IQ2_XXS, iq2_xxs)
#define MOST_TABLE(name) RN_GRID_##name
#define TABLE_DIRECT(name)                                \
    static void table_##name(const struct rn_matmul *m)   \
    {                                                     \
        if (m->rows == LANES && m->n <= MOST_TABLE(name)) \
            rn_direct_##name##_avx512(m);                 \
        else                                              \
            direct_##name(m);                             \
    }
#define TABLE_KERNELS(TYPE, name)                                                      \
    TABLE_DIRECT(name)                                                                 \
    static const struct rn_kernel kernel_table_##name =                                \
        KERNEL(name, 1, 0, TABLE, table_##name, pack_##name, packed_##name, 0, false); \
    static const struct rn_kernel kernel_unit_table_##name =                           \
        KERNEL(name, 1, 0, TABLE, table_##name, pack_unit_##name, rn_packed_10_amx, RN_AMX_INPUTS, true);
TABLES(TABLE_KERNELS)

/* Two scales, which the matrix unit has no products for. */
TABLE_DIRECT(iq2_xs)
static const struct rn_kernel kernel_table_iq2_xs =
    KERNEL(iq2_xs, 2, 0, TABLE, table_iq2_xs, pack_iq2_xs, packed_iq2_xs, 0, false);

#define TABLE_CASE(TYPE, name) \
    case RN_##TYPE:            \
        return unit ? &kernel_unit_table_##name : &kernel_table_##name;

/* unit: packed products by the matrix unit, where there are some. NULL: the type has none of these kernels. */
static const struct rn_kernel *table_kernel(uint32_t type_id, bool unit)
{
    if (!rn_has_affine())
        return NULL;
    switch (type_id) {
        TABLES(TABLE_CASE)
    case RN_IQ2_XS:
        return &kernel_table_iq2_xs;
    default:
        return NULL;
    }
}

/* ---- Floats: vectors of two rows ---- */

#define WIDTH 4
#define OTHER static const struct rn_kernel kernel_other
enum { TILE = 8, VECTORS = 4, PACK_FLOATS_FROM = 8 };

INLINE VF vf_twice(__m256 v)
{
    return _mm512_castsi512_ps(_mm512_broadcast_i64x4(_mm256_castps_si256(v)));
}

INLINE VF vf_eight(const float *p)
{
    return vf_twice(_mm256_loadu_ps(p));
}

#include "cpu/levels/floats.inc"

static const struct rn_kernel *kernel_avx512(uint32_t type_id)
{
    const struct rn_kernel *kernel = table_kernel(type_id, false);

    if (kernel == NULL)
        kernel = block_kernel(type_id);
    return kernel != NULL ? kernel : float_kernel(type_id);
}

static const struct rn_kernel *kernel_amx(uint32_t type_id)
{
    const struct rn_kernel *kernel = table_kernel(type_id, true);

    if (kernel == NULL)
        kernel = unit_kernel(type_id);
    return kernel != NULL ? kernel : float_kernel(type_id);
}

const struct rn_level *rn_level_avx512(void)
{
    static const struct rn_level level = {.name = "avx512",
                                          .bits = "x86-fma",
                                          .rows = &rn_rows_avx2,
                                          .attention = &rn_attention_avx512,
                                          .kernel = kernel_avx512,
                                          .other = &kernel_other,
                                          .tiled = rn_tiles_avx512,
                                          .stream = rn_stream_avx2};

    if (rn_level_avx2() == NULL || !__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512vnni"))
        return NULL;
    return &level;
}

/* AMX: tile registers are 8 KB of state that Linux saves only for a process that has asked for it. */
static bool tiles_allowed(void)
{
    enum {
        REQUEST = 0x1023,
        TILES = 18,
        EDX_NEEDED = 1 << 22 | 1 << 24 | 1 << 25
    }; /* ARCH_REQ_XCOMP_PERM, XTILEDATA; bfloat16, tiles, bytes */
    unsigned a, b, c, d;

    return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & EDX_NEEDED) == EDX_NEEDED &&
           syscall(SYS_arch_prctl, REQUEST, TILES) == 0;
}

const struct rn_level *rn_level_amx(void)
{
    static const struct rn_level level = {.name = "avx512-amx",
                                          .bits = "x86-amx", /* attention on the matrix unit */
                                          .rows = &rn_rows_avx2,
                                          .attention = &rn_attention_amx,
                                          .kernel = kernel_amx,
                                          .other = &kernel_other,
                                          .tiled = rn_tiles_amx,
                                          .lay = rn_lay_amx,
                                          .stream = rn_stream_avx2};

    if (rn_level_avx512() == NULL)
        return NULL;
    if (rn_emulate_amx != NULL)
        rn_emulate_amx();
    else if (!tiles_allowed())
        return NULL;
    return &level;
}
