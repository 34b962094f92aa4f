/* Weights in the device's order, and how a lane gets the numbers that it multiplies.
 *
 *   matrix   tiles of 16 rows; rows behind the last are zeros
 *   tile     cells of 64 columns (columns behind the last are zeros); of K formats units of four cells, with what their
 *            blocks of 256 share behind them
 *   cell     two steps of 32 columns, each two products of 16
 *
 * In a step lane (g, t) = (lane / 4, lane % 4) has of rows g and g + 8 the columns 4t .. 4t + 3 (first product) and
 * 16 + 4t .. 16 + 4t + 3 (second). A product's registers hold two columns each: (4t, 4t + 2) and (4t + 1, 4t + 3). So
 * a word of four codes of eight or four bits falls into registers by masks alone. Activations are taken in the same
 * order. A lane's codes lie side by side, so that a warp reads a cell with accesses of 16 bytes in order.
 *
 * Codes become bfloat16 exactly; a number is scale * code - minimum, and the scale is multiplied into the float sum of
 * a product (of both products of a step, where they share it). f16 and f32 are sums of two bfloat16.
 *
 *   type   bytes of a cell or unit
 *   f32    8 x 512: for each step, row half and product the lane's 4 numbers
 *   f16    4 x 512: for each step and row half 8 numbers        bf16 likewise
 *   q8_0   2 x 512: for each step the codes of both row halves; 16 rows x 2 scales
 *   q4_0   512; 16 rows x 2 scales
 *   q4_k   4 x 512; 16 rows x 8 x (scale, minimum) of a byte each; 16 rows x (d, dmin)
 *   q5_k   likewise with 4 x (512 + 128): the fifth bits of a lane's 32 codes are a word
 *   q6_k   4 x (512 + 256 + 64): low halves, two high bits, 16 rows x 4 scales; 16 rows x d */
#ifndef RN_GPU_FORMATS_CUH
#define RN_GPU_FORMATS_CUH

#include "gpu/kernels/wrap.cuh"

enum : uint32_t { TILE_ROWS = 16, CELL = 64, STEP = 32, K_UNIT = 256, LANE_BYTES = 16 };

/* What a lane multiplies in a step. Of both products: the registers of each part of the numbers, the scales and minima
 * of rows g and g + 8. */
struct step_numbers {
    uint32_t a[2][2][4]; /* [part][product] */
    float scale[2][2];   /* [product][row half] */
    float minimum[2];    /* [row half] */
};

/* Codes in the low four, five or six bits of each half, minus `zero`; 0x4300 is 128. */
DEVICE uint32_t codes_less(uint32_t codes, uint32_t zero)
{
    return minus_bf16(codes | 0x43004300u, zero | zero << 16);
}

/* Four codes of a byte each, in `register 0` and `register 2` of a product. */
DEVICE void bytes_less(uint32_t word, uint32_t zero, uint32_t *first, uint32_t *second)
{
    *first = codes_less(word & 0x00ff00ffu, zero);
    *second = codes_less(word >> 8 & 0x00ff00ffu, zero);
}

/* Signed bytes: the low seven bits, less 128 where the sign is set. */
DEVICE uint32_t signed_pair(uint32_t bytes)
{
    return minus_bf16((bytes & 0x007f007fu) | 0x43004300u, (bytes & 0x00800080u) | 0x43004300u);
}

/* The cell's place in a tile, and a tile's bytes, where `unit` cells share something. */
DEVICE uint64_t tile_bytes(uint32_t cells, uint32_t unit_cells, uint32_t unit_bytes)
{
    return (uint64_t)((cells + unit_cells - 1) / unit_cells) * unit_bytes;
}

/* Each format: UNIT_CELLS, UNIT_BYTES; PARTS of its numbers; SCALED: there are scales, BY_PRODUCT: one for each product;
 * MINIMA. `read` brings what a lane needs of a cell to registers, `expand` makes a step's numbers of it. */

