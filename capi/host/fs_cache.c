// SPDX-License-Identifier: Apache-2.0
//
// fs_cache.c: where the code of objects addresses memory through FS, kept from one start to the next.
//
// To look through the code of an MPI takes 10 to 30 ms of each rank, most of it for pages of the file that nobody
// else ever touches.  What is found depends on the file and on this program alone.  So it is kept, in a file for
// each object:
//
//   struct entry    which content of the object's file this is about, how many places there are, a checksum
//   uint32_t ...    the places, from the object's base, by address
//
// A place that is missing here would be memory of the other half that is overwritten, without a word.  So an entry
// is used only if all of this is true:
//
//   it is about this object   the build that the linker wrote into it (a digest of its content), as it is in memory
//                             now; its headers in memory; device, inode, size and times of the file at its path
//   and this program          the build of ckptrun, so other rules of how to look do not meet old answers
//   it is whole               a checksum over all of it
//   it is the user's          folder and file belong to the user, and nobody else can write there
//   its places are prefixes   each is in a segment of code, and an instruction that goes through FS begins there
//
// An object whose linker has left no build is always looked through; so is one that was changed in the last
// moments, when times do not tell a change from the next one.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // struct dirent64
#endif
#include "fs_cache.h"
#include "insn.h"
#include "machine.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAGIC 0x3130305346747063ull // "cptFS001"

struct entry {
    uint64_t magic, sum, count;
    uint64_t key[18];
};

// Code that is looked through as quickly as a file is read.
#define SMALL (16u << 10)

// No object has more places.
#define PLACES_MOST (1u << 20)

// Beyond this number of entries some are removed before another is kept.
#define ENTRIES_MOST 1024

// ---- numbers ---------------------------------------------------------------------------------------

// Not meant to withstand anybody: who can write an entry is the user.
static uint64_t mixed(uint64_t h, const void *at, size_t bytes) {
    const uint8_t *p = at;
    for (; bytes >= 8; p += 8, bytes -= 8) {
        uint64_t w;
        memcpy(&w, p, sizeof w);
        h = (h ^ w) * 0x9e3779b97f4a7c15ull;
        h ^= h >> 29;
    }
    for (; bytes; p++, bytes--) h = (h ^ *p) * 0x100000001b3ull;
    return (h ^ h >> 32) * 0xd6e8feb86659fd93ull;
}

static uint64_t sum_of(const struct entry *e, const uint32_t *places) {
    uint64_t h = mixed(e->count, e->key, sizeof e->key);
    return mixed(h, places, e->count * sizeof *places);
}

// The number that the linker has left in an object, at most 32 bytes; 0: none.
static unsigned build_of(const struct object *o, uint8_t id[32]) {
    for (unsigned i = 0; i < o->phnum; i++) {
        const Elf64_Phdr *p = &o->phdr[i];
        if (p->p_type != PT_NOTE) continue;
        const uint8_t *at = (const uint8_t *)(o->base + p->p_vaddr), *end = at + p->p_filesz;
        while (end - at >= (long)sizeof(Elf64_Nhdr)) {
            Elf64_Nhdr n;
            memcpy(&n, at, sizeof n);
            at += sizeof n;
            uint64_t name = (n.n_namesz + 3ull) & ~3ull, bytes = name + ((n.n_descsz + 3ull) & ~3ull);
            if (bytes > (uint64_t)(end - at)) break;
            if (n.n_type == NT_GNU_BUILD_ID && n.n_namesz == 4 && !memcmp(at, "GNU", 4) && n.n_descsz >= 16 &&
                n.n_descsz <= 32) {
                memcpy(id, at + name, n.n_descsz);
                return n.n_descsz;
            }
            at += bytes;
        }
    }
    return 0;
}

// ---- the folder ------------------------------------------------------------------------------------

// first/second[number] in to; false: that is too long.
static bool joined(char *to, size_t room, const char *first, const char *second, long number) {
    size_t a = strlen(first), b = strlen(second);
    char digits[24];
    unsigned n = 0;
    if (number >= 0) do
            digits[n++] = (char)('0' + number % 10);
        while (number /= 10);
    if (a + 1 + b + n + 1 > room) return false;
    memcpy(to, first, a);
    to[a] = '/';
    memcpy(to + a + 1, second, b);
    char *end = to + a + 1 + b;
    while (n) *end++ = digits[--n];
    *end = 0;
    return true;
}

// Opens the user's folder, makes it if necessary; -1: it is somebody else's, or cannot be had.
static int folder_open(const char *path) {
    const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    long fd = RAW4(SYS_openat, AT_FDCWD, path, flags, 0);
    if (fd == -ENOENT) {
        RAW3(SYS_mkdirat, AT_FDCWD, path, 0700);
        fd = RAW4(SYS_openat, AT_FDCWD, path, flags, 0);
    }
    if (fd < 0) return -1;
    struct stat st;
    if (RAW2(SYS_fstat, fd, &st) == 0 && st.st_uid == (uid_t)RAW0(SYS_geteuid) && !(st.st_mode & 077))
        return (int)fd;
    RAW1(SYS_close, fd);
    return -1;
}

