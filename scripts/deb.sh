#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# deb.sh BUILD: Debian packages of the commit that is checked out, in BUILD/deb. They are built from what `make dist` makes,
# in a folder of their own, so that the tree in BUILD stays as it is; then lintian looks at them, and what it calls an
# error fails.
set -euo pipefail

build=$(mkdir -p "$1" && cd "$1" && pwd)
top=$(cd "$(dirname "$0")/.." && pwd)
die() { echo "deb: $*" >&2; exit 1; }
missing=()
# A package of no files, which dpkg-buildpackage asks for.
dpkg-query -W -f '${Status}' build-essential 2>/dev/null | grep -q 'ok installed' || missing=(build-essential)
for tool in dpkg-buildpackage:dpkg-dev dh:debhelper lintian:lintian fakeroot:fakeroot; do
    command -v "${tool%:*}" >/dev/null || missing+=("${tool#*:}")
done
if [ ${#missing[@]} -gt 0 ]; then
    [ "$(id -u)" = 0 ] || die "missing: apt-get install ${missing[*]}"
    DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 install -y -qq --no-install-recommends "${missing[@]}" >/dev/null || die "apt-get could not install ${missing[*]}"
fi

rm -rf "$build/deb"
mkdir -p "$build/deb"
"$top/scripts/dist.sh" "$build/deb"
cd "$build/deb"
tar -xf "libckpt-$VERSION.tar.gz"
# What Go has compiled is taken from, and left in, the cache of the user: it has no paths in it (-trimpath).
GOCACHE=$(cd / && "${GO:-go}" env GOCACHE)
export GOCACHE
(cd "libckpt-$VERSION" && PATH="$(dirname "${GO:-go}"):$PATH" dpkg-buildpackage -us -uc -b)
lintian --fail-on error --tag-display-limit 0 --allow-root ./*.changes
rm -rf "libckpt-$VERSION"
ls -- *.deb
