// SPDX-License-Identifier: Apache-2.0
//
// window_alias.c: memory of MPI_Win_allocate that both the real MPI and the application have mapped.
//
// Between ranks of one node, Open MPI puts such windows on memory that the ranks share, and a put is a store.
// A window on memory of ours goes through messages, and is fifty times slower.  But the application keeps
// a pointer to its memory, so that must be upper-half memory.  So the real MPI's pages are mapped a second
// time, at addresses that the front reserved: a store at one address can be loaded at the other.
//
// An image has the pages as memory of this rank.  After a restart their content is copied into the pages of
// the new window, if these begin at the same offset in a page.  Otherwise, and under another MPI, the window
// is made on the memory as it is.
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "back/impl/error.h"
#include "back/impl/slots.h"
#include "back/object/describe.h"
#include "back/window/window.h"

enum { PAGE = 4096 };

// Makes the system call itself: the real MPI may have replaced libc's function by one of its own.
static char *remap(char *from, size_t old, size_t new, int flags, char *to) {
    return (char *)syscall(SYS_mremap, from, old, new, MREMAP_MAYMOVE | flags, to);
}

static int all_near(MPI_Comm comm, int size) {
    static int world = -1; // the launcher says how many ranks of the world are on this node
    int same = MPI_UNEQUAL;
    if (world < 0) {
        const char *here = getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
        world = here != NULL && atoi(here) == back.size;
    }
    if (world && size == back.size) MPI_Comm_compare(comm, MPI_COMM_WORLD, &same);
    return same != MPI_UNEQUAL || window_on_one_node(comm, size);
}

int window_alias(struct window *w, MPI_Comm comm, MPI_Info info, int again, MPI_Win *win) {
    enum { NO_WINDOW = -1, NO_ALIAS = 0, ALIAS = 1 };
    int size, mine = ALIAS, all = NO_WINDOW;
    char *base = NULL, *pages = NULL;
    if (!window_above_openmpi()) return 0;
    MPI_Comm_size(comm, &size);
    if (size == 1 || !all_near(comm, size)) return 0;
    if (MPI_Win_allocate((MPI_Aint)w->bytes, w->unit, info, comm, &base, win) != MPI_SUCCESS)
        mine = NO_WINDOW;
    size_t at = (uintptr_t)base % PAGE, bytes = (at + (size_t)w->bytes + PAGE - 1) / PAGE * PAGE;
    if (mine == ALIAS && w->bytes > 0) {
        // An old size of 0 asks for a second mapping; private memory has none.
        int fits = w->area != NULL && (!again || (uintptr_t)w->base % PAGE == at);
        pages = fits ? remap(base - at, 0, bytes, 0, NULL) : MAP_FAILED;
        if (pages == MAP_FAILED) mine = NO_ALIAS;
    }
    MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, comm);
    if (all != ALIAS) {
        if (pages != NULL && pages != MAP_FAILED) munmap(pages, bytes);
        if (all == NO_ALIAS) // all have a window
            MPI_Win_free(win);
        *win = MPI_WIN_NULL;
        return 0;
    }
    if (w->bytes > 0) {
        if (again) memcpy(pages + at, w->base, (size_t)w->bytes);
        char *to = again ? (char *)w->base - at : w->area;
        if (remap(pages, bytes, bytes, MREMAP_FIXED, to) != to) // a mapping less than before
            back_fail(MPI_SUCCESS, "memory of a window cannot be mapped where the program has it");
        w->base = to + at;
        w->alias_bytes = bytes;
    }
    return 1;
}

long back_window_memory(void *ctx, uint64_t *list, long max) {
    (void)ctx;
    long n = 0;
    uint32_t i = 0;
    for (const ckpt_slot *s; (s = back_next_slot(CKPT_KIND_WIN, &i)) != NULL;) {
        const struct window *w = (const struct window *)(uintptr_t)s->extra;
        if (w == NULL || w->alias_bytes == 0) continue;
        uint64_t start = (uint64_t)(uintptr_t)w->base / 4096 * 4096;
        if (n + 2 <= max) {
            list[n] = start;
            list[n + 1] = start + w->alias_bytes;
        }
        n += 2;
    }
    return n;
}
