// SPDX-License-Identifier: Apache-2.0
//
// dispatch.c: what happens to a system call that was trapped.
//
// The dispatcher runs in the SIGSYS handler: on the thread's lower signal stack, with the lower FS base and
// all signals blocked.  The signal frame holds the upper context; the result of the call goes into the rax of
// that frame.  On its way out the dispatcher delivers signals that came meanwhile, and parks the thread if
// that was asked for.  So both happen only when the thread is between two instructions of upper code.
#include "host.h"
#include "crossing.h"
#include "thread.h"
#include "traps.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/major.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/wait.h>

#define PLAIN(f) \
    { .fn = (f) }
#define AGAIN(f) \
    { .fn = (f), .restartable = true }
#define IF(f) \
    { .fn = (f), .when = true }

const struct trap traps[TRAPS] = {
    // addresses
    [SYS_mmap] = PLAIN(sys_mmap),
    [SYS_munmap] = PLAIN(sys_munmap),
    [SYS_mremap] = PLAIN(sys_mremap),
    [SYS_brk] = PLAIN(sys_brk),
    [SYS_madvise] = IF(sys_madvise),
    [SYS_mlock] = PLAIN(sys_mlock),
    [SYS_mlock2] = PLAIN(sys_mlock),
    [SYS_mlockall] = PLAIN(sys_mlock),
    [SYS_shmget] = PLAIN(sys_shmget),
    [SYS_shmat] = PLAIN(sys_shmat),
    [SYS_shmdt] = PLAIN(sys_shmdt),
    [SYS_shmctl] = PLAIN(sys_shmctl),
    [SYS_semget] = PLAIN(sys_semget),
    [SYS_semctl] = PLAIN(sys_semctl),
    [SYS_msgget] = PLAIN(sys_msgget),
    [SYS_msgctl] = PLAIN(sys_msgctl),
    // thread and process state
    [SYS_arch_prctl] = PLAIN(sys_arch_prctl),
    [SYS_set_tid_address] = PLAIN(sys_set_tid_address),
    [SYS_prctl] = IF(sys_prctl),
    [SYS_set_robust_list] = PLAIN(sys_set_robust_list),
    [SYS_rseq] = PLAIN(sys_enosys),
    [SYS_getpid] = PLAIN(sys_getpid),
    [SYS_gettid] = PLAIN(sys_gettid),
    [SYS_getppid] = PLAIN(sys_getppid),
    [SYS_getpgrp] = PLAIN(sys_getpgrp),
    [SYS_getpgid] = PLAIN(sys_by_pid),
    [SYS_getsid] = PLAIN(sys_by_pid),
    [SYS_setpgid] = PLAIN(sys_setpgid),
    [SYS_prlimit64] = PLAIN(sys_prlimit64),
    [SYS_sched_setaffinity] = PLAIN(sys_by_tid),
    [SYS_sched_getaffinity] = PLAIN(sys_by_tid),
    [SYS_sched_setscheduler] = PLAIN(sys_by_tid),
    [SYS_sched_getscheduler] = PLAIN(sys_by_tid),
    [SYS_sched_setparam] = PLAIN(sys_by_tid),
    [SYS_sched_getparam] = PLAIN(sys_by_tid),
    [SYS_sched_rr_get_interval] = PLAIN(sys_by_tid),
    [SYS_sched_setattr] = PLAIN(sys_by_tid),
    [SYS_sched_getattr] = PLAIN(sys_by_tid),
    [SYS_get_robust_list] = PLAIN(sys_get_robust_list),
    [SYS_getpriority] = PLAIN(sys_by_kind),
    [SYS_setpriority] = PLAIN(sys_by_kind),
    [SYS_ioprio_get] = PLAIN(sys_by_kind),
    [SYS_ioprio_set] = PLAIN(sys_by_kind),
    [SYS_setuid] = PLAIN(sys_rights),
    [SYS_setgid] = PLAIN(sys_rights),
    [SYS_setreuid] = PLAIN(sys_rights),
    [SYS_setregid] = PLAIN(sys_rights),
    [SYS_setresuid] = PLAIN(sys_rights),
    [SYS_setresgid] = PLAIN(sys_rights),
    [SYS_setgroups] = PLAIN(sys_rights),
    [SYS_setfsuid] = PLAIN(sys_rights),
    [SYS_setfsgid] = PLAIN(sys_rights),
    [SYS_seccomp] = PLAIN(sys_rights),
    [SYS_capget] = PLAIN(sys_capabilities),
    [SYS_capset] = PLAIN(sys_capabilities),
    [SYS_process_vm_readv] = PLAIN(sys_of_process),
    [SYS_process_vm_writev] = PLAIN(sys_of_process),
    [SYS_move_pages] = PLAIN(sys_of_process),
    [SYS_migrate_pages] = PLAIN(sys_of_process),
    [SYS_kcmp] = PLAIN(sys_kcmp),
    [SYS_membarrier] = IF(sys_membarrier),
    [SYS_kill] = PLAIN(sys_kill),
    [SYS_tgkill] = PLAIN(sys_tgkill),
    [SYS_tkill] = PLAIN(sys_tkill),
    [SYS_rt_sigqueueinfo] = PLAIN(sys_sigqueueinfo),
    [SYS_rt_tgsigqueueinfo] = PLAIN(sys_sigqueueinfo),
    [SYS_timer_create] = PLAIN(sys_timer_create),
    [SYS_timer_settime] = PLAIN(sys_timer_settime),
    [SYS_timer_delete] = PLAIN(sys_timer_delete),
    // processes
    [SYS_wait4] = AGAIN(sys_wait4),
    [SYS_waitid] = AGAIN(sys_waitid),
    [SYS_clone] = PLAIN(sys_clone),
    [SYS_clone3] = PLAIN(sys_enosys), // glibc falls back to clone
    [SYS_fork] = PLAIN(sys_fork),
    [SYS_vfork] = PLAIN(sys_vfork),
    [SYS_execve] = PLAIN(sys_execve),
    [SYS_execveat] = PLAIN(sys_execveat),
    [SYS_exit] = PLAIN(sys_exit),
    [SYS_exit_group] = PLAIN(sys_exit_group),
    // signals
    [SYS_rt_sigaction] = PLAIN(sys_rt_sigaction),
    [SYS_rt_sigprocmask] = PLAIN(sys_rt_sigprocmask),
    [SYS_rt_sigreturn] = PLAIN(sys_rt_sigreturn),
    [SYS_sigaltstack] = PLAIN(sys_sigaltstack),
    [SYS_rt_sigsuspend] = PLAIN(sys_rt_sigsuspend),
    [SYS_rt_sigtimedwait] = PLAIN(sys_rt_sigtimedwait),
    [SYS_pause] = PLAIN(sys_pause),
    // descriptors
    [SYS_open] = AGAIN(sys_open),
    [SYS_openat] = AGAIN(sys_openat),
    [SYS_openat2] = AGAIN(sys_newfd),
    [SYS_creat] = AGAIN(sys_creat),
    [SYS_mkdir] = PLAIN(sys_make),
    [SYS_mkdirat] = PLAIN(sys_make),
    [SYS_mknod] = PLAIN(sys_make),
    [SYS_mknodat] = PLAIN(sys_make),
    [SYS_link] = PLAIN(sys_make),
    [SYS_linkat] = PLAIN(sys_make),
    [SYS_symlink] = PLAIN(sys_make),
    [SYS_symlinkat] = PLAIN(sys_make),
    [SYS_unlink] = PLAIN(sys_remove),
    [SYS_unlinkat] = PLAIN(sys_remove),
    [SYS_rmdir] = PLAIN(sys_remove),
    [SYS_rename] = PLAIN(sys_rename),
    [SYS_renameat] = PLAIN(sys_rename),
    [SYS_renameat2] = PLAIN(sys_rename),
    [SYS_truncate] = PLAIN(sys_truncate),
    [SYS_close] = PLAIN(sys_close),
    [SYS_close_range] = PLAIN(sys_close_range),
    [SYS_dup] = PLAIN(sys_dup),
    [SYS_dup2] = PLAIN(sys_dup2),
    [SYS_dup3] = PLAIN(sys_dup3),
    [SYS_fcntl] = IF(sys_fcntl),
    [SYS_fstat] = PLAIN(sys_fstat),
    [SYS_fstatfs] = PLAIN(sys_on_fd),
    [SYS_getrlimit] = PLAIN(sys_getrlimit),
    [SYS_setrlimit] = PLAIN(sys_setrlimit),
    [SYS_fchdir] = PLAIN(sys_on_fd),
    [SYS_newfstatat] = IF(sys_newfstatat),
    [SYS_statx] = IF(sys_statx),
    [SYS_pipe] = PLAIN(sys_pipe),
    [SYS_pipe2] = PLAIN(sys_pipe),
    [SYS_socket] = PLAIN(sys_newfd),
    [SYS_socketpair] = PLAIN(sys_socketpair),
    [SYS_listen] = PLAIN(sys_listen),
    [SYS_getsockname] = PLAIN(sys_socket_name),
    [SYS_getpeername] = PLAIN(sys_socket_name),
    [SYS_recvmsg] = AGAIN(sys_recvmsg),
    [SYS_recvmmsg] = AGAIN(sys_recvmmsg),
    [SYS_ioctl] = {.fn = sys_ioctl, .when = true, .restartable = true},
    [SYS_accept] = AGAIN(sys_accept),
    [SYS_accept4] = AGAIN(sys_accept),
    [SYS_eventfd] = PLAIN(sys_newfd),
    [SYS_eventfd2] = PLAIN(sys_newfd),
    [SYS_epoll_create] = PLAIN(sys_newfd),
    [SYS_epoll_create1] = PLAIN(sys_newfd),
    [SYS_memfd_create] = PLAIN(sys_newfd),
    [SYS_memfd_secret] = PLAIN(sys_newfd),
    [SYS_bpf] = PLAIN(sys_bpf),
    [SYS_timerfd_create] = PLAIN(sys_newfd),
    [SYS_timerfd_settime] = PLAIN(sys_timerfd_settime),
    [SYS_clock_getres] = PLAIN(sys_clock_getres),
    [SYS_getrusage] = IF(sys_getrusage),
    [SYS_times] = IF(sys_times),
    [SYS_clock_gettime] = PLAIN(sys_clock_gettime), // for callers that do not use the vDSO
    [SYS_signalfd] = PLAIN(sys_newfd),
    [SYS_signalfd4] = PLAIN(sys_newfd),
    [SYS_inotify_init] = PLAIN(sys_newfd),
    [SYS_inotify_init1] = PLAIN(sys_newfd),
    [SYS_fanotify_init] = PLAIN(sys_enosys), // its events have descriptors, with numbers of the lower half
    [SYS_pidfd_open] = PLAIN(sys_newfd),
    [SYS_pidfd_getfd] = PLAIN(sys_newfd),
    [SYS_open_by_handle_at] = PLAIN(sys_newfd),
    [SYS_open_tree] = PLAIN(sys_newfd),
    [467] = PLAIN(sys_newfd), // open_tree_attr
    [SYS_fsopen] = PLAIN(sys_newfd),
    [SYS_fsmount] = PLAIN(sys_newfd),
    [SYS_fspick] = PLAIN(sys_newfd),
    [SYS_landlock_create_ruleset] = PLAIN(sys_newfd),
    [SYS_perf_event_open] = PLAIN(sys_newfd),
    [SYS_userfaultfd] = PLAIN(sys_userfaultfd),
    [SYS_mq_open] = PLAIN(sys_newfd),
    [SYS_io_setup] = PLAIN(sys_io_setup),
    [SYS_io_uring_setup] = PLAIN(sys_enosys),
    [SYS_readlink] = PLAIN(sys_readlink),
    [SYS_readlinkat] = PLAIN(sys_readlinkat),
    // waits that a handler ends with EINTR whatever its flags: parking must not show
    // (docs/split-process.md P9)
    [SYS_nanosleep] = PLAIN(sys_nanosleep),
    [SYS_clock_nanosleep] = PLAIN(sys_clock_nanosleep),
    [SYS_poll] = PLAIN(sys_poll),
    [SYS_ppoll] = PLAIN(sys_ppoll),
    [SYS_select] = PLAIN(sys_select),
    [SYS_pselect6] = PLAIN(sys_pselect6),
    [SYS_epoll_wait] = PLAIN(sys_epoll_wait),
    [SYS_epoll_pwait] = PLAIN(sys_epoll_wait),
    [SYS_epoll_pwait2] = PLAIN(sys_epoll_pwait2),
    [SYS_futex] = {.fn = sys_futex, .when = true, .restartable = true},
    [SYS_semop] = PLAIN(sys_semop),
    [SYS_semtimedop] = PLAIN(sys_semtimedop),
    [SYS_msgrcv] = PLAIN(sys_msgrcv),
    [SYS_msgsnd] = PLAIN(sys_msgsnd),
    [SYS_io_getevents] = PLAIN(sys_blocking),
};

