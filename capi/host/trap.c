// SPDX-License-Identifier: Apache-2.0
//
// trap.c: makes the kernel hand us the upper half's system calls.
//
// seccomp: a filter looks for the number first, and at the instruction pointer only for numbers that are
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
#define FUTEX_CMD_MOST 15u // FUTEX_CMD_MASK has more bits
#define FIELD(name) ((uint32_t)offsetof(struct seccomp_data, name))
#define LOAD(off) (struct sock_filter) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, off)
#define AND(v) (struct sock_filter) BPF_STMT(BPF_ALU | BPF_AND | BPF_K, v)
#define JEQ(v, t, f) (struct sock_filter) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, v, t, f)
#define JGE(v, t, f) (struct sock_filter) BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, v, t, f)
#define JSET(v, t, f) (struct sock_filter) BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, v, t, f)
#define JUMP(k) (struct sock_filter) BPF_STMT(BPF_JMP | BPF_JA, k)
#define RET(v) (struct sock_filter) BPF_STMT(BPF_RET | BPF_K, v)

// What the filter does with a number: let it through, look at where it was made, or at an argument first.
enum { PASS, LOOK, CONDITIONS_FROM };
static const uint32_t conditional[] = {SYS_futex, SYS_fcntl, SYS_newfstatat, SYS_statx,
                                       SYS_ioctl, SYS_prctl, SYS_madvise,    SYS_membarrier};
enum { CONDITIONS = sizeof conditional / sizeof *conditional };

// Numbers that are treated alike, from one on until the next range.
struct range {
    uint32_t from;
    int what;
};
enum { RANGES = 256, CODE = 1024 };

static struct sock_filter code[CODE];
static unsigned length;

static unsigned emit(struct sock_filter f) {
    code[length] = f;
    return length++;
}

static int treatment(uint32_t nr) {
    for (int i = 0; i < CONDITIONS; i++)
        if (conditional[i] == nr) return CONDITIONS_FROM + i;
    if (nr == SYS_getrusage || nr == SYS_times) return host.restarted ? LOOK : PASS; // spent.c
    return nr == NR_ATTENTION || (nr < TRAPS && traps[nr].fn && !traps[nr].when) ? LOOK : PASS;
}

static int make_ranges(struct range *r) {
    int ranges = 0;
    static const uint32_t last[] = {NR_ATTENTION, NR_ATTENTION + 1};
    for (uint32_t i = 0; i < TRAPS + 2; i++) {
        uint32_t nr = i < TRAPS ? i : last[i - TRAPS];
        int what = treatment(nr);
        if (ranges && r[ranges - 1].what == what) continue;
        if (ranges == RANGES) return -1;
        r[ranges++] = (struct range){nr, what};
    }
    return ranges;
}

// A binary search: the lower half's own calls go through here, too, and those that a list has at its end, as
// epoll_wait, are the ones that a library makes most. Leaves that do not end at once jump to what is made
// later, by the what that stands in k until then.
static void search(const struct range *r, int ranges) {
    if (ranges == 1) {
        emit(r->what == PASS ? RET(SECCOMP_RET_ALLOW) : JUMP((uint32_t)r->what));
        return;
    }
    int half = ranges / 2;
    unsigned left = 2u * (unsigned)half - 1; // instructions
    emit(JGE(r[half].from, (uint8_t)left, 0));
    search(r, half);
    search(r + half, ranges - half);
}

