/* The kernels of the CUDA device: what they are called, their arguments, and how many threads a launch has.
 *
 * A kernel computes an op of model/ops.def or a part of one. Its argument is one struct by value, of plain numbers and of
 * addresses of the device's memory. A launch of the same arguments always has the same form. The sources are CUDA C
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

/* RMS_NORM, and LAYER_NORM where around_mean, as in ops.def; `group` is never 0. */
struct rn_norm_args {
    rn_address a, weight, bias, out; /* f32 [n_rows, width]; [weight_rows, group] or 0, both */
    uint32_t n_rows, width, group, weight_rows;
    float eps;
    uint32_t around_mean;
};

/* out[r] = weight · a[r] (+ bias). `parts` is how many bfloat16 an activation is the sum of, 1 or 2: with 2 it has 16
 * bits. matmul_few is for few rows (at most RN_FEW_ROWS are read at once), matmul_many for more. */
struct rn_matmul_args {
    rn_address weight, bias, a, out; /* tiled; f32 [rows] or 0; f32 [n_rows, cols]; f32 [n_rows, rows] */
    uint32_t n_rows, rows, cols, parts;
};
enum { RN_FEW_ROWS = 8 };

/* What is done to values one by one: out[i] of a[i] and b[i], n of them in rows of `width`. ACTIVATE and GATE have an
 * activation of model/activation.h; GATE has a[i / part]; ACTIVATE a bias, or 0. */
enum rn_each {
    RN_EACH_ADD,
    RN_EACH_SCALE,
    RN_EACH_SOFTCAP,
    RN_EACH_CLAMP,
    RN_EACH_ACTIVATE,
    RN_EACH_GATE,
    RN_EACH_CUT_GATE, /* cut */
    RN_EACH_XIELU,    /* alpha_n, alpha_p, eps */
    RN_EACH_KINDS
};
struct rn_each_args {
    rn_address a, b, bias, out;
    uint64_t n;
    uint32_t kind, act, width, part;
    float scale, cut, alpha_n, alpha_p, eps;
};

/* out[i] = row index[i] of a, which has `rows`, at column `at` of rows of out_width: SELECT and TAP. What is not a row of
 * a gives zeros. */
struct rn_gather_args {
    rn_address a, index, out; /* f32 [rows, width]; uint32_t [n_rows]; f32 [n_rows, out_width] */
    uint32_t n_rows, rows, width, out_width, at;
};

/* ROPE: out[r] = a[r] turned by position[r], a and out are [heads, k_dim]; out may be a. dims is at most k_dim and
 * even. */
struct rn_rope_args {
    rn_address a, out, positions, inv_freq; /* f32, both; uint32_t [n_rows]; double [dims / 2] */
    uint32_t n_rows, heads, k_dim, dims, neox;
    double magnitude;
};

/* The cache of one layer: the row of head h of the position p of a sequence s lies at
 *
 *     keys + table[p / block_tokens] * block_bytes + (p % block_tokens * kv_heads + h) * bytes of k_dim numbers
 *
 * where block_tokens is 2^block_log and `table` is `tables` from its table_at[s]-th number on; values likewise. Rows are those of model/kv.h, of format
 * `type`. Where v_dim is 0 there are no values; attention then takes the front of the keys. */
struct rn_cache_args {
    rn_address keys, values;
    rn_address tables, table_at; /* uint32_t [n_tables]; uint32_t [n_seqs] */
    uint64_t block_bytes;
    uint32_t n_tables, n_seqs;
    uint32_t block_log, kv_heads, k_dim, v_dim, type;
};

/* KV_STORE: row r at position place[r] of its sequence. */
struct rn_kv_store_args {
    struct rn_cache_args cache;
    rn_address k, v, seqs, places; /* f32 [n_rows, kv_heads * k_dim], likewise or 0; uint32_t [n_rows], both */
    uint32_t n_rows;
};

/* ATTENTION over positions up to each row's own, of these with a window the last so many, or where chunked those of the
 * row's chunk (ops.def). No trees, no means, no chosen positions, none that look ahead.
 *
 * A block has the heads that share a head of keys, for up to rows_per_tile rows that follow one another in the step. With
 * a workspace it has only RN_ATTENTION_CHUNK positions of theirs, n_chunks blocks for all, and a launch of
 * attention_join with the same arguments puts the parts together; without, it has all positions. The kernels of
 * rn_attention_many_kernel() have no workspace and read keys and values once for more rows. The results are the same to
 * the bit, whatever kernel, rows_per_tile and workspace are. Few rows want a workspace and rn_attention_rows() a tile, or
 * one where no two are of one sequence; many rows rn_attention_many_rows(). */
struct rn_attention_args {
    struct rn_cache_args cache;
    rn_address q, out, seqs, positions; /* f32 [n_rows, heads * k_dim], [n_rows, heads * v_dim]; uint32_t [n_rows] */
    rn_address sinks, slopes;           /* f32 [heads]; 0: none */
    rn_address workspace;               /* of rn_attention_bytes(); 0: none */
    uint32_t n_rows, heads, v_dim, window, chunked, rows_per_tile;
    uint32_t n_chunks; /* that hold the positions of all rows; with a workspace alone */
    float scale, softcap;
};
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

