/* What the forms of ATTENTION share: columns, the arithmetic that decides a column's bits, and how rows of the cache
 * come to shared memory.
 *
 *   column   one head of one row; 16 that share a head of keys are the rows of a product of the tensor cores
 *   chunk    64 positions from a multiple of 64 on
 *
 * Of a column and a chunk, s being the scores in powers of two (times log2 e), -infinity where the column does not see:
 *
 *     m = ceil(max s) - SHIFT;  w = 2^(s - m);  l = sum of w;  o = w · values
 *
 * l: of each lane's positions by groups of 16, then over the groups, then over the lanes. o: 16 positions after
 * another. Chunks are put together in the order of positions, from (-infinity, 0, 0) on:
 *
 *     n = max(M, m);  L = L 2^(M - n) + l 2^(m - n);  O = O 2^(M - n) + o 2^(m - n);  M = n
 *
 * m is an integer, so these powers are exact and cheap. A chunk of which a column sees nothing leaves (M, L, O) as it
 * is. So neither the other columns of a tile matter, nor who puts the chunks together.
 *
 * Keys and values in f16 or bf16 are multiplied as they lie in the cache, fp8 as f16, all others as sums of bf16.
 * Queries and weights are sums of two of the same kind. For f16 a column's queries are multiplied by a power of two
 * that brings the greatest to [2^13, 2^14), and SHIFT makes the greatest weight some 2^13: so what is lost of the
 * second part, which has no bits below 2^-24, does not count. */
#ifndef RN_GPU_ATTENTION_CUH
#define RN_GPU_ATTENTION_CUH

#include "gpu/kernels/cache.cuh"

