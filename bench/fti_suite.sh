#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# fti_suite.sh CHECKOUT [MPI...]: runs programs of FTI's own tests and examples, which the user has built below CHECKOUT,
# with libckpt_fti.so and, where they are there, with FTI's own library: each case is begun, ended or killed, damaged as
# the case says, and started again.  Writes bench/results/fti.md: every case with what came out.  Nothing is fetched and
# nothing of FTI is built here.
#
#   bench/fti_suite.sh fti                  everything, with MPICH and Open MPI
#   ONLY=levels bench/fti_suite.sh fti mpich      one part of it: levels, programs
#
# CHECKOUT/MPI/ckpt/NAME is a program linked with -lckpt_fti, CHECKOUT/MPI/fti/NAME the same with FTI's own library (may
# be missing).  NAME is "check" for the test of several levels (the 96 cases in which no rank is kept for FTI), and
# heatdis, heatd2, fheatdis, addInArray, heatdisCase, nodeFlag, ckptHierarchy, consistency, recoverVar, recoverName,
# getConfig, cppOperability, complex, ckpt_c_primitives and ckpt_f_primitives for the others.
#
# WORK is where cases run (build/fti_suite); what did not pass is left there.  RESULT is the file that is written.
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
fail() { echo "fti_suite.sh: $*" >&2 && exit 2; }
[ $# -gt 0 ] || fail "usage: bench/fti_suite.sh CHECKOUT [MPI...]"
checkout=$(cd "$1" && pwd)
shift
mpis=("$@")
[ $# -gt 0 ] || mpis=(mpich openmpi)
work=${WORK:-$here/build/fti_suite}
result=${RESULT:-"$here"/bench/results/fti.md}
only=${ONLY:-levels,programs}
limit=60 # seconds a run may take
ranks=16
mkdir -p "$work"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
for mpi in "${mpis[@]}"; do
    [ -x "$checkout/$mpi/ckpt/check" ] || fail "no $checkout/$mpi/ckpt/check: the head of this script says what is to be there"
done

# ---- one run -------------------------------------------------------------------------------------

# configure KEY VALUE...: writes config.fti anew, for 16 ranks on 4 nodes of 4, with these keys changed.
configure() {
    cat >config.fti <<EOF
[basic]
head = 0
node_size = 4
group_size = 4
ckpt_dir = Local
glbl_dir = Global
meta_dir = Meta
ckpt_io = 1
ckpt_l1 = 0
ckpt_l2 = 0
ckpt_l3 = 0
ckpt_l4 = 0
inline_l2 = 1
inline_l3 = 1
inline_l4 = 1
keep_last_ckpt = 0
keep_l4_ckpt = 0
verbosity = 2
max_sync_intv = 512
[restart]
failure = 0
exec_id = NULL
[injection]
rank = 0
number = 0
position = 0
frequency = 0
[advanced]
block_size = 1024
transfer_size = 16
mpi_tag = 2612
general_tag = 2612
ckpt_tag = 711
stage_tag = 406
final_tag = 3107
local_test = 1
fast_forward = 1
EOF
    while [ $# -gt 1 ]; do
        sed -i "s|^$1 = .*|$1 = $2|" config.fti
        shift 2
    done
}

value() { sed -n "s/^$1 *= *//p" config.fti; }

# run PROGRAM ARGUMENTS...: its status; what it says is in said.
run() {
    local launcher=(mpiexec.mpich)
    [ "$mpi" = mpich ] || launcher=(mpiexec.openmpi --allow-run-as-root --oversubscribe)
    echo "+ $*" >>log
    timeout -k 5 "$limit" "${launcher[@]}" -n "$ranks" "$checkout/$mpi/$lib/$1" "${@:2}" </dev/null >said 2>&1 && status=0 || status=$?
    cat said >>log
    echo "+ status $status" >>log
    return "$status"
}

# begin NAME: a directory of its own for a case.
begin() {
    dir=$work/$mpi-$lib/$1
    rm -rf "$dir"
    mkdir -p "$dir/checks" "$dir/results" "$dir/Local" "$dir/Global" "$dir/Meta"
    cd "$dir"
}

# end VERDICT: a case that passed leaves nothing.
end() {
    cd "$work"
    [ "$1" != pass ] || rm -rf "$dir"
}

# ---- the test of several levels ------------------------------------------------------------------

# files NODE KIND: the files of the level that a node has, by FTI's names; the first of them.
first() {
    local dir
    dir=Local/node$1/$(value exec_id)/l$level
    find "$dir" -type f -name "Ckpt*-$2*.fti" 2>/dev/null | sort | head -1
}

# damage HOW WHAT NODE: as FTI's test does it: a node's directory of the level, or its first file of a kind.
damage() {
    local how=$1 path
    case $2 in
    global) path=Global/$(value exec_id)/l4 ;;
    node) path=Local/node$3/$(value exec_id)/l$level ;;
    checkpoint) path=$(first "$3" Rank) ;;
    partner)
        path=$(first "$3" Pcof)
        [ -n "$path" ] || path=$(first "$3" RSed)
        ;;
    esac
    if [ -z "$path" ] || [ ! -e "$path" ]; then
        echo "nothing to be damaged: $2 of node $3, at ${path:-no path}" >>log
        return 1
    fi
    echo "+ $how $path" >>log
    case $how in
    erase) rm -rf "$path" ;;
    corrupt) printf 'TextForCorruption\n' | dd conv=notrunc of="$path" bs=1 2>/dev/null ;;
    esac
}

