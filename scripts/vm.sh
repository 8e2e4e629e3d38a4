#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# vm.sh DIR COMMAND...: runs a command above another kernel than this machine's: one of Debian's, in a virtual machine.
#
# The machine sees the files of this one, read only; what it writes goes to its memory and is gone at its end, but in DIR.
# The command runs as root, in DIR, and what it prints comes out here. Of the environment it has what begins with CKPT,
# LIBCKPT or SHUFFLE.
#
#   VM_KERNEL=      the newest linux-image-amd64 of this release of Debian; 6.12: of that series; FILE.deb: of that package
#   VM_BOOT=        more words for the kernel's command line, as nofsgsbase
#   VM_MODULES=     modules that the kernel must have
#   VM_CPU=         QEMU's word for the processor; without it has all that QEMU can emulate, or with KVM all that this machine's has
#   VM_PROCESSORS=1 VM_MEMORY=2G VM_LIMIT=3h
#   VM_ACCEL=tcg    the processor is emulated, which is some ten times slower; kvm: where this machine has KVM
#   VM_CACHE=~/.cache/libckpt/vm, where packages of kernels are kept, unpacked. Nothing is installed.
#
# Status 125: this machine cannot; the reason is on stderr. 124: the machine did not come to its end within
# VM_LIMIT. Otherwise it is the command's.
set -uo pipefail

cannot() { echo "vm: $*" >&2; exit 125; }

[ $# -ge 2 ] || { echo "usage: vm.sh DIR COMMAND..." >&2; exit 2; }
dir=$(mkdir -p "$1" && cd "$1" && pwd) || cannot "$1 cannot be made"
shift
cache=${VM_CACHE:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/libckpt/vm}

[ "$(id -u)" = 0 ] || cannot "files of this machine that root alone can read are needed: run it as root"
for tool in qemu-system-x86_64 busybox cpio modprobe depmod dpkg dpkg-deb apt-get apt-cache ip; do
    command -v "$tool" >/dev/null || cannot "there is no $tool: make test-vm installs it"
done
file -L "$(command -v busybox)" 2>/dev/null | grep -q dynamically && cannot "busybox is not linked statically (busybox-static)"

# ---- a kernel -------------------------------------------------------------------------------------

case ${VM_KERNEL:-} in
*.deb)
    deb=$(realpath -e "$VM_KERNEL") || cannot "there is no $VM_KERNEL"
    version=$(dpkg-deb -f "$deb" Package | sed 's/^linux-image-//; s/-unsigned$//')
    ;;
*)
    deb=
    package=$(apt-cache depends "linux-image-${VM_KERNEL:+$VM_KERNEL-}amd64" 2>/dev/null | sed -n 's/.*Depends: \(linux-image-.*\)/\1/p' | head -n 1)
    if [ -n "$package" ]; then
        version=${package#linux-image-}
    else # no lists of packages: one that was fetched before
        version=$(cd "$cache" 2>/dev/null && printf '%s\n' */boot/vmlinuz-"${VM_KERNEL:-}"* | sed -n 's,.*/boot/vmlinuz-,,p' | grep -v '\*' | sort -V | tail -n 1)
    fi
    ;;
esac
[ -n "$version" ] || cannot "apt-get knows no kernel linux-image-${VM_KERNEL:+$VM_KERNEL-}amd64"
kernel=$cache/$version
if [ ! -e "$kernel/unpacked" ]; then
    new=$(mkdir -p "$cache" && mktemp -d "$cache/new.XXXXXX") || cannot "$cache cannot be written"
    trap 'rm -rf "$new"' EXIT
    if [ -z "$deb" ]; then
        echo "vm: fetching linux-image-$version into $cache" >&2
        (cd "$new" && chmod 755 . && apt-get -qq download "linux-image-$version" >&2) || cannot "the kernel's package could not be fetched"
        deb=$(echo "$new"/linux-image-*.deb)
    fi
    # The newest kernels' modules lie in /usr/lib.
    dpkg -x "$deb" "$new/k" && { [ -d "$new/k/lib" ] || ln -s usr/lib "$new/k/lib"; } && depmod -b "$new/k" "$version" &&
        rm -rf "$new/k/usr/share/doc" && touch "$new/k/unpacked" && rm -rf "$kernel" && mv "$new/k" "$kernel" ||
        cannot "the kernel's package could not be unpacked"
fi
for module in ${VM_MODULES:-}; do
    [ -n "$(find -L "$kernel/lib/modules" -name "$module.ko*")" ] || cannot "Linux $version has no $module"
done

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
fail() { echo "vm: $*"; $b poweroff -f; }
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
dir=$($b sed 's/.*vm_dir=\([^ ]*\).*/\1/' /proc/cmdline)
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
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/run/tmp LC_ALL=C TMPDIR=/run/tmp
end() { echo "$1" >"$dir/.status"; sync; echo o >/proc/sysrq-trigger; sleep 60; }
fail() { echo "vm: $*"; end 1; }
: >"$dir/.began"
mkdir -p /lib/modules /run/tmp && chmod 1777 /run/tmp
# Programs that poll share few processors: they take turns of less than the 4 ms of a tick.
mount -t debugfs debugfs /sys/kernel/debug && { echo HRTICK >/sys/kernel/debug/sched/features
    echo 200000 >/sys/kernel/debug/sched/min_granularity_ns; echo 400000 >/sys/kernel/debug/sched/latency_ns; } 2>/dev/null
mount --bind "$kernel/lib/modules" /lib/modules && ip link set lo up || fail "no loopback"
# Launchers want a name that has an address.
echo guest >/proc/sys/kernel/hostname && echo 127.0.0.1 guest >>/etc/hosts
cd "$dir" || fail "no $dir"
echo "vm: Linux $(uname -r), $(nproc) processors, $(LD_SHOW_AUXV=1 /bin/true | sed -n 's/^AT_HWCAP2: */AT_HWCAP2 /p')"
INSIDE
    printf '%q ' "$@"
    echo '</dev/null'
    echo 'end $?'
} >"$dir/.inside"

# ---- the machine -------------------------------------------------------------------------------------

accel=${VM_ACCEL:-tcg}
machine=(-accel "tcg,thread=multi" -cpu "${VM_CPU:-max}")
[ "$accel" = tcg ] || machine=(-accel "$accel" -cpu "${VM_CPU:-host}")
timeout --foreground "${VM_LIMIT:-3h}" qemu-system-x86_64 -M q35 "${machine[@]}" -smp "${VM_PROCESSORS:-1}" -m "${VM_MEMORY:-2G}" \
    -nodefaults -no-user-config -nographic -serial stdio -no-reboot \
    -kernel "$kernel/boot/vmlinuz-$version" -initrd "$dir/.first.gz" \
    -append "console=ttyS0 quiet panic=-1 no_timer_check nowatchdog rcupdate.rcu_cpu_stall_suppress=1 mitigations=off nokaslr random.trust_cpu=1 vm_dir=$dir ${VM_BOOT:-}" \
    -virtfs local,path=/,mount_tag=root,security_model=none,readonly=on,multidevs=remap \
    -virtfs "local,path=$dir,mount_tag=share,security_model=none,multidevs=remap" </dev/null | sed -u 's/\r//g'
status=${PIPESTATUS[0]}
[ "$status" != 124 ] || exit 124
[ "$status" = 0 ] || [ -e "$dir/.began" ] || cannot "qemu-system-x86_64 ended with status $status"
[ -s "$dir/.status" ] || { echo "vm: the machine stopped before the command ended" >&2; exit 1; }
exit "$(cat "$dir/.status")"
