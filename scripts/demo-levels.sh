#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# demo-levels.sh BUILD: lost nodes, in a minute.  Four ranks are four nodes of a group, each with a local directory of
# its own, which the others cannot see where the machine lets us make mount namespaces.  The job is killed with kill -9
# and loses nodes: half of the group, whose images are computed from parities; then all of them, and what is
# left is the epoch in the shared directory.  The result must equal, bit for bit, that of a run that nobody disturbed.
set -euo pipefail

build=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")/.." && pwd)
work=$build/demo-levels
ranks=4
levels=L1:every,L2:2,L3:3 # at first
shared=L1:every,L4:every  # once nodes were lost

# Open MPI starts as root only when it is told twice, and more ranks than processors only when it is told to.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
mpi=${DEMO_MPI:-mpich}
mpiexec=("${DEMO_MPIEXEC:-mpiexec.$mpi}")
command -v "${mpiexec[0]}" >/dev/null || {
    echo "demo-levels: FAILED: there is no ${mpiexec[0]}, the launcher of $mpi: install it (Debian: apt-get install mpich openmpi-bin)" >&2
    exit 1
}
if "${mpiexec[0]}" --version 2>&1 | grep -qE 'Open MPI|OpenRTE|PRRTE|prterun'; then mpiexec+=(--oversubscribe); fi
mpiexec+=(-n "$ranks")
heat=("$build/examples/heat.$mpi" "$here/examples/heat/small.par" steps=6000 checkpoint_every=400)
ckptrun=$build/bin/ckptrun
ckptctl=$build/bin/ckptctl

# Every process of this run carries this in its environment: that is how they are found again.
LEVELS_DEMO_RUN=$$-$(date +%s%N)
export LEVELS_DEMO_RUN
export CKPT_NODE_SIZE=1 # each rank is a node

step() { printf '\n== %s\n' "$*"; }
say() { printf '   %s\n' "$*"; }
fail() {
    printf '\ndemo-levels: FAILED: %s\n' "$*" >&2
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
        if tr '\0' '\n' <"$proc/environ" 2>/dev/null | grep -qx "LEVELS_DEMO_RUN=$LEVELS_DEMO_RUN"; then
            echo "${proc#/proc/}"
        fi
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

# newest LEVEL: the newest epoch that has reached the level; 0 when none has.
newest() {
    { "$ckptctl" ls --json "$work/ckpt" 2>/dev/null || true; } | python3 -c '
import json, sys
text = sys.stdin.read()
epochs = json.loads(text)["epochs"] if text else []
print(max((e["epoch"] for e in epochs if e["state"] == "committed" and e.get("level", 4) >= int(sys.argv[1])), default=0))' "$1"
}

# await LEVEL: until an epoch has reached it.
await() {
    SECONDS=0
    while [ "$(newest "$1")" = 0 ]; do
        kill -0 "$launcher" 2>/dev/null || fail "the job ended before an epoch was at level $1"
        [ "$SECONDS" -lt 180 ] || fail "no epoch is at level $1 after 180 s"
        sleep 0.1
    done
    say "epoch $(newest "$1") is at level $1"
}

kill_all() {
    local found status=0
    mapfile -t found < <(processes "$ckptrun")
    [ "${#found[@]}" -ge "$ranks" ] || fail "found ${#found[@]} processes to kill, not $ranks"
    say "kill -9 ${found[*]}"
    kill -9 "${found[@]}" 2>/dev/null || true
    wait "$launcher" 2>/dev/null || status=$?
    launcher=
    [ "$status" != 0 ] || fail "mpiexec says that nothing happened (status 0)"
    [ -z "$(processes "$ckptrun")" ] || fail "some processes of the job are still there"
}

lose() {
    local node
    for node in "$@"; do
        rm -rf "$work/disks/$node"
        mkdir "$work/disks/$node"
    done
    say "nodes $* are gone, with all that was on their disks"
}

rm -rf "$work"
mkdir -p "$work/local" "$work/disks"/{0,1,2,3}
cd "$work"
free=$(df --output=avail -BM . | tail -n 1 | tr -dc 0-9)
[ "$free" -ge 1000 ] || fail "$work needs 1 GB of free disk; there are $free MB"

# Each rank sees its own disk as local/, and no other one.
cat >node.sh <<'NODE'
#!/bin/sh
mount --bind "disks/$PMI_RANK" local && mount -t tmpfs none disks && exec "$@"
NODE
if unshare -m true 2>/dev/null; then
    node=(unshare -m /bin/sh "$work/node.sh")
    say "each node has a mount namespace of its own"
else
    rmdir local
    ln -s disks local
    node=()
    say "no mount namespaces here: nodes have directories of their own only"
fi
# Without namespaces node i finds its disk under this name.
if [ "${#node[@]}" = 0 ]; then
    for i in 0 1 2 3; do ln -s "$i" "disks/node$i"; done
fi

step "1. A run without libckpt's launcher, for comparison: heat on $ranks ranks"
"${mpiexec[@]}" "${heat[@]}" output=plain.raw log=plain.log checkpoint_every=0 </dev/null \
    >plain.out 2>&1 || fail "the plain run ended with status $?"
say "$(tail -n 1 plain.out)"

step "2. The same on $ranks nodes; images go to local disks, and from there to other nodes and to ckpt"
say "${mpiexec[*]} ckptrun --local local --levels $levels heat small.par"
"${mpiexec[@]}" "${node[@]}" "$ckptrun" --local "$work/local" --levels "$levels" --dir "$work/ckpt" -- \
    "${heat[@]}" output=saved.raw log=saved.log </dev/null >first.out 2>&1 &
launcher=$!
await 3
"$ckptctl" ls ckpt | cut -c1-78 | sed 's/^/   /'

step "3. kill -9 for every rank; half of the group is lost"
kill_all
lose 1 2

step "4. Continue on nodes whose disks are empty: their images are computed from parities, memory is read when it is needed"
say "${mpiexec[*]} ckptrun --restart-mode lazy --local local --restart ckpt    (newest epoch: $(newest 1))"
"${mpiexec[@]}" "${node[@]}" "$ckptrun" --restart-mode lazy --local "$work/local" --levels "$shared" --restart "$work/ckpt" \
    </dev/null >second.out 2>&1 &
launcher=$!
SECONDS=0
until grep -q 'continued from what was saved' second.out; do
    kill -0 "$launcher" 2>/dev/null || fail "the job was not continued"
    [ "$SECONDS" -lt 120 ] || fail "the job was not continued within 120 s"
    sleep 0.1
done
grep -o 'epoch [0-9]* (level.*' second.out | head -n 1 | sed 's/^/   /'
grep -q 'computed from parities' second.out || fail "nothing was computed from parities"
await 4

step "5. kill -9 again, and all nodes are lost: what is left is in the shared directory"
kill_all
lose 0 1 2 3
"${mpiexec[@]}" "${node[@]}" "$ckptrun" --local "$work/local" --levels "$shared" --restart "$work/ckpt" \
    </dev/null >third.out 2>&1 || fail "the continued run ended with status $?"
grep -q 'continued from what was saved' third.out || fail "the job did not say that it was continued"
sed 's/^/   /' third.out | cut -c1-300
"$ckptctl" ls ckpt | cut -c1-78 | sed 's/^/   /'

step "6. Compare"
cmp plain.raw saved.raw || fail "the fields differ"
say "the fields are equal, bit for bit"

cd "$build"
rm -rf "$work"
printf '\ndemo-levels: passed\n'
