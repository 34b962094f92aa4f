/* ATTENTION for many rows: attention.cuh says what is computed, to the same bits as attention.cu. Heads have 64 or 128
 * numbers, of keys and of values.
 *
 * A block has 64 columns, a warp 16 of them, with their queries, weights and sums in registers. Keys and values of a
 * chunk come to shared memory once for all warps, while the chunk before is computed. Rows that see most are first.
 *
 *   shared   where rows lie [2][64]; what undoes the queries' power [64]
 *            of two chunks keys [64] and values [64]; before the first chunk the queries [2][64] */
#include "gpu/kernels/attention.cuh"

namespace
{

enum : uint32_t { MANY_COLUMNS = RN_ATTENTION_MANY_COLUMNS };

template <uint32_t TYPE, uint32_t DIM> struct tile_of_64 {
    enum : uint32_t {
        STRIDE = DIM * 2 + ROW_PAD,
        PART = CHUNK * STRIDE,
        TILE = PART * kv_form<TYPE>::PARTS,
        UNDO = 2 * CHUNK * 16,
        TILES = UNDO + MANY_COLUMNS * 4
    };

    const rn_attention_args &args;
    run r;
    column columns[2]; /* lane / 4 and that + 8, of the warp's */
    score_form forms[2];
    uint32_t first, last, all_from, all_to; /* what some column of the warp sees; what all see */
    words4 queries[DIM / 16][2];
    float m[2], l[2], totals[DIM / 8][4]; /* of the chunks so far */

    DEVICE tile_of_64(const rn_attention_args &a, const run &own)
        : args(a), r(own), columns{column_of(a, own, warp_of_block() * 16 + lane_of_warp() / 4, MANY_COLUMNS),
                                   column_of(a, own, warp_of_block() * 16 + lane_of_warp() / 4 + 8, MANY_COLUMNS)},
          m{-INFINITY, -INFINITY}, l{0, 0}, totals{}
    {
        first = all_to = 0xffffffffu;
        last = all_from = 0;
        UNROLL
        for (uint32_t half = 0; half < 2; half++) {
            const column &c = columns[half];
            if (!c.is_one)
                continue;
            first = c.first < first ? c.first : first;
            last = c.last > last ? c.last : last;
            all_from = c.first > all_from ? c.first : all_from;
            all_to = c.last < all_to ? c.last : all_to;
        }
        UNROLL
        for (uint32_t mask = 4; mask < WARP; mask *= 2) {
            uint32_t other = shuffle_xor(first, mask);
            first = other < first ? other : first;
            other = shuffle_xor(last, mask);
            last = other > last ? other : last;
            other = shuffle_xor(all_from, mask);
            all_from = other > all_from ? other : all_from;
            other = shuffle_xor(all_to, mask);
            all_to = other < all_to ? other : all_to;
        }
    }

    DEVICE void load_queries()
    {
        shared<float> undo(UNDO, MANY_COLUMNS);
        uint32_t lane = lane_of_warp(), warp = warp_of_block(), at = TILES + warp * 16 * STRIDE;

        UNROLL
        for (uint32_t i = 0; i < 16; i++) {
            uint32_t high = at + i * STRIDE;
            float back = put_query<kv_form<TYPE>::HALF>(args, column_of(args, r, warp * 16 + i, MANY_COLUMNS), DIM, high,
                                                        high + PART);
            if (lane == 0)
                undo.put(warp * 16 + i, back);
        }
        sync_warp();
        UNROLL
        for (uint32_t k = 0; k < DIM / 16; k++)
            get_query(queries[k], at, at + PART, STRIDE, k);
        UNROLL
        for (uint32_t half = 0; half < 2; half++)
            forms[half] = score_form_of(args, columns[half], undo.get(warp * 16 + lane / 4 + half * 8));
        sync_block();
    }

    DEVICE shared<kv_row> rows(uint32_t stage) const
    {
        return shared<kv_row>(stage * CHUNK * 16, CHUNK);
    }

    DEVICE void bring(uint32_t stage)
    {
        const rn_cache_args &cache = args.cache;
        uint32_t to = TILES + stage * 2 * TILE;

        if (kv_form<TYPE>::AS_STORED && (cache.keys | cache.values | cache.block_bytes) % 16 == 0) {
            copy_rows(cache.keys, 0, rows(stage), false, DIM, to);
            copy_rows(cache.values, 0, rows(stage), true, DIM, to + TILE);
        } else {
            convert_rows<TYPE>(cache.keys, 0, rows(stage), false, DIM, DIM, to);
            convert_rows<TYPE>(cache.values, 0, rows(stage), true, DIM, DIM, to + TILE);
        }
        copy_commit();
    }

    DEVICE void score(uint32_t chunk, uint32_t tile, float s[CHUNK / 8][4])
    {
        bool whole = all_from <= chunk * CHUNK && all_to >= chunk * CHUNK + CHUNK - 1 && forms[0].plain;
        uint32_t position = chunk * CHUNK + lane_of_warp() % 4 * 2;

        UNROLL
        for (uint32_t k = 0; k < DIM / 16; k++) {
            UNROLL
            for (uint32_t i = 0; i < CHUNK / 16; i++) {
                uint32_t b[4], low[4] = {};
                get_keys(b, tile, STRIDE, i * 16, k);
                if (kv_form<TYPE>::PARTS > 1)
                    get_keys(low, tile + PART, STRIDE, i * 16, k);
                multiply<TYPE>(s[i * 2], queries[k], b, low);
                multiply<TYPE>(s[i * 2 + 1], queries[k], b + 2, low + 2);
            }
        }
        if (whole) {
            UNROLL
            for (uint32_t i = 0; i < CHUNK / 2; i++)
                s[i / 4][i % 4] *= forms[i % 4 / 2].factor;
            return;
        }
        UNROLL
        for (uint32_t i = 0; i < CHUNK / 2; i++)
            s[i / 4][i % 4] = finish_score(args, columns[i % 4 / 2], forms[i % 4 / 2], s[i / 4][i % 4],
                                           position + i / 4 * 8 + i % 2);
    }

    /* Scores become weights, in two parts; the chunk joins m and l. */
    DEVICE void weigh(const float s[CHUNK / 8][4], words4 weights[CHUNK / 16][2], join_step steps[2])
    {
        UNROLL
        for (uint32_t half = 0; half < 2; half++) {
            float most = -INFINITY, sum = 0, of_m;
            UNROLL
            for (uint32_t i = 0; i < CHUNK / 4; i++)
                most = fmaxf(most, s[i / 2][half * 2 + i % 2]);
            most = fmaxf(most, shuffle_xor(most, 1));
            most = fmaxf(most, shuffle_xor(most, 2));
            of_m = ceilf(most) - kv_form<TYPE>::SHIFT;
            UNROLL
            for (uint32_t i = 0; i < CHUNK / 16; i++) {
                float w[4], of_group;
                UNROLL
                for (uint32_t j = 0; j < 4; j++)
                    w[j] = weight_of(s[i * 2 + j / 2][half * 2 + j % 2], of_m);
                split_numbers<kv_form<TYPE>::HALF>(w[0], w[1], &weights[i][0].w[half], &weights[i][1].w[half]);
                split_numbers<kv_form<TYPE>::HALF>(w[2], w[3], &weights[i][0].w[half + 2], &weights[i][1].w[half + 2]);
                of_group = w[0] + w[1] + w[2] + w[3];
                sum = i == 0 ? of_group : sum + of_group;
            }
            sum += shuffle_xor(sum, 1);
            sum += shuffle_xor(sum, 2);
            steps[half] = join(of_m, sum, &m[half], &l[half]);
        }
    }

    DEVICE void mix(uint32_t tile, const words4 weights[CHUNK / 16][2], const join_step steps[2])
    {
        UNROLL
        for (uint32_t d = 0; d < DIM / 32; d++) {
            float o[4][4] = {};
            UNROLL
            for (uint32_t i = 0; i < CHUNK / 16; i++) {
                UNROLL
                for (uint32_t j = 0; j < 2; j++) {
                    uint32_t b[4], low[4] = {};
                    get_values(b, tile, STRIDE, i * 16, d * 2 + j);
                    if (kv_form<TYPE>::PARTS > 1)
                        get_values(low, tile + PART, STRIDE, i * 16, d * 2 + j);
                    multiply<TYPE>(o[j * 2], weights[i], b, low);
                    multiply<TYPE>(o[j * 2 + 1], weights[i], b + 2, low + 2);
                }
            }
            UNROLL
            for (uint32_t half = 0; half < 2; half++) {
                if (!changes(steps[half])) /* as join_sum does; a branch needs fewer registers than a choice */
                    continue;
                UNROLL
                for (uint32_t i = 0; i < 8; i++) {
                    float *total = &totals[d * 4 + i / 2][half * 2 + i % 2];
                    *total = fmaf(o[i / 2][half * 2 + i % 2], steps[half].part, *total * steps[half].before);
                }
            }
        }
    }

    DEVICE void attend(uint32_t chunk, uint32_t tile)
    {
        float s[CHUNK / 8][4] = {};
        words4 weights[CHUNK / 16][2];
        join_step steps[2];

        if (chunk * CHUNK > last || chunk * CHUNK + CHUNK <= first)
            return;
        score(chunk, tile, s);
        weigh(s, weights, steps);
        mix(tile + TILE, weights, steps);
    }

    /* While a chunk is computed the next one is on its way. */
    DEVICE void attend_all()
    {
        uint32_t from = r.low / CHUNK, to = r.high / CHUNK;

        look_up<TYPE>(args, r, from, rows(from % 2));
        load_queries();
        for (uint32_t next = from; next <= to + 1; next++) {
            if (next <= to)
                bring(next % 2);
            if (next > from)
                attend(next - 1, TILES + (next - 1) % 2 * 2 * TILE);
            if (next < to)
                look_up<TYPE>(args, r, next + 1, rows((next + 1) % 2));
            copy_wait<0>();
            sync_block();
        }
    }

    DEVICE void write() const
    {
        bytes_at out(args.out);

        UNROLL
        for (uint32_t half = 0; half < 2; half++) {
            column c = column_of(args, r, warp_of_block() * 16 + lane_of_warp() / 4 + half * 8, MANY_COLUMNS);
            if (!c.is_one)
                continue;
            float factor = end_factor(args, c.head, m[half], l[half]);
            uint64_t at = ((uint64_t)c.row * args.heads + c.head) * DIM + lane_of_warp() % 4 * 2;
            UNROLL
            for (uint32_t i = 0; i < DIM / 8; i++)
                out.put((at + i * 8) * sizeof(float), words2{{bits_of(totals[i][half * 2] * factor),
                                                              bits_of(totals[i][half * 2 + 1] * factor)}});
        }
    }
};

template <uint32_t TYPE, uint32_t DIM> DEVICE void attention_many(const rn_attention_args &args)
{
    uint32_t tiles = (args.n_rows + args.rows_per_tile - 1) / args.rows_per_tile;
    uint32_t row = (tiles - 1 - block_x()) * args.rows_per_tile, end = row + args.rows_per_tile;

    end = end < args.n_rows ? end : args.n_rows;
    while (row < end) {
        run r = run_of(args, row, end);
        tile_of_64<TYPE, DIM> t(args, r);
        t.attend_all();
        t.write();
        row += r.n_rows;
    }
}

} // namespace

#define ATTENTION_MANY(id, type)                                        \
    RN_KERNEL(attention_64_##type, rn_attention_args, TILE_THREADS, 2)  \
    {                                                                   \
        attention_many<id, 64>(args);                                   \
    }                                                                   \
    RN_KERNEL(attention_128_##type, rn_attention_args, TILE_THREADS, 2) \
    {                                                                   \
        attention_many<id, 128>(args);                                  \
    }
RN_KERNEL_KV_TYPES_MANY(ATTENTION_MANY)
