/* Weights of a few bits become bytes, by shifts and masks: for few_avx512.inc. bits_affine_avx512.h has the same in
 * fewer instructions for processors that know more of them. */
#ifndef RN_CPU_LEVELS_AVX512_BITS_AVX512_H
#define RN_CPU_LEVELS_AVX512_BITS_AVX512_H

#include "cpu/levels/avx512/vectors_avx512.h"

/* Of one input in tiles: bytes that are less than 128 too large cost an instruction for each input and save one for
 * each weight. */
#define PLAIN_BYTES(n) ((n) == 1)

/* Nibbles; of each byte the low one or the high one. */
INLINE VI nibbles(VI v, bool high)
{
    return high ? high_nibbles(v) : low_nibbles(v);
}

/* Nibbles less 8, and 128 more. */
INLINE VI nibbles_120(VI v, bool high)
{
    return _mm512_add_epi8(nibbles(v, high), bytes(120));
}

/* What nibbles stand for, of a table of sixteen. */
INLINE VI nibble_levels(VI v, bool high, VI levels)
{
    return _mm512_shuffle_epi8(levels, nibbles(v, high));
}

/* Nibbles, and above them bit `from` of the bytes of `fifth`. */
INLINE VI five_bits(VI v, bool high, VI fifth, uint32_t from)
{
    VI bit = from < 4 ? _mm512_slli_epi32(fifth, 4 - from) : _mm512_srli_epi32(fifth, from - 4);

    return _mm512_ternarylogic_epi32(nibbles(v, high), bit, bytes(16), 0xf8); /* nibble | (bit & 16) */
}

/* Nibbles, and above them the bits `from` and `from` + 1 of the bytes of `above`. */
INLINE VI six_bits(VI v, bool high, VI above, uint32_t from)
{
    VI two = from < 4 ? _mm512_slli_epi32(above, 4 - from) : _mm512_srli_epi32(above, from - 4);

    return _mm512_ternarylogic_epi32(nibbles(v, high), two, bytes(0x30), 0xf8);
}

/* The same less 32, and 128 more. */
INLINE VI six_bits_96(VI v, bool high, VI above, uint32_t from)
{
    return _mm512_add_epi8(six_bits(v, high, above, from), bytes(96));
}

#endif
