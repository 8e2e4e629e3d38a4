// SPDX-License-Identifier: Apache-2.0
//
// main.c: ckptrun.
//
//   descriptors out of the way -> the core (Go) -> options -> run:     gate page, program, trap, go
//                                                            -> restart: gate page, image, trap, go
// The order matters: descriptors before anything opens some, signals of Go and MPI wrapped
// before upper code runs, the trap armed last (docs/split-process.md P16, P2).
#include "host.h"
#include "arena.h"
#include "crossing.h"
#include "fds.h"
#include "limits.h"
#include "lower.h"
#include "lower_tls.h"
#include "program.h"
#include "thread.h"
#include "wrap.h"
#include "xstate.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

struct host host;

static void find_parts(void) {
    static char exe[4096];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 16);
    if (n <= 0) die(1, "cannot read /proc/self/exe: %s", strerror(errno));
    exe[n] = 0;
    host.ckptrun = strdup(exe);
    char *slash = strrchr(exe, '/');
    *slash = 0;
    slash = strrchr(exe, '/');
    strcpy(slash ? slash : exe, "/lib");
    host.libdir = strdup(exe);
}

static void check_machine(void) {
    host.xsave_max = xstate_open();
    if (host.xsave_max > XSTATE_MOST)
        die(1, "this processor's extended state (%u bytes) is larger than this version can keep",
            host.xsave_max);
}

// System calls are emulated with memory that the program names, which may not be there: it is read and written by the
// kernel, not by a pointer.
static void check_memory_calls(void) {
    char from = 1, to = 0;
    struct iovec local = {&to, 1}, remote = {&from, 1};
    if (process_vm_readv(getpid(), &local, 1, &remote, 1, 0) != 1 ||
        process_vm_writev(getpid(), &local, 1, &remote, 1, 0) != 1)
        die(1,
            "process_vm_readv and process_vm_writev are forbidden here (%s), by which ckptrun reaches "
            "what system calls of the program name; a container's seccomp profile must allow both, as "
            "those of Docker and Podman do on Linux 4.8 and later",
            strerror(errno));
}

// After limits_begin.
static void check_addresses(void) {
    struct rlimit rl;
    if (getrlimit(RLIMIT_AS, &rl) || rl.rlim_cur == RLIM_INFINITY) return;
    unsigned long long taken = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (f && fscanf(f, "%llu", &taken) != 1) taken = 0;
    if (f) fclose(f);
    if (rl.rlim_cur < taken * 4096 + OWN_ADDRESSES)
        die(1,
            "the address space is limited to %llu MiB (ulimit -v); ckptrun reserves %llu MiB of it beside "
            "the program, without using them as memory: run `ulimit -v unlimited`, or ask the batch "
            "system for that much more, and limit memory in another way",
            (unsigned long long)rl.rlim_cur >> 20, OWN_ADDRESSES >> 20);
}

static void know_ids(void) {
    pid_t ids[4] = {getpid(), getppid(), getpgrp(), getsid(0)};
    for (int i = 0; i < 4; i++) host.ids[i].real = host.ids[i].virtual = ids[i];
    host.pid = ids[0];
}

static void know_signals(void) {
    for (int sig = 1; sig < NSIGNALS; sig++) RAW4(SYS_rt_sigaction, sig, NULL, &host.app[sig], 8);
}

// PMIx 5 maps what the launcher tells its ranks at the address that it has in the launcher, which may be one of the program's
// memory. Its other way takes messages.
static void keep_pmix_out(void) {
    const char *ways = getenv("PMIX_GDS_MODULE");
    if (ways && strstr(ways, "shmem") && strstr(ways, "hash")) setenv("PMIX_GDS_MODULE", "hash", 1);
}

int main(int argc, char **argv, char **envp) {
    size_t nenv = 0;
    while (envp[nenv]) nenv++;
    char **environment = malloc((nenv + 1) * sizeof *environment); // before setenv changes it
    if (!environment) die(1, "no memory");
    memcpy(environment, envp, (nenv + 1) * sizeof *environment);

    keep_pmix_out();
    check_machine();
    check_memory_calls();
    lower_tls_begin();
    limits_begin();
    check_addresses();
    know_ids();
    know_signals();
    find_parts();
    fds_isolate(wrap_arrived(environment), argv);
    arena_init();
    struct thread *t = thread_new();
    if (!t) die(1, "no memory");
    t->main = true;
    thread_attach(t);
    t->vtid = t->tid;
    signals_install();
    const char *error = gate_page_map();
    if (error) die(1, "%s", error);

    // Go's threads inherit this mask: the application's signals are for the application's threads.
    host.start_mask = block_all();
    lower_open();
    struct host_plan plan = {.version = HOSTGO_VERSION, .fs_switched = lower_tls_why()};
    if (host.go.plan(&plan, argc, argv, &host_operations) != 0)
        die(1, "libckpt-core.so and ckptrun are of different versions");
    if (plan.action == PLAN_EXIT) {
        dprintf(plan.exit_status ? 2 : 1, "%s", plan.message);
        // All ranks find other failures (usage, no checkpoint) by themselves.
        if (plan.exit_status == EXIT_FAILURE) fds_abort_job(EXIT_FAILURE);
        return plan.exit_status;
    }
    error = arena_vacant();
    if (error) die(1, "%s", error);
    back_choose(plan.back, plan.no_back);
    host.again = plan.again;
    host.launched = plan.launched;
    host.mpi = plan.action == PLAN_RESTART && plan.restart_mpi;
    wrap_begin();
    host.sud = plan.sud;
    host.two_phase = plan.two_phase;
    host.whole = plan.whole;
    if (plan.whole && plan.action == PLAN_RUN) fds_give_back();
    host.trigger_mask = plan.trigger_mask;
    host.trigger_fd = plan.trigger_fd;
    signals_wrap_lower();
    hush_all();
    fronts_scan();

    if (plan.action == PLAN_RESTART) {
        char *message = NULL;
        int status = 1;
        bool failed = plan.restart_mpi ? (status = back_restart(&message)) != 0
                                       : host.go.restore(&message, &status) != 0;
        if (failed) die(status ? status : 1, "%s", message ? message : "restart failed");
        signals_wrap_lower();
        signals_reinstall();
        threads_continue();
    }

    host.brk = ARENA_BRK;
    snprintf(host.exe, sizeof host.exe, "%s", plan.exe);
    struct program program;
    error = vdso_load();
    if (!error) error = program_load(plan.exe, &program);
    if (error) die(1, "%s", error);
    uint64_t sp = program_stack(&program, plan.exe, plan.argv, environment);
    if (!sp) die(1, "no memory for the program's stack");
    program_show(plan.comm);
    char *message = NULL;
    if (host.go.start(&message) != 0) die(1, "%s", message);
    signals_reinstall();
    host.threads = t;
    error = trap_arm_process();
    if (error) die(1, "%s", error);
    thread_run_main(program.interp_entry, sp);
}
