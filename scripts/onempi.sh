#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# onempi.sh [MPI]...: what a machine with one MPI makes of this commit.  For each MPI (default: mpich openmpi) what is
# committed is cloned to build/onempi, and TARGETS of the Makefile (default: demo) are made there, in a mount namespace where
# the compilers, launchers and headers of the other MPI are not there.  As root; with ccache it takes a minute each.
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
targets=${TARGETS:-demo}
[ "$(id -u)" = 0 ] || { echo "onempi: this takes root: it mounts over /usr" >&2; exit 1; }
[ $# -gt 0 ] || set -- mpich openmpi
lib=/usr/lib/x86_64-linux-gnu

for mpi; do
    case $mpi in
    mpich) hidden='mpi*.openmpi mpirun mpiexec mpicc orte* orte-* ompi* prte*' library="$lib/openmpi" ;;
    openmpi) hidden='mpi*.mpich mpiexec.hydra hydra_* mpichversion mpivars mpirun mpiexec mpicc' library="$lib/mpich" ;;
    *) echo "usage: onempi.sh [mpich|openmpi]..." >&2 && exit 2 ;;
    esac
    work=$here/build/onempi/$mpi
    rm -rf "$work"
    mkdir -p "$work/upper" "$work/work" "$work/empty"
    git clone -q "$here" "$work/tree"
    echo "== $mpi alone: make $targets"
    # shellcheck disable=SC2016
    unshare --mount --propagation private bash -ec '
        work=$1 hidden=$2 library=$3 targets=$4
        mount -t tmpfs tmpfs "$work/upper"
        mkdir "$work/upper/u" "$work/upper/w"
        mount -t overlay -o "lowerdir=/usr/bin,upperdir=$work/upper/u,workdir=$work/upper/w" overlay /usr/bin
        (cd /usr/bin && rm -f $hidden)
        [ ! -d "$library" ] || mount --bind "$work/empty" "$library"
        cd "$work/tree" && exec make -j"$(nproc)" $targets' bash "$work" "$hidden" "$library" "$targets"
    echo "onempi: $mpi: passed"
    rm -rf "$work"
done
