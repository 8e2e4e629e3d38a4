#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# demo-embed.sh BUILD: a runtime that is saved with its program, in a minute.  Hundreds of ranks that are user-level
# threads (examples/tmpi) solve a system by conjugate gradients.  All processes are killed with kill -9, and what goes
# on from the last epoch must print, bit for bit, what a run prints that nobody disturbed.  First processes are saved
# with their runtime, under ckptrun; then ranks apart from processes, which go on in other numbers of them.
set -euo pipefail

build=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")/.." && pwd)
tmpi=$build/examples/tmpi
work=$build/demo-embed
demo=demo-embed
. "$here/scripts/demo-lib.sh"

# compare NAME: the last line of NAME.out with that of plain.out.
compare() {
    local want got
    want=$(tail -n 1 plain.out) got=$(tail -n 1 "$1.out")
    say "without libckpt: $want"
    say "continued:       $got"
    [ -n "$want" ] && [ "$got" = "$want" ] || fail "they differ"
    say "equal, to the last bit"
}

begin 1000

whole=("$tmpi/cg" 512 600 100)
step "1. 512 ranks in 4 processes, without ckptrun, for comparison: cg"
"$tmpi/tmpirun" -n 4 -r 128 "${whole[@]}" >plain.out 2>plain.err || fail "it ended with status $?"
say "$(tail -n 1 plain.out)"

step "2. The same under ckptrun --whole: processes are saved with their runtime, every 50 iterations"
say "tmpirun -n 4 -r 128 ckptrun --whole --dir whole cg ${whole[*]:1} 50"
"$tmpi/tmpirun" -n 4 -r 128 "$ckptrun" --whole --dir "$work/whole" "${whole[@]}" 50 >whole.out 2>first.err &
launcher=$!
await_epoch whole 2
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
in=4
for next in 2 8 1; do
    await_epoch slots $(($(newest slots) + 1))
    kill_all "$tmpi/cg-slots" "$in"
    say "tmpirun -n $next --restart slots cg-slots    (epoch $(newest slots), saved by $in processes)"
    "$tmpi/tmpirun" -n "$next" --restart "$work/slots" "$tmpi/cg-slots" >>slots.out 2>"in$next.err" &
    launcher=$!
    in=$next
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

passed
