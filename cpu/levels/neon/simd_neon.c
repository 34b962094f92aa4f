/* The NEON level of AArch64: rows, quantising, products of floats. The products of the block formats are
 * in neon_blocks.inc, built with and without dot products. Threads: any; nothing here has state. */
#include <arm_neon.h>
#include <math.h>
#include <string.h>
#include <sys/auxv.h>

#include "cpu/levels/neon/levels_arm.h"
#include "cpu/levels/lines.h"

/* ---- Eight floats: two registers, the first four lanes in the first ---- */

typedef float32x4x2_t V8;

static inline V8 v_load(const float *a)
{
    return (V8){{vld1q_f32(a), vld1q_f32(a + 4)}};
}
static inline void v_store(float *out, V8 v)
{
    vst1q_f32(out, v.val[0]);
    vst1q_f32(out + 4, v.val[1]);
}
static inline V8 v_set1(float x)
{
    return (V8){{vdupq_n_f32(x), vdupq_n_f32(x)}};
}
static inline V8 v_add(V8 a, V8 b)
{
    return (V8){{vaddq_f32(a.val[0], b.val[0]), vaddq_f32(a.val[1], b.val[1])}};
}
static inline V8 v_sub(V8 a, V8 b)
{
    return (V8){{vsubq_f32(a.val[0], b.val[0]), vsubq_f32(a.val[1], b.val[1])}};
}
static inline V8 v_mul(V8 a, V8 b)
{
    return (V8){{vmulq_f32(a.val[0], b.val[0]), vmulq_f32(a.val[1], b.val[1])}};
}
static inline V8 v_div(V8 a, V8 b)
{
    return (V8){{vdivq_f32(a.val[0], b.val[0]), vdivq_f32(a.val[1], b.val[1])}};
}
/* a * b + c */
static inline V8 v_fma(V8 a, V8 b, V8 c)
{
    return (V8){{vfmaq_f32(c.val[0], a.val[0], b.val[0]), vfmaq_f32(c.val[1], a.val[1], b.val[1])}};
}
/* a < b ? x : y */
static inline V8 v_less(V8 a, V8 b, V8 x, V8 y)
{
    return (V8){{vbslq_f32(vcltq_f32(a.val[0], b.val[0]), x.val[0], y.val[0]),
                 vbslq_f32(vcltq_f32(a.val[1], b.val[1]), x.val[1], y.val[1])}};
}
/* The second operand where either is NaN, which NEON's own minimum is not. */
static inline V8 v_min(V8 a, V8 b)
{
    return v_less(a, b, a, b);
}
static inline V8 v_max(V8 a, V8 b)
{
    return v_less(b, a, a, b);
}
static inline V8 v_round(V8 a)
{
    return (V8){{vrndnq_f32(a.val[0]), vrndnq_f32(a.val[1])}};
}
static inline float32x4_t pow2_four(float32x4_t n)
{
    return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127)), 23));
}
static inline V8 v_pow2(V8 n)
{
    return (V8){{pow2_four(n.val[0]), pow2_four(n.val[1])}};
}
static inline float v_sum(V8 a)
{
    float32x4_t four = vaddq_f32(a.val[0], a.val[1]);
    float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));

    return vget_lane_f32(vpadd_f32(two, two), 0);
}
static inline V8 v_load_f16(const uint8_t *p)
{
    float16x8_t half = vreinterpretq_f16_u8(vld1q_u8(p));

    return (V8){{vcvt_f32_f16(vget_low_f16(half)), vcvt_high_f32_f16(half)}};
}
static inline V8 v_load_bf16(const uint8_t *p)
{
    uint16x8_t half = vreinterpretq_u16_u8(vld1q_u8(p));

    return (V8){{vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(half), 16)),
                 vreinterpretq_f32_u32(vshll_high_n_u16(half, 16))}};
}

#include "cpu/levels/rows.inc"

static void kv_store(void *out, const float *a, uint32_t n, runnel_kv_type type)
{
    uint16_t *half = out;
    uint32_t i = 0;

    if (type == RUNNEL_KV_F16)
        for (; i + 4 <= n; i += 4)
            vst1_u16(half + i, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(a + i))));
    row_kv_store((char *)out + (size_t)i * 2, a + i, n - i, type);
}

