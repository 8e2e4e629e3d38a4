// SPDX-License-Identifier: Apache-2.0
//
// lower_tls.c: a segment register for the lower half's thread-local storage.
//
// Both halves have a C library, and both libraries address thread-local storage by FS.  So a crossing would
// have to write the FS base, twice a call, which takes longer than all else the gate does
// (docs/hot-path.md).  But nobody uses GS on x86-64.  An instruction that addresses memory through FS has the
// prefix 0x64; with 0x65 instead, the same instruction goes through GS.  So the code of the lower half is
// changed, prefix by prefix, when it is loaded: from then on FS is the upper half's and GS the lower half's.
//
// Every such instruction must be found, and nothing else may be changed (fs_code.c).  The check of a stack
// protector (fs:0x28) may stay as it is: within one function FS does not change, and the other half's canary is
// as good as ours.
//
// CKPT_LOWER_TLS=fs does without all this: each crossing writes the FS base.
//
// A kernel before Linux 5.9, and a virtual machine that hides FSGSBASE, let nobody but the kernel write the bases.  This
// is the only way there: FS is the upper half's from a thread's first upper instruction to its last, in handlers as
// well, and what says "no success" below ends the process with the reason.  CKPT_LOWER_TLS=kernel has it so where
// there is FSGSBASE, for tests.
//
//   begin           one thread: the C library's clone, the objects that are there, ld.so's hook for debuggers
//   pthread_create  clone's child sets GS to the thread pointer that the kernel put into FS (clone_child.S)
//   dlopen          ld.so calls the hook when the object is mapped and before its code runs: it is changed too
//   no success      the gate writes FS as well (lower_quick), and both registers are right.  Later than at the
//                   beginning this needs a process with one thread, for another may be in a call that relies on
//                   FS as it is: the process ends then, and says how to start it so that this cannot happen.
//                   None of Debian's 400 libraries around MPI causes this.
//
// Nothing here may use thread-local storage or the C library's allocator: this code runs within dlopen.
#include "host.h"
#include "crossing.h"
#include "fs_cache.h"
#include "fs_code.h"
#include "insn.h"
#include "lower.h"
#include "lower_tls.h"
#include "machine.h"
#include "thread.h"

#include <asm/hwcap2.h>
#include <dirent.h>
#include <elf.h>
#include <link.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>

bool fsgsbase;
bool lower_gs;
bool lower_quick;
static const char *why = "it was not tried";

const char *lower_tls_why(void) { return lower_quick ? NULL : why; }

// The record of the upper thread that this lower thread carries; NULL: none.  ckptrun has nothing else in
// thread-local storage, so this is the word below the thread pointer, where gate.S and vdso.S find it:
// gs:[-8].
__thread struct thread *lower_me;

#define GS_PREFIX 0x65

// How a sentence ends that says why the lower half cannot use GS.
#define WITHOUT_FSGSBASE                                                                                         \
    "this kernel or processor lacks FSGSBASE, without which there is no other way: use Linux 5.9 or later on a " \
    "processor of 2012 or later; in a virtual machine, pass the processor's features on"

// ---- one object ------------------------------------------------------------------------------------

static bool writable(const struct object *o, bool on) {
    for (unsigned s = 0; s < o->segments; s++) {
        uint64_t at = (uint64_t)o->code[s].at & ~4095ull, end = ((uint64_t)o->code[s].end + 4095) & ~4095ull;
        if (RAW3(SYS_mprotect, at, end - at, o->code[s].prot | (on ? PROT_WRITE : 0))) return false;
    }
    return true;
}

// Whether convert has made the code of its object writable.  One thread at a time is there, with ld.so's lock.
static bool opened;

#ifndef MADV_POPULATE_WRITE // Linux 5.14
#define MADV_POPULATE_WRITE 23
#endif

// Makes pages the process's own in one call, as a write to each of them would.  The kernel is entered once instead
// of once a page, which is most of what such a write costs in a virtual machine.
static bool own(uint64_t at, uint64_t end) {
    return RAW3(SYS_madvise, at, end - at, MADV_POPULATE_WRITE) == 0;
}

