#!/usr/bin/env bash
# Programs of tests that wait for times, by a clock that goes FACTOR times as fast: the same verdicts. clock.sh runs the
# whole suite so.
#
#   tests/clock/check.sh LIBRARY FACTOR PROGRAM...      LIBRARY: clock.c, built
set -uo pipefail
library=$1 factor=$2
shift 2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0
for program in "$@"; do
    status=0
    RUNNEL_CLOCK_FACTOR=$factor LD_PRELOAD=$library "$program" >"$log" 2>&1 || status=$?
    if [ "$status" != 0 ] && [ "$status" != 77 ]; then
        echo "$(basename "$program"): ended with $status by a clock $factor times as fast"
        cat "$log"
        failed=1
    fi
done
exit "$failed"
