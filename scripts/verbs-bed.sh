#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# verbs-bed.sh DIR PROVIDER COMMAND...: runs a command where the soft adapter is a device of libibverbs.
#
# The command gets a /dev and a network of its own, in namespaces that end with it: the device node and the ports of
# programs are nobody else's. DIR gets the tree that libibverbs reads instead of /sys, and the directory by which
# adapters find each other; it is not removed. PROVIDER is libckptsoft-rdmav34.so.
#
# SOFT_LID and SOFT_GUID (four groups of four hex digits) make another device: two beds in one DIR differ by them.
# Status 125: this machine cannot; the reason is on stderr. Otherwise it is the command's.
set -uo pipefail

cannot() { echo "verbs-bed: $*" >&2; exit 125; }

if [ "${VERBS_BED_INSIDE:-}" != "$$" ]; then
    [ $# -ge 3 ] || { echo "usage: verbs-bed.sh DIR PROVIDER COMMAND..." >&2; exit 2; }
    [ "$(id -u)" = 0 ] || cannot "namespaces and device nodes need root"
    # With RDMA in the kernel libibverbs asks the kernel for devices, and does not read the tree.
    [ ! -e /sys/class/infiniband_verbs/abi_version ] || cannot "this kernel has RDMA: its devices would be taken"
    command -v ip >/dev/null || cannot "there is no ip (iproute2)"
    unshare --mount --net --propagation private true 2>/dev/null || cannot "no namespaces here (unshare)"
    # exec keeps the process id, so this is not taken for inside by anybody else.
    VERBS_BED_INSIDE=$$ exec unshare --mount --net --propagation private "$0" "$@"
fi
unset VERBS_BED_INSIDE

dir=$(mkdir -p "$1" && cd "$1" && pwd) || cannot "$1 cannot be made"
# The adapter is compiled against it by hand (capi/verbs/soft/provider/abi34.h).
verbs=$(PATH=$PATH:/sbin ldconfig -p | awk '$1 == "libibverbs.so.1" { print $NF; exit }')
grep -qs verbs_register_driver_34 "$verbs" || cannot "libibverbs ($verbs) has not the private ABI of rdma-core 44 to 56"
provider=$(realpath -m "$(dirname "$2")")/$(basename "$2" -rdmav34.so)
[ -r "$provider-rdmav34.so" ] || { echo "verbs-bed: there is no $provider-rdmav34.so: make test-verbs builds it" >&2; exit 2; }
shift 2

ip link set lo up || cannot "the loopback device of a network namespace cannot be used"

# A /dev like the machine's, in which nodes can be made that nobody else sees.
old=$dir/dev.old
mkdir -p "$old" && mount --rbind /dev "$old" && mount -t tmpfs -o mode=755 dev /dev || cannot "/dev cannot be mounted anew"
for entry in "$old"/*; do
    name=/dev/${entry##*/}
    if [ -L "$entry" ] || [ ! -d "$entry" ]; then
        cp -a "$entry" "$name" 2>/dev/null || { : >"$name" && mount --bind "$entry" "$name"; } || cannot "$name cannot be made"
    elif [ "${entry##*/}" != infiniband ]; then
        mkdir "$name" && mount --rbind "$entry" "$name" || cannot "$name cannot be mounted"
    fi
done
umount -l "$old" && rmdir "$old" || cannot "$old cannot be unmounted"
# libibverbs opens it and compares the number with that in the tree; it is /dev/null's.
mkdir /dev/infiniband && mknod -m 666 /dev/infiniband/uverbs0 c 1 3 2>/dev/null || cannot "no device nodes can be made here"
{ : >/dev/infiniband/uverbs0; } 2>/dev/null || cannot "device nodes cannot be opened here"

lid=${SOFT_LID:-1} guid=${SOFT_GUID:-0253:4f46:5400:0001}
sys=$dir/sys-$lid
put() { mkdir -p "$(dirname "$sys/class/$1")" && echo "$2" >"$sys/class/$1"; }
put infiniband_verbs/abi_version 6
put infiniband_verbs/uverbs0/ibdev soft0
put infiniband_verbs/uverbs0/dev 1:3
put infiniband_verbs/uverbs0/abi_version 1
put infiniband/soft0/node_type "1: CA"
put infiniband/soft0/node_guid "$guid"
put infiniband/soft0/sys_image_guid "$guid"
put infiniband/soft0/fw_ver soft
put infiniband/soft0/ports/1/state "4: ACTIVE"
put infiniband/soft0/ports/1/lid "$lid"
put infiniband/soft0/ports/1/link_layer InfiniBand
put infiniband/soft0/ports/1/rate "100 Gb/sec (4X EDR)"
put infiniband/soft0/ports/1/gids/0 "fe80:0000:0000:0000:$guid"
put infiniband/soft0/ports/1/pkeys/0 0xffff
put infiniband/soft0/ports/1/gid_attrs/types/0 "IB/RoCE v1"

mkdir -p "$dir/wire"
export SYSFS_PATH=$sys IBV_DRIVERS=$provider CKPTSOFT_DIR=$dir/wire
exec "$@"
