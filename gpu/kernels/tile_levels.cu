/* Brings matrices of types that have no form of their own into one that has room for them, without loss.
 *
 *   up to 16 levels, scales that are d times a small number   the form of iq4_xs: the level's number, the small number of
 *                                                             each 16 numbers, d in f32
 *   plain numbers                                             f32
 *
 * Fields of blocks as model/quant/k.c and model/quant/iq.c have them; e is the number of 256. */
#include "gpu/kernels/tile.cuh"
#include "model/quant/points.h"

namespace
{

#define SAME(number) number
TABLE uint16_t grid_iq1_s[2048] = {RN_GRID_IQ1_S(SAME)};
TABLE uint16_t grid_iq2_xxs[256] = {RN_GRID_IQ2_XXS(SAME)};
TABLE uint16_t grid_iq2_xs[512] = {RN_GRID_IQ2_XS(SAME)};
TABLE uint16_t grid_iq2_s[1024] = {RN_GRID_IQ2_S(SAME)};
TABLE uint16_t grid_iq3_xxs[256] = {RN_GRID_IQ3_XXS(SAME)};
TABLE uint16_t grid_iq3_s[512] = {RN_GRID_IQ3_S(SAME)};
#undef SAME

/* A block of the file's. */
struct block_at {
    const source &in;
    uint32_t row;
    uint64_t at;

