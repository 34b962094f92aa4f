#!/usr/bin/env bash
# Installs a build into a temporary prefix and uses it in every way that README.md names: pkg-config with the
# shared and with the static library, find_package, add_subdirectory; from C and C++. Then looks at the shared
# library: exactly the functions of the public headers, versioned; a SONAME; nothing of jemalloc.
#
#   tests/install/check.sh BUILD SOURCE CC CXX GENERATOR WERROR
set -euo pipefail
build=$1 source=$2 cc=$3 cxx=$4 generator=$5 werror=$6
consumer=$source/tests/install/consumer
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
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
export PKG_CONFIG_PATH=$libdir/pkgconfig
version=$(pkg-config --modversion runnel)

# 1. pkg-config, shared.
cp "$consumer/consumer.c" "$work/consumer.cpp"
read -ra flags < <(pkg-config --cflags --libs runnel)
quietly "C with pkg-config" "$cc" -std=c11 -Wall -Wextra -Werror "$consumer/consumer.c" -o "$work/c" "${flags[@]}" \
    -Wl,-rpath,"$libdir" && runs "C with pkg-config" "$work/c"
quietly "C++ with pkg-config" "$cxx" -std=c++17 -Wall -Wextra -Werror "$work/consumer.cpp" -o "$work/cpp" "${flags[@]}" \
    -Wl,-rpath,"$libdir" && runs "C++ with pkg-config" "$work/cpp"
readelf -d "$work/c" | grep -q 'NEEDED.*\[librunnel\.so\.[0-9]*\]' || complain "the C program does not need librunnel.so.N"

# 2. pkg-config --static, where only the static library is installed.
cp -r "$work/prefix" "$work/static"
find "$work/static" -name 'librunnel.so*' -delete
read -ra flags < <(PKG_CONFIG_PATH=${PKG_CONFIG_PATH/#$work\/prefix/$work\/static} pkg-config --static --cflags --libs runnel)
quietly "C with pkg-config --static" "$cc" "$consumer/consumer.c" -o "$work/c_static" "${flags[@]}" &&
    runs "C with pkg-config --static" "$work/c_static"
quietly "C++ with pkg-config --static" "$cxx" "$work/consumer.cpp" -o "$work/cpp_static" "${flags[@]}" &&
    runs "C++ with pkg-config --static" "$work/cpp_static"
! readelf -d "$work/c_static" | grep -q 'librunnel' || complain "the static program needs a librunnel"

# 3. and 4. CMake, installed and as a part of another project.
# cmake_consumer NAME OPTION...
cmake_consumer() {
    local name=$1 program

    shift
    quietly "$name: configure" cmake -S "$consumer" -B "$work/$name" -G "$generator" -DCMAKE_BUILD_TYPE=Release \
        -DCMAKE_C_COMPILER="$cc" -DCMAKE_CXX_COMPILER="$cxx" "$@" || return 0
    quietly "$name: build" cmake --build "$work/$name" || return 0
    for program in c_runnel cpp_runnel c_runnel_shared cpp_runnel_shared; do
        runs "$name: $program" "$work/$name/$program"
    done
}
cmake_consumer find_package -DCMAKE_PREFIX_PATH="$work/prefix" -DRUNNEL_EXPECT="$version"
# With the flags of the build itself the compiler cache has the library.
cmake_consumer add_subdirectory -DRUNNEL_SOURCE="$source" -DRUNNEL_WERROR="$werror"

# 5. The example on README's page, by the CMake lines beside it.
mkdir "$work/page"
"$source/tests/pages/extract.sh" "$source/README.md" "$work/page" hello.c CMakeLists.txt
if quietly "README: configure" cmake -S "$work/page" -B "$work/page/build" -G "$generator" -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_C_COMPILER="$cc" -DCMAKE_PREFIX_PATH="$work/prefix" &&
    quietly "README: build" cmake --build "$work/page/build"; then
    quietly "README: run" "$work/page/build/hello" "$source/examples/models/runnel-tiny-Q8_0.gguf" || true
fi

# 6. The shared library's face.
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

[ "$failed" = 1 ] || echo "runnel $version: installed, used in 13 ways, $(wc -l <"$work/have") functions exported"
exit "$failed"
