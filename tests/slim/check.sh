#!/usr/bin/env bash
# What a build without the clients of the shared cache needs, and what it says where one is asked for. And that CMake's
# options make such a build, also in a folder that was configured with the clients before.
#
#   tests/slim/check.sh SOURCE LIBRARIES PROGRAMS CC CXX GENERATOR
set -euo pipefail
source=$1 libraries=$2 programs=$3 cc=$4 cxx=$5 generator=$6
model=$source/examples/models/runnel-tiny-Q8_0.gguf
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

complain() {
    echo "tests/slim: $*" >&2
    failed=1
}

# says KIND LINE: the host's output has a line that begins so.
says() { grep -q "^$2" "$work/$1" || complain "$1: nothing begins with '$2': $(cat "$work/$1")"; }

for kind in slim no_tls; do
    "$programs/host_$kind" "$model" unix:/none/such rediss://localhost >"$work/$kind" || complain "$kind: the host failed"
done
[ "$(head -n 1 "$work/slim")" = "$(head -n 1 "$work/no_tls")" ] || complain "the answers differ"
[ -n "$(head -n 1 "$work/slim")" ] || complain "there is no answer"
says slim 'unix:/none/such UNSUPPORTED this build has no shared cache'
says slim 'rediss://localhost UNSUPPORTED this build has no shared cache'
[ ! -e "$libraries/librunnel_no_tls.so" ] || # no hiredis here: it is the slim one
    says no_tls 'rediss://localhost UNSUPPORTED a shared cache at rediss:// needs TLS'
! readelf -d "$libraries/librunnel_slim.so" | grep -E 'NEEDED.*(hiredis|ssl|crypto)' || complain "the slim library needs a client"
[ ! -e "$libraries/librunnel_no_tls.so" ] || ! readelf -d "$libraries/librunnel_no_tls.so" | grep -E 'NEEDED.*(ssl|crypto)' ||
    complain "the library without TLS needs OpenSSL"

# configured OPTION...: build files for these options, in one folder after another.
configured() {
    cmake -S "$source" -B "$work/build" -G "$generator" -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_COMPILER="$cc" \
        -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_EXPORT_COMPILE_COMMANDS=ON -DRUNNEL_BUILD_TESTS=OFF -DRUNNEL_BUILD_BENCH=OFF \
        -DRUNNEL_BUILD_APPS=OFF -DRUNNEL_BUILD_EXAMPLES=OFF "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
}
# builds FILE | builds_not FILE: of cache/store.
builds() { grep -q "cache/store/$1\"" "$work/build/compile_commands.json" || complain "$when: $1 is not built"; }
builds_not() { ! grep -q "cache/store/$1\"" "$work/build/compile_commands.json" || complain "$when: $1 is built"; }
# links_not PATTERN
links_not() { ! grep -Eq -- "$1" "$work/build/runnel.pc" || complain "$when: $(grep -E -- "$1" "$work/build/runnel.pc")"; }

configured
when="slim, after the usual build"
configured -DRUNNEL_HIREDIS=OFF -DRUNNEL_OPENSSL=OFF
builds redis_none.c
builds_not redis_link.c
builds_not redis_tls.c
links_not 'hiredis|-lssl|-lcrypto'
when="without TLS"
configured -DRUNNEL_HIREDIS=ON -DRUNNEL_OPENSSL=OFF
builds_not redis_tls.c
links_not '-lssl|-lcrypto'
if pkg-config --exists hiredis; then
    builds redis_tls_none.c
    builds redis_link.c
    builds_not redis_none.c
fi

[ "$failed" = 1 ] || echo "a slim library needs no client and says so"
exit "$failed"
