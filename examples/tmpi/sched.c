// SPDX-License-Identifier: Apache-2.0
//
// sched.c: tasks on workers.
//
// A task has a stack of its own and runs on any worker, a kernel thread with a stack of the system's.  A task goes
// back to its worker with a wish (WHY_*), and the worker carries it out when the task's registers are saved: so no
// other worker can resume a task that still stands on its stack.
#include <linux/futex.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "inside.h"

// ---- the switch ----

// Saves what a function must keep, and the modes of floating point, on the stack that is left.  Signal masks stay
// those of the kernel thread: no task may change them.
void tmpi_switch(void **save, void *to);
__asm__(".text\n"
        ".globl tmpi_switch\n"
        ".type tmpi_switch, @function\n"
        "tmpi_switch:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    subq $8, %rsp\n"
        "    stmxcsr (%rsp)\n"
        "    fnstcw 4(%rsp)\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    fldcw 4(%rsp)\n"
        "    ldmxcsr (%rsp)\n"
        "    addq $8, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size tmpi_switch, .-tmpi_switch\n");

#ifdef __SANITIZE_THREAD__ // it must know whose stack this is
void *__tsan_get_current_fiber(void);
void *__tsan_create_fiber(unsigned flags);
void __tsan_switch_to_fiber(void *fiber, unsigned flags);
#define FIBER_HERE() __tsan_get_current_fiber()
#define FIBER_NEW() __tsan_create_fiber(0)
#define FIBER_TO(f) __tsan_switch_to_fiber(f, 0)
#else
#define FIBER_HERE() NULL
#define FIBER_NEW() NULL
#define FIBER_TO(f) ((void)(f))
#endif

// ---- workers ----

struct worker {
    void *sp; // its stack while a task runs
    struct task *task;
    pthread_t thread;
    void *fiber;
    int barren; // turns without a task or a message
};

static struct {
    pthread_mutex_t lock; // of the queue
    struct task *first, **last;
    bool held;   // see sched_hold
    int running; // tasks; atomic, raised under lock
    int ended;   // tasks; atomic
    int bell;    // a futex: changes when a task is ready; atomic
    int waiting; // workers at the bell; atomic
    struct worker *workers;
    void (*body)(struct task *);
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER, .last = &queue.first};

static __thread struct worker *mine;
// A task may be on another worker after each switch.  The compiler must not keep the address of a thread-local
// variable over one, so it may not see into this function.
__attribute__((noipa)) static struct worker *here(void) { return mine; }

struct task *task_self(void) {
    struct worker *w = here();
    return w == NULL ? NULL : w->task;
}

