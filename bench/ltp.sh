#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# ltp.sh CHECKOUT [OPTIONS...]: runs the Linux Test Project's programs natively and under ckptrun, where each is to end the same way.
# Writes bench/results/ltp.md and .json: how many do, and each that does not with its reason (bench/ltp/reasons.txt). Nothing is
# fetched: CHECKOUT is a clone of the project's repository, in which this script builds and installs what is there of
# testcases/kernel, with what of libaio, libcap, libacl is there. Programs that end otherwise are run twice.
#
#   bench/ltp.sh ltp                              its system calls, two hours
#   bench/ltp.sh ltp -lists mm,sched -only mmap   some of other lists (runtest/)
#   bench/ltp.sh ltp -lists posix -saved          the Open POSIX Test Suite in it, whose programs are single processes, mostly:
#                                                 also saved while they run, and saved, killed and restarted; two hours
#   bench/ltp.sh ltp -differing                   those again that ended otherwise
#
# They run as root in namespaces of their own (mounts, networks, IPC, host names), without those that would change this machine
# all the same ("skip" below).
#
# OPTIONS are those of bench/ltp (-h lists them).
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
fail() { echo "ltp.sh: $*" >&2 && exit 2; }
[ $# -gt 0 ] || fail "usage: bench/ltp.sh CHECKOUT [OPTIONS...]"
ltp=$(cd "$1" 2>/dev/null && pwd) && [ -d "$ltp/testcases/kernel" ] || fail "no $1/testcases/kernel: clone the Linux Test Project's repository there"
shift
[ -x "$here/build/bin/ckptrun" ] || fail "no $here/build/bin/ckptrun: run make first"
[ "$(id -u)" = 0 ] || fail "this takes root: it makes namespaces"

root=$ltp/installed
if [ ! -d "$root/runtest" ]; then
    echo "building $ltp: a quarter of an hour; $ltp/build.log" >&2
    (
        cd "$ltp"
        { make -s autotools && ./configure --prefix="$root"; } || exit 1
        for part in testcases/lib testcases/kernel testcases/misc runtest; do # -k: some need what is not here
            make -s -k -j"$(nproc)" -C "$part" all || true
            make -s -k -C "$part" install || true
        done
    ) >"$ltp/build.log" 2>&1 || fail "it cannot be configured: $ltp/build.log"
    [ -d "$root/runtest" ] || fail "it cannot be built: $ltp/build.log"
fi

posix=$ltp/testcases/open_posix_testsuite
if [[ " $* " =~ \ -lists[\ =]([^\ ]*,)?posix[,\ ] && ! -f "$root/runtest/posix" ]]; then
    echo "building $posix: some minutes; $ltp/posix.log" >&2
    (
        cd "$posix"
        { make autotools && ./configure && make generate-makefiles; } || exit 1
        make -k -j"$(nproc)" conformance-all functional-all || true # some do not compile with every C library
    ) >"$ltp/posix.log" 2>&1 || fail "it cannot be configured: $ltp/posix.log"
    find "$posix/conformance" "$posix/functional" -name '*.run-test' | sort |
        sed -E 's|^.*/open_posix_testsuite/(conformance/)?(interfaces/)?(.*)\.run-test$|\3 &|' >"$ltp/posix.list"
    [ -s "$ltp/posix.list" ] || fail "none of its programs is built: $ltp/posix.log"
    mv "$ltp/posix.list" "$root/runtest/posix"
fi

skip='^(reboot|kexec|init_module|finit_module|delete_module|swapon|swapoff|settimeofday|stime|clock_settime|clock_adjtime|adjtimex|'
skip+='sethostname|setdomainname|vhangup|syslog|acct|quotactl|oom|pivot_root|ioctl_loop|fork_exec_loop|min_free_kbytes|overcommit|ksm)'
cd "$here"
go build -o build/bench/ltp ./bench/ltp
# shellcheck disable=SC2016
exec unshare --mount --net --ipc --uts --propagation private sh -c 'ip link set lo up && exec "$@"' ltp build/bench/ltp \
    -root "$root" -build build -skip "$skip" -report bench/results/ltp -revision "$(git rev-parse --short=10 HEAD 2>/dev/null || true)" "$@"