/* ---- Quantising a row ---- */

/* The largest magnitude of 32 values, among the bits: see rn_line_scale. */
static inline uint32_t most_of_32(const float *a)
{
    uint32x4_t most = vdupq_n_u32(0);
    uint32_t i;

    for (i = 0; i < 32; i += 4)
        most = vmaxq_u32(most, vbicq_u32(vreinterpretq_u32_f32(vld1q_f32(a + i)), vdupq_n_u32(0x80000000)));
    return vmaxvq_u32(most);
}

/* 16 values to bytes. NaN becomes 0, and it comes with an inverse of 0; infinity times 0 is NaN. */
static inline int8x16_t quantise16(const float *a, float inverse)
{
    int16x8_t low = vcombine_s16(vmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(a), inverse))),
                                 vmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(a + 4), inverse))));
    int16x8_t high = vcombine_s16(vmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(a + 8), inverse))),
                                  vmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(a + 12), inverse))));

    return vcombine_s8(vmovn_s16(low), vmovn_s16(high));
}

static void quantise_lines(const float *a, void *out, uint32_t n, bool fine)
{
    struct rn_line *y = out;
    int8x16_t low, high;
    float inverse, d;

    for (; n >= 32; n -= 32, a += 32, y++) {
        d = rn_line_scale(most_of_32(a), fine, &inverse);
        low = quantise16(a, inverse);
        high = quantise16(a + 16, inverse);
        vst1q_s8(y->q, low);
        vst1q_s8(y->q + 16, high);
        rn_line_sums(y, d, fine, vaddlvq_s8(low), vaddlvq_s8(high));
    }
}

/* ---- Products of floats: four weight rows by up to two inputs, which is 16 sums in registers ---- */

#define INLINE static inline __attribute__((always_inline))

enum { FLOAT_TILE = 4, AT_ONCE = 2, F32 = 0, F16 = 1, BF16 = 2 };

INLINE V8 weight8(const uint8_t *row, int kind, uint32_t i)
{
    if (kind == F32)
        return v_load((const float *)(row + (size_t)i * 4));
    return kind == F16 ? v_load_f16(row + (size_t)i * 2) : v_load_bf16(row + (size_t)i * 2);
}

/* Fewer than eight weights; what is missing is zero. */
INLINE V8 weight_part(const uint8_t *row, int kind, uint32_t i, uint32_t n)
{
    _Alignas(16) uint8_t bytes[32] = {0};
    uint32_t size = kind == F32 ? 4 : 2;

    memcpy(bytes, row + (size_t)i * size, (size_t)n * size);
    return weight8(bytes, kind, 0);
}

/* Inputs [first, first + n) of the tile; n and kind are constants where this is inlined. */
INLINE void float_tile(const struct rn_matmul *m, const uint8_t *const *rows, int kind, uint32_t first, uint32_t n)
{
    V8 acc[FLOAT_TILE][AT_ONCE], x[AT_ONCE], w;
    uint32_t r, c, i;
    float sum;

    for (r = 0; r < FLOAT_TILE; r++)
        for (c = 0; c < n; c++)
            acc[r][c] = v_set1(0);
    for (i = 0; i + 8 <= m->cols; i += 8) {
        for (c = 0; c < n; c++)
            x[c] = v_load((const float *)m->inputs[first + c] + i);
        for (r = 0; r < FLOAT_TILE; r++) {
            w = weight8(rows[r], kind, i);
            for (c = 0; c < n; c++)
                acc[r][c] = v_fma(w, x[c], acc[r][c]);
        }
    }
    for (r = 0; r < FLOAT_TILE && i < m->cols; r++) {
        w = weight_part(rows[r], kind, i, m->cols - i);
        for (c = 0; c < n; c++)
            acc[r][c] = v_fma(w, v_part((const float *)m->inputs[first + c] + i, m->cols - i), acc[r][c]);
    }
    for (r = 0; r < FLOAT_TILE; r++)
        for (c = 0; c < n; c++) {
            sum = v_sum(acc[r][c]);
            if (r < m->rows)
                m->out[first + c][(size_t)r * m->step] = sum;
        }
}

