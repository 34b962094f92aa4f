/* ATTENTION over the paged cache, on the tensor cores: attention.cuh says what is computed.
 *
 * A block has 16 columns and chunk after chunk, or with a workspace one chunk, which attention_join puts together: a
 * launch of each for some chunks, and for the next ones, until all are done. Its four warps have 16 positions each of a
 * chunk's scores, and then a quarter each of the values' numbers, 16 at a time. While a chunk is computed the next
 * one's keys and values come to shared memory, where there is room for both. Where there is not even room for keys and
 * values, the values come into the keys' place.
 *
 *   shared   where rows lie [stages][64]; queries [2][16]; weights [4][lane] of two words4
 *            what undoes the queries' power [16]; of each warp m [4][16] and l [4][16][4]
 *            O [v_dim / 16][2][lane] of four floats, without a workspace
 *            keys [stages][parts][64], values [stages][parts][64] */
#include "gpu/kernels/attention.cuh"

namespace
{

enum : uint32_t { TILE_COLUMNS = RN_ATTENTION_COLUMNS, TILE_ROOM = 99 * 1024 };

/* Where things lie in shared memory: as launch.c counts them. */
struct tile_room {
    uint32_t key_stride, value_stride, v_steps, stages;
    uint32_t queries, weights, undo, maxima, sums, totals, keys, values, stage_bytes;
    bool values_in_keys, values_late; /* the front of the keys; the keys' place, when the scores are there */

