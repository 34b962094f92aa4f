#!/usr/bin/env bash
# Shows that check.sh can fail: one planted fault at a time, each of which must be named.
#
#   tests/headers/selftest.sh CC CXX
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
mkdir -p "$copy/include" "$copy/base"
cp "$here"/../../include/*.h "$copy/include"
printf '#ifndef A_H\n#define A_H\n#include <stdint.h>\nuint32_t rn_a(void);\n#endif\n' >"$copy/base/a.h"
"$here/check.sh" "$1" "$2" "$copy" >"$copy/log" 2>&1 || { cat "$copy/log" >&2; exit 1; }

failed=0
# plant FILE TEXT: FILE with TEXT appended (or new) must be reported; then it is put back.
plant() {
    cp "$copy/$1" "$copy/kept" 2>/dev/null || : >"$copy/kept"
    printf '%b' "$2" >>"$copy/$1"
    if "$here/check.sh" "$CC" "$CXX" "$copy" >"$copy/log" 2>&1; then
        echo "not refused: $1 with $2" >&2
        failed=1
    elif ! grep -q "tests/headers: .*$(basename "$1") does not compile alone" "$copy/log"; then
        echo "refused, but not by name: $1 with $2" >&2
        failed=1
    fi
    if [ -s "$copy/kept" ]; then cp "$copy/kept" "$copy/$1"; else rm "$copy/$1"; fi
}
CC=$1 CXX=$2
plant base/b.h '#ifndef B_H\n#define B_H\nuint32_t rn_b(void);\n#endif\n'           # a missing include
plant base/b.h 'struct rn_b { int x; };\n'                                            # no guard
plant base/b.h '#ifndef B_H\n#define B_H\nint rn_b();\n#endif\n'                      # no prototype
plant base/b.h '#ifndef B_H\n#define B_H\nint rn_b(void) { return 1; }\n#endif\n'     # a definition
plant include/runnel_uv.h 'typedef struct { int new; int class; } runnel_bad;\n'      # not C++ (and no guard)
plant include/runnel_uv.h '#ifndef Q\n#define Q\n#ifdef __cplusplus\n#error no\n#endif\n#endif\n'
plant include/runnel_uv.h '#ifndef Q\n#define Q\nextern __typeof__(int[0]) runnel_bad;\n#endif\n' # not strict C11
plant include/runnel_uv.h '#ifndef Q\n#define Q\nstruct runnel_bad {\n    long a;\n    int b;\n};\n#endif\n'          # padding
[ "$failed" = 1 ] || echo "every planted fault was named"
exit "$failed"
