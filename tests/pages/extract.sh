#!/usr/bin/env bash
# Writes the examples of a page as files: each fenced block behind a line <!-- example: NAME --> becomes DIR/NAME.
# Fails if a name was asked for and the page does not have it.
#
#   tests/pages/extract.sh PAGE.md DIR NAME...
set -euo pipefail
page=$1 dir=$2
shift 2

for name in "$@"; do
    awk -v name="$name" '
        $0 == "<!-- example: " name " -->" { found = 1; next }
        found && /^```/ { if (inside) exit; inside = 1; next }
        inside { print }
    ' "$page" >"$dir/$name.new"
    if [ ! -s "$dir/$name.new" ]; then
        echo "tests/pages: $page has no example $name" >&2
        rm -f "$dir/$name.new"
        exit 1
    fi
    mv "$dir/$name.new" "$dir/$name"
done
