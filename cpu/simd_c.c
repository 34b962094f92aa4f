/* The plain C level: for machines without a level of their own, and what the SIMD levels are compared
 * with. No FMA here: the same source gives the same bits on every IEEE machine (-ffp-contract=off). */
#include <math.h>
#include <string.h>

#include "cpu/kernels.h"

/* ---- Eight floats ---- */

typedef struct {
    float f[8];
} V8;

#define EACH(expression)                \
    do {                                \
        V8 out_;                        \
        int i;                          \
                                        \
        for (i = 0; i < 8; i++)         \
            out_.f[i] = (expression);   \
        return out_;                    \
    } while (0)

static inline V8 v_load(const float *a)
{
    EACH(a[i]);
}
static inline void v_store(float *out, V8 v)
{
    memcpy(out, v.f, sizeof v.f);
}
static inline V8 v_set1(float x)
{
    EACH(x);
}
static inline V8 v_add(V8 a, V8 b)
{
    EACH(a.f[i] + b.f[i]);
}
static inline V8 v_sub(V8 a, V8 b)
{
    EACH(a.f[i] - b.f[i]);
}
static inline V8 v_mul(V8 a, V8 b)
{
    EACH(a.f[i] * b.f[i]);
}
static inline V8 v_div(V8 a, V8 b)
{
    EACH(a.f[i] / b.f[i]);
}
static inline V8 v_fma(V8 a, V8 b, V8 c)
{
    EACH(a.f[i] * b.f[i] + c.f[i]);
}
/* The second operand where either is NaN. */
static inline V8 v_min(V8 a, V8 b)
{
    EACH(a.f[i] < b.f[i] ? a.f[i] : b.f[i]);
}
static inline V8 v_max(V8 a, V8 b)
{
    EACH(a.f[i] > b.f[i] ? a.f[i] : b.f[i]);
}
/* a < b ? x : y */
static inline V8 v_less(V8 a, V8 b, V8 x, V8 y)
{
    EACH(a.f[i] < b.f[i] ? x.f[i] : y.f[i]);
}
/* To the nearest integer, ties to even, for |x| < 2^22; NaN stays. */
static inline V8 v_round(V8 a)
{
    EACH((a.f[i] + 12582912.0f) - 12582912.0f);
}
/* 2^n for an integer n in [-126, 127]; anything for NaN. */
static inline V8 v_pow2(V8 n)
{
    V8 out;
    int32_t bits;
    int i;

    for (i = 0; i < 8; i++) {
        bits = ((n.f[i] == n.f[i] ? (int32_t)n.f[i] : 0) + 127) * (1 << 23);
        memcpy(&out.f[i], &bits, 4);
    }
    return out;
}
static inline float v_sum(V8 a)
{
    return ((a.f[0] + a.f[4]) + (a.f[2] + a.f[6])) + ((a.f[1] + a.f[5]) + (a.f[3] + a.f[7]));
}
static inline V8 v_sums(const V8 *a)
{
    EACH(v_sum(a[i]));
}
static inline V8 v_load_f16(const uint8_t *p)
{
    uint16_t half[8];

    memcpy(half, p, sizeof half);
    EACH(rn_f16_to_f32(half[i]));
}
static inline V8 v_load_bf16(const uint8_t *p)
{
    uint16_t half[8];

    memcpy(half, p, sizeof half);
    EACH(rn_bf16_to_f32(half[i]));
}

#include "cpu/rows.inc"

/* ---- Quantising a row ---- */

/* Scale of a block, and its inverse for quantising; both 0 for a block of (nearly) nothing. The
 * largest magnitude is found among the bits, where NaN and infinity are above all numbers: they end
 * in the scale, and so in every product with this block. */
static float block_scale(const float *a, uint32_t n, float *inverse)
{
    uint32_t most = 0, bits, i;
    float magnitude;

    for (i = 0; i < n; i++) {
        memcpy(&bits, a + i, 4);
        bits &= 0x7fffffff;
        most = bits > most ? bits : most;
    }
    memcpy(&magnitude, &most, 4);
    *inverse = magnitude > 1e-35f && magnitude < INFINITY ? 127 / magnitude : 0;
    return magnitude <= 1e-35f ? 0 : magnitude / 127;
}

