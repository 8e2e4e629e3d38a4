// SPDX-License-Identifier: Apache-2.0
//
// sys_shm.c: System V shared memory of the upper half.
//
// Its ids are translated (ipc_ids.h).
#include "host.h"
#include "arena.h"
#include "emulation.h"
#include "ipc_ids.h"
#include "limits.h"
#include "thread.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>

#define PAGE 4096ull
#define HUGE (2ull << 20)
#define UP(x) (((uint64_t)(x) + PAGE - 1) & ~(PAGE - 1))

static long control(int real, int cmd, void *to) { return RAW3(SYS_shmctl, real, cmd, to); }

struct ipc_ids segments = {.get = SYS_shmget, .control = control, .spare = {PAGE, 0600}};

// Where segments are attached, so that their addresses can be given to others after shmdt.  Under host.lock.
static struct {
    uint64_t start, end;
    bool torn; // a part of it was unmapped or replaced: its addresses are not all its own
} attached[IPC_MOST];
static int attached_most; // entries from here on are empty

static long status(int real, struct shmid_ds *ds) { return ipc_status(&segments, real, ds); }

long sys_shmget(struct call *c) {
    lock();
    long r = ipc_get(&segments, c->a, (int)c->a[2]);
    unlock();
    return r;
}

// Notes that a segment is attached there; without room its addresses stay taken for ever.
static void note_attached(uint64_t start, uint64_t end) {
    for (int i = 0; i < IPC_MOST; i++)
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
    int id = ipc_real(&segments, (int)c->a[0]);
    long r = id < 0 ? -EINVAL : status(id, &ds);
    uint64_t bytes = UP(ds.shm_segsz);
    if (r >= 0 && !limits_allow(bytes, 0)) r = -ENOMEM;
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
    int id = index ? (int)c->a[0] : ipc_real(&segments, (int)c->a[0]);
    bool told = index || cmd == IPC_STAT;
    long r = id < 0 ? -EINVAL : RAW3(SYS_shmctl, id, cmd, told ? (long)&ds : c->a[2]);
    if (r >= 0 && index) {
        int seen = ipc_virtual(&segments, (int)r);
        r = seen < 0 ? -EINVAL : seen;
    }
    if (r >= 0 && cmd == IPC_RMID) ipc_removed(&segments, (int)c->a[0]);
    unlock();
    if (r >= 0 && told) {
        ds.shm_cpid = to_virtual(ds.shm_cpid);
        ds.shm_lpid = to_virtual(ds.shm_lpid);
        if (!copy_out((uint64_t)c->a[2], &ds, sizeof ds)) r = -EFAULT;
    }
    return r;
}
