/* All kernels as one source: the driver loads one image. */
#include "gpu/kernels/attention.cu"
#include "gpu/kernels/cache.cu"
#include "gpu/kernels/each.cu"
#include "gpu/kernels/experts.cu"
#include "gpu/kernels/matmul_few.cu"
#include "gpu/kernels/matmul_many.cu"
#include "gpu/kernels/rows.cu"
#include "gpu/kernels/tile.cu"
