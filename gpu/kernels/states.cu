/* Ops with a recurrent state (model/ops.def): CONV, SHIFT, WKV6, WKV7, GATED_DELTA, SCAN, and copies of whole states.
 *
 *   state of CONV, SHIFT      the last rows of a, the oldest first [(taps - 1) * span][width]
 *   state of the others       S [k_dim][columns] of each head, columns are v_dim; where each head of a SCAN has one value
 *                             and decays of its own, all heads are columns of one S [k_dim][heads]
 *
 * The columns of S do not know of each other. A block has 32 columns of one head and one sequence, and goes through the
 * sequence's rows in order. A column belongs to four lanes: lane p has the rows i of S with i / 4 % 4 = p, in registers
 * as long as the launch lasts where k_dim is known to be small (HELD of them), else in memory. With the row's q, k, w,
 * x, y [k_dim] and v, u [columns], all staged in shared memory some rows ahead:
 *
 *     BEFORE    out = q S + (x 1) v;  S = w S + k v          x = q weight k: WKV6
 *     AFTER     S = w S + k v;  out = scale q S + u          GLA, SCAN
 *     ERASES    e = x S;  S = w S + k v + y e;  out = scale q S                           WKV7
 *     DELTA     e = x S;  S = w S + k (v + e);  out = scale q S      x = -beta w k, v times beta: GATED_DELTA
 *     CHANNELS  as AFTER, with w = e^(dt A) of each number of S
 *
 * Law 5: sums go over a lane's rows in order, then over the four lanes: k_dim alone decides. S is the same float in a
 * register and in memory, so that it does not matter where a step ends. */
#include "gpu/kernels/values.cuh"

