/* The oracle model on the CUDA device, emulated: gpu/'s own backend, with its streams, graphs, tables, copies, draws
 * and ring, runs a plan of five ops, of which three have kernels that compute the oracle's closed form; the others, and
 * draws, are the device's own.
 *
 *   EMBED ─▶ token, salt ─▶ KV_STORE*: KV[i] ─▶ ATTENTION*: S[i] ─▶ SELECT ─▶ MATMUL*: logits ─▶ draw
 *
 * KV[i] lies with the keys, and its complement with the values: a block of which one half was copied gives rubbish. */
#ifndef RN_TESTS_SIM_CUDA_ORACLE_H
#define RN_TESTS_SIM_CUDA_ORACLE_H

#include "tests/sim/oracle_backend.h"

enum { CUDA_ORACLE_BYTES = 256 }; /* of a position in a block; of the oracle alone 8 */

/* From now on the oracle's steps are computed there, and drawn. It has no means, windows, states and trees. The
 * alphabet is the same for all oracles of a process at a time. may_fail: of some steps and copies one of the driver's
 * calls fails, by the oracle's salt. False: the device could not be had. */
bool cuda_oracle_attach(struct oracle *oracle, bool may_fail);

/* Launches of kernels of the oracle so far; and calls of the driver that have failed. */
uint64_t cuda_oracle_launches(void);
uint64_t cuda_oracle_failures(void);

#endif
