/* MATMUL of more rows, in up to three launches with the same arguments:
 *
 *   split_rows    cuts the activations into parts, once for all blocks and all products of the same input
 *   matmul_many   a block has 256 rows of the weight, 32 for each warp, and 64 rows of activations
 *   matmul_join   where segments are computed by different blocks (ways > 1): adds them in order
 *
 * split_rows writes a chunk for each 64 rows of activations and each cell, as matmul_many wants it in shared memory;
 * rows and columns that are not there are zeros:
 *
 *   [step][64 rows]                                      sums of activations, for formats with minima
 *   [batch][step][product][4 groups of 8 rows][lane]     4 words: both parts' registers
 *
 * matmul_many copies chunks to a ring in shared memory, asynchronously, some cells ahead. Weights go to registers one
 * cell ahead; a warp reads each once and multiplies it with all 64 rows. Where the second batch has no rows it is left
 * out. With ways = 1 a block goes over all segments; totals, which registers have no room for, lie in shared memory
 * beside a ring of two stages. With more ways a block has 8 / ways segments, each of which goes to memory:
 *
 *   partial   [segment][64 rows of activations][256 of weights][tile, group][thread] of 4 sums */
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
    CHUNK_BYTES = RN_MANY_CHUNK_BYTES,
    RING = RN_MANY_RING,
    RING_BESIDE_TOTALS = 2,
    TOTALS_AT = RING_BESIDE_TOTALS * CHUNK_BYTES
};
static_assert(CHUNK_BYTES == SUMS_BYTES + 2 * BATCH_BYTES, "chunk");
static_assert(RN_MANY_SHARED_BYTES >= TOTALS_AT + TILES * GROUPS * 4 * 4 * THREADS, "totals");
static_assert(RN_MANY_SHARED_BYTES >= RING * CHUNK_BYTES, "ring");

/* ---- split_rows ---- */

/* A block has a chunk, a warp a group of its rows. */
DEVICE void split_rows(const rn_matmul_args &args)
{
    uint32_t cell = block_x(), cells = (args.cols + CELL - 1) / CELL, lane = lane_of_warp(), group = warp_of_block();
    uint32_t row = block_y() * ROWS + group * 8 + lane / 4;
    uint64_t chunk = ((uint64_t)block_y() * cells + cell) * CHUNK_BYTES;
    bytes_at a(args.a), split(args.split);
    floats4 v[4]; /* [step][product] */

    UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        v[i] = floats4{{0, 0, 0, 0}};
        if (row < args.n_rows)
            v[i] = read_row(a, row, args.cols, cell * CELL + i * 16 + 4 * (lane % 4));
    }
    UNROLL
    for (uint32_t step = 0; step < 2; step++) {
        float sum = sum_of_step(v[step * 2], v[step * 2 + 1]);
        if (lane % 4 == 0)
            split.put(chunk + (step * ROWS + group * 8 + lane / 4) * 4, sum);
    }
    UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        inputs in = split_row(v[i]);
        words4 words = {{in.b[0][0], in.b[0][1], in.b[1][0], in.b[1][1]}};
        if (args.parts == 1)
            words.w[2] = words.w[3] = 0;
        split.put(chunk + SUMS_BYTES + group / BATCH * BATCH_BYTES + ((i * BATCH + group % BATCH) * WARP + lane) * 16,
                  words);
    }
}

/* ---- matmul_many ---- */

/* Where a block is. */
struct place {
    uint32_t cells, per;         /* cells of all columns and of a segment */
    uint32_t begin, end;         /* cells that the block goes over */
    uint32_t ring_bytes;
    uint32_t inputs, weights;    /* which 64 rows of activations and which 256 of weights */
    uint64_t chunks;             /* address of the first chunk */
};

DEVICE place find_place(const rn_matmul_args &args)
{
    place p;
    uint32_t segments = SEGMENTS / args.ways;

    p.cells = (args.cols + CELL - 1) / CELL;
    p.per = segment_cells(p.cells);
    p.begin = block_z() * segments * p.per;
    p.end = p.begin + segments * p.per < p.cells ? p.begin + segments * p.per : p.cells;
    p.ring_bytes = (args.ways > 1 ? RING : RING_BESIDE_TOTALS) * CHUNK_BYTES;
    p.inputs = block_x();
    p.weights = block_y();
    p.chunks = args.split + (uint64_t)p.inputs * p.cells * CHUNK_BYTES;
    return p;
}

DEVICE uint32_t next_stage(const place &p, uint32_t stage)
{
    return stage + CHUNK_BYTES < p.ring_bytes ? stage + CHUNK_BYTES : 0;
}