/* Its names are its own: all kernels are one source for nvcc (all.cu). */
namespace recurrent
{

enum : uint32_t { PARTS = 4, EACH = 4, STEP = PARTS * EACH, THREADS = 128, COLUMNS = THREADS / PARTS };
enum : uint32_t { BEFORE, AFTER, ERASES, DELTA, CHANNELS };

/* A sequence's rows in the step, and its state in this layer. */
struct run {
    uint32_t first, n;
    global<float> state;
};

DEVICE run run_of(const rn_states_args &args, uint32_t seq)
{
    uint64_t slot = global<uint32_t>(args.slots, args.n_seqs).get(seq);

    return run{global<uint32_t>(args.firsts, args.n_seqs).get(seq), global<uint32_t>(args.counts, args.n_seqs).get(seq),
               global<float>(args.states + slot * args.stride_bytes, args.n)};
}

/* ---- The rows before ---- */

/* Rows that a row looks back. */
DEVICE uint32_t before(const rn_conv_args &args)
{
    return (args.taps - 1) * args.span;
}

/* Channel c of the i-th row of a run; before the first one stands what the state has. */
DEVICE float input(const rn_conv_args &args, const run &r, int32_t i, uint32_t c)
{
    if (i < 0)
        return r.state.get((uint64_t)(i + (int32_t)before(args)) * args.width + c);
    return global<float>(args.a, (uint64_t)args.states.n_rows * args.width).get((uint64_t)(r.first + i) * args.width + c);
}

DEVICE void put_out(const rn_conv_args &args, const run &r, uint32_t i, uint32_t c, float value)
{
    global<float>(args.out, (uint64_t)args.states.n_rows * args.width).put((uint64_t)(r.first + i) * args.width + c, value);
}

DEVICE float convolve(const rn_conv_args &args, const run &r, int32_t i, uint32_t c)
{
    global<float> weight(args.weight, (uint64_t)args.width * args.taps);
    float sum = args.bias == 0 ? 0 : global<float>(args.bias, args.width).get(c);
    int32_t first = i + (int32_t)(args.ahead - before(args));
    uint32_t known = i + args.ahead < r.n ? args.taps : r.n - (uint32_t)first; /* behind the last row are zeros */

    for (uint32_t j = 0; j < known; j++)
        sum = fmaf(weight.get((uint64_t)c * args.taps + j), input(args, r, first + (int32_t)(j * args.span), c), sum);
    return args.activated != 0 ? activate(args.act, sum) : sum;
}

/* What a row of the step is to a launch over [n_seqs + n_rows]: a block of the first n_seqs has a sequence's first
 * rows, which look at its state, and the state; one behind them has a row that looks at rows alone. False: there is
 * nothing to do. */
DEVICE bool row_of(const rn_conv_args &args, uint32_t *seq, uint32_t *row)
{
    *seq = block_y();
    *row = 0;
    if (block_y() < args.states.n_seqs)
        return true;
    *row = block_y() - args.states.n_seqs;
    *seq = global<uint32_t>(args.seqs, args.states.n_rows).get(*row);
    *row -= global<uint32_t>(args.states.firsts, args.states.n_seqs).get(*seq);
    return *row + args.ahead >= before(args);
}

RN_KERNEL(conv, rn_conv_args, 256, 4)
{
    uint32_t c = block_x() * 256 + thread_of_block(), seq, row;

    if (c >= args.width || !row_of(args, &seq, &row))
        return;
    run r = run_of(args.states, seq);
    if (row > 0) {
        put_out(args, r, row, c, convolve(args, r, (int32_t)row, c));
        return;
    }
    for (uint32_t i = 0; args.ahead > 0 && i < before(args); i++)
        r.state.put((uint64_t)i * args.width + c, 0);
    for (uint32_t i = 0; i < r.n && i + args.ahead < before(args); i++)
        put_out(args, r, i, c, convolve(args, r, (int32_t)i, c));
    for (uint32_t i = 0; r.n > 0 && i < before(args); i++) /* upwards: a row of the state comes from one behind it */
        r.state.put((uint64_t)i * args.width + c, input(args, r, (int32_t)(r.n + i - before(args)), c));
}

/* ---- Rows of blocks ---- */

/* What a channel of a position counts, and by how much: of a row of the step, or what the state has of one before. */
struct counted {
    float value, score;
};

DEVICE counted counted_at(const rn_compress_args &args, const run &r, uint32_t first_position, int64_t position,
                          uint32_t channel)
{
    uint32_t width = args.parts * args.k_dim, n = args.parts * args.per;
    uint64_t at;

    if (position < first_position) {
        at = (uint64_t)(position % n) * 2 * width + channel;
        return counted{r.state.get(at), r.state.get(at + width)};
    }
    at = (r.first + (uint64_t)(position - first_position)) * width + channel;
    return counted{global<float>(args.a, (uint64_t)args.states.n_rows * width).get(at),
                   global<float>(args.b, (uint64_t)args.states.n_rows * width).get(at) +
                       global<float>(args.weight, (uint64_t)args.per * width)
                           .get((uint64_t)(position % args.per) * width + channel)};
}

/* Number c of the block whose last position that is. */
DEVICE float compressed(const rn_compress_args &args, const run &r, uint32_t first_position, uint32_t last, uint32_t c)
{
    uint32_t n = args.parts * args.per, begin = last + 1 < n ? n - (last + 1) : 0;
    float most = -INFINITY, total = 0, sum = 0;

    for (uint32_t k = begin; k < n; k++)
        most = fmaxf(most, counted_at(args, r, first_position, (int64_t)last + 1 + k - n, k / args.per * args.k_dim + c)
                               .score);
    for (uint32_t k = begin; k < n; k++) {
        counted one = counted_at(args, r, first_position, (int64_t)last + 1 + k - n, k / args.per * args.k_dim + c);
        float weight = expf(one.score - most);
        total += weight;
        sum = fmaf(weight, one.value, sum);
    }
    return sum / total;
}

DEVICE void compress_row(const rn_compress_args &args, const run &r, uint32_t first_position, uint32_t i, uint32_t c)
{
    uint32_t position = first_position + i;
    float value = (position + 1) % args.per == 0 ? compressed(args, r, first_position, position, c) : 0.0f;

    global<float>(args.out, (uint64_t)args.states.n_rows * args.k_dim)
        .put((uint64_t)(r.first + i) * args.k_dim + c, value);
}

/* A block of the first n_seqs has a sequence's first rows, which look at its state, and the state; one behind them has
 * a row that looks at rows alone. */
RN_KERNEL(compress, rn_compress_args, 64, 4)
{
    uint32_t c = block_x() * 64 + thread_of_block(), seq = block_y(), n = args.parts * args.per, row = 0;
    uint32_t width = args.parts * args.k_dim;

    if (c >= args.k_dim)
        return;
    if (block_y() >= args.states.n_seqs) {
        row = block_y() - args.states.n_seqs;
        seq = global<uint32_t>(args.seqs, args.states.n_rows).get(row);
        row -= global<uint32_t>(args.states.firsts, args.states.n_seqs).get(seq);
        if (row + 1 < n)
            return;
    }
    run r = run_of(args.states, seq);
    if (r.n == 0)
        return;
    uint32_t position = global<uint32_t>(args.positions, args.states.n_rows).get(r.first);
    if (row > 0 || block_y() >= args.states.n_seqs) {
        compress_row(args, r, position, row, c);
        return;
    }
    for (uint32_t i = 0; i < r.n && i + 1 < n; i++)
        compress_row(args, r, position, i, c);
    for (uint32_t i = r.n > n ? r.n - n : 0; i < r.n; i++)
        for (uint32_t part = 0; part < args.parts; part++) {
            uint32_t channel = part * args.k_dim + c;
            uint64_t at = (uint64_t)((position + i) % n) * 2 * width + channel;
            counted one = counted_at(args, r, position, (int64_t)position + i, channel);
            r.state.put(at, one.value);
            r.state.put(at + width, one.score);
        }
}

/* taps is 2, span 1. */
RN_KERNEL(shift, rn_conv_args, 256, 4)
{
    uint32_t c = block_x() * 256 + thread_of_block(), seq, row;

    if (c >= args.width || !row_of(args, &seq, &row))
        return;
    run r = run_of(args.states, seq);
    if (r.n > 0)
        put_out(args, r, row, c, input(args, r, (int32_t)row - 1, c));
    if (r.n > 0 && row == 0)
        r.state.put(c, input(args, r, (int32_t)r.n - 1, c));
}

/* A block has 1024 words4 of a copy. */
RN_KERNEL(copy_states, rn_copy_states_args, 256, 4)
{
    global<uint32_t> copies(args.copies, 2 * (uint64_t)args.n_copies);
    uint32_t from = copies.get(block_y() * 2), to = copies.get(block_y() * 2 + 1);
    uint64_t all = args.stride_bytes / sizeof(words4);
    global<words4> states(args.states, args.n_states * all);

    UNROLL
    for (uint32_t j = 0; j < 4; j++) {
        uint64_t i = (uint64_t)block_x() * 1024 + j * 256 + thread_of_block();
        words4 value = {{0, 0, 0, 0}};
        if (i >= all)
            continue;
        if (from < args.n_states)
            value = states.get(from * all + i);
        states.put(to * all + i, value);
    }
}

/* ---- Linear attention and scans ---- */

/* Where the columns of a block stand. */
struct place {
    uint32_t head, first, columns; /* columns [first, first + 32) of so many */
    uint32_t of;                   /* the head of q and k */
};

DEVICE place place_of(const rn_linear_args &args)
{
    bool by_channel = args.kind == RN_LINEAR_CHANNELS;
    uint32_t columns = by_channel ? args.heads : args.v_dim, parts = (columns + COLUMNS - 1) / COLUMNS;
    uint32_t head = block_x() / parts;
    uint32_t of = args.tiled != 0 ? head % args.kv_heads : head / (args.heads / args.kv_heads);

    return place{head, block_x() % parts * COLUMNS, columns, of};
}

/* The block's shared memory: of each staged row five vectors of k_dim, to a multiple of STEP and with zeros behind it,
 * and three of the block's columns. */
enum : uint32_t { Q, K, W, X, Y, VECTORS, V = 0, U, DT, VALUES };

struct staging {
    uint32_t width, rows;
    shared<float> numbers;
    shared<floats4> fours;

