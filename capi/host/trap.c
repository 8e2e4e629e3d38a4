// SPDX-License-Identifier: Apache-2.0
//
// trap.c: makes the kernel hand us the upper half's system calls.
//
// seccomp: a filter looks at the number first, and at the instruction pointer only for numbers that are
// emulated. All other calls cost what they cost without ckptrun (docs/split-process.md, "System calls").
// --trap sud: Syscall User Dispatch traps all calls from below the end of the arena, without a selector; it
// is armed per thread.
#include "host.h"
#include "arena.h"
#include "thread.h"
#include "traps.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/nsfs.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#ifndef MADV_GUARD_INSTALL // Linux 6.13
#define MADV_GUARD_INSTALL 102
#endif
#define FIELD(name) ((uint32_t)offsetof(struct seccomp_data, name))
#define LOAD(off) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, off)
#define JEQ(v, t, f) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, v, t, f)
#define JGE(v, t, f) BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, v, t, f)
#define RET(v) BPF_STMT(BPF_RET | BPF_K, v)

static const char *arm_seccomp(void) {
    static struct sock_filter code[256];
    static char why[200];
    unsigned n = 0;
    // Layout: head, one test a number, tests of the numbers with conditions, allow, the conditions,
    // test of the address.
    enum { CONDITIONS = 7 };
    static const uint32_t numbers[CONDITIONS] = {SYS_futex, SYS_fcntl, SYS_newfstatat, SYS_statx,
                                                 SYS_ioctl, SYS_prctl, SYS_madvise};
    unsigned jump[CONDITIONS];
    struct sock_filter *pending[24];
    unsigned npending = 0;
    code[n++] = (struct sock_filter)LOAD(FIELD(arch));
    code[n++] = (struct sock_filter)JEQ(AUDIT_ARCH_X86_64, 1, 0);
    code[n++] = (struct sock_filter)RET(SECCOMP_RET_ALLOW);
    code[n++] = (struct sock_filter)LOAD(FIELD(nr));
    unsigned first = n;
    for (unsigned nr = 0; nr < TRAPS; nr++)
        if (traps[nr].fn && !traps[nr].when) code[n++] = (struct sock_filter)JEQ(nr, 0, 0);
    code[n++] = (struct sock_filter)JEQ(NR_ATTENTION, 0, 0);
    unsigned last = n;
    for (unsigned i = 0; i < CONDITIONS; i++) {
        jump[i] = n;
        code[n++] = (struct sock_filter)JEQ(numbers[i], 0, 0);
    }
    code[n++] = (struct sock_filter)RET(SECCOMP_RET_ALLOW);

#define TRAP_IF(test) (pending[npending++] = &code[n], code[n++] = (struct sock_filter)test)
    // futex: only waits with a timeout, which the kernel would not restart after parking.
    code[jump[0]].jt = (uint8_t)(n - jump[0] - 1);
    code[n++] = (struct sock_filter)LOAD(FIELD(args[3]));
    code[n++] = (struct sock_filter)JEQ(0, 0, 2);
    code[n++] = (struct sock_filter)LOAD(FIELD(args[3]) + 4);
    code[n++] = (struct sock_filter)JEQ(0, 5, 0);
    code[n++] = (struct sock_filter)LOAD(FIELD(args[1]));
    code[n++] = (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, (uint32_t)FUTEX_CMD_MASK);
    TRAP_IF(JEQ(FUTEX_WAIT, 0, 0));
    TRAP_IF(JEQ(FUTEX_WAIT_BITSET, 0, 0));
    TRAP_IF(JEQ(FUTEX_LOCK_PI, 0, 0));
    code[n++] = (struct sock_filter)RET(SECCOMP_RET_ALLOW);
    // fcntl: commands that make a descriptor, and those that a placeholder would answer.
    code[jump[1]].jt = (uint8_t)(n - jump[1] - 1);
    code[n++] = (struct sock_filter)LOAD(FIELD(args[1]));
    TRAP_IF(JEQ(F_DUPFD, 0, 0));
    TRAP_IF(JEQ(F_DUPFD_CLOEXEC, 0, 0));
    TRAP_IF(JEQ(F_GETFD, 0, 0));
    TRAP_IF(JEQ(F_SETFD, 0, 0));
    TRAP_IF(JEQ(F_GETFL, 0, 0));
    code[n++] = (struct sock_filter)RET(SECCOMP_RET_ALLOW);
    // newfstatat and statx: only of a descriptor (AT_EMPTY_PATH), which may be a placeholder.
    static const uint32_t flags[2] = {FIELD(args[3]), FIELD(args[2])};
    for (unsigned i = 0; i < 2; i++) {
        code[jump[2 + i]].jt = (uint8_t)(n - jump[2 + i] - 1);
        code[n++] = (struct sock_filter)LOAD(flags[i]);
        TRAP_IF(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, AT_EMPTY_PATH, 0, 0));
        code[n++] = (struct sock_filter)RET(SECCOMP_RET_ALLOW);
    }
    // ioctl: requests that make a descriptor.
    code[jump[4]].jt = (uint8_t)(n - jump[4] - 1);
    code[n++] = (struct sock_filter)LOAD(FIELD(args[1]));
    TRAP_IF(JEQ(TIOCGPTPEER, 0, 0));
    TRAP_IF(JEQ(NS_GET_USERNS, 0, 0));
    TRAP_IF(JEQ(NS_GET_PARENT, 0, 0));
    code[n++] = (struct sock_filter)RET(SECCOMP_RET_ALLOW);
    // prctl: what the kernel knows of a thread's end is ckptrun's.
    code[jump[5]].jt = (uint8_t)(n - jump[5] - 1);
    code[n++] = (struct sock_filter)LOAD(FIELD(args[0]));
    TRAP_IF(JEQ(PR_GET_TID_ADDRESS, 0, 0));
    code[n++] = (struct sock_filter)RET(SECCOMP_RET_ALLOW);
    // madvise: what hides memory from forks; what gives memory back, where that may have been missing.
    code[jump[6]].jt = (uint8_t)(n - jump[6] - 1);
    code[n++] = (struct sock_filter)LOAD(FIELD(args[2]));
    TRAP_IF(JEQ(MADV_DONTFORK, 0, 0));
    TRAP_IF(JEQ(MADV_WIPEONFORK, 0, 0));
    if (host.restarted_lazily) {
        TRAP_IF(JEQ(MADV_DONTNEED, 0, 0));
        TRAP_IF(JEQ(MADV_DONTNEED_LOCKED, 0, 0));
        TRAP_IF(JEQ(MADV_GUARD_INSTALL, 0, 0));
    }
    code[n++] = (struct sock_filter)RET(SECCOMP_RET_ALLOW);
    if (n - first > 255) return "internal: the filter is too long for its jumps";
    for (unsigned i = first; i < last; i++) code[i].jt = (uint8_t)(n - i - 1);
    for (unsigned i = 0; i < npending; i++) pending[i]->jt = (uint8_t)(&code[n] - pending[i] - 1);
    code[n++] = (struct sock_filter)LOAD(FIELD(instruction_pointer) + 4);
    code[n++] = (struct sock_filter)JGE((uint32_t)(ARENA >> 32), 0, 1);
    code[n++] = (struct sock_filter)JGE((uint32_t)(ARENA_END >> 32), 0, 1);
    code[n++] = (struct sock_filter)RET(SECCOMP_RET_ALLOW);
    code[n++] = (struct sock_filter)RET(SECCOMP_RET_TRAP);
    struct sock_fprog prog = {.len = (unsigned short)n, .filter = code};
    // With privilege, setuid programs that the program starts work; without, they lose their setuid bit.
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) == 0) return NULL;
    if (errno == EACCES) {
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) == 0) return NULL;
    }
    snprintf(why, sizeof why,
             "the kernel refuses a seccomp filter (%s); try --trap sud (Linux 5.11 and later), "
             "and see `ckptctl doctor`",
             strerror(errno));
    return why;
}

static long arm_sud(void) {
    return RAW6(SYS_prctl, PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, ARENA_END, 0x7fff00000000ull, 0,
                0);
}

const char *trap_arm_process(void) {
    if (!host.sud) return arm_seccomp();
    static char why[200];
    long r = arm_sud();
    if (r == 0) return NULL;
    snprintf(why, sizeof why,
             "the kernel refuses Syscall User Dispatch (%s); use --trap seccomp, and see `ckptctl "
             "doctor`",
             strerror((int)-r));
    return why;
}

// Syscall User Dispatch is dropped by clone and fork.
void trap_arm_thread(void) {
    if (host.sud) arm_sud();
}
