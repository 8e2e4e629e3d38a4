// SPDX-License-Identifier: Apache-2.0
//
// program.c: loads the application and its dynamic linker into the arena, as the kernel's execve would load
// them elsewhere: segments, initial stack, auxiliary vector, vDSO; and the gate page.
#include "host.h"
#include "arena.h"
#include "crossing.h"
#include "program.h"
#include "thread.h"
#include "xstate.h"

#include <asm/hwcap2.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 4096ull
#define DOWN(x) ((x) & ~(PAGE - 1))
#define UP(x) (((x) + PAGE - 1) & ~(PAGE - 1))

// Words of the gate page beyond ckpt_gate_page; gate.S knows both.
#define CKPT_GATE_FUNCTIONS 0x100
#define CKPT_GATE_CODE 0x400

_Static_assert(offsetof(ckpt_gate_page, gate) == 16, "front ABI");
_Static_assert(offsetof(ckpt_gate_page, vdso) == 32, "vdso.S");
_Static_assert(offsetof(ckpt_gate_page, clocks) == 72, "vdso.S");
_Static_assert(offsetof(struct thread, lower_fs) == 8, "gate.S");
_Static_assert(offsetof(struct thread, upper_fs) == 16, "gate.S");
_Static_assert(offsetof(struct thread, quick) == 64, "gate.S");
_Static_assert(offsetof(struct thread, lower_sp) == 24, "gate.S");
_Static_assert(offsetof(struct thread, upper_sp) == 32, "gate.S");
_Static_assert(offsetof(struct thread, attention) == 40, "gate.S");
_Static_assert(offsetof(struct thread, upcalls) == 44, "gate.S");
_Static_assert(offsetof(struct thread, vdso_sp) == 48, "vdso.S");

static char failure[4400];

static const char *fail(const char *path, const char *what) {
    snprintf(failure, sizeof failure, "%s: %s", path, what);
    return failure;
}

struct image {
    uint64_t base, entry, phdr, phnum;
};

static int prot_of(uint32_t flags) {
    return (flags & PF_R ? PROT_READ : 0) | (flags & PF_W ? PROT_WRITE : 0) | (flags & PF_X ? PROT_EXEC : 0);
}

