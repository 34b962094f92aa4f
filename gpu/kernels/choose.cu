/* CHOOSE: which positions attention looks at (kernels.h).
 *
 *   choose_scores   a block has 128 positions of a row, a thread one of them: its products with 32 heads at a time,
 *                   each one chain over the dimensions, and their sum over the heads in order
 *   choose_pick     a block has a row: the rank of the last that is chosen is found digit by digit, and the positions
 *                   of it and above are written in order. Where only some of that rank are chosen one thread goes the
 *                   way of cpu/chosen.c, which says which: that is rare where there are many heads */
#include "gpu/kernels/cache.cuh"

namespace
{

enum : uint32_t { SCORE_THREADS = 128, SCORE_HEADS = 32, PICK_THREADS = 512, PICK_WARPS = PICK_THREADS / WARP };
enum : uint32_t { DIGIT = 4, DIGITS = 1 << DIGIT }; /* as many digits as warps */

/* Where what a row is chosen with lies in shared memory, in bytes: counts of each digit and thread, of each digit, of
 * each warp, and the heap. */
enum : uint32_t {
    COUNTS_AT = 0,
    OF_DIGITS_AT = DIGITS * PICK_THREADS * 4,
    OF_WARPS_AT = OF_DIGITS_AT + DIGITS * 4,
    HEAP_AT = OF_WARPS_AT + PICK_WARPS * 4
};

template <uint32_t TYPE> DEVICE void choose_scores(const rn_choose_args &args)
{
    const rn_cache_args &cache = args.cache;
    uint32_t row = block_y(), n = args.first_row + args.n_rows, quads = cache.k_dim / 4;
    global<uint32_t> seqs(args.seqs, n), positions(args.positions, n);
    uint32_t last = positions.get(args.first_row + row), place;
    uint32_t position = block_x() * SCORE_THREADS + thread_of_block();
    global<float> q(args.q, (uint64_t)args.n_rows * args.heads * cache.k_dim);
    global<float> weights(args.weights, (uint64_t)args.n_rows * args.heads);
    shared<float> own(0, SCORE_HEADS * cache.k_dim);
    shared<floats4> queries(0, SCORE_HEADS * quads);
    bytes_at keys(cache.keys);
    uint64_t at = 0;
    float score = 0;

    if (block_x() * SCORE_THREADS > last)
        return;
    if (position <= last) {
        place = position;
        if (args.places != 0)
            place = seen_place(positions, global<uint32_t>(args.places, n), global<uint32_t>(args.parents, n),
                               args.first_row + row, position);
        at = row_at(cache, place_of(cache, seqs.get(args.first_row + row), place), 0, kv_row_bytes(TYPE, cache.k_dim));
    }
    for (uint32_t head = 0; head < args.heads; head += SCORE_HEADS) {
        float products[SCORE_HEADS] = {};
        sync_block();
        for (uint32_t i = thread_of_block(); i < SCORE_HEADS * cache.k_dim; i += SCORE_THREADS)
            own.put(i, head + i / cache.k_dim < args.heads
                           ? q.get(((uint64_t)row * args.heads + head) * cache.k_dim + i)
                           : 0.0f);
        sync_block();
        for (uint32_t d = 0; d < quads && position <= last; d++) {
            floats4 k = kv_numbers<TYPE>::read(keys, at, cache.k_dim, d * 4);
            UNROLL
            for (uint32_t h = 0; h < SCORE_HEADS; h++) {
                floats4 v = queries.get(h * quads + d);
                UNROLL
                for (uint32_t j = 0; j < 4; j++)
                    products[h] = fmaf(v.v[j], k.v[j], products[h]);
            }
        }
        UNROLL
        for (uint32_t h = 0; h < SCORE_HEADS; h++)
            if (head + h < args.heads && products[h] > 0)
                score = fmaf(args.weights == 0 ? (h % 2 == 0 ? 1.0f : -1.0f)
                                               : weights.get((uint64_t)row * args.heads + head + h),
                             products[h], score);
    }
    if (position <= last)
        global<float>(args.scores, (uint64_t)args.n_rows * args.longest).put((uint64_t)row * args.longest + position,
                                                                            score);
}

static_assert((uint32_t)DIGITS == (uint32_t)PICK_WARPS, "a warp counts a digit");

/* Ascends with the score; what is no number comes first, and both zeros are equal. */
DEVICE uint32_t rank_of(float score)
{
    uint32_t bits = bits_of(score + 0.0f);

    if (score != score)
        return 0;
    return bits ^ ((bits >> 31) != 0 ? 0xffffffffu : 0x80000000u);
}

/* How many are chosen: positions, or blocks of them. */
DEVICE uint32_t most_of(const rn_choose_args &args)
{
    return args.per > 1 ? args.used / args.per : args.used;
}

/* The position, or all of the block's, of n, is the `at`-th of row `row` of out that is chosen. */
DEVICE void write_chosen(const rn_choose_args &args, uint32_t n, uint32_t at, uint32_t chosen)
{
    global<int32_t> out(args.out, (uint64_t)args.n_rows * args.used);
    uint64_t begin = (uint64_t)block_x() * args.used;

    if (args.per <= 1)
        out.put(begin + at, (int32_t)chosen);
    for (uint32_t i = 0; args.per > 1 && i < args.per; i++)
        out.put(begin + (uint64_t)at * args.per + i,
                chosen * args.per + i < n ? (int32_t)(chosen * args.per + i) : -1);
}

/* A row's scores. */
struct row_scores {
    global<float> all;
    uint64_t begin;

