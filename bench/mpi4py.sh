#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# mpi4py.sh CHECKOUT [RANKS...]: runs the test suite of mpi4py, which CHECKOUT has in test/, on the
# distribution's module and Open MPI, natively and under ckptrun, on 1, 2 and 4 ranks: without a
# checkpoint, saved where every EVERYth test begins, and saved once and continued in a new job.  It writes
# bench/results/mpi4py.md: how many tests passed, and each test whose outcome on some rank is not native's.  Nothing is fetched or built.  The version must be that of the module:
#
#   git clone --branch 3.1.4 --depth 1 https://github.com/mpi4py/mpi4py
#   bench/mpi4py.sh mpi4py
#
# PARTS are those that run (messages spawn connect); those of the last two hold checkpoints back, and are not
# saved.  LIMIT is what one run may take, in seconds.  The status is 0 when no outcome differs.
#
# The tests that start and join other jobs run class by class, each in a job of its own: natively, Open
# MPI hangs in some of those jobs, in others not. Such a job is started again, up to ATTEMPTS times, and
# the table says how often.
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
checkout=$(cd "$1" && pwd)
shift
[ $# -gt 0 ] || set -- 1 2 4
limit=${LIMIT:-1800} attempts=${ATTEMPTS:-10} every=${EVERY:-50} parts=${PARTS:-messages spawn connect}
ckptrun=$here/build/bin/ckptrun
python=/usr/bin/python3 # not one from elsewhere in PATH: only this one finds the module
result=$here/bench/results/mpi4py.md
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1

[ -x "$ckptrun" ] || { echo "mpi4py.sh: no $ckptrun: run make first" >&2 && exit 2; }
[ -e "$checkout/test/runtests.py" ] || { echo "mpi4py.sh: no test/runtests.py in $checkout" >&2 && exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# What a job of each part runs: a class, or all that neither starts nor joins jobs.
classes() {
    case $1 in
    messages) echo rest ;;
    spawn) grep -oE '^class Test[A-Za-z]+' "$checkout/test/test_spawn.py" | sed 's/class /test_spawn./' ;;
    connect) grep -oE '^class Test[A-Za-z]+' "$checkout/test/test_dynproc.py" | sed 's/class /test_dynproc./' ;;
    esac
}

# runtests.py has no way to name a class. Without this about cupy, the tests believe in a GPU.
one_class='import sys, unittest
sys.modules["cupy"] = sys.modules["numba"] = None
sys.path.insert(0, sys.argv[1])
unittest.main(module=None, argv=["", "-v", sys.argv[2]])'

# Rank 0 asks for a checkpoint where a test begins: every so many tests, or once.
moments='import glob, os, runpy, signal, sys, time, unittest
every, once, rank = int(sys.argv[1]), sys.argv[2] == "once", os.environ.get("OMPI_COMM_WORLD_RANK")
begin, begun = unittest.TextTestResult.startTest, 0
def start(self, test):
    global begun
    begun += 1
    begin(self, test)
    if rank == "0" and begun % every == 0 and (begun == every * 4 or not once):
        had = len(glob.glob("ckpt/epoch-*/manifest.json"))
        os.kill(os.getpid(), signal.SIGUSR1)
        for _ in range(60): # tests are short: this one begins when its epoch is there, or a little later
            if len(glob.glob("ckpt/epoch-*/manifest.json")) > had: break
            time.sleep(0.005)
unittest.TextTestResult.startTest = start
sys.argv = sys.argv[3:]
runpy.run_path(sys.argv[0], run_name="__main__")'

# job DIR RANKS LIMIT JOB [CKPTRUN...]: one mpiexec, and another one when the first was saved and ended.
job() {
    local dir=$1 ranks=$2 seconds=$3 job=$4
    shift 4
    local tests=(-c "$one_class" "$checkout/test" "$job")
    [ "$job" != rest ] || tests=("$checkout/test/runtests.py" -v -e test_spawn -e test_dynproc)
    case "$*" in
    *=continue) tests=(-c "$moments" "$every" often "${tests[@]}") ;;
    *=exit*) tests=(-c "$moments" "$every" once "${tests[@]}") ;;
    esac
    start out "$@" "$python" "${tests[@]}" && return
    local status=$? file
    [ $status != 124 ] && [ -e "$dir/ckpt/epoch-000001/manifest.json" ] || return $status
    case "$*" in
    *=exit*)
        status=0
        start again "$ckptrun" --restart ckpt || status=$?
        for file in "$dir"/again/*/rank.*/stderr; do
            cat "$file" >>"$(echo "$dir"/out/*/"$(basename "$(dirname "$file")")")/stderr"
        done
        ;;
    esac
    return $status
}

