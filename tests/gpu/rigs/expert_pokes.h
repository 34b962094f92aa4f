/* What tests do to the experts of a CUDA backend (gpu/experts.h), apart from headers whose names are the CPU's, too. */
#ifndef RN_TESTS_GPU_RIGS_EXPERT_POKES_H
#define RN_TESTS_GPU_RIGS_EXPERT_POKES_H

#include "model/backend.h"

/* Experts of all groups, and their places on the device; 0: they lie with their layers. */
uint32_t pokes_experts(const struct rn_backend *backend);
uint32_t pokes_places(const struct rn_backend *backend);

/* Others are wanted on the device than before, in every group. */
void pokes_shake(struct rn_backend *backend, uint32_t *random);

#endif
