#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# demo.sh BUILD: the proof in a minute.  An MPI job of 4 ranks saves itself, every rank is killed with
# kill -9, the job is continued under a new mpiexec, and its result must equal, bit for bit, that of a
# run that nobody disturbed and that knows nothing of ckptrun.  DEMO_BIN is where ckptrun and ckptctl are, when not in BUILD/bin.
set -euo pipefail

build=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")/.." && pwd)
work=$build/demo
ranks=4
commits=2 # epochs to wait for before the kill

# Open MPI starts as root only when it is told twice, and more ranks than processors only when it is told to.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
mpi=${DEMO_MPI:-mpich}
mpiexec=("${DEMO_MPIEXEC:-mpiexec.$mpi}")
command -v "${mpiexec[0]}" >/dev/null || {
    echo "demo: FAILED: there is no ${mpiexec[0]}, the launcher of $mpi: install it (Debian: apt-get install mpich openmpi-bin)" >&2
    exit 1
}
if "${mpiexec[0]}" --version 2>&1 | grep -qE 'Open MPI|OpenRTE|PRRTE|prterun'; then mpiexec+=(--oversubscribe); fi
mpiexec+=(-n "$ranks")
heat=("$build/examples/heat.$mpi" "$here/examples/heat/heat.par")
ckptrun=${DEMO_BIN:-$build/bin}/ckptrun
ckptctl=${DEMO_BIN:-$build/bin}/ckptctl

# Every process of this run carries this in its environment: that is how they are found again.
HEAT_DEMO_RUN=$$-$(date +%s%N)
export HEAT_DEMO_RUN

step() { printf '\n== %s\n' "$*"; }
say() { printf '   %s\n' "$*"; }
fail() {
    printf '\ndemo: FAILED: %s\n' "$*" >&2
    for log in "$work"/*.out; do
        [ ! -s "$log" ] || { echo "--- last lines of $log" >&2 && tail -n 15 "$log" >&2; }
    done
    exit 1
}

# The processes of this run that execute the file $1.
processes() {
    local proc
    for proc in /proc/[0-9]*; do
        [ "$(readlink "$proc/exe" 2>/dev/null)" = "$1" ] || continue
        if tr '\0' '\n' <"$proc/environ" 2>/dev/null | grep -qx "HEAT_DEMO_RUN=$HEAT_DEMO_RUN"; then
            echo "${proc#/proc/}"
        fi
    done
}

# Of the processes $@ those that are no child of another one of them: the ranks themselves, without the
# frozen copies from which images are written.
without_children() {
    local pid parent
    for pid in "$@"; do
        parent=$(sed -n 's/^PPid:\t//p' "/proc/$pid/status" 2>/dev/null) || continue
        case " $* " in *" $parent "*) ;; *) echo "$pid" ;; esac
    done
}

launcher=
clean_up() {
    local left
    left=$(processes "$ckptrun")
    # shellcheck disable=SC2086
    [ -z "$left" ] || kill -9 $left 2>/dev/null || true
    [ -z "$launcher" ] || kill -9 "$launcher" 2>/dev/null || true
}
trap clean_up EXIT

# The number of the newest committed epoch; 0 when there is none yet.
newest() {
    { "$ckptctl" ls --json "$work/ckpt" 2>/dev/null || true; } | python3 -c '
import json, sys
text = sys.stdin.read()
epochs = json.loads(text)["epochs"] if text else []
print(max((e["epoch"] for e in epochs if e["state"] == "committed"), default=0))'
}

rm -rf "$work"
mkdir -p "$work"
cd "$work"
free=$(df --output=avail -BM . | tail -n 1 | tr -dc 0-9)
[ "$free" -ge 3000 ] || fail "$work needs 3 GB of free disk for images and results; there are $free MB"

step "1. A run without libckpt's launcher, for comparison: heat on $ranks ranks under ${mpiexec[0]}"
SECONDS=0
"${mpiexec[@]}" "${heat[@]}" output=plain.raw log=plain.log checkpoint_every=0 </dev/null \
    >plain.out 2>&1 || fail "the plain run ended with status $?"
say "$(tail -n 1 plain.out)"
say "took $SECONDS s"

step "2. The same with ckptrun; it saves itself every few steps"
say "${mpiexec[*]} ckptrun --dir ckpt -- heat heat.par"
SECONDS=0
"${mpiexec[@]}" "$ckptrun" --dir "$work/ckpt" -- "${heat[@]}" output=saved.raw log=saved.log \
    </dev/null >first.out 2>&1 &
launcher=$!
seen=0
while [ "$seen" -lt "$commits" ]; do
    kill -0 "$launcher" 2>/dev/null || fail "the job ended before $commits epochs were committed"
    [ "$SECONDS" -lt 300 ] || fail "no $commits committed epochs after 300 s"
    now=$(newest)
    if [ "$now" -gt "$seen" ]; then
        seen=$now
        say "after $SECONDS s: epoch $seen is committed"
    fi
    sleep 0.2
done
"$ckptctl" ls "$work/ckpt" | sed 's/^/   /'

step "3. kill -9 for every rank"
mapfile -t all < <(processes "$ckptrun")
mapfile -t found < <(without_children "${all[@]}")
[ "${#found[@]}" = "$ranks" ] || fail "found ${#found[@]} ranks to kill, not $ranks: ${found[*]}"
[ ! -e saved.raw ] || fail "the job was done before it could be killed"
for pid in "${found[@]}"; do
    say "rank with pid $pid: $(awk '/^VmRSS/ { printf "%d MiB in memory", $2 / 1024 }' "/proc/$pid/status")"
done
kill -9 "${all[@]}"
status=0
wait "$launcher" || status=$?
launcher=
[ "$status" != 0 ] || fail "mpiexec says that nothing happened (status 0)"
say "mpiexec ended with status $status; $(grep -c . saved.log || true) lines of the log had reached the disk"
[ -z "$(processes "$ckptrun")" ] || fail "some processes of the job are still there"

step "4. Continue under a new mpiexec"
say "${mpiexec[*]} ckptrun --restart ckpt"
SECONDS=0
"${mpiexec[@]}" "$ckptrun" --restart "$work/ckpt" </dev/null >second.out 2>&1 ||
    fail "the continued run ended with status $?"
grep -q 'continued from what was saved' second.out || fail "the job did not say that it was continued"
sed 's/^/   /' second.out
say "took $SECONDS s"

step "5. Compare"
sha256sum plain.raw saved.raw | sed 's/^/   /'
cmp plain.raw saved.raw || fail "the fields differ"
cmp plain.log saved.log || fail "the logs differ"
say "the fields ($(stat -c %s saved.raw) bytes) and the logs are equal, bit for bit"

cd "$build"
rm -rf "$work"
printf '\ndemo: passed\n'
