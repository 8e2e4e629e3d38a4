// SPDX-License-Identifier: Apache-2.0
//
// catch.c: a call that libibverbs makes without asking its providers.
//
// It makes a completion channel by a write(2) to the device, and reads events from the descriptor that the kernel has
// written into the answer. There is no kernel here: the device node is /dev/null's. So the place of write in
// libibverbs' table of imported functions gets a function of ours, which answers for our descriptors and lets all
// others through.
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <rdma/ib_user_verbs.h>

#include "verbs/soft/provider/provider.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int devices[64];
static unsigned open_devices;

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
    if (provider_events(&read_end, false) < 0) return -1;
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
