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
//   CKPT_MOMENT_EPOCH=FILE        and waits a little there for this file, the manifest, so that short
//                                 programs do not end before they are saved
//   CKPT_MOMENT_CALLS=PREFIX      a process that ends writes how many calls there were into PREFIX.RANK
//
// It is part of the program, and saved with it: a program that goes on from the epoch has had its moment.
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../../capi/front/gen/zz_numbers.h"

enum { WAITS = 60, WAIT_MS = 5 };

static long calls, chosen;
static int number;
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

// Between this and the next call the program may not have to be in MPI for others to reach a safe state,
// or it may: so the wait ends.
static __attribute__((noinline)) void come(void) {
    raise(number);
    for (int i = 0; i < WAITS && epoch != NULL && access(epoch, F_OK) != 0; i++)
        nanosleep(&(struct timespec){0, WAIT_MS * 1000000L}, NULL);
}

__attribute__((used)) void ckpt_moment_count(void) {
    if (__atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED) == chosen) come();
}

// The stack is aligned for a call when seven words are on it, beside the address to return to.
#define PASS(constant, name)                                                                             \
    __asm__(".pushsection .text\n.weak P" #name "\n.globl " #name "\n.type " #name ", @function\n" #name \
            ":\n"                                                                                        \
            "push %rdi\npush %rsi\npush %rdx\npush %rcx\npush %r8\npush %r9\npush %rax\n"                \
            "call ckpt_moment_count\n"                                                                   \
            "pop %rax\npop %r9\npop %r8\npop %rcx\npop %rdx\npop %rsi\npop %rdi\n"                       \
            "jmp P" #name "@PLT\n.size " #name ", .-" #name "\n.popsection");
CKPT_MPI_FUNCTIONS(PASS)