struct format_f32 {
    static constexpr uint32_t UNIT_CELLS = 1, UNIT_BYTES = 4096, PARTS = 2;
    static constexpr bool SCALED = false, BY_PRODUCT = false, MINIMA = false;
    struct raw {
        floats4 v[8];
    };
    DEVICE static void read(const bytes_at &weight, uint64_t tile, uint32_t cell, uint32_t lane, raw &r)
    {
        UNROLL
        for (uint32_t i = 0; i < 8; i++)
            r.v[i] = weight.get<floats4>(tile + (uint64_t)cell * UNIT_BYTES + i * 512 + lane * LANE_BYTES);
    }
    DEVICE static void expand(const raw &r, uint32_t step, uint32_t, step_numbers &out)
    {
        UNROLL
        for (uint32_t half = 0; half < 2; half++) {
            UNROLL
            for (uint32_t product = 0; product < 2; product++) {
                const floats4 &v = r.v[(step * 2 + half) * 2 + product];
                split_pair(v.v[0], v.v[2], &out.a[0][product][half], &out.a[1][product][half]);
                split_pair(v.v[1], v.v[3], &out.a[0][product][2 + half], &out.a[1][product][2 + half]);
            }
        }
    }
};

/* Numbers of 16 bits, which lie as registers want them. */
struct raw_16 {
    words4 v[4];
};
DEVICE void read_16(const bytes_at &weight, uint64_t tile, uint32_t cell, uint32_t lane, raw_16 &r)
{
    UNROLL
    for (uint32_t i = 0; i < 4; i++)
        r.v[i] = weight.get<words4>(tile + (uint64_t)cell * 2048 + i * 512 + lane * LANE_BYTES);
}

struct format_bf16 {
    static constexpr uint32_t UNIT_CELLS = 1, UNIT_BYTES = 2048, PARTS = 1;
    static constexpr bool SCALED = false, BY_PRODUCT = false, MINIMA = false;
    typedef raw_16 raw;
    DEVICE static void read(const bytes_at &weight, uint64_t tile, uint32_t cell, uint32_t lane, raw &r)
    {
        read_16(weight, tile, cell, lane, r);
    }
    DEVICE static void expand(const raw &r, uint32_t step, uint32_t, step_numbers &out)
    {
        UNROLL
        for (uint32_t half = 0; half < 2; half++) {
            UNROLL
            for (uint32_t i = 0; i < 4; i++)
                out.a[0][i / 2][i % 2 * 2 + half] = r.v[step * 2 + half].w[i];
        }
    }
};

struct format_f16 {
    static constexpr uint32_t UNIT_CELLS = 1, UNIT_BYTES = 2048, PARTS = 2;
    static constexpr bool SCALED = false, BY_PRODUCT = false, MINIMA = false;
    typedef raw_16 raw;
    DEVICE static void read(const bytes_at &weight, uint64_t tile, uint32_t cell, uint32_t lane, raw &r)
    {
        read_16(weight, tile, cell, lane, r);
    }
    DEVICE static void expand(const raw &r, uint32_t step, uint32_t, step_numbers &out)
    {
        UNROLL
        for (uint32_t half = 0; half < 2; half++) {
            UNROLL
            for (uint32_t i = 0; i < 4; i++) {
                uint32_t pair = r.v[step * 2 + half].w[i];
                split_pair(float_of_half(pair & 0xffff), float_of_half(pair >> 16), &out.a[0][i / 2][i % 2 * 2 + half],
                           &out.a[1][i / 2][i % 2 * 2 + half]);
            }
        }
    }
};

/* A row's scales of a cell's two steps, in f16, at `at`. */
DEVICE void read_scales(const bytes_at &weight, uint64_t at, uint32_t lane, uint32_t *scales)
{
    scales[0] = weight.get<uint32_t>(at + lane / 4 * 4);
    scales[1] = weight.get<uint32_t>(at + lane / 4 * 4 + 32);
}

DEVICE void expand_scales(const uint32_t *scales, uint32_t step, step_numbers &out)
{
    UNROLL
    for (uint32_t half = 0; half < 2; half++)
        out.scale[0][half] = out.scale[1][half] = float_of_half(scales[half] >> (16 * step) & 0xffff);
}

