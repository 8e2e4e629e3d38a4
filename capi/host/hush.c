// SPDX-License-Identifier: Apache-2.0
//
// hush.c: the lower half's own threads do not hear the application's signals.
//
// A signal for the process goes to any thread that does not block it.  A signal that all threads of the
// application block must stay pending until one of them waits for it.  If a thread of ours let such a signal
// in, it would take the signal away; and where the application has no handler, the kernel would drop the
// signal or end the process.
//
// Threads of Go are born with all signals blocked, but Go's runtime lets some in when a thread begins:
// SIGCHLD, SIGPROF, SIGSTKFLT and signal 34, the first real-time one.  The runtime cannot be told not to.
// But it lets SIGURG in at the same moment.  So a SIGURG with our mark waits for each new thread, and the
// handler of that SIGURG changes the mask to which the thread returns.  A signal that is sent in that very
// moment comes to on_signal in signal.c, which sends it again.
#include "host.h"
#include "lower.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>

// What a lower thread has to hear: faults, Go's preemption, and glibc's own two.
#define HEARD                                                                                               \
    (KBIT(SIGILL) | KBIT(SIGTRAP) | KBIT(SIGBUS) | KBIT(SIGFPE) | KBIT(SIGSEGV) | KBIT(SIGURG) | KBIT(32) | \
     KBIT(33))

static volatile bool handled; // SIGURG comes to our handler

static void order(pid_t tid) {
    siginfo_t si = {.si_signo = SIGURG, .si_code = SI_QUEUE};
    si.si_pid = host.pid;
    si.si_value.sival_ptr = &host;
    RAW4(SYS_rt_tgsigqueueinfo, host.pid, tid, SIGURG, &si);
}

bool hush_ordered(const siginfo_t *si) {
    return si->si_signo == SIGURG && si->si_code == SI_QUEUE && si->si_pid == host.pid &&
           si->si_value.sival_ptr == &host;
}

void hush(ucontext_t *uc) { *(kmask *)&uc->uc_sigmask |= ~HEARD; }

// Orders the threads that exist.  A thread that is born meanwhile sees the flag or is in the list.
void hush_all(void) {
    __atomic_store_n(&handled, true, __ATOMIC_SEQ_CST);
    DIR *d = opendir("/proc/self/task");
    if (!d) return;
    pid_t self = (pid_t)RAW0(SYS_gettid);
    for (struct dirent *e; (e = readdir(d));) {
        pid_t tid = atoi(e->d_name);
        if (tid > 0 && tid != self) order(tid);
    }
    closedir(d);
}

struct start {
    void *(*fn)(void *);
    void *arg;
};

static void *begin(void *p) {
    struct start s = *(struct start *)p;
    free(p);
    kmask mask;
    RAW4(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &mask, 8);
    // A thread that is born with signals let in is a library's, not Go's, and keeps its mask.
    if ((mask & KBIT(SIGURG)) && __atomic_load_n(&handled, __ATOMIC_SEQ_CST)) order((pid_t)RAW0(SYS_gettid));
    return s.fn(s.arg);
}

typedef int create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

int lower_thread(pthread_t *id, const pthread_attr_t *attr, void *(*fn)(void *), void *arg) {
    static create *libc;
    create *f = __atomic_load_n(&libc, __ATOMIC_RELAXED);
    if (!f) {
        f = (create *)dlsym(RTLD_NEXT, "pthread_create");
        if (!f) die(1, "the C library has no pthread_create: %s", dlerror());
        __atomic_store_n(&libc, f, __ATOMIC_RELAXED);
    }
    return f(id, attr, fn, arg);
}

// Replaces the C library's function for everything in the lower half.
__attribute__((visibility("default"))) int pthread_create(pthread_t *restrict id,
                                                          const pthread_attr_t *restrict attr,
                                                          void *(*fn)(void *), void *restrict arg) {
    struct start *s = malloc(sizeof *s);
    if (!s) return EAGAIN;
    *s = (struct start){fn, arg};
    int error = lower_thread(id, attr, begin, s);
    if (error) free(s);
    return error;
}