static char folders[3][4096]; // where the folder may be, by preference
static unsigned nfolders;

static void folder_add(const char *first, const char *second, long number) {
    if (first && *first == '/' && joined(folders[nfolders], sizeof folders[nfolders], first, second, number))
        nfolders++;
}

void fs_cache_begin(void) {
    const char *wish = getenv("CKPT_CODE_CACHE");
    nfolders = 0;
    if (wish && *wish) {
        if (strlen(wish) < sizeof folders[0] && *wish == '/') strcpy(folders[nfolders++], wish); // not "none"
        return;
    }
    // Not the home directory, which often is another machine's: the files of libraries have other numbers on
    // each node.
    const long user = RAW0(SYS_geteuid);
    folder_add(getenv("XDG_CACHE_HOME"), "libckpt", -1);
    folder_add(getenv("TMPDIR"), "libckpt-", user);
    folder_add("/tmp", "libckpt-", user);
}

void fs_cache_open(struct fs_cache *c, const struct link_map *self) {
    *c = (struct fs_cache){.folder = -1};
    struct object me;
    if (!self || !object_read(self, &me)) return;
    c->finder_bytes = build_of(&me, (uint8_t *)c->finder);
    if (!c->finder_bytes) return;
    for (unsigned i = 0; i < nfolders && c->folder < 0; i++) c->folder = folder_open(folders[i]);
}

void fs_cache_close(struct fs_cache *c) {
    if (c->folder >= 0) RAW1(SYS_close, c->folder);
    c->folder = -1;
}

// ---- which content ---------------------------------------------------------------------------------

void fs_cache_key(const struct fs_cache *c, const struct link_map *m, const struct object *o,
                  struct fs_key *key) {
    *key = (struct fs_key){0};
    size_t code = 0;
    for (unsigned s = 0; s < o->segments; s++) code += (size_t)(o->code[s].end - o->code[s].at);
    uint64_t *w = key->words;
    if (c->folder < 0 || code < SMALL || !build_of(o, (uint8_t *)w)) return;
    struct stat st;
    const char *path = m->l_name && *m->l_name ? m->l_name : "/proc/self/exe";
    if (RAW4(SYS_newfstatat, AT_FDCWD, path, &st, 0) || !S_ISREG(st.st_mode)) return;
    w[4] = st.st_dev;
    w[5] = st.st_ino;
    w[6] = (uint64_t)st.st_size;
    w[7] = (uint64_t)st.st_mtim.tv_sec;
    w[8] = (uint64_t)st.st_mtim.tv_nsec;
    w[9] = (uint64_t)st.st_ctim.tv_sec;
    w[10] = (uint64_t)st.st_ctim.tv_nsec;
    w[11] = mixed(0, (const void *)o->base, sizeof(Elf64_Ehdr));
    w[12] = mixed(0, o->phdr, o->phnum * sizeof *o->phdr);
    w[13] = (uint64_t)o->static_tls << 1 | o->go;
    memcpy(&w[14], c->finder, sizeof c->finder);
    struct timespec now;
    RAW2(SYS_clock_gettime, CLOCK_REALTIME, &now);
    key->settled = st.st_ctim.tv_sec + 2 < now.tv_sec && st.st_mtim.tv_sec + 2 < now.tv_sec;
    uint64_t h = mixed(mixed(0, w, 6 * sizeof *w), c->finder, sizeof c->finder);
    for (int i = 0; i < 16; i++) key->name[i] = "0123456789abcdef"[h >> (60 - 4 * i) & 15];
    key->bytes = sizeof key->words;
}

// ---- entries ---------------------------------------------------------------------------------------

static bool read_all(int fd, void *to, size_t bytes) {
    for (char *p = to; bytes;) {
        long n = RAW3(SYS_read, fd, p, bytes);
        if (n == -EINTR) continue;
        if (n <= 0) return false;
        p += n;
        bytes -= (size_t)n;
    }
    return true;
}

static bool write_all(int fd, const void *from, size_t bytes) {
    for (const char *p = from; bytes;) {
        long n = RAW3(SYS_write, fd, p, bytes);
        if (n == -EINTR) continue;
        if (n <= 0) return false;
        p += n;
        bytes -= (size_t)n;
    }
    return true;
}

