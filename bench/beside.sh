#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# beside.sh [ROUNDS [MIB]]: one process with MIB of numbers (1024) is saved and continued in ROUNDS (7), each way in turn in
# every round: by ckptrun, by CRIU, by pickle to a file, as programs of mpi4py do it, and dd writes as many bytes.  All are on
# stable storage in the end.  It writes bench/results/beside.md.
#
# CRIU and its libraries are Debian's, of the suite SUITE (forky), unpacked in a temporary folder: nothing is installed.  That
# needs root, as CRIU does.  If its own check says that this kernel cannot, the table says so.
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
rounds=${1:-7} mib=${2:-1024} suite=${SUITE:-forky}
result="$here"/bench/results/beside.md
python=/usr/bin/python3 # the one that finds the modules
bin=$here/build/bin
[ -x "$bin/ckptrun" ] || { echo "beside.sh: no $bin/ckptrun: run make first" >&2; exit 2; }
work=$(mktemp -d "${TMPDIR:-/tmp}/beside.XXXXXX")
pids=()
trap 'for p in "${pids[@]}"; do kill -9 "$p" 2>/dev/null || true; done; rm -rf "$work"' EXIT

# ---- CRIU ----------------------------------------------------------------------------------------
mkdir -p "$work"/apt/{state/lists/partial,cache/archives/partial} "$work/tree"
mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | sort | uniq -c | sort -rn | awk 'NR == 1 {print $2}')
: >"$work/apt/status"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" >"$work/apt/list"
apt() {
    apt-get -qq -o Dir::State="$work/apt/state" -o Dir::Cache="$work/apt/cache" -o Dir::Etc::sourcelist="$work/apt/list" \
        -o Dir::Etc::sourceparts=/none -o Dir::State::status="$work/apt/status" -o APT::Sandbox::User=root \
        -o Debug::NoLocking=1 "$@" >/dev/null
}
why="" version=""
criu() { "$work"/tree/lib64/ld-linux-x86-64.so.2 --library-path "$work/tree/usr/lib/x86_64-linux-gnu" "$work/tree/usr/sbin/criu" "$@"; }
if apt update && apt -y --no-install-recommends --download-only install criu; then
    for deb in "$work"/apt/cache/archives/*.deb; do dpkg -x "$deb" "$work/tree"; done
    if [ ! -e "$work/tree/lib64" ]; then ln -s usr/lib64 "$work/tree/lib64"; fi
    version=$(criu --version | awk '/^Version/ {print $2}')
    criu check >"$work/check" 2>&1 || why="its check says: $(tail -n 1 "$work/check")"
else
    why="it could not be had from Debian's $suite"
fi

# ---- one way after the other ---------------------------------------------------------------------
now() { date +%s.%N; }
since() { awk -v a="$1" -v b="$(now)" 'BEGIN {printf "%.3f", b - a}'; }
note() { echo "$1 $2" >>"$work/figures"; } # WAY.WHAT SECONDS
until_is() { # COMMAND...: waits until it is true, ten minutes at most
    local n=0
    until "$@"; do
        n=$((n + 1))
        [ $n -lt 60000 ] || { echo "beside.sh: waited in vain: $*" >&2; exit 1; }
        sleep 0.01
    done
}
gone() { ! kill -0 "$1" 2>/dev/null; }
ticks() { [ -e "$dir/tick" ]; }
moved() { [ -e "$dir/tick" ] && [ "$(cat "$dir/tick")" != "$1" ]; }
summed() { [ -e "$dir/sum" ]; }
answered() { [ ! -e "$dir/ask" ]; }

start() { # WAY COMMAND...: starts the program in $dir
    dir=$work/$1
    rm -rf "$dir"
    mkdir "$dir"
    shift
    "$@" </dev/null >"$dir/out" 2>&1 &
    pid=$!
    pids=("$pid")
    until_is ticks
}
end() { kill -9 "${pids[@]}" 2>/dev/null || true; wait 2>/dev/null || true; }
continued() { # WAY BEGAN: from the start to a number that is counted on, and until all memory is read
    until_is moved "$last"
    note "$1.first" "$(since "$2")"
    touch "$dir/all"
    until_is summed
    note "$1.all" "$(since "$2")"
}
drop() { sync; echo 3 >/proc/sys/vm/drop_caches 2>/dev/null || true; }

with_ckptrun() {
    start ckptrun "$bin/ckptrun" --dir "$work/ckpt" --compress none -- "$python" "$here/bench/programs/state.py" "$mib" "$work/ckptrun"
    local t
    t=$(now)
    "$bin/ckptctl" checkpoint "$work/ckpt" >/dev/null
    note ckptrun.saved "$(since "$t")"
    note ckptrun.stopped "$("$bin/ckptctl" ls "$work/ckpt" --json >/dev/null; awk -F': ' '/^  "stopSeconds"/ {sub(",", "", $2); print $2; exit}' "$work"/ckpt/epoch-*/manifest.json)"
    end
    last=$(cat "$dir/tick")
    drop
    t=$(now)
    "$bin/ckptrun" --restart "$work/ckpt" </dev/null >"$dir/out" 2>&1 &
    pids=($!)
    continued ckptrun "$t"
    end
    rm -rf "$work/ckpt"
}

