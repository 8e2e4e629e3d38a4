#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# demo-nodes.sh BUILD: a job that moves from three nodes to two under Slurm, in a minute. The nodes are namespaces of
# this machine (nodes.sh), Slurm is Debian's (nodes-slurm.sh), and the job is submitted with examples/slurm/job.sh. A
# node vanishes: its links are down, and nothing of it lives. Slurm notices, puts the job into the queue again and
# starts it on the two nodes that are left, where it goes on from its last epoch. The result must equal, bit for bit,
# that of a run that nobody disturbed. Needs root.
set -euo pipefail

build=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")/.." && pwd)
work=$build/demo-nodes
room=$work/room
ranks=4
heat=("$build/examples/heat.mpich" "$here/examples/heat/small.par" steps=4000)

demo=demo-nodes
. "$here/scripts/demo-lib.sh"

[ "$(id -u)" = 0 ] || fail "namespaces need root"
for tool in ip nsenter unshare setpriv slurmctld slurmd munged sbatch; do
    command -v $tool >/dev/null || fail "there is no $tool: \`make setup\` before \`make test\` installs what tests need"
done

trap '"$here/scripts/nodes.sh" down "$room" 2>/dev/null || true' EXIT
"$here/scripts/nodes.sh" down "$room" 2>/dev/null || true # what a killed demo has left
begin 1000
mkdir "$room"

on() { "$here/scripts/nodes.sh" on "$room" "$@"; }
slurm() { on 0 env SLURM_CONF="$room/slurm/slurm.conf" PATH="$build/bin:$PATH" "$@"; }
field() { slurm scontrol --oneliner show job "$job" | tr ' ' '\n' | sed -n "s/^$1=//p"; }
# await SECONDS WHAT COMMAND...: until the command succeeds.
await() {
    local limit=$1 what=$2
    shift 2
    SECONDS=0
    until "$@"; do
        [ "$SECONDS" -lt "$limit" ] || fail "not $what after $limit s"
        sleep 0.2
    done
}
saved_after() { [ "$(newest "$work/ckpt")" -gt "$1" ]; }
state_is() { [[ " $* " == *" $(field JobState) "* ]]; }

step "1. A run without libckpt's launcher, for comparison: heat on $ranks ranks"
mpiexec.mpich -n $ranks "${heat[@]}" output=plain.raw log=plain.log checkpoint_every=0 </dev/null >plain.out 2>&1 ||
    fail "the plain run ended with status $?"
say "$(tail -n 1 plain.out)"

step "2. Three nodes with Slurm"
setpriv --pdeathsig KILL "$here/scripts/nodes.sh" up "$room" 3 --keep "$work" </dev/null >nodes.out 2>&1 &
disown # nobody needs to hear how it ends
await 30 "up" test -e "$room/up"
"$here/scripts/nodes-slurm.sh" "$room"
slurm sinfo --partition=batch | sed 's/^/   /'

step "3. The job, on three nodes; it saves itself every two seconds"
say "sbatch --nodes=2-3 --ntasks=$ranks examples/slurm/job.sh heat small.par"
job=$(CKPT_DIR=$work/ckpt CKPT_INTERVAL=2s CKPT_LEASE=5s SLURM_MPI_TYPE=pmi2 slurm sbatch --parsable --nodes=2-3 \
    --ntasks=$ranks --time=30 --output="$work/job.out" "$here/examples/slurm/job.sh" "${heat[@]}" output=saved.raw \
    log=saved.log checkpoint_every=0)
await 120 "saved twice" saved_after 1
say "job $job runs on $(field NodeList); epoch $(newest "$work/ckpt") is committed"

step "4. node3 vanishes; Slurm notices, and puts the job into the queue again"
"$here/scripts/nodes.sh" vanish "$room" node3
await 120 "in the queue again" state_is PENDING
say "$(slurm sinfo --noheader --partition=batch --Node --format='%N %T' | paste -sd, | sed 's/,/, /g')"
say "job $job: $(field JobState), $(field Reason), restarts: $(field Restarts)"
before=$(newest "$work/ckpt")
slurm scontrol update jobid="$job" StartTime=now+3 # Slurm would let two minutes pass

step "5. It goes on from epoch $before on the nodes that are left"
await 60 "running again" state_is RUNNING COMPLETED
say "job $job runs on $(field NodeList)"
await 300 "ended" state_is COMPLETED FAILED NODE_FAIL CANCELLED
state_is COMPLETED || fail "job $job: $(field JobState)"
sed 's/^/   /' job.out | cut -c1-200
"$ckptctl" inspect "$work/ckpt" | sed -n 's/^ranks */   the newest epoch: ranks /p'

step "6. Compare"
cmp plain.raw saved.raw || fail "the fields differ"
say "the fields are equal, bit for bit"

"$here/scripts/nodes.sh" down "$room"
passed