// Makes the pages of these places the process's own.  A page that was read before is mapped already, together with
// its neighbours, and each write to such a page flushes the TLB: for hundreds of pages a rank that took longer than
// the copy.
static void own_pages(const struct object *o, const struct found *places) {
    opened = true;
    if (!writable(o, true)) return;
    for (size_t i = 0; i < places->count;) {
        uint64_t at = (uint64_t)places->at[i] & ~4095ull, end = at + 4096;
        size_t next = i + 1;
        for (; next < places->count && (uint64_t)places->at[next] < end + 4096; next++)
            end = ((uint64_t)places->at[next] & ~4095ull) + 4096;
        if (!own(at, end))
            for (; i < next; i++) __asm__ volatile("lock orb $0, %0" : "+m"(*places->at[i]));
        i = next;
    }
}

// What ld.so is going to relocate, and then to protect: it writes to nearly all of these pages.  libckpt-core.so has
// 400 of them.  Those of an object that has been relocated are protected, and stay as they are.
static void own_relocated(const struct object *o) {
    for (unsigned i = 0; i < o->phnum; i++) {
        const Elf64_Phdr *p = &o->phdr[i];
        if (p->p_type != PT_GNU_RELRO) continue;
        uint64_t at = (o->base + p->p_vaddr) & ~4095ull, end = (o->base + p->p_vaddr + p->p_memsz) & ~4095ull;
        if (end > at) own(at, end);
    }
}

// Changes an object; false when that cannot be done, and the object is as it was.
static bool convert(const struct link_map *m, const struct fs_cache *cache) {
    struct object o;
    struct found found = {0};
    struct fs_key key;
    if (!object_read(m, &o)) return false;
    own_relocated(&o);
    opened = false;
    fs_cache_key(cache, m, &o, &key);
    bool good = fs_cache_get(cache, &key, &o, own_pages, &found);
    if (!good && (good = object_scan(&o, &found))) fs_cache_put(cache, &key, &o, &found);
    if (good && found.count) {
        opened = true;
        good = writable(&o, true);
        for (size_t i = 0; good && i < found.count; i++) *found.at[i] = GS_PREFIX;
    }
    if (opened) writable(&o, false); // other code keeps the protection that it has by now
    found_done(&found);
    return good;
}

// ---- those that are loaded -------------------------------------------------------------------------

#define OBJECTS 4096
static const struct link_map *converted[OBJECTS];
static unsigned nconverted;

static bool is_converted(const struct link_map *m) {
    for (unsigned i = 0; i < nconverted; i++)
        if (converted[i] == m) return true;
    return false;
}

static bool is_loaded(const struct link_map *m) {
    for (const struct link_map *l = _r_debug.r_map; l; l = l->l_next)
        if (l == m) return true;
    return false;
}

// Returns NULL, or the name of an object that could not be changed.
static const char *convert_all(void) {
    unsigned kept = 0;
    for (unsigned i = 0; i < nconverted; i++)
        if (is_loaded(converted[i])) converted[kept++] = converted[i];
    nconverted = kept;
    struct fs_cache cache = {.folder = -1};
    const char *unknown = NULL;
    for (const struct link_map *m = _r_debug.r_map; m && !unknown; m = m->l_next) {
        if (is_converted(m)) continue;
        if (!cache.finder_bytes) fs_cache_open(&cache, _r_debug.r_map);
        if (nconverted == OBJECTS || !convert(m, &cache))
            unknown = m->l_name;
        else
            converted[nconverted++] = m;
    }
    fs_cache_close(&cache);
    return unknown;
}

// From now on the gate writes FS.  False: that is too late for another thread.  lower_me is NULL in a thread of
// MPI's own, which has its FS base from clone.
static bool switch_fs(void) {
    struct thread *me = lower_me, *all = host.threads;
    if (!fsgsbase || (all && (all->next || all != me))) return false;
    lower_quick = false;
    if (!me) return true;
    // Functions under way have the upper half's word of the stack protector in their frames.  Those that had
    // the lower half's word are ckptrun's and do not look at it.
    enum { PROTECTOR = 0x28 };
    if (get_fs() != me->lower_fs)
        memcpy((uint8_t *)me->lower_fs + PROTECTOR, (uint8_t *)get_fs() + PROTECTOR, sizeof(uint64_t));
    // A signal in between finds a thread that is in the lower half, by either of both.
    set_fs(me->lower_fs);
    me->quick = 0;
    return true;
}

