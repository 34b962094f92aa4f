/* Attention of the AVX-512 level: attend.inc over sixteen floats. Threads: any; nothing here has state. */
#include "cpu/attend_avx512.h"

#include "cpu/math.inc"

#include "cpu/attend.inc"
#include "cpu/attend_vectors.inc"

const struct rn_attention rn_attention_avx512 = {.attend = row_attend, .merge = row_attend_merge};