    DEVICE row_scores(const rn_choose_args &args)
        : all(args.scores, (uint64_t)args.n_rows * args.longest), begin((uint64_t)block_x() * args.longest)
    {
    }
    DEVICE uint32_t rank(uint32_t position) const
    {
        return rank_of(all.get(begin + position));
    }
};

/* The rank of the `left`-th largest of n; *left becomes how many of that rank are chosen, *many how many there are. */
DEVICE uint32_t rank_at(const row_scores &scores, uint32_t n, uint32_t *left, uint32_t *many)
{
    shared<uint32_t> of_threads(COUNTS_AT, DIGITS * PICK_THREADS), of_digits(OF_DIGITS_AT, DIGITS);
    uint32_t rank = 0, thread = thread_of_block();

    for (uint32_t shift = 32; shift > 0;) {
        uint32_t counts[DIGITS] = {}, digit = DIGITS - 1, sum = 0;
        shift -= DIGIT;
        for (uint32_t i = thread; i < n; i += PICK_THREADS) {
            uint32_t r = scores.rank(i);
            UNROLL
            for (uint32_t d = 0; d < DIGITS; d++)
                counts[d] += r >> shift == (rank << DIGIT | d) ? 1 : 0;
        }
        UNROLL
        for (uint32_t d = 0; d < DIGITS; d++)
            of_threads.put(d * PICK_THREADS + thread, counts[d]);
        sync_block();
        UNROLL
        for (uint32_t i = 0; i < PICK_THREADS / WARP; i++) /* a warp has a digit */
            sum += of_threads.get(warp_of_block() * PICK_THREADS + i * WARP + lane_of_warp());
        UNROLL
        for (uint32_t mask = 16; mask > 0; mask /= 2)
            sum += shuffle_xor(sum, mask);
        if (lane_of_warp() == 0)
            of_digits.put(warp_of_block(), sum);
        sync_block();
        for (; of_digits.get(digit) < *left; digit--)
            *left -= of_digits.get(digit);
        *many = of_digits.get(digit);
        rank = rank << DIGIT | digit;
    }
    return rank;
}

/* The score of block `b` of n positions: ops.def. */
DEVICE float score_of_block(const rn_choose_args &args, const row_scores &scores, uint32_t n, uint32_t b)
{
    uint32_t p = b * args.per, end = p + args.per < n ? p + args.per : n;
    float score = scores.all.get(scores.begin + (args.best > 0 ? p : end - 1)), more;

    for (; args.best > 0 && p < end; p++) {
        more = scores.all.get(scores.begin + p);
        score = more > score || score != score ? more : score;
    }
    return score;
}

/* Scores of n positions become those of their blocks, as many as are returned. What is written in a round is before
 * what later rounds read. */
DEVICE uint32_t score_blocks(const rn_choose_args &args, const row_scores &scores, uint32_t n)
{
    uint32_t blocks = args.best > 0 ? (n + args.per - 1) / args.per : n / args.per;

    for (uint32_t from = 0; from < blocks; from += PICK_THREADS) {
        uint32_t b = from + thread_of_block();
        float score = b < blocks ? score_of_block(args, scores, n, b) : 0.0f;

        sync_block();
        if (b < blocks)
            scores.all.put(scores.begin + b, b + args.best >= blocks && args.best > 0 ? float_of(0x7f800000u) : score);
        sync_block();
    }
    return blocks;
}

/* All positions or blocks of this rank and above, of n, ascending: a thread has a run of them. `all`: positions. */
DEVICE void write_from(const rn_choose_args &args, const row_scores &scores, uint32_t n, uint32_t rank, uint32_t all)
{
    shared<uint32_t> of_warps(OF_WARPS_AT, PICK_WARPS);
    uint32_t per = (n + PICK_THREADS - 1) / PICK_THREADS, begin = thread_of_block() * per, lane = lane_of_warp();
    uint32_t end = begin + per < n ? begin + per : n, own = 0, sum, at;

    for (uint32_t i = begin; i < end; i++)
        own += scores.rank(i) >= rank ? 1 : 0;
    sum = own;
    UNROLL
    for (uint32_t d = 1; d < WARP; d *= 2) {
        uint32_t before = shuffle(sum, (lane - d) % WARP);
        sum += lane >= d ? before : 0;
    }
    if (lane == WARP - 1)
        of_warps.put(warp_of_block(), sum);
    sync_block();
    at = sum - own;
    for (uint32_t w = 0; w < warp_of_block(); w++)
        at += of_warps.get(w);
    for (uint32_t i = begin; i < end; i++)
        if (scores.rank(i) >= rank)
            write_chosen(args, all, at++, i);
}

/* The position goes to the hole `at` of the heap [n], or below: cpu/chosen.c. */
DEVICE void sift(const row_scores &scores, const shared<int32_t> &heap, uint32_t n, uint32_t at, int32_t position)
{
    uint32_t top = at;

    for (uint32_t child = 2 * at + 2; child <= n; child = 2 * at + 2) {
        if (child == n || scores.rank((uint32_t)heap.get(child)) > scores.rank((uint32_t)heap.get(child - 1)))
            child--;
        heap.put(at, heap.get(child));
        at = child;
    }
    for (; at > top && scores.rank((uint32_t)heap.get((at - 1) / 2)) > scores.rank((uint32_t)position);
         at = (at - 1) / 2)
        heap.put(at, heap.get((at - 1) / 2));
    heap.put(at, position);
}

/* The largest of n, as many as are chosen, of equal ones those that cpu/chosen.c keeps: by one thread; then sorted,
 * where each counts those that are before it. */
DEVICE void write_some(const rn_choose_args &args, const row_scores &scores, uint32_t n, uint32_t all)
{
    uint32_t most = most_of(args);
    shared<int32_t> heap(HEAP_AT, most);

    if (thread_of_block() == 0) {
        for (uint32_t i = 0; i < most; i++)
            heap.put(i, (int32_t)i);
        for (uint32_t i = most / 2; i-- > 0;)
            sift(scores, heap, most, i, heap.get(i));
        for (uint32_t i = most; i < n; i++)
            if (scores.rank(i) > scores.rank((uint32_t)heap.get(0)))
                sift(scores, heap, most, 0, (int32_t)i);
    }
    sync_block();
    for (uint32_t i = thread_of_block(); i < most; i += PICK_THREADS) {
        int32_t chosen = heap.get(i);
        uint32_t at = 0;
        for (uint32_t j = 0; j < most; j++)
            at += heap.get(j) < chosen ? 1 : 0;
        write_chosen(args, all, at, (uint32_t)chosen);
    }
}

/* What stands behind whole blocks: the positions [from, n), and -1. */
DEVICE void write_rest(const rn_choose_args &args, uint32_t from, uint32_t n)
{
    global<int32_t> out(args.out, (uint64_t)args.n_rows * args.used);
    uint32_t at = most_of(args) * args.per;

    for (uint32_t i = at + thread_of_block(); i < args.used; i += PICK_THREADS)
        out.put((uint64_t)block_x() * args.used + i, from + i - at < n ? (int32_t)(from + i - at) : -1);
}

} // namespace

#define CHOOSE_SCORES(id, type)                                                \
    RN_KERNEL(choose_scores_##type, rn_choose_args, SCORE_THREADS, 4)          \
    {                                                                          \
        choose_scores<id>(args);                                               \
    }
RN_KERNEL_KV_TYPES(CHOOSE_SCORES)

RN_KERNEL(choose_pick, rn_choose_args, PICK_THREADS, 2)
{
    global<uint32_t> positions(args.positions, args.first_row + args.n_rows);
    uint32_t n = positions.get(args.first_row + block_x()) + 1, left = most_of(args), many = n, among = n, rank;
    global<int32_t> out(args.out, (uint64_t)args.n_rows * args.used);
    row_scores scores(args);

    if (n <= args.used) {
        for (uint32_t i = thread_of_block(); i < args.used; i += PICK_THREADS)
            out.put((uint64_t)block_x() * args.used + i, i < n ? (int32_t)i : -1);
        return;
    }
    if (args.per > 1) {
        among = score_blocks(args, scores, n);
        write_rest(args, among * args.per, n);
    }
    rank = rank_at(scores, among, &left, &many);
    if (left == many)
        write_from(args, scores, among, rank, n);
    else
        write_some(args, scores, among, n);
}
