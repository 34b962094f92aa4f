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
#include "gpu/kernels/many.cuh"

namespace many
{

enum : uint32_t {
    RING = RN_MANY_RING,
    RING_BESIDE_TOTALS = 2,
    TOTALS_AT = RING_BESIDE_TOTALS * CHUNK_BYTES
};
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
        partial.put(first + sums_at<GROUPS>(i / TILES, i % TILES) * 16, floats4{{sums[0], sums[1], sums[2], sums[3]}});
        UNROLL
        for (uint32_t k = 0; k < 4; k++)
            sums[k] = 0;
    }
}

template <uint32_t BATCHES> DEVICE void write_totals(const rn_matmul_args &args, const place &p)
{
    shared<floats4> totals(TOTALS_AT, BATCHES * BATCH * TILES * THREADS);
    uint32_t weight_row = p.weights * RN_MANY_WEIGHTS + warp_of_block() * TILES * TILE_ROWS;

    UNROLL
    for (uint32_t tile = 0; tile < TILES; tile++) {
        UNROLL
        for (uint32_t group = 0; group < BATCHES * BATCH; group++) {
            floats4 total = totals.get(sums_at<BATCHES * BATCH>(group, tile) + thread_of_block());
            write_sums(args, weight_row + tile * TILE_ROWS, p.inputs * ROWS + group * 8, total.v);
        }
    }
}

/* The barrier of a cell says both that its chunk is there for all and that nobody reads the stage any more into which
 * the next copy goes. */
template <class F, uint32_t BATCHES> DEVICE void walk(const rn_matmul_args &args, const place &p)
{
    float acc[BATCHES * BATCH][TILES][4] = {};
    uint32_t stage = 0, copied = p.begin, left = p.per;
    warp_weights<F> weights(args.weight, args.rows, p.cells, p.weights, p.begin);

    if (args.ways == 1)
        clear_totals<BATCHES>(TOTALS_AT);
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
            add_segment<BATCHES>(TOTALS_AT, acc);
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
