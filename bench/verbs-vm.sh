#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Bandwidth above a kernel's adapter (rdma_rxe, scripts/verbs-vm.sh), natively and under ckptrun by turns:
# bench/verbs-vm.sh [BUILD [ROUNDS]]. Run from the root of the repository after `make build/bench/verbs`, as root, on a
# machine that does nothing else. It writes bench/results/verbs-vm-bandwidth.txt.
#
# `make bench ONLY=verbs` has an adapter in software that lives in the process itself: its system calls, some ten for a
# write, go through ckptrun's filter, as those of no other adapter do.
set -euo pipefail
build=$(realpath "${1:-build}")
rounds=${2:-7}
dir=$(mktemp -d "$build/verbs-vm-bench.XXXXXX")
trap 'rm -rf "$dir"' EXIT
command=("$build/bench/verbs" 10 stream)
# shellcheck disable=SC2016 # expanded there
scripts/verbs-vm.sh "$dir" bash -c '
    build=$1 rounds=$2 && shift 2 && cd /run/tmp || exit 1
    for ((i = 0; i < 50; i++)); do "$@" >/dev/null 2>&1 && break; sleep 0.2; done # until the first gid is there
    "$build/bin/ckptrun" --dir d -- "$@" >/dev/null || exit 1 # what is read for the first time is slow
    for ((i = 0; i < rounds; i++)); do
        ways=(native ckptrun)
        ((i % 2)) && ways=(ckptrun native)
        for way in "${ways[@]}"; do
            before=()
            [ "$way" = native ] || before=("$build/bin/ckptrun" --dir "d$i" --)
            echo "way $way $("${before[@]}" "$@")" || exit 1
        done
    done' - "$build" "$rounds" "${command[@]}" | tee "$dir/out"
# Of a run: middle and least of its batches.
figures() { awk -F '\t' -v way="way $1 ns" -v k="$2" '$1 == way {print $k / 1000}' "$dir/out" | sort -n; }
middle() { awk '{v[NR] = $1} END {printf "%.0f", v[int((NR + 1) / 2)]}'; }
[ "$(figures native 3 | wc -l)" = "$rounds" ] && [ "$(figures ckptrun 3 | wc -l)" = "$rounds" ]
{
    echo "Writes of 64 KiB between two queue pairs of a process, 16 under way, above rdma_rxe in a virtual machine whose"
    echo "processor is emulated, $rounds runs of each way, by turns; us for each write: the middle and the least of the runs' middle"
    echo "batches, and the middle and the least of their least ones."
    echo "$(sed -n 's/.*verbs-vm: \(Linux [^,]*\),.*/\1/p' "$dir/out") on $(nproc) processors ($(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)). Again: bench/verbs-vm.sh"
    echo
    printf '%-8s %8s %8s %14s %14s\n' '' middle least 'least batches' least
    for way in native ckptrun; do
        printf '%-8s %8s %8s %14s %14s\n' $way "$(figures $way 3 | middle)" "$(figures $way 3 | head -1 | middle)" \
            "$(figures $way 4 | middle)" "$(figures $way 4 | head -1 | middle)"
    done
} | tee bench/results/verbs-vm-bandwidth.txt
