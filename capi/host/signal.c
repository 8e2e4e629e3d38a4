// SPDX-License-Identifier: Apache-2.0
//
// signal.c: one set of kernel handlers, two owners.
//
// The kernel knows only our handlers.  Each looks where the thread stands (stands_in_upper;
// docs/split-process.md P2, P5, P6):
//   in upper code           the application's disposition counts: its handler is entered on a frame
//                           that we build on its own stack, exactly as the kernel's (P7 there)
//   in lower code           the thread is inside the lower half: a fault goes to the handler of Go or MPI, if
//                           there is one; other signals are queued and delivered on the way up (P8 there)
//   no upper thread         a thread of Go's or MPI's: signals for Go or MPI go to their handler; the
//                           application's are passed on to its threads (hush.c keeps them away)
// host.app holds what the application asked for, host.lower what Go and MPI installed.
#include "host.h"
#include "arena.h"
#include "crossing.h"
#include "emulation.h"
#include "lower_tls.h"
#include "thread.h"
#include "xstate.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SA_RESTORER_FLAG 0x04000000ull // the kernel's SA_RESTORER, which glibc hides
// The kernel's SYS_SECCOMP and SYS_USER_DISPATCH: why a SIGSYS came.
#define CODE_SECCOMP 1
#define CODE_USER_DISPATCH 2
#define DFL ((uint64_t)SIG_DFL)
#define IGN ((uint64_t)SIG_IGN)

static void on_signal(int sig, siginfo_t *si, void *v);
static void on_sigsys(int sig, siginfo_t *si, void *v);

static void raw_action(int sig, const struct kaction *new, struct kaction *old) {
    RAW4(SYS_rt_sigaction, sig, new, old, 8);
}

// Our handlers run on the lower signal stack with everything blocked.
void kernel_action(int sig, uint64_t handler, uint64_t flags) {
    struct kaction k = {handler, flags | SA_RESTORER_FLAG, (uint64_t)host_restorer, ~0ull};
    if (handler != DFL && handler != IGN) k.flags |= SA_SIGINFO | SA_ONSTACK;
    raw_action(sig, &k, NULL);
}

static bool is_fault(int sig) {
    return sig == SIGSEGV || sig == SIGBUS || sig == SIGFPE || sig == SIGILL || sig == SIGTRAP;
}

static bool has_lower(int sig) { return host.lower[sig].handler > 1; }

static bool ours(uint64_t handler) {
    return handler == (uint64_t)on_signal || handler == (uint64_t)on_sigsys || handler == (uint64_t)on_park;
}

void signals_install(void) {
    kernel_action(SIGSYS, (uint64_t)on_sigsys, 0);
    kernel_action(SIG_PARK, (uint64_t)on_park, SA_RESTART);
}

void signals_wrap_lower(void) {
    for (int sig = 1; sig < NSIGNALS; sig++) {
        struct kaction k;
        raw_action(sig, NULL, &k);
        if (k.handler <= 1 || ours(k.handler)) continue;
        host.lower[sig] = k;
        kernel_action(sig, (uint64_t)on_signal, k.flags & SA_RESTART);
    }
}

// Signals that end the process by default and that a thread of Go lets in for a moment when it begins
// (hush.c).  Such a signal must always have a handler: if one thread lets in a signal without a handler, the
// kernel ends the process at once, though other threads block the signal.
static bool fatal_to_newborn(int sig) { return sig == SIGPROF || sig == SIGSTKFLT || sig == 34; }

// Sets the kernel's disposition according to the application's.
void install_app_action(int sig) {
    const struct kaction *a = &host.app[sig];
    uint64_t keep = a->flags & (SA_RESTART | SA_NOCLDSTOP | SA_NOCLDWAIT);
    if (sig == SIGSYS || sig == SIG_PARK || sig == SIGKILL || sig == SIGSTOP) return;
    if (host.trigger_mask & KBIT(sig))
        kernel_action(sig, (uint64_t)on_signal, SA_RESTART);
    else if (a->handler > 1)
        kernel_action(sig, (uint64_t)on_signal, keep);
    else if (has_lower(sig))
        kernel_action(sig, (uint64_t)on_signal, host.lower[sig].flags & SA_RESTART);
    else if (a->handler == DFL && (fatal_to_newborn(sig) || sig == SIGXFSZ)) // in which half? (lower_signal)
        kernel_action(sig, (uint64_t)on_signal, SA_RESTART);
    else
        kernel_action(sig, a->handler, keep);
}

