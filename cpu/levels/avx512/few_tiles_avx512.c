/* Products of one to a few inputs with sixteen rows in a tile on AVX-512: see few_tiles_avx512.inc.
 *
 * Threads: any; nothing here has state. */
#include "cpu/levels/avx512/bits_avx512.h"
#include "cpu/levels/avx512/vectors_avx512.h"

#include "cpu/levels/avx512/few_tiles_avx512.inc"

#define FEW_NAME(name) rn_few_tiles_##name##_avx512

#define TURNS_NAME(name) rn_turns_##name##_avx512

RN_FEW_OF_AVX512(EXPORT_FEW)
ALL_TURNS
