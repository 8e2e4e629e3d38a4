#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# test-vm.sh BUILD: tests above other kernels than this machine's, in virtual machines (scripts/vm.sh), in parts, each in a machine of
# its own. Which instructions ckptrun crosses with, and how threads, signals and children get their segment registers,
# depends on whether kernel and processor offer FSGSBASE, and a machine has only one of both: here are both, side by side. A
# machine of the first parts has FSGSBASE; those of parts with "without" were booted with nofsgsbase.
#
#   VM_PARTS="NAME..."  only these parts: the others' logs stay as they are
#   ONLY=REGEXP         only the tests of internal/e2e whose name it matches, in the machine of the first part; nothing is kept
#
# What all parts said is joined in bench/results/vm.txt, with a table in vm.md (scripts/vm-parts.sh). Where this machine
# cannot, it says why and names the tests, which are skipped.
set -uo pipefail

go=${GO:-go}
build=$(cd "$1" && pwd) || exit 1
shift
c_tests=("$@")
cd "$(dirname "$0")/.." || exit 1

# shellcheck disable=SC2034 # they are for vm-parts.sh
suite=vm lacks='no such virtual machine'
parts=(segments segments-without either host programs programs-without cycles cycles-without threads mpi mpi-without mpi-threads crosswise moves newer newer-without)
segments='TestLowerHalfUsesGS TestFSGSBASEIsHidden TestLateLibrary TestSpawnedBelow'
mpi='TestMPIChain TestMPIThen TestMPISignal'
declare -A tests=(
    [segments]=$segments
    [segments-without]=$segments
    [either]=TestEitherSegment
    [host]=$(basename -a "${c_tests[@]}" 2>/dev/null | tr '\n' ' ')
    [programs]=TestUnderCkptrun
    [programs-without]=TestUnderCkptrun
    [cycles]=TestCycles
    [cycles-without]=TestCycles
    [threads]='TestThreadThatAskedEnds TestPendingSignals TestSignalEndsStoppedCall TestCallsThatNoSignalEnds TestHiddenFromForks TestHeapOutsideArena TestIntruderInArena TestKeptImages'
    [mpi]=$mpi
    [mpi-without]=$mpi
    [mpi-threads]='TestAnyMoment TestOutsideMPI'
    [crosswise]=crosswise
    [moves]=moves
    [newer]="$segments TestMPIChain"
    [newer-without]=$segments
)
. scripts/vm-parts.sh

# What is compiled here: an emulated processor takes long for it.
mkdir -p "$dir/programs" || exit 1
[ -z "$(find internal/e2e/programs internal/e2e/programs.go -newer "$dir/programs/built" 2>&1)" ] || rm -f "$dir/programs/built"
"$go" test -c -o "$dir/e2e.test" ./internal/e2e && "$go" test -c -o "$dir/threads.test" ./capi/back/test/threads &&
    (cd internal/e2e && LIBCKPT_E2E_PROGRAMS=$dir/programs exec "$dir/e2e.test" -test.run '^$' >/dev/null) || exit 1
export LIBCKPT_BUILD=$build LIBCKPT_E2E_PROGRAMS=/run/tmp/programs LIBCKPT_E2E_SLOW=1 CKPT_E2E_CYCLES=${CKPT_E2E_CYCLES:-20}
export VM_PROCESSORS=${VM_PROCESSORS:-2} VM_MEMORY=${VM_MEMORY:-4G}
mpis=$(sed -n 's/^MPIS := //p' "$build/setup.mk")
mapfile -t launchers < <(sed -n 's/^MPIEXEC_\([a-z]*\) := /\1=/p' "$build/setup.mk")

# ---- what runs in a machine -------------------------------------------------------------------------

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1

# go_tests BINARY PACKAGE REGEXP [OPTION]
go_tests() {
    cp -r "$dir/programs" /run/tmp/ && cd "$2" && LIBCKPT_SKIPPED=/run/tmp/skipped "$dir/$1" -test.v -test.timeout 150m -test.run "$3" ${4:+"$4"}
    local status=$?
    sort -u /run/tmp/skipped 2>/dev/null
    return $status
}

# judged NAME COMMAND...: a test that is none of Go's, in the same form.
judged() {
    local name=$1 began=$SECONDS what=PASS
    shift
    "$@" || what=FAIL
    echo "--- $what: $name ($((SECONDS - began)).00s)"
    [ $what = PASS ]
}