struct format_q8_0 {
    static constexpr uint32_t UNIT_CELLS = 1, UNIT_BYTES = 1088, PARTS = 1;
    static constexpr bool SCALED = true, BY_PRODUCT = false, MINIMA = false;
    struct raw {
        words4 v[2];
        uint32_t scales[2];
    };
    DEVICE static void read(const bytes_at &weight, uint64_t tile, uint32_t cell, uint32_t lane, raw &r)
    {
        uint64_t at = tile + (uint64_t)cell * UNIT_BYTES;
        r.v[0] = weight.get<words4>(at + lane * LANE_BYTES);
        r.v[1] = weight.get<words4>(at + 512 + lane * LANE_BYTES);
        read_scales(weight, at + 1024, lane, r.scales);
    }
    DEVICE static void expand(const raw &r, uint32_t step, uint32_t, step_numbers &out)
    {
        UNROLL
        for (uint32_t i = 0; i < 4; i++) { /* row half, product */
            uint32_t word = r.v[step].w[i];
            out.a[0][i % 2][i / 2] = signed_pair(word & 0x00ff00ffu);
            out.a[0][i % 2][i / 2 + 2] = signed_pair(word >> 8 & 0x00ff00ffu);
        }
        expand_scales(r.scales, step, out);
    }
};

/* Words of low halves (first product) and high ones, of both row halves, as codes of a byte each. */
DEVICE void nibbles(const words4 &v, uint32_t step, uint32_t half, uint32_t product, uint32_t *codes)
{
    *codes = (step == 0 ? v.w[half] : v.w[2 + half]) >> (4 * product) & 0x0f0f0f0fu;
}

struct format_q4_0 {
    static constexpr uint32_t UNIT_CELLS = 1, UNIT_BYTES = 576, PARTS = 1;
    static constexpr bool SCALED = true, BY_PRODUCT = false, MINIMA = false;
    struct raw {
        words4 v;
        uint32_t scales[2];
    };
    DEVICE static void read(const bytes_at &weight, uint64_t tile, uint32_t cell, uint32_t lane, raw &r)
    {
        uint64_t at = tile + (uint64_t)cell * UNIT_BYTES;
        r.v = weight.get<words4>(at + lane * LANE_BYTES);
        read_scales(weight, at + 512, lane, r.scales);
    }
    DEVICE static void expand(const raw &r, uint32_t step, uint32_t, step_numbers &out)
    {
        UNROLL
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t codes;
            nibbles(r.v, step, i / 2, i % 2, &codes);
            bytes_less(codes, 0x4308, &out.a[0][i % 2][i / 2], &out.a[0][i % 2][i / 2 + 2]); /* 136 */
        }
        expand_scales(r.scales, step, out);
    }
};

/* The scales and minima of a unit behind its codes: see above. */
struct raw_k {
    uint32_t pairs[2], d[2]; /* of each row half: of the cell's two steps; d and dmin */
};
DEVICE void read_k(const bytes_at &weight, uint64_t at, uint32_t cell, uint32_t lane, raw_k &r)
{
    UNROLL
    for (uint32_t half = 0; half < 2; half++) {
        uint32_t row = lane / 4 + 8 * half;
        r.pairs[half] = weight.get<uint32_t>(at + row * 16 + cell % 4 * 4);
        r.d[half] = weight.get<uint32_t>(at + 256 + row * 4);
    }
}
DEVICE void expand_k(const raw_k &r, uint32_t step, step_numbers &out)
{
    UNROLL
    for (uint32_t half = 0; half < 2; half++) {
        uint32_t pair = r.pairs[half] >> (16 * step);
        out.scale[0][half] = out.scale[1][half] = float_of_half(r.d[half] & 0xffff) * (float)(pair & 0xff);
        out.minimum[half] = float_of_half(r.d[half] >> 16) * (float)(pair >> 8 & 0xff);
    }
}

