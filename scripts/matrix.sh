#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# matrix.sh SUITE...: what other releases of Debian make of this commit.  Each SUITE (trixie, forky) is installed by
# debootstrap from the mirror that this machine uses, in MATRIX (default build/matrix), and kept there for the next time;
# what is committed here is cloned into it, and TARGETS of the Makefile (default: demo crosswise) are made there as root.  One line a
# suite goes to MATRIX/table, all output to MATRIX/SUITE.log.  It takes some ten minutes a suite the first time.
#
# The mounts that a suite needs are made in a mount namespace of their own and vanish with it.
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
matrix=${MATRIX:-$here/build/matrix}
targets=${TARGETS:-demo crosswise}
[ $# -gt 0 ] || { echo "usage: matrix.sh SUITE..." >&2; exit 2; }
[ "$(id -u)" = 0 ] || { echo "matrix: this takes root: it installs other releases of Debian and mounts in them" >&2; exit 1; }
for tool in debootstrap:debootstrap unshare:util-linux; do
    command -v "${tool%:*}" >/dev/null || apt-get install -y "${tool#*:}" >/dev/null
done
[ -z "$(git -C "$here" status --porcelain)" ] || echo "matrix: what is not committed is not tried" >&2

mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | sort | uniq -c | sort -rn | awk 'NR == 1 {print $2}')
[ -n "$mirror" ] || { echo "matrix: apt knows no mirror: apt-get update" >&2; exit 1; }

# A release newer than this machine's debootstrap is installed like unstable.
install_suite() {
    local root=$1 suite=$2 script=/usr/share/debootstrap/scripts
    [ ! -e "$root/.installed" ] || return 0
    rm -rf "$root"
    [ -e "$script/$suite" ] && script=$script/$suite || script=$script/sid
    debootstrap --variant=minbase --include=make,git,ca-certificates "$suite" "$root" "$mirror" "$script"
    touch "$root/.installed"
}

# What this machine's network needs: names, certificates, and how Go gets its modules.
lend_network() {
    local root=$1
    cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
    [ ! -e /etc/ssl/certs/ca-certificates.crt ] || cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
}

# Runs a command in a suite, which sees the kernel's file systems.
within() {
    local root=$1
    shift
    unshare --mount --propagation private bash -c '
        root=$1; shift
        for d in proc sys dev; do mount --rbind /$d "$root/$d"; done
        exec chroot "$root" /usr/bin/env -i HOME=/srv LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
            PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"' \
        bash "$root" $(env | grep -E '^(GOPROXY|GOSUMDB|GONOSUMDB|https?_proxy|no_proxy)=' || true) "$@"
}

version() { within "$1" bash -c "dpkg-query -W -f '\${Version}' $2 2>/dev/null || echo none"; }

mkdir -p "$matrix"
table=$matrix/table
[ -e "$table" ] || printf '%s\n' '| Debian | gcc | glibc | MPICH | Open MPI | made | result |' '|---|---|---|---|---|---|---|' >"$table"
failed=
for suite; do
    root=$matrix/$suite
    result=passed
    {
        install_suite "$root" "$suite"
        lend_network "$root"
        rm -rf "$root/srv/libckpt.new"
        git clone -q "$here" "$root/srv/libckpt.new"
        # Objects of an earlier commit stay: make knows what is stale.
        [ ! -d "$root/srv/libckpt/build" ] || mv "$root/srv/libckpt/build" "$root/srv/libckpt.new/build"
        rm -rf "$root/srv/libckpt"
        mv "$root/srv/libckpt.new" "$root/srv/libckpt"
        within "$root" bash -c "cd /srv/libckpt && make $targets" || result=FAILED
    } >"$matrix/$suite.log" 2>&1 </dev/null || result="could not be installed"
    [ "$result" = passed ] || failed=1
    line="| $suite | $(version "$root" gcc) | $(version "$root" libc6) | $(version "$root" mpich) | $(version "$root" openmpi-bin) | $targets | $result |"
    sed -i "/^| $suite .*| $targets | /d" "$table"
    echo "$line" | tee -a "$table"
    [ "$result" = passed ] || tail -n 15 "$matrix/$suite.log" >&2
done
[ -z "$failed" ]
