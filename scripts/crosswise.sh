#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# crosswise.sh BUILD NAME=MPIEXEC...: examples/heat, compiled for each MPI's ABI and for the standard ABI, above each MPI, and
# continued from an epoch in its middle above each; and chains, in which a job goes on above another MPI each time.  Every
# field must equal, bit for bit, that of a run without ckptrun.  An MPI that has the standard ABI is used in both ways, by its
# own back and by the one for the standard ABI (NAME+abi).  The table is kept in BUILD.  `make matrix` does this with
# the MPIs of other releases of Debian.
set -euo pipefail

build=$(cd "$1" && pwd)
shift
here=$(cd "$(dirname "$0")/.." && pwd)
work=$build/crosswise
table=$build/crosswise-table
heat=("$here/examples/heat/heat.par" rows=512 columns=512 steps=400)
limit=(timeout 120) # a job takes a second

# Open MPI, 4 and PRRTE's, refuses to start jobs as root without these.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1

rm -rf "$work"
mkdir -p "$work"
cd "$work"

# What starts ranks above an MPI, with ckptrun; the ABIs of programs.
declare -A above plain
mpis=() abis=()
for pair; do
    name=${pair%%=*} launcher=${pair#*=}
    command -v "$launcher" >/dev/null || { echo "crosswise: FAILED: there is no $launcher, the launcher of $name" >&2 && exit 1; }
    options="-n 3"
    if "$launcher" --version 2>&1 | grep -qE 'Open MPI|OpenRTE|PRRTE|prterun'; then options="--oversubscribe -n 3"; fi
    plain[$name]="$launcher $options"
    above[$name]="$launcher $options $build/bin/ckptrun --mpi $name"
    mpis+=("$name") abis+=("$name")
    # Debian's name of an MPI's library of the standard ABI.
    library=$(compgen -G "/usr/lib/x86_64-linux-gnu/libmpi_abi_$name.so.1*" | head -n 1 || true)
    if [ -n "$library" ]; then
        mkdir "$work/$name+abi"
        ln -s "$library" "$work/$name+abi/libmpi_abi.so.1"
        above[$name+abi]="$launcher $options env LD_LIBRARY_PATH=$work/$name+abi $build/bin/ckptrun --mpi abi"
        mpis+=("$name+abi")
    fi
done
abis+=(abi)

failed=0
wrong() {
    echo "crosswise: FAILED: $1" >&2
    [ ! -s "$2" ] || tail -n 10 "$2" >&2
    failed=$((failed + 1))
}

# job MPI OUT OPTION...: a part of a job; whether the field is the right one.
job() {
    local mpi=$1 out=$2
    shift 2
    # shellcheck disable=SC2086
    "${limit[@]}" ${above[$mpi]} --keep 50 "$@" </dev/null >"$out" 2>&1 && cmp -s ../plain.raw saved.raw
}

# shellcheck disable=SC2086
${plain[${mpis[0]}]} "$build/examples/heat.${mpis[0]}" "${heat[@]}" output=plain.raw log=plain.log checkpoint_every=0 </dev/null >plain.out
{
    printf '| program | above'
    printf ' | then %s' "${mpis[@]}"
    printf ' |\n|---|---'
    printf '|---%.0s' "${mpis[@]}"
    echo '|'
} >"$table"
for abi in "${abis[@]}"; do
    program=$build/examples/heat.$abi
    for below in "${mpis[@]}"; do
        mkdir "$work/$abi-$below"
        cd "$work/$abi-$below"
        row="| $abi | $below"
        job "$below" first.out --dir ckpt -- "$program" "${heat[@]}" checkpoint_every=100 output=saved.raw log=saved.log ||
            wrong "heat.$abi above $below" first.out
        for again in "${mpis[@]}"; do
            rm -f saved.raw
            if job "$again" "$again.out" --restart ckpt@2; then
                row+=" | equal"
            else
                row+=" | FAILED"
                wrong "heat.$abi above $below, continued above $again" "$again.out"
            fi
        done
        echo "$row |" | tee -a "$table"
    done

    # Above each MPI in turn, each time from the epoch after the one before: it is saved under one and continued by the next.
    mkdir "$work/$abi-chain"
    cd "$work/$abi-chain"
    job "${mpis[0]}" 0.out --dir ckpt -- "$program" "${heat[@]}" checkpoint_every=80 output=saved.raw log=saved.log || wrong "heat.$abi, chain" 0.out
    for step in 1 2 3 4; do
        next=${mpis[$((step % ${#mpis[@]}))]}
        rm -f saved.raw
        job "$next" $step.out --restart "ckpt@$step" || wrong "heat.$abi, chain, step $step above $next" $step.out
    done
done
cd "$here"
[ "$failed" = 0 ] || exit 1
rm -rf "$work"
echo "crosswise: passed"
