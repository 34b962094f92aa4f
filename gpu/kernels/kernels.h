/* The kernels of the CUDA device: what they are called, their arguments, and how many threads a launch has.
 *
 * A kernel computes an op of model/ops.def or a part of one. Its argument is one struct by value, of plain numbers and
 * of addresses of the device's memory. A launch of the same arguments always has the same form. The sources are CUDA C
 * (*.cu); they are compiled twice: by nvcc for the device, and as C++ for the emulation (emulate/emulator.h).
 *
 * Weights of products and tables lie on the device in an order of their own: tiles of 16 rows, in each cells of columns
 * as the lanes of a warp read them, with the bits of the file's format (formats.cuh). `tile` brings them into it. Small
 * vectors (norms, biases) are f32. Slots are f32 [rows, width] as in the plan.
 *
 * Law 5: what a kernel makes of a row depends on the row's own values and on nothing else of the launch: sums are taken
 * in an order that the columns or the positions alone decide. matmul_few and matmul_many give the same bits.
 *
 * C and C++; nothing of CUDA. */
#ifndef RN_GPU_KERNELS_H
#define RN_GPU_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A function of the host and of kernels: wrap.cuh says what nvcc wants. */
#ifndef RN_ANYWHERE
#define RN_ANYWHERE static inline
#endif

typedef uint64_t rn_address; /* of the device's memory; 0: none */

/* The file's rows [0, rows) of a matrix, one behind the other, in the device's order, which has rn_tiled_bytes. A
 * matrix can be brought over in pieces: all but the last have a multiple of 16 rows, and a piece that begins at row r
 * goes to `out` + rn_tiled_bytes(type, r, cols). Both addresses are multiples of 16. */
struct rn_tile_args {
    rn_address source, out;
    uint32_t rows, cols;
};

/* out[r] = table.row[index[r]] * scale; what is not a row of the table gives zeros. */
struct rn_embed_args {
    rn_address table, index, out; /* tiled; uint32_t [n_rows]; f32 [n_rows, cols] */
    uint32_t n_rows, table_rows, cols;
    float scale;
};

/* RMS_NORM, and LAYER_NORM where around_mean, as in ops.def; `group` is never 0. With `add` it is ADD and the norm of
 * that, to the bit: sum = a + add. `sum` may be a or add, and out any of them. */
struct rn_norm_args {
    rn_address a, weight, bias, out; /* f32 [n_rows, width]; [weight_rows, group] or 0, both */
    uint32_t n_rows, width, group, weight_rows;
    float eps;
    uint32_t around_mean;
    rn_address add, sum; /* f32 [n_rows, width], or 0, both */
};

/* out[r] = weight · a[r] (+ bias). `parts` is how many bfloat16 an activation is the sum of, 1 or 2: with 2 it has 16
 * bits. For more than RN_FEW_ROWS rows, by launches with the same arguments: split_rows, which writes `split`;
 * matmul_many; and with ways > 1, where matmul_many writes `partial` instead of `out`, matmul_join. Products of the
 * same a, n_rows, cols and parts can share what one split_rows has written. */
struct rn_matmul_args {
    rn_address weight, bias, a, out; /* tiled; f32 [rows] or 0; f32 [n_rows, cols]; f32 [n_rows, rows] */
    uint32_t n_rows, rows, cols, parts;
    rn_address split, partial; /* of rn_split_bytes(); of rn_partial_bytes(), with ways = 1 none; multiples of 16 */
    uint32_t ways;             /* blocks among which the columns are divided: 1, 2, 4 or 8. No bit depends on it */
};
enum {
    RN_FEW_ROWS = 8,
    RN_MANY_ROWS = 64,     /* of activations and ... */
    RN_MANY_WEIGHTS = 256, /* ... of the weight that a block of matmul_many has */
    RN_MANY_CHUNK_BYTES = 64 * 64 * 4 + 2 * 64 * 4,
    RN_MANY_RING = 5, /* chunks in shared memory */
    RN_MANY_SHARED_BYTES = 2 * RN_MANY_CHUNK_BYTES + RN_MANY_ROWS * RN_MANY_WEIGHTS * 4
};

static inline uint64_t rn_split_bytes(uint64_t n_rows, uint64_t cols)
{
    return (n_rows + RN_MANY_ROWS - 1) / RN_MANY_ROWS * ((cols + 63) / 64) * RN_MANY_CHUNK_BYTES;
}

static inline uint64_t rn_partial_bytes(uint64_t n_rows, uint64_t rows, uint32_t ways)
{
    uint64_t blocks = (n_rows + RN_MANY_ROWS - 1) / RN_MANY_ROWS * ((rows + RN_MANY_WEIGHTS - 1) / RN_MANY_WEIGHTS);

    return ways > 1 ? blocks * 8 * RN_MANY_ROWS * RN_MANY_WEIGHTS * sizeof(float) : 0;
}

/* The number of ways that suits a device of so many multiprocessors. */
uint32_t rn_matmul_ways(uint32_t n_rows, uint32_t rows, uint32_t cols, uint32_t units);

