#!/usr/bin/env bash
# The tables of the suite in docs/SCHEMA-SUITE.md are what the test counts: suite_table.sh PROGRAM PAGE.
set -euo pipefail
want=$("$1" --table)
have=$(sed -n '/^| suite |/,$p' "$2")
[ "$(grep -c '^| draft2020-12/' <<<"$want")" -gt 60 ]
diff <(echo "$want") <(echo "$have")
