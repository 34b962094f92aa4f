#!/usr/bin/env bash
# Builds base, model and cpu for AArch64 and runs their tests emulated: on a processor with dot products and
# on one without. Ends with 77, as skipped, where the cross compiler or the emulator is missing.
#
#   tests/cross/run.sh [build directory]
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
build=${1:-$root/build/cross}
compiler=aarch64-linux-gnu-gcc
emulator=$(command -v qemu-aarch64 || command -v qemu-aarch64-static || true)
if ! command -v $compiler >/dev/null || [ -z "$emulator" ]; then
    echo "skipped: needs $compiler and qemu-aarch64 (scripts/setup installs them)"
    exit 77
fi
export RUNNEL_SHARED=${RUNNEL_SHARED:-$root/../shared}
cd "$root"

quietly() {
    "$@" >"$build/log" 2>&1 || { cat "$build/log"; exit 1; }
}

# -O2: gcc 12 for this target stops with an internal error at -O3 in the tests. Levels have their own flags.
mkdir -p "$build"
quietly cmake -S tests/cross -B "$build" -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
    -DCMAKE_C_COMPILER=$compiler -DCMAKE_C_FLAGS=-O2
quietly cmake --build "$build" -j 2

# The other byte order is refused when building, not when running. (The C library lacks one empty header for it.)
mkdir -p "$build/big/gnu"
touch "$build/big/gnu/stubs-lp64_be.h"
if $compiler -mbig-endian -I"$build/big" -I. -Iinclude -fsyntax-only model/quant/quant.c 2>"$build/log"; then
    echo "a big-endian build was not refused"
    exit 1
fi
grep -q 'needs a little-endian machine' "$build/log" || { cat "$build/log"; exit 1; }

run() {
    local status=0

    echo "--- $1: $2 ${3:-}"
    RN_TESTS=${3:-} "$emulator" -cpu "$1" "$build/$2" 2>&1 || status=$?
    [ $status = 0 ] || [ $status = 77 ] || exit $status
}

with_dot_products() {
    run max test_neon
    run max test_products
    run max test_backend queue
    run max test_unpack
    run max test_kernels
    run max test_orders test_files
}

# Emulation is slow: test_neon has compared all bits of both tables, so a part of the products will do; and
# here runs what does not depend on dot products.
without() {
    run cortex-a53 test_neon
    run cortex-a53 test_products odd_rows
    run cortex-a53 test_products extremes
    run cortex-a53 test_backend oracles
    run cortex-a53 test_attention
}

with_dot_products >"$build/log.dot" &
without
wait $! || { cat "$build/log.dot"; exit 1; }
cat "$build/log.dot"
