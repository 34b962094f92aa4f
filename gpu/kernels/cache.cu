/* ROPE, KV_STORE, and rows that are gathered. */
#include "gpu/kernels/cache.cuh"

/* A block has a row: the sines of its position, in double, once for all heads.
 *
 *   shared   [dims / 2] cosines, [dims / 2] sines, times the magnitude */
RN_KERNEL(rope, rn_rope_args, 256, 4)
{
    uint32_t half = args.dims / 2, row = block_x();
    shared<float> cosines(0, half), sines(half * 4, half);
    global<float> a(args.a, (uint64_t)args.n_rows * args.heads * args.k_dim);
    global<float> out(args.out, (uint64_t)args.n_rows * args.heads * args.k_dim);
    double position = (double)global<uint32_t>(args.positions, args.n_rows).get(row) + args.shift;

    for (uint32_t i = thread_of_block(); i < half; i += 256) {
        double angle = position * global<double>(args.inv_freq, half).get(i);
        cosines.put(i, (float)(cos(angle) * args.magnitude));
        sines.put(i, (float)(sin(angle) * args.magnitude));
    }
    sync_block();
    for (uint32_t i = thread_of_block(); i < args.heads * half; i += 256) {
        uint64_t head = ((uint64_t)row * args.heads + i / half) * args.k_dim;
        uint32_t pair = i % half, x = args.neox != 0 ? pair : 2 * pair, y = args.neox != 0 ? pair + half : x + 1;
        float c = cosines.get(pair), s = sines.get(pair), ax = a.get(head + x), ay = a.get(head + y);
        out.put(head + x, fmaf(ax, c, -(ay * s)));
        out.put(head + y, fmaf(ax, s, ay * c));
    }
    if (args.a == args.out)
        return;
    for (uint32_t i = thread_of_block(); i < args.heads * (args.k_dim - args.dims); i += 256) {
        uint32_t rest = args.k_dim - args.dims;
        uint64_t at = ((uint64_t)row * args.heads + i / rest) * args.k_dim + args.dims + i % rest;
        out.put(at, a.get(at));
    }
}

