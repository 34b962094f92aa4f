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

#include "cpu/levels/floats_x86.h"
#include "cpu/levels/levels_x86.h"
#include "model/quant_grids.h"
#include "model/quant_types.h"

#define INLINE static inline __attribute__((always_inline))

typedef __m512i VI;
typedef __m512 VF;

#define vi_and _mm512_and_si512
#define vi_or _mm512_or_si512
#define vi_xor _mm512_xor_si512
#define vi_add8 _mm512_add_epi8
#define vi_add32 _mm512_add_epi32
#define vi_sub32 _mm512_sub_epi32
#define vi_max32 _mm512_max_epi32
#define vi_srl32(v, n) _mm512_srli_epi32(v, (unsigned)(n))
#define vi_sll32(v, n) _mm512_slli_epi32(v, (unsigned)(n))
#define vi_sra32(v, n) _mm512_srai_epi32(v, (unsigned)(n))
#define vi_sllv32 _mm512_sllv_epi32
#define vi_srlv32 _mm512_srlv_epi32
#define vi_gather(base, v) _mm512_i32gather_epi32(v, base, 4)
#define vi_shuffle _mm512_shuffle_epi8
#define vi_set8(x) _mm512_set1_epi8((char)(x))
#define vi_set32 _mm512_set1_epi32
#define vi_store _mm512_store_si512

#define vf_set1 _mm512_set1_ps
#define vf_zero _mm512_setzero_ps
#define vf_from _mm512_cvtepi32_ps
#define vf_cast _mm512_castsi512_ps
#define vf_sub _mm512_sub_ps
#define vf_mul _mm512_mul_ps
#define vf_fma _mm512_fmadd_ps
#define vf_fms _mm512_fmsub_ps
#define vf_minus(v) _mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(v), _mm512_set1_epi32(INT32_MIN)))
#define vf_load _mm512_load_ps
#define vf_store _mm512_store_ps

#define AT_ONCE 6
#define OFFSET(n) 128 /* as rn_line.start expects */
enum { LANES = 16, PACK_FROM = RN_PACK_FROM };

/* The last rows of a matrix may be fewer. */
#define ONE_ROWS(name) (m->rows == LANES ? rn_direct_##name##_avx512(m) : ONE_BUFFERED(name))
#define ONE_FEW(name) (m->rows == LANES && m->n > 1 ? rn_few_##name##_avx512(m) : ONE_ROWS(name))
#define ONE_SOME(name) \
    (m->n == 1 ? ONE_COLUMNS(name) : m->rows == LANES ? rn_few_##name##_avx512(m) : ONE_BUFFERED(name))
#define MOST_FEW RN_FEW_AVX512
#define ONE_GRID(name) (m->rows == LANES && has_grids() ? rn_direct_##name##_avx512(m) : ONE_COLUMNS(name))

/* The level asks for neither of them. */
static bool has_grids(void)
{
    return __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("gfni");
}

/* a < b ? x : 0 */
INLINE VI vi_where_less(VI a, VI b, VI x)
{
    return _mm512_maskz_mov_epi32(_mm512_cmplt_epi32_mask(a, b), x);
}

INLINE VI vi_table(const int8_t *levels)
{
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)levels));
}

/* Byte k of each lane, in all four. */
INLINE VI vi_spread(VI v, int k)
{
    const __m128i lanes = _mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c);

    return _mm512_shuffle_epi8(v, _mm512_broadcast_i32x4(_mm_add_epi8(lanes, _mm_set1_epi8((char)k))));
}

INLINE VI plus_where(VI v, VI bits, VI mask, int value)
{
    return _mm512_mask_add_epi8(v, _mm512_test_epi8_mask(bits, mask), v, vi_set8(value));
}

INLINE VI plus_where_reached(VI v, VI x, int limit)
{
    return _mm512_mask_add_epi8(v, _mm512_cmpge_epu8_mask(x, vi_set8(limit)), v, vi_set8(1));
}

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

