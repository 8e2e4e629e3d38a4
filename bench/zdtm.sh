#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# zdtm.sh CHECKOUT [OPTIONS...]: runs the test programs of CRIU (test/zdtm/static of its sources) under ckptrun, one process each:
# ready, saved, killed, continued, and then told to look at what became of what it had. Writes bench/results/zdtm.md and
# .json: every outcome, and each that is not "passes" with its reason (bench/zdtm/reasons.txt). Nothing is fetched: CHECKOUT is a
# clone of CRIU's repository, in which this script builds the programs, as they are but for their start (bench/programs/hold.c),
# with what of libaio, libcap, libnl is there. What cannot be built, or does not pass natively, is named and not compared.
#
#   bench/zdtm.sh criu                     all, an hour or two
#   bench/zdtm.sh criu -only '^timer'      some; the table keeps the others
#
# Some mount, make cgroups, networks and rules of firewalls: they run as root in namespaces of their own (mounts, networks, IPC,
# host names), without those that would change this machine all the same, and without those that are about mounts and networks of
# namespaces, which are not the process's ("skip" below).
#
# OPTIONS are those of bench/zdtm (-h lists them).
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
fail() { echo "zdtm.sh: $*" >&2 && exit 2; }
[ $# -gt 0 ] || fail "usage: bench/zdtm.sh CHECKOUT [OPTIONS...]"
zdtm=$(cd "$1/test/zdtm" 2>/dev/null && pwd) || fail "no $1/test/zdtm: clone CRIU's repository there"
shift
[ -x "$here/build/bin/ckptrun" ] || fail "no $here/build/bin/ckptrun: run make first"

make -s -C "$here" build/bench/hold.o
# Newer compilers warn of more than the programs were written for.
quiet=(USERCFLAGS=-Wno-error CC='gcc -Wl,--wrap=fork,--wrap=setsid,--wrap=test_daemon')
make -s -C "$zdtm/lib" "${quiet[@]}" libzdtmtst.a >"$zdtm/build.log" 2>&1 || fail "its library cannot be built: $zdtm/build.log"
ar r "$zdtm/lib/libzdtmtst.a" "$here/build/bench/hold.o" 2>/dev/null
# Their makefile would make the library anew: it is named in another way.
LDLIBS=../lib/libzdtmtst.a make -s -k -C "$zdtm/static" "${quiet[@]}" LIB= all >>"$zdtm/build.log" 2>&1 || true # those that need what is not here

[ "$(id -u)" = 0 ] || fail "this takes root: it makes namespaces"
skip='^(cgroup|apparmor|selinux|autofs|binfmt_misc|bpf|criu-rtc|rtc|loginuid|vt|time$|timens|uprobes|s390x|arm-)'
skip+='|(mnt|mount|tempfs|unbindable|propagation|shared_slave|netns|net_lock|conntrack|bridge|macvlan|cr_veth|^tun|^sit$|namespace|_ns$|onmnt|rofs)'
cd "$here"
go build -o build/bench/zdtm ./bench/zdtm
# shellcheck disable=SC2016
exec unshare --mount --net --ipc --uts --propagation private sh -c 'ip link set lo up && exec "$@"' zdtm build/bench/zdtm \
    -build build -static "$zdtm/static" -skip "$skip" -reasons bench/zdtm/reasons.txt -report bench/results/zdtm -revision "$(git rev-parse --short=10 HEAD 2>/dev/null || true)" "$@"
