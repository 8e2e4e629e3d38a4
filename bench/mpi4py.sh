#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# mpi4py.sh CHECKOUT [RANKS...]: runs the test suite of mpi4py, which CHECKOUT has in test/, on the
# distribution's module and Open MPI, natively and under ckptrun without a checkpoint, on 1, 2 and 4
# ranks, and writes bench/results/mpi4py.md: how many tests passed, and each test whose outcome on some
# rank is not native's.  Nothing is fetched or built.  The version must be that of the module:
#
#   git clone --branch 3.1.4 --depth 1 https://github.com/mpi4py/mpi4py
#   bench/mpi4py.sh mpi4py
#
# LIMIT is what one run may take, in seconds.  The status is 0 when no outcome differs.
#
# The tests that start and join other jobs run class by class, each in a job of its own: natively, Open
# MPI hangs in some of those jobs, in others not. Such a job is started again, up to ATTEMPTS times, and
# the table says how often.
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
checkout=$(cd "$1" && pwd)
shift
[ $# -gt 0 ] || set -- 1 2 4
limit=${LIMIT:-1800} attempts=${ATTEMPTS:-10}
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

# job DIR RANKS LIMIT JOB [CKPTRUN]: one mpiexec.
job() {
    local dir=$1 ranks=$2 seconds=$3 job=$4
    shift 4
    local tests=(-c "$one_class" "$checkout/test" "$job")
    [ "$job" != rest ] || tests=("$checkout/test/runtests.py" -v -e test_spawn -e test_dynproc)
    # There may be more ranks than processors: waiting ones let the others run.
    (cd "$dir" && timeout -k 10 "$seconds" mpiexec.openmpi --oversubscribe --bind-to none \
        --mca mpi_yield_when_idle 1 --output-filename "$dir/out" -n "$ranks" \
        "$@" "$python" "${tests[@]}" >"$dir/log" 2>&1 </dev/null)
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
    local out=$1 ranks=$2 part=$3 hung=0 worst=0 name status dir i seconds=$limit tries=1
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
    done
    tr -d '()' <"$out" | sort >"$out.sorted"
    mv "$out.sorted" "$out"
    echo "$hung | $worst" >"$out.status"
}

count() { grep -c ": $2" "$1" || true; }

row() {
    echo "| $2 | $3 | $4 | $(wc -l <"$1") | $(count "$1" ok) | $(count "$1" skipped) | $(count "$1" FAIL) |" \
        "$(count "$1" ERROR) | $(cat "$1.status") |"
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
    echo "| part | ranks | how | tests | ok | skipped | failed | errors | jobs that hung | exit status |"
    echo "|---|---|---|---|---|---|---|---|---|---|"
    for ranks in "$@"; do
        for part in messages spawn connect; do
            run "$work/native" "$ranks" "$part"
            run "$work/here" "$ranks" "$part" "$ckptrun"
            row "$work/native" "$part" "$ranks" natively
            row "$work/here" "$part" "$ranks" ckptrun
            diff "$work/native" "$work/here" | grep '^[<>]' | sort -k 2 |
                sed "s/^/$part, $ranks ranks: /; s/</natively:/; s/>/ckptrun: /" >>"$differences" || true
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
