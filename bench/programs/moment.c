// SPDX-License-Identifier: Apache-2.0
//
// moment.c: a tool that is linked into an MPI program and asks for a checkpoint at its n-th MPI call.
//
// All calls of MPI pass through here, whatever their arguments are: each function of MPI's is a few
// instructions that keep the registers with arguments, count, and jump to the same function with a P.
// Functions that an MPI does not have are weak, and nobody calls them; so are all others, and the program
// is linked with -Wl,--no-as-needed, or the linker leaves the MPI library out.
//
//   CKPT_MOMENT=RANK:CALL:SIGNAL  the process of this rank raises the signal at this call
//   CKPT_MOMENT_EPOCH=FILE        and does not call MPI_Finalize before this file is there, the manifest, so
//                                 that short programs do not end before they are saved
//   CKPT_MOMENT_CALLS=PREFIX      a process that ends writes how many calls there were into PREFIX.RANK
//
// Fortran libraries call the functions of C by their names with a P (all of Open MPI's, those of mpi_f08 of
// MPICH's).  For programs in Fortran it is compiled with MOMENT_BELOW_P: it is then these names that pass
// through here, and the libraries find them in the program, which comes first.
//
// It is part of the program, and saved with it: a program that goes on from the epoch has had its moment.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../../capi/canon/gen/zz_numbers.h"

#ifndef MOMENT_MS
#define MOMENT_MS 10000 // how long all waits for the epoch may take together
#endif
enum { POLL_MS = 5, FIRST_MS = 300, NEXT_MS = 20 };

static long calls, chosen;
static int number;
static int left; // milliseconds of MOMENT_MS; 0 before the moment, and when nothing is waited for any more
static const char *epoch, *prefix, *rank;

__attribute__((constructor)) static void begin(void) {
    const char *moment = getenv("CKPT_MOMENT");
    rank = getenv("PMI_RANK");
    if (rank == NULL) rank = getenv("OMPI_COMM_WORLD_RANK");
    if (rank == NULL) rank = "0";
    rank = strdup(rank);
    epoch = getenv("CKPT_MOMENT_EPOCH");
    prefix = getenv("CKPT_MOMENT_CALLS");
    int who;
    long call;
    if (moment != NULL && sscanf(moment, "%d:%ld:%d", &who, &call, &number) == 3 && who == atoi(rank))
        chosen = call;
}

__attribute__((destructor)) static void end(void) {
    char path[4096];
    if (prefix == NULL || calls == 0) return;
    snprintf(path, sizeof path, "%s.%s", prefix, rank);
    FILE *f = fopen(path, "w");
    if (f == NULL) return;
    fprintf(f, "%ld\n", calls);
    fclose(f);
}

// Others may need this process's next call of MPI to reach a safe state.  So the wait for the epoch is spread:
// some of it here, a little before each call that follows, and what is left before MPI_Finalize.
static __attribute__((noinline)) void wait_for_epoch(int ms) {
    for (; ms > 0; ms -= POLL_MS) {
        if (access(epoch, F_OK) == 0) {
            __atomic_store_n(&left, 0, __ATOMIC_RELAXED);
            return;
        }
        if (__atomic_load_n(&left, __ATOMIC_RELAXED) <= 0) return;
        nanosleep(&(struct timespec){0, POLL_MS * 1000000L}, NULL);
        __atomic_sub_fetch(&left, POLL_MS, __ATOMIC_RELAXED);
    }
}

__attribute__((used)) void ckpt_moment_count(const char *name) {
    if (__atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED) == chosen) {
        raise(number);
        if (epoch == NULL) return;
        __atomic_store_n(&left, MOMENT_MS, __ATOMIC_RELAXED);
        wait_for_epoch(FIRST_MS);
    }
    if (__atomic_load_n(&left, __ATOMIC_RELAXED) > 0)
        wait_for_epoch(strcmp(name, "MPI_Finalize") == 0 ? MOMENT_MS : NEXT_MS);
}

// The stack is aligned for a call when seven words are on it, beside the address to return to.
#ifdef MOMENT_BELOW_P
__attribute__((used)) void *ckpt_moment_next(const char *name) {
    ckpt_moment_count(name + 1);
    return dlsym(RTLD_NEXT, name);
}
#define PASS(constant, name)                                                                    \
    __asm__(".pushsection .text\n.globl P" #name "\n.type P" #name ", @function\nP" #name ":\n" \
            "push %rdi\npush %rsi\npush %rdx\npush %rcx\npush %r8\npush %r9\npush %rax\n"       \
            ".pushsection .rodata\n1: .asciz \"P" #name "\"\n.popsection\nlea 1b(%rip), %rdi\n" \
            "call ckpt_moment_next\nmov %rax, %r11\n"                                           \
            "pop %rax\npop %r9\npop %r8\npop %rcx\npop %rdx\npop %rsi\npop %rdi\n"              \
            "jmp *%r11\n.size P" #name ", .-P" #name "\n.popsection");
#else
#define PASS(constant, name)                                                                             \
    __asm__(".pushsection .text\n.weak P" #name "\n.globl " #name "\n.type " #name ", @function\n" #name \
            ":\n"                                                                                        \
            "push %rdi\npush %rsi\npush %rdx\npush %rcx\npush %r8\npush %r9\npush %rax\n"                \
            ".pushsection .rodata\n1: .asciz \"" #name "\"\n.popsection\nlea 1b(%rip), %rdi\n"           \
            "call ckpt_moment_count\n"                                                                   \
            "pop %rax\npop %r9\npop %r8\npop %rcx\npop %rdx\npop %rsi\npop %rdi\n"                       \
            "jmp P" #name "@PLT\n.size " #name ", .-" #name "\n.popsection");
#endif
CKPT_MPI_FUNCTIONS(PASS)