namespace
{

/* To the nearest of E4M3, ties to even; at most 448. */
DEVICE uint32_t fp8_of(float x)
{
    uint32_t sign = bits_of(x) >> 24 & 0x80, size = bits_of(x) & 0x7fffffffu;

    if (size > 0x7f800000u)
        return sign | 0x7f;
    if (size < 121u << 23) /* below 2^-6 the unit is 2^-9 */
        return sign | (bits_of(float_of(size) * 512.0f + 12582912.0f) & 15);
    size = size > 0x43e00000u ? 0x43e00000u : size;
    return sign | (((size + 0x7ffff + (size >> 20 & 1)) >> 20) - (120 << 3));
}

/* A group of up to 32 numbers, one for each lane of the warp; `is_one`: this lane has one. */
DEVICE void store_group(uint32_t type, const bytes_at &out, uint64_t row, uint32_t group, bool is_one, float x)
{
    uint32_t i = group * KV_GROUP + lane_of_warp(), most = bits_of(x) & 0x7fffffffu, scale;
    float d, inverse, t;

    if (type == KV_Q8) {
        UNROLL
        for (uint32_t mask = 16; mask > 0; mask /= 2) {
            uint32_t other = shuffle_xor(most, mask);
            most = other > most ? other : most;
        }
        d = float_of(most) / 127.0f;
        scale = most >= 0x7f800000u ? 0x7e00 : half_of(d < 65504.0f ? d : 65504.0f);
        d = float_of_half(scale);
        inverse = d > 0 ? 1.0f / d : 0;
        t = inverse == 0 ? 0 : x * inverse;
        t = t < -127.0f ? -127.0f : t > 127.0f ? 127.0f : t;
        row += group * kv_group_bytes(KV_Q8, KV_GROUP);
        if (lane_of_warp() == 0)
            out.put(row, (uint16_t)scale);
        if (is_one)
            out.put(row + 2 + lane_of_warp(), (int8_t)(int32_t)rintf(t));
        return;
    }
    if (!is_one)
        return;
    if (type == KV_F32)
        out.put(row + i * 4, x);
    else if (type == KV_FP8)
        out.put(row + i, (uint8_t)fp8_of(x));
    else
        out.put(row + i * 2, (uint16_t)(type == KV_F16 ? half_of(x) : pack_bf16(x, 0) & 0xffff));
}

/* ---- Rows of q4 and q3: a warp has a piece, number j * 32 + lane in x[j] ---- */

enum : uint32_t { PIECE_GROUPS = KV_PIECE / KV_GROUP };

/* 2^k of the largest power of two that divides n, but at most that of a piece. */
DEVICE uint32_t span_log_of(uint32_t n)
{
    uint32_t k = 0;

    while (k < 8 && (n >> k & 1) == 0)
        k++;
    return k;
}

/* Times Hadamard matrices of 2^log numbers over their root, in the order of sums of model/kv_encode.h. */
DEVICE void rotate_piece(float x[PIECE_GROUPS], uint32_t log)
{
    float root = float_of((127 - log / 2) << 23) * (log % 2 == 0 ? 1.0f : 0.707106769f);

    UNROLL
    for (uint32_t k = 0; k < 5; k++) {
        if (k >= log)
            break;
        UNROLL
        for (uint32_t j = 0; j < PIECE_GROUPS; j++) {
            float other = shuffle_xor(x[j], 1u << k);
            x[j] = (lane_of_warp() >> k & 1) != 0 ? other - x[j] : x[j] + other;
        }
    }
    UNROLL
    for (uint32_t k = 0; k < 3; k++) {
        if (k + 5 >= log)
            break;
        UNROLL
        for (uint32_t j = 0; j < PIECE_GROUPS; j++) {
            if ((j >> k & 1) == 0) {
                float a = x[j], b = x[j + (1u << k)];
                x[j] = a + b;
                x[j + (1u << k)] = a - b;
            }
        }
    }
    UNROLL
    for (uint32_t j = 0; j < PIECE_GROUPS; j++)
        x[j] *= root;
}

/* How many thresholds between a format's levels above 0 a number is beyond. */
DEVICE uint32_t levels_below(uint32_t type, float t)
{
    uint32_t first = type == KV_Q4 ? 8 : 4, above = 0;

    UNROLL
    for (uint32_t i = 1; i < 8; i++) {
        if (i >= first)
            break;
        float low = type == KV_Q4 ? kv_levels4[8 + i - 1] : kv_levels3[(4 + i - 1) % 8];
        float high = type == KV_Q4 ? kv_levels4[8 + i] : kv_levels3[(4 + i) % 8];
        above += t > 0.5f * (low + high) ? 1 : 0;
    }
    return above;
}

DEVICE float level_above(uint32_t type, uint32_t i)
{
    return type == KV_Q4 ? kv_levels4[8 + i] : kv_levels3[4 + i % 4];
}

/* A number of each lane, summed as rn_kv_error sums them, in every lane. */
DEVICE float sum_errors(float e)
{
    float of[4] = {e, shuffle_xor(e, 8), shuffle_xor(e, 16), shuffle_xor(e, 24)}, sum, t;
    uint32_t group = lane_of_warp() / 8;

    if ((group & 1) != 0) {
        t = of[0], of[0] = of[1], of[1] = t;
        t = of[2], of[2] = of[3], of[3] = t;
    }
    if ((group & 2) != 0) {
        t = of[0], of[0] = of[2], of[2] = t;
        t = of[1], of[1] = of[3], of[3] = t;
    }
    sum = of[0] + of[1] + of[2] + of[3];
    sum += shuffle_xor(sum, 4);
    sum += shuffle_xor(sum, 2);
    return sum + shuffle_xor(sum, 1);
}

/* The scale of a group in every lane, of x in the m first; *inverse: one over it, or 0. */
DEVICE uint32_t best_scale(uint32_t type, uint32_t m, float x, float *inverse)
{
    uint32_t most = bits_of(x) & 0x7fffffffu, best = 0x7e00;
    float least = INFINITY;

    UNROLL
    for (uint32_t mask = 16; mask > 0; mask /= 2) {
        uint32_t other = shuffle_xor(most, mask);
        most = other > most ? other : most;
    }
    *inverse = 0;
    if (most >= 0x7f800000u)
        return best;
    for (uint32_t i = 10; i < 18; i++) {
        float d = float_of(most) / 127.0f * ((float)i / 16.0f), over, e;
        uint32_t half = half_of(d < 65504.0f ? d : 65504.0f);
        d = float_of_half(half);
        over = d > 0 ? 1.0f / d : 0;
        e = fabsf(x) - d * level_above(type, levels_below(type, fabsf(x) * over));
        e = sum_errors(lane_of_warp() < m ? e * e : 0.0f);
        if (i == 10 || e < least) {
            least = e;
            best = half;
            *inverse = over;
        }
    }
    return best;
}

/* The bytes of a group of m numbers, x in the lanes below m and 0 in the others. */
DEVICE void store_levels(uint32_t type, const bytes_at &out, uint64_t at, uint32_t m, float x)
{
    uint32_t lane = lane_of_warp(), count = type == KV_Q4 ? 8 : 4, scale, above, code, low, high, byte = 0;
    uint32_t bits[4];
    float inverse;

    scale = best_scale(type, m, x, &inverse);
    above = levels_below(type, fabsf(x) * inverse);
    code = lane >= m ? 0 : x < 0 ? count - 1 - above : count + above;
    UNROLL
    for (uint32_t i = 0; i < 4; i++)
        bits[i] = ballot((code >> i & 1) != 0);
    if (lane < 2)
        out.put(at + lane, (uint8_t)(scale >> (8 * lane)));
    low = type == KV_Q4 ? (m + 1) / 2 : (m + 3) / 4;
    high = type == KV_Q4 ? 0 : (m + 7) / 8;
    if (lane < low) {
        UNROLL
        for (uint32_t i = 0; i < 4; i++) { /* those at lane, lane + low, ... */
            uint32_t from = lane + i * low, width = type == KV_Q4 ? 4 : 2;
            UNROLL
            for (uint32_t b = 0; b < 4; b++)
                if (b < width && i * width < 8 && from < KV_GROUP)
                    byte |= (bits[b] >> from & 1) << (i * width + b);
        }
    } else if (lane < low + high) {
        UNROLL
        for (uint32_t i = 0; i < 8; i++)
            if (lane - low + i * high < KV_GROUP)
                byte |= (bits[2] >> (lane - low + i * high) & 1) << i;
    }
    if (lane < low + high)
        out.put(at + 2 + lane, (uint8_t)byte);
}

/* Numbers from `first` on of a row of n, rotated, to the row at byte `row`. */
DEVICE void store_piece(uint32_t type, const bytes_at &out, uint64_t row, uint32_t first, uint32_t n,
                        float x[PIECE_GROUPS])
{
    rotate_piece(x, span_log_of(n));
    UNROLL
    for (uint32_t j = 0; j < PIECE_GROUPS; j++) {
        uint32_t at = first + j * KV_GROUP;
        if (at >= n)
            break;
        store_levels(type, out, row + at / KV_GROUP * kv_group_bytes(type, KV_GROUP),
                     n - at < KV_GROUP ? n - at : (uint32_t)KV_GROUP, x[j]);
    }
}

} // namespace

