#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# glibc.sh SOURCE BUILD [OPTIONS...]: runs tests of the GNU C library natively and under ckptrun, where each is to end the
# same way, and saves them while they run. FOLDERS are those of its sources whose tests are run, and RESULT the name of the table:
#
#   bench/glibc.sh SOURCE BUILD                                                       those of threads: nptl, glibc.md
#   FOLDERS="rt posix signal io" RESULT=glibc_system bench/glibc.sh SOURCE BUILD      of what a system does for a program
#
# Writes the table (.md) and the results (.json) to bench/results, with the reasons of bench/ltp/glibc.txt. Nothing is
# fetched: SOURCE is a tree of the C library of the version that this system has, and BUILD one in which it was built:
#
#   mkdir BUILD && cd BUILD && SOURCE/configure --prefix=/usr --disable-werror && make -j2
#
# The tests are built here. They use the C library of the system, by their names, and run without the process that glibc's own
# framework forks for each (--direct), so they are one process, mostly.
#
# OPTIONS are those of bench/ltp (-h lists them); -each 30s lets those run that take long.
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
fail() { echo "glibc.sh: $*" >&2 && exit 2; }
[ $# -gt 1 ] || fail "usage: bench/glibc.sh SOURCE BUILD [OPTIONS...]"
source=$(cd "$1" 2>/dev/null && pwd) && [ -d "$source/nptl" ] || fail "no $1/nptl: unpack the C library's source there"
build=$(cd "$2" 2>/dev/null && pwd) && [ -f "$build/libc.so" ] || fail "no $2/libc.so: build the C library there (see the head of this script)"
shift 2
folders=${FOLDERS:-nptl} result=${RESULT:-glibc} what=
[ "$folders" != nptl ] || what=" of threads"
[ -x "$here/build/bin/ckptrun" ] || fail "no $here/build/bin/ckptrun: run make first"
[ "$(id -u)" = 0 ] || fail "this takes root: it makes namespaces"
version=$(sed -n 's/^#define VERSION "\(.*\)"/\1/p' "$source/version.h")
system=$(getconf GNU_LIBC_VERSION)
[ "$system" = "glibc $version" ] || fail "$source is version $version, and this system has $system"

root=$build/ckpt
mkdir -p "$root/runtest" "$root/testcases/bin"
for folder in $folders; do
    [ -d "$source/$folder" ] || fail "no $source/$folder"
    make -r -k -j"$(nproc)" -C "$source/$folder" objdir="$build" ..=../ tests run-built-tests=no >"$build/$folder.log" 2>&1 || true # some need more
    find "$build/$folder" -maxdepth 1 -name 'tst-*' -type f -executable ! -name '*.so' ! -name '*-static' | sort |
        sed -E 's|^.*/(tst-[^/]*)$|\1 & --direct|' >"$root/runtest/$folder"
    [ -s "$root/runtest/$folder" ] || fail "no test is built: $build/$folder.log"
done

cd "$here"
go build -o build/bench/ltp ./bench/ltp
# shellcheck disable=SC2016
exec unshare --mount --net --ipc --uts --propagation private sh -c 'ip link set lo up && exec "$@"' ltp build/bench/ltp \
    -root "$root" -build build -lists "$(echo $folders | tr ' ' ,)" -saved -title "The GNU C library's tests$what under ckptrun" -script bench/glibc.sh \
    -reasons bench/ltp/glibc.txt -report "bench/results/$result" \
    -revision "$(git rev-parse --short=10 HEAD 2>/dev/null || true)" "$@"
