#!/usr/bin/env bash
# Shows that tests/layering.sh can fail: plants one violation of each rule in a copy of the rooms and
# expects each to be named by file and line, and nothing else; plants look-alikes and expects silence.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT

for room in include base mailbox model model/arch model/build model/gguf model/heads model/quant text text/template \
    text/answer text/split cpu cpu/levels cpu/levels/avx2 cpu/levels/neon cpu/reference gpu gpu/kernels cache cache/store sampling \
    sampling/grammar \
    train actors actors/host actors/prompt actors/runtime actors/tier apps apps/serve/http examples bindings; do
    mkdir -p "$copy/$room"
    case $room in */*) continue ;; esac # with the room around it
    [ ! -d "$here/../$room" ] || (cd "$here/.." && find "$room" -type f \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \) \
        -exec cp --parents -t "$copy" {} +)
done
if ! "$here/layering.sh" "$copy" >"$copy/before"; then
    echo "the rooms themselves break the layers; see the test layering" >&2
    cat "$copy/before" >&2
    exit 1
fi

expected=()
# plant FILE LINE FRAGMENT: appends LINE to FILE; the report must name FILE, its last line and FRAGMENT.
plant() {
    printf '%s\n' "$2" >>"$copy/$1"
    expected+=("$1:$(wc -l <"$copy/$1"): $3")
}
# innocent FILE LINE: appends a line that must not be reported.
innocent() {
    printf '%s\n' "$2" >>"$copy/$1"
}
# empty FILE: a header to be included.
empty() {
    : >"$copy/$1"
}

plant base/planted.c '#include "mailbox/mailbox.h"' '"mailbox/mailbox.h": base/ may not include mailbox/'
plant base/limits.h '' 'a header of this name hides <limits.h>'
plant mailbox/planted.c '#include "model/gguf/gguf.h"' '"model/gguf/gguf.h": mailbox/ may not include model/'
plant model/planted.c '#  include "cpu/cpu.h"' '"cpu/cpu.h": model/ may not include cpu/'
plant text/planted.c '#include "cache/block_pool.h"' '"cache/block_pool.h": text/ may not include cache/'
plant cpu/planted.c '#include "gpu/gpu.h"' '"gpu/gpu.h": cpu/ may not include gpu/'
plant gpu/planted.c '#include "cpu/cpu.h"' '"cpu/cpu.h": gpu/ may not include cpu/'
plant gpu/planted.cu '#include "actors/runtime/runtime.h"' '"actors/runtime/runtime.h": gpu/ may not include actors/'
plant cache/planted.c '#include "cpu/team.h"' '"cpu/team.h": cache/ may not include cpu/'
plant sampling/planted.c '#include "actors/protocol.h"' '"actors/protocol.h": sampling/ may not include actors/'
plant actors/planted.c '#include "cpu/cpu.h"' '"cpu/cpu.h": actors/ may not include cpu/'
plant actors/planted.c '#include "actors/engine.h"' '"actors/engine.h": a role knows its context'
plant apps/planted.c '#include "base/alloc.h"' '"base/alloc.h": apps/ may not include base/'
plant examples/planted.c '#include "actors/runtime/runtime.h"' '"actors/runtime/runtime.h": examples/ may not include actors/'
plant bindings/planted.c '#include "base/alloc.h"' '"base/alloc.h": bindings/ may not include base/'
plant base/planted.c '#include "../model/gguf/gguf.h"' '"../model/gguf/gguf.h": an include does not climb'
plant base/planted.c '#include "nowhere.h"' '"nowhere.h": neither a room'
plant include/planted.h '#include "base/alloc.h"' '"base/alloc.h": include/ may not include base/'
plant include/planted.h '#include <uv.h>' '<uv.h>: include/ has only'
plant include/planted.h '#include <stdio.h>' '<stdio.h>: include/ has only'

# rooms within rooms
empty model/arch/planted_family.h
plant text/template/planted.c '#include "text/answer/answer.h"' '"text/answer/answer.h": text/template/ may not include it'
plant text/answer/planted.c '#include "text/template/template.h"' '"text/template/template.h": text/answer/ may not include it'
plant text/planted.c '#include "text/template/template.h"' '"text/template/template.h": text/ may not include it'
plant text/planted.c '#include "text/answer/answer.h"' '"text/answer/answer.h": text/ may not include it'
plant cache/store/planted.c '#include "cache/prefix_tree.h"' '"cache/prefix_tree.h": cache/store/ may not include it'
plant cache/planted.c '#include "cache/store/tier.h"' '"cache/store/tier.h": cache/ may not include it'
plant model/planted.c '#include "model/arch/planted_family.h"' '"model/arch/planted_family.h": model/ may not include it'
plant sampling/planted.c '#include "sampling/grammar/grammar.h"' '"sampling/grammar/grammar.h": sampling/ may not include it'
plant sampling/grammar/planted.c '#include "sampling/sampler.h"' '"sampling/sampler.h": sampling/grammar/ may not include it'
empty gpu/planted_host.h
plant gpu/kernels/planted.cu '#include "gpu/planted_host.h"' '"gpu/planted_host.h": gpu/kernels/ may not include it'
plant gpu/planted.c '#include "gpu/emulated/emulation.h"' '"gpu/emulated/emulation.h": gpu/ may not include it'
plant text/planted.c '#include "answer/answer.h"' '"text/answer/answer.h": text/ may not include it'
plant actors/tier/tier_blocks_planted.c '#include "actors/tier/directory.h"' '"actors/tier/directory.h": actors/tier/tier_blocks may not include it'
plant actors/tier/directory_planted.c '#include "actors/tier/prefix_cache.h"' '"actors/tier/prefix_cache.h": actors/tier/directory may not include it'
plant actors/tier/prefix_cache_planted.c '#include "actors/tier/admission.h"' '"actors/tier/admission.h": actors/tier/prefix_cache may not include it'
plant actors/tier/admission_planted.c '#include "actors/tier_actor.h"' '"actors/tier_actor.h": actors/tier/admission may not include it'
plant actors/draft/planted.c '#include "actors/verifier_actor.h"' '"actors/verifier_actor.h": actors/draft/ may not include it'
plant model/gguf/planted.c '#include "model/plan.h"' '"model/plan.h": model/gguf/ may not include it'
plant model/quant/planted.c '#include "model/gguf/gguf.h"' '"model/gguf/gguf.h": model/quant/ may not include it'
plant model/build/planted.c '#include "model/heads/head.h"' '"model/heads/head.h": model/build/ may not include it'
plant model/heads/planted.c '#include "model/arch/planted_family.h"' '"model/arch/planted_family.h": model/heads/ may not include it'
plant text/split/planted.c '#include "text/vocab.h"' '"text/vocab.h": text/split/ may not include it'
plant cpu/reference/planted.c '#include "cpu/kernels.h"' '"cpu/kernels.h": cpu/reference/ may not include it'
empty cpu/levels/neon/planted.h
plant cpu/levels/avx2/planted.c '#include "cpu/levels/neon/planted.h"' '"cpu/levels/neon/planted.h": cpu/levels/avx2/ may not include it'
plant cpu/levels/neon/planted.c '#include "cpu/levels/avx2/signs_avx2.h"' '"cpu/levels/avx2/signs_avx2.h": cpu/levels/neon/ may not include it'
plant actors/prompt/planted.c '#include "actors/context.h"' '"actors/context.h": actors/prompt/ may not include it'
plant apps/serve/http/planted.c '#include "apps/serve/serve.h"' '"apps/serve/serve.h": apps/serve/http/ may not include it'
innocent text/template/innocent.c '#include "text/vocab.h"'
innocent model/gguf/innocent.c '#include "model/quant/quant.h"'
innocent apps/serve/http/innocent.c '#include "apps/utf8.h"'
innocent text/answer/innocent.c '#include "text/answer/answer.h"'
innocent cache/store/innocent.c '#include "cache/block_codec.h"'
innocent cache/store/innocent.c '#include "cache/store/tier.h"'
innocent model/innocent.c '#include "model/arch/table.h"'
innocent model/arch/innocent.c '#include "model/gguf/gguf.h"'
innocent sampling/grammar/innocent.c '#include "sampling/grammar/grammar.h"'
innocent gpu/innocent.c '#include "gpu/kernels/kernels.h"'
innocent sampling/grammar/innocent.c '#include "text/vocab.h"'
innocent actors/innocent.c '#include "text/template/template.h"'
innocent actors/innocent.c '#include "cache/store/tier.h"'
innocent actors/tier/admission_innocent.c '#include "actors/tier/prefix_cache.h"'
innocent actors/tier/directory_innocent.c '#include "actors/tier/tier_blocks.h"'

# a cycle of three units, through a source file; a pair is none, nor is a chain
plant base/cycle_a.h '#include "base/cycle_b.h"' 'a cycle of 3 units, where a pair is the most: base/cycle_a base/cycle_b base/cycle_c'
empty base/cycle_b.h
innocent base/cycle_b.c '#include "cycle_c.h"'
innocent base/cycle_c.h '#include "base/cycle_a.h"'
innocent base/pair_a.h '#include "base/pair_b.h"'
innocent base/pair_b.h '#include "base/pair_a.h"'
innocent base/pair_b.c '#include "base/cycle_a.h"'

plant actors/planted.c 'extern int actors_are_many;' 'extern in a .c file'
plant apps/planted.c 'int f(void) { extern int g; return g; }' 'extern in a .c file'
plant model/planted.c '#  include MODEL_TABLE' 'a computed include'
plant apps/planted.c '#include APPS_TABLE(1)' 'a computed include'
innocent model/innocent.h 'extern const int model_table[];'
innocent gpu/innocent.cuh 'extern "C" int gpu_count(void);'
innocent model/innocent.c 'int external, extern_of; /* extern int x; */ const char *e = "extern";'

