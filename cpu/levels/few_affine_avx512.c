/* The same as few_avx512.c for processors with GFNI and VBMI.
 *
 * Threads: any; nothing here has state. */
#include "cpu/levels/bits_affine_avx512.h"
#include "cpu/levels/rows_avx512.h"

#include "cpu/levels/few_rows_avx512.inc"

#define FEW_NAME(name) rn_few_##name##_affine

RN_FEW_OF_AVX512(EXPORT_FEW)
