#!/usr/bin/env bash
# The binary interface is that of tests/abi/runnel.abi; functions may be added, and nothing else. What is compared is a
# library of stubs, built with debug information from the declarations of the public headers; tests/install holds the
# exported functions of the real library against the same headers.
#
#   tests/abi/check.sh CC [ROOT]
#   tests/abi/check.sh --update CC    after members were added at the end of a struct, or to an enum: writes runnel.abi
#                                     anew. Read the report first: an update must not hide any other change
#
# Exit code 77: abidiff (Debian: abigail-tools) is not there, or the machine is not x86-64.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
update=no
if [ "$1" = --update ]; then
    update=yes
    shift
fi
cc=$1
root=$(cd "${2:-$here/../..}" && pwd)
if ! command -v abidiff >/dev/null || ! command -v abidw >/dev/null || [ "$(uname -m)" != x86_64 ]; then
    echo "tests/abi: abidiff is not installed, or this is no x86-64"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Every declaration becomes a definition; parentheses keep the macros of the same name away.
{
    for header in "$root"/include/runnel*.h; do
        echo "#include \"$(basename "$header")\""
    done
    cat "$root"/include/runnel*.h | grep -v '^#' | tr '\n' ' ' | grep -o 'RUNNEL_API [^;{]*;' |
        sed -E 's/(runnel_[a-z0-9_]*)\(/(\1)(/; s/;$/ { __builtin_trap(); }/'
} >"$work/stubs.c"
[ "$(grep -c '__builtin_trap' "$work/stubs.c")" -ge 60 ] || { echo "tests/abi: too few functions found" >&2; exit 2; }
(cd "$work" && "$cc" -std=gnu11 -g -O0 -fPIC -shared -w -fdebug-prefix-map="$work"=. -I"$root/include" stubs.c \
    -o librunnel.so -Wl,-soname,librunnel.so)

if [ "$update" = yes ]; then
    abidw --no-show-locs --no-corpus-path --no-comp-dir-path --out-file "$here/runnel.abi" "$work/librunnel.so"
    echo "tests/abi: runnel.abi written"
    exit 0
fi
if abidiff --no-added-syms "$here/runnel.abi" "$work/librunnel.so" >"$work/report"; then
    echo "the binary interface is the stored one"
    exit 0
fi
cat "$work/report"
echo "tests/abi: the binary interface differs from runnel.abi; see the head of this script" >&2
exit 1
