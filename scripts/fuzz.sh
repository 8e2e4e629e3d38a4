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

log=$(mktemp)
trap 'rm -f "$log"' EXIT
targets=0
failed=()
while read -r package folder; do
    mapfile -t names < <($go test -list '^Fuzz' "$package" 2>/dev/null | grep '^Fuzz')
    for name in "${names[@]}"; do
        [[ $package.$name =~ ${FUZZ:-.} ]] || continue
        targets=$((targets + 1))
        printf '\n== %s.%s, %s\n' "$package" "$name" "$time"
        # Making an input smaller may take for ever: so many tries show what there is to see.
        $go test -run '^$' -fuzz "^$name\$" -fuzztime "$time" -fuzzminimizetime 200x -parallel "$procs" -timeout 0 "$package" 2>&1 | tee "$log" ||
            over "$log" || failed+=("$package.$name")
        [ "$keep" -gt 0 ] && keep_some "$package" "$folder" "$name"
    done
done < <($go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}' ./...)

echo
[ "$targets" -gt 0 ] || { echo "fuzz: no target matches ${FUZZ:-.}" && exit 1; }
if [ ${#failed[@]} -gt 0 ]; then
    echo "fuzz: FAILED: ${failed[*]}"
    exit 1
fi
echo "fuzz: $targets targets, none failed"
