/* The plain C level: for machines without a level of their own, and what the SIMD levels are compared
 * with. The same source gives the same bits on every IEEE machine (-ffp-contract=off), and they are those of the
 * other levels: fma.h has their fused multiply-add. */
#include <math.h>
#include <string.h>

#include "cpu/kernels.h"
#include "cpu/levels/fma.h"
#include "cpu/levels/lines.h"
#include "cpu/levels/unpack.h"

/* ---- Eight floats ---- */

typedef struct {
    float f[8];
} V8;

#define EACH(expression)              \
    do {                              \
        V8 out_;                      \
        int i;                        \
                                      \
        for (i = 0; i < 8; i++)       \
            out_.f[i] = (expression); \
        return out_;                  \
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
    EACH(rn_fma(a.f[i], b.f[i], c.f[i]));
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

#include "cpu/levels/rows.inc"

/* ---- Quantising a row ---- */

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

static void quantise_lines(const float *a, void *out, uint32_t n, bool fine)
{
    struct rn_line *y = out;
    int32_t low, high;
    uint32_t most, bits, i;
    float inverse, d;

    for (; n >= 32; n -= 32, a += 32, y++) {
        for (most = 0, i = 0; i < 32; i++) {
            memcpy(&bits, a + i, 4);
            bits &= 0x7fffffff;
            most = bits > most ? bits : most;
        }
        d = rn_line_scale(most, fine, &inverse);
        low = block_quantise(a, y->q, 16, inverse);
        high = block_quantise(a + 16, y->q + 16, 16, inverse);
        rn_line_sums(y, d, fine, low, high);
    }
}

/* ---- Matrix products ---- */

#define INLINE static inline __attribute__((always_inline))

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

/* Products of blocks: one weight row, unpacked (unpack.h) 32 columns by 32 columns; with many inputs once into the
 * panel. Every input's sum takes the same steps either way. The quants become 16 bits wide: then their sum is plain,
 * the form that compilers make the most of. */

struct wide {
    int16_t q[32];
    float d[2], m[2];
};

INLINE void to_shorts(const int8_t *q, int16_t *out)
{
    int i;

    for (i = 0; i < 32; i++)
        out[i] = q[i];
}

/* n strips of 32 columns of a row, from the first-th on: at most eight, whole blocks. */
INLINE void unpack(enum rn_type_id type, const uint8_t *row, uint32_t first, uint32_t n, struct wide *out)
{
    struct rn_block32 w32;
    struct rn_block256 w;
    uint32_t j, h;

    if (rn_unpack256_bytes(type) > 0)
        rn_unpack256(type, row, first / 8, &w);
    for (j = 0; j < n; j++) {
        if (rn_unpack256_bytes(type) > 0) {
            to_shorts(w.q + 32 * j, out[j].q);
            for (h = 0; h < 2; h++) {
                out[j].d[h] = w.d * w.scale[2 * j + h];
                out[j].m[h] = -w.m * w.least[2 * j + h];
            }
        } else {
            rn_unpack32(type, row, first + j, &w32);
            to_shorts(w32.q, out[j].q);
            memcpy(out[j].d, w32.d, sizeof w32.d);
            out[j].m[0] = out[j].m[1] = w32.m;
        }
    }
}

static inline int32_t dot(const int16_t *a, const int8_t *b, int n)
{
    int32_t sum = 0;
    int i;

    for (i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* acc + the 32 columns of w by those of y. */
INLINE float add(enum rn_type_id type, const struct wide *w, const struct rn_line *y, float acc)
{
    const uint32_t minima = rn_unpack_minima(type);

    if (rn_unpack_scales(type) == 1) {
        acc = rn_fma((float)dot(w->q, y->q, 32) * y->d, w->d[0], acc);
    } else {
        acc = rn_fma((float)dot(w->q, y->q, 16) * y->d, w->d[0], acc);
        acc = rn_fma((float)dot(w->q + 16, y->q + 16, 16) * y->d, w->d[1], acc);
    }
    if (minima == 1)
        return rn_fma(y->d_sum, w->m[0], acc);
    return minima == 0 ? acc : rn_fma(y->d_sum16[1], w->m[1], rn_fma(y->d_sum16[0], w->m[0], acc));
}

typedef void unpack_strips(const uint8_t *row, uint32_t first, uint32_t n, struct wide *out);

INLINE void direct(const struct rn_matmul *m, enum rn_type_id type, unpack_strips *strips)
{
    uint32_t left, b, k, n, i;
    float acc[RN_MAX_INPUTS] = {0};
    const struct rn_line *y;
    struct wide w[8];

    for (b = 0; b < m->cols / 32; b += n) {
        left = m->cols / 32 - b;
        n = left < 8 ? left : 8;
        strips(m->weights, b, n, w);
        for (i = 0; i < m->n; i++)
            for (k = 0, y = (const struct rn_line *)m->inputs[i] + b; k < n; k++)
                acc[i] = add(type, &w[k], &y[k], acc[i]);
    }
    for (i = 0; i < m->n; i++)
        m->out[i][0] = acc[i];
}

static void pack(const struct rn_matmul *m, unpack_strips *strips)
{
    uint32_t left, b;

    for (b = 0; b < m->cols / 32; b += 8) {
        left = m->cols / 32 - b;
        strips(m->weights, b, left < 8 ? left : 8, (struct wide *)m->panel + b);
    }
}

INLINE void packed(const struct rn_matmul *m, enum rn_type_id type)
{
    const struct wide *w = m->panel;
    const struct rn_line *y;
    uint32_t b, i;
    float acc;

    for (i = 0; i < m->n; i++) {
        for (acc = 0, y = m->inputs[i], b = 0; b < m->cols / 32; b++)
            acc = add(type, &w[b], &y[b], acc);
        m->out[i][0] = acc;
    }
}

static size_t panel_bytes(uint32_t cols)
{
    return cols / 32 * sizeof(struct wide);
}

#define KERNEL(name, type)                                                                      \
    static void unpack_##name(const uint8_t *row, uint32_t first, uint32_t n, struct wide *out) \
    {                                                                                           \
        unpack(type, row, first, n, out);                                                       \
    }                                                                                           \
    static void direct_##name(const struct rn_matmul *m)                                        \
    {                                                                                           \
        direct(m, type, unpack_##name);                                                         \
    }                                                                                           \
    static void pack_##name(const struct rn_matmul *m)                                          \
    {                                                                                           \
        pack(m, unpack_##name);                                                                 \
    }                                                                                           \
    static void packed_##name(const struct rn_matmul *m)                                        \
    {                                                                                           \
        packed(m, type);                                                                        \
    }                                                                                           \
    static const struct rn_kernel kernel_##name = {.input = RN_INPUT_OF(type),                  \
                                                   .tile = 1,                                   \
                                                   .pack_from = RN_PACK_FROM,                   \
                                                   .step = 1,                                   \
                                                   .panel_bytes = panel_bytes,                  \
                                                   .direct = direct_##name,                     \
                                                   .pack = pack_##name,                         \
                                                   .packed = packed_##name};
RN_FORMATS32(KERNEL)
RN_FORMATS256(KERNEL)

static const struct rn_kernel kernel_other = {.input = RN_INPUT_F32,
                                              .tile = 1,
                                              .pack_from = 1,
                                              .step = 1,
                                              .panel_bytes = float_panel,
                                              .pack = pack_other,
                                              .packed = packed_f32};

#define CASE(name, type) \
    case type:           \
        return &kernel_##name;

static const struct rn_kernel *kernel_c(uint32_t type_id)
{
    switch (type_id) {
        RN_FORMATS32(CASE)
        RN_FORMATS256(CASE)
    default: /* F32, F16 and BF16 too: decoding is a copy */
        return NULL;
    }
}

static const struct rn_rows rows_c = {.quantise_lines = quantise_lines,
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
                                      .kv_store = row_kv_store,
                                      .key_store = row_key_store};

const struct rn_level *rn_level_c(void)
{
    static const struct rn_level level = {.name = "c",
                                          .bits = "c",
                                          .rows = &rows_c,
                                          .attention = &row_attention,
                                          .kernel = kernel_c,
                                          .other = &kernel_other};

    return &level;
}
