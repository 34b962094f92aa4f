/* The same as few_tiles_avx512.c for processors with GFNI and VBMI.
 *
 * Threads: any; nothing here has state. */
#include "cpu/levels/avx512/bits_affine_avx512.h"
#include "cpu/levels/avx512/vectors_avx512.h"

#include "cpu/levels/avx512/few_tiles_avx512.inc"

#define FEW_NAME(name) rn_few_tiles_##name##_affine

#define TURNS_NAME(name) rn_turns_##name##_affine

RN_FEW_OF_AVX512(EXPORT_FEW)
ALL_TURNS
