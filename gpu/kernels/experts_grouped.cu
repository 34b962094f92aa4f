/* EXPERT_MATMUL of more rows: pairs of a row and one of its experts, by expert, so that an expert's matrix is read once
 * for many of them. Up to three launches with the same arguments:
 *
 *   expert_group   the pairs of each expert, ascending, in `order`; and which of them a block has, in `slots`:
 *
 *                  ids     2 0 2 1 2 ...      of pairs 0, 1, 2 ...
 *                  order   1 | 3 | 0 2 4      expert 0, 1, 2
 *                  slots   {0, at 0, 1 pair} {1, at 1, 1} {2, at 2, 2} {2, at 4, 1}     with two pairs a slot
 *
 *   expert_few     a block has a slot of up to 8 pairs and 16 rows of the expert's matrix, as matmul_few
 *
 *   expert_split   cuts the activations into parts, as split_rows does, but row by row: a slot's rows are anywhere
 *   expert_many    a block has a slot of up to 32 pairs and 256 rows of the matrix, as matmul_many, over all columns
 *
 * Where an expert's slots begin follows from its number and from how many pairs experts before it have, so that a block
 * of expert_group needs no other; there are slots without pairs between them. How many slots there are depends on the
 * numbers of rows and experts alone, and a block of a slot without pairs ends at once.
 *
 * The sums of a pair are those of expert_matmul, to the bit. */
#include "gpu/kernels/few.cuh"
#include "gpu/kernels/many.cuh"

namespace grouped
{

/* Pairs [first, first + n) of `order`, all of one expert. */
struct alignas(16) slot {
    uint32_t expert, first, n, unused;
};

DEVICE uint32_t pairs_of(const rn_expert_matmul_args &args)
{
    return args.n_rows * args.used;
}

/* Rows of a. */
DEVICE uint32_t inputs_of(const rn_expert_matmul_args &args)
{
    return args.per_expert_input != 0 ? pairs_of(args) : args.n_rows;
}

DEVICE slot slot_of_block(const rn_expert_matmul_args &args, uint32_t index)
{
    return global<slot>(args.slots, rn_expert_slots(pairs_of(args), args.experts, args.group)).get(index);
}

/* The slot's i-th pair. */
DEVICE uint32_t pair_of(const rn_expert_matmul_args &args, const slot &s, uint32_t i)
{
    return global<uint32_t>(args.order, pairs_of(args)).get(s.first + i);
}

DEVICE uint32_t input_of(const rn_expert_matmul_args &args, uint32_t pair)
{
    return args.per_expert_input != 0 ? pair : pair / args.used;
}

DEVICE rn_address matrix_of(const rn_expert_matmul_args &args, const slot &s)
{
    return global<rn_address>(args.matrices, args.experts).get(s.expert);
}

/* + bias, and to the pair's place. */
DEVICE void put_value(const rn_expert_matmul_args &args, const slot &s, uint32_t pair, uint32_t weight_row, float value)
{
    if (args.bias != 0)
        value += global<float>(args.bias, (uint64_t)args.experts * args.rows)
                     .get((uint64_t)s.expert * args.rows + weight_row);
    global<float>(args.out, (uint64_t)pairs_of(args) * args.rows).put((uint64_t)pair * args.rows + weight_row, value);
}

/* ---- expert_group ---- */

enum : uint32_t { GROUP_THREADS = 256, GROUP_WARPS = GROUP_THREADS / WARP };

DEVICE uint32_t bits_in(uint32_t word)
{
    word -= word >> 1 & 0x55555555u;
    word = (word & 0x33333333u) + (word >> 2 & 0x33333333u);
    return ((word + (word >> 4)) & 0x0f0f0f0fu) * 0x01010101u >> 24;
}

/* A sum of all threads' values, in all of them. */
DEVICE uint32_t sum_of_block(const shared<uint32_t> &of_warps, uint32_t value)
{
    uint32_t sum = 0;

    UNROLL
    for (uint32_t mask = 16; mask > 0; mask /= 2)
        value += shuffle_xor(value, mask);
    if (lane_of_warp() == 0)
        of_warps.put(warp_of_block(), value);
    sync_block();
    UNROLL
    for (uint32_t w = 0; w < GROUP_WARPS; w++)
        sum += of_warps.get(w);
    sync_block();
    return sum;
}

/* The pairs of the expert, ascending, from `at` on. */
DEVICE void put_pairs(const rn_expert_matmul_args &args, uint32_t expert, uint32_t at,
                      const shared<uint32_t> &of_warps)
{
    uint32_t n = pairs_of(args);
    global<int32_t> ids(args.ids, n);
    global<uint32_t> order(args.order, n);

    for (uint32_t begin = 0; begin < n; begin += GROUP_THREADS) {
        uint32_t pair = begin + thread_of_block(), before = 0;
        bool is_one = pair < n && (uint32_t)ids.get(pair) == expert;
        uint32_t of_warp = ballot(is_one);

        if (lane_of_warp() == 0)
            of_warps.put(warp_of_block(), bits_in(of_warp));
        sync_block();
        UNROLL
        for (uint32_t w = 0; w < GROUP_WARPS; w++)
            before += w < warp_of_block() ? of_warps.get(w) : 0;
        if (is_one)
            order.put(at + before + bits_in(of_warp & ((1u << lane_of_warp()) - 1)), pair);
        UNROLL
        for (uint32_t w = 0; w < GROUP_WARPS; w++)
            at += of_warps.get(w);
        sync_block();
    }
}

/* The slots before that of an expert, of which `before` pairs are of experts before it: enough for them, since each
 * expert with pairs has at most one slot that is not full. */
DEVICE uint32_t slots_before(const rn_expert_matmul_args &args, uint32_t expert, uint32_t before)
{
    return before / args.group + (expert < before ? expert : before);
}

/* Those of the expert, and empty ones up to the next expert's first. */
DEVICE void put_slots(const rn_expert_matmul_args &args, uint32_t expert, uint32_t before, uint32_t own)
{
    uint32_t all = rn_expert_slots(pairs_of(args), args.experts, args.group);
    uint32_t begin = slots_before(args, expert, before);
    uint32_t end = expert + 1 < args.experts ? slots_before(args, expert + 1, before + own) : all;
    global<slot> slots(args.slots, all);

    for (uint32_t i = begin + thread_of_block(); i < end; i += GROUP_THREADS) {
        uint32_t done = (i - begin) * args.group, left = done < own ? own - done : 0;
        slots.put(i, slot{expert, before + done, left < args.group ? left : args.group, 0});
    }
}

/* A block has an expert. */
DEVICE void expert_group(const rn_expert_matmul_args &args)
{
    uint32_t n = pairs_of(args), expert = block_x(), before = 0, own = 0;
    global<int32_t> ids(args.ids, n);
    shared<uint32_t> of_warps(0, GROUP_WARPS);

    for (uint32_t pair = thread_of_block(); pair < n; pair += GROUP_THREADS) {
        uint32_t id = (uint32_t)ids.get(pair);
        before += id < expert ? 1 : 0;
        own += id == expert ? 1 : 0;
    }
    before = sum_of_block(of_warps, before);
    own = sum_of_block(of_warps, own);
    put_slots(args, expert, before, own);
    if (own > 0)
        put_pairs(args, expert, before, of_warps);
}

/* ---- expert_few ---- */

/* A warp's activations, those of rows that lie anywhere. */
struct gathered : few::activations {
    shared<uint32_t> inputs;

