/* What the x86 levels share: unpacking one block of weights into bytes, transposing, sums across
 * lanes. Compiled into each level with its own flags.
 *
 * Blocks (the ggml project's ggml-common.h):
 *     Q8_0  d f16, q i8[32]
 *     Q4_0  d f16, nibbles[16]: low ones are values 0..15, high ones 16..31; value = d (nibble - 8)
 *     Q4_K  d f16, dmin f16, scales[12] (6 bits each, 8 scales and 8 minima), nibbles[128]: 32 bytes
 *           hold 32 values in the low and the next 32 in the high nibbles; value = d s q - dmin m
 *     Q6_K  low nibbles[128], high bit pairs[64], scales i8[16], d f16; value = d s (q - 32) */
#ifndef RN_CPU_BLOCKS_AVX2_H
#define RN_CPU_BLOCKS_AVX2_H

#if defined(__AVX2__)
#include <immintrin.h>
#include <string.h>

#include "cpu/kernels.h"

enum { RN_Q8_0_BYTES = 34, RN_Q4_0_BYTES = 18, RN_Q4_K_BYTES = 144, RN_Q6_K_BYTES = 210 };

static inline uint16_t rn_u16(const uint8_t *p)
{
    uint16_t v;

    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint32_t rn_u32(const void *p)
{
    uint32_t v;

    memcpy(&v, p, sizeof v);
    return v;
}

static inline __m256i rn_load256(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

static inline __m256i rn_broadcast4(const void *p)
{
    return _mm256_set1_epi32((int32_t)rn_u32(p));
}

/* The half floats at offset `at` of eight rows. */
static inline __m256 rn_halves8(const uint8_t *const *rows, size_t at)
{
    __m128i v = _mm_cvtsi32_si128(rn_u16(rows[0] + at));

    v = _mm_insert_epi16(v, rn_u16(rows[1] + at), 1);
    v = _mm_insert_epi16(v, rn_u16(rows[2] + at), 2);
    v = _mm_insert_epi16(v, rn_u16(rows[3] + at), 3);
    v = _mm_insert_epi16(v, rn_u16(rows[4] + at), 4);
    v = _mm_insert_epi16(v, rn_u16(rows[5] + at), 5);
    v = _mm_insert_epi16(v, rn_u16(rows[6] + at), 6);
    v = _mm_insert_epi16(v, rn_u16(rows[7] + at), 7);
    return _mm256_cvtph_ps(v);
}

/* Lane r: the sum of the eight lanes of v[r]. */
static inline __m256i rn_sums8(const __m256i *v)
{
    __m256i low = _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
    __m256i high = _mm256_hadd_epi32(_mm256_hadd_epi32(v[4], v[5]), _mm256_hadd_epi32(v[6], v[7]));

    return _mm256_add_epi32(_mm256_permute2x128_si256(low, high, 0x20), _mm256_permute2x128_si256(low, high, 0x31));
}

/* Lane r of v[c] becomes lane c of v[r]. */
static inline void rn_transpose8(__m256i *v)
{
    __m256i a[8], b[8];
    int i;

    for (i = 0; i < 4; i++) {
        a[2 * i] = _mm256_unpacklo_epi32(v[2 * i], v[2 * i + 1]);
        a[2 * i + 1] = _mm256_unpackhi_epi32(v[2 * i], v[2 * i + 1]);
    }
    for (i = 0; i < 2; i++) {
        b[4 * i] = _mm256_unpacklo_epi64(a[4 * i], a[4 * i + 2]);
        b[4 * i + 1] = _mm256_unpackhi_epi64(a[4 * i], a[4 * i + 2]);
        b[4 * i + 2] = _mm256_unpacklo_epi64(a[4 * i + 1], a[4 * i + 3]);
        b[4 * i + 3] = _mm256_unpackhi_epi64(a[4 * i + 1], a[4 * i + 3]);
    }
    for (i = 0; i < 4; i++) {
        v[i] = _mm256_permute2x128_si256(b[i], b[i + 4], 0x20);
        v[i + 4] = _mm256_permute2x128_si256(b[i], b[i + 4], 0x31);
    }
}

/* 32 bytes of eight rows, four columns of all rows side by side, to out[0..8) * stride bytes. */
static inline void rn_interleave8(__m256i *v, uint8_t *out, size_t stride)
{
    int i;

    rn_transpose8(v);
    for (i = 0; i < 8; i++)
        _mm256_storeu_si256((__m256i *)(out + (size_t)i * stride), v[i]);
}

/* 16 bytes of nibbles: the low ones, then the high ones. */
static inline __m256i rn_nibbles(const uint8_t *p)
{
    __m256i x = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)p));

    x = _mm256_srlv_epi32(x, _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4));
    return _mm256_and_si256(x, _mm256_set1_epi8(15));
}

/* The 8 scales of a Q4_K block in bytes 0..7, its 8 minima in bytes 8..15. */
static inline __m128i rn_q4_k_scales(const uint8_t *block)
{
    uint32_t a = rn_u32(block + 4), b = rn_u32(block + 8), c = rn_u32(block + 12);

    return _mm_setr_epi32((int32_t)(a & 0x3f3f3f3f), (int32_t)((c & 0x0f0f0f0f) | (a >> 2 & 0x30303030)),
                          (int32_t)(b & 0x3f3f3f3f), (int32_t)((c >> 4 & 0x0f0f0f0f) | (b >> 2 & 0x30303030)));
}

/* The q (0..15) of the j-th 32 values of a Q4_K block. */
static inline __m256i rn_q4_k_q(const uint8_t *block, uint32_t j)
{
    __m256i x = rn_load256(block + 16 + 32 * (j / 2));

    return _mm256_and_si256(j % 2 == 0 ? x : _mm256_srli_epi16(x, 4), _mm256_set1_epi8(15));
}

/* The q (0..63) of the j-th 32 values of a Q6_K block. */
static inline __m256i rn_q6_k_q(const uint8_t *block, uint32_t j)
{
    uint32_t half = j / 4, k = j % 4;
    __m256i low = rn_load256(block + 64 * half + 32 * (k % 2));
    __m256i high = rn_load256(block + 128 + 32 * half);

    low = _mm256_and_si256(k < 2 ? low : _mm256_srli_epi16(low, 4), _mm256_set1_epi8(15));
    high = _mm256_and_si256(_mm256_srl_epi16(high, _mm_cvtsi32_si128((int32_t)(2 * k))), _mm256_set1_epi8(3));
    return _mm256_or_si256(low, _mm256_slli_epi16(high, 4));
}

/* Asks for what this stream needs a little later; the processor's own fetching ahead ends with the page.
 * On Sapphire Rapids any distance from 512 bytes to 4 KiB gives the same. */
static inline void rn_ahead(const uint8_t *p, size_t bytes)
{
    size_t i;

    for (i = 0; i < bytes; i += 64)
        _mm_prefetch((const char *)p + i + 1024, _MM_HINT_T0);
}

#endif
#endif