struct format_q4_k {
    static constexpr uint32_t UNIT_CELLS = 4, UNIT_BYTES = 2368, PARTS = 1;
    static constexpr bool SCALED = true, BY_PRODUCT = false, MINIMA = true;
    struct raw {
        words4 v;
        raw_k k;
    };
    DEVICE static void read(const bytes_at &weight, uint64_t tile, uint32_t cell, uint32_t lane, raw &r)
    {
        uint64_t at = tile + (uint64_t)(cell / 4) * UNIT_BYTES;
        r.v = weight.get<words4>(at + cell % 4 * 512 + lane * LANE_BYTES);
        read_k(weight, at + 2048, cell, lane, r.k);
    }
    DEVICE static void expand(const raw &r, uint32_t step, uint32_t, step_numbers &out)
    {
        UNROLL
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t codes;
            nibbles(r.v, step, i / 2, i % 2, &codes);
            bytes_less(codes, 0x4300, &out.a[0][i % 2][i / 2], &out.a[0][i % 2][i / 2 + 2]);
        }
        expand_k(r.k, step, out);
    }
};

struct format_q5_k {
    static constexpr uint32_t UNIT_CELLS = 4, UNIT_BYTES = 2880, PARTS = 1;
    static constexpr bool SCALED = true, BY_PRODUCT = false, MINIMA = true;
    struct raw {
        words4 v;
        uint32_t fifth; /* bit 16 * step + 8 * half + 4 * product + i: of code i */
        raw_k k;
    };
    DEVICE static void read(const bytes_at &weight, uint64_t tile, uint32_t cell, uint32_t lane, raw &r)
    {
        uint64_t at = tile + (uint64_t)(cell / 4) * UNIT_BYTES;
        r.v = weight.get<words4>(at + cell % 4 * 640 + lane * LANE_BYTES);
        r.fifth = weight.get<uint32_t>(at + cell % 4 * 640 + 512 + lane * 4);
        read_k(weight, at + 2560, cell, lane, r.k);
    }
    /* Bits 0 .. 3 as bit 4 of each byte. */
    DEVICE static uint32_t spread(uint32_t bits)
    {
        return (bits & 1) << 4 | (bits & 2) << 11 | (bits & 4) << 18 | (bits & 8) << 25;
    }
    DEVICE static void expand(const raw &r, uint32_t step, uint32_t, step_numbers &out)
    {
        UNROLL
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t codes;
            nibbles(r.v, step, i / 2, i % 2, &codes);
            codes |= spread(r.fifth >> (16 * step + 8 * (i / 2) + 4 * (i % 2)));
            bytes_less(codes, 0x4300, &out.a[0][i % 2][i / 2], &out.a[0][i % 2][i / 2 + 2]);
        }
        expand_k(r.k, step, out);
    }
};

struct format_q6_k {
    static constexpr uint32_t UNIT_CELLS = 4, UNIT_BYTES = 3360, PARTS = 1;
    static constexpr bool SCALED = true, BY_PRODUCT = true, MINIMA = false;
    struct raw {
        words4 v;
        words2 high; /* word `half`: of code i, two bits at 2 * (step * 2 + product) + 8 * i */
        uint32_t scales[2], d[2];
    };
    DEVICE static void read(const bytes_at &weight, uint64_t tile, uint32_t cell, uint32_t lane, raw &r)
    {
        uint64_t unit = tile + (uint64_t)(cell / 4) * UNIT_BYTES, at = unit + cell % 4 * 832;
        r.v = weight.get<words4>(at + lane * LANE_BYTES);
        r.high = weight.get<words2>(at + 512 + lane * 8);
        read_scales(weight, at + 768, lane, r.scales);
        UNROLL
        for (uint32_t half = 0; half < 2; half++)
            r.d[half] = weight.get<uint16_t>(unit + 3328 + (lane / 4 + 8 * half) * 2);
    }
    DEVICE static void expand(const raw &r, uint32_t step, uint32_t, step_numbers &out)
    {
        UNROLL
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t codes, half = i / 2, product = i % 2;
            nibbles(r.v, step, half, product, &codes);
            codes |= (r.high.w[half] >> (2 * (step * 2 + product)) & 0x03030303u) << 4;
            bytes_less(codes, 0x4320, &out.a[0][product][half], &out.a[0][product][half + 2]); /* 160 */
            out.scale[product][half] = float_of_half(r.d[half]) *
                                       (float)(int8_t)(r.scales[half] >> (8 * (step * 2 + product)) & 0xff);
        }
    }
};

#endif
