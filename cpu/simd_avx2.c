/* The AVX2 level (with FMA and F16C): rows, quantising, products of floats. The products of the block
 * formats are in simd_avx2_blocks.c. Threads: any; nothing here has state. */
#include <cpuid.h>
#include <math.h>

#include "cpu/blocks_avx2.h"
#include "cpu/levels_x86.h"

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

/* Lane i: the sum of the lanes of a[i]. */
static inline V8 v_sums(const V8 *a)
{
    V8 low = _mm256_hadd_ps(_mm256_hadd_ps(a[0], a[1]), _mm256_hadd_ps(a[2], a[3]));
    V8 high = _mm256_hadd_ps(_mm256_hadd_ps(a[4], a[5]), _mm256_hadd_ps(a[6], a[7]));

    return _mm256_add_ps(_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31));
}

static inline V8 v_load_f16(const uint8_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}

static inline V8 v_load_bf16(const uint8_t *p)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16));
}

#include "cpu/rows.inc"

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

    if (type == RUNNEL_KV_F32) {
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

/* ---- Quantising a row ---- */

/* As in simd_c.c: found among the bits, where NaN and infinity are above all numbers. */
static inline __m256i larger_bits(__m256i most, const float *a)
{
    return _mm256_max_epi32(most, _mm256_and_si256(rn_load256(a), _mm256_set1_epi32(0x7fffffff)));
}

static inline float block_scale(__m256i most, float *inverse)
{
    __m128i four = _mm_max_epi32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
    float magnitude;

    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0xb1));
    magnitude = _mm_cvtss_f32(_mm_castsi128_ps(four));
    *inverse = magnitude > 1e-35f && magnitude < INFINITY ? 127 / magnitude : 0;
    return magnitude <= 1e-35f ? 0 : magnitude / 127;
}

/* 32 values to bytes. With an inverse of 0 (a block of nothing, or with NaN) all are 0. */
static inline __m256i quantise32(const float *a, float inverse)
{
    __m256 k = _mm256_set1_ps(inverse);
    __m256i i0 = _mm256_cvtps_epi32(_mm256_mul_ps(v_load(a), k)),
            i1 = _mm256_cvtps_epi32(_mm256_mul_ps(v_load(a + 8), k));
    __m256i i2 = _mm256_cvtps_epi32(_mm256_mul_ps(v_load(a + 16), k)),
            i3 = _mm256_cvtps_epi32(_mm256_mul_ps(v_load(a + 24), k));
    __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(i0, i1), _mm256_packs_epi32(i2, i3));

    if (inverse == 0)
        return _mm256_setzero_si256();
    return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* Sums of the low and the high 16 bytes. */
static inline void sums16(__m256i q, int32_t *low, int32_t *high)
{
    __m256i four = _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), q), _mm256_set1_epi16(1));

    four = _mm256_add_epi32(four, _mm256_shuffle_epi32(four, 0x4e));
    four = _mm256_add_epi32(four, _mm256_shuffle_epi32(four, 0xb1));
    *low = _mm256_extract_epi32(four, 0);
    *high = _mm256_extract_epi32(four, 4);
}

static void quantise_q8(const float *a, void *out, uint32_t n)
{
    struct rn_q8 view = rn_q8_view(out, n);
    int32_t low, high;
    float inverse;
    __m256i q, most;
    uint32_t b, i;

    for (b = 0; b < n / 32; b++) {
        most = _mm256_setzero_si256();
        for (i = 0; i < 32; i += 8)
            most = larger_bits(most, a + 32 * b + i);
        view.d[b] = block_scale(most, &inverse);
        q = quantise32(a + 32 * b, inverse);
        sums16(q, &low, &high);
        view.sum[b] = low + high;
        _mm256_storeu_si256((__m256i *)(view.q + 32 * b), q);
    }
}

