#!/usr/bin/env bash
# What the compiler has made of the kernels, against tests/gpu/resources.txt: registers, stack, spills and static shared
# memory of each kernel for each device. No kernel may spill, whatever compiler it is; the other numbers count where it is
# the one that the table was made with.
#
#   tests/gpu/resources.sh LOG [--update]
set -euo pipefail
log=$(realpath "$1")
cd "$(dirname "${BASH_SOURCE[0]}")"
version=$({ "${NVCC:-nvcc}" --version 2>/dev/null || /usr/local/cuda/bin/nvcc --version; } | sed -n 's/.*release \([0-9.]*\),.*/\1/p')
table=$(mktemp)
trap 'rm -f "$table"' EXIT

{
    echo "# CUDA $version: device, kernel, registers of a thread, bytes of stack, bytes of spills (stores, loads)"
    awk '
        /Compiling entry function/ { split($0, quoted, "\047"); kernel = quoted[2]; device = quoted[4] }
        /bytes stack frame/ && kernel != "" { stack = $1; stores = $5; loads = $9 }
        /Used [0-9]+ registers/ && kernel != "" {
            for (i = 1; i <= NF; i++)
                if ($i == "Used")
                    registers = $(i + 1)
            sub(/^rn_kernel_/, "", kernel)
            print device, kernel, registers, stack, stores, loads
            kernel = ""
        }' "$log" | LC_ALL=C sort
} >"$table"
kernels=$(grep -vc '^#' "$table") || { echo "no kernels in $log" >&2; exit 1; }
if [ "${2:-}" = --update ]; then
    cp "$table" resources.txt
    exit 0
fi
if awk '!/^#/ && ($5 != 0 || $6 != 0) { print; found = 1 } END { exit !found }' "$table"; then
    echo "these kernels spill" >&2
    exit 1
fi
if [ "$(head -1 resources.txt)" != "$(head -1 "$table")" ]; then
    echo "$kernels kernels, none spills; the table is another compiler's"
    exit 0
fi
# a build for fewer devices has fewer lines
devices=$(awk '!/^#/ { print $1 }' "$table" | sort -u | paste -sd'|')
diff <(grep -E "^($devices) " resources.txt) <(grep -v '^#' "$table") ||
    { echo "tests/gpu/resources.sh LOG --update, if this is meant" >&2; exit 1; }
echo "$kernels kernels, none spills"
