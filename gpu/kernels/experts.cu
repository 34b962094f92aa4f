/* Experts: ROUTE, EXPERT_MATMUL and EXPERT_SUM. */
#include "gpu/kernels/products.cuh"
#include "model/gating.h"

namespace
{

enum : uint32_t { ROUTE_THREADS = 256, ROUTE_WARPS = ROUTE_THREADS / WARP };

/* An expert and by what it is compared; of equals, and of what cannot be compared, the lowest number is the best. */
struct alignas(8) candidate {
    float score;
    uint32_t id;
};

DEVICE bool is_better(const candidate &a, const candidate &b)
{
    return a.score > b.score || (!(b.score > a.score) && a.id < b.id);
}

/* The best of the experts [0, n) that are not taken, the same in each thread of the block. */
DEVICE candidate best_of_block(const shared<float> &scores, const shared<uint32_t> &taken, uint32_t n,
                               const shared<candidate> &bests)
{
    candidate best = {-INFINITY, UINT32_MAX};

    for (uint32_t e = thread_of_block(); e < n; e += ROUTE_THREADS) {
        candidate c = {scores.get(e), e};
        if (taken.get(e) == 0 && (best.id == UINT32_MAX || is_better(c, best)))
            best = c;
    }
    UNROLL
    for (uint32_t mask = 16; mask > 0; mask /= 2) {
        candidate c = {shuffle_xor(best.score, mask), shuffle_xor(best.id, mask)};
        if (c.id != UINT32_MAX && (best.id == UINT32_MAX || is_better(c, best)))
            best = c;
    }
    if (lane_of_warp() == 0)
        bests.put(warp_of_block(), best);
    sync_block();
    best = bests.get(0);
    for (uint32_t w = 1; w < ROUTE_WARPS; w++) {
        candidate c = bests.get(w);
        if (c.id != UINT32_MAX && (best.id == UINT32_MAX || is_better(c, best)))
            best = c;
    }
    sync_block();
    return best;
}

/* The largest logit, and the sum of e^(logit - largest) over all: by one thread, in order. */
DEVICE float sum_of_all(const global<float> &logits, uint64_t begin, uint32_t n, float *most)
{
    float sum = 0;

    *most = -INFINITY;
    for (uint32_t e = 0; e < n; e++)
        *most = fmaxf(*most, logits.get(begin + e));
    for (uint32_t e = 0; e < n; e++)
        sum += expf(logits.get(begin + e) - *most);
    return sum;
}

DEVICE float gate_of(uint32_t gating, float logit, float most, float sum)
{
    switch (gating) {
    case RN_GATING_SIGMOID:
        return 1.0f / (1.0f + expf(-logit));
    case RN_GATING_ROOT_SOFTPLUS:
        return sqrtf(fmaxf(logit, 0.0f) + log1pf(expf(-fabsf(logit))));
    case RN_GATING_CHOSEN:
        return logit;
    default:
        return expf(logit - most) / sum;
    }
}

/* Weights of the chosen, by one thread: gates [used]. */
DEVICE void weigh_chosen(const rn_route_args &args, const shared<float> &gates, const global<float> &weights)
{
    float most = -INFINITY, sum = 0;

    for (uint32_t j = 0; j < args.used; j++)
        most = fmaxf(most, gates.get(j));
    for (uint32_t j = 0; j < args.used; j++)
        sum += args.gating == RN_GATING_CHOSEN ? expf(gates.get(j) - most) : gates.get(j);
    for (uint32_t j = 0; j < args.used; j++) {
        float gate = gates.get(j), w;
        if (args.gating == RN_GATING_CHOSEN)
            w = expf(gate - most) / sum;
        else
            w = args.normalise != 0 ? gate / fmaxf(sum, args.eps) : gate;
        weights.put((uint64_t)block_x() * args.used + j, w * args.scale);
    }
}

/* Scores of experts that are in none of the best groups become -INFINITY. `of_groups` and `taken` have room for all
 * groups. */
DEVICE void keep_best_groups(const rn_route_args &args, const shared<float> &scores, const shared<float> &of_groups,
                             const shared<uint32_t> &taken, const shared<candidate> &bests)
{
    uint32_t size = args.experts / args.groups, thread = thread_of_block();

    for (uint32_t g = thread; g < args.groups; g += ROUTE_THREADS) {
        candidate first = {scores.get(g * size), 0}, second = {scores.get(g * size + 1), 1};
        if (is_better(second, first)) {
            candidate other = first;
            first = second;
            second = other;
        }
        for (uint32_t e = 2; e < size; e++) {
            candidate c = {scores.get(g * size + e), e};
            if (is_better(c, first)) {
                second = first;
                first = c;
            } else if (is_better(c, second)) {
                second = c;
            }
        }
        of_groups.put(g, first.score + second.score);
        taken.put(g, 0);
    }
    sync_block();
    for (uint32_t j = 0; j < args.best; j++) {
        candidate best = best_of_block(of_groups, taken, args.groups, bests);
        if (thread == 0)
            taken.put(best.id, 1);
        sync_block();
    }
    for (uint32_t e = thread; e < args.experts; e += ROUTE_THREADS)
        if (taken.get(e / size) == 0)
            scores.put(e, -INFINITY);
    sync_block();
}

} // namespace

/* A block has a row.
 *
 *   shared   the warps' bests, the softmax's largest logit and sum, scores [experts], whether each is taken [experts],
 *            gates of the chosen [used], scores of groups [groups], whether each is taken [groups] */