static void *pages(size_t bytes) {
    long m = RAW6(SYS_mmap, 0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return m < 0 && m > -4096 ? NULL : (void *)m;
}

// Puts the places of an entry into found, as long as they are what they should be.
static bool places_take(const struct object *o, const uint32_t *places, uint64_t count, places_own *own,
                        struct found *found) {
    if (!count) return true;
    found->at = pages(count * sizeof *found->at);
    if (!found->at) return false;
    found->room = count;
    for (uint64_t i = 0; i < count; i++) {
        uint8_t *at = (uint8_t *)(o->base + places[i]);
        if ((i && places[i] <= places[i - 1]) || !object_has_code(o, at)) return false;
        found->at[found->count++] = at;
    }
    if (own) own(o, found);
    for (uint64_t i = 0; i < count; i++)
        if (!object_has_prefix(o, found->at[i])) return false;
    return true;
}

static bool entry_take(int fd, const struct fs_key *key, const struct object *o, places_own *own,
                       struct found *found) {
    struct stat st;
    struct entry e;
    if (RAW2(SYS_fstat, fd, &st) || !S_ISREG(st.st_mode) || st.st_uid != (uid_t)RAW0(SYS_geteuid) ||
        (st.st_mode & 022))
        return false;
    if (!read_all(fd, &e, sizeof e) || e.magic != MAGIC || memcmp(e.key, key->words, sizeof e.key))
        return false;
    if (e.count > PLACES_MOST || (uint64_t)st.st_size != sizeof e + e.count * sizeof(uint32_t)) return false;
    size_t bytes = e.count * sizeof(uint32_t);
    uint32_t *places = bytes ? pages(bytes) : NULL;
    if (bytes && !places) return false;
    bool good = read_all(fd, places, bytes) && sum_of(&e, places) == e.sum &&
                places_take(o, places, e.count, own, found);
    if (bytes) RAW2(SYS_munmap, places, bytes);
    return good;
}

bool fs_cache_get(const struct fs_cache *c, const struct fs_key *key, const struct object *o, places_own *own,
                  struct found *found) {
    *found = (struct found){0};
    if (!key->bytes) return false;
    long fd =
        RAW4(SYS_openat, c->folder, key->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0);
    if (fd < 0) return false;
    bool good = entry_take((int)fd, key, o, own, found);
    RAW1(SYS_close, fd);
    if (good) return true;
    found_done(found);
    *found = (struct found){0};
    return false;
}

// Makes room: whose entries these are is not asked, for all can be made anew.
static void thin_out(const struct fs_cache *c) {
    long fd = RAW4(SYS_openat, c->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (fd < 0) return;
    char buffer[8192] __attribute__((aligned(8)));
    for (unsigned pass = 0, count = 0; pass < 2; pass++) {
        long n;
        RAW3(SYS_lseek, fd, 0, SEEK_SET);
        while ((n = RAW3(SYS_getdents64, fd, buffer, sizeof buffer)) > 0)
            for (long at = 0; at < n; at += ((struct dirent64 *)(buffer + at))->d_reclen) {
                struct dirent64 *d = (struct dirent64 *)(buffer + at);
                if (d->d_type != DT_REG) continue;
                if (pass == 0)
                    count++;
                else
                    RAW3(SYS_unlinkat, c->folder, d->d_name, 0);
            }
        if (count < ENTRIES_MOST) break;
    }
    RAW1(SYS_close, fd);
}

void fs_cache_put(const struct fs_cache *c, const struct fs_key *key, const struct object *o,
                  const struct found *found) {
    if (!key->bytes || !key->settled || found->full || found->count > PLACES_MOST) return;
    struct entry e = {.magic = MAGIC, .count = found->count};
    memcpy(e.key, key->words, sizeof e.key);
    size_t bytes = sizeof e + e.count * sizeof(uint32_t);
    uint8_t *all = pages(bytes);
    if (!all) return;
    uint32_t *places = (uint32_t *)(all + sizeof e);
    bool good = true;
    for (size_t i = 0; good && i < found->count; i++) {
        uint64_t offset = (uint64_t)found->at[i] - o->base;
        places[i] = (uint32_t)offset;
        good = offset == places[i];
    }
    e.sum = sum_of(&e, places);
    memcpy(all, &e, sizeof e);
    // A name that no other process takes, also not one of another container, so that nobody sees a part.
    struct timespec now;
    RAW2(SYS_clock_gettime, CLOCK_REALTIME, &now);
    uint64_t unique = mixed((uint64_t)RAW0(SYS_getpid), &now, sizeof now) ^ (uint64_t)&e;
    char temporary[40] = "new-";
    memcpy(temporary + 4, key->name, 16);
    for (int i = 0; i < 16; i++) temporary[20 + i] = "0123456789abcdef"[unique >> (60 - 4 * i) & 15];
    if (good) thin_out(c);
    long fd = good ? RAW4(SYS_openat, c->folder, temporary,
                          O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600)
                   : -1;
    if (fd >= 0) {
        good = write_all((int)fd, all, bytes);
        RAW1(SYS_close, fd);
        if (!good || RAW4(SYS_renameat, c->folder, temporary, c->folder, key->name))
            RAW3(SYS_unlinkat, c->folder, temporary, 0);
    }
    RAW2(SYS_munmap, all, bytes);
}
