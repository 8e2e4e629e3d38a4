// SPDX-License-Identifier: Apache-2.0
//
// thread_image.c: stopped threads as bytes of an image, and threads made of such bytes.
#include "host.h"
#include "arena.h"
#include "crossing.h"
#include "emulation.h"
#include "program.h"
#include "thread.h"
#include "xstate.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

// Layout of a thread in an image: header, signals, extended state, padding to 8 bytes.
static size_t thread_bytes(const struct thread *t) {
    size_t signals = (t->kept.count + t->image_pending) * sizeof(struct kept_signal);
    return (sizeof(struct thread_image) + signals + t->xsave_bytes + 7) & ~7ul;
}

// Both are in the C library's record of the thread.
static int32_t robust_save(const struct thread *t) {
    int64_t apart = (int64_t)(t->robust - t->clear_tid);
    return t->robust != 0 && apart == (int32_t)apart ? (int32_t)apart : 0;
}

static void thread_save(const struct thread *t, struct thread_image *im) {
    *im = (struct thread_image){
        .bytes = (uint32_t)thread_bytes(t),
        .kind = t->state != T_HELD ? 1
                : t->retry         ? 3
                                   : 2,
        .flags = (t->mpi ? THREAD_MPI : 0) | (t->state != T_HELD ? call_save(t) : 0) |
                 (t->cut.processor ? THREAD_SLEEPS : 0),
        .vtid = t->vtid,
        .main = t->main,
        .upper_fs =
            t->upper_fs != t->lower_fs ? t->upper_fs : 0, // the program has none yet (thread_run_main)
        .upper_sp = t->upper_sp,
        .clear_tid = t->clear_tid,
        .mask = t->uc_mask,
        .hidden_mask = t->hidden_mask,
        .altstack_sp = (uint64_t)t->app_altstack.ss_sp,
        .altstack_size = t->app_altstack.ss_size,
        .altstack_flags = (uint64_t)t->app_altstack.ss_flags,
        .cut_ip = t->cut.ip,
        .cut_sp = t->cut.sp,
        .cut_left = t->cut.ip == 0     ? 0
                    : t->cut.processor ? t->cut.deadline
                                       : t->cut.deadline - now_ns(),
        .xsave_bytes = t->xsave_bytes,
        .pending = t->kept.count + t->image_pending,
        .robust = robust_save(t),
    };
    memcpy(im->comm, t->comm, sizeof im->comm);
    memcpy(im->regs, t->uc.uc_mcontext.gregs, sizeof im->regs);
    struct kept_signal *k = (struct kept_signal *)(im + 1);
    if (t->kept.count) memcpy(k, t->kept.at, t->kept.count * sizeof *k);
    k += t->kept.count;
    // Signals that came while the thread was held, or that wait for its call.
    if (t->image_pending) memcpy(k, t->pending.at, t->image_pending * sizeof *k);
    k += t->image_pending;
    memcpy(k, t->xsave, t->xsave_bytes);
}

static int thread_load(struct thread *t, const struct thread_image *im, char *why, size_t whybytes) {
    t->vtid = im->vtid;
    t->main = im->main;
    t->upper_fs = im->upper_fs;
    t->upper_sp = im->upper_sp;
    t->clear_tid = im->clear_tid;
    t->robust = im->robust != 0 ? im->clear_tid + (uint64_t)(int64_t)im->robust : 0;
    t->uc_mask = im->mask;
    t->hidden_mask = im->hidden_mask;
    t->app_altstack = (stack_t){
        .ss_sp = (void *)im->altstack_sp, .ss_size = im->altstack_size, .ss_flags = (int)im->altstack_flags};
    bool processor = im->flags & THREAD_SLEEPS;
    t->cut = (struct cut_wait){im->cut_ip, im->cut_sp, (processor ? 0 : now_ns()) + im->cut_left, processor};
    memcpy(t->comm, im->comm, sizeof t->comm);
    t->comm[sizeof t->comm - 1] = 0;
    memset(&t->uc, 0, KUC_BYTES);
    t->uc.uc_flags = 7; // extended state; segment registers as the kernel gave them
    memcpy(t->uc.uc_mcontext.gregs, im->regs, sizeof im->regs);
    const struct kept_signal *k = (const struct kept_signal *)(im + 1);
    for (uint32_t i = 0; i < im->pending; i++) {
        if (!signal_room(&t->kept)) return -ENOMEM;
        signal_add(&t->kept, &k[i].info, k[i].shared);
    }
    long state = im->xsave_bytes ? xstate_move(t->xsave, k + im->pending, im->xsave_bytes) : 0;
    if (state < 0) {
        snprintf(why, whybytes,
                 state == -ENOTSUP ? "no known processor lays out registers (components %#llx in %u bytes) "
                                     "as that of the image; restart on the same kind of processor"
                                   : "a thread's registers are damaged (components %#llx in %u bytes)",
                 (unsigned long long)xstate_components(k + im->pending, im->xsave_bytes), im->xsave_bytes);
        return (int)state;
    }
    t->xsave_bytes = (uint32_t)state;
    t->in_gate = im->kind == 2 || im->kind == 3;
    t->gate_result = im->kind == 2 ? CKPT_GATE_RESTART : CKPT_GATE_RETRY;
    t->mpi = im->flags & THREAD_MPI;
    call_load(t, im->flags);
    t->state = T_PARKED;
    return 0;
}

