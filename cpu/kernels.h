/* The kernels of one SIMD level, and the memory layouts they share with the executor.
 *
 * A level is a table of functions. Law 5 binds each of them: the bits of one output element depend
 * on the weight row and the input row alone, not on which rows were handed over together.
 *
 * Matrix products of the block formats. Inputs are quantised per row to 8 bits (enum rn_input). Sums of
 * products of small integers are exact, in any order and any width; float steps have one order. So the direct
 * product (few input rows, weights as they stand in the file) and the packed one (a tile of weight rows
 * unpacked into a scratch panel first) agree to the bit, and so do all levels. For each 32 columns in order, first
 * for each scale (one, or one per 16 columns), then for each minimum (none, one, or one per 16 columns):
 *
 *       acc ← fma(float(Σ q_weight · q_input) · d_input, d_weight, acc)
 *       acc ← fma(d_input · Σ q_input, m_weight, acc)
 *
 * where each product in front of a comma is rounded once, and d_weight and m_weight are the scale and minimum
 * of those columns as one float (d · s, -dmin · m; see model/quant).
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
    RN_INPUT_LINES, /* blocks of 32, each a cache line: see struct rn_line. Scales are powers of two */
    RN_INPUT_FINE,  /* likewise, with scales as they come */
    RN_INPUT_KINDS
};

/* Of a format of blocks, a constant. A scale that is a power of two makes products cheaper, and doubles the squared
 * error of inputs. Beside that of weights of six bits and less this is an eighth at most; only Q8_0 is as fine as
 * inputs are (docs/RATIONALE.md, Numerics). */
#define RN_INPUT_OF(type) ((type) == RN_Q8_0 ? RN_INPUT_FINE : RN_INPUT_LINES)

/* Bytes that a kernel asks for ahead in each row that is a stream, and in tiles where a trial does not say otherwise:
 * measured, see docs/SPEED-LOG.md. */
enum {
    RN_LAID_BYTES = 12 * 64, /* a block of sixteen inputs: the first twelve words of their lines, a vector for each */
    RN_LAY_FROM = 33,        /* with fewer inputs nothing is laid */
    RN_MAX_INPUTS = 32,
    RN_INPUTS = 24, /* measured */
    RN_PACK_FROM = 17,
    RN_MAX_TILE = 32,
    RN_STREAM_AHEAD = 512,
    RN_TILE_ROWS = 16,
    RN_MOST_STREAMS = 4, /* of rn_kernel.streams */
    RN_TILE_AHEAD = 2048
};

/* How a few inputs read weights in tiles. Which way is the fastest depends on how the processor fetches ahead, and is
 * measured (team_order.c); the bits are the same. */
struct rn_reading {
    uint8_t streams; /* so many tiles are met by turns: 1, 2 or 4; more than the kernel has: 1 */
    uint16_t ahead;  /* rn_matmul.ahead: 0, or kibibytes in bytes, at most RN_TILE_AHEAD */
};

/* By number of inputs. */
enum { RN_READING_ONE, RN_READING_TWO, RN_READING_FOUR, RN_READING_MORE, RN_READINGS };

static inline uint32_t rn_reading_of(uint32_t n_inputs)
{
    return n_inputs < 2   ? RN_READING_ONE
           : n_inputs < 4 ? RN_READING_TWO
           : n_inputs < 5 ? RN_READING_FOUR
                          : RN_READING_MORE;
}

/* A panel of several tiles has at most so many bytes: a part of the second-level cache, which the inputs need, too; and
 * so do the weights that are packed next, of which so many bytes are asked for. */
enum { RN_PANEL_BYTES = 512 << 10, RN_NEXT_BYTES = 320 << 10 };

struct rn_line;

/* One tile of a product: out[i][r * step] = weights[r * step] · inputs[i], r < rows.
 * With few inputs, memory sets the pace: tiles of rows far apart (step > 1), taken one after the other, make
 * each row of the tile a stream through memory that the processor fetches ahead by itself. Likewise weights in tiles
 * (cpu/tiles.h): of `rows` rows a few inputs meet two or four tiles by turns, which may lie apart (gap > 0), so that
 * each is part of a stream that goes on with the tile behind it in the next call. */
