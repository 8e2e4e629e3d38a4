// SPDX-License-Identifier: Apache-2.0
//
// channels.c: descriptors that the application waits on.
//
// libibverbs makes a completion channel by a write(2) to the device, without asking the provider, and reads events
// from the descriptor that the kernel has written into the answer. There is no kernel here: the device node is
// /dev/null's. So the place of write in libibverbs' table of imported functions gets a function of ours, which
// answers for our descriptors and lets all others through.
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <rdma/ib_user_verbs.h>

#include "verbs/soft/provider/provider.h"

// ---- pipes ----

// An end that is read is kept open here, too: writing into a pipe that nobody reads would be a signal, and events
// of what is destroyed are taken out of it again.
struct channel {
    int fd;   // the application's number
    int read; // the same pipe, by a number of ours
    int write;
    struct channel *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct channel *channels;
static int devices[64];
static unsigned open_devices;

static bool same(int a, int b) {
    struct stat x, y;
    return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_ino == y.st_ino && x.st_dev == y.st_dev;
}

// Channels that the application has closed: libibverbs closes them without a word.
static void drop_closed(void) {
    for (struct channel **at = &channels; *at != NULL;) {
        struct channel *c = *at;
        if (same(c->fd, c->read)) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        close(c->read);
        close(c->write);
        free(c);
    }
}

int provider_events(int *fd) {
    int ends[2];
    struct channel *c = malloc(sizeof *c);
    if (c == NULL || pipe2(ends, O_CLOEXEC) != 0) {
        free(c);
        return -1;
    }
    *c = (struct channel){.fd = ends[0], .read = fcntl(ends[0], F_DUPFD_CLOEXEC, 0), .write = ends[1]};
    if (c->read < 0 || fcntl(c->write, F_SETFL, O_NONBLOCK) != 0) {
        if (c->read >= 0) close(c->read);
        close(ends[0]);
        close(ends[1]);
        free(c);
        return -1;
    }
    pthread_mutex_lock(&lock);
    drop_closed();
    c->next = channels;
    channels = c;
    pthread_mutex_unlock(&lock);
    *fd = c->fd;
    return c->write;
}

int provider_channel(int fd) {
    int write = -1;
    pthread_mutex_lock(&lock);
    for (struct channel *c = channels; c != NULL && write < 0; c = c->next)
        if (c->fd == fd) write = c->write;
    pthread_mutex_unlock(&lock);
    return write;
}

// Takes the events of an element out of a pipe; each is of this size, and begins with its element.
void provider_forget(int fd, uint64_t element, size_t size) {
    char event[64];
    pthread_mutex_lock(&lock);
    for (struct channel *c = channels; c != NULL; c = c->next) {
        if (c->write != fd) continue;
        struct pollfd p = {.fd = c->read, .events = POLLIN};
        char *kept = NULL;
        size_t n = 0;
        while (poll(&p, 1, 0) == 1 && read(c->read, event, size) == (ssize_t)size) {
            char *more = memcmp(event, &element, sizeof element) != 0 ? realloc(kept, n + size) : NULL;
            if (more == NULL) continue;
            kept = more;
            memcpy(kept + n, event, size);
            n += size;
        }
        for (size_t at = 0; at < n; at += size)
            if (write(c->write, kept + at, size) != (ssize_t)size) break;
        free(kept);
    }
    pthread_mutex_unlock(&lock);
}

static void completion(void *of) {
    struct provider_cq *cq = of;
    uint64_t handle = (uintptr_t)&cq->cq.cq;
    // A pipe holds thousands, and a queue has one on its way at most until it is armed again.
    if (cq->channel >= 0 && write(cq->channel, &handle, sizeof handle) < 0) return;
}

static void event(void *of, enum ibv_event_type type) {
    // All objects begin with the public structure, and that with its context.
    struct provider_context *context = provider_of(*(struct ibv_context **)of);
    struct ib_uverbs_async_event_desc e = {.element = (uintptr_t)of, .event_type = type};
    if (write(context->events, &e, sizeof e) < 0) return;
}

const struct soft_tell provider_tell = {.completion = completion, .event = event};

// ---- write ----

struct command {
    uint32_t command;
    uint16_t in_words, out_words;
    uint64_t response;
};

static bool ours(int fd) {
    for (unsigned i = 0; i < open_devices; i++)
        if (devices[i] == fd) return true;
    return false;
}

static ssize_t device_write(int fd, const void *bytes, size_t n) {
    pthread_mutex_lock(&lock);
    bool for_us = ours(fd);
    pthread_mutex_unlock(&lock);
    if (!for_us) return write(fd, bytes, n);
    const struct command *c = bytes;
    int read_end;
    if (n < sizeof *c || (c->command & 0xff) != IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL) {
        errno = EOPNOTSUPP;
        return -1;
    }
    if (provider_events(&read_end) < 0) return -1;
    *(uint32_t *)(uintptr_t)c->response = (uint32_t)read_end;
    return (ssize_t)n;
}

struct table {
    const ElfW(Rela) * at;
    size_t size;
};

struct imports {
    const char *names;
    const ElfW(Sym) * symbols;
    struct table tables[2];
};

static struct imports imports_of(const struct dl_phdr_info *object) {
    struct imports i = {0};
    const ElfW(Dyn) *d = NULL;
    for (int k = 0; k < object->dlpi_phnum; k++)
        if (object->dlpi_phdr[k].p_type == PT_DYNAMIC)
            d = (const ElfW(Dyn) *)(object->dlpi_addr + object->dlpi_phdr[k].p_vaddr);
    for (; d != NULL && d->d_tag != DT_NULL; d++) {
        if (d->d_tag == DT_STRTAB) i.names = (const char *)d->d_un.d_ptr;
        if (d->d_tag == DT_SYMTAB) i.symbols = (const ElfW(Sym) *)d->d_un.d_ptr;
        if (d->d_tag == DT_JMPREL) i.tables[0].at = (const ElfW(Rela) *)d->d_un.d_ptr;
        if (d->d_tag == DT_PLTRELSZ) i.tables[0].size = d->d_un.d_val / sizeof(ElfW(Rela));
        if (d->d_tag == DT_RELA) i.tables[1].at = (const ElfW(Rela) *)d->d_un.d_ptr;
        if (d->d_tag == DT_RELASZ) i.tables[1].size = d->d_un.d_val / sizeof(ElfW(Rela));
    }
    return i;
}

static int put(void **slot) {
    uintptr_t page = (uintptr_t)slot & ~(uintptr_t)(sysconf(_SC_PAGESIZE) - 1);
    // The table may share its page with what is written otherwise, so it stays writable.
    if (mprotect((void *)page, (uintptr_t)(slot + 1) - page, PROT_READ | PROT_WRITE) != 0) return errno;
    *slot = (void *)device_write;
    return 0;
}

// 1 ends the search.
static int patch(struct dl_phdr_info *object, size_t size, void *result) {
    (void)size;
    if (strstr(object->dlpi_name, "/libibverbs.so") == NULL) return 0;
    struct imports i = imports_of(object);
    if (i.names == NULL || i.symbols == NULL) return 0;
    for (int t = 0; t < 2; t++) {
        for (size_t k = 0; i.tables[t].at != NULL && k < i.tables[t].size; k++) {
            const ElfW(Rela) *r = &i.tables[t].at[k];
            if (strcmp(i.names + i.symbols[ELF64_R_SYM(r->r_info)].st_name, "write") != 0) continue;
            *(int *)result = put((void **)(object->dlpi_addr + r->r_offset));
            return 1;
        }
    }
    return 0;
}

int provider_catch(int cmd_fd) {
    int rc = ENOENT;
    dl_iterate_phdr(patch, &rc);
    pthread_mutex_lock(&lock);
    if (rc == 0 && open_devices == sizeof devices / sizeof *devices) rc = EMFILE;
    if (rc == 0) devices[open_devices++] = cmd_fd;
    pthread_mutex_unlock(&lock);
    return rc;
}

void provider_release(int cmd_fd) {
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < open_devices; i++)
        if (devices[i] == cmd_fd) devices[i] = devices[--open_devices];
    pthread_mutex_unlock(&lock);
}