# levels_case LEVEL KEEP ICP SIZES HOW WHAT NODES EXPECTED
levels_case() {
    local keep=$2 icp=$3 sizes=$4 how=$5 what=$6 nodes=$7 expected=$8 crash=1 node verdict=pass
    level=$1
    begin "level$level-keep$keep-icp$icp-sizes$sizes-$how-$what-${nodes// /+}"
    [ "$keep" = 0 ] || crash=0
    configure keep_last_ckpt "$keep"
    run check config.fti "$crash" "$level" "$sizes" "$icp" checks || verdict="first run: status $status"
    if [ "$verdict" = pass ] && [ "$keep" = 1 ] && [ "$(value failure)" != 2 ]; then verdict="failure = $(value failure)"; fi
    if [ "$verdict" = pass ] && [ "$how" != none ]; then
        for node in $nodes; do damage "$how" "$what" "$node" || verdict="$what of node $node is not there"; done
    fi
    if [ "$verdict" = pass ]; then
        run check config.fti 0 "$level" "$sizes" "$icp" checks || true
        if [ "$expected" = success ] && { [ "$status" != 0 ] || ! grep -q '^\[SUCCESSFUL\]' said; }; then verdict="not recovered: status $status"; fi
        if [ "$expected" = fail ] && { [ "$status" = 0 ] || [ "$status" = 124 ] || grep -q '^\[SUCCESSFUL\]' said; }; then verdict="recovered, or hung: status $status"; fi
    fi
    end "$verdict"
    echo "$verdict"
}

scenarios() { # LEVEL KEEP HOW WHAT NODES EXPECTED: words
    local level keep
    for keep in 0 1; do
        for level in 1 2 3 4; do echo "$level|$keep|none|nothing||success|nothing is lost"; done
    done
    echo "1|1|erase|global|0|fail|the directory of level 4 is erased"
    echo "1|0|erase|checkpoint|0 2|fail|an image of each of nodes 0 and 2 is erased"
    echo "1|0|corrupt|checkpoint|0 2|fail|an image of each of nodes 0 and 2 is corrupted"
    for level in 2 3; do
        echo "$level|0|erase|checkpoint|0 2|success|an image of each of nodes 0 and 2 is erased"
        echo "$level|0|corrupt|checkpoint|0 2|success|an image of each of nodes 0 and 2 is corrupted"
        echo "$level|0|erase|partner|0 2|success|a copy or parity of each of nodes 0 and 2 is erased"
        echo "$level|0|corrupt|partner|0 2|success|a copy or parity of each of nodes 0 and 2 is corrupted"
        if [ "$level" = 2 ]; then
            echo "$level|0|erase|node|0 1|fail|the directories of nodes 0 and 1 are erased"
        else
            echo "$level|0|erase|node|0 1|success|the directories of nodes 0 and 1 are erased"
        fi
        echo "$level|0|erase|node|0 2|success|the directories of nodes 0 and 2 are erased"
    done
    echo "4|0|erase|global|0|fail|the directory of level 4 is erased"
}