namespace
{

/* A block has the keys or the values of a row: a warp a group of 32 numbers at a time, or a piece of 256. number(at, d)
 * is the number d of the head whose numbers begin at `at`. */
template <bool ROTATED, class NUMBER>
DEVICE void store_row(const rn_cache_args &cache, bool of_keys, uint32_t row, kv_place place, NUMBER number)
{
    uint32_t dim = of_keys ? cache.k_dim : cache.v_dim, unit = ROTATED ? KV_PIECE : KV_GROUP;
    uint32_t units = (dim + unit - 1) / unit, bytes = kv_row_bytes(cache.type, dim), lane = lane_of_warp();
    bytes_at out(of_keys ? cache.keys : cache.values);

    for (uint32_t i = warp_of_block(); i < cache.kv_heads * units; i += 8) {
        uint32_t head = i / units, first = i % units * unit;
        uint64_t at = ((uint64_t)row * cache.kv_heads + head) * dim, to = row_at(cache, place, head, bytes);
        if (ROTATED) {
            float x[PIECE_GROUPS];
            UNROLL
            for (uint32_t j = 0; j < PIECE_GROUPS; j++) {
                uint32_t d = first + j * KV_GROUP + lane;
                x[j] = d < dim ? number(at, d) : 0.0f;
            }
            store_piece(cache.type, out, to, first, dim, x);
        } else {
            bool is_one = first + lane < dim;
            float x = is_one ? number(at, first + lane) : 0.0f;
            store_group(cache.type, out, to, first / KV_GROUP, is_one, x);
        }
    }
}

template <bool ROTATED> DEVICE void kv_store(const rn_kv_store_args &args)
{
    const rn_cache_args &cache = args.cache;
    bool of_keys = block_y() == 0;
    uint32_t row = block_x(), dim = of_keys ? cache.k_dim : cache.v_dim;
    global<float> from(of_keys ? args.k : args.v, (uint64_t)args.n_rows * cache.kv_heads * dim);
    kv_place place = place_of(cache, global<uint32_t>(args.seqs, args.n_rows).get(row),
                              global<uint32_t>(args.places, args.n_rows).get(row));

    store_row<ROTATED>(cache, of_keys, row, place, [&](uint64_t at, uint32_t d) { return from.get(at + d); });
}

} // namespace

