// SPDX-License-Identifier: Apache-2.0
//
// sys_shm.c: System V shared memory of the upper half.
//
// An id that the application holds stays good after a restart, in which the segment is made again and may get
// another id of the kernel's.  So ids are translated, by a table that a restart fills (package ckpt/sysv): on
// all processes of the job in the same way, so that they may tell each other ids.  What is not in the table has
// the kernel's id, and a segment that is made later never gets an id that is in the table for another one.
#include "host.h"
#include "arena.h"
#include "emulation.h"
#include "thread.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>

#define PAGE 4096ull
#define HUGE (2ull << 20)
#define UP(x) (((uint64_t)(x) + PAGE - 1) & ~(PAGE - 1))

// Segments that this process has made, and those of a restart.  Under host.lock.
static struct segment_id known[SEGMENTS_MOST];
static int knowns;

// Where segments are attached, so that their addresses can be given to others after shmdt.  Under host.lock.
static struct {
    uint64_t start, end;
    bool torn; // a part of it was unmapped or replaced: its addresses are not all its own
} attached[SEGMENTS_MOST];
static int attached_most; // entries from here on are empty

static struct segment_id *by_virtual(int id) {
    for (int i = 0; i < knowns; i++)
        if (known[i].virtual == id) return &known[i];
    return NULL;
}

static int real_id(int id) {
    struct segment_id *k = by_virtual(id);
    return k ? k->real : id;
}

// The id that the application sees; -1: none can be told from that of another segment.
static int virtual_id(int real) {
    for (int i = 0; i < knowns; i++)
        if (known[i].real == real) return known[i].virtual;
    return by_virtual(real) ? -1 : real;
}

static long status(int real, struct shmid_ds *ds) { return RAW3(SYS_shmctl, real, IPC_STAT, ds); }

static bool gone(int real) {
    struct shmid_ds ds;
    long r = status(real, &ds);
    return r == -EINVAL || r == -EIDRM;
}

// Forgets segments that are gone, whose ids nobody was told to keep apart.
static void purge(void) {
    int n = 0;
    for (int i = 0; i < knowns; i++)
        if (known[i].virtual != known[i].real || !gone(known[i].real)) known[n++] = known[i];
    knowns = n;
}

static bool note_made(int id) {
    struct segment_id *k = by_virtual(id);
    if (!k && knowns == SEGMENTS_MOST) purge();
    if (!k && knowns == SEGMENTS_MOST) return false;
    if (!k) k = &known[knowns++];
    *k = (struct segment_id){id, id, 1};
    return true;
}

// Makes a segment whose id is no other one's.  One that has such an id is removed when the next one is there.
static long make(key_t key, size_t bytes, int flags) {
    int spare[16], spares = 0;
    long r;
    for (;;) {
        r = RAW3(SYS_shmget, key, bytes, flags);
        struct segment_id *k = r < 0 ? NULL : by_virtual((int)r);
        if (!k || k->real == (int)r) break;
        RAW3(SYS_shmctl, r, IPC_RMID, NULL);
        r = -ENOSPC;
        if (spares == 16) break;
        long held = RAW3(SYS_shmget, IPC_PRIVATE, PAGE, 0600); // it takes the place of the id
        if (held < 0) break;
        spare[spares++] = (int)held;
    }
    while (spares > 0) RAW3(SYS_shmctl, spare[--spares], IPC_RMID, NULL);
    return r;
}

long sys_shmget(struct call *c) {
    key_t key = (key_t)c->a[0];
    size_t bytes = (size_t)c->a[1];
    int flags = (int)c->a[2];
    lock();
    bool there = key != IPC_PRIVATE && RAW3(SYS_shmget, key, 0, 0) != -ENOENT;
    long r;
    if (there || (key != IPC_PRIVATE && !(flags & IPC_CREAT))) {
        r = RAW3(SYS_shmget, key, bytes, flags);
        if (r >= 0 && virtual_id((int)r) < 0)
            r = -ENOSPC;
        else if (r >= 0)
            r = virtual_id((int)r);
    } else {
        r = make(key, bytes, flags);
        if (r >= 0 && !note_made((int)r)) {
            RAW3(SYS_shmctl, r, IPC_RMID, NULL);
            r = -ENOSPC;
        }
    }
    unlock();
    return r;
}

// Notes that a segment is attached there; without room its addresses stay taken for ever.
static void note_attached(uint64_t start, uint64_t end) {
    for (int i = 0; i < SEGMENTS_MOST; i++)
        if (!attached[i].end) {
            attached[i].start = start;
            attached[i].end = end;
            attached[i].torn = false;
            if (i >= attached_most) attached_most = i + 1;
            return;
        }
}

