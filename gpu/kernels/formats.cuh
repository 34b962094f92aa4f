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
 *   q6_k   4 x (512 + 256 + 64): low halves, two high bits, 16 rows x 4 scales; 16 rows x d
 *   q4_1   512; 16 rows x 2 x (d, m)
 *   q5_0   512; 128: the fifth bits; 16 rows x 2 scales
 *   q5_1   512; 128; 16 rows x 2 x (d, m)
 *   q2_k   4 x (256 + 64): codes of two bits, 16 rows x 4 x (scale, minimum) of a byte; 16 rows x (d, dmin)
 *   mxfp4  512; 16 rows x 2 exponents of a byte
 *   nvfp4  512; 16 rows x 4 scales of a byte
 *   iq4_nl 512; 16 rows x 2 scales
 *   iq4_xs 4 x 512; 16 rows x 16 scales of a byte; 16 rows x d in f32; the 16 levels of the codes, a byte each
 *
 * mxfp4 and nvfp4 have floats of four bits; iq4_nl and iq4_xs codes that stand for levels. The form of iq4_xs has all
 * types of up to 16 levels whose scales are d times a small number: Q3_K, IQ1, IQ2, IQ3, TQ (tile_levels.cu). q2_k has
 * a minimum for each 16 numbers; its numbers are made floats, which are the sums of two bfloat16. */
#ifndef RN_GPU_FORMATS_CUH
#define RN_GPU_FORMATS_CUH

#include "gpu/kernels/wrap.cuh"

enum : uint32_t { TILE_ROWS = 16, CELL = 64, STEP = 32, K_UNIT = 256, LANE_BYTES = 16 };

/* The levels of IQ4_NL and IQ4_XS (rn_levels_iq4), a byte each. */
#define LEVELS_IQ4 0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u

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

/* Each format: UNIT_CELLS, UNIT_BYTES; PARTS of its numbers; SCALED: there are scales, BY_PRODUCT: one for each
 * product; MINIMA. `read` brings what a lane needs of a cell to registers, `expand` makes a step's numbers of it. */

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

/* A row's (d, m) of a cell's two steps: numbers are d * code + m. */
struct raw_dm {
    words2 v[2]; /* of each row half */
};
DEVICE void read_dm(const bytes_at &weight, uint64_t at, uint32_t lane, raw_dm &r)
{
    r.v[0] = weight.get<words2>(at + lane / 4 * 8);
    r.v[1] = weight.get<words2>(at + lane / 4 * 8 + 64);
}
DEVICE void expand_dm(const raw_dm &r, uint32_t step, step_numbers &out)
{
    UNROLL
    for (uint32_t half = 0; half < 2; half++) {
        out.scale[0][half] = out.scale[1][half] = float_of_half(r.v[half].w[step] & 0xffff);
        out.minimum[half] = -float_of_half(r.v[half].w[step] >> 16);
    }
}

/* Codes of four bits and, where there is a fifth, bit 16 * step + 8 * half + 4 * product + i of code i; less zero. */
DEVICE void expand_codes(const words4 &v, uint32_t fifth, uint32_t step, uint32_t zero, step_numbers &out)
{
    UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t codes;
        nibbles(v, step, i / 2, i % 2, &codes);
        codes |= format_q5_k::spread(fifth >> (16 * step + 8 * (i / 2) + 4 * (i % 2)));
        bytes_less(codes, zero, &out.a[0][i % 2][i / 2], &out.a[0][i % 2][i / 2 + 2]);
    }
}

struct format_q4_1 {
    static constexpr uint32_t UNIT_CELLS = 1, UNIT_BYTES = 640, PARTS = 1;
    static constexpr bool SCALED = true, BY_PRODUCT = false, MINIMA = true;
    struct raw {
        words4 v;
        raw_dm dm;
    };
    DEVICE static void read(const bytes_at &weight, uint64_t tile, uint32_t cell, uint32_t lane, raw &r)
    {
        uint64_t at = tile + (uint64_t)cell * UNIT_BYTES;
        r.v = weight.get<words4>(at + lane * LANE_BYTES);
        read_dm(weight, at + 512, lane, r.dm);
    }
    DEVICE static void expand(const raw &r, uint32_t step, uint32_t, step_numbers &out)
    {
        expand_codes(r.v, 0, step, 0x4300, out);
        expand_dm(r.dm, step, out);
    }
};

struct format_q5_0 {
    static constexpr uint32_t UNIT_CELLS = 1, UNIT_BYTES = 704, PARTS = 1;
    static constexpr bool SCALED = true, BY_PRODUCT = false, MINIMA = false;
    struct raw {
        words4 v;
        uint32_t fifth, scales[2];
    };
    DEVICE static void read(const bytes_at &weight, uint64_t tile, uint32_t cell, uint32_t lane, raw &r)
    {
        uint64_t at = tile + (uint64_t)cell * UNIT_BYTES;
        r.v = weight.get<words4>(at + lane * LANE_BYTES);
        r.fifth = weight.get<uint32_t>(at + 512 + lane * 4);
        read_scales(weight, at + 640, lane, r.scales);
    }
    DEVICE static void expand(const raw &r, uint32_t step, uint32_t, step_numbers &out)
    {
        expand_codes(r.v, r.fifth, step, 0x4310, out); /* 144 */
        expand_scales(r.scales, step, out);
    }
};