long threads_save(void *buffer, size_t bytes) {
    // A held thread still takes signals.  Those count that it has when the bytes are counted.
    if (!buffer)
        for (struct thread *t = host.threads; t; t = t->next)
            t->image_pending = __atomic_load_n(&t->pending.count, __ATOMIC_ACQUIRE);
    size_t need = sizeof(struct process_image) + timers_count() * sizeof(struct timer_image) +
                  sizeof(struct spent_image);
    for (struct thread *t = host.threads; t; t = t->next) {
        if (t->more_signals) return -ENOMEM;
        if (t->xsave_bytes && xstate_tiles(t->xsave, t->xsave_bytes)) return -ENOTSUP;
        need += sizeof(struct spent) + thread_bytes(t);
    }
    if (need > bytes) return (long)need;
    struct process_image *p = buffer;
    memset(p, 0, sizeof *p);
    p->bytes = sizeof *p;
    p->timers = timers_count();
    p->version = THREADS_VERSION + 2;
    p->xsave_max = host.xsave_max;
    p->brk = host.brk;
    p->fake_vdso = host.fake_vdso;
    for (int i = 0; i < 4; i++) p->ids[i] = host.ids[i].virtual;
    for (int i = 1; i < NSIGNALS; i++) memcpy(&p->actions[i], &host.app[i], sizeof p->actions[i]);
    itimers_save(p->itimer);
    clocks_save(&p->clocks);
    memcpy(p->arguments, host.arguments, sizeof p->arguments);
    snprintf(p->exe, sizeof p->exe, "%s", host.exe);
    struct timer_image *timers = (struct timer_image *)(p + 1);
    timers_save(timers);
    struct spent_image *spent = (struct spent_image *)(timers + p->timers);
    spent_save(spent, (struct spent *)(spent + 1));
    uint8_t *at = (uint8_t *)buffer + threads_begin(p);
    for (struct thread *t = host.threads; t; t = t->next) {
        thread_save(t, (struct thread_image *)at);
        at += thread_bytes(t);
    }
    return (long)need;
}

static void arena_of_maps(void) {
    FILE *f = fopen("/proc/self/maps", "re");
    char line[4400];
    while (f && fgets(line, sizeof line, f)) {
        unsigned long start, end, offset, inode;
        int at = 0, n = sscanf(line, "%lx-%lx %*s %lx %*s %lu %n", &start, &end, &offset, &inode, &at);
        if (n < 2) continue;
        if (start >= ARENA_MMAP && end <= ARENA_END) arena_claim(start, end);
        if (n == 4 && in_upper(start) && !strncmp(line + at, "/SYSV", 5))
            segment_found(start, end, offset, inode);
    }
    if (f) fclose(f);
}

// Makes the threads of the image; the upper half's memory is mapped already.  The caller is the process's
// main thread, which carries the saved main thread.
int threads_load(const void *buffer, size_t bytes, uint64_t components, char *why, size_t whybytes) {
    const struct process_image *p = buffer;
    int bad = threads_check(buffer, bytes, why, whybytes);
    if (bad) return bad;
    xstate_started_with(components);
    gate_page_set_functions(forget_functions);
    host.brk = p->brk;
    host.fake_vdso = p->fake_vdso;
    for (int i = 0; i < 4; i++) host.ids[i].virtual = p->ids[i];
    for (int i = 1; i < NSIGNALS; i++) memcpy(&host.app[i], &p->actions[i], sizeof p->actions[i]);
    memcpy(host.arguments, p->arguments, sizeof host.arguments);
    program_show(NULL);
    memcpy(host.exe, p->exe, sizeof host.exe);
    host.exe[sizeof host.exe - 1] = 0;
    arena_of_maps();
    const struct timer_image *timers = (const struct timer_image *)(p + 1);
    const uint8_t *at = (const uint8_t *)buffer + threads_begin(p), *end = (const uint8_t *)buffer + bytes;
    const struct spent_image *spent = threads_spent(p);
    const struct spent *spent_by = spent ? (const struct spent *)(spent + 1) : NULL;
    host.restarted = true; // what the filter depends on
    gate_page_set_spent();
    if (spent) spent_load(spent);
    // The filter comes before any thread is made: threads inherit it.
    const char *error = trap_arm_process();
    if (error) {
        snprintf(why, whybytes, "%s", error);
        return -EPERM;
    }
    block_all();
    if (!(host.park_gen & 1)) host.park_gen++;
    bool main_found = false;
    int64_t begun = now_ns(); // of the waits of threads that begin again
    for (const uint8_t *q = at; q < end;) {
        const struct thread_image *im = (const struct thread_image *)q;
        q += im->bytes;
        struct thread *t = im->main ? self() : thread_new();
        if (!t) return -ENOMEM;
        bad = thread_load(t, im, why, whybytes);
        if (bad) return bad;
        if (spent_by) t->spent = *spent_by++;
        if (im->main) {
            main_found = true;
            thread_enlist(t);
            continue;
        }
        thread_enlist(t);
        t->state = T_RUNNING;
        pid_t vtid;
        if (thread_carry(t, true, &vtid)) {
            snprintf(why, whybytes, "no more threads can be made (ulimit -u)");
            return -EAGAIN;
        }
    }
    if (!main_found) { // the main thread had ended by pthread_exit: it carries nothing
        host.main_gone = true;
    }
    signals_reinstall();
    clocks_load(&p->clocks);
    itimers_load(p->itimer);
    return timers_load(timers, p->timers, begun, why, whybytes);
}
