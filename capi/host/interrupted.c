// SPDX-License-Identifier: Apache-2.0
//
// interrupted.c: a signal ends the call in which a thread was stopped.
//
// A thread that was stopped while it waited in a system call is before that call afterwards, and makes the
// call again.  A signal that came meanwhile finds the thread there.  If the signal's handler simply ran, the
// call would then wait as if there had been no signal, perhaps for ever (alarm and pause).  So the signal
// counts as one that came during the call.  A trapped call is made again, and the signal ends it the usual
// way.  For a call that the kernel makes itself, we do what the kernel does with a handler that has no
// SA_RESTART.
#include "host.h"
#include "thread.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>

static bool stands(const struct thread *t, const ucontext_t *uc) {
    const struct stood *s = &t->stood;
    const greg_t *r = uc->uc_mcontext.gregs;
    return s->ip && s->ip == (uint64_t)r[REG_RIP] && s->sp == (uint64_t)r[REG_RSP] && s->nr == r[REG_RAX] &&
           s->arg == r[REG_RDI];
}

static void remember(struct thread *t, const ucontext_t *uc, bool native) {
    const greg_t *r = uc->uc_mcontext.gregs;
    t->stood = (struct stood){(uint64_t)r[REG_RIP], (uint64_t)r[REG_RSP], r[REG_RAX], r[REG_RDI], native};
}

// Whether this is a call that is not trapped, may wait, and can be ended by a signal.  The kernel does not
// say whether the call had begun; the program cannot tell a signal just before such a call from one just
// after.
static bool slow(const ucontext_t *uc) {
    const greg_t *r = uc->uc_mcontext.gregs;
    uint8_t code[2];
    struct stat st;
    switch (r[REG_RAX]) {
    case SYS_read:
    case SYS_write:
    case SYS_readv:
    case SYS_writev: // those of files on a disk are never interrupted
        if (RAW2(SYS_fstat, r[REG_RDI], &st) < 0 || S_ISREG(st.st_mode) || S_ISBLK(st.st_mode)) return false;
        break;
    case SYS_recvfrom:
    case SYS_recvmsg:
    case SYS_sendto:
    case SYS_sendmsg:
    case SYS_flock:
        break;
    case SYS_fcntl:
        if (r[REG_RSI] != F_SETLKW && r[REG_RSI] != F_OFD_SETLKW) return false;
        break;
    case SYS_futex:
        if ((r[REG_RSI] & FUTEX_CMD_MASK) != FUTEX_WAIT && (r[REG_RSI] & FUTEX_CMD_MASK) != FUTEX_WAIT_BITSET)
            return false;
        break;
    default:
        return false;
    }
    struct iovec local = {code, 2}, remote = {(void *)r[REG_RIP], 2};
    return RAW6(SYS_process_vm_readv, RAW0(SYS_getpid), &local, 1, &remote, 1, 0) == 2 && code[0] == 0x0f &&
           code[1] == 0x05; // syscall
}

void call_cut(struct thread *t, const ucontext_t *uc) { remember(t, uc, false); }

void call_begun(struct thread *t) { t->stood.ip = 0; }

static bool peek(uint64_t from, void *to, size_t n) {
    struct iovec local = {to, n}, remote = {(void *)from, n};
    return RAW6(SYS_process_vm_readv, RAW0(SYS_getpid), &local, 1, &remote, 1, 0) == (long)n;
}

static long known(long nr) {
    switch (nr) {
    case SYS_read:
    case SYS_write:
    case SYS_readv:
    case SYS_writev:
    case SYS_recvfrom:
    case SYS_sendto:
    case SYS_sendmsg:
        return nr;
    }
    return -1;
}

