#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# demo-verbs.sh BUILD: programs on InfiniBand verbs are killed and go on, on an adapter with other numbers and over TCP.
# The adapter is one in software (scripts/verbs-bed.sh); the programs are ibv_rc_pingpong, which checks what it
# receives, and one of ours with RDMA and atomics, which checks that all has happened once.
set -euo pipefail

build=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
if [ -z "${DEMO_VERBS_DIR:-}" ]; then
    DEMO_VERBS_DIR=$(mktemp -d)
    export DEMO_VERBS_DIR
    trap 'rm -rf "$DEMO_VERBS_DIR"' EXIT
    "$here/verbs-bed.sh" "$DEMO_VERBS_DIR" "$build/obj/verbs/libckptsoft-rdmav34.so" "$0" "$build"
    exit
fi
cd "$DEMO_VERBS_DIR"
PATH=$build/bin:$PATH
say() { printf '\n== %s\n' "$*"; }
die() { echo "demo-verbs: $*" >&2; cat ./*.err >&2; exit 1; }

pids=()
trap 'kill -9 "${pids[@]}" 2>/dev/null || true' EXIT

# ranks NAME COMMAND...: starts two processes, what they print is appended to NAME.0 and NAME.1.
ranks() {
    local name=$1 r
    shift
    pids=()
    for r in 0 1; do
        CKPT_RANK=$r CKPT_SIZE=2 "$@" >>"$name.$r" 2>>"$name.err" </dev/null &
        pids+=($!)
    done
}

# save NAME: saves the job in NAME.ckpt and ends all of it by SIGKILL.
save() {
    sleep 1
    ckptctl checkpoint "$1.ckpt" --then continue --timeout 3m || die "it cannot be saved"
    kill -9 "${pids[@]}"
    wait "${pids[@]}" 2>/dev/null || true
    echo "saved, and both processes killed: $(ls -d "$1".ckpt/epoch-*/ | wc -l) epoch(s)"
}

ended() {
    local pid
    for pid in "${pids[@]}"; do wait "$pid" || die "a process ended with status $?"; done
}

say "ibv_rc_pingpong between two processes, checked data"
cat >pingpong.sh <<'EOF'
if [ "$CKPT_RANK" = 0 ]; then exec ckptrun --ranks 2 --dir pingpong.ckpt -- ibv_rc_pingpong -c -n 100000; fi
export LATE_PORT=18515 LD_PRELOAD=./late.so
exec ckptrun --ranks 2 --dir pingpong.ckpt -- ibv_rc_pingpong -c -n 100000 127.0.0.1
EOF
src=$here/../internal/e2e/verbs/programs
gcc -std=gnu11 -O2 -shared -fPIC -o late.so "$src"/late/*.c -ldl
ranks pingpong sh pingpong.sh
save pingpong
for how in ibv tcp; do
    say "it goes on: CKPT_VERBS=$how"
    export CKPT_VERBS=$how
    ranks pingpong ckptrun --restart pingpong.ckpt
    [ $how = tcp ] || save pingpong
done
ended
unset CKPT_VERBS
cat pingpong.1
for r in 0 1; do grep -q '^100000 iters in ' pingpong.$r || die "rank $r has not made all its exchanges"; done

say "writes, reads, atomics and sends between two processes, each checked"
gcc -std=gnu11 -O2 -o shuffle "$src"/shuffle/*.c -libverbs
mkdir meet
ranks shuffle ckptrun --ranks 2 --dir shuffle.ckpt -- ./shuffle meet 5 8000 200
save shuffle
for how in tcp ibv; do
    say "it goes on: CKPT_VERBS=$how"
    export CKPT_VERBS=$how
    ranks shuffle ckptrun --restart shuffle.ckpt
    [ $how = ibv ] || save shuffle
done
ended
cat shuffle.0 shuffle.1
[ "$(cat shuffle.0 shuffle.1 | grep -c ': right$')" = 2 ] || die "not all was right"
printf '\ndemo-verbs: passed\n'
