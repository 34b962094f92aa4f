/* Brings a matrix from the file's order into the device's (formats.cuh): a lane writes what it will read. Bytes of rows
 * and columns that are not there are zeros, so that their scales are, too. */
#include "gpu/kernels/tile.cuh"

namespace
{

struct tile_f32 {
    typedef format_f32 format;
    static constexpr uint32_t BLOCK = 1, BLOCK_BYTES = 4;
    DEVICE static void write(const source &in, const spot &s, const bytes_at &out, uint64_t tile)
    {
        for (uint32_t i = 0; i < 8; i++) {
            uint32_t step = i / 4, half = i / 2 % 2, product = i % 2;
            uint64_t column = s.cell * CELL + step * STEP + product * 16 + 4 * s.t;
            words4 v;
            for (uint32_t j = 0; j < 4; j++)
                v.w[j] = in.word(s.first_row + s.g + 8 * half, (column + j) * 4);
            out.put(tile + (uint64_t)s.cell * format::UNIT_BYTES + i * 512 + s.lane * LANE_BYTES, v);
        }
    }
};

/* Numbers of 16 bits: of each step and row half the registers 0 and 2 of both products. */
struct tile_16 {
    typedef format_bf16 format;
    static constexpr uint32_t BLOCK = 1, BLOCK_BYTES = 2;
    DEVICE static void write(const source &in, const spot &s, const bytes_at &out, uint64_t tile)
    {
        for (uint32_t i = 0; i < 4; i++) {
            uint64_t column = s.cell * CELL + i / 2 * STEP + 4 * s.t;
            uint32_t row = s.first_row + s.g + 8 * (i % 2);
            words4 v;
            for (uint32_t j = 0; j < 4; j++)
                v.w[j] = in.half(row, (column + j / 2 * 16 + j % 2) * 2) |
                         in.half(row, (column + j / 2 * 16 + j % 2 + 2) * 2) << 16;
            out.put(tile + (uint64_t)s.cell * format::UNIT_BYTES + i * 512 + s.lane * LANE_BYTES, v);
        }
    }
};

/* The scales of the cell's 16 rows and two steps, from blocks that begin with them. */
DEVICE void write_scales(const source &in, const spot &s, const bytes_at &out, uint64_t at, uint32_t block_bytes)
{
    if (s.lane < TILE_ROWS)
        out.put(at + s.lane * 4, in.half(s.first_row + s.lane, (uint64_t)(s.cell * 2) * block_bytes) |
                                     in.half(s.first_row + s.lane, (uint64_t)(s.cell * 2 + 1) * block_bytes) << 16);
}

struct tile_q8_0 {
    typedef format_q8_0 format;
    static constexpr uint32_t BLOCK = 32, BLOCK_BYTES = 34;
    DEVICE static void write(const source &in, const spot &s, const bytes_at &out, uint64_t tile)
    {
        uint64_t at = tile + (uint64_t)s.cell * format::UNIT_BYTES;
        for (uint32_t step = 0; step < 2; step++) {
            words4 v;
            for (uint32_t i = 0; i < 4; i++)
                v.w[i] = in.word(s.first_row + s.g + 8 * (i / 2),
                                 (uint64_t)(s.cell * 2 + step) * BLOCK_BYTES + 2 + i % 2 * 16 + 4 * s.t);
            out.put(at + step * 512 + s.lane * LANE_BYTES, v);
        }
        write_scales(in, s, out, at + 1024, BLOCK_BYTES);
    }
};

struct tile_q4_0 {
    typedef format_q4_0 format;
    static constexpr uint32_t BLOCK = 32, BLOCK_BYTES = 18;
    DEVICE static void write(const source &in, const spot &s, const bytes_at &out, uint64_t tile)
    {
        uint64_t at = tile + (uint64_t)s.cell * format::UNIT_BYTES;
        words4 v;
        for (uint32_t i = 0; i < 4; i++)
            v.w[i] = in.word(s.first_row + s.g + 8 * (i % 2), (uint64_t)(s.cell * 2 + i / 2) * BLOCK_BYTES + 2 + 4 * s.t);
        out.put(at + s.lane * LANE_BYTES, v);
        write_scales(in, s, out, at + 512, BLOCK_BYTES);
    }
};

/* A word of four nibbles, low or high, made one of codes of a byte. */
DEVICE uint32_t one_half(uint32_t bytes, uint32_t high)
{
    return bytes >> (4 * high) & 0x0f0f0f0fu;
}

/* The codes' low halves of a cell of a K format, of 64 columns in 32 bytes from `at` of a row on: the low halves are
 * columns 0 .. 31, the high ones 32 .. 63. */
DEVICE words4 halves_k(const source &in, const spot &s, uint64_t at)
{
    words4 v;
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t row = s.first_row + s.g + 8 * (i % 2), step = i / 2;
        v.w[i] = one_half(in.word(row, at + 4 * s.t), step) | one_half(in.word(row, at + 16 + 4 * s.t), step) << 4;
    }
    return v;
}

