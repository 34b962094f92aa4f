/* Planes of floating-point numbers' upper bytes in few bits, at the speed of memory: see block_codec.h.
 *
 * The upper byte of a number is its sign and the most of its exponent. Turned left by one bit, the sign is at the
 * bottom, and the bytes of numbers of like size lie within a short range of a circle of 256:
 *
 *   byte  s e e e e m m m   turned  e e e e m m m s   code  turned - base (mod 256)
 *
 * A plane is cut into groups of 256 bytes. Each has the codes of its own width, those below 2^width; the few others
 * (the small numbers among the large) are told apart, by place:
 *
 *   group  width | base | n | codes, 32 bytes for each bit of width | n places | n bytes as they were
 *   parts  of the codes, from their lowest bit on; byte j of a part of ...
 *            4 bits (128 bytes): the codes j, 128 + j, from its low bits to its high bits
 *            2 bits (64 bytes):  the codes j, 64 + j, 128 + j, 192 + j
 *            1 bit  (32 bytes):  the codes j, 32 + j, ..., 224 + j
 *          in this order; the width says which parts there are: 6 = 4 + 2
 *
 * Width 8, base and n 0: the bytes as they are. So are those at the end that are fewer than 256.
 *
 * Huffman codes make such planes smaller by a tenth to a fifth, and take five to ten times as long to read
 * (docs/TIERS.md). The method is known as frame of reference with patches (Zukowski et al., "Super-scalar RAM-CPU
 * cache compression", 2006).
 *
 * Pure functions; any thread. */
#ifndef RN_CACHE_BIT_PLANE_H
#define RN_CACHE_BIT_PLANE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RN_BIT_GROUP 256u
#define RN_BIT_HEADER 3u

/* plane[n] into out[room]; the bytes it takes, 0: they are more than room. The same bytes from the same plane. */
size_t rn_bit_plane_pack(const uint8_t *plane, size_t n, uint8_t *out, size_t room);

/* packed[n_packed] into plane[n]. False: these are not the bytes of a plane of n; what is in `plane` then is
 * undefined. Any bytes are refused or unpacked, never read or written out of bounds. */
bool rn_bit_plane_unpack(const uint8_t *packed, size_t n_packed, uint8_t *plane, size_t n);

#endif
