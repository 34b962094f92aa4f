/* bits_avx512.h for processors with GFNI and VBMI. vgf2p8affineqb makes each bit of a byte out of any of its bits,
 * which is a shift and a mask in one, and an addition, too, where that carries as bits do:
 *
 *     nibble q, q + 120     q < 8:  0 1 1 1 1 q2 q1 q0        bit 7 is bit 3 of q, bits 6 to 3 are its opposite
 *                           else:   1 0 0 0 0 q2 q1 q0
 *     six bits, q + 96      q < 32: 0 1 1 q4 .. q0            bit 7 is bit 5 of q, bits 6 and 5 are its opposite
 *                           else:   1 0 0 q4 .. q0
 *
 * vpermb looks at the low six bits of an index alone: a table of sixteen stands there four times, and needs no mask. */
#ifndef RN_CPU_LEVELS_AVX512_BITS_AFFINE_AVX512_H
#define RN_CPU_LEVELS_AVX512_BITS_AFFINE_AVX512_H

#include "cpu/levels/avx512/vectors_avx512.h"

#define PLAIN_BYTES(n) false

/* Bit i of each byte of the result is the parity of what byte 7 - i of `of` leaves of the byte, and bit i of `other`,
 * which is a constant to the compiler. */
#define AFFINE(v, of, other) _mm512_gf2p8affine_epi64_epi8((v), _mm512_set1_epi64((long long)(of)), (other))

INLINE VI nibbles(VI v, bool high)
{
    return high ? AFFINE(v, 0x1020408000000000, 0) : low_nibbles(v);
}

INLINE VI nibbles_120(VI v, bool high)
{
    return high ? AFFINE(v, 0x1020408080808080, 0x78) : AFFINE(v, 0x0102040808080808, 0x78);
}

INLINE VI nibble_levels(VI v, bool high, VI levels)
{
    return _mm512_permutexvar_epi8(high ? _mm512_srli_epi16(v, 4) : v, levels);
}

/* The low nibbles of v or, where they are wanted, its high ones, below the bits of `above`. */
INLINE VI below(VI v, bool high, VI above)
{
    return _mm512_ternarylogic_epi32(high ? _mm512_srli_epi16(v, 4) : v, above, bytes(15), 0xec);
}

INLINE VI five_bits(VI v, bool high, VI fifth, uint32_t from)
{
    return below(v, high, AFFINE(fifth, (uint64_t)1 << from << 24, 0));
}

INLINE VI six_bits(VI v, bool high, VI above, uint32_t from)
{
    return below(v, high, AFFINE(above, (uint64_t)2 << from << 16 | (uint64_t)1 << from << 24, 0));
}

INLINE VI six_bits_96(VI v, bool high, VI above, uint32_t from)
{
    const uint64_t fifth = (uint64_t)1 << from, sixth = 2 * fifth;

    return below(v, high, AFFINE(above, sixth | sixth << 8 | sixth << 16 | fifth << 24, 0x60));
}

#endif
