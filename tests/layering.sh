#!/usr/bin/env bash
# The layers of HOUSE.md, held by grep: who may include whom, among rooms and within them, where a foreign header is at
# home, where the heap, the end of the process, output, threads and the environment may be named; that no room tests for
# a backend in its preprocessor lines, no .c file declares what is another's, no include is computed, no room has
# more than 50 files, and no units include each other in a cycle larger than a pair. tests/layering_selftest.sh shows
# that each rule can fail.
#
#   tests/layering.sh [ROOT]
#
# Prints "file:line: what is wrong" for each violation; exit status 1 if there is one.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=${1:-$here/..}
cd "$root"

rooms=(include base mailbox model text cpu gpu cache sampling train actors apps examples bindings)
existing=()
for room in "${rooms[@]}"; do
    [ ! -d "$room" ] || existing+=("$room")
done
[ "${#existing[@]}" -gt 0 ] || { echo "tests/layering.sh: no rooms in $root" >&2; exit 2; }

mapfile -d '' files < <(find "${existing[@]}" -type f \
    \( -name '*.c' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cc' -o -name '*.cpp' -o -name '*.inc' \) -print0 | sort -z)
[ "${#files[@]}" -gt 0 ] || { echo "tests/layering.sh: no sources in $root" >&2; exit 2; }

exec awk -f "$here/layering.awk" "${files[@]}"
