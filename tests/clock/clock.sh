#!/usr/bin/env bash
# Runs the tests of a build under a clock that goes FACTOR times as fast (clock.c): no verdict may hang on how fast the
# machine is, neither slow nor fast. For developers; the suite's own runs take the system's clock.
#
#   tests/clock/clock.sh FACTOR [BUILD] [CTEST ARGUMENTS...]       10: a machine ten times slower; 0.1: ten times faster
#
# BUILD: build/ci; not one with sanitizers, before which no library can be loaded. ctest's own limits follow the clock,
# too: they are set to an hour of it for each factor of one.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
factor=${1:?FACTOR}
build=${2:-$here/../../build/ci}
[ $# -gt 2 ] && shift 2 || shift $#
library=$(mktemp -d)/libclock.so
trap 'rm -rf "$(dirname "$library")"' EXIT
gcc -std=gnu11 -O2 -Wall -Wextra -fPIC -shared -o "$library" "$here/clock.c" -ldl
limit=$(awk -v f="$factor" 'BEGIN { printf "%d", 3600 * (f > 1 ? f : 1) }')
RUNNEL_CLOCK_FACTOR=$factor LD_PRELOAD=$library ctest --test-dir "$build" --timeout "$limit" "$@"