struct format_q5_1 {
    static constexpr uint32_t UNIT_CELLS = 1, UNIT_BYTES = 768, PARTS = 1;
    static constexpr bool SCALED = true, BY_PRODUCT = false, MINIMA = true;
    struct raw {
        words4 v;
        uint32_t fifth;
        raw_dm dm;
    };
    DEVICE static void read(const bytes_at &weight, uint64_t tile, uint32_t cell, uint32_t lane, raw &r)
    {
        uint64_t at = tile + (uint64_t)cell * UNIT_BYTES;
        r.v = weight.get<words4>(at + lane * LANE_BYTES);
        r.fifth = weight.get<uint32_t>(at + 512 + lane * 4);
        read_dm(weight, at + 640, lane, r.dm);
    }
    DEVICE static void expand(const raw &r, uint32_t step, uint32_t, step_numbers &out)
    {
        expand_codes(r.v, r.fifth, step, 0x4300, out);
        expand_dm(r.dm, step, out);
    }
};

/* A minimum for each product: numbers as floats. */
struct format_q2_k {
    static constexpr uint32_t UNIT_CELLS = 4, UNIT_BYTES = 1344, PARTS = 2;
    static constexpr bool SCALED = false, BY_PRODUCT = false, MINIMA = false;
    struct raw {
        words2 v; /* word `half`: code i of a step and product has the bits 16 * step + 8 * product + 2 * i */
        uint32_t pairs[2], d[2];
    };
    DEVICE static void read(const bytes_at &weight, uint64_t tile, uint32_t cell, uint32_t lane, raw &r)
    {
        uint64_t unit = tile + (uint64_t)(cell / 4) * UNIT_BYTES, at = unit + cell % 4 * 320;
        r.v = weight.get<words2>(at + lane * 8);
        UNROLL
        for (uint32_t half = 0; half < 2; half++) {
            uint32_t row = lane / 4 + 8 * half;
            r.pairs[half] = weight.get<uint32_t>(at + 256 + row * 4);
            r.d[half] = weight.get<uint32_t>(unit + 1280 + row * 4);
        }
    }
    DEVICE static void expand(const raw &r, uint32_t step, uint32_t, step_numbers &out)
    {
        UNROLL
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t half = i / 2, product = i % 2, codes = r.v.w[half] >> (16 * step + 8 * product);
            uint32_t pair = r.pairs[half] >> (16 * step + 8 * product);
            float scale = float_of_half(r.d[half] & 0xffff) * (float)(pair & 15);
            float minimum = float_of_half(r.d[half] >> 16) * (float)(pair >> 4 & 15), v[4];
            UNROLL
            for (uint32_t j = 0; j < 4; j++)
                v[j] = scale * (float)(codes >> (2 * j) & 3) - minimum;
            split_pair(v[0], v[2], &out.a[0][product][half], &out.a[1][product][half]);
            split_pair(v[1], v[3], &out.a[0][product][2 + half], &out.a[1][product][2 + half]);
        }
    }
};

/* Floats of four bits, sign, two of exponent, one of mantissa, twice what they say: 0, 1, 2, 3, 4, 6, 8, 12. Of a word
 * each half has one of each of four pairs. The signs of pairs 0, 2, 3 and 1 are bits 15 .. 12, the other bits of pairs
 * 3, 0, 1 and 2 the bits 11 .. 0: shifted to bits 15 and 8 .. 6 they are a bfloat16 of the least exponents, which is
 * multiplied by 2^127. Pairs are those of a step's registers: product p / 2, register p % 2 * 2. */
DEVICE void expand_fp4(uint32_t word, uint32_t half, step_numbers &out)
{
    uint32_t pairs[4] = {word & 0x81c081c0u, word << 3 & 0x81c081c0u,
                         (word << 1 & 0x80008000u) | (word << 6 & 0x01c001c0u),
                         (word << 2 & 0x80008000u) | (word >> 3 & 0x01c001c0u)};

    UNROLL
    for (uint32_t p = 0; p < 4; p++)
        out.a[0][p / 2][p % 2 * 2 + half] = times_bf16(pairs[p], 0x7f007f00u);
}

/* 2^(e - 128) */
DEVICE float scale_of_e8m0(uint32_t e)
{
    return float_of(e < 2 ? 0x00200000u << e : (e - 1) << 23);
}

