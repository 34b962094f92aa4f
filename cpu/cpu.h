/* The CPU keeps the backend contract twice: the reference, plain C with double accumulation and no
 * thought of speed, which judges every other path; and the fast one, SIMD kernels chosen at run time
 * on a team of threads. */
#ifndef RN_CPU_CPU_H
#define RN_CPU_CPU_H

#include "model/backend.h"
#include "model/gemm.h"

/* A team of compute threads, shared by the backends of one engine. */
struct rn_team;

/* n_threads 0: one per physical core that the process may use (affinity mask, cgroup quota).
 * NULL on refusal of memory or threads. */
struct rn_team *rn_team_new(struct rn_heap *heap, uint32_t n_threads);

/* Joins the threads; nothing is queued or running. NULL is allowed. */
void rn_team_free(struct rn_team *team);
uint32_t rn_team_threads(const struct rn_team *team);

/* Both run their steps on the team (the reference on one of its threads), one step at a time, and
 * never block the submitter. NULL on refusal. The team must outlive the backend. */
struct rn_backend *rn_cpu_reference_new(struct rn_heap *heap, struct rn_team *team);
struct rn_backend *rn_cpu_backend_new(struct rn_heap *heap, struct rn_team *team);

/* All of *machine but its struct_size; blocks. See runnel_engine_measure. NO_MEMORY; CLOSED: is_unwanted, which is asked
 * before each of some forty passes of 20 ms to 300 ms, has said so. is_unwanted NULL: it never is. */
runnel_status rn_cpu_measure(struct rn_heap *heap, struct rn_team *team, bool (*is_unwanted)(void *user), void *user,
                             runnel_machine *machine, runnel_error *error);

/* Products of float matrices on the calling thread: the fastest of this machine; and by name, for tests. avx2: NULL
 * where the build does not have it, and only for a machine that has (rn_level_avx2). */
const struct rn_gemm *rn_cpu_gemm(void);
const struct rn_gemm *rn_gemm_c(void);
const struct rn_gemm *rn_gemm_avx2(void);

/* Names the SIMD level in use: "avx512-amx", "avx512", "avx2", "neon", "c". */
const char *rn_cpu_level(void);

#endif