struct rn_matmul {
    const uint8_t *weights; /* first weight row */
    size_t row_bytes;       /* from one row to the next */
    uint32_t rows;          /* 1..kernel tile; of packed products 1..rn_kernel_panel; of floats as they lie any
                               number */
    uint32_t step;          /* 1, but for direct products */
    uint32_t gap;           /* of tiles and few inputs: so many rows, of weights and of out, that are passed over behind
                               each tile of RN_TILE_ROWS; 0 elsewhere */
    uint32_t ahead;         /* of tiles and few inputs: how far ahead of what is read lines are asked for; 0: they are
                               not. With more inputs what is read next is asked for between their products */
    uint32_t cols;
    const struct rn_type *type; /* for the kernel of all other formats */
    void *panel;                /* [panel_bytes(cols)] of each tile, aligned to 64 */
    const void *laid;    /* of packed products whose kernel `lays`: the inputs as rn_level.lay leaves them, with a
                                   multiple of sixteen in front of them; NULL: they were not laid */
    const uint8_t *next; /* of packed products: weights that are packed next, ... */
    uint32_t next_lines; /* ... so many lines of which are asked for meanwhile; 0: none */
    uint32_t n;          /* 1..RN_MAX_INPUTS */
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
    uint32_t inputs;      /* so many inputs to a call where there are more; 0: RN_INPUTS */
    bool lays;            /* packed products are faster where inputs are laid */
    size_t (*panel_bytes)(uint32_t cols); /* of one tile */
    uint32_t streams;     /* of tiles: so many at most that a few inputs meet by turns, each a stream; rows of
                             RN_TILE_ROWS, of twice or of four times that may be handed over. 0: one */
    uint32_t gather_from; /* from so many input rows on, below pack_from, direct products want them gathered ... */
    void (*gather)(const struct rn_matmul *m); /* ... in the panel, by this; weights and outputs are not looked at */
    void (*direct)(const struct rn_matmul *m);
    void (*pack)(const struct rn_matmul *m);   /* weights → panel; inputs and outputs are not looked at */
    void (*packed)(const struct rn_matmul *m); /* panel × inputs → out */
};

/* Where tile t of a call begins, in rows. */
static inline size_t rn_tile_row(const struct rn_matmul *m, uint32_t t)
{
    return (size_t)t * (RN_TILE_ROWS + m->gap);
}

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

/* Inputs of the next call where n are left. */
static inline uint32_t rn_kernel_inputs(const struct rn_kernel *kernel, uint32_t n)
{
    uint32_t most = kernel->inputs > 0 ? kernel->inputs : RN_INPUTS;

    return n < most ? n : most;
}