static int32_t block_quantise(const float *a, int8_t *q, uint32_t n, float inverse)
{
    int32_t sum = 0;
    uint32_t i;

    for (i = 0; i < n; i++) { /* NaN only with an inverse of 0 */
        q[i] = inverse == 0 ? 0 : (int8_t)(int32_t)((a[i] * inverse + 12582912.0f) - 12582912.0f);
        sum += q[i];
    }
    return sum;
}

static void quantise_q8(const float *a, void *out, uint32_t n)
{
    struct rn_q8 view = rn_q8_view(out, n);
    float inverse;
    uint32_t b;

    for (b = 0; b < n / 32; b++) {
        view.d[b] = block_scale(a + 32 * b, 32, &inverse);
        view.sum[b] = block_quantise(a + 32 * b, view.q + 32 * b, 32, inverse);
    }
}

static void quantise_q8k(const float *a, void *out, uint32_t n)
{
    struct rn_q8k view = rn_q8k_view(out, n);
    float inverse;
    uint32_t b, j, at;

    for (b = 0; b < n / 256; b++) {
        view.d[b] = block_scale(a + 256 * b, 256, &inverse);
        for (j = 0; j < 16; j++) {
            at = b * 16 + j;
            view.sum16[at] = (int16_t)block_quantise(a + 16 * at, view.q + 16 * at, 16, inverse);
        }
        for (j = 0; j < 8; j++)
            view.sum32[b * 8 + j] = (int16_t)(view.sum16[b * 16 + 2 * j] + view.sum16[b * 16 + 2 * j + 1]);
    }
}

/* ---- Matrix products ---- */

static float half_at(const uint8_t *p)
{
    uint16_t half;

    memcpy(&half, p, sizeof half);
    return rn_f16_to_f32(half);
}

static float dot_f32(const float *w, const float *a, uint32_t n)
{
    V8 sum = v_set1(0);
    uint32_t i;

    for (i = 0; i + 8 <= n; i += 8)
        sum = v_fma(v_load(w + i), v_load(a + i), sum);
    if (i < n)
        sum = v_fma(v_part(w + i, n - i), v_part(a + i, n - i), sum);
    return v_sum(sum);
}

static size_t float_panel(uint32_t cols)
{
    return (size_t)cols * 4;
}

static void pack_other(const struct rn_matmul *m)
{
    m->type->decode(m->weights, m->panel, m->cols);
}

static void packed_f32(const struct rn_matmul *m)
{
    uint32_t i;

    for (i = 0; i < m->n; i++)
        m->out[i][0] = dot_f32(m->panel, m->inputs[i], m->cols);
}

static float dot_q4_0(const uint8_t *w, struct rn_q8 y, uint32_t n)
{
    float acc = 0;
    int32_t sum;
    uint32_t b, i;

    for (b = 0; b < n / 32; b++, w += 18) {
        sum = 0;
        for (i = 0; i < 16; i++)
            sum += ((w[2 + i] & 15) - 8) * y.q[32 * b + i] + ((w[2 + i] >> 4) - 8) * y.q[32 * b + 16 + i];
        acc += half_at(w) * y.d[b] * (float)sum;
    }
    return acc;
}

static float dot_q8_0(const uint8_t *w, struct rn_q8 y, uint32_t n)
{
    float acc = 0;
    int32_t sum;
    uint32_t b, i;

    for (b = 0; b < n / 32; b++, w += 34) {
        sum = 0;
        for (i = 0; i < 32; i++)
            sum += (int8_t)w[2 + i] * y.q[32 * b + i];
        acc += half_at(w) * y.d[b] * (float)sum;
    }
    return acc;
}

/* Scale and minimum of the j-th 32 values, 6 bits each. */
static void q4_k_scale(const uint8_t *s, uint32_t j, int32_t *scale, int32_t *minimum)
{
    if (j < 4) {
        *scale = s[j] & 63;
        *minimum = s[j + 4] & 63;
    } else {
        *scale = (s[j + 4] & 15) | (s[j - 4] >> 6 << 4);
        *minimum = (s[j + 4] >> 4) | (s[j] >> 6 << 4);
    }
}

