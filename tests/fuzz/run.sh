#!/bin/sh
# run.sh PROGRAM CORPUS SECONDS: lets the program write its seeds (RUNNEL_FUZZ_SEEDS names the folder), then
# fuzzes for so long, or for RUNNEL_FUZZ_SECONDS.
set -eu
program=$1 corpus=$2 seconds=$3
RUNNEL_FUZZ_SEEDS=$corpus "$program" -runs=0 >/dev/null 2>&1
cd "$corpus/.." # where libFuzzer leaves a crashing input
exec "$program" -max_total_time="${RUNNEL_FUZZ_SECONDS:-$seconds}" -malloc_limit_mb=256 -timeout=20 -max_len=16384 \
    -print_final_stats=1 "$corpus"
