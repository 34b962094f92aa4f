/* Products of a few inputs with sixteen whole rows on AVX-512: see few_rows_avx512.inc.
 *
 * Threads: any; nothing here has state. */
#include "cpu/levels/avx512/bits_avx512.h"
#include "cpu/levels/avx512/rows_avx512.h"

#include "cpu/levels/avx512/few_rows_avx512.inc"

#define FEW_NAME(name) rn_few_##name##_avx512

RN_FEW_OF_AVX512(EXPORT_FEW)
