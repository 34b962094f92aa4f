#!/usr/bin/env bash
# Installs a build into a temporary prefix and uses it in every way that README.md names: pkg-config with the
# shared and with the static library, both of which are installed, find_package, add_subdirectory; from C and C++, where pkg-config knows nothing of
# what the library itself is made of. Then looks at the shared library: exactly the functions of the public headers,
# versioned; a SONAME; nothing of jemalloc. And at what each component brings, where only the program was built.
#
#   tests/install/check.sh BUILD SOURCE CC CXX GENERATOR WERROR ASSERTS LAUNCHER
set -euo pipefail
build=$1 source=$2 cc=$3 cxx=$4 generator=$5
# With the flags and the launcher of the build itself the compiler cache has the library; what nvcc makes it does not
# keep.
as_built=(-DRUNNEL_WERROR="$6" -DRUNNEL_ASSERTS="$7" -DRUNNEL_CUDA=OFF -DCMAKE_C_COMPILER_LAUNCHER="$8"
    -DCMAKE_CXX_COMPILER_LAUNCHER="$8")
consumer=$source/tests/install/consumer
work=$(mktemp -d)
# Where the whole library is built again: beside BUILD, so that paths relative to it are the same. A compiler cache that
# looks at those (ccache's base_dir) has the objects, too.
beside=$(mktemp -d "$build-install-XXXXXX")
alone=$(mktemp -d "$build-install-XXXXXX")
trap 'rm -rf "$work" "$beside" "$alone"' EXIT
failed=0

complain() {
    echo "tests/install: $*" >&2
    failed=1
}

# quietly WHAT COMMAND...: its output only if it fails.
quietly() {
    local what=$1

    shift
    if ! "$@" >"$work/log" 2>&1; then
        cat "$work/log" >&2
        complain "$what failed: $*"
        return 1
    fi
}

# runs WHAT PROGRAM: it must say the version that pkg-config says.
runs() {
    local said

    if ! said=$("$2" 2>&1) || [ "$said" != "$version" ]; then
        complain "$1: said '$said', expected '$version'"
    fi
}

quietly "the install" cmake --install "$build" --prefix "$work/moved"
mv "$work/moved" "$work/prefix" # nothing may remember where it was installed
libdir=$(dirname "$(find "$work/prefix" -name librunnel.a)")
library=$libdir/librunnel.so
real_pkg_config=$(command -v pkg-config)
# As where no package of a private dependency is installed: pkg-config sees ours alone.
pkg-config() { PKG_CONFIG_PATH= PKG_CONFIG_LIBDIR=$libdir/pkgconfig "$real_pkg_config" "$@"; }
version=$(pkg-config --modversion runnel)

# 1. pkg-config, shared.
cp "$consumer/consumer.c" "$work/consumer.cpp"
read -ra flags < <(pkg-config --cflags --libs runnel)
only_ours='^-I[^ ]*/include -L[^ ]*/lib[^ ]* -lrunnel$'
[[ "${flags[*]}" =~ $only_ours ]] ||
    complain "pkg-config gives a host more than it needs: ${flags[*]}"
quietly "C with pkg-config" "$cc" -std=c11 -Wall -Wextra -Werror "$consumer/consumer.c" -o "$work/c" "${flags[@]}" \
    -Wl,-rpath,"$libdir" && runs "C with pkg-config" "$work/c"
quietly "C++ with pkg-config" "$cxx" -std=c++17 -Wall -Wextra -Werror "$work/consumer.cpp" -o "$work/cpp" "${flags[@]}" \
    -Wl,-rpath,"$libdir" && runs "C++ with pkg-config" "$work/cpp"
readelf -d "$work/c" | grep -q 'NEEDED.*\[librunnel\.so\.[0-9]*\]' || complain "the C program does not need librunnel.so.N"

# 2. pkg-config, static: with both libraries there, and by --static where the shared one is not.
[ "$(pkg-config --modversion runnel-static)" = "$version" ] || complain "runnel-static is not of version $version"
read -ra flags < <(pkg-config --cflags --libs runnel-static)
quietly "C with runnel-static" "$cc" "$consumer/consumer.c" -o "$work/c_static" "${flags[@]}" &&
    runs "C with runnel-static" "$work/c_static"
quietly "C++ with runnel-static" "$cxx" "$work/consumer.cpp" -o "$work/cpp_static" "${flags[@]}" &&
    runs "C++ with runnel-static" "$work/cpp_static"
