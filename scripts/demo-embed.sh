#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# demo-embed.sh BUILD: a runtime that is saved with its program, in a minute.  Hundreds of ranks that are user-level
# threads (examples/tmpi) solve a system by conjugate gradients.  All processes are killed with kill -9, and what goes
# on from the last epoch must print, bit for bit, what a run prints that nobody disturbed.  First processes are saved
# with their runtime, under ckptrun; then ranks apart from processes, which go on in other numbers of them.
set -euo pipefail

build=$(cd "$1" && pwd)
tmpi=$build/examples/tmpi
ckptrun=$build/bin/ckptrun
ckptctl=$build/bin/ckptctl
work=$build/demo-embed

# Every process of this run carries this in its environment: that is how they are found again.
EMBED_DEMO_RUN=$$-$(date +%s%N)
export EMBED_DEMO_RUN

step() { printf '\n== %s\n' "$*"; }
say() { printf '   %s\n' "$*"; }
fail() {
    printf '\ndemo-embed: FAILED: %s\n' "$*" >&2
    for log in "$work"/*.err "$work"/*.out; do
        [ ! -s "$log" ] || { echo "--- last lines of $log" >&2 && tail -n 15 "$log" >&2; }
    done
    exit 1
}

# The processes of this run that execute the file $1.
processes() {
    local proc
    for proc in /proc/[0-9]*; do
        [ "$(readlink "$proc/exe" 2>/dev/null)" = "$1" ] || continue
        if tr '\0' '\n' <"$proc/environ" 2>/dev/null | grep -qx "EMBED_DEMO_RUN=$EMBED_DEMO_RUN"; then
            echo "${proc#/proc/}"
        fi
    done
}

launcher=
clean_up() {
    # tmpirun takes its processes with it.
    [ -z "$launcher" ] || kill -9 "$launcher" 2>/dev/null || true
}
trap clean_up EXIT

# The number of the newest committed epoch of the directory $1; 0 when there is none yet.
newest() {
    { "$ckptctl" ls --json "$1" 2>/dev/null || true; } | python3 -c '
import json, sys
text = sys.stdin.read()
epochs = json.loads(text)["epochs"] if text else []
print(max((e["epoch"] for e in epochs if e["state"] == "committed"), default=0))'
}

# await EPOCH DIR: until an epoch of that number is there.
await() {
    SECONDS=0
    while [ "$(newest "$2")" -lt "$1" ]; do
        kill -0 "$launcher" 2>/dev/null || fail "the job ended before epoch $1 was committed"
        [ "$SECONDS" -lt 120 ] || fail "no epoch $1 after 120 s"
        sleep 0.1
    done
    say "epoch $(newest "$2") is committed"
}

# kill_all EXE PROCESSES: kill -9 for every process that executes EXE, of which there must be so many.
kill_all() {
    local found status=0
    mapfile -t found < <(processes "$1")
    [ "${#found[@]}" -ge "$2" ] || fail "found ${#found[@]} processes to kill, not $2"
    say "kill -9 ${found[*]}"
    kill -9 "${found[@]}" 2>/dev/null || true
    wait "$launcher" 2>/dev/null || status=$?
    launcher=
    [ "$status" != 0 ] || fail "tmpirun says that nothing happened (status 0)"
    [ -z "$(processes "$1")" ] || fail "some processes of the job are still there"
}

# compare NAME: the last line of NAME.out with that of plain.out.
compare() {
    local want got
    want=$(tail -n 1 plain.out) got=$(tail -n 1 "$1.out")
    say "without libckpt: $want"
    say "continued:       $got"
    [ -n "$want" ] && [ "$got" = "$want" ] || fail "they differ"
    say "equal, to the last bit"
}

rm -rf "$work"
mkdir -p "$work"
cd "$work"
free=$(df --output=avail -BM . | tail -n 1 | tr -dc 0-9)
[ "$free" -ge 1000 ] || fail "$work needs 1 GB of free disk; there are $free MB"

whole=("$tmpi/cg" 512 600 100)
step "1. 512 ranks in 4 processes, without ckptrun, for comparison: cg"
"$tmpi/tmpirun" -n 4 -r 128 "${whole[@]}" >plain.out 2>plain.err || fail "it ended with status $?"
say "$(tail -n 1 plain.out)"

step "2. The same under ckptrun --whole: processes are saved with their runtime, every 50 iterations"
say "tmpirun -n 4 -r 128 ckptrun --whole --dir whole cg ${whole[*]:1} 50"
"$tmpi/tmpirun" -n 4 -r 128 "$ckptrun" --whole --dir "$work/whole" "${whole[@]}" 50 >whole.out 2>first.err &
launcher=$!
await 2 whole
"$ckptctl" ls whole | sed 's/^/   /'

step "3. kill -9 for every process"
kill_all "$ckptrun" 4

step "4. Continue in 4 new processes, on other ports"
say "tmpirun -n 4 ckptrun --whole --restart whole"
"$tmpi/tmpirun" -n 4 "$ckptrun" --whole --restart "$work/whole" >>whole.out 2>second.err ||
    fail "the continued run ended with status $?"
grep -q 'continued after iteration' second.err || fail "the job did not say that it was continued"
sed 's/^/   /' second.err
compare whole

slots=("$tmpi/cg-slots" 384 3000 100)
step "5. Ranks that move: 64 ranks in 4 processes, without libckpt, for comparison"
"$tmpi/tmpirun" -n 4 -r 16 "${slots[@]}" >plain.out 2>plain.err || fail "it ended with status $?"
say "$(tail -n 1 plain.out)"

step "6. The same without ckptrun: libckpt saves each rank apart from its process"
say "tmpirun -n 4 -r 16 --slots slots cg-slots ${slots[*]:1} 50"
"$tmpi/tmpirun" -n 4 -r 16 --slots "$work/slots" "${slots[@]}" 50 >slots.out 2>slots.err &
launcher=$!
here=4
for next in 2 8 1; do
    await $(($(newest slots) + 1)) slots
    kill_all "$tmpi/cg-slots" "$here"
    say "tmpirun -n $next --restart slots cg-slots    (epoch $(newest slots), saved by $here processes)"
    "$tmpi/tmpirun" -n "$next" --restart "$work/slots" "$tmpi/cg-slots" >>slots.out 2>"in$next.err" &
    launcher=$!
    here=$next
done

step "7. The last process, with all 64 ranks, goes on to the end"
status=0
wait "$launcher" || status=$?
launcher=
[ "$status" = 0 ] || fail "the continued run ended with status $status"
for n in 2 8 1; do
    grep -q 'continued after iteration' "in$n.err" || fail "the job in $n processes did not say that it was continued"
    say "in $n processes: $(tail -n 1 "in$n.err")"
done
"$ckptctl" verify slots | tail -n 1 | sed 's/^/   /'
compare slots

cd "$build"
rm -rf "$work"
printf '\ndemo-embed: passed\n'
