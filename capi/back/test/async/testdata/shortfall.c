// SPDX-License-Identifier: Apache-2.0
//
// shortfall.c: an allocator that fails once, for the back of ckptrun alone.
//
// Preloaded into ckptrun.  The file SHORTFALL says of each rank which call of malloc, calloc, realloc or strdup
// by the back is to fail: the n-th from now on, and no other; or the first from each place at which none has
// failed yet, be it in this process or in one that the job was continued in.  Tests write to the file and read
// from it like from any other.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
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
static struct shortfall_place *places;
static int taken; // a lock: threads of the program allocate together

// Only in ckptrun itself: the program that it runs loads this library too.
__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("SHORTFALL"), *rank = getenv("PMI_RANK");
    void *frame[1];
    if (rank == NULL) rank = getenv("OMPI_COMM_WORLD_RANK");
    if (path == NULL || rank == NULL || strcmp(program_invocation_short_name, "ckptrun") != 0) return;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return;
    struct shortfalls *all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (all == MAP_FAILED) return;
    backtrace(frame, 1); // allocates, the first time
    places = all->place[atoi(rank)];
    mine = &all->rank[atoi(rank)];
}

static int in_back(const void *address, long *offset) {
    Dl_info from;
    if (dladdr(address, &from) == 0 || strstr(from.dli_fname, "libckptback") == NULL) return 0;
    *offset = (const char *)address - (const char *)from.dli_fbase;
    return 1;
}

// The place of the call, in mine; it is there from now on.  *fresh: it was not before.
static int find_place(int *fresh) {
    struct shortfall_place p = {{0}};
    void *frame[SHORTFALL_DEPTH + 4];
    int n = backtrace(frame, SHORTFALL_DEPTH + 4), i = 0, depth = 0, places_now = mine->places;
    long offset;
    while (i < n && !in_back(frame[i], &offset)) i++; // ourselves
    for (; i < n && depth < SHORTFALL_DEPTH && in_back(frame[i], &offset); i++) p.caller[depth++] = offset;
    for (i = 0; i < places_now && memcmp(&places[i], &p, sizeof p) != 0; i++) {}
    *fresh = i == places_now;
    if (*fresh) {
        if (i == SHORTFALL_PLACES) abort();
        places[i] = p;
        mine->places = i + 1;
    }
    return i;
}

static int fails(const void *caller) {
    long offset;
    int fresh = 0, yes = 0;
    if (mine == NULL || __atomic_load_n(&mine->left, __ATOMIC_RELAXED) == 0 || !in_back(caller, &offset))
        return 0;
    while (__atomic_exchange_n(&taken, 1, __ATOMIC_ACQUIRE)) {}
    if (mine->left > 0) {
        yes = --mine->left == 0;
        if (yes) mine->last = find_place(&fresh);
    } else if (mine->left == SHORTFALL_NEW) {
        int place = find_place(&fresh);
        yes = fresh;
        if (fresh) mine->last = place;
    }
    mine->failed += yes;
    __atomic_store_n(&taken, 0, __ATOMIC_RELEASE);
    if (yes) errno = ENOMEM;
    return yes;
}

void *malloc(size_t n) { return fails(__builtin_return_address(0)) ? NULL : __libc_malloc(n); }

void *calloc(size_t n, size_t m) { return fails(__builtin_return_address(0)) ? NULL : __libc_calloc(n, m); }

void *realloc(void *p, size_t n) { return fails(__builtin_return_address(0)) ? NULL : __libc_realloc(p, n); }

char *strdup(const char *s) {
    size_t n = strlen(s) + 1;
    char *copy = fails(__builtin_return_address(0)) ? NULL : __libc_malloc(n);
    return copy == NULL ? NULL : memcpy(copy, s, n);
}
