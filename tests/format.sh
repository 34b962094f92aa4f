#!/usr/bin/env bash
# Every C file stands as .clang-format says; tables that a program writes apart. Other versions of clang-format differ in
# small things, so it is version 14 or nothing.
#
#   tests/format.sh [--fix]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

program=
for candidate in clang-format-14 clang-format; do
    if "$candidate" --version 2>/dev/null | grep -q 'version 14\.'; then
        program=$candidate
        break
    fi
done
if [ -z "$program" ]; then
    echo "skipped: there is no clang-format 14"
    exit 77
fi
mapfile -d '' files < <(find include base mailbox model text cpu gpu cache sampling train actors bindings apps examples tests bench \
    -type f \( -name '*.c' -o -name '*.h' -o -name '*.inc' \) ! -name '*_table.c' ! -name 'quant/grids.c' -print0 2>/dev/null)
if [ "${1:-}" = --fix ]; then
    exec "$program" -i "${files[@]}"
fi
exec "$program" --dry-run -Werror "${files[@]}"