void signals_reinstall(void) {
    for (int sig = 1; sig < NSIGNALS; sig++) install_app_action(sig);
}

// A program that is started by exec inherits which signals are ignored.  These must be those that the
// application ignores, although we catch some of them for the lower half.
void signals_before_exec(void) {
    for (int sig = 1; sig < NSIGNALS; sig++)
        if (has_lower(sig) && host.app[sig].handler <= 1) kernel_action(sig, host.app[sig].handler, 0);
}

// ---- frames ------------------------------------------------------------------------------------

// The kernel's struct rt_sigframe; the extended state is above the frame.
struct frame {
    uint64_t pretcode;
    uint8_t uc[KUC_BYTES];
    siginfo_t info;
};
_Static_assert(KUC_BYTES == 304, "kernel's struct ucontext");

bool signal_on_altstack(const struct thread *t, uint64_t sp) {
    uint64_t base = (uint64_t)t->app_altstack.ss_sp;
    return t->app_altstack.ss_size && sp > base && sp - base <= t->app_altstack.ss_size;
}

// Makes the sender's process id the one that the application knows: glibc's pthread_cancel compares that id
// with the process's own.
void signal_virtual(siginfo_t *si) {
    signal_unmark(si);
    if (si->si_code <= 0 && si->si_code != SI_TIMER && si->si_code != SI_SIGIO)
        si->si_pid = to_virtual(si->si_pid);
}

// Turns the upper context uc into one that is about to run the application's handler. blocked is the mask at which the signal
// came, to which the handler's own is added; what the handler returns to is that of uc, which is another one in rt_sigsuspend.
static void build_frame(struct thread *t, ucontext_t *uc, const siginfo_t *si, kmask blocked) {
    int sig = si->si_signo;
    struct kaction act = host.app[sig];
    call_told(t, uc);
    greg_t *r = uc->uc_mcontext.gregs;
    uint64_t sp = (uint64_t)r[REG_RSP] - 128; // the red zone
    if ((act.flags & SA_ONSTACK) && t->app_altstack.ss_size && !(t->app_altstack.ss_flags & SS_DISABLE) &&
        !signal_on_altstack(t, (uint64_t)r[REG_RSP]))
        sp = (uint64_t)t->app_altstack.ss_sp + t->app_altstack.ss_size;
    uint32_t xbytes = xsave_size(uc);
    sp = (sp - xbytes) & ~63ull;
    uint64_t xsave = sp;
    sp = ((sp - sizeof(struct frame)) & ~15ull) - 8;
    struct frame *f = (struct frame *)sp;

    memcpy((void *)xsave, uc->uc_mcontext.fpregs, xbytes);
    ucontext_t *fuc = (ucontext_t *)f->uc;
    memcpy(fuc, uc, KUC_BYTES);
    fuc->uc_link = NULL;
    fuc->uc_stack = t->app_altstack;
    if (t->app_altstack.ss_size == 0) fuc->uc_stack.ss_flags = SS_DISABLE;
    fuc->uc_mcontext.fpregs = (fpregset_t)xsave;
    *(kmask *)&fuc->uc_sigmask = uc_mask(uc) | t->hidden_mask;
    f->info = *si;
    signal_virtual(&f->info);
    f->pretcode = act.restorer;

    kmask mask = blocked | act.mask;
    if (!(act.flags & SA_NODEFER)) mask |= KBIT(sig);
    t->hidden_mask |= mask & OURS;
    uc_set_mask(uc, mask);
    r[REG_RDI] = sig;
    r[REG_RSI] = (greg_t)&f->info;
    r[REG_RDX] = (greg_t)fuc;
    r[REG_RAX] = 0;
    r[REG_RSP] = (greg_t)sp;
    r[REG_RIP] = (greg_t)act.handler;
    r[REG_EFL] &= ~(greg_t)(0x400 | 0x100); // direction and trap flags, as the kernel does
    if (act.flags & SA_RESETHAND) {
        host.app[sig].handler = DFL;
        install_app_action(sig);
    }
}