    DEVICE uint32_t row_at(uint32_t row) const
    {
        return inputs.get(row);
    }
};

/* shared   of each warp a piece of activations and their sums, and the segments' sums: as matmul_few; the slot's rows of
 *          a, and its pairs */
template <class F> DEVICE void expert_few(const rn_expert_matmul_args &args)
{
    constexpr uint32_t DEPTH = few::depth_of<F, 1>();
    slot s = slot_of_block(args, block_y());
    uint32_t cells = (args.cols + CELL - 1) / CELL, per = segment_cells(cells), lane = lane_of_warp();
    uint32_t begin = warp_of_block() * per, end = begin + per < cells ? begin + per : cells;
    uint32_t piece = rn_few_piece(s.n, args.cols), words = rn_few_words(s.n, args.cols), thread = thread_of_block();
    uint32_t sums_at = 8 * words * 16 + 4 * words, rows_at = sums_at + SEGMENTS * 128 * 4;
    shared<float> sums(sums_at, SEGMENTS * 128);
    shared<uint32_t> inputs(rows_at, RN_EXPERT_FEW), pairs(rows_at + RN_EXPERT_FEW * 4, RN_EXPERT_FEW);
    gathered in = {{bytes_at(args.a), 0, s.n, args.cols, shared<words4>(warp_of_block() * words * 16, words),
                    shared<float>(8 * words * 16 + warp_of_block() * words / 2, words / 8)},
                   inputs};
    typename F::raw ring[DEPTH][1];
    float acc[1][4] = {};

    if (s.n == 0)
        return;
    bytes_at tile(matrix_of(args, s) + block_x() * tile_bytes(cells, F::UNIT_CELLS, F::UNIT_BYTES));
    UNROLL
    for (uint32_t d = 0; d < DEPTH; d++)
        if (begin + d < end)
            F::read(tile, 0, begin + d, lane, ring[d][0]);
    if (thread < s.n) {
        uint32_t pair = pair_of(args, s, thread);
        pairs.put(thread, pair);
        inputs.put(thread, input_of(args, pair));
    }
    sync_block();
    for (uint32_t cell = begin; cell < end; cell += DEPTH) {
        uint32_t at = (cell - begin) % piece;
        if (at == 0)
            few::stage_cells<F>(in, cell, end - cell < piece ? end - cell : piece);
        UNROLL
        for (uint32_t d = 0; d < DEPTH; d++) {
            if (cell + d >= end)
                continue;
            few::multiply_tiles<F, 1>(ring[d], in, at + d, args.parts, acc);
            if (cell + d + DEPTH < end)
                F::read(tile, 0, cell + d + DEPTH, lane, ring[d][0]);
        }
    }
    UNROLL
    for (uint32_t i = 0; i < 4; i++)
        sums.put(warp_of_block() * 128 + i * WARP + lane, acc[0][i]);
    sync_block();
    if (thread < TILE_ROWS * s.n && block_x() * TILE_ROWS + thread % TILE_ROWS < args.rows)
        put_value(args, s, pairs.get(thread / TILE_ROWS), block_x() * TILE_ROWS + thread % TILE_ROWS,
                  few::total_of(sums, 0, thread));
}

/* ---- expert_split ---- */

/* Of each row and cell: [step][product][t] of words4, both parts' registers; behind all rows the sums of steps, where
 * formats have minima. */
enum : uint32_t { WORDS_BYTES = 4 * 4 * 16 };

DEVICE uint64_t split_sums_at(const rn_expert_matmul_args &args, uint32_t cells)
{
    return (uint64_t)inputs_of(args) * cells * WORDS_BYTES;
}

/* A block has 64 rows and a cell, four lanes a row. */
DEVICE void expert_split(const rn_expert_matmul_args &args)
{
    uint32_t cell = block_x(), cells = (args.cols + CELL - 1) / CELL, t = lane_of_warp() % 4;
    uint32_t row = block_y() * many::ROWS + thread_of_block() / 4;
    bool is_row = row < inputs_of(args);
    uint64_t at = (uint64_t)row * cells + cell;
    bytes_at a(args.a), split(args.split);
    floats4 v[4]; /* [step][product] */

    UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        v[i] = floats4{{0, 0, 0, 0}};
        if (is_row)
            v[i] = read_row(a, row, args.cols, cell * CELL + i * 16 + 4 * t);
    }
    UNROLL
    for (uint32_t step = 0; step < 2; step++) {
        float sum = sum_of_step(v[step * 2], v[step * 2 + 1]);
        if (is_row && t == 0)
            split.put(split_sums_at(args, cells) + (at * 2 + step) * 4, sum);
    }
    UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        inputs in = split_row(v[i]);
        words4 words = {{in.b[0][0], in.b[0][1], in.b[1][0], in.b[1][1]}};
        if (args.parts == 1)
            words.w[2] = words.w[3] = 0;
        if (is_row)
            split.put(at * WORDS_BYTES + (i * 4 + t) * 16, words);
    }
}

