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
// Every such instruction must be found, and nothing else may be changed.  Unwind tables (.eh_frame_hdr) say
// where each function begins and ends; between these addresses instructions follow each other (insn.c).  Code
// without unwind information, such as Go's, is decoded as a whole.  The check of a stack protector (fs:0x28)
// may stay as it is: within one function FS does not change, and the other half's canary is as good as ours.
//
// All this is done only when CKPT_LOWER_TLS=gs asks for it.
//
//   begin           one thread: the C library's clone, the objects that are there, ld.so's hook for debuggers
//   pthread_create  clone's child sets GS to the thread pointer that the kernel put into FS
//   dlopen          ld.so calls the hook when the object is mapped and before its code runs: it is changed too
//   no success      at the beginning: the gate writes FS as well (lower_quick), and both registers are right.
//                   Later, calls are under way that rely on FS as it is: the process ends, and says how to
//                   start it so that this cannot happen.  None of Debian's 400 libraries around MPI causes this.
//
// Nothing here may use thread-local storage or the C library's allocator: this code runs within dlopen.
#include "host.h"
#include "insn.h"
#include "lower.h"
#include "lower_tls.h"
#include "machine.h"

#include <dirent.h>
#include <elf.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

bool lower_gs;
bool lower_quick;
static const char *why = "it was not tried";

const char *lower_tls_why(void) { return lower_quick ? NULL : why; }

// The record of the upper thread that this lower thread carries; NULL: none.  ckptrun has nothing else in
// thread-local storage, so this is the word below the thread pointer, where gate.S and vdso.S find it:
// gs:[-8].
__thread struct thread *lower_me;

#define FS_PREFIX 0x64
#define GS_PREFIX 0x65

// ---- objects -------------------------------------------------------------------------------------

#define SEGMENTS 8

struct object {
    uint64_t base;
    const Elf64_Phdr *phdr;
    unsigned phnum;
    const uint8_t *unwind; // .eh_frame_hdr, NULL: none
    bool static_tls;       // has relocations for which the compiler reads FS itself
    struct {
        uint8_t *at, *end;
        int prot;
    } code[SEGMENTS];
    unsigned segments;
};

static bool object_read(const struct link_map *m, struct object *o) {
    const Elf64_Ehdr *eh = (const Elf64_Ehdr *)m->l_addr;
    *o = (struct object){.base = m->l_addr};
    if (!eh || memcmp(eh->e_ident, ELFMAG, SELFMAG)) return false;
    o->phdr = (const Elf64_Phdr *)(o->base + eh->e_phoff);
    o->phnum = eh->e_phnum;
    for (unsigned i = 0; i < o->phnum; i++) {
        const Elf64_Phdr *p = &o->phdr[i];
        if (p->p_type == PT_GNU_EH_FRAME) o->unwind = (const uint8_t *)(o->base + p->p_vaddr);
        if (p->p_type != PT_LOAD || !(p->p_flags & PF_X)) continue;
        if (o->segments == SEGMENTS) return false;
        uint8_t *at = (uint8_t *)(o->base + p->p_vaddr);
        o->code[o->segments].at = at;
        o->code[o->segments].end = at + p->p_filesz;
        o->code[o->segments].prot =
            (p->p_flags & PF_R ? PROT_READ : 0) | PROT_EXEC | (p->p_flags & PF_W ? PROT_WRITE : 0);
        o->segments++;
    }
    for (const Elf64_Dyn *d = m->l_ld; d && d->d_tag != DT_NULL; d++)
        if (d->d_tag == DT_FLAGS && (d->d_un.d_val & DF_STATIC_TLS)) o->static_tls = true;
    return true;
}

// Instructions that were found in an object.  They are changed once the whole object was decoded.
struct found {
    uint8_t **at;
    size_t count, room;
    bool full;
};