/* Sets off the copy of a cell's chunk to a stage; without rows in the second batch, of its first half. */
template <class F, uint32_t BATCHES> DEVICE void copy_chunk(const place &p, uint32_t cell, uint32_t stage)
{
    uint32_t thread = thread_of_block();
    uint64_t chunk = p.chunks + (uint64_t)cell * CHUNK_BYTES;

    if (F::MINIMA && thread < SUMS_BYTES / 16)
        copy_async_16(stage + thread * 16, chunk + thread * 16);
    UNROLL
    for (uint32_t i = 0; i < BATCHES * BATCH_BYTES / 16 / THREADS; i++) {
        uint32_t at = SUMS_BYTES + (i * THREADS + thread) * 16;
        copy_async_16(stage + at, chunk + at);
    }
}

/* Until the oldest chunk on its way is there: for this thread; a barrier follows. */
DEVICE void wait_for_chunk(const place &p)
{
    if (p.ring_bytes == RING * CHUNK_BYTES)
        copy_wait<RING - 2>();
    else
        copy_wait<RING_BESIDE_TOTALS - 2>();
}

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

/* Four sums of a lane to their places; the sums of a tile of 16 weight rows and a group of 8 rows of activations. */
DEVICE void write_sums(const rn_matmul_args &args, uint32_t weight_row, uint32_t row, const float sums[4])
{
    global<float> out(args.out, (uint64_t)args.n_rows * args.rows);
    uint32_t lane = lane_of_warp();

    UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t r = row + lane % 4 * 2 + i % 2, w = weight_row + lane / 4 + i / 2 * 8;
        float value = sums[i];
        if (r >= args.n_rows || w >= args.rows)
            continue;
        if (args.bias != 0)
            value += global<float>(args.bias, args.rows).get(w);
        out.put((uint64_t)r * args.rows + w, value);
    }
}

/* Where in `partial` four sums lie. */
DEVICE uint64_t partial_at(const rn_matmul_args &args, uint32_t segment, uint32_t inputs, uint32_t weights,
                           uint32_t sums)
{
    uint64_t blocks_x = (args.n_rows + ROWS - 1) / ROWS, blocks_y = (args.rows + RN_MANY_WEIGHTS - 1) / RN_MANY_WEIGHTS;

    return (((segment * blocks_x + inputs) * blocks_y + weights) * (TILES * GROUPS) + sums) * THREADS * 16 +
           thread_of_block() * 16;
}

/* Where four sums lie in `partial` and the totals. */
DEVICE uint32_t sums_at(uint32_t group, uint32_t tile)
{
    return (tile * GROUPS + group) * THREADS;
}

template <uint32_t BATCHES> DEVICE void clear_totals()
{
    shared<floats4> totals(TOTALS_AT, TILES * GROUPS * THREADS);

    UNROLL
    for (uint32_t i = 0; i < BATCHES * BATCH * TILES; i++)
        totals.put(sums_at(i / TILES, i % TILES) + thread_of_block(), floats4{{0, 0, 0, 0}});
}

/* The segment's sums join the totals, each thread its own; acc is 0 again. */
template <uint32_t BATCHES> DEVICE void add_segment(float acc[BATCHES * BATCH][TILES][4])
{
    shared<floats4> totals(TOTALS_AT, TILES * GROUPS * THREADS);

    UNROLL
    for (uint32_t i = 0; i < BATCHES * BATCH * TILES; i++) {
        uint32_t at = sums_at(i / TILES, i % TILES) + thread_of_block();
        floats4 total = totals.get(at);
        UNROLL
        for (uint32_t k = 0; k < 4; k++) {
            total.v[k] += acc[i / TILES][i % TILES][k];
            acc[i / TILES][i % TILES][k] = 0;
        }
        totals.put(at, total);
    }
}

/* The segment's sums go to memory; acc is 0 again. */
template <uint32_t BATCHES>
DEVICE void write_segment(const rn_matmul_args &args, const place &p, uint32_t segment,
                          float acc[BATCHES * BATCH][TILES][4])
{
    uint64_t first = partial_at(args, segment, p.inputs, p.weights, 0);
    bytes_at partial(args.partial);

    UNROLL
    for (uint32_t i = 0; i < BATCHES * BATCH * TILES; i++) {
        float *sums = acc[i / TILES][i % TILES];
        partial.put(first + sums_at(i / TILES, i % TILES) * 16, floats4{{sums[0], sums[1], sums[2], sums[3]}});
        UNROLL
        for (uint32_t k = 0; k < 4; k++)
            sums[k] = 0;
    }
}

