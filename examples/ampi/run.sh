#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# run.sh CHARM [BUILD]: saves, kills and continues 64 ranks of AMPI in one process.
#
# CHARM is the folder of a Charm++ that was built with `./buildold AMPI multicore-linux-x86_64 gcc`.  GENERATIONS times
# the program is saved by ckptctl at a random moment, killed with kill -9, and continued; the last one comes to its end,
# and its residual must be that of a run without ckptrun, bit for bit.  Status 0: it was.
set -euo pipefail

[ $# -ge 1 ] || { echo "usage: run.sh CHARM [BUILD]" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
charm=$(cd "$1" && pwd)
build=$(cd "${2:-$here/../../build}" && pwd)
generations=${GENERATIONS:-3}
steps=${STEPS:-100000}
options=(+p2 +vp64 +tcharm_nomig)

for ampicc in "$charm"/bin/ampicc "$charm"/multicore-linux-x86_64*/bin/ampicc; do
    [ -x "$ampicc" ] && break
done
[ -x "$ampicc" ] || { echo "run.sh: no bin/ampicc in $charm: build Charm++ with AMPI for multicore-linux-x86_64" >&2; exit 1; }
work=$(mktemp -d)
pid=
# shellcheck disable=SC2317
leave() {
    [ -z "$pid" ] || kill -9 "$pid" 2>/dev/null || true
    rm -rf "$work"
}
trap leave EXIT
cd "$work"
cp "$here/rods.c" .
"$ampicc" -O1 -o rods rods.c

./rods "$steps" "${options[@]}" >native.out
want=$(grep '^rods: ' native.out)
echo "natively:   $want"

command=("$build/bin/ckptrun" --dir ckpt --ignore-fd 3,4 -- ./rods "$steps" "${options[@]}")
for ((g = 1; g <= generations; g++)); do
    "${command[@]}" >"run-$g.out" 2>&1 &
    pid=$!
    sleep "$((1 + RANDOM % 2)).$((RANDOM % 10))"
    "$build/bin/ckptctl" checkpoint ckpt --timeout 60s >epoch || { cat "run-$g.out"; exit 1; }
    kill -9 "$pid"
    wait "$pid" 2>/dev/null || true
    pid=
    echo "generation $g: epoch $(cat epoch), killed after \"$(grep -h '^step' run-*.out | tail -1)\""
    command=("$build/bin/ckptrun" --restart ckpt)
done
"${command[@]}" >last.out 2>&1 || { cat last.out; exit 1; }
got=$(grep '^rods: ' last.out)
echo "continued:  $got"
[ "$got" = "$want" ] || { echo "run.sh: FAILED: the residuals differ" >&2; exit 1; }
echo "ampi: passed"