c_programs() {
    local program status=0
    for program; do judged "$(basename "$program")" "$program" || status=1; done
    return $status
}

# heat MPI OUT WORD...: whether a part of a job ends with the right field.
heat() {
    local mpi=$1 out=$2 slots=
    shift 2
    [ "$mpi" = mpich ] || slots=--oversubscribe
    # shellcheck disable=SC2086
    timeout 1800 "mpiexec.$mpi" $slots -n 2 "$@" </dev/null >"$out" 2>&1 && cmp ../plain.raw saved.raw && return
    tail -n 8 "$out"
    return 1
}

# save WHERE and go_on FROM WHERE: jobs of all MPIs, saved while they run; and continued from the middle above all MPIs.
save() {
    local mpi status=0
    for mpi in $mpis; do
        mkdir -p "$dir/moved/$1-$mpi" && cd "$dir/moved/$1-$mpi" || return 1
        judged "saved-$1/$mpi" heat "$mpi" first.out "$build/bin/ckptrun" --mpi "$mpi" --keep 50 --dir ckpt -- \
            "$build/examples/heat.$mpi" "$top/examples/heat/small.par" steps=200 checkpoint_every=50 output=saved.raw log=saved.log || status=1
    done
    return $status
}
go_on() {
    local mpi above status=0
    for mpi in $mpis; do
        cd "$dir/moved/$1-$mpi" || return 1
        for above in $mpis; do
            rm -f saved.raw
            judged "saved-$1/$mpi/continued-$2/$above" heat "$above" again.out "$build/bin/ckptrun" --mpi "$above" --keep 50 --restart ckpt@2 || status=1
        done
    done
    return $status
}

# inside FUNCTION WORD...: runs one of these in a machine.
inside() {
    scripts/vm.sh "$dir" bash -c "$(declare -p dir build top mpis OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM PRTE_ALLOW_RUN_AS_ROOT PRTE_ALLOW_RUN_AS_ROOT_CONFIRM)
$(declare -f go_tests judged c_programs heat save go_on)"'
"$@"' - "$@"
}
top=$PWD

# A job that is saved with FSGSBASE goes on without, and the other way round, and both go on on this machine. Its processor, too,
# must have what theirs has.
moves() {
    local status=0
    export VM_CPU=Nehalem,+fsgsbase,+xsave
    rm -rf "$dir/moved" && mkdir "$dir/moved" || return 1
    (cd "$dir/moved" && mpi=${mpis%% *} && "mpiexec.$mpi" -n 1 "$build/examples/heat.$mpi" "$top/examples/heat/small.par" steps=200 output=plain.raw log=plain.log checkpoint_every=0 </dev/null) || return 1
    inside save with || { status=$? && [ $status != 125 ] || return $status; }
    VM_BOOT=nofsgsbase inside eval 'save without; a=$?; go_on with without && exit $a' || status=1
    inside go_on without with || status=1
    (go_on with here) || status=1
    (go_on without here) || status=1
    return $status
}

machine() {
    case $1 in
    *-without) export VM_BOOT=nofsgsbase ;;
    esac
    case $1 in
    newer*) export VM_KERNEL=6.12 ;;
    esac
    local names=${2:-^(${tests[$1]// /|})\$}
    case $1 in
    host) inside c_programs "${c_tests[@]}" ;;
    crosswise) inside judged crosswise "$top/scripts/crosswise.sh" "$build" "${launchers[@]}" ;;
    moves) moves ;;
    mpi-threads) inside go_tests threads.test "$top/capi/back/test/threads" "$names" ;;
    programs*) inside go_tests e2e.test "$top/internal/e2e" "$names" -test.short ;;
    *) inside go_tests e2e.test "$top/internal/e2e" "$names" ;;
    esac
}

heading() {
    echo '# Above other kernels, with FSGSBASE and without'
    echo
    echo "In QEMU ($(qemu-system-x86_64 --version | sed -n '1s/.*version \([0-9.]*\).*/\1/p'), ${VM_ACCEL:-tcg}) on $(sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' /etc/os-release). The last bits of AT_HWCAP2: 0x2 is FSGSBASE; parts with \"without\" were"
    echo "booted with \`nofsgsbase\`. The log is in vm.txt. \`make test-vm VM_PARTS=\"NAME...\"\` runs parts again."
}

run_parts