/* Of a unit: scales and minima of its 16 rows, a byte each, and d, dmin. For the lanes of the unit's first warp. The
 * six bits of group g as in model/quant/k.c. */
DEVICE void write_k(const source &in, const spot &s, const bytes_at &out, uint64_t at, uint64_t block)
{
    uint32_t row = s.first_row + s.lane;
    if (s.cell % 4 != 0 || s.lane >= TILE_ROWS)
        return;
    for (uint32_t g = 0; g < 8; g++) {
        uint32_t scale, minimum;
        if (g < 4) {
            scale = in.byte(row, block + 4 + g) & 63;
            minimum = in.byte(row, block + 8 + g) & 63;
        } else {
            scale = (in.byte(row, block + 8 + g) & 15) | in.byte(row, block + g) >> 6 << 4;
            minimum = in.byte(row, block + 8 + g) >> 4 | in.byte(row, block + 4 + g) >> 6 << 4;
        }
        out.put(at + s.lane * 16 + g * 2, (uint16_t)(scale | minimum << 8));
    }
    out.put(at + 256 + s.lane * 4, in.word(row, block));
}

struct tile_q4_k {
    typedef format_q4_k format;
    static constexpr uint32_t BLOCK = 256, BLOCK_BYTES = 144;
    DEVICE static void write(const source &in, const spot &s, const bytes_at &out, uint64_t tile)
    {
        uint64_t at = tile + (uint64_t)(s.cell / 4) * format::UNIT_BYTES, block = (uint64_t)(s.cell / 4) * BLOCK_BYTES;
        out.put(at + s.cell % 4 * 512 + s.lane * LANE_BYTES, halves_k(in, s, block + 16 + s.cell % 4 * 32));
        write_k(in, s, out, at + 2048, block);
    }
};

struct tile_q5_k {
    typedef format_q5_k format;
    static constexpr uint32_t BLOCK = 256, BLOCK_BYTES = 176;
    DEVICE static void write(const source &in, const spot &s, const bytes_at &out, uint64_t tile)
    {
        uint64_t at = tile + (uint64_t)(s.cell / 4) * format::UNIT_BYTES, block = (uint64_t)(s.cell / 4) * BLOCK_BYTES;
        uint64_t codes = at + s.cell % 4 * 640;
        uint32_t fifth = 0;
        out.put(codes + s.lane * LANE_BYTES, halves_k(in, s, block + 48 + s.cell % 4 * 32));
        for (uint32_t i = 0; i < 32; i++) {
            uint32_t step = i / 16, half = i / 8 % 2, product = i / 4 % 2;
            uint32_t byte = in.byte(s.first_row + s.g + 8 * half, block + 16 + product * 16 + 4 * s.t + i % 4);
            fifth |= (byte >> (s.cell % 4 * 2 + step) & 1) << i;
        }
        out.put(codes + 512 + s.lane * 4, fifth);
        write_k(in, s, out, at + 2560, block);
    }
};

