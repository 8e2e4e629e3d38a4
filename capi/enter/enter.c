// SPDX-License-Identifier: Apache-2.0
//
// enter.c: runs a program that a wrapper starts as its child under ckptrun, if this is the MPI program.
//
// ckptrun runs the wrapper.  As long as the wrapper has not called MPI_Init itself, ckptrun names this library
// in LD_PRELOAD of the programs that the wrapper starts.  When the dynamic linker is done, it is certain
// whether the program can call MPI_Init.  If so, the process becomes a ckptrun with the options of the first.
// All other programs (cp, date, shells) run on unchanged; each loads one small library more.
//
// The constructor runs before that of the C library, so there is no malloc, no stdio and no getenv.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

// What ckptrun passes on: its path and its options, each ended by SEPARATOR.
#define VARIABLE "CKPT_ENTER="
#define SEPARATOR '\x1f'

enum { MAX_OPTIONS = 256, PATH_BYTES = 4096 };

static bool watching; // the program runs without ckptrun, and may still load an MPI library

static bool begins(const char *s, const char *with) { return strncmp(s, with, strlen(with)) == 0; }

static const char *last_part(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

// ---- is it an MPI program? ----

static bool starts_mpi(const char *name) {
    static const char *const names[] = {
        "MPI_Init",          "PMPI_Init",      "MPI_Init_thread", "PMPI_Init_thread",  "MPI_Session_init",
        "PMPI_Session_init", "mpi_init_",      "pmpi_init_",      "mpi_init_thread_",  "pmpi_init_thread_",
        "mpi_init_f08_",     "pmpi_init_f08_", "mpi_init__",      "mpi_init_thread__", "mpi_init_thread_f08_",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

// The dynamic section of one loaded object.
struct object {
    const char *strings;
    const Elf64_Sym *symbols;
    const Elf64_Rela *relocations[2]; // of functions that are called, and of all else
    size_t bytes[2];
    bool is_mpi, needs_mpi;
};

static const ElfW(Dyn) * dynamic_of(const struct dl_phdr_info *info) {
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            return (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    return NULL;
}

static bool names_mpi(const char *library) {
    return begins(library, "libmpi") || begins(library, "libmpich");
}

static struct object read_object(const ElfW(Dyn) * dynamic) {
    struct object o = {0};
    for (const ElfW(Dyn) *d = dynamic; d->d_tag != DT_NULL; d++) switch (d->d_tag) {
        case DT_STRTAB:
            o.strings = (const char *)d->d_un.d_ptr;
            break;
        case DT_SYMTAB:
            o.symbols = (const Elf64_Sym *)d->d_un.d_ptr;
            break;
        case DT_JMPREL:
            o.relocations[0] = (const Elf64_Rela *)d->d_un.d_ptr;
            break;
        case DT_PLTRELSZ:
            o.bytes[0] = d->d_un.d_val;
            break;
        case DT_RELA:
            o.relocations[1] = (const Elf64_Rela *)d->d_un.d_ptr;
            break;
        case DT_RELASZ:
            o.bytes[1] = d->d_un.d_val;
            break;
        }
    // The kernel's vDSO is not relocated: its addresses are small numbers.
    if ((uintptr_t)o.strings < 65536 || (uintptr_t)o.symbols < 65536) return (struct object){0};
    for (const ElfW(Dyn) *d = dynamic; d->d_tag != DT_NULL; d++) {
        o.is_mpi |= d->d_tag == DT_SONAME && names_mpi(o.strings + d->d_un.d_val);
        o.needs_mpi |= d->d_tag == DT_NEEDED && names_mpi(o.strings + d->d_un.d_val);
    }
    return o;
}

static int calls_mpi_init(struct dl_phdr_info *info, size_t size, void *unused) {
    (void)size;
    (void)unused;
    const ElfW(Dyn) *dynamic = dynamic_of(info);
    struct object o = dynamic ? read_object(dynamic) : (struct object){0};
    if (!o.needs_mpi || o.is_mpi) return 0;
    for (int table = 0; table < 2; table++)
        for (size_t i = 0; i < o.bytes[table] / sizeof(Elf64_Rela); i++) {
            size_t symbol = ELF64_R_SYM(o.relocations[table][i].r_info);
            if (symbol != 0 && starts_mpi(o.strings + o.symbols[symbol].st_name)) return 1;
        }
    return 0;
}

// Whether the program is one that gets MPI by a module.  Such a program loads the module when it is too late.
static bool loads_modules(const char *exe) {
    const char *name = last_part(exe);
    return begins(name, "python") || begins(name, "pypy") || begins(name, "octave") ||
           begins(name, "julia") || strcmp(name, "R") == 0;
}

// ---- becoming ckptrun ----

static void say(const char *what, const char *program) { dprintf(2, "ckptrun: %s %s\n", program, what); }

static void become(const char *options, const char *exe, int argc, char **argv, char **envp) {
    char text[strlen(options) + 1], *args[MAX_OPTIONS + 4 + argc];
    int n = 0;
    strcpy(text, options);
    for (char *at = text, *end; n < MAX_OPTIONS && (end = strchr(at, SEPARATOR)); at = end + 1) {
        *end = 0;
        args[n++] = at;
    }
    if (n == 0) return;
    args[n++] = "--argv0";
    args[n++] = argc > 0 ? argv[0] : "";
    args[n++] = "--";
    args[n++] = (char *)exe;
    for (int i = 1; i < argc; i++) args[n++] = argv[i];
    args[n] = NULL;
    execve(args[0], args, envp);
    say("runs without ckptrun, which is gone: it is not saved", exe);
}

__attribute__((constructor)) static void enter(int argc, char **argv, char **envp) {
    const char *options = NULL;
    for (char **e = envp; *e && !options; e++)
        if (begins(*e, VARIABLE)) options = *e + strlen(VARIABLE);
    char exe[PATH_BYTES];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (!options || n <= 0) return;
    exe[n] = 0;
    if (strcmp(last_part(exe), "ckptrun") == 0) return;
    if (loads_modules(exe) || dl_iterate_phdr(calls_mpi_init, NULL)) become(options, exe, argc, argv, envp);
    watching = true;
}

// ---- programs that were not recognized ----

static int find_mpi(struct dl_phdr_info *info, size_t size, void *path) {
    (void)size;
    if (!info->dlpi_name || !names_mpi(last_part(info->dlpi_name))) return 0;
    snprintf(path, PATH_BYTES, "%s", info->dlpi_name);
    return 1;
}

static bool used_mpi(void) {
    char path[PATH_BYTES];
    if (!dl_iterate_phdr(find_mpi, path)) return false;
    void *library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    int (*initialized)(int *) = library ? (int (*)(int *))dlsym(library, "MPI_Initialized") : NULL;
    int yes = 0;
    return initialized && initialized(&yes) == 0 && yes;
}

__attribute__((destructor)) static void leave(void) {
    char exe[PATH_BYTES];
    ssize_t n = watching ? readlink("/proc/self/exe", exe, sizeof exe - 1) : 0;
    if (n <= 0 || !used_mpi()) return;
    exe[n] = 0;
    say("was started by a program under ckptrun, loaded MPI while it ran, and so was not saved; start it "
        "in its place with `ckptrun` before its name",
        exe);
}