// Maps one segment at its address; bytes beyond those of the file are zero.
static const char *map_segment(const char *path, int fd, const Elf64_Phdr *p, uint64_t base) {
    uint64_t start = DOWN(base + p->p_vaddr), file_end = base + p->p_vaddr + p->p_filesz;
    uint64_t end = UP(base + p->p_vaddr + p->p_memsz);
    int prot = prot_of(p->p_flags);
    if (p->p_filesz) {
        void *m = mmap((void *)start, file_end - start, prot, MAP_PRIVATE | MAP_FIXED, fd,
                       (off_t)DOWN(p->p_offset));
        if (m == MAP_FAILED) return fail(path, strerror(errno));
    } else {
        file_end = start;
    }
    if (p->p_memsz > p->p_filesz) {
        uint64_t zero_page = UP(file_end);
        if (zero_page > file_end && (prot & PROT_WRITE)) memset((void *)file_end, 0, zero_page - file_end);
        if (end > zero_page && mmap((void *)zero_page, end - zero_page, prot,
                                    MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
            return fail(path, strerror(errno));
    }
    return NULL;
}

static const char *map_image(const char *path, struct image *out) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return fail(path, strerror(errno));
    Elf64_Ehdr eh;
    Elf64_Phdr ph[64];
    const char *error = NULL;
    if (pread(fd, &eh, sizeof eh, 0) != sizeof eh || memcmp(eh.e_ident, ELFMAG, SELFMAG) ||
        eh.e_phentsize != sizeof(Elf64_Phdr) || eh.e_phnum > 64 ||
        pread(fd, ph, eh.e_phnum * sizeof *ph, (off_t)eh.e_phoff) != (ssize_t)(eh.e_phnum * sizeof *ph)) {
        error = fail(path, "not an ELF program that can be loaded");
        goto out;
    }
    uint64_t low = UINT64_MAX, high = 0, align = PAGE;
    for (int i = 0; i < eh.e_phnum; i++) {
        if (ph[i].p_type != PT_LOAD) continue;
        if (ph[i].p_vaddr < low) low = ph[i].p_vaddr;
        if (ph[i].p_vaddr + ph[i].p_memsz > high) high = ph[i].p_vaddr + ph[i].p_memsz;
        if (ph[i].p_align > align) align = ph[i].p_align;
    }
    uint64_t start = DOWN(low), bytes = UP(high) - start, base = 0;
    if (eh.e_type == ET_DYN) {
        lock();
        uint64_t at = arena_reserve(bytes, align);
        unlock();
        base = at - start;
    } else if (high > LOW_END) {
        error = fail(path, "is linked to a fixed address above 1 GiB; link it with -pie");
        goto out;
    }
    // The whole span is mapped first, so that a clash is found before anything is overwritten.
    if (mmap((void *)(base + start), bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED) {
        error = fail(path, errno == EEXIST ? "its fixed address is taken in this process; link it "
                                             "with -pie"
                                           : strerror(errno));
        goto out;
    }
    *out = (struct image){.base = base, .entry = base + eh.e_entry, .phnum = eh.e_phnum};
    for (int i = 0; i < eh.e_phnum && !error; i++) {
        if (ph[i].p_type == PT_PHDR) out->phdr = base + ph[i].p_vaddr;
        if (ph[i].p_type != PT_LOAD) continue;
        if (!out->phdr && ph[i].p_offset <= eh.e_phoff && eh.e_phoff < ph[i].p_offset + ph[i].p_filesz)
            out->phdr = base + ph[i].p_vaddr + eh.e_phoff - ph[i].p_offset;
        error = map_segment(path, fd, &ph[i], base);
    }
    // Gaps between segments stay PROT_NONE, as under the kernel's loader with guard mappings.
out:
    close(fd);
    return error;
}

const char *program_load(const char *path, struct program *out) {
    struct image app, ld;
    const char *error = map_image(path, &app);
    if (error) return error;
    // The interpreter's name is in the program itself, as PT_INTERP.
    const Elf64_Phdr *ph = (const Elf64_Phdr *)app.phdr;
    if (!ph)
        return fail(path, "has its program headers in no segment, where the dynamic linker would read them");
    const char *interp = NULL;
    for (uint64_t i = 0; i < app.phnum; i++)
        if (ph[i].p_type == PT_INTERP) interp = (const char *)(app.base + ph[i].p_vaddr);
    if (!interp) return fail(path, "is statically linked; ckptrun needs a dynamically linked one");
    error = map_image(interp, &ld);
    if (error) return error;
    *out = (struct program){app.entry, app.phdr, app.phnum, app.base, ld.base, ld.entry};
    return NULL;
}

static uint64_t push_string(uint64_t *sp, const char *s) {
    size_t n = strlen(s) + 1;
    *sp -= n;
    memcpy((void *)*sp, s, n);
    return *sp;
}

uint64_t program_stack(const struct program *p, const char *exe, char **argv, char **envp) {
    struct rlimit rl;
    uint64_t bytes = 8ull << 20;
    if (getrlimit(RLIMIT_STACK, &rl) == 0 && rl.rlim_cur != RLIM_INFINITY && rl.rlim_cur > bytes)
        bytes = UP(rl.rlim_cur);
    else if (rl.rlim_cur == RLIM_INFINITY)
        bytes = ARENA_STACK_END - ARENA_STACK - PAGE;
    if (bytes > ARENA_STACK_END - ARENA_STACK - PAGE) bytes = ARENA_STACK_END - ARENA_STACK - PAGE;
    if (mmap((void *)(ARENA_STACK_END - bytes), bytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK | MAP_FIXED_NOREPLACE, -1,
             0) == MAP_FAILED)
        return 0;
    uint64_t sp = ARENA_STACK_END - 64;
    uint64_t execfn = push_string(&sp, exe);
    uint64_t platform = push_string(&sp, "x86_64");
    int argc = 0, envc = 0;
    while (argv[argc]) argc++;
    while (envp[envc]) envc++;
    // Strings in the kernel's order: arguments below the environment, each ascending, adjacent.
    size_t text = 0;
    for (int i = 0; i < argc; i++) text += strlen(argv[i]) + 1;
    for (int i = 0; i < envc; i++) text += strlen(envp[i]) + 1;
    sp -= text;
    char *at = (char *)sp;
    sp &= ~15ull;
    sp -= 16;
    uint64_t random = sp;
    memcpy((void *)random, (void *)getauxval(AT_RANDOM), 16);

    uint64_t aux[][2] = {
        {AT_SYSINFO_EHDR, host.fake_vdso},
        {AT_HWCAP, getauxval(AT_HWCAP)},
        {AT_PAGESZ, PAGE},
        {AT_CLKTCK, getauxval(AT_CLKTCK)},
        {AT_PHDR, p->phdr},
        {AT_PHENT, sizeof(Elf64_Phdr)},
        {AT_PHNUM, p->phnum},
        {AT_BASE, p->interp_base},
        {AT_FLAGS, 0},
        {AT_ENTRY, p->entry},
        {AT_UID, getuid()},
        {AT_EUID, geteuid()},
        {AT_GID, getgid()},
        {AT_EGID, getegid()},
        {AT_SECURE, 0},
        {AT_RANDOM, random},
        // GS is ours, and the next machine may lack what this one has: who is to ask the kernel is told why not.
        {AT_HWCAP2, getauxval(AT_HWCAP2) & ~(uint64_t)HWCAP2_FSGSBASE},
        {AT_EXECFN, execfn},
        {AT_PLATFORM, platform},
        {AT_MINSIGSTKSZ, getauxval(AT_MINSIGSTKSZ)},
        {AT_NULL, 0},
    };
    size_t words = 1 + (size_t)argc + 1 + (size_t)envc + 1 + sizeof aux / 8;
    sp = (sp - words * 8) & ~15ull;
    uint64_t *w = (uint64_t *)sp;
    *w++ = (uint64_t)argc;
    host.arguments[0] = (uint64_t)at;
    for (int i = 0; i < argc; i++) {
        *w++ = (uint64_t)at;
        at = stpcpy(at, argv[i]) + 1;
    }
    *w++ = 0;
    host.arguments[1] = host.arguments[2] = (uint64_t)at;
    for (int i = 0; i < envc; i++) {
        *w++ = (uint64_t)at;
        at = stpcpy(at, envp[i]) + 1;
    }
    *w++ = 0;
    host.arguments[3] = (uint64_t)at;
    memcpy(w, aux, sizeof aux);
    return sp;
}

// For /proc/self/cmdline and environ the kernel takes a whole description of the address space; all but two
// ranges stay as they are.  This is only for show, so a kernel that cannot do it is not an error.
void program_show(const char *comm) {
    if (comm) RAW2(SYS_prctl, PR_SET_NAME, comm);
    char b[2048];
    int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    ssize_t n = read(fd, b, sizeof b - 1);
    close(fd);
    if (n <= 0) return;
    b[n] = 0;
    // Fields are numbered as in proc(5); the second may hold spaces, and ends with the last ')'.
    uint64_t field[60] = {0};
    char *p = strrchr(b, ')');
    if (!p) return;
    p += 2;
    int i = 3;
    for (char *word = strtok(p, " "); word && i < 60; word = strtok(NULL, " "), i++)
        field[i] = strtoull(word, NULL, 10);
    struct prctl_mm_map map = {
        .start_code = field[26],
        .end_code = field[27],
        .start_data = field[45],
        .end_data = field[46],
        .start_brk = field[47],
        .brk = (uint64_t)sbrk(0),
        .start_stack = field[28],
        .arg_start = host.arguments[0],
        .arg_end = host.arguments[1],
        .env_start = host.arguments[2],
        .env_end = host.arguments[3],
        .exe_fd = UINT32_MAX,
    };
    RAW6(SYS_prctl, PR_SET_MM, PR_SET_MM_MAP, &map, sizeof map, 0, 0);
}

// ---- the gate page -----------------------------------------------------------------------------

// Finds a function of the kernel's vDSO by its dynamic symbol.
static void *vdso_symbol(const char *name) {
    uint64_t base = getauxval(AT_SYSINFO_EHDR);
    if (!base) return NULL;
    const Elf64_Ehdr *eh = (const Elf64_Ehdr *)base;
    const Elf64_Phdr *ph = (const Elf64_Phdr *)(base + eh->e_phoff);
    const Elf64_Dyn *dyn = NULL;
    for (int i = 0; i < eh->e_phnum; i++) {
        if (ph[i].p_type == PT_DYNAMIC) dyn = (const Elf64_Dyn *)(base + ph[i].p_vaddr);
        if (ph[i].p_type == PT_LOAD && !host.vdso_start) {
            host.vdso_start = base;
            host.vdso_end = base + UP(ph[i].p_memsz);
        }
    }
    const Elf64_Sym *sym = NULL;
    const char *str = NULL;
    const uint32_t *hash = NULL, *gnu = NULL;
    for (; dyn && dyn->d_tag; dyn++) {
        if (dyn->d_tag == DT_SYMTAB) sym = (const Elf64_Sym *)(base + dyn->d_un.d_ptr);
        if (dyn->d_tag == DT_STRTAB) str = (const char *)(base + dyn->d_un.d_ptr);
        if (dyn->d_tag == DT_HASH) hash = (const uint32_t *)(base + dyn->d_un.d_ptr);
        if (dyn->d_tag == DT_GNU_HASH) gnu = (const uint32_t *)(base + dyn->d_un.d_ptr);
    }
    if (!sym || !str) return NULL;
    uint32_t n = 0;
    if (hash) {
        n = hash[1];
    } else if (gnu) { // the highest chain's end is the symbol count
        uint32_t nb = gnu[0], first = gnu[1], bloom = gnu[2];
        const uint32_t *buckets = gnu + 4 + bloom * 2, *chain = buckets + nb;
        for (uint32_t b = 0; b < nb; b++)
            if (buckets[b] > n) n = buckets[b];
        while (n >= first && !(chain[n - first] & 1)) n++;
        n++;
    }
    for (uint32_t i = 0; i < n; i++)
        if (sym[i].st_shndx != SHN_UNDEF && !strcmp(str + sym[i].st_name, name))
            return (void *)(base + sym[i].st_value);
    return NULL;
}

// For a kernel whose vDSO lacks a function: plain system calls of the lower half.
static long slow_clock_gettime(long clock, void *ts) { return RAW2(SYS_clock_gettime, clock, ts); }
static long slow_gettimeofday(void *tv, void *tz) { return RAW2(SYS_gettimeofday, tv, tz); }
static long slow_time(void *t) { return RAW1(SYS_time, t); }
static long slow_clock_getres(long clock, void *ts) { return RAW2(SYS_clock_getres, clock, ts); }
static long slow_getcpu(void *cpu, void *node, void *x) { return RAW3(SYS_getcpu, cpu, node, x); }

const char *gate_page_map(void) {
    void *m = mmap((void *)ARENA, PAGE, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (m == MAP_FAILED) return fail("arena at 0x100000000000", strerror(errno));
    ckpt_gate_page *page = m;
    page->magic = CKPT_GATE_MAGIC;
    page->version = CKPT_GATE_VERSION;
    page->bytes = sizeof *page;
    memcpy((char *)m + CKPT_GATE_CODE, gate_code, (size_t)(gate_code_end - gate_code));
    page->gate = (long (*)(unsigned, const void *))((char *)m + CKPT_GATE_CODE);
    static const char *const names[5] = {"__vdso_clock_gettime", "__vdso_gettimeofday", "__vdso_time",
                                         "__vdso_clock_getres", "__vdso_getcpu"};
    void *const slow[5] = {slow_clock_gettime, slow_gettimeofday, slow_time, slow_clock_getres, slow_getcpu};
    for (int i = 0; i < 5; i++) {
        page->vdso[i] = vdso_symbol(names[i]);
        if (!page->vdso[i]) page->vdso[i] = slow[i];
    }
    mprotect(m, PAGE, PROT_READ | PROT_EXEC);
    return NULL;
}

// The page is writable only for a moment, a few times in a process's life, while only one upper thread can
// run.
void gate_page_set_tables(void *tables) {
    mprotect((void *)ARENA, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC);
    ((ckpt_gate_page *)ARENA)->tables = tables;
    mprotect((void *)ARENA, PAGE, PROT_READ | PROT_EXEC);
}

void gate_page_set_clocks(const struct timespec shift[2]) {
    mprotect((void *)ARENA, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC);
    for (int i = 0; i < 2; i++) {
        ((ckpt_gate_page *)ARENA)->clocks[i][0] = shift[i].tv_sec;
        ((ckpt_gate_page *)ARENA)->clocks[i][1] = shift[i].tv_nsec;
    }
    mprotect((void *)ARENA, PAGE, PROT_READ | PROT_EXEC);
}

void gate_page_set_spent(void) {
    mprotect((void *)ARENA, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC);
    ((ckpt_gate_page *)ARENA)->spent = 1;
    mprotect((void *)ARENA, PAGE, PROT_READ | PROT_EXEC);
}

// Where registers are to be forgotten after each of them, each entry calls it through forget.S.
void gate_page_set_functions(long (**fn)(const long *)) {
    static const void *calls[FORGET_LIMIT];
    forget_functions = fn;
    for (unsigned i = 0; i < FORGET_LIMIT; i++) calls[i] = forget_calls + (size_t)i * FORGET_BYTES;
    const void *table = forget_components ? (const void *)calls : (const void *)fn;
    mprotect((void *)ARENA, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC);
    *(const void **)(ARENA + CKPT_GATE_FUNCTIONS) = table;
    mprotect((void *)ARENA, PAGE, PROT_READ | PROT_EXEC);
}

const char *vdso_load(void) {
    char path[4200];
    snprintf(path, sizeof path, "%s/ckpt/vdso.so", host.libdir);
    struct image im;
    const char *error = map_image(path, &im);
    if (!error) host.fake_vdso = im.base;
    return error;
}
