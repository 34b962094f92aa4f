/* The same as few_avx512.c for processors with GFNI and VBMI.
 *
 * Threads: any; nothing here has state. */
#include "cpu/levels/avx512/bits_affine_avx512.h"
#include "cpu/levels/avx512/rows_avx512.h"

#include "cpu/levels/avx512/few_rows_avx512.inc"

#define FEW_NAME(name) rn_few_##name##_affine

RN_FEW_OF_AVX512(EXPORT_FEW)