with_criu() {
    start criu setsid "$python" "$here/bench/programs/state.py" "$mib" "$work/criu"
    mkdir "$work/images"
    local t
    t=$(now)
    criu dump -t "$pid" -D "$work/images" -o dump.log >/dev/null 2>&1 || { why="its dump failed: $(grep -m 1 Error "$work/images/dump.log")"; end; rm -rf "$work/images"; return 0; }
    note criu.stopped "$(since "$t")" # until the process has ended, and its memory is in files
    sync "$work"/images/*
    note criu.saved "$(since "$t")"
    wait 2>/dev/null || true
    last=$(cat "$dir/tick")
    drop
    t=$(now)
    criu restore -d -D "$work/images" -o restore.log --pidfile "$work/images/pid" >/dev/null 2>&1 || { why="its restore failed: $(grep -m 1 Error "$work/images/restore.log")"; rm -rf "$work/images"; return 0; }
    pids=("$(cat "$work/images/pid")")
    continued criu "$t"
    touch "$dir/stop"
    until_is gone "${pids[0]}"
    rm -rf "$work/images"
}

with_pickle() {
    start pickle "$python" "$here/bench/programs/state.py" "$mib" "$work/pickle" mpi
    local t
    t=$(now)
    touch "$dir/ask"
    until_is answered
    note pickle.saved "$(since "$t")"
    note pickle.stopped "$(since "$t")" # it does nothing else
    end
    last=$(cat "$dir/tick")
    drop
    t=$(now)
    "$python" "$here/bench/programs/state.py" "$mib" "$dir" mpi load </dev/null >"$dir/out" 2>&1 &
    pids=($!)
    continued pickle "$t"
    end
    rm -rf "$dir"
}

with_dd() {
    local t
    t=$(now)
    dd if=/dev/zero of="$work/zeros" bs=1M count="$mib" conv=fsync status=none
    note dd.saved "$(since "$t")"
    rm -f "$work/zeros"
}

for ((round = 1; round <= rounds; round++)); do
    with_dd
    with_ckptrun
    [ -n "$why" ] || with_criu
    with_pickle
    echo "round $round of $rounds" >&2
done

# ---- the table -----------------------------------------------------------------------------------
figure() { # WAY.WHAT: median (least to largest)
    awk -v w="$1" '$1 == w {print $2}' "$work/figures" | sort -n |
        awk '{v[NR] = $1} END {if (!NR) {print "-"; exit} m = NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2; printf "%.3g (%.3g to %.3g)", m, v[1], v[NR]}'
}
busy=$(awk '{print $1}' /proc/loadavg)
{
    cat <<TEXT
<!-- Written by bench/beside.sh. -->
# Beside others

One process of Python with $mib MiB of numbers that cannot be compressed is saved and continued $rounds times, each way in turn in every
round. *Saved* is from the request to stable storage, *stopped* how long the program stood for it. *First* is from the start of the
restart, with the page cache emptied, to the next number that the program counts, *all* until it has read a number of each page. Seconds:
median (least to largest). ckptrun has \`--compress none\` and its own choice of restart mode; the image of CRIU ${version:-} ($suite) is
synced after its dump, in which the process ends; pickle writes the array from the program, which has mpi4py loaded, with fsync.

Machine: $(nproc) processors, Linux $(uname -r), load $busy at the end, its own included.

Again: \`bench/beside.sh $rounds $mib\`

| | saved | stopped | first | all |
|---|---|---|---|---|
| ckptrun | $(figure ckptrun.saved) | $(figure ckptrun.stopped) | $(figure ckptrun.first) | $(figure ckptrun.all) |
| CRIU ${version:-} | $(figure criu.saved) | $(figure criu.stopped) | $(figure criu.first) | $(figure criu.all) |
| pickle | $(figure pickle.saved) | $(figure pickle.stopped) | $(figure pickle.first) | $(figure pickle.all) |
| dd | $(figure dd.saved) | | | |
TEXT
    [ -z "$why" ] || printf '\nCRIU is not in all rounds: %s.\n' "$why"
} >"$result"
cat "$result"