namespace
{

enum : uint32_t { CHUNK = RN_ATTENTION_CHUNK, QUERY_BITS = 13, ROW_PAD = 16, TILE_WARPS = 4, TILE_THREADS = 128 };

template <uint32_t TYPE> struct kv_form {
    static constexpr bool HALF = TYPE == KV_F16 || TYPE == KV_FP8;
    static constexpr bool AS_STORED = TYPE == KV_F16 || TYPE == KV_BF16;
    static constexpr uint32_t PARTS = HALF ? 1 : kv_numbers<TYPE>::PARTS;
    static constexpr float SHIFT = HALF ? 13.0f : 0.0f;
};

template <bool HALF> DEVICE void split_numbers(float x, float y, uint32_t *high, uint32_t *low)
{
    if (HALF)
        split_pair_f16(x, y, high, low);
    else
        split_pair(x, y, high, low);
}

/* c += a b, a of two parts, b of one or two; the product of the second parts does not count. */
template <uint32_t TYPE> DEVICE void multiply(float c[4], const words4 a[2], const uint32_t b[2], const uint32_t b_low[2])
{
    if (kv_form<TYPE>::HALF) {
        mma_f16(c, a[0].w, b);
        mma_f16(c, a[1].w, b);
        return;
    }
    mma_bf16(c, a[0].w, b);
    if (kv_form<TYPE>::PARTS > 1)
        mma_bf16(c, a[0].w, b_low);
    mma_bf16(c, a[1].w, b);
}

/* ---- Columns ---- */

/* Rows of a tile that are of one sequence; positions that some of them sees: [low, high]; of a tree: from `apart` on
 * they lie at the places of the row and its ancestors. */
struct run {
    uint32_t first_row, n_rows, seq, low, high, apart;
};
struct column {
    bool is_one;
    uint32_t row, head, first, last; /* of positions */
};

DEVICE uint32_t group_of(const rn_attention_args &args)
{
    return args.heads / args.cache.kv_heads;
}

DEVICE uint32_t first_position(const rn_attention_args &args, uint32_t position)
{
    uint32_t window = args.chunked != 0 ? position % args.window + 1 : args.window;

    if (args.chosen != 0) /* numbers of the list stand for positions */
        return 0;
    if (args.lasts != 0 && args.window > 0) /* on both sides */
        return position > args.window / 2 ? position - args.window / 2 : 0;
    return window == 0 || window > position ? 0 : position + 1 - window;
}

/* The last position that the row, which is at `position`, sees. */
DEVICE uint32_t last_position(const rn_attention_args &args, uint32_t row, uint32_t position)
{
    uint32_t last = args.lasts == 0 ? position : global<uint32_t>(args.lasts, args.n_rows).get(row);

    if (args.chosen != 0) {
        if (args.second == 0 && position < args.used)
            return position;
        global<int32_t> chosen(args.chosen, (uint64_t)args.n_rows * args.used);
        uint32_t least = 0;
        last = args.used - 1;
        while (least < last) { /* behind the first that is none there are none */
            uint32_t middle = (least + last + 1) / 2;
            if (chosen.get((uint64_t)row * args.used + middle) < 0)
                last = middle - 1;
            else
                least = middle;
        }
        return last;
    }
    return args.window > 0 && last > position + args.window / 2 ? position + args.window / 2 : last;
}

/* The rows from `row` on that are of its sequence, before `end`. */
DEVICE run run_of(const rn_attention_args &args, uint32_t row, uint32_t end)
{
    global<uint32_t> seqs(args.seqs, args.n_rows), positions(args.positions, args.n_rows);
    uint32_t position = positions.get(row);
    run r = {row,         1, seqs.get(row), first_position(args, position), last_position(args, row, position),
             0xffffffffu};

    for (uint32_t i = row; args.places != 0;) {
        position = positions.get(i);
        if (global<uint32_t>(args.places, args.n_rows).get(i) == position)
            break; /* and so are its ancestors */
        r.apart = position;
        i = global<uint32_t>(args.parents, args.n_rows).get(i);
    }
    while (row + r.n_rows < end && seqs.get(row + r.n_rows) == r.seq) {
        position = positions.get(row + r.n_rows);
        uint32_t first = first_position(args, position), last = last_position(args, row + r.n_rows++, position);
        r.high = last > r.high ? last : r.high;
        r.low = first < r.low ? first : r.low;
    }
    return r;
}

/* In a place's block: it is one of the second cache. */
static constexpr uint64_t OF_SECOND = (uint64_t)1 << 63;

/* Where what the run's rows see at a position lies; with a list, at a number of the list of the one row. */
DEVICE kv_place place_seen(const rn_attention_args &args, const run &r, uint32_t position)
{
    if (args.chosen != 0)
        position = (uint32_t)global<int32_t>(args.chosen, (uint64_t)args.n_rows * args.used)
                       .get((uint64_t)r.first_row * args.used + position);
    if (args.second != 0 && (position & RN_SECOND_POSITION) != 0) {
        position &= ~(uint32_t)RN_SECOND_POSITION;
        uint32_t from = global<uint32_t>(args.second_at, args.cache.n_seqs).get(r.seq);
        uint32_t at = from + (position >> args.cache.block_log);
        uint32_t block = global<uint32_t>(args.cache.tables, args.cache.n_tables).get(at);
        return kv_place{(block * args.second_bytes) | OF_SECOND, position & ((1u << args.cache.block_log) - 1)};
    }
    if (position >= r.apart)
        position = seen_place(global<uint32_t>(args.positions, args.n_rows), global<uint32_t>(args.places, args.n_rows),
                              global<uint32_t>(args.parents, args.n_rows), r.first_row, position);
    return place_of(args.cache, r.seq, position);
}

/* Column i of a tile of `columns`; a group of more heads is cut into parts. */
DEVICE column column_of(const rn_attention_args &args, const run &r, uint32_t i, uint32_t columns)
{
    uint32_t group = group_of(args), heads = group < columns ? group : columns;
    uint32_t in_group = block_y() / args.cache.kv_heads * columns + i % heads, position;
    column c = {false, r.first_row + i / heads, block_y() % args.cache.kv_heads * group + in_group, 0, 0};

    if (i / heads >= r.n_rows || in_group >= group)
        return c;
    c.is_one = true;
    position = global<uint32_t>(args.positions, args.n_rows).get(c.row);
    c.first = first_position(args, position);
    c.last = last_position(args, c.row, position);
    return c;
}

/* ---- Queries ---- */

/* A column's query, times a power of two, as two parts in rows of shared memory of `width` numbers; one warp. What
 * undoes the power comes back. */
template <bool HALF>
DEVICE float put_query(const rn_attention_args &args, const column &c, uint32_t width, uint32_t high_at, uint32_t low_at)
{
    uint32_t k_dim = args.cache.k_dim, at = lane_of_warp() * 4, exponent = 127;
    shared<words2> high(high_at, (width + 3) / 4), low(low_at, (width + 3) / 4);
    bytes_at q(args.q + ((uint64_t)c.row * args.heads + c.head) * k_dim * sizeof(float));
    floats4 first = {{0, 0, 0, 0}}, v;
    float most = 0;

    if (c.is_one && at < k_dim)
        first = q.get<floats4>(at * 4);
    if (HALF) {
        for (uint32_t d = at; d < k_dim && c.is_one; d += WARP * 4) {
            v = d == at ? first : q.get<floats4>(d * 4);
            most = fmaxf(fmaxf(most, fmaxf(fabsf(v.v[0]), fabsf(v.v[1]))), fmaxf(fabsf(v.v[2]), fabsf(v.v[3])));
        }
        UNROLL
        for (uint32_t mask = 16; mask > 0; mask /= 2)
            most = fmaxf(most, shuffle_xor(most, mask));
        exponent = bits_of(most) >> 23;
        exponent = exponent < 54 ? 54 : exponent;
        exponent = 254 + QUERY_BITS - exponent;
    }
    for (uint32_t d = at; d < width; d += WARP * 4) {
        words2 parts[2];
        v = d == at ? first : floats4{{0, 0, 0, 0}};
        if (d != at && d < k_dim && c.is_one)
            v = q.get<floats4>(d * 4);
        UNROLL
        for (uint32_t i = 0; i < 4; i++)
            v.v[i] *= float_of(exponent << 23);
        split_numbers<HALF>(v.v[0], v.v[1], &parts[0].w[0], &parts[1].w[0]);
        split_numbers<HALF>(v.v[2], v.v[3], &parts[0].w[1], &parts[1].w[1]);
        high.put(d / 4, parts[0]);
        low.put(d / 4, parts[1]);
    }
    return float_of((254 - exponent) << 23);
}

/* Both parts of columns [0, 16) and numbers [16 k, 16 k + 16): a product's first operand. */
DEVICE void get_query(words4 a[2], uint32_t high_at, uint32_t low_at, uint32_t stride, uint32_t k)
{
    uint32_t lane = lane_of_warp(), at = lane % 16 * stride + k * 32 + lane / 16 * 16;

    load_matrices(a[0].w, high_at + at);
    load_matrices(a[1].w, low_at + at);
}

/* ---- Keys and values ---- */

/* Where keys and values of a chunk's positions lie in the cache, for a head; a position that no row sees has none. */
struct alignas(16) kv_row {
    uint32_t keys, keys_high, values, values_high;
};
enum : uint32_t { NO_ROW = 0xffffffffu };

template <uint32_t TYPE>
DEVICE void look_up(const rn_attention_args &args, const run &r, uint32_t chunk, const shared<kv_row> &rows)
{
    const rn_cache_args &cache = args.cache;
    uint32_t i = thread_of_block(), position = chunk * CHUNK + i, head = block_y() % cache.kv_heads;
    kv_row row = {NO_ROW, NO_ROW, NO_ROW, NO_ROW};

    if (i >= CHUNK)
        return;
    if (position >= r.low && position <= r.high) {
        kv_place place = place_seen(args, r, position);
        uint64_t keys = row_at(cache, place, head, kv_row_bytes(TYPE, cache.k_dim));
        uint64_t values = row_at(cache, place, head, kv_row_bytes(TYPE, cache.v_dim));
        row = kv_row{(uint32_t)keys, (uint32_t)(keys >> 32), (uint32_t)values, (uint32_t)(values >> 32)};
    }
    rows.put(i, row);
}

/* `dim` numbers of each of a chunk's rows of `stored` at `from` to shared memory at `to`, zeros behind them to a
 * multiple of 16: rows of row_stride() bytes, the second parts behind all the first. All threads of the block; copies
 * may be under way. */
DEVICE uint32_t row_stride(uint32_t dim)
{
    return (dim + 15) / 16 * 32 + ROW_PAD;
}

DEVICE uint64_t place_of_row(const kv_row &row, bool of_values)
{
    return of_values ? row.values | (uint64_t)row.values_high << 32 : row.keys | (uint64_t)row.keys_high << 32;
}

DEVICE void copy_rows(rn_address from, rn_address second, const shared<kv_row> &rows, bool of_values, uint32_t dim,
                      uint32_t to)
{
    uint32_t stride = row_stride(dim), pieces = stride / 16 - 1;
    uint32_t row = thread_of_block() / pieces, piece = thread_of_block() % pieces;

    while (row < CHUNK) {
        uint64_t at = place_of_row(rows.get(row), of_values);
        uint32_t offset = to + row * stride + piece * 16;
        if ((uint32_t)at != NO_ROW && piece * 8 < dim)
            copy_async_16(offset, ((at & OF_SECOND) != 0 ? second : from) + (at & ~OF_SECOND) + piece * 16);
        else
            shared<words4>(offset, 1).put(0, words4{{0, 0, 0, 0}});
        row += TILE_THREADS / pieces;
        piece += TILE_THREADS % pieces;
        if (piece >= pieces) {
            piece -= pieces;
            row++;
        }
    }
}

template <uint32_t TYPE>
DEVICE void convert_rows(rn_address from, rn_address second, const shared<kv_row> &rows, bool of_values,
                         uint32_t stored, uint32_t dim, uint32_t to)
{
    uint32_t stride = row_stride(dim), pieces = (stride - ROW_PAD) / 8;
    bytes_at cache(from), other(second != 0 ? second : from);

    for (uint32_t i = thread_of_block(); i < CHUNK * pieces; i += TILE_THREADS) {
        uint32_t row = i / pieces, d = i % pieces * 4, offset = to + row * stride + d * 2;
        uint64_t at = place_of_row(rows.get(row), of_values);
        floats4 v = {{0, 0, 0, 0}};
        words2 high, low;
        if ((uint32_t)at != NO_ROW && d < dim)
            v = (at & OF_SECOND) != 0 ? kv_numbers<TYPE>::read(other, at & ~OF_SECOND, stored, d)
                                      : kv_numbers<TYPE>::read(cache, at, stored, d);
        split_numbers<kv_form<TYPE>::HALF>(v.v[0], v.v[1], &high.w[0], &low.w[0]);
        split_numbers<kv_form<TYPE>::HALF>(v.v[2], v.v[3], &high.w[1], &low.w[1]);
        shared<words2>(offset, 1).put(0, high);
        if (kv_form<TYPE>::PARTS > 1)
            shared<words2>(offset + CHUNK * stride, 1).put(0, low);
    }
}

template <uint32_t TYPE>
DEVICE void bring_rows(const rn_attention_args &args, const shared<kv_row> &rows, bool of_values, uint32_t to)
{
    rn_address from = of_values ? args.cache.values : args.cache.keys;
    uint32_t dim = of_values ? args.v_dim : args.cache.k_dim, stored = of_values ? args.cache.v_dim : dim;

    if (kv_form<TYPE>::AS_STORED && (stored | dim) % 8 == 0 &&
        (from | args.second | args.cache.block_bytes | args.second_bytes) % 16 == 0)
        copy_rows(from, args.second, rows, of_values, dim, to);
    else
        convert_rows<TYPE>(from, args.second, rows, of_values, stored, dim, to);
    copy_commit();
}

/* Keys of 16 positions from row `row` on and numbers [16 k, 16 k + 16), as second operands of two products: b[0 .. 1]
 * and b[2 .. 3]. */
DEVICE void get_keys(uint32_t b[4], uint32_t tile, uint32_t stride, uint32_t row, uint32_t k)
{
    uint32_t lane = lane_of_warp();

    load_matrices(b, tile + (row + lane / 16 * 8 + lane % 8) * stride + k * 32 + lane / 8 % 2 * 16);
}

/* Values of 16 positions from row `row` on, numbers [16 d, 16 d + 16): b[0 .. 1] the first 8 of them, b[2 .. 3]. */
DEVICE void get_values(uint32_t b[4], uint32_t tile, uint32_t stride, uint32_t row, uint32_t d)
{
    uint32_t lane = lane_of_warp();

    load_transposed(b, tile + (row + lane % 16) * stride + d * 32 + lane / 16 * 16);
}

/* ---- Scores ---- */

/* What is the same of all scores of a column. */
struct score_form {
    float factor; /* what a product is multiplied by */
    float slope;
    bool plain; /* no softcap, no slope: the factor has log2 e in it */
};

DEVICE score_form score_form_of(const rn_attention_args &args, const column &c, float undo)
{
    score_form f = {args.scale * undo, 0, args.softcap == 0 && args.slopes == 0};

    if (f.plain)
        f.factor *= 1.44269504f;
    else if (args.slopes != 0 && c.is_one)
        f.slope = global<float>(args.slopes, args.heads).get(c.head);
    return f;
}

/* How far the position is from the column's row. */
DEVICE float distance_of(const rn_attention_args &args, const column &c, uint32_t position)
{
    uint32_t own = c.last;

    if (args.lasts != 0 && args.slopes != 0 && c.is_one)
        own = global<uint32_t>(args.positions, args.n_rows).get(c.row);
    return (float)(own < position ? position - own : own - position);
}

/* The score in powers of two. */
DEVICE float finish_score(const rn_attention_args &args, const column &c, const score_form &f, float s, uint32_t position)
{
    s *= f.factor;
    if (!f.plain) {
        if (args.softcap > 0)
            s = args.softcap * tanhf(s / args.softcap);
        s += f.slope * distance_of(args, c, position);
        s *= 1.44269504f;
    }
    return c.is_one && position >= c.first && position <= c.last ? s : -INFINITY;
}

DEVICE float weight_of(float s, float m)
{
    return power_of_2(s - (m == -INFINITY ? 0 : m));
}

/* 2^d of an integer d up to 0; below 2^-126 it is 0. */
DEVICE float whole_power(float d)
{
    return float_of((uint32_t)((int32_t)fmaxf(d, -127.0f) + 127) << 23);
}

/* One chunk more. */
struct join_step {
    float before, part;
};

DEVICE join_step join(float m, float l, float *of_m, float *of_l)
{
    float n = fmaxf(*of_m, m);
    join_step step = {whole_power(*of_m - n), whole_power(m - n)};

    if (m == -INFINITY)
        return join_step{1, 0};
    *of_l = fmaf(l, step.part, *of_l * step.before);
    *of_m = n;
    return step;
}

DEVICE bool changes(const join_step &step)
{
    return step.part != 0 || step.before != 1;
}

DEVICE float join_sum(const join_step &step, float before, float o)
{
    return changes(step) ? fmaf(o, step.part, before * step.before) : before;
}

/* What a sink adds to the sum, and the end: out = O times this. A head beyond the last, of a column that is none, has
 * no sink. */
DEVICE float end_factor(const rn_attention_args &args, uint32_t head, float m, float l)
{
    float sink, n;

    if (args.sinks == 0 || head >= args.heads)
        return 1.0f / l;
    sink = global<float>(args.sinks, args.heads).get(head) * 1.44269504f;
    n = fmaxf(m, sink);
    return power_of_2(m - n) / (l * power_of_2(m - n) + power_of_2(sink - n));
}

} // namespace

#endif
