/* Few rows by matmul_stream, whatever is faster: apart from tests that know the CPU's kernels, whose names are
 * these. */
#ifndef RN_TESTS_GPU_RIGS_FORCE_STREAMS_H
#define RN_TESTS_GPU_RIGS_FORCE_STREAMS_H

#include "model/backend.h"

/* Of a backend of CUDA before its first step: measures as a load does, and then has every type of weights streamed. */
void force_streams(struct rn_backend *backend);

#endif
