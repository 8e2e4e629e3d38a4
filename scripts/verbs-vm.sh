#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# verbs-vm.sh DIR COMMAND...: runs a command above a kernel that has InfiniBand verbs: Debian's, with its adapter in
# software (rdma_rxe), in a virtual machine (scripts/vm.sh, whose words in the environment and status it has).
#
# In it the command finds a network v0 (10.9.0.1/24) with the device rxe0 on it, and RXE_NETDEV=v0, which says on which
# network a device can be made again.
set -uo pipefail

[ $# -ge 2 ] || { echo "usage: verbs-vm.sh DIR COMMAND..." >&2; exit 2; }
dir=$1
shift
command -v rdma >/dev/null || { echo "verbs-vm: there is no rdma: make test-verbs-vm installs it" >&2; exit 125; }
# shellcheck disable=SC2016 # expanded there
VM_MODULES=rdma_rxe exec "$(dirname "$0")/vm.sh" "$dir" bash -c '
    fail() { echo "verbs-vm: $*"; exit 1; }
    modprobe rdma_rxe && modprobe rdma_ucm || fail "no rdma_rxe"
    ip link add v0 type veth peer name v1 && ip addr add 10.9.0.1/24 dev v0 &&
        ip link set v0 up && ip link set v1 up && rdma link add rxe0 type rxe netdev v0 || fail "no rxe0"
    # Until the addresses are there.
    for _ in $(seq 100); do [ -e /sys/class/infiniband/rxe0/ports/1/gids/1 ] && grep -q 0a09:0001 /sys/class/infiniband/rxe0/ports/1/gids/* && break; sleep 0.2; done
    echo "verbs-vm: Linux $(uname -r), $(rdma link show | tr -s " ")"
    RXE_NETDEV=v0 exec "$@"' - "$@"