INLINE VF low_halves(VI v)
{
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v));
}

INLINE void store_lanes(float *out, VF v, uint32_t rows, uint32_t step)
{
    float lanes[LANES];
    uint32_t r;

    if (step == 1) {
        _mm512_mask_storeu_ps(out, (__mmask16)(rows >= LANES ? 0xffff : (1u << rows) - 1), v);
        return;
    }
    _mm512_storeu_ps(lanes, v);
    for (r = 0; r < LANES && r < rows; r++)
        out[(size_t)r * step] = lanes[r];
}

INLINE __m512i quad(__m512i sum, __m512i w, __m512i x, uint32_t run)
{
    (void)run;
    return _mm512_dpbusd_epi32(sum, w, x);
}

#include "cpu/levels/blocks_columns.inc"
#include "cpu/levels/blocks_grid.inc"

/* What a sum begins with. */
INLINE __m512i start(const struct rn_line *y, uint32_t s, struct shape f)
{
    if (offset(f) == 0)
        return vi_set32(RN_MAGIC_BITS);
    return broadcast4(f.n_scales == 2 ? &y->start16[s] : &y->start);
}

/* The integer sums of the columns of one scale. */
INLINE void quads(VI part[][2], const uint8_t *const *strips, uint32_t vecs, const struct rn_line *const *y, size_t b,
                  uint32_t s, uint32_t n, struct shape f)
{
    uint32_t groups = 8 / f.n_scales, g, i, v;
    VI w[2], x;

    for (i = 0; i < n; i++) {
        x = start(&y[i][b], s, f);
        for (v = 0; v < vecs; v++)
            part[i][v] = x;
    }
    UNROLL
    for (g = s * groups; g < (s + 1) * groups; g++) {
        for (v = 0; v < vecs; v++)
            w[v] = _mm512_load_si512(strips[v] + g * VEC);
        for (i = 0; i < n; i++) {
            x = broadcast4(y[i][b].q + 4 * g);
            for (v = 0; v < vecs; v++)
                part[i][v] = _mm512_dpbusd_epi32(part[i][v], w[v], x);
        }
    }
}

#define SHAPE(what, scales, minima, run) what##_##scales##minima
#define SHAPES(X) X(1, 0, 0) X(1, 1, 0) X(2, 0, 0) X(2, 2, 0)

#include "cpu/levels/blocks_products.inc"

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
    const struct rn_kernel *kernel = block_kernel(type_id);

    return kernel != NULL ? kernel : float_kernel(type_id);
}

const struct rn_level *rn_level_avx512(void)
{
    static const struct rn_level level = {.name = "avx512",
                                          .rows = &rn_rows_avx2,
                                          .attention = &rn_attention_avx512,
                                          .kernel = kernel_avx512,
                                          .other = &kernel_other,
                                          .stream = rn_stream_avx2};

    if (rn_level_avx2() == NULL || !__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512vnni"))
        return NULL;
    return &level;
}

/* AMX: tile registers are 8 KB of state that Linux saves only for a process that has asked for it. */
static bool tiles_allowed(void)
{
    enum { REQUEST = 0x1023, TILES = 18, EDX_BF16 = 1 << 22, EDX_TILE = 1 << 24 }; /* ARCH_REQ_XCOMP_PERM, XTILEDATA */
    unsigned a, b, c, d;

    return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & EDX_BF16) != 0 && (d & EDX_TILE) != 0 &&
           syscall(SYS_arch_prctl, REQUEST, TILES) == 0;
}

const struct rn_level *rn_level_amx(void)
{
    static const struct rn_level level = {.name = "avx512-amx",
                                          .rows = &rn_rows_avx2,
                                          .attention = &rn_attention_amx,
                                          .kernel = kernel_avx512,
                                          .other = &kernel_other,
                                          .stream = rn_stream_avx2};

    return rn_level_avx512() != NULL && tiles_allowed() ? &level : NULL;
}
