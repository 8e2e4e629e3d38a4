#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# dist.sh BUILD: BUILD/libckpt-$VERSION.tar.gz, the sources of the commit that is checked out. The same commit makes the
# same bytes: names are in order, all times are that of the commit, and nobody owns anything. With VENDOR=1 the modules
# of Go are in the tar too, by `go mod vendor`, so that it builds where no module can be fetched.
set -euo pipefail

out=$(mkdir -p "$1" && cd "$1" && pwd)
cd "$(dirname "$0")/.."
name=libckpt-${VERSION:?the version of libckpt}
die() { echo "dist: $*" >&2; exit 1; }

git rev-parse --verify -q HEAD >/dev/null || die "this is no clone of the repository: the sources are already what a tar has"
[ -z "$(git status --porcelain)" ] || echo "dist: what is not committed is not in it" >&2
time=$(git log -1 --format=%ct)
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
mkdir "$work/$name"
git archive HEAD | tar -x -C "$work/$name"
if [ -n "${VENDOR:-}" ]; then
    name+=-vendor
    mv "$work"/libckpt-* "$work/$name"
    (cd "$work/$name" && "${GO:-go}" mod vendor) || die "go mod vendor failed; its own message stands above"
fi
# Modes as git knows them, whatever the umask.
chmod -R u+rwX,go+rX,go-w "$work/$name"
tar -C "$work" --sort=name --mtime="@$time" --owner=0 --group=0 --numeric-owner --format=gnu -cf - "$name" |
    gzip -9n >"$out/$name.tar.gz.new"
mv "$out/$name.tar.gz.new" "$out/$name.tar.gz"
(cd "$out" && sha256sum "$name.tar.gz")