long sys_rt_sigreturn(struct call *c) {
    greg_t *r = c->uc->uc_mcontext.gregs;
    const struct frame *f = (const struct frame *)((uint64_t)r[REG_RSP] - 8);
    const ucontext_t *from = (const ucontext_t *)f->uc;
    const void *xsave = from->uc_mcontext.fpregs;
    // The signal may have come on another processor, before a restart.
    if (xsave) xstate_into_frame(c->uc->uc_mcontext.fpregs, xsave);
    greg_t cs = r[REG_CSGSFS];
    memcpy(r, from->uc_mcontext.gregs, sizeof(gregset_t));
    r[REG_CSGSFS] = cs;
    kmask mask = uc_mask(from);
    c->t->hidden_mask = mask & OURS;
    uc_set_mask(c->uc, mask);
    if (!signal_on_altstack(c->t, (uint64_t)r[REG_RSP])) c->t->app_altstack = from->uc_stack;
    return DONE_REGISTERS;
}

// ---- delivery ----------------------------------------------------------------------------------

// Ends the process as the default action of sig does.  Returns if that action is to stop, or nothing.
static void default_action(int sig) {
    if (sig == SIGCHLD || sig == SIGURG || sig == SIGWINCH || sig == SIGCONT) return;
    kernel_action(sig, DFL, 0);
    kmask only = ~KBIT(sig);
    RAW3(SYS_tgkill, RAW0(SYS_getpid), RAW0(SYS_gettid), sig);
    set_kernel_mask(only); // delivered here; after a stop signal we go on
    block_all();
    install_app_action(sig);
}

bool pending_deliverable(struct thread *t, kmask mask, bool *restart) {
    bool any = false;
    *restart = true;
    for (uint32_t i = 0; i < t->pending.count; i++) {
        int sig = t->pending.at[i].info.si_signo;
        if (mask & KBIT(sig)) continue;
        if (host.app[sig].handler > 1) {
            any = true;
            if (!(host.app[sig].flags & SA_RESTART)) *restart = false;
        } else if (host.app[sig].handler == DFL) {
            any = true;
        }
    }
    return any;
}

void deliver_pending(struct thread *t, ucontext_t *uc) {
    for (uint32_t i = 0; i < t->pending.count; i++) {
        siginfo_t si = t->pending.at[i].info;
        int sig = si.si_signo;
        kmask mask = t->suspended ? t->suspend_mask : uc_mask(uc);
        t->suspended = false; // the first signal ends rt_sigsuspend
        if (mask & KBIT(sig)) // everything is blocked now, so the kernel keeps it
            RAW4(SYS_rt_tgsigqueueinfo, RAW0(SYS_getpid), RAW0(SYS_gettid), sig, &si);
        else if (host.app[sig].handler > 1)
            build_frame(t, uc, &si, mask);
        else if (host.app[sig].handler == DFL)
            default_action(sig);
    }
    t->suspended = false;
    t->pending.count = 0;
    t->attention &= ~ATTN_SIGNAL;
}

void pending_return(struct thread *t, kmask mask) {
    for (uint32_t i = 0; i < t->pending.count; i++)
        if (mask & KBIT(t->pending.at[i].info.si_signo)) // everything is blocked now, so the kernel keeps it
            RAW4(SYS_rt_tgsigqueueinfo, RAW0(SYS_getpid), RAW0(SYS_gettid), t->pending.at[i].info.si_signo,
                 &t->pending.at[i].info);
    t->pending.count = 0;
    t->attention &= ~ATTN_SIGNAL;
}

static void queue(struct thread *t, const siginfo_t *si) {
    if (si->si_signo < 32) // standard signals do not queue twice
        for (uint32_t i = 0; i < t->pending.count; i++)
            if (t->pending.at[i].info.si_signo == si->si_signo) return;
    if (signal_room(&t->pending)) signal_add(&t->pending, si, false);
    t->attention |= ATTN_SIGNAL;
}

