/* MATMUL of more rows: a block has 128 rows of the weight, 16 for each warp, and 64 rows of activations, which it
 * brings to shared memory cell by cell, cut into parts, in the order in which lanes want them. While a cell is
 * multiplied, the next one's weights and activations are on their way to registers.
 *
 *   shared, twice   [step][product][8 groups of 8 rows][lane] of 4 words: both parts' registers
 *                   [step][64 rows] sums of activations, where the format has minima */
#include "gpu/kernels/products.cuh"

namespace
{

enum : uint32_t { GROUPS = 8, ROWS = 64, STAGE_BYTES = 2 * 2 * GROUPS * WARP * 16, SUM_BYTES = 2 * ROWS * 4 };

/* What a thread brings of a cell: for both steps both products' activations of one row, four columns each. */
struct piece {
    floats4 v[2][2]; /* [step][product] */
};

/* A warp brings the rows of its group. */
DEVICE piece read_piece(const bytes_at &a, const rn_matmul_args &args, uint32_t first, uint32_t cell)
{
    uint32_t row = first + warp_of_block() * 8 + lane_of_warp() / 4;
    piece p;

    UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        p.v[i / 2][i % 2] = floats4{{0, 0, 0, 0}};
        if (row < args.n_rows)
            p.v[i / 2][i % 2] = read_row(a, row, args.cols, cell * CELL + i * 16 + 4 * (lane_of_warp() % 4));
    }
    return p;
}

template <class F> DEVICE void put_piece(const piece &p, const shared<words4> &stage, const shared<float> &sums)
{
    uint32_t lane = lane_of_warp(), group = warp_of_block();

    UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        inputs in = split_row(p.v[i / 2][i % 2]);
        stage.put((i * GROUPS + group) * WARP + lane, words4{{in.b[0][0], in.b[0][1], in.b[1][0], in.b[1][1]}});
    }
    UNROLL
    for (uint32_t step = 0; F::MINIMA && step < 2; step++) {
        float sum = sum_of_step(p.v[step][0], p.v[step][1]);
        if (lane % 4 == 0)
            sums.put(step * ROWS + group * 8 + lane / 4, sum);
    }
}

template <class F>
DEVICE void multiply_stage(const typename F::raw &raw, const shared<words4> &stage, const shared<float> &sums,
                           uint32_t groups, uint32_t parts, float acc[GROUPS][4])
{
    uint32_t lane = lane_of_warp();

    UNROLL
    for (uint32_t step = 0; step < 2; step++) {
        step_numbers w;
        F::expand(raw, step, lane, w);
        UNROLL
        for (uint32_t group = 0; group < GROUPS; group++) {
            inputs in[2];
            float of_rows[2] = {0, 0};
            if (group >= groups)
                continue;
            UNROLL
            for (uint32_t product = 0; product < 2; product++) {
                words4 v = stage.get(((step * 2 + product) * GROUPS + group) * WARP + lane);
                in[product] = inputs{{{v.w[0], v.w[1]}, {v.w[2], v.w[3]}}};
            }
            UNROLL
            for (uint32_t i = 0; F::MINIMA && i < 2; i++)
                of_rows[i] = sums.get(step * ROWS + group * 8 + lane % 4 * 2 + i);
            multiply<F>(w, in, of_rows, parts, acc[group]);
        }
    }
}

/* The segment that has been summed up joins the total. */
DEVICE void join_segment(float total[GROUPS][4], float acc[GROUPS][4])
{
    UNROLL
    for (uint32_t i = 0; i < GROUPS * 4; i++) {
        total[i / 4][i % 4] += acc[i / 4][i % 4];
        acc[i / 4][i % 4] = 0;
    }
}

DEVICE void write_out(const rn_matmul_args &args, uint32_t first, uint32_t weight_row, float total[GROUPS][4])
{
    global<float> out(args.out, (uint64_t)args.n_rows * args.rows);
    uint32_t lane = lane_of_warp();

    UNROLL
    for (uint32_t i = 0; i < GROUPS * 4; i++) {
        uint32_t row = first + i / 4 * 8 + lane % 4 * 2 + i % 2, w = weight_row + lane / 4 + i % 4 / 2 * 8;
        float value = total[i / 4][i % 4];
        if (row >= args.n_rows || w >= args.rows)
            continue;
        if (args.bias != 0)
            value += global<float>(args.bias, args.rows).get(w);
        out.put((uint64_t)row * args.rows + w, value);
    }
}

template <class F> DEVICE void matmul_many(const rn_matmul_args &args)
{
    uint32_t cells = (args.cols + CELL - 1) / CELL, per = segment_cells(cells);
    uint32_t first = block_y() * ROWS, weight_row = (block_x() * 8 + warp_of_block()) * TILE_ROWS;
    uint32_t groups = args.n_rows - first < ROWS ? (args.n_rows - first + 7) / 8 : GROUPS;
    uint64_t tile = (uint64_t)(weight_row / TILE_ROWS) * tile_bytes(cells, F::UNIT_CELLS, F::UNIT_BYTES);
    bool works = weight_row < args.rows;
    bytes_at weight(args.weight), a(args.a);
    float acc[GROUPS][4] = {}, total[GROUPS][4] = {};
    typename F::raw raw, next;

    piece p = read_piece(a, args, first, 0);
    if (works)
        F::read(weight, tile, 0, lane_of_warp(), next);
    for (uint32_t cell = 0; cell < cells; cell++) {
        shared<words4> stage(cell % 2 * STAGE_BYTES, STAGE_BYTES / 16);
        shared<float> sums(2 * STAGE_BYTES + cell % 2 * SUM_BYTES, SUM_BYTES / 4);
        put_piece<F>(p, stage, sums);
        raw = next;
        sync_block();
        if (cell + 1 < cells) {
            p = read_piece(a, args, first, cell + 1);
            if (works)
                F::read(weight, tile, cell + 1, lane_of_warp(), next);
        }
        if (!works)
            continue;
        multiply_stage<F>(raw, stage, sums, groups, args.parts, acc);
        if ((cell + 1) % per == 0 || cell + 1 == cells)
            join_segment(total, acc);
    }
    if (works)
        write_out(args, first, weight_row, total);
}

} // namespace

#define MATMUL_MANY(id, type)                               \
    RN_KERNEL(matmul_many_##type, rn_matmul_args, 256, 1)   \
    {                                                       \
        matmul_many<format_##type>(args);                   \
    }
RN_KERNEL_TYPES(MATMUL_MANY)
