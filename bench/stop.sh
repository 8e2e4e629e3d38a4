#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# How long a checkpoint stops a process (programs/stop.c): bench/stop.sh [BUILD [ROUNDS]]. Run from the root of the
# repository after `make`, on a machine that does nothing else; it needs 16 GiB of memory and of disk. It writes
# bench/results/stop.txt.
set -euo pipefail
build=$(realpath "${1:-build}")
rounds=${2:-7}
dir=$(mktemp -d "$build/stop.XXXXXX")
trap 'rm -rf "$dir"' EXIT
gcc -std=gnu11 -Wall -Wextra -Werror -O2 -Iinclude -o "$dir/stop" bench/programs/stop.c -pthread \
    -L"$build/lib" -lckpt "-Wl,-rpath,$build/lib"
# middle and so on of the numbers behind a word
series() { awk -v word="$1" '$1 == word {for (i = 2; i <= NF; i++) print $i}' "$dir/out" | sort -n; }
{
    echo "One process, ckptrun --snapshot cow, $rounds checkpoints: for how long no thread of it ran, in milliseconds (smallest,"
    echo "middle, largest, and the middle for each GiB), and the middle of what MPIX_Checkpoint took. With more threads than processors"
    echo "the caller waits for its turn with all others when they go on, which the last column shows. Threads compute all the time."
    echo "Machine: $(nproc) processors ($(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)), Linux $(uname -r). Again: bench/stop.sh"
    echo
    printf '%5s %8s %6s %12s %9s %9s %9s %11s %7s\n' MiB threads pages 'MiB on huge' smallest middle largest 'middle/GiB' call
} | tee bench/results/stop.txt
for mib in 1024 4096 8192; do
    for pages in huge small; do
        for threads in 1 64; do
            rm -rf "$dir/ckpt"
            # No epoch is removed: a call that comes while the job does that waits for it, with nothing stopped.
            "$build/bin/ckptrun" --dir "$dir/ckpt" --keep "$((rounds + 1))" -- "$dir/stop" "$dir/ckpt" $mib $threads $pages "$rounds" >"$dir/out"
            huge=$(awk '/^huge/ {print $2}' "$dir/out")
            call=$(series calls | awk '{v[NR] = $1} END {printf "%.1f", v[int((NR + 1) / 2)]}')
            series stood |
                awk -v mib=$mib -v threads=$threads -v pages=$pages -v huge="$huge" -v call="$call" '{v[NR] = $1}
                    END {m = v[int((NR + 1) / 2)]
                         printf "%5d %8d %6s %12d %9.1f %9.1f %9.1f %11.1f %7.1f\n", mib, threads, pages, huge, v[1], m, v[NR], m * 1024 / mib, call}' |
                tee -a bench/results/stop.txt
        done
    done
done
