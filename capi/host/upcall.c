// SPDX-License-Identifier: Apache-2.0
//
// upcall.c: the lower half calls a function of the application's: an operation of its own in a
// reduction, a function of a generalized request.
//
// Such a function needs an upper stack.  A thread that came through the gate has one below its gate frame.
// A thread that was stopped in upper code and runs an errand does not: its innermost gate frame belongs to a
// call that returned long ago, and the memory below that frame is in use by the program.  On such a thread
// the function runs as a signal handler does: below the stack pointer at which the thread was stopped and its
// red zone.  If that is a signal stack or has little room, the function gets a stack of its own.  The state
// of the stopped thread does not change: what its image says, the wait that the thread will continue, the
// signals that it will get.
#include "host.h"
#include "arena.h"
#include "crossing.h"
#include "emulation.h"
#include "lower.h"
#include "lower_tls.h"
#include "thread.h"

#include <elf.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#define RED_ZONE 128
#define ROOM (256ull << 10) // a function of the application's has at least this
#define OWN_STACK (8ull << 20)

// Whether there is room below sp.  The kernel reads a byte of each page, since it survives a page that is
// missing.
static bool room_below(uint64_t sp) {
    enum { PAGES = ROOM / 4096 };
    char bytes[PAGES];
    struct iovec local = {bytes, PAGES}, remote[PAGES];
    for (uint64_t i = 0; i < PAGES; i++) remote[i] = (struct iovec){(void *)(sp - ROOM + i * 4096), 1};
    return sp > ROOM && RAW6(SYS_process_vm_readv, RAW0(SYS_getpid), &local, 1, remote, PAGES, 0) == PAGES;
}

// A stack in the arena, like one of the application's; it is unmapped before an image is made.  0: no memory.
static uint64_t own_stack(void) { // all signals blocked
    lock();
    uint64_t at = arena_reserve(OWN_STACK, 4096);
    if (at && mmap((void *)at, OWN_STACK, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK | MAP_FIXED_NOREPLACE, -1,
                   0) == MAP_FAILED) {
        arena_free(at, at + OWN_STACK);
        at = 0;
    }
    unlock();
    return at;
}

static uint64_t stack_over(struct thread *t) {
    if (t->upcall_sp) return t->upcall_sp;
    uint64_t sp = (uint64_t)t->over->uc_mcontext.gregs[REG_RSP] - RED_ZONE;
    if (signal_on_altstack(t, sp + RED_ZONE) || !room_below(sp)) {
        t->upcall_map = own_stack();
        if (t->upcall_map) sp = t->upcall_map + OWN_STACK - 64;
    }
    return t->upcall_sp = sp;
}

void upcalls_over(struct thread *t) {
    t->upcall_sp = 0;
    if (!t->upcall_map) return;
    kmask old = block_all();
    lock();
    munmap((void *)t->upcall_map, OWN_STACK);
    arena_free(t->upcall_map, t->upcall_map + OWN_STACK);
    unlock();
    set_kernel_mask(old);
    t->upcall_map = 0;
}

// State of the stopped thread that system calls of the function would change.
struct aside {
    uint64_t upper_sp, vdso_sp;
    uint32_t attention;
    kmask hidden_mask, suspend_mask;
    stack_t app_altstack;
    bool suspended;
    struct cut_wait cut;
    struct stood stood;
    struct signal_list pending;
};

static struct aside put_aside(struct thread *t) {
    struct aside a = {t->upper_sp,     t->vdso_sp,   t->attention, t->hidden_mask, t->suspend_mask,
                      t->app_altstack, t->suspended, t->cut,       t->stood,       t->pending};
    t->vdso_sp = 0;
    t->attention = 0;
    t->suspended = false;
    t->cut = (struct cut_wait){0};
    t->stood = (struct stood){0};
    t->pending = (struct signal_list){0};
    return a;
}

static void put_back(struct thread *t, const struct aside *a) {
    struct signal_list come = t->pending;
    t->pending = a->pending;
    t->attention = a->attention;
    for (uint32_t i = 0; i < come.count; i++)
        if (signal_room(&t->pending)) {
            signal_add(&t->pending, &come.at[i].info, false);
            t->attention |= ATTN_SIGNAL;
        }
    t->upper_sp = a->upper_sp;
    t->vdso_sp = a->vdso_sp;
    t->hidden_mask = a->hidden_mask;
    t->suspend_mask = a->suspend_mask;
    t->app_altstack = a->app_altstack;
    t->suspended = a->suspended;
    t->cut = a->cut;
    t->stood = a->stood;
}

