// SPDX-License-Identifier: Apache-2.0
//
// limits.c: getrlimit, setrlimit and prlimit of this process.
//
// A limit of memory is meant for the program, but the kernel counts Go's heap, the MPI's libraries and all that a
// checkpoint takes, too: these would be refused at any moment, and the job be lost.  So the kernel's limits are as high
// as they may be, and the program's are kept here, where its mappings are made.  RLIMIT_AS counts the addresses that
// the program has, RLIMIT_DATA its private writable mappings; what mprotect makes writable is counted, but not
// refused.  fds.c has the limit of descriptors.  All others are the kernel's.
#include "host.h"
#include "arena.h"
#include "emulation.h"
#include "fds.h"
#include "limits.h"
#include "maps.h"
#include "thread.h"

#include <errno.h>
#include <linux/capability.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { ADDRESSES, DATA, MEMORY, DESCRIPTORS = MEMORY };
static const int resources[] = {RLIMIT_AS, RLIMIT_DATA, RLIMIT_NOFILE};

static struct rlimit limit[MEMORY] = {{RLIM_INFINITY, RLIM_INFINITY}, {RLIM_INFINITY, RLIM_INFINITY}};
static uint64_t most_addresses = RLIM_INFINITY; // of the program: a hard limit holds for the lower half, too
static uint64_t granted; // bytes of data that the program may have before they are counted again

// All below: under host.lock.

// Which of the limits above, -1: the kernel's.
static int which(unsigned resource) {
    for (int i = 0; i <= DESCRIPTORS; i++)
        if (resource == (unsigned)resources[i]) return i;
    return -1;
}

static uint64_t data(void) {
    struct maps maps;
    uint64_t sum = 0;
    if (!maps_open(&maps)) return 0; // cannot tell: the limit does not hold
    for (struct mapping m; maps_next(&maps, &m);)
        if (in_upper(m.start) && (m.start < ARENA || m.start >= ARENA_STACK_END) && m.perms[1] == 'w' &&
            m.perms[3] == 'p')
            sum += m.end - m.start;
    maps_close(&maps);
    return sum;
}

static uint64_t addresses(void) {
    return ARENA_END - ARENA_MMAP - arena_free_bytes(ARENA_MMAP, ARENA_END) + host.brk - ARENA_BRK;
}

bool limits_allow(uint64_t more, uint64_t more_data) {
    rlim_t most = limit[ADDRESSES].rlim_cur;
    if (most > most_addresses) most = most_addresses;
    if (most != RLIM_INFINITY && more > 0 && addresses() + more > most) return false;
    most = limit[DATA].rlim_cur;
    if (most == RLIM_INFINITY || more_data == 0) return true;
    if (more_data > granted) {
        // What was freed since the last count is known only now.
        uint64_t has = data();
        granted = has < most ? most - has : 0;
        if (more_data > granted) return false;
    }
    granted -= more_data;
    return true;
}

static void leave_room(rlim_t hard) {
    most_addresses = hard == RLIM_INFINITY ? hard : hard > OWN_ADDRESSES ? hard - OWN_ADDRESSES : 0;
}

static bool may_raise(void) {
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct has[2];
    return RAW2(SYS_capget, &head, has) == 0 && (has[0].effective >> CAP_SYS_RESOURCE & 1);
}

static long exchange(struct fd_table *fds, int i, const struct rlimit *new, struct rlimit *old) {
    if (i == DESCRIPTORS) return fds_limit(fds, new, old);
    struct rlimit was = limit[i], real;
    if (new != NULL) {
        if (new->rlim_cur > new->rlim_max) return -EINVAL;
        if (new->rlim_max > was.rlim_max && !may_raise()) return -EPERM;
        long r = RAW2(SYS_getrlimit, resources[i], &real);
        if (r == 0 && new->rlim_max > real.rlim_max) {
            real = (struct rlimit){new->rlim_max, new->rlim_max};
            r = RAW2(SYS_setrlimit, resources[i], &real);
            if (r == 0 && i == ADDRESSES) leave_room(real.rlim_max);
        }
        if (r != 0) return r;
        limit[i] = *new;
        granted = 0;
    }
    if (old != NULL) *old = was;
    return 0;
}

// ---- for others --------------------------------------------------------------------------------