template <uint32_t BATCHES> DEVICE void write_totals(const rn_matmul_args &args, const place &p)
{
    shared<floats4> totals(TOTALS_AT, TILES * GROUPS * THREADS);
    uint32_t weight_row = p.weights * RN_MANY_WEIGHTS + warp_of_block() * TILES * TILE_ROWS;

    UNROLL
    for (uint32_t tile = 0; tile < TILES; tile++) {
        UNROLL
        for (uint32_t group = 0; group < BATCHES * BATCH; group++) {
            floats4 total = totals.get(sums_at(group, tile) + thread_of_block());
            write_sums(args, weight_row + tile * TILE_ROWS, p.inputs * ROWS + group * 8, total.v);
        }
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

    DEVICE warp_weights(const rn_matmul_args &args, const place &p) : weight(args.weight)
    {
        uint32_t tiles = (args.rows + TILE_ROWS - 1) / TILE_ROWS;
        uint32_t first = (p.weights * (THREADS / WARP) + warp_of_block()) * TILES;

        works = first < tiles;
        UNROLL
        for (uint32_t i = 0; i < TILES; i++) {
            at[i] = (first + i < tiles ? first + i : tiles - 1) * tile_bytes(p.cells, F::UNIT_CELLS, F::UNIT_BYTES);
        }
        if (AHEAD && works)
            read(p.begin, next);
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

/* The barrier of a cell says both that its chunk is there for all and that nobody reads the stage any more into which
 * the next copy goes. */
template <class F, uint32_t BATCHES> DEVICE void walk(const rn_matmul_args &args, const place &p)
{
    float acc[BATCHES * BATCH][TILES][4] = {};
    uint32_t stage = 0, copied = p.begin, left = p.per;
    warp_weights<F> weights(args, p);

    if (args.ways == 1)
        clear_totals<BATCHES>();
    grid_wait(); /* weights are there before the chunks */
    for (uint32_t to = 0; to + CHUNK_BYTES < p.ring_bytes; to += CHUNK_BYTES, copied++) {
        if (copied < p.end)
            copy_chunk<F, BATCHES>(p, copied, to);
        copy_commit();
    }
    for (uint32_t cell = p.begin; cell < p.end; cell++, copied++, stage = next_stage(p, stage)) {
        wait_for_chunk(p);
        sync_block();
        if (copied < p.end)
            copy_chunk<F, BATCHES>(p, copied, stage == 0 ? p.ring_bytes - CHUNK_BYTES : stage - CHUNK_BYTES);
        copy_commit();
        if (!weights.works)
            continue;
        weights.turn(cell, p.end);
        multiply_chunk<F, BATCHES>(weights.raw, stage, acc);
        if (--left > 0 && cell + 1 < p.end)
            continue;
        left = p.per;
        if (args.ways == 1)
            add_segment<BATCHES>(acc);
        else
            write_segment<BATCHES>(args, p, cell / p.per, acc);
    }
    if (args.ways == 1 && weights.works)
        write_totals<BATCHES>(args, p);
}

template <class F> DEVICE void matmul_many(const rn_matmul_args &args)
{
    place p = find_place(args);

    if (p.begin >= p.end)
        grid_wait();
    else if (args.n_rows - p.inputs * ROWS > BATCH * 8)
        walk<F, 2>(args, p);
    else
        walk<F, 1>(args, p);
}

/* ---- matmul_join ---- */

/* A block has one tile and group of each warp of a block of matmul_many. */
DEVICE void matmul_join(const rn_matmul_args &args)
{
    uint32_t cells = (args.cols + CELL - 1) / CELL, per = segment_cells(cells), segments = (cells + per - 1) / per;
    uint32_t row = block_x() * ROWS + block_z() % GROUPS * 8;
    uint32_t tile = (block_y() * (THREADS / WARP) + warp_of_block()) * TILES + block_z() / GROUPS;
    bytes_at partial(args.partial);
    float total[4] = {0, 0, 0, 0};

    if (row >= args.n_rows || tile * TILE_ROWS >= args.rows)
        return;
    UNROLL
    for (uint32_t s = 0; s < SEGMENTS; s++) {
        floats4 v = {{0, 0, 0, 0}};
        if (s < segments)
            v = partial.get<floats4>(partial_at(args, s, block_x(), block_y(), block_z()));
        UNROLL
        for (uint32_t i = 0; i < 4; i++)
            total[i] += v.v[i];
    }
    write_sums(args, tile * TILE_ROWS, row, total);
}

} // namespace many

RN_KERNEL(split_rows, rn_matmul_args, 256, 4)
{
    many::split_rows(args);
}

RN_KERNEL(matmul_join, rn_matmul_args, 256, 4)
{
    many::matmul_join(args);
}

#define MATMUL_MANY(id, type)                                    \
    RN_KERNEL_AHEAD(matmul_many_##type, rn_matmul_args, 256, 1)  \
    {                                                            \
        many::matmul_many<format_##type>(args);                  \
    }
RN_KERNEL_TYPES(MATMUL_MANY)