RN_KERNEL(kv_store, rn_kv_store_args, 256, 4)
{
    kv_store<false>(args);
}

RN_KERNEL(kv_store_rotated, rn_kv_store_args, 256, 4)
{
    kv_store<true>(args);
}

RN_KERNEL(angles, rn_angles_args, 128, 4)
{
    uint32_t half = args.dims / 2, row = block_x();
    global<float> out(args.out, (uint64_t)args.n_rows * args.dims);
    double position = (double)global<uint32_t>(args.positions, args.n_rows).get(row) + args.shift;

    for (uint32_t i = thread_of_block(); i < half; i += 128) {
        double angle = position * global<double>(args.inv_freq, half).get(i);
        out.put((uint64_t)row * args.dims + i, (float)(cos(angle) * args.magnitude));
        out.put((uint64_t)row * args.dims + half + i, (float)(sin(angle) * args.magnitude));
    }
}

namespace
{

/* Number d of the head that begins at `head` of a row, rotated as `rope` does it. */
DEVICE float rotated(const rn_rope_store_args &args, const global<float> &from, uint64_t head, uint32_t row, uint32_t d)
{
    global<float> angles(args.angles, (uint64_t)args.store.n_rows * args.dims);
    uint32_t half = args.dims / 2, pair, x, y;
    float c, s;

    if (d >= args.dims)
        return from.get(head + d);
    pair = args.neox != 0 ? d % half : d / 2;
    x = args.neox != 0 ? pair : 2 * pair;
    y = args.neox != 0 ? pair + half : x + 1;
    c = angles.get((uint64_t)row * args.dims + pair);
    s = angles.get((uint64_t)row * args.dims + half + pair);
    return d == x ? fmaf(from.get(head + x), c, -(from.get(head + y) * s))
                  : fmaf(from.get(head + x), s, from.get(head + y) * c);
}

/* Eight heads of a row's queries, one for each warp: lanes have pairs of numbers, so that nobody reads what another has
 * written. */
DEVICE void rotate_queries(const rn_rope_store_args &args, uint32_t row, uint32_t first_head)
{
    uint32_t k_dim = args.store.cache.k_dim, half = args.dims / 2, head = first_head + warp_of_block();
    uint64_t at = ((uint64_t)row * args.heads + head) * k_dim;
    global<float> q(args.q, (uint64_t)args.store.n_rows * args.heads * k_dim);
    global<float> angles(args.angles, (uint64_t)args.store.n_rows * args.dims);

    if (head >= args.heads)
        return;
    for (uint32_t pair = lane_of_warp(); pair < half; pair += WARP) {
        uint32_t x = args.neox != 0 ? pair : 2 * pair, y = args.neox != 0 ? pair + half : x + 1;
        float c = angles.get((uint64_t)row * args.dims + pair), s = angles.get((uint64_t)row * args.dims + half + pair);
        float ax = q.get(at + x), ay = q.get(at + y);
        q.put(at + x, fmaf(ax, c, -(ay * s)));
        q.put(at + y, fmaf(ax, s, ay * c));
    }
}

template <bool ROTATED> DEVICE void rope_store(const rn_rope_store_args &args)
{
    const rn_cache_args &cache = args.store.cache;
    uint32_t query_blocks = (args.heads + 7) / 8, row = block_x();
    bool of_keys = block_y() == query_blocks;
    uint32_t dim = of_keys ? cache.k_dim : cache.v_dim;
    global<float> from(of_keys ? args.store.k : args.store.v, (uint64_t)args.store.n_rows * cache.kv_heads * dim);
    kv_place place;

    if (block_y() < query_blocks) {
        rotate_queries(args, row, block_y() * 8);
        return;
    }
    place = place_of(cache, global<uint32_t>(args.store.seqs, args.store.n_rows).get(row),
                     global<uint32_t>(args.store.places, args.store.n_rows).get(row));
    store_row<ROTATED>(cache, of_keys, row, place, [&](uint64_t at, uint32_t d) {
        return of_keys ? rotated(args, from, at, row, d) : from.get(at + d);
    });
}

} // namespace