static void quantise_q8k(const float *a, void *out, uint32_t n)
{
    struct rn_q8k view = rn_q8k_view(out, n);
    int32_t low, high;
    float inverse;
    __m256i q, most;
    uint32_t b, i;

    for (b = 0; b < n / 256; b++) {
        most = _mm256_setzero_si256();
        for (i = 0; i < 256; i += 8)
            most = larger_bits(most, a + 256 * b + i);
        view.d[b] = block_scale(most, &inverse);
        for (i = 8 * b; i < 8 * b + 8; i++) {
            q = quantise32(a + 32 * i, inverse);
            sums16(q, &low, &high);
            view.sum16[2 * i] = (int16_t)low;
            view.sum16[2 * i + 1] = (int16_t)high;
            view.sum32[i] = (int16_t)(low + high);
            _mm256_storeu_si256((__m256i *)(view.q + 32 * i), q);
        }
    }
}

/* ---- Products of floats: four weight rows by up to three inputs ---- */

enum { FLOAT_TILE = 4, F32 = 0, F16 = 1, BF16 = 2 };

static inline __attribute__((always_inline)) __m256 weight8(const uint8_t *row, int kind, uint32_t i)
{
    if (kind == F32)
        return v_load((const float *)(row + (size_t)i * 4));
    return kind == F16 ? v_load_f16(row + (size_t)i * 2) : v_load_bf16(row + (size_t)i * 2);
}

/* Fewer than eight weights and inputs; what is missing is zero. */
static inline __attribute__((always_inline)) __m256 weight_part(const uint8_t *row, int kind, uint32_t i, uint32_t n)
{
    uint8_t bytes[32] = {0};
    uint32_t size = kind == F32 ? 4 : 2;

    memcpy(bytes, row + (size_t)i * size, (size_t)n * size);
    return weight8(bytes, kind, 0);
}

/* Inputs [first, first + n) of the tile; n, kind are constants where this is inlined. */
static inline __attribute__((always_inline)) void float_tile(const struct rn_matmul *m, const uint8_t *const *rows,
                                                             int kind, uint32_t first, uint32_t n)
{
    __m256 acc[FLOAT_TILE][3], x[3], w;
    uint32_t r, c, i, step = kind == F32 ? 4 : 2;
    float sum;

    for (r = 0; r < FLOAT_TILE; r++)
        for (c = 0; c < n; c++)
            acc[r][c] = _mm256_setzero_ps();
    for (i = 0; i + 8 <= m->cols; i += 8) {
        for (c = 0; c < n; c++)
            x[c] = v_load((const float *)m->inputs[first + c] + i);
        for (r = 0; r < FLOAT_TILE; r++) {
            w = weight8(rows[r], kind, i);
            if (n == 1)
                _mm_prefetch((const char *)rows[r] + (size_t)i * step + 1024, _MM_HINT_T0);
            for (c = 0; c < n; c++)
                acc[r][c] = _mm256_fmadd_ps(w, x[c], acc[r][c]);
        }
    }
    if (i < m->cols) {
        for (r = 0; r < FLOAT_TILE; r++) {
            w = weight_part(rows[r], kind, i, m->cols - i);
            for (c = 0; c < n; c++)
                acc[r][c] = _mm256_fmadd_ps(w, v_part((const float *)m->inputs[first + c] + i, m->cols - i), acc[r][c]);
        }
    }
    for (r = 0; r < FLOAT_TILE; r++) {
        for (c = 0; c < n; c++) {
            sum = v_sum(acc[r][c]);
            if (r < m->rows)
                m->out[first + c][(size_t)r * m->step] = sum;
        }
    }
}

static inline __attribute__((always_inline)) void float_tiles(const struct rn_matmul *m, const uint8_t *const *rows,
                                                              int kind)
{
    uint32_t i = 0;

    for (; i + 3 <= m->n; i += 3)
        float_tile(m, rows, kind, i, 3);
    if (i + 2 == m->n)
        float_tile(m, rows, kind, i, 2);
    else if (i + 1 == m->n)
        float_tile(m, rows, kind, i, 1);
}

static void direct_f32(const struct rn_matmul *m)
{
    const uint8_t *rows[FLOAT_TILE];

    rn_tile_rows(m, FLOAT_TILE, rows);
    float_tiles(m, rows, F32);
}

static void direct_f16(const struct rn_matmul *m)
{
    const uint8_t *rows[FLOAT_TILE];

    rn_tile_rows(m, FLOAT_TILE, rows);
    float_tiles(m, rows, F16);
}