    DEVICE staging(uint32_t k_dim)
        : width((k_dim + STEP - 1) / STEP * STEP), rows(width <= RN_LINEAR_STAGED_DIM ? RN_LINEAR_STAGED : 1),
          numbers(0, rows * (VECTORS * width + VALUES * COLUMNS)),
          fours(0, rows * (VECTORS * width + VALUES * COLUMNS) / 4)
    {
    }
    DEVICE uint32_t row_at(uint32_t row) const
    {
        return row * (VECTORS * width + VALUES * COLUMNS);
    }
    DEVICE floats4 four(uint32_t row, uint32_t vector, uint32_t i) const
    {
        return fours.get((row_at(row) + vector * width + i) / 4);
    }
    DEVICE float value(uint32_t row, uint32_t which, uint32_t column) const
    {
        return numbers.get(row_at(row) + VECTORS * width + which * COLUMNS + column);
    }
    DEVICE void put(uint32_t row, uint32_t vector, uint32_t i, float number) const
    {
        numbers.put(row_at(row) + vector * width + i, number);
    }
    DEVICE void put_value(uint32_t row, uint32_t which, uint32_t column, float number) const
    {
        numbers.put(row_at(row) + VECTORS * width + which * COLUMNS + column, number);
    }
};

/* Views of a row of a and b. */
struct row_view {
    global<float> a, b;
    uint64_t at_a, at_b;