void segment_torn(uint64_t start, uint64_t end) {
    for (int i = 0; i < attached_most; i++)
        if (attached[i].end && attached[i].start < end && start < attached[i].end) attached[i].torn = true;
}

void segment_found(uint64_t start, uint64_t end, uint64_t offset, uint64_t id) {
    struct shmid_ds ds;
    start -= offset;
    for (int i = 0; i < attached_most; i++)
        if (attached[i].end && attached[i].start == start) {
            attached[i].torn = true; // in parts
            return;
        }
    bool whole = !offset && status((int)id, &ds) >= 0 && end - start == UP(ds.shm_segsz);
    note_attached(start, end);
    if (!whole) segment_torn(start, end);
}

long sys_shmat(struct call *c) {
    struct shmid_ds ds;
    uint64_t addr = (uint64_t)c->a[1];
    int flags = (int)c->a[2];
    lock();
    int id = real_id((int)c->a[0]);
    long r = id < 0 ? -EINVAL : status(id, &ds);
    uint64_t bytes = UP(ds.shm_segsz);
    if (r >= 0 && !addr) {
        uint64_t at = arena_reserve(bytes, bytes >= HUGE ? HUGE : PAGE);
        r = at ? RAW3(SYS_shmat, id, at, flags & ~SHM_REMAP) : -ENOMEM;
        if (r < 0 && at) arena_free(at, at + bytes);
    } else if (r >= 0) {
        if (flags & SHM_RND) addr &= ~(PAGE - 1);
        bool own = addr && ((addr >= ARENA_STACK && addr + bytes <= ARENA_END) || addr + bytes <= LOW_END);
        r = own ? RAW3(SYS_shmat, id, addr, flags) : -EINVAL;
        if (r >= 0) {
            segment_torn(addr, addr + bytes);
            arena_claim(addr, addr + bytes);
        }
    }
    if (r >= 0) note_attached((uint64_t)r, (uint64_t)r + bytes);
    unlock();
    if (r >= 0 && addr) memory_changes(c, addr, bytes, MEMORY_GONE);
    return r;
}

long sys_shmdt(struct call *c) {
    uint64_t addr = (uint64_t)c->a[0];
    lock();
    long r = in_upper(addr) ? RAW1(SYS_shmdt, addr) : -EINVAL;
    for (int i = 0; r == 0 && i < attached_most; i++)
        if (attached[i].end && attached[i].start == addr) {
            if (!attached[i].torn) arena_free(addr, attached[i].end);
            attached[i].end = 0;
            break;
        }
    unlock();
    return r;
}

long sys_shmctl(struct call *c) {
    int cmd = (int)c->a[1];
    struct shmid_ds ds;
    if (cmd == IPC_INFO || cmd == SHM_INFO) return RAW3(SYS_shmctl, c->a[0], cmd, c->a[2]);
    bool index = cmd == SHM_STAT || cmd == SHM_STAT_ANY; // the kernel's own table, which has no ids of ours
    lock();
    int id = index ? (int)c->a[0] : real_id((int)c->a[0]);
    bool told = index || cmd == IPC_STAT;
    long r = id < 0 ? -EINVAL : RAW3(SYS_shmctl, id, cmd, told ? (long)&ds : c->a[2]);
    if (r >= 0 && index) {
        int seen = virtual_id((int)r);
        r = seen < 0 ? -EINVAL : seen;
    }
    if (r >= 0 && cmd == IPC_RMID) {
        struct segment_id *k = by_virtual((int)c->a[0]);
        if (k && gone(k->real)) {
            if (k->virtual == k->real)
                *k = known[--knowns];
            else
                k->real = -1, k->made = 0; // the id stays taken: others may know it
        }
    }
    unlock();
    if (r >= 0 && told) {
        ds.shm_cpid = to_virtual(ds.shm_cpid);
        ds.shm_lpid = to_virtual(ds.shm_lpid);
        if (!copy_out((uint64_t)c->a[2], &ds, sizeof ds)) r = -EFAULT;
    }
    return r;
}

int segments_known(struct segment_id *list, int max) {
    kmask old = block_all();
    lock();
    int n = knowns < max ? knowns : max;
    for (int i = 0; i < n; i++) list[i] = known[i];
    unlock();
    set_kernel_mask(old);
    return n;
}

void segments_set(const struct segment_id *list, int n) {
    kmask old = block_all();
    lock();
    knowns = n < SEGMENTS_MOST ? n : SEGMENTS_MOST;
    for (int i = 0; i < knowns; i++) known[i] = list[i];
    unlock();
    set_kernel_mask(old);
}