long sys_enosys(struct call *c) {
    (void)c;
    return -ENOSYS;
}

// The gate found the thread's attention word set.  The dispatcher does the rest on its way out.
long sys_attention(struct call *c) {
    (void)c;
    return 0;
}

// All calls that Syscall User Dispatch traps and nobody emulates.
long sys_passthrough(struct call *c) { return blocking(c, c->nr, c->a); }
long sys_blocking(struct call *c) { return blocking(c, c->nr, c->a); }

long blocking(struct call *c, long nr, const long a[6]) { return blocking_masked(c, nr, a, uc_mask(c->uc)); }

static bool is_slow_file(long fd) {
    struct stat st;
    return RAW2(SYS_fstat, fd, &st) < 0 ||
           !(S_ISREG(st.st_mode) || S_ISDIR(st.st_mode) || S_ISBLK(st.st_mode));
}

static bool does_not_wait(long fd) { return RAW2(SYS_fcntl, fd, F_GETFL) & O_NONBLOCK; }

// Opening waits where the file is a FIFO or a serial line. What a signal that came just before does to other devices is what a program
// would see that measures itself by a timer: /dev/urandom or a graphics processor that is not there.
static bool opens_slowly(long dir, long path, long flags) {
    enum { ACM = 166, USB = 188, LOW_DENSITY = 204 }; // of linux/Documentation/admin-guide/devices.txt
    struct stat st;
    if (RAW4(SYS_newfstatat, dir, path, &st, flags & O_NOFOLLOW ? AT_SYMLINK_NOFOLLOW : 0) < 0) return false;
    unsigned kind = major(st.st_rdev);
    return S_ISFIFO(st.st_mode) ||
           (S_ISCHR(st.st_mode) && (kind == TTY_MAJOR || kind == ACM || kind == USB || kind == LOW_DENSITY));
}