/* The same of up to RN_FEW_ROWS rows (of more, those many at a time), for up to RN_MOST_PRODUCTS weights of one format
 * that multiply the same a; to the bit what matmul_many gives, and ADD or GATE behind it. In `of` an out of RN_END_GATE
 * that is not the first is not looked at. */
enum rn_end {
    RN_END_NONE,
    RN_END_ADD, /* out[r] = residual[r] + the product; of one weight */
    RN_END_GATE /* out[r] = act(product of the first weight) * that of the second; of two weights of as many rows */
};
enum {
    RN_MOST_PRODUCTS = 3,
    RN_STREAM_BLOCKS = 2,  /* of matmul_stream on a multiprocessor: */
    RN_STREAM_WORDS = 720, /* of 16 bytes, a warp: 95 KB a block, beside 16 KB of sums */
};
struct rn_product {
    rn_address weight, bias, out; /* as above */
    uint32_t rows, unused;
};
struct rn_products_args {
    rn_address a, residual; /* f32 [n_rows, cols]; [n_rows, rows] or 0 */
    uint32_t n_rows, cols, parts, n, end, act;
    uint32_t blocks, unused; /* of matmul_stream: so many at most; 0: not that kernel */
    struct rn_product of[RN_MOST_PRODUCTS];
};

/* HYPER (ops.def) of n streams; out is [n_rows, (2 + n) n], as is a. */
struct rn_hyper_args {
    rn_address a, base, out; /* f32; base is [(2 + n) n] */
    uint32_t n_rows, n, turns;
    float factors[3], eps;
};

/* What is done to values one by one: out[i] of a[i] and b[i], n of them in rows of `width`. ACTIVATE and GATE have an
 * activation of model/activation.h; GATE has a[i / part]; ACTIVATE a bias, or 0. */
enum rn_each {
    RN_EACH_ADD,
    RN_EACH_ADAPT,
    RN_EACH_SCALE,
    RN_EACH_SOFTCAP,
    RN_EACH_CLAMP,
    RN_EACH_ACTIVATE,
    RN_EACH_GATE,
    RN_EACH_CUT_GATE, /* cut, plus */
    RN_EACH_XIELU,    /* alpha_n, alpha_p, eps */
    RN_EACH_WHOLE,    /* out[i] = a[i], a whole number, as int32_t; in place */
    RN_EACH_KINDS
};
struct rn_each_args {
    rn_address a, b, bias, out;
    uint64_t n;
    uint32_t kind, act, width, part;
    float scale, cut, plus, alpha_n, alpha_p, eps;
};

/* out[i] = row index[i] of a, which has `rows`, at column `at` of rows of out_width: SELECT and TAP. What is not a row
 * of a gives zeros. */
struct rn_gather_args {
    rn_address a, index, out; /* f32 [rows, width]; uint32_t [n_rows]; f32 [n_rows, out_width] */
    uint32_t n_rows, rows, width, out_width, at;
};

/* Cells of 64 columns whose activations a warp of matmul_few has in shared memory at a time, a multiple of four (so
 * that it is one of the cells that weights are read ahead); and the words of 16 bytes that they take. */
RN_ANYWHERE uint32_t rn_few_piece(uint32_t n_rows, uint32_t cols)
{
    uint32_t most = n_rows > 0 && n_rows < RN_FEW_ROWS ? 32 / n_rows / 4 * 4 : 4; /* of no rows nothing is launched */
    uint32_t segment = ((cols + 63) / 64 + 7) / 8, whole = (segment + 3) / 4 * 4;

    return whole < most ? whole : most;
}
RN_ANYWHERE uint32_t rn_few_words(uint32_t n_rows, uint32_t cols)
{
    return rn_few_piece(n_rows, cols) * 16 * (n_rows < RN_FEW_ROWS ? n_rows : 8);
}

/* Likewise of matmul_stream, whose warps have their whole segment there. It fits: up to RN_FEW_ROWS rows, so that two
 * blocks have room, and every warp has columns. */
RN_ANYWHERE uint32_t rn_stream_words(uint32_t n_rows, uint32_t cols)
{
    return ((cols + 63) / 64 + 7) / 8 * 16 * n_rows;
}
RN_ANYWHERE bool rn_stream_fits(uint32_t n_rows, uint32_t cols)
{
    uint32_t cells = (cols + 63) / 64;

    return n_rows > 0 && n_rows <= RN_FEW_ROWS && cells > (cells + 7) / 8 * 7 &&
           rn_stream_words(n_rows, cols) <= RN_STREAM_WORDS;
}

/* ROPE: out[r] = a[r] turned by position[r] + shift, a and out are [heads, k_dim]; out may be a. dims is at most k_dim
 * and even. */
struct rn_rope_args {
    rn_address a, out, positions, inv_freq; /* f32, both; uint32_t [n_rows]; double [dims / 2] */
    uint32_t n_rows, heads, k_dim, dims;
    int32_t shift;
    uint32_t neox;
    double magnitude;
};