levels() {
    local libs="" head="| level | keep_last_ckpt | between the two runs | the second run is to |" line="|---|---|---|---|"
    local cells verdict icp sizes good keep how what nodes expected words
    for lib in ckpt fti; do
        [ -x "$checkout/$mpi/$lib/check" ] || continue
        libs+=" $lib"
        head+=" $lib |"
        line+="---|"
    done
    echo "$head"
    echo "$line"
    while IFS='|' read -r level keep how what nodes expected words; do
        cells=""
        for lib in $libs; do
            good=0
            for icp in 0 1; do
                for sizes in 0 1; do
                    verdict=$(levels_case "$level" "$keep" "$icp" "$sizes" "$how" "$what" "$nodes" "$expected")
                    if [ "$verdict" = pass ]; then
                        good=$((good + 1))
                    else
                        echo "- $mpi, $lib, level $level, keep_last_ckpt $keep, $words, icp $icp, sizes $sizes: $verdict" >>"$work/notes"
                    fi
                    echo "$mpi $lib level $level keep $keep: $words, icp $icp, sizes $sizes: $verdict" >&2
                done
            done
            cells+=" $good of 4 |"
        done
        echo "| $level | $keep | $words | ${expected/success/recover} |$cells"
    done < <(scenarios)
}

# ---- other programs ------------------------------------------------------------------------------

# twice NAME KEYS -- FIRST -- SECOND: two runs that both end well.
twice() {
    local name=$1 keys=() first=() verdict=pass
    shift
    while [ "$1" != -- ]; do keys+=("$1") && shift; done
    shift
    while [ "$1" != -- ]; do first+=("$1") && shift; done
    shift
    begin "$name"
    configure ${keys[@]+"${keys[@]}"}
    run "$name" config.fti ${first[@]+"${first[@]}"} || verdict="first run: status $status"
    if [ "$verdict" = pass ]; then run "$name" config.fti "$@" || verdict="second run: status $status"; fi
    end "$verdict"
    echo "$verdict"
}

once() {
    local name=$1 verdict=pass
    begin "$name"
    configure
    run "$name" config.fti || verdict="status $status"
    ! grep -q FAILURE said || verdict="it says FAILURE"
    end "$verdict"
    echo "$verdict"
}

# What a run says of its steps, without what differs from run to run.
steps() { grep -h '^ *Step' "$1" | sed 's/ *$//' || true; }

# here: the processes of a program that run in this directory.
here() {
    local p
    for p in /proc/[0-9]*; do
        if [ "$(readlink "$p/cwd" 2>/dev/null)" = "$PWD" ] && [ "$(readlink "$p/exe" 2>/dev/null)" = "$1" ]; then echo "${p#/proc/}"; fi
    done
}

# kill_once NAME ARGUMENTS...: starts a program, and kills its ranks when they have made a checkpoint.
kill_once() {
    local launcher=(mpiexec.mpich) program=$checkout/$mpi/$lib/$1 launched deadline
    [ "$mpi" = mpich ] || launcher=(mpiexec.openmpi --allow-run-as-root --oversubscribe)
    touch stamp
    "${launcher[@]}" -n "$ranks" "$program" "${@:2}" </dev/null >said 2>&1 &
    launched=$!
    deadline=$((SECONDS + limit))
    while [ -z "$(find Local Global -name 'Ckpt*-Rank*.fti' -newer stamp | head -1)" ]; do
        if ! kill -0 "$launched" 2>/dev/null || [ "$SECONDS" -gt "$deadline" ]; then break; fi
        sleep 0.05
    done
    # shellcheck disable=SC2046 # a list of numbers
    kill -9 $(here "$program") "$launched" 2>/dev/null && status=0 || status=1
    wait "$launched" 2>/dev/null || true
    while [ -n "$(here "$program")" ]; do sleep 0.05; done
    cat said >>log
    echo "+ killed" >>log
    return "$status"
}

# killed NAME ARGUMENTS...: a run without checkpoints, with FTI's own library where it is there, says what is right.  One
# that makes them is killed three times.  What the last start says is the end of what was right.
killed() {
    local name=$1 verdict=pass own=$lib
    begin "$1"
    configure
    [ ! -x "$checkout/$mpi/fti/$name" ] || lib=fti
    run "$@" || verdict="undisturbed: status $status"
    lib=$own
    steps said >right
    rm -rf Local Global Meta
    mkdir Local Global Meta
    configure ckpt_l1 1 ckpt_l2 3 ckpt_l3 5 ckpt_l4 7 fast_forward 60
    for _ in 1 2 3; do
        [ "$verdict" != pass ] || kill_once "$@" || verdict="it ended before it was killed"
    done
    if [ "$verdict" = pass ] && [ "$(value failure)" != 1 ]; then verdict="killed, and failure = $(value failure)"; fi
    if [ "$verdict" = pass ]; then
        run "$@" || verdict="after the kills: status $status"
        steps said >after
        if [ "$verdict" = pass ] && { [ "$(wc -l <after)" -ge "$(wc -l <right)" ] || ! tail -n "$(wc -l <after)" right | cmp -s - after; }; then
            verdict="after the kills other steps"
        fi
    fi
    end "$verdict"
    echo "$verdict"
}

