// SPDX-License-Identifier: Apache-2.0
//
// locks.c: record locks of the application (F_SETLK), which end when the process closes any descriptor of the file.
//
// A new descriptor has a high number first, and is moved down (fds.c): the high one is closed, which the application has not
// asked for.  Where the process has a lock on the file, it stays open until the application has closed one itself.
#include "host.h"
#include "fds.h"
#include "lower.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LATE = 64 }; // a program that opens a locked file more often without closing it loses its locks
static _Atomic bool taken;
static int late[LATE]; // under host.lock
static _Atomic int lates;

void locks_taken(void) { atomic_store_explicit(&taken, true, memory_order_relaxed); }

// Whether the kernel tells of record locks that were taken by this descriptor.
static bool tells_locks(int fd) {
    char name[40], text[4096];
    snprintf(name, sizeof name, "/proc/thread-self/fdinfo/%d", fd);
    long info = RAW4(SYS_openat, AT_FDCWD, name, O_RDONLY | O_CLOEXEC, 0);
    if (info < 0) return false;
    long n = RAW3(SYS_read, info, text, sizeof text - 1);
    RAW1(SYS_close, info);
    text[n > 0 ? n : 0] = 0;
    return strstr(text, ": POSIX") != NULL;
}

// Whether the application has record locks on the file of a descriptor, by any of its own.
static bool has_locks(int of) {
    struct stat file, st;
    if (RAW2(SYS_fstat, of, &file) != 0 || !S_ISREG(file.st_mode)) return false;
    for (int fd = 0; fd < fd_fence; fd++)
        if (fds_has(fd) && RAW2(SYS_fstat, fd, &st) == 0 && st.st_ino == file.st_ino &&
            st.st_dev == file.st_dev && tells_locks(fd))
            return true;
    return false;
}

void locks_close(int high) {
    if (atomic_load_explicit(&taken, memory_order_relaxed) && has_locks(high)) {
        lock();
        int n = atomic_load(&lates);
        if (n < LATE) {
            RAW3(SYS_fcntl, high, F_SETFD, FD_CLOEXEC);
            late[n] = high;
            atomic_store(&lates, n + 1);
        }
        unlock();
        if (n < LATE) return;
    }
    RAW1(SYS_close, high);
}

void locks_forked(void) { atomic_store(&lates, 0); }

void locks_closed(void) {
    if (atomic_load_explicit(&lates, memory_order_relaxed) == 0) return;
    lock();
    int left = 0;
    for (int i = 0; i < lates; i++) {
        if (has_locks(late[i]))
            late[left++] = late[i];
        else
            RAW1(SYS_close, late[i]);
    }
    atomic_store(&lates, left);
    unlock();
}
