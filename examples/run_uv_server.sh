#!/bin/bash
# Starts uv_server, asks it two prompts over one connection, stops it with SIGINT. The answers have to be what the
# program says: run_uv_server.sh RUNNEL SERVER MODEL
set -u
runnel=$1 program=$2 model=$3
patience=600 # seconds: what takes longer hangs
out=$(mktemp)
setpriv --pdeathsig KILL "$program" "$model" --max-tokens 20 >"$out" &
server=$!
trap 'kill -9 $server 2>/dev/null; rm -f "$out"' EXIT
for ((i = 0; i < 10 * patience; i++)); do
    grep -q listening "$out" && break
    kill -0 $server 2>/dev/null || break
    sleep 0.1
done
port=$(sed -n 's/^listening on //p' "$out")
[ -n "$port" ] || { echo "the server does not listen"; exit 1; }
exec 3<>"/dev/tcp/127.0.0.1/$port"
for prompt in "Once upon a time" "When they came home,"; do
    printf '%s\n' "$prompt" >&3
done
for prompt in "Once upon a time" "When they came home,"; do
    IFS= read -r -t $patience said <&3 || { echo "no answer"; exit 1; }
    wanted=$("$runnel" run -q "$model" "$prompt" -n 20 | head -n 1) # an answer is a line
    echo "$prompt: $said"
    [ -n "$said" ] && [ "$said" = "$wanted" ] || { echo "expected: $wanted"; exit 1; }
done
exec 3>&-
kill -INT $server
wait $server || { echo "the server ended with $?"; exit 1; }