/* What a rotation multiplies by, for each row of a step: angles[r] = cosines [dims / 2], sines [dims / 2] of
 * (position[r] + shift) * inv_freq, times the magnitude. */
struct rn_angles_args {
    rn_address positions, inv_freq, out; /* uint32_t [n_rows]; double [dims / 2]; f32 [n_rows, dims] */
    uint32_t n_rows, dims;
    int32_t shift;
    double magnitude;
};

/* The cache of one layer: the row of head h of the position p of a sequence s lies at
 *
 *     keys + table[p / block_tokens] * block_bytes + (p % block_tokens * kv_heads + h) * bytes of k_dim numbers
 *
 * where block_tokens is 2^block_log and `table` is `tables` from its table_at[s]-th number on; values likewise. Rows
 * are those of model/kv.h, of format `type`. Where v_dim is 0 there are no values; attention then takes the front of
 * the keys. */
struct rn_cache_args {
    rn_address keys, values;
    rn_address tables, table_at; /* uint32_t [n_tables]; uint32_t [n_seqs] */
    uint64_t block_bytes;
    uint32_t n_tables, n_seqs;
    uint32_t block_log, kv_heads, k_dim, v_dim, type;
};

/* Vectors of n numbers, each times the matrix of its length of model/kv.h: blocks of `span` numbers by themselves.
 * Queries of a cache in q4 or q3, and what attention sums of its values. out may be a. */
struct rn_rotate_args {
    rn_address a, out; /* f32 [n_vectors, n] */
    uint32_t n_vectors, n, span;
};

/* KV_STORE: row r at position place[r] of its sequence. Rows of q4 and q3 are rotated first: by the
 * kernels *_store_rotated, which have these formats alone. */
struct rn_kv_store_args {
    struct rn_cache_args cache;
    rn_address k, v, seqs, places; /* f32 [n_rows, kv_heads * k_dim], likewise or 0; uint32_t [n_rows], both */
    uint32_t n_rows;
};

/* ROPE of q and k by one table of angles, in place, and KV_STORE of k and v, to the bit; k itself is left as it was.
 * q is [n_rows, heads, k_dim]; v_dim is not 0. */
struct rn_rope_store_args {
    struct rn_kv_store_args store;
    rn_address q, angles; /* f32; as struct rn_angles_args says */
    uint32_t heads, dims, neox;
};

/* ATTENTION over positions up to each row's own, of these with a window the last so many, or where chunked those of the
 * row's chunk (ops.def). With `lasts` a row looks ahead, up to lasts[r], the last position of its sequence in the step;
 * with a window to those within window / 2 on both sides. With `chosen` a row sees the positions of its list, up to the
 * first that is negative, or, where there are no more than `used` up to its own, all of them; then a tile has one row.
 * With `second` as well it sees the positions of its list in any case, and those with RN_SECOND_POSITION in another
 * cache, of the same form, without values. No means.
 *
 * With `places` rows are those of trees (model/backend.h), and rows_per_tile is 1: what a row sees at the position of
 * an ancestor lies at places[ancestor]. parents[r] is a row before r, of a sequence's first row anything.
 *
 * A block has the heads that share a head of keys, for up to rows_per_tile rows that follow one another in the step.
 * With a workspace it has only RN_ATTENTION_CHUNK positions of theirs, and the launch n_chunks such chunks from
 * first_chunk on; a launch of attention_join with the same arguments puts the parts together. Both are launched in turn
 * until all chunks that rows see have come, in order, with the same `before`. Without a workspace a block has all
 * positions. The kernels of rn_attention_many_kernel() have none and read keys and values once for more rows. The
 * results are the same to the bit, whatever kernel, rows_per_tile and workspace are, and whatever chunks a launch has.
 * Of a cache in q4 or q3 the queries are rotated before (struct rn_rotate_args), and the results are still to be. Few
 * rows want a workspace and rn_attention_rows() a tile, or one where no two are of one sequence; many rows
 * rn_attention_many_rows(). */
struct rn_attention_args {
    struct rn_cache_args cache;
    rn_address q, out, seqs, positions; /* f32 [n_rows, heads * k_dim], [n_rows, heads * v_dim]; uint32_t [n_rows] */
    rn_address sinks, slopes;           /* f32 [heads]; 0: none */
    rn_address lasts;                   /* uint32_t [n_rows]; 0: rows do not look ahead */
    rn_address chosen;                  /* int32_t [n_rows, used]; 0: positions are not chosen */
    rn_address second, second_at;       /* keys and table_at of the other cache; 0: there is none */
    uint64_t second_bytes;              /* its block_bytes */
    rn_address places, parents;         /* uint32_t [n_rows]; places 0: positions lie at their places */
    rn_address workspace;               /* of rn_attention_bytes(); 0: none */
    rn_address before;                  /* likewise, for what launches leave each other; 0: one has all chunks */
    uint32_t n_rows, heads, v_dim, window, chunked, rows_per_tile, used;
    uint32_t first_chunk, n_chunks; /* of the launch; with a workspace alone */
    float scale, softcap;
};
enum { RN_SECOND_POSITION = 1 << 30 }; /* RN_SECOND of plans */
enum { RN_ATTENTION_CHUNK = 64, RN_ATTENTION_COLUMNS = 16, RN_ATTENTION_MANY_COLUMNS = 64 };

