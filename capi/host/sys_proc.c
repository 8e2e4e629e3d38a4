// SPDX-License-Identifier: Apache-2.0
//
// sys_proc.c: ids, children, exec, exit.
//
// The application keeps the process and thread ids of its first start (docs/split-process.md P15).
// Children are ordinary processes with ids of their own.  A forked child continues in upper code without Go,
// and cannot be saved.  A program that it starts by exec runs without ckptrun, but see capi/enter.
#include "host.h"
#include "crossing.h"
#include "emulation.h"
#include "fds.h"
#include "limits.h"
#include "thread.h"
#include "wrap.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

pid_t to_real(pid_t virtual) {
    for (int i = 0; i < 4; i++)
        if (host.ids[i].virtual == virtual) return host.ids[i].real;
    return virtual;
}

pid_t to_virtual(pid_t real) {
    for (int i = 0; i < 4; i++)
        if (host.ids[i].real == real) return host.ids[i].virtual;
    return real;
}

// A child is not saved.
void asks(uint32_t what) {
    if (what && !host.child && !borrowed()) __atomic_or_fetch(&host.asked, what, __ATOMIC_RELEASE);
}

// In the vfork child the thread record is the parent's.
static bool is_record_of_caller(const struct thread *t) { return RAW0(SYS_gettid) == t->tid; }

long sys_getpid(struct call *c) {
    (void)c;
    return to_virtual((pid_t)RAW0(SYS_getpid));
}

long sys_getppid(struct call *c) {
    (void)c;
    return to_virtual((pid_t)RAW0(SYS_getppid));
}

long sys_getpgrp(struct call *c) {
    (void)c;
    return to_virtual((pid_t)RAW0(SYS_getpgrp));
}

long sys_gettid(struct call *c) { return is_record_of_caller(c->t) ? c->t->vtid : RAW0(SYS_gettid); }

long sys_prctl(struct call *c) {
    if (c->a[0] != PR_GET_TID_ADDRESS) {
        long r = raw6(SYS_prctl, c->a[0], c->a[1], c->a[2], c->a[3], c->a[4], 0);
        if (r == 0 && c->a[0] == PR_SET_SECCOMP) asks(CKPT_ASKED_FILTER);
        if (r == 0 &&
            (c->a[0] == PR_CAPBSET_DROP || c->a[0] == PR_CAP_AMBIENT || c->a[0] == PR_SET_SECUREBITS))
            asks(CKPT_ASKED_RIGHTS);
        return r;
    }
    struct iovec local = {&c->t->clear_tid, sizeof c->t->clear_tid},
                 remote = {(void *)c->a[1], sizeof c->t->clear_tid};
    return RAW6(SYS_process_vm_writev, RAW0(SYS_getpid), &local, 1, &remote, 1, 0) == (long)local.iov_len
               ? 0
               : -EFAULT;
}

long sys_set_tid_address(struct call *c) {
    c->t->clear_tid = (uint64_t)c->a[0];
    return sys_gettid(c);
}

pid_t real_tid(pid_t vtid) {
    lock();
    struct thread *t = thread_by_vtid(vtid);
    pid_t tid = t ? t->tid : to_real(vtid);
    unlock();
    return tid;
}

// Such a clock's number holds that of its process or thread, inverted, above what the kernel calls its kind.
clockid_t clock_of_kernel(clockid_t clock) {
    enum { OF_THREAD = 4, KIND = 3, OF_DESCRIPTOR = 3 };
    pid_t owner = ~(clock >> 3);
    if (clock >= 0 || (clock & KIND) == OF_DESCRIPTOR || owner == 0) return clock;
    owner = clock & OF_THREAD ? real_tid(owner) : to_real(owner);
    return (clockid_t)(~(uint32_t)owner << 3) | (clock & 7);
}

// Calls whose first argument is a process id and that return one or 0.
long sys_by_pid(struct call *c) {
    long r = RAW1(c->nr, to_real((pid_t)c->a[0]));
    return r > 0 ? to_virtual((pid_t)r) : r;
}

// The id at the beginning of a text that ends there or goes on with a slash, as the kernel has it; 0: there is none.
static pid_t real_in(const char *text, const char **end) {
    char *after;
    if (*text < '1' || *text > '9') return 0;
    long id = strtol(text, &after, 10);
    *end = after;
    return id > INT32_MAX || (*after != 0 && *after != '/') ? 0 : real_tid((pid_t)id);
}