    DEVICE row_view(const rn_linear_args &args, uint32_t row)
        : a(args.a, (uint64_t)args.states.n_rows * args.a_width), b(args.b, (uint64_t)args.states.n_rows * args.b_width),
          at_a((uint64_t)row * args.a_width), at_b((uint64_t)row * args.b_width)
    {
    }
    DEVICE float of_a(uint32_t i) const
    {
        return a.get(at_a + i);
    }
    DEVICE float of_b(uint32_t i) const
    {
        return b.get(at_b + i);
    }
};

DEVICE void stage_wkv(const rn_linear_args &args, const place &at, const staging &room, const row_view &view, uint32_t row,
                      uint32_t i)
{
    uint32_t all = args.heads * args.k_dim, own = at.head * args.k_dim + i;
    float q = view.of_a(own), k = view.of_a(all + own);

    room.put(row, Q, i, q);
    room.put(row, K, i, k);
    room.put(row, W, i, view.of_b(own));
    if (args.kind == RN_LINEAR_WKV6)
        room.put(row, X, i, q * global<float>(args.weight, all).get(own) * k);
    if (args.kind == RN_LINEAR_WKV7) {
        room.put(row, X, i, view.of_b(all + own));
        room.put(row, Y, i, view.of_b(2 * all + own));
    }
}

DEVICE void stage_delta(const rn_linear_args &args, const place &at, const staging &room, const row_view &view, uint32_t row,
                        uint32_t i)
{
    uint32_t values = args.heads * args.v_dim, betas = values + args.heads * args.group;
    float k = view.of_a((args.kv_heads + at.of) * args.k_dim + i);
    float w = view.of_b(values + at.head * args.group + (args.group == 1 ? 0 : i));

    room.put(row, Q, i, view.of_a(at.of * args.k_dim + i));
    room.put(row, K, i, k);
    room.put(row, W, i, w);
    room.put(row, X, i, -view.of_b(betas + at.head) * w * k);
}

DEVICE void stage_scan(const rn_linear_args &args, const place &at, const staging &room, const row_view &view, uint32_t row,
                       uint32_t i)
{
    uint32_t b = args.heads * args.v_dim, group = args.kind == RN_LINEAR_CHANNELS ? 0 : at.of;

    room.put(row, K, i, view.of_a(b + group * args.k_dim + i));
    room.put(row, Q, i, view.of_a(b + (args.kv_heads + group) * args.k_dim + i));
    if (args.kind == RN_LINEAR_SCAN)
        room.put(row, W, i, expf(view.of_b(at.head) * global<float>(args.weight, args.heads).get(at.head)));
}

/* Column j of the block. */
DEVICE void stage_values(const rn_linear_args &args, const place &at, const staging &room, const row_view &view, uint32_t row,
                         uint32_t j)
{
    bool is_one = at.first + j < at.columns, by_channel = args.kind == RN_LINEAR_CHANNELS;
    uint32_t own = is_one ? at.head * at.columns + at.first + j : 0, head = by_channel ? own : at.head;
    float v = 0, u = 0, dt = 0;

    if (!is_one) {
    } else if (args.kind == RN_LINEAR_DELTA) {
        v = view.of_b(own) * view.of_b(args.heads * (args.v_dim + args.group) + head);
    } else if (args.kind == RN_LINEAR_SCAN || by_channel) {
        dt = view.of_b(head);
        v = view.of_a(own);
        u = args.bias == 0 ? 0 : global<float>(args.bias, args.heads).get(head) * v;
        v *= dt;
    } else {
        v = view.of_a(2 * args.heads * args.k_dim + own);
    }
    room.put_value(row, V, j, v);
    room.put_value(row, U, j, u);
    room.put_value(row, DT, j, dt);
}

/* Rows [row, row + n) of the step, all threads together. */
DEVICE void stage(const rn_linear_args &args, const place &at, const staging &room, uint32_t row, uint32_t n)
{
    for (uint32_t i = thread_of_block(); i < n * room.width; i += THREADS) {
        uint32_t r = i / room.width, k = i % room.width;
        row_view view(args, row + r);
        if (k >= args.k_dim) {
            UNROLL
            for (uint32_t j = 0; j < VECTORS; j++)
                room.put(r, j, k, 0);
        } else if (args.kind == RN_LINEAR_DELTA) {
            stage_delta(args, at, room, view, r, k);
        } else if (args.kind == RN_LINEAR_SCAN || args.kind == RN_LINEAR_CHANNELS) {
            stage_scan(args, at, room, view, r, k);
        } else {
            stage_wkv(args, at, room, view, r, k);
        }
    }
    for (uint32_t i = thread_of_block(); i < n * COLUMNS; i += THREADS)
        stage_values(args, at, room, row_view(args, row + i / COLUMNS), i / COLUMNS, i % COLUMNS);
}

/* A lane's numbers of its column: number j of step n is row n * STEP + part * EACH + j. */
struct lane_place {
    global<float> state;
    uint64_t at; /* of row part * EACH */
    uint32_t stride, first, rows;
    bool is_one;

