#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# test-verbs-vm.sh BUILD: tests of programs on InfiniBand verbs above a kernel's adapter (scripts/verbs-vm.sh), in parts, each
# in a machine of its own.
#
#   VM_PARTS="NAME..."  only these parts: the others' logs stay as they are
#   ONLY=REGEXP         only the tests whose name it matches, in one machine; nothing is kept
#
# What all parts said is joined in bench/results/verbs-vm.txt, with a table in verbs-vm.md (scripts/vm-parts.sh).
#
# Where this machine cannot, it says why and names the tests, which are skipped.
set -uo pipefail

go=${GO:-go}
build=$(cd "$1" && pwd) || exit 1
cd "$(dirname "$0")/.." || exit 1

# shellcheck disable=SC2034 # they are for vm-parts.sh
suite=verbs-vm lacks='no rdma_rxe'
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
. scripts/vm-parts.sh

mkdir -p "$dir/bin" || exit 1
"$go" test -c -o "$dir/verbs.test" ./internal/e2e/verbs || exit 1
LIBCKPT_VERBS_FOR_VM=$dir/bin "$dir/verbs.test" || exit 1
export LIBCKPT_VERBS_BED=$dir/bin LIBCKPT_BUILD=$build

machine() {
    # shellcheck disable=SC2016 # expanded there
    scripts/verbs-vm.sh "$dir" bash -c 'cd "$1" && exec "$2" -test.v -test.timeout 150m -test.run "$3"' - \
        "$PWD/internal/e2e/verbs" "$dir/verbs.test" "${2:-^(${tests[$1]// /|})\$}"
}

heading() {
    echo '# Programs on verbs above a kernel'"'"'s adapter'
    echo
    echo "$(sed -n 's/^verbs-vm: \(Linux [^,]*\), .*/\1/p' bench/results/verbs-vm.txt | sort -u | tail -n 1), rdma_rxe over a veth device, in QEMU ($(qemu-system-x86_64 --version | sed -n '1s/.*version \([0-9.]*\).*/\1/p'), ${VM_ACCEL:-tcg}) on $(sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' /etc/os-release)."
    echo "Before each restart the device is deleted and made again, and some of its numbers are spent. The log is in verbs-vm.txt."
}

run_parts