struct format_mxfp4 {
    static constexpr uint32_t UNIT_CELLS = 1, UNIT_BYTES = 544, PARTS = 1;
    static constexpr bool SCALED = true, BY_PRODUCT = false, MINIMA = false;
    struct raw {
        words4 v;
        uint32_t scales[2]; /* of each row half: of two steps */
    };
    DEVICE static void read(const bytes_at &weight, uint64_t tile, uint32_t cell, uint32_t lane, raw &r)
    {
        uint64_t at = tile + (uint64_t)cell * UNIT_BYTES;
        r.v = weight.get<words4>(at + lane * LANE_BYTES);
        r.scales[0] = weight.get<uint16_t>(at + 512 + lane / 4 * 2);
        r.scales[1] = weight.get<uint16_t>(at + 528 + lane / 4 * 2);
    }
    DEVICE static void expand(const raw &r, uint32_t step, uint32_t, step_numbers &out)
    {
        UNROLL
        for (uint32_t half = 0; half < 2; half++) {
            expand_fp4(r.v.w[step * 2 + half], half, out);
            out.scale[0][half] = out.scale[1][half] = scale_of_e8m0(r.scales[half] >> (8 * step) & 0xff);
        }
    }
};

/* Half of an unsigned E4M3 number of seven bits; the code of NaN is 0. */
DEVICE float half_of_ue4m3(uint32_t code)
{
    uint32_t exponent = code >> 3 & 15, rest = code & 7;

    if (code == 0x7f)
        return 0;
    if (exponent == 0)
        return (float)rest * 0.0009765625f;
    return float_of((exponent + 119) << 23 | rest << 20);
}

struct format_nvfp4 {
    static constexpr uint32_t UNIT_CELLS = 1, UNIT_BYTES = 576, PARTS = 1;
    static constexpr bool SCALED = true, BY_PRODUCT = true, MINIMA = false;
    struct raw {
        words4 v;
        uint32_t scales[2]; /* of each row half: of two steps and products */
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
        for (uint32_t half = 0; half < 2; half++) {
            expand_fp4(r.v.w[step * 2 + half], half, out);
            UNROLL
            for (uint32_t product = 0; product < 2; product++)
                out.scale[product][half] = half_of_ue4m3(r.scales[half] >> (8 * (step * 2 + product)) & 0xff);
        }
    }
};

/* Eight codes of four bits to their levels, signed bytes in `levels`. The nibbles are those of the columns 4t, 16 + 4t,
 * 4t + 2, 18 + 4t, then the same one column further. */
DEVICE void expand_levels(const words4 &levels, uint32_t word, uint32_t half, step_numbers &out)
{
    UNROLL
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t codes = word >> (16 * i), places = codes & 0x7777u;
        uint32_t bytes = permute(permute(levels.w[0], levels.w[1], places), permute(levels.w[2], levels.w[3], places),
                                 0x3210u | (codes & 0x8888u) >> 1);
        out.a[0][0][2 * i + half] = signed_pair(bytes & 0x00ff00ffu);
        out.a[0][1][2 * i + half] = signed_pair(bytes >> 8 & 0x00ff00ffu);
    }
}

struct format_iq4_nl {
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
        words4 levels = {{LEVELS_IQ4}};
        UNROLL
        for (uint32_t half = 0; half < 2; half++)
            expand_levels(levels, r.v.w[step * 2 + half], half, out);
        expand_scales(r.scales, step, out);
    }
};

struct format_iq4_xs {
    static constexpr uint32_t UNIT_CELLS = 4, UNIT_BYTES = 2384, PARTS = 1;
    static constexpr bool SCALED = true, BY_PRODUCT = true, MINIMA = false;
    struct raw {
        words4 v, levels;
        uint32_t scales[2]; /* of each row half: of two steps and products */
        float d[2];
    };
    DEVICE static void read(const bytes_at &weight, uint64_t tile, uint32_t cell, uint32_t lane, raw &r)
    {
        uint64_t at = tile + (uint64_t)(cell / 4) * UNIT_BYTES;
        r.v = weight.get<words4>(at + cell % 4 * 512 + lane * LANE_BYTES);
        r.levels = weight.get<words4>(at + 2368);
        UNROLL
        for (uint32_t half = 0; half < 2; half++) {
            uint32_t row = lane / 4 + 8 * half;
            r.scales[half] = weight.get<uint32_t>(at + 2048 + row * 16 + cell % 4 * 4);
            r.d[half] = weight.get<float>(at + 2304 + row * 4);
        }
    }
    DEVICE static void expand(const raw &r, uint32_t step, uint32_t, step_numbers &out)
    {
        UNROLL
        for (uint32_t half = 0; half < 2; half++) {
            expand_levels(r.levels, r.v.w[step * 2 + half], half, out);
            UNROLL
            for (uint32_t product = 0; product < 2; product++)
                out.scale[product][half] =
                    r.d[half] * (float)(int8_t)(r.scales[half] >> (8 * (step * 2 + product)) & 0xff);
        }
    }
};

#endif
