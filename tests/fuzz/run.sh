#!/bin/sh
# run.sh PROGRAM CORPUS: lets the program write its seeds (RUNNEL_FUZZ_SEEDS names the folder), then
# fuzzes for 20 seconds, or RUNNEL_FUZZ_SECONDS.
set -eu
program=$1 corpus=$2
RUNNEL_FUZZ_SEEDS=$corpus "$program" -runs=0 >/dev/null 2>&1
cd "$corpus/.." # where libFuzzer leaves a crashing input
exec "$program" -max_total_time="${RUNNEL_FUZZ_SECONDS:-20}" -malloc_limit_mb=256 -timeout=5 -max_len=16384 \
    -print_final_stats=1 "$corpus"