/* The largest rows_per_tile. */
static inline uint32_t rn_attention_rows(uint32_t heads, uint32_t kv_heads)
{
    uint32_t group = heads / kv_heads;

    return group >= RN_ATTENTION_COLUMNS ? 1 : RN_ATTENTION_COLUMNS / group;
}

static inline uint32_t rn_attention_many_rows(uint32_t heads, uint32_t kv_heads)
{
    uint32_t group = heads / kv_heads;

    return group >= RN_ATTENTION_MANY_COLUMNS ? 1 : RN_ATTENTION_MANY_COLUMNS / group;
}

/* Bytes of the workspace, with the n_chunks of a launch; of `before` those with one. */
static inline uint64_t rn_attention_bytes(uint32_t n_rows, uint32_t heads, uint32_t v_dim, uint32_t n_chunks)
{
    return (uint64_t)n_rows * heads * n_chunks * (v_dim + 2) * sizeof(float);
}

/* Formats of the cache that the kernels know: the id of RUNNEL_KV_* and the name in attention's names. */
#define RN_KERNEL_KV_TYPES(X) \
    X(0, f16)                 \
    X(1, f32)                 \
    X(2, bf16)                \
    X(3, fp8)                 \
    X(4, q8)                  \
    X(5, q4)                  \
    X(6, q3)

/* Of these, those with kernels for many rows. */
#define RN_KERNEL_KV_TYPES_MANY(X) \
    X(0, f16)                      \
    X(2, bf16)

/* REACH: out[r] = the last `window` positions up to the row's own, then the last one of each whole block of `per`
 * positions + RN_SECOND_POSITION, of those blocks alone that `chosen` has, one behind the other, where it is there; -1
 * behind them. */
struct rn_reach_args {
    rn_address chosen, positions, out; /* int32_t [n_rows, n_chosen] or 0; uint32_t [n_rows]; int32_t [n_rows, used] */
    uint32_t n_rows, window, per, used, n_chosen;
};

/* CHOOSE: out[r] = the `used` positions up to the row's own of the largest scores, ascending, or all of them and -1
 * behind them. choose_scores computes the scores, of the positions below `longest`, choose_pick chooses; both with the
 * same arguments. The rows are those of a step from first_row on. */
struct rn_choose_args {
    struct rn_cache_args cache; /* of keys alone; kv_heads is 1 */
    rn_address q, weights;      /* f32 [n_rows, heads, k_dim], [n_rows, heads] */
    rn_address seqs, positions; /* uint32_t [first_row + n_rows] */
    rn_address places, parents; /* likewise, as of struct rn_attention_args */
    rn_address scores, out;     /* f32 [n_rows, longest]; int32_t [n_rows, used] */
    uint32_t first_row, n_rows, heads, used, longest;
    uint32_t per, best; /* blocks of positions: ops.def; weights 0 where there are none */
};

/* ROUTE: ids and weights of the `used` best of each row's experts (ops.def; gating: model/gating.h). `more`, [experts]
 * or 0, is added to what the gating says before experts are compared. With `groups` above 1, equal parts of the experts
 * in order, only those in the `best` groups count, which are compared by the sum of their two best experts. With `per`
 * above 1 ids are divided by it once they are chosen, and the weights are those of experts with the new numbers. With
 * `given` the ids are these. */
struct rn_route_args {
    rn_address a, more, ids, weights; /* f32 [n_rows, experts]; int32_t and f32 [n_rows, used] */
    uint32_t n_rows, experts, used, gating, normalise;
    float scale, eps;
    uint32_t groups, best, per;
    rn_address given; /* int32_t [n_rows, used], or 0 */
};

/* EXPERT_MATMUL: out[r][j] = weight[ids[r][j]] · a[r], or a[r][j] where per_expert_input (+ bias). The weight is a
 * tiled matrix [rows, cols] for each expert, which lies where the table says, on the device or in pinned memory of the
 * host; where an id is none of an expert, out is left as it is.
 *
 * A pair is a row and one of its experts. With a group of 1 expert_matmul does all, a pair a block. With RN_EXPERT_FEW
 * there are two launches with the same arguments, expert_group and expert_few; with RN_EXPERT_MANY three, expert_group,
 * expert_split and expert_many. They read an expert's matrix once for a group of its pairs. Ops of the same ids, n_rows,
 * used, experts and group can share what one expert_group has written, and those of the same a and cols, too, what one
 * expert_split has. The bits are the same whatever the group is. */
