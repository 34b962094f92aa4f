/* The kernels of one SIMD level, and the memory layouts they share with the executor.
 *
 * A level is a table of functions. Law 5 binds each of them: the bits of one output element depend
 * on the weight row and the input row alone, not on which rows were handed over together.
 *
 * Matrix products of the block formats. Inputs are quantised per row to 8 bits (enum rn_input). Sums of
 * products of small integers are exact, in any order and any width; float steps have one order. So the direct
 * product (few input rows, weights as they stand in the file) and the packed one (a tile of weight rows
 * unpacked into a scratch panel first) agree to the bit.
 *
 *   RN_INPUT_LINES (x86, every format, AVX2 and AVX-512 alike). For each 32 columns in order, first for each
 *   scale (one, or one per 16 columns), then for each minimum (none, one, or one per 16 columns):
 *
 *       acc ← fma(float(Σ q_weight · q_input) · d_input, d_weight, acc)
 *       acc ← fma(d_input · Σ q_input, m_weight, acc)
 *
 *   where each product in front of a comma is rounded once, and d_weight and m_weight are the scale and minimum
 *   of those columns as one float (d · s, -dmin · m; see model/quant_*.c).
 *
 *   RN_INPUT_Q8, RN_INPUT_Q8K (plain C, NEON). For each block in order, integer scales inside a block of 256
 *   being part of the integer sum:
 *
 *       acc ← acc + d_weight · d_input · Σ q_weight · q_input
 *
 * Matrix products of floats (and of every other format, decoded to floats): eight lanes, lane i sums
 * the columns ≡ i mod 8 in order, then the lanes are added in one fixed tree. */
#ifndef RN_CPU_KERNELS_H
#define RN_CPU_KERNELS_H

#include <assert.h>

#include "base/alloc.h"
#include "model/kv_encode.h"
#include "model/plan.h"

struct rn_backend;
struct rn_team;

/* How a kernel wants its input rows. */
enum rn_input {
    RN_INPUT_F32,
    RN_INPUT_Q8,    /* blocks of 32: see struct rn_q8 */
    RN_INPUT_Q8K,   /* blocks of 256: see struct rn_q8k */
    RN_INPUT_LINES, /* blocks of 32, each a cache line: see struct rn_line */
    RN_INPUT_KINDS
};

/* Bytes that a kernel asks for ahead in each row that is a stream, and in tiles where a trial does not say otherwise:
 * measured, see docs/SPEED-LOG.md. */
enum {
    RN_MAX_INPUTS = 24,
    RN_PACK_FROM = 17,
    RN_MAX_TILE = 32,
    RN_STREAM_AHEAD = 512,
    RN_TILE_ROWS = 16,
    RN_TILE_AHEAD = 1024
};

/* A panel of several tiles has at most so many bytes: a part of the second-level cache, which the inputs need, too. */
enum { RN_PANEL_BYTES = 512 << 10 };

/* One tile of a product: out[i][r * step] = weights[r * step] · inputs[i], r < rows.
 * With few inputs, memory sets the pace: tiles of rows far apart (step > 1), taken one after the other, make
 * each row of the tile a stream through memory that the processor fetches ahead by itself. */
struct rn_matmul {
    const uint8_t *weights; /* first weight row */
    size_t row_bytes;       /* from one row to the next */
    uint32_t rows;          /* 1..kernel tile; of packed products 1..rn_kernel_panel */
    uint32_t step;          /* 1, but for direct products */
    uint32_t ahead;         /* of tiles: how far ahead of what is read lines are asked for; 0: they are not */
    uint32_t cols;
    const struct rn_type *type; /* for the kernel of all other formats */
    void *panel;                /* [panel_bytes(cols)] of each tile, aligned to 64 */
    uint32_t n;                 /* 1..RN_MAX_INPUTS */
    const void *inputs[RN_MAX_INPUTS];
    float *out[RN_MAX_INPUTS]; /* of the first row */
};