    DEVICE uint32_t byte(uint32_t i) const
    {
        return in.byte(row, at + i);
    }
    DEVICE uint32_t half(uint32_t i) const
    {
        return in.half(row, at + i);
    }
    DEVICE uint32_t word(uint32_t i) const
    {
        return in.word(row, at + i);
    }
    DEVICE uint32_t nibble(uint32_t i, uint32_t high) const
    {
        return byte(i) >> (4 * high) & 15;
    }
    /* Field e of 256 of two bits. */
    DEVICE uint32_t two_bits(uint32_t i, uint32_t e) const
    {
        return byte(i + e / 128 * 32 + e % 32) >> (e % 128 / 32 * 2) & 3;
    }
};

/* Sign j of eight, of which seven are stored: the number of minus signs is even. */
DEVICE uint32_t sign_of(uint32_t seven, uint32_t j)
{
    uint32_t parity = seven & 127;

    parity ^= parity >> 4;
    parity ^= parity >> 2;
    parity ^= parity >> 1;
    return ((seven & 127) | (parity & 1) << 7) >> j & 1;
}

/* Each type: BYTES of a block; its levels; of number e the code; of 16 numbers the scale's small number; d. */

struct levels_iq4_xs {
    static constexpr uint32_t BYTES = 136;
    DEVICE static words4 levels()
    {
        return words4{{LEVELS_IQ4}};
    }
    DEVICE static uint32_t code(const block_at &b, uint32_t e)
    {
        return b.nibble(8 + e / 32 * 16 + e % 16, e % 32 / 16);
    }
    DEVICE static uint32_t scale(const block_at &b, uint32_t sixteen)
    {
        uint32_t g = sixteen / 2;
        return (b.nibble(4 + g / 2, g % 2) | (b.half(2) >> (2 * g) & 3) << 4) - 32;
    }
    DEVICE static float d(const block_at &b)
    {
        return float_of_half(b.half(0));
    }
};

struct levels_q3_k {
    static constexpr uint32_t BYTES = 110;
    DEVICE static words4 levels() /* -4 .. 3 */
    {
        return words4{{0xfffefdfcu, 0x03020100u, 0, 0}};
    }
    DEVICE static uint32_t code(const block_at &b, uint32_t e)
    {
        return b.two_bits(32, e) | (b.byte(e % 32) >> (e / 32) & 1) << 2;
    }
    DEVICE static uint32_t scale(const block_at &b, uint32_t g)
    {
        return (b.nibble(96 + g % 8, g / 8) | (b.byte(104 + g % 4) >> (g / 4 * 2) & 3) << 4) - 32;
    }
    DEVICE static float d(const block_at &b)
    {
        return float_of_half(b.half(108));
    }
};

/* -1, 0, 1 with an eighth less (even codes) or more, times eight. */
DEVICE words4 levels_iq1()
{
    return words4{{0x01fff9f7u, 0x00000907u, 0, 0}};
}

struct levels_iq1_s {
    static constexpr uint32_t BYTES = 50;
    DEVICE static words4 levels()
    {
        return levels_iq1();
    }
    DEVICE static uint32_t code(const block_at &b, uint32_t e)
    {
        uint32_t word = b.half(34 + e / 32 * 2), k = e % 32 / 8;
        uint32_t point = grid_iq1_s[b.byte(2 + e / 8) | (word >> (3 * k) & 7) << 8];
        return (point >> (2 * (e % 8)) & 3) * 2 + 1 - (word >> 15);
    }
    DEVICE static uint32_t scale(const block_at &b, uint32_t sixteen)
    {
        return 2 * (b.half(34 + sixteen / 2 * 2) >> 12 & 7) + 1;
    }
    DEVICE static float d(const block_at &b)
    {
        return float_of_half(b.half(0)) * 0.125f;
    }
};

struct levels_iq1_m {
    static constexpr uint32_t BYTES = 56;
    DEVICE static words4 levels()
    {
        return levels_iq1();
    }
    DEVICE static uint32_t code(const block_at &b, uint32_t e)
    {
        uint32_t k = e / 8, high = b.nibble(32 + k / 2, k % 2);
        uint32_t point = grid_iq1_s[b.byte(k) | (high & 7) << 8];
        return (point >> (2 * (e % 8)) & 3) * 2 + 1 - (high >> 3);
    }
    DEVICE static uint32_t scale(const block_at &b, uint32_t sixteen)
    {
        return 2 * (b.half(48 + sixteen / 4 * 2) >> (sixteen % 4 * 3) & 7) + 1;
    }
    DEVICE static float d(const block_at &b)
    {
        uint32_t bits = 0;
        for (uint32_t i = 0; i < 4; i++)
            bits |= (b.half(48 + 2 * i) >> 12) << (4 * i);
        return float_of_half(bits) * 0.125f;
    }
};

/* 8, 25, 43, and their negatives four codes further. */
DEVICE words4 levels_iq2()
{
    return words4{{0x002b1908u, 0x00d5e7f8u, 0, 0}};
}
DEVICE uint32_t code_iq2(uint32_t point, uint32_t j, uint32_t sign)
{
    return (point >> (2 * j) & 3) | sign << 2;
}

struct levels_iq2_xxs {
    static constexpr uint32_t BYTES = 66;
    DEVICE static words4 levels()
    {
        return levels_iq2();
    }
    DEVICE static uint32_t code(const block_at &b, uint32_t e)
    {
        uint32_t group = 2 + e / 32 * 8, k = e % 32 / 8;
        return code_iq2(grid_iq2_xxs[b.byte(group + k)], e % 8, sign_of(b.word(group + 4) >> (7 * k), e % 8));
    }
    DEVICE static uint32_t scale(const block_at &b, uint32_t sixteen)
    {
        return 2 * (b.word(6 + sixteen / 2 * 8) >> 28) + 1;
    }
    DEVICE static float d(const block_at &b)
    {
        return float_of_half(b.half(0)) * 0.125f;
    }
};

struct levels_iq2_xs {
    static constexpr uint32_t BYTES = 74;
    DEVICE static words4 levels()
    {
        return levels_iq2();
    }
    DEVICE static uint32_t code(const block_at &b, uint32_t e)
    {
        uint32_t word = b.half(2 + e / 8 * 2);
        return code_iq2(grid_iq2_xs[word & 511], e % 8, sign_of(word >> 9, e % 8));
    }
    DEVICE static uint32_t scale(const block_at &b, uint32_t sixteen)
    {
        return 2 * b.nibble(66 + sixteen / 2, sixteen % 2) + 1;
    }
    DEVICE static float d(const block_at &b)
    {
        return float_of_half(b.half(0)) * 0.125f;
    }
};

struct levels_iq2_s {
    static constexpr uint32_t BYTES = 82;
    DEVICE static words4 levels()
    {
        return levels_iq2();
    }
    DEVICE static uint32_t code(const block_at &b, uint32_t e)
    {
        uint32_t k = e / 8, index = b.byte(2 + k) | (b.byte(66 + k / 4) >> (k % 4 * 2) & 3) << 8;
        return code_iq2(grid_iq2_s[index], e % 8, b.byte(34 + k) >> (e % 8) & 1);
    }
    DEVICE static uint32_t scale(const block_at &b, uint32_t sixteen)
    {
        return 2 * b.nibble(74 + sixteen / 2, sixteen % 2) + 1;
    }
    DEVICE static float d(const block_at &b)
    {
        return float_of_half(b.half(0)) * 0.125f;
    }
};

struct levels_iq3_xxs {
    static constexpr uint32_t BYTES = 98;
    DEVICE static words4 levels() /* 4, 12, 20, 28, 36, 44, 52, 62, and their negatives */
    {
        return words4{{0x1c140c04u, 0x3e342c24u, 0xe4ecf4fcu, 0xc2ccd4dcu}};
    }
    DEVICE static uint32_t code(const block_at &b, uint32_t e)
    {
        uint32_t k = e % 32 / 8, point = grid_iq3_xxs[b.byte(2 + e / 4)];
        return (point >> (3 * (e % 4)) & 7) | sign_of(b.word(66 + e / 32 * 4) >> (7 * k), e % 8) << 3;
    }
    DEVICE static uint32_t scale(const block_at &b, uint32_t sixteen)
    {
        return 2 * (b.word(66 + sixteen / 2 * 4) >> 28) + 1;
    }
    DEVICE static float d(const block_at &b)
    {
        return float_of_half(b.half(0)) * 0.25f;
    }
};

struct levels_iq3_s {
    static constexpr uint32_t BYTES = 110;
    DEVICE static words4 levels() /* 1, 3 .. 15, and their negatives */
    {
        return words4{{0x07050301u, 0x0f0d0b09u, 0xf9fbfdffu, 0xf1f3f5f7u}};
    }
    DEVICE static uint32_t code(const block_at &b, uint32_t e)
    {
        uint32_t four = e / 4, point = grid_iq3_s[b.byte(2 + four) | (b.byte(66 + four / 8) >> (four % 8) & 1) << 8];
        return (point >> (3 * (e % 4)) & 7) | (b.byte(74 + e / 8) >> (e % 8) & 1) << 3;
    }
    DEVICE static uint32_t scale(const block_at &b, uint32_t sixteen)
    {
        uint32_t g = sixteen / 2;
        return 2 * b.nibble(106 + g / 2, g % 2) + 1;
    }
    DEVICE static float d(const block_at &b)
    {
        return float_of_half(b.half(0));
    }
};

DEVICE words4 levels_tq() /* -1 .. 2 */
{
    return words4{{0x020100ffu, 0, 0, 0}};
}

struct levels_tq1_0 {
    static constexpr uint32_t BYTES = 54;
    DEVICE static words4 levels()
    {
        return levels_tq();
    }
    /* Digit i of a byte: 3^i times it begins with that one. */
    DEVICE static uint32_t digit(uint32_t byte, uint32_t i)
    {
        for (; i > 0; i--)
            byte = byte * 3 & 255;
        return byte * 3 >> 8;
    }
    DEVICE static uint32_t code(const block_at &b, uint32_t e)
    {
        if (e < 160)
            return digit(b.byte(e % 32), e / 32);
        if (e < 240)
            return digit(b.byte(32 + e % 16), (e - 160) / 16);
        return digit(b.byte(48 + e % 4), (e - 240) / 4);
    }
    DEVICE static uint32_t scale(const block_at &, uint32_t)
    {
        return 1;
    }
    DEVICE static float d(const block_at &b)
    {
        return float_of_half(b.half(52));
    }
};

struct levels_tq2_0 {
    static constexpr uint32_t BYTES = 66;
    DEVICE static words4 levels()
    {
        return levels_tq();
    }
    DEVICE static uint32_t code(const block_at &b, uint32_t e)
    {
        return b.two_bits(0, e);
    }
    DEVICE static uint32_t scale(const block_at &, uint32_t)
    {
        return 1;
    }
    DEVICE static float d(const block_at &b)
    {
        return float_of_half(b.half(64));
    }
};

/* What a unit's cells share, by the unit's first warp: a lane has a row. Every row has a d, 0 where there is none. */
template <class T> DEVICE void write_shared(const block_at &b, const spot &s, const bytes_at &out, uint64_t unit)
{
    words4 scales = {{0, 0, 0, 0}};
    for (uint32_t i = 0; i < 16; i++)
        scales.w[i / 4] |= (T::scale(b, i) & 0xff) << (i % 4 * 8);
    out.put(unit + 2048 + s.lane * 16, scales);
    out.put(unit + 2304 + s.lane * 4, T::d(b));
    if (s.lane == 0)
        out.put(unit + 2368, T::levels());
}

template <class T> struct tile_levels {
    typedef format_iq4_xs format;
    static constexpr uint32_t BLOCK = 256, BLOCK_BYTES = T::BYTES;
    DEVICE static void write(const source &in, const spot &s, const bytes_at &out, uint64_t tile)
    {
        uint64_t unit = tile + (uint64_t)(s.cell / 4) * format::UNIT_BYTES, at = (uint64_t)(s.cell / 4) * BLOCK_BYTES;
        words4 v;
        for (uint32_t i = 0; i < 4; i++) {
            block_at b = {in, s.first_row + s.g + 8 * (i % 2), at};
            v.w[i] = 0;
            for (uint32_t j = 0; j < 8; j++) { /* the nibbles' order: expand_levels */
                uint32_t column = j / 4 + j % 4 / 2 * 2, product = j % 2;
                v.w[i] |= T::code(b, s.cell % 4 * CELL + i / 2 * STEP + product * 16 + 4 * s.t + column) << (4 * j);
            }
        }
        out.put(unit + s.cell % 4 * 512 + s.lane * LANE_BYTES, v);
        if (s.lane < TILE_ROWS && s.cell % 4 == 0)
            write_shared<T>(block_at{in, s.first_row + s.lane, at}, s, out, unit);
    }
};

/* ---- Plain numbers ---- */

struct number_i8 {
    static constexpr uint32_t BLOCK = 1, BYTES = 1;
    DEVICE static float get(const source &in, uint32_t row, uint64_t i)
    {
        return (float)(int8_t)in.byte(row, i);
    }
};
struct number_i16 {
    static constexpr uint32_t BLOCK = 1, BYTES = 2;
    DEVICE static float get(const source &in, uint32_t row, uint64_t i)
    {
        return (float)(int16_t)in.half(row, i * 2);
    }
};
struct number_i32 {
    static constexpr uint32_t BLOCK = 1, BYTES = 4;
    DEVICE static float get(const source &in, uint32_t row, uint64_t i)
    {
        return (float)(int32_t)in.word(row, i * 4);
    }
};
struct number_i64 {
    static constexpr uint32_t BLOCK = 1, BYTES = 8;
    DEVICE static float get(const source &in, uint32_t row, uint64_t i)
    {
        return (float)(int64_t)(in.word(row, i * 8) | (uint64_t)in.word(row, i * 8 + 4) << 32);
    }
};
struct number_f64 {
    static constexpr uint32_t BLOCK = 1, BYTES = 8;
    DEVICE static float get(const source &in, uint32_t row, uint64_t i)
    {
        uint64_t bits = in.word(row, i * 8) | (uint64_t)in.word(row, i * 8 + 4) << 32;
        double number;
        memcpy(&number, &bits, sizeof number);
        return (float)number;
    }
};
struct number_q8_k {
    static constexpr uint32_t BLOCK = 256, BYTES = 292;
    DEVICE static float get(const source &in, uint32_t row, uint64_t i)
    {
        uint64_t block = i / BLOCK * BYTES;
        return float_of(in.word(row, block)) * (float)(int8_t)in.byte(row, block + 4 + i % BLOCK);
    }
};

template <class N> struct tile_numbers {
    typedef format_f32 format;
    static constexpr uint32_t BLOCK = N::BLOCK, BLOCK_BYTES = N::BYTES;
    DEVICE static void write(const source &in, const spot &s, const bytes_at &out, uint64_t tile)
    {
        for (uint32_t i = 0; i < 8; i++) {
            uint32_t step = i / 4, half = i / 2 % 2, product = i % 2;
            uint64_t column = s.cell * CELL + step * STEP + product * 16 + 4 * s.t;
            floats4 v;
            for (uint32_t j = 0; j < 4; j++)
                v.v[j] = N::get(in, s.first_row + s.g + 8 * half, column + j);
            out.put(tile + (uint64_t)s.cell * format::UNIT_BYTES + i * 512 + s.lane * LANE_BYTES, v);
        }
    }
};

} // namespace

TILE(iq4_xs, tile_levels<levels_iq4_xs>)
RN_KERNEL(tile_q3_k, rn_tile_args, 256, 2) /* with three blocks it spills on sm_80 */
{
    tile<tile_levels<levels_q3_k>>(args);
}
TILE(iq1_s, tile_levels<levels_iq1_s>)
TILE(iq1_m, tile_levels<levels_iq1_m>)
TILE(iq2_xxs, tile_levels<levels_iq2_xxs>)
TILE(iq2_xs, tile_levels<levels_iq2_xs>)
TILE(iq2_s, tile_levels<levels_iq2_s>)
TILE(iq3_xxs, tile_levels<levels_iq3_xxs>)
TILE(iq3_s, tile_levels<levels_iq3_s>)
TILE(tq1_0, tile_levels<levels_tq1_0>)
TILE(tq2_0, tile_levels<levels_tq2_0>)
TILE(i8, tile_numbers<number_i8>)
TILE(i16, tile_numbers<number_i16>)
TILE(i32, tile_numbers<number_i32>)
TILE(i64, tile_numbers<number_i64>)
TILE(f64, tile_numbers<number_f64>)
TILE(q8_k, tile_numbers<number_q8_k>)