struct tile_q6_k {
    typedef format_q6_k format;
    static constexpr uint32_t BLOCK = 256, BLOCK_BYTES = 210;
    /* Column e of 256: its low half is in byte e / 128 * 64 + e / 32 % 2 * 32 + e % 32, in the high part from e % 128 = 64
     * on; its two high bits in byte 128 + e / 128 * 32 + e % 32, pair e % 128 / 32. */
    DEVICE static uint32_t low(const source &in, uint32_t row, uint64_t block, uint32_t e)
    {
        return one_half(in.word(row, block + e / 128 * 64 + e / 32 % 2 * 32 + e % 32), e / 64 % 2);
    }
    DEVICE static uint32_t high(const source &in, uint32_t row, uint64_t block, uint32_t e)
    {
        return in.word(row, block + 128 + e / 128 * 32 + e % 32) >> (e % 128 / 32 * 2) & 0x03030303u;
    }
    DEVICE static void write(const source &in, const spot &s, const bytes_at &out, uint64_t tile)
    {
        uint64_t unit = tile + (uint64_t)(s.cell / 4) * format::UNIT_BYTES, at = unit + s.cell % 4 * 832;
        uint64_t block = (uint64_t)(s.cell / 4) * BLOCK_BYTES;
        uint32_t begin = s.cell % 4 * CELL + 4 * s.t;
        words4 v;
        words2 bits = {{0, 0}};
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t half = i % 2, step = i / 2, row = s.first_row + s.g + 8 * half, e = begin + step * STEP;
            v.w[i] = low(in, row, block, e) | low(in, row, block, e + 16) << 4;
            bits.w[half] |= high(in, row, block, e) << (4 * step) | high(in, row, block, e + 16) << (4 * step + 2);
        }
        out.put(at + s.lane * LANE_BYTES, v);
        out.put(at + 512 + s.lane * 8, bits);
        if (s.lane < TILE_ROWS)
            out.put(at + 768 + s.lane * 4, in.word(s.first_row + s.lane, block + 192 + s.cell % 4 * 4));
        if (s.lane < TILE_ROWS && s.cell % 4 == 0)
            out.put(unit + 3328 + s.lane * 2, (uint16_t)in.half(s.first_row + s.lane, block + 208));
    }
};

/* Scales and minima of blocks that begin with (d, m). */
DEVICE void write_dm(const source &in, const spot &s, const bytes_at &out, uint64_t at, uint32_t block_bytes)
{
    if (s.lane < TILE_ROWS)
        out.put(at + s.lane * 8, words2{{in.word(s.first_row + s.lane, (uint64_t)(s.cell * 2) * block_bytes),
                                         in.word(s.first_row + s.lane, (uint64_t)(s.cell * 2 + 1) * block_bytes)}});
}

/* Low halves of the codes, 16 bytes that stand at byte `codes` of blocks of 32. */
DEVICE words4 halves_32(const source &in, const spot &s, uint32_t block_bytes, uint32_t codes)
{
    words4 v;
    for (uint32_t i = 0; i < 4; i++)
        v.w[i] = in.word(s.first_row + s.g + 8 * (i % 2),
                         (uint64_t)(s.cell * 2 + i / 2) * block_bytes + codes + 4 * s.t);
    return v;
}

/* The fifth bits of a lane's 32 codes, from words at byte `at` of blocks of 32. */
DEVICE uint32_t fifth_32(const source &in, const spot &s, uint32_t block_bytes, uint32_t at)
{
    uint32_t fifth = 0;
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t step = i / 2, half = i % 2;
        uint32_t bits =
            in.word(s.first_row + s.g + 8 * half, (uint64_t)(s.cell * 2 + step) * block_bytes + at) >> (4 * s.t);
        fifth |= ((bits & 15) | (bits >> 16 & 15) << 4) << (16 * step + 8 * half);
    }
    return fifth;
}

struct tile_q4_1 {
    typedef format_q4_1 format;
    static constexpr uint32_t BLOCK = 32, BLOCK_BYTES = 20;
    DEVICE static void write(const source &in, const spot &s, const bytes_at &out, uint64_t tile)
    {
        uint64_t at = tile + (uint64_t)s.cell * format::UNIT_BYTES;
        out.put(at + s.lane * LANE_BYTES, halves_32(in, s, BLOCK_BYTES, 4));
        write_dm(in, s, out, at + 512, BLOCK_BYTES);
    }
};

