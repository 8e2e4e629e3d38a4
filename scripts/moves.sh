#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# moves.sh BUILD [SUITE]...: jobs that move between this machine's Debian and other releases of it (default: trixie forky), which
# matrix.sh has installed.  examples/heat is compiled here and in each SUITE, for each MPI's ABI and the standard one, saved there above
# that MPI, and continued in each release above each of its MPIs; and it goes through all of them in turn, saved by one and continued
# by the next.  Every field must equal, bit for bit, that of a run without ckptrun.  So do the objects of capi/front/test's zoo, in
# generations, and a Fortran program with collective calls under way.  The table is kept in MATRIX/moves.  As root.
set -euo pipefail

build=$(cd "$1" && pwd)
shift
[ $# -gt 0 ] || set -- trixie forky
top=$(cd "$(dirname "$0")/.." && pwd)
matrix=${MATRIX:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/libckpt/matrix}
here=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
releases=("$here" "$@")
work=$matrix/moved
table=$matrix/moves
rm -rf "$work"
mkdir -p "$work"

# in_release RELEASE SCRIPT [WORD]...: with the work at /srv/lent and the build at $build, wherever these are.
in_release() {
    local release=$1 script=$2
    shift 2
    if [ "$release" = "$here" ]; then
        # shellcheck disable=SC2016
        unshare --mount --propagation private --pid --fork --kill-child bash -c '
            mount -t proc proc /proc
            mount -t tmpfs tmpfs /srv && mkdir /srv/lent && mount --bind "$1" /srv/lent
            cd /srv/lent && build=$2 top=$3 script=$4 && shift 4 && eval "$script"' bash "$work" "$build" "$top" "$script" "$@"
    else
        LEND=$work MATRIX=$matrix "$top/scripts/matrix.sh" --in "$release" bash -c '
            cd /srv/lent && build=/srv/libckpt/build top=/srv/libckpt script=$1 && shift && eval "$script"' bash "$script" "$@"
    fi
}

# What both of the following begin with: how ranks are started above an MPI.
common='
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
launch() { # MPI WORDS
    local mpi=$1 slots=
    shift
    [ "$mpi" = mpich ] || slots=--oversubscribe
    timeout 120 "mpiexec.$mpi" $slots -n 3 "$@" </dev/null
}
heat="heat.par rows=512 columns=512 steps=400"
'
# shellcheck disable=SC2016
save=$common'
abi=$1 mpi=$2 dir=$3
mkdir -p "$dir" && cd "$dir"
cp "$build/examples/heat.$abi" program && cp "$top/examples/heat/heat.par" .
launch "$mpi" "$build/bin/ckptrun" --mpi "$mpi" --keep 50 --dir ckpt -- ./program $heat checkpoint_every=100 output=saved.raw log=saved.log >first.out 2>&1'
# shellcheck disable=SC2016
again=$common'
mpi=$1 dir=$2 epoch=$3
cd "$dir" && rm -f saved.raw
launch "$mpi" "$build/bin/ckptrun" --mpi "$mpi" --keep 50 --restart "ckpt@$epoch" >again.out 2>&1'

# shellcheck disable=SC2016
objects=$common'
abi=$1 dir=$2 generations=$3 from=$top/capi/front/test/testdata
mkdir -p "$dir" && cd "$dir"
flags="-I$build/include -L$build/lib -lckpt -Wl,-rpath,$build/lib"
"mpicc.$abi" -w -o zoo "$from/zoo.c" $flags && "mpif90.$abi" -w -fallow-argument-mismatch -DF08 -o vectors "$from/fortranvectors.F90" $flags
launch mpich "$build/bin/ckptrun" --mpi mpich --dir vectors.ckpt -- ./vectors save >vectors.out 2>&1 && grep -qx "fortranvectors: ok, saved" vectors.out
launch mpich "$build/bin/ckptrun" --mpi mpich --dir zoo.ckpt -- ./zoo "$generations" >zoo.out 2>&1 && grep -qx "zoo: generation 1 is saved" zoo.out'
# shellcheck disable=SC2016
once_more=$common'
mpi=$1 dir=$2 what=$3 expected=$4
cd "$dir"
launch "$mpi" "$build/bin/ckptrun" --mpi "$mpi" --dir "$what.ckpt" --restart "$what.ckpt" >again.out 2>&1 && grep -qx "$expected" again.out'

failed=0
wrong() {
    echo "moves: FAILED: $1" >&2
    [ ! -s "$2" ] || tail -n 6 "$2" >&2
    failed=$((failed + 1))
}
# Without ckptrun, on this machine: what all fields must equal.
mkdir "$work/plain"
# shellcheck disable=SC2016
in_release "$here" "$common"'
cd plain && cp "$top/examples/heat/heat.par" . && mpi=$(sed -n "s/^MPIS := \([a-z]*\).*/\1/p" "$build/setup.mk")
launch "$mpi" "$build/examples/heat.$mpi" $heat output=plain.raw log=plain.log checkpoint_every=0 >plain.out 2>&1'
same() { cmp -s "$work/plain/plain.raw" "$work/$1/saved.raw"; }

{
    printf '| saved in | program'
    for release in "${releases[@]}"; do printf ' | %s, mpich | %s, openmpi' "$release" "$release"; done
    printf ' |\n|---|---'
    for _ in "${releases[@]}"; do printf '|---|---'; done
    echo '|'
} | tee "$table"
for origin in "${releases[@]}"; do
    for abi in mpich openmpi abi; do
        mpi=${abi/abi/mpich}
        dir=$origin-$abi
        row="| $origin | $abi"
        { in_release "$origin" "$save" "$abi" "$mpi" "$dir" && same "$dir"; } || wrong "heat.$abi in $origin" "$work/$dir/first.out"
        for release in "${releases[@]}"; do
            for below in mpich openmpi; do
                if in_release "$release" "$again" "$below" "$dir" 2 && same "$dir"; then
                    row+=" | equal"
                else
                    row+=" | FAILED"
                    wrong "heat.$abi saved in $origin, continued in $release above $below" "$work/$dir/again.out"
                fi
            done
        done
        echo "$row |" | tee -a "$table"
    done
    # Through all releases and MPIs in turn, twice, each time from the epoch that the one before has made.
    dir=$origin-chain
    in_release "$origin" "$save" mpich mpich "$dir" || wrong "heat in $origin" "$work/$dir/first.out"
    epoch=1 chain=$origin
    for below in openmpi mpich; do
        for release in "${releases[@]}"; do
            chain+=", $release ($below)"
            in_release "$release" "$again" "$below" "$dir" "$epoch" && same "$dir" || wrong "the chain $chain" "$work/$dir/again.out"
            epoch=$(find "$work/$dir/ckpt" -maxdepth 1 -name 'epoch-*' | sed 's/.*epoch-0*//' | sort -n | tail -n 1)
            [ "$epoch" -lt 3 ] || epoch=$((epoch - 2))
        done
    done
    echo "chain from $chain: $([ $failed = 0 ] && echo equal || echo "see above")" | tee -a "$table"

    for abi in mpich openmpi; do
        dir=$origin-$abi-objects bad=$failed
        generations=$((2 * ${#releases[@]}))
        in_release "$origin" "$objects" "$abi" "$dir" $generations || wrong "objects of $abi in $origin" "$work/$dir/zoo.out"
        generation=1
        for below in openmpi mpich; do
            for release in "${releases[@]}"; do
                in_release "$release" "$once_more" "$below" "$dir" vectors "fortranvectors: ok, restarted" ||
                    wrong "vectors of $abi, saved in $origin, continued in $release above $below" "$work/$dir/again.out"
                generation=$((generation + 1))
                expected="zoo: generation $generation is saved"
                [ $generation -le $generations ] || expected="zoo: ok, $generations generations"
                in_release "$release" "$once_more" "$below" "$dir" zoo "$expected" ||
                    wrong "zoo of $abi from $origin, generation $generation in $release above $below" "$work/$dir/again.out"
            done
        done
        echo "objects of $abi from $origin, $generations generations; calls under way in Fortran: $([ "$failed" = "$bad" ] && echo equal || echo "see above")" | tee -a "$table"
    done
done
[ "$failed" = 0 ] || exit 1
rm -rf "$work"
echo "moves: passed"