struct rn_expert_matmul_args {
    rn_address matrices;          /* rn_address [experts] */
    rn_address bias, a, ids, out; /* f32 [experts, rows] or 0; [n_rows(, used), cols]; int32_t; f32 */
    uint32_t n_rows, used, experts, rows, cols, parts, per_expert_input;
    uint32_t group;                 /* pairs that a block has at once: 1, RN_EXPERT_FEW or RN_EXPERT_MANY */
    rn_address order, slots, split; /* with a group above 1: see below; multiples of 16 */
};
enum {
    RN_EXPERT_FEW = 8,
    RN_EXPERT_MANY = 32,
    RN_EXPERT_STAGES = 4, /* of activations in shared memory */
    RN_EXPERT_STAGE_BYTES = 64 * 32 * 4 + 2 * 64 * 4,
    RN_EXPERT_MANY_SHARED_BYTES =
        RN_EXPERT_STAGES * RN_EXPERT_STAGE_BYTES + RN_EXPERT_MANY * RN_MANY_WEIGHTS * 4 + RN_EXPERT_MANY * 4
};

/* Slots of pairs that experts have together at most, for a group above 1; and bytes of `order`, `slots` and `split`. */
RN_ANYWHERE uint32_t rn_expert_slots(uint32_t n_pairs, uint32_t experts, uint32_t group)
{
    return n_pairs / group + (experts < n_pairs ? experts : n_pairs);
}
static inline uint64_t rn_expert_order_bytes(uint64_t n_pairs)
{
    return n_pairs * sizeof(uint32_t);
}
static inline uint64_t rn_expert_slots_bytes(uint32_t n_pairs, uint32_t experts, uint32_t group)
{
    return (uint64_t)rn_expert_slots(n_pairs, experts, group) * 16;
}
static inline uint64_t rn_expert_split_bytes(uint64_t inputs, uint64_t cols)
{
    return inputs * ((cols + 63) / 64) * (64 * 4 + 2 * 4);
}

/* The group that suits so many rows. */
uint32_t rn_expert_group_of(uint32_t n_rows, uint32_t used, uint32_t experts);

/* EXPERT_SUM and, without weights, SUM: out[r] = sum over j, in order, of weights[r][j] * a[r][j]. */
struct rn_expert_sum_args {
    rn_address a, weights, out; /* f32 [n_rows, used, width], [n_rows, used] or 0, [n_rows, width] */
    uint32_t n_rows, used, width;
};

/* Recurrent states in a step of n_rows: that of sequence s lies in slot slots[s], its rows are [firsts[s], firsts[s] +
 * counts[s]), or none. In order, they take the state to that behind the last one. */
struct rn_states_args {
    rn_address states;                /* slot 0, of this op's layer: f32 [n] */
    rn_address slots, firsts, counts; /* uint32_t [n_seqs] */
    uint64_t stride_bytes;            /* between slots */
    uint32_t n, n_seqs, n_rows;
};

/* CONV, with act where activated, `ahead` rows ahead, if any from zeros on, taps `span` rows apart; SHIFT: taps is 2,
 * no weight. The state is the last (taps - 1) * span rows, oldest first. */
struct rn_conv_args {
    struct rn_states_args states;
    rn_address a, weight, bias, out, seqs; /* f32 [n_rows, width]; [width, taps]; [width] or 0; uint32_t [n_rows] */
    uint32_t width, taps, span, ahead, activated, act;
};

/* COMPRESS (ops.def): a row of k_dim numbers at the last position of each block of `per`; elsewhere zeros. The state is
 * [parts * per][2][parts * k_dim], of position p at p % (parts * per). */
struct rn_compress_args {
    struct rn_states_args states;
    rn_address a, b, weight, out, seqs, positions; /* f32 [n_rows, parts * k_dim], both; [per, parts * k_dim];
                                                      [n_rows, k_dim]; uint32_t [n_rows], both */
    uint32_t k_dim, parts, per;
};

/* WKV6, WKV7, GATED_DELTA and SCAN (ops.def). The state of a head is [k_dim][v_dim]; of CHANNELS, a SCAN whose heads
 * have one value and a weight of k_dim columns, that of all is [k_dim][heads]. `weight` is WKV6's or the scan's, `bias`
 * the scan's, or 0. linear_64, linear_128 and channels_16 are for k_dim up to that. */
enum rn_linear {
    RN_LINEAR_WKV6,
    RN_LINEAR_WKV7,  /* b has w, x, y */
    RN_LINEAR_GATED, /* WKV7 whose b has w alone */
    RN_LINEAR_DELTA,
    RN_LINEAR_SCAN, /* one decay a head */
    RN_LINEAR_CHANNELS
};
struct rn_linear_args {
    struct rn_states_args states;
    rn_address a, b, weight, bias, out; /* f32 [n_rows, a_width], [n_rows, b_width], [n_rows, heads * v_dim] */
    uint32_t a_width, b_width, kind, heads, kv_heads, k_dim, v_dim, group, tiled;
    float scale;
};
enum {
    RN_LINEAR_COLUMNS = 32,     /* of a block */
    RN_LINEAR_STAGED = 8,       /* rows that it stages at once, where k_dim is at most ... */
    RN_LINEAR_STAGED_DIM = 128, /* ... this; else one */
};

/* Whole states from slot to slot, n_copies pairs (from, to); a `from` that is no slot gives zeros. stride_bytes is a
 * multiple of 16. */