plant mailbox/planted.c '#include <uv.h>' '<uv.h>: at home only in actors/host/'
plant actors/planted.c '#include <uv.h>' '<uv.h>: at home only in actors/host/'
plant actors/runtime/planted.c '#include <uv/unix.h>' '<uv/unix.h>: at home only in actors/host/'
plant actors/host/planted.c '#include <sys/socket.h>' '<sys/socket.h>: at home only in cache/store/'
plant cache/planted.c '#include <arpa/inet.h>' '<arpa/inet.h>: at home only in cache/store/'
plant base/planted.c '#include <netdb.h>' '<netdb.h>: at home only in cache/store/'
plant mailbox/planted.c '#include <sys/un.h>' '<sys/un.h>: at home only in cache/store/'
plant actors/planted.c '#include <netinet/tcp.h>' '<netinet/tcp.h>: at home only in cache/store/'
plant cache/planted.c '#include <hiredis/hiredis.h>' '<hiredis/hiredis.h>: at home only in cache/store/'
plant cache/planted.c '#include <openssl/ssl.h>' '<openssl/ssl.h>: at home only in cache/store/'
plant cpu/planted.c '#include <immintrin.h>' '<immintrin.h>: at home only in cpu/levels/'
innocent actors/host/innocent.c '#include <uv.h>'
innocent cache/store/innocent.c '#include <openssl/err.h>'
innocent cache/store/innocent.c '#include <netinet/in.h>'
innocent cache/store/innocent.c '#include <xxhash.h>'
innocent cpu/levels/innocent.c '#include <immintrin.h>'
innocent apps/innocent.c '#include <sys/socket.h>'
plant actors/planted.c '#include <ck_ring.h>' '<ck_ring.h>: at home only in mailbox/'
plant cpu/planted.c '#include <cuda_runtime.h>' '<cuda_runtime.h>: at home only in gpu/'
plant base/planted.c '#include <jemalloc/jemalloc.h>' '<jemalloc/jemalloc.h>: at home only in base/alloc.c'
plant model/planted.c '#include <immintrin.h>' '<immintrin.h>: at home only in cpu/levels/'
plant sampling/planted.c '#include <arm_neon.h>' '<arm_neon.h>: at home only in cpu/levels/'
plant model/planted.c '#include <utf8proc.h>' '<utf8proc.h>: at home only in text/'
plant actors/planted.c '#include <xxhash.h>' '<xxhash.h>: at home only in cache/'
plant model/planted.c '#include <pthread.h>' '<pthread.h>: at home only in mailbox/'
plant cpu/planted.c '#include <threads.h>' '<threads.h>: at home only in mailbox/'
plant actors/planted.c '#include <zstd.h>' '<zstd.h>: at home only in cache/'
plant text/planted.c '#include <curl.h>' '<curl.h>: a foreign header without a home'

