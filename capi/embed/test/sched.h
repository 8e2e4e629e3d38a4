// SPDX-License-Identifier: Apache-2.0
//
// sched.h: user-level tasks on a few kernel threads, as a thread-based runtime has them: one queue, stacks of their
// own, a switch that no kernel knows.  Tasks wander between the threads.  For tests.
#ifndef SCHED_H
#define SCHED_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#define SCHED_FIBER(...) __VA_ARGS__
#else
#define SCHED_FIBER(...)
#endif

enum { SCHED_STACK = 256 << 10 };

enum task_state { TASK_READY, TASK_RUNS, TASK_PARKED, TASK_ENDED };
struct task {
    void *sp; // where it stands, while it does not run
    void (*run)(int task);
    int number;
    enum task_state state; // under sched.lock, as all below
    enum task_state next;  // what it wants to be once it has switched away
    bool token;            // an unpark that came before the park
    struct task *after;    // in the queue
    void *stack;
    void *fiber;
};
struct worker {
    pthread_t thread;
    void *sp;
    struct task *task; // the one that runs
    void *fiber;
};
struct sched {
    pthread_mutex_t lock;
    pthread_cond_t more;
    struct task *task;
    int tasks, living;
    struct task *first, *last; // of the queue
};
static struct sched sched = {.lock = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER};
static _Thread_local struct worker *sched_worker;

// A task asks again after each switch: it may be on another thread.
__attribute__((noinline)) static struct worker *sched_here(void) {
    __asm__ volatile("" ::: "memory");
    return sched_worker;
}

// Leaves this stack at *from and goes on at to.
__attribute__((naked, noinline, no_sanitize("thread"))) static void sched_switch(void **from
                                                                                 __attribute__((unused)),
                                                                                 void *to
                                                                                 __attribute__((unused))) {
    __asm__("push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
            "mov %rsp, (%rdi)\n mov %rsi, %rsp\n"
            "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n ret");
}

// Under sched.lock.
static void sched_push(struct task *t) {
    t->state = TASK_READY;
    t->after = NULL;
    if (sched.last != NULL)
        sched.last->after = t;
    else
        sched.first = t;
    sched.last = t;
    pthread_cond_signal(&sched.more);
}

// The task goes back to its worker, which puts it where it wants to be.
static void sched_leave(enum task_state next) {
    struct worker *w = sched_here();
    struct task *t = w->task;
    t->next = next;
    SCHED_FIBER(__tsan_switch_to_fiber(w->fiber, 0);)
    sched_switch(&t->sp, w->sp);
}

static void sched_yield_task(void) { sched_leave(TASK_READY); }
static void sched_park(void) { sched_leave(TASK_PARKED); }
static void sched_unpark(int number) {
    struct task *t = &sched.task[number];
    pthread_mutex_lock(&sched.lock);
    if (t->state == TASK_PARKED)
        sched_push(t);
    else
        t->token = true;
    pthread_mutex_unlock(&sched.lock);
}

static void sched_main(void) {
    struct task *t = sched_here()->task;
    t->run(t->number);
    sched_leave(TASK_ENDED);
}

static void *sched_work(void *arg) {
    struct worker *w = sched_worker = arg;
    SCHED_FIBER(w->fiber = __tsan_get_current_fiber();)
    pthread_mutex_lock(&sched.lock);
    while (sched.living > 0) {
        struct task *t = sched.first;
        if (t == NULL) {
            pthread_cond_wait(&sched.more, &sched.lock);
            continue;
        }
        if ((sched.first = t->after) == NULL) sched.last = NULL;
        t->state = TASK_RUNS;
        w->task = t;
        pthread_mutex_unlock(&sched.lock);
        SCHED_FIBER(__tsan_switch_to_fiber(t->fiber, 0);)
        sched_switch(&w->sp, t->sp);
        pthread_mutex_lock(&sched.lock);
        if (t->next == TASK_ENDED) {
            t->state = TASK_ENDED;
            if (--sched.living == 0) pthread_cond_broadcast(&sched.more);
        } else if (t->next == TASK_READY || t->token) {
            if (t->next == TASK_PARKED) t->token = false;
            sched_push(t);
        } else {
            t->state = TASK_PARKED;
        }
    }
    pthread_mutex_unlock(&sched.lock);
    return NULL;
}

// Runs run(0) to run(tasks-1), each as a task, on kernel threads, until all have ended.
static void sched_run(int tasks, int threads, void (*run)(int task)) {
    struct worker *w = calloc((size_t)threads, sizeof *w);
    sched.task = calloc((size_t)tasks, sizeof *sched.task);
    if (w == NULL || sched.task == NULL) abort();
    sched.tasks = sched.living = tasks;
    for (int i = 0; i < tasks; i++) {
        struct task *t = &sched.task[i];
        t->number = i, t->run = run;
        t->stack = mmap(NULL, SCHED_STACK, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (t->stack == MAP_FAILED) abort();
        SCHED_FIBER(t->fiber = __tsan_create_fiber(0);)
        uint64_t *top = (uint64_t *)((char *)t->stack + SCHED_STACK) - 8;
        top[6] = (uint64_t)(uintptr_t)sched_main; // returned to; above it a place as of its caller
        t->sp = top;
        sched_push(t);
    }
    for (int i = 0; i < threads; i++)
        if (pthread_create(&w[i].thread, NULL, sched_work, &w[i]) != 0) abort();
    for (int i = 0; i < threads; i++) pthread_join(w[i].thread, NULL);
    for (int i = 0; i < tasks; i++) {
        SCHED_FIBER(__tsan_destroy_fiber(sched.task[i].fiber);)
        munmap(sched.task[i].stack, SCHED_STACK);
    }
    free(sched.task);
    free(w);
    sched.task = NULL;
}

#endif
