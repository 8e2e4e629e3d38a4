#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Arrays, strings, regular expressions, arithmetic, background jobs, signals to itself, files.
# usage: jobs.sh ROUNDS
rounds=${1:-20}
declare -A counts
declare -a lines
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
got=0
trap 'got=$((got + 1))' USR1
exec 8>>"$dir/log"

work() {
    local i word
    for ((i = 0; i < 600; i++)); do
        word="w$((i * i % 17))"
        counts[$word]=$((${counts[$word]:-0} + i))
        lines+=("$word:${#word}")
        [[ ${lines[-1]} =~ ^w([0-9]+):([0-9])$ ]] && sum=$((sum + BASH_REMATCH[1] * BASH_REMATCH[2]))
        ((i % 100 == 0)) && lines=("${lines[@]: -5}")
    done
    echo "round $1" >&8
}

sum=0
for ((round = 0; round < rounds; round++)); do
    work $round
    for n in 1 2 3; do
        (sleep 0.01; exit $n) &
        pids[n]=$!
    done
    work $round
    status=""
    for n in 3 1 2; do
        wait "${pids[n]}"
        status+=" $?"
    done
    echo "jobs$status sum $sum"
    kill -USR1 $$
    work $round
done
for word in $(printf '%s\n' "${!counts[@]}" | sort); do
    echo "$word ${counts[$word]}"
done
echo "signals $got, log of $(wc -l <"$dir/log") lines, last: $(tail -1 "$dir/log")"
self=$BASHPID
[ "$self" = $$ ] && echo "pid same"
exit 6
