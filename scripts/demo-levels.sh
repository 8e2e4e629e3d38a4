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

demo=demo-levels
. "$here/scripts/demo-lib.sh"
find_mpiexec "$ranks"
heat=("$build/examples/heat.$mpi" "$here/examples/heat/small.par" steps=6000 checkpoint_every=400)
export CKPT_NODE_SIZE=1 # each rank is a node

lose() {
    local node
    for node in "$@"; do
        rm -rf "$work/disks/$node"
        mkdir "$work/disks/$node"
    done
    say "nodes $* are gone, with all that was on their disks"
}

begin 1000
mkdir -p local disks/{0,1,2,3}

# Each rank sees its own disk as local/, and no other one.
cat >node.sh <<'NODE'
#!/bin/sh
mount --bind "disks/${PMI_RANK:-${OMPI_COMM_WORLD_RANK:?no launcher says which rank this is}}" local && mount -t tmpfs none disks && exec "$@"
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
await_epoch "$work/ckpt" 1 3
"$ckptctl" ls ckpt | cut -c1-78 | sed 's/^/   /'

step "3. kill -9 for every rank; half of the group is lost"
kill_all "$ckptrun" "$ranks"
lose 1 2

step "4. Continue on nodes whose disks are empty: their images are computed from parities, memory is read when it is needed"
say "${mpiexec[*]} ckptrun --restart-mode lazy --local local --restart ckpt    (newest epoch: $(newest "$work/ckpt" 1))"
"${mpiexec[@]}" "${node[@]}" "$ckptrun" --restart-mode lazy --local "$work/local" --levels "$shared" --restart "$work/ckpt" \
    </dev/null >second.out 2>&1 &
launcher=$!
SECONDS=0
# What ranks and what ckptrun say comes in any order.
until grep -q 'continued from what was saved' second.out && grep -q 'computed from parities' second.out; do
    kill -0 "$launcher" 2>/dev/null || fail "the job was not continued from parities"
    [ "$SECONDS" -lt 120 ] || fail "the job was not continued from parities within 120 s"
    sleep 0.1
done
grep -o 'epoch [0-9]* (level.*' second.out | head -n 1 | sed 's/^/   /'
await_epoch "$work/ckpt" 1 4

step "5. kill -9 again, and all nodes are lost: what is left is in the shared directory"
kill_all "$ckptrun" "$ranks"
lose 0 1 2 3
"${mpiexec[@]}" "${node[@]}" "$ckptrun" --local "$work/local" --levels "$shared" --restart "$work/ckpt" \
    </dev/null >third.out 2>&1 || fail "the continued run ended with status $?"
grep -q 'continued from what was saved' third.out || fail "the job did not say that it was continued"
sed 's/^/   /' third.out | cut -c1-300
"$ckptctl" ls ckpt | cut -c1-78 | sed 's/^/   /'

step "6. Compare"
cmp plain.raw saved.raw || fail "the fields differ"
say "the fields are equal, bit for bit"

passed
