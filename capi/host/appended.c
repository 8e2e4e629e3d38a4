// SPDX-License-Identifier: Apache-2.0
//
// appended.c: what the application appends to files that it opens for that.
//
// A program that opens its log for each line is continued with lines in it that it is about to write once more.  So each time that
// it opens a file to append, and closes it, the size that the file has then is noted in the log of made.c: a restart cuts off what
// was appended after the checkpoint, if all of it is the job's (ckpt/files/appended.go).  A file that it opens to write anywhere
// is noted as such: of that nobody knows what a cut would leave.
#include "host.h"
#include "fds.h"
#include "hostgo.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum {
    KNOWN = 512,   // files whose names were noted since the last checkpoint, or rather hashes of them
    MOST = 200000, // records between two checkpoints; then files stay as they are
};
static _Atomic uint64_t known[KNOWN];
static _Atomic uint32_t records;

void appended_again(void) {
    for (int i = 0; i < KNOWN; i++) atomic_store_explicit(&known[i], 0, memory_order_relaxed);
    atomic_store(&records, 0);
}

static void note(int fd, uint32_t kind) {
    struct statx st;
    if (RAW6(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_TYPE | STATX_INO | STATX_SIZE | STATX_BTIME, &st, 0) ||
        !S_ISREG(st.stx_mode))
        return;
    struct made_name r = {
        .ino = st.stx_ino, .born_seconds = st.stx_btime.tv_sec, .born_nanoseconds = st.stx_btime.tv_nsec};
    uint64_t device = (uint64_t)st.stx_dev_major << 32 | st.stx_dev_minor;
    bool anywhere = kind == MADE_WRITES; // said once; the others say each time what the size is
    uint64_t hash = (device * 0x9e3779b97f4a7c15u ^ st.stx_ino) * 0x9e3779b97f4a7c15u;
    hash = (hash & ~(uint64_t)3) | 1 | (uint64_t)anywhere << 1;
    // Who is the second to open it at the same moment notes the name, too: the first may not have done so yet.
    bool named = atomic_load(&known[hash >> 55]) == hash;
    if (named && anywhere) return;
    uint32_t before = atomic_fetch_add(&records, 1);
    if (before > MOST) return;
    if (before == MOST) kind = MADE_LOST;
    r.born_known = kind | ((st.stx_mask & STATX_BTIME) != 0);
    if (!made_sized(&r, (int64_t)st.stx_size, named ? -1 : fd)) return;
    atomic_store(&known[hash >> 55], hash);
}

void appended_opens(int fd, long flags) {
    if (!made_logs() || (flags & O_ACCMODE) == O_RDONLY || (flags & O_PATH)) return;
    if (flags & O_APPEND) spoilt_grows(fd);
    note(fd, flags & O_APPEND && !(flags & O_TRUNC) ? MADE_APPENDS : MADE_WRITES);
}

void appended_closes(int fd) {
    if (!made_logs()) return;
    long flags = RAW2(SYS_fcntl, fd, F_GETFL);
    if (flags >= 0 && (flags & O_APPEND) && (flags & O_ACCMODE) != O_RDONLY && !(flags & O_PATH))
        note(fd, MADE_CLOSES);
}
