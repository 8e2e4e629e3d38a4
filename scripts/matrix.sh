#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# matrix.sh SUITE...: what other releases of Debian make of this commit.  Each SUITE (trixie, forky) is installed by
# debootstrap from the mirror that this machine uses, in MATRIX (default: libckpt/matrix in the user's cache), and kept there for
# the next time; what is committed here is checked out in it, and TARGETS of the Makefile (default: demo crosswise) are made there
# as root.  With TESTS, a regular expression, those tests of the suite are run after them; TESTS=./PATH runs all tests of packages.
# One line a suite goes to MATRIX/table, all output to MATRIX/SUITE.log.  It takes some ten minutes a suite the first time.
#
#   matrix.sh --in SUITE COMMAND...     runs a command in a suite that is installed, in its copy of the sources; LEND=DIR is
#                                       /srv/lent there
#
# With SHORT=1 a machine that cannot do this at all says so, and passes.
#
# The mounts that a suite needs, its processes and its /dev/shm are in namespaces of their own and vanish with them.  Go, its
# modules and what it has compiled are this machine's.
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
matrix=${MATRIX:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/libckpt/matrix}
targets=${TARGETS-demo crosswise}
# shellcheck disable=SC2209
go=${GO:-go}
[ $# -gt 0 ] || { echo "usage: matrix.sh SUITE... | --in SUITE COMMAND..." >&2; exit 2; }

cannot() {
    [ -z "${SHORT:-}" ] || { echo "matrix-short: skipped: $1" && exit 0; }
    echo "matrix: $1" >&2
    exit 1
}

[ "$(id -u)" = 0 ] || cannot "this takes root: it installs other releases of Debian and mounts in them"
unshare --mount --propagation private --pid --fork sh -c 'mount -t proc proc /proc && mount -t tmpfs tmpfs /mnt' 2>/dev/null ||
    cannot "nothing can be mounted here (a container without CAP_SYS_ADMIN)"
command -v apt-get >/dev/null || cannot "there is no apt-get here, so no Debian to install by it"
if ! command -v debootstrap >/dev/null; then
    DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 install -y -qq --no-install-recommends debootstrap >/dev/null ||
        cannot "apt-get could not install debootstrap"
fi
mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | sort | uniq -c | sort -rn | awk 'NR == 1 {print $2}')
[ -n "$mirror" ] || cannot "apt knows no mirror: apt-get update"

# A release newer than this machine's debootstrap is installed like unstable. What debootstrap mounts stays where it is killed, and
# what is mounted cannot be removed for the next try: its mounts are its own.
install_suite() {
    local root=$1 suite=$2 script=/usr/share/debootstrap/scripts
    [ ! -e "$root/.installed" ] || return 0
    rm -rf --one-file-system "$root"
    [ -e "$script/$suite" ] && script=$script/$suite || script=$script/sid
    unshare --mount --propagation private debootstrap --variant=minbase --include=make,git,ca-certificates "$suite" "$root" "$mirror" "$script"
    touch "$root/.installed"
}