row() { # NAME WORDS COMMAND...: one program with each library
    local name=$1 words=$2 cells="" verdict
    shift 2
    for lib in ckpt fti; do
        if [ ! -x "$checkout/$mpi/$lib/$name" ] || { [ "$lib" = fti ] && [ "$1" = killed ]; }; then
            cells+=" - |"
            continue
        fi
        verdict=$("$@")
        [ "$verdict" = pass ] || echo "- $mpi, $lib, $name, $words: $verdict" >>"$work/notes"
        echo "$mpi $lib $name: $verdict" >&2
        cells+=" ${verdict%%:*} |"
    done
    echo "| $name | $words |$cells"
}

programs() {
    local level
    echo "| program | what is done | ckpt | fti |"
    echo "|---|---|---|---|"
    row heatdis "killed three times, goes on to its end" killed heatdis 1 config.fti
    row fheatdis "killed three times, goes on to its end" killed fheatdis
    for level in 1 2 3 4; do
        row addInArray "ends at a checkpoint of level $level, which is kept; goes on" twice addInArray keep_last_ckpt 1 -- "$level" 1 -- "$level" 0
        row recoverVar "ends after a checkpoint of level $level; recovers one by one" twice recoverVar -- 1 "$level" 1 -- 0 "$level" 1
        row recoverName "ends after a checkpoint of level $level; recovers by names" twice recoverName -- 1 "$level" 1 -- 0 "$level" 1
    done
    row heatdisCase "ends in the middle, goes on" twice heatdisCase keep_last_ckpt 1 ckpt_l1 1 ckpt_l2 2 ckpt_l3 3 ckpt_l4 4 fast_forward 5 -- 1 -- 0
    row complex "composite types from Fortran" twice complex -- 1 -- 0
    row ckpt_f_primitives "types of Fortran" twice ckpt_f_primitives -- 1 -- 0
    row ckpt_c_primitives "the same in C" twice ckpt_c_primitives -- 1 -- 0
    row getConfig "FTI_GetConfig" once getConfig
}

# ---- the result ----------------------------------------------------------------------------------

# part TITLE WORDS FUNCTION: a table for each MPI.
part() {
    echo "## $1"
    echo
    echo "$2"
    for mpi in "${mpis[@]}"; do
        echo
        echo "### $mpi"
        echo
        "$3"
    done
    echo
}

: >"$work/notes"
{
    echo "# Programs of FTI on libckpt"
    echo
    echo "$(mpiexec.mpich --version | sed -n 's/^ *Version: */MPICH /p'); Open MPI $(mpiexec.openmpi --version | sed -n '1s/.* //p'). Written by \`bench/fti_suite.sh\` on $(date -u +%Y-%m-%d): 16 ranks on 4 nodes of 4 (local_test = 1), groups of 4 nodes, head = 0, ckpt_io = 1. \"ckpt\" is libckpt_fti.so, \"fti\" FTI's own library."
    echo
    [[ $only != *levels* ]] || part "Several levels" "FTI's test program of several levels, 96 cases for each library: it makes a checkpoint of a level and ends; files are removed or overwritten by FTI's names of them; it starts again, and is to recover, each number as it was, or is to fail. Each row is four cases: with and without an incomplete checkpoint (icp), and with sizes that are the same on all ranks and others." levels
    [[ $only != *programs* ]] || part "Other programs" "What a killed program says of its steps is compared with an undisturbed run, of FTI's own library where it is there; the others check what they recover themselves." programs
    if [ -s "$work/notes" ]; then
        echo "## What did not pass"
        echo
        cat "$work/notes"
    fi
} >"$work/result"
cp "$work/result" "$result"
[ ! -s "$work/notes" ] || fail "some cases did not pass: see $result"
