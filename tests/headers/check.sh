#!/usr/bin/env bash
# Every header of every room compiles alone, and twice in a row, as the C that the rooms are written in; the
# public ones also as strict C11 and C++17, and no struct of theirs has padding: a struct_size is the end of a member.
#
#   tests/headers/check.sh CC CXX [ROOT] [-- FLAG...]
#
# FLAGs are those that foreign headers need (pkg-config --cflags). A header whose name says avx2, avx512 or neon
# gets the flags of that instruction set, or is passed over on another machine.
set -euo pipefail
cc=$1 cxx=$2
shift 2
root=$(dirname "${BASH_SOURCE[0]}")/../..
if [ "$#" -gt 0 ] && [ "$1" != -- ]; then
    root=$1
    shift
fi
[ "${1:-}" != -- ] || shift
foreign=("$@")
cd "$root"

warnings=(-Wall -Wextra -Wshadow -Werror -fsyntax-only -I. -Iinclude)
c_only=(-Wstrict-prototypes -Wmissing-prototypes)
failed=0
count=0

# twice HEADER COMPILER FLAG...: the header, and once more for its guard.
twice() {
    local header=$1

    shift
    if ! printf '#include "%s"\n#include "%s"\nextern int rn_translation_unit_is_not_empty;\n' "$header" "$header" |
        "$@" "${warnings[@]}" ${foreign[@]+"${foreign[@]}"} -; then
        echo "tests/headers: $header does not compile alone: $*" >&2
        failed=1
    fi
}

# Sets `simd` to the flags of a header by its name; false when this machine's compiler has no such thing.
simd_flags() {
    simd=()
    case $(uname -m):$1 in
    x86_64:*avx512*) simd=(-mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mavx2 -mfma -mf16c) ;;
    x86_64:*avx2*) simd=(-mavx2 -mfma -mf16c) ;;
    aarch64:*avx* | x86_64:*neon*) return 1 ;;
    esac
}

for room in include base mailbox model text cpu gpu cache sampling actors; do
    [ -d "$room" ] || continue
    while IFS= read -r header; do
        simd_flags "$header" || continue
        twice "$header" "$cc" -x c -std=gnu11 "${c_only[@]}" ${simd[@]+"${simd[@]}"}
        count=$((count + 1))
    done < <(find "$room" -name '*.h' | sort)
done
for header in include/*.h; do
    twice "${header#include/}" "$cc" -x c -std=c11 -pedantic-errors -Wpadded "${c_only[@]}"
    twice "${header#include/}" "$cxx" -x c++ -std=c++17 -pedantic-errors
done

[ "$count" -gt 0 ] || { echo "tests/headers: no headers in $root" >&2; exit 2; }
[ "$failed" = 1 ] || echo "$count headers compile alone"
exit "$failed"
