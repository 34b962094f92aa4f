/* The AVX2 levels (with FMA and F16C, with and without AVX-VNNI): rows. Products are in simd_avx2_blocks.c,
 * simd_vnni_blocks.c and simd_avx2_floats.c, quantising in lines_avx2.c. Threads: any; nothing here has state. */
#include <cpuid.h>
#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "cpu/levels/kv_x86.h"
#include "cpu/levels/levels_x86.h"

/* ---- Eight floats ---- */

typedef __m256 V8;

#define v_load _mm256_loadu_ps
#define v_store _mm256_storeu_ps
#define v_set1 _mm256_set1_ps
#define v_add _mm256_add_ps
#define v_sub _mm256_sub_ps
#define v_mul _mm256_mul_ps
#define v_div _mm256_div_ps
#define v_fma _mm256_fmadd_ps
#define v_min _mm256_min_ps /* the second operand where either is NaN */
#define v_max _mm256_max_ps
#define v_exceeds(a, b) (_mm256_movemask_ps(_mm256_cmp_ps(a, _mm256_set1_ps(b), _CMP_GT_OQ)) != 0)

/* a < b ? x : y */
static inline V8 v_less(V8 a, V8 b, V8 x, V8 y)
{
    return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}

static inline V8 v_round(V8 a)
{
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

static inline V8 v_pow2(V8 n)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}

static inline float v_sum(V8 a)
{
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));

    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_shuffle_ps(four, four, 1)));
}

static inline V8 v_load_f16(const uint8_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}

static inline V8 v_load_bf16(const uint8_t *p)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16));
}

static inline V8 v_load_f8(const uint8_t *p)
{
    __m128i codes = _mm_cvtepi8_epi16(_mm_loadl_epi64((const __m128i *)p));

    return _mm256_mul_ps(_mm256_cvtph_ps(lv_halves_f8(codes)), _mm256_set1_ps(256));
}
#define v_load_f8 v_load_f8

static inline V8 v_load_i8(const int8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}
#define v_load_i8 v_load_i8

#include "cpu/levels/rows.inc"

static void kv_store(void *out, const float *a, uint32_t n, runnel_kv_type type)
{
    uint16_t *half = out;
    uint32_t i = 0;

    if (type == RUNNEL_KV_F16)
        for (; i + 8 <= n; i += 8)
            _mm_storeu_si128((__m128i *)(half + i), _mm256_cvtps_ph(v_load(a + i), _MM_FROUND_TO_NEAREST_INT));
    row_kv_store((char *)out + (size_t)i * 2, a + i, n - i, type);
}

static void key_store(void *out, const float *a, uint32_t n, uint32_t stride, runnel_kv_type type)
{
    uint16_t part[64], *half = out;
    uint32_t i, j, m;

    if (type != RUNNEL_KV_F16 && type != RUNNEL_KV_BF16) {
        row_key_store(out, a, n, stride, type);
        return;
    }
    for (i = 0; i < n; i += m) {
        m = n - i < 64 ? n - i : 64;
        kv_store(part, a + i, m, type);
        for (j = 0; j < m; j++)
            half[(size_t)(i + j) * stride] = part[j];
    }
}

/* ---- Copies past the caches ---- */

void rn_stream_avx2(void *to, const void *from, size_t n)
{
    size_t at = -(uintptr_t)to % sizeof(__m256i);

    at = at < n ? at : n;
    memcpy(to, from, at);
    for (; at + sizeof(__m256i) <= n; at += sizeof(__m256i))
        _mm256_stream_si256((__m256i *)((char *)to + at),
                            _mm256_loadu_si256((const __m256i *)((const char *)from + at)));
    memcpy((char *)to + at, (const char *)from + at, n - at);
    _mm_sfence(); /* such stores are ordered by nothing else, not by a release either */
}

/* ---- The level ---- */

const struct rn_rows rn_rows_avx2 = {.quantise_lines = rn_quantise_lines_avx2,
                                     .rms_norm = row_rms_norm,
                                     .layer_norm = row_layer_norm,
                                     .add = row_add,
                                     .scale = row_scale,
                                     .softcap = row_softcap,
                                     .activate = row_activate,
                                     .gate = row_gate,
                                     .accumulate = row_accumulate,
                                     .rope = row_rope,
                                     .conv = row_conv,
                                     .linear = row_linear,
                                     .scan = row_scan,
                                     .scan_channels = row_scan_channels,
                                     .kv_store = kv_store,
                                     .key_store = key_store};

static const struct rn_kernel *kernel_avx2(uint32_t type_id)
{
    const struct rn_kernel *kernel = rn_blocks_avx2(type_id);

    return kernel != NULL ? kernel : rn_floats_avx2(type_id);
}

static const struct rn_kernel *kernel_vnni(uint32_t type_id)
{
    const struct rn_kernel *kernel = rn_blocks_vnni(type_id);

    return kernel != NULL ? kernel : rn_floats_avx2(type_id);
}

#define LEVEL(name_, kernel_, tiled_)                                                                            \
    {                                                                                                            \
        .name = name_, .bits = "x86-fma", .rows = &rn_rows_avx2, .attention = &row_attention, .kernel = kernel_, \
        .other = &rn_other_avx2_kernel, .tiled = tiled_, .stream = rn_stream_avx2                                \
    }

const struct rn_level *rn_level_avx2(void)
{
    static const struct rn_level level = LEVEL("avx2", kernel_avx2, rn_tiles_avx2);
    uint32_t a, b, c, d;

    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        return NULL;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0 ? &level : NULL;
}

const struct rn_level *rn_level_avx2_vnni(void)
{
    static const struct rn_level level = LEVEL("avx2-vnni", kernel_vnni, rn_tiles_vnni);
    enum { AVX_VNNI = 1 << 4 };
    uint32_t a, b, c, d;

    return rn_level_avx2() != NULL && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & AVX_VNNI) != 0 ? &level : NULL;
}
