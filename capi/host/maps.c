// SPDX-License-Identifier: Apache-2.0
//
// maps.c: reads /proc/self/maps.  Nothing here may call malloc: a forked child may have inherited a held lock.
#include "host.h"
#include "machine.h"
#include "maps.h"

#include <fcntl.h>
#include <sys/syscall.h>

static int next(struct maps *m) {
    if (m->at == m->n) {
        m->n = RAW3(SYS_read, m->fd, m->bytes, sizeof m->bytes);
        m->at = 0;
        if (m->n <= 0) return m->n = 0, -1;
    }
    return (unsigned char)m->bytes[m->at++];
}

// A hexadecimal number, and the character behind it.
static uint64_t number(struct maps *m) {
    uint64_t v = 0;
    for (int c; (c = next(m)) >= 0;) {
        if (c >= '0' && c <= '9')
            v = v * 16 + (uint64_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            v = v * 16 + (uint64_t)(c - 'a' + 10);
        else
            break;
    }
    return v;
}

bool maps_open(struct maps *m) {
    *m = (struct maps){.fd = (int)RAW4(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC, 0)};
    return m->fd >= 0;
}

bool maps_next(struct maps *m, struct mapping *to) {
    to->start = number(m);
    to->end = number(m);
    if (!to->end) return false; // the end of the file
    for (int i = 0; i < 4; i++) to->perms[i] = (char)next(m);
    next(m);
    number(m); // offset
    uint64_t device = number(m) | number(m), inode = number(m);
    to->file = device || inode;
    for (int c = 0; c >= 0 && c != '\n';) c = next(m);
    return true;
}

void maps_close(struct maps *m) { RAW1(SYS_close, m->fd); }
