#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# test.sh BUILD [C-TEST...]: every test there is.  The build must be up to date; `make test` sees to it.
# Each part runs even when an earlier one failed; the status is 0 only when all passed.
#
#   SCOPE=check      only what starts no MPI job (make check)
#   ONLY=packages    only the packages, and not what needs whole programs
#   ONLY=./ckpt/...  only these packages, whatever they need; several are separated by spaces
#   ONLY=REGEXP      only the tests whose name it matches, with and without MPI
#   PASSED=1         names tests that passed, too
#   MINUTES=30       after which no more tests of whole programs are begun, so that a slow machine comes to an end as well; those come
#                    in a random order, and what was left out is named at the end. 0: all run, however long it takes
set -uo pipefail

go=${GO:-go}
# With this set a test must find the build tree: to skip because it is not there is a failure then.
LIBCKPT_BUILD=$(cd "$1" && pwd) || exit 1
export LIBCKPT_BUILD
shift
cd "$(dirname "$0")/.." || exit 1

# Open MPI does not start as root unless it is told twice.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1

# What failed is said once more at the end, with the machine it failed on: the log is long.
said=$(mktemp)
failures=$(mktemp)
# Tests of an MPI for which there is no back are skipped, and so are those of devices that cannot be here; they are
# named at the end (internal/needmpi).
LIBCKPT_SKIPPED=$(mktemp)
export LIBCKPT_SKIPPED
beside=$(mktemp)
beside_pid=
# Open MPI 4 makes a folder when the first job of a user begins, and removes it with the last if it is empty. Two jobs that
# begin at once may fail at that ("mkdir: File exists"), so it is not empty while tests run.
sessions=${TMPDIR:-/tmp}/ompi.$(hostname -s).$(id -u)
mkdir -p -m 700 "$sessions" && touch "$sessions/libckpt-tests.$$"
trap '[ -z "$beside_pid" ] || kill -- "-$beside_pid" 2>/dev/null; rm -f "$said" "$said".* "$failures" "$LIBCKPT_SKIPPED" "$beside" "$sessions/libckpt-tests.$$"; rmdir "$sessions" 2>/dev/null' EXIT

failed=()
unsteady=()
part() {
    local name=$1 began=$SECONDS
    shift
    [ -z "$beside_pid" ] || [ "$*" != "$beside_command" ] || began=$beside_began
    printf '\n== %s\n   %.200s\n' "$name" "$*"
    if run "$said" "$@"; then
        slowest
        echo "-- $name: passed, $((SECONDS - began)) s"
        return
    fi
    {
        echo "-- $name:"
        awk -f scripts/failures.awk "$said" | head -300
    } >>"$failures"
    if [ -n "$beside_pid" ]; then
        cp "$said" "$said.${#late[@]}"
        late+=("$name" "$said.${#late[@]}" "$(printf '%q ' "$@")")
        echo "-- $name: not all passed, looked into when nothing runs beside; $((SECONDS - began)) s"
        return
    fi
    judge "$name" "$began" "$@"
}

# judge NAME BEGAN COMMAND...: whether what the part said is a failure, or passes alone.
judge() {
    local name=$1 began=$2
    shift 2
    if again "$@"; then
        unsteady+=("$names")
        echo "-- $name: passed, but not at once: $names; $((SECONDS - began)) s"
    else
        failed+=("$name")
        echo "-- $name: FAILED, $((SECONDS - began)) s"
    fi
}

