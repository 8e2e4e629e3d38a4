// SPDX-License-Identifier: Apache-2.0
//
// fs_code.c: finds the instructions of an object that address memory through FS.
//
// Every such instruction must be found, and nothing else may be taken for one.  Unwind tables (.eh_frame_hdr)
// say where each function begins and ends; between these addresses instructions follow each other (insn.c).
// Code without unwind information, such as Go's, is decoded as a whole.
#include "fs_code.h"
#include "insn.h"
#include "machine.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define FS_PREFIX 0x64

// ---- objects -------------------------------------------------------------------------------------

// Go's linker leaves the number of its build in a note of this owner.
static bool has_go_note(const struct object *o, const Elf64_Phdr *p) {
    const uint8_t *at = (const uint8_t *)(o->base + p->p_vaddr), *end = at + p->p_filesz;
    while (end - at >= (long)sizeof(Elf64_Nhdr)) {
        Elf64_Nhdr n;
        memcpy(&n, at, sizeof n);
        at += sizeof n;
        uint64_t name = (n.n_namesz + 3ull) & ~3ull, bytes = name + ((n.n_descsz + 3ull) & ~3ull);
        if (bytes > (uint64_t)(end - at)) return false;
        if (n.n_namesz == 4 && !memcmp(at, "Go\0", 4)) return true;
        at += bytes;
    }
    return false;
}

bool object_read(const struct link_map *m, struct object *o) {
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
    for (unsigned i = 0; i < o->phnum; i++)
        if (o->phdr[i].p_type == PT_NOTE && has_go_note(o, &o->phdr[i])) o->go = true;
    for (const Elf64_Dyn *d = m->l_ld; d && d->d_tag != DT_NULL; d++)
        if (d->d_tag == DT_FLAGS && (d->d_un.d_val & DF_STATIC_TLS)) o->static_tls = true;
    return true;
}

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

void found_done(struct found *f) {
    if (f->room) RAW2(SYS_munmap, f->at, f->room * sizeof *f->at);
}

// mov, sub, xor or cmp of a register with fs:0x28.
static bool is_canary(const uint8_t *p, const uint8_t *end) {
    static const uint8_t address[] = {0x25, 0x28, 0, 0, 0};
    return end - p >= 9 && (p[1] & 0xf8) == 0x48 &&
           (p[2] == 0x8b || p[2] == 0x2b || p[2] == 0x33 || p[2] == 0x3b) && (p[3] & 0xc7) == 0x04 &&
           !memcmp(p + 4, address, sizeof address);
}

// Whether the byte FS_PREFIX at at may be the prefix of an instruction that has to be changed.
static bool may_be(const uint8_t *at, const uint8_t *end) {
    struct insn in;
    if (is_canary(at, end)) return false;
    // Close to the end it may look cut off: a prefix before it (0x66) can make an instruction shorter.
    return end - at < 2 * INSN_MOST || (insn_decode(at, end, &in) && in.memory);
}

// The first place from p on for which this is so; NULL: there is none.  Most bytes 0x64 are part of an address or a number, and what follows them is no instruction that
// addresses memory: that is seen without knowing where instructions begin.
static uint8_t *candidate(uint8_t *p, uint8_t *end) {
    uint8_t *at;
    while ((at = memchr(p, FS_PREFIX, (size_t)(end - p)))) {
        p = at + 1;
        if (may_be(at, end)) return at;
    }
    return NULL;
}

// The end of the segment of code that a place is in; NULL: it is in none.
static const uint8_t *code_end(const struct object *o, const uint8_t *at) {
    for (unsigned s = 0; s < o->segments; s++)
        if (at >= o->code[s].at && at < o->code[s].end) return o->code[s].end;
    return NULL;
}

bool object_has_code(const struct object *o, const uint8_t *at) { return code_end(o, at) != NULL; }

bool object_has_prefix(const struct object *o, const uint8_t *at) {
    const uint8_t *end = code_end(o, at);
    return end && *at == FS_PREFIX && may_be(at, end);
}