    DEVICE bool has(uint32_t n, uint32_t j) const
    {
        return is_one && first + n * STEP + j < rows;
    }
    DEVICE float get(uint32_t n, uint32_t j) const
    {
        return has(n, j) ? state.get(at + (uint64_t)(n * STEP + j) * stride) : 0;
    }
    DEVICE void put(uint32_t n, uint32_t j, float value) const
    {
        if (has(n, j))
            state.put(at + (uint64_t)(n * STEP + j) * stride, value);
    }
};

/* In registers, or where HELD is 0 in memory, which only this lane touches. */
template <uint32_t HELD> struct numbers {
    float s[HELD];

    DEVICE void begin(const lane_place &lane)
    {
        UNROLL
        for (uint32_t i = 0; i < HELD; i++)
            s[i] = lane.get(i / EACH, i % EACH);
    }
    DEVICE float get(const lane_place &, uint32_t n, uint32_t j) const
    {
        return s[n * EACH + j];
    }
    DEVICE void put(const lane_place &, uint32_t n, uint32_t j, float value)
    {
        s[n * EACH + j] = value;
    }
    DEVICE void end(const lane_place &lane) const
    {
        UNROLL
        for (uint32_t i = 0; i < HELD; i++)
            lane.put(i / EACH, i % EACH, s[i]);
    }
};
template <> struct numbers<0> {
    DEVICE void begin(const lane_place &)
    {
    }
    DEVICE float get(const lane_place &lane, uint32_t n, uint32_t j) const
    {
        return lane.get(n, j);
    }
    DEVICE void put(const lane_place &lane, uint32_t n, uint32_t j, float value)
    {
        lane.put(n, j, value);
    }
    DEVICE void end(const lane_place &) const
    {
    }
};

DEVICE float sum_of_parts(float sum)
{
    sum += shuffle_xor(sum, 1);
    sum += shuffle_xor(sum, 2);
    return sum;
}

/* The steps of a lane that there can be; of these only those below `steps` are. */
template <uint32_t HELD> DEVICE uint32_t most_steps(uint32_t steps)
{
    return HELD > 0 ? HELD / EACH : steps;
}

/* e = x S */
template <uint32_t HELD>
DEVICE float product(const staging &room, const numbers<HELD> &s, const lane_place &lane, uint32_t row, uint32_t vector)
{
    uint32_t steps = room.width / STEP;
    float sum = 0;

    UNROLL
    for (uint32_t n = 0; n < most_steps<HELD>(steps); n++) {
        if (n >= steps)
            continue;
        floats4 x = room.four(row, vector, n * STEP + lane.first);
        UNROLL
        for (uint32_t j = 0; j < EACH; j++)
            sum = fmaf(x.v[j], s.get(lane, n, j), sum);
    }
    return sum_of_parts(sum);
}

/* One number of S behind the row; v is v + e where the rule says so. */
template <uint32_t RULE> DEVICE float next(float s, float w, float k, float v, float y, float e)
{
    s = fmaf(w, s, k * v);
    return RULE == ERASES ? fmaf(y, e, s) : s;
}

/* The sum x 1, of the rule BEFORE. */
DEVICE float sum_of_vector(const staging &room, const lane_place &lane, uint32_t row)
{
    float sum = 0;

    for (uint32_t i = lane.first; i < room.width; i += STEP) {
        floats4 x = room.four(row, X, i);
        UNROLL
        for (uint32_t j = 0; j < EACH; j++)
            sum += x.v[j];
    }
    return sum_of_parts(sum);
}

/* A row of the lane's column: what it gives, without scale and u. */
template <uint32_t RULE, uint32_t HELD>
DEVICE float one_row(const rn_linear_args &args, const staging &room, numbers<HELD> &s, const numbers<HELD> &decays,
                     const lane_place &lane, const lane_place &of_decays, uint32_t row, uint32_t column)
{
    float v = room.value(row, V, column), e = 0, sum = 0, dt = 0;
    uint32_t steps = room.width / STEP;

    (void)args;
    if (RULE == ERASES || RULE == DELTA)
        e = product<HELD>(room, s, lane, row, X);
    if (RULE == DELTA)
        v += e;
    if (RULE == CHANNELS)
        dt = room.value(row, DT, column);
    UNROLL
    for (uint32_t n = 0; n < most_steps<HELD>(steps); n++) {
        if (n >= steps)
            continue;
        uint32_t i = n * STEP + lane.first;
        floats4 q = room.four(row, Q, i), k = room.four(row, K, i), w = {{0, 0, 0, 0}}, y = {{0, 0, 0, 0}};
        if (RULE != CHANNELS)
            w = room.four(row, W, i);
        if (RULE == ERASES)
            y = room.four(row, Y, i);
        UNROLL
        for (uint32_t j = 0; j < EACH; j++) {
            float before = s.get(lane, n, j), after;
            if (RULE == CHANNELS)
                w.v[j] = expf(dt * decays.get(of_decays, n, j));
            after = next<RULE>(before, w.v[j], k.v[j], v, y.v[j], e);
            s.put(lane, n, j, after);
            sum = fmaf(q.v[j], RULE == BEFORE ? before : after, sum);
        }
    }
    sum = sum_of_parts(sum);
    return RULE == BEFORE ? fmaf(sum_of_vector(room, lane, row), v, sum) : sum;
}

template <uint32_t RULE, uint32_t HELD> DEVICE void recur(const rn_linear_args &args)
{
    staging staged(args.k_dim);
    run r = run_of(args.states, block_y());
    place at = place_of(args);
    uint32_t column = thread_of_block() / PARTS, first = thread_of_block() % PARTS * EACH, own = at.first + column;
    bool is_one = own < at.columns;
    lane_place lane = {r.state, (uint64_t)(at.head * args.k_dim + first) * at.columns + own, at.columns, first, args.k_dim,
                       is_one};
    /* The weight of CHANNELS is [heads][k_dim]. */
    lane_place of_decays = {global<float>(args.weight, RULE == CHANNELS ? (uint64_t)args.heads * args.k_dim : 0),
                            (uint64_t)own * args.k_dim + first, 1, first, args.k_dim, is_one};
    global<float> out(args.out, (uint64_t)args.states.n_rows * args.heads * args.v_dim);
    numbers<HELD> s, decays;

    if (r.n == 0)
        return;
    s.begin(lane);
    if (RULE == CHANNELS)
        decays.begin(of_decays);
    for (uint32_t row = 0; row < r.n; row += staged.rows) {
        uint32_t n = r.n - row < staged.rows ? r.n - row : staged.rows;
        stage(args, at, staged, r.first + row, n);
        sync_block();
        for (uint32_t i = 0; i < n; i++) {
            float sum = one_row<RULE, HELD>(args, staged, s, decays, lane, of_decays, i, column);
            if (is_one && first == 0)
                out.put((uint64_t)(r.first + row + i) * args.heads * args.v_dim + at.head * at.columns + own,
                        fmaf(args.scale, sum, staged.value(i, U, column)));
        }
        sync_block();
    }
    s.end(lane);
}

template <uint32_t HELD> DEVICE void linear(const rn_linear_args &args)
{
    switch (args.kind) {
    case RN_LINEAR_WKV6:
        recur<BEFORE, HELD>(args);
        break;
    case RN_LINEAR_WKV7:
        recur<ERASES, HELD>(args);
        break;
    case RN_LINEAR_DELTA:
        recur<DELTA, HELD>(args);
        break;
    default:
        recur<AFTER, HELD>(args);
        break;
    }
}

RN_KERNEL(linear_64, rn_linear_args, THREADS, 4)
{
    linear<64 / PARTS>(args);
}

RN_KERNEL(linear_128, rn_linear_args, THREADS, 4)
{
    linear<128 / PARTS>(args);
}

RN_KERNEL(linear_any, rn_linear_args, THREADS, 4)
{
    linear<0>(args);
}

RN_KERNEL(channels_16, rn_linear_args, THREADS, 4)
{
    recur<CHANNELS, 16 / PARTS>(args);
}

RN_KERNEL(channels_any, rn_linear_args, THREADS, 4)
{
    recur<CHANNELS, 0>(args);
}

} // namespace recurrent
