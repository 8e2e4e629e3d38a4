#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# test-verbs-vm.sh BUILD: tests of programs on InfiniBand verbs above a kernel's adapter (scripts/verbs-vm.sh). The log goes
# to bench/results/verbs-vm.txt, a table to verbs-vm.md. ONLY=REGEXP runs some of the tests; then nothing is written there.
#
# Where this machine cannot, it says why and names the tests, which are skipped.
set -uo pipefail

go=${GO:-go}
build=$(cd "$1" && pwd) || exit 1
cd "$(dirname "$0")/.." || exit 1

tests=(TestDevice TestPingpongNatively TestPingpongUnderCkptrun TestPingpongSaved TestPingpongWithoutDevice
    TestShuffleNatively TestShuffleUnderCkptrun TestShuffleSaved TestShuffleAlternating TestEdgesContinued TestForeignPeer
    TestPerftestUnderCkptrun TestPerftestSaved)
regexp=${ONLY:-^($(IFS='|'; echo "${tests[*]}"))\$}

dir=$build/verbs-vm
rm -rf "$dir" && mkdir -p "$dir/bin" || exit 1
"$go" test -c -o "$dir/verbs.test" ./internal/e2e/verbs || exit 1
LIBCKPT_VERBS_FOR_VM=$dir/bin "$dir/verbs.test" || exit 1

export LIBCKPT_VERBS_BED=$dir/bin LIBCKPT_BUILD=$build
began=$(date +%s)
scripts/verbs-vm.sh "$dir" bash -c 'cd "$1" && exec "$2" -test.v -test.timeout 150m -test.run "$3"' - \
    "$PWD/internal/e2e/verbs" "$dir/verbs.test" "$regexp" 2>&1 | tee "$dir/log"
status=${PIPESTATUS[0]}
if [ "$status" = 125 ]; then
    printf 'no rdma_rxe: %s\n' "${tests[@]}"
    echo "test-verbs-vm: the ${#tests[@]} tests above were skipped: $(tail -n 1 "$dir/log")"
    exit 0
fi
[ -z "${ONLY:-}" ] || exit "$status"

# The screen of a serial line has control characters, paths of this machine, and the kernel's last words.
sed -e 's/\x1b[^A-Za-z]*[A-Za-z]//g' -e "s,$PWD/,,g" -e '/SeaBIOS\|Booting from\|sysrq: \|reboot: /d' "$dir/log" >bench/results/verbs-vm.txt
{
    echo '<!-- Written by `make test-verbs-vm`. -->'
    echo '# Programs on verbs above a kernel'"'"'s adapter'
    echo
    echo "$(sed -n 's/^verbs-vm: \(Linux [^,]*\), .*/\1/p' bench/results/verbs-vm.txt), rdma_rxe over a veth device, in QEMU ($(qemu-system-x86_64 --version | sed -n '1s/.*version \([0-9.]*\).*/\1/p'), ${VERBS_VM_ACCEL:-tcg}) on $(sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' /etc/os-release)."
    [ -s "$dir/.status" ] || printf '%s\n' "The machine was stopped before all tests had run: what is not in the table has not been tried." ""
    echo "Before each restart the device is deleted and made again, and some of its numbers are spent. It took $(($(date +%s) - began)) s. The log is in verbs-vm.txt."
    echo
    echo '| test | result | s |'
    echo '|---|---|---|'
    sed -nE 's/^ *--- (PASS|FAIL|SKIP): ([^ ]+) \(([0-9.]+)s\).*/| `\2` | \1 | \3 |/p' bench/results/verbs-vm.txt |
        sed -e 's/| PASS |/| passed |/' -e 's/| FAIL |/| **failed** |/' -e 's/| SKIP |/| skipped |/'
} >bench/results/verbs-vm.md
echo "test-verbs-vm: $([ "$status" = 0 ] && echo passed || echo "FAILED, status $status")"
exit "$status"
