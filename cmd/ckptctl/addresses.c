// SPDX-License-Identifier: Apache-2.0
//
// addresses.c: Go's runtime ends a process that may not have the addresses it reserves, with a trace that
// says nothing to a user.  This runs before it.
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

static const unsigned long long need = 2048ull << 20; // reserved, not used as memory

__attribute__((constructor)) static void check_addresses(void) {
    struct rlimit rl;
    if (getrlimit(RLIMIT_AS, &rl) || rl.rlim_cur >= need) // RLIM_INFINITY is the highest number
        return;
    rl.rlim_cur = rl.rlim_max < need ? rl.rlim_max : need;
    if (setrlimit(RLIMIT_AS, &rl) == 0 && rl.rlim_cur >= need) return;
    dprintf(2,
            "ckptctl: the address space is limited to %llu MiB (ulimit -v); ckptctl reserves %llu MiB, "
            "without using them as memory: run `ulimit -v unlimited` before\n",
            (unsigned long long)rl.rlim_cur >> 20, need >> 20);
    _exit(1);
}