struct rn_copy_states_args {
    rn_address states, copies; /* uint32_t [n_copies, 2] */
    uint64_t stride_bytes;
    uint32_t n_copies, n_states;
};

/* Ops over parts of rows, of which each value of out comes by itself. With i the number of a value of out[r] and the
 * names of ops.def; `parts` is the op's heads:
 *
 *   CONCAT         `parts` times as much of a[r] as its part, then that of b[r]; b may be 0
 *   SPLIT          of each part of a[r] width / parts values, from `first` on
 *   REPEAT         of each part of a[r] `used` copies
 *   MIX            scale * a[r][i] + the sum over j, in order, of b[r][part * parts + j] times part j
 *   SPREAD         (b[r][i / a_width] + scale) * a[r][i % a_width]
 *   LERP           a + (b - a) * weight[i], where a and b are repeated
 *   TIMES_WEIGHT   a[r][i] * weight[i / n], where n is width / weight_n; ADD_WEIGHT, OVER_WEIGHT likewise
 *   EXPERT_FACTOR  a[r][i] * weight[id], where id, an int32_t, is b[r][i / (width / used)]; no expert's id gives zeros
 *   TEMPER         a[r][i] * (1 + scale * ln(1 + floor((position + ahead) / span))), where b has positions, uint32_t
 *                  [n_rows]
 *   TOKEN          1 more than token[r], where b has tokens, uint32_t [n_rows]
 *   SIGNED_ROOT    the root of |a[r][i]|, of scale where that is more, with the sign of a[r][i]; 0 of 0
 *
 * Of TEMPER and BAR out may be a. */
enum rn_part {
    RN_PART_CONCAT,
    RN_PART_SPLIT,
    RN_PART_REPEAT,
    RN_PART_MIX,
    RN_PART_SPREAD,
    RN_PART_LERP,
    RN_PART_TIMES_WEIGHT,
    RN_PART_ADD_WEIGHT,
    RN_PART_OVER_WEIGHT,
    RN_PART_EXPERT_FACTOR,
    RN_PART_TEMPER,
    RN_PART_TOKEN,
    RN_PART_SIGNED_ROOT,
    RN_PART_BAR,
    RN_PART_KINDS
};
struct rn_part_args {
    rn_address a, b, weight, out; /* f32 [n_rows, a_width], [n_rows, b_width], [weight_n], [n_rows, width] */
    uint32_t kind, n_rows, width, a_width, b_width, weight_n, parts, first, used, span, ahead;
    float scale;
};

/* GRAMS: the rows of a table that the tokens a[r] choose, as in model/grams.h. */
enum { RN_KERNEL_GRAM = 8, RN_KERNEL_GRAM_HEADS = 64 };
struct rn_grams_args {
    rn_address a, out; /* f32 [n_rows, most]; int32_t [n_rows, heads] */
    uint32_t n_rows, most, heads, end;
    uint64_t factors[RN_KERNEL_GRAM];
    uint32_t sizes[RN_KERNEL_GRAM_HEADS], offsets[RN_KERNEL_GRAM_HEADS];
};
/* SCATTER: out[r][to[i]] = a[r][i], -infinity everywhere else. What is not below `width` goes nowhere. */
struct rn_scatter_args {
    rn_address a, to, out; /* f32 [n_rows, a_width]; [a_width], whole numbers, each another; [n_rows, width] */
    uint32_t n_rows, a_width, width;
};
enum { RN_SCATTER_PIECE = 4096 }; /* values of a row of out that a block has */

/* PART_SUM: out[r] = the sum of each of the equal parts of a[r]. */
struct rn_part_sum_args {
    rn_address a, out; /* f32 [n_rows, width]; [n_rows, parts] */
    uint32_t n_rows, width, parts;
};

/* TAIL: out[r] = max(0, a[r] - (mean + scale * deviation)), as in ops.def. */
struct rn_tail_args {
    rn_address a, out; /* f32 [n_rows, width], both; width is above 1 */
    uint32_t n_rows, width;
    float scale;
};

/* RESIZE: out[r] = a[r], each `group` values of it made as long as b[r] is. */
struct rn_resize_args {
    rn_address a, b, out; /* f32 [n_rows, width]; [n_rows, b_width]; [n_rows, width] */
    uint32_t n_rows, width, group, b_width;
};

/* The products of heads: the weight is `heads` tiled matrices [rows, cols], one behind the other, of each of which rows
 * [first, first + dim) count.
 *
 *   HEAD_MATMUL   out[r][h][i] = row first + i of matrix h times a[r][h]; a is [n_rows, heads, cols], out [.., dim]
 *   HEAD_SUM      out[r][h] = the sum over i of a[r][h][i] times row first + i of matrix h; a is [n_rows, heads, dim],
 *                 out [.., cols]; dim may be 0, and a with it
 *
 * `parts` as in rn_matmul_args; of HEAD_SUM it does not count. */
