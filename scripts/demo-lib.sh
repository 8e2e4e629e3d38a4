# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# demo-lib.sh: what the demos share. Who sources it has set demo (the name it is called by), build, and work, a folder of
# this demo alone, where what programs print lies in *.out and *.err. Who needs more than
# clean_up at its end sets another trap.

ckptrun=${DEMO_BIN:-$build/bin}/ckptrun
ckptctl=${DEMO_BIN:-$build/bin}/ckptctl

# Every process of this run carries this in its environment: that is how they are found again.
DEMO_RUN=$$-$(date +%s%N)
export DEMO_RUN

step() { printf '\n== %s\n' "$*"; }
say() { printf '   %s\n' "$*"; }
fail() {
    local log
    printf '\n%s: FAILED: %s\n' "$demo" "$*" >&2
    for log in "$work"/*.err "$work"/*.out "$work"/*/slurm/*.log; do
        [ ! -s "$log" ] || { echo "--- last lines of $log" >&2 && tail -n 15 "$log" >&2; }
    done
    exit 1
}

# find_mpiexec RANKS: sets mpi and mpiexec, the launcher with its options. DEMO_MPI and DEMO_MPIEXEC say which.
find_mpiexec() {
    # Open MPI starts as root only when it is told twice, and more ranks than processors only when it is told to.
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
    mpi=${DEMO_MPI:-mpich}
    mpiexec=("${DEMO_MPIEXEC:-mpiexec.$mpi}")
    command -v "${mpiexec[0]}" >/dev/null ||
        fail "there is no ${mpiexec[0]}, the launcher of $mpi: install it (Debian: apt-get install mpich openmpi-bin)"
    if "${mpiexec[0]}" --version 2>&1 | grep -qE 'Open MPI|OpenRTE|PRRTE|prterun'; then mpiexec+=(--oversubscribe); fi
    mpiexec+=(-n "$1")
}

# begin MIB: an empty work, with so much room on its disk, becomes the current folder.
begin() {
    local free
    rm -rf "$work"
    mkdir -p "$work"
    cd "$work"
    free=$(df --output=avail -BM . | tail -n 1 | tr -dc 0-9)
    [ "$free" -ge "$1" ] || fail "$work needs $1 MB of free disk for images and results; there are $free MB"
}

passed() {
    cd "$build"
    rm -rf "$work"
    printf '\n%s: passed\n' "$demo"
}

# The processes of this run that execute the file $1.
processes() {
    local proc
    for proc in /proc/[0-9]*; do
        [ "$(readlink "$proc/exe" 2>/dev/null)" = "$1" ] || continue
        if tr '\0' '\n' <"$proc/environ" 2>/dev/null | grep -qx "DEMO_RUN=$DEMO_RUN"; then
            echo "${proc#/proc/}"
        fi
    done
}

# newest DIR [LEVEL]: the newest committed epoch of DIR that has reached the level; 0 when there is none.
newest() {
    { "$ckptctl" ls --json "$1" 2>/dev/null || true; } | python3 -c '
import json, sys
text = sys.stdin.read()
epochs = json.loads(text)["epochs"] if text else []
print(max((e["epoch"] for e in epochs if e["state"] == "committed" and e.get("level", 4) >= int(sys.argv[1])), default=0))' "${2:-0}"
}

# What is started in the background, until it was waited for.
launcher=
clean_up() {
    local left
    left=$(processes "$ckptrun")
    # shellcheck disable=SC2086
    [ -z "$left" ] || kill -9 $left 2>/dev/null || true
    [ -z "$launcher" ] || kill -9 "$launcher" 2>/dev/null || true
}
trap clean_up EXIT

# kill_all EXE MOST: kill -9 for every process that executes EXE, of which there must be so many at least; the launcher
# must notice.
kill_all() {
    local found status=0
    mapfile -t found < <(processes "$1")
    [ "${#found[@]}" -ge "$2" ] || fail "found ${#found[@]} processes to kill, not $2"
    say "kill -9 ${found[*]}"
    kill -9 "${found[@]}" 2>/dev/null || true
    wait "$launcher" 2>/dev/null || status=$?
    launcher=
    [ "$status" != 0 ] || fail "the launcher says that nothing happened (status 0)"
    [ -z "$(processes "$1")" ] || fail "some processes of the job are still there"
}

# await_epoch DIR EPOCH [LEVEL]: until an epoch of that number or a newer one has reached the level.
await_epoch() {
    local dir=$1 epoch=$2 at=${3:+ at level $3}
    SECONDS=0
    while [ "$(newest "$dir" "${3:-0}")" -lt "$epoch" ]; do
        kill -0 "$launcher" 2>/dev/null || fail "the job ended before epoch $epoch was there$at"
        [ "$SECONDS" -lt 300 ] || fail "no epoch $epoch$at after 300 s"
        sleep 0.1
    done
    say "epoch $(newest "$dir" "${3:-0}") is committed$at"
}
