#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# build.sh WORK [BUILD]: MPICH 4.0.2 with its checkpoint code switched on, over libcr.c, and the programs of run.sh.
#
# WORK is a folder outside the repository, 700 MB; BUILD the tree of `make all examples`.  The source is Debian's
# (package mpich), from the mirrors that apt knows; the machine's own configuration of apt is not changed.  A second
# call does only what is not done yet.  Takes some minutes.
set -euo pipefail

[ $# -ge 1 ] || { echo "usage: build.sh WORK [BUILD]" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1" && work=$(cd "$1" && pwd)
build=$(cd "${2:-$here/../../build}" && pwd)
version=4.0.2-3
jobs=${JOBS:-$(nproc)}
cd "$work"

# The source packages of those mirrors, with lists of our own.
fetch() {
    local file
    mkdir -p apt/sources apt/lists/partial apt/cache/archives/partial
    for file in /etc/apt/sources.list.d/*.sources; do
        [ ! -e "$file" ] || sed 's/^Types:.*/Types: deb-src/' "$file" >"apt/sources/${file##*/}"
    done
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
        [ ! -e "$file" ] || sed -n 's/^deb /deb-src /p' "$file" >"apt/sources/${file##*/}"
    done
    local apt=(apt-get -qq -o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$work/apt/sources"
        -o "Dir::State::Lists=$work/apt/lists" -o "Dir::Cache=$work/apt/cache")
    "${apt[@]}" update
    "${apt[@]}" source --download-only "mpich=$version"
}

shim() {
    mkdir -p include lib
    cp "$here/libcr.h" include/
    gcc -std=gnu11 -O2 -g -Wall -Wextra -Wmissing-prototypes -Wshadow -Werror -fPIC -shared -I"$build/include" \
        -Wl,-soname,libcr.so -o lib/libcr.so "$here/libcr.c" -L"$build/lib" -lckpt -Wl,-rpath,"$build/lib" -pthread
}

# Functions of PMI are the shim's way to the other ranks before it has a network: so none is hidden.
configure() {
    mkdir -p obj && cd obj
    CONFIG_SHELL=/bin/sh sh ../src/configure --prefix="$work/inst" --no-recursion \
        --with-device=ch3:nemesis:tcp --with-pm=no --with-datatype-engine=dataloop --disable-visibility \
        --disable-fortran --disable-cxx --disable-romio --disable-static --enable-fast=O1 \
        --without-ucx --without-libfabric --without-hwloc \
        CFLAGS="-O1 -DENABLE_CHECKPOINTING -DUSE_PMI_PORT -I$work/include" \
        LDFLAGS="-L$work/lib -Wl,-rpath,$work/lib" LIBS=-lcr
}

step() { printf 'build: %s\n' "$*"; }

ls mpich_*.dsc >/dev/null 2>&1 || { step "source of mpich $version" && fetch; }
[ -d src ] || { dpkg-source --no-check -x mpich_*.dsc src.new >/dev/null && patch -s -d src.new -p1 <"$here/mpich.patch" && mv src.new src; }
step "libcr.so" && shim
[ -e obj/config.status ] || { step "configure (configure.log)" && (configure >configure.log 2>&1); }
[ -e inst/lib/libmpi.so ] || {
    step "make (make.log)"
    make -C obj -j"$jobs" V=0 >make.log 2>&1
    make -C obj install V=0 >install.log 2>&1
}

# cpi, which is over at once, uses smaller rectangles, and computes its number ROUNDS times.
step "cpi, heat"
sed -e 's/n = 10000;/n = 1000000;/' -e 's/^    MPI_Bcast/    for (int round = 0; round < ROUNDS; round++) {\n&/' -e '/^    MPI_Reduce/s/$/\n    }/' \
    src/examples/cpi.c >cpi.c
inst/bin/mpicc -O1 -DROUNDS="${ROUNDS:-4000}" -o cpi cpi.c -lm
inst/bin/mpicc -std=gnu11 -O2 -ffp-contract=off -Wno-stringop-overflow -I"$build/include" -o heat "$here"/../heat/*.c \
    -L"$build/lib" -lckpt -Wl,-rpath,"$build/lib" -lm
step "done"
