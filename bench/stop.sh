#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# How long a checkpoint stops a process (programs/stop.c): bench/stop.sh [BUILD [ROUNDS]]. Run from the root of the
# repository after `make`, on a machine that does nothing else; it needs 8 GiB of memory.
set -euo pipefail
build=$(realpath "${1:-build}")
rounds=${2:-5}
dir=$(mktemp -d "$build/stop.XXXXXX")
trap 'rm -rf "$dir"' EXIT
gcc -std=gnu11 -Wall -Wextra -Werror -O2 -Iinclude -o "$dir/stop" bench/programs/stop.c -pthread \
    -L"$build/lib" -lckpt "-Wl,-rpath,$build/lib"
echo "One process, ckptrun --snapshot cow, $rounds checkpoints: milliseconds in MPIX_Checkpoint, smallest, middle and largest."
printf '%5s %8s %6s %15s %9s %9s %9s %12s\n' MiB threads pages 'MiB on huge' smallest middle largest 'middle/GiB'
for mib in 1024 4096; do
    for pages in huge small; do
        for threads in 1 64; do
            rm -rf "$dir/ckpt"
            "$build/bin/ckptrun" --dir "$dir/ckpt" --keep 1 -- "$dir/stop" "$dir/ckpt" $mib $threads $pages "$rounds" >"$dir/out"
            huge=$(awk '/^huge/ {print $2}' "$dir/out")
            awk '/^calls/ {for (i = 2; i <= NF; i++) print $i}' "$dir/out" | sort -n |
                awk -v mib=$mib -v threads=$threads -v pages=$pages -v huge="$huge" '{v[NR] = $1}
                    END {m = v[int((NR + 1) / 2)]
                         printf "%5d %8d %6s %15d %9.1f %9.1f %9.1f %12.1f\n", mib, threads, pages, huge, v[1], m, v[NR], m * 1024 / mib}'
        done
    done
done
