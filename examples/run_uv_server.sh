#!/bin/bash
# Starts uv_server, asks it two prompts over one connection, stops it with SIGINT: run_uv_server.sh SERVER MODEL
set -u
out=$(mktemp)
"$1" "$2" --max-tokens 20 >"$out" &
server=$!
trap 'kill -9 $server 2>/dev/null; rm -f "$out"' EXIT
for _ in $(seq 200); do
    grep -q listening "$out" && break
    sleep 0.1
done
port=$(sed -n 's/^listening on //p' "$out")
[ -n "$port" ] || { echo "the server does not listen"; exit 1; }
exec 3<>"/dev/tcp/127.0.0.1/$port"
printf 'Once upon a time\nWhen they came home,\n' >&3
read -r -t 30 first <&3 && read -r -t 30 second <&3 || { echo "no answer"; exit 1; }
exec 3>&-
echo "1: $first"
echo "2: $second"
[ ${#first} -gt 5 ] && [ ${#second} -gt 5 ] || { echo "an answer is too short"; exit 1; }
kill -INT $server
wait $server || { echo "the server ended with $?"; exit 1; }