// If code of the arena has just loaded the address of the thread record, makes it load the address again: a
// restart changes that address.  Such code uses the register in the next instruction, and not after that.
static void reload_record(greg_t *r) {
    static const uint8_t address[] = {0x25, 0xf8, 0xff, 0xff, 0xff}; // mov REGISTER, gs:[-8]
    uint64_t ip = (uint64_t)r[REG_RIP];
    if (!(ip >= ARENA + 0x400 + 9 && ip < ARENA + 4096) &&
        !(ip >= host.fake_vdso + 9 && ip < host.fake_vdso + 4096))
        return;
    const uint8_t *load = (const uint8_t *)ip - 9;
    if (load[0] == 0x65 && (load[1] & 0xfb) == 0x48 && load[2] == 0x8b &&
        !memcmp(load + 4, address, sizeof address))
        r[REG_RIP] -= 9;
}

void rewind_vdso(struct thread *t, ucontext_t *uc) {
    greg_t *r = uc->uc_mcontext.gregs;
    uint64_t ip = (uint64_t)r[REG_RIP];
    bool ours = ip >= host.fake_vdso && ip - host.fake_vdso < 4096; // one page
    if (((ip >= host.vdso_start && ip < host.vdso_end) || ours) && t->vdso_sp) {
        r[REG_RSP] = (greg_t)t->vdso_sp;
        r[REG_RIP] = *(greg_t *)t->vdso_sp;
        t->vdso_sp = 0; // a handler that asks for the time meanwhile has a frame of its own
    }
    reload_record(r);
    // A thread between gate_commit and gate_in goes back to gate_commit (gate.S).
    uint64_t code = ARENA + 0x400, commit = code + (uint64_t)(gate_commit - gate_code);
    if (ip > commit && ip < code + (uint64_t)(gate_in - gate_code)) r[REG_RIP] = (greg_t)commit;
}

__attribute__((noinline)) static void upper_signal(struct thread *t, siginfo_t *si, ucontext_t *uc) {
    int sig = si->si_signo;
    // Go preempts its goroutines with SIGURG; a thread may be in upper code when that signal comes.
    if (sig == SIGURG && si->si_code == SI_TKILL && si->si_pid == host.pid && has_lower(sig)) return;
    if (host.app[sig].handler == IGN && !(is_fault(sig) && si->si_code > 0)) return;
    if (host.app[sig].handler <= 1) {
        if (is_fault(sig) && si->si_code > 0)
            kernel_action(sig, DFL, 0); // the instruction faults again and ends the process
        else
            default_action(sig);
        return;
    }
    rewind_vdso(t, uc);
    if (call_interrupted(t, uc, host.app[sig].flags & SA_RESTART))
        queue(t, si);
    else
        build_frame(t, uc, si, uc_mask(uc));
}

__attribute__((noinline)) static void lower_signal(struct thread *t, siginfo_t *si, ucontext_t *uc) {
    int sig = si->si_signo;
    bool fault = is_fault(sig) && si->si_code > 0;
    // A write that fails sends it as kill would, and from this process; from another one, or in a call of its own, it is
    // the application's.  A limit of files that the application has set holds for what is kept beside its images, too.
    bool broken = (sig == SIGPIPE || sig == SIGXFSZ) && si->si_pid == host.pid && !(t && t->calls);
    bool internal = fault || broken || (sig == SIGURG && si->si_code == SI_TKILL && si->si_pid == host.pid);
    if (internal && has_lower(sig)) {
        ((void (*)(int, siginfo_t *, void *))host.lower[sig].handler)(sig, si, uc);
        return;
    }
    if (fault) {
        kernel_action(sig, DFL, 0);
        return;
    }
    if (broken) return;
    if (t) {
        queue(t, si);
        uint64_t ip = (uint64_t)uc->uc_mcontext.gregs[REG_RIP];
        if (ip >= (uint64_t)cancel_begin && ip < (uint64_t)cancel_end)
            uc->uc_mcontext.gregs[REG_RIP] = (greg_t)cancel_out;
        return;
    }
    // A thread of the lower half got the signal: it is passed on to a thread of the application that does not
    // block it.  This thread lets it in no more, except SIGURG, which Go needs.
    if (sig != SIGURG) {
        *(kmask *)&uc->uc_sigmask |= KBIT(sig);
        signal_process(si);
        return;
    }
    // The kernel tries the main thread first, too.
    const struct thread *to = host.threads;
    for (const struct thread *o = to; o; o = o->next)
        if (o->tid == host.pid) to = o;
    if (!to) return;
    if (si->si_code >= 0)
        signal_urgent(to->tid, si);
    else
        RAW4(SYS_rt_tgsigqueueinfo, host.pid, to->tid, sig, si);
}