/* ---- expert_many ---- */

enum : uint32_t {
    STAGES = RN_EXPERT_STAGES,
    STAGE_BYTES = RN_EXPERT_STAGE_BYTES,
    MANY_TOTALS_AT = STAGES * STAGE_BYTES,
    PAIRS_AT = MANY_TOTALS_AT + many::BATCH * many::TILES * many::THREADS * 16
};
static_assert(STAGE_BYTES == many::SUMS_BYTES + many::BATCH_BYTES, "a chunk without its second batch");
static_assert(RN_EXPERT_MANY_SHARED_BYTES == PAIRS_AT + RN_EXPERT_MANY * 4, "pairs");
static_assert(RN_EXPERT_MANY == 8 * many::BATCH, "a batch");

/* Where a thread's copies come from: its words, those of step 0 and product 0 and of step 1 and product 0 of one row, and
 * for the first 64 the sum of a step of a row. Behind the slot's last row that one again: its sums are not used. */
struct sources {
    uint64_t words, sum;
};

DEVICE sources find_sources(const rn_expert_matmul_args &args, const slot &s, const shared<uint32_t> &pairs,
                            uint32_t cells)
{
    uint32_t thread = thread_of_block(), row = thread % 128 / 4, of_sum = thread % RN_EXPERT_MANY;
    uint64_t input = input_of(args, pairs.get(row < s.n ? row : s.n - 1));
    uint64_t input_of_sum = input_of(args, pairs.get(of_sum < s.n ? of_sum : s.n - 1));

    return sources{args.split + input * cells * WORDS_BYTES + thread / 128 * 64 + thread % 4 * 16,
                   args.split + split_sums_at(args, cells) + input_of_sum * cells * 8 + thread / RN_EXPERT_MANY * 4};
}