struct rn_head_args {
    rn_address weight, a, out; /* tiled; f32, both */
    uint32_t n_rows, heads, rows, cols, first, dim, parts;
};
enum { RN_HEAD_MATMUL_ROWS = 8, RN_HEAD_SUM_ROWS = 4 }; /* of a block */

/* In the blocks of a cache: what lies at one place of a sequence goes to another, before it. n_moves of (sequence,
 * from, to), those of a sequence in order. A part is a layer's keys or values: where it lies in a block, in two words,
 * and the bytes of a row. */
struct rn_move_rows_args {
    rn_address blocks, tables, table_at; /* as in rn_cache_args */
    rn_address moves, parts;             /* uint32_t [n_moves, 3]; [n_parts, 4] */
    uint64_t block_bytes;
    uint32_t n_tables, n_seqs, n_moves, n_parts, block_log;
};

/* Formats of weights that the kernels read: the id of model/quant/quant.h and the name in kernels' names. */
#define RN_KERNEL_TYPES(X) \
    X(0, f32)              \
    X(1, f16)              \
    X(30, bf16)            \
    X(8, q8_0)             \
    X(2, q4_0)             \
    X(12, q4_k)            \
    X(13, q5_k)            \
    X(14, q6_k)            \
    X(39, mxfp4)           \
    X(40, nvfp4)           \
    X(3, q4_1)             \
    X(6, q5_0)             \
    X(7, q5_1)             \
    X(10, q2_k)            \
    X(20, iq4_nl)          \
    X(23, iq4_xs)

/* Types that become one of these formats on the way to the device, without loss: id, name, the format's name. They have
 * a kernel `tile` of their own and the format's for all else. */
#define RN_KERNEL_TYPES_AS(X) \
    X(9, q8_1, q8_0)          \
    X(11, q3_k, iq4_xs)       \
    X(19, iq1_s, iq4_xs)      \
    X(29, iq1_m, iq4_xs)      \
    X(16, iq2_xxs, iq4_xs)    \
    X(17, iq2_xs, iq4_xs)     \
    X(22, iq2_s, iq4_xs)      \
    X(18, iq3_xxs, iq4_xs)    \
    X(21, iq3_s, iq4_xs)      \
    X(34, tq1_0, iq4_xs)      \
    X(35, tq2_0, iq4_xs)      \
    X(15, q8_k, f32)          \
    X(24, i8, f32)            \
    X(25, i16, f32)           \
    X(26, i32, f32)           \
    X(27, i64, f32)           \
    X(28, f64, f32)