static void on_signal(int sig, siginfo_t *si, void *v) {
    struct thread *t = self();
    uint64_t fs = found_fs(t);
    if (host.trigger_mask & KBIT(sig)) { // asks for a checkpoint; never the application's
        uint8_t byte = (uint8_t)sig;
        if (!host.child) RAW3(SYS_write, host.trigger_fd, &byte, 1);
        return;
    }
    if (stands_in_upper(t, fs, v)) {
        set_fs(t->lower_fs);
        upper_signal(t, si, v);
        set_fs(t->upper_fs);
        return;
    }
    if (t && !lower_gs && fs != t->lower_fs) t = NULL; // this thread has inherited the record's address
    if (hush_ordered(si)) {
        if (!t) hush(v);
        return;
    }
    if (t) set_fs(t->lower_fs);
    int keep = errno;
    lower_signal(t, si, v);
    errno = keep;
    set_fs(fs);
}

// In the gate's code a thread is in the lower half from gate_in until gate_tail.  In the kernel's vDSO it is
// in the half that called the vDSO; our functions that call it say so in vdso_sp.
bool stands_in_upper(const struct thread *t, uint64_t fs, const ucontext_t *uc) {
    if (!t || fs != t->upper_fs) return false;
    if (!t->quick) return true;
    uint64_t ip = (uint64_t)uc->uc_mcontext.gregs[REG_RIP], code = ARENA + 0x400;
    if (ip >= host.vdso_start && ip < host.vdso_end) return t->vdso_sp != 0;
    return in_upper(ip) &&
           !(ip >= code + (uint64_t)(gate_in - gate_code) && ip < code + (uint64_t)(gate_tail - gate_code));
}

static void on_sigsys(int sig, siginfo_t *si, void *v) {
    struct thread *t = self();
    uint64_t fs = found_fs(t);
    if (si->si_code != CODE_SECCOMP && si->si_code != CODE_USER_DISPATCH) {
        on_signal(sig, si, v);
        return;
    }
    if (!stands_in_upper(t, fs, v)) return; // cannot be: only code in the arena is trapped
    set_fs(t->lower_fs);
    sigsys(t, si, v);
    set_fs(t->upper_fs);
    if (!fsgsbase && t->upper_fs != fs) RAW2(SYS_arch_prctl, ARCH_SET_FS, t->fs_base = t->upper_fs);
}

// ---- the calls ---------------------------------------------------------------------------------

long sys_rt_sigaction(struct call *c) {
    long sig = c->a[0];
    bool new = c->a[1];
    struct kaction copy;
    if (c->a[3] != 8) return -EINVAL;
    if (new && !copy_in(&copy, (uint64_t)c->a[1], sizeof copy)) return -EFAULT;
    if (sig < 1 || sig >= NSIGNALS || (new && (sig == SIGKILL || sig == SIGSTOP))) return -EINVAL;
    const struct kaction old = host.app[sig];
    long r = !c->a[2] || copy_out((uint64_t)c->a[2], &old, sizeof old) ? 0 : -EFAULT; // too late to undo it
    if (!new) return r;
    if (borrowed()) { // a child before exec: only what exec inherits matters, and host.app is the parent's
        if (copy.handler <= 1 && sig != SIGSYS && sig != SIG_PARK) kernel_action((int)sig, copy.handler, 0);
        return r;
    }
    host.app[sig] = copy;
    host.app[sig].mask &= ~(KBIT(SIGKILL) | KBIT(SIGSTOP));
    install_app_action((int)sig);
    return r;
}

