/* EXPERT_MATMUL of many pairs of a row and an expert, group by group: see kernels.h.
 *
 *   ids ─ expert_lists ─▶ groups of up to eight pairs with the same expert ─ expert_group ─▶ out
 *
 * There are as many blocks as groups that there can be, since how many there are is known on the device alone; those
 * behind the last have nothing to do. */
#include "gpu/kernels/few.cuh"

namespace
{

enum : uint32_t { LISTS_THREADS = 256 };

/* The block's pairs [begin, begin + LISTS_THREADS) to shared memory; returns how many they are. */
DEVICE uint32_t stage_ids(const global<int32_t> &ids, uint32_t begin, uint32_t n, const shared<uint32_t> &staged)
{
    sync_block();
    if (begin + thread_of_block() < n)
        staged.put(thread_of_block(), (uint32_t)ids.get(begin + thread_of_block()));
    sync_block();
    return n - begin < LISTS_THREADS ? n - begin : LISTS_THREADS;
}

} // namespace

/* One block, whose threads have experts each.
 *
 *   shared   ids of so many pairs, each expert's pairs so far [experts], its first group [experts] */
RN_KERNEL(expert_lists, rn_expert_matmul_args, LISTS_THREADS, 1)
{
    uint32_t n = args.n_rows * args.used, groups = rn_expert_groups(n, args.experts), thread = thread_of_block();
    global<int32_t> ids(args.ids, n);
    global<uint32_t> lists(args.lists, (uint64_t)groups * RN_GROUP_WORDS);
    shared<uint32_t> staged(0, LISTS_THREADS), counts(LISTS_THREADS * 4, args.experts);
    shared<uint32_t> firsts((LISTS_THREADS + args.experts) * 4, args.experts);

    for (uint32_t i = thread; i < groups * RN_GROUP_WORDS; i += LISTS_THREADS)
        lists.put(i, RN_NO_PAIR);
    for (uint32_t e = thread; e < args.experts; e += LISTS_THREADS)
        counts.put(e, 0);
    for (uint32_t begin = 0; begin < n; begin += LISTS_THREADS) {
        uint32_t here = stage_ids(ids, begin, n, staged);
        for (uint32_t e = thread; e < args.experts; e += LISTS_THREADS) {
            uint32_t count = counts.get(e);
            for (uint32_t i = 0; i < here; i++)
                count += staged.get(i) == e ? 1 : 0;
            counts.put(e, count);
        }
    }
    sync_block();
    for (uint32_t e = 0, first = 0; thread == 0 && e < args.experts; e++) {
        firsts.put(e, first);
        first += (counts.get(e) + RN_FEW_ROWS - 1) / RN_FEW_ROWS;
        counts.put(e, 0);
    }
    for (uint32_t begin = 0; begin < n; begin += LISTS_THREADS) {
        uint32_t here = stage_ids(ids, begin, n, staged);
        for (uint32_t e = thread; e < args.experts; e += LISTS_THREADS) {
            uint32_t count = counts.get(e);
            for (uint32_t i = 0; i < here; i++) {
                uint64_t group = (uint64_t)(firsts.get(e) + count / RN_FEW_ROWS) * RN_GROUP_WORDS;
                if (staged.get(i) != e)
                    continue;
                lists.put(group, e);
                lists.put(group + 1 + count++ % RN_FEW_ROWS, begin + i);
            }
            counts.put(e, count);
        }
    }
}

namespace few
{

/* A warp's activations: those of a group's pairs. */
struct gathered {
    bytes_at a;
    shared<uint32_t> pairs;
    uint32_t per_row, rows, cols; /* pairs that have the same row of activations; pairs */
    shared<words4> words;
    shared<float> sums;

