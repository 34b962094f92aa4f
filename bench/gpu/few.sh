#!/usr/bin/env bash
# Few rows on a GPU, in one run: that what has not run on a device yet is right there (exit status), and then the products
# of one to eight rows by matmul_few and by matmul_stream beside each other, as shares of the copy line; and those of
# experts pair by pair and by groups.
#
#   cmake --preset ci -DRUNNEL_CUDA_TARGETS=sm_90
#   ninja -C build/ci runnel_cuda bench_gpu test_gpu_{products,experts,draw,attention,choose,model}
#   bench/gpu/few.sh [build/ci]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=${1:-build/ci}
library=$PWD/$build/lib/librunnel-cuda.so
for test in products experts draw attention choose model; do
    RUNNEL_TEST_CUDA=$library "$build/bin/test_gpu_$test" 2>&1 | tail -1
done
"$build/bin/bench_gpu" --library "$library" products experts