// Whether nothing can be there. The mask is changed too often for a copy by the kernel.
static bool nowhere(const void *p) { return (uint64_t)p < 4096 || (uint64_t)p >= 1ull << 47; }

long sys_rt_sigprocmask(struct call *c) {
    const kmask *set = (const kmask *)c->a[1];
    kmask *old = (kmask *)c->a[2];
    if (c->a[3] != 8) return -EINVAL;
    if ((set && nowhere(set)) || (old && nowhere(old))) return -EFAULT;
    kmask now = uc_mask(c->uc) | c->t->hidden_mask, want = now;
    if (set) {
        kmask s = *set & ~(KBIT(SIGKILL) | KBIT(SIGSTOP));
        if (c->a[0] == SIG_BLOCK)
            want = now | s;
        else if (c->a[0] == SIG_UNBLOCK)
            want = now & ~s;
        else if (c->a[0] == SIG_SETMASK)
            want = s;
        else
            return -EINVAL;
    }
    if (old) *old = now;
    c->t->hidden_mask = want & OURS;
    uc_set_mask(c->uc, want);
    return 0;
}

long sys_sigaltstack(struct call *c) {
    struct thread *t = c->t;
    stack_t s;
    if (c->a[0] && !copy_in(&s, (uint64_t)c->a[0], sizeof s)) return -EFAULT;
    bool on = signal_on_altstack(t, (uint64_t)c->uc->uc_mcontext.gregs[REG_RSP]);
    stack_t now = t->app_altstack;
    if (!now.ss_size) now.ss_flags = SS_DISABLE;
    if (on) now.ss_flags |= SS_ONSTACK;
    if (c->a[0]) {
        if (on) return -EPERM;
        unsigned mode = (unsigned)s.ss_flags & ~(1u << 31) /* SS_AUTODISARM */;
        if (mode != 0 && mode != SS_DISABLE && mode != SS_ONSTACK) return -EINVAL;
        if (s.ss_flags & SS_DISABLE)
            memset(&s, 0, sizeof s);
        else if (s.ss_size < 2048)
            return -ENOMEM;
        t->app_altstack = s;
    }
    return !c->a[1] || copy_out((uint64_t)c->a[1], &now, sizeof now) ? 0 : -EFAULT;
}

long sys_rt_sigsuspend(struct call *c) {
    kmask mask;
    if (c->a[1] != 8) return -EINVAL;
    if (!copy_in(&mask, (uint64_t)c->a[0], sizeof mask)) return -EFAULT;
    mask &= ~(KBIT(SIGKILL) | KBIT(SIGSTOP) | OURS);
    c->t->suspended = true;
    c->t->suspend_mask = mask;
    static const long none[6];
    long r = blocking_masked(c, SYS_pause, none, mask);
    if (r == CUT) c->t->suspended = false;
    return r;
}

long sys_pause(struct call *c) { return blocking(c, SYS_pause, c->a); }

long sys_rt_sigtimedwait(struct call *c) {
    // Waits for blocked signals.  Our own are never blocked for long, and nobody can wait for them.
    kmask set;
    struct timespec timeout;
    if (c->a[3] != 8) return -EINVAL;
    if (!copy_in(&set, (uint64_t)c->a[0], sizeof set)) return -EFAULT;
    if (c->a[2] && !copy_in(&timeout, (uint64_t)c->a[2], sizeof timeout)) return -EFAULT;
    set &= ~OURS;
    long a[6] = {(long)&set, c->a[1], c->a[2], 8};
    // A signal that is both waited for and unblocked may reach a handler first, as without ckptrun.
    const struct timespec *ts = c->a[2] ? &timeout : NULL;
    int64_t when = ts ? wait_deadline(c, ts) : 0;
    struct timespec left;
    if (ts) {
        left = wait_left(when);
        a[2] = (long)&left;
    }
    long r = blocking(c, SYS_rt_sigtimedwait, a);
    if (ts) wait_remember(c, r, when);
    if (r > 0 && c->a[1]) signal_virtual((siginfo_t *)c->a[1]);
    return r;
}
