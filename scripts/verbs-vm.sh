#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# verbs-vm.sh DIR COMMAND...: runs a command above a kernel that has InfiniBand verbs: Debian's, with its adapter in
# software (rdma_rxe), in a virtual machine.
#
# The machine sees the files of this one, read only; what it writes goes to its memory and is gone at its end, but in DIR.
# In it the command finds a network v0 (10.9.0.1/24) with the device rxe0 on it, and RXE_NETDEV=v0, which says on which
# network a device can be made again. It runs as root, in DIR, and what it prints comes out here.
#
# The kernel's package is fetched by apt-get and unpacked into VERBS_VM_CACHE (~/.cache/libckpt/vm); nothing is installed.
# Without KVM the processor is emulated, which is some ten times slower: VERBS_VM_ACCEL=kvm|tcg says which, else what
# works is taken. VERBS_VM_MEMORY (2G).
#
# Status 125: this machine cannot; the reason is on stderr. 124: the machine did not come to its end within
# VERBS_VM_LIMIT (3h). Otherwise it is the command's.
set -uo pipefail

cannot() { echo "verbs-vm: $*" >&2; exit 125; }

[ $# -ge 2 ] || { echo "usage: verbs-vm.sh DIR COMMAND..." >&2; exit 2; }
dir=$(mkdir -p "$1" && cd "$1" && pwd) || cannot "$1 cannot be made"
shift
cache=${VERBS_VM_CACHE:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/libckpt/vm}

[ "$(id -u)" = 0 ] || cannot "files of this machine that root alone can read are needed: run it as root"
for tool in qemu-system-x86_64 busybox cpio modprobe depmod dpkg apt-get apt-cache ip rdma; do
    command -v "$tool" >/dev/null || cannot "there is no $tool: make setup with \`test-verbs-vm\` installs it"
done
file -L "$(command -v busybox)" 2>/dev/null | grep -q dynamically && cannot "busybox is not linked statically (busybox-static)"

# ---- a kernel -------------------------------------------------------------------------------------

package=$(apt-cache depends linux-image-amd64 2>/dev/null | sed -n 's/.*Depends: \(linux-image-.*\)/\1/p' | head -n 1)
if [ -n "$package" ]; then
    version=${package#linux-image-}
else # no lists of packages: one that was fetched before
    version=$(cd "$cache" 2>/dev/null && printf '%s\n' */boot/vmlinuz-* | sed -n 's,.*/boot/vmlinuz-,,p' | sort -V | tail -n 1)
fi
[ -n "$version" ] || cannot "apt-get knows no kernel (linux-image-amd64)"
kernel=$cache/$version
if [ ! -e "$kernel/unpacked" ]; then
    new=$(mkdir -p "$cache" && mktemp -d "$cache/new.XXXXXX") || cannot "$cache cannot be written"
    trap 'rm -rf "$new"' EXIT
    echo "verbs-vm: fetching linux-image-$version into $cache" >&2
    (cd "$new" && chmod 755 . && apt-get -qq download "linux-image-$version" >&2) || cannot "the kernel's package could not be fetched"
    dpkg -x "$new"/linux-image-*.deb "$new/k" && depmod -b "$new/k" "$version" && rm -rf "$new/k/usr/share/doc" &&
        touch "$new/k/unpacked" && rm -rf "$kernel" && mv "$new/k" "$kernel" || cannot "the kernel's package could not be unpacked"
fi
[ -n "$(find "$kernel/lib/modules" -name 'rdma_rxe.ko*')" ] || cannot "Linux $version has no rdma_rxe"

# ---- what starts first: modules that the files of this machine are reached by ------------------------

first=$(mktemp -d) || exit 1
trap 'rm -rf "${new:-}" "$first"' EXIT
mkdir "$first/bin" "$first/mods"
cp "$(command -v busybox)" "$first/bin/busybox"
for module in virtio_pci 9pnet_virtio 9p overlay; do
    modprobe -d "$kernel" -S "$version" --show-depends "$module"
done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' | while read -r file; do
    case $file in
    *.xz) xz -dc "$file" >"$first/mods/$(basename "$file" .xz)" ;;
    *) cp "$file" "$first/mods/" ;;
    esac
    basename "$file" .xz
