// SPDX-License-Identifier: Apache-2.0
//
// sys_ipc.c: System V semaphores and message queues of the upper half.
//
// The kernel adds to a semaphore, when a process ends, what the process has taken from it with SEM_UNDO, and tells nobody how
// much that is.  So it is counted here: a restart has the kernel know it again.  A process that sets a semaphore's value has
// the kernel forget what is counted for it in all processes; it is compared when that was with when others counted
// (package ckpt/sysv).
#include "host.h"
#include "emulation.h"
#include "ipc_ids.h"
#include "thread.h"

#include <errno.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/syscall.h>

enum { OPS_MOST = 500, ALL = -1 }; // as many as the kernel takes, unless kernel.sem says otherwise

static long control_semaphores(int real, int cmd, void *to) { return RAW4(SYS_semctl, real, 0, cmd, to); }
static long control_queue(int real, int cmd, void *to) { return RAW3(SYS_msgctl, real, cmd, to); }

struct ipc_ids semaphores = {
    .get = SYS_semget, .control = control_semaphores, .spare = {1, 0600}, .found = true};
struct ipc_ids queues = {.get = SYS_msgget, .control = control_queue, .spare = {0600}, .found = true};

// ---- what is undone when the process ends --------------------------------------------------------

static struct sem_mark marks[SEM_MARKS_MOST]; // under host.lock
static int marked;

static struct sem_mark *mark_of(int id, int number, bool set) {
    for (int i = 0; i < marked; i++)
        if (marks[i].virtual == id && marks[i].number == number && marks[i].set == set) return &marks[i];
    return NULL;
}

// Forgets what undoes nothing, and is of semaphores that are gone.
static void purge(void) {
    int n = 0;
    for (int i = 0; i < marked; i++) {
        struct semid_ds ds;
        long r = ipc_status(&semaphores, ipc_real(&semaphores, marks[i].virtual), &ds);
        bool gone = r == -EINVAL || r == -EIDRM;
        if (marks[i].waiting || (!gone && (marks[i].adjust || marks[i].set))) marks[n++] = marks[i];
    }
    marked = n;
}

static struct sem_mark *mark(int id, int number, bool set) {
    struct sem_mark *m = mark_of(id, number, set);
    if (!m && marked == SEM_MARKS_MOST) purge();
    if (m || marked == SEM_MARKS_MOST) return m;
    m = &marks[marked++];
    *m = (struct sem_mark){.virtual = id, .number = number, .set = set};
    return m;
}

// Has a place for each semaphore of which something is to be undone, before that is so.
static bool undo_room(int id, const struct sembuf *ops, unsigned n) {
    for (unsigned i = 0; i < n; i++) {
        if (!(ops[i].sem_flg & SEM_UNDO)) continue;
        struct sem_mark *m = mark(id, ops[i].sem_num, false);
        if (!m) { // those before it have a place that they do not need
            while (i-- > 0)
                if (ops[i].sem_flg & SEM_UNDO) mark_of(id, ops[i].sem_num, false)->waiting--;
            return false;
        }
        m->waiting++;
    }
    return true;
}

static void undo_note(int id, const struct sembuf *ops, unsigned n, bool done, int64_t from, int64_t to) {
    for (unsigned i = 0; i < n; i++) {
        if (!(ops[i].sem_flg & SEM_UNDO)) continue;
        struct sem_mark *m = mark_of(id, ops[i].sem_num, false);
        if (!m) continue; // undo_room has made it
        m->waiting--;
        if (!done) continue;
        if (!m->adjust) m->from = from;
        m->adjust -= ops[i].sem_op;
        m->to = to;
    }
}

// This process has set the value of a semaphore, or of all of a set.
static void value_set(int id, int number, int64_t from, int64_t to) {
    for (int i = 0; i < marked; i++)
        if (marks[i].virtual == id && !marks[i].set && (number == ALL || marks[i].number == number))
            marks[i].adjust = 0;
    struct sem_mark *m = mark(id, number, true);
    if (m) m->from = from, m->to = to;
}

int undo_marks(struct sem_mark *list, int max) {
    kmask old = block_all();
    lock();
    int n = 0;
    for (int i = 0; i < marked && n < max; i++)
        if (marks[i].adjust || marks[i].set) list[n++] = marks[i];
    unlock();
    set_kernel_mask(old);
    return n;
}

void undo_set(const struct sem_mark *list, int n) {
    kmask old = block_all();
    lock();
    marked = n < SEM_MARKS_MOST ? n : SEM_MARKS_MOST;
    for (int i = 0; i < marked; i++) marks[i] = list[i];
    unlock();
    set_kernel_mask(old);
}