RN_KERNEL(rope_store, rn_rope_store_args, 256, 4)
{
    rope_store<false>(args);
}

RN_KERNEL(rope_store_rotated, rn_rope_store_args, 256, 4)
{
    rope_store<true>(args);
}

/* A warp has a piece of a vector. */
RN_KERNEL(rotate, rn_rotate_args, 256, 4)
{
    uint64_t pieces = (args.n + KV_PIECE - 1) / KV_PIECE, piece = (uint64_t)block_x() * 8 + warp_of_block();
    uint64_t n = (uint64_t)args.n_vectors * args.n, begin = piece / pieces * args.n;
    uint32_t first = (uint32_t)(piece % pieces) * KV_PIECE + lane_of_warp();
    global<float> a(args.a, n), out(args.out, n);
    float x[PIECE_GROUPS];

    if (begin >= n)
        return;
    UNROLL
    for (uint32_t j = 0; j < PIECE_GROUPS; j++)
        x[j] = first + j * KV_GROUP < args.n ? a.get(begin + first + j * KV_GROUP) : 0.0f;
    rotate_piece(x, span_log_of(args.span));
    UNROLL
    for (uint32_t j = 0; j < PIECE_GROUPS; j++)
        if (first + j * KV_GROUP < args.n)
            out.put(begin + first + j * KV_GROUP, x[j]);
}

RN_KERNEL(gather, rn_gather_args, 256, 4)
{
    uint32_t index = global<uint32_t>(args.index, args.n_rows).get(block_x());
    global<float> a(args.a, (uint64_t)args.rows * args.width), out(args.out, (uint64_t)args.n_rows * args.out_width);

    for (uint32_t i = thread_of_block(); i < args.width; i += 256)
        out.put((uint64_t)block_x() * args.out_width + args.at + i,
                index < args.rows ? a.get((uint64_t)index * args.width + i) : 0.0f);
}

/* A block has a part of the cache and the moves of a sequence. A thread has the same bytes of each row, so that it
 * reads what it has moved before. */
RN_KERNEL(move_rows, rn_move_rows_args, 256, 4)
{
    global<uint32_t> parts(args.parts, 4 * (uint64_t)args.n_parts), moves(args.moves, 3 * (uint64_t)args.n_moves);
    uint64_t part = parts.get(block_x() * 4) | (uint64_t)parts.get(block_x() * 4 + 1) << 32;
    uint32_t bytes = parts.get(block_x() * 4 + 2);
    rn_cache_args cache = {};
    bytes_at rows(args.blocks);

    cache.tables = args.tables;
    cache.table_at = args.table_at;
    cache.block_bytes = args.block_bytes;
    cache.n_tables = args.n_tables;
    cache.n_seqs = args.n_seqs;
    cache.block_log = args.block_log;
    for (uint32_t i = 0; i < args.n_moves; i++) {
        if (moves.get(i * 3) != block_y())
            continue;
        kv_place from = place_of(cache, block_y(), moves.get(i * 3 + 1)), to = place_of(cache, block_y(), moves.get(i * 3 + 2));
        for (uint32_t j = thread_of_block(); j < bytes; j += 256)
            rows.put(to.block + part + (uint64_t)to.slot * bytes + j,
                     rows.get<uint8_t>(from.block + part + (uint64_t)from.slot * bytes + j));
    }
}
