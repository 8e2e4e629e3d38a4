// SPDX-License-Identifier: Apache-2.0
//
// missing.c: the program changes its memory while some of it is still in the image (a lazy restart).
//
// A missing page comes when it is touched (package ckpt/lazy).  The kernel knows the addresses of such pages,
// and nothing else: it would give zeros to a forked child and at the new addresses of memory that moves, and
// the old content where memory was given back.  So Go is told.  It runs on the thread's lower stack, without
// host.lock: Go may wait for a disk.
#include "host.h"
#include "emulation.h"
#include "thread.h"
#include "traps.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#ifndef MADV_GUARD_INSTALL // Linux 6.13
#define MADV_GUARD_INSTALL 102
#endif

struct change {
    uint64_t start, end;
    int what;
};

static long tell(void *p) {
    const struct change *m = p;
    host.go.memory(m->start, m->end, m->what);
    return 0;
}

void memory_changes(struct call *c, uint64_t start, uint64_t bytes, int what) {
    // A child has its own memory, all of it; one of vfork borrows memory of which nothing is missing.
    if (!__atomic_load_n(&host.lazy, __ATOMIC_ACQUIRE) || host.child || borrowed()) return;
    if (what != MEMORY_COPY && (!bytes || start + bytes < start)) return; // the call will fail
    struct change m = {start, start + bytes, what};
    thread_call_lower(c->t, c->uc, tell, &m);
}

// What a mapping keeps. A frozen copy of the program is a fork, and has to have memory that is hidden from forks, too.
const struct advice advices[ADVICES] = {
    {MADV_DONTFORK, CKPT_ASKED_HIDDEN},   {MADV_WIPEONFORK, CKPT_ASKED_HIDDEN},
    {MADV_HUGEPAGE, CKPT_ASKED_ADVICE},   {MADV_NOHUGEPAGE, CKPT_ASKED_ADVICE},
    {MADV_DONTDUMP, CKPT_ASKED_ADVICE},   {MADV_MERGEABLE, CKPT_ASKED_ADVICE},
    {MADV_SEQUENTIAL, CKPT_ASKED_ADVICE}, {MADV_RANDOM, CKPT_ASKED_ADVICE},
};

// Memory is locked again after a restart.
long sys_mlock(struct call *c) {
    asks(CKPT_ASKED_LOCKED);
    return blocking(c, c->nr, c->a);
}

// Trapped for advice that a mapping keeps, and other in a program that was continued lazily only (trap.c).
// A guard (Linux 6.13) is in the page tables alone: an image would have memory there that can be written to, and an older
// kernel has none.  So there are none here, as before that version: glibc 2.42 then guards stacks as ever, by mprotect.
long sys_madvise(struct call *c) {
    if (c->a[2] == MADV_GUARD_INSTALL) return -EINVAL;
    long r = RAW3(SYS_madvise, c->a[0], c->a[1], c->a[2]);
    for (unsigned i = 0; i < ADVICES; i++)
        if (c->a[2] == advices[i].advice) asks(advices[i].asked);
    if (!__atomic_load_n(&host.lazy, __ATOMIC_ACQUIRE) || (r && r != -ENOMEM))
        return r; // or it may be locked
    switch (c->a[2]) {
    case MADV_DONTNEED:
    case MADV_DONTNEED_LOCKED:
        memory_changes(c, (uint64_t)c->a[0], ((uint64_t)c->a[1] + 4095) & ~4095ull, MEMORY_GONE);
        // Some of it may have come in between.
        r = RAW3(SYS_madvise, c->a[0], c->a[1], c->a[2]);
    }
    return r;
}

// The program's own would find that its memory belongs to another one.
long sys_userfaultfd(struct call *c) {
    memory_changes(c, 0, 0, MEMORY_COPY);
    return sys_newfd(c);
}