done >"$first/mods/order"
cat >"$first/init" <<'INIT'
#!/bin/busybox sh
b=/bin/busybox
fail() { echo "verbs-vm: $*"; $b poweroff -f; }
$b mkdir -p /proc /sys /dev /lower /rw /new
$b mount -t proc proc /proc
for m in $($b cat /mods/order); do $b insmod /mods/$m || fail "module $m"; done
how=trans=virtio,version=9p2000.L,msize=512000
$b mount -t 9p -o $how,cache=loose,ro root /lower || fail "no files of the host"
$b mount -t tmpfs -o size=80% rw /rw && $b mkdir /rw/up /rw/work
$b mount -t overlay -o lowerdir=/lower,upperdir=/rw/up,workdir=/rw/work all /new || fail "no overlay"
cd /new
for d in proc sys dev run; do $b mkdir -p $d; done
$b mount -t proc proc proc; $b mount -t sysfs sys sys; $b mount -t devtmpfs dev dev; $b mount -t tmpfs run run
$b mkdir -p dev/shm dev/pts; $b mount -t tmpfs shm dev/shm; $b mount -t devpts pts dev/pts
dir=$($b sed 's/.*verbs_vm_dir=\([^ ]*\).*/\1/' /proc/cmdline)
$b mount -t 9p -o $how,cache=mmap share "/new$dir" || fail "no $dir"
exec $b switch_root /new /bin/bash "$dir/.inside"
INIT
chmod +x "$first/init"
(cd "$first" && find . | cpio --quiet -o -H newc | gzip -1) >"$dir/.first.gz" || cannot "no initramfs"

# ---- what then runs in it ---------------------------------------------------------------------------

rm -f "$dir/.status" "$dir/.began"
{
    printf 'kernel=%q\ndir=%q\n' "$kernel" "$dir"
    # The caller's words for tests and programs; of its environment else nothing.
    for name in $(compgen -e | grep -E '^(CKPT|LIBCKPT|SHUFFLE)'); do printf 'export %s=%q\n' "$name" "${!name}"; done
    cat <<'INSIDE'
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/run/tmp LC_ALL=C TMPDIR=/run/tmp RXE_NETDEV=v0
end() { echo "$1" >"$dir/.status"; sync; echo o >/proc/sysrq-trigger; sleep 60; }
fail() { echo "verbs-vm: $*"; end 1; }
: >"$dir/.began"
mkdir -p /lib/modules /run/tmp && chmod 1777 /run/tmp
# Two programs that poll share one processor: they take turns of less than the 4 ms of a tick.
mount -t debugfs debugfs /sys/kernel/debug && { echo HRTICK >/sys/kernel/debug/sched/features
    echo 200000 >/sys/kernel/debug/sched/min_granularity_ns; echo 400000 >/sys/kernel/debug/sched/latency_ns; } 2>/dev/null
mount --bind "$kernel/lib/modules" /lib/modules && modprobe rdma_rxe && modprobe rdma_ucm || fail "no rdma_rxe"
ip link set lo up && ip link add v0 type veth peer name v1 && ip addr add 10.9.0.1/24 dev v0 &&
    ip link set v0 up && ip link set v1 up && rdma link add rxe0 type rxe netdev v0 || fail "no rxe0"
# Until the addresses are there.
for _ in $(seq 100); do [ -e /sys/class/infiniband/rxe0/ports/1/gids/1 ] && grep -q 0a09:0001 /sys/class/infiniband/rxe0/ports/1/gids/* && break; sleep 0.2; done
cd "$dir" || fail "no $dir"
echo "verbs-vm: Linux $(uname -r), $(rdma link show | tr -s ' ')"
INSIDE
    printf '%q ' "$@"
    echo '</dev/null'
    echo 'end $?'
} >"$dir/.inside"

# ---- the machine -------------------------------------------------------------------------------------

accel=${VERBS_VM_ACCEL:-tcg}
machine=(-accel "tcg,thread=multi" -cpu max)
[ "$accel" = tcg ] || machine=(-accel "$accel" -cpu host)
timeout --foreground "${VERBS_VM_LIMIT:-3h}" qemu-system-x86_64 -M q35 "${machine[@]}" -smp 1 -m "${VERBS_VM_MEMORY:-2G}" \
    -nodefaults -no-user-config -nographic -serial stdio -no-reboot \
    -kernel "$kernel/boot/vmlinuz-$version" -initrd "$dir/.first.gz" \
    -append "console=ttyS0 quiet panic=-1 no_timer_check nowatchdog rcupdate.rcu_cpu_stall_suppress=1 mitigations=off nokaslr random.trust_cpu=1 verbs_vm_dir=$dir" \
    -virtfs local,path=/,mount_tag=root,security_model=none,readonly=on,multidevs=remap \
    -virtfs "local,path=$dir,mount_tag=share,security_model=none,multidevs=remap" </dev/null | sed -u 's/\r//g'
status=${PIPESTATUS[0]}
[ "$status" != 124 ] || exit 124
[ "$status" = 0 ] || [ -e "$dir/.began" ] || cannot "qemu-system-x86_64 ended with status $status"
[ -s "$dir/.status" ] || { echo "verbs-vm: the machine stopped before the command ended" >&2; exit 1; }
exit "$(cat "$dir/.status")"
