#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# chain.sh: runs an MPI program that takes longer than one job may, as a chain of jobs.
#
#   chain.sh [-n RANKS] [-s SECONDS] [-d DIR] -- PROGRAM [ARGS...]
#
# Each job runs for SECONDS; then it is saved and ends, and the next one goes on from there.  When the
# chain itself was stopped or killed, starting it again goes on from the newest epoch in DIR.  The status
# is that of the program.  MPIEXEC names the launcher (default: mpiexec).
set -u

ranks=2 slot=3600 dir=ckpt
while getopts n:s:d: option; do
    case $option in
    n) ranks=$OPTARG ;;
    s) slot=$OPTARG ;;
    d) dir=$OPTARG ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
if [ $# = 0 ]; then
    echo "usage: chain.sh [-n RANKS] [-s SECONDS] [-d DIR] -- PROGRAM [ARGS...]" >&2
    exit 2
fi

saved=85 # a status that the program itself does not end with: "saved, to be continued"
job=
trap '[ -z "$job" ] || kill "$job" 2>/dev/null' EXIT
trap 'exit 1' INT TERM

while true; do
    what=(-- "$@")
    if ckptctl ls "$dir" >/dev/null 2>&1; then
        what=(--restart "$dir")
    fi
    "${MPIEXEC:-mpiexec}" -n "$ranks" ckptrun --dir "$dir" --exit-code $saved "${what[@]}" &
    job=$!
    end=$((SECONDS + slot))
    while kill -0 "$job" 2>/dev/null; do
        # Refused, when it is not possible now: asked again, as long as the job runs.
        if ((SECONDS >= end)) && ckptctl checkpoint "$dir" --then exit; then
            break
        fi
        sleep 1
    done
    wait "$job"
    status=$?
    job=
    if [ $status != $saved ]; then
        exit $status
    fi
    echo "chain.sh: saved; the next job goes on" >&2
done