struct rn_kernel {
    enum rn_input input;
    uint32_t tile;        /* weight rows handled together */
    uint32_t panel_tiles; /* so many tiles a panel may have; 0: one */
    uint32_t pack_from;   /* from so many input rows on: pack once, then packed; below: direct */
    uint32_t direct_tile; /* so many rows at once for few inputs: fewer rows, each a longer stream; 0: tile */
    uint32_t few;         /* how many inputs are few */
    uint32_t step;        /* the best rn_matmul.step of direct; measured */
    size_t (*panel_bytes)(uint32_t cols); /* of one tile */
    void (*direct)(const struct rn_matmul *m);
    void (*pack)(const struct rn_matmul *m);   /* weights → panel; inputs and outputs are not looked at */
    void (*packed)(const struct rn_matmul *m); /* panel × inputs → out */
};

/* Rows that are handed over together for n inputs. */
static inline uint32_t rn_kernel_height(const struct rn_kernel *kernel, uint32_t n)
{
    return n > kernel->few || n >= kernel->pack_from || kernel->direct_tile == 0 ? kernel->tile : kernel->direct_tile;
}

/* Rows of a panel: whole tiles. */
static inline uint32_t rn_kernel_panel(const struct rn_kernel *kernel, uint32_t cols)
{
    size_t tiles = kernel->panel_tiles > 1 ? RN_PANEL_BYTES / kernel->panel_bytes(cols) : 1;

    tiles = tiles < kernel->panel_tiles ? tiles : kernel->panel_tiles;
    return kernel->tile * (tiles > 1 ? (uint32_t)tiles : 1);
}

static inline size_t rn_kernel_panel_bytes(const struct rn_kernel *kernel, uint32_t cols)
{
    return rn_kernel_panel(kernel, cols) / kernel->tile * kernel->panel_bytes(cols);
}

/* How far apart they are. */
static inline uint32_t rn_kernel_step(const struct rn_kernel *kernel, uint32_t n)
{
    return n >= kernel->pack_from ? 1 : kernel->step;
}

/* One head of keys and values of one sequence, from a position on. */
struct rn_attend_place {
    const uint32_t *blocks;
    const uint8_t *keys, *values; /* as in struct rn_attend */
    uint32_t position, last;
};

/* Attention of all queries that share one head of keys and values, for a few rows of one sequence. How many they are
 * may decide on how a level sums, how many rows there are may not (law 5). */
struct rn_attend {
    const float *q; /* [rows][queries, k_dim]; row i begins i * q_stride floats on */
    float *out;     /* [rows][queries, v_dim]; likewise */
    size_t q_stride, out_stride;
    uint32_t rows, queries, k_dim, v_dim;
    uint32_t last, window; /* row i looks at position last + i and those before it; at the last `window`; 0: all */
    uint32_t segment;      /* rn_attend_segment() of every row */
    uint32_t from, to;     /* only the segments that meet [from, to); whole: 0, UINT32_MAX */
    float scale, softcap;
    const uint32_t *blocks;
    uint32_t block_shift; /* log2 of positions per block */
    runnel_kv_type kv_type;
    const uint8_t *keys;   /* of block 0: [k_dim, block_tokens], of the grouped formats (model/kv.h) [bytes of a row,
                              block_tokens]; block b lies b * key_stride bytes on */
    const uint8_t *values; /* of block 0: [block_tokens, v_dim], or [block_tokens, bytes of a row] */
    size_t key_stride, value_stride;
    struct rn_attend_place
        next;       /* what the caller attends to next, to be asked for in time; it begins where a tile does.
                       keys NULL: nothing */
    float *scratch; /* rn_attend_floats(...) floats, aligned to 64 */
    float *part;    /* NULL: out is written. Else one row, one segment, whose state goes here instead:
                       rn_attend_part() floats */
};

enum {
    RN_ATTEND_TILE = 32,     /* positions looked at together; tiles begin at multiples of it */
    RN_ATTEND_SEGMENT = 512, /* the shortest segment */
    RN_ATTEND_AMX_QUERIES =
        6,                  /* from so many queries on that share a head of keys the AMX level uses the matrix unit */
    RN_ATTEND_SEGMENTS = 17 /* the most that a row meets: 16, and one more where a window begins inside one */
};

/* Positions per segment for a row that looks at `span` positions. A power of two, and a matter of the row
 * alone: how work is cut up never shows in the bits. */
static inline uint32_t rn_attend_segment(uint32_t span)
{
    uint32_t segment = RN_ATTEND_SEGMENT;

    while (segment * 16 < span)
        segment *= 2;
    return segment;
}

