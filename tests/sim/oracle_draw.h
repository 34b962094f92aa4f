/* What the oracle draws with where it draws by itself: a sampler of its own, told of as many tokens as count. */
#ifndef RN_TESTS_SIM_ORACLE_DRAW_H
#define RN_TESTS_SIM_ORACLE_DRAW_H

#include "sampling/sampler.h"
#include "tests/sim/oracle_backend.h"

/* The draw's changes keep to the contract (model/draw.h). Adds their number. */
bool oracle_can_draw(const struct rn_draw *draw, uint64_t *n_changes);

/* Of a wanted row. Freed by the caller; NULL: memory was refused. */
struct rn_sampler *oracle_sampler(struct oracle *oracle, const struct rn_step *step, uint32_t out);

#endif