RN_KERNEL(route, rn_route_args, ROUTE_THREADS, 2)
{
    uint32_t n = args.experts, thread = thread_of_block();
    uint64_t begin = (uint64_t)block_x() * n;
    global<float> logits(args.a, (uint64_t)args.n_rows * n), weights(args.weights, (uint64_t)args.n_rows * args.used);
    global<int32_t> ids(args.ids, (uint64_t)args.n_rows * args.used);
    shared<candidate> bests(0, ROUTE_WARPS);
    shared<float> softmax(ROUTE_WARPS * 8, 2), scores(ROUTE_WARPS * 8 + 8, n), gates(ROUTE_WARPS * 8 + 8 + 8 * n, args.used);
    shared<uint32_t> taken(ROUTE_WARPS * 8 + 8 + 4 * n, n);
    uint32_t per = args.per > 1 ? args.per : 1, groups_at = ROUTE_WARPS * 8 + 8 + 8 * n + 4 * args.used;

    if (thread == 0) {
        float most, sum = sum_of_all(logits, begin, n, &most);
        softmax.put(0, most);
        softmax.put(1, sum);
    }
    sync_block();
    for (uint32_t e = thread; e < n; e += ROUTE_THREADS) {
        float logit = logits.get(begin + e), score = logit;
        if (args.more != 0 || args.groups > 1)
            score = gate_of(args.gating, logit, softmax.get(0), softmax.get(1));
        if (args.more != 0)
            score += global<float>(args.more, n).get(e);
        scores.put(e, score);
        taken.put(e, 0);
    }
    sync_block();
    if (args.groups > 1)
        keep_best_groups(args, scores, shared<float>(groups_at, args.groups),
                         shared<uint32_t>(groups_at + 4 * args.groups, args.groups), bests);
    for (uint32_t j = 0; j < args.used; j++) {
        candidate best = {0, 0};
        if (args.given == 0)
            best = best_of_block(scores, taken, n, bests);
        if (thread == 0) {
            uint32_t id = best.id / per;
            if (args.given != 0)
                id = (uint32_t)global<int32_t>(args.given, (uint64_t)args.n_rows * args.used)
                         .get((uint64_t)block_x() * args.used + j);
            else
                taken.put(best.id, 1);
            id = id < n ? id : 0; /* a table's are the file's */
            ids.put((uint64_t)block_x() * args.used + j, (int32_t)id);
            gates.put(j, gate_of(args.gating, logits.get(begin + id), softmax.get(0), softmax.get(1)));
        }
        sync_block();
    }
    if (thread == 0)
        weigh_chosen(args, gates, weights);
}

namespace
{

/* As matmul_few, for one row and one of its experts: a block has 16 rows of the expert's matrix, a warp a segment of
 * the columns. The bits are those of any product of products.cuh. */
template <class F> DEVICE void expert_matmul(const rn_expert_matmul_args &args)
{
    uint32_t cells = (args.cols + CELL - 1) / CELL, per = segment_cells(cells), lane = lane_of_warp(), pair = block_x();
    uint32_t begin = warp_of_block() * per, end = begin + per < cells ? begin + per : cells;
    uint32_t id = (uint32_t)global<int32_t>(args.ids, (uint64_t)args.n_rows * args.used).get(pair), weight_row;
    uint32_t row = args.per_expert_input != 0 ? pair : pair / args.used;
    uint64_t tile = (uint64_t)block_y() * tile_bytes(cells, F::UNIT_CELLS, F::UNIT_BYTES);
    bytes_at a(args.a);
    shared<float> sums(0, SEGMENTS * TILE_ROWS);
    float acc[4] = {0, 0, 0, 0}, total = 0;

    if (id >= args.experts) /* no id of a ROUTE */
        return;
    bytes_at weight(global<rn_address>(args.matrices, args.experts).get(id));
    for (uint32_t cell = begin; cell < end; cell++) {
        typename F::raw raw;
        F::read(weight, tile, cell, lane, raw);
        multiply_cell<F>(raw, a, lane / 4 == 0, row, args.cols, args.parts, cell, acc);
    }
    if (lane % 4 == 0) { /* the first column of the product */
        sums.put(warp_of_block() * TILE_ROWS + lane / 4, acc[0]);
        sums.put(warp_of_block() * TILE_ROWS + lane / 4 + 8, acc[2]);
    }
    sync_block();
    weight_row = block_y() * TILE_ROWS + thread_of_block();
    if (thread_of_block() >= TILE_ROWS || weight_row >= args.rows)
        return;
    for (uint32_t s = 0; s < SEGMENTS; s++)
        total += sums.get(s * TILE_ROWS + thread_of_block());
    if (args.bias != 0)
        total += global<float>(args.bias, (uint64_t)args.experts * args.rows).get((uint64_t)id * args.rows + weight_row);
    global<float>(args.out, (uint64_t)args.n_rows * args.used * args.rows)
        .put((uint64_t)pair * args.rows + weight_row, total);
}

} // namespace

#define EXPERT_MATMUL(id, type)                                     \
    RN_KERNEL(expert_matmul_##type, rn_expert_matmul_args, 256, 2)  \
    {                                                               \
        expert_matmul<format_##type>(args);                         \
    }
RN_KERNEL_TYPES(EXPERT_MATMUL)

/* A thread has a value of a row. */
RN_KERNEL(expert_sum, rn_expert_sum_args, 256, 4)
{
    uint64_t n = (uint64_t)args.n_rows * args.width, i = (uint64_t)block_x() * 256 + thread_of_block();
    uint64_t row = i / args.width, column = i % args.width;
    global<float> a(args.a, n * args.used);
    float sum = 0;

    if (i >= n)
        return;
    for (uint32_t j = 0; j < args.used; j++) {
        float value = a.get((row * args.used + j) * args.width + column);
        if (args.weights == 0)
            sum += value;
        else
            sum = fmaf(global<float>(args.weights, (uint64_t)args.n_rows * args.used).get(row * args.used + j), value, sum);
    }
    global<float>(args.out, n).put(i, sum);
}