/* Bytes of the workspace. */
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
    X(4, q8)

/* Of these, those with kernels for many rows. */
#define RN_KERNEL_KV_TYPES_MANY(X) \
    X(0, f16)                      \
    X(2, bf16)

/* ROUTE: ids and weights of the `used` best of each row's experts (ops.def; gating: model/gating.h). `more`, [experts] or
 * 0, is added to what the gating says before experts are compared. Not for `groups` or `per` above 1. */
struct rn_route_args {
    rn_address a, more, ids, weights; /* f32 [n_rows, experts]; int32_t and f32 [n_rows, used] */
    uint32_t n_rows, experts, used, gating, normalise;
    float scale, eps;
};

/* EXPERT_MATMUL: out[r][j] = weight[ids[r][j]] · a[r], or a[r][j] where per_expert_input (+ bias). The weight is one tiled
 * matrix [rows, cols] behind the other; where an id is none of an expert, out is left as it is. */
struct rn_expert_matmul_args {
    rn_address weight, bias, a, ids, out; /* f32 [experts, rows] or 0; [n_rows(, used), cols]; int32_t; f32 */
    uint32_t n_rows, used, experts, rows, cols, parts, per_expert_input;
};

/* EXPERT_SUM and, without weights, SUM: out[r] = sum over j, in order, of weights[r][j] * a[r][j]. */
struct rn_expert_sum_args {
    rn_address a, weights, out; /* f32 [n_rows, used, width], [n_rows, used] or 0, [n_rows, width] */
    uint32_t n_rows, used, width;
};

/* Formats of weights that the kernels read: the id of model/quant.h and the name in kernels' names. */
#define RN_KERNEL_TYPES(X) \
    X(0, f32)              \
    X(1, f16)              \
    X(30, bf16)            \
    X(8, q8_0)             \
    X(2, q4_0)             \
    X(12, q4_k)            \
    X(13, q5_k)            \
    X(14, q6_k)

/* Kernels of which there is one for each format, and the others: name, argument. */
#define RN_TYPED_KERNELS(X, type) \
    X(tile_##type, tile)          \
    X(embed_##type, embed)        \
    X(matmul_few_##type, matmul)  \
    X(matmul_many_##type, matmul) \
    X(expert_matmul_##type, expert_matmul)
#define RN_PLAIN_KERNELS(X)         \
    X(norm, norm)                   \
    X(each, each)                   \
    X(gather, gather)               \
    X(route, route)                 \
    X(expert_sum, expert_sum)       \
    X(rope, rope)                   \
    X(kv_store, kv_store)           \
    X(attention_f16, attention)     \
    X(attention_f32, attention)     \
    X(attention_bf16, attention)    \
    X(attention_fp8, attention)     \
    X(attention_q8, attention)      \
    X(attention_join, attention)    \
    X(attention_64_f16, attention)  \
    X(attention_128_f16, attention) \
    X(attention_64_bf16, attention) \
    X(attention_128_bf16, attention)

#define RN_KERNELS(X)         \
    RN_PLAIN_KERNELS(X)       \
    RN_TYPED_KERNELS(X, f32)  \
    RN_TYPED_KERNELS(X, f16)  \
    RN_TYPED_KERNELS(X, bf16) \
    RN_TYPED_KERNELS(X, q8_0) \
    RN_TYPED_KERNELS(X, q4_0) \
    RN_TYPED_KERNELS(X, q4_k) \
    RN_TYPED_KERNELS(X, q5_k) \
    RN_TYPED_KERNELS(X, q6_k)

enum rn_kernel {
#define RN_KERNEL_NUMBER(name, args) RN_KERNEL_##name,
    RN_KERNELS(RN_KERNEL_NUMBER)
#undef RN_KERNEL_NUMBER
        RN_KERNEL_COUNT
};

/* Dynamic shared memory that a launch never asks more of: what a block of sm_90 can have. Devices before it have less. */
enum { RN_SHARED_BYTES = 227 * 1024 };

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

/* Kernels by the format of a weight (an id of model/quant.h). False: there is none for it. */
struct rn_typed_kernels {
    enum rn_kernel tile, embed, matmul_few, matmul_many, expert_matmul;
};
bool rn_kernels_of_type(uint32_t type_id, struct rn_typed_kernels *kernels);

/* The kernel of a format of the cache. False: there is none, or heads have too many numbers, or not a multiple of 4. */
bool rn_attention_kernel(uint32_t kv_type, uint32_t k_dim, uint32_t v_dim, enum rn_kernel *kernel);

/* The kernel for many rows. False: there is none for such heads or such a cache. */
bool rn_attention_many_kernel(uint32_t kv_type, uint32_t k_dim, uint32_t v_dim, enum rn_kernel *kernel);

/* Bytes of a matrix in the device's order; cols fit the format's blocks. 0: there are no kernels for the type. */
uint64_t rn_tiled_bytes(uint32_t type_id, uint64_t rows, uint64_t cols);

#ifdef __cplusplus
}
#endif
#endif
