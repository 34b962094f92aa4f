/* What changes single logits before a token is drawn from them, as a device is told of it that draws by itself
 * (model/draw.h): to the bit what rn_sampler_pick draws, from counts that are made when the step is composed. */
#ifndef RN_SAMPLING_CHANGES_H
#define RN_SAMPLING_CHANGES_H

#include "model/draw.h"
#include "sampling/sampler.h"

/* True when that and temperature, top-k, top-p, min-p in this order are all that is on. */
bool rn_changes_are_all(const struct rn_sampler *sampler);

/* At most so many, biases included, behind n_behind tokens of which the state has not been told. */
uint32_t rn_changes_most(const struct rn_sampler *sampler, uint32_t n_behind);

/* Those of a row behind a path; or waits, and the path is empty: behind one more token of the answer, the row's own,
 * that only the device knows. Writes counts, for which there is room for rn_changes_most, and borrows it and the
 * sampler's ends into *changes, for as long as the sampler lives. */
void rn_changes_take(const struct rn_sampler *sampler, struct rn_path path, bool waits, struct rn_draw_count *counts,
                     struct rn_draw_changes *changes);

#endif
