/* The IQ formats: points of a grid (grids.h) with signs and scales; 256 numbers a block, in
 * eight groups of 32 (g), each of four eights (k). d is a half.
 *
 *              layout                                             a group's or half group's scale
 *     IQ1_S    d; index 32 bytes; 8 words: 4 x 3 high index bits,  d * (2s + 1)
 *              3 bits s, sign of the shift 1/8
 *     IQ1_M    index 32 bytes; 16 bytes: 2 x (3 high bits, sign    d * (2s + 1), a scale per 16; d is spread over
 *              of the shift); 4 words: 4 x 3 bits s, 4 bits of d   the top nibbles of the four words
 *     IQ2_XXS  d; 8 x (4 index bytes; word: 4 x 7 signs, 4 bits s) d * (0.5 + s) / 4
 *     IQ2_XS   d; 32 words: 9 bits index, 7 signs; 8 bytes of s    d * (0.5 + s) / 4, a nibble per 16
 *     IQ2_S    d; index 32 bytes; signs 32 bytes; 8 bytes of high  d * (0.5 + s) / 4, a nibble per 16
 *              index bits; 8 bytes of s
 *     IQ3_XXS  d; index 64 bytes; 8 words: 4 x 7 signs, 4 bits s   d * (0.5 + s) / 2
 *     IQ3_S    d; index 64 bytes; 8 bytes of high index bits;      d * (2s + 1), a nibble per 32
 *              signs 32 bytes; 4 bytes of s
 *     IQ4_NL   d; 16 bytes of nibbles; blocks of 32                d
 *     IQ4_XS   d; word of 2 high bits; 4 bytes of low nibbles;     d * (s - 32)
 *              128 bytes of nibbles
 *
 * Seven sign bits stand for eight: the number of minus signs is even. */
#include "model/quant/grids.h"
#include "model/quant/types.h"

const int8_t rn_levels_iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

static const uint8_t levels_iq2[4] = {8, 25, 43, 0};
static const uint8_t levels_iq3_xxs[8] = {4, 12, 20, 28, 36, 44, 52, 62};
static const uint8_t levels_iq3_s[8] = {1, 3, 5, 7, 9, 11, 13, 15};

static uint32_t eight_signs(uint32_t seven)
{
    seven &= 127;
    return seven | (uint32_t)__builtin_parity(seven) << 7;
}

/* out[8] = scale * the point of IQ2, minus where a bit of `signs` is set. */
static void point_iq2(uint32_t point, uint32_t signs, float scale, float *out)
{
    for (int j = 0; j < 8; j++) {
        float v = scale * (float)levels_iq2[point >> 2 * j & 3];

        out[j] = signs >> j & 1 ? -v : v;
    }
}

/* out[8] = scale * two points of IQ3. */
static void points_iq3(uint32_t first, uint32_t second, const uint8_t *levels, uint32_t signs, float scale, float *out)
{
    uint32_t both = first | second << 12;

    for (int j = 0; j < 8; j++) {
        float v = scale * (float)levels[both >> 3 * j & 7];

        out[j] = signs >> j & 1 ? -v : v;
    }
}

/* out[8] = scale * (point of IQ1 + shift). */
static void point_iq1(uint32_t point, float shift, float scale, float *out)
{
    for (int j = 0; j < 8; j++)
        out[j] = scale * ((float)((int)(point >> 2 * j & 3) - 1) + shift);
}

static float shift_iq1(uint32_t minus)
{
    return minus ? -0.125f : 0.125f;
}

static void block_iq1_s(const uint8_t *b, float *out)
{
    float d = rn_half_at(b);

    for (int g = 0; g < 8; g++) {
        uint32_t word = rn_le16(b + 34 + 2 * g);
        float scale = d * (float)(2 * (word >> 12 & 7) + 1);

        for (int k = 0; k < 4; k++) {
            uint32_t index = b[2 + 4 * g + k] | (word >> 3 * k & 7) << 8;

            point_iq1(rn_grid_iq1_s[index], shift_iq1(word >> 15), scale, out + 32 * g + 8 * k);
        }
    }
}
RN_DECODER(iq1_s, 256, 50)

static void block_iq1_m(const uint8_t *b, float *out)
{
    uint32_t bits = 0;
    float d;

    for (int i = 0; i < 4; i++)
        bits |= (uint32_t)(rn_le16(b + 48 + 2 * i) >> 12) << 4 * i;
    d = rn_f16_to_f32((uint16_t)bits);
    for (int k = 0; k < 32; k++) { /* an eight; two share a scale */
        uint32_t s = rn_le16(b + 48 + k / 8 * 2) >> (k % 8 / 2 * 3) & 7, high = b[32 + k / 2] >> (k % 2 * 4) & 15;

        point_iq1(rn_grid_iq1_s[b[k] | (high & 7) << 8], shift_iq1(high >> 3), d * (float)(2 * s + 1), out + 8 * k);
    }
}
RN_DECODER(iq1_m, 256, 56)

