/* The plain C level: for machines without a level of their own, and what the SIMD levels are compared
 * with. No FMA here: the same source gives the same bits on every IEEE machine (-ffp-contract=off). */
#include <math.h>
#include <string.h>

#include "cpu/kernels.h"
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

/* Products of blocks: one weight row, unpacked (unpack.h) block by block; with many inputs once into the
 * panel. Every input's sum takes the same steps either way. The quants become 16 bits wide, and take their
 * groups' scales in: then a block is one plain sum, the form that compilers make the most of. A product of
 * scale and quant is at most 32 · 127 (IQ4_XS) or 128 · 32 (Q6_K), and the sum of a block below 2^31. */

struct wide32 {
    int16_t q[32];
    float d[2], m;
};

struct wide256 {
    int16_t q[256], least[16];
    float d, m;
};

static void widen32(const struct rn_block32 *w, struct wide32 *out)
{
    int i;

    for (i = 0; i < 32; i++)
        out->q[i] = w->q[i];
    out->d[0] = w->d[0];
    out->d[1] = w->d[1];
    out->m = w->m;
}

static void widen256(const struct rn_block256 *w, struct wide256 *out)
{
    int g, i;

    for (g = 0; g < 16; g++)
        for (i = 16 * g; i < 16 * g + 16; i++)
            out->q[i] = (int16_t)(w->scale[g] * w->q[i]);
    memcpy(out->least, w->least, sizeof out->least);
    out->d = w->d;
    out->m = w->m;
}