struct tile_q5_0 {
    typedef format_q5_0 format;
    static constexpr uint32_t BLOCK = 32, BLOCK_BYTES = 22;
    DEVICE static void write(const source &in, const spot &s, const bytes_at &out, uint64_t tile)
    {
        uint64_t at = tile + (uint64_t)s.cell * format::UNIT_BYTES;
        out.put(at + s.lane * LANE_BYTES, halves_32(in, s, BLOCK_BYTES, 6));
        out.put(at + 512 + s.lane * 4, fifth_32(in, s, BLOCK_BYTES, 2));
        write_scales(in, s, out, at + 640, BLOCK_BYTES);
    }
};

struct tile_q5_1 {
    typedef format_q5_1 format;
    static constexpr uint32_t BLOCK = 32, BLOCK_BYTES = 24;
    DEVICE static void write(const source &in, const spot &s, const bytes_at &out, uint64_t tile)
    {
        uint64_t at = tile + (uint64_t)s.cell * format::UNIT_BYTES;
        out.put(at + s.lane * LANE_BYTES, halves_32(in, s, BLOCK_BYTES, 8));
        out.put(at + 512 + s.lane * 4, fifth_32(in, s, BLOCK_BYTES, 4));
        write_dm(in, s, out, at + 640, BLOCK_BYTES);
    }
};

/* Four codes of two bits each side by side, from the low ends of the bytes of a word. */
DEVICE uint32_t beside(uint32_t bytes)
{
    return (bytes & 3) | (bytes >> 6 & 12) | (bytes >> 12 & 48) | (bytes >> 18 & 192);
}

struct tile_q2_k {
    typedef format_q2_k format;
    static constexpr uint32_t BLOCK = 256, BLOCK_BYTES = 84;
    DEVICE static void write(const source &in, const spot &s, const bytes_at &out, uint64_t tile)
    {
        uint64_t unit = tile + (uint64_t)(s.cell / 4) * format::UNIT_BYTES, at = unit + s.cell % 4 * 320;
        uint64_t block = (uint64_t)(s.cell / 4) * BLOCK_BYTES;
        words2 v = {{0, 0}};
        for (uint32_t i = 0; i < 8; i++) {
            uint32_t half = i / 4, part = i % 4; /* step and product: 16 columns */
            uint32_t column = s.cell % 4 * CELL + part * 16 + 4 * s.t;
            uint32_t word = in.word(s.first_row + s.g + 8 * half, block + 16 + column / 128 * 32 + column % 32);
            v.w[half] |= beside(word >> (column % 128 / 32 * 2)) << (8 * part);
        }
        out.put(at + s.lane * 8, v);
        if (s.lane < TILE_ROWS)
            out.put(at + 256 + s.lane * 4, in.word(s.first_row + s.lane, block + s.cell % 4 * 4));
        if (s.lane < TILE_ROWS && s.cell % 4 == 0)
            out.put(unit + 1280 + s.lane * 4, in.word(s.first_row + s.lane, block + 80));
    }
};

/* Eight codes of four bits, of pairs as registers have them, as expand_fp4 takes them. */
DEVICE uint32_t word_of_fp4(const uint32_t codes[8])
{
    uint32_t word = 0;
    for (uint32_t i = 0; i < 8; i++) { /* i: product i / 4, column i % 4 */
        uint32_t pair = i / 4 * 2 + i % 2, begin = i % 4 / 2 * 16;
        uint32_t sign = 0xdecf >> (4 * pair) & 15, rest = 0x9036 >> (4 * pair) & 15; /* places of a half */
        word |= ((codes[i] >> 3) << sign | (codes[i] & 7) << rest) << begin;
    }
    return word;
}