bool real_path(char *path, size_t bytes) {
    static const char own[] = "self/", of[] = "/proc/", task[] = "/task/";
    const char *at = path + sizeof of - 1, *rest, *more;
    char id[24], changed[4096];
    if (strncmp(path, of, sizeof of - 1) || host.pid == to_virtual(host.pid)) return false;
    pid_t pid = real_in(at, &rest);
    if (pid != 0)
        snprintf(id, sizeof id, "%d", pid);
    else if (!strncmp(at, own, sizeof own - 1))
        strcpy(id, "self"), rest = at + sizeof own - 2;
    else
        return false;
    pid_t thread = strncmp(rest, task, sizeof task - 1) ? 0 : real_in(rest + sizeof task - 1, &more);
    int n = thread != 0 ? snprintf(changed, sizeof changed, "%s%s%s%d%s", of, id, task, thread, more)
                        : snprintf(changed, sizeof changed, "%s%s%s", of, id, rest);
    if (n >= (int)sizeof changed || (size_t)n >= bytes || !strcmp(path, changed)) return false;
    strcpy(path, changed);
    return true;
}

// Calls whose first argument is a thread id (0: the caller).
long sys_by_tid(struct call *c) {
    long a = c->a[0] ? real_tid((pid_t)c->a[0]) : 0;
    return raw6(c->nr, a, c->a[1], c->a[2], c->a[3], c->a[4], c->a[5]);
}

// Calls whose first argument is the id of a process, or of one of its threads, and that return no id.
long sys_of_process(struct call *c) {
    return raw6(c->nr, real_tid((pid_t)c->a[0]), c->a[1], c->a[2], c->a[3], c->a[4], c->a[5]);
}

// Calls of which the first argument says what the second is the id of: a thread, a group of processes, a user.
long sys_by_kind(struct call *c) {
    bool io = c->nr == SYS_ioprio_get || c->nr == SYS_ioprio_set; // IOPRIO_WHO_PROCESS is 1, PRIO_PROCESS 0
    pid_t who = (pid_t)c->a[1];
    long kind = io ? c->a[0] - 1 : c->a[0];
    long real = who == 0 ? 0 : kind == PRIO_PROCESS ? real_tid(who) : kind == PRIO_PGRP ? to_real(who) : who;
    return RAW3(c->nr, c->a[0], real, c->a[2]);
}

// The id is in the program's memory, which is not written to.
long sys_capabilities(struct call *c) {
    struct __user_cap_header_struct head;
    if (!copy_in(&head, (uint64_t)c->a[0], sizeof head) || head.pid == 0) return sys_rights(c);
    uint32_t asked = head.version;
    head.pid = real_tid(head.pid);
    long r = RAW2(c->nr, &head, c->a[1]);
    if (r == 0 && c->nr == SYS_capset) asks(CKPT_ASKED_RIGHTS);
    // The kernel may have said which version it prefers.
    if (head.version != asked && !copy_out((uint64_t)c->a[0], &head.version, sizeof head.version))
        return -EFAULT;
    return r;
}

// The kernel does so for the calling thread; of the process's other threads those are of the C library.
long sys_rights(struct call *c) {
    long r = raw6(c->nr, c->a[0], c->a[1], c->a[2], c->a[3], c->a[4], c->a[5]);
    if (r >= 0 && c->nr == SYS_seccomp)
        asks(c->a[0] == SECCOMP_SET_MODE_STRICT || c->a[0] == SECCOMP_SET_MODE_FILTER ? CKPT_ASKED_FILTER
                                                                                      : 0);
    else if (r >= 0 && c->nr != SYS_capget)
        asks(CKPT_ASKED_RIGHTS);
    return r;
}

// The kernel maps a ring for it, which is no memory of the program's, and knows it by its address.
long sys_io_setup(struct call *c) {
    asks(CKPT_ASKED_AIO);
    return RAW2(SYS_io_setup, c->a[0], c->a[1]);
}

long sys_kcmp(struct call *c) {
    return raw6(c->nr, real_tid((pid_t)c->a[0]), real_tid((pid_t)c->a[1]), c->a[2], c->a[3], c->a[4], 0);
}

// What the process has registered for has to be registered again after a restart.
long sys_membarrier(struct call *c) {
    long r = RAW3(SYS_membarrier, c->a[0], c->a[1], c->a[2]);
    if (r == 0) asks((uint32_t)c->a[0] & CKPT_ASKED_BARRIERS);
    return r;
}

long sys_setpgid(struct call *c) {
    return RAW2(SYS_setpgid, to_real((pid_t)c->a[0]), to_real((pid_t)c->a[1]));
}

static pid_t real_target(pid_t pid) { return pid < -1 ? -to_real(-pid) : to_real(pid); }