static void ring(void) {
    __atomic_fetch_add(&queue.bell, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&queue.waiting, __ATOMIC_SEQ_CST) > 0)
        syscall(SYS_futex, &queue.bell, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void ready(struct task *t) {
    t->next = NULL;
    pthread_mutex_lock(&queue.lock);
    *queue.last = t;
    queue.last = &t->next;
    pthread_mutex_unlock(&queue.lock);
    ring();
}

static struct task *take(void) {
    pthread_mutex_lock(&queue.lock);
    struct task *t = queue.held ? NULL : queue.first;
    if (t != NULL) {
        if ((queue.first = t->next) == NULL) queue.last = &queue.first;
        __atomic_fetch_add(&queue.running, 1, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&queue.lock);
    return t;
}

void sched_hold(bool held) {
    pthread_mutex_lock(&queue.lock);
    queue.held = held;
    pthread_mutex_unlock(&queue.lock);
    while (held && __atomic_load_n(&queue.running, __ATOMIC_ACQUIRE) > 0) sched_yield();
}

// A worker without a task moves messages, and waits a little when there are none.  The time is relative: clocks of
// another machine may show anything after a restart.
static void idle(struct worker *w) {
    int heard = __atomic_load_n(&queue.bell, __ATOMIC_SEQ_CST);
    if (embed_progress())
        w->barren = 0;
    else if (++w->barren < 50)
        sched_yield();
    else {
        struct timespec little = {.tv_nsec = 200 * 1000};
        __atomic_fetch_add(&queue.waiting, 1, __ATOMIC_SEQ_CST);
        syscall(SYS_futex, &queue.bell, FUTEX_WAIT_PRIVATE, heard, &little, NULL, 0);
        __atomic_fetch_sub(&queue.waiting, 1, __ATOMIC_SEQ_CST);
    }
}

enum { WHY_YIELD, WHY_PARK, WHY_END };
enum { EMPTY, TOKEN, PARKED }; // task.token

static void *work(void *arg) {
    struct worker *w = mine = arg;
    w->fiber = FIBER_HERE();
    for (unsigned turn = 0; __atomic_load_n(&queue.ended, __ATOMIC_ACQUIRE) < tmpi.local; turn++) {
        // Tasks that are always ready, as one that yields until its message has left, must not keep messages out.
        if (turn % 32 == 31) embed_progress();
        embed_between();
        struct task *t = take();
        if (t == NULL) {
            idle(w);
            continue;
        }
        w->barren = 0;
        w->task = t;
        FIBER_TO(t->fiber);
        tmpi_switch(&w->sp, t->sp);
        w->task = NULL;
        int empty = EMPTY;
        if (t->why == WHY_END)
            __atomic_fetch_add(&queue.ended, 1, __ATOMIC_RELEASE);
        else if (t->why == WHY_YIELD || !__atomic_compare_exchange_n(&t->token, &empty, PARKED, false,
                                                                     __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            ready(t);                                            // it yields, or was unparked already
        __atomic_fetch_sub(&queue.running, 1, __ATOMIC_RELEASE); // its registers are on its stack
    }
    ring(); // others may wait for a task that will not come
    return NULL;
}

// ---- tasks ----

static void leave(struct task *t, int why) {
    struct worker *w = here();
    t->why = why;
    FIBER_TO(w->fiber);
    tmpi_switch(&t->sp, w->sp);
}

void task_yield(void) { leave(task_self(), WHY_YIELD); }

// token: EMPTY --unpark--> TOKEN --park--> EMPTY
//        EMPTY --park, its worker--> PARKED --unpark, makes it ready--> TOKEN --park returns--> EMPTY
void task_park(void) {
    struct task *t = task_self();
    if (__atomic_load_n(&t->token, __ATOMIC_ACQUIRE) != TOKEN) leave(t, WHY_PARK);
    __atomic_exchange_n(&t->token, EMPTY, __ATOMIC_SEQ_CST); // before the caller looks again
}

void task_unpark(struct task *t) {
    if (__atomic_exchange_n(&t->token, TOKEN, __ATOMIC_SEQ_CST) == PARKED) ready(t);
}

static void first(void) {
    struct task *t = task_self();
    queue.body(t);
    leave(t, WHY_END);
    abort(); // nobody resumes it
}

// Above a page without access, so that an overflow is a fault at once.  What calls libckpt needs 64 KiB.
enum { STACK = 256 << 10, GUARD = 4096 };

static void *stack_of(struct task *t) {
    if (tmpi.slots) return slot_stack(t);
    char *stack = mmap(NULL, GUARD + STACK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED || mprotect(stack + GUARD, STACK, PROT_READ | PROT_WRITE) != 0)
        tmpi_die("no memory for the stack of rank %d", t->rank);
    return stack + GUARD + STACK;
}

static void make(struct task *t) {
    // As tmpi_switch leaves it: modes, six registers, where to go on, and a return address that nobody uses.
    void **top = (void **)stack_of(t) - 2;
    top[0] = (void *)first;
    t->sp = top - 7;
    __asm__("stmxcsr (%0)\n\tfnstcw 4(%0)" : : "r"(t->sp) : "memory");
    t->fiber = FIBER_NEW();
}

void sched_start(void (*body)(struct task *)) {
    queue.body = body;
    bool begins = tmpi.tasks == NULL;
    if (begins) tmpi.tasks = tmpi_must(calloc((size_t)tmpi.local, sizeof *tmpi.tasks));
    for (int i = 0; begins && i < tmpi.local; i++) {
        struct task *t = tmpi.slots ? slot_make(tmpi.first + i) : tmpi_must(calloc(1, sizeof *t));
        t->index = i;
        t->rank = tmpi.first + i;
        make(t);
        tmpi.tasks[i] = t;
    }
    queue.workers = tmpi_must(calloc((size_t)tmpi.workers, sizeof *queue.workers));
}

void sched_run(void) {
    for (int i = 0; i < tmpi.local; i++) {
        struct task *t = tmpi.tasks[i];
        if (t->ended)
            queue.ended++;
        else
            ready(t);
    }
    for (int i = 1; i < tmpi.workers; i++)
        if (pthread_create(&queue.workers[i].thread, NULL, work, &queue.workers[i]) != 0)
            tmpi_die("cannot make worker %d", i);
    work(&queue.workers[0]);
    for (int i = 1; i < tmpi.workers; i++) pthread_join(queue.workers[i].thread, NULL);
    mine = NULL;
}
