// SPDX-License-Identifier: Apache-2.0
//
// machine.h: what C cannot express: raw system calls and the FS and GS bases.
//
// Handlers and the dispatcher make raw calls: such calls do not touch errno, which is thread-local, and
// libraries that patch the C library's functions do not see them.
#ifndef MACHINE_H
#define MACHINE_H

#include <asm/prctl.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>

struct thread;

static inline long raw6(long nr, long a, long b, long c, long d, long e, long f) {
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long ret;
    __asm__ volatile("syscall"
                     : "=a"(ret)
                     : "0"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return ret;
}
#define RAW0(nr) raw6(nr, 0, 0, 0, 0, 0, 0)
#define RAW1(nr, a) raw6(nr, (long)(a), 0, 0, 0, 0, 0)
#define RAW2(nr, a, b) raw6(nr, (long)(a), (long)(b), 0, 0, 0, 0)
#define RAW3(nr, a, b, c) raw6(nr, (long)(a), (long)(b), (long)(c), 0, 0, 0)
#define RAW4(nr, a, b, c, d) raw6(nr, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)
#define RAW6(nr, a, b, c, d, e, f) raw6(nr, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

// Whether a process may read and write the FS and GS bases itself (the processor's and the kernel's FSGSBASE).  Else
// only the kernel changes them, at the price of a system call, and loses what the instructions write, where they
// work at all, at the next switch to another process: the FS base is the upper half's all the time then, and all of
// the lower half uses GS (lower_tls.c).  Constant after lower_tls_begin.
extern bool fsgsbase;

// The record of the upper thread that the caller carries, from the GS base.  NULL: the caller carries none,
// or one that has ended (thread.c).
static inline struct thread *self(void) {
    struct thread *t; // before thread_attach GS may be 0
    if (fsgsbase)
        __asm__ volatile("rdgsbase %0\n\ttest %0, %0\n\tjz 1f\n\tmov %%gs:-8, %0\n1:" : "=r"(t)::"cc");
    else // never 0 after lower_tls_begin
        __asm__ volatile("mov %%gs:-8, %0" : "=r"(t));
    return t;
}
static inline void set_gs(void *v) {
    if (fsgsbase)
        __asm__ volatile("wrgsbase %0" ::"r"(v) : "memory");
    else
        RAW2(SYS_arch_prctl, ARCH_SET_GS, v);
}

// The FS base says whose thread-local storage is in use; this tells the halves apart.  The C library keeps it in the
// first word there, too.
static inline uint64_t get_fs(void) {
    uint64_t v;
    if (fsgsbase)
        __asm__ volatile("rdfsbase %0" : "=r"(v));
    else
        __asm__ volatile("mov %%fs:0, %0" : "=r"(v));
    return v;
}
// Where FS is to be this half's for a while; it stays the upper half's without FSGSBASE.
static inline void set_fs(uint64_t v) {
    if (fsgsbase) __asm__ volatile("wrfsbase %0" ::"r"(v) : "memory");
}

#endif