static void direct_bf16(const struct rn_matmul *m)
{
    const uint8_t *rows[FLOAT_TILE];

    rn_tile_rows(m, FLOAT_TILE, rows);
    float_tiles(m, rows, BF16);
}

static size_t float_panel(uint32_t cols)
{
    return (size_t)FLOAT_TILE * rn_round_up(cols, 8) * 4;
}

static void pack_halves(const struct rn_matmul *m, int kind)
{
    const uint8_t *rows[FLOAT_TILE];
    float *out = m->panel;
    uint32_t r, i;

    rn_tile_rows(m, FLOAT_TILE, rows);
    for (r = 0; r < FLOAT_TILE; r++, out += rn_round_up(m->cols, 8)) {
        for (i = 0; i + 8 <= m->cols; i += 8)
            v_store(out + i, weight8(rows[r], kind, i));
        if (i < m->cols)
            v_store(out + i, weight_part(rows[r], kind, i, m->cols - i));
    }
}

static void pack_f16(const struct rn_matmul *m)
{
    pack_halves(m, F16);
}

static void pack_bf16(const struct rn_matmul *m)
{
    pack_halves(m, BF16);
}

static void pack_other(const struct rn_matmul *m)
{
    const uint8_t *rows[FLOAT_TILE];
    uint32_t r;

    rn_tile_rows(m, FLOAT_TILE, rows);
    for (r = 0; r < FLOAT_TILE; r++)
        m->type->decode(rows[r], (float *)m->panel + r * rn_round_up(m->cols, 8), m->cols);
}

static void packed_f32(const struct rn_matmul *m)
{
    const uint8_t *rows[FLOAT_TILE];
    uint32_t r;

    for (r = 0; r < FLOAT_TILE; r++)
        rows[r] = (const uint8_t *)m->panel + r * rn_round_up(m->cols, 8) * 4;
    float_tiles(m, rows, F32);
}

static const struct rn_kernel kernel_f32 = {.input = RN_INPUT_F32,
                                            .tile = FLOAT_TILE,
                                            .pack_from = UINT32_MAX,
                                            .step = 1,
                                            .panel_bytes = float_panel,
                                            .direct = direct_f32};
static const struct rn_kernel kernel_f16 = {.input = RN_INPUT_F32, .tile = FLOAT_TILE, .pack_from = 8, .step = 1,
                                            .panel_bytes = float_panel, .direct = direct_f16, .pack = pack_f16,
                                            .packed = packed_f32};
static const struct rn_kernel kernel_bf16 = {.input = RN_INPUT_F32, .tile = FLOAT_TILE, .pack_from = 8, .step = 1,
                                             .panel_bytes = float_panel, .direct = direct_bf16, .pack = pack_bf16,
                                             .packed = packed_f32};
const struct rn_kernel rn_kernel_avx2_other = {.input = RN_INPUT_F32, .tile = FLOAT_TILE, .pack_from = 1, .step = 1,
                                               .panel_bytes = float_panel, .pack = pack_other, .packed = packed_f32};

const struct rn_kernel *rn_kernel_avx2(uint32_t type_id)
{
    switch (type_id) {
    case RN_F32:
        return &kernel_f32;
    case RN_F16:
        return &kernel_f16;
    case RN_BF16:
        return &kernel_bf16;
    default:
        return rn_blocks_avx2(type_id);
    }
}

const struct rn_rows rn_rows_avx2 = {
    .quantise_q8 = quantise_q8, .quantise_q8k = quantise_q8k, .rms_norm = row_rms_norm, .layer_norm = row_layer_norm,
    .add = row_add, .scale = row_scale, .softcap = row_softcap, .activate = row_activate, .gate = row_gate,
    .accumulate = row_accumulate, .rope = row_rope, .kv_store = kv_store, .key_store = key_store};

const struct rn_level *rn_level_avx2(void)
{
    static const struct rn_level level = {
        .name = "avx2", .rows = &rn_rows_avx2, .attention = &row_attention, .kernel = rn_kernel_avx2,
        .other = &rn_kernel_avx2_other};
    uint32_t a, b, c, d;

    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        return NULL;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0 ? &level : NULL;
}
