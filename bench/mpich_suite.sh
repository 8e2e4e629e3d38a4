#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# mpich_suite.sh CHECKOUT [OPTIONS...]: runs the test suite of MPICH, test/mpi of its sources, which the
# user has built below CHECKOUT for the distribution's MPICH and Open MPI: natively, under ckptrun above each
# MPI, and with checkpoints at chosen MPI calls, after which a program goes on, or ends or is killed and goes
# on in a new job, also above the other MPI.  Writes bench/results/mpich_suite.md and .json: every outcome,
# and each difference from a native run with its reason (bench/mpichsuite/reasons.txt).  Nothing is fetched
# and nothing of the suite is built here.
#
#   bench/mpich_suite.sh mpich                             half an hour of it; the next run goes on
#   bench/mpich_suite.sh mpich -only attr,comm -limit 2h   these folders, at most so long
#   bench/mpich_suite.sh mpich -all -ranks 10 -limit 40h   everything
#   bench/mpich_suite.sh mpich -lists testlist.dtp -objects 2   random datatypes, two a program (the lists want up to 1024)
#   bench/mpich_suite.sh mpich -again -each 2m             what did not pass, alone: a busy machine lets programs hang
#   build/bench/turns 100 bench/mpich_suite.sh mpich -only coll -lists testlist.cvar -ranks 10   ranks that poll, many on few processors
#
# CHECKOUT/mpich and CHECKOUT/openmpi are build folders of the suite, with its programs, and a link "source"
# to its sources, where lists of programs are that the build does not write.  Programs must have been linked by
# bench/mpichsuite/link.sh with build/bench/moment.o (make build/bench/moment.o), the tool that raises the
# signal: as linkers, say, "bench/mpichsuite/link.sh build/bench/moment.o mpicc.mpich". Fortran libraries call
# MPI's names with a P: those of Open MPI and mpi_f08 of MPICH want build/bench/moment-fortran.o in its place.
#
# OPTIONS are those of bench/mpichsuite (-h lists them).  WORK is where results are kept between runs
# (build/mpich_suite); without it a run begins anew. The table keeps the results of the one before for what
# this run does not reach, unless -merge= is given; each has the commit that it is of.
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
fail() { echo "mpich_suite.sh: $*" >&2 && exit 2; }
[ $# -gt 0 ] || fail "usage: bench/mpich_suite.sh CHECKOUT [OPTIONS...]"
checkout=$(cd "$1" && pwd)
shift
work=${WORK:-$here/build/mpich_suite}
mkdir -p "$work"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

[ -x "$here/build/bin/ckptrun" ] || fail "no $here/build/bin/ckptrun: run make first"
for mpi in mpich openmpi; do
    for part in attr coll pt2pt source/testlist.in; do
        [ -e "$checkout/$mpi/$part" ] ||
            fail "no $checkout/$mpi/$part: build the suite (test/mpi) for $mpi there; the head of this script says how it is to be linked"
    done
    # One program tells whether they have the tool.
    program=$(find "$checkout/$mpi/attr" -maxdepth 1 -type f -executable ! -name '*.*' | head -n 1)
    [ -n "$program" ] || fail "no programs in $checkout/$mpi/attr: build the suite for $mpi"
    grep -q CKPT_MOMENT_CALLS "$program" || fail "$program is not linked with build/bench/moment.o: link with bench/mpichsuite/link.sh"
done

cd "$here"
exec go run ./bench/mpichsuite -build build -mpich "$checkout/mpich" -openmpi "$checkout/openmpi" -state "$work/results" \
    -reasons bench/mpichsuite/reasons.txt -notes bench/mpichsuite/notes.md -report bench/results/mpich_suite \
    -merge bench/results/mpich_suite.json -revision "$(git rev-parse --short=10 HEAD 2>/dev/null || true)" "$@"
