/* ATTENTION over the paged cache, on the tensor cores, so that a row's bits depend on its own query and positions alone.
 *
 *   column   one head of one row; 16 of them that share a head of keys are a tile's columns
 *   span     64 positions from a multiple of 64 on: a warp's. Scores of all, their maximum m, weights e^(s - m), their
 *            sum l, and o = weights · values
 *   chunk    4 spans from a multiple of 256 on: a block's
 *
 * Parts (m, l, o) are put together in the order of positions, from (-infinity, 0, 0) on: spans to a chunk, chunks to all:
 *
 *     n = max(M, m);  L = L e^(M - n) + l e^(m - n);  O = O e^(M - n) + o e^(m - n);  M = n
 *
 * where a part in which a column sees nothing is passed over. In a span positions that a column does not see have weight
 * 0. So it does not matter which other columns are in the tile, nor who puts the chunks together: the block, or
 * attention_join. Queries, keys, weights and values are sums of two bfloat16 where they have more than eight bits.
 *
 *   shared   queries [k_dim / 16][lane] of two words4: the registers of both parts
 *            o of each warp [4][16][v_dim]; of all chunks [16][v_dim]
 *            m, l of each warp [4][16], of all [16]; what each part is multiplied by, and what stands before it */
#include "gpu/kernels/cache.cuh"

namespace
{

enum : uint32_t { COLUMNS = RN_ATTENTION_COLUMNS, SPAN = 64, SPANS = RN_ATTENTION_CHUNK / SPAN, THREADS = SPANS * WARP };

/* Of a part and a column: by what o is multiplied, and what there is before; `is_part` 0: it is passed over. */
struct alignas(16) join_step {
    float part, before;
    uint32_t is_part, unused;
};

/* The rows of a tile that are of one sequence, and what a thread knows of its two columns. */
struct run {
    uint32_t first_row, n_rows, seq, low, high; /* positions that some row sees: [low, high] */
};
struct column {
    bool is_one;
    uint32_t row, head, first, last; /* of positions */
};

DEVICE uint32_t group_of(const rn_attention_args &args)
{
    return args.heads / args.cache.kv_heads;
}

/* Heads of a tile's row; a group of more than 16 is cut into parts. */
DEVICE uint32_t heads_of_row(const rn_attention_args &args)
{
    uint32_t group = group_of(args);

    return group < COLUMNS ? group : COLUMNS;
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

    if (args.chosen != 0)
        return position < args.used ? position : args.used - 1;
    return args.window > 0 && last > position + args.window / 2 ? position + args.window / 2 : last;
}

/* The rows from `row` on that are of its sequence, before `end`. */
DEVICE run run_of(const rn_attention_args &args, uint32_t row, uint32_t end)
{
    global<uint32_t> seqs(args.seqs, args.n_rows), positions(args.positions, args.n_rows);
    run r = {row, 1, seqs.get(row), first_position(args, positions.get(row)),
             last_position(args, row, positions.get(row))};

    while (row + r.n_rows < end && seqs.get(row + r.n_rows) == r.seq) {
        uint32_t position = positions.get(row + r.n_rows), first = first_position(args, position);
        r.high = last_position(args, row + r.n_rows++, position);
        r.low = first < r.low ? first : r.low;
    }
    return r;
}

/* Where what the run's rows see at a position lies; with a list, at a number of the list of the one row. */
DEVICE kv_place place_seen(const rn_attention_args &args, const run &r, uint32_t position)
{
    if (args.chosen != 0)
        position = (uint32_t)global<int32_t>(args.chosen, (uint64_t)args.n_rows * args.used)
                       .get((uint64_t)r.first_row * args.used + position);
    return place_of(args.cache, r.seq, position);
}

DEVICE column column_of(const rn_attention_args &args, const run &r, uint32_t i)
{
    uint32_t heads = heads_of_row(args), in_group = block_y() / args.cache.kv_heads * COLUMNS + i % heads, position;
    column c = {false, r.first_row + i / heads, block_y() % args.cache.kv_heads * group_of(args) + in_group, 0, 0};

    if (i / heads >= r.n_rows || in_group >= group_of(args))
        return c;
    c.is_one = true;
    position = global<uint32_t>(args.positions, args.n_rows).get(c.row);
    c.last = last_position(args, c.row, position);
    c.first = first_position(args, position);
    return c;
}

/* The views of shared memory. */
struct own_room {
    shared<words4> queries;
    shared<float> sums, all; /* o of each warp; of all */
    shared<float> spans;     /* [SPANS][16][m, l] */
    shared<float> total;     /* [16][m, l] */
    shared<join_step> steps; /* [SPANS][16]; [16]: of the chunk */
    uint32_t width;          /* of o: v_dim, to a multiple of 32 */