/* Sets off the copy of a cell's activations to a stage, as multiply_chunk wants them. */
template <class F> DEVICE void copy_rows(const sources &from, uint32_t cell, uint32_t stage)
{
    uint32_t thread = thread_of_block();

    if (F::MINIMA && thread < 2 * RN_EXPERT_MANY)
        copy_async(shared<float>(stage, many::SUMS_BYTES / 4), thread / RN_EXPERT_MANY * many::ROWS + thread % RN_EXPERT_MANY,
                   global<float>(from.sum + (uint64_t)cell * 8, 1), 0);
    UNROLL
    for (uint32_t i = 0; i < 2; i++)
        copy_async_16(stage + many::SUMS_BYTES + (i * many::THREADS + thread) * 16,
                      from.words + (uint64_t)cell * WORDS_BYTES + i * 128);
}

/* A thread's totals to their pairs. */
DEVICE void put_totals(const rn_expert_matmul_args &args, const slot &s, const shared<uint32_t> &pairs)
{
    shared<floats4> totals(MANY_TOTALS_AT, many::BATCH * many::TILES * many::THREADS);
    uint32_t lane = lane_of_warp(), warp_row = block_y() * RN_MANY_WEIGHTS + warp_of_block() * many::TILES * TILE_ROWS;

    for (uint32_t i = 0; i < many::TILES * many::BATCH; i++) {
        floats4 total = totals.get(i * many::THREADS + thread_of_block());
        UNROLL
        for (uint32_t k = 0; k < 4; k++) {
            uint32_t row = i % many::BATCH * 8 + lane % 4 * 2 + k % 2;
            uint32_t weight_row = warp_row + i / many::BATCH * TILE_ROWS + lane / 4 + k / 2 * 8;
            if (row < s.n && weight_row < args.rows)
                put_value(args, s, pairs.get(row), weight_row, total.v[k]);
        }
    }
}

/* shared   the stages; totals, as matmul_many's; the slot's pairs */
template <class F> DEVICE void expert_many(const rn_expert_matmul_args &args)
{
    slot s = slot_of_block(args, block_x());
    uint32_t cells = (args.cols + CELL - 1) / CELL, per = segment_cells(cells), left = per, copied = 0, stage = 0;
    shared<uint32_t> pairs(PAIRS_AT, RN_EXPERT_MANY);
    float acc[many::BATCH][many::TILES][4] = {};

    if (s.n == 0)
        return;
    if (thread_of_block() < s.n)
        pairs.put(thread_of_block(), pair_of(args, s, thread_of_block()));
    many::warp_weights<F> weights(matrix_of(args, s), args.rows, cells, block_y(), 0);
    many::clear_totals<1>(MANY_TOTALS_AT);
    sync_block();
    sources from = find_sources(args, s, pairs, cells);
    for (; copied < STAGES - 1; copied++) {
        if (copied < cells)
            copy_rows<F>(from, copied, copied * STAGE_BYTES);
        copy_commit();
    }
    for (uint32_t cell = 0; cell < cells; cell++, copied++) {
        copy_wait<STAGES - 2>();
        sync_block(); /* the cell's activations are there for all, and nobody reads the stage of the cell before */
        if (copied < cells)
            copy_rows<F>(from, copied, stage == 0 ? MANY_TOTALS_AT - STAGE_BYTES : stage - STAGE_BYTES);
        copy_commit();
        if (weights.works) {
            weights.turn(cell, cells);
            many::multiply_chunk<F, 1>(weights.raw, stage, acc);
            if (--left == 0 || cell + 1 == cells) {
                many::add_segment<1>(MANY_TOTALS_AT, acc);
                left = per;
            }
        }
        stage = stage + STAGE_BYTES < MANY_TOTALS_AT ? stage + STAGE_BYTES : 0;
    }
    if (weights.works)
        put_totals(args, s, pairs);
}

} // namespace grouped

RN_KERNEL(expert_group, rn_expert_matmul_args, 256, 4)
{
    grouped::expert_group(args);
}

RN_KERNEL(expert_split, rn_expert_matmul_args, 256, 4)
{
    grouped::expert_split(args);
}

#define EXPERTS_GROUPED(id, type)                                \
    RN_KERNEL(expert_few_##type, rn_expert_matmul_args, 256, 2)  \
    {                                                            \
        grouped::expert_few<format_##type>(args);                \
    }                                                            \
    RN_KERNEL(expert_many_##type, rn_expert_matmul_args, 256, 1) \
    {                                                            \
        grouped::expert_many<format_##type>(args);               \
    }
RN_KERNEL_TYPES(EXPERTS_GROUPED)