    DEVICE uint32_t row_at(uint32_t i) const
    {
        return pairs.get(i) / per_row;
    }
};

DEVICE uint32_t count_pairs(const shared<uint32_t> &pairs)
{
    uint32_t n = 0;

    while (n < RN_FEW_ROWS && pairs.get(n) != RN_NO_PAIR)
        n++;
    return n;
}

/* Thread i's output of the tile. */
DEVICE void put_pair(const rn_expert_matmul_args &args, const shared<uint32_t> &pairs, uint32_t n, uint32_t expert,
                     const shared<float> &sums, uint32_t i)
{
    uint32_t weight_row = block_y() * TILE_ROWS + i % TILE_ROWS;
    float total;

    if (i / TILE_ROWS >= n || weight_row >= args.rows)
        return;
    total = total_of(sums, 0, i);
    if (args.bias != 0)
        total +=
            global<float>(args.bias, (uint64_t)args.experts * args.rows).get((uint64_t)expert * args.rows + weight_row);
    global<float>(args.out, (uint64_t)args.n_rows * args.used * args.rows)
        .put((uint64_t)pairs.get(i / TILE_ROWS) * args.rows + weight_row, total);
}

/* As matmul_few, for a group: a block has 16 rows of the expert's matrix, a warp a segment of the columns.
 *
 *   shared   as matmul_few has it, of eight rows and one tile; the pairs */
template <class F> DEVICE void expert_group(const rn_expert_matmul_args &args)
{
    constexpr uint32_t DEPTH = depth_of<F, 1>();
    uint32_t cells = (args.cols + CELL - 1) / CELL, per = segment_cells(cells), thread = thread_of_block();
    uint32_t begin = warp_of_block() * per, end = begin + per < cells ? begin + per : cells;
    uint32_t piece = rn_few_piece(RN_FEW_ROWS, args.cols), words = rn_few_words(RN_FEW_ROWS, args.cols);
    uint32_t groups = rn_expert_groups((uint64_t)args.n_rows * args.used, args.experts);
    global<uint32_t> lists(args.lists, (uint64_t)groups * RN_GROUP_WORDS);
    uint32_t expert = lists.get((uint64_t)block_x() * RN_GROUP_WORDS);
    uint64_t tile = (uint64_t)block_y() * tile_bytes(cells, F::UNIT_CELLS, F::UNIT_BYTES);
    shared<float> sums(8 * words * 16 + 4 * words, SEGMENTS * 128);
    shared<uint32_t> pairs(8 * words * 16 + 4 * words + SEGMENTS * 128 * 4, RN_FEW_ROWS);
    typename F::raw ring[DEPTH][1];
    float acc[1][4] = {};

    if (expert >= args.experts)
        return;
    if (thread < RN_FEW_ROWS)
        pairs.put(thread, lists.get((uint64_t)block_x() * RN_GROUP_WORDS + 1 + thread));
    sync_block();
    bytes_at weight(global<rn_address>(args.matrices, args.experts).get(expert));
    gathered in = {bytes_at(args.a),
                   pairs,
                   args.per_expert_input != 0 ? 1 : args.used,
                   count_pairs(pairs),
                   args.cols,
                   shared<words4>(warp_of_block() * words * 16, words),
                   shared<float>(8 * words * 16 + warp_of_block() * words / 2, words / 8)};
    UNROLL
    for (uint32_t d = 0; d < DEPTH; d++)
        if (begin + d < end)
            F::read(weight, tile, begin + d, lane_of_warp(), ring[d][0]);
    for (uint32_t cell = begin; cell < end; cell += DEPTH) {
        uint32_t at = (cell - begin) % piece;
        if (at == 0)
            stage_cells<F>(in, cell, end - cell < piece ? end - cell : piece);
        UNROLL
        for (uint32_t d = 0; d < DEPTH; d++) {
            if (cell + d >= end)
                continue;
            multiply_tiles<F, 1>(ring[d], in, at + d, args.parts, acc);
            if (cell + d + DEPTH < end)
                F::read(weight, tile, cell + d + DEPTH, lane_of_warp(), ring[d][0]);
        }
    }
    UNROLL
    for (uint32_t i = 0; i < 4; i++)
        sums.put(warp_of_block() * 128 + i * WARP + lane_of_warp(), acc[0][i]);
    sync_block();
    if (thread < 128)
        put_pair(args, pairs, in.rows, expert, sums, thread);
}

} // namespace few

#define EXPERT_GROUP(id, type)                                                                       \
    RN_KERNEL(expert_group_##type, rn_expert_matmul_args, 256, (few::blocks_of<format_##type, 1>())) \
    {                                                                                                \
        few::expert_group<format_##type>(args);                                                      \
    }
RN_KERNEL_TYPES(EXPERT_GROUP)