static inline int32_t dot(const int16_t *a, const int8_t *b, int n)
{
    int32_t sum = 0;
    int i;

    for (i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* acc + the 32 columns of w by the b-th of y. */
static inline float add32(enum rn_type_id type, const struct wide32 *w, struct rn_q8 y, uint32_t b, float acc)
{
    const int8_t *q = y.q + 32 * (size_t)b;

    if (type == RN_NVFP4) {
        acc += w->d[0] * y.d[b] * (float)dot(w->q, q, 16);
        return acc + w->d[1] * y.d[b] * (float)dot(w->q + 16, q + 16, 16);
    }
    acc += w->d[0] * y.d[b] * (float)dot(w->q, q, 32);
    return type == RN_Q4_1 || type == RN_Q5_1 ? acc + w->m * y.d[b] * (float)y.sum[b] : acc;
}

static inline float add256(enum rn_type_id type, const struct wide256 *w, struct rn_q8k y, uint32_t b, float acc)
{
    const int16_t *sums = y.sum16 + 16 * (size_t)b;
    int32_t least = 0;
    int g;

    acc += w->d * y.d[b] * (float)dot(w->q, y.q + 256 * (size_t)b, 256);
    if (type != RN_Q2_K && type != RN_Q4_K && type != RN_Q5_K)
        return acc;
    for (g = 0; g < 16; g++)
        least += w->least[g] * sums[g];
    return acc - w->m * y.d[b] * (float)least;
}

/* n blocks of a row, from the first-th on. */
typedef void unpack32(const uint8_t *row, uint32_t first, uint32_t n, struct wide32 *out);
typedef void unpack256(const uint8_t *row, uint32_t first, uint32_t n, struct wide256 *out);

/* direct and packed of blocks of 32 or 256 columns; view: of the inputs. */
#define PRODUCTS(width, view)                                                                         \
    static void direct##width(const struct rn_matmul *m, enum rn_type_id type, unpack##width *unpack) \
    {                                                                                                 \
        enum { AT_ONCE = 256 / width };                                                               \
        uint32_t blocks = m->cols / width, b, k, n, i;                                                \
        struct wide##width w[AT_ONCE];                                                                \
        float acc[RN_MAX_INPUTS] = {0};                                                               \
                                                                                                      \
        for (b = 0; b < blocks; b += n) {                                                             \
            n = blocks - b < AT_ONCE ? blocks - b : AT_ONCE;                                          \
            unpack(m->weights, b, n, w);                                                              \
            for (i = 0; i < m->n; i++)                                                                \
                for (k = 0; k < n; k++)                                                               \
                    acc[i] = add##width(type, &w[k], view(m->inputs[i], m->cols), b + k, acc[i]);     \
        }                                                                                             \
        for (i = 0; i < m->n; i++)                                                                    \
            m->out[i][0] = acc[i];                                                                    \
    }                                                                                                 \
    static void packed##width(const struct rn_matmul *m, enum rn_type_id type)                        \
    {                                                                                                 \
        const struct wide##width *w = m->panel;                                                       \
        uint32_t b, i;                                                                                \
        float acc;                                                                                    \
                                                                                                      \
        for (i = 0; i < m->n; i++) {                                                                  \
            for (acc = 0, b = 0; b < m->cols / width; b++)                                            \
                acc = add##width(type, &w[b], view(m->inputs[i], m->cols), b, acc);                   \
            m->out[i][0] = acc;                                                                       \
        }                                                                                             \
    }                                                                                                 \
    static size_t panel##width(uint32_t cols)                                                         \
    {                                                                                                 \
        return cols / width * sizeof(struct wide##width);                                             \
    }

PRODUCTS(32, rn_q8_view)
PRODUCTS(256, rn_q8k_view)

#define KERNEL(name, type, width, kind)                                                                \
    static void unpack_##name(const uint8_t *row, uint32_t first, uint32_t n, struct wide##width *out) \
    {                                                                                                  \
        struct rn_block##width w;                                                                      \
        uint32_t k;                                                                                    \
                                                                                                       \
        for (k = 0; k < n; k++) {                                                                      \
            rn_unpack##width(type, row, first + k, &w);                                                \
            widen##width(&w, &out[k]);                                                                 \
        }                                                                                              \
    }                                                                                                  \
    static void direct_##name(const struct rn_matmul *m)                                               \
    {                                                                                                  \
        direct##width(m, type, unpack_##name);                                                         \
    }                                                                                                  \
    static void pack_##name(const struct rn_matmul *m)                                                 \
    {                                                                                                  \
        unpack_##name(m->weights, 0, m->cols / width, m->panel);                                       \
    }                                                                                                  \
    static void packed_##name(const struct rn_matmul *m)                                               \
    {                                                                                                  \
        packed##width(m, type);                                                                        \
    }                                                                                                  \
    static const struct rn_kernel kernel_##name = {.input = kind,                                      \
                                                   .tile = 1,                                          \
                                                   .pack_from = RN_PACK_FROM,                          \
                                                   .step = 1,                                          \
                                                   .panel_bytes = panel##width,                        \
                                                   .direct = direct_##name,                            \
                                                   .pack = pack_##name,                                \
                                                   .packed = packed_##name};

#define KERNEL32(name, type) KERNEL(name, type, 32, RN_INPUT_Q8)
#define KERNEL256(name, type) KERNEL(name, type, 256, RN_INPUT_Q8K)
RN_FORMATS32(KERNEL32)
RN_FORMATS256(KERNEL256)

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

static const struct rn_rows rows_c = {.quantise_q8 = quantise_q8,
                                      .quantise_q8k = quantise_q8k,
                                      .rms_norm = row_rms_norm,
                                      .layer_norm = row_layer_norm,
                                      .add = row_add,
                                      .scale = row_scale,
                                      .softcap = row_softcap,
                                      .activate = row_activate,
                                      .gate = row_gate,
                                      .accumulate = row_accumulate,
                                      .rope = row_rope,
                                      .kv_store = row_kv_store,
                                      .key_store = row_key_store};

const struct rn_level *rn_level_c(void)
{
    static const struct rn_level level = {
        .name = "c", .rows = &rows_c, .attention = &row_attention, .kernel = kernel_c, .other = &kernel_other};

    return &level;
}