cp -r "$work/prefix" "$work/static"
find "$work/static" -name 'librunnel.so*' -delete
read -ra flags < <(libdir=${libdir/#$work\/prefix/$work\/static} pkg-config --static --cflags --libs runnel)
quietly "C with pkg-config --static" "$cc" "$consumer/consumer.c" -o "$work/c_alone" "${flags[@]}" &&
    runs "C with pkg-config --static" "$work/c_alone"
for program in c_static cpp_static c_alone; do
    ! readelf -d "$work/$program" | grep -q 'librunnel' || complain "$program needs a librunnel"
    ! readelf -d "$work/$program" | grep -q 'jemalloc' || complain "$program needs jemalloc, which nobody asked for"
done
! nm --undefined-only "$libdir/librunnel.a" | grep -qi 'je_\|mallocx\|mallctl' || complain "the archive wants jemalloc's symbols"

# 3. and 4. CMake, installed and as a part of another project.
# cmake_consumer NAME FOLDER OPTION...
cmake_consumer() {
    local name=$1 folder=$2 program

    shift 2
    quietly "$name: configure" cmake -S "$consumer" -B "$folder" -G "$generator" -DCMAKE_BUILD_TYPE=Release \
        -DCMAKE_C_COMPILER="$cc" -DCMAKE_CXX_COMPILER="$cxx" "$@" || return 0
    quietly "$name: build" cmake --build "$folder" || return 0
    for program in c_runnel cpp_runnel c_runnel_static cpp_runnel_static; do
        runs "$name: $program" "$folder/$program"
        ! readelf -d "$folder/$program" | grep -q jemalloc || complain "$name: $program needs jemalloc"
    done
    readelf -d "$folder/c_runnel" | grep -q 'NEEDED.*\[librunnel\.so' || complain "$name: runnel::runnel is not shared"
    ! readelf -d "$folder/c_runnel_static" | grep -q librunnel || complain "$name: runnel::runnel_static is not static"
}
PKG_CONFIG_PATH= PKG_CONFIG_LIBDIR=$libdir/pkgconfig cmake_consumer find_package "$work/find_package" \
    -DCMAKE_PREFIX_PATH="$work/prefix" \
    -DRUNNEL_EXPECT="$version"
! grep -i 'uv_\|jansson\|hiredis' "$work/find_package/CMakeCache.txt" || complain "find_package looks for private dependencies"
cmake_consumer add_subdirectory "$beside" -DRUNNEL_SOURCE="$source" "${as_built[@]}"

# 5. The example on README's page, by the CMake lines beside it.
mkdir "$work/page"
"$source/tests/pages/extract.sh" "$source/README.md" "$work/page" hello.c CMakeLists.txt
if quietly "README: configure" cmake -S "$work/page" -B "$work/page/build" -G "$generator" -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_C_COMPILER="$cc" -DCMAKE_PREFIX_PATH="$work/prefix" &&
    quietly "README: build" cmake --build "$work/page/build"; then
    quietly "README: run" "$work/page/build/hello" "$source/examples/models/runnel-tiny-Q8_0.gguf" || true
fi

# 6. Who has built the program alone can install, all at once and a component at a time.
quietly "program: configure" cmake -S "$source" -B "$alone" -G "$generator" -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_C_COMPILER="$cc" -DCMAKE_CXX_COMPILER="$cxx" "${as_built[@]}" -DRUNNEL_BUILD_TESTS=OFF \
    -DRUNNEL_BUILD_BENCH=OFF && quietly "program: build" cmake --build "$alone" --target runnel
quietly "program: install" cmake --install "$alone" --prefix "$work/whole" || true
for component in runtime development program; do
    quietly "program: install" cmake --install "$alone" --prefix "$work/$component" --component $component || true
    [ -f "$work/$component/share/doc/runnel/LICENSE" ] || complain "component $component: no licence"
done
# lacks|brings COMPONENT PATTERN
brings() { [ -n "$(find "$work/$1" -name "$2")" ] || complain "component $1 does not bring $2"; }
lacks() { [ -z "$(find "$work/$1" -name "$2")" ] || complain "component $1 brings $2"; }
brings runtime 'librunnel.so.*'
for other in librunnel.so librunnel.a '*.h' '*.pc' '*.cmake' runnel; do
    [ "$other" = runnel ] && lacks runtime bin || lacks runtime "$other"
done
for own in librunnel.so librunnel.a runnel.h runnel.pc runnel-static.pc runnel-config.cmake librunnel.3 ARCHITECTURE.md hello.c '*.gguf'; do
    brings development "$own"
done
lacks development bin
for own in runnel.1 runnel-serve.1 runnel runnel-serve.service runnel-serve.socket; do
    brings program "$own"
done
[ "$("$work/program/bin/runnel" --version)" = "runnel $version" ] || complain "component program: it does not run"
lacks program 'librunnel*'
[ "$(cd "$work" && find runtime development program -type f -printf '%P\n' | sort -u)" = \
    "$(cd "$work" && find whole -type f -printf '%P\n' | sort -u)" ] || complain "the components together are not the whole"

# 7. The shared library's face.
readelf -d "$library" | grep -q "SONAME.*\[librunnel\.so\.${version%%.*}\]" || complain "no SONAME librunnel.so.${version%%.*}"
! readelf -d "$library" | grep -q 'NEEDED.*jemalloc' || complain "the shared library needs jemalloc"
! nm -D --undefined-only "$library" | grep -qi 'je_\|mallocx\|mallctl' || complain "the shared library wants jemalloc's symbols"
nm -D --defined-only "$library" | awk '$2 != "A" { print $3 }' | sort >"$work/exported"
grep -v "^runnel_[a-z0-9_]*@@RUNNEL_${version%%.*}\$" "$work/exported" >"$work/foreign" || true
[ ! -s "$work/foreign" ] || complain "exported, but not runnel_*@@RUNNEL_${version%%.*}:" $(head -n 20 "$work/foreign")
sed 's/@.*//' "$work/exported" | sort -u >"$work/have"
cat "$work/prefix"/include/runnel*.h | tr '\n' ' ' | grep -o 'RUNNEL_API [^;(]*(' | grep -o 'runnel_[a-z0-9_]*($' | tr -d '(' |
    sort -u >"$work/want"
[ "$(wc -l <"$work/want")" -ge 10 ] || complain "too few functions found in the public headers"
comm -23 "$work/want" "$work/have" >"$work/absent"
comm -13 "$work/want" "$work/have" >"$work/undeclared"
[ ! -s "$work/absent" ] || complain "declared, but not exported:" $(cat "$work/absent")
[ ! -s "$work/undeclared" ] || complain "exported, but in no public header:" $(cat "$work/undeclared")

[ "$failed" = 1 ] || echo "runnel $version: installed, used in 14 ways, by components, $(wc -l <"$work/have") functions exported"
exit "$failed"