// Whether a signal can end this call before the call has done anything (signal(7)).  A program does not expect
// EINTR from another one: bash takes a descriptor for closed when F_GETFD fails.
static bool interruptible(long nr, const long a[6]) {
    switch (nr) {
    case SYS_read:
    case SYS_write:
    case SYS_readv:
    case SYS_writev:
    case SYS_preadv2:
    case SYS_pwritev2:
        return is_slow_file(a[0]);
    case SYS_open:
        return opens_slowly(AT_FDCWD, a[0], a[1]);
    case SYS_openat:
        return opens_slowly(a[0], a[1], a[2]);
    case SYS_fcntl:
        return a[1] == F_SETLKW || a[1] == F_OFD_SETLKW;
    case SYS_wait4:
        return !(a[2] & WNOHANG);
    case SYS_waitid:
        return !(a[3] & WNOHANG);
    case SYS_accept:
    case SYS_accept4:
        return !does_not_wait(a[0]);
    case SYS_futex:
        return (a[1] & FUTEX_CMD_MASK) == FUTEX_WAIT || (a[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET ||
               (a[1] & FUTEX_CMD_MASK) == FUTEX_LOCK_PI || (a[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_REQUEUE_PI;
    case SYS_semop:
    case SYS_semtimedop:
        for (long i = 0; i < a[2]; i++) {
            struct sembuf op;
            struct iovec local = {&op, sizeof op}, remote = {(struct sembuf *)a[1] + i, sizeof op};
            if (RAW6(SYS_process_vm_readv, RAW0(SYS_getpid), &local, 1, &remote, 1, 0) != sizeof op)
                return false;
            if (!(op.sem_flg & IPC_NOWAIT)) return true;
        }
        return false;
    case SYS_msgrcv:
        return !(a[4] & IPC_NOWAIT);
    case SYS_msgsnd:
        return !(a[3] & IPC_NOWAIT);
    case SYS_ioctl: // of terminals
    case SYS_connect:
    case SYS_recvfrom:
        return !(a[3] & MSG_DONTWAIT) && !does_not_wait(a[0]);
    case SYS_recvmsg:
        return !(a[2] & MSG_DONTWAIT) && !does_not_wait(a[0]);
    case SYS_recvmmsg:
        return !(a[3] & MSG_DONTWAIT) && !does_not_wait(a[0]);
    case SYS_sendto:
    case SYS_sendmsg:
    case SYS_sendmmsg:
    case SYS_sendfile:
    case SYS_splice:
    case SYS_tee:
    case SYS_vmsplice:
    case SYS_copy_file_range:
    case SYS_fallocate:
    case SYS_flock:
    case SYS_getrandom:
    case SYS_io_getevents:
    case SYS_io_pgetevents:
    case SYS_io_uring_enter:
    case SYS_mq_timedreceive:
    case SYS_mq_timedsend:
    case SYS_nanosleep:
    case SYS_clock_nanosleep:
    case SYS_pause:
    case SYS_poll:
    case SYS_ppoll:
    case SYS_select:
    case SYS_pselect6:
    case SYS_epoll_wait:
    case SYS_epoll_pwait:
    case SYS_epoll_pwait2:
    case SYS_rt_sigsuspend:
    case SYS_rt_sigtimedwait:
        return true;
    default:
        return false;
    }
}

// Runs a call that may wait, with the application's signals let in.  Our handlers only queue these signals;
// the attention word ends the call, also when the signal comes just before the call.
long blocking_masked(struct call *c, long nr, const long a[6], kmask mask) {
    // No thread is stopped in a callback of the lower half (thread.c), so waits in a callback are not cut for
    // that.
    kmask park = c->t->upcalls ? KBIT(SIG_PARK) : 0;
    for (;;) {
        if (park) c->t->attention &= ~ATTN_PARK;
        c->t->calls = true;
        set_kernel_mask((mask & ~OURS) | park);
        long r = host_cancelable(&c->t->attention, nr, a);
        block_all();
        c->t->calls = false;
        if (r != -EINTR) return r;
        bool restart;
        if (pending_deliverable(c->t, mask, &restart))
            return interruptible(nr, a) ? -EINTR : raw6(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
        if (c->t->attention & ATTN_PARK) return CUT;
        // The application must not notice a signal of the lower half's own (Go's preemption, a profiler), one
        // that it ignores, or one that came to a stopped thread and that this call does not let in.
        pending_return(c->t, mask);
    }
}

bool copy_string(char *to, size_t bytes, uint64_t from) {
    size_t got = 0;
    while (got < bytes) {
        // Never across a page boundary: the next page may be unreadable, and the string may end before it.
        size_t n = 4096 - ((from + got) & 4095);
        if (n > bytes - got) n = bytes - got;
        struct iovec local = {to + got, n}, remote = {(void *)(from + got), n};
        long r = RAW6(SYS_process_vm_readv, RAW0(SYS_getpid), &local, 1, &remote, 1, 0);
        if (r <= 0) return false;
        for (size_t i = 0; i < (size_t)r; i++)
            if (!to[got + i]) return true;
        got += (size_t)r;
    }
    return false;
}

bool copy_in(void *to, uint64_t from, size_t bytes) {
    struct iovec local = {to, bytes}, remote = {(void *)from, bytes};
    return RAW6(SYS_process_vm_readv, RAW0(SYS_getpid), &local, 1, &remote, 1, 0) == (long)bytes;
}

bool copy_out(uint64_t to, const void *from, size_t bytes) {
    struct iovec local = {(void *)from, bytes}, remote = {(void *)to, bytes};
    return RAW6(SYS_process_vm_writev, RAW0(SYS_getpid), &local, 1, &remote, 1, 0) == (long)bytes;
}

void rewind_call(ucontext_t *uc, long nr) {
    uc->uc_mcontext.gregs[REG_RIP] -= 2;
    uc->uc_mcontext.gregs[REG_RAX] = nr;
}

void sigsys(struct thread *t, siginfo_t *si, ucontext_t *uc) {
    greg_t *r = uc->uc_mcontext.gregs;
    struct call c = {
        .t = t,
        .uc = uc,
        .nr = si->si_syscall,
        .a = {r[REG_RDI], r[REG_RSI], r[REG_RDX], r[REG_R10], r[REG_R8], r[REG_R9]},
    };
    // Under SUD rax still holds the number; under seccomp too.
    const struct trap *trap = c.nr >= 0 && (unsigned long)c.nr < TRAPS ? &traps[c.nr] : NULL;
    emulation fn = trap && trap->fn ? trap->fn : sys_passthrough;
    if (c.nr == NR_ATTENTION) fn = sys_attention;
    call_begun(t);
    long result = fn(&c);
    if (result == CUT) {
        rewind_call(uc, c.nr);
        call_cut(t, uc);
    } else if (result != DONE_REGISTERS) {
        bool restart = false;
        kmask mask = t->suspended ? t->suspend_mask : uc_mask(uc);
        if (result == -EINTR && (trap && trap->fn ? trap->restartable : true) &&
            pending_deliverable(t, mask, &restart) && restart)
            rewind_call(uc, c.nr);
        else
            r[REG_RAX] = result;
    }
    deliver_pending(t, uc);
    if ((t->attention & ATTN_PARK) && !borrowed()) {
        // SIG_PARK is blocked here; it comes as soon as the upper context is back.
        t->attention &= ~ATTN_PARK;
        if (host.park_gen & 1) RAW3(SYS_tgkill, host.pid, t->tid, SIG_PARK);
    }
}