    DEVICE own_room(const rn_attention_args &args, uint32_t k_steps, uint32_t v_width)
        : queries(0, k_steps * WARP * 2), sums(k_steps * WARP * 32, SPANS * COLUMNS * v_width),
          all(k_steps * WARP * 32 + SPANS * COLUMNS * v_width * 4, COLUMNS * v_width),
          spans(k_steps * WARP * 32 + (SPANS + 1) * COLUMNS * v_width * 4, SPANS * COLUMNS * 2),
          total(k_steps * WARP * 32 + (SPANS + 1) * COLUMNS * v_width * 4 + SPANS * COLUMNS * 8, COLUMNS * 2),
          steps(k_steps * WARP * 32 + (SPANS + 1) * COLUMNS * v_width * 4 + (SPANS + 1) * COLUMNS * 8,
                (SPANS + 1) * COLUMNS),
          width(v_width)
    {
        (void)args;
    }
};

/* Registers of two numbers of each of columns g and g + 8, as of a product's first operand. */
DEVICE void load_queries(const rn_attention_args &args, const run &r, const own_room &room)
{
    uint32_t k_dim = args.cache.k_dim, k_steps = (k_dim + 15) / 16;
    global<float> q(args.q, (uint64_t)args.n_rows * args.heads * k_dim);

    for (uint32_t i = thread_of_block(); i < k_steps * WARP; i += THREADS) {
        uint32_t lane = i % WARP, d = i / WARP * 16 + lane % 4 * 4;
        words4 parts[2];
        UNROLL
        for (uint32_t half = 0; half < 2; half++) {
            column c = column_of(args, r, lane / 4 + 8 * half);
            float v[4] = {0, 0, 0, 0};
            UNROLL
            for (uint32_t j = 0; j < 4; j++)
                if (c.is_one && d + j < k_dim)
                    v[j] = q.get(((uint64_t)c.row * args.heads + c.head) * k_dim + d + j);
            split_pair(v[0], v[2], &parts[0].w[half], &parts[1].w[half]);
            split_pair(v[1], v[3], &parts[0].w[half + 2], &parts[1].w[half + 2]);
        }
        room.queries.put(i * 2, parts[0]);
        room.queries.put(i * 2 + 1, parts[1]);
    }
}

/* c += a b, where both are sums of two parts, but for the product of the small ones. */
template <uint32_t PARTS> DEVICE void multiply_parts(float c[4], const words4 a[2], const uint32_t b[2][2])
{
    mma_bf16(c, a[0].w, b[0]);
    if (PARTS > 1)
        mma_bf16(c, a[0].w, b[1]);
    mma_bf16(c, a[1].w, b[0]);
}

/* Scores of a warp's span: scores[i] are those of positions begin + 8 i + (0 .. 7), as the tensor cores leave them. */
template <uint32_t TYPE>
DEVICE void score_span(const rn_attention_args &args, const run &r, const own_room &room, uint32_t begin,
                       float scores[SPAN / 8][4])
{
    const rn_cache_args &cache = args.cache;
    uint32_t head = block_y() % cache.kv_heads, bytes = kv_row_bytes(TYPE, cache.k_dim), lane = lane_of_warp();
    bytes_at keys(cache.keys);

    uint64_t rows[SPAN / 8];
    uint32_t seen = 0; /* bit i: position begin + 8 i + lane / 4 is */

    UNROLL
    for (uint32_t i = 0; i < SPAN / 8; i++) {
        uint32_t position = begin + i * 8 + lane / 4;
        rows[i] = 0;
        if (position < r.low || position > r.high)
            continue;
        seen |= 1u << i;
        rows[i] = row_at(cache, place_seen(args, r, position), head, bytes);
    }
    for (uint32_t k = 0; k < (cache.k_dim + 15) / 16; k++) {
        words4 a[2] = {room.queries.get((k * WARP + lane) * 2), room.queries.get((k * WARP + lane) * 2 + 1)};
        uint32_t d = k * 16 + lane % 4 * 4;
        UNROLL
        for (uint32_t i = 0; i < SPAN / 8; i++) {
            uint32_t b[2][2];
            floats4 v = {{0, 0, 0, 0}};
            if ((seen >> i & 1) != 0 && d < cache.k_dim)
                v = kv_numbers<TYPE>::read(keys, rows[i], d);
            split_pair(v.v[0], v.v[2], &b[0][0], &b[1][0]);
            split_pair(v.v[1], v.v[3], &b[0][1], &b[1][1]);
            multiply_parts<kv_numbers<TYPE>::PARTS>(scores[i], a, b);
        }
    }
}

DEVICE float finish_score(const rn_attention_args &args, const column &c, float score, uint32_t position)
{
    if (!c.is_one || position < c.first || position > c.last)
        return -INFINITY;
    score *= args.scale;
    if (args.softcap > 0)
        score = args.softcap * tanhf(score / args.softcap);
    if (args.slopes != 0)
        score += global<float>(args.slopes, args.heads).get(c.head) * (float)(c.last - position);
    return score;
}

/* Scores become weights; m and l of the lane's two columns. A lane has of each column 16 positions, the three lanes
 * beside it the others. */
DEVICE void weigh_span(const rn_attention_args &args, const column columns[2], uint32_t begin,
                       float scores[SPAN / 8][4], float m[2], float l[2])
{
    UNROLL
    for (uint32_t half = 0; half < 2; half++) {
        m[half] = -INFINITY;
        l[half] = 0;
        UNROLL
        for (uint32_t i = 0; i < SPAN / 4; i++) {
            float *score = &scores[i / 2][half * 2 + i % 2];
            *score = finish_score(args, columns[half], *score, begin + i / 2 * 8 + lane_of_warp() % 4 * 2 + i % 2);
            m[half] = fmaxf(m[half], *score);
        }
        m[half] = fmaxf(m[half], shuffle_xor(m[half], 1));
        m[half] = fmaxf(m[half], shuffle_xor(m[half], 2));
        UNROLL
        for (uint32_t i = 0; i < SPAN / 4; i++) {
            float *score = &scores[i / 2][half * 2 + i % 2];
            *score = *score == -INFINITY ? 0 : expf(*score - m[half]);
            l[half] += *score;
        }
        l[half] += shuffle_xor(l[half], 1);
        l[half] += shuffle_xor(l[half], 2);
    }
}

/* Values of 16 positions from `begin` on, at four dimensions of the lane, as registers of both parts of four products:
 * the lane has positions 2t, 2t + 1, 2t + 8, 2t + 9. */
template <uint32_t TYPE>
DEVICE void load_values(const rn_attention_args &args, const run &r, const bytes_at &values, uint32_t bytes, uint32_t begin,
                        uint32_t d, uint32_t b[4][2][2])
{
    floats4 v[4];

    UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t position = begin + lane_of_warp() % 4 * 2 + i / 2 * 8 + i % 2;
        v[i] = floats4{{0, 0, 0, 0}};
        if (position >= r.low && position <= r.high && d < args.v_dim)
            v[i] = kv_numbers<TYPE>::read(values,
                                          row_at(args.cache, place_seen(args, r, position),
                                                 block_y() % args.cache.kv_heads, bytes),
                                          d);
    }
    UNROLL
    for (uint32_t j = 0; j < 4; j++) {
        split_pair(v[0].v[j], v[1].v[j], &b[j][0][0], &b[j][1][0]);
        split_pair(v[2].v[j], v[3].v[j], &b[j][0][1], &b[j][1][1]);
    }
}

