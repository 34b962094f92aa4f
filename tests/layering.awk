# The rules behind layering.sh. Plain awk (mawk, gawk, busybox): no \b, no character classes beyond POSIX.

BEGIN {
    # headers of the C library that a folder of ours on the compiler's path would hide
    of_c = "^(assert|complex|ctype|errno|fcntl|fenv|float|getopt|glob|inttypes|limits|link|locale|math|poll|pthread|pwd|regex|" \
        "sched|search|semaphore|setjmp|signal|spawn|stdarg|stdatomic|stdbool|stddef|stdint|stdio|stdlib|string|strings|" \
        "syslog|termios|threads|time|uchar|unistd|utime|values|wchar|wctype)[.]h$"
    # what wires, loads or serves the whole
    knows_engine = "^actors/(host/.*|engine[.]c|load/model(_adapters|_info|_limits|_split)?[.]c|draft/drafter_load[.]c|draft/eagle_train[.]c)$"
    # room: the rooms whose headers it may include besides its own and include/
    may["include"] = ""
    may["base"] = ""
    may["mailbox"] = "base"
    may["model"] = "base"
    may["text"] = "model base"
    may["cpu"] = "model base"
    may["gpu"] = "model base"
    may["cache"] = "model base"
    may["sampling"] = "model text base"
    may["train"] = "model base"
    may["actors"] = "mailbox cache sampling text model train base"
    may["apps"] = ""
    may["examples"] = ""
    may["bindings"] = ""

    # Rooms within rooms: part (prefix of a file) and what of its own room (prefix of a path) it may not include, but
    # for the files in `unless`. "text/" as a part is what lies in text/ itself, no deeper.
    within("text/template/", "text/answer/", "")
    within("text/answer/", "text/template/", "")
    within("text/", "text/template/ text/answer/", "")
    within("cache/store/", "cache/", "cache/store/ cache/block_codec.h cache/salt.h")
    within("cache/", "cache/store/", "")
    within("model/", "model/arch/", "model/arch/table.h")
    within("model/gguf/", "model/", "model/gguf/ model/quant/")
    within("model/quant/", "model/", "model/quant/")
    within("model/build/", "model/arch/ model/heads/", "model/arch/table.h")
    within("model/heads/", "model/arch/", "model/arch/table.h")
    within("text/split/", "text/", "text/split/ text/unicode.h")
    # the reference is computed by nothing that it judges; a level may build on those before it
    within("cpu/reference/", "cpu/", "cpu/reference/ cpu/chosen.h cpu/cpu.h cpu/team.h")
    within("cpu/levels/avx2/", "cpu/levels/avx512/ cpu/levels/amx/ cpu/levels/neon/", "")
    within("cpu/levels/avx512/", "cpu/levels/amx/ cpu/levels/neon/", "")
    within("cpu/levels/amx/", "cpu/levels/neon/", "")
    within("cpu/levels/neon/", "cpu/levels/avx2/ cpu/levels/avx512/ cpu/levels/amx/", "")
    within("sampling/", "sampling/grammar/", "")
    # what nvcc compiles knows nothing of the device's host side
    within("gpu/kernels/", "gpu/", "gpu/kernels/")
    # what runs kernels on the host comes with a module; the library has none of it
    within("gpu/", "gpu/emulated/ gpu/kernels/emulate/", "")
    within("sampling/grammar/", "sampling/", "sampling/grammar/")
    # the tier's objects: admission calls the prefix cache, that calls the directory, all call the blocks
    cache = "actors/tier/prefix_cache actors/tier/promotion actors/tier/pins actors/tier/tails actors/tier/cached_stream actors/tier/state_slots"
    within("actors/tier/tier_blocks", "actors/tier", "actors/tier/tier_blocks")
    within("actors/tier/directory", "actors/tier_actor actors/tier/admission " cache, "")
    n = split(cache, list, " ")
    for (i = 1; i <= n; i++)
        within(list[i], "actors/tier_actor actors/tier/admission", "")
    within("actors/tier/admission", "actors/tier_actor", "")
    within("actors/draft/", "actors/draft_actor actors/verifier actors/verify/", "")
    # what makes prompts of conversations knows no actor
    within("actors/prompt/", "actors/", "actors/prompt/")
    # HTTP knows nothing of models and of what is asked of them
    within("apps/serve/http/", "apps/", "apps/serve/http/ apps/utf8.h")

    # foreign header (prefix): where it is at home, as prefixes of paths
    home["uv.h"] = "actors/host/ apps/ examples/"
    home["uv/"] = "actors/host/ apps/ examples/"
    home["ck_"] = "mailbox/"
    home["cuda"] = "gpu/"
    home["cublas"] = "gpu/"
    home["cooperative_groups"] = "gpu/"
    home["mma.h"] = "gpu/"
    home["jemalloc/"] = "base/alloc.c"
    home["utf8proc.h"] = "text/"
    home["xxhash.h"] = "cache/ cpu/tile_file.c apps/"
    home["zstd.h"] = "cache/"
    home["lz4.h"] = "cache/"
    wires = "cache/store/ apps/ examples/"
    home["hiredis/"] = wires
    home["openssl/"] = wires
    home["arpa/inet.h"] = wires
    home["netdb.h"] = wires
    home["netinet/"] = wires
    home["sys/socket.h"] = wires
    home["sys/un.h"] = wires
    home["jansson.h"] = "text/ apps/"
    home["sqlite3.h"] = "apps/"
    home["llhttp.h"] = "apps/"
    home["histedit.h"] = "apps/"
    home["editline/"] = "apps/"
    home["immintrin.h"] = "cpu/levels/ sampling/levels/"
    home["x86intrin.h"] = "cpu/levels/"
    home["xmmintrin.h"] = "cpu/levels/"
    home["emmintrin.h"] = "cpu/levels/"
    home["cpuid.h"] = "cpu/levels/"
    home["arm_neon.h"] = "cpu/levels/"
    home["arm_sve.h"] = "cpu/levels/"
    home["arm_acle.h"] = "cpu/levels/"
    threads = "mailbox/ base/thread cpu/team gpu/emulated/ actors/ apps/ examples/ bindings/"
    home["pthread.h"] = threads
    home["threads.h"] = threads
    home["semaphore.h"] = threads
    home["linux/futex.h"] = threads
    home["sanitizer/"] = "base/ mailbox/"
    home["Python.h"] = "bindings/python/"
    home["structmember.h"] = "bindings/python/"
    home["node_api.h"] = "bindings/"

    # C and POSIX: at home everywhere but in include/, which may have only the first line
    n = split("stddef.h stdint.h stdbool.h", list, " ")
    for (i = 1; i <= n; i++)
        plain[list[i]] = public[list[i]] = 1
    n = split("assert.h complex.h ctype.h errno.h fenv.h float.h inttypes.h iso646.h limits.h locale.h math.h setjmp.h" \
              " signal.h stdalign.h stdarg.h stdatomic.h stdio.h stdlib.h stdnoreturn.h string.h tgmath.h time.h" \
              " uchar.h ucontext.h wchar.h wctype.h dirent.h dlfcn.h fcntl.h fnmatch.h getopt.h glob.h langinfo.h link.h" \
              " libgen.h linux/mempolicy.h poll.h pwd.h sched.h spawn.h" \
              " strings.h sys/auxv.h sys/epoll.h sys/eventfd.h sys/file.h sys/ioctl.h sys/mman.h sys/random.h" \
              " sys/resource.h sys/stat.h sys/statvfs.h sys/syscall.h sys/sysinfo.h sys/time.h" \
              " sys/timerfd.h sys/types.h sys/uio.h sys/utsname.h sys/wait.h termios.h unistd.h", \
              list, " ")
    for (i = 1; i <= n; i++)
        plain[list[i]] = 1

    # words that are calls (followed by a parenthesis) or names: where the library may have them
    n_rules = 0
    rule("call", "malloc calloc realloc reallocarray free posix_memalign aligned_alloc memalign valloc strdup strndup", \
         "base/alloc.c", "the heap is behind base/alloc.h")
    rule("call", "abort exit _exit _Exit quick_exit", "base/check.c", "only base/check.c ends the process")
    rule("call", "printf vprintf puts putchar perror", "", "the library prints nothing")
    rule("name", "stderr stdout", "base/log.c", "the library prints nothing but base/log.c's last words")
    rule("call", "pthread_create thrd_create", "base/thread.c", "threads are made by base/thread.h")
    rule("prefix", "pthread_ thrd_ mtx_ cnd_", "mailbox/ base/thread cpu/team gpu/emulated/ actors/", \
         "only mailbox/, the compute team, the emulated driver and actors/ know of threads")
    rule("call", "getenv secure_getenv setenv putenv unsetenv", "", "the library does not read the environment")
    rule("call", "fork vfork system popen execv execve execvp posix_spawn", "", "the library does not fork")
    rule("call", "signal sigaction atexit on_exit", "", "the library installs no handlers")
    most_files = 50
    violations = 0
}

