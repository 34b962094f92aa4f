/* Points that are loaded one by one on AVX-512, side by side in a register. Loads with a mask keep what is there: the
 * compiler would load and insert, which takes a shuffle each. */
#ifndef RN_CPU_LEVELS_AVX512_LOAD_POINTS_AVX512_H
#define RN_CPU_LEVELS_AVX512_LOAD_POINTS_AVX512_H

#include <immintrin.h>
#include <stdint.h>

#define LOAD_FOUR(instruction, v, points, a, b, c, d)                                     \
    __asm__(instruction " %1, %0" : "=v"(v) : "m"((points)[a]));                          \
    __asm__(instruction " %1, %0%{%2%}" : "+v"(v) : "m"((points)[b]), "Yk"((__mmask8)2)); \
    __asm__(instruction " %1, %0%{%2%}" : "+v"(v) : "m"((points)[c]), "Yk"((__mmask8)4)); \
    __asm__(instruction " %1, %0%{%2%}" : "+v"(v) : "m"((points)[d]), "Yk"((__mmask8)8))

/* Of eight columns. */
static inline __attribute__((always_inline)) __m256i four_points(const uint64_t *points, uint64_t a, uint64_t b,
                                                                 uint64_t c, uint64_t d)
{
    __m256i v;

    LOAD_FOUR("vpbroadcastq", v, points, a, b, c, d);
    return v;
}

/* Of four columns. */
static inline __attribute__((always_inline)) __m128i four_points4(const uint32_t *points, uint64_t a, uint64_t b,
                                                                  uint64_t c, uint64_t d)
{
    __m128i v;

    LOAD_FOUR("vpbroadcastd", v, points, a, b, c, d);
    return v;
}

#undef LOAD_FOUR

#endif
