/* Attention of the AVX-512 level: attend.inc over sixteen floats. Threads: any; nothing here has state. */
#include "cpu/levels/avx512/attend_avx512.h"

#include "cpu/levels/math.inc"

#include "cpu/levels/attend.inc"
#include "cpu/levels/attend_vectors.inc"

const struct rn_attention rn_attention_avx512 = {.attend = row_attend, .score = row_score, .merge = row_attend_merge};
