#!/usr/bin/env bash
# What a test says of itself is true: without the shared folder it is skipped, with a file missing there it fails, and
# none of its children outlives it or passes for it.
#
#   tests/support/selftest.sh PROBE
set -uo pipefail
probe=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/oracles"
touch "$folder/oracles/there"
failed=0

# expect STATUS FOLDER ARG...
expect() {
    local wanted=$1 shared=$2 status=0 said
    shift 2
    said=$(RUNNEL_SHARED=$shared "$probe" "$@" 2>&1) || status=$?
    [ "$status" = "$wanted" ] && return
    echo "$*, shared folder $shared: ended with $status, not $wanted"
    echo "$said"
    failed=1
}

expect 0 "$folder" data oracles/there
expect 1 "$folder" data oracles/missing
expect 77 /nonexistent data oracles/there
expect 1 /nonexistent data-and-failure oracles/there
expect 0 /nonexistent assertion
expect 0 /nonexistent killed
expect 1 /nonexistent ended

"$probe" orphan >"$folder/log" 2>&1
child=$(sed -n 's/^[0-9][0-9]*$/&/p' "$folder/log")
[ -n "$child" ] || { cat "$folder/log"; exit 1; }
for ((i = 0; i < 60000; i++)); do
    state=$(sed -n 's/^State:[[:space:]]*\(.\).*/\1/p' "/proc/$child/status" 2>/dev/null) || true
    [ -n "$state" ] && [ "$state" != Z ] || exit "$failed"
    sleep 0.01
done
echo "the child $child has outlived its test"
exit 1