plant model/planted.c '    char *p = malloc(12);' 'malloc: the heap is behind'
plant model/planted.c '    p = (char *)realloc (p, 13);' 'realloc: the heap is behind'
plant actors/planted.c 'free(p);' 'free: the heap is behind'
plant base/planted.c '    x = strdup(y); /* a comment' 'strdup: the heap is behind'
innocent base/planted.c '       that goes on with malloc(1); */'
plant base/planted.c '/* closed */ abort();' 'abort: only base/check.c'
plant cache/planted.c 'if (bad) exit(1);' 'exit: only base/check.c'
plant gpu/planted.cu 'if (bad) _exit(1);' '_exit: only base/check.c'
plant text/planted.c 'fprintf(stderr, "%s", "x");' 'stderr: the library prints nothing'
plant text/planted.c 'printf("hello");' 'printf: the library prints nothing'
plant sampling/planted.c 'pthread_mutex_lock(&m);' 'pthread_: only mailbox/'
plant actors/planted.c 'pthread_create(&t, NULL, f, NULL);' 'pthread_create: threads are made by base/thread.h'
plant cpu/planted.c 'thrd_join(t, NULL);' 'thrd_: only mailbox/'
plant cpu/planted.c 'if (getenv("RUNNEL_THREADS")) {}' 'getenv: the library does not read'
plant actors/planted.c 'if (fork() == 0) {}' 'fork: the library does not fork'
plant actors/planted.c 'signal(SIGPIPE, SIG_IGN);' 'signal: the library installs no handlers'
plant actors/planted.c '#ifdef RUNNEL_CUDA' 'a preprocessor line about a backend'
plant cpu/planted.c '#if HAVE_AVX2' 'a preprocessor line about a backend'
plant model/planted.c '#if defined(__AVX2__)' 'a preprocessor line about a backend'
plant apps/planted.c '#  elif HAVE_GPU' 'a preprocessor line about a backend'