/* Kernels of which there is one for each format, and the others: name, argument. */
#define RN_TYPED_KERNELS(X, type)          \
    X(tile_##type, tile)                   \
    X(embed_##type, embed)                 \
    X(matmul_few_##type, products)         \
    X(matmul_pair_##type, products)        \
    X(matmul_stream_##type, products)      \
    X(matmul_many_##type, matmul)          \
    X(expert_matmul_##type, expert_matmul) \
    X(expert_few_##type, expert_matmul)    \
    X(expert_many_##type, expert_matmul)   \
    X(head_matmul_##type, head)            \
    X(head_sum_##type, head)
#define RN_TILE_KERNELS(X) \
    X(tile_q8_1, tile)     \
    X(tile_q3_k, tile)     \
    X(tile_iq1_s, tile)    \
    X(tile_iq1_m, tile)    \
    X(tile_iq2_xxs, tile)  \
    X(tile_iq2_xs, tile)   \
    X(tile_iq2_s, tile)    \
    X(tile_iq3_xxs, tile)  \
    X(tile_iq3_s, tile)    \
    X(tile_tq1_0, tile)    \
    X(tile_tq2_0, tile)    \
    X(tile_q8_k, tile)     \
    X(tile_i8, tile)       \
    X(tile_i16, tile)      \
    X(tile_i32, tile)      \
    X(tile_i64, tile)      \
    X(tile_f64, tile)
#define RN_PLAIN_KERNELS(X)           \
    X(norm, norm)                     \
    X(split_rows, matmul)             \
    X(matmul_join, matmul)            \
    X(each, each)                     \
    X(gather, gather)                 \
    X(route, route)                   \
    X(expert_group, expert_matmul)    \
    X(expert_split, expert_matmul)    \
    X(expert_sum, expert_sum)         \
    X(draw, draw)                     \
    X(feed, feed)                     \
    X(conv, conv)                     \
    X(compress, compress)             \
    X(hyper, hyper)                   \
    X(reach, reach)                   \
    X(shift, conv)                    \
    X(linear_64, linear)              \
    X(linear_128, linear)             \
    X(linear_any, linear)             \
    X(channels_16, linear)            \
    X(channels_any, linear)           \
    X(copy_states, copy_states)       \
    X(move_rows, move_rows)           \
    X(part, part)                     \
    X(grams, grams)                   \
    X(scatter, scatter)               \
    X(part_sum, part_sum)             \
    X(tail, tail)                     \
    X(resize, resize)                 \
    X(rope, rope)                     \
    X(angles, angles)                 \
    X(rope_store, rope_store)         \
    X(rope_store_rotated, rope_store) \
    X(rotate, rotate)                 \
    X(kv_store, kv_store)             \
    X(kv_store_rotated, kv_store)     \
    X(choose_scores_f16, choose)      \
    X(choose_scores_f32, choose)      \
    X(choose_scores_bf16, choose)     \
    X(choose_scores_fp8, choose)      \
    X(choose_scores_q8, choose)       \
    X(choose_scores_q4, choose)       \
    X(choose_scores_q3, choose)       \
    X(choose_pick, choose)            \
    X(attention_f16, attention)       \
    X(attention_f32, attention)       \
    X(attention_bf16, attention)      \
    X(attention_fp8, attention)       \
    X(attention_q8, attention)        \
    X(attention_q4, attention)        \
    X(attention_q3, attention)        \
    X(attention_64_f16, attention)    \
    X(attention_128_f16, attention)   \
    X(attention_64_bf16, attention)   \
    X(attention_128_bf16, attention)  \
    X(attention_join, attention)

#define RN_KERNELS(X)           \
    RN_PLAIN_KERNELS(X)         \
    RN_TYPED_KERNELS(X, f32)    \
    RN_TYPED_KERNELS(X, f16)    \
    RN_TYPED_KERNELS(X, bf16)   \
    RN_TYPED_KERNELS(X, q8_0)   \
    RN_TYPED_KERNELS(X, q4_0)   \
    RN_TYPED_KERNELS(X, q4_k)   \
    RN_TYPED_KERNELS(X, q5_k)   \
    RN_TYPED_KERNELS(X, q6_k)   \
    RN_TYPED_KERNELS(X, mxfp4)  \
    RN_TYPED_KERNELS(X, nvfp4)  \
    RN_TYPED_KERNELS(X, q4_1)   \
    RN_TYPED_KERNELS(X, q5_0)   \
    RN_TYPED_KERNELS(X, q5_1)   \
    RN_TYPED_KERNELS(X, q2_k)   \
    RN_TYPED_KERNELS(X, iq4_nl) \
    RN_TYPED_KERNELS(X, iq4_xs) \
    RN_TILE_KERNELS(X)

enum rn_kernel {
#define RN_KERNEL_NUMBER(name, args) RN_KERNEL_##name,
    RN_KERNELS(RN_KERNEL_NUMBER)
#undef RN_KERNEL_NUMBER
        RN_KERNEL_COUNT
};

/* Dynamic shared memory that a launch never asks more of: what a block of sm_90 can have. Devices before it have
 * less. */
enum { RN_SHARED_BYTES = 227 * 1024 };

/* Blocks of a launch's grid along y or z, at most, on every device. */
enum { RN_GRID_MOST = 65535 };

/* The form of a launch. */
struct rn_launch {
    uint32_t grid[3];
    uint32_t threads;      /* of a block, in one dimension */
    uint32_t shared_bytes; /* dynamic; above 48 KiB the driver must be told before (a function's attribute) */
};

struct rn_kernel_info {
    const char *name;    /* of the function, in the module and in the emulation's table */
    uint32_t args_bytes; /* of its one argument */
    struct rn_launch (*launch)(const void *args);
};

/* Never NULL for a number below RN_KERNEL_COUNT. */
const struct rn_kernel_info *rn_kernel_info(enum rn_kernel kernel);

/* Kernels by the format of a weight (an id of model/quant/quant.h). False: there is none for it. */
struct rn_typed_kernels {
    enum rn_kernel tile, embed, matmul_few, matmul_pair, matmul_stream, matmul_many, expert_matmul, expert_few,
        expert_many, head_matmul, head_sum;
};
bool rn_kernels_of_type(uint32_t type_id, struct rn_typed_kernels *kernels);

/* With `blocks`, and where it fits, matmul_stream. Else matmul_few, whose blocks have 16 rows of a weight, or
 * matmul_pair, whose blocks have twice as many: the one that is faster. RN_END_GATE wants matmul_pair or
 * matmul_stream. */
enum rn_kernel rn_few_kernel(const struct rn_typed_kernels *kernels, const struct rn_products_args *args);

/* The kernel of a format of the cache. False: there is none, or heads have too many numbers, or not a multiple of 4. */
bool rn_attention_kernel(uint32_t kv_type, uint32_t k_dim, uint32_t v_dim, enum rn_kernel *kernel);

/* The kernel for many rows. False: there is none for such heads or such a cache. */
bool rn_attention_many_kernel(uint32_t kv_type, uint32_t k_dim, uint32_t v_dim, enum rn_kernel *kernel);

/* Likewise of CHOOSE. False, too, where a block's shared memory has no room for `used` positions. */
bool rn_choose_kernel(uint32_t kv_type, uint32_t k_dim, uint32_t used, enum rn_kernel *kernel);

/* Bytes of a matrix in the device's order; cols fit the format's blocks. 0: there are no kernels for the type. */
uint64_t rn_tiled_bytes(uint32_t type_id, uint64_t rows, uint64_t cols);

#ifdef __cplusplus
}
#endif
#endif