static inline uint32_t rn_attend_pad(uint32_t dim)
{
    return (dim + 15) & ~15u;
}

static inline size_t rn_attend_part(uint32_t queries, uint32_t v_dim)
{
    return (size_t)queries * (rn_attend_pad(v_dim) + 2);
}

/* Of that what the sums of a level need for themselves, at most: queries, or with a matrix unit the parts of queries,
 * weights, keys and values (cpu/levels/attend_amx.c). */
static inline size_t rn_attend_own(uint32_t rows, uint32_t queries, uint32_t k_dim, uint32_t v_dim)
{
    size_t lanes = (size_t)rows * queries, k_deep = (k_dim + 31) & ~(size_t)31;

    return 48 * (k_deep + rn_attend_pad(v_dim)) + lanes * (3 * k_deep / 2 + 48) + 16;
}

static inline size_t rn_attend_floats(uint32_t rows, uint32_t queries, uint32_t k_dim, uint32_t v_dim)
{
    size_t lanes = (size_t)rows * queries, k_pad = rn_attend_pad(k_dim), v_pad = rn_attend_pad(v_dim);

    return RN_ATTEND_TILE * ((k_pad > v_pad ? k_pad : v_pad) + v_pad) + lanes * (2 * v_pad + RN_ATTEND_TILE + 16) + 48 +
           rn_attend_own(rows, queries, k_dim, v_dim);
}

struct rn_attention {
    void (*attend)(const struct rn_attend *t);
    /* out of the one row, of the parts of its n >= 1 segments in order; the first part is overwritten. */
    void (*merge)(const struct rn_attend *t, float *parts, uint32_t n);
};

/* Functions on rows of n floats; out may be an input unless said. */
struct rn_rows {
    /* out = the quantised row of n floats; rn_input_bytes(kind, n) bytes, aligned to 64. */
    void (*quantise_q8)(const float *a, void *out, uint32_t n);
    void (*quantise_q8k)(const float *a, void *out, uint32_t n);
    void (*quantise_lines)(const float *a, void *out, uint32_t n); /* NULL where no kernel of the level wants it */

    void (*rms_norm)(float *out, const float *a, const float *weight, uint32_t n, double eps);
    void (*layer_norm)(float *out, const float *a, const float *weight, const float *bias, uint32_t n, double eps);
    void (*add)(float *out, const float *a, const float *b, uint32_t n);
    void (*scale)(float *out, const float *a, float scale, uint32_t n);
    void (*softcap)(float *out, const float *a, float cap, uint32_t n);
    void (*activate)(float *out, const float *a, enum rn_activation act, uint32_t n);
    void (*gate)(float *out, const float *a, const float *b, enum rn_activation act, uint32_t n);
    /* out += w * a */
    void (*accumulate)(float *out, const float *a, float w, uint32_t n);
    /* One head: cos_sin holds dims/2 cosines, then dims/2 sines. out may be a. */
    void (*rope)(float *out, const float *a, const float *cos_sin, uint32_t head_dim, uint32_t dims, bool neox);
    /* out = one head's row in a format of model/kv.h. */
    void (*kv_store)(void *out, const float *a, uint32_t n, runnel_kv_type type);
    /* Likewise, but element i, or byte i of a grouped format, goes to place i * stride. */
    void (*key_store)(void *out, const float *a, uint32_t n, uint32_t stride, runnel_kv_type type);
};

struct rn_level {
    const char *name;
    const struct rn_rows *rows;
    const struct rn_attention *attention;

    /* NULL: there is no own kernel; `other` decodes the rows and takes any format. */
    const struct rn_kernel *(*kernel)(uint32_t type_id);
    const struct rn_kernel *other;

    /* The same product of weights in tiles (tiles.h), for numbers of rows that are multiples of the kernel's tile; step 1.
     * NULL where the level has none. */
    const struct rn_kernel *(*tiled)(uint32_t type_id);

    /* A copy whose end is not kept in caches and not read before it is written; as good as memcpy for the order in
     * which other threads see it. For what is large, and read much later. NULL: the level has none. */
    void (*stream)(void *to, const void *from, size_t n);
};

/* NULL where the build or the machine does not have the level. */
const struct rn_level *rn_level_c(void);
const struct rn_level *rn_level_avx2(void);
const struct rn_level *rn_level_avx512(void);
const struct rn_level *rn_level_amx(void); /* asks the kernel for the process's permission, see attend_amx.c */
const struct rn_level *rn_level_neon(void);

