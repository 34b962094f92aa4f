/* Ops that work on each row by itself: looking up, norms, and what is done to values one by one. */
#include "gpu/kernels/formats.cuh"
#include "gpu/kernels/sums.cuh"

namespace
{

/* A block has 256 threads and a row; four threads have a step's 32 columns, as lanes of a product do. */
template <class F> DEVICE void embed(const rn_embed_args &args)
{
    uint32_t row = block_x(), index = global<uint32_t>(args.index, args.n_rows).get(row);
    uint32_t cells = (args.cols + CELL - 1) / CELL, g = index % 8, half = index / 8 % 2;
    uint64_t tile = (uint64_t)(index / TILE_ROWS) * tile_bytes(cells, F::UNIT_CELLS, F::UNIT_BYTES);
    global<float> out(args.out, (uint64_t)args.n_rows * args.cols);
    bytes_at table(args.table);

    for (uint32_t i = thread_of_block(); i < cells * 8; i += 256) {
        uint32_t cell = i / 8, step = i / 4 % 2, t = i % 4;
        typename F::raw raw;
        step_numbers w;
        if (index < args.table_rows) {
            F::read(table, tile, cell, g * 4 + t, raw);
            F::expand(raw, step, g * 4 + t, w);
        }
        UNROLL
        for (uint32_t j = 0; j < 8; j++) {
            uint32_t column = cell * CELL + step * STEP + j / 4 * 16 + 4 * t + j % 4;
            float value = 0;
            if (column >= args.cols)
                continue;
            if (index < args.table_rows) {
                UNROLL
                for (uint32_t part = 0; part < F::PARTS; part++) {
                    const uint32_t *registers = w.a[part][j / 4];
                    uint32_t pair = half == 0 ? registers[j % 2 * 2] : registers[j % 2 * 2 + 1];
                    value += j % 4 / 2 == 0 ? low_bf16(pair) : high_bf16(pair);
                }
                if (F::SCALED)
                    value *= half == 0 ? w.scale[j / 4][0] : w.scale[j / 4][1];
                if (F::MINIMA)
                    value -= half == 0 ? w.minimum[0] : w.minimum[1];
            }
            out.put((uint64_t)row * args.cols + column, value * args.scale);
        }
    }
}

} // namespace

#define EMBED(id, type)                             \
    RN_KERNEL(embed_##type, rn_embed_args, 256, 4)  \
    {                                               \
        embed<format_##type>(args);                 \
    }
RN_KERNEL_TYPES(EMBED)

namespace
{

enum : uint32_t { NORM_THREADS = 256, NORM_HELD = 8 };

/* A thread's numbers of a group: every 256th, of which the first NORM_HELD stay in registers. */
struct group_numbers {
    global<float> a;
    uint64_t begin;
    uint32_t n;
    float held[NORM_HELD];

    DEVICE group_numbers(const rn_norm_args &args)
        : a(args.add != 0 ? args.sum : args.a, (uint64_t)args.n_rows * args.width),
          begin((uint64_t)block_x() * args.group), n(args.group)
    {
        global<float> in(args.a, (uint64_t)args.n_rows * args.width);

        UNROLL
        for (uint32_t j = 0; j < NORM_HELD; j++) {
            uint32_t i = j * NORM_THREADS + thread_of_block();
            held[j] = i < n ? in.get(begin + i) : 0;
        }
        if (args.add != 0)
            put_sums(in, global<float>(args.add, (uint64_t)args.n_rows * args.width));
    }
    /* A thread's sums, which nobody else reads. */
    DEVICE void put_sums(const global<float> &in, const global<float> &add)
    {
        UNROLL
        for (uint32_t j = 0; j < NORM_HELD; j++) {
            uint32_t i = j * NORM_THREADS + thread_of_block();
            held[j] += i < n ? add.get(begin + i) : 0;
        }
        UNROLL
        for (uint32_t j = 0; j < NORM_HELD; j++)
            if (j * NORM_THREADS + thread_of_block() < n)
                a.put(begin + j * NORM_THREADS + thread_of_block(), held[j]);
        for (uint32_t i = NORM_HELD * NORM_THREADS + thread_of_block(); i < n; i += NORM_THREADS)
            a.put(begin + i, in.get(begin + i) + add.get(begin + i));
    }
    /* f(i, a[i]) of each of them, in order. */
    template <class T> DEVICE void each(const T &f) const
    {
        UNROLL
        for (uint32_t j = 0; j < NORM_HELD; j++)
            if (j * NORM_THREADS + thread_of_block() < n)
                f(j * NORM_THREADS + thread_of_block(), held[j]);
        for (uint32_t i = NORM_HELD * NORM_THREADS + thread_of_block(); i < n; i += NORM_THREADS)
            f(i, a.get(begin + i));
    }
};

} // namespace

/* A block has a group of a row. */
RN_KERNEL(norm, rn_norm_args, 256, 4)
{
    uint64_t n_weights = (uint64_t)args.weight_rows * args.group;
    uint32_t at = args.weight_rows == 1 ? 0 : block_x() % (args.width / args.group) * args.group;
    global<float> out(args.out, (uint64_t)args.n_rows * args.width), weight(args.weight, n_weights);
    global<float> bias(args.bias, n_weights);
    shared<float> sums(0, 8);
    group_numbers numbers(args);
    float sum = 0, mean = 0, square = 0, factor;

    if (args.around_mean != 0) {
        numbers.each([&](uint32_t, float a) { sum += a; });
        mean = sum_of_block(sum, sums) / (float)args.group;
    }
    numbers.each([&](uint32_t, float a) { square = fmaf(a - mean, a - mean, square); });
    factor = 1.0f / sqrtf(sum_of_block(square, sums) / (float)args.group + args.eps);
    numbers.each([&](uint32_t i, float a) {
        float y = (a - mean) * factor;
        if (args.weight != 0)
            y *= weight.get(at + i);
        if (args.bias != 0)
            y += bias.get(at + i);
        out.put(numbers.begin + i, y);
    });
}
