/* Products of weights with rows of activations on the tensor cores, so that a row's bits do not depend on how many rows
 * there are.
 *
 * The columns are cut into SEGMENTS parts of whole cells, which the number of columns alone decides. Within a segment
 * an output is one chain: step by step, product by product, c += a b of the tensor cores, with the activation's high
 * part and then its low part; where the format has scales a step's sum is scaled and added to the chain. The segments'
 * sums are added in order, from 0 on. matmul_few gives each segment to a warp; matmul_many takes them one after
 * another.
 *
 *   out[row][weight row] = ((0 + segment 0) + segment 1) + ... (+ bias) */
#ifndef RN_GPU_PRODUCTS_CUH
#define RN_GPU_PRODUCTS_CUH

#include "gpu/kernels/formats.cuh"

enum : uint32_t { SEGMENTS = 8 };

/* Cells of a segment; the last ones may have fewer, or none. */
DEVICE uint32_t segment_cells(uint32_t cells)
{
    return (cells + SEGMENTS - 1) / SEGMENTS;
}

/* A row's activations at columns [column, column + 4), as many as there are. */
DEVICE floats4 read_row(const bytes_at &a, uint32_t row, uint32_t cols, uint32_t column)
{
    floats4 v = {{0, 0, 0, 0}};
    uint64_t at = (uint64_t)row * cols + column;

    if (cols % 4 == 0 && column < cols)
        return a.get<floats4>(at * 4);
    UNROLL
    for (uint32_t i = 0; i < 4; i++)
        if (column + i < cols)
            v.v[i] = a.get<float>((at + i) * 4);
    return v;
}

/* Of a product's four activations: registers of both parts, as the weights' columns stand (formats.cuh). */
struct inputs {
    uint32_t b[2][2]; /* [part][register] */
};

DEVICE inputs split_row(const floats4 &v)
{
    inputs in;

    split_pair(v.v[0], v.v[2], &in.b[0][0], &in.b[1][0]);
    split_pair(v.v[1], v.v[3], &in.b[0][1], &in.b[1][1]);
    return in;
}

/* The sum of a row's activations in a step, of which this lane and the three beside it have both products' parts. */
DEVICE float sum_of_step(const floats4 &first, const floats4 &second)
{
    float sum = ((first.v[0] + first.v[1]) + (first.v[2] + first.v[3])) +
                ((second.v[0] + second.v[1]) + (second.v[2] + second.v[3]));

    sum += shuffle_xor(sum, 1);
    return sum + shuffle_xor(sum, 2);
}

/* One step of 16 weight rows and 8 rows of activations, added to acc. sums: of this lane's two rows; only with
 * minima. */
template <class F>
DEVICE void multiply(const step_numbers &w, const inputs in[2], const float sums[2], uint32_t parts, float acc[4])
{
    float c[4] = {0, 0, 0, 0};

    UNROLL
    for (uint32_t product = 0; product < 2; product++) {
        float *to = F::SCALED ? c : acc;
        mma_bf16(to, w.a[0][product], in[product].b[0]);
        if (F::PARTS > 1)
            mma_bf16(to, w.a[1][product], in[product].b[0]);
        if (parts > 1)
            mma_bf16(to, w.a[0][product], in[product].b[1]);
        if (F::SCALED && (F::BY_PRODUCT || product == 1)) {
            UNROLL
            for (uint32_t i = 0; i < 4; i++) {
                acc[i] = fmaf(w.scale[product][i / 2], c[i], acc[i]);
                c[i] = 0;
            }
        }
    }
    if (F::MINIMA) {
        UNROLL
        for (uint32_t i = 0; i < 4; i++)
            acc[i] = fmaf(-w.minimum[i / 2], sums[i % 2], acc[i]);
    }
}

/* A cell of 16 weight rows and 8 rows of activations, of which a lane brings the numbers of row `row` where
 * `is_row`. */
template <class F>
DEVICE void multiply_cell(const typename F::raw &raw, const bytes_at &a, bool is_row, uint32_t row, uint32_t cols,
                          uint32_t parts, uint32_t cell, float acc[4])
{
    uint32_t lane = lane_of_warp(), t = lane % 4;

    UNROLL
    for (uint32_t step = 0; step < 2; step++) {
        uint32_t column = cell * CELL + step * STEP + 4 * t;
        floats4 v[2] = {{{0, 0, 0, 0}}, {{0, 0, 0, 0}}};
        inputs in[2];
        float sums[2] = {0, 0};
        step_numbers w;

        if (is_row) {
            v[0] = read_row(a, row, cols, column);
            v[1] = read_row(a, row, cols, column + 16);
        }
        if (F::MINIMA) {
            float sum = sum_of_step(v[0], v[1]);
            sums[0] = shuffle(sum, 8 * t);
            sums[1] = shuffle(sum, 8 * t + 4);
        }
        in[0] = split_row(v[0]);
        in[1] = split_row(v[1]);
        F::expand(raw, step, lane, w);
        multiply<F>(w, in, sums, parts, acc);
    }
}

#endif
