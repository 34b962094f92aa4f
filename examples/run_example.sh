#!/bin/bash
# Runs an example and checks its exit code and the number of its output's lines: run_example.sh LINES PROGRAM ARG...
set -u
lines=$1
shift
out=$("$@") || { echo "exit code $?"; exit 1; }
echo "$out"
[ "$(printf '%s\n' "$out" | wc -l)" -ge "$lines" ] && [ ${#out} -ge $((20 * lines)) ] || { echo "too little output"; exit 1; }
