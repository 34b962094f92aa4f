/* Rotary positions: the table of angles behind struct rn_rope.
 *
 * The pair i of a head at position p turns by the angle p * inv_freq[i]:
 *
 *     plain       f_i = base^(-2i / dims)
 *     linear      f_i / factor
 *     freq table  f_i / divisors[i]                 (tensor rope_freqs.weight: llama3 as files store it)
 *     llama3      f_i / factor where the wave 2 pi / f_i is longer than original / low_factor, f_i where it
 *                 is shorter than original / high_factor, between them a straight blend in original / wave
 *                 (a file that also has the table has it folded in: the table alone counts)
 *     YaRN        f_i * (ramp_i + (1 - ramp_i) / factor), ramp_i falling from 1 to 0 between the pairs that
 *                 turn beta_fast and beta_slow times within the original context; the rotated vectors
 *                 grow by 1 + 0.1 ln(factor)
 *     longrope    f_i / (short or long divisors)[i], by whether the context is longer than the original; linear in a
 *                 file that has neither
 *
 * Sources: Su et al. 2021 (arXiv 2104.09864); Peng et al. 2023 (YaRN, arXiv 2309.00071); Ding et al.
 * 2024 (LongRoPE, arXiv 2402.13753); the Llama 3.1 model card; rounding of YaRN's ramp bounds and the
 * meaning of the keys as in llama.cpp. All in double. With several axes text has equal positions on
 * the first three, which is the plain rotation, and position 0 on the fourth: its pairs stand still. */
#ifndef RN_MODEL_ROPE_H
#define RN_MODEL_ROPE_H

#include "model/hparams.h"
#include "model/plan.h"

/* Fills rope->inv_freq, [rope->dims / 2], allocated by the caller, and rope->magnitude. divisors
 * [dims / 2]: what each frequency is divided by, all > 0, or NULL. For longrope the caller has
 * chosen them by rn_rope_is_long. */
void rn_rope_fill(const struct rn_rope_hparams *hparams, const float *divisors, struct rn_rope *rope);

/* By how much rotated vectors grow: rope->magnitude. */
double rn_rope_magnitude(const struct rn_rope_hparams *hparams);

/* True where a model with long and short divisors uses the long ones. */
bool rn_rope_is_long(const struct rn_rope_hparams *hparams, uint32_t context_tokens);

#endif
