#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# deb-test.sh BUILD: installs the packages of `make deb` in a Debian of their own, which debootstrap makes, and runs debian/tests
# there by autopkgtest. As root. ROOT is where that Debian is kept between runs (default: libckpt/deb-test in the cache
# of the user, as it is no part of a source tree); SUITE is its release (default: that of this machine).
set -euo pipefail

build=$(cd "$1" && pwd)
die() { echo "deb-test: $*" >&2; exit 1; }
[ "$(id -u)" = 0 ] || die "this takes root: it installs a Debian and mounts in it"
ls "$build"/deb/*.changes >/dev/null 2>&1 || die "there are no packages in $build/deb: make deb"
for tool in debootstrap:debootstrap autopkgtest:autopkgtest unshare:util-linux; do
    command -v "${tool%:*}" >/dev/null ||
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${tool#*:}" >/dev/null || die "apt-get could not install ${tool#*:}"
done
suite=${SUITE:-$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)}
root=${ROOT:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/libckpt/deb-test}/$suite

if [ ! -e "$root/.installed" ]; then
    mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | sort | uniq -c | sort -rn | awk 'NR == 1 {print $2}')
    [ -n "$mirror" ] || die "apt knows no mirror: apt-get update"
    rm -rf "$root"
    mkdir -p "$root"
    # A release newer than this machine's debootstrap is installed like unstable. What debootstrap mounts stays where it is
    # killed, and what is mounted cannot be removed for the next try: its mounts are its own.
    script=/usr/share/debootstrap/scripts
    [ -e "$script/$suite" ] && script=$script/$suite || script=$script/sid
    unshare --mount --propagation private debootstrap --variant=minbase --include=ca-certificates "$suite" "$root" "$mirror" "$script" >"$root.log" 2>&1 || die "debootstrap failed: $(tail -n 1 "$root.log")"
    touch "$root/.installed"
fi
# The tests change this copy, not the Debian that is kept.
copy=$root.run
trap 'rm -rf --one-file-system "$copy"' EXIT
rm -rf --one-file-system "$copy"
cp -a --reflink=auto "$root" "$copy"
# What this machine's network needs: names, certificates, and how apt gets its packages.
cp -L /etc/resolv.conf /etc/hosts "$copy/etc/"
[ ! -e /etc/ssl/certs/ca-certificates.crt ] || cp -L /etc/ssl/certs/ca-certificates.crt "$copy/etc/ssl/certs/"
cp -L /etc/apt/apt.conf.d/*proxy* "$copy/etc/apt/apt.conf.d/" 2>/dev/null || true
# A mirror may keep testing as it was on some day, whose lists are not to be used for ever.
echo 'Acquire::Check-Valid-Until "false";' >"$copy/etc/apt/apt.conf.d/90expired"

rm -rf "$build/deb/test"
# The mounts vanish with this namespace.
status=0
unshare --mount --propagation private bash -c '
    for d in proc sys dev; do mount --rbind /$d "$0/$d"; done
    mount -t tmpfs -o mode=1777 tmpfs "$0/dev/shm"
    exec autopkgtest --output-dir "$1/deb/test" "$1"/deb/*.deb "$2" -- chroot "$0"' \
    "$copy" "$build" "$(dirname "$0")/.." || status=$?
cat "$build/deb/test/summary" || true
# 2: some test was skipped, 8: there was none to run
[ $status = 0 ] || die "autopkgtest: status $status; its logs are in $build/deb/test"
echo "deb-test: passed"
