/* The CPU keeps the backend contract twice: the reference, plain C with double accumulation and no
 * thought of speed, which judges every other path; and the fast one, SIMD kernels chosen at run time
 * on a team of threads. */
#ifndef RN_CPU_CPU_H
#define RN_CPU_CPU_H

#include "model/backend.h"
#include "model/gemm.h"

/* The two kinds of device: "cpu", or "cpu:LEVEL" for a SIMD level that is not the machine's best, and "reference". An
 * open one has a compute team, or shares that of the device beside which it was opened, where that is of one of these
 * kinds. Backends run their steps on the team (the reference on one of its threads), one step at a time, and never
 * block the submitter. */
extern const struct rn_device_kind rn_cpu_kind, rn_cpu_reference_kind;

/* Products of float matrices on the calling thread: the fastest of this machine; and by name, for tests. avx2: NULL
 * where the build does not have it, and only for a machine that has (rn_level_avx2). */
const struct rn_gemm *rn_cpu_gemm(void);
const struct rn_gemm *rn_gemm_c(void);
const struct rn_gemm *rn_gemm_avx2(void);

#endif
