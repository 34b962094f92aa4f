/* Ops over parts of rows (kernels.h): values that come by themselves, and what needs sums of a part or a row. */
#include "gpu/kernels/sums.cuh"

namespace
{

/* The row's own a, b and positions. */
struct part_row {
    uint32_t row;
    global<float> a, b;
    uint64_t a_at, b_at;

    DEVICE part_row(const rn_part_args &args, uint32_t r)
        : row(r), a(args.a, (uint64_t)args.n_rows * args.a_width), b(args.b, (uint64_t)args.n_rows * args.b_width),
          a_at((uint64_t)r * args.a_width), b_at((uint64_t)r * args.b_width)
    {
    }
    DEVICE float of_a(uint32_t i) const
    {
        return a.get(a_at + i);
    }
    DEVICE float of_b(uint32_t i) const
    {
        return b.get(b_at + i);
    }
};

DEVICE float weight_at(const rn_part_args &args, uint32_t i)
{
    return global<float>(args.weight, args.weight_n).get(i);
}

DEVICE float of_concat(const rn_part_args &args, const part_row &row, uint32_t i)
{
    uint32_t part = args.width / args.parts, front = args.a_width / args.parts, h = i / part, k = i % part;

    return k < front ? row.of_a(h * front + k) : row.of_b(h * (part - front) + k - front);
}

DEVICE float of_split(const rn_part_args &args, const part_row &row, uint32_t i)
{
    uint32_t dim = args.width / args.parts;

    return row.of_a(i / dim * (args.a_width / args.parts) + args.first + i % dim);
}

DEVICE float of_mix(const rn_part_args &args, const part_row &row, uint32_t i)
{
    uint32_t part = args.width / args.parts;
    float sum = args.scale * row.of_a(i);

    for (uint32_t j = 0; j < args.parts; j++)
        sum = fmaf(row.of_b(i / part * args.parts + j), row.of_a(j * part + i % part), sum);
    return sum;
}

DEVICE float of_lerp(const rn_part_args &args, const part_row &row, uint32_t i)
{
    float a = row.of_a(i % args.a_width), b = row.of_b(i % args.a_width);

    return fmaf(b - a, weight_at(args, i), a);
}

DEVICE float of_expert(const rn_part_args &args, const part_row &row, uint32_t i)
{
    global<int32_t> ids(args.b, (uint64_t)args.n_rows * args.used);
    uint32_t id = (uint32_t)ids.get((uint64_t)row.row * args.used + i / (args.width / args.used));

    return id < args.weight_n ? row.of_a(i) * weight_at(args, id) : 0.0f;
}

DEVICE float temperature(const rn_part_args &args, uint32_t row)
{
    uint64_t position = global<uint32_t>(args.b, args.n_rows).get(row);

    return 1.0f + args.scale * log1pf((float)((position + args.ahead) / args.span));
}

DEVICE float next_token(const rn_part_args &args, uint32_t row)
{
    return (float)(global<uint32_t>(args.b, args.n_rows).get(row) + 1);
}

DEVICE float signed_root(const rn_part_args &args, float x)
{
    float size = fabsf(x) < args.scale ? args.scale : fabsf(x);

    return x == 0 ? x : copysignf(sqrtf(size), x);
}

DEVICE float part_value(const rn_part_args &args, const part_row &row, uint32_t i)
{
    switch (args.kind) {
    case RN_PART_CONCAT:
        return of_concat(args, row, i);
    case RN_PART_SPLIT:
        return of_split(args, row, i);
    case RN_PART_REPEAT:
        return row.of_a(i / (args.a_width / args.parts * args.used) * (args.a_width / args.parts) +
                        i % (args.a_width / args.parts));
    case RN_PART_MIX:
        return of_mix(args, row, i);
    case RN_PART_SPREAD:
        return (row.of_b(i / args.a_width) + args.scale) * row.of_a(i % args.a_width);
    case RN_PART_LERP:
        return of_lerp(args, row, i);
    case RN_PART_TIMES_WEIGHT:
        return row.of_a(i) * weight_at(args, i / (args.width / args.weight_n));
    case RN_PART_ADD_WEIGHT:
        return row.of_a(i) + weight_at(args, i / (args.width / args.weight_n));
    case RN_PART_OVER_WEIGHT:
        return row.of_a(i) / weight_at(args, i / (args.width / args.weight_n));
    case RN_PART_EXPERT_FACTOR:
        return of_expert(args, row, i);
    case RN_PART_TOKEN:
        return next_token(args, row.row);
    case RN_PART_SIGNED_ROOT:
        return signed_root(args, row.of_a(i));
    case RN_PART_BAR:
        return i >= args.first && i - args.first < args.used ? -INFINITY : row.of_a(i);
    default:
        return row.of_a(i) * temperature(args, row.row);
    }
}

} // namespace

