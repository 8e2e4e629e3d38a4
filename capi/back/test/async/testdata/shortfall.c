// SPDX-License-Identifier: Apache-2.0
//
// shortfall.c: an allocator that fails once, for the back of ckptrun alone.
//
// Preloaded into ckptrun.  The file SHORTFALL has a struct of one cache line for each rank: while left is
// above 0, calls of malloc, calloc and realloc by the back count it down, and the one that reaches 0 fails.
// Tests write to the file and read from it like from any other.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shortfall.h"

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t m);
void *__libc_realloc(void *p, size_t n);

static struct shortfall *mine;

// Only in ckptrun itself: the program that it runs loads this library too.
__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("SHORTFALL"), *rank = getenv("PMI_RANK");
    if (rank == NULL) rank = getenv("OMPI_COMM_WORLD_RANK");
    if (path == NULL || rank == NULL || strcmp(program_invocation_short_name, "ckptrun") != 0) return;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return;
    struct shortfall *all = mmap(NULL, SHORTFALL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (all != MAP_FAILED) mine = &all[atoi(rank)];
}

static int fails(const void *caller) {
    Dl_info from;
    if (mine == NULL || __atomic_load_n(&mine->left, __ATOMIC_RELAXED) == 0) return 0;
    if (dladdr(caller, &from) == 0 || strstr(from.dli_fname, "libckptback") == NULL) return 0;
    if (mine->left < 0 || __atomic_sub_fetch(&mine->left, 1, __ATOMIC_RELAXED) == 0) {
        mine->failed++;
        mine->at = (long)((const char *)caller - (const char *)from.dli_fbase);
        errno = ENOMEM;
        return 1;
    }
    return 0;
}

void *malloc(size_t n) { return fails(__builtin_return_address(0)) ? NULL : __libc_malloc(n); }

void *calloc(size_t n, size_t m) { return fails(__builtin_return_address(0)) ? NULL : __libc_calloc(n, m); }

void *realloc(void *p, size_t n) { return fails(__builtin_return_address(0)) ? NULL : __libc_realloc(p, n); }