/* o of a span to the warp's part of shared memory, 32 dimensions at a time, of which a lane has four. */
template <uint32_t TYPE>
DEVICE void mix_span(const rn_attention_args &args, const run &r, const own_room &room, uint32_t begin,
                     const float weights[SPAN / 8][4])
{
    bool of_keys = args.cache.v_dim == 0;
    uint32_t bytes = kv_row_bytes(TYPE, of_keys ? args.cache.k_dim : args.cache.v_dim), lane = lane_of_warp();
    bytes_at values(of_keys ? args.cache.keys : args.cache.values);
    words4 a[SPAN / 16][2];

    UNROLL
    for (uint32_t i = 0; i < SPAN / 16; i++) {
        UNROLL
        for (uint32_t j = 0; j < 4; j++) /* register j: column half j % 2, eight positions j / 2 */
            split_pair(weights[i * 2 + j / 2][j % 2 * 2], weights[i * 2 + j / 2][j % 2 * 2 + 1], &a[i][0].w[j],
                       &a[i][1].w[j]);
    }
    for (uint32_t d = 0; d < args.v_dim; d += 32) {
        float o[4][4] = {};
        UNROLL
        for (uint32_t i = 0; i < SPAN / 16; i++) {
            uint32_t b[4][2][2];
            load_values<TYPE>(args, r, values, bytes, begin + i * 16, d + lane / 4 * 4, b);
            UNROLL
            for (uint32_t j = 0; j < 4; j++)
                multiply_parts<kv_numbers<TYPE>::PARTS>(o[j], a[i], b[j]);
        }
        UNROLL
        for (uint32_t j = 0; j < 16; j++) /* product j % 4 has dimension 4 n + j % 4 of the 32 as its n-th column */
            room.sums.put((warp_of_block() * COLUMNS + lane / 4 + j / 8 * 8) * room.width + d +
                              (lane % 4 * 2 + j / 4 % 2) * 4 + j % 4,
                          o[j % 4][j / 4]);
    }
}