// A SIGURG of the application's to a thread of its own; -ESRCH: there is no such thread.
static long own_urgent(pid_t tid, int code) {
    siginfo_t si = {.si_signo = SIGURG, .si_code = code};
    si.si_pid = host.pid;
    si.si_uid = (uid_t)RAW0(SYS_getuid);
    return borrowed() ? -ESRCH : signal_urgent(tid, &si);
}

long sys_kill(struct call *c) {
    pid_t to = real_target((pid_t)c->a[0]);
    // Of the process, a thread of Go would take it first, and pass it on later.
    bool open = !(uc_mask(c->uc) & KBIT(SIGURG));
    if ((int)c->a[1] == SIGURG && to == host.pid && own_urgent(open ? c->t->tid : to, SI_USER) == 0) return 0;
    // All signals are blocked here: a signal to this process arrives when the upper context is back.
    return RAW2(SYS_kill, to, c->a[1]);
}

long sys_tgkill(struct call *c) {
    pid_t pid = to_real((pid_t)c->a[0]), tid = real_tid((pid_t)c->a[1]);
    if ((int)c->a[2] == SIGURG && pid == host.pid && tid > 0 && own_urgent(tid, SI_TKILL) == 0) return 0;
    return RAW3(SYS_tgkill, pid, tid, c->a[2]);
}

long sys_tkill(struct call *c) {
    pid_t tid = real_tid((pid_t)c->a[0]);
    if ((int)c->a[1] == SIGURG && tid > 0 && own_urgent(tid, SI_TKILL) == 0) return 0;
    return RAW2(SYS_tkill, tid, c->a[1]);
}

long sys_sigqueueinfo(struct call *c) {
    if (c->nr == SYS_rt_sigqueueinfo) return RAW3(c->nr, to_real((pid_t)c->a[0]), c->a[1], c->a[2]);
    return RAW4(c->nr, to_real((pid_t)c->a[0]), real_tid((pid_t)c->a[1]), c->a[2], c->a[3]);
}

// ---- children ----------------------------------------------------------------------------------

long sys_wait4(struct call *c) {
    long a[6] = {real_target((pid_t)c->a[0]), c->a[1], c->a[2], c->a[3]};
    return blocking(c, SYS_wait4, a);
}

long sys_waitid(struct call *c) {
    long a[6] = {c->a[0], c->a[1], c->a[2], c->a[3], c->a[4]};
    if (a[0] == P_PID || a[0] == P_PGID) a[1] = to_real((pid_t)a[1]);
    return blocking(c, SYS_waitid, a);
}

// Makes a copy of the process with the lower libc's fork, which keeps the lower malloc usable in the child.
// The upper libc does the same for its own half around this call.
static long do_fork(struct call *c, unsigned long flags, pid_t *ctid) {
    memory_changes(c, 0, 0, MEMORY_COPY);
    lock(); // so that the child does not inherit it held by another thread
    pid_t pid = fork();
    if (pid < 0) {
        unlock();
        return -errno;
    }
    if (pid > 0) {
        host.parent = true;
        unlock();
        return pid;
    }
    host.child = true;
    host.pid = (pid_t)RAW0(SYS_getpid);
    thread_forked(c->t);
    fds_forked();
    timers_forked();
    spent_forked(c->t);
    undo_forked();
    unlock();
    trap_arm_thread();
    c->t->clear_tid = flags & CLONE_CHILD_CLEARTID ? (uint64_t)ctid : 0;
    c->t->robust = 0; // as in the kernel; the C library sets it again
    if (flags & CLONE_CHILD_SETTID) *ctid = host.pid;
    return 0;
}

long sys_fork(struct call *c) { return do_fork(c, 0, NULL); }

// What a vfork child needs to continue in upper code.  The child borrows our memory but not our signal stack:
// the parent sleeps on that one, in this very handler (docs/split-process.md P13).
struct borrower {
    struct thread *t;
    uint8_t *stack; // the child's lower signal stack
    size_t bytes;
    kmask mask;
    uint64_t fs;
    ucontext_t *uc; // context to continue, in the kernel's frame layout
};

static void borrower_run(void *arg) {
    struct borrower *b = arg;
    stack_t ss = {.ss_sp = b->stack, .ss_size = b->bytes};
    RAW2(SYS_sigaltstack, &ss, NULL);
    trap_arm_thread();
    b->uc->uc_stack = ss;
    host_sigreturn(b->uc, b->fs);
}