void undo_forked(void) { marked = 0; } // a child undoes nothing of its parent's

// ---- semaphores ----------------------------------------------------------------------------------

long sys_semget(struct call *c) {
    lock();
    long r = ipc_get(&semaphores, c->a, (int)c->a[2]);
    unlock();
    return r;
}

static long operate(struct call *c, long timeout) {
    struct sembuf ops[OPS_MOST];
    int id = (int)c->a[0];
    unsigned n = (unsigned)c->a[2];
    if (!n) return -EINVAL;
    if (n > OPS_MOST) return -E2BIG;
    if (!copy_in(ops, (uint64_t)c->a[1], n * sizeof *ops)) return -EFAULT;
    lock();
    int real = ipc_real(&semaphores, id);
    bool room = undo_room(id, ops, n);
    unlock();
    if (!room) return -ENOSPC;
    int64_t from = now_ns();
    long r = blocking(c, SYS_semtimedop, (long[6]){real, (long)ops, n, timeout});
    lock();
    undo_note(id, ops, n, r == 0, from, now_ns());
    unlock();
    return r;
}

long sys_semop(struct call *c) { return operate(c, 0); }

long sys_semtimedop(struct call *c) {
    struct timespec timeout;
    if (!c->a[3]) return operate(c, 0);
    if (!copy_in(&timeout, (uint64_t)c->a[3], sizeof timeout)) return -EFAULT;
    if (timeout.tv_sec < 0 || timeout.tv_nsec < 0 || timeout.tv_nsec >= 1000000000) return -EINVAL;
    int64_t when = wait_deadline(c, &timeout);
    timeout = wait_left(when);
    long r = operate(c, (long)&timeout);
    wait_remember(c, r, when);
    return r;
}

// The id by which the application knows what a command of the kernel's own table has found.
static long seen(const struct ipc_ids *s, long real) {
    int id = ipc_virtual(s, (int)real);
    return id < 0 ? -EINVAL : id;
}

long sys_semctl(struct call *c) {
    int id = (int)c->a[0], cmd = (int)c->a[2];
    if (cmd == IPC_INFO || cmd == SEM_INFO) return RAW4(SYS_semctl, id, c->a[1], cmd, c->a[3]);
    bool index = cmd == SEM_STAT || cmd == SEM_STAT_ANY; // the kernel's own table, which has no ids of ours
    lock();
    int real = index ? id : ipc_real(&semaphores, id);
    int64_t from = now_ns();
    long r = RAW4(SYS_semctl, real, c->a[1], cmd, c->a[3]);
    if (r >= 0 && index) r = seen(&semaphores, r);
    if (r >= 0 && cmd == SETVAL) value_set(id, (int)c->a[1], from, now_ns());
    if (r >= 0 && cmd == SETALL) value_set(id, ALL, from, now_ns());
    if (r >= 0 && cmd == IPC_RMID) ipc_removed(&semaphores, id);
    unlock();
    return r > 0 && cmd == GETPID ? to_virtual((pid_t)r) : r;
}

// ---- message queues ------------------------------------------------------------------------------

long sys_msgget(struct call *c) {
    lock();
    long r = ipc_get(&queues, c->a, (int)c->a[1]);
    unlock();
    return r;
}

static long with_queue(struct call *c) {
    lock();
    long real = ipc_real(&queues, (int)c->a[0]);
    unlock();
    return blocking(c, c->nr, (long[6]){real, c->a[1], c->a[2], c->a[3], c->a[4]});
}

long sys_msgsnd(struct call *c) { return with_queue(c); }
long sys_msgrcv(struct call *c) { return with_queue(c); }

long sys_msgctl(struct call *c) {
    int id = (int)c->a[0], cmd = (int)c->a[1];
    struct msqid_ds ds;
    if (cmd == IPC_INFO || cmd == MSG_INFO) return RAW3(SYS_msgctl, id, cmd, c->a[2]);
    bool index = cmd == MSG_STAT || cmd == MSG_STAT_ANY;
    bool told = index || cmd == IPC_STAT;
    lock();
    int real = index ? id : ipc_real(&queues, id);
    long r = RAW3(SYS_msgctl, real, cmd, told ? (long)&ds : c->a[2]);
    if (r >= 0 && index) r = seen(&queues, r);
    if (r >= 0 && cmd == IPC_RMID) ipc_removed(&queues, id);
    unlock();
    if (r >= 0 && told) {
        ds.msg_lspid = to_virtual(ds.msg_lspid);
        ds.msg_lrpid = to_virtual(ds.msg_lrpid);
        if (!copy_out((uint64_t)c->a[2], &ds, sizeof ds)) r = -EFAULT;
    }
    return r;
}