// Signals wait until the thread goes on, as for any stopped thread.  But upper code makes system calls, which
// come as signals (docs/split-process.md P1), and may cause faults.
#define LET_IN (KBIT(SIGSYS) | KBIT(SIGSEGV) | KBIT(SIGBUS) | KBIT(SIGFPE) | KBIT(SIGILL) | KBIT(SIGTRAP))

static long upcall_over(struct thread *t, void *fn, const long args[6]) {
    kmask old = block_all();
    struct aside aside = put_aside(t);
    t->upper_sp = stack_over(t);
    set_kernel_mask(~LET_IN);
    long r = host_upcall(fn, args);
    block_all();
    put_back(t, &aside);
    set_kernel_mask(old);
    return r;
}

long upcall(void *fn, const long args[6]) {
    struct thread *t = self();
    // A thread of MPI's own may have inherited the record's address (docs/split-process.md P5).  Such a
    // thread has no upper stack, and no thread-local storage of the application's.
    if (!t || (!lower_gs && get_fs() != t->lower_fs))
        die(1, "a thread of the MPI library called a function of the program's own (an operation of "
               "MPI_Op_create, a generalized request); only the program's threads can: run it without "
               "asynchronous progress (MPICH_ASYNC_PROGRESS)");
    return t->over ? upcall_over(t, fn, args) : host_upcall(fn, args);
}

// ---- where no thread is stopped ----------------------------------------------------------------
// A function of the application's that is called while threads are stopped may call malloc, whose locks a
// stopped thread may hold: those of the C library, or of a library that replaces its malloc.  So no thread is
// stopped inside these libraries meanwhile, except where it waits.

static bool read_upper(void *to, uint64_t from, size_t bytes) {
    struct iovec local = {to, bytes}, remote = {(void *)from, bytes};
    return RAW6(SYS_process_vm_readv, RAW0(SYS_getpid), &local, 1, &remote, 1, 0) == (long)bytes;
}

// The base of the ELF file in whose memory ip is; 0: none.  It is found by its header, since mappings have no
// names after a restart.
static uint64_t elf_below(uint64_t ip) {
    enum { BATCH = 64, MOST = 16 << 20 };
    uint64_t page = ip & ~4095ull;
    for (uint64_t gone = 0; gone < MOST; gone += BATCH * 4096) {
        uint32_t word[BATCH];
        struct iovec local = {word, sizeof word}, remote[BATCH];
        for (uint64_t i = 0; i < BATCH; i++)
            remote[i] = (struct iovec){(void *)(page - gone - i * 4096), sizeof *word};
        long n = RAW6(SYS_process_vm_readv, RAW0(SYS_getpid), &local, 1, remote, BATCH, 0);
        for (uint64_t i = 0; i < BATCH; i++) {
            if ((long)((i + 1) * sizeof *word) > n) return 0;
            if (!memcmp(&word[i], ELFMAG, SELFMAG)) return page - gone - i * 4096;
        }
    }
    return 0;
}

// DT_SONAME of the file at base; false: the file has none.
static bool soname(uint64_t base, char *name, size_t bytes) {
    Elf64_Ehdr eh;
    Elf64_Phdr ph;
    if (!read_upper(&eh, base, sizeof eh) || eh.e_phentsize != sizeof ph) return false;
    uint64_t strings = 0, offset = 0;
    for (unsigned i = 0; i < eh.e_phnum; i++) {
        if (!read_upper(&ph, base + eh.e_phoff + i * sizeof ph, sizeof ph)) return false;
        if (ph.p_type != PT_DYNAMIC) continue;
        Elf64_Dyn d;
        for (uint64_t at = base + ph.p_vaddr; read_upper(&d, at, sizeof d) && d.d_tag != DT_NULL;
             at += sizeof d) {
            if (d.d_tag == DT_STRTAB) strings = d.d_un.d_ptr;
            if (d.d_tag == DT_SONAME) offset = d.d_un.d_val;
        }
    }
    if (!strings || !offset) return false;
    if (strings < base) strings += base; // not relocated
    return copy_string(name, bytes, strings + offset);
}

bool upcall_unsafe(const struct thread *t, const ucontext_t *uc) {
    const greg_t *r = uc->uc_mcontext.gregs;
    if (t->stood.ip == (uint64_t)r[REG_RIP] && t->stood.sp == (uint64_t)r[REG_RSP]) return false;
    if (!back_calls_up()) return false;
    char name[64];
    uint64_t base = elf_below((uint64_t)r[REG_RIP]);
    return base && soname(base, name, sizeof name) &&
           (!strncmp(name, "libc.", 5) || !strncmp(name, "ld-linux", 8) || strstr(name, "malloc"));
}