/* One part more: what a step of joining multiplies by, and the new (M, L). */
DEVICE join_step join(float m, float l, float *of_m, float *of_l)
{
    join_step step = {0, 1, 0, 0};
    float n = fmaxf(*of_m, m);

    if (m == -INFINITY)
        return step;
    step.is_part = 1;
    step.part = expf(m - n);
    step.before = *of_m == -INFINITY ? 0 : expf(*of_m - n);
    *of_l = *of_l * step.before + l * step.part;
    *of_m = n;
    return step;
}

DEVICE float join_sum(const join_step &step, float before, float part)
{
    return step.is_part == 0 ? before : before * step.before + part * step.part;
}

/* The block's spans become a chunk (m, l in column, o of warp 0), and that joins the total. */
DEVICE void join_chunk(const own_room &room)
{
    uint32_t thread = thread_of_block();

    sync_block();
    if (thread < COLUMNS) {
        float m = -INFINITY, l = 0, of_m = room.total.get(thread * 2), of_l = room.total.get(thread * 2 + 1);
        for (uint32_t i = 0; i < SPANS; i++) {
            uint32_t at = i * COLUMNS + thread;
            room.steps.put(at, join(room.spans.get(at * 2), room.spans.get(at * 2 + 1), &m, &l));
        }
        room.steps.put(SPANS * COLUMNS + thread, join(m, l, &of_m, &of_l));
        room.total.put(thread * 2, of_m);
        room.total.put(thread * 2 + 1, of_l);
    }
    sync_block();
    for (uint32_t i = thread; i < COLUMNS * room.width; i += THREADS) {
        float o = 0;
        for (uint32_t j = 0; j < SPANS; j++) {
            join_step step = room.steps.get(j * COLUMNS + i / room.width);
            if (step.is_part != 0)
                o = join_sum(step, o, room.sums.get(j * COLUMNS * room.width + i));
        }
        room.all.put(i, join_sum(room.steps.get(SPANS * COLUMNS + i / room.width), room.all.get(i), o));
    }
    sync_block();
}

/* What a sink adds to the sum, and the end: out = o / l. */
DEVICE float end_factor(const rn_attention_args &args, uint32_t head, float m, float l)
{
    float sink, n;

    if (args.sinks == 0)
        return 1.0f / l;
    sink = global<float>(args.sinks, args.heads).get(head);
    n = fmaxf(m, sink);
    return expf(m - n) / (l * expf(m - n) + expf(sink - n));
}

/* Where the part of a column and a chunk lies in the workspace: o, then m and l. */
DEVICE uint64_t part_at(const rn_attention_args &args, uint32_t row, uint32_t head, uint32_t chunk)
{
    return (((uint64_t)row * args.heads + head) * args.n_chunks + chunk) * (args.v_dim + 2);
}

DEVICE void write_run(const rn_attention_args &args, const run &r, const own_room &room)
{
    global<float> out(args.out, (uint64_t)args.n_rows * args.heads * args.v_dim);
    global<float> parts(args.workspace, (uint64_t)args.n_rows * args.heads * args.n_chunks * (args.v_dim + 2));

    for (uint32_t i = thread_of_block(); i < COLUMNS * room.width; i += THREADS) {
        uint32_t d = i % room.width;
        column c = column_of(args, r, i / room.width);
        float m = room.total.get(i / room.width * 2), l = room.total.get(i / room.width * 2 + 1);
        if (!c.is_one || d >= args.v_dim)
            continue;
        if (args.workspace == 0) {
            out.put(((uint64_t)c.row * args.heads + c.head) * args.v_dim + d,
                    room.all.get(i) * end_factor(args, c.head, m, l));
            continue;
        }
        uint64_t at = part_at(args, c.row, c.head, block_z());
        parts.put(at + d, room.all.get(i));
        if (d == 0) {
            parts.put(at + args.v_dim, m);
            parts.put(at + args.v_dim + 1, l);
        }
    }
    sync_block();
}