static long do_vfork(struct call *c, uint64_t stack) {
    enum { ALT = 128 << 10, RUN = 64 << 10 };
    memory_changes(c, 0, 0, MEMORY_COPY); // nobody could tell Go of the child's changes
    size_t bytes = ALT + RUN;
    uint8_t *m =
        (uint8_t *)RAW6(SYS_mmap, 0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if ((long)m < 0) return -ENOMEM;
    // The frame: context, then extended state, below the top of the run stack.
    uint32_t xbytes = xsave_size(c->uc);
    uint8_t *x = (uint8_t *)(((uint64_t)(m + bytes) - xbytes - 64) & ~63ull);
    memcpy(x, c->uc->uc_mcontext.fpregs, xbytes);
    ucontext_t *uc = (ucontext_t *)(((uint64_t)x - 1024) & ~15ull);
    memcpy(uc, c->uc, KUC_BYTES);
    uc->uc_mcontext.fpregs = (fpregset_t)x;
    uc->uc_mcontext.gregs[REG_RAX] = 0;
    if (stack) uc->uc_mcontext.gregs[REG_RSP] = (greg_t)stack;
    struct borrower b = {c->t, m, ALT, uc_mask(c->uc), c->t->upper_fs, uc};
    uint64_t keep_fs = c->t->upper_fs, keep_clear = c->t->clear_tid, keep_hidden = c->t->hidden_mask;
    stack_t keep_alt = c->t->app_altstack;
    struct limits limits = limits_keep();
    fds_vfork_begin(c->t);
    long pid = host_vfork(CLONE_VM | CLONE_VFORK | SIGCHLD, (uint8_t *)uc - 256, borrower_run, &b);
    fds_vfork_end(c->t);
    limits_put(&limits);
    host.parent = true;
    wrap_free(&c->t->outfit); // after a successful exec the child has not freed it
    c->t->upper_fs = c->t->fs_base = keep_fs;
    c->t->clear_tid = keep_clear;
    c->t->hidden_mask = keep_hidden;
    c->t->app_altstack = keep_alt;
    c->t->attention = c->t->pending.count ? ATTN_SIGNAL : 0;
    if (host.park_gen & 1) c->t->attention |= ATTN_PARK;
    RAW2(SYS_munmap, m, bytes);
    return pid;
}

long sys_vfork(struct call *c) {
    if (borrowed()) return do_fork(c, 0, NULL);
    return do_vfork(c, 0);
}

// What clone tells the parent of a child.  A descriptor of the child is made afterwards, so a child that cannot have one
// has begun already; it is ended.
static long told(struct call *c, unsigned long flags, pid_t child) {
    if (flags & CLONE_PARENT_SETTID) copy_out((uint64_t)c->a[2], &child, sizeof child);
    if (!(flags & CLONE_PIDFD)) return child;
    struct call opens = *c;
    opens.nr = SYS_pidfd_open, opens.a[0] = child, opens.a[1] = 0;
    long fd = sys_newfd(&opens);
    int number = (int)fd;
    if (fd >= 0 && copy_out((uint64_t)c->a[2], &number, sizeof number)) return child;
    RAW2(SYS_kill, child, SIGKILL);
    RAW4(SYS_wait4, child, NULL, 0, NULL);
    return fd < 0 ? fd : -EFAULT;
}

long sys_clone(struct call *c) {
    unsigned long flags = (unsigned long)c->a[0];
    pid_t *ctid = (pid_t *)c->a[3];
    const unsigned long ids = CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID | CLONE_PARENT_SETTID | CLONE_PIDFD;
    // Both would be written to the same place.
    if ((flags & CLONE_PIDFD) && (flags & CLONE_PARENT_SETTID)) return -EINVAL;
    if (flags & CLONE_THREAD) return thread_create(c);
    if ((flags & (CLONE_VM | CLONE_VFORK)) == (CLONE_VM | CLONE_VFORK) && !borrowed()) {
        long r = do_vfork(c, (uint64_t)c->a[1]);
        return r > 0 ? told(c, flags, (pid_t)r) : r;
    }
    if (!(flags & ~(ids | 0xff)) && (flags & 0xff) == SIGCHLD) {
        long r = do_fork(c, flags, ctid);
        if (r == 0 && c->a[1]) c->uc->uc_mcontext.gregs[REG_RSP] = c->a[1]; // in its copy of the memory
        return r > 0 ? told(c, flags, (pid_t)r) : r;
    }
    return -EINVAL; // processes that share memory without vfork, or in other namespaces
}

// ---- exec --------------------------------------------------------------------------------------

// Whether path names something that ckptrun can run.  If not, the call fails as the kernel's would, before
// anything is torn down.
static long can_exec(const char *path) {
    if (RAW2(SYS_access, path, X_OK) < 0) return RAW2(SYS_access, path, F_OK) < 0 ? -ENOENT : -EACCES;
    return 0;
}

static bool dynamic_or_script(const char *path) {
    unsigned char b[4096];
    long fd = RAW3(SYS_open, path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) return false;
    long n = RAW3(SYS_read, fd, b, sizeof b);
    RAW1(SYS_close, fd);
    if (n > 2 && b[0] == '#' && b[1] == '!') return true;
    if (n < 64 || memcmp(b, "\177ELF\2", 5)) return false;
    uint64_t phoff;
    uint16_t size, num;
    memcpy(&phoff, b + 32, 8);
    memcpy(&size, b + 54, 2);
    memcpy(&num, b + 56, 2);
    for (uint16_t i = 0; i < num && phoff + (uint64_t)(i + 1) * size <= (uint64_t)n; i++) {
        uint32_t type;
        memcpy(&type, b + phoff + (uint64_t)i * size, 4);
        if (type == PT_INTERP) return true;
    }
    return false;
}

// The job's own process replaces itself: ckptrun starts again, with the same options.
static long exec_again(struct call *c, const char *path, char *const *argv, char *const *envp) {
    long r = can_exec(path);
    if (r) return r;
    struct outfit e = {0}, a = {0};
    char **environment = wrap_environment(c, envp, &e);
    char **args = environment ? wrap_arguments(path, argv, &a) : NULL;
    if (!args)
        r = -ENOMEM;
    else if (dynamic_or_script(path))
        r = RAW3(SYS_execve, host.ckptrun, args, environment);
    else
        r = RAW3(SYS_execve, path, argv, environment);
    wrap_free(&a);
    wrap_free(&e);
    return r;
}

// A program that a child starts runs without ckptrun.  While this process may be just a wrapper, that program
// may be the MPI program; if so, it starts itself under ckptrun (capi/enter).
static long exec_child(struct call *c, const char *path, char *const *argv, char *const *envp) {
    if (!host.launched || host.mpi) return RAW3(SYS_execve, path, argv, envp);
    char **environment = wrap_environment(c, envp, &c->t->outfit);
    if (!environment) return -ENOMEM;
    long r = RAW3(SYS_execve, path, argv, environment);
    wrap_free(&c->t->outfit);
    return r;
}

static long do_exec(struct call *c, const char *path, char *const *argv, char *const *envp) {
    bool child = host.child || borrowed();
    if (!child) host.ending = 1; // no checkpoint from here on
    signals_before_exec();
    set_kernel_mask(uc_mask(c->uc)); // inherited (docs/split-process.md P14)
    // A wrapper's child may be the MPI program, and enter ckptrun.
    struct limits was = limits_before_exec(c->t, !child || (host.launched && !host.mpi));
    long r = child ? exec_child(c, path, argv, envp) : exec_again(c, path, argv, envp);
    limits_exec_failed(&was);
    block_all();
    if (!borrowed()) signals_reinstall();
    if (!child) host.ending = 0;
    return r;
}

long sys_execve(struct call *c) {
    char path[4096];
    if (!copy_string(path, sizeof path, (uint64_t)c->a[0])) return -EFAULT;
    return do_exec(c, strcmp(path, "/proc/self/exe") ? path : host.exe, (char *const *)c->a[1],
                   (char *const *)c->a[2]);
}

long sys_execveat(struct call *c) {
    if (!host.child && !borrowed()) return -ENOSYS; // glibc's fexecve falls back to execve
    signals_before_exec();
    set_kernel_mask(uc_mask(c->uc));
    struct limits was = limits_before_exec(c->t, host.launched && !host.mpi);
    long r = raw6(SYS_execveat, c->a[0], c->a[1], c->a[2], c->a[3], c->a[4], 0);
    limits_exec_failed(&was);
    block_all();
    return r;
}

// ---- exit --------------------------------------------------------------------------------------

long sys_exit(struct call *c) {
    if (borrowed()) RAW1(SYS_exit, c->a[0]);
    thread_leave(c->t, (int)c->a[0]);
}

static long tell_ending(void *status) {
    host.go.ending((int)(long)status, host.parent);
    return 0;
}

long sys_exit_group(struct call *c) {
    if (!host.child && !borrowed()) {
        host.ending = 1;
        thread_call_lower(c->t, c->uc, tell_ending, (void *)c->a[0]);
    }
    if (!borrowed()) robust_end(c->t);
    RAW1(SYS_exit_group, c->a[0]);
    __builtin_unreachable();
}
