// SPDX-License-Identifier: Apache-2.0
//
// slots.c: memory of ranks.
//
// Without slots it is malloc's.  With them each rank has a part of the address space that is its own in every process
// of every job:
//
//     base    +4 KiB        +260 KiB                                      +64 MiB
//      | guard |   <- stack   | task, free lists, blocks of the heap ->      | guard of the next rank
//              `------------------- what is saved ---------------------------'
//
// A slot has no pointer to memory of the process or of another rank, so it can go on anywhere.  Messages that wait for a
// rank lie in its slot.
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "inside.h"

// Above what programs use without being told, and below their libraries.
#define FIRST_SLOT 0x300000000000ul
enum { SLOT = 64 << 20, GUARD = 4096, STACK = 256 << 10 };
enum { SMALLEST = 5, CLASSES = 27 }; // blocks of 2^5 to 2^26 bytes, their heads among them

struct block {
    union {
        struct block *next; // free
        size_t class;       // in use
    };
    _Alignas(16) char memory[];
};

struct slot {
    struct task task;     // first
    pthread_mutex_t lock; // of what follows; whoever sends to the rank takes it, too
    char *end;            // of the blocks so far
    struct block *freed[CLASSES];
};

char *slot_base(int rank) { return (char *)(FIRST_SLOT + (size_t)rank * SLOT + GUARD); }
size_t slot_bytes(void) { return SLOT - GUARD; }
struct task *slot_task(int rank) {
    return (struct task *)(void *)(slot_base(rank) + STACK);
}
void *slot_stack(struct task *t) { return t; }

struct task *slot_make(int rank) {
    char *base = slot_base(rank);
    if (mmap(base, slot_bytes(), PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0) != base)
        tmpi_die("no memory for rank %d at its place, %p", rank, (void *)base);
    struct slot *s = (struct slot *)slot_task(rank);
    pthread_mutex_init(&s->lock, NULL);
    s->end = (char *)(((uintptr_t)(s + 1) + 15) & ~(uintptr_t)15);
    return &s->task;
}

static void *slot_room(struct slot *s, size_t bytes) {
    size_t class = SMALLEST;
    while (class < CLASSES && ((size_t)1 << class) < bytes + sizeof(struct block)) class ++;
    if (class == CLASSES) return NULL;
    pthread_mutex_lock(&s->lock);
    struct block *b = s->freed[class];
    if (b != NULL)
        s->freed[class] = b->next;
    else if ((size_t)(slot_base(s->task.rank) + slot_bytes() - s->end) >= (size_t)1 << class) {
        b = (struct block *)(void *)s->end;
        s->end += (size_t)1 << class;
    }
    if (b != NULL) b->class = class;
    pthread_mutex_unlock(&s->lock);
    return b != NULL ? b->memory : NULL;
}

void *task_room(struct task *t, size_t bytes) {
    return tmpi.slots ? slot_room((struct slot *)t, bytes) : malloc(bytes);
}

void task_free(struct task *t, void *memory) {
    if (!tmpi.slots) return free(memory);
    struct slot *s = (struct slot *)t;
    struct block *b = (struct block *)(void *)((char *)memory - offsetof(struct block, memory));
    size_t class = b->class;
    pthread_mutex_lock(&s->lock);
    b->next = s->freed[class];
    s->freed[class] = b;
    pthread_mutex_unlock(&s->lock);
}