/* True when direct products of n inputs want them gathered. */
static inline bool rn_kernel_gathers(const struct rn_kernel *kernel, uint32_t n)
{
    return kernel->gather != NULL && n >= kernel->gather_from && n < kernel->pack_from;
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
    uint32_t first;        /* and at none before this one */
    uint32_t own;          /* where row 0 itself is: `last`, or before it */
    uint32_t segment;      /* rn_attend_segment() of every row */
    uint32_t from, to;     /* only the segments that meet [from, to); whole: 0, UINT32_MAX */
    float scale, softcap;
    const float
        *slopes; /* [queries]: subtracted from a score for each position between it and the row; NULL: nothing is */
    const float *sinks; /* [queries]: a score that joins the softmax without a value; NULL: none does */
    const uint32_t *blocks;
    uint32_t block_shift; /* log2 of positions per block */
    runnel_kv_type kv_type;
    const uint8_t *keys;   /* of block 0: [k_dim, block_tokens], of the grouped formats (model/kv.h) [bytes of a row,
                              block_tokens]; block b lies b * key_stride bytes on */
    const uint8_t *values; /* of block 0: [block_tokens, v_dim], or [block_tokens, bytes of a row]. NULL: values are the
                              first v_dim of each key */
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

/* The first of the last `window` positions up to `last`; window 0: of all. */
static inline uint32_t rn_attend_first(uint32_t last, uint32_t window)
{
    return window == 0 || last < window ? 0 : last + 1 - window;
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
 * weights, keys and values (cpu/levels/amx/attend_amx.c). */
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
    /* scores[p] of the positions p of [from, to), all up to `last`: the sum over the queries g of the one row, in
     * order, of weights[g] * max(0, query · key p). v_dim is k_dim; scale, window and values count nowhere. */
    void (*score)(const struct rn_attend *t, const float *weights, float *scores);
    /* out of the one row, of the parts of its n >= 1 segments in order; the first part is overwritten. */
    void (*merge)(const struct rn_attend *t, float *parts, uint32_t n);
};

/* One row of one head of linear attention (WKV7 in model/ops.def), and of that n of its columns j: state, v and out
 * begin with the first of these. */
struct rn_linear {
    float *state; /* [k_dim] rows of so many columns, `stride` floats apart */
    size_t stride;
    const float *q, *k, *w; /* [k_dim] */
    const float *x, *y;     /* [k_dim]: what is erased. y NULL: it is k. x NULL: nothing is */
    const float
        *bonus;     /* [k_dim]: what stands before k v where out sees the state before the row (WKV6), and nothing is
                               erased; NULL: out sees the state behind it */
    const float *v; /* [n] */
    float *out;     /* [n] */
    float scale;
    uint32_t k_dim, n;
};

/* One row of n channels of a SCAN (model/ops.def), each with `depth` numbers of state: number k of channel i is
 * state[k * stride + i]. */
struct rn_scan {
    float *state;
    size_t stride;
    const float *x, *b, *c; /* [n], [depth], [depth] */
    float *out;             /* [n] */
    uint32_t n, depth;
    float dt, decay, skip;             /* of all channels, e^(dt A) */
    const float *dts, *decays, *skips; /* of each: dt, A, laid out as the state, D, or NULL */
};

/* Functions on rows of n floats; out may be an input unless said. */
struct rn_rows {
    /* out = the row of n floats as lines, aligned to 64. */
    void (*quantise_lines)(const float *a, void *out, uint32_t n, bool fine);

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
    /* out = bias + the sum over k, in order, of weights[k] * inputs[k]; the weights of k begin k * stride on. bias
     * NULL: zeros. out is no input. */
    void (*conv)(float *out, const float *const *inputs, const float *weights, size_t stride, const float *bias,
                 uint32_t taps, uint32_t n);
    /* Sums go over the rows of the state in order. */
    void (*linear)(const struct rn_linear *t);
    /* With one dt and decay, or those of each channel. The sum over the state is in the order of its numbers. */
    void (*scan)(const struct rn_scan *s);
    void (*scan_channels)(const struct rn_scan *s);
    /* out = one head's row in a format of model/kv.h. */
    void (*kv_store)(void *out, const float *a, uint32_t n, runnel_kv_type type);
    /* Likewise, but element i, or byte i of a grouped format, goes to place i * stride. */
    void (*key_store)(void *out, const float *a, uint32_t n, uint32_t stride, runnel_kv_type type);
};

struct rn_level {
    const char *name;

    /* Levels of which this is the same word store the same keys and values of the same tokens, to the bit, so that
     * cached blocks and sessions go from one to another, perhaps on other machines. */
    const char *bits;
    const struct rn_rows *rows;
    const struct rn_attention *attention;

    /* NULL: there is no own kernel; `other` decodes the rows and takes any format. */
    const struct rn_kernel *(*kernel)(uint32_t type_id);
    const struct rn_kernel *other;

    /* The same product of weights in tiles (tiles.h), for numbers of rows that are multiples of the kernel's tile; step
     * 1. NULL where the level has none. */
    const struct rn_kernel *(*tiled)(uint32_t type_id);

    /* Lays blocks [first, first + n) of sixteen inputs, so that they are lanes: to, of RN_LAID_BYTES each. Inputs that are
     * not there may be others once more. NULL: the level has no kernel that lays. */
    void (*lay)(const struct rn_line *const inputs[16], uint32_t first, uint32_t n, void *to);

    /* A copy whose end is not kept in caches and not read before it is written; as good as memcpy for the order in
     * which other threads see it. For what is large, and read much later. NULL: the level has none. */
    void (*stream)(void *to, const void *from, size_t n);
};

/* NULL where the build or the machine does not have the level. */
const struct rn_level *rn_level_c(void);
const struct rn_level *rn_level_avx2(void);
const struct rn_level *rn_level_avx2_vnni(void);
const struct rn_level *rn_level_avx512(void);
const struct rn_level *rn_level_amx(void); /* asks the kernel for the process's permission, see attend_amx.c */
extern void (*rn_emulate_amx)(void);       /* NULL; tests: called instead, see tests/cpu/amx_emulator.h */
const struct rn_level *rn_level_neon(void);

/* The i-th level of this machine, the best first, plain C last; NULL: it has no more than i. */
const struct rn_level *rn_level_at(uint32_t i);
const struct rn_level *rn_level_best(void);

/* The level by its name; NULL: this machine has none like that. */
const struct rn_level *rn_level_named(const char *name);

/* The backend with a level of one's choice. */
struct rn_backend *rn_cpu_backend_new_level(struct rn_heap *heap, struct rn_team *team, const struct rn_level *level);

/* 32 inputs with all that a product asks of them; a row is an array of these, aligned to 64.
 *
 * d is the least power of two that makes |q| <= 127, at least 2^-126. A sum S of integers that begins at `start`
 * instead of 0, with weights that are 128 too large, ends as the bits of the float RN_MAGIC·d + S·d, for |S| < 2^22,
 * since its exponent is that of d: one subtraction of magic_d makes S·d of it, exactly.
 *
 * Of RN_INPUT_FINE d is the largest magnitude / 127, with 22 bits, so that magic_d is exact. Sums begin at the bits of
 * RN_MAGIC, and fma(RN_MAGIC + S, d, -magic_d) is S·d rounded once.
 *
 * Either way the conversion to float costs nothing. A block with NaN, infinity or a magnitude above 2^110 has d = NaN
 * or infinity and q = 0: every product with it is NaN. */
struct rn_line {
    int8_t q[32]; /* |q| <= 127; value = d * q */
    float d;
    float magic_d;      /* RN_MAGIC * d */
    int32_t start;      /* bits of magic_d (fine: of RN_MAGIC), less 128 times the sum of q */
    float d_sum;        /* d * the sum of q */
    int32_t start16[2]; /* as start and d_sum, of the first and the second 16 */
    float d_sum16[2];
};

static_assert(sizeof(struct rn_line) == 64, "one cache line");

#define RN_MAGIC 12582912.0f /* 3 * 2^22 */
enum { RN_MAGIC_BITS = 0x4b400000 };

/* What sums begin with where weights are not too large. Not of fine lines. */
static inline int32_t rn_line_begin(const struct rn_line *y)
{
    int32_t bits;

    memcpy(&bits, &y->magic_d, sizeof bits);
    return bits;
}

static inline size_t rn_round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

static inline size_t rn_input_bytes(enum rn_input kind, uint32_t cols)
{
    return kind == RN_INPUT_F32 ? (size_t)cols * 4 : (size_t)cols / 32 * sizeof(struct rn_line);
}

/* out = the row of n floats as the kind says; any kind but F32, which needs none. */
static inline void rn_quantise(const struct rn_rows *rows, enum rn_input kind, const float *a, void *out, uint32_t n)
{
    assert(kind != RN_INPUT_F32);
    rows->quantise_lines(a, out, n, kind == RN_INPUT_FINE);
}

/* The rows of a tile; what is missing at the end is replaced by the last row. */
static inline void rn_tile_rows(const struct rn_matmul *m, uint32_t tile, const uint8_t **rows)
{
    uint32_t r;

    for (r = 0; r < tile; r++)
        rows[r] = m->weights + (size_t)(r < m->rows ? r : m->rows - 1) * m->step * m->row_bytes;
}

#endif