/* The best level of this machine. */
const struct rn_level *rn_level_best(void);

/* The level by its name, or NULL: for tests and benchmarks. */
const struct rn_level *rn_level_named(const char *name);

/* The backend with a level of one's choice. */
struct rn_backend *rn_cpu_backend_new_level(struct rn_heap *heap, struct rn_team *team, const struct rn_level *level);

/* A row quantised per 32 values: value = d[i / 32] * q[i]; |q| <= 127; sum: of the block's q. */
struct rn_q8 {
    int8_t *q;
    float *d;
    int32_t *sum;
};

/* A row quantised per 256 values; sums of q per 32 and per 16 values. */
struct rn_q8k {
    int8_t *q;
    float *d;
    int16_t *sum32;
    int16_t *sum16;
};

/* 32 inputs with all that a product of x86 asks of them; a row is an array of these, aligned to 64.
 *
 * A sum S of integers that begins at `start` instead of 0, with weights that are 128 too large, ends as the
 * bits of the float RN_MAGIC + S, for |S| < 2^22. d has 22 bits, so that magic_d is exact and
 * fma(RN_MAGIC + S, d, -magic_d) is S·d rounded once: the conversion to float costs nothing. A block with NaN,
 * infinity or a magnitude above 2^110 has d = NaN or infinity and q = 0: every product with it is NaN. */
struct rn_line {
    int8_t q[32]; /* |q| <= 127; value = d * q */
    float d;
    float magic_d;      /* RN_MAGIC * d */
    int32_t start;      /* bits of RN_MAGIC, less 128 times the sum of q */
    float d_sum;        /* d * the sum of q */
    int32_t start16[2]; /* as start and d_sum, of the first and the second 16 */
    float d_sum16[2];
};

static_assert(sizeof(struct rn_line) == 64, "one cache line");

#define RN_MAGIC 12582912.0f /* 3 * 2^22 */
enum { RN_MAGIC_BITS = 0x4b400000 };

static inline size_t rn_round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

static inline size_t rn_input_bytes(enum rn_input kind, uint32_t cols)
{
    switch (kind) {
    case RN_INPUT_Q8:
        return rn_round_up(rn_round_up(cols, 64) + (size_t)cols / 32 * 8, 64);
    case RN_INPUT_Q8K:
        return rn_round_up((size_t)cols + (size_t)cols / 256 * (4 + 16 + 32), 64);
    case RN_INPUT_LINES:
        return (size_t)cols / 32 * sizeof(struct rn_line);
    default:
        return (size_t)cols * 4;
    }
}

/* out = the row of n floats as the kind says; any kind but F32, which needs none. */
static inline void rn_quantise(const struct rn_rows *rows, enum rn_input kind, const float *a, void *out, uint32_t n)
{
    if (kind == RN_INPUT_Q8)
        rows->quantise_q8(a, out, n);
    else if (kind == RN_INPUT_Q8K)
        rows->quantise_q8k(a, out, n);
    else
        rows->quantise_lines(a, out, n);
}

static inline struct rn_q8 rn_q8_view(const void *row, uint32_t cols)
{
    char *base = (char *)row; /* the writer gets the same view as the readers */
    char *d = base + rn_round_up(cols, 64);

    return (struct rn_q8){(int8_t *)base, (float *)d, (int32_t *)(d + (size_t)cols / 32 * 4)};
}

static inline struct rn_q8k rn_q8k_view(const void *row, uint32_t cols)
{
    char *base = (char *)row;
    char *sum16 = base + cols;
    char *sum32 = sum16 + (size_t)cols / 256 * 32;

    return (struct rn_q8k){(int8_t *)base, (float *)(sum32 + (size_t)cols / 256 * 16), (int16_t *)sum32,
                           (int16_t *)sum16};
}

/* The rows of a tile; what is missing at the end is replaced by the last row. */
static inline void rn_tile_rows(const struct rn_matmul *m, uint32_t tile, const uint8_t **rows)
{
    uint32_t r;

    for (r = 0; r < tile; r++)
        rows[r] = m->weights + (size_t)(r < m->rows ? r : m->rows - 1) * m->step * m->row_bytes;
}

#endif
