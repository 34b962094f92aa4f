#!/bin/bash
# Runs an example; what it prints has to be what the program says to the same prompts:
#   run_example.sh RUNNEL EXAMPLE MODEL
set -u
runnel=$1 example=$2 model=$3
prompts=$(dirname "$0")/prompts.txt

answer() {
    "$runnel" run -q "$model" "$1" -n "$2" || echo "runnel run: exit code $?"
}

# As batch prints answers, a line each.
in_a_line() {
    sed 's/\\/\\\\/g' | awk '{ printf "%s%s", (NR > 1 ? "\\n" : ""), $0 }'
}

case $(basename "$example") in
example_batch)
    wanted=$(while IFS= read -r prompt; do answer "$prompt" 20 | in_a_line; echo; done <"$prompts")
    said=$("$example" "$model" "$prompts" 4 20) || { echo "exit code $?"; exit 1; }
    ;;
example_host_sampler) # chooses for itself: not what the program would say, and as many tokens
    said=$("$example" "$model") || { echo "exit code $?"; exit 1; }
    echo "$said"
    [ "$(head -n 1 <<<"$said")" != "$(answer 'Once upon a time' 40)" ] || { echo "the host has not chosen"; exit 1; }
    wanted="(40 tokens were the host's choice;"
    said=$(sed -n '2s/;.*/;/p' <<<"$said")
    ;;
*)
    wanted=$(answer "Once upon a time" 100)
    said=$("$example" "$model") || { echo "exit code $?"; exit 1; }
    ;;
esac
echo "$said"
[ -n "$said" ] && [ "$said" = "$wanted" ] || { echo "expected: $wanted"; exit 1; }
