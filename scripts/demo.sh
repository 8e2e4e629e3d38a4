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

demo=demo
. "$here/scripts/demo-lib.sh"
find_mpiexec "$ranks"
heat=("$build/examples/heat.$mpi" "$here/examples/heat/heat.par")

# Of the processes $@ those that are no child of another one of them: the ranks themselves, without the
# frozen copies from which images are written.
without_children() {
    local pid parent
    for pid in "$@"; do
        parent=$(sed -n 's/^PPid:\t//p' "/proc/$pid/status" 2>/dev/null) || continue
        case " $* " in *" $parent "*) ;; *) echo "$pid" ;; esac
    done
}

begin 3000

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
for epoch in $(seq "$commits"); do await_epoch "$work/ckpt" "$epoch"; done
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

passed