static void *pages(size_t bytes) {
    long m = RAW6(SYS_mmap, 0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return m < 0 && m > -4096 ? NULL : (void *)m;
}

static void found_add(struct found *f, uint8_t *at) {
    if (f->count == f->room) {
        size_t room = f->room ? 2 * f->room : 1 << 13;
        uint8_t **more = pages(room * sizeof *more);
        if (!more) {
            f->full = true;
            return;
        }
        if (f->room) {
            memcpy(more, f->at, f->count * sizeof *more);
            RAW2(SYS_munmap, f->at, f->room * sizeof *more);
        }
        f->at = more;
        f->room = room;
    }
    f->at[f->count++] = at;
}

static void found_done(struct found *f) {
    if (f->room) RAW2(SYS_munmap, f->at, f->room * sizeof *f->at);
}

// mov, sub, xor or cmp of a register with fs:0x28.
static bool is_canary(const uint8_t *p, const uint8_t *end) {
    static const uint8_t address[] = {0x25, 0x28, 0, 0, 0};
    return end - p >= 9 && (p[1] & 0xf8) == 0x48 &&
           (p[2] == 0x8b || p[2] == 0x2b || p[2] == 0x33 || p[2] == 0x3b) && (p[3] & 0xc7) == 0x04 &&
           !memcmp(p + 4, address, sizeof address);
}

// Whether the bytes may hold an instruction that has to be changed: most do not, and are not decoded.
static bool may_have(const uint8_t *p, const uint8_t *end) {
    while ((p = memchr(p, FS_PREFIX, (size_t)(end - p)))) {
        if (!is_canary(p, end)) return true;
        p++;
    }
    return false;
}

// Decodes the instructions from p to end; false when the last one does not end there.
static bool scan(uint8_t *p, uint8_t *end, struct found *found) {
    struct insn in;
    for (; p < end; p += in.length) {
        if (!insn_decode(p, end, &in)) return false;
        if (in.fs >= 0 && !is_canary(p, end)) found_add(found, p + in.fs);
    }
    return true;
}

// ---- unwind tables (Linux Standard Base, .eh_frame_hdr and .eh_frame) ------------------------------

static uint64_t uleb(const uint8_t **p) {
    uint64_t v = 0;
    for (unsigned shift = 0;; shift += 7) {
        uint8_t b = *(*p)++;
        v |= (uint64_t)(b & 0x7f) << shift;
        if (!(b & 0x80)) return v;
    }
}

static uint32_t word_at(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

#define PCREL_SDATA4 0x1b
#define DATAREL_SDATA4 0x3b

// How the functions of a CIE encode their addresses; 0: in an unknown way.
static uint8_t encoding_of(const uint8_t *cie) {
    const char *augmentation = (const char *)cie + 9;
    if (augmentation[0] != 'z') return 0;
    const uint8_t *p = cie + 9 + strlen(augmentation) + 1;
    for (int i = 0; i < 4; i++) uleb(&p); // alignments, return address, length of what follows
    for (const char *a = augmentation + 1; *a; a++) switch (*a) {
        case 'R':
            return *p;
        case 'L':
            p++;
            break;
        case 'P': {
            uint8_t form = *p++ & 0x0f;
            p += form == 0x0b || form == 0x03 ? 4 : 8;
            break;
        }
        case 'S':
        case 'B':
            break;
        default:
            return 0;
        }
    return 0;
}

// The i-th function of the table, which is sorted by address.  False: the entry has an unknown form.
static bool function_at(const uint8_t *header, uint32_t i, uint8_t **at, uint8_t **end) {
    const uint8_t *entry = header + 12 + 8 * (size_t)i;
    uint8_t *begin = (uint8_t *)header + (int32_t)word_at(entry);
    const uint8_t *fde = header + (int32_t)word_at(entry + 4);
    if (encoding_of(fde + 4 - word_at(fde + 4)) != PCREL_SDATA4) return false;
    *at = begin;
    *end = begin + word_at(fde + 12);
    return true;
}

// ---- one object ------------------------------------------------------------------------------------

// Code without unwind information: Go's, procedure linkage tables, padding, or tables of constants.
static bool scan_gap(const struct object *o, uint8_t *at, uint8_t *end, struct found *found) {
    if (at >= end || !may_have(at, end)) return true;
    size_t before = found->count;
    if (scan(at, end, found)) return true;
    found->count = before;
    return !o->static_tls; // constants, if the object has no code that reads FS
}

static bool scan_object(const struct object *o, struct found *found) {
    uint32_t n = 0;
    if (o->unwind) {
        if (o->unwind[0] != 1 || o->unwind[2] != 0x03 || o->unwind[3] != DATAREL_SDATA4) return false;
        n = word_at(o->unwind + 8);
    }
    for (unsigned s = 0; s < o->segments; s++) {
        uint8_t *done = o->code[s].at, *limit = o->code[s].end;
        for (uint32_t i = 0; i < n; i++) {
            uint8_t *at, *end;
            if (!function_at(o->unwind, i, &at, &end)) return false;
            if (at < done || at >= limit) continue; // in another segment, or inside the function before
            if (end > limit) return false;
            if (!scan_gap(o, done, at, found)) return false;
            if (may_have(at, end) && !scan(at, end, found)) return false;
            done = end;
        }
        if (!scan_gap(o, done, limit, found)) return false;
    }
    return !found->full;
}

static bool writable(const struct object *o, bool on) {
    for (unsigned s = 0; s < o->segments; s++) {
        uint64_t at = (uint64_t)o->code[s].at & ~4095ull, end = ((uint64_t)o->code[s].end + 4095) & ~4095ull;
        if (RAW3(SYS_mprotect, at, end - at, o->code[s].prot | (on ? PROT_WRITE : 0))) return false;
    }
    return true;
}

// Changes an object; false when that cannot be done, and the object is as it was.
static bool convert(const struct link_map *m) {
    struct object o;
    struct found found = {0};
    if (!object_read(m, &o)) return false;
    bool good = scan_object(&o, &found);
    if (good && found.count) {
        good = writable(&o, true);
        for (size_t i = 0; good && i < found.count; i++) *found.at[i] = GS_PREFIX;
        writable(&o, false);
    }
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
    for (const struct link_map *m = _r_debug.r_map; m; m = m->l_next) {
        if (is_converted(m)) continue;
        if (nconverted == OBJECTS || !convert(m)) return m->l_name;
        converted[nconverted++] = m;
    }
    return NULL;
}

// ld.so calls this, with its lock held, wherever it tells debuggers of a change.
static void objects_changed(void) {
    if (_r_debug.r_state != RT_CONSISTENT || !lower_quick) return;
    // Since glibc 2.35 other namespaces (dlmopen) are listed behind this one.
    const struct r_debug *all = &_r_debug;
    __asm__("" : "+r"(all)); // the compiler only knows the shorter form
    const bool namespaces = all->r_version > 1 && ((const struct r_debug_extended *)all)->r_next;
    const char *name = namespaces ? "a library in a namespace of its own (dlmopen)" : convert_all();
    if (name) die(1, "%s has code that libckpt does not understand: do without CKPT_LOWER_TLS=gs", name);
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

// rdfsbase rax; wrgsbase rax
static const uint8_t child_sets_gs[] = {0xf3, 0x48, 0x0f, 0xae, 0xc0, 0xf3, 0x48, 0x0f, 0xae, 0xd8};

// Finds "mov eax, number; syscall; test rax, rax; jl error; jz child; ret" and changes what the child begins
// with.
static bool change_clone(const struct object *o, uint32_t number) {
    const uint8_t pattern[] = {
        0xb8, (uint8_t)number, (uint8_t)(number >> 8), 0, 0, 0x0f, 0x05, 0x48, 0x85, 0xc0, 0x7c};
    for (unsigned s = 0; s < o->segments; s++) {
        uint8_t *end = o->code[s].end;
        for (uint8_t *p = o->code[s].at; (p = memmem(p, (size_t)(end - p), pattern, sizeof pattern)); p++) {
            const uint8_t *branch = p + sizeof pattern + 1;
            if (branch[0] != 0x74) continue;
            return move_to_stub((uint8_t *)branch + 2 + (int8_t)branch[1], end, child_sets_gs,
                                sizeof child_sets_gs);
        }
    }
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

void lower_tls_begin(void) {
    const char *wish = getenv("CKPT_LOWER_TLS");
    if (!wish || strcmp(wish, "gs")) {
        why = "CKPT_LOWER_TLS is not gs";
        return;
    }
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
    if (!convert_all()) return;
    why = "a library has code that libckpt does not understand";
    lower_quick = false;
}