function within(part, not, unless)
{
    inner_part[++n_inner] = part
    inner_not[n_inner] = not
    inner_unless[n_inner] = unless
}

function rule(kind, words, where, why)
{
    rule_kind[++n_rules] = kind
    rule_words[n_rules] = words
    rule_where[n_rules] = where
    rule_why[n_rules] = why
}

function report(what)
{
    print FILENAME ":" FNR ": " what
    violations++
}

# True when path begins with one of the prefixes in `where`.
function inside(path, where, parts, i, n)
{
    n = split(where, parts, " ")
    for (i = 1; i <= n; i++)
        if (index(path, parts[i]) == 1)
            return 1
    return 0
}

function has_word(list, word)
{
    return index(" " list " ", " " word " ") > 0
}

function exists(path, line, status)
{
    status = (getline line < path)
    close(path)
    return status >= 0
}

# A header of include/.
function is_public(path)
{
    return path ~ /^runnel(_chat|_fields|_files|_grammar|_hooks|_infill|_observe|_sampling|_scores|_status|_uv)?[.]h$/
}

# #include "path"
function quoted(path, first, here)
{
    if (path ~ /(^|\/)\.\.\//) {
        report("\"" path "\": an include does not climb; name it from the root")
        return
    }
    if (is_public(path))
        return
    first = path
    sub(/\/.*/, "", first)
    here = FILENAME
    sub(/[^\/]*$/, "", here)
    if (path !~ /\// || !(first in may)) {
        if (room == "include" || !exists(here path))
            report("\"" path "\": neither a room's header nor one that lies beside this file")
        else
            inner(here path)
        return
    }
    if (path == "actors/engine.h" && room == "actors" && FILENAME !~ knows_engine)
        report("\"actors/engine.h\": a role knows its context (actors/context.h), not the engine")
    if (first == room)
        inner(path)
    if (first == room || first == "include")
        return
    if (FILENAME == "actors/engine.c" && (first == "cpu" || first == "gpu"))
        return
    if (!has_word(may[room], first))
        report("\"" path "\": " room "/ may not include " first "/")
}