# start OUT COMMAND...: one mpiexec of job's.
start() {
    local out=$1
    shift
    # There may be more ranks than processors: waiting ones let the others run.
    (cd "$dir" && timeout -k 10 "$seconds" mpiexec.openmpi --oversubscribe --bind-to none \
        --mca mpi_yield_when_idle 1 --output-filename "$dir/$out" -n "$ranks" "$@" >"$dir/log" 2>&1 </dev/null)
}

# outcomes DIR: one line a rank and test, "rank test: outcome". What a test prints can stand between
# its name and its outcome.
outcomes() {
    local file
    for file in "$1"/out/*/rank.*/stderr; do
        awk -v rank="$(basename "$(dirname "$file")")" '
            function say(outcome) { print rank, test ": " outcome; test = "" }
            match($0, /^[A-Za-z0-9_]+ \([A-Za-z0-9_.]+\) \.\.\. /) {
                if (test) say("unknown")
                test = $2
                rest = substr($0, RLENGTH + 1)
                if (rest ~ /^(ok|FAIL|ERROR|skipped|expected|unexpected)/) say(rest)
                next
            }
            test && /^(ok|FAIL|ERROR|skipped|expected|unexpected)/ { say($0) }
            END { if (test) say("did not end") }' "$file"
    done
}

# run OUT RANKS PART [CKPTRUN]: leaves the outcomes of a part in OUT, how it ended in OUT.status.
run() {
    local out=$1 ranks=$2 part=$3 hung=0 worst=0 name status dir i seconds=$limit tries=1 epochs=0
    shift 3
    [ "$part" = messages ] || { seconds=60 && tries=$attempts; }
    : >"$out"
    for name in $(classes "$part"); do
        for ((i = 0; i < tries; i++)); do
            status=0
            dir=$(mktemp -d "$work/run.XXXXXX")
            job "$dir" "$ranks" "$seconds" "$name" "$@" || status=$?
            [ $status = 124 ] || break
            hung=$((hung + 1))
        done
        [ $status = 0 ] || worst=$status
        outcomes "$dir" >>"$out"
        epochs=$({ ls -d "$dir"/ckpt/epoch-*/manifest.json 2>/dev/null || true; } | sed 's/.*epoch-0*//; s/[^0-9].*//' | tail -n 1)
    done
    tr -d '()' <"$out" | sort >"$out.sorted"
    mv "$out.sorted" "$out"
    echo "$hung | $worst | ${epochs:-0}" >"$out.status"
}

# none COMMAND...: runs a command that ends with 1 when it finds nothing, and fails only where that fails.
none() { "$@" || [ $? = 1 ]; }

count() { none grep -c ": $2" "$1"; }

row() {
    echo "| $2 | $3 | $4 | $(wc -l <"$1") | $(count "$1" ok) | $(count "$1" skipped) | $(count "$1" FAIL) |" \
        "$(count "$1" ERROR) | $(cat "$1.status") |"
}

# compare RANKS PART HOW [OPTIONS]: runs a part under ckptrun, and notes what is not as it was natively.
compare() {
    local ranks=$1 part=$2 how=$3
    shift 3
    run "$work/here" "$ranks" "$part" "$ckptrun" "$@"
    row "$work/here" "$part" "$ranks" "$how"
    none diff "$work/native" "$work/here" | none grep '^[<>]' | sort -k 2 |
        sed "s/^/$part, $ranks ranks: /; s/</natively:/; s/>/$how: /" >>"$differences"
}

differences=$work/differences
: >"$differences"
{
    echo "# mpi4py's own tests"
    echo
    echo "$("$python" -c 'import mpi4py; print("mpi4py", mpi4py.__version__)'), $(mpiexec.openmpi --version | head -n 1)," \
        "$(getconf _NPROCESSORS_ONLN) processors. Written by \`bench/mpi4py.sh\`; tests are counted on each rank. A job" \
        "of the parts spawn and connect that hung (60 s) was started again."
    echo
    echo "| part | ranks | how | tests | ok | skipped | failed | errors | jobs that hung | exit status | newest epoch |"
    echo "|---|---|---|---|---|---|---|---|---|---|---|"
    for ranks in "$@"; do
        for part in $parts; do
            run "$work/native" "$ranks" "$part"
            row "$work/native" "$part" "$ranks" natively
            compare "$ranks" "$part" ckptrun
            [ "$part" = messages ] || continue
            compare "$ranks" "$part" "saved every $every tests" --signal USR1=continue
            compare "$ranks" "$part" "saved, continued in a new job" --signal USR1=exit --exit-code 77
        done
    done
    echo
    if [ -s "$differences" ]; then
        echo "Outcomes that differ:"
        echo
        echo '```'
        cat "$differences"
        echo '```'
    else
        echo "No outcome differs."
    fi
} >"$work/result"
mv "$work/result" "$result"
cat "$result"
[ ! -s "$differences" ]
