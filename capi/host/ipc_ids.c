// SPDX-License-Identifier: Apache-2.0
//
// ipc_ids.c: ids of System V objects of the upper half.
#include "host.h"
#include "ipc_ids.h"
#include "thread.h"

#include <errno.h>
#include <sys/ipc.h>
#include <sys/syscall.h>

static struct ipc_id *by_virtual(const struct ipc_ids *s, int id) {
    for (int i = 0; i < s->knowns; i++)
        if (s->known[i].virtual == id) return (struct ipc_id *)&s->known[i];
    return NULL;
}

int ipc_real(const struct ipc_ids *s, int id) {
    const struct ipc_id *k = by_virtual(s, id);
    return k ? k->real : id;
}

int ipc_virtual(const struct ipc_ids *s, int real) {
    for (int i = 0; i < s->knowns; i++)
        if (s->known[i].real == real) return s->known[i].virtual;
    return by_virtual(s, real) ? -1 : real;
}

long ipc_status(const struct ipc_ids *s, int real, void *to) { return s->control(real, IPC_STAT, to); }

static bool gone(const struct ipc_ids *s, int real) {
    char status[256]; // larger than that of each kind
    long r = ipc_status(s, real, status);
    return r == -EINVAL || r == -EIDRM;
}

// Forgets objects that are gone, whose ids nobody was told to keep apart.
static void purge(struct ipc_ids *s) {
    int n = 0;
    for (int i = 0; i < s->knowns; i++)
        if (s->known[i].virtual != s->known[i].real || !gone(s, s->known[i].real))
            s->known[n++] = s->known[i];
    s->knowns = n;
}

static bool note(struct ipc_ids *s, int id, bool made) {
    struct ipc_id *k = by_virtual(s, id);
    if (!k && s->knowns == IPC_MOST) purge(s);
    if (!k && s->knowns == IPC_MOST) return false;
    if (!k) k = &s->known[s->knowns++];
    *k = (struct ipc_id){id, id, made};
    return true;
}

// Makes an object whose id is no other one's.  One that has such an id is removed when the next one is there.
static long make(struct ipc_ids *s, const long a[3]) {
    int spare[16], spares = 0;
    long r;
    for (;;) {
        r = RAW3(s->get, a[0], a[1], a[2]);
        const struct ipc_id *k = r < 0 ? NULL : by_virtual(s, (int)r);
        if (!k || k->real == (int)r) break;
        s->control((int)r, IPC_RMID, NULL);
        r = -ENOSPC;
        if (spares == 16) break;
        long held = RAW3(s->get, IPC_PRIVATE, s->spare[0], s->spare[1]); // it takes the place of the id
        if (held < 0) break;
        spare[spares++] = (int)held;
    }
    while (spares > 0) s->control(spare[--spares], IPC_RMID, NULL);
    return r;
}

long ipc_get(struct ipc_ids *s, const long a[3], int flags) {
    bool private = (key_t)a[0] == IPC_PRIVATE;
    bool there = !private && RAW3(s->get, a[0], 0, 0) != -ENOENT;
    long r;
    if (there || (!private && !(flags & IPC_CREAT))) {
        r = RAW3(s->get, a[0], a[1], a[2]);
        if (r < 0) return r;
        int seen = ipc_virtual(s, (int)r);
        bool is_new = seen == (int)r && !by_virtual(s, seen);
        return seen < 0 || (s->found && is_new && !note(s, seen, false)) ? -ENOSPC : seen;
    }
    r = make(s, a);
    if (r >= 0 && !note(s, (int)r, true)) {
        s->control((int)r, IPC_RMID, NULL);
        r = -ENOSPC;
    }
    return r;
}

void ipc_removed(struct ipc_ids *s, int id) {
    struct ipc_id *k = by_virtual(s, id);
    if (!k || !gone(s, k->real)) return;
    if (k->virtual == k->real)
        *k = s->known[--s->knowns];
    else
        k->real = -1, k->made = 0; // the id stays taken: others may know it
}

static struct ipc_ids *of_kind(int kind) {
    return kind == IPC_SEGMENTS ? &segments : kind == IPC_SEMAPHORES ? &semaphores : &queues;
}

int ipc_known(int kind, struct ipc_id *list, int max) {
    const struct ipc_ids *s = of_kind(kind);
    kmask old = block_all();
    lock();
    int n = s->knowns < max ? s->knowns : max;
    for (int i = 0; i < n; i++) list[i] = s->known[i];
    unlock();
    set_kernel_mask(old);
    return n;
}

void ipc_set(int kind, const struct ipc_id *list, int n) {
    struct ipc_ids *s = of_kind(kind);
    kmask old = block_all();
    lock();
    s->knowns = n < IPC_MOST ? n : IPC_MOST;
    for (int i = 0; i < s->knowns; i++) s->known[i] = list[i];
    unlock();
    set_kernel_mask(old);
}