# True when the file lies in the part: in any depth, or for a room as a whole in the room itself.
function is_in(part, rest)
{
    if (index(FILENAME, part) != 1)
        return 0
    rest = substr(FILENAME, length(part) + 1)
    return part != room "/" || rest !~ /\//
}

# A header of the same room, by its path from the root.
function inner(path, i)
{
    for (i = 1; i <= n_inner; i++)
        if (is_in(inner_part[i]) && inside(path, inner_not[i]) && !inside(path, inner_unless[i]))
            report("\"" path "\": " inner_part[i] " may not include it")
}

# ---- Cycles ----

function unit_of(path)
{
    sub(/[.][a-z]+$/, "", path)
    return path
}

# This file's unit includes that of the path, which is given from the root or from beside this file.
function note_edge(path, first, here, to, from)
{
    first = path
    sub(/\/.*/, "", first)
    here = FILENAME
    sub(/[^\/]*$/, "", here)
    to = unit_of(path ~ /\// && (first in may) ? path : here path)
    from = unit_of(FILENAME)
    if (from == to || (from, to) in edge_line)
        return
    edge_line[from, to] = FNR
    edge_file[from, to] = FILENAME
    edge[from, ++n_edges[from]] = to
    units[from] = 1
}

# Tarjan's strongly connected components.
function visit(unit, i, to, top, members)
{
    low[unit] = depth[unit] = ++n_visited
    stack[++n_stack] = unit
    on_stack[unit] = 1
    for (i = 1; i <= n_edges[unit]; i++) {
        to = edge[unit, i]
        if (!(to in depth))
            visit(to)
        if (on_stack[to] && low[to] < low[unit])
            low[unit] = low[to]
    }
    if (low[unit] != depth[unit])
        return
    members = ""
    do {
        top = stack[n_stack--]
        on_stack[top] = 0
        members = members " " top
    } while (top != unit)
    judge(substr(members, 2))
}

# Told at the include by which the first of them, by name, stays in the cycle.
function judge(members, list, n, i, k, swap, to)
{
    n = split(members, list, " ")
    for (i = 2; i <= n; i++)
        for (k = i; k > 1 && list[k] < list[k - 1]; k--) {
            swap = list[k]
            list[k] = list[k - 1]
            list[k - 1] = swap
        }
    if (n <= 2)
        return
    members = " " members " "
    for (i = 1; i <= n_edges[list[1]]; i++) {
        to = edge[list[1], i]
        if (index(members, " " to " ") > 0)
            break
    }
    printf "%s:%d: a cycle of %d units, where a pair is the most:", edge_file[list[1], to], edge_line[list[1], to], n
    for (i = 1; i <= n; i++)
        printf " %s", list[i]
    print ""
    violations++
}

# #include <path>
function angled(path, prefix, found)
{
    if (room == "include") {
        if (!(path in public))
            report("<" path ">: include/ has only <stddef.h>, <stdint.h> and <stdbool.h>")
        return
    }
    if (path in plain || is_public(path))
        return
    found = ""
    for (prefix in home)
        if (index(path, prefix) == 1 && length(prefix) > length(found))
            found = prefix
    if (found == "")
        report("<" path ">: a foreign header without a home in tests/layering.awk")
    else if (!inside(FILENAME, home[found]))
        report("<" path ">: at home only in " home[found])
}

# The line without comments, and with "" and '' for its string and character literals.
function bare(line, out, at, quote, text)
{
    out = ""
    while (line != "") {
        if (in_comment) {
            at = index(line, "*/")
            if (at == 0)
                return out
            line = substr(line, at + 2)
            in_comment = 0
            out = out " "
        } else if (match(line, /\/\*|\/\/|"|'/) == 0) {
            return out line
        } else {
            text = substr(line, RSTART, RLENGTH)
            out = out substr(line, 1, RSTART - 1)
            line = substr(line, RSTART + RLENGTH)
            if (text == "//")
                return out
            if (text == "/*") {
                in_comment = 1
                continue
            }
            quote = text
            while (line != "" && substr(line, 1, 1) != quote)
                line = substr(line, substr(line, 1, 1) == "\\" ? 3 : 2)
            line = substr(line, 2)
            out = out quote quote
        }
    }
    return out
}

function check_words(line, i, k, n, words, pattern)
{
    for (i = 1; i <= n_rules; i++) {
        if (inside(FILENAME, rule_where[i]))
            continue
        n = split(rule_words[i], words, " ")
        for (k = 1; k <= n; k++) {
            if (index(line, words[k]) == 0)
                continue
            pattern = "(^|[^A-Za-z0-9_.>])" words[k]
            if (rule_kind[i] == "call")
                pattern = pattern "[ \t]*\\("
            else if (rule_kind[i] == "name")
                pattern = pattern "([^A-Za-z0-9_]|$)"
            if (line ~ pattern)
                report(words[k] ": " rule_why[i])
        }
    }
}

FNR == 1 {
    base_name = FILENAME
    sub(/.*\//, "", base_name)
    files_of[substr(FILENAME, 1, length(FILENAME) - length(base_name))]++
    if (base_name ~ of_c)
        report("a header of this name hides <" base_name "> from files beside it")
    in_comment = 0
    room = FILENAME
    sub(/\/.*/, "", room)
    library = room != "apps" && room != "examples" && room != "bindings"
}

!in_comment && /^[ \t]*#[ \t]*include[ \t]*["<]/ {
    path = $0
    sub(/^[ \t]*#[ \t]*include[ \t]*/, "", path)
    if (path ~ /^"/) {
        sub(/^"/, "", path)
        sub(/".*/, "", path)
        quoted(path)
        note_edge(path)
    } else {
        sub(/^</, "", path)
        sub(/>.*/, "", path)
        angled(path)
    }
    next
}

!in_comment && /^[ \t]*#[ \t]*include/ {
    report("a computed include; name the header")
    next
}

{
    line = bare($0)
    if (FILENAME ~ /[.]c$/ && line ~ /(^|[^A-Za-z0-9_])extern([^A-Za-z0-9_]|$)/)
        report("extern in a .c file; declare it in the header of the file that has it")
    if (room == "cpu") # which instructions the compiler was told it may use is a SIMD file's own business
        gsub(/__(AVX|SSE|ARM_NEON|ARM_FEATURE)[A-Z0-9_]*/, "", line)
    if (line ~ /^[ \t]*#[ \t]*(if|ifdef|ifndef|elif)/) {
        # an include guard may be named after what it guards
        if (line !~ /ifndef[ \t]+RN_[A-Z0-9_]*_H[ \t]*$/ && FILENAME !~ /\.cuh?$/ &&
            line ~ /CUDA|CUBLAS|NVCC|HIP|ROCM|METAL|VULKAN|OPENCL|BACKEND|GPU|AVX|SSE|NEON|SVE/)
            report("a preprocessor line about a backend; what is absent is a stub file with the same symbols")
    }
    if (library)
        check_words(line)
}

END {
    for (place in files_of)
        if (files_of[place] > most_files) {
            print place ": " files_of[place] " files, where some 40 are a room: one inside it waits for its door"
            violations++
        }
    for (unit in units)
        if (!(unit in depth))
            visit(unit)
    if (violations > 0) {
        print violations " violation" (violations == 1 ? "" : "s") " of the layers in HOUSE.md"
        exit 1
    }
}
