#!/usr/bin/env bash
# tests/abi/check.sh refuses what breaks programs, and lets additions pass.
#
#   tests/abi/selftest.sh CC
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cc=$1
command -v abidiff >/dev/null && [ "$(uname -m)" = x86_64 ] || exit 77
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# edited NAME HEADER SED-EXPRESSION VERDICT
edited() {
    local verdict=accepted

    rm -rf "$work/root"
    mkdir "$work/root"
    cp -r "$here/../../include" "$work/root/include"
    sed -i "$3" "$work/root/include/$2"
    if cmp -s "$here/../../include/$2" "$work/root/include/$2"; then
        echo "tests/abi: $1: the edit changes nothing" >&2
        failed=1
    fi
    "$here/check.sh" "$cc" "$work/root" >"$work/log" 2>&1 || verdict=refused
    if [ "$verdict" != "$4" ]; then
        cat "$work/log" >&2
        echo "tests/abi: $1: $verdict" >&2
        failed=1
    fi
}

edited "a member in the middle" runnel.h 's/^    size_t prompt_bytes;/    size_t prompt_bytes, extra;/' refused
edited "a member of a nested struct" runnel_sampling.h 's/^} runnel_sampling;/    uint64_t more;\n&/' refused
edited "a longer error" runnel_status.h 's/^} runnel_error;/    uint64_t more;\n&/' refused
edited "another type of the same size" runnel.h 's/    int32_t priority; /    uint32_t priority; /' refused
edited "a function that is gone" runnel.h '/^RUNNEL_API const char \*runnel_event_name/d' refused
edited "another parameter" runnel.h 's/runnel_engine_fd(runnel_engine \*engine)/runnel_engine_fd(runnel_engine *engine, int x)/' refused
edited "another value" runnel.h 's/X(DONE, 9)/X(DONE, 12)/' refused
edited "a longer histogram" runnel_observe.h 's/^#define RUNNEL_HISTOGRAM_EDGES .*/#define RUNNEL_HISTOGRAM_EDGES 40/' refused
edited "another function" runnel.h 's/^#define RUNNEL_MAX_TAKE .*/&\nRUNNEL_API int runnel_more(int a);/' accepted
edited "a comment" runnel.h 's/^ \* In short:/ * Shortly:/' accepted
[ "$failed" = 1 ] || echo "ten edits, told apart"
exit "$failed"