    DEVICE tile_room(const rn_attention_args &args, uint32_t parts)
    {
        uint32_t k_bytes, v_bytes;

        key_stride = row_stride(args.cache.k_dim);
        values_in_keys = args.cache.v_dim == 0;
        value_stride = values_in_keys ? key_stride : row_stride(args.v_dim);
        v_steps = (args.v_dim + 15) / 16;
        k_bytes = CHUNK * key_stride * parts;
        v_bytes = values_in_keys ? 0 : CHUNK * value_stride * parts;
        queries = 2 * CHUNK * sizeof(kv_row);
        weights = queries + 2 * TILE_COLUMNS * key_stride;
        undo = weights + TILE_WARPS * WARP * 32;
        maxima = undo + TILE_COLUMNS * 4;
        sums = maxima + TILE_WARPS * TILE_COLUMNS * 4;
        totals = sums + TILE_WARPS * TILE_COLUMNS * 16;
        keys = totals + (args.workspace != 0 ? 0 : v_steps * 2 * WARP * 16);
        stages = args.workspace == 0 && keys + 2 * (k_bytes + v_bytes) <= TILE_ROOM ? 2 : 1;
        values_late = !values_in_keys && keys + k_bytes + v_bytes > TILE_ROOM;
        values = values_in_keys || values_late ? keys : keys + k_bytes;
        stage_bytes = k_bytes + v_bytes;
    }
    DEVICE shared<kv_row> rows(uint32_t stage) const
    {
        return shared<kv_row>(stage * CHUNK * sizeof(kv_row), CHUNK);
    }
};

template <uint32_t TYPE> struct tile_of_16 {
    const rn_attention_args &args;
    const tile_room &room;
    run r;
    column columns[2]; /* lane / 4 and that + 8 */
    score_form forms[2];
    float m[2], l[2]; /* of the chunks so far */

    DEVICE tile_of_16(const rn_attention_args &a, const tile_room &o, const run &own)
        : args(a), room(o), r(own), columns{column_of(a, own, lane_of_warp() / 4, TILE_COLUMNS),
                                            column_of(a, own, lane_of_warp() / 4 + 8, TILE_COLUMNS)},
          forms{}, m{-INFINITY, -INFINITY}, l{0, 0}
    {
    }

    DEVICE void load_queries()
    {
        shared<float> undo(room.undo, TILE_COLUMNS);
        uint32_t part = TILE_COLUMNS * room.key_stride, width = room.key_stride / 2 - ROW_PAD / 2;

        UNROLL
        for (uint32_t i = 0; i < TILE_COLUMNS / TILE_WARPS; i++) {
            uint32_t own = i * TILE_WARPS + warp_of_block(), at = room.queries + own * room.key_stride;
            float back = put_query<kv_form<TYPE>::HALF>(args, column_of(args, r, own, TILE_COLUMNS), width, at, at + part);
            if (lane_of_warp() == 0)
                undo.put(own, back);
        }
    }

    DEVICE void take_forms()
    {
        shared<float> undo(room.undo, TILE_COLUMNS);

        UNROLL
        for (uint32_t half = 0; half < 2; half++)
            forms[half] = score_form_of(args, columns[half], undo.get(lane_of_warp() / 4 + half * 8));
    }

    /* Keys, and values; two groups of copies. */
    DEVICE void bring(uint32_t stage)
    {
        bring_rows<TYPE>(args, room.rows(stage), false, room.keys + stage * room.stage_bytes);
        if (room.values_in_keys || room.values_late)
            copy_commit();
        else
            bring_rows<TYPE>(args, room.rows(stage), true, room.values + stage * room.stage_bytes);
    }

    /* Of the warp's 16 positions, and the greatest of each column to shared memory. */
    DEVICE void score(uint32_t chunk, uint32_t stage, float s[2][4])
    {
        uint32_t at = room.keys + stage * room.stage_bytes, row = warp_of_block() * 16, lane = lane_of_warp();
        uint32_t part = CHUNK * room.key_stride;
        shared<float> maxima(room.maxima, TILE_WARPS * TILE_COLUMNS);

        for (uint32_t k = 0; k < (room.key_stride - ROW_PAD) / 32; k++) {
            uint32_t b[4], low[4] = {};
            words4 a[2];
            get_query(a, room.queries, room.queries + TILE_COLUMNS * room.key_stride, room.key_stride, k);
            get_keys(b, at, room.key_stride, row, k);
            if (kv_form<TYPE>::PARTS > 1)
                get_keys(low, at + part, room.key_stride, row, k);
            multiply<TYPE>(s[0], a, b, low);
            multiply<TYPE>(s[1], a, b + 2, low + 2);
        }
        UNROLL
        for (uint32_t half = 0; half < 2; half++) {
            float most = -INFINITY;
            UNROLL
            for (uint32_t i = 0; i < 4; i++) {
                float *own = &s[i / 2][half * 2 + i % 2];
                *own = finish_score(args, columns[half], forms[half], *own,
                                    chunk * CHUNK + row + i / 2 * 8 + lane % 4 * 2 + i % 2);
                most = fmaxf(most, *own);
            }
            most = fmaxf(most, shuffle_xor(most, 1));
            most = fmaxf(most, shuffle_xor(most, 2));
            if (lane % 4 == 0)
                maxima.put(warp_of_block() * TILE_COLUMNS + lane / 4 + half * 8, most);
        }
    }

    /* Scores become weights, in shared memory, and their sums; of_m: m of the chunk. */
    DEVICE void weigh(const float s[2][4], float of_m[2])
    {
        shared<float> maxima(room.maxima, TILE_WARPS * TILE_COLUMNS), sums(room.sums, TILE_WARPS * TILE_COLUMNS * 4);
        shared<words4> weights(room.weights, TILE_WARPS * WARP * 2);
        uint32_t lane = lane_of_warp(), warp = warp_of_block();
        words4 parts[2];

        UNROLL
        for (uint32_t half = 0; half < 2; half++) {
            float most = -INFINITY, w[4];
            UNROLL
            for (uint32_t i = 0; i < TILE_WARPS; i++)
                most = fmaxf(most, maxima.get(i * TILE_COLUMNS + lane / 4 + half * 8));
            of_m[half] = ceilf(most) - kv_form<TYPE>::SHIFT;
            UNROLL
            for (uint32_t i = 0; i < 4; i++)
                w[i] = weight_of(s[i / 2][half * 2 + i % 2], of_m[half]);
            split_numbers<kv_form<TYPE>::HALF>(w[0], w[1], &parts[0].w[half], &parts[1].w[half]);
            split_numbers<kv_form<TYPE>::HALF>(w[2], w[3], &parts[0].w[half + 2], &parts[1].w[half + 2]);
            sums.put((warp * TILE_COLUMNS + lane / 4 + half * 8) * 4 + lane % 4, w[0] + w[1] + w[2] + w[3]);
        }
        weights.put(warp * WARP * 2 + lane, parts[0]);
        weights.put(warp * WARP * 2 + WARP + lane, parts[1]);
    }

    DEVICE float sum_of(uint32_t half)
    {
        shared<floats4> sums(room.sums, TILE_WARPS * TILE_COLUMNS);
        floats4 sum = sums.get(lane_of_warp() / 4 + half * 8);

        UNROLL
        for (uint32_t i = 1; i < TILE_WARPS; i++) {
            floats4 more = sums.get(i * TILE_COLUMNS + lane_of_warp() / 4 + half * 8);
            UNROLL
            for (uint32_t j = 0; j < 4; j++)
                sum.v[j] += more.v[j];
        }
        return (sum.v[0] + sum.v[1]) + (sum.v[2] + sum.v[3]);
    }

    /* Where the part of a column and the block's chunk lies in the workspace: o, then m and l. */
    DEVICE uint64_t part_at(const column &c) const
    {
        return (((uint64_t)c.row * args.heads + c.head) * args.n_chunks + block_z()) * (args.v_dim + 2);
    }

    /* o of 16 numbers from 16 d on: to the workspace, or to what the chunks before have. */
    DEVICE void add(uint32_t d, const float o[2][4], const join_step steps[2])
    {
        shared<floats4> totals(room.totals, args.workspace != 0 ? 0 : room.v_steps * 2 * WARP);
        uint32_t lane = lane_of_warp(), n = d * 16 + lane % 4 * 2;

        if (args.workspace == 0) {
            UNROLL
            for (uint32_t i = 0; i < 2; i++) {
                floats4 total = totals.get((d * 2 + i) * WARP + lane);
                UNROLL
                for (uint32_t j = 0; j < 4; j++)
                    total.v[j] = join_sum(steps[j / 2], total.v[j], o[i][j]);
                totals.put((d * 2 + i) * WARP + lane, total);
            }
            return;
        }
        bytes_at parts(args.workspace);
        UNROLL
        for (uint32_t i = 0; i < 4; i++) {
            const column &c = columns[i % 2];
            if (c.is_one && n + i / 2 * 8 < args.v_dim)
                parts.put((part_at(c) + n + i / 2 * 8) * sizeof(float),
                          words2{{bits_of(o[i / 2][i % 2 * 2]), bits_of(o[i / 2][i % 2 * 2 + 1])}});
        }
    }

    DEVICE void mix(uint32_t stage, const join_step steps[2])
    {
        shared<words4> weights(room.weights, TILE_WARPS * WARP * 2);
        uint32_t at = room.values + stage * room.stage_bytes, part = CHUNK * room.value_stride, lane = lane_of_warp();
        words4 a[CHUNK / 16][2];

        UNROLL
        for (uint32_t i = 0; i < CHUNK / 16; i++) {
            a[i][0] = weights.get(i * WARP * 2 + lane);
            a[i][1] = weights.get(i * WARP * 2 + WARP + lane);
        }
        for (uint32_t d = warp_of_block(); d < room.v_steps; d += TILE_WARPS) {
            float o[2][4] = {};
            UNROLL
            for (uint32_t i = 0; i < CHUNK / 16; i++) {
                uint32_t b[4], low[4] = {};
                get_values(b, at, room.value_stride, i * 16, d);
                if (kv_form<TYPE>::PARTS > 1)
                    get_values(low, at + part, room.value_stride, i * 16, d);
                multiply<TYPE>(o[0], a[i], b, low);
                multiply<TYPE>(o[1], a[i], b + 2, low + 2);
            }
            add(d, o, steps);
        }
    }

    /* What has come to the stage is computed; all threads have passed a barrier. */
    DEVICE void attend(uint32_t chunk, uint32_t stage)
    {
        float s[2][4] = {}, of_m[2], of_l;
        join_step steps[2];

        score(chunk, stage, s);
        sync_block();
        weigh(s, of_m);
        if (room.values_late) {
            bring_rows<TYPE>(args, room.rows(stage), true, room.values);
            copy_wait<0>();
        } else {
            copy_wait<2>();
        }
        sync_block();
        UNROLL
        for (uint32_t half = 0; half < 2; half++) {
            of_l = sum_of(half);
            steps[half] = join(of_m[half], of_l, &m[half], &l[half]);
            if (args.workspace != 0 && warp_of_block() == 0 && lane_of_warp() % 4 == 0 && columns[half].is_one)
                bytes_at(args.workspace)
                    .put((part_at(columns[half]) + args.v_dim) * sizeof(float),
                         words2{{bits_of(of_m[half]), bits_of(of_l)}});
        }
        mix(stage, steps);
        sync_block();
    }

    DEVICE void attend_all(uint32_t from, uint32_t to)
    {
        bool ahead = room.stages == 2;

        for (uint32_t chunk = from; chunk <= to; chunk++) {
            uint32_t stage = ahead ? (chunk - from) % 2 : 0;
            if (chunk == from || !ahead) {
                look_up<TYPE>(args, r, chunk, room.rows(stage));
                sync_block();
                bring(stage);
            }
            if (chunk == from)
                load_queries();
            if (ahead && chunk < to)
                look_up<TYPE>(args, r, chunk + 1, room.rows(1 - stage));
            copy_wait<1>();
            sync_block();
            if (chunk == from)
                take_forms();
            if (ahead && chunk < to) {
                bring(1 - stage);
            } else {
                copy_commit();
                copy_commit();
            }
            attend(chunk, stage);
        }
    }

    /* O of each lane, and the results. */
    DEVICE void clear()
    {
        shared<floats4> totals(room.totals, room.v_steps * 2 * WARP);

        for (uint32_t d = warp_of_block(); d < room.v_steps; d += TILE_WARPS) {
            totals.put(d * 2 * WARP + lane_of_warp(), floats4{{0, 0, 0, 0}});
            totals.put(d * 2 * WARP + WARP + lane_of_warp(), floats4{{0, 0, 0, 0}});
        }
    }
    DEVICE void write()
    {
        shared<floats4> totals(room.totals, room.v_steps * 2 * WARP);
        bytes_at out(args.out);
        float factors[2] = {end_factor(args, columns[0].head, m[0], l[0]), end_factor(args, columns[1].head, m[1], l[1])};

        for (uint32_t d = warp_of_block(); d < room.v_steps; d += TILE_WARPS) {
            UNROLL
            for (uint32_t i = 0; i < 4; i++) {
                const column &c = columns[i % 2];
                floats4 o = totals.get((d * 2 + i / 2) * WARP + lane_of_warp());
                uint32_t n = d * 16 + i / 2 * 8 + lane_of_warp() % 4 * 2;
                if (c.is_one && n < args.v_dim)
                    out.put((((uint64_t)c.row * args.heads + c.head) * args.v_dim + n) * sizeof(float),
                            words2{{bits_of(o.v[i % 2 * 2] * factors[i % 2]),
                                    bits_of(o.v[i % 2 * 2 + 1] * factors[i % 2])}});
            }
        }
    }
};

template <uint32_t TYPE> DEVICE void attention(const rn_attention_args &args)
{
    uint32_t row = block_x() * args.rows_per_tile, end = row + args.rows_per_tile;
    tile_room room(args, kv_form<TYPE>::PARTS);

    end = end < args.n_rows ? end : args.n_rows;
    while (row < end) {
        run r = run_of(args, row, end);
        uint32_t from = r.low / CHUNK, to = r.high / CHUNK;
        row += r.n_rows;
        if (args.workspace != 0) {
            uint32_t chunk = args.first_chunk + block_z();
            if (chunk < from || chunk > to)
                continue;
            from = to = chunk;
        }
        tile_of_16<TYPE> t(args, room, r);
        if (args.workspace == 0)
            t.clear();
        t.attend_all(from, to);
        if (args.workspace == 0)
            t.write();
    }
}

} // namespace