static const char *arm_seccomp(void) {
    static char why[200];
    static struct range ranges[RANGES];
    // Layout: head, the search, the conditions, test of the address.
    unsigned begins[CONDITIONS_FROM + CONDITIONS];
    unsigned pending[64];
    unsigned npending = 0;
    length = 0;
    emit(LOAD(FIELD(arch)));
    emit(JEQ(AUDIT_ARCH_X86_64, 1, 0));
    emit(RET(SECCOMP_RET_ALLOW));
    emit(LOAD(FIELD(nr)));
    unsigned first = length;
    int count = make_ranges(ranges);
    if (count < 0) return "internal: more ranges of system calls than the filter has room for";
    search(ranges, count);
    unsigned last = length;

#define TRAP_IF(test) (pending[npending++] = emit(test))
    // futex: only waits with a timeout, which the kernel would not restart after parking; and after a restart what has the
    // number of a thread in it (inherit.c).
    begins[CONDITIONS_FROM + 0] = length;
    if (host.restarted) {
        emit(LOAD(FIELD(args[1])));
        emit(AND((uint32_t)FUTEX_CMD_MASK));
        for (uint32_t op = 0; op <= FUTEX_CMD_MOST; op++)
            if (inherits(op)) TRAP_IF(JEQ(op, 0, 0));
    }
    emit(LOAD(FIELD(args[3])));
    emit(JEQ(0, 0, 2));
    emit(LOAD(FIELD(args[3]) + 4));
    emit(JEQ(0, 5, 0));
    emit(LOAD(FIELD(args[1])));
    emit(AND((uint32_t)FUTEX_CMD_MASK));
    TRAP_IF(JEQ(FUTEX_WAIT, 0, 0));
    TRAP_IF(JEQ(FUTEX_WAIT_BITSET, 0, 0));
    TRAP_IF(JEQ(FUTEX_LOCK_PI, 0, 0));
    emit(RET(SECCOMP_RET_ALLOW));
    // fcntl: commands that make a descriptor, those that a placeholder would answer, and record locks.
    begins[CONDITIONS_FROM + 1] = length;
    emit(LOAD(FIELD(args[1])));
    TRAP_IF(JEQ(F_DUPFD, 0, 0));
    TRAP_IF(JEQ(F_DUPFD_CLOEXEC, 0, 0));
    TRAP_IF(JEQ(F_GETFD, 0, 0));
    TRAP_IF(JEQ(F_SETFD, 0, 0));
    TRAP_IF(JEQ(F_GETFL, 0, 0));
    TRAP_IF(JEQ(F_SETLK, 0, 0));
    TRAP_IF(JEQ(F_SETLKW, 0, 0));
    emit(RET(SECCOMP_RET_ALLOW));
    // newfstatat and statx: only of a descriptor (AT_EMPTY_PATH), which may be a placeholder.
    static const uint32_t flags[2] = {FIELD(args[3]), FIELD(args[2])};
    for (unsigned i = 0; i < 2; i++) {
        begins[CONDITIONS_FROM + 2 + i] = length;
        emit(LOAD(flags[i]));
        TRAP_IF(JSET(AT_EMPTY_PATH, 0, 0));
        emit(RET(SECCOMP_RET_ALLOW));
    }
    // ioctl: requests that make a descriptor.
    begins[CONDITIONS_FROM + 4] = length;
    emit(LOAD(FIELD(args[1])));
    TRAP_IF(JEQ(TIOCGPTPEER, 0, 0));
    TRAP_IF(JEQ(NS_GET_USERNS, 0, 0));
    TRAP_IF(JEQ(NS_GET_PARENT, 0, 0));
    emit(RET(SECCOMP_RET_ALLOW));
    // prctl: what the kernel knows of a thread's end is ckptrun's; and what a program gives up.
    begins[CONDITIONS_FROM + 5] = length;
    emit(LOAD(FIELD(args[0])));
    TRAP_IF(JEQ(PR_GET_TID_ADDRESS, 0, 0));
    TRAP_IF(JEQ(PR_SET_SECCOMP, 0, 0));
    TRAP_IF(JEQ(PR_CAPBSET_DROP, 0, 0));
    TRAP_IF(JEQ(PR_CAP_AMBIENT, 0, 0));
    TRAP_IF(JEQ(PR_SET_SECUREBITS, 0, 0));
    emit(RET(SECCOMP_RET_ALLOW));
    // madvise: what an image has to say; what gives memory back, where that may have been missing.
    begins[CONDITIONS_FROM + 6] = length;
    emit(LOAD(FIELD(args[2])));
    for (unsigned i = 0; i < ADVICES; i++) TRAP_IF(JEQ((uint32_t)advices[i].advice, 0, 0));
    TRAP_IF(JEQ(MADV_GUARD_INSTALL, 0, 0)); // there are none
    if (host.restarted_lazily) {
        TRAP_IF(JEQ(MADV_DONTNEED, 0, 0));
        TRAP_IF(JEQ(MADV_DONTNEED_LOCKED, 0, 0));
    }
    emit(RET(SECCOMP_RET_ALLOW));
    // membarrier: what the process registers for.
    begins[CONDITIONS_FROM + 7] = length;
    emit(LOAD(FIELD(args[0])));
    TRAP_IF(JSET(CKPT_ASKED_BARRIERS, 0, 0));
    emit(RET(SECCOMP_RET_ALLOW));
    begins[LOOK] = length;
    for (unsigned i = first; i < last; i++)
        if (code[i].code == (BPF_JMP | BPF_JA)) code[i].k = begins[code[i].k] - i - 1;
    for (unsigned i = 0; i < npending; i++) code[pending[i]].jt = (uint8_t)(length - pending[i] - 1);
    // From the arena, or from a program that is linked at a fixed low address and makes calls itself, as those in Go do.
    emit(LOAD(FIELD(instruction_pointer) + 4));
    emit(JEQ(0, 3, 0));
    emit(JGE((uint32_t)(ARENA >> 32), 0, 1));
    emit(JGE((uint32_t)(ARENA_END >> 32), 0, 1));
    emit(RET(SECCOMP_RET_ALLOW));
    emit(RET(SECCOMP_RET_TRAP));
    struct sock_fprog prog = {.len = (unsigned short)length, .filter = code};
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
