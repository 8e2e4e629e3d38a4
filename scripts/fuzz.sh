#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# fuzz.sh: gives every fuzz target of the repository some time, one after the other.
#
#   FUZZTIME=30s   for each target
#   FUZZ=REGEXP    only those whose "package.Target" it matches
#   FUZZPROCS=N    workers at a time (all processors)
#   FUZZKEEP=N     copies up to N small inputs that reached new code into the target's testdata/fuzz, where
#                  every `go test` runs them from then on
#   FUZZLOG=FILE   adds a line for each run of a target: when, commit, sources, processor seconds, package.Target
#   FUZZGOAL=N     with FUZZLOG: passes a target over that has N processor minutes there, of the same sources, and
#                  goes round until all have them
#
# Sources are a digest of the files of this module, tests apart, in which anything runs when the target is given its kept
# inputs: minutes that a parser was given stay its own until one of its own files is changed, whatever else is.  A file
# that only new inputs reach is not among them; one that is kept (FUZZKEEP) brings it in.
#
# What makes a target fail is written to its testdata/fuzz too.  Go keeps all that reached new code in its
# cache, and begins with it the next time.
set -uo pipefail

go=${GO:-go}
cd "$(dirname "$0")/.." || exit 1
time=${FUZZTIME:-30s}
procs=${FUZZPROCS:-$(nproc)}
keep=${FUZZKEEP:-0}
cache=$($go env GOCACHE)/fuzz
largest=600 # bytes of an input that is kept
log_to=${FUZZLOG:-}
goal=${FUZZGOAL:-0}

# keep_some PACKAGE FOLDER TARGET: some of all sizes, those that are not there yet.
keep_some() {
    local from=$cache/$1/$3 to=$2/testdata/fuzz/$3 input
    [ -d "$from" ] || return 0
    mkdir -p "$to"
    find "$from" -type f -size -"$largest"c -printf '%s %p\n' | sort -n |
        awk -v k="$keep" '{ line[NR] = $2 } END { if (k > NR) k = NR; for (i = 0; i < k; i++) print line[int((i + 0.5) * NR / k) + 1] }' |
        while read -r input; do
            cp -n "$input" "$to/"
    done
    rmdir --ignore-fail-on-non-empty "$to"
}

# Go calls it a failure when the time is over in the middle of an input.
over() { grep -q 'context deadline exceeded' "$1" && ! grep -q 'Failing input' "$1"; }

# executed PACKAGE FOLDER TARGET: the files of this module that the target runs, as paths from here.  Of a package with C, its
# C files and those that they include; headers are no more among them than Go's files that only declare.
executed() {
    local module packages go_files folders c
    module=$($go list -m)
    packages=$($go list -deps -test -f '{{if .Module}}{{if and .Module.Main (not .ForTest)}}{{.ImportPath}}{{end}}{{end}}' "$1" |
        grep -v '\.test$' | paste -sd,)
    $go test -count=1 -run "^$3\$" -coverpkg="$packages" -coverprofile="$profile" "$1" >/dev/null 2>&1 || return 1
    go_files=$(awk 'NR > 1 && $NF > 0 { sub(/:.*/, "", $1); print $1 }' "$profile" | sed "s,^$module/,," | sort -u)
    [ -n "$go_files" ] || return 1
    folders=$({ xargs -n1 dirname <<<"$go_files" && echo "${2#"$PWD/"}"; } | sort -u)
    c=$(for folder in $folders; do find "$folder" -maxdepth 1 -name '*.[cS]'; done)
    {
        echo "$go_files"
        # shellcheck disable=SC2086 # a list of paths without blanks
        [ -z "$c" ] || ${CC:-gcc} -MM -Iinclude -Icapi $c | tr ' \\' '\n' | grep '\.[cS]$' | xargs realpath --relative-to=.
    } | sort -u
}

# sources PACKAGE FOLDER TARGET: the digest of these, in $digest; it is made once.
declare -A digests
sources() {
    if [ -z "${digests[$1.$3]:-}" ]; then
        digests[$1.$3]=$(set -o pipefail && executed "$@" | xargs cat | sha256sum | cut -c1-16) ||
            digests[$1.$3]=unknown # it fails with an input that is kept, and so will the run
    fi
    digest=${digests[$1.$3]}
}

# given DIGEST TARGET: the processor seconds that the log has for it.
given() { awk -v d="$1" -v t="$2" '$3 == d && d != "unknown" && $5 == t { n += $4 } END { printf "%d", n }' "$log_to" 2>/dev/null || echo 0; }

log=$(mktemp)
used=$(mktemp)
profile=$(mktemp)
trap 'rm -f "$log" "$used" "$profile"' EXIT
TIMEFORMAT='%U %S'
commit=$(git rev-parse --short HEAD 2>/dev/null || echo -)

# run PACKAGE FOLDER TARGET: for the time of one run.
run() {
    printf '\n== %s.%s, %s\n' "$1" "$3" "$time"
    # Making an input smaller may take for ever: so many tries show what there is to see.
    { time $go test -run '^$' -fuzz "^$3\$" -fuzztime "$time" -fuzzminimizetime 200x -parallel "$procs" -timeout 0 "$1" >"$log" 2>&1; } 2>"$used" ||
        over "$log" || failed+=("$1.$3")
    cat "$log"
    [ -z "$log_to" ] || sources "$1" "$2" "$3"
    [ -z "$log_to" ] || printf '%s %s %s %s %s\n' "$(date -u +%FT%TZ)" "$commit" "$digest" \
        "$(awk '{ printf "%.0f", $1 + $2 }' "$used")" "$1.$3" >>"$log_to"
    [ "$keep" -gt 0 ] && keep_some "$1" "$2" "$3"
}

targets=0
failed=()
list=()
while read -r package folder; do
    while read -r name; do
        [[ $package.$name =~ ${FUZZ:-.} ]] && list+=("$package $folder $name")
    done < <($go test -list '^Fuzz' "$package" 2>/dev/null | grep '^Fuzz')
done < <($go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}' ./...)

targets=${#list[@]}
while :; do
    short=0
    for entry in "${list[@]}"; do
        read -r package folder name <<<"$entry"
        if [ -n "$log_to" ] && [ "$goal" -gt 0 ]; then
            sources "$package" "$folder" "$name"
            [ "$(given "$digest" "$package.$name")" -ge $((60 * goal)) ] && continue
            short=1
        fi
        run "$package" "$folder" "$name"
    done
    [ "$short" = 1 ] && [ ${#failed[@]} -eq 0 ] || break
done

echo
[ "$targets" -gt 0 ] || { echo "fuzz: no target matches ${FUZZ:-.}" && exit 1; }
if [ ${#failed[@]} -gt 0 ]; then
    echo "fuzz: FAILED: ${failed[*]}"
    exit 1
fi
echo "fuzz: $targets targets, none failed"