struct tile_mxfp4 {
    typedef format_mxfp4 format;
    static constexpr uint32_t BLOCK = 32, BLOCK_BYTES = 17;
    DEVICE static void write(const source &in, const spot &s, const bytes_at &out, uint64_t tile)
    {
        uint64_t at = tile + (uint64_t)s.cell * format::UNIT_BYTES;
        words4 v = halves_32(in, s, BLOCK_BYTES, 1), of_lane;
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t codes[8];
            for (uint32_t j = 0; j < 8; j++)
                codes[j] = v.w[i] >> (j % 4 * 8 + j / 4 * 4) & 15;
            of_lane.w[i] = word_of_fp4(codes);
        }
        out.put(at + s.lane * LANE_BYTES, of_lane);
        if (s.lane < TILE_ROWS)
            out.put(at + 512 + s.lane * 2,
                    (uint16_t)(in.byte(s.first_row + s.lane, (uint64_t)(s.cell * 2) * BLOCK_BYTES) |
                               in.byte(s.first_row + s.lane, (uint64_t)(s.cell * 2 + 1) * BLOCK_BYTES) << 8));
    }
};

struct tile_nvfp4 {
    typedef format_nvfp4 format;
    static constexpr uint32_t BLOCK = 64, BLOCK_BYTES = 36;
    DEVICE static void write(const source &in, const spot &s, const bytes_at &out, uint64_t tile)
    {
        uint64_t at = tile + (uint64_t)s.cell * format::UNIT_BYTES, block = (uint64_t)s.cell * BLOCK_BYTES;
        words4 v;
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t codes[8];
            for (uint32_t j = 0; j < 8; j++) {
                uint32_t part = i / 2 * 2 + j / 4, column = 4 * s.t + j % 4; /* of 16 */
                uint32_t byte = in.byte(s.first_row + s.g + 8 * (i % 2), block + 4 + 8 * part + column % 8);
                codes[j] = byte >> (column / 8 * 4) & 15;
            }
            v.w[i] = word_of_fp4(codes);
        }
        out.put(at + s.lane * LANE_BYTES, v);
        if (s.lane < TILE_ROWS)
            out.put(at + 512 + s.lane * 4, in.word(s.first_row + s.lane, block));
    }
};

struct tile_iq4_nl {
    typedef format_iq4_nl format;
    static constexpr uint32_t BLOCK = 32, BLOCK_BYTES = 18;
    DEVICE static void write(const source &in, const spot &s, const bytes_at &out, uint64_t tile)
    {
        uint64_t at = tile + (uint64_t)s.cell * format::UNIT_BYTES;
        words4 v = halves_32(in, s, BLOCK_BYTES, 2);
        for (uint32_t i = 0; i < 4; i++)
            v.w[i] = permute(v.w[i], 0, 0x3120);
        out.put(at + s.lane * LANE_BYTES, v);
        write_scales(in, s, out, at + 512, BLOCK_BYTES);
    }
};

/* As Q8_0, with a sum behind the scale that is not wanted. */
struct tile_q8_1 {
    typedef format_q8_0 format;
    static constexpr uint32_t BLOCK = 32, BLOCK_BYTES = 36;
    DEVICE static void write(const source &in, const spot &s, const bytes_at &out, uint64_t tile)
    {
        uint64_t at = tile + (uint64_t)s.cell * format::UNIT_BYTES;
        for (uint32_t step = 0; step < 2; step++) {
            words4 v;
            for (uint32_t i = 0; i < 4; i++)
                v.w[i] = in.word(s.first_row + s.g + 8 * (i / 2),
                                 (uint64_t)(s.cell * 2 + step) * BLOCK_BYTES + 4 + i % 2 * 16 + 4 * s.t);
            out.put(at + step * 512 + s.lane * LANE_BYTES, v);
        }
        write_scales(in, s, out, at + 1024, BLOCK_BYTES);
    }
};

} // namespace

TILE(f32, tile_f32)
TILE(f16, tile_16)
TILE(bf16, tile_16)
TILE(q8_0, tile_q8_0)
TILE(q4_0, tile_q4_0)
TILE(q4_k, tile_q4_k)
TILE(q5_k, tile_q5_k)
TILE(q6_k, tile_q6_k)
TILE(mxfp4, tile_mxfp4)
TILE(nvfp4, tile_nvfp4)
TILE(q4_1, tile_q4_1)
TILE(q5_0, tile_q5_0)
TILE(q5_1, tile_q5_1)
TILE(q2_k, tile_q2_k)
TILE(iq4_nl, tile_iq4_nl)
TILE(q8_1, tile_q8_1)