# What failed beside other parts: three words each, the name, what it said, the command.
late=()
judge_late() {
    local i command
    for ((i = 0; i < ${#late[@]}; i += 3)); do
        cp "${late[i + 1]}" "$said"
        eval "command=(${late[i + 2]})"
        judge "${late[i]}" "$SECONDS" "${command[@]}"
    done
}

# What of a part took longest: where somebody looks who wants the whole to take less.
slowest() {
    local of='--- PASS: (Test[A-Za-z0-9_]*) \(([0-9.]+)s\)'
    grep -qE "^$of" "$said" || of='ok  \t([^ \t]+)\t([0-9.]+)s.*'
    sed -nE "s/^$of\$/\2 \1/p" "$said" | sort -rn | head -8 |
        awk '$1 >= 10 { line = line (line ? ", " : "") $2 " " int($1) " s" } END { if (line) print "-- slowest: " line }'
}

hidden='|--- PASS:'
[ -z "${PASSED:-}" ] || hidden=
# run LOG COMMAND...: with its output in the log and, but for what tells nothing, on the screen.
run() {
    local log=$1
    shift
    if [ -n "$beside_pid" ] && [ "$*" = "$beside_command" ]; then
        tail -n +1 -f --pid="$beside_pid" "$beside" | shown "$log"
        wait "$beside_pid"
        local status=$?
        beside_pid=
        return "$status"
    fi
    "$@" </dev/null 2>&1 | shown "$log"
    return "${PIPESTATUS[0]}"
}
shown() { tee "$1" | grep -vE "^ *(=== (RUN|PAUSE|CONT|NAME)$hidden)|^\?.*no test files"; }

# begin COMMAND...: starts what is a part later beside the parts before it; what it says comes in its turn.
begin() {
    beside_command=$* beside_began=$SECONDS
    setsid "$@" </dev/null >"$beside" 2>&1 &
    beside_pid=$!
}

# Whole jobs on a machine that others use too fail now and then by what the machine did. Up to five tests of a part that
# failed are run alone, twice: both must pass. They are named at the end with what they said at first, because a
# fault that is seen once is a fault. Never run again: a data race, a panic, a time that was over.
again() {
    local args=() once packages
    [ "${1##*/}" = go ] || [ "$1" = env ] || return 1
    ! grep -qE '^(panic:|fatal error:|WARNING: DATA RACE|signal: )|build failed\]|setup failed\]' "$said" || return 1
    mapfile -t once < <(sed -nE 's/^--- FAIL: (Test[A-Za-z0-9_]*).*/\1/p' "$said" | sort -u)
    mapfile -t packages < <(sed -nE 's/^FAIL\t([^ \t]+).*/\1/p' "$said" | sort -u)
    [ ${#once[@]} -ge 1 ] && [ ${#once[@]} -le 5 ] && [ ${#packages[@]} -ge 1 ] || return 1
    names=${once[*]}
    while [ $# -gt 0 ]; do
        case $1 in
        -run | -timeout) shift ;;
        -count=* | ./* | github.com/*) ;;
        *) args+=("$1") ;;
        esac
        shift
    done
    printf '\n== again, alone, twice: %s\n' "$names"
    run /dev/null env -u LIBCKPT_TEST_UNTIL "${args[@]}" -p 1 -count=2 -timeout 20m -run "^($(IFS='|'; echo "${once[*]}"))\$" "${packages[@]}"
}

machine() {
    echo "machine: Linux $(uname -r), $(nproc) processors, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)"
    echo "         $(awk '/MemAvailable/ {print int($2 / 1024)}' /proc/meminfo) MiB of memory free, load $(cut -d' ' -f1-3 /proc/loadavg), temporary files: $(df -h --output=fstype,avail "${TMPDIR:-/tmp}" | tail -1)"
    echo "         user $(id -u), limits: $(ulimit -c) core, $(ulimit -n) files, $(ulimit -s) stack, $(ulimit -v) memory, $(ulimit -u) processes"
}

# What needs no build tree, and of it what may run under the race detector: all but what has C in it.
mapfile -t units < <($go list ./... | grep -v -e /internal/e2e -e /internal/house -e /internal/soak -e /internal/suites)
mapfile -t pure < <($go list -f '{{if not .CgoFiles}}{{.ImportPath}}{{end}}' "${units[@]}")
# Models run in Spin and in C that it writes, whole MPI programs in processes of their own, and the simulation of
# failures in one goroutine: the detector would see nothing there, for minutes.
mapfile -t pure < <(printf '%s\n' "${pure[@]}" | grep -vE '/collclock/model|/capi/(.*/)?test|/internal/(soak|suites)|/bench/when')
[ ${#pure[@]} -gt 0 ] || { echo "test: no Go packages found" >&2 && exit 1; }

done_with() {
    echo
    if [ -s "$LIBCKPT_SKIPPED" ]; then
        sort -u "$LIBCKPT_SKIPPED"
        echo "test: the $(sort -u "$LIBCKPT_SKIPPED" | wc -l) tests above were skipped, for what stands before their names"
    fi
    if [ ${#failed[@]} -gt 0 ]; then
        cat "$failures"
        machine
        echo "test: FAILED: $(IFS=,; echo "${failed[*]}")"
        exit 1
    fi
    if [ ${#unsteady[@]} -gt 0 ]; then
        cat "$failures"
        machine
        echo "test: these failed at first, as above, and passed twice when they ran alone: ${unsteady[*]}"
    fi
    echo "test: $1, $SECONDS s"
    exit 0
}

# Those that start MPI jobs, and the models, each state of which is searched.
mapfile -t quick < <(printf '%s\n' "${units[@]}" | grep -vE '/capi/(front|back)/test|/collclock/model')

case ${SCOPE:-} in
check)
    part "packages without MPI jobs" "$go" test -short -timeout 10m "${quick[@]}"
    for program in "$@"; do
        part "C: ${program##*/}" "$program"
    done
    part "house rules, installed tree" "$go" test -count=1 ./internal/house/...
    done_with "what needs no MPI job passed"
    ;;
esac
case ${ONLY:-} in
"") ;;
packages)
    part "packages" "$go" test -timeout 30m "${units[@]}"
    done_with "the packages passed"
    ;;
./* | github.com/*)
    read -ra chosen <<<"$ONLY"
    part "$ONLY" "$go" test -count=1 -timeout 65m -v "${chosen[@]}"
    done_with "the packages $ONLY passed"
    ;;
*)
    # Only packages that have such a test are compiled and run.
    mapfile -t chosen < <(git ls-files '*_test.go' | xargs grep -lE '^func Test' |
        while read -r file; do
            sed -nE 's/^func (Test[A-Za-z0-9_]*)\(.*/\1/p' "$file" | grep -qE -- "${ONLY%%/*}" && echo "./${file%/*}"
        done | sort -u)
    [ ${#chosen[@]} -gt 0 ] || { echo "test: no test has a name like $ONLY" >&2 && exit 1; }
    part "$ONLY" "$go" test -count=1 -timeout 65m -v -run "$ONLY" "${chosen[@]}"
    done_with "the tests $ONLY passed"
    ;;
esac

minutes=${MINUTES:-30}
[ "$minutes" = 0 ] || export LIBCKPT_TEST_UNTIL=$(($(date +%s) + minutes * 60))
# part_in_time NAME COMMAND...: a part that is left out when the time is over.
part_in_time() {
    if [ "$minutes" != 0 ] && [ "$(date +%s)" -ge "$LIBCKPT_TEST_UNTIL" ]; then
        echo "no time left: $1" >>"$LIBCKPT_SKIPPED"
    else
        part "$@"
    fi
}

# Whole programs wait for each other, for timeouts and for disks more than they compute: they take as long beside all
# else as alone. What fails for the load is tried again when there is none.
whole=("$go" test -count=1 -timeout 65m -v ./internal/e2e/...)
begin "${whole[@]}"
part "packages" "$go" test -timeout 60m "${units[@]}"
part "packages, with the race detector" "$go" test -race -timeout 30m "${pure[@]}"
for program in "$@"; do
    part "C: ${program##*/}" "$program"
done
part "house rules, installed tree" "$go" test -count=1 ./internal/house/...
part_in_time "random programs, saved and killed" "$go" test -count=1 -timeout 20m -v ./internal/soak
part_in_time "other people's programs, as natively" "$go" test -count=1 -timeout 30m -v ./internal/suites
part_in_time "whole programs, under Syscall User Dispatch" env CKPT_E2E_TRAP=sud "$go" test -count=1 -timeout 10m -short -v -run TestUnderCkptrun ./internal/e2e
part "whole programs, end to end" "${whole[@]}"
judge_late

done_with "all passed"
