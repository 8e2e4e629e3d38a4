#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# nodes-slurm.sh DIR: starts Slurm on the nodes of DIR (nodes.sh up DIR N): munge everywhere, slurmctld on the login
# node, a slurmd on each other one. It returns when all nodes are idle. What it needs is Debian's slurmctld, slurmd,
# slurm-client and munge; their own configuration is not used. Slurm's files are in DIR/slurm, which all nodes share.
#
#   nodes.sh on DIR 0 env SLURM_CONF=DIR/slurm/slurm.conf sbatch ...
#
# There are two partitions: a job of "urgent" takes the place of one of "batch", which is put back into the queue
# (PreemptMode=REQUEUE). Each node has 4 CPUs, whatever the machine has.
set -euo pipefail

nodes=$(dirname "$(realpath "$0")")/nodes.sh
[ $# = 1 ] || { sed -n '4,12s/^# \{0,1\}//p' "$0" >&2 && exit 2; }
dir=$(cd "$1" && pwd -P)
work=$dir/slurm
names=$(sed -n 's/.* //p' "$dir/hosts" | grep -vx -e login -e localhost)
on() { "$nodes" on "$dir" "$@"; }
die() {
    echo "nodes-slurm: $*" >&2
    for log in "$work"/*.log; do
        [ ! -s "$log" ] || { echo "--- last lines of $log" >&2 && tail -n 5 "$log" >&2; }
    done
    exit 1
}

for tool in slurmctld slurmd munged srun; do
    command -v $tool >/dev/null || die "there is no $tool: install Debian's slurmctld, slurmd, slurm-client and munge"
done

mkdir -p "$work/state"
(umask 077 && head -c 1024 /dev/urandom >"$work/munge.key")
six=
! grep -q ':.* login$' "$dir/hosts" || six=$'CommunicationParameters=EnableIPv6,DisableIPv4'
{
    cat <<CONF
ClusterName=nodes
SlurmctldHost=login
$six
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmdSpoolDir=/run/slurmd
StateSaveLocation=$work/state
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
ReturnToService=0
SlurmdTimeout=20
KillWait=5
CompleteWait=0
SlurmdParameters=config_overrides
SlurmctldParameters=preempt_send_user_signal
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PriorityType=priority/basic
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=2,sched_interval=2,batch_sched_delay=1
CONF
    for name in $names; do echo "NodeName=$name CPUs=4 State=UNKNOWN"; done
    echo "PartitionName=batch Nodes=ALL Default=YES MaxTime=INFINITE PriorityTier=1 GraceTime=120"
    echo "PartitionName=urgent Nodes=ALL MaxTime=INFINITE PriorityTier=10"
} >"$work/slurm.conf"
# slurmd looks for control groups even when it uses none.
echo CgroupPlugin=cgroup/v1 >"$work/cgroup.conf"

for node in 0 $names; do
    # munge does not trust what others could write to.
    # shellcheck disable=SC2016
    on "$node" /bin/sh -c 'mkdir -p /run/munge /run/slurmd && chmod 755 /run/munge && umask 077 && cp "$0/munge.key" /run/munge/munge.key &&
        exec munged --force --key-file=/run/munge/munge.key --socket=/run/munge/munge.socket.2 --pid-file=/run/munge/munged.pid \
            --seed-file=/run/munge/munge.seed --log-file=/run/munge/munged.log' "$work" || die "munged does not start on node $node"
done
export SLURM_CONF=$work/slurm.conf
on 0 slurmctld || die "slurmctld does not start"
for name in $names; do on "$name" slurmd -N "$name" || die "slurmd does not start on $name"; done
SECONDS=0
until [ "$(on 0 sinfo --noheader --Node --partition=batch --states=idle --format=%N 2>/dev/null | wc -l)" = "$(echo "$names" | wc -l)" ]; do
    [ $SECONDS -lt 60 ] || die "not all nodes are idle: $(on 0 sinfo 2>&1)"
    sleep 0.2
done