void limits_begin(void) {
    for (int i = 0; i < MEMORY; i++) {
        if (getrlimit(resources[i], &limit[i]) != 0) continue;
        struct rlimit most = {limit[i].rlim_max, limit[i].rlim_max};
        setrlimit(resources[i], &most);
    }
    leave_room(limit[ADDRESSES].rlim_max);
}

int limits_exchange(int resource, uint64_t old[2], const uint64_t *set) {
    struct rlimit was = {0, 0}, new;
    int i = which((unsigned)resource);
    if (i < 0) return -EINVAL;
    if (set != NULL) new = (struct rlimit){set[0], set[1]};
    lock();
    int r = (int)exchange(fds_of(NULL), i, set != NULL ? &new : NULL, &was);
    unlock();
    old[0] = was.rlim_cur, old[1] = was.rlim_max;
    return r;
}

struct limits limits_keep(void) {
    struct limits now = {0};
    for (int i = 0; i < MEMORY; i++) now.of[i] = limit[i];
    return now;
}

void limits_put(const struct limits *kept) {
    lock();
    for (int i = 0; i < MEMORY; i++) limit[i] = kept->of[i];
    granted = 0;
    unlock();
}

// A ckptrun that comes again needs more than the program may have, and raises the soft limit: a hard one that the program
// has lowered is not kept for it.
struct limits limits_before_exec(struct thread *t, bool again) {
    struct limits was = {0};
    for (int i = 0; i <= DESCRIPTORS; i++) {
        if (RAW2(SYS_getrlimit, resources[i], &was.of[i]) != 0) continue;
        rlim_t soft = i == DESCRIPTORS ? fds_soft_for_exec(t) : limit[i].rlim_cur, hard = was.of[i].rlim_max;
        if (i < MEMORY && !again && limit[i].rlim_max < hard) hard = limit[i].rlim_max;
        struct rlimit then = {soft < hard ? soft : hard, hard};
        RAW2(SYS_setrlimit, resources[i], &then);
    }
    return was;
}

// A process without privilege cannot raise a hard limit again: then the kernel's stays with the program's.
void limits_exec_failed(const struct limits *was) {
    for (int i = 0; i <= DESCRIPTORS; i++) {
        struct rlimit back = was->of[i];
        if (back.rlim_max == 0 || RAW2(SYS_setrlimit, resources[i], &back) == 0) continue;
        if (RAW2(SYS_getrlimit, resources[i], &back) != 0) continue;
        back.rlim_cur = back.rlim_max;
        RAW2(SYS_setrlimit, resources[i], &back);
    }
}

// ---- the calls ---------------------------------------------------------------------------------

// Reads and writes through the kernel, which knows the addresses that are wrong.
static long at_addresses(struct call *c, int i, long new, long old) {
    struct rlimit from, to;
    struct iovec mine = {&from, sizeof from}, theirs = {(void *)new, sizeof from};
    pid_t self = (pid_t)RAW0(SYS_getpid);
    if (new != 0 && RAW6(SYS_process_vm_readv, self, &mine, 1, &theirs, 1, 0) != sizeof from) return -EFAULT;
    lock();
    long r = exchange(fds_of(c->t), i, new != 0 ? &from : NULL, &to);
    unlock();
    if (r != 0 || old == 0) return r;
    mine.iov_base = &to, theirs.iov_base = (void *)old;
    return RAW6(SYS_process_vm_writev, self, &mine, 1, &theirs, 1, 0) == sizeof to ? 0 : -EFAULT;
}

long sys_prlimit64(struct call *c) {
    pid_t pid = (pid_t)c->a[0], real = pid != 0 ? to_real(pid) : 0;
    int i = which((unsigned)c->a[1]);
    if (i < 0 || (real != 0 && real != (pid_t)RAW0(SYS_getpid))) return sys_by_tid(c);
    return at_addresses(c, i, c->a[2], c->a[3]);
}

long sys_getrlimit(struct call *c) {
    int i = which((unsigned)c->a[0]);
    if (i < 0) return RAW2(SYS_getrlimit, c->a[0], c->a[1]);
    return c->a[1] == 0 ? -EFAULT : at_addresses(c, i, 0, c->a[1]);
}

long sys_setrlimit(struct call *c) {
    int i = which((unsigned)c->a[0]);
    if (i < 0) return RAW2(SYS_setrlimit, c->a[0], c->a[1]);
    return c->a[1] == 0 ? -EFAULT : at_addresses(c, i, c->a[1], 0);
}