innocent model/innocent.c '#include <stdio.h>'
innocent model/innocent.c '#include "base/alloc.h"'
innocent model/innocent.c '/* malloc(1); #include <uv.h>'
innocent model/innocent.c '#include "actors/runtime/runtime.h"'
innocent model/innocent.c '   exit(1); */ int a; // free(p) and stderr'
innocent model/innocent.c 'const char *s = "malloc(1) \" free(2) /*"; char c = '"'\"'"'; heap->hook.free(heap, p);'
innocent model/innocent.c 'rn_free(heap, p); vocab_free(p); p->free(q); my_exit(1); stderr_like = 1; snprintf(a, 1, "x");'
innocent model/innocent.c 'void (*free)(void *user); int exits; __attribute__((format(printf, 1, 2)))'
innocent gpu/gpu.h '#ifndef RN_GPU_GPU_H'
innocent actors/engine.c '#include "cpu/cpu.h"'
innocent actors/host/innocent.c '#include "actors/engine.h"'
innocent apps/innocent.c '#include <pthread.h>'
innocent apps/innocent.c 'int main(void) { free(malloc(1)); exit(0); }'
innocent apps/innocent.c '#include <runnel.h>'
innocent cpu/innocent.c '#if defined(__AVX2__) || defined(__ARM_NEON)'
innocent cpu/team_innocent.c '#include <pthread.h>'


# a room that is too full
mkdir "$copy/base/crowd"
for number in $(seq 51); do
    echo >"$copy/base/crowd/$number.h"
done
expected+=("base/crowd/: 51 files")

if "$here/layering.sh" "$copy" >"$copy/report"; then
    echo "layering.sh found nothing wrong with ${#expected[@]} planted violations" >&2
    exit 1
fi
failed=0
for line in "${expected[@]}"; do
    if ! grep -qF -- "$line" "$copy/report"; then
        echo "not reported: $line" >&2
        failed=1
    fi
done
found=$(grep -c ': ' "$copy/report")
if [ "$found" != "${#expected[@]}" ]; then
    echo "$found reports for ${#expected[@]} violations:" >&2
    cat "$copy/report" >&2
    failed=1
fi
[ "$failed" = 1 ] || echo "all ${#expected[@]} planted violations were named, and nothing else"
exit "$failed"