static float dot_q4_k(const uint8_t *w, struct rn_q8k y, uint32_t n)
{
    float acc = 0;
    int32_t sum, least, part, scale, minimum;
    uint32_t b, j, i;

    for (b = 0; b < n / 256; b++, w += 144) {
        sum = least = 0;
        for (j = 0; j < 8; j++) {
            q4_k_scale(w + 4, j, &scale, &minimum);
            part = 0;
            for (i = 0; i < 32; i++)
                part += (w[16 + j / 2 * 32 + i] >> (j % 2 * 4) & 15) * y.q[256 * b + 32 * j + i];
            sum += scale * part;
            least += minimum * y.sum32[8 * b + j];
        }
        acc += half_at(w) * y.d[b] * (float)sum;
        acc -= half_at(w + 2) * y.d[b] * (float)least;
    }
    return acc;
}

static float dot_q6_k(const uint8_t *w, struct rn_q8k y, uint32_t n)
{
    float acc = 0;
    int32_t sum, part, low, high;
    uint32_t b, j, i, at;

    for (b = 0; b < n / 256; b++, w += 210) {
        sum = 0;
        for (j = 0; j < 16; j++) {
            part = 0;
            for (i = 0; i < 16; i++) {
                at = 16 * j % 128 + i; /* in its half of 128 values */
                low = w[j / 8 * 64 + at % 64] >> (at / 64 * 4) & 15;
                high = w[128 + j / 8 * 32 + at % 32] >> (at / 32 * 2) & 3;
                part += ((low | high << 4) - 32) * y.q[256 * b + 16 * j + i];
            }
            sum += (int8_t)w[192 + j] * part;
        }
        acc += half_at(w + 208) * y.d[b] * (float)sum;
    }
    return acc;
}

#define DIRECT(name, view, kind)                                                         \
    static void direct_##name(const struct rn_matmul *m)                                 \
    {                                                                                    \
        uint32_t i;                                                                      \
                                                                                         \
        for (i = 0; i < m->n; i++)                                                       \
            m->out[i][0] = dot_##name(m->weights, view(m->inputs[i], m->cols), m->cols); \
    }                                                                                    \
    static const struct rn_kernel kernel_##name = {.input = kind,                        \
                                                   .tile = 1,                            \
                                                   .pack_from = UINT32_MAX,              \
                                                   .step = 1,                            \
                                                   .panel_bytes = float_panel,           \
                                                   .direct = direct_##name}

DIRECT(q4_0, rn_q8_view, RN_INPUT_Q8);
DIRECT(q8_0, rn_q8_view, RN_INPUT_Q8);
DIRECT(q4_k, rn_q8k_view, RN_INPUT_Q8K);
DIRECT(q6_k, rn_q8k_view, RN_INPUT_Q8K);

static const struct rn_kernel kernel_other = {.input = RN_INPUT_F32,
                                              .tile = 1,
                                              .pack_from = 1,
                                              .step = 1,
                                              .panel_bytes = float_panel,
                                              .pack = pack_other,
                                              .packed = packed_f32};

static const struct rn_kernel *kernel_c(uint32_t type_id)
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
    default: /* F32, F16 and BF16 too: decoding is a copy */
        return NULL;
    }
}

static const struct rn_rows rows_c = {
    .quantise_q8 = quantise_q8, .quantise_q8k = quantise_q8k, .rms_norm = row_rms_norm, .layer_norm = row_layer_norm,
    .add = row_add, .scale = row_scale, .softcap = row_softcap, .activate = row_activate, .gate = row_gate,
    .accumulate = row_accumulate, .rope = row_rope, .kv_store = row_kv_store, .attend = row_attend};

const struct rn_level *rn_level_c(void)
{
    static const struct rn_level level = {.name = "c", .rows = &rows_c, .kernel = kernel_c, .other = &kernel_other};

    return &level;
}
