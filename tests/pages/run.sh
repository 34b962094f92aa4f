#!/bin/bash
# Runs an example of a page: it ends with 0, and says something; what has the form of a grammar has it; the first one
# says what the program says: run.sh RUNNEL PROGRAM MODEL ARG...
set -u
runnel=$1 program=$2 model=$3
shift 2
out=$("$program" "$@") || { echo "exit code $?"; exit 1; }
echo "$out"
case $(basename "$program") in
page_hello) wanted=$("$runnel" run -q "$model" "Once upon a time" -n 100) ;;
page_grammar) wanted=$(grep -xE '\{"bird":"[^"]*","wise":(true|false)\}' <<<"$out") ;;
*) wanted=$out ;;
esac
[ ${#out} -ge 20 ] && [ "$out" = "$wanted" ] || { echo "expected: $wanted"; exit 1; }
