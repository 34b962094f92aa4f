#!/bin/sh
# run.sh PROGRAM CORPUS RUNS: lets the program write its seeds (RUNNEL_FUZZ_SEEDS names the folder), then runs so many
# inputs made from them. Random numbers start from a fixed value, so the inputs are the same on every machine: the test
# of a commit passes everywhere or nowhere. For this what the program compares is no source of bytes (-use_cmp=0): there
# are addresses among it, which are others under another kernel.
#
# To search for new inputs: with RUNNEL_FUZZ_SECONDS=600 it runs so long, with other random numbers each time, and keeps
# what it finds in CORPUS, from where it goes on the next time.
set -eu
program=$1 corpus=$2 runs=$3
seeds=$corpus.seeds
rm -rf "$seeds"
mkdir -p "$corpus" "$seeds"
RUNNEL_FUZZ_SEEDS=$seeds "$program" -runs=0 >/dev/null 2>&1
find "$seeds" -type f | LC_ALL=C sort | paste -sd, >"$seeds.list" # a folder's own order is the file system's
if [ -n "${RUNNEL_FUZZ_SECONDS:-}" ]; then
    set -- -max_total_time="$RUNNEL_FUZZ_SECONDS" "$corpus"
else
    set -- -seed=1 -use_cmp=0 -runs="$runs"
fi
fixed=
if setarch -R true 2>/dev/null; then # coverage counts indirect calls by their addresses
    fixed="setarch -R"
fi
cd "$corpus/.." # where libFuzzer leaves a crashing input
exec $fixed "$program" -malloc_limit_mb=256 -timeout=100 -max_len=16384 -print_final_stats=1 -seed_inputs=@"$seeds.list" "$@"