// From glibc 2.41 on, calls at which a thread can be cancelled are made by one function, or in a program with threads by
// another one that it calls. The number is an argument of the first, on the stack: it is loaded into rax before the call,
// or into rsi for the second one, whose stack has only its return address and what it was given.
static long number_on_stack(const uint8_t *before, size_t n, uint64_t sp) {
    enum { CALL = 5, BACK = 24 };
    const uint8_t *load = before + n - 7;
    uint8_t code[BACK];
    uint64_t back;
    long nr;
    if (load[0] == 0x48 && load[1] == 0x8b && load[2] == 0x44 && load[3] == 0x24) // mov rax, [rsp + ...]
        return peek(sp + load[4], &nr, sizeof nr) ? known(nr) : -1;
    if (!peek(sp, &back, sizeof back) || !peek(back - BACK, code, BACK) || code[BACK - CALL] != 0xe8)
        return -1;
    for (int i = BACK - CALL - 5; i >= 0; i--) // mov rsi, [rsp + ...]
        if (code[i] == 0x48 && code[i + 1] == 0x8b && code[i + 2] == 0x74 && code[i + 3] == 0x24)
            return peek(sp + sizeof back + code[i + 4], &nr, sizeof nr) ? known(nr) : -1;
    return -1;
}

// The number of the call that the instruction before ip has made: what was put into rax a few instructions before.
// -1: another one, or it cannot be seen.
static long number_before(uint64_t ip, uint64_t sp) {
    enum { BACK = 22 }; // what compilers put between: loads of arguments
    uint8_t code[BACK];
    if (!peek(ip - BACK, code, BACK)) return -1;
    if (code[BACK - 2] != 0x0f || code[BACK - 1] != 0x05) return -1;       // syscall
    if (code[BACK - 4] == 0x31 && code[BACK - 3] == 0xc0) return SYS_read; // xor eax, eax
    for (int i = BACK - 7; i >= 0; i--) {                                  // mov eax, number
        if (code[i] != 0xb8 || code[i + 2] || code[i + 3] || code[i + 4]) continue;
        if (known(code[i + 1]) > 0) return code[i + 1];
    }
    return number_on_stack(code, BACK, sp);
}

static bool has_timeout(long fd, int option) {
    struct timeval tv = {0};
    int n = sizeof tv;
    return RAW6(SYS_getsockopt, fd, SOL_SOCKET, option, &tv, &n, 0) == 0 && (tv.tv_sec || tv.tv_usec);
}

// A call on a socket that has a timeout ends with EINTR after any handler, and the kernel does not make it again. It has
// done nothing, so we do, with its whole timeout.
static void make_again(struct thread *t, ucontext_t *uc) {
    greg_t *r = uc->uc_mcontext.gregs;
    if (host.sud || r[REG_RAX] != -EINTR) return;
    if (t->told == (uint64_t)r[REG_RIP]) {
        t->told = 0;
        return;
    }
    if (!has_timeout(r[REG_RDI], SO_RCVTIMEO) && !has_timeout(r[REG_RDI], SO_SNDTIMEO)) return;
    long nr = number_before((uint64_t)r[REG_RIP], (uint64_t)r[REG_RSP]);
    if (nr < 0) return;
    r[REG_RIP] -= 2;
    r[REG_RAX] = nr;
}

void call_told(struct thread *t, const ucontext_t *uc) {
    const greg_t *r = uc->uc_mcontext.gregs;
    t->told = r[REG_RAX] == -EINTR ? (uint64_t)r[REG_RIP] : 0;
}

void call_stopped(struct thread *t, ucontext_t *uc) {
    make_again(t, uc);
    if (stands(t, uc)) return; // noted when the call was cut, or the thread is stopped again
    t->stood.ip = 0;
    if (!host.sud && slow(uc)) remember(t, uc, true);
}

uint32_t call_save(const struct thread *t) {
    if (!stands(t, &t->uc)) return 0;
    return t->stood.native ? THREAD_WAITS : THREAD_CUT;
}

void call_load(struct thread *t, uint32_t flags) {
    if (flags & (THREAD_CUT | THREAD_WAITS)) remember(t, &t->uc, flags & THREAD_WAITS);
}

bool call_interrupted(struct thread *t, ucontext_t *uc, bool restart) {
    if (!t->stood.ip) return false;
    bool here = stands(t, uc), native = t->stood.native;
    if (here && !native) return true;
    t->stood.ip = 0;
    if (here && !restart && slow(uc)) {
        uc->uc_mcontext.gregs[REG_RIP] += 2;
        uc->uc_mcontext.gregs[REG_RAX] = -EINTR;
    }
    return false;
}