INLINE void float_tiles(const struct rn_matmul *m, const uint8_t *const *rows, int kind)
{
    uint32_t i;

    for (i = 0; i + AT_ONCE <= m->n; i += AT_ONCE)
        float_tile(m, rows, kind, i, AT_ONCE);
    if (i < m->n)
        float_tile(m, rows, kind, i, 1);
}

/* One tile of rows after the other. */
INLINE void direct_floats(const struct rn_matmul *m, int kind)
{
    const uint8_t *rows[FLOAT_TILE];
    struct rn_matmul part = *m;
    uint32_t row, c;

    for (row = 0; row < m->rows; row += FLOAT_TILE) {
        part.weights = m->weights + (size_t)row * m->step * m->row_bytes;
        part.rows = m->rows - row < FLOAT_TILE ? m->rows - row : FLOAT_TILE;
        for (c = 0; c < m->n; c++)
            part.out[c] = m->out[c] + (size_t)row * m->step;
        rn_tile_rows(&part, FLOAT_TILE, rows);
        float_tiles(&part, rows, kind);
    }
}

static void direct_f32(const struct rn_matmul *m)
{
    direct_floats(m, F32);
}

static void direct_f16(const struct rn_matmul *m)
{
    direct_floats(m, F16);
}

static void direct_bf16(const struct rn_matmul *m)
{
    direct_floats(m, BF16);
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
static const struct rn_kernel kernel_f16 = {.input = RN_INPUT_F32,
                                            .tile = FLOAT_TILE,
                                            .pack_from = 8,
                                            .step = 1,
                                            .panel_bytes = float_panel,
                                            .direct = direct_f16,
                                            .pack = pack_f16,
                                            .packed = packed_f32};
static const struct rn_kernel kernel_bf16 = {.input = RN_INPUT_F32,
                                             .tile = FLOAT_TILE,
                                             .pack_from = 8,
                                             .step = 1,
                                             .panel_bytes = float_panel,
                                             .direct = direct_bf16,
                                             .pack = pack_bf16,
                                             .packed = packed_f32};
static const struct rn_kernel kernel_other = {.input = RN_INPUT_F32,
                                              .tile = FLOAT_TILE,
                                              .pack_from = 1,
                                              .step = 1,
                                              .panel_bytes = float_panel,
                                              .pack = pack_other,
                                              .packed = packed_f32};

/* ---- The level ---- */

static const struct rn_kernel *kernel_of_floats(uint32_t type_id)
{
    switch (type_id) {
    case RN_F32:
        return &kernel_f32;
    case RN_F16:
        return &kernel_f16;
    case RN_BF16:
        return &kernel_bf16;
    default:
        return NULL;
    }
}

static const struct rn_kernel *kernel_plain(uint32_t type_id)
{
    const struct rn_kernel *kernel = kernel_of_floats(type_id);

    return kernel != NULL ? kernel : rn_blocks_neon(type_id);
}

static const struct rn_kernel *kernel_dot(uint32_t type_id)
{
    const struct rn_kernel *kernel = kernel_of_floats(type_id);

    return kernel != NULL ? kernel : rn_blocks_neon_dot(type_id);
}

static const struct rn_rows rows_neon = {.quantise_lines = quantise_lines,
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
                                         .key_store = row_key_store};

const struct rn_level *rn_level_neon(void)
{
    static const struct rn_level plain = {.name = "neon",
                                          .bits = "neon",
                                          .rows = &rows_neon,
                                          .attention = &row_attention,
                                          .kernel = kernel_plain,
                                          .other = &kernel_other};
    static const struct rn_level dot = {.name = "neon",
                                        .bits = "neon",
                                        .rows = &rows_neon,
                                        .attention = &row_attention,
                                        .kernel = kernel_dot,
                                        .other = &kernel_other};
    const unsigned long dotprod = 1ul << 20; /* HWCAP_ASIMDDP of the kernel's interface */

    return (getauxval(AT_HWCAP) & dotprod) != 0 ? &dot : &plain;
}
