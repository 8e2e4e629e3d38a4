#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# run.sh WORK [BUILD]: saves, kills and continues the programs of build.sh, and compares with native runs.
#
# Each program, with each number of ranks: GENERATIONS times it is saved by ckptctl at a random moment, every rank
# and the launcher are killed with kill -9 a moment later, and a new launcher continues it, which listens elsewhere,
# as do MPICH's ranks.  The last one comes to the end, and its result must be that of a run without ckptrun, bit for
# bit.  So must that of a run that is saved every second, and not killed.  Status 0: all were equal.
set -euo pipefail

[ $# -ge 1 ] || { echo "usage: run.sh WORK [BUILD]" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
work=$(cd "$1" && pwd)
build=$(cd "${2:-$here/../../build}" && pwd)
generations=${GENERATIONS:-3}
ranks=${RANKS:-2 4}
programs=${PROGRAMS:-cpi heat}
seed=${SEED:-$(date +%N)}
mpiexec=(mpiexec.mpich -pmi-port)
# No shared memory: MPICH's checkpoint code would need one content of it for all.
export MPIR_CVAR_NOLOCAL=1
RANDOM=$((10#$seed % 32768))

fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }
pause() { sleep "$(printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000)))"; } # milliseconds

# Processes below the launcher whose program is called $1; a name of nothing: all of them.
below() {
    ps -eo pid=,ppid=,comm= | awk -v root="$launcher" -v name="$1" '
        { parent[$1] = $2; comm[$1] = $3 }
        END {
            for (p in parent) {
                for (q = p; q in parent && q != root; ) q = parent[q]
                if (q == root && p != root && (name == "" || comm[p] == name)) print p
            }
        }'
}

launcher=
hurt() {
    [ -n "$launcher" ] || return 0
    # shellcheck disable=SC2046
    kill -9 $(below "") "$launcher" 2>/dev/null || true
    wait "$launcher" 2>/dev/null || true
    launcher=
}
trap hurt EXIT

# Ports on which processes below the launcher listen whose program is called $1.
listen() {
    local list
    list=$(below "$1" | sed 's/.*/pid=&,/' | paste -sd'|')
    [ -z "$list" ] || ss -Htlnp | grep -E "$list" | awk '{sub(/.*:/, "", $4); print $4}' | sort -nu | paste -sd' '
}

# Sets args to those of the program $1 whose result goes to the folder of now.
arguments() {
    case $1 in
    cpi) args=("$work/cpi") ;;
    heat) args=("$work/heat" "$here/../heat/small.par" rows=1000 columns=1200 steps="${STEPS:-1500}" checkpoint_every=0) ;;
    esac
}
# The result of program $1 that was printed to $2.
result() {
    case $1 in
    cpi) grep '^pi is' "$2" ;;
    heat) grep -h 'FNV-1a' "$2" && cat small.log && sha256sum small.raw ;;
    esac
}

one() { # program, ranks
    local dir=$work/run/$1-$2 g epoch state=() began saves ports
    rm -rf "$dir" && mkdir -p "$dir/native" "$dir/undisturbed" "$dir/saved"
    arguments "$1"
    cd "$dir/native"
    "${mpiexec[@]}" -n "$2" "${args[@]}" >out 2>err || fail "$1 on $2 ranks without ckptrun: see $dir/native"
    result "$1" out >../native.result

    export MPIR_CVAR_NEMESIS_ENABLE_CKPOINT=1
    cd "$dir/undisturbed"
    "${mpiexec[@]}" -n "$2" "$build/bin/ckptrun" --whole --dir ckpt --interval 1s "${args[@]}" >out 2>err </dev/null ||
        fail "$1 on $2 ranks, saved every second: see $dir/undisturbed"
    result "$1" out >../undisturbed.result
    cmp ../native.result ../undisturbed.result || fail "$1 on $2 ranks, saved every second: another result"
    saves=$("$build/bin/ckptctl" ls ckpt | awk 'END { print $1 }')
    [ "$saves" -ge 2 ] || fail "$1 on $2 ranks, saved every second: it was over after $saves"
    printf '%s on %d ranks, saved %d times and not killed: equal\n' "$1" "$2" "$saves"

    cd "$dir/saved"
    state=(--dir ckpt "${args[@]}")
    for ((g = 1; g <= generations + 1; g++)); do
        "${mpiexec[@]}" -n "$2" "$build/bin/ckptrun" --whole "${state[@]}" >out.$g 2>err.$g </dev/null &
        launcher=$!
        state=(--restart ckpt)
        [ "$g" -le "$generations" ] || break
        # From the moment at which the job can be asked.
        began=$SECONDS
        until "$build/bin/ckptctl" status ckpt >/dev/null 2>&1; do
            kill -0 $launcher 2>/dev/null || fail "$1 on $2 ranks, generation $g: it ended: see $dir/saved/err.$g"
            [ $((SECONDS - began)) -lt 60 ] || fail "$1 on $2 ranks, generation $g: it cannot be asked"
            pause 20
        done
        ports="$(listen "$1")"
        pause $((RANDOM % 1000))
        epoch=$("$build/bin/ckptctl" checkpoint ckpt --timeout 60s 2>&1) || fail "$1 on $2 ranks, generation $g: $epoch"
        pause $((RANDOM % 300))
        hurt
        result "$1" out.$g >/dev/null 2>&1 && fail "$1 on $2 ranks, generation $g: it was over before the kill: nothing is shown"
        printf '%s on %d ranks, generation %d: epoch %s, killed; its ranks listened on %s\n' "$1" "$2" "$g" "$epoch" "$ports"
    done
    wait $launcher || fail "$1 on $2 ranks, continued $generations times: it failed: see $dir/saved/err.$g"
    launcher=
    unset MPIR_CVAR_NEMESIS_ENABLE_CKPOINT
    result "$1" out.$g >../saved.result
    # It was continued, and did not begin again.
    ! grep -q '^Process' out.$g || fail "$1 on $2 ranks, continued $generations times: it began again"
    cmp ../native.result ../saved.result || fail "$1 on $2 ranks, continued $generations times: another result"
    printf '%s on %d ranks, continued %d times: equal: %s\n' "$1" "$2" "$generations" "$(head -n 1 ../saved.result)"
}

printf 'seed %s\n' "$seed"
for program in $programs; do
    for n in $ranks; do one "$program" "$n"; done
done
