#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# keep-image.sh BUILD: keeps an image of this release for all later ones: internal/e2e/testdata/kept/$VERSION has a directory of
# checkpoints of testdata/kept/kept.c, two epochs, the second of which refers to the first. Made once for each
# release, and never again: TestKeptImages continues them all. As root, for a mount namespace: the image shall demand no
# feature of this machine's processor, so /proc/cpuinfo names there what each x86-64 has.
set -euo pipefail

build=$(cd "$1" && pwd)
top=$(cd "$(dirname "$0")/.." && pwd)
kept=$top/internal/e2e/testdata/kept
to=$kept/${VERSION:?the version of libckpt}
die() { echo "keep-image: $*" >&2; exit 1; }
[ "$(id -u)" = 0 ] || die "this takes root"
[ ! -e "$to" ] || die "$to is there: images that are kept are not made again"

# Paths are in an image: they shall be nobody's.
work=/tmp/libckpt-kept
rm -rf "$work"
mkdir "$work"
trap 'rm -rf "$work"' EXIT
"$top/scripts/install.sh" "$build" "$work/libckpt" >/dev/null
gcc -O2 -ffreestanding -fno-tree-loop-distribute-patterns -fno-stack-protector -mgeneral-regs-only -nostdlib -fPIE -pie -Wl,-z,now -o "$work/kept" "$kept/kept.c"
printf 'processor\t: 0\nflags\t\t: %s\n' \
    "fpu vme de pse tsc msr pae mce cx8 apic sep mtrr pge mca cmov pat pse36 clflush mmx fxsr sse sse2 syscall nx lm xsave fsgsbase" >"$work/cpuinfo"
unshare --mount --uts --propagation private bash -ec '
    hostname kept
    mount --bind "$0/cpuinfo" /proc/cpuinfo
    cd /
    "$0/libckpt/bin/ckptrun" --dir "$0/ckpt" --compress zstd --full "every 2" -- "$0/kept" </dev/null >"$0/out" 2>"$0/err" &
    for i in {1..600}; do if grep -q stands "$0/out"; then break; fi; sleep 0.1; done
    "$0/libckpt/bin/ckptctl" checkpoint "$0/ckpt" --timeout 60s
    "$0/libckpt/bin/ckptctl" checkpoint "$0/ckpt" --then kill --timeout 60s
    wait $! || true
' "$work" || die "it was not saved: $(cat "$work/err")"
"$work/libckpt/bin/ckptctl" verify "$work/ckpt"
mkdir -p "$to"
cp -r "$work"/ckpt/epoch-* "$to/"
chmod -R go+r "$to"
du -sh "$to"
