/* What kernels that multiply many rows share: chunks of activations, as matmul_many.cu draws them, the products of a
 * cell, and totals over segments. */
#ifndef RN_GPU_MANY_CUH
#define RN_GPU_MANY_CUH

#include "gpu/kernels/products.cuh"

namespace many
{

enum : uint32_t {
    THREADS = 256,
    TILES = 2, /* of 16 weight rows that a warp has */
    GROUPS = 8,
    BATCH = 4,
    ROWS = 8 * GROUPS,
    SUMS_BYTES = 2 * ROWS * 4,
    BATCH_BYTES = 2 * 2 * BATCH * WARP * 16,
    CHUNK_BYTES = RN_MANY_CHUNK_BYTES
};
static_assert(CHUNK_BYTES == SUMS_BYTES + 2 * BATCH_BYTES, "chunk");

/* Groups that are multiplied side by side: with two tiles 8 chains of sums, or 4 where each has a sum of its own that
 * is scaled and added. Two warps share a tensor core, so that hides its latency. */
template <class F> struct window {
    static constexpr uint32_t GROUPS = F::SCALED ? 2 : 4;
    words4 v[GROUPS]; /* both parts' registers for one product */

    DEVICE void get(const shared<words4> &chunk, uint32_t group, uint32_t step, uint32_t product)
    {
        uint32_t at = (group / BATCH * 4 + step * 2 + product) * BATCH + group % BATCH;
        UNROLL
        for (uint32_t i = 0; i < GROUPS; i++)
            v[i] = chunk.get((at + i) * WARP + lane_of_warp());
    }
};

/* One product of a window: of each sum what multiply() of products.cuh does, in its order, sums side by side. */
template <class F>
DEVICE void multiply_product(const step_numbers w[TILES], uint32_t product, const window<F> &in, float c[][TILES][4])
{
    UNROLL
    for (uint32_t part = 0; part < F::PARTS; part++) {
        UNROLL
        for (uint32_t i = 0; i < in.GROUPS * TILES; i++)
            mma_bf16(c[i / TILES][i % TILES], w[i % TILES].a[part][product], in.v[i / TILES].w);
    }
    UNROLL
    for (uint32_t i = 0; i < in.GROUPS * TILES; i++)
        mma_bf16(c[i / TILES][i % TILES], w[i % TILES].a[0][product], in.v[i / TILES].w + 2);
}

/* acc += scale c; c is 0 again. */
DEVICE void scale_sums(const step_numbers w[TILES], uint32_t product, uint32_t groups, float c[][TILES][4],
                       float acc[][TILES][4])
{
    UNROLL
    for (uint32_t i = 0; i < groups * TILES * 4; i++) {
        uint32_t group = i / 4 / TILES, tile = i / 4 % TILES, k = i % 4;
        acc[group][tile][k] = fmaf(w[tile].scale[product][k / 2], c[group][tile][k], acc[group][tile][k]);
        c[group][tile][k] = 0;
    }
}

/* sums: of activations in this step, from the window's first row on. */
DEVICE void subtract_minima(const step_numbers w[TILES], const shared<words2> &sums, uint32_t first, uint32_t groups,
                            float acc[][TILES][4])
{
    UNROLL
    for (uint32_t group = 0; group < groups; group++) {
        words2 of_rows = sums.get(first / 2 + group * 4 + lane_of_warp() % 4);
        UNROLL
        for (uint32_t i = 0; i < TILES * 4; i++)
            acc[group][i / 4][i % 4] =
                fmaf(-w[i / 4].minimum[i % 4 / 2], float_of(of_rows.w[i % 2]), acc[group][i / 4][i % 4]);
    }
}

/* One cell: step by step, window by window, product by product. The next product's activations are read before the one
 * before is multiplied. With a scale for each product the compiler would expand both steps first and run out of
 * registers: there the steps are a loop. */
template <class F, uint32_t BATCHES>
DEVICE void multiply_chunk(const typename F::raw raw[TILES], uint32_t stage, float acc[BATCHES * BATCH][TILES][4])
{
    constexpr uint32_t WIDTH = window<F>::GROUPS, WINDOWS = BATCHES * BATCH / WIDTH;
    shared<words4> chunk(stage + SUMS_BYTES, BATCHES * BATCH_BYTES / 16);
    shared<words2> sums(stage, SUMS_BYTES / 8);
    step_numbers w[TILES];
    float c[WIDTH][TILES][4] = {};
    window<F> in, next;

    next.get(chunk, 0, 0, 0);
    UNROLL_TIMES(F::BY_PRODUCT ? 1 : 2)
    for (uint32_t step = 0; step < 2; step++) {
        UNROLL
        for (uint32_t tile = 0; tile < TILES; tile++)
            F::expand(raw[tile], step, lane_of_warp(), w[tile]);
        UNROLL
        for (uint32_t i = 0; i < 2 * WINDOWS; i++) {
            uint32_t group = i / 2 * WIDTH, product = i % 2;
            in = next;
            if (i + 1 < 2 * WINDOWS)
                next.get(chunk, (i + 1) / 2 * WIDTH, step, (i + 1) % 2);
            else if (step == 0)
                next.get(chunk, 0, 1, 0);
            multiply_product<F>(w, product, in, F::SCALED ? c : acc + group);
            if (F::SCALED && (F::BY_PRODUCT || product == 1))
                scale_sums(w, product, WIDTH, c, acc + group);
            if (F::MINIMA && product == 1)
                subtract_minima(w, sums, step * ROWS + group * 8, WIDTH, acc + group);
        }
    }
}

/* Where four sums lie in `partial` and the totals. */
template <uint32_t GROUPS> DEVICE uint32_t sums_at(uint32_t group, uint32_t tile)
{
    return (tile * GROUPS + group) * THREADS;
}

template <uint32_t BATCHES> DEVICE void clear_totals(uint32_t totals_at)
{
    shared<floats4> totals(totals_at, BATCHES * BATCH * TILES * THREADS);

    UNROLL
    for (uint32_t i = 0; i < BATCHES * BATCH * TILES; i++)
        totals.put(sums_at<BATCHES * BATCH>(i / TILES, i % TILES) + thread_of_block(), floats4{{0, 0, 0, 0}});
}

/* The segment's sums join the totals, each thread its own; acc is 0 again. */
template <uint32_t BATCHES> DEVICE void add_segment(uint32_t totals_at, float acc[BATCHES * BATCH][TILES][4])
{
    shared<floats4> totals(totals_at, BATCHES * BATCH * TILES * THREADS);

    UNROLL
    for (uint32_t i = 0; i < BATCHES * BATCH * TILES; i++) {
        uint32_t at = sums_at<BATCHES * BATCH>(i / TILES, i % TILES) + thread_of_block();
        floats4 total = totals.get(at);
        UNROLL
        for (uint32_t k = 0; k < 4; k++) {
            total.v[k] += acc[i / TILES][i % TILES][k];
            acc[i / TILES][i % TILES][k] = 0;
        }
        totals.put(at, total);
    }
}

/* A warp's two tiles; behind the last one the last again, whose sums are not used. Where both would be, the warp does
 * nothing but copy. */
template <class F> struct warp_weights {
    /* Formats of at most 16 registers a cell are read one cell ahead. */
    static constexpr bool AHEAD = sizeof(typename F::raw) <= 64;
    bytes_at weight;
    bool works;
    uint64_t at[TILES];
    typename F::raw raw[TILES], next[TILES];

    /* Of the `block`-th 256 rows; `begin`: the first cell that is turned to. */
    DEVICE warp_weights(rn_address matrix, uint32_t rows, uint32_t cells, uint32_t block, uint32_t begin)
        : weight(matrix)
    {
        uint32_t tiles = (rows + TILE_ROWS - 1) / TILE_ROWS;
        uint32_t first = (block * (THREADS / WARP) + warp_of_block()) * TILES;

        works = first < tiles;
        UNROLL
        for (uint32_t i = 0; i < TILES; i++) {
            at[i] = (first + i < tiles ? first + i : tiles - 1) * tile_bytes(cells, F::UNIT_CELLS, F::UNIT_BYTES);
        }
        if (AHEAD && works)
            read(begin, next);
    }
    DEVICE void read(uint32_t cell, typename F::raw to[TILES])
    {
        UNROLL
        for (uint32_t i = 0; i < TILES; i++)
            F::read(weight, at[i], cell, lane_of_warp(), to[i]);
    }
    /* `raw` becomes the cell's, which comes behind the one before. */
    DEVICE void turn(uint32_t cell, uint32_t end)
    {
        if (AHEAD) {
            UNROLL
            for (uint32_t i = 0; i < TILES; i++)
                raw[i] = next[i];
            if (cell + 1 < end)
                read(cell + 1, next);
        } else {
            read(cell, raw);
        }
    }
};

} // namespace many

#endif
