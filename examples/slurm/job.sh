#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# job.sh: a Slurm job that saves itself before its time is over, and goes on when it is run again.
#
#   sbatch job.sh PROGRAM [ARGS...]
#
#SBATCH --ntasks=64
#SBATCH --time=04:00:00
# Two minutes before the end, to this script alone: the program gets no signal.
#SBATCH --signal=B:USR2@120
# The same job, with the same number, stands in the queue again.
#SBATCH --requeue
#SBATCH --open-mode=append
set -u

dir=${CKPT_DIR:-ckpt-$SLURM_JOB_ID} # on a file system that all nodes see

again=
step=
ending() { # the job, so that there is nothing to go on with
    for _ in {1..30}; do
        [ -z "$step" ] || kill -0 "$step" 2>/dev/null || return 0
        sleep 0.5
    done
    return 1
}
save() {
    trap '' USR2
    # Less than the two minutes, so that there is time to put the job back into the queue.
    if ckptctl checkpoint "$dir" --then exit --timeout 90s; then
        again=yes
        ending # the ranks leave the directory to the next run; what still runs is killed, and the next run has to wait
    elif ! ending && ckptctl ls "$dir" >/dev/null 2>&1; then
        again=yes # from an older epoch, since this one could not be made
    fi
}
trap save USR2

what=(-- "$@")
if ckptctl ls "$dir" >/dev/null 2>&1; then
    what=(--restart "$dir")
fi
# When a rank is lost, so is the job: the others would wait for it until the time is over.
srun --kill-on-bad-exit=1 ckptrun --dir "$dir" "${what[@]}" &
step=$!
while kill -0 $step 2>/dev/null; do
    wait $step # ends early when the signal arrives; the shell runs save then
    [ -z "$again" ] || break
done
if [ -n "$again" ]; then
    exec scontrol requeue "$SLURM_JOB_ID" # which ends what still runs
fi
wait $step