static void block_iq2_xxs(const uint8_t *b, float *out)
{
    float d = rn_half_at(b);

    for (int g = 0; g < 8; g++) {
        const uint8_t *group = b + 2 + 8 * g;
        uint32_t word = rn_le32(group + 4);
        float scale = d * (0.5f + (float)(word >> 28)) * 0.25f;

        for (int k = 0; k < 4; k++)
            point_iq2(rn_grid_iq2_xxs[group[k]], eight_signs(word >> 7 * k), scale, out + 32 * g + 8 * k);
    }
}
RN_DECODER(iq2_xxs, 256, 66)

/* Scale of eight k (0..31): a nibble for two eights. */
static float scale_iq2(float d, const uint8_t *scales, int k)
{
    return d * (0.5f + (float)(scales[k / 4] >> (k % 4 / 2 * 4) & 15)) * 0.25f;
}

static void block_iq2_xs(const uint8_t *b, float *out)
{
    float d = rn_half_at(b);

    for (int k = 0; k < 32; k++) {
        uint32_t word = rn_le16(b + 2 + 2 * k);

        point_iq2(rn_grid_iq2_xs[word & 511], eight_signs(word >> 9), scale_iq2(d, b + 66, k), out + 8 * k);
    }
}
RN_DECODER(iq2_xs, 256, 74)

static void block_iq2_s(const uint8_t *b, float *out)
{
    float d = rn_half_at(b);

    for (int k = 0; k < 32; k++) {
        uint32_t index = b[2 + k] | (uint32_t)(b[66 + k / 4] >> (k % 4 * 2) & 3) << 8;

        point_iq2(rn_grid_iq2_s[index], b[34 + k], scale_iq2(d, b + 74, k), out + 8 * k);
    }
}
RN_DECODER(iq2_s, 256, 82)

static void block_iq3_xxs(const uint8_t *b, float *out)
{
    float d = rn_half_at(b);

    for (int g = 0; g < 8; g++) {
        uint32_t word = rn_le32(b + 66 + 4 * g);
        float scale = d * (0.5f + (float)(word >> 28)) * 0.5f;

        for (int k = 0; k < 4; k++) {
            const uint8_t *index = b + 2 + 8 * g + 2 * k;

            points_iq3(rn_grid_iq3_xxs[index[0]], rn_grid_iq3_xxs[index[1]], levels_iq3_xxs, eight_signs(word >> 7 * k),
                       scale, out + 32 * g + 8 * k);
        }
    }
}
RN_DECODER(iq3_xxs, 256, 98)

static void block_iq3_s(const uint8_t *b, float *out)
{
    float d = rn_half_at(b);

    for (int k = 0; k < 32; k++) {
        const uint8_t *index = b + 2 + 2 * k;
        uint32_t high = b[66 + k / 4] >> (k % 4 * 2), s = b[106 + k / 8] >> (k % 8 / 4 * 4) & 15;

        points_iq3(rn_grid_iq3_s[index[0] | (high & 1) << 8], rn_grid_iq3_s[index[1] | (high >> 1 & 1) << 8],
                   levels_iq3_s, b[74 + k], d * (float)(1 + 2 * s), out + 8 * k);
    }
}
RN_DECODER(iq3_s, 256, 110)

/* out[32] = scale * level of 32 nibbles. */
static void levels_32(const uint8_t *q, float scale, float *out)
{
    for (int i = 0; i < 16; i++) {
        out[i] = scale * (float)rn_levels_iq4[q[i] & 15];
        out[i + 16] = scale * (float)rn_levels_iq4[q[i] >> 4];
    }
}

static void block_iq4_nl(const uint8_t *b, float *out)
{
    levels_32(b + 2, rn_half_at(b), out);
}
RN_DECODER(iq4_nl, 32, 18)

static void block_iq4_xs(const uint8_t *b, float *out)
{
    float d = rn_half_at(b);
    uint32_t high = rn_le16(b + 2);

    for (int g = 0; g < 8; g++) {
        int s = (b[4 + g / 2] >> (g % 2 * 4) & 15) | (int)(high >> 2 * g & 3) << 4;

        levels_32(b + 8 + 16 * g, d * (float)(s - 32), out + 32 * g);
    }
}
RN_DECODER(iq4_xs, 256, 136)