// ld.so calls this, with its lock held, wherever it tells debuggers of a change.
static void objects_changed(void) {
    if (_r_debug.r_state != RT_CONSISTENT || !lower_quick) return;
    // Since glibc 2.35 other namespaces (dlmopen) are listed behind this one.
    const struct r_debug *all = &_r_debug;
    __asm__("" : "+r"(all)); // the compiler only knows the shorter form
    const bool namespaces = all->r_version > 1 && ((const struct r_debug_extended *)all)->r_next;
    const char *name = namespaces ? "a library in a namespace of its own (dlmopen)" : convert_all();
    if (!name) return;
    why = "a library that was loaded later has code that libckpt does not understand";
    if (switch_fs()) return;
    if (!fsgsbase) die(1, "%s has code that libckpt does not understand, and " WITHOUT_FSGSBASE, name);
    die(1,
        "%s has code that libckpt does not understand, and was loaded when there were several threads: start "
        "this job with CKPT_LOWER_TLS=fs in its environment",
        name);
}

// ---- the C library's clone, and ld.so's hook -------------------------------------------------------

// A jump of five bytes from at to to; false: too far.
static bool jump(uint8_t *at, const uint8_t *to) {
    int64_t distance = to - (at + 5);
    if (distance != (int32_t)distance) return false;
    int32_t d = (int32_t)distance;
    at[0] = 0xe9;
    memcpy(at + 1, &d, sizeof d);
    return true;
}

static uint8_t *stubs; // a page near the C library, and how much of it is used
static size_t stubs_used;