# What this machine's network needs: names, certificates, and how apt and Go get what they fetch.
lend_network() {
    local root=$1
    cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
    [ ! -e /etc/ssl/certs/ca-certificates.crt ] || cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
    cp -L /etc/apt/apt.conf.d/*proxy* "$root/etc/apt/apt.conf.d/" 2>/dev/null || true
    # A mirror may keep testing as it was on some day, whose lists are not to be used for ever.
    echo 'Acquire::Check-Valid-Until "false";' >"$root/etc/apt/apt.conf.d/90expired"
}

# within ROOT COMMAND...: in the suite, which sees the kernel's file systems.
within() {
    local root=$1 go_root go_mod go_cache
    shift
    go_root=$(cd / && "$go" env GOROOT) && go_mod=$(cd / && "$go" env GOMODCACHE) && go_cache=$(cd / && "$go" env GOCACHE)
    mkdir -p "$go_mod" "$go_cache" "$root/usr/local/go" "$root/srv/go-mod" "$root/srv/go-cache" "$root/srv/lent"
    # shellcheck disable=SC2016
    unshare --mount --propagation private --pid --fork --kill-child bash -c '
        root=$1 go_root=$2 go_mod=$3 go_cache=$4 lend=$5
        shift 5
        mount --bind "$root" "$root" # so that what runs there can make mount namespaces
        for d in sys dev; do mount --rbind /$d "$root/$d"; done
        mount -t proc proc "$root/proc"
        mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
        mount --bind "$go_root" "$root/usr/local/go"
        mount --bind "$go_mod" "$root/srv/go-mod"
        mount --bind "$go_cache" "$root/srv/go-cache"
        [ -z "$lend" ] || mount --bind "$lend" "$root/srv/lent"
        # What enters a mount namespace is in the root of that, which a chroot is not: scripts/nodes.sh.
        cd "$root" && mkdir -p srv/outside && PATH=$PATH:/usr/sbin:/sbin
        if pivot_root . srv/outside 2>/dev/null; then umount -l /srv/outside; fi
        exec chroot . /usr/bin/env -i HOME=/srv LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive GOMODCACHE=/srv/go-mod GOCACHE=/srv/go-cache \
            PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"' \
        bash "$root" "$go_root" "$go_mod" "$go_cache" "${LEND:-}" $(env | grep -E '^(GOPROXY|GOSUMDB|GONOSUMDB|https?_proxy|no_proxy)=' || true) \
        bash -c '"$@"; exit' bash "$@" # the first process there, a shell, waits for those that are left to it: scripts/nodes.sh
}

version() { within "$1" bash -c "dpkg-query -W -f '\${Version}' $2 2>/dev/null || echo none"; }

if [ "$1" = --in ]; then
    root=$matrix/$2
    [ -e "$root/.installed" ] || { echo "matrix: $2 is not installed in $matrix: $0 $2" >&2 && exit 1; }
    shift 2
    # shellcheck disable=SC2016
    within "$root" bash -c 'cd /srv/libckpt && exec "$@"' bash "$@"
    exit
fi

[ -z "$(git -C "$here" status --porcelain)" ] || echo "matrix: what is not committed is not tried" >&2

# The sources as they are committed here. What was made of an older commit stays: only files that differ get a new time.
check_out() {
    local tree=$1
    [ -d "$tree/.git" ] || git clone -q --no-checkout "$here" "$tree"
    git -C "$tree" fetch -q "$here" HEAD
    git -C "$tree" checkout -q -f --detach FETCH_HEAD
    git -C "$tree" clean -fdq
}

# The first processes of each run have the same ids: where a launcher was killed, the next one of its id finds its folder, and
# Open MPI's ends by that.
forget_launchers() { rm -rf --one-file-system "$1"/tmp/ompi.* "$1"/tmp/prte*.*; }

# Which tests passed, and the names of those that did not.
tested() {
    local passed bad
    passed=$(grep -c '^--- PASS' "$1" || true)
    bad=$(sed -nE 's/^--- FAIL: (Test[A-Za-z0-9_]*).*/\1/p' "$1" | sort -u | paste -sd' ')
    echo "$passed tests passed${bad:+, failed: $bad}"
}

# What tests of whole jobs are started from, the adapter of tests of verbs, and what other packages they run, for which the short form has
# no time.
faults="faults soft-adapter"
[ -z "${SHORT:-}" ] || faults=
setup="make setup"
[ -z "${TESTS:-}" ] || [ -n "${SHORT:-}" ] || setup="scripts/setup.sh build/setup.mk test"

mkdir -p "$matrix"
table=$matrix/table
[ -e "$table" ] || printf '%s\n' '| Debian | gcc | glibc | MPICH | Open MPI | made | result |' '|---|---|---|---|---|---|---|' >"$table"
failed=
for suite; do
    root=$matrix/$suite
    log=$matrix/$suite.log
    made="$targets${TESTS:+ TESTS=$TESTS}"
    result=passed
    {
        install_suite "$root" "$suite" && lend_network "$root" && check_out "$root/srv/libckpt" && forget_launchers "$root"
    } >"$log" 2>&1 </dev/null || result="could not be installed"
    if [ "$result" != passed ]; then
        [ -e "$root/.installed" ] || cannot "debootstrap does not work here: $(tail -n 1 "$log")"
    elif ! within "$root" bash -c "cd /srv/libckpt && $setup" >>"$log" 2>&1 </dev/null; then
        # A mirror that does not answer says nothing of this commit; a setup.sh that fails by itself does.
        ! grep -q '^setup: apt-get could not install' "$log" || cannot "packages of $suite: $(grep -m 1 '^setup: apt-get could not install' "$log")"
        result="FAILED: $setup"
    elif [ -n "$targets" ] && ! within "$root" bash -c "cd /srv/libckpt && make -j$(nproc) $targets" >>"$log" 2>&1 </dev/null; then
        result=FAILED
    elif [ -n "${TESTS:-}" ]; then
        # What test.sh leaves out on the screen is wanted here.
        within "$root" bash -c "cd /srv/libckpt && make -j$(nproc) all examples $faults && ONLY=\$1 PASSED=1 GO=/usr/local/go/bin/go scripts/test.sh build" bash "$TESTS" \
            >>"$log" 2>&1 </dev/null || result=FAILED
        result="$result: $(tested "$log")"
    fi
    [[ $result == passed* ]] || failed=1
    line="| $suite | $(version "$root" gcc) | $(version "$root" libc6) | $(version "$root" mpich) | $(version "$root" openmpi-bin) | ${made//|/\\|} | $result |"
    awk -F ' [|] ' -v suite="| $suite" -v made="${made//|/\\\\|}" '!($1 == suite && $6 == made)' "$table" >"$table.new" && mv "$table.new" "$table"
    echo "$line" | tee -a "$table"
    [[ $result == passed* ]] || tail -n 25 "$log" >&2
done
[ -z "$failed" ]
