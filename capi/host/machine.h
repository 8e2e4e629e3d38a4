// SPDX-License-Identifier: Apache-2.0
//
// machine.h: what C cannot express: raw system calls and the FS and GS bases.
//
// Handlers and the dispatcher make raw calls: such calls do not touch errno, which is thread-local, and
// libraries that patch the C library's functions do not see them.
#ifndef MACHINE_H
#define MACHINE_H

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

// The record of the upper thread that the caller carries, from the GS base.  NULL: the caller carries none,
// or one that has ended (thread.c).
static inline struct thread *self(void) {
    struct thread *t; // before thread_attach GS may be 0
    __asm__ volatile("rdgsbase %0\n\ttest %0, %0\n\tjz 1f\n\tmov %%gs:-8, %0\n1:" : "=r"(t)::"cc");
    return t;
}
static inline void set_gs(void *v) { __asm__ volatile("wrgsbase %0" ::"r"(v) : "memory"); }

// The FS base says whose thread-local storage is in use; this tells the halves apart.
static inline uint64_t get_fs(void) {
    uint64_t v;
    __asm__ volatile("rdfsbase %0" : "=r"(v));
    return v;
}
static inline void set_fs(uint64_t v) { __asm__ volatile("wrfsbase %0" ::"r"(v) : "memory"); }

#endif
