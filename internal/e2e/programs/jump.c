// SPDX-License-Identifier: Apache-2.0
//
// siglongjmp out of a SIGSEGV handler that runs on an alternate stack, in two threads at once; and a
// guard page that the handler opens, so that the faulting instruction runs again.
// usage: jump ROUNDS
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static __thread sigjmp_buf back;
static __thread char *stack_from, *stack_to;
static __thread volatile int off_stack, wrong_address;
static __thread char *volatile guard, *volatile expected;
static int rounds;

static void on_fault(int sig, siginfo_t *info, void *context) {
    (void)context;
    char here;
    off_stack += &here < stack_from || &here >= stack_to;
    if (guard != NULL && (char *)info->si_addr >= guard && (char *)info->si_addr < guard + 4096) {
        mprotect(guard, 4096, PROT_READ | PROT_WRITE);
        return;
    }
    wrong_address += info->si_addr != expected;
    siglongjmp(back, sig);
}

static void *fault(void *arg) {
    stack_t s = {.ss_size = 64 << 10};
    s.ss_sp = malloc(s.ss_size);
    stack_from = s.ss_sp;
    stack_to = stack_from + s.ss_size;
    sigaltstack(&s, NULL);
    volatile long jumps = 0, opened = 0;
    for (volatile int i = 0; i < rounds; i++) {
        expected = (char *)(uintptr_t)(8 * (i % 500));
        int sig = sigsetjmp(back, 1);
        if (sig == 0) {
            *(volatile char *)expected = 1;
            abort();
        }
        jumps += sig == SIGSEGV;
        char *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        guard = page;
        ((volatile char *)page)[i % 4096] = 42;
        opened += page[i % 4096] == 42;
        guard = NULL;
        munmap(page, 4096);
        if (i % 50 == 0) usleep(500);
    }
    sigset_t mask;
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    snprintf(arg, 200, "jumps %ld opened %ld off the stack %d wrong address %d masked %d", jumps, opened,
             off_stack, wrong_address, sigismember(&mask, SIGSEGV));
    s.ss_flags = SS_DISABLE;
    sigaltstack(&s, NULL);
    free(stack_from);
    return NULL;
}

int main(int argc, char **argv) {
    rounds = argc > 1 ? atoi(argv[1]) : 1000;
    struct sigaction a;
    memset(&a, 0, sizeof a);
    a.sa_sigaction = on_fault;
    a.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &a, NULL);
    char mine[200], theirs[200];
    pthread_t t;
    pthread_create(&t, NULL, fault, theirs);
    fault(mine);
    pthread_join(t, NULL);
    printf("main: %s\nthread: %s\n", mine, theirs);
    return 0;
}