// Decodes the instructions from p to end; false when the last one does not end there.
static bool scan(uint8_t *p, uint8_t *end, struct found *found) {
    struct insn in;
    while (p < end) {
        unsigned length = end - p < 2 * INSN_MOST ? 0 : insn_common(p);
        if (!length) {
            if (!insn_decode(p, end, &in)) return false;
            if (in.fs >= 0 && !is_canary(p, end)) found_add(found, p + in.fs);
            length = in.length;
        }
        p += length;
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

// Where the i-th function of the table begins, which is sorted by that.
static uint8_t *function_begin(const uint8_t *header, uint32_t i) {
    return (uint8_t *)header + (int32_t)word_at(header + 12 + 8 * (size_t)i);
}

// The i-th function.  False: the entry has an unknown form.
static bool function_at(const uint8_t *header, uint32_t i, uint8_t **at, uint8_t **end) {
    const uint8_t *entry = header + 12 + 8 * (size_t)i;
    uint8_t *begin = function_begin(header, i);
    const uint8_t *fde = header + (int32_t)word_at(entry + 4);
    if (encoding_of(fde + 4 - word_at(fde + 4)) != PCREL_SDATA4) return false;
    *at = begin;
    *end = begin + word_at(fde + 12);
    return true;
}

// ---- one object ------------------------------------------------------------------------------------

// A function, or what lies between two of them.
struct piece {
    uint8_t *at, *end;
    bool function;
};

// The piece of from..limit that p is in.  False: the unwind table has an unknown form.
static bool piece_of(const struct object *o, uint32_t functions, uint8_t *p, uint8_t *from, uint8_t *limit,
                     struct piece *out) {
    uint32_t low = 0, high = functions; // those below low begin at or before p
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (function_begin(o->unwind, middle) <= p)
            low = middle + 1;
        else
            high = middle;
    }
    *out = (struct piece){.at = from, .end = limit};
    if (low < functions && function_begin(o->unwind, low) < limit) out->end = function_begin(o->unwind, low);
    if (low == 0) return true;
    uint8_t *at, *end;
    if (!function_at(o->unwind, low - 1, &at, &end)) return false;
    if (end > limit) return false;
    if (p < end)
        *out = (struct piece){at, end, true};
    else if (end > from)
        out->at = end;
    return true;
}

// Code without unwind information is Go's, procedure linkage tables, padding, or tables of constants.
static bool scan_piece(const struct object *o, const struct piece *piece, struct found *found) {
    size_t before = found->count;
    if (scan(piece->at, piece->end, found)) return true;
    if (piece->function) return false;
    found->count = before;
    return !o->static_tls; // constants, if the object has no code that reads FS
}

// ---- one candidate ---------------------------------------------------------------------------------

enum verdict { IS_PREFIX, IS_NONE, UNDECIDED };

// Bytes before a candidate in which instructions of different beginnings fall into step.
#define WINDOW 96
#define WINDOW_MOST 1024

// Whether p is the FS prefix of an instruction.  No instruction is longer than 15 bytes, so one begins in any
// 15 bytes of code: those at the begin of the window are all tried.  When every way through the window leads to
// the same answer, that is the answer; nearly always there is but one way left after a few instructions.
static enum verdict judge_from(const struct piece *piece, uint8_t *p, long window) {
    uint8_t *from = p - piece->at > window ? p - window : piece->at;
    bool begins[WINDOW_MOST + 1 + INSN_MOST] = {false};
    for (unsigned i = 0; i < (from == piece->at ? 1 : INSN_MOST); i++) begins[i] = true;
    bool prefix = false, none = false;
    for (uint8_t *at = from; at <= p; at++) {
        if (!begins[at - from]) continue;
        struct insn in = {.fs = -1};
        unsigned length = p - at > INSN_MOST ? insn_common(at) : 0;
        if (!length) {
            if (!insn_decode(at, piece->end, &in)) {
                if (in.invalid) continue; // this way does not begin with an instruction
                return UNDECIDED;
            }
            length = in.length;
        }
        if (at + length <= p)
            begins[at + length - from] = true;
        else if (in.fs == p - at)
            prefix = true;
        else
            none = true;
    }
    return prefix == none ? UNDECIDED : prefix ? IS_PREFIX : IS_NONE;
}

static enum verdict judge(const struct piece *piece, uint8_t *p) {
    enum verdict v = UNDECIDED;
    // Another window begins with other ways.
    for (long window = WINDOW; v == UNDECIDED && window <= WINDOW_MOST; window += window / 4 + 1) {
        v = judge_from(piece, p, window);
        if (p - piece->at <= window) break;
    }
    return v;
}

bool object_scan(const struct object *o, struct found *found) {
    uint32_t n = 0;
    if (o->unwind) {
        if (o->unwind[0] != 1 || o->unwind[2] != 0x03 || o->unwind[3] != DATAREL_SDATA4) return false;
        n = word_at(o->unwind + 8);
    }
    for (unsigned s = 0; s < o->segments; s++) {
        uint8_t *from = o->code[s].at, *limit = o->code[s].end, *p = from;
        struct piece piece = {.at = from, .end = from}; // none yet
        for (; (p = candidate(p, limit)); p++) {
            if (p >= piece.end && !piece_of(o, n, p, from, limit, &piece)) return false;
            enum verdict v = judge(&piece, p);
            if (v == IS_NONE) continue;
            // What is to be changed must be code: its whole piece is decoded.  Go's is one piece of megabytes,
            // and its linker puts constants elsewhere.
            if (v == IS_PREFIX && o->go && !piece.function) {
                found_add(found, p);
                continue;
            }
            while (found->count && found->at[found->count - 1] >= piece.at) found->count--;
            if (!scan_piece(o, &piece, found)) return false;
            p = piece.end - 1;
        }
    }
    return !found->full;
}
