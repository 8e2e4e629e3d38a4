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
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
checkout=$(cd "$1" && pwd)
shift
[ $# -gt 0 ] || set -- 1 2 4
limit=${LIMIT:-600}
ckptrun=$here/build/bin/ckptrun
python=/usr/bin/python3 # not one from elsewhere in PATH: only this one finds the module
result=$here/bench/results/mpi4py.md
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1

[ -x "$ckptrun" ] || { echo "mpi4py.sh: no $ckptrun: run make first" >&2 && exit 2; }
[ -e "$checkout/test/runtests.py" ] || { echo "mpi4py.sh: no test/runtests.py in $checkout" >&2 && exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# What starts and joins other jobs is a part of its own: natively, Open MPI sometimes hangs there.
parts=(messages spawn connect)
options() {
    case $1 in
    messages) echo "-e test_spawn -e test_dynproc" ;;
    spawn) echo "-i test_spawn" ;;
    connect) echo "-i test_dynproc" ;;
    esac
}

# run OUT RANKS PART [CKPTRUN]: leaves in OUT one line a rank and test, "rank test: outcome".
run() {
    local out=$1 ranks=$2 part=$3 status=0 dir
    shift 3
    dir=$(mktemp -d "$work/run.XXXXXX")
    # shellcheck disable=SC2046
    (cd "$dir" && timeout -k 10 "$limit" mpiexec.openmpi --oversubscribe --bind-to none \
        --output-filename "$dir/out" -n "$ranks" "$@" "$python" "$checkout/test/runtests.py" -v \
        $(options "$part") >"$dir/log" 2>&1 </dev/null) || status=$?
    # What a test prints can stand between its name and its outcome.
    for file in "$dir"/out/*/rank.*/stderr; do
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
    done | tr -d '()' | sort >"$out"
    echo "exit status $status" >"$out.status"
    [ $status != 124 ] || echo "did not end within $limit s" >"$out.status"
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
        "$(getconf _NPROCESSORS_ONLN) processors. Written by \`bench/mpi4py.sh\`; tests are counted on each rank."
    echo
    echo "| part | ranks | how | tests | ok | skipped | failed | errors | ended |"
    echo "|---|---|---|---|---|---|---|---|---|"
    for ranks in "$@"; do
        for part in "${parts[@]}"; do
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