/* A block has 1024 values of a row, a thread every 256th of them. */
RN_KERNEL(part, rn_part_args, 256, 4)
{
    global<float> out(args.out, (uint64_t)args.n_rows * args.width);
    part_row row(args, block_y());

    UNROLL
    for (uint32_t j = 0; j < 4; j++) {
        uint32_t i = block_x() * 1024 + j * 256 + thread_of_block();
        if (i < args.width)
            out.put((uint64_t)row.row * args.width + i, part_value(args, row, i));
    }
}

/* A thread has one of a row's numbers of rows. */
RN_KERNEL(grams, rn_grams_args, 256, 4)
{
    uint32_t i = block_x() * 256 + thread_of_block(), row = i / args.heads, head = i % args.heads, end = 0;
    global<float> a(args.a, (uint64_t)args.n_rows * args.most);
    uint64_t mixed = 0, token;

    if (row >= args.n_rows)
        return;
    for (uint32_t k = 0; k < head / (args.heads / (args.most - 1)) + 2; k++) {
        float value = a.get((uint64_t)row * args.most + k);
        token = end != 0 || !(value >= 1.0f) ? args.end : (uint64_t)value - 1;
        end = k > 0 && token == args.end;
        mixed ^= token * args.factors[k];
    }
    global<int32_t>(args.out, (uint64_t)args.n_rows * args.heads)
        .put(i, (int32_t)(args.offsets[head] + mixed % args.sizes[head]));
}

/* A block has a piece of a row of out, and looks at all numbers for those in it. */
RN_KERNEL(scatter, rn_scatter_args, 256, 4)
{
    global<float> a(args.a, (uint64_t)args.n_rows * args.a_width), to(args.to, args.a_width);
    global<float> out(args.out, (uint64_t)args.n_rows * args.width);
    uint32_t piece = RN_SCATTER_PIECE, first = block_x() * piece;
    uint32_t end = args.width - first < piece ? args.width : first + piece;
    uint64_t of_a = (uint64_t)block_y() * args.a_width, of_out = (uint64_t)block_y() * args.width;

    for (uint32_t i = first + thread_of_block(); i < end; i += 256)
        out.put(of_out + i, -INFINITY);
    sync_block();
    for (uint32_t i = thread_of_block(); i < args.a_width; i += 256) {
        float at = to.get(i);
        if (at >= (float)first && at < (float)end)
            out.put(of_out + (uint32_t)at, a.get(of_a + i));
    }
}

/* A warp has a part of a row. */
RN_KERNEL(part_sum, rn_part_sum_args, 256, 4)
{
    uint64_t n = (uint64_t)args.n_rows * args.parts, i = (uint64_t)block_x() * 8 + warp_of_block();
    uint32_t part = args.width / args.parts;
    global<float> a(args.a, (uint64_t)args.n_rows * args.width);
    float sum = 0;

    if (i >= n)
        return;
    for (uint32_t j = lane_of_warp(); j < part; j += WARP)
        sum += a.get(i * part + j);
    sum = sum_of_warp(sum);
    if (lane_of_warp() == 0)
        global<float>(args.out, n).put(i, sum);
}

/* A block has a row. */
RN_KERNEL(tail, rn_tail_args, 256, 4)
{
    uint64_t n = (uint64_t)args.n_rows * args.width, begin = (uint64_t)block_x() * args.width;
    global<float> a(args.a, n), out(args.out, n);
    shared<float> sums(0, 8);
    float sum = 0, square = 0, mean, from;

    for (uint32_t i = thread_of_block(); i < args.width; i += 256)
        sum += a.get(begin + i);
    mean = sum_of_block(sum, sums) / (float)args.width;
    for (uint32_t i = thread_of_block(); i < args.width; i += 256) {
        float d = a.get(begin + i) - mean;
        square = fmaf(d, d, square);
    }
    from = mean + args.scale * sqrtf(sum_of_block(square, sums) / (float)(args.width - 1));
    for (uint32_t i = thread_of_block(); i < args.width; i += 256) {
        float value = a.get(begin + i);
        out.put(begin + i, value <= from ? 0.0f : value - from);
    }
}