#define ATTENTION(id, type)                                         \
    RN_KERNEL(attention_##type, rn_attention_args, TILE_THREADS, 4) \
    {                                                               \
        attention<id>(args);                                        \
    }
RN_KERNEL_KV_TYPES(ATTENTION)

/* A block has a head of a row: those of the launch's chunks that the row sees, in order, some at a time, behind what
 * the launches before have left. */
RN_KERNEL(attention_join, rn_attention_args, 128, 4)
{
    enum : uint32_t { AT_ONCE = 8 };
    uint32_t row = block_x(), head = block_y();
    uint32_t position = global<uint32_t>(args.positions, args.n_rows).get(row);
    uint32_t from = first_position(args, position) / CHUNK, to = last_position(args, row, position) / CHUNK;
    uint32_t low = from > args.first_chunk ? from : args.first_chunk, last = args.first_chunk + args.n_chunks - 1;
    uint32_t high = to < last ? to : last;
    uint64_t width = args.v_dim + 2, own = (uint64_t)row * args.heads + head;
    global<float> out(args.out, (uint64_t)args.n_rows * args.heads * args.v_dim);
    uint64_t n = (uint64_t)args.n_rows * args.heads * width;
    global<float> parts(args.workspace, n * args.n_chunks), before(args.before, n);
    float m_before = -INFINITY, l_before = 0;

    if (low > high)
        return;
    if (low > from) {
        m_before = before.get(own * width + args.v_dim);
        l_before = before.get(own * width + args.v_dim + 1);
    }
    sync_block(); /* all have them: one writes what comes behind */
    for (uint32_t d = thread_of_block(); d < args.v_dim; d += 128) {
        float m = m_before, l = l_before, o = low > from ? before.get(own * width + d) : 0;
        for (uint32_t first = low; first <= high; first += AT_ONCE) {
            float of_m[AT_ONCE], of_l[AT_ONCE], of_o[AT_ONCE];
            UNROLL
            for (uint32_t i = 0; i < AT_ONCE; i++) {
                bool is_one = first + i <= high;
                uint64_t part = (own * args.n_chunks + first + (is_one ? i : 0) - args.first_chunk) * width;
                of_m[i] = is_one ? parts.get(part + args.v_dim) : -INFINITY;
                of_l[i] = parts.get(part + args.v_dim + 1);
                of_o[i] = parts.get(part + d);
            }
            UNROLL
            for (uint32_t i = 0; i < AT_ONCE; i++) {
                join_step step = join(of_m[i], of_l[i], &m, &l);
                o = join_sum(step, o, of_o[i]);
            }
        }
        if (high == to) {
            out.put(own * args.v_dim + d, o * end_factor(args, head, m, l));
            continue;
        }
        before.put(own * width + d, o);
        if (d == 0) {
            before.put(own * width + args.v_dim, m);
            before.put(own * width + args.v_dim + 1, l);
        }
    }
}
