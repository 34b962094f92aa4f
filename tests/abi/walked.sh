#!/usr/bin/env bash
# Every function of the public headers is called in tests/actors/test_interface.c, which looks how it takes NULLs.
set -euo pipefail
root=$(dirname "${BASH_SOURCE[0]}")/../..
failed=0
count=0
while read -r name; do
    count=$((count + 1))
    case $name in *_default) name=${name%_default}_init ;; esac # a macro over it
    if ! grep -q "\<$name\>" "$root/tests/actors/test_interface.c"; then
        echo "tests/abi: $name is not called in tests/actors/test_interface.c" >&2
        failed=1
    fi
done < <(grep -hv '^#' "$root"/include/runnel*.h | tr '\n' ' ' | grep -o 'RUNNEL_API [^;{(]*(' | grep -o 'runnel_[a-z0-9_]*($' |
    tr -d '(' | sort -u)
[ "$count" -ge 60 ] || { echo "tests/abi: too few functions found" >&2; exit 2; }
[ "$failed" = 1 ] || echo "$count functions are walked"
exit "$failed"
