// SPDX-License-Identifier: Apache-2.0
//
// wrap.c: programs that start the program: env, nice, timeout, shell scripts.
//
// When the job's process calls exec, the new program runs under ckptrun again.  A program that a child starts
// runs without ckptrun, but with capi/enter preloaded, which finds out whether this is the MPI program; the
// wrapper then is an ordinary process that waits for it.  ckptrun and capi/enter learn from one variable of
// the environment that a program under ckptrun started them, and with which options.  ckptrun removes the
// variable, so that no program sees it.
#include "host.h"
#include "emulation.h"
#include "fds.h"
#include "lower.h"
#include "wrap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define VARIABLE "CKPT_ENTER="
#define SEPARATOR "\x1f" // ends each text in the variable: ckptrun's path, its options
#define PRELOAD "LD_PRELOAD="

static char *variable;     // VARIABLE with its value
static char library[4200]; // path of capi/enter; empty: LD_PRELOAD cannot hold that path

static bool begins(const char *s, const char *with) { return !strncmp(s, with, strlen(with)); }

// ---- arriving ----------------------------------------------------------------------------------

static void name_library(void) {
    int n = snprintf(library, sizeof library, "%s/ckpt/enter.so", host.libdir);
    // The dynamic linker takes blanks and colons for the end of a name.
    if (n >= (int)sizeof library || strpbrk(library, " :")) library[0] = 0;
}

// Takes the library out of the list of LD_PRELOAD, in place; what is left may be empty.
static void without_library(char *list) {
    size_t n = strlen(library);
    for (char *at = list; n && (at = strstr(at, library));) {
        char *end = at + n;
        if ((at > list && at[-1] != ':' && at[-1] != ' ') || (*end && *end != ':' && *end != ' ')) {
            at = end;
            continue;
        }
        if (at > list)
            at--; // with the separator before it
        else if (*end)
            end++;
        memmove(at, end, strlen(end) + 1);
    }
}

bool wrap_arrived(char **environment) {
    bool arrived = false;
    name_library();
    char **to = environment;
    for (char **e = environment; *e; e++) {
        if (begins(*e, VARIABLE)) {
            arrived = true;
            continue;
        }
        if (begins(*e, PRELOAD) && strstr(*e, library)) {
            char *list = strdup(*e + strlen(PRELOAD));
            if (list) without_library(list);
            if (!list || !*list) {
                free(list);
                unsetenv("LD_PRELOAD");
                continue;
            }
            setenv("LD_PRELOAD", list, 1); // copies it
            free(list);
            *e = getenv("LD_PRELOAD") - strlen(PRELOAD);
        }
        *to++ = *e;
    }
    *to = NULL;
    unsetenv("CKPT_ENTER");
    return arrived;
}

void wrap_begin(void) {
    size_t n = strlen(VARIABLE) + strlen(host.ckptrun) + 2;
    for (char **a = host.again; *a; a++) n += strlen(*a) + 1;
    variable = malloc(n);
    if (!variable) die(1, "no memory");
    char *at = stpcpy(stpcpy(stpcpy(variable, VARIABLE), host.ckptrun), SEPARATOR);
    for (char **a = host.again; *a; a++) at = stpcpy(stpcpy(at, *a), SEPARATOR);
}

// ---- leaving: in the dispatcher or a child, so without malloc -------------------------------------

static bool outfit_open(struct outfit *o, size_t pointers, size_t text) {
    o->bytes = (pointers + 1) * sizeof *o->at + text;
    o->at = (char **)RAW6(SYS_mmap, 0, o->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if ((long)o->at < 0 && (long)o->at > -4096) {
        o->at = NULL;
        return false;
    }
    o->used = 0;
    o->text = (char *)(o->at + pointers + 1);
    return true;
}

void wrap_free(struct outfit *o) {
    if (o->at) RAW2(SYS_munmap, o->at, o->bytes);
    o->at = NULL;
}

char **wrap_environment(struct call *c, char *const *envp, struct outfit *o) {
    // A ckptrun does not need the preloaded library, and removes it; but the new program may be static.
    bool preload = host.launched && !host.mpi && library[0], preloaded = false;
    size_t n = 0, longest = 0;
    for (; envp && envp[n]; n++)
        if (begins(envp[n], PRELOAD)) longest += strlen(envp[n]);
    // Room for the longest texts: the list with our library, and numbers.
    if (!outfit_open(o, n + 2, longest + 2 * sizeof library + 32 * 4)) return NULL;
    for (size_t i = 0; i < n; i++) {
        char *e = envp[i];
        int fd = fds_launcher(c, e);
        if (begins(e, VARIABLE)) continue;
        if (fd >= 0 && strlen(e) < 32) {
            char *text = o->text;
            o->text += 1 + sprintf(text, "%.*s%d", (int)(strchr(e, '=') + 1 - e), e, fd);
            e = text;
        } else if (begins(e, PRELOAD) && preload && !preloaded) {
            char *text = o->text;
            o->text = 1 + stpcpy(stpcpy(stpcpy(text, e), e[strlen(PRELOAD)] ? ":" : ""), library);
            e = text;
            preloaded = true;
        }
        o->at[o->used++] = e;
    }
    if (preload && !preloaded) {
        o->at[o->used++] = o->text;
        o->text = 1 + stpcpy(stpcpy(o->text, PRELOAD), library);
    }
    o->at[o->used++] = variable;
    return o->at;
}

char **wrap_arguments(const char *path, char *const *argv, struct outfit *o) {
    size_t n = 0, options = 0;
    while (argv && argv[n]) n++;
    while (host.again[options]) options++;
    if (!outfit_open(o, options + n + 6, 0)) return NULL;
    o->at[o->used++] = host.ckptrun;
    for (size_t i = 0; i < options; i++) o->at[o->used++] = host.again[i];
    o->at[o->used++] = "--argv0";
    o->at[o->used++] = n ? argv[0] : "";
    o->at[o->used++] = "--";
    o->at[o->used++] = (char *)path;
    for (size_t i = 1; i < n; i++) o->at[o->used++] = argv[i];
    return o->at;
}