template <uint32_t TYPE>
DEVICE void attend_chunk(const rn_attention_args &args, const run &r, const own_room &room, uint32_t chunk,
                         const column columns[2])
{
    uint32_t begin = chunk * RN_ATTENTION_CHUNK + warp_of_block() * SPAN, lane = lane_of_warp();
    float scores[SPAN / 8][4] = {}, m[2] = {-INFINITY, -INFINITY}, l[2] = {0, 0};

    if (begin <= r.high && begin + SPAN > r.low) {
        score_span<TYPE>(args, r, room, begin, scores);
        weigh_span(args, columns, begin, scores, m, l);
        mix_span<TYPE>(args, r, room, begin, scores);
    }
    UNROLL
    for (uint32_t half = 0; half < 2; half++) {
        uint32_t at = warp_of_block() * COLUMNS + lane / 4 + 8 * half;
        if (lane % 4 == 0) {
            room.spans.put(at * 2, m[half]);
            room.spans.put(at * 2 + 1, l[half]);
        }
    }
    join_chunk(room);
}

template <uint32_t TYPE> DEVICE void attend_run(const rn_attention_args &args, const run &r, const own_room &room)
{
    uint32_t thread = thread_of_block(), from = r.low / RN_ATTENTION_CHUNK, to = r.high / RN_ATTENTION_CHUNK;
    column columns[2] = {column_of(args, r, lane_of_warp() / 4), column_of(args, r, lane_of_warp() / 4 + 8)};

    if (args.workspace != 0) {
        if (block_z() < from || block_z() > to)
            return;
        from = to = block_z();
    }
    load_queries(args, r, room);
    for (uint32_t i = thread; i < COLUMNS * room.width; i += THREADS)
        room.all.put(i, 0);
    if (thread < COLUMNS) {
        room.total.put(thread * 2, -INFINITY);
        room.total.put(thread * 2 + 1, 0);
    }
    sync_block();
    for (uint32_t chunk = from; chunk <= to; chunk++)
        attend_chunk<TYPE>(args, r, room, chunk, columns);
    write_run(args, r, room);
}

template <uint32_t TYPE> DEVICE void attention(const rn_attention_args &args)
{
    uint32_t row = block_x() * args.rows_per_tile, end = row + args.rows_per_tile;
    own_room room(args, (args.cache.k_dim + 15) / 16, (args.v_dim + 31) / 32 * 32);

    end = end < args.n_rows ? end : args.n_rows;
    while (row < end) {
        run r = run_of(args, row, end);
        attend_run<TYPE>(args, r, room);
        row += r.n_rows;
    }
}

} // namespace

#define ATTENTION(id, type)                                     \
    RN_KERNEL(attention_##type, rn_attention_args, THREADS, 1)  \
    {                                                           \
        attention<id>(args);                                    \
    }
RN_KERNEL_KV_TYPES(ATTENTION)

/* A block has a head of a row: the chunks that the row sees, in order. */
RN_KERNEL(attention_join, rn_attention_args, 128, 4)
{
    uint32_t row = block_x(), head = block_y();
    uint32_t position = global<uint32_t>(args.positions, args.n_rows).get(row);
    uint32_t from = first_position(args, position) / RN_ATTENTION_CHUNK;
    uint32_t to = last_position(args, row, position) / RN_ATTENTION_CHUNK;
    global<float> out(args.out, (uint64_t)args.n_rows * args.heads * args.v_dim);
    global<float> parts(args.workspace, (uint64_t)args.n_rows * args.heads * args.n_chunks * (args.v_dim + 2));

    for (uint32_t d = thread_of_block(); d < args.v_dim; d += 128) {
        float m = -INFINITY, l = 0, o = 0;
        for (uint32_t chunk = from; chunk <= to; chunk++) {
            uint64_t at = part_at(args, row, head, chunk);
            join_step step = join(parts.get(at + args.v_dim), parts.get(at + args.v_dim + 1), &m, &l);
            o = join_sum(step, o, parts.get(at + d));
        }
        out.put(((uint64_t)row * args.heads + head) * args.v_dim + d, o * end_factor(args, head, m, l));
    }
}