static bool stubs_near(uint64_t at) {
    for (uint64_t distance = 1 << 20; distance < 1u << 30; distance += 1 << 20) {
        uint64_t hint = (at & ~4095ull) - distance;
        long m = RAW6(SYS_mmap, hint, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (m == (long)hint) {
            stubs = (uint8_t *)m;
            return true;
        }
    }
    return false;
}

// Moves the instructions at p, of at least five bytes, into a stub, behind a prologue; the stub continues
// after them.  These instructions may not depend on their address: code that follows a clone takes its
// arguments from registers or from the stack.
static bool move_to_stub(uint8_t *p, uint8_t *end, const uint8_t *prologue, size_t bytes) {
    size_t n = 0;
    struct insn in;
    while (n < 5) {
        if (!insn_decode(p + n, end, &in)) return false;
        uint8_t op = p[n];
        if (op == 0xe8 || op == 0xe9 || op == 0xeb || (op & 0xf0) == 0x70 || op == 0x0f) return false;
        n += in.length;
    }
    uint8_t *stub = stubs + stubs_used;
    memcpy(stub, prologue, bytes);
    memcpy(stub + bytes, p, n);
    if (!jump(stub + bytes + n, p + n) || !jump(p, stub)) return false;
    memset(p + 5, 0x90, n - 5);
    stubs_used += bytes + n + 5;
    return true;
}

// Finds "mov eax, number; syscall; test rax, rax; jl error; jz child; ret" between p and end and changes what the
// child begins with.
static bool change_clone_in(uint8_t *p, uint8_t *end, uint8_t *limit, uint32_t number) {
    const uint8_t pattern[] = {
        0xb8, (uint8_t)number, (uint8_t)(number >> 8), 0, 0, 0x0f, 0x05, 0x48, 0x85, 0xc0, 0x7c};
    for (; (p = memmem(p, (size_t)(end - p), pattern, sizeof pattern)); p++) {
        const uint8_t *branch = p + sizeof pattern + 1;
        if (limit - branch < 2 || branch[0] != 0x74) continue;
        const uint8_t *sets = fsgsbase ? child_sets_gs : child_asks_for_gs;
        const uint8_t *done = fsgsbase ? child_sets_gs_end : child_asks_for_gs_end;
        return move_to_stub((uint8_t *)branch + 2 + (int8_t)branch[1], limit, sets, (size_t)(done - sets));
    }
    return false;
}

// The same in all of an object.  Both calls stand close behind the function clone, where the search takes no time.
static bool change_clone(const struct object *o, uint32_t number) {
    enum { NEAR = 64 << 10 };
    uint8_t *known = (uint8_t *)clone;
    for (unsigned s = 0; s < o->segments; s++) {
        uint8_t *end = o->code[s].end;
        if (known >= o->code[s].at && end - known > NEAR && change_clone_in(known, known + NEAR, end, number))
            return true;
    }
    for (unsigned s = 0; s < o->segments; s++)
        if (change_clone_in(o->code[s].at, o->code[s].end, o->code[s].end, number)) return true;
    return false;
}

// The function that ld.so calls for debuggers does nothing: a return, and padding up to the next function.
static bool hook_loader(void) {
    uint8_t *at = (uint8_t *)_r_debug.r_brk;
    static const uint8_t endbr[] = {0xf3, 0x0f, 0x1e, 0xfa}, jump_rax[] = {0xff, 0xe0};
    if (!at || ((uint64_t)at & 15)) return false;
    if (*(memcmp(at, endbr, sizeof endbr) ? at : at + sizeof endbr) != 0xc3) return false;
    uint8_t *stub = stubs + stubs_used;
    uint64_t target = (uint64_t)objects_changed;
    memcpy(stub, (uint8_t[]){0x48, 0xb8}, 2); // mov rax, target
    memcpy(stub + 2, &target, sizeof target);
    memcpy(stub + 10, jump_rax, sizeof jump_rax);
    stubs_used += 12;
    return jump(at, stub);
}

static const struct link_map *loaded(const char *name) {
    for (const struct link_map *m = _r_debug.r_map; m; m = m->l_next) {
        const char *slash = strrchr(m->l_name, '/');
        if (!strncmp(slash ? slash + 1 : m->l_name, name, strlen(name))) return m;
    }
    return NULL;
}

// NULL, or the reason why the libraries cannot be changed.
static const char *change_libraries(void) {
    const struct link_map *libc = loaded("libc.so."), *ld = loaded("ld-linux");
    struct object c, l;
    if (!libc || !ld || !object_read(libc, &c) || !object_read(ld, &l))
        return "there is another C library than glibc";
    if (!stubs_near(libc->l_addr) || !writable(&c, true) || !writable(&l, true))
        return "the system does not let a process change its code";
    // glibc has clone3 since 2.34; it uses clone where the kernel or a sandbox does not have clone3.
    bool good = change_clone(&c, SYS_clone3) && change_clone(&c, SYS_clone) && hook_loader();
    writable(&c, false);
    writable(&l, false);
    return good ? NULL
                : "this C library makes threads, or loads libraries, in a way that libckpt does not know";
}

// Whether there are other threads: a library of LD_PRELOAD may have made some, and their GS could not be set.
static bool other_threads(void) {
    DIR *d = opendir("/proc/self/task");
    int n = 0;
    while (d && readdir(d)) n++;
    if (d) closedir(d);
    return n != 3; // ".", "..", this one
}

static void begin(const char *wish) {
    if (wish && !strcmp(wish, "fs")) {
        why = "CKPT_LOWER_TLS is fs";
        return;
    }
    if (wish && *wish && strcmp(wish, "gs") && strcmp(wish, "kernel"))
        die(2, "CKPT_LOWER_TLS is gs, fs or kernel, not %s", wish);
    uint64_t tp = get_fs();
    if ((uint64_t)&lower_me != tp - 8) {
        why = "ckptrun was linked with other thread-local storage than it has";
        return;
    }
    if (getenv("LD_AUDIT")) {
        why = "LD_AUDIT is set, whose libraries are out of sight";
        return;
    }
    if (other_threads()) {
        why = "a library of LD_PRELOAD has made threads";
        return;
    }
    set_gs((void *)tp);
    if ((why = change_libraries())) return;
    lower_gs = lower_quick = true;
    fs_cache_begin();
    if (!convert_all()) return;
    why = "a library has code that libckpt does not understand";
    lower_quick = false;
}

void lower_tls_begin(void) {
    const char *wish = getenv("CKPT_LOWER_TLS");
    fsgsbase = (getauxval(AT_HWCAP2) & HWCAP2_FSGSBASE) && !(wish && !strcmp(wish, "kernel"));
    begin(wish);
    if (!lower_quick && !fsgsbase) die(1, "%s, and " WITHOUT_FSGSBASE, why);
}
