#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# test-verbs-vm.sh BUILD: tests of programs on InfiniBand verbs above a kernel's adapter (scripts/verbs-vm.sh), in parts, each
# in a machine of its own.
#
#   VM_PARTS="NAME..."  only these parts: the others' logs stay as they are
#   ONLY=REGEXP         only the tests whose name it matches, in one machine; nothing is kept
#
# What all parts said is joined in bench/results/verbs-vm.txt, with a table in verbs-vm.md,
# which says of each part when it ran, and of what; a part that did not run is named there.
#
# Where this machine cannot, it says why and names the tests, which are skipped.
set -uo pipefail

go=${GO:-go}
build=$(cd "$1" && pwd) || exit 1
cd "$(dirname "$0")/.." || exit 1

parts=(pingpongs saved shuffle edges perftest connections pyverbs ucx)
declare -A tests=(
    [pingpongs]='TestDevice TestPingpongNatively TestPingpongUnderCkptrun'
    [saved]='TestPingpongSaved TestPingpongWithoutDevice'
    [shuffle]='TestShuffleNatively TestShuffleUnderCkptrun TestShuffleSaved TestShuffleAlternating'
    [edges]='TestEdgesContinued TestAddressChanged TestForeignPeer'
    [perftest]='TestPerftestUnderCkptrun TestPerftestSaved'
    [connections]='TestConnectionsUnderCkptrun TestConnectionsSaved TestPingsSaved TestPerftestOfConnectionsSaved TestIDsHalfMade TestConnectionsOfTheKernel'
    [pyverbs]='TestPyverbs'
    [ucx]='TestUCXSaved'
)
read -ra wanted <<<"${VM_PARTS:-${parts[*]}}"
for part in "${wanted[@]}"; do
    [ -n "${tests[$part]:-}" ] || { echo "test-verbs-vm: there is no part $part: ${parts[*]}" >&2; exit 2; }
done

# What is tested, with which the parts of the table are marked.
tree=$(git rev-parse --short=10 HEAD 2>/dev/null || echo '?')
git diff --quiet HEAD -- . ':!bench/results' 2>/dev/null || tree+=' and changes'

dir=$build/verbs-vm
logs=$dir/logs
mkdir -p "$dir/bin" "$logs" || exit 1
"$go" test -c -o "$dir/verbs.test" ./internal/e2e/verbs || exit 1
LIBCKPT_VERBS_FOR_VM=$dir/bin "$dir/verbs.test" || exit 1
export LIBCKPT_VERBS_BED=$dir/bin LIBCKPT_BUILD=$build

# machine LOG REGEXP: the tests of these names in a machine.
machine() {
    scripts/verbs-vm.sh "$dir" bash -c 'cd "$1" && exec "$2" -test.v -test.timeout 150m -test.run "$3"' - \
        "$PWD/internal/e2e/verbs" "$dir/verbs.test" "$2" 2>&1 | tee "$1"
    return "${PIPESTATUS[0]}"
}

skipped() {
    for part in "${wanted[@]}"; do
        for test in ${tests[$part]}; do echo "no rdma_rxe: $test"; done
    done
    echo "test-verbs-vm: the tests above were skipped: $(tail -n 1 "$1")"
    exit 0
}

if [ -n "${ONLY:-}" ]; then
    machine "$dir/only.log" "$ONLY"
    status=$?
    [ "$status" != 125 ] || skipped "$dir/only.log"
    exit "$status"
fi

# rows PART: a line of the table for each test, with the reason when it was skipped.
rows() {
    awk '
        /^=== (RUN|NAME)/ { of = $3 }
        /^ +[a-z_]+_test\.go:[0-9]+: / { said[of] = $0; sub(/^[^:]*:[0-9]+: /, "", said[of]) }
        match($0, /^ *--- (PASS|FAIL|SKIP): [^ ]+ \([0-9.]+s\)/) {
            n = split($0, word, " ")
            result = word[2] == "PASS:" ? "passed" : word[2] == "FAIL:" ? "**failed**" : "skipped: " said[word[3]]
            gsub(/[()s]/, "", word[4])
            print "| `" word[3] "` | " result " | " word[4] " |"
        }' "$logs/$1.txt"
}

# results joins what is there: a run that is ended before its end leaves what it has found out.
results() {
    local part
    for part in "${parts[@]}"; do
        [ -e "$logs/$part.txt" ] || continue
        echo "== $part | $(cat "$logs/$part.ran")"
        cat "$logs/$part.txt"
    done >bench/results/verbs-vm.txt
    {
        echo '<!-- Written by `make test-verbs-vm`. -->'
        echo '# Programs on verbs above a kernel'"'"'s adapter'
        echo
        echo "$(sed -n 's/^verbs-vm: \(Linux [^,]*\), .*/\1/p' bench/results/verbs-vm.txt | sort -u | tail -n 1), rdma_rxe over a veth device, in QEMU ($(qemu-system-x86_64 --version | sed -n '1s/.*version \([0-9.]*\).*/\1/p'), ${VERBS_VM_ACCEL:-tcg}) on $(sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' /etc/os-release)."
        echo "Before each restart the device is deleted and made again, and some of its numbers are spent. The log is in verbs-vm.txt."
        echo
        echo '| part | result | s | began (UTC) | of |'
        echo '|---|---|---|---|---|'
        for part in "${parts[@]}"; do
            echo "| $part | $(cat "$logs/$part.ran" 2>/dev/null || echo 'not run | | |') |"
        done
        for part in "${parts[@]}"; do
            [ -e "$logs/$part.txt" ] || continue
            printf '\n## %s\n\n| test | result | s |\n|---|---|---|\n' "$part"
            rows "$part"
        done
    } >bench/results/verbs-vm.md
}

# What other parts have said, where it is not in this BUILD.
awk -v logs="$logs" '
    /^== [a-z]+ \| / { log_of = logs "/" $2; known = !system("test -e " log_of ".txt"); sub(/^== [a-z]+ \| /, ""); if (!known) print >log_of ".ran"; next }
    log_of && !known { print >log_of ".txt" }' bench/results/verbs-vm.txt

failed=()
for part in "${wanted[@]}"; do
    echo "== $part"
    rm -f "$logs/$part".*
    began=$(date +%s)
    machine "$dir/part.log" "^(${tests[$part]// /|})\$"
    status=$?
    [ "$status" != 125 ] || skipped "$dir/part.log"
    what=$([ "$status" = 0 ] && echo passed || echo "**failed**, status $status")
    [ -s "$dir/.status" ] || what="**stopped** before all tests had run"
    echo "$what | $(($(date +%s) - began)) | $(date -u -d "@$began" '+%d %b %H:%M') | $tree" >"$logs/$part.ran"
    # The screen of a serial line has control characters, paths of this machine, and the kernel's last words.
    sed -e 's/\x1b[^A-Za-z]*[A-Za-z]//g' -e "s,$build,build,g" -e "s,$PWD/,,g" -e '/SeaBIOS\|Booting from\|sysrq: \|reboot: \|\.inside: line/d' \
        "$dir/part.log" >"$logs/$part.txt"
    [ "$status" = 0 ] || failed+=("$part")
    results
done
[ "${#failed[@]}" = 0 ] && echo "test-verbs-vm: passed" && exit 0
echo "test-verbs-vm: FAILED: ${failed[*]}"
exit 1