/* A block has a group of a row. */
RN_KERNEL(resize, rn_resize_args, 256, 4)
{
    uint64_t n = (uint64_t)args.n_rows * args.width, begin = (uint64_t)block_x() * args.group;
    uint64_t like = (uint64_t)(block_x() / (args.width / args.group)) * args.b_width;
    global<float> a(args.a, n), b(args.b, (uint64_t)args.n_rows * args.b_width), out(args.out, n);
    shared<float> sums(0, 8);
    float of_a = 0, of_b = 0, factor;

    for (uint32_t i = thread_of_block(); i < args.group; i += 256)
        of_a = fmaf(a.get(begin + i), a.get(begin + i), of_a);
    for (uint32_t i = thread_of_block(); i < args.b_width; i += 256)
        of_b = fmaf(b.get(like + i), b.get(like + i), of_b);
    factor = sqrtf(sum_of_block(of_b, sums)) / sqrtf(sum_of_block(of_a, sums));
    for (uint32_t i = thread_of_block(); i < args.group; i += 256)
        out.put(begin + i, a.get(begin + i) * factor);
}

/* ---- Streams ---- */

namespace
{

/* A block is a warp, and has a row; its lanes have rows or columns of z[n, n]. */
struct stream_matrix {
    shared<float> z;
    uint32_t n;
    float eps;

    DEVICE stream_matrix(const rn_hyper_args &args) : z(0, args.n * args.n), n(args.n), eps(args.eps)
    {
    }
    DEVICE void soften()
    {
        for (uint32_t i = thread_of_block(); i < n; i += WARP) {
            float most = -INFINITY, sum = 0;
            for (uint32_t j = 0; j < n; j++)
                most = fmaxf(most, z.get(i * n + j));
            for (uint32_t j = 0; j < n; j++) {
                float e = expf(z.get(i * n + j) - most);
                z.put(i * n + j, e);
                sum += e;
            }
            for (uint32_t j = 0; j < n; j++)
                z.put(i * n + j, z.get(i * n + j) / sum + eps);
        }
        sync_block();
    }
    /* Rows, or columns, divided by their sums. */
    DEVICE void divide(bool columns)
    {
        uint32_t along = columns ? n : 1, across = columns ? 1 : n;

        for (uint32_t i = thread_of_block(); i < n; i += WARP) {
            float sum = eps;
            for (uint32_t j = 0; j < n; j++)
                sum += z.get(i * across + j * along);
            for (uint32_t j = 0; j < n; j++)
                z.put(i * across + j * along, z.get(i * across + j * along) / sum);
        }
        sync_block();
    }
};

} // namespace

RN_KERNEL(hyper, rn_hyper_args, 32, 4)
{
    uint32_t n = args.n, all = (2 + n) * n;
    uint64_t begin = (uint64_t)block_x() * all, values = (uint64_t)args.n_rows * all;
    global<float> a(args.a, values), base(args.base, all), out(args.out, values);
    stream_matrix m(args);

    for (uint32_t i = thread_of_block(); i < all; i += WARP) {
        float x = fmaf(args.factors[i < n ? 0 : i < 2 * n ? 1 : 2], a.get(begin + i), base.get(i));
        if (i >= 2 * n)
            m.z.put(i - 2 * n, x);
        else
            out.put(begin + i, i < n ? 1.0f / (1.0f + expf(-x)) + args.eps : 2.0f / (1.0f + expf(-x)));
    }
    sync_block();
    m.soften();
    m.divide(true);
    for (uint32_t turn = 1; turn < args.turns; turn++) {
        m.divide(false);
        m.divide(true);
    }
    for (uint32_t i = thread_of_block(); i < n * n; i += WARP)
        out.put(begin + 2 * n + i, m.z.get(i % n * n + i / n));
}

/* ---- What a row looks at: a block has 256 numbers of its list ---- */

RN_KERNEL(reach, rn_reach_args, 256, 4)
{
    uint32_t row = block_y(), i = block_x() * 256 + thread_of_block();
    uint32_t n = global<uint32_t>(args.positions, args.n_rows).get(row) + 1, near = n < args.window ? n : args.window;
    int32_t at = -1;

    if (i >= args.used)
        return;
    if (i < near) {
        at = (int32_t)(n - near + i);
    } else {
        uint64_t last = (uint64_t)(i - near) * args.per + args.per - 1;
        if (args.chosen == 0 && last < n)
            at = (int32_t)last;
        else if (args.chosen != 0 && last < args.n_chosen)
            at = global<int32_t>(args.chosen, (uint64_t)args.n_rows * args.n_chosen)
                     .get((uint64_t)row * args.n_chosen + last);
        at = at < 0 ? at : at | RN_SECOND_POSITION;
    }
    global<int32_t>(args.out, (uint64_t)args.n_rows * args.used).put((uint64_t)row * args.used + i, at);
}
